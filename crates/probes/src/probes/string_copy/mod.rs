//! The probe `string-copy`: from which size on `rep movs` and `rep stos` are worth their start-up.
//!
//! *Effect.* A string instruction is a microcode routine: it starts slowly, then moves a line or
//! two a cycle, and may keep younger instructions from starting meanwhile. *Sign.* Cycles for so
//! many bytes: one after the other, in a chain through the copied bytes, and beside a chain of
//! multiplications that hides whatever can be hidden. *Contrast.* The same bytes by ordinary moves.
//! *Placebo.* One cell asked twice. *Negative control.* 8 bytes moved beside the chain cost
//! nothing.
//! *Positive control.* Twice the bytes by 8-byte moves take twice the time.
//!
//! *Literature.* Intel, optimisation manual (fast strings, FSRM); M. Guzik, patches to Linux and
//! GCC about inlined `rep` (2025); T. Downs, uarch-bench (`rep stosb`).

mod case;
mod fit;
mod kernel;
mod report;
#[cfg(target_arch = "x86_64")]
mod rig;

pub use case::{Case, Form, Job, Method, SIZES};
pub use fit::{Advice, Crossover, Outcome};
pub use report::{StringCell, StringReport};

use super::rig::Rig;
use super::sampling::{GaveUp, Plan, Sampled, Sampler};
use super::{Bench, Probe, ProbeError, ProbeReport};
#[cfg(not(target_arch = "x86_64"))]
use super::{elsewhere as run, elsewhere as wide};

/// Its id, and the origin of its prices.
pub const ID: &str = "string-copy";

/// The probe.
pub const PROBE: Probe = Probe {
    id: ID,
    title: "from which size on rep movs and rep stos pay",
    prices: true,
    run,
    wide: Some(wide),
};

#[cfg(target_arch = "x86_64")]
fn run(bench: &Bench<'_>) -> Result<ProbeReport, ProbeError> {
    use super::protocol::{PinnedCore, Protocol};
    let core = PinnedCore::take(bench)?;
    let mut protocol = Protocol::new(core.machine.clone(), core.cpu);
    let features = protocol.machine.features;
    protocol.leave_out_without("AVX2", features.avx2, "32-byte moves");
    let mut cases = case::all_cases(features.avx2);
    let mut sampler_rig = rig::hardware_rig(core.clock, &cases)?;
    let plan = Plan { limit_ns: 5_000_000_000, ..Plan::new(bench.seed) };
    let (mut sampled, raw) = sample(&mut sampler_rig, &cases, plan, bench)?;
    let wide_cases = case::wide_cases();
    if let Some(wide) = protocol.ask_wide(bench, ID, wide_cases.len()) {
        cases.extend(wide_cases);
        sampled.cells.extend(wide.cells);
    }
    protocol.raw = raw;
    let mut report = StringReport::new(&cases, &sampled, protocol);
    report.protocol.took_ms = core.start.elapsed().as_millis() as u64;
    Ok(ProbeReport::StringCopy(Box::new(report)))
}

#[cfg(target_arch = "x86_64")]
fn wide(bench: &Bench<'_>) -> Result<Sampled, ProbeError> {
    let core = super::protocol::PinnedCore::take(bench)?;
    let cases = case::wide_cases();
    let mut rig = rig::hardware_rig(core.clock, &cases)?;
    let plan = Plan { limit_ns: 3_000_000_000, ..Plan::new(bench.seed) };
    Ok(sample(&mut rig, &cases, plan, bench)?.0)
}

/// Samples all cases; the visits too where they were asked for.
fn sample<R: Rig>(
    rig: &mut R,
    cases: &[Case],
    plan: Plan,
    bench: &Bench<'_>,
) -> Result<(Sampled, Option<Vec<super::RawVisit>>), ProbeError> {
    let mut sampler = Sampler::new(rig, cases.len(), plan);
    sampler.all(rig, bench.interrupt).map_err(|GaveUp| ProbeError::Interrupted)?;
    Ok((sampler.sampled(), bench.raw.then(|| sampler.raw())))
}

#[cfg(test)]
mod tests;
