//! stallscope explains performance that changes without a visible reason.
//!
//! Every conclusion joins three things: a *site* in the code, a *machine fact* and a
//! *count*. The rooms below hold one idea each and import only from rooms above them in
//! this list; `tests/architecture.rs` reads the `use crate::` lines and enforces it. They stand in crates of their own,
//! in the same order, and are all reached from here.
//!
//! * [`foreign`]: files and text that others wrote
//! * [`model`]: the nouns
//! * [`stats`]: quantiles, ranks, intervals, tests
//! * [`machine`]: which processor this is
//! * [`code`]: a binary as functions, loops and accesses
//! * [`hazards`]: shapes in machine code that cost
//! * [`clock`]: how time and events are counted
//! * [`run`]: child processes and samples
//! * [`import`]: what other tools recorded
//! * [`probes`]: experiments on the hardware
//! * [`trace`]: every instruction of a window of a run
//! * [`sim`]: models fed by the events of a trace
//! * [`layout`]: where code sits, which functions of two builds belong together
//! * [`compare`]: runs of two programs, how they differ and how sure that is
//! * [`counted`]: the hot code of one run, what the rules find there and what the run counts of it
//! * [`explain`]: joins all of it
//! * [`report`]: says it
//!
//! The library never prints and never panics on input. What a machine cannot do (no
//! counters, no ptrace, no symbols) is a value that reaches the report.
#![forbid(unsafe_code)]

pub use stallscope_code::{code, foreign, hazards, machine, model, stats};
pub use stallscope_compare::{compare, layout};
pub use stallscope_probes::probes;
pub use stallscope_run::{clock, import, run};
pub use stallscope_trace::{sim, trace};

pub mod counted;
pub mod explain;
pub mod report;
