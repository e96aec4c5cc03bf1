//! Experiments on the hardware, one file each.
//!
//! A probe asks one question about this processor and answers with measurements that carry their
//! doubt, or says that it could not find out. `clock` comes first in every sense: the others
//! convert their ticks with it and refuse a verdict where it says that the machine is too restless.
//!
//! To add a probe: one file with a type that implements [`Probe`], one line in [`PROBES`], one
//! variant of [`ProbeReport`], one page `docs/probes/<id>.md`.

pub mod clock;
pub mod code_alignment;
mod emit;
#[cfg(test)]
mod fake;
pub mod icache_sets;
pub mod icache_sync;
pub mod protocol;
pub mod published;
mod rig;
mod sampling;
pub mod store_elimination;
pub mod store_forwarding;
pub mod string_copy;

use std::sync::atomic::AtomicBool;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use clock::ClockReport;
pub use code_alignment::AlignmentReport;
pub use emit::EmitError;
pub use icache_sets::IcacheReport;
pub use icache_sync::SyncReport;
pub use protocol::{Control, Protocol};
pub use published::{Evidence, Published};
pub use sampling::{Cell, RawVisit, Sampled};
pub use store_elimination::EliminationReport;
pub use store_forwarding::ForwardingReport;
pub use string_copy::StringReport;

use crate::clock::ClockError;

/// What keeps a probe from running at all. What it cannot decide is part of its report instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// Time cannot be measured here.
    #[error(transparent)]
    Clock(#[from] ClockError),
    /// The measured code cannot be made here.
    #[error(transparent)]
    Emit(#[from] EmitError),
    /// The processor is of another kind.
    #[error(
        "no probe exists on {arch} yet: the kernels of {known} are x86-64 machine code; prices of \
         this processor are documented or assumed"
    )]
    Elsewhere {
        /// As Rust names it.
        arch: &'static str,
        /// Ids of all probes, separated by commas.
        known: String,
    },
    /// The user gave up.
    #[error("interrupted")]
    Interrupted,
    /// No probe has that id.
    #[error("no probe is called `{asked}`; known: {known}")]
    Unknown {
        /// What was asked for.
        asked: String,
        /// Ids of all probes, separated by commas.
        known: String,
    },
}

/// What every probe is given.
#[derive(Clone, Copy, Debug)]
pub struct Bench<'a> {
    /// Seed of every random choice, printed with the result.
    pub seed: u64,
    /// Set when the user gave up; a probe looks at it between samples.
    pub interrupt: &'a AtomicBool,
    /// Whether reports keep every single visit.
    pub raw: bool,
    /// Who runs what must not run in this process; `None` leaves it out.
    pub isolated: Option<&'a dyn Isolated>,
}

impl<'a> Bench<'a> {
    /// Without raw samples and without a process for 512-bit vectors.
    #[must_use]
    pub fn new(seed: u64, interrupt: &'a AtomicBool) -> Self {
        Self { seed, interrupt, raw: false, isolated: None }
    }
}

/// Runs the part of a probe that must not run in this process: 512-bit vectors lower the clock of
/// everything after them, even when they are only speculated.
///
/// Probes start no processes; their caller may.
pub trait Isolated: std::fmt::Debug + Sync {
    /// The answer of [`Probe::wide`] in a process of its own, as JSON.
    ///
    /// # Errors
    /// The reason why there is none, as a clause.
    fn wide(&self, probe: &str, seed: u64) -> Result<String, String>;
}

/// An experiment on this processor.
pub trait Probe: Sync {
    /// What the user types: lower case with hyphens, and the name of the docs page.
    fn id(&self) -> &'static str;
    /// What it finds out, as one line of a list.
    fn title(&self) -> &'static str;
    /// About how long it runs, milliseconds.
    fn budget_ms(&self) -> u32;
    /// Runs it on the calling thread, which is pinned meanwhile and restored afterwards.
    ///
    /// # Errors
    /// Only what keeps it from running; a noisy machine is a report, not an error.
    fn run(&self, bench: &Bench<'_>) -> Result<ProbeReport, ProbeError>;
    /// Measures what needs 512-bit vectors, in a process that does nothing else; `None` where there
    /// is nothing of the kind.
    ///
    /// # Errors
    /// As [`Probe::run`].
    fn wide(&self, _bench: &Bench<'_>) -> Result<Option<Sampled>, ProbeError> {
        Ok(None)
    }
}

/// Those of [`PROBES`] that exist on an architecture, as Rust names it: kernels are x86-64 machine
/// code.
#[must_use]
pub fn existing_on(arch: &str) -> &'static [&'static dyn Probe] {
    if arch == "x86_64" { PROBES } else { &[] }
}

/// Why no probe runs on `arch`; `Ok` where there are some.
///
/// # Errors
/// [`ProbeError::Elsewhere`] with the ids that exist on other processors.
pub fn check_architecture(arch: &'static str) -> Result<(), ProbeError> {
    if existing_on(arch).is_empty() {
        return Err(ProbeError::Elsewhere { arch, known: ids() });
    }
    Ok(())
}

#[cfg(not(target_arch = "x86_64"))]
fn elsewhere() -> ProbeError {
    ProbeError::Elsewhere { arch: std::env::consts::ARCH, known: ids() }
}

/// What a probe found; one variant for each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "probe")]
#[non_exhaustive]
pub enum ProbeReport {
    /// Of the probe `clock`.
    Clock(Box<ClockReport>),
    /// Of the probe `code-alignment`.
    CodeAlignment(Box<AlignmentReport>),
    /// Of the probe `icache-sets`.
    IcacheSets(Box<IcacheReport>),
    /// Of the probe `icache-sync`.
    IcacheSync(Box<SyncReport>),
    /// Of the probe `store-elimination`.
    StoreElimination(Box<EliminationReport>),
    /// Of the probe `store-forwarding`.
    StoreForwarding(Box<ForwardingReport>),
    /// Of the probe `string-copy`.
    StringCopy(Box<StringReport>),
}

/// All probes in alphabetical order.
pub static PROBES: &[&dyn Probe] = &[
    &clock::ClockProbe,
    &code_alignment::CodeAlignmentProbe,
    &icache_sets::IcacheSetsProbe,
    &icache_sync::IcacheSyncProbe,
    &store_elimination::StoreEliminationProbe,
    &store_forwarding::StoreForwardingProbe,
    &string_copy::StringCopyProbe,
];

/// Ids of all probes, separated by commas.
fn ids() -> String {
    PROBES.iter().map(|p| p.id()).collect::<Vec<_>>().join(", ")
}

/// The probe of that id.
///
/// # Errors
/// [`ProbeError::Unknown`] with the ids that exist.
pub fn find(id: &str) -> Result<&'static dyn Probe, ProbeError> {
    PROBES
        .iter()
        .copied()
        .find(|p| p.id() == id)
        .ok_or_else(|| ProbeError::Unknown { asked: id.to_owned(), known: ids() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_list_is_sorted_unique_and_documented() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/probes");
        for pair in PROBES.windows(2) {
            assert!(pair[0].id() < pair[1].id());
        }
        for probe in PROBES {
            let page = docs.join(format!("{}.md", probe.id()));
            assert!(page.is_file(), "{} has no page", probe.id());
            assert!(probe.title().len() <= 60 && probe.budget_ms() > 0);
        }
    }

    #[test]
    fn an_architecture_without_probes_says_so_and_which_there_are_elsewhere() {
        assert!(check_architecture("x86_64").is_ok());
        assert_eq!(existing_on("x86_64").len(), PROBES.len());
        let error = check_architecture("aarch64").unwrap_err().to_string();
        assert!(error.starts_with("no probe exists on aarch64 yet"), "{error}");
        assert!(PROBES.iter().all(|p| error.contains(p.id())), "{error}");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        assert_eq!(find("clock").unwrap().id(), "clock");
        let error = find("clok").map(|p| p.id()).unwrap_err().to_string();
        assert!(error.contains("`clok`") && error.contains("clock"), "{error}");
    }
}
