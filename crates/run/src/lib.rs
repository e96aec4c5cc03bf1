//! Runs of programs, and what is measured about them as a whole.
//!
//! * [`clock`]: how time and events are counted
//! * [`run`]: child processes, samples, memory maps
//! * [`import`]: what other tools recorded

use stallscope_code::{code, foreign, machine, model, stats};

// What measures and what follows a run is x86-64 machine code; elsewhere its frame is compiled and
// never called.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports))]
pub mod clock;
pub mod import;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports))]
pub mod run;
