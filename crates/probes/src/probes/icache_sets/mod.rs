//! The probe `icache-sets`: ways, sets, line size and capacity of the first-level instruction
//! cache, by time alone.
//!
//! *Effect.* Code whose lines fall into one set evicts itself as soon as there are more lines than
//! ways, however small it is. *Sign.* A jump to one of N blocks chosen at random is mispredicted
//! nearly always, so the time to fetch its line is exposed. *Contrast.* N blocks a stride apart
//! against N blocks a stride and one line apart: the same branches in different sets. *Placebo and
//! negative control.* With fewer blocks than ways the two must agree. *Positive control.* A wide
//! stride must cost in the end. Chains of predicted jumps show nothing: the front end runs ahead of
//! them, and what they show first is the branch target buffer. Blocks are full of one-byte no-ops,
//! more than a decoded-instruction cache keeps of one line, so that it cannot stand in for the
//! cache.
//!
//! *Literature.* J. Chen (jiegec), articles on instruction caches; "L1i set conflicts" (2025),
//! where functions that moved by 416 bytes cost 3 %.

mod fit;
mod geometry;
mod line;
mod report;
#[cfg(target_arch = "x86_64")]
mod rig;

pub use fit::{Fit, fit};
pub use geometry::{DECISIVE, Joint};
pub use report::{IcacheReport, StrideReport};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(not(target_arch = "x86_64"))]
use super::elsewhere as run;
use super::{Bench, Probe, ProbeError, ProbeReport};

/// Its id, and the origin of its facts.
pub const ID: &str = "icache-sets";

/// Where blocks lie.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Layout {
    /// From one block to the next, bytes.
    pub stride_bytes: u32,
    /// Every second block lies so many bytes further on.
    pub odd_bytes: u32,
    /// One line is added to the stride: the control.
    pub spread: bool,
}

/// One question: that many blocks in that layout.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Case {
    /// Placement of the blocks.
    pub layout: Layout,
    /// Number of blocks.
    pub blocks: u32,
}

/// Strides that are tried, bytes.
pub const STRIDES: [u32; 6] = [1024, 2048, 4096, 8192, 16384, 32768];

/// Numbers of blocks that are tried.
pub const BLOCKS: [u32; 18] = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 24, 32, 40];

/// Distances that are tried for the size of a line, bytes.
pub const ODD: [u32; 4] = [16, 32, 64, 128];

/// Stride of the layouts that ask for the size of a line: a multiple of what a way holds, on every
/// known design.
pub const LINE_STRIDE: u32 = 16384;

/// Most blocks in one layout.
pub const MOST_BLOCKS: u32 = 40;

/// How often an open question, or an answer against the processor's own word, is measured again
/// before it is given; within the time of the plan.
#[cfg(target_arch = "x86_64")]
const LATER_BATCHES: usize = 2;

impl Layout {
    /// From the start of the layout to block `i`, bytes.
    #[must_use]
    pub fn position(self, i: u32) -> u32 {
        let line = if self.spread { 64 } else { 0 };
        i * (self.stride_bytes + line) + (i % 2) * self.odd_bytes
    }
}

/// Both layouts of every stride, then those for the line.
pub fn all_layouts() -> Vec<Layout> {
    let both = |stride_bytes, odd_bytes| {
        [false, true].map(|spread| Layout { stride_bytes, odd_bytes, spread })
    };
    let strides = STRIDES.iter().flat_map(|&s| both(s, 0));
    strides.chain(ODD.iter().flat_map(|&d| both(LINE_STRIDE, d))).collect()
}

/// Every case that is measured.
pub fn all_cases() -> Vec<Case> {
    let of = |layout: Layout| BLOCKS.iter().map(move |&blocks| Case { layout, blocks });
    all_layouts().into_iter().flat_map(of).collect()
}

/// The probe.
pub const PROBE: Probe = Probe {
    id: ID,
    title: "ways, sets and line size of the L1 instruction cache",
    prices: true,
    run,
    wide: None,
};

#[cfg(target_arch = "x86_64")]
fn run(bench: &Bench<'_>) -> Result<ProbeReport, ProbeError> {
    use super::protocol::{PinnedCore, Protocol};
    use super::sampling::{GaveUp, Plan, Sampler};
    let core = PinnedCore::take(bench)?;
    let protocol = Protocol::new(core.machine, core.cpu);
    let cases = all_cases();
    let mut rig = rig::DispatchRig::new(core.clock, &cases)?;
    // The step at the knee is a cycle and a half: medians of fewer samples scatter by half of
    // it.
    let plan = Plan { rounds: 24, limit_ns: 4_000_000_000, ..Plan::new(bench.seed) };
    let mut sampler = Sampler::new(&mut rig, cases.len(), plan);
    sampler.all(&mut rig, bench.interrupt).map_err(|GaveUp| ProbeError::Interrupted)?;
    let mut report = IcacheReport::new(&cases, &sampler.sampled(), protocol.clone());
    let every: Vec<usize> = (0..cases.len()).collect();
    for _ in 0..LATER_BATCHES {
        if report.protocol.conclusive {
            break;
        }
        let more = sampler.rounds(&mut rig, &every, plan.rounds / 2, bench.interrupt);
        more.map_err(|GaveUp| ProbeError::Interrupted)?;
        report = IcacheReport::new(&cases, &sampler.sampled(), protocol.clone());
    }
    report.protocol.raw = bench.raw.then(|| sampler.raw());
    report.protocol.took_ms = core.start.elapsed().as_millis() as u64;
    Ok(ProbeReport::IcacheSets(Box::new(report)))
}

#[cfg(test)]
mod tests;
