//! Where code sits: which functions of two builds belong together, and what became of each.
//!
//! Nothing here is timed. Cache sets, collisions and what-if shifts will join this room.

mod matching;

pub use matching::{Change, FunctionMatch, match_functions};
