//! The probe `icache-sync`: what it costs to run code that was just written.
//!
//! *Effect.* New code passes through the data cache before it is fetched. x86-64 keeps both caches
//! in agreement by itself; what programs do on top (flush lines, serialise) has a price, and under
//! a hypervisor CPUID leaves the guest. *Sign.* Time to write the code, to synchronise, to read it
//! back as data and to execute it the first and the second time. *Contrast.* The ways to
//! synchronise, and none. *Placebo.* "None" asked twice. *Negative control.* Every execution must
//! return the sum that was just written: nothing stale. *Positive control.* Four times the lines
//! take longer to flush.
//!
//! Code is written through one mapping and executed through another of the same memory: no page is
//! ever writable and executable.
//!
//! *Literature.* The OpenJDK pull request that compared these ways on data alone; Intel SDM vol. 3,
//! "Handling Self- and Cross-Modifying Code"; AMD APM vol. 2, "Cache control".

mod report;
#[cfg(target_arch = "x86_64")]
mod rig;
mod sampling;
#[cfg(target_arch = "x86_64")]
mod twin;

pub use report::{BreakEven, SyncCell, SyncReport};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(not(target_arch = "x86_64"))]
use super::elsewhere as run;
use super::{Bench, Probe, ProbeError, ProbeReport};
use crate::machine::Features;

/// Id of the probe.
pub const ID: &str = "icache-sync";

/// How new code is made known.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Method {
    /// No synchronisation.
    None,
    /// The same again: the placebo.
    NoneAgain,
    /// CLFLUSH of each line, MFENCE.
    Clflush,
    /// CLFLUSHOPT of each line, MFENCE.
    Clflushopt,
    /// CLWB of each line, MFENCE.
    Clwb,
    /// CPUID: serialises, and leaves a guest.
    Cpuid,
    /// SERIALIZE.
    Serialize,
    /// IRETQ to the next instruction: serialises and leaves nothing.
    Iret,
}

/// Every method, in the order of the report.
pub const METHODS: [Method; 8] = [
    Method::None,
    Method::NoneAgain,
    Method::Clflush,
    Method::Clflushopt,
    Method::Clwb,
    Method::Cpuid,
    Method::Serialize,
    Method::Iret,
];

impl Method {
    /// As instruction manuals write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::NoneAgain => "none (2)",
            Self::Clflush => "CLFLUSH",
            Self::Clflushopt => "CLFLUSHOPT",
            Self::Clwb => "CLWB",
            Self::Cpuid => "CPUID",
            Self::Serialize => "SERIALIZE",
            Self::Iret => "IRETQ",
        }
    }

    /// Whether the architecture promises that younger instructions are fetched anew.
    #[must_use]
    pub fn serialises(self) -> bool {
        matches!(self, Self::Cpuid | Self::Serialize | Self::Iret)
    }

    /// Whether it works line by line.
    #[must_use]
    pub fn flushes(self) -> bool {
        matches!(self, Self::Clflush | Self::Clflushopt | Self::Clwb)
    }

    /// The name of the feature that a processor lacks for it.
    #[must_use]
    pub fn missing(self, features: &Features) -> Option<&'static str> {
        let (name, there) = match self {
            Self::Clflushopt => ("CLFLUSHOPT", features.clflushopt),
            Self::Clwb => ("CLWB", features.clwb),
            Self::Serialize => ("SERIALIZE", features.serialize),
            _ => return None,
        };
        (!there).then_some(name)
    }
}

/// The methods that this processor has; what is left out, and for which feature, goes into
/// `protocol`.
#[cfg(any(target_arch = "x86_64", test))]
fn there(protocol: &mut super::Protocol) -> Vec<Method> {
    let features = protocol.machine.features;
    for feature in METHODS.iter().filter_map(|m| m.missing(&features)) {
        protocol.leave_out_without(feature, false, &format!("synchronising by {feature}"));
    }
    METHODS.into_iter().filter(|m| m.missing(&features).is_none()).collect()
}

/// Sizes of the written code, bytes.
pub const SIZES: [usize; 6] = [256, 1024, 4096, 16_384, 65_536, 262_144];

/// The probe.
pub const PROBE: Probe = Probe {
    id: ID,
    title: "what it costs to run code that was just written",
    prices: false,
    run,
    wide: None,
};

#[cfg(target_arch = "x86_64")]
fn run(bench: &Bench<'_>) -> Result<ProbeReport, ProbeError> {
    use super::protocol::{PinnedCore, Protocol};
    let core = PinnedCore::take(bench)?;
    let mut protocol = Protocol::new(core.machine, core.cpu);
    let methods = there(&mut protocol);
    protocol.skipped.push("code that another thread is executing: not asked".to_owned());
    let mut rig = rig::HardwareRig::new(core.clock, &methods)?;
    let plan = sampling::Plan { seed: bench.seed, rounds: 25, limit_ns: 4_000_000_000 };
    let sampled = sampling::sample(&mut rig, &methods, plan, bench.interrupt)?;
    let mut report = SyncReport::new(&sampled, protocol);
    report.protocol.took_ms = core.start.elapsed().as_millis() as u64;
    Ok(ProbeReport::IcacheSync(Box::new(report)))
}

#[cfg(test)]
mod tests;
