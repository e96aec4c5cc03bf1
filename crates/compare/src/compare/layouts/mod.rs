//! Is it the code or where the code sits: many placements of the same two programs.
//!
//! *Effect.* The same machine code at other addresses runs at another speed: jumps share predictor
//! entries, lines share cache sets, decoded blocks share windows. For ordinary programs that is 1 to
//! 3 per cent, and it is a property of the binary: more runs of one build make it only more
//! "significant". With a layout spread of 2 % a rank test over 20 runs of one build pair calls 90 %
//! of equal programs different.
//!
//! *Measurable sign.* Builds that differ in nothing but placement have medians that differ by more
//! than their runs do, reproducibly.
//!
//! *Model.* `log t = arm + layout(arm) + round + run`. The unit of replication is the layout: rounds
//! are taken out, each layout becomes the median of its runs, and Welch's test compares the layouts
//! of both arms. Layout 0 is the build as the toolchain makes it; it is what a naive comparison
//! would have seen, and because people tune and publish at that layout it is not a random draw, so
//! it stays out of the estimate for the code.
//!
//! *Literature.* Mytkowicz, Diwan, Hauswirth and Sweeney, "Producing Wrong Data Without Doing
//! Anything Obviously Wrong!" (ASPLOS 2009); Curtsinger and Berger, "Stabilizer" (ASPLOS 2013);
//! Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time" (ISMM 2013).

mod ensemble;
mod matched;
pub mod planning;
pub mod simulate;
mod split;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schedule::Arm;

pub use ensemble::{CellRun, Difference, Ensemble, LayoutValue};
pub use matched::{Agreement, LevelEffect, Matched, agree, effect_by_rounds};
pub use split::{Part, Source, Split, split};

/// The layout that the toolchain makes by default.
pub const AS_BUILT: u32 = 0;

/// Layouts per arm below which no verdict about the code is given.
pub const FEWEST_LAYOUTS: usize = 3;

/// One run of one layout.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayoutRun {
    /// Arm that was run.
    pub arm: Arm,
    /// Which placement of it; 0 is the build as it comes, see [`AS_BUILT`].
    pub layout: u32,
    /// The round it belongs to: every layout runs about once in each, in random order.
    pub round: u32,
    /// Time, or another amount that is better when smaller; above zero.
    pub value: f64,
}

/// Why an ensemble has no split.
#[derive(Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum LayoutError {
    #[error(
        "layout {layout} of arm {arm} has the value {value}; only amounts above zero have ratios"
    )]
    Value {
        arm: Arm,
        /// Number of the layout; 0 is the build as it comes.
        layout: u32,
        value: f64,
    },
    /// One arm has no random layout with a run.
    #[error("arm {0} has no layout that was run")]
    NoLayout(Arm),
}
