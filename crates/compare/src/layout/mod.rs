//! Where code sits: which functions of two builds belong together, what moved, what grew and why, and
//! who shares which set of the instruction cache.
//!
//! Nothing here is timed, and nothing is run: samples and counts come from `trace`.

mod budget;
mod front_end;
mod growth;
mod heat;
mod jumps;
mod matching;
mod named;
mod occupancy;
mod report;
mod sets;
mod shift;
mod skid;
mod suggest;
mod uop_cache;
mod what_if;
mod window;

pub use budget::{Budget, Effect, EffectKind, EventCount, MeasuredDifference, Payment};
pub use front_end::{FrontEnd, SpreadLoop, Straddler, front_end};
pub use growth::{
    Build, CallChange, FunctionGrowth, FunctionSize, Growth, GrowthCounts, Reasons, SectionGrowth,
    SizeDifference, StringChange, StringEffect, callee,
};
pub use heat::{HotLine, LineHeat, Samples, function_index};
pub use jumps::{BoundaryJump, JumpCounts, boundary_jumps};
pub use matching::{Change, FunctionMatch, ReadableNames, match_functions};
pub use named::named_spots;
pub use occupancy::{EvictedLine, Occupancy, OverfullSet, ResidentLine, occupancy};
pub use report::{FocusError, HeatSummary, LayoutReport, SetReport, set_report};
pub use sets::{Cluster, HotBuild, Occupant, SetChange, SetHeat, SetRow, clusters, set_rows};
pub use shift::{
    BuildSummary, ChangeCounts, LayoutError, Placement, STRIDES_BYTES, ShiftCause, ShiftMap,
    ShiftRow, ShiftRun, ShiftedFunction,
};
pub use suggest::{Arrangement, Suggestion, Suggestions, Toolchain, suggest, toolchain};
pub use uop_cache::{DecodedUse, decoded_use};
pub use what_if::{ShiftOutcome, Shifts, ShiftsError, WhatIf};
pub use window::{TracedWindow, WindowInsn, WindowLog};
