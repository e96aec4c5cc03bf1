//! Several pieces of code in one process, timed side by side.
//!
//! In every round each of them runs once, in an order that is drawn anew, so that a clock that
//! moves or a neighbour that wakes up meets all alike. Guards of the clock room stand around each
//! round: a round whose two sides disagree about the machine is not counted, but repeated. The
//! statistics are those of all comparisons: Hodges–Lehmann over rounds, ratios round by round.
//!
//! What this says holds for one process and one placement of its code. Where the claim is about
//! code, repeat it over placements.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};
use serde::Serialize;
use stallscope::clock::{Canary, Clock, Reading, canary};
use stallscope::model::{Measurement, Unit};
use stallscope::stats::signed_rank::interval;

/// Rounds that are tried for each one that is wanted.
const MOST_TRIES: u32 = 3;
/// Below this there is no 95 % interval.
const LEAST_ROUNDS: usize = 6;

/// How many rounds of which contestants to time.
#[derive(Clone, Copy, Debug)]
pub struct RoundsPlan {
    /// How many pieces of code there are.
    pub arms: usize,
    /// How many undisturbed rounds are wanted.
    pub rounds: u32,
    /// Seed of the order within each round.
    pub seed: u64,
}

/// Times of all contestants, one after the other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Round {
    /// Contestants by number, in the order in which they ran.
    pub order: Vec<usize>,
    /// How long each arm took, by arm, in ticks of the time stamp counter.
    pub ticks: Vec<u64>,
    /// What a tick was worth in core cycles; absent when the guards before and after disagree, or
    /// another process shared the core.
    pub cycles_per_tick: Option<f64>,
}

/// All rounds, the disturbed ones included.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rounds {
    /// Nanoseconds per tick, over the whole stretch.
    pub ns_per_tick: f64,
    /// Rounds in order of time.
    pub rounds: Vec<Round>,
}

/// Times all arms. The thread should be pinned. `run` does the work of one arm; it is called twice
/// in a row, and the second call is timed: the first one brings code and branch history back.
///
/// # Errors
/// The first one that `run` returns.
pub fn measure<C: Clock + ?Sized, E>(
    clock: &mut C,
    plan: &RoundsPlan,
    mut run: impl FnMut(usize, &mut C) -> Result<(), E>,
) -> Result<Rounds, E> {
    let mut rng = Pcg64Mcg::seed_from_u64(plan.seed);
    let mut order: Vec<usize> = (0..plan.arms).collect();
    let (start_ns, start_ticks) = (clock.now_raw_ns(), clock.now_ticks());
    let mut before = canary(clock);
    let mut best = before;
    let mut rounds = Vec::new();
    let mut undisturbed = 0;
    while undisturbed < plan.rounds && rounds.len() < (plan.rounds * MOST_TRIES) as usize {
        for last in (1..order.len()).rev() {
            order.swap(last, (rng.next_u64() % (last as u64 + 1)) as usize);
        }
        let mut ticks = vec![0; plan.arms];
        for arm in &order {
            run(*arm, clock)?;
            let start = clock.now_ticks();
            run(*arm, clock)?;
            ticks[*arm] = clock.now_ticks().wrapping_sub(start);
        }
        let after = canary(clock);
        best = best.best(after);
        let cycles_per_tick = worth(&before, &after, &best);
        undisturbed += u32::from(cycles_per_tick.is_some());
        rounds.push(Round { order: order.clone(), ticks, cycles_per_tick });
        before = after;
    }
    let elapsed_ns = clock.now_raw_ns().saturating_sub(start_ns);
    let elapsed_ticks = clock.now_ticks().wrapping_sub(start_ticks);
    Ok(Rounds { ns_per_tick: elapsed_ns as f64 / elapsed_ticks.max(1) as f64, rounds })
}

fn worth(before: &Canary, after: &Canary, best: &Canary) -> Option<f64> {
    let mean = (before.cycles_per_tick? + after.cycles_per_tick?) / 2.0;
    before.agrees_with(after, best).then_some(mean)
}

impl Rounds {
    /// Core cycles of one arm for each of `items` that it works off.
    #[must_use]
    pub fn cycles(&self, arm: usize, items: f64) -> Reading {
        self.reading(Unit::Cycles, |round, worth| round.ticks[arm] as f64 * worth / items)
    }

    /// Gigabytes per second of an arm that writes so many `bytes`.
    #[must_use]
    pub fn gigabytes_per_second(&self, arm: usize, bytes: f64) -> Reading {
        self.reading(Unit::GigabytesPerSecond, |round, _| {
            bytes / (round.ticks[arm].max(1) as f64 * self.ns_per_tick)
        })
    }

    /// How many times as long as `reference` an arm took.
    #[must_use]
    pub fn ratio(&self, arm: usize, reference: usize) -> Reading {
        let log = self.reading(Unit::Ratio, |round, _| {
            (round.ticks[arm].max(1) as f64 / round.ticks[reference].max(1) as f64).ln()
        });
        match log {
            Reading::Measured(m) => Reading::Measured(Measurement {
                value: m.value.exp(),
                low: m.low.exp(),
                high: m.high.exp(),
                ..m
            }),
            inconclusive @ Reading::Inconclusive { .. } => inconclusive,
        }
    }

    /// Number of rounds that no guard speaks against.
    #[must_use]
    pub fn undisturbed(&self) -> usize {
        self.rounds.iter().filter(|r| r.cycles_per_tick.is_some()).count()
    }

    fn reading(&self, unit: Unit, of: impl Fn(&Round, f64) -> f64) -> Reading {
        let values: Vec<f64> =
            self.rounds.iter().filter_map(|r| r.cycles_per_tick.map(|w| of(r, w))).collect();
        let taken = self.rounds.len();
        match interval(&values).filter(|_| values.len() >= LEAST_ROUNDS) {
            Some(found) => Reading::Measured(Measurement {
                value: found.centre,
                unit,
                low: found.low,
                high: found.high,
                n: values.len(),
                how: "Hodges-Lehmann over rounds, 95 % signed-rank interval".to_owned(),
            }),
            None => Reading::Inconclusive {
                clean_percent: 100.0 * values.len() as f64 / taken.max(1) as f64,
                n: taken,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use stallscope::clock::FakeClock;

    const PLAN: RoundsPlan = RoundsPlan { arms: 3, rounds: 20, seed: 1 };

    /// Arm n takes (n + 1) * 80,000 cycles.
    fn on(mut clock: FakeClock) -> Rounds {
        measure(&mut clock, &PLAN, |arm, clock| {
            clock.run_latency_chain(80_000 * (arm as u64 + 1));
            Ok::<_, Infallible>(())
        })
        .unwrap()
    }

    fn measured(reading: Reading) -> Measurement {
        match reading {
            Reading::Measured(m) => m,
            Reading::Inconclusive { .. } => panic!("{reading:?}"),
        }
    }

    #[test]
    fn a_quiet_machine_gives_cycles_rates_and_ratios() {
        let rounds = on(FakeClock::quiet(2.5, 3.0));
        assert_eq!(rounds.rounds.len(), 20);
        for arm in 0..3 {
            let cycles = measured(rounds.cycles(arm, 1000.0));
            assert!((cycles.value - 80.0 * (arm as f64 + 1.0)).abs() < 0.5, "{cycles}");
            assert_eq!(cycles.n, 20);
        }
        // 80,000 cycles at 3 GHz are 26.7 microseconds.
        let rate = measured(rounds.gigabytes_per_second(0, 26_667.0));
        assert!((rate.value - 1.0).abs() < 0.01, "{rate}");
        let ratio = measured(rounds.ratio(2, 1));
        assert!((ratio.value - 1.5).abs() < 0.01 && ratio.low <= ratio.value, "{ratio}");
    }

    #[test]
    fn orders_are_drawn_from_the_seed() {
        let rounds = on(FakeClock::quiet(2.5, 3.0));
        assert_eq!(rounds, on(FakeClock::quiet(2.5, 3.0)));
        let first: Vec<usize> = rounds.rounds.iter().map(|r| r.order[0]).collect();
        assert!((0..3).all(|arm| first.contains(&arm)), "{first:?}");
    }

    #[test]
    fn a_clock_that_moves_costs_rounds_and_then_the_answer() {
        // Half a per cent and more from round to round.
        let wild = on(FakeClock::quiet(2.5, 3.0).stepping(1.5e6, 0.5, 0.7));
        assert_eq!(wild.rounds.len(), 60);
        assert!(wild.undisturbed() < 20);
        let preempted = on(FakeClock::quiet(2.5, 3.0).preempted(1_000.0, 3_000.0));
        let reading = preempted.cycles(0, 1.0);
        assert!(matches!(reading, Reading::Inconclusive { n: 60, .. }), "{reading:?}");
    }

    #[test]
    fn the_first_failure_ends_it() {
        let mut clock = FakeClock::quiet(2.5, 3.0);
        assert_eq!(
            measure(&mut clock, &PLAN, |arm, _| if arm == 1 { Err(7) } else { Ok(()) }),
            Err(7)
        );
    }
}
