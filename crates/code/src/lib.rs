//! What can be known without running anything: programs as functions, instructions and addresses, the processor and its
//! design, and the shapes in machine code that cost.
//!
//! * [`foreign`]: files and text that others wrote
//! * [`model`]: the nouns
//! * [`stats`]: quantiles, ranks, intervals, tests
//! * [`machine`]: which processor this is, and its design
//! * [`code`]: a binary as functions, loops and accesses
//! * [`hazards`]: shapes in machine code that cost
#![forbid(unsafe_code)]

pub mod code;
pub mod foreign;
pub mod hazards;
pub mod machine;
pub mod model;
pub mod stats;
