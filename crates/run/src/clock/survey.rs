//! A few hundred milliseconds of samples, and what they say about this processor right now.

use super::levels::{Level, levels};
use super::sample::{Sample, SamplePlan, adds_per_multiply, take_sample};
use super::tick::Moment;
use super::{Clock, Reading, TickReading};
use crate::model::{Measurement, Unit};
use crate::stats::percent;
use crate::stats::robust::{finite, quantile};

/// Fewer steady samples than this, or a smaller share, and there is no number.
const LEAST_SAMPLES: usize = 20;
const LEAST_PERCENT: f64 = 30.0;

/// A level with this share of the steady samples is the clock; with less, the clock wanders.
pub(super) const MAIN_LEVEL_PERCENT: f64 = 50.0;

/// How many windows of which length to observe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SurveyPlan {
    /// Windows in which the counter's rate is measured.
    pub windows: usize,
    /// Length of a window, nanoseconds.
    pub window_ns: u64,
    /// What a sample is; `None` fits it to the counter's step.
    pub sample: Option<SamplePlan>,
}

impl Default for SurveyPlan {
    /// 0.4 s: a licence step lasts about a millisecond, a timer tick comes every 1 to 10 ms.
    fn default() -> Self {
        Self { windows: 8, window_ns: 50_000_000, sample: None }
    }
}

/// Raw observations of the clock.
#[derive(Clone, Debug)]
pub struct Survey {
    /// Rate of the counter in each window, MHz.
    pub tick_mhz: Vec<f64>,
    /// Step and overhead of the counter.
    pub tick: TickReading,
    /// The samples in order.
    pub samples: Vec<Sample>,
    /// Additions that take as long as one multiplication, once per window and a few times more.
    pub adds_per_multiply: Vec<f64>,
}

/// Takes a survey. The thread should be pinned. A window ends by the kernel's clock, but also after
/// a number of samples that no real window holds, so that a broken clock cannot hang the program.
pub fn survey<C: Clock + ?Sized>(clock: &mut C, plan: &SurveyPlan) -> Survey {
    let tick = TickReading::take(clock, 500);
    let sample_plan = plan.sample.unwrap_or_else(|| SamplePlan::for_step(tick.step_ticks));
    let most_samples = (plan.window_ns / 1_000).max(16) as usize;
    let mut tick_mhz = Vec::with_capacity(plan.windows);
    let mut samples = Vec::new();
    let mut checks = Vec::new();
    for _ in 0..plan.windows {
        let start = Moment::now(clock);
        let end_ns = clock.now_raw_ns().saturating_add(plan.window_ns);
        checks.extend((0..4).map(|_| adds_per_multiply(clock, &sample_plan)));
        for _ in 0..most_samples {
            samples.push(take_sample(clock, &sample_plan));
            if clock.now_raw_ns() >= end_ns {
                break;
            }
        }
        tick_mhz.push(start.mhz_until(Moment::now(clock)));
    }
    Survey { tick_mhz, tick, samples, adds_per_multiply: checks }
}

/// A survey as numbers with their doubt.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Rate of the counter, MHz.
    pub tick_mhz: Option<Measurement>,
    /// Largest difference between windows, parts per million.
    pub tick_spread_ppm: f64,
    /// Cost of one look at the counter, ticks.
    pub read_overhead_ticks: Option<Measurement>,
    /// The counter moves in steps of this many ticks.
    pub step_ticks: u64,
    /// Core cycles per tick at the main level; where there is none, over all steady samples.
    pub cycles_per_tick: Reading,
    /// All levels, largest share first.
    pub levels: Vec<Level>,
    /// Width of the middle 90 % of the steady readings of the core clock, percent of their median.
    pub wander_percent: f64,
    /// Change of the core clock from the first to the last quarter of the samples, percent.
    pub drift_percent: f64,
    /// Additions per multiplication: 3.00 where an addition takes one cycle.
    pub adds_per_multiply: Option<Measurement>,
    /// Core cycles per pass of the throughput kernel.
    pub throughput_cycles: Option<Measurement>,
    /// Samples taken.
    pub samples: usize,
    /// Neither moved, interrupted nor shared, percent.
    pub clean_percent: f64,
    /// Clock moved or thread interrupted within the sample, alone on the core, percent.
    pub interrupted_percent: f64,
    /// Another process shared the core, percent.
    pub shared_percent: f64,
}

impl Survey {
    /// The samples in which the clock stood still and nothing interrupted.
    pub fn steady(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(|s| s.is_steady())
    }

    /// Estimates with intervals.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let taken = self.samples.len();
        let steady: Vec<&Sample> = self.steady().collect();
        let usual = quantile(&finite(steady.iter().map(|s| s.cycles_per_tick)), 0.5);
        let throughput = finite(steady.iter().map(|s| s.throughput_cycles(usual)));
        // Not the minimum: one sample with a lucky start would brand all others as shared.
        let best = quantile(&throughput, 0.02);
        let (shared, alone): (Vec<&Sample>, Vec<&Sample>) =
            self.samples.iter().partition(|s| s.is_shared(best, usual));
        let clean = alone.iter().filter(|s| s.is_steady()).count();
        let rates = finite(self.tick_mhz.iter().copied());
        let spread = quantile(&rates, 1.0) - quantile(&rates, 0.0);
        let all_levels = levels(steady.iter().map(|s| s.cycles_per_tick));
        Summary {
            tick_mhz: whole_range(&rates, Unit::Megahertz),
            tick_spread_ppm: finite_or_zero(spread / quantile(&rates, 0.5) * 1e6),
            read_overhead_ticks: measurement(
                self.tick.overheads_ticks.iter().copied(),
                Unit::Ticks,
                "back-to-back reads",
            ),
            step_ticks: self.tick.step_ticks,
            cycles_per_tick: modal_reading(&steady, &all_levels, taken),
            levels: all_levels,
            wander_percent: finite_or_zero(wander_percent(&steady)),
            drift_percent: finite_or_zero(drift_percent(&steady)),
            adds_per_multiply: measurement(
                self.adds_per_multiply.iter().copied(),
                Unit::Ratio,
                "slopes",
            ),
            throughput_cycles: measurement(throughput, Unit::Cycles, "steady samples"),
            samples: taken,
            clean_percent: percent(clean, taken),
            interrupted_percent: percent(alone.len() - clean, taken),
            shared_percent: percent(shared.len(), taken),
        }
    }
}

/// Median with the 5th and 95th percentiles; `None` without a finite value.
fn measurement(values: impl IntoIterator<Item = f64>, unit: Unit, of: &str) -> Option<Measurement> {
    let v = finite(values);
    (!v.is_empty()).then(|| Measurement {
        value: quantile(&v, 0.5),
        unit,
        low: quantile(&v, 0.05),
        high: quantile(&v, 0.95),
        n: v.len(),
        how: format!("median and 5-95 % of {of}"),
    })
}

/// Few windows have no percentiles worth the name: median and range.
fn whole_range(ascending: &[f64], unit: Unit) -> Option<Measurement> {
    (!ascending.is_empty()).then(|| Measurement {
        value: quantile(ascending, 0.5),
        unit,
        low: quantile(ascending, 0.0),
        high: quantile(ascending, 1.0),
        n: ascending.len(),
        how: "median and range of windows".to_owned(),
    })
}

fn modal_reading(steady: &[&Sample], levels: &[Level], taken: usize) -> Reading {
    let clean_percent = percent(steady.len(), taken);
    let inconclusive = Reading::Inconclusive { clean_percent, n: taken };
    let Some(mode) = levels.first() else {
        return inconclusive;
    };
    if steady.len() < LEAST_SAMPLES || clean_percent < LEAST_PERCENT {
        return inconclusive;
    }
    let all = steady.iter().map(|s| s.cycles_per_tick);
    let half_width = mode.cycles_per_tick * super::MOVED_CLOCK / 2.0;
    let measured = if mode.share_percent >= MAIN_LEVEL_PERCENT {
        let at_mode = all.filter(|c| (c - mode.cycles_per_tick).abs() <= half_width);
        measurement(at_mode, Unit::CyclesPerTick, "samples at the main level")
    } else {
        // A clock that wanders has no mode: the fullest stretch of a continuum is an accident.
        measurement(all, Unit::CyclesPerTick, "steady samples, no main level")
    };
    measured.map_or(inconclusive, Reading::Measured)
}

/// A number that is no number cannot be written as JSON; where nothing was seen nothing moved, and
/// the missing measurement beside it says so.
fn finite_or_zero(x: f64) -> f64 {
    if x.is_finite() { x } else { 0.0 }
}

fn wander_percent(steady: &[&Sample]) -> f64 {
    let all = finite(steady.iter().map(|s| s.cycles_per_tick));
    100.0 * (quantile(&all, 0.95) - quantile(&all, 0.05)) / quantile(&all, 0.5)
}

fn drift_percent(steady: &[&Sample]) -> f64 {
    let quarter = steady.len() / 4;
    if quarter == 0 {
        return 0.0;
    }
    let middle = |part: &[&Sample]| quantile(&finite(part.iter().map(|s| s.cycles_per_tick)), 0.5);
    let first = middle(&steady[..quarter]);
    let last = middle(&steady[steady.len() - quarter..]);
    100.0 * (last / first - 1.0)
}

#[cfg(test)]
mod tests {
    use super::super::FakeClock;
    use super::*;

    fn look(mut clock: FakeClock) -> Summary {
        let plan = SurveyPlan { windows: 4, window_ns: 5_000_000, sample: None };
        survey(&mut clock, &plan).summary()
    }

    #[test]
    fn a_quiet_machine() {
        let s = look(FakeClock::quiet(2.5, 3.1));
        assert!((s.cycles_per_tick.value().unwrap() - 1.24).abs() < 0.002);
        assert!((s.tick_mhz.unwrap().value - 2500.0).abs() < 0.5);
        assert_eq!((s.levels.len(), s.clean_percent), (1, 100.0));
        assert!(s.drift_percent.abs() < 0.1);
        assert!((s.adds_per_multiply.unwrap().value - 3.0).abs() < 0.02);
    }

    #[test]
    fn a_licence_step_is_a_second_level() {
        let s = look(FakeClock::quiet(2.5, 3.1).stepping(2e6, 0.25, 0.875));
        assert_eq!(s.levels.len(), 2, "{:?}", s.levels);
        assert!((s.levels[0].cycles_per_tick - 1.24).abs() < 0.002);
        assert!((s.levels[1].cycles_per_tick - 1.085).abs() < 0.002);
        assert!((s.levels[1].share_percent - 25.0).abs() < 4.0);
    }

    #[test]
    fn a_wandering_clock_has_no_main_level() {
        let s = look(FakeClock::quiet(2.5, 3.1).drifting(-3.0));
        assert!(s.levels[0].share_percent < MAIN_LEVEL_PERCENT);
        assert!((4.0..7.0).contains(&s.wander_percent), "{}", s.wander_percent);
        let Reading::Measured(m) = s.cycles_per_tick else {
            panic!("{:?}", s.cycles_per_tick);
        };
        assert!(m.how.contains("no main level") && m.high / m.low > 1.04);
    }

    #[test]
    fn drift_has_its_sign() {
        let s = look(FakeClock::quiet(2.5, 3.1).drifting(-2.0));
        assert!((-4.0..-2.0).contains(&s.drift_percent), "{}", s.drift_percent);
    }

    #[test]
    fn a_busy_sibling_is_a_share() {
        let s = look(FakeClock::quiet(2.5, 3.1).busy_sibling(0.3));
        assert!((s.shared_percent - 30.0).abs() < 4.0, "{}", s.shared_percent);
        assert_eq!(s.interrupted_percent, 0.0);
        assert!((s.cycles_per_tick.value().unwrap() - 1.24).abs() < 0.002);
    }

    #[test]
    fn too_few_clean_samples_give_no_number() {
        let s = look(FakeClock::quiet(2.5, 3.1).preempted(5_000.0, 4_000.0));
        let Reading::Inconclusive { clean_percent, n } = s.cycles_per_tick else {
            panic!("{s:?}");
        };
        assert!(clean_percent < 30.0 && n > 0);
    }

    #[test]
    fn a_counter_that_follows_the_core_spreads_its_rate() {
        // Windows and steps of unequal length, so that the windows see unequal shares.
        let clock = FakeClock::quiet(2.5, 3.1).stepping(7.3e6, 0.5, 0.8);
        let s = look(clock.tsc_follows_core());
        assert!(s.tick_spread_ppm > 10_000.0, "{}", s.tick_spread_ppm);
    }

    #[test]
    fn folded_additions_are_found_out() {
        let s = look(FakeClock::quiet(2.5, 3.1).folding_adds(0.5));
        assert!((s.adds_per_multiply.unwrap().value - 6.0).abs() < 0.1);
    }
}
