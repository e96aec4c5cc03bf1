//! A sample guard: taken before and after a stretch of work, it says whether the machine was the
//! same on both sides.
//!
//! The first pass after other work runs on cold lines and cold branches and would reject
//! everything (two study runs were lost to that), so a canary runs twice and the second counts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sample::{MOVED_CLOCK, SHARED_CORE, Sample, SamplePlan, take_sample};
use super::{Clock, TickReading};
use crate::stats::percent;
use crate::stats::robust::{finite, quantile};

/// Samples in each of the two passes.
const SAMPLES: usize = 8;

/// Looks at the counter from which its step is found.
const LOOKS: usize = 32;

/// What a guard saw: the core clock and the issue width at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Canary {
    /// Core cycles per tick, median of the steady samples; `None` when none was steady.
    pub cycles_per_tick: Option<f64>,
    /// Core cycles per pass of the throughput kernel, median of all samples; `None` when none was steady.
    pub throughput_cycles: Option<f64>,
    /// Steady samples, percent.
    pub clean_percent: f64,
}

/// Takes a guard reading: 0.3 ms on the hardware, 0.7 ms where the counter is coarse. The thread should be pinned.
pub fn canary<C: Clock + ?Sized>(clock: &mut C) -> Canary {
    let plan = SamplePlan::for_step(TickReading::take(clock, LOOKS).step_ticks);
    for _ in 0..SAMPLES {
        take_sample(clock, &plan);
    }
    let samples: Vec<Sample> = (0..SAMPLES).map(|_| take_sample(clock, &plan)).collect();
    let steady: Vec<&Sample> = samples.iter().filter(|s| s.is_steady()).collect();
    let known = |x: f64| x.is_finite().then_some(x);
    let clock = quantile(&finite(steady.iter().map(|s| s.cycles_per_tick)), 0.5);
    let throughput = finite(samples.iter().map(|s| s.throughput_cycles(clock)));
    Canary {
        cycles_per_tick: known(clock),
        throughput_cycles: known(quantile(&throughput, 0.5)),
        clean_percent: percent(steady.len(), samples.len()),
    }
}

impl Canary {
    /// How much slower the throughput kernel ran than in `best`: 1.0 alone on the core, 1.5 to 2.1
    /// beside a busy neighbour. `None` when either had no steady sample.
    #[must_use]
    pub fn throughput_ratio(&self, best: &Self) -> Option<f64> {
        Some(self.throughput_cycles? / best.throughput_cycles?)
    }

    /// Whether the stretch between `self` and `after` may be trusted: the core clock moved by less
    /// than [`MOVED_CLOCK`], and neither side is slower than `best` by [`SHARED_CORE`]. Without a
    /// steady sample on either side the answer is no.
    #[must_use]
    pub fn agrees_with(&self, after: &Self, best: &Self) -> bool {
        let (Some(a), Some(b)) = (self.cycles_per_tick, after.cycles_per_tick) else {
            return false;
        };
        let alone = |c: &Self| c.throughput_ratio(best).is_some_and(|ratio| ratio <= SHARED_CORE);
        (a - b).abs() <= MOVED_CLOCK * a && alone(self) && alone(after)
    }

    /// The better of two as a reference for [`Canary::throughput_ratio`].
    #[must_use]
    pub fn best(self, other: Self) -> Self {
        match (self.throughput_cycles, other.throughput_cycles) {
            (Some(a), Some(b)) if b < a => other,
            (None, Some(_)) => other,
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::FakeClock;
    use super::*;

    #[test]
    fn agrees_on_a_quiet_machine() {
        let mut clock = FakeClock::quiet(2.5, 3.1);
        let (before, after) = (canary(&mut clock), canary(&mut clock));
        assert!(before.agrees_with(&after, &before));
        assert_eq!(before.clean_percent, 100.0);
    }

    #[test]
    fn notices_a_licence_step_and_a_neighbour() {
        let before = canary(&mut FakeClock::quiet(2.5, 3.1));
        let slower = canary(&mut FakeClock::quiet(2.5, 2.7));
        assert!(!before.agrees_with(&slower, &before));
        let shared = canary(&mut FakeClock::quiet(2.5, 3.1).busy_sibling(1.0));
        assert!(!before.agrees_with(&shared, &before));
        assert!(shared.throughput_ratio(&before).unwrap() > 1.5);
        assert_eq!(shared.best(before), before);
    }

    #[test]
    fn no_steady_sample_is_no_agreement() {
        let mut clock = FakeClock::quiet(2.5, 3.1).preempted(1_000.0, 3_000.0);
        let c = canary(&mut clock);
        assert_eq!(c.cycles_per_tick, None);
        assert!(!c.agrees_with(&c, &c));
    }
}
