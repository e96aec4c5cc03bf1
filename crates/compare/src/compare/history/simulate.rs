//! Commits with a known truth, for tests of what is said of them.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use super::{HistoryEntry, SeriesKey};
use crate::compare::simulate::normal;
use crate::compare::{Decision, Measure, Metric};

/// A commit that takes so much longer (log), of 20 pairs.
#[must_use]
pub fn commit(label: &str, log_ratio: f64) -> HistoryEntry {
    HistoryEntry {
        label: label.into(),
        time_s: 1_700_000_000,
        series: SeriesKey {
            reference: vec!["./reference".into()],
            reference_fnv1a: "a".into(),
            command: vec!["./app".into()],
            measure: Measure::Auto,
            machine: "amd-25-17-1".into(),
        },
        program_fnv1a: "b".into(),
        metric: Metric::Wall,
        decision: Decision::Inconclusive,
        log_ratio,
        low_log: log_ratio - 0.005,
        high_log: log_ratio + 0.005,
        pairs: 20,
        layout_sd_log: None,
    }
}

/// `n` commits with a noise of `sd_log`, which from `at` on take `step_log` longer.
#[must_use]
pub fn commits(seed: u64, n: usize, sd_log: f64, at: usize, step_log: f64) -> Vec<HistoryEntry> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut value = |i| sd_log * normal(&mut rng) + if i >= at { step_log } else { 0.0 };
    (0..n).map(|i| commit(&format!("c{i}"), value(i))).collect()
}
