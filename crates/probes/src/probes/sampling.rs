//! The sampling plan: which case when, and which samples count.
//!
//! A round visits every case in every placement once, in an order drawn from the seed. Each visit
//! runs K, 2K, 2K, K repetitions between two guards of the clock room; the guard after one visit is
//! the guard before the next. A visit counts when both guards are steady, agree on the core clock
//! and had the core to themselves, and when the two slopes (2K less K) of the case agree: an
//! interrupt, a licence step or a neighbour bends at least one of these. Ticks become cycles with
//! the two guards around that very visit, never with a global ratio.
//!
//! The value of a case is the median over placements of the median of their clean samples: the
//! minimum would reward a lucky predictor, the mean a single preemption. Its interval reaches from
//! the lowest to the highest placement and contains the order-statistic interval (99 %) of all
//! clean samples together.

use std::sync::atomic::{AtomicBool, Ordering};

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::protocol::PinnedCore;
use super::rig::Rig;
use super::{Bench, EmitError, ProbeError, Protocol};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::{HardwareClock, MOVED_CLOCK, Sample, SamplePlan, TickReading, take_sample};
use crate::machine::Machine;
use crate::model::{Measurement, Unit};
use crate::stats::percent;
use crate::stats::robust::{finite, median_interval_99, quantile};

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    /// Every case is visited this often in each placement.
    pub rounds: usize,
    /// Further rounds for the cases that have too few clean samples, at the most.
    pub more_rounds: usize,
    /// No round starts later than this after the first.
    pub limit_ns: u64,
}

impl Plan {
    /// Eight rounds, never more than six seconds.
    pub fn new(seed: u64) -> Self {
        Self { seed, rounds: 8, more_rounds: 40, limit_ns: 6_000_000_000 }
    }
}

/// With fewer clean samples a case is inconclusive.
pub const LEAST_SAMPLES: usize = 8;

/// Two slopes of a case that differ by more were disturbed. Wider than for the clock's own chain:
/// forwarding across lines is restless by itself.
const SLOPES_APART: f64 = 0.10;

/// Ticks beyond a slope that looking at the counter and entering the loop may take.
const FIXED_TICKS: f64 = 600.0;

#[derive(Clone, Copy, Debug)]
struct Visit {
    case: usize,
    placement: usize,
    ticks_per_repetition: f64,
    steady: bool,
    /// Position of the guard before it; the one after is the next.
    guard: usize,
}

/// What is known about one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// Core cycles per repetition; `None` with too few clean samples.
    pub cycles: Option<Measurement>,
    /// Clean samples, percent of those taken.
    pub clean_percent: f64,
    /// Number of samples, clean or not.
    pub taken: usize,
}

/// Samples of all cases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sampled {
    /// In the order of the cases.
    pub cells: Vec<Cell>,
    /// Number of samples, clean or not.
    pub taken: usize,
    /// Share of clean samples, percent.
    pub clean_percent: f64,
}

/// One visit as it was taken, for another analysis.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RawVisit {
    /// Position of the case in the report.
    pub case: u32,
    /// Which copy of the kernel.
    pub placement: u32,
    /// Ticks of the time stamp counter for one repetition.
    pub ticks: f64,
    /// Core cycles for one repetition; absent where the visit was disturbed.
    pub cycles: Option<f64>,
}

pub struct Sampler {
    plan: Plan,
    count: usize,
    placements: usize,
    random: Pcg64Mcg,
    guard: SamplePlan,
    end_ns: u64,
    guards: Vec<Sample>,
    visits: Vec<Visit>,
}

#[derive(Debug)]
pub struct GaveUp;

/// Samples all of so many cases by plan on a chosen processor, and reports on that; the visits go into the protocol where they were
/// asked for.
pub fn measure<R: Rig, T>(
    bench: &Bench<'_>,
    (count, plan): (usize, Plan),
    rig: impl FnOnce(HardwareClock, &Machine) -> Result<R, EmitError>,
    report: impl FnOnce(&Sampled, Protocol) -> T,
) -> Result<T, ProbeError> {
    let core = PinnedCore::take(bench)?;
    let mut protocol = Protocol::new(core.machine, core.cpu);
    let mut rig = rig(core.clock, &protocol.machine)?;
    let mut sampler = Sampler::new(&mut rig, count, plan);
    sampler.all(&mut rig, bench.interrupt).map_err(|GaveUp| ProbeError::Interrupted)?;
    protocol.raw = bench.raw.then(|| sampler.raw());
    protocol.took_ms = core.start.elapsed().as_millis() as u64;
    Ok(report(&sampler.sampled(), protocol))
}

impl Sampler {
    pub fn new<R: Rig>(rig: &mut R, count: usize, plan: Plan) -> Self {
        let guard = SamplePlan::for_step(TickReading::take(rig, 64).step_ticks);
        // The first guard runs on cold lines and is there to be thrown away.
        take_sample(rig, &guard);
        let guards = vec![take_sample(rig, &guard)];
        let end_ns = rig.now_raw_ns().saturating_add(plan.limit_ns);
        let random = Pcg64Mcg::seed_from_u64(plan.seed);
        let placements = rig.placements();
        Self { plan, count, placements, random, guard, end_ns, guards, visits: Vec::new() }
    }

    /// Visits every case by plan, and those that were disturbed again until each has enough clean
    /// samples or time is up.
    pub fn all<R: Rig>(&mut self, rig: &mut R, interrupt: &AtomicBool) -> Result<(), GaveUp> {
        let every: Vec<usize> = (0..self.count).collect();
        self.rounds(rig, &every, self.plan.rounds, interrupt)?;
        for _ in 0..self.plan.more_rounds {
            let cells = self.sampled().cells;
            let wanted: Vec<usize> =
                every.iter().copied().filter(|&c| self.needs_more(&cells[c])).collect();
            if wanted.is_empty() || rig.now_raw_ns() >= self.end_ns {
                break;
            }
            self.rounds(rig, &wanted, 1, interrupt)?;
        }
        Ok(())
    }

    /// `rounds` more rounds over some cases, as far as time allows.
    pub fn rounds<R: Rig>(
        &mut self,
        rig: &mut R,
        wanted: &[usize],
        rounds: usize,
        interrupt: &AtomicBool,
    ) -> Result<(), GaveUp> {
        for _ in 0..rounds {
            for (case, placement) in self.shuffled(wanted) {
                self.visit(rig, case, placement);
                if interrupt.load(Ordering::Relaxed) {
                    return Err(GaveUp);
                }
            }
            if rig.now_raw_ns() >= self.end_ns {
                break;
            }
        }
        Ok(())
    }

    /// A case that was disturbed in more than a third of its visits is looked at again.
    fn needs_more(&self, cell: &Cell) -> bool {
        let enough = (self.plan.rounds * self.placements * 2 / 3).max(LEAST_SAMPLES);
        cell.cycles.as_ref().is_none_or(|m| m.n < enough)
    }

    pub fn sampled(&self) -> Sampled {
        let taken = self.visits.len();
        let clean = self.clean().filter(|v| v.1.is_some()).count();
        Sampled { cells: self.cells(), taken, clean_percent: percent(clean, taken) }
    }

    /// Every visit in the order in which it was made.
    pub fn raw(&self) -> Vec<RawVisit> {
        let raw = |(v, cycles): (&Visit, Option<f64>)| RawVisit {
            case: v.case as u32,
            placement: v.placement as u32,
            ticks: v.ticks_per_repetition,
            cycles,
        };
        self.clean().map(raw).collect()
    }

    fn shuffled(&mut self, wanted: &[usize]) -> Vec<(usize, usize)> {
        let mut order: Vec<(usize, usize)> =
            wanted.iter().flat_map(|&c| (0..self.placements).map(move |p| (c, p))).collect();
        order.shuffle(&mut self.random);
        order
    }

    fn visit<R: Rig>(&mut self, rig: &mut R, case: usize, placement: usize) {
        let k = rig.repetitions(case).max(1);
        rig.warm_up(case, placement);
        let mut timed = |n| {
            let before = rig.now_ticks();
            rig.run_case(case, placement, n);
            rig.now_ticks().wrapping_sub(before) as f64
        };
        let [a, b, c, d] = [k, 2 * k, 2 * k, k].map(&mut timed);
        let (first, second) = (b - a, c - d);
        let mean = (first + second) / 2.0;
        let fixed = (a - first).abs().max((d - second).abs());
        let steady = first > 0.0
            && second > 0.0
            && fixed <= FIXED_TICKS + SLOPES_APART * mean
            && (first - second).abs() <= SLOPES_APART * mean + FIXED_TICKS / 8.0;
        let guard = self.guards.len() - 1;
        self.guards.push(take_sample(rig, &self.guard));
        let ticks_per_repetition = mean / k as f64;
        self.visits.push(Visit { case, placement, ticks_per_repetition, steady, guard });
    }

    /// Every visit with its cycles, if it was clean.
    fn clean(&self) -> impl Iterator<Item = (&Visit, Option<f64>)> {
        let steady = self.guards.iter().filter(|g| g.is_steady());
        let throughput = finite(steady.map(|g| g.throughput_cycles(f64::NAN)));
        // Not the minimum: one guard with a lucky start would brand all others as shared.
        let best = quantile(&throughput, 0.02);
        self.visits.iter().map(move |v| {
            let (before, after) = (&self.guards[v.guard], &self.guards[v.guard + 1]);
            let (a, b) = (before.cycles_per_tick, after.cycles_per_tick);
            // Steady ones go by their own clock.
            let good = |g: &Sample| g.is_steady() && !g.is_shared(best, f64::NAN);
            let quiet = good(before) && good(after) && (a - b).abs() <= MOVED_CLOCK * a;
            (v, (quiet && v.steady).then(|| v.ticks_per_repetition * (a + b) / 2.0))
        })
    }

    fn cells(&self) -> Vec<Cell> {
        let mut values = vec![vec![Vec::new(); self.placements]; self.count];
        let mut taken = vec![0; self.count];
        for (visit, cycles) in self.clean() {
            taken[visit.case] += 1;
            values[visit.case][visit.placement].extend(cycles);
        }
        values.iter().zip(taken).map(|(v, taken)| cell(v, taken)).collect()
    }
}

/// One case from the clean samples of each placement.
fn cell(placements: &[Vec<f64>], taken: usize) -> Cell {
    let all = finite(placements.iter().flatten().copied());
    let of_each = placements.iter().filter(|p| p.len() >= 2);
    let medians = finite(of_each.map(|p| quantile(&finite(p.iter().copied()), 0.5)));
    let clean_percent = percent(all.len(), taken);
    if all.len() < LEAST_SAMPLES || medians.len() < 2 {
        return Cell { cycles: None, clean_percent, taken };
    }
    let (low, high) = median_interval_99(&all);
    let cycles = Measurement {
        value: quantile(&medians, 0.5),
        unit: Unit::Cycles,
        low: low.min(medians[0]),
        high: high.max(medians[medians.len() - 1]),
        n: all.len(),
        how: "median of placements; lowest to highest placement".to_owned(),
    };
    Cell { cycles: Some(cycles), clean_percent, taken }
}
