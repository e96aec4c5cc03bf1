//! Visits in an order drawn from the seed: write, synchronise, then read back or execute twice.

use std::sync::atomic::{AtomicBool, Ordering};

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::{Method, SIZES};
use crate::clock::Clock;
use crate::model::{Measurement, Unit};
use crate::probes::ProbeError;
use crate::stats::robust::{finite, median_interval_99, quantile};

/// Where code is written and run: on this processor, or on an invented one.
pub trait Rig: Clock {
    /// Thinks of a function of so many bytes; the sum that it returns.
    fn prepare(&mut self, bytes: usize, salt: u32) -> u64;
    fn write(&mut self);
    /// Makes it known.
    fn sync(&mut self, method: Method);
    fn read_back(&mut self);
    /// Runs it; its sum.
    fn execute(&mut self) -> u64;
}

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    /// Visits of each method and size, half of them to read back and half to execute.
    pub rounds: usize,
    /// No round starts later.
    pub limit_ns: u64,
}

/// What was timed, in ticks.
#[derive(Clone, Debug, Default)]
pub struct Times {
    pub write: Vec<f64>,
    /// Time of the method itself.
    pub sync: Vec<f64>,
    /// Time to read the code back as data.
    pub read: Vec<f64>,
    /// Time of the first execution.
    pub first: Vec<f64>,
    /// And the second time.
    pub second: Vec<f64>,
    /// Synchronising and first execution of the same visit.
    pub sum: Vec<f64>,
}

pub struct Sampled {
    /// Method, size, times.
    pub cells: Vec<(Method, usize, Times)>,
    /// Ticks of a nanosecond.
    pub ticks_per_ns: f64,
    /// Cost of a look at the counter, ticks.
    pub look_ticks: f64,
    pub executions: u64,
    /// Executions that returned another sum than was written.
    pub stale: u64,
}

pub fn sample<R: Rig>(
    rig: &mut R,
    methods: &[Method],
    plan: Plan,
    interrupt: &AtomicBool,
) -> Result<Sampled, ProbeError> {
    let mut random = Pcg64Mcg::seed_from_u64(plan.seed);
    let look_ticks =
        quantile(&finite(crate::clock::TickReading::take(rig, 64).overheads_ticks), 0.1);
    let (start_ns, start_ticks) = (rig.now_raw_ns(), rig.now_ticks());
    let mut cells: Vec<(Method, usize, Times)> = methods
        .iter()
        .flat_map(|&m| SIZES.iter().map(move |&bytes| (m, bytes, Times::default())))
        .collect();
    let (mut executions, mut stale, mut salt) = (0, 0, plan.seed as u32);
    for _ in 0..plan.rounds {
        let mut order: Vec<(usize, bool)> =
            (0..cells.len()).flat_map(|at| [(at, false), (at, true)]).collect();
        order.shuffle(&mut random);
        for (at, execute) in order {
            salt = salt.wrapping_mul(747_796_405).wrapping_add(1);
            let (method, bytes, times) = &mut cells[at];
            if visit(rig, *method, *bytes, times, salt, execute) {
                stale += 1;
            }
            executions += 2 * u64::from(execute);
            if interrupt.load(Ordering::Relaxed) {
                return Err(ProbeError::Interrupted);
            }
        }
        if rig.now_raw_ns().saturating_sub(start_ns) > plan.limit_ns {
            break;
        }
    }
    let ns = rig.now_raw_ns().saturating_sub(start_ns).max(1) as f64;
    let ticks_per_ns = rig.now_ticks().wrapping_sub(start_ticks) as f64 / ns;
    Ok(Sampled { cells, ticks_per_ns, look_ticks, executions, stale })
}

/// One visit; true when a sum was wrong.
fn visit<R: Rig>(
    rig: &mut R,
    method: Method,
    bytes: usize,
    times: &mut Times,
    salt: u32,
    execute: bool,
) -> bool {
    let sum = rig.prepare(bytes, salt);
    let a = rig.now_ticks();
    rig.write();
    let b = rig.now_ticks();
    rig.sync(method);
    let c = rig.now_ticks();
    if !execute {
        rig.read_back();
        let d = rig.now_ticks();
        times.read.push(d.wrapping_sub(c) as f64);
        return false;
    }
    let first = rig.execute();
    let d = rig.now_ticks();
    let second = rig.execute();
    let e = rig.now_ticks();
    times.write.push(b.wrapping_sub(a) as f64);
    times.sync.push(c.wrapping_sub(b) as f64);
    times.first.push(d.wrapping_sub(c) as f64);
    times.second.push(e.wrapping_sub(d) as f64);
    times.sum.push(d.wrapping_sub(b) as f64);
    first != sum || second != sum
}

/// Fewer visits say nothing.
const LEAST: usize = 9;

impl Sampled {
    /// Nanoseconds: the median with its order-statistic interval (99 %). One look at the counter
    /// is taken off.
    pub fn ns(&self, ticks: &[f64]) -> Option<Measurement> {
        let v = finite(ticks.iter().map(|t| (t - self.look_ticks).max(0.0) / self.ticks_per_ns));
        if v.len() < LEAST {
            return None;
        }
        let (low, high) = median_interval_99(&v);
        Some(Measurement {
            value: quantile(&v, 0.5),
            unit: Unit::Nanoseconds,
            low,
            high,
            n: v.len(),
            how: "median; order statistics (99 %)".to_owned(),
        })
    }
}
