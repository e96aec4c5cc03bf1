//! Experiments on the hardware, one file each.
//!
//! A probe asks one question about this processor and answers with measurements that carry their
//! doubt, or says that it could not find out. `clock` comes first in every sense: the others
//! convert their ticks with it and refuse a verdict where it says that the machine is too restless.
//!
//! To add a probe: one file with a constant [`Probe`] and a report that implements
//! [`UpdatesProfile`], its `mod` and one line in the registry below, one page `docs/probes/<id>.md`.

pub mod branches;
pub mod clock;
pub mod code_alignment;
pub mod core;
pub mod data_caches;
mod emit;
#[cfg(test)]
mod fake;
pub mod icache_sets;
pub mod icache_sync;
pub mod protocol;
pub mod published;
mod rig;
mod sampling;
pub mod snippet;
pub mod store_elimination;
pub mod store_forwarding;
pub mod string_copy;

use std::sync::atomic::AtomicBool;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use emit::EmitError;
pub use protocol::{Control, Protocol};
pub use published::{Evidence, Published};
pub use sampling::{Cell, RawVisit, Sampled};

use crate::clock::ClockError;
use crate::machine::{Design, Microarchitecture};

/// What keeps a probe from running at all. What it cannot decide is part of its report instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum ProbeError {
    /// Time cannot be measured here.
    #[error(transparent)]
    Clock(#[from] ClockError),
    /// The measured code cannot be made here.
    #[error(transparent)]
    Emit(#[from] EmitError),
    #[error(
        "no probe exists on {arch} yet: the kernels of {known} are x86-64 machine code; prices of \
         this processor are documented or assumed"
    )]
    Elsewhere { arch: &'static str, known: String },
    #[error("interrupted")]
    Interrupted,
    #[error("no probe is called `{asked}`; known: {known}")]
    Unknown { asked: String, known: String },
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

/// Why another process gave no answer; a clause for the report.
pub type NotIsolated = Box<dyn std::error::Error + Send + Sync>;

/// Runs the part of a probe that must not run in this process: 512-bit vectors lower the clock of
/// everything after them, even when they are only speculated.
///
/// Probes start no processes; their caller may.
pub trait Isolated: std::fmt::Debug + Sync {
    /// The answer of [`Probe::wide`] in a process of its own, as JSON.
    ///
    /// # Errors
    /// Whatever kept that process from answering.
    fn wide(&self, probe: &str, seed: u64) -> Result<String, NotIsolated>;
}

/// How a probe measures.
pub type Measure<T> = fn(&Bench<'_>) -> Result<T, ProbeError>;

/// An experiment on this processor.
pub struct Probe {
    /// What the user types: lower case with hyphens, and the name of the docs page.
    pub id: &'static str,
    /// What it finds out, as one line of a list.
    pub title: &'static str,
    /// Whether its answer goes into the machine profile; what others note there stands beside prices.
    pub prices: bool,
    /// Runs it on the calling thread, which is pinned meanwhile and restored afterwards. An error is
    /// only what keeps it from running; a noisy machine is a report.
    pub run: Measure<ProbeReport>,
    /// Measures what needs 512-bit vectors, in a process that does nothing else.
    pub wide: Option<Measure<Sampled>>,
}

/// What a probe found, as the machine profile sees it.
pub trait UpdatesProfile {
    /// Where, with which checks and how well it was measured; nothing of a probe that asks no single question.
    fn protocol(&self) -> Option<&Protocol>;

    /// Puts what was found into a profile. Only conclusive reports are asked to; of some probes no rule asks for it.
    fn put_into(&self, _profile: &mut Design) {}

    /// Puts what was found into a profile. An inconclusive report changes nothing.
    fn apply_to(&self, profile: &mut Design) {
        if self.protocol().is_none_or(|protocol| protocol.conclusive) {
            self.put_into(profile);
        }
    }
}

/// Those of [`PROBES`] that exist on an architecture, as Rust names it: kernels are x86-64 machine
/// code.
#[must_use]
pub fn existing_on(arch: &str) -> &'static [Probe] {
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

/// What stands for kernels of x86-64 on other processors.
#[cfg(not(target_arch = "x86_64"))]
fn elsewhere<T>(_bench: &Bench<'_>) -> Result<T, ProbeError> {
    Err(ProbeError::Elsewhere { arch: std::env::consts::ARCH, known: ids() })
}

/// Makes the list of probes and the type of their reports from one line for each.
macro_rules! registry {
    ($($module:ident => $variant:ident($report:ident);)*) => {
        $(pub use $module::$report;)*

        /// What a probe found; one variant for each.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "kebab-case", tag = "probe")]
        #[non_exhaustive]
        pub enum ProbeReport {
            $(
                #[doc = concat!("Of the probe in `", stringify!($module), "`.")]
                $variant(Box<$report>),
            )*
        }

        /// All probes in alphabetical order.
        pub static PROBES: &[Probe] = &[$($module::PROBE),*];

        impl ProbeReport {
            fn parts(&self) -> (&'static Probe, &dyn UpdatesProfile) {
                match self {
                    $(Self::$variant(report) => (&$module::PROBE, report.as_ref()),)*
                }
            }
        }
    };
}

registry! {
    branches => Branches(BranchReport);
    clock => Clock(ClockReport);
    code_alignment => CodeAlignment(AlignmentReport);
    core => Core(CoreReport);
    data_caches => DataCaches(DataCacheReport);
    icache_sets => IcacheSets(IcacheReport);
    icache_sync => IcacheSync(SyncReport);
    store_elimination => StoreElimination(EliminationReport);
    store_forwarding => StoreForwarding(ForwardingReport);
    string_copy => StringCopy(StringReport);
}

impl ProbeReport {
    /// The answer, or why there is none, as a sentence; nothing of a probe that asks no single question.
    #[must_use]
    pub fn verdict(&self) -> Option<&str> {
        self.parts().1.protocol().map(|protocol| protocol.verdict.as_str())
    }

    /// Whether it has anything to say to a machine profile that knows nothing.
    #[must_use]
    pub fn has_prices(&self) -> bool {
        let blank = Design::of(Microarchitecture::Unknown);
        let mut profile = blank.clone();
        self.parts().1.apply_to(&mut profile);
        profile != blank
    }
}

/// Puts what was found into a profile. Notes come last, and only beside new prices: by themselves
/// they say nothing that a rule would ask for.
pub fn apply(reports: &[ProbeReport], profile: &mut Design) {
    let before = profile.clone();
    let answers = reports.iter().map(ProbeReport::parts);
    let (prices, notes): (Vec<_>, Vec<_>) = answers.partition(|(probe, _)| probe.prices);
    prices.iter().for_each(|(_, answer)| answer.apply_to(profile));
    if *profile != before {
        notes.iter().for_each(|(_, answer)| answer.apply_to(profile));
    }
}

/// Ids of all probes, separated by commas.
fn ids() -> String {
    PROBES.iter().map(|p| p.id).collect::<Vec<_>>().join(", ")
}

/// The probe of that id.
///
/// # Errors
/// [`ProbeError::Unknown`] with the ids that exist.
pub fn find(id: &str) -> Result<&'static Probe, ProbeError> {
    PROBES
        .iter()
        .find(|p| p.id == id)
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
            assert!(pair[0].id < pair[1].id);
        }
        for probe in PROBES {
            let page = docs.join(format!("{}.md", probe.id));
            assert!(page.is_file(), "{} has no page", probe.id);
            assert!(probe.title.len() <= 60);
        }
    }

    #[test]
    fn an_architecture_without_probes_says_so_and_which_there_are_elsewhere() {
        assert!(check_architecture("x86_64").is_ok());
        assert_eq!(existing_on("x86_64").len(), PROBES.len());
        let error = check_architecture("aarch64").unwrap_err().to_string();
        assert!(error.starts_with("no probe exists on aarch64 yet"), "{error}");
        assert!(PROBES.iter().all(|p| error.contains(p.id)), "{error}");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        assert_eq!(find("clock").unwrap().id, "clock");
        let error = find("clok").map(|p| p.id).unwrap_err().to_string();
        assert!(error.contains("`clok`") && error.contains("clock"), "{error}");
    }
}
