//! Where code sits: which functions of two builds belong together, and what became of each.
//!
//! Nothing here is timed, and nothing is run: samples and traces come from `trace`, caches from
//! `sim`.

mod matching;
mod shift;

pub use matching::{Change, FunctionMatch, match_functions};
pub use shift::{
    BuildSummary, ChangeCounts, LayoutError, Placement, STRIDES_BYTES, ShiftCause, ShiftMap,
    ShiftRow, ShiftRun, ShiftedFunction,
};
