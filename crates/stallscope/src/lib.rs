//! stallscope explains performance that changes without a visible reason.
//!
//! Every conclusion joins three things: a *site* in the code, a *machine fact* and a
//! *count*. The rooms below hold one idea each and import only from rooms above them in
//! this list; `tests/architecture.rs` reads the `use crate::` lines and enforces it.
//!
//! * [`foreign`]: files and text that others wrote
//! * [`model`]: the nouns
//! * [`stats`]: quantiles, ranks, intervals, tests
//! * [`machine`]: which processor this is
//! * [`clock`]: how time and events are counted
//! * [`probes`]: experiments on the hardware
//! * [`code`]: a binary as functions, loops and accesses
//! * [`hazards`]: shapes in machine code that cost
//! * [`trace`]: watching a run
//! * [`sim`]: models fed by the events of a trace
//! * [`layout`]: where code sits, which functions of two builds belong together
//! * [`compare`]: runs of two programs, how they differ and how sure that is
//! * [`explain`]: joins all of it
//! * [`report`]: says it
//!
//! The library never prints and never panics on input. What a machine cannot do (no
//! counters, no ptrace, no symbols) is a value that reaches the report.

// What measures and what follows a run is x86-64 machine code; elsewhere its frame is compiled and
// never called.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports))]
pub mod clock;
pub mod code;
pub mod compare;
pub mod explain;
pub mod foreign;
pub mod hazards;
pub mod layout;
pub mod machine;
pub mod model;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports))]
pub mod probes;
pub mod report;
pub mod sim;
pub mod stats;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports))]
pub mod trace;
