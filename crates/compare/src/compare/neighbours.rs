//! Bad neighbours: was the processor itself when this ran?
//!
//! *Effect.* On shared machines whole phases run at two thirds of the speed: another guest on the
//! sibling thread, a lowered clock, stolen time. Such a run says nothing about the program, and an
//! average with it says little.
//!
//! *Measurable sign.* A chain of dependent additions and a loop of no-ops, a fraction of a
//! millisecond before and after each run (`clock::canary`): the first knows the clock, the second
//! knows who shares the core. What the second took is kept with the run, and [`super::Strata`] sorts
//! pairs by it. Where that is asked for, runs below 97 % of the usual clock, or with a shared core on
//! either side, are done again; they are counted, and which arm they belong to plays no part.
//!
//! The *usual* clock is the upper quartile of all looks so far: slow phases may take three quarters of
//! the time without being taken for normal, and one look in a moment of boost does not make all
//! other runs wrong, as the best look ever would.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::{Canary, Clock, HardwareClock, Pin, SHARED_CORE, canary};
use crate::stats::robust::quantile;

/// Share of the usual clock below which a run is done again: it cut run-to-run spread from 26 to 3 %.
const CLEAN_CLOCK: f64 = 0.97;
/// Which quantile of the clocks seen is the usual one.
const USUAL_CLOCK: f64 = 0.75;
/// How often one run is done again before it is kept as it is.
const MOST_REPEATS: u32 = 5;
/// Share of runs that may be repeats before no more are made: then the machine is like this, and more
/// pairs tell more than cleaner ones.
const MOST_REPEATED_SHARE: f64 = 0.25;
/// Runs before that share is looked at.
const FIRST_LOOK: u64 = 20;
/// Looks at the machine before anything runs.
const FIRST_LOOKS: usize = 8;
/// Looks that decide nothing may take this long, and then this share of the time of the runs: behind
/// other processes in the queue a look waits for its turn.
const FREE_LOOKS_NS: u64 = 50_000_000;
const LOOKING_SHARE: f64 = 0.05;

/// What the guard has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Disturbances {
    /// Number of runs that were kept.
    pub runs: u64,
    /// Runs that were thrown away and done again.
    pub repeated: u64,
    /// Runs that were kept although the machine was disturbed, because it would not get better.
    pub kept_disturbed: u64,
}

impl Disturbances {
    /// These and others.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            runs: self.runs.saturating_add(other.runs),
            repeated: self.repeated.saturating_add(other.repeated),
            kept_disturbed: self.kept_disturbed.saturating_add(other.kept_disturbed),
        }
    }

    /// What has come to these since they were `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            runs: self.runs.saturating_sub(earlier.runs),
            repeated: self.repeated.saturating_sub(earlier.repeated),
            kept_disturbed: self.kept_disturbed.saturating_sub(earlier.kept_disturbed),
        }
    }
}

/// What came of a run that was watched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watched<T> {
    /// What the run returned.
    pub value: T,
    /// How often it was done again.
    pub repeats: u32,
    /// Cycles of the loop of no-ops before and after; `None` where nothing looked, or a look had no steady moment.
    pub no_ops_cycles: Option<[f64; 2]>,
}

/// Watches the processor around every run.
#[derive(Debug)]
pub struct Guard<C: Clock = HardwareClock> {
    clock: C,
    cpu: Option<usize>,
    /// Whether disturbed runs are done again.
    repeats: bool,
    /// How long looks and runs have taken, in nanoseconds.
    looking_ns: u64,
    running_ns: u64,
    /// The quickest throughput kernel so far.
    best: Canary,
    /// The clock of every look that had a steady moment, in cycles per tick, ascending.
    clocks: Vec<f64>,
    counts: Disturbances,
}

impl Guard<HardwareClock> {
    /// A guard for runs on `cpu`, which repeats those that were disturbed if it `repeats`; `None` where runs
    /// are not pinned, or where the clock has no steady moment to compare with.
    #[must_use]
    pub fn new(cpu: Option<usize>, repeats: bool) -> Option<Self> {
        Self::with_clock(HardwareClock::new().ok()?, Some(cpu?), repeats)
    }
}

impl<C: Clock> Guard<C> {
    /// A guard with a clock of one's own.
    #[must_use]
    pub fn with_clock(mut clock: C, cpu: Option<usize>, repeats: bool) -> Option<Self> {
        let looks: Vec<Canary> = (0..FIRST_LOOKS).map(|_| look(&mut clock, cpu)).collect();
        let best =
            looks.iter().copied().filter(|c| c.cycles_per_tick.is_some()).reduce(Canary::best)?;
        let mut new = Self {
            clock,
            cpu,
            repeats,
            looking_ns: 0,
            running_ns: 0,
            best,
            clocks: Vec::new(),
            counts: Disturbances::default(),
        };
        looks.iter().for_each(|look| new.remember(look));
        Some(new)
    }

    /// Runs between two looks, and again until the machine was itself on both sides, within reason, if this
    /// guard repeats.
    ///
    /// # Errors
    /// Whatever `run` returns.
    pub fn watch<T, E>(&mut self, mut run: impl FnMut() -> Result<T, E>) -> Result<Watched<T>, E> {
        if !self.repeats && self.looks_too_long() {
            return self.timed(&mut run).map(|value| Watched {
                value,
                repeats: 0,
                no_ops_cycles: None,
            });
        }
        let mut repeats = 0;
        loop {
            let before = self.look();
            let value = self.timed(&mut run)?;
            let after = self.look();
            let clean = self.is_clean(&before) && self.is_clean(&after);
            if clean || !self.repeats || repeats >= MOST_REPEATS || self.is_hopeless() {
                self.counts.runs += 1;
                self.counts.kept_disturbed += u64::from(!clean);
                let no_ops_cycles = before.throughput_cycles.zip(after.throughput_cycles);
                return Ok(Watched {
                    value,
                    repeats,
                    no_ops_cycles: no_ops_cycles.map(<[f64; 2]>::from),
                });
            }
            repeats += 1;
            self.counts.repeated += 1;
        }
    }

    /// What has been seen so far.
    #[must_use]
    pub fn counts(&self) -> Disturbances {
        self.counts
    }

    /// What was repeated and kept; `None` where nothing is repeated.
    #[must_use]
    pub fn repeated(&self) -> Option<Disturbances> {
        self.repeats.then_some(self.counts)
    }

    fn looks_too_long(&self) -> bool {
        self.looking_ns > FREE_LOOKS_NS
            && self.looking_ns as f64 > LOOKING_SHARE * self.running_ns as f64
    }

    fn timed<T>(&mut self, run: impl FnOnce() -> T) -> T {
        let start_ns = self.clock.now_raw_ns();
        let value = run();
        self.running_ns += self.clock.now_raw_ns().saturating_sub(start_ns);
        value
    }

    fn look(&mut self) -> Canary {
        let start_ns = self.clock.now_raw_ns();
        let seen = look(&mut self.clock, self.cpu);
        self.looking_ns += self.clock.now_raw_ns().saturating_sub(start_ns);
        self.remember(&seen);
        seen
    }

    fn remember(&mut self, look: &Canary) {
        self.best = self.best.best(*look);
        if let Some(clock) = look.cycles_per_tick {
            let at = self.clocks.partition_point(|known| *known < clock);
            self.clocks.insert(at, clock);
        }
    }

    fn is_clean(&self, now: &Canary) -> bool {
        let Some(clock) = now.cycles_per_tick else {
            return false;
        };
        // The throughput kernel varies a little from look to look; a neighbour takes half of it.
        let alone = now.throughput_ratio(&self.best).is_none_or(|ratio| ratio <= SHARED_CORE);
        clock >= CLEAN_CLOCK * quantile(&self.clocks, USUAL_CLOCK) && alone
    }

    fn is_hopeless(&self) -> bool {
        let all = self.counts.runs + self.counts.repeated;
        all >= FIRST_LOOK && self.counts.repeated as f64 > MOST_REPEATED_SHARE * all as f64
    }
}

/// Looks from the processor on which the runs are.
fn look<C: Clock>(clock: &mut C, cpu: Option<usize>) -> Canary {
    let _pin = cpu.and_then(|cpu| Pin::to(cpu).ok());
    canary(clock)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::clock::FakeClock;

    #[test]
    fn a_quiet_machine_repeats_nothing() {
        let mut guard = Guard::with_clock(FakeClock::quiet(2.5, 3.1), None, true).unwrap();
        for i in 0..10 {
            let watched = guard.watch(|| Ok::<_, Infallible>(i)).unwrap();
            assert_eq!((watched.value, watched.repeats), (i, 0));
        }
        assert_eq!(guard.counts(), Disturbances { runs: 10, ..Disturbances::default() });
    }

    #[test]
    fn a_slow_phase_is_repeated_counted_and_at_last_accepted() {
        let mut guard = Guard::with_clock(FakeClock::quiet(2.5, 3.1), None, true).unwrap();
        guard.clock = FakeClock::quiet(2.5, 2.1);
        let mut runs = 0;
        let run = || {
            runs += 1;
            Ok::<_, Infallible>(())
        };
        let repeats = guard.watch(run).unwrap().repeats;
        assert_eq!((repeats, runs), (MOST_REPEATS, MOST_REPEATS + 1));
        assert_eq!(guard.counts().kept_disturbed, 1);
        // A machine that stays like this is not fought for ever.
        for _ in 0..100 {
            guard.watch(|| Ok::<_, Infallible>(())).unwrap();
        }
        assert!(guard.counts().repeated < 40, "{:?}", guard.counts());
    }

    #[test]
    fn a_moment_of_boost_does_not_make_all_else_wrong() {
        let mut guard = Guard::with_clock(FakeClock::quiet(2.5, 3.1), None, true).unwrap();
        guard.clock = FakeClock::quiet(2.5, 3.6);
        guard.watch(|| Ok::<_, Infallible>(())).unwrap();
        guard.clock = FakeClock::quiet(2.5, 3.1);
        for _ in 0..20 {
            guard.watch(|| Ok::<_, Infallible>(())).unwrap();
        }
        assert_eq!(guard.counts(), Disturbances { runs: 21, ..Disturbances::default() });
    }

    #[test]
    fn more_than_a_quarter_repeated_of_twenty_is_hopeless() {
        let mut guard = Guard::with_clock(FakeClock::quiet(2.5, 3.1), None, true).unwrap();
        let mut hopeless = |runs, repeated| {
            guard.counts = Disturbances { runs, repeated, kept_disturbed: 0 };
            guard.is_hopeless()
        };
        assert!(!hopeless(15, 5) && hopeless(14, 6));
        assert!(!hopeless(3, 16), "too early to tell");
        assert!(!hopeless(75, 25) && hopeless(74, 26));
    }

    #[test]
    fn counts_add_up_and_are_told_since_a_moment() {
        let counts =
            |runs, repeated, kept_disturbed| Disturbances { runs, repeated, kept_disturbed };
        assert_eq!(counts(5, 3, 2).plus(counts(40, 20, 10)), counts(45, 23, 12));
        assert_eq!(counts(45, 23, 12).since(counts(40, 20, 10)), counts(5, 3, 2));
        assert_eq!(counts(1, 1, 1).since(counts(2, 2, 2)), counts(0, 0, 0));
    }

    #[test]
    fn a_look_is_clean_near_the_usual_clock_and_alone() {
        let guard = Guard::with_clock(FakeClock::quiet(2.5, 3.1), None, true).unwrap();
        let usual = quantile(&guard.clocks, USUAL_CLOCK);
        let at = |share: f64| Canary { cycles_per_tick: Some(share * usual), ..guard.best };
        assert!(
            guard.is_clean(&at(1.0)) && guard.is_clean(&at(0.9701)) && guard.is_clean(&at(1.2))
        );
        assert!(!guard.is_clean(&at(0.9699)));
        assert!(!guard.is_clean(&Canary { cycles_per_tick: None, ..guard.best }));
    }

    #[test]
    fn a_neighbour_is_noticed() {
        let mut guard = Guard::with_clock(FakeClock::quiet(2.5, 3.1), None, true).unwrap();
        guard.clock = FakeClock::quiet(2.5, 3.1).busy_sibling(1.0);
        guard.watch(|| Ok::<_, Infallible>(())).unwrap();
        assert!(guard.counts().repeated > 0);
    }
    #[test]
    fn who_repeats_nothing_keeps_what_the_looks_saw() {
        let mut guard = Guard::with_clock(FakeClock::quiet(2.5, 3.1), None, false).unwrap();
        guard.running_ns = 10_000_000_000;
        let (mut right, best) = (0, guard.best.throughput_cycles.unwrap());
        for turn in 0..100 {
            let is_shared = turn / 3 % 2 == 1;
            let noisy = FakeClock::quiet(2.5, 3.1).preempted(1e5, 3e3);
            guard.clock = noisy.busy_sibling(if is_shared { 1.0 } else { 0.0 });
            let watched = guard.watch(|| Ok::<_, Infallible>(())).unwrap();
            assert_eq!(watched.repeats, 0);
            let looks = watched.no_ops_cycles.map(|both| both.map(|it| it > SHARED_CORE * best));
            right += u32::from(looks == Some([is_shared; 2]));
        }
        assert!(right >= 95, "{right}");
        assert_eq!(guard.repeated(), None);
    }

    #[test]
    fn looks_take_a_small_share_of_the_time_of_the_runs() {
        let mut guard = Guard::with_clock(FakeClock::quiet(2.5, 3.1), None, false).unwrap();
        let mut run = || guard.watch(|| Ok::<_, Infallible>(())).unwrap().no_ops_cycles.is_some();
        let looked_at = (0..1000).filter(|_| run()).count();
        assert!((20..500).contains(&looked_at), "{looked_at}");
        // Runs that take time pay for more of them.
        guard.running_ns += 2_000_000_000;
        assert!(guard.watch(|| Ok::<_, Infallible>(())).unwrap().no_ops_cycles.is_some());
    }
}
