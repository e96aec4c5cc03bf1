//! What a predictor learns: how long sequences of branches, by which history, and what a probe measured of that.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::design::PriceOrigin;
use crate::model::Measurement;

/// What a predictor keeps of the branches before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BranchHistory {
    /// Whether the last 127 conditional branches that go both ways were taken, and where the last three taken ones lie.
    Outcomes,
    /// The last 44 branches that were taken, of any kind.
    TakenBranches,
}

/// Of sequences that come again and again, the lengths of which half as much is mispredicted as where nothing comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct LearnedBranches {
    /// Random directions of a branch.
    pub directions: u32,
    /// Random targets of an indirect jump.
    pub targets: u32,
    /// By what a branch is told from the same one at another time.
    pub history: BranchHistory,
}

impl LearnedBranches {
    /// Of tables so many times as large.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        let of = |length: u32| (f64::from(length) * factor) as u32;
        Self { directions: of(self.directions), targets: of(self.targets), ..self }
    }
}

/// What a probe measured of the tables of a predictor: see [`LearnedBranches`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredBranches {
    /// Random directions, of which half is learned.
    pub directions: Measurement,
    /// Random targets, of which half is learned.
    pub targets: Measurement,
    /// Source of these figures.
    pub origin: PriceOrigin,
}

impl MeasuredBranches {
    /// Puts what was measured before what the table says.
    pub(super) fn put_into(&self, learned: &mut LearnedBranches) {
        let of = |m: &Measurement| m.value.clamp(1.0, MOST_LEARNED) as u32;
        (learned.directions, learned.targets) = (of(&self.directions), of(&self.targets));
    }
}

/// No core learns longer sequences, whatever a file says: the model has tables of that size.
const MOST_LEARNED: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Unit;

    #[test]
    fn what_a_file_says_is_bounded_and_the_history_is_the_tables() {
        let history = BranchHistory::TakenBranches;
        let mut learned = LearnedBranches { directions: 3600, targets: 650, history };
        let measured = |value| Measurement {
            value,
            unit: Unit::Count,
            low: value,
            high: value,
            n: 8,
            how: String::new(),
        };
        let origin = PriceOrigin::Assumed;
        let found = MeasuredBranches { directions: measured(1e12), targets: measured(0.0), origin };
        found.put_into(&mut learned);
        assert_eq!(learned, LearnedBranches { directions: 1_000_000, targets: 1, history });
        assert_eq!(learned.times(0.25).directions, 250_000);
    }
}
