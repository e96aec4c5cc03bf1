//! Experiments on the processor at hand: what it charges for what. All are in [`probes::PROBES`].

use stallscope_code::{foreign, machine, model, stats};
use stallscope_run::clock;

// The kernels are x86-64 machine code; elsewhere their frame is compiled and never called.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports))]
pub mod probes;
