//! The levels between which the core clock jumps.
//!
//! Licences and turbo bins are steps, not noise: a mean over two steps is a clock that never ran.
//! So the readings are gathered into groups as narrow as two honest readings differ, and the
//! largest group is *the* clock, with its share said.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sample::MOVED_CLOCK;
use crate::stats::percent;
use crate::stats::robust::{finite, quantile};

/// One level of the core clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Level {
    /// Core cycles per tick, median of the group.
    pub cycles_per_tick: f64,
    /// Share of the steady samples in this group, percent.
    pub share_percent: f64,
}

/// At most this many levels are told apart; a drifting clock would fill a page.
const MOST_LEVELS: usize = 6;

/// Groups smaller than this share of all readings are stray readings, not levels.
const LEAST_SHARE: f64 = 0.01;

/// The levels, largest share first. Empty without a finite reading.
#[must_use]
pub fn levels(cycles_per_tick: impl IntoIterator<Item = f64>) -> Vec<Level> {
    let mut rest = finite(cycles_per_tick);
    let all = rest.len();
    let least = ((all as f64 * LEAST_SHARE) as usize).max(2);
    let mut found: Vec<Level> = Vec::new();
    while found.len() < MOST_LEVELS {
        let group = fullest(&rest);
        if group.len() < least.min(all).max(1) {
            break;
        }
        found.push(Level {
            cycles_per_tick: quantile(&rest[group.clone()], 0.5),
            share_percent: percent(group.len(), all),
        });
        rest.drain(group);
    }
    found.sort_by(|a, b| b.share_percent.total_cmp(&a.share_percent));
    found
}

/// The stretch of ascending values that holds most within the width of one level.
fn fullest(ascending: &[f64]) -> std::ops::Range<usize> {
    let (mut best, mut start) = (0..0, 0);
    for end in 0..ascending.len() {
        while ascending[end] > ascending[start] * (1.0 + MOVED_CLOCK) {
            start += 1;
        }
        if end + 1 - start > best.len() {
            best = start..end + 1;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_steps_are_two_levels() {
        let quiet = (0..90).map(|i| 1.24 + f64::from(i) * 1e-6);
        let licence = (0..10).map(|i| 1.08 + f64::from(i) * 1e-6);
        let found = levels(quiet.chain(licence));
        assert_eq!(found.len(), 2);
        assert!((found[0].cycles_per_tick - 1.24).abs() < 1e-3);
        assert_eq!(found[0].share_percent, 90.0);
        assert!((found[1].cycles_per_tick - 1.08).abs() < 1e-3);
    }

    #[test]
    fn nothing_has_no_level_and_strays_are_none() {
        assert!(levels([]).is_empty());
        assert!(levels([f64::NAN]).is_empty());
        let strays = (0..300).map(|_| 1.0).chain([0.5]);
        assert_eq!(levels(strays).len(), 1);
    }
}
