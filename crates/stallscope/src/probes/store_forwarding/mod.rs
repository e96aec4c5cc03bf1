//! The probe `store-forwarding`: which loads can be served from the store buffer here, and what
//! those pay that cannot.
//!
//! *Effect.* A store waits in the store buffer until it reaches the cache. A load of the same bytes
//! is served from the buffer when the buffer can find them there in one piece, and waits until the
//! store has left it when it cannot. *Sign.* The time of one store-load round trip: the loaded
//! value is the next one to be stored. *Contrast.* 4-byte store and 8-byte load against 8-byte
//! store and 4-byte load. *Placebo.* Two cells asked twice. *Negative control.* A load of bytes
//! that nobody wrote. *Positive control.* The contrast must separate.
//!
//! *Literature.* H. Wong, "Store-to-Load Forwarding and Memory Disambiguation in x86 Processors"
//! (2014); T. Downs, uarch-bench; clamchowder, Microbenchmarks; Jiajie Chen (jiegec), articles on
//! Zen 5, Golden Cove, Gracemont, Neoverse and Apple cores; A. Fog, "The microarchitecture of
//! Intel, AMD and VIA CPUs" (memory renaming in Zen 2).
//!
//! 64-byte stores are left out: 512-bit kernels lower the clock of everything after them, even when
//! only speculated, and must not run in this process.

pub mod case;
mod classify;
mod delay;
mod infer;
mod kernel;
mod reference;
mod report;
#[cfg(target_arch = "x86_64")]
mod rig;

pub use case::{Case, Group, Registers};
pub use classify::{Boundaries, Boundary, Class};
pub use delay::{DelayCurve, DelayPoint};
pub use infer::RuleFinding;
pub use reference::Comparison;
pub use report::{CellReport, ForwardingReport};

use std::sync::atomic::AtomicBool;

use super::rig::Rig;
use super::sampling::{GaveUp, Plan, Sampler};
use super::{Bench, Probe, ProbeError, ProbeReport};
use report::Setting;

/// The probe.
pub struct StoreForwardingProbe;

impl Probe for StoreForwardingProbe {
    fn id(&self) -> &'static str {
        report::ID
    }

    fn title(&self) -> &'static str {
        "which loads a store in flight serves, and what others pay"
    }

    fn budget_ms(&self) -> u32 {
        1_500
    }

    #[cfg(target_arch = "x86_64")]
    fn run(&self, bench: &Bench<'_>) -> Result<ProbeReport, ProbeError> {
        use crate::clock::{HardwareClock, Pin, allowed_cpus, choose_cpu};
        let start = std::time::Instant::now();
        let mut clock = HardwareClock::new()?;
        let cpus = allowed_cpus()?;
        let mut pin = Pin::to(*cpus.first().unwrap_or(&0))?;
        let cpu = choose_cpu(&mut clock, &cpus, |cpu| pin.move_to(cpu))?;
        // Only now: on a hybrid part the answer depends on the core that gives it.
        let machine = crate::machine::Machine::detect();
        let vectors = std::arch::is_x86_feature_detected!("avx");
        let cases = case::all_cases(vectors);
        let mut rig = rig::hardware_rig(clock, &cases)?;
        let setting = Setting { machine, cpu, skipped: skipped(vectors), took_ms: 0 };
        let plan = Plan::new(bench.seed);
        let mut report = measure(&mut rig, &cases, plan, &setting, bench.interrupt)
            .map_err(|GaveUp| ProbeError::Interrupted)?;
        report.took_ms = start.elapsed().as_millis() as u64;
        Ok(ProbeReport::StoreForwarding(Box::new(report)))
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn run(&self, _bench: &Bench<'_>) -> Result<ProbeReport, ProbeError> {
        Err(super::elsewhere())
    }
}

/// Extra rounds over doubtful cells, and how often.
const AGAIN_ROUNDS: usize = 4;
const AGAIN_TIMES: usize = 3;

/// Samples, looks at what is doubtful again, and reports.
fn measure<R: Rig>(
    rig: &mut R,
    cases: &[Case],
    plan: Plan,
    setting: &Setting,
    interrupt: &AtomicBool,
) -> Result<ForwardingReport, GaveUp> {
    let mut sampler = Sampler::new(rig, cases.len(), plan);
    sampler.all(rig, interrupt)?;
    let mut report = ForwardingReport::new(cases, &sampler.sampled(), setting.clone());
    for _ in 0..AGAIN_TIMES {
        let doubtful = report.doubtful();
        if doubtful.is_empty() {
            break;
        }
        sampler.rounds(rig, &doubtful, AGAIN_ROUNDS, interrupt)?;
        report = ForwardingReport::new(cases, &sampler.sampled(), setting.clone());
    }
    Ok(report)
}

#[cfg(target_arch = "x86_64")]
fn skipped(vectors: bool) -> Vec<String> {
    let mut skipped = vec![
        "64-byte stores and loads: 512-bit kernels lower the clock of what runs after them and \
         are not run in this process"
            .to_owned(),
    ];
    if !vectors {
        skipped
            .push("vector registers: this processor (or its hypervisor) shows no AVX".to_owned());
    }
    skipped
}

#[cfg(test)]
mod tests;
