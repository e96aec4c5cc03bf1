//! What the first pairs promise: how many it takes to see the smallest effect of interest, and how long.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::layouts::planning::layouts_needed;
use super::{RunSample, Settings, analyse};

/// Pairs after which the estimate is made.
pub const PILOT_PAIRS: usize = 6;
/// Spread between placements of ordinary programs (log): 0.4 to 1.7 % were measured on a Go program with
/// its functions aligned as the toolchain does it. One build each cannot tell it, `sweep` measures it.
pub const USUAL_LAYOUT_SD_LOG: f64 = 0.01;

/// The plan after a pilot of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PairPlan {
    /// The smallest effect of interest as a share.
    pub effect: f64,
    /// Pairs that show it with 80 % power; absent when a million would not.
    pub pairs_needed: Option<u64>,
    /// Pairs that will be run, if nothing stops them earlier.
    pub pairs_planned: u64,
    /// Wall time of a pair, in nanoseconds.
    pub pair_ns: u64,
    /// Placements of each arm that show it where these spread as they usually do; absent when
    /// a hundred thousand would not.
    pub layouts_needed: Option<u64>,
}

/// The plan, as soon as the pilot is over; `None` before, and when nothing is left to plan.
#[must_use]
pub fn plan(samples: &[RunSample], settings: &Settings, pairs_planned: u64) -> Option<PairPlan> {
    let pairs = samples.len() / 2;
    if pairs < PILOT_PAIRS || pairs_planned <= pairs as u64 {
        return None;
    }
    // The noise as it is judged at the end, whatever decides when that is.
    let fixed = Settings { until: None, ..settings.clone() };
    let verdict = analyse(samples, &fixed).ok()?.verdict;
    let wall_ns: u64 = samples.iter().map(|s| s.amounts.time_ns()).sum();
    Some(PairPlan {
        effect: settings.effect,
        pairs_needed: verdict.pairs_needed,
        pairs_planned,
        pair_ns: wall_ns / pairs as u64,
        layouts_needed: layouts_needed(USUAL_LAYOUT_SD_LOG, settings.effect_log())
            .map(|n| n as u64),
    })
}

impl PairPlan {
    /// Time for the pairs that will be run, in nanoseconds.
    #[must_use]
    pub fn planned_ns(&self) -> u64 {
        self.pair_ns.saturating_mul(self.pairs_planned)
    }

    /// Time for the pairs that it takes, in nanoseconds.
    #[must_use]
    pub fn needed_ns(&self) -> Option<u64> {
        Some(self.pair_ns.saturating_mul(self.pairs_needed?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulate::{Noise, SimulatedMachine};
    use super::super::{Progress, compare};
    use super::*;

    fn planned(run_sd_log: f64, pairs: u32) -> Vec<PairPlan> {
        let mut machine = SimulatedMachine::new(Noise::Quiet, pairs, 3);
        machine.run_sd_log = run_sd_log;
        let settings = Settings { pairs, ..Settings::default() };
        let mut plans = Vec::new();
        compare(&mut machine, &settings, &mut |p| {
            if let Progress::Piloted(plan) = p {
                plans.push(plan);
            }
        })
        .unwrap();
        plans
    }

    #[test]
    fn the_plan_comes_once_after_the_pilot_and_knows_what_noise_costs() {
        let [quiet] = planned(0.002, 20)[..] else { panic!("one plan") };
        assert_eq!((quiet.pairs_needed, quiet.pairs_planned), (Some(6), 20));
        assert_eq!(quiet.layouts_needed, Some(17));
        // A run of the invented machine takes 50 ms.
        assert!((95_000_000..105_000_000).contains(&quiet.pair_ns), "{quiet:?}");
        assert_eq!(quiet.planned_ns(), 20 * quiet.pair_ns);
        let [noisy] = planned(0.03, 20)[..] else { panic!("one plan") };
        assert!(noisy.pairs_needed.unwrap() > 50, "{noisy:?}");
        assert!(noisy.needed_ns().unwrap() > noisy.planned_ns());
        // Nothing is left to plan when the pilot is all there is.
        assert!(planned(0.01, 6).is_empty() && planned(0.01, 3).is_empty());
    }
}
