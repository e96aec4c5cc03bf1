//! Where code sits: which functions of two builds belong together, what moved, what grew and why, and
//! who shares which set of the instruction cache.
//!
//! Nothing here is timed, and nothing is run: samples and counts come from `trace`.

mod geometry;
mod growth;
mod heat;
mod jumps;
mod matching;
mod report;
mod sets;
mod shift;
mod what_if;

pub use geometry::{Geometry, GeometryError};
pub use growth::{
    Build, CallChange, FunctionGrowth, FunctionSize, Growth, GrowthCounts, Reasons, SectionGrowth,
    SizeDifference, StringChange, StringEffect,
};
pub use heat::{HotLine, LineHeat, Samples, function_index};
pub use jumps::JumpCounts;
pub use matching::{Change, FunctionMatch, match_functions};
pub use report::{FocusError, HeatSummary, LayoutReport, SetReport, set_report};
pub use sets::{Cluster, HotBuild, Occupant, SetChange, SetHeat, SetRow, clusters, set_rows};
pub use shift::{
    BuildSummary, ChangeCounts, LayoutError, Placement, STRIDES_BYTES, ShiftCause, ShiftMap,
    ShiftRow, ShiftRun, ShiftedFunction,
};
pub use what_if::{ShiftOutcome, Shifts, ShiftsError, WhatIf};
