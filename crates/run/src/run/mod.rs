//! Runs: starting a child and measuring it, sampling where its time goes, holding it under ptrace, and what the kernel
//! says about its memory.
//!
//! This room and `trace` and `compare` are the only ones that start processes, and every process is started through
//! [`child`], so that none outlives us.

pub mod child;
pub mod counter;
pub mod generated;
pub mod look;
pub mod maps;
pub mod sample;
pub mod tracee;
