//! How many layouts, and how many runs of each.
//!
//! Repeat at the highest level that carries variance (Kalibera and Jones): another run of the same
//! layout is cheap and teaches little once runs agree, another layout costs a build and teaches
//! more. Their optimum of runs per layout is √(cost of a build / cost of a run × variance of runs /
//! variance of layouts), whatever the total.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::POWER;
use crate::stats::power::{least_count, two_sample_power};

/// More layouts than this are not planned: the spread has to go down instead.
const MOST_LAYOUTS: usize = 100_000;
/// More runs of one layout are never worth it: the machine changes in the meantime.
const MOST_RUNS: u32 = 50;

/// What a pilot found, in logs and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pilot {
    /// Spread of a run within its layout (log).
    pub run_sd_log: f64,
    /// Standard deviation between layouts, natural logarithm.
    pub layout_sd_log: f64,
    /// Time to make one layout, on as many processors as builds use together.
    pub build_ns: f64,
    /// Wall time of one run, ns.
    pub run_ns: f64,
}

/// What to do, and what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// Layouts to build of each arm.
    pub layouts_per_arm: u64,
    /// Runs to make of each layout.
    pub runs_per_layout: u32,
    /// Builds and runs of both arms together, in nanoseconds.
    pub expected_ns: f64,
}

impl Pilot {
    /// Kalibera and Jones's optimum, at least 1 and at most 50.
    #[must_use]
    pub fn runs_per_layout(&self) -> u32 {
        let runs = (self.build_ns / self.run_ns).sqrt() * self.run_sd_log / self.layout_sd_log;
        // No spread between layouts asks for ever more runs, no cost of a run as well.
        if runs.is_nan() { 1 } else { runs.round().clamp(1.0, f64::from(MOST_RUNS)) as u32 }
    }

    /// Layouts and runs that show `effect_log` with 80 % power; `None` when nothing reasonable does.
    #[must_use]
    pub fn plan(&self, effect_log: f64) -> Option<Plan> {
        let runs = self.runs_per_layout();
        let spread = self.layout_sd_log.hypot(self.run_sd_log / f64::from(runs).sqrt());
        let layouts = layouts_needed(spread, effect_log)?.max(super::FEWEST_LAYOUTS);
        let each = self.build_ns + f64::from(runs) * self.run_ns;
        Some(Plan {
            layouts_per_arm: layouts as u64,
            runs_per_layout: runs,
            expected_ns: 2.0 * layouts as f64 * each,
        })
    }
}

/// Layouts per arm that show `effect_log` with 80 % power; `None` for no effect or absurd numbers.
#[must_use]
pub fn layouts_needed(layout_sd_log: f64, effect_log: f64) -> Option<usize> {
    least_count(MOST_LAYOUTS, |n| two_sample_power(n, effect_log.abs() / layout_sd_log))
}

/// The smallest effect (log) that so many layouts per arm show with 80 % power.
#[must_use]
pub fn detectable(layouts: usize, layout_sd_log: f64) -> Option<f64> {
    if layouts < super::FEWEST_LAYOUTS {
        return None;
    }
    let (mut low, mut high) = (0.0, 20.0);
    for _ in 0..40 {
        let middle = 0.5 * (low + high);
        if two_sample_power(layouts, middle) >= POWER { high = middle } else { low = middle }
    }
    Some(high * layout_sd_log)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_planning_table_is_reproduced() {
        // Layouts per arm for 80 % power; rows: layout sd in %, columns: effect in %.
        let effects = [0.5, 1.0, 2.0, 3.0, 5.0];
        let table = [
            (0.5, [17, 6, 3, 2, 2]),
            (1.0, [64, 17, 6, 4, 3]),
            (2.0, [253, 64, 17, 9, 4]),
            (3.0, [567, 143, 37, 17, 7]),
            (5.0, [1571, 394, 100, 45, 17]),
        ];
        let got = table.map(|(sd, _)| (sd, effects.map(|e| layouts_needed(sd, e).unwrap())));
        for ((sd, got), (_, want)) in got.into_iter().zip(table) {
            for (e, (g, w)) in effects.iter().zip(got.into_iter().zip(want)) {
                // The source rounds some cells by one.
                assert!(g.abs_diff(w) <= 1, "sd {sd} effect {e}: {g}, table {w}");
            }
        }
    }

    #[test]
    fn many_layouts_with_few_runs_beat_few_with_many() {
        let pilot = Pilot { run_sd_log: 0.005, layout_sd_log: 0.02, build_ns: 2e9, run_ns: 0.5e9 };
        assert_eq!(pilot.runs_per_layout(), 1);
        let plan = pilot.plan(0.03).unwrap();
        assert!((8..=10).contains(&plan.layouts_per_arm), "{plan:?}");
        // Each layout of both arms is built once and run as often as planned.
        assert_eq!(plan.expected_ns, 2.0 * plan.layouts_per_arm as f64 * 2.5e9);
        let noisy = Pilot { run_sd_log: 0.08, ..pilot };
        assert_eq!(noisy.runs_per_layout(), 8);
        let plan = noisy.plan(0.03).unwrap();
        let spread = (0.02_f64.powi(2) + 0.08_f64.powi(2) / 8.0).sqrt();
        assert_eq!(Some(plan.layouts_per_arm as usize), layouts_needed(spread, 0.03));
        assert_eq!(plan.expected_ns, 2.0 * plan.layouts_per_arm as f64 * 6e9);
        assert_eq!(Pilot { run_ns: 1e-9, ..noisy }.runs_per_layout(), 50);
        let still = Pilot { layout_sd_log: 0.0, run_sd_log: 0.0, ..pilot };
        assert_eq!(still.runs_per_layout(), 1);
        assert_eq!(still.plan(0.0), None);
    }

    #[test]
    fn what_is_detectable_is_what_was_planned() {
        for n in [3, 10, 40] {
            let effect = detectable(n, 0.02).unwrap();
            assert!((two_sample_power(n, effect / 0.02) - POWER).abs() < 1e-3);
        }
        assert_eq!(detectable(2, 0.02), None);
    }
}
