//! The probe `store-elimination`: is a line filled with zeros cheaper than one filled with ones?
//!
//! *Effect.* Some cores drop the eviction of a line whose content did not change, if it is zero: a
//! fill with zeros then writes less to the next level. Microcode took it away again on the parts
//! that had it. *Sign.* The speed of filling a region with zeros over that with ones. *Contrast.*
//! Zeros against ones. *Placebo.* Twos against ones. *Dose.* Lines of zeros and ones in turn.
//! *Negative control.* The first-level cache evicts nothing. *Positive control.* A fill that is 5 %
//! shorter must be 5 % faster. Where the processor counts lines that leave the cache unchanged, and
//! the counter is believed, that is the mechanism itself.
//!
//! Every value is filled twice and only the second pass is timed, so that old and new content are
//! equal. The order of values is drawn anew for each block; chunk k of one value is paired with
//! chunk k of another, the same physical memory.
//!
//! *Literature.* T. Downs, "Hardware Store Elimination" (2020), "Ice Lake Store Elimination"
//! (2020), and the note in zero-fill-bench on the microcode that ended it.

mod counted;
mod report;
#[cfg(target_arch = "x86_64")]
mod rig;
mod sampling;

pub use counted::CountedEvent;
pub use report::{EliminationReport, Level, Ratio, RegionReport};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Bench, Probe, ProbeError, ProbeReport};
#[cfg(not(target_arch = "x86_64"))]
use super::{elsewhere as run, elsewhere as wide};

/// Id of the probe.
pub const ID: &str = "store-elimination";

/// What a region is filled with.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// Ones everywhere: what the others are held against.
    One,
    /// Zeros everywhere.
    Zero,
    /// Twos everywhere: the placebo.
    Two,
    /// Lines of zeros and of ones in turn.
    Alternating,
    /// Ones, but 5 % fewer of them: the positive control.
    Shorter,
    /// One integer in each line, one.
    SparseOne,
    /// One integer in each line, zero.
    SparseZero,
}

/// All fills.
pub const FILLS: [Fill; 7] = [
    Fill::One,
    Fill::Zero,
    Fill::Two,
    Fill::Alternating,
    Fill::Shorter,
    Fill::SparseOne,
    Fill::SparseZero,
];

/// Sizes of the region, bytes.
pub const SIZES: [usize; 9] =
    [128, 2_048, 16_384, 262_144, 786_432, 3 << 20, 12 << 20, 48 << 20, 96 << 20];

/// Regions are timed in chunks of this many bytes.
pub const CHUNK_BYTES: usize = 1 << 20;

/// The probe.
pub const PROBE: Probe = Probe {
    id: ID,
    title: "whether filling with zeros is cheaper than with ones",
    prices: false,
    run,
    wide: Some(wide),
};

#[cfg(target_arch = "x86_64")]
fn run(bench: &Bench<'_>) -> Result<ProbeReport, ProbeError> {
    use super::protocol::{PinnedCore, Protocol};
    use crate::clock::counters::Role;
    use crate::clock::{LinuxPerf, UncorePerf};
    let core = PinnedCore::take(bench)?;
    let mut protocol = Protocol::new(core.machine.clone(), core.cpu);
    let avx2 = protocol.machine.features.avx2;
    protocol.leave_out_without("AVX2", avx2, "32-byte stores (filled by 16 bytes)");
    let width = if avx2 { rig::Width::Avx2 } else { rig::Width::Sse };
    let mut filler = rig::HardwareFiller::new(core.clock, width)?;
    let plan = sampling::Plan::new(bench.seed);
    let regions = sampling::all(&mut filler, &SIZES, plan, bench.interrupt)?;
    let design = protocol.machine.microarchitecture;
    let counted = counted::counted(&mut filler, design, |counter| match counter.units {
        Some(units) => Box::new(UncorePerf { units }),
        None => Box::new(LinuxPerf),
    });
    drop(filler);
    let wide = protocol.ask_wide(bench, ID, 2 * WIDE_SIZES.len()).map(|sampled| sampled.cells);
    if counted.iter().all(|event| event.role == Role::MemoryWrites) {
        let what = format!("evictions: no counter of them is published for {design}");
        protocol.skipped.push(what);
    }
    let mut report = EliminationReport::new(&regions, wide.as_deref(), bench.raw, protocol);
    report.counted = counted;
    report.protocol.took_ms = core.start.elapsed().as_millis() as u64;
    Ok(ProbeReport::StoreElimination(Box::new(report)))
}

/// Zeros over ones, then twos over ones, in the order of [`WIDE_SIZES`].
#[cfg(target_arch = "x86_64")]
fn wide(bench: &Bench<'_>) -> Result<super::Sampled, ProbeError> {
    let core = super::protocol::PinnedCore::take(bench)?;
    let mut filler = rig::HardwareFiller::new(core.clock, rig::Width::Avx512)?;
    let plan = sampling::Plan::new(bench.seed);
    let regions = sampling::all(&mut filler, &WIDE_SIZES, plan, bench.interrupt)?;
    let cells = regions.iter().flat_map(|r| {
        [Fill::Zero, Fill::Two].map(|fill| super::Cell {
            cycles: r.speed_over(fill, Fill::One),
            clean_percent: 100.0,
            taken: r.pairs,
        })
    });
    Ok(super::Sampled { cells: cells.collect(), taken: 0, clean_percent: 100.0 })
}

/// Sizes that are filled by 512-bit stores, in a child process.
pub const WIDE_SIZES: [usize; 3] = [16_384, 12 << 20, 48 << 20];

#[cfg(test)]
mod tests;
