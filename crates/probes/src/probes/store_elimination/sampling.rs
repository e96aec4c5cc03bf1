//! Blocks of fills, paired chunk by chunk.

use std::sync::atomic::{AtomicBool, Ordering};

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::{CHUNK_BYTES, FILLS, Fill};
use crate::clock::Clock;
use crate::model::{Measurement, Unit};
use crate::probes::ProbeError;
use crate::stats::robust::{finite, median_interval_99, quantile};

/// Where regions are filled: on this processor, or on an invented one.
pub trait Filler: Clock {
    /// Makes a region of so many bytes ready; every page of it is there afterwards.
    fn prepare(&mut self, bytes: usize);
    /// Fills `start..start + bytes` of the region, `passes` times.
    fn fill(&mut self, fill: Fill, start: usize, bytes: usize, passes: u64);
    /// Loads from each line of the region's first bytes.
    fn read(&mut self, bytes: usize);
}

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    /// No block of a region starts later than this after its first, unless there are fewer than
    /// five. Regions in memory have twice the time.
    pub limit_ns: u64,
    /// Blocks for each region, at the most.
    pub blocks: usize,
}

impl Plan {
    /// As many blocks as fit into a second: the width of an interval goes with the root of their
    /// number, and in the third level, which is shared, nine of them left effects of 5 to 77 % open
    /// where some hundred show 1 %.
    pub fn new(seed: u64) -> Self {
        Self { seed, limit_ns: 1_000_000_000, blocks: 600 }
    }
}

/// Regions up to this size are quiet: the caches that hold them are not shared.
const OWN_BYTES: usize = CHUNK_BYTES;

/// For regions of this size on time is doubled: one block takes a tenth of a second.
const SLOW_BYTES: usize = 32 << 20;

/// Fewer blocks say nothing.
const LEAST_BLOCKS: usize = 5;

/// One region: ticks of every chunk, by block and fill.
pub struct Region {
    pub bytes: usize,
    /// By block: by fill in the order of [`FILLS`]: by chunk, ticks.
    pub blocks: Vec<Vec<Vec<f64>>>,
    pub pairs: usize,
    /// Ticks of a nanosecond.
    pub ticks_per_ns: f64,
}

pub fn all<F: Filler>(
    filler: &mut F,
    sizes: &[usize],
    plan: Plan,
    interrupt: &AtomicBool,
) -> Result<Vec<Region>, ProbeError> {
    let mut random = Pcg64Mcg::seed_from_u64(plan.seed);
    sizes.iter().map(|&bytes| region(filler, bytes, plan, &mut random, interrupt)).collect()
}

fn region<F: Filler>(
    filler: &mut F,
    bytes: usize,
    plan: Plan,
    random: &mut Pcg64Mcg,
    interrupt: &AtomicBool,
) -> Result<Region, ProbeError> {
    filler.prepare(bytes);
    let (start_ns, start_ticks) = (filler.now_raw_ns(), filler.now_ticks());
    let mut blocks = Vec::new();
    let mut order = FILLS;
    let wanted = if bytes <= OWN_BYTES { plan.blocks.div_ceil(8) } else { plan.blocks };
    let limit_ns = if bytes < SLOW_BYTES { plan.limit_ns } else { 2 * plan.limit_ns };
    while blocks.len() < wanted {
        let late = filler.now_raw_ns().saturating_sub(start_ns) > limit_ns;
        if late && blocks.len() >= LEAST_BLOCKS {
            break;
        }
        order.shuffle(random);
        let mut block = vec![Vec::new(); FILLS.len()];
        for fill in order {
            if interrupt.load(Ordering::Relaxed) {
                return Err(ProbeError::Interrupted);
            }
            let at = FILLS.iter().position(|f| *f == fill).unwrap_or(0);
            block[at] = chunks(filler, fill, bytes);
        }
        blocks.push(block);
    }
    let ns = filler.now_raw_ns().saturating_sub(start_ns).max(1) as f64;
    let ticks_per_ns = filler.now_ticks().wrapping_sub(start_ticks) as f64 / ns;
    let pairs = blocks.len() * bytes.div_ceil(CHUNK_BYTES);
    Ok(Region { bytes, blocks, pairs, ticks_per_ns })
}

/// One settling pass over all, then one in which each chunk is timed.
fn chunks<F: Filler>(filler: &mut F, fill: Fill, bytes: usize) -> Vec<f64> {
    // Short regions are filled often enough to take some microseconds, more than a hundred steps of
    // a coarse counter: with 26 ticks a step, fewer made 5 % of a difference 2.6 % or 3.7 %.
    let passes = (2_000_000 / bytes as u64).clamp(1, 4000);
    filler.fill(fill, 0, bytes, 1);
    let mut ticks = Vec::with_capacity(bytes.div_ceil(CHUNK_BYTES));
    for start in (0..bytes).step_by(CHUNK_BYTES) {
        let before = filler.now_ticks();
        filler.fill(fill, start, CHUNK_BYTES.min(bytes - start), passes);
        ticks.push(filler.now_ticks().wrapping_sub(before) as f64 / passes as f64);
    }
    ticks
}

impl Region {
    fn ticks(&self, block: &[Vec<f64>], fill: Fill) -> Vec<f64> {
        FILLS.iter().position(|f| *f == fill).map_or(Vec::new(), |at| block[at].clone())
    }

    /// The logarithm of the speed of one fill over that of another, for each block in order of time: the median over pairs of
    /// chunks.
    pub fn logs_over(&self, fill: Fill, base: Fill) -> impl Iterator<Item = f64> {
        self.blocks.iter().map(move |block| {
            let (a, b) = (self.ticks(block, fill), self.ticks(block, base));
            quantile(&finite(a.iter().zip(&b).map(|(a, b)| (b / a).ln())), 0.5)
        })
    }

    /// Speed of one fill over that of another: the median over blocks, with its order-statistic interval (99 %).
    pub fn speed_over(&self, fill: Fill, base: Fill) -> Option<Measurement> {
        let logs = finite(self.logs_over(fill, base));
        if logs.len() < LEAST_BLOCKS {
            return None;
        }
        let (low, high) = median_interval_99(&logs);
        Some(Measurement {
            value: quantile(&logs, 0.5).exp(),
            unit: Unit::Ratio,
            low: low.exp(),
            high: high.exp(),
            n: logs.len(),
            how: "median of blocks, paired by chunk; order statistics of blocks".to_owned(),
        })
    }

    pub fn speed(&self, fill: Fill) -> Option<Measurement> {
        let chunk = self.bytes.min(CHUNK_BYTES) as f64;
        let all = self.blocks.iter().flat_map(|b| self.ticks(b, fill));
        let v = finite(all.map(|ticks| chunk / (ticks / self.ticks_per_ns)));
        (!v.is_empty()).then(|| Measurement {
            value: quantile(&v, 0.5),
            unit: Unit::GigabytesPerSecond,
            low: quantile(&v, 0.25),
            high: quantile(&v, 0.75),
            n: v.len(),
            how: "median and quartiles of chunks".to_owned(),
        })
    }
}
