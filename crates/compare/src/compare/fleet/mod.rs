//! Blocks of rounds, of probes or of explanations on other machines, by what hands out work there already: files of blocks, engines that start
//! workers, and the join of what comes back. There is no scheduler here and nothing that stays running.
//!
//! Truth is in the files. A worker writes a block's result when it is whole, under the block's number, so that a
//! block that is run twice, late, or on a machine that dies costs time and changes nothing. Engines are
//! only asked whether a worker still runs.

mod collect;
mod engine;
mod explained;
mod files;
mod hosts;
mod job;
mod selection;
pub mod simulate;
mod slurm;
mod template;

pub use collect::{Back, Collected, Profiles, Results, collect};
pub use engine::{Alive, Engine, EngineError, EngineKind, Local, Task, Ticket, Work};
pub use explained::{ExplainBlock, Extent, plan_explanations};
pub use files::{FleetError, Plan, ResultFolder};
pub use hosts::Hosts;
pub use job::{Head, Job, ProbeBlock, ProbeResult};
pub use selection::Selection;
pub use slurm::Slurm;
pub use template::Template;

#[cfg(test)]
mod tests;
