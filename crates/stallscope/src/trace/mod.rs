//! Watching a run: starting a child and measuring it, sampling where its time goes, reading what
//! perf recorded.
//!
//! This room and `compare` are the only ones that start processes, and every process is
//! started through [`child`], so that none outlives us.

pub mod callgrind;
pub mod child;
pub mod counter;
pub mod engine;
pub mod look;
mod maps;
pub mod perf_data;
pub mod profile_data;
pub mod recorded;
pub mod sample;
mod tracee;
pub mod whole_file;
