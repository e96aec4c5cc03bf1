//! One sample: 15 to 50 us in which the core clock is measured twice and the issue width once.
//!
//! The order is K, 2K, throughput, 2K, K additions. Each pair gives a slope that is free of the
//! cost of reading the counter and of entering the loop, and each pair lies on another side of
//! the throughput kernel. An interrupt that falls into either pair bends one slope and not the
//! other, so *the two slopes agree* is the test for an undisturbed sample, and it needs no
//! knowledge of what is normal here. Two equal interrupts could still agree, so the fixed cost
//! that is left over (one length minus one slope) must be as small as a look at the counter is. Interrupts come every few milliseconds and cost about 4 us,
//! so at this length most samples are clean, and at 2 ms none would be.

use super::{ADDS_PER_GROUP, Clock};

/// Relative difference of two readings of the core clock above which it moved in between.
pub const MOVED_CLOCK: f64 = 0.008;

/// Throughput kernel slower than its best by more than this factor: another process shares the core.
pub const SHARED_CORE: f64 = 1.15;

/// How long the kernels of one sample are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplePlan {
    /// K: dependent additions of the shorter chain.
    pub adds: u64,
    /// Passes of the throughput kernel in each of its two halves.
    pub passes: u64,
}

impl Default for SamplePlan {
    /// For a counter that moves by one tick: short, so that few samples are interrupted.
    fn default() -> Self {
        Self { adds: 8192, passes: 192 }
    }
}

impl SamplePlan {
    /// For a counter that moves by `step_ticks` at a time. Zen parts count in steps of 26 ticks or
    /// so; with short chains two steps look like a clock that moved, and on a Zen 5 guest one
    /// sample in six was rejected for it. K grows with the step until a step is about 0.2 % of it.
    #[must_use]
    pub fn for_step(step_ticks: u64) -> Self {
        let plan = Self::default();
        Self { adds: step_ticks.saturating_mul(1024).clamp(plan.adds, 32_768), ..plan }
    }
}

/// The core clock, measured twice, and the throughput kernel between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Counter at the start, ticks.
    pub start_ticks: u64,
    /// Length of the whole sample, ticks.
    pub length_ticks: u64,
    /// Core cycles per tick from both slopes; NaN when an interrupt made nonsense of it.
    pub cycles_per_tick: f64,
    /// Relative difference of the two slopes.
    pub disagreement: f64,
    /// Ticks per pass of the throughput kernel: the faster half, so that one interrupt does not look like a
    /// neighbour.
    pub throughput_ticks: f64,
}

impl Sample {
    /// Whether the clock stood still and nothing interrupted.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        self.disagreement <= MOVED_CLOCK
    }

    /// Core cycles per pass of the throughput kernel, by the sample's own clock if that was steady, else by the
    /// usual one. A neighbour who comes and goes bends the chains, too: on a Zen 4 guest a third to two thirds of
    /// the samples that are not steady were shared, and 1 to 5 % of the steady ones.
    #[must_use]
    pub fn throughput_cycles(&self, usual_cycles_per_tick: f64) -> f64 {
        let own = if self.is_steady() { self.cycles_per_tick } else { usual_cycles_per_tick };
        self.throughput_ticks * own
    }

    /// Whether the core was shared, given the best throughput and the usual clock here.
    #[must_use]
    pub fn is_shared(&self, best_throughput_cycles: f64, usual_cycles_per_tick: f64) -> bool {
        self.throughput_cycles(usual_cycles_per_tick) > best_throughput_cycles * SHARED_CORE
    }
}

/// Ticks that `work` takes on `clock`.
pub(super) fn timed<C: Clock + ?Sized>(clock: &mut C, work: impl FnOnce(&mut C)) -> u64 {
    let before = clock.now_ticks();
    work(clock);
    clock.now_ticks().wrapping_sub(before)
}

/// Share of one slope that the fixed cost of a timed chain may have: two looks at the counter and
/// one mispredicted exit are 1 to 2 % of it.
const FIXED_COST: f64 = 0.05;

/// Core cycles per tick, and by how much the pairs (a, b) and (d, c) of K and 2K disagree.
fn slopes(k: u64, ticks: [u64; 4]) -> (f64, f64) {
    let [a, b, c, d] = ticks.map(|t| t as f64);
    let (first, second) = (b - a, c - d);
    if first <= 0.0 || second <= 0.0 {
        return (f64::NAN, f64::INFINITY);
    }
    let mean = (first + second) / 2.0;
    let fixed = (a - first).abs().max((d - second).abs());
    let disagreement =
        if fixed > FIXED_COST * mean { f64::INFINITY } else { (first - second).abs() / mean };
    (k as f64 / mean, disagreement)
}

/// Takes one sample. The thread should be pinned.
pub fn take_sample<C: Clock + ?Sized>(clock: &mut C, plan: &SamplePlan) -> Sample {
    let k = plan.adds.next_multiple_of(ADDS_PER_GROUP).max(ADDS_PER_GROUP);
    let start_ticks = clock.now_ticks();
    // A cold kernel fails its own check (its lines, its branch): warm it, do not count it.
    clock.run_latency_chain(k / 8);
    let a = timed(clock, |c| c.run_latency_chain(k));
    let b = timed(clock, |c| c.run_latency_chain(2 * k));
    clock.run_throughput_chain(plan.passes / 4);
    let t1 = timed(clock, |c| c.run_throughput_chain(plan.passes));
    let t2 = timed(clock, |c| c.run_throughput_chain(plan.passes));
    clock.run_latency_chain(k / 8);
    let c = timed(clock, |c| c.run_latency_chain(2 * k));
    let d = timed(clock, |c| c.run_latency_chain(k));
    let length_ticks = clock.now_ticks().wrapping_sub(start_ticks);

    let (cycles_per_tick, disagreement) = slopes(k, [a, b, c, d]);
    Sample {
        start_ticks,
        length_ticks,
        cycles_per_tick,
        disagreement,
        throughput_ticks: t1.min(t2) as f64 / plan.passes.max(1) as f64,
    }
}

/// Additions that take as long as one multiplication, once: 3.00 where the additions are honest.
/// NaN when disturbed.
pub(super) fn adds_per_multiply<C: Clock + ?Sized>(clock: &mut C, plan: &SamplePlan) -> f64 {
    let k = plan.adds.next_multiple_of(ADDS_PER_GROUP).max(ADDS_PER_GROUP);
    // A third of the multiplications takes as long as all the additions.
    let m = (k / 3).next_multiple_of(ADDS_PER_GROUP);
    let slope = |c: &mut C, run: fn(&mut C, u64), n: u64| {
        run(c, n / 8);
        let (short, long) = (timed(c, |c| run(c, n)), timed(c, |c| run(c, 2 * n)));
        (long as f64 - short as f64) / n as f64
    };
    let add = slope(clock, C::run_latency_chain, k);
    let multiply = slope(clock, C::run_multiply_chain, m);
    let add_again = slope(clock, C::run_latency_chain, k);
    let steady = (add - add_again).abs() <= MOVED_CLOCK * add;
    if steady && multiply > 0.0 { multiply / (0.5 * (add + add_again)) } else { f64::NAN }
}

#[cfg(test)]
mod tests {
    use super::super::FakeClock;
    use super::*;

    #[test]
    fn a_quiet_machine_gives_its_ratio() {
        let mut clock = FakeClock::quiet(2.5, 3.1);
        let s = take_sample(&mut clock, &SamplePlan::default());
        assert!(s.is_steady(), "{s:?}");
        assert!((s.cycles_per_tick - 1.24).abs() < 0.005, "{s:?}");
        assert!((s.throughput_cycles(f64::NAN) - 17.0).abs() < 0.6, "{s:?}");
        let ratio = adds_per_multiply(&mut clock, &SamplePlan::default());
        assert!((ratio - 3.0).abs() < 0.03, "{ratio}");
    }

    #[test]
    fn an_interrupt_in_one_pair_is_noticed() {
        let mut clock = FakeClock::quiet(2.5, 3.1).preempted(9_000.0, 4_000.0);
        let samples: Vec<Sample> =
            (0..50).map(|_| take_sample(&mut clock, &SamplePlan::default())).collect();
        assert!(samples.iter().filter(|s| s.is_steady()).count() < 25);
    }

    #[test]
    fn equal_interrupts_in_both_pairs_are_noticed_too() {
        let clean = slopes(8192, [6660, 13_260, 13_260, 6660]);
        assert!((clean.0 - 8192.0 / 6600.0).abs() < 1e-9 && clean.1 == 0.0);
        let both_long = slopes(8192, [6660, 23_260, 23_260, 6660]);
        let all = slopes(8192, [16_660, 23_260, 23_260, 16_660]);
        assert!(both_long.1.is_infinite() && all.1.is_infinite());
        assert!(slopes(8192, [9, 8, 8, 9]).0.is_nan());
    }

    #[test]
    fn a_coarse_counter_gets_longer_chains() {
        assert_eq!(SamplePlan::for_step(1), SamplePlan::default());
        assert_eq!(SamplePlan::for_step(26).adds, 26_624);
        assert_eq!(SamplePlan::for_step(u64::MAX).adds, 32_768);
    }

    #[test]
    fn a_shared_core_shows_in_throughput_alone() {
        let plan = SamplePlan::default();
        let alone = take_sample(&mut FakeClock::quiet(2.5, 3.1), &plan);
        let shared = take_sample(&mut FakeClock::quiet(2.5, 3.1).busy_sibling(1.0), &plan);
        assert!(shared.is_steady());
        let best = alone.throughput_cycles(f64::NAN);
        assert!(shared.is_shared(best, f64::NAN));
        assert!(!alone.is_shared(best, f64::NAN));
        assert!((shared.cycles_per_tick - alone.cycles_per_tick).abs() < 0.005);
        // Chains that disagree have no clock of their own; the usual one tells the two apart all the same.
        let bent = |it: Sample| Sample { disagreement: 0.5, cycles_per_tick: 9.0, ..it };
        assert!(bent(shared).is_shared(best, 1.24) && !bent(alone).is_shared(best, 1.24));
    }
}
