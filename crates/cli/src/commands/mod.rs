//! One file per command: what was typed, the call into the library, the screen.

mod arm_args;
pub mod bisect;
pub mod case;
pub mod compare;
mod cpu_args;
pub mod env;
pub mod explain;
pub mod fleet;
mod gate;
pub mod history;
pub mod layout;

pub mod list;
pub mod manual;
mod metric;
mod plan;
pub mod probe;
pub mod render;
pub mod rule;
mod run_args;
pub mod scan;
mod site;
mod stop_args;
pub mod survey;
pub mod sweep;
mod target;
mod tool;
pub mod trace;
mod words;
