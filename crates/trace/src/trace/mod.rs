//! Every instruction of a window of a run: engines that follow a program, and recordings of what they saw.

pub mod engine;
pub mod recorded;
pub mod spread;
pub mod whole_file;
