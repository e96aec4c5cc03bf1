//! One file per command: what was typed, the call into the library, the screen.

pub mod compare;
pub mod explain;
pub mod list;
pub mod probe;
pub mod rule;
mod run_args;
pub mod scan;
mod site;
pub mod trace;
mod words;
