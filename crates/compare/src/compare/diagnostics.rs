//! What the samples say about the machine: drift, slot effects, correlation, spikes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schedule::Slot;
use crate::stats::rank_sum;
use crate::stats::ranks::{correlation_p, spearman};
use crate::stats::robust::{MAD_TO_SD, mad, median, robust_sd};

/// A run is a spike when it is this many robust standard deviations above its neighbours.
const SPIKE_SD: f64 = 5.0;
/// Runs of the same arm on each side that count as neighbours.
const NEIGHBOURS: usize = 4;

/// What one pair contributes: logs of the wall times of both arms, and who ran second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LogPair {
    pub a: f64,
    pub b: f64,
    pub slot_of_b: Slot,
}

/// A trend and how surprising it is without one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Drift {
    /// Spearman's correlation of pair means with their order.
    pub spearman: f64,
    /// Two-sided p-value of that correlation.
    pub p_value: f64,
    /// Median of the last third over the median of the first, as a log ratio.
    pub change_log: f64,
}

/// How much running second in a pair changes the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlotEffect {
    /// Second over first, as a log ratio, with the effect of the arms taken out.
    pub second_over_first_log: f64,
    /// Two-sided p-value of the rank-sum test between the two orders.
    pub p_value: f64,
}

/// What one pair says about the next.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Autocorrelation {
    /// Rank correlation of each pair's log ratio with the next one's.
    pub lag_1: f64,
    /// Two-sided p-value of that correlation.
    pub p_value: f64,
}

/// The state of the machine during a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Diagnostics {
    /// Robust standard deviation of the log ratios of pairs (MAD-based): the noise that counts.
    pub pair_sd_log: f64,
    /// Whether everything became slower or faster.
    pub drift: Drift,
    /// How much running second in a pair changes the time.
    pub slot: SlotEffect,
    /// Whether neighbouring pairs resemble each other.
    pub autocorrelation: Autocorrelation,
    /// Share of runs that are far slower than their neighbours.
    pub spike_share: f64,
}

/// Looks at the pairs in their order of time.
pub(super) fn diagnose(pairs: &[LogPair]) -> Diagnostics {
    let ratios: Vec<f64> = pairs.iter().map(|p| p.b - p.a).collect();
    Diagnostics {
        pair_sd_log: robust_sd(&ratios),
        drift: drift(pairs),
        slot: slot_effect(pairs),
        autocorrelation: autocorrelation(&ratios),
        spike_share: spike_share(pairs),
    }
}

fn drift(pairs: &[LogPair]) -> Drift {
    let means: Vec<f64> = pairs.iter().map(|p| 0.5 * (p.a + p.b)).collect();
    let order: Vec<f64> = (0..pairs.len()).map(|i| i as f64).collect();
    let third = pairs.len().div_ceil(3);
    let change = match (median(&means[..third]), median(&means[means.len() - third..])) {
        (Some(first), Some(last)) => last - first,
        _ => 0.0,
    };
    let r = spearman(&order, &means);
    Drift { spearman: r, p_value: correlation_p(r, pairs.len()), change_log: change }
}

fn slot_effect(pairs: &[LogPair]) -> SlotEffect {
    let with = |slot| -> Vec<f64> {
        pairs.iter().filter(|p| p.slot_of_b == slot).map(|p| p.b - p.a).collect()
    };
    let (b_first, b_second) = (with(Slot::First), with(Slot::Second));
    // ln(B/A) holds the effect of the arms plus the slot effect, or minus it: half the difference.
    let size = match (median(&b_first), median(&b_second)) {
        (Some(first), Some(second)) => 0.5 * (second - first),
        _ => 0.0,
    };
    let p_value = rank_sum::p_value(&b_first, &b_second).unwrap_or(1.0);
    SlotEffect { second_over_first_log: size, p_value }
}

fn autocorrelation(ratios: &[f64]) -> Autocorrelation {
    let steps = ratios.len().saturating_sub(1);
    let r = spearman(&ratios[..steps], &ratios[ratios.len() - steps..]);
    Autocorrelation { lag_1: r, p_value: correlation_p(r, steps) }
}

/// Compares each run with a running median of its own arm, so that a drift or a step is no spike.
fn spike_share(pairs: &[LogPair]) -> f64 {
    let mut spikes = 0;
    for arm in [|p: &LogPair| p.a, |p: &LogPair| p.b] {
        let logs: Vec<f64> = pairs.iter().map(arm).collect();
        let residuals: Vec<f64> = (0..logs.len())
            .filter_map(|i| {
                let near =
                    &logs[i.saturating_sub(NEIGHBOURS)..(i + NEIGHBOURS + 1).min(logs.len())];
                Some(logs[i] - median(near)?)
            })
            .collect();
        let limit = SPIKE_SD * MAD_TO_SD * mad(&residuals).unwrap_or(0.0);
        if limit > 0.0 {
            spikes += residuals.iter().filter(|r| **r > limit).count();
        }
    }
    if pairs.is_empty() { 0.0 } else { spikes as f64 / (2 * pairs.len()) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::analysis::log_pairs;
    use crate::compare::runner::Runner;
    use crate::compare::schedule::{Order, plan};
    use crate::compare::simulate::{Noise, SimulatedMachine};

    fn measured(machine: &mut SimulatedMachine, pairs: u32) -> Diagnostics {
        let samples: Vec<_> =
            plan(pairs, Order::Random, 5).iter().map(|p| machine.run(p).unwrap()).collect();
        diagnose(&log_pairs(&samples).unwrap())
    }

    #[test]
    fn a_quiet_machine_raises_no_alarm() {
        let d = measured(&mut SimulatedMachine::new(Noise::Quiet, 40, 1), 40);
        assert!((0.008..0.022).contains(&d.pair_sd_log), "{d:?}");
        assert!(d.drift.p_value > 0.01 && d.slot.p_value > 0.01, "{d:?}");
        assert!(d.spike_share < 0.05, "{d:?}");
    }

    #[test]
    fn each_disturbance_is_seen_for_what_it_is() {
        let drift = measured(&mut SimulatedMachine::new(Noise::LinearDrift(0.08), 40, 2), 40).drift;
        assert!(drift.p_value < 0.001 && (0.03..0.08).contains(&drift.change_log), "{drift:?}");

        let mut machine = SimulatedMachine::new(Noise::Quiet, 40, 3);
        machine.slot_effect_log = 0.03;
        machine.effect_log = 0.10;
        let slot = measured(&mut machine, 40).slot;
        assert!(
            slot.p_value < 0.01 && (slot.second_over_first_log - 0.03).abs() < 0.01,
            "{slot:?}"
        );

        let spiky = measured(&mut SimulatedMachine::new(Noise::Spikes(0.1), 100, 4), 100);
        assert!((0.04..0.16).contains(&spiky.spike_share), "{spiky:?}");
    }

    #[test]
    fn resembling_neighbours_are_noticed() {
        let slow: Vec<f64> = (0..40).map(|i| f64::from(i / 8 % 2) + f64::from(i) * 0.001).collect();
        assert!(autocorrelation(&slow).lag_1 > 0.5);
        assert!(autocorrelation(&[]).lag_1 == 0.0);
    }

    fn pair(a: f64, b: f64, second: bool) -> LogPair {
        LogPair { a, b, slot_of_b: if second { Slot::Second } else { Slot::First } }
    }

    #[test]
    fn a_drift_is_from_the_first_third_to_the_last() {
        // Means 0, 1, 2 ... 6: thirds of three, with medians 1 and 5.
        let rising: Vec<LogPair> =
            (0..7).map(|i| pair(f64::from(i) - 0.5, f64::from(i) + 0.5, true)).collect();
        let found = drift(&rising);
        assert_eq!((found.change_log, found.spearman), (4.0, 1.0));
        assert_eq!(found.p_value, 0.0);
        let falling: Vec<LogPair> = rising.iter().rev().copied().collect();
        assert_eq!((drift(&falling).change_log, drift(&falling).spearman), (-4.0, -1.0));
    }

    #[test]
    fn running_second_costs_half_of_what_the_orders_differ_in() {
        // B is 0.3 slower, and whoever runs second 0.1.
        let pairs: Vec<LogPair> = (0..20)
            .map(|i| {
                let noise = 0.001 * f64::from(i / 2);
                if i % 2 == 0 {
                    pair(0.0, 0.4 + noise, true)
                } else {
                    pair(0.1, 0.3 + noise, false)
                }
            })
            .collect();
        let found = slot_effect(&pairs);
        assert!((found.second_over_first_log - 0.1).abs() < 1e-12, "{found:?}");
        assert!(found.p_value < 1e-4, "{found:?}");
        let one_order = slot_effect(&pairs[..1]);
        assert_eq!((one_order.second_over_first_log, one_order.p_value), (0.0, 1.0));
    }

    #[test]
    fn a_spike_stands_far_above_its_own_neighbours() {
        let with = |spikes: &[(usize, f64)]| {
            let mut pairs: Vec<LogPair> = (0..20)
                .map(|i| pair(0.01 * f64::from(i % 3), 0.01 * f64::from(i % 3), true))
                .collect();
            spikes.iter().for_each(|(at, height)| pairs[*at].a += height);
            spike_share(&pairs)
        };
        assert_eq!([with(&[]), with(&[(10, 0.5)])], [0.0, 1.0 / 40.0]);
        assert_eq!(with(&[(0, 0.5), (19, 0.5)]), 2.0 / 40.0);
        // Fast runs are none, and neither is a step that stays.
        assert_eq!(with(&[(10, -0.5)]), 0.0);
        let step: Vec<(usize, f64)> = (10..20).map(|i| (i, 0.5)).collect();
        assert_eq!(with(&step), 0.0);
    }

    #[test]
    fn nothing_is_no_machine() {
        let d = diagnose(&[]);
        assert_eq!((d.pair_sd_log, d.spike_share), (0.0, 0.0));
    }
}
