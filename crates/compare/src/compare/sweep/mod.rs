//! Many builds of one thing: does it hold across compilers, flags, alignments and placements?
//!
//! [`Axis`] values span [`Variant`]s; each variant is built as it comes and in some random
//! placements through the toolchain's own [`Knob`]; every build is a [`Cell`]. Builds run on all
//! processors and are kept by content; runs go round by round over all cells in random order on one
//! processor, guarded by a calibration chain, in [`Block`]s; those of the same builds are kept, and a later sweep of
//! them adds to these. A plan hands blocks to other machines ([`super::fleet`]), of builds or of [`Commands`] as they are given. The first axis is the question (its first value is the
//! base), the others are matched conditions.

mod alike;
mod axes;
mod block;
mod build;
mod commands;
mod error;
mod journal;
mod knob;
mod machines;
mod order_file;
mod parallel;
mod pilot;
mod planned;
mod report;
mod rounds;
mod run;
mod tools;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use axes::{Axis, Variant, fill, variants};
pub(crate) use block::MOST_BLOCKS;
pub use block::{Block, BlockFile, BlockResult, Host};
pub use build::{BuildOutcome, Builder};
pub use commands::{Commands, plan_commands};
pub(in crate::compare) use commands::{Tried, bare, placed, tried};
pub use error::SweepError;
pub use journal::{Journal, Kept};
pub use knob::Knob;
pub use machines::{AcrossMachines, KindEffect, MachineEffect, MachineRecord, SetAside, Tally};
pub(crate) use machines::{Asked, join, join_by};
pub use pilot::LayoutPlan;
pub(in crate::compare) use planned::cpus;
pub use planned::{Planned, Site, plan_blocks, run_block};
pub use report::{CellRecord, LevelResult, Spread, SweepComparison, SweepNote, SweepReport};
pub use run::{Folders, Stage, sweep};

use super::{Amounts, Measure, Until};
use crate::clock::Cpus;

/// What a sweep is asked to do; kept with its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepSettings {
    /// What varies; the first one is the question.
    pub axes: Vec<Axis>,
    /// Random placements of each variant, besides the build as it comes.
    pub layouts: u32,
    /// Knob that makes the placements.
    pub knob: Knob,
    /// How a variant is built, by a shell; absent when the run template needs no build.
    pub build: Option<String>,
    /// How it is run, without a shell.
    pub run: String,
    /// Runs of every cell; absent: chosen from a pilot.
    pub rounds: Option<u32>,
    /// The smallest effect of interest as a share.
    pub effect: f64,
    /// Seed of placements and of the order.
    pub seed: u64,
    /// Longest wall time of one run, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// The logical processors all runs stay on; absent when the scheduler chooses.
    #[serde(default)]
    pub cpus: Option<Cpus>,
    /// Repeat runs during which the machine was slower than its best.
    pub guard: bool,
    /// What the answer is about.
    #[serde(default)]
    pub measure: Measure,
    /// Run each program again and again for this time, in milliseconds, as one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations_in_ms: Option<u64>,
    /// Stop when this is known of every comparison, by intervals that may be read after each round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
    /// Stop after this time of running, in milliseconds, behind a whole round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_ms: Option<u64>,
}

impl SweepSettings {
    /// Runs of `run` along `axis` as they come: no builds, no placements, rounds by a pilot, wall time, no limits.
    #[must_use]
    pub fn new(axis: Axis, run: &str) -> Self {
        Self {
            axes: vec![axis],
            layouts: 0,
            knob: Knob::Go,
            build: None,
            run: run.into(),
            rounds: None,
            effect: 0.01,
            seed: 1,
            timeout_ms: None,
            cpus: None,
            guard: false,
            measure: Measure::Wall,
            operations_in_ms: None,
            until: None,
            budget_ms: None,
        }
    }

    /// These settings without what only says how long to go on: what runs are kept for.
    #[must_use]
    pub fn question(&self) -> Self {
        Self {
            rounds: None,
            effect: 0.0,
            timeout_ms: None,
            until: None,
            budget_ms: None,
            ..self.clone()
        }
    }
}

/// One build: a variant in one placement.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Cell {
    /// Number of the variant, from 0.
    pub variant: u32,
    /// Which placement; 0 is the build as it comes.
    pub layout: u32,
}

/// One run of one cell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepRun {
    /// Variant and placement that was run.
    #[serde(flatten)]
    pub cell: Cell,
    /// Number of the round, from 0.
    pub round: u32,
    /// Times, memory and counts of the run.
    #[serde(flatten)]
    pub amounts: Amounts,
    /// How often it was repeated because the machine was disturbed.
    pub repeats: u32,
    /// Number of the machine in the report, from 0.
    #[serde(default, skip_serializing_if = "is_first")]
    pub machine: u32,
}

fn is_first(number: &u32) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests;
