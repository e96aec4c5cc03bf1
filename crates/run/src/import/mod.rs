//! What other tools recorded about a run: perf, callgrind, and the profiles that tell addresses or lines.

pub mod callgrind;
pub mod perf_data;
pub mod profile_data;
