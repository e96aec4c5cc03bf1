//! The probe `store-forwarding`: which loads can be served from the store buffer here, and what
//! those pay that cannot.
//!
//! *Effect.* A store waits in the store buffer until it reaches the cache. A load of the same bytes
//! is served from the buffer when the buffer can find them there in one piece, and waits until the
//! store has left it when it cannot. *Sign.* The time of one store-load round trip: the loaded
//! value is the next one to be stored. *Contrast.* 4-byte store and 8-byte load against 8-byte
//! store and 4-byte load. *Placebo.* Two cells asked twice. *Negative control.* A load of bytes
//! that no store wrote. *Positive control.* The contrast must separate.
//!
//! *Literature.* H. Wong, "Store-to-Load Forwarding and Memory Disambiguation in x86 Processors"
//! (2014); T. Downs, uarch-bench; clamchowder, Microbenchmarks; Jiajie Chen (jiegec), articles on
//! Zen 5, Golden Cove, Gracemont, Neoverse and Apple cores; A. Fog, "The microarchitecture of
//! Intel, AMD and VIA CPUs" (memory renaming in Zen 2).
//!
//! 64-byte stores and loads are asked in a process of their own: 512-bit kernels lower the clock of
//! everything after them, even when only speculated.

pub mod case;
mod classify;
mod counted;
mod delay;
mod infer;
mod kernel;
mod pairs;
pub mod peer;
mod report;
#[cfg(target_arch = "x86_64")]
mod rig;

pub use case::{Case, Group, Registers};
pub use classify::{Boundaries, Boundary, Class};
pub use delay::{DelayCurve, DelayPoint};
pub use infer::RuleFinding;
pub use report::{CellReport, ForwardingReport};

use std::sync::atomic::AtomicBool;

#[cfg(target_arch = "x86_64")]
use super::protocol::PinnedCore;
use super::rig::Rig;
use super::sampling::{GaveUp, Plan, Sampled, Sampler};
use super::{Bench, Probe, ProbeError, ProbeReport, Protocol};
#[cfg(not(target_arch = "x86_64"))]
use super::{elsewhere as run, elsewhere as wide};
#[cfg(target_arch = "x86_64")]
use crate::clock::LinuxPerf;

/// The probe.
pub const PROBE: Probe = Probe {
    id: report::ID,
    title: "which loads a store in flight serves, and what others pay",
    prices: true,
    run,
    wide: Some(wide),
};

#[cfg(target_arch = "x86_64")]
fn run(bench: &Bench<'_>) -> Result<ProbeReport, ProbeError> {
    let core = PinnedCore::take(bench)?;
    let mut protocol = Protocol::new(core.machine, core.cpu);
    let features = protocol.machine.features;
    protocol.leave_out_without("AVX", features.avx, "vector registers");
    let mut cases = case::all_cases(features.avx);
    let mut rig = rig::hardware_rig(core.clock, &cases)?;
    let mut sampler = Sampler::new(&mut rig, cases.len(), Plan::new(bench.seed));
    sample(&mut rig, &mut sampler, &cases, &protocol, bench.interrupt)
        .map_err(|GaveUp| ProbeError::Interrupted)?;
    let mut sampled = sampler.sampled();
    let design = protocol.machine.microarchitecture;
    let counter = counted::counted(&mut rig, &cases, design, &mut LinuxPerf);
    protocol.raw = bench.raw.then(|| sampler.raw());
    let wide_cases = case::wide_cases();
    if let Some(wide) = protocol.ask_wide(bench, report::ID, wide_cases.len()) {
        cases.extend(wide_cases);
        sampled.cells.extend(wide.cells);
        sampled.taken += wide.taken;
    }
    protocol.took_ms = core.start.elapsed().as_millis() as u64;
    let report = ForwardingReport::new(&cases, &sampled, protocol);
    let report = ForwardingReport { counter, ..report };
    Ok(ProbeReport::StoreForwarding(Box::new(report)))
}

#[cfg(target_arch = "x86_64")]
fn wide(bench: &Bench<'_>) -> Result<Sampled, ProbeError> {
    let core = PinnedCore::take(bench)?;
    let cases = case::wide_cases();
    let mut rig = rig::hardware_rig(core.clock, &cases)?;
    let plan = Plan { limit_ns: 3_000_000_000, ..Plan::new(bench.seed) };
    let mut sampler = Sampler::new(&mut rig, cases.len(), plan);
    sampler.all(&mut rig, bench.interrupt).map_err(|GaveUp| ProbeError::Interrupted)?;
    Ok(sampler.sampled())
}

/// Extra rounds over doubtful cells, and how often.
const AGAIN_ROUNDS: usize = 4;
const AGAIN_TIMES: usize = 3;

/// Samples, and looks at what is doubtful again.
fn sample<R: Rig>(
    rig: &mut R,
    sampler: &mut Sampler,
    cases: &[Case],
    protocol: &Protocol,
    interrupt: &AtomicBool,
) -> Result<(), GaveUp> {
    sampler.all(rig, interrupt)?;
    for _ in 0..AGAIN_TIMES {
        let report = ForwardingReport::new(cases, &sampler.sampled(), protocol.clone());
        let doubtful = report.doubtful();
        if doubtful.is_empty() {
            break;
        }
        sampler.rounds(rig, &doubtful, AGAIN_ROUNDS, interrupt)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
