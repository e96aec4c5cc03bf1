//! A run followed instruction by instruction, and models fed by that.
//!
//! * [`trace`]: engines and recordings
//! * [`sim`]: models of the store buffer, the instruction cache, jumps, and the whole core

use stallscope_code::{code, foreign, machine, model};
use stallscope_run::{clock, run};

pub mod sim;
// What follows a run is x86-64 machine code; elsewhere its frame is compiled and never called.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports))]
pub mod trace;
