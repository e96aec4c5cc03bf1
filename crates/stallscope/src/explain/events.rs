//! How often something happened in runs of both arms, and whether that differs.

use crate::compare::Arm;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Counts that differ by less than this part are called the same.
const LEAST_CHANGE: f64 = 0.005;
/// Fewer system calls or page faults more than this are not worth a word.
const LEAST_EVENTS: u64 = 50;

/// Something counted in several runs of each arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// The least and the most in BEFORE.
    pub before: [u64; 2],
    /// The least and the most in AFTER.
    pub after: [u64; 2],
    /// Runs of each arm.
    pub runs: usize,
}

impl Counts {
    pub(super) fn of(runs: [&[u64]; 2]) -> Option<Self> {
        let ends = |runs: &[u64]| Some([*runs.iter().min()?, *runs.iter().max()?]);
        let count = runs[0].len().min(runs[1].len());
        Some(Self { before: ends(runs[0])?, after: ends(runs[1])?, runs: count })
    }

    fn middle([low, high]: [u64; 2]) -> f64 {
        (low as f64 + high as f64) / 2.0
    }

    /// What is in the middle of each arm's.
    pub(super) fn typical(&self) -> [f64; 2] {
        [self.before, self.after].map(Self::middle)
    }

    /// The same, the slow build's first.
    pub(super) fn slow_first(&self, slow: Arm) -> [f64; 2] {
        let both = self.typical();
        [slow, slow.other()].map(|arm| both[arm.index()])
    }

    /// What AFTER has for one of BEFORE.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        let [before, after] = self.typical();
        after / before.max(1.0)
    }

    /// How many more AFTER has.
    #[must_use]
    pub fn change(&self) -> f64 {
        let [before, after] = self.typical();
        after - before
    }

    /// How far runs of one arm are from the middle, over both arms.
    pub(super) fn apart(&self) -> f64 {
        let half = |[low, high]: [u64; 2]| high.saturating_sub(low) as f64 / 2.0;
        half(self.before) + half(self.after)
    }

    /// Whether no run of one arm has as few as any of the other.
    pub(super) fn is_apart(&self) -> bool {
        self.before[1] < self.after[0] || self.after[1] < self.before[0]
    }

    /// Whether the arms have as many.
    #[must_use]
    pub fn is_the_same(&self) -> bool {
        are_as_many(self.typical()) || !self.is_apart()
    }

    /// Whether the arms differ by enough events to be worth a word.
    #[must_use]
    pub fn shows_events(&self) -> bool {
        let change = self.change().abs();
        self.is_apart()
            && change >= LEAST_EVENTS as f64
            && change > LEAST_CHANGE * Self::middle(self.before)
    }
}

/// Whether the arms have the same number, as far as that is worth a word.
pub(super) fn are_as_many([before, after]: [f64; 2]) -> bool {
    (after / before.max(1.0) - 1.0).abs() < LEAST_CHANGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_overlap_or_are_few_are_no_change() {
        let counts = |before, after| Counts { before, after, runs: 2 };
        assert!(counts([100, 100], [1100, 1100]).shows_events());
        assert!(!counts([100, 200], [190, 1100]).shows_events());
        assert!(!counts([100, 100], [149, 149]).shows_events());
        assert!(!counts([100_000, 100_000], [100_400, 100_400]).shows_events());
    }
}
