//! Two builds side by side.
//!
//! * [`layout`]: where code sits, which functions of two builds belong together
//! * [`compare`]: runs of two programs, how they differ and how sure that is
#![forbid(unsafe_code)]

use stallscope_code::{code, foreign, hazards, machine, model, stats};
use stallscope_run::{clock, run};
use stallscope_trace::{sim, trace};

pub mod compare;
pub mod layout;
