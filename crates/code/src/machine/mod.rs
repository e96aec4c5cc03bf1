//! Which processor this is, as it presents itself.
//!
//! Owns [`Machine`] (identity, caches, features, hypervisor), the table of known cores in [`known`]
//! and the [`Design`] that all other rooms ask for shapes, sizes, rules and prices. Nothing here measures: a
//! machine is built from [`Facts`], a plain copy of CPUID leaves and kernel texts, so that
//! tests can invent one. A guest may be lied to about all of it, which is why the fields say
//! *presented* where a lie has been seen.

mod branches;
mod caches;
mod core;
mod design;
mod facts;
mod false_dependency;
mod features;
mod forwarding;
mod front_end;
mod fusion;
mod geometry;
mod identity;
#[cfg(any(test, feature = "test-doubles"))]
pub mod invented;
pub mod known;
mod measured_core;
mod pairs;
mod plausible;
mod prices;
pub mod survey;
mod threads;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::core::{
    CoreShape, Execution, MemoryRenaming, OpClass, SET_GROUPINGS, UpperHalves, WideVectors,
    WrittenCode,
};
pub use branches::{BranchHistory, LearnedBranches, MeasuredBranches};
pub use caches::{Cache, CacheKind, Origin};
pub use design::{
    ClockLevel, Design, ForwardingRule, PriceOrigin, PriceRange, ProfileClock, ProfileEnvironment,
    ProfileError,
};
pub use facts::{Facts, SysfsCache};
pub use false_dependency::FalseDependency;
pub use features::{CounterLeaf, Features};
pub use front_end::{DecodedCache, JUMP_BOUNDARY_BYTES, Sourced};
pub use fusion::Fusion;
pub use geometry::{CacheGeometry, GeometryError};
pub use identity::{Candidate, Resemblance};
pub use known::{Microarchitecture, UnknownDesign};
pub use measured_core::{BESIDE_LOCKED, CoreCost, CoreCycles, MeasuredCore};
pub use pairs::{PairKind, PairPrice, RegisterFile};
pub use prices::{LoopWindow, StringCosts, StringPoint};
pub use threads::start_threads;

/// Who made the processor, from the vendor string of CPUID leaf 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Vendor {
    /// `GenuineIntel`
    Intel,
    /// `AuthenticAMD`
    Amd,
    /// Another vendor string, kept as it was presented; empty where there is no CPUID.
    Other(String),
}

/// A processor as it presents itself to this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Machine {
    /// Who made it.
    pub vendor: Vendor,
    /// The brand string; a hypervisor may shorten or replace it. Empty where there is none.
    pub brand: String,
    /// Display family (extended family added).
    pub family: u32,
    /// Display model (extended model included).
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
    /// Microcode revision as presented by the kernel; guests often see a made-up one.
    pub microcode: Option<String>,
    /// The core design, for the core this process ran on; `unknown` is a value.
    pub microarchitecture: Microarchitecture,
    /// Product codename, where the table knows it.
    pub codename: Option<String>,
    /// The design that family and model claim, where features or caches say another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<Microarchitecture>,
    /// Whether Intel's erratum on jumps at 32-byte boundaries (and so the microcode that keeps
    /// such jumps out of the decoded-instruction cache) applies to this family, model and stepping.
    pub jcc_erratum: bool,
    /// Whether performance and efficiency cores are mixed, so that one pin is one kind of core.
    pub hybrid: bool,
    /// Caches in order of level, instruction before data.
    pub caches: Vec<Cache>,
    /// The hypervisor's name from CPUID leaf 0x40000000; `None` on bare metal.
    pub hypervisor: Option<String>,
    /// Logical processors online, as presented.
    pub logical_cpus: u32,
    /// Hardware threads sharing a core, as presented. A guest may be told 1 while a foreign
    /// tenant sits on the sibling thread; [`Machine::smt_is_doubtful`] says when.
    pub threads_per_core: u32,
    /// Features that change what code may cost or which method of timing is allowed.
    pub features: Features,
    /// What CPUID promises about counters.
    pub counters: CounterLeaf,
    /// Kernel release, as of `uname -r`. Empty where unknown.
    pub kernel_release: String,
}

impl Machine {
    /// The machine this process runs on right now (on a hybrid part: the core it runs on).
    #[must_use]
    pub fn detect() -> Self {
        let found = Self::from_facts(&Facts::gather());
        Self { features: found.features.enabled(), ..found }
    }

    /// A machine from recorded or invented facts. Missing facts become unknown values.
    #[must_use]
    pub fn from_facts(facts: &Facts) -> Self {
        let id = facts.identity();
        let named = known::look_up(&id);
        let caches = caches::read(facts);
        let known = named.corrected(facts, &caches);
        let claimed = named.microarchitecture;
        Self {
            vendor: id.vendor,
            brand: facts.brand(),
            family: id.family,
            model: id.model,
            stepping: id.stepping,
            microcode: facts.microcode(),
            microarchitecture: known.microarchitecture,
            codename: known.codename.map(str::to_owned),
            claimed: (claimed != known.microarchitecture).then_some(claimed),
            jcc_erratum: known.jcc_erratum,
            hybrid: id.hybrid,
            caches,
            hypervisor: facts.hypervisor(),
            logical_cpus: facts.logical_cpus(),
            threads_per_core: facts.threads_per_core(),
            features: Features::from_facts(facts),
            counters: CounterLeaf::from_facts(facts),
            kernel_release: facts.kernel_release.trim().to_owned(),
        }
    }

    /// Whether "one thread per core" should not be believed: a guest is shown a topology that
    /// its host chose, and a busy foreign sibling was measured behind such a claim.
    #[must_use]
    pub fn smt_is_doubtful(&self) -> bool {
        self.hypervisor.is_some() && self.threads_per_core <= 1
    }

    /// The first cache of that level and kind; a unified cache answers for data.
    #[must_use]
    pub fn cache(&self, level: u8, kind: CacheKind) -> Option<&Cache> {
        let fits = |c: &&Cache| {
            c.level == level
                && (c.kind == kind || (kind == CacheKind::Data && c.kind == CacheKind::Unified))
        };
        self.caches.iter().find(fits)
    }

    /// Sizes of the three levels of data cache as presented; `None` where one of them is not.
    #[must_use]
    pub fn data_cache_bytes(&self) -> Option<[u64; 3]> {
        let size = |level| self.cache(level, CacheKind::Data).map(|cache| cache.size_bytes);
        Some([size(1)?, size(2)?, size(3)?])
    }

    /// Names this kind of processor for the file of its profile, for example `amd-26-2-1-guest`:
    /// what it charges depends on the design and on being a guest, not on the single machine. Where features
    /// contradict the model, what they say is part of it: `intel-6-167-1-redwood-cove-guest` is no Rocket Lake.
    #[must_use]
    pub fn profile_key(&self) -> String {
        let vendor = match &self.vendor {
            Vendor::Intel => "intel".to_owned(),
            Vendor::Amd => "amd".to_owned(),
            // Into a file name go letters and digits only, whatever a vendor string holds.
            Vendor::Other(name) => {
                let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
                if plain.is_empty() { "unknown".to_owned() } else { plain.to_lowercase() }
            }
        };
        let place = if self.hypervisor.is_some() { "-guest" } else { "" };
        let truly = self.claimed.map(|_| format!("-{}", self.microarchitecture.slug()));
        let truly = truly.unwrap_or_default();
        format!("{vendor}-{}-{}-{}{truly}{place}", self.family, self.model, self.stepping)
    }

    /// Core design and codename in one phrase, for example `Zen 5 (Turin)`.
    #[must_use]
    pub fn core_name(&self) -> String {
        match (&self.codename, self.claimed) {
            (_, Some(claimed)) => format!("{} (claims {claimed})", self.microarchitecture),
            (Some(codename), None) => format!("{} ({codename})", self.microarchitecture),
            (None, None) => self.microarchitecture.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cascade_lake_guest() {
        let m = Machine::from_facts(&invented::cascade_lake_guest());
        assert_eq!((m.family, m.model, m.stepping), (6, 0x55, 7));
        assert_eq!(m.core_name(), "Cascade Lake (Cascade Lake-SP)");
        assert!(m.jcc_erratum);
        assert_eq!(m.hypervisor.as_deref(), Some("KVM"));
        assert!(m.smt_is_doubtful());
        assert_eq!(m.microcode.as_deref(), Some("0x1"));
        assert!(!m.counters.promises_counters());
        let l1i = m.cache(1, CacheKind::Instruction).unwrap();
        assert_eq!((l1i.size_bytes, l1i.ways, l1i.sets), (32 * 1024, 8, 64));
    }

    #[test]
    fn a_bare_metal_hybrid() {
        let m = Machine::from_facts(&invented::raptor_lake());
        assert!(m.hybrid && m.hypervisor.is_none());
        assert_eq!(m.microarchitecture, Microarchitecture::GoldenCove);
        assert!(m.features.serialize && !m.jcc_erratum);
        assert!(m.counters.promises_counters());
        assert_eq!(m.threads_per_core, 2);
        let small = Machine::from_facts(&invented::raptor_lake_efficient_core());
        assert_eq!(small.microarchitecture, Microarchitecture::Gracemont);
    }

    #[test]
    fn a_zen_5_guest() {
        let m = Machine::from_facts(&invented::zen_5_guest());
        assert_eq!(m.microarchitecture, Microarchitecture::Zen5);
        assert_eq!((m.family, m.model), (26, 2));
        assert!(m.features.invariant_tsc && m.features.fsrm && m.features.avx512f);
        let l1d = m.cache(1, CacheKind::Data).unwrap();
        assert_eq!((l1d.size_bytes, l1d.ways), (48 * 1024, 12));
        assert_eq!(l1d.origin, Origin::Cpuid);
        assert!(m.cache(3, CacheKind::Data).is_some(), "unified counts");
    }

    #[test]
    fn the_profile_key_is_a_plain_file_name() {
        let key = |facts| Machine::from_facts(&facts).profile_key();
        assert_eq!(key(invented::zen_5_guest()), "amd-26-2-1-guest");
        assert!(key(invented::raptor_lake()).starts_with("intel-6-183-"));
        assert!(key(invented::unknown_vendor()).starts_with("centaurhauls-"));
        assert!(key(Facts::default()).starts_with("unknown-0-0-0"));
    }

    #[test]
    fn a_processor_that_only_claims_a_model_has_a_key_of_its_own() {
        let mut facts = invented::cascade_lake_guest();
        let real = Machine::from_facts(&facts);
        facts.cpuid.insert((7, 0), [0, 0, 0, 1 << 14]);
        let other = Machine::from_facts(&facts);
        assert_eq!(other.claimed, Some(Microarchitecture::CascadeLake));
        assert_eq!(real.profile_key(), "intel-6-85-7-guest");
        assert_eq!(other.profile_key(), "intel-6-85-7-golden-cove-guest");
        let mut profile = Design::of_machine(&real);
        profile.environment = Some(ProfileEnvironment::of(&real));
        assert!(profile.is_of(&real) && !profile.is_of(&other));
    }

    #[test]
    fn unknown_is_a_value() {
        let m = Machine::from_facts(&invented::unknown_vendor());
        assert_eq!(m.vendor, Vendor::Other("CentaurHauls".into()));
        assert_eq!(m.core_name(), "unknown");
        assert_eq!(m.cache(1, CacheKind::Data).unwrap().origin, Origin::Sysfs);
        let nothing = Machine::from_facts(&Facts::default());
        assert_eq!(nothing.microarchitecture, Microarchitecture::Unknown);
        assert_eq!(nothing.logical_cpus, 0);
        assert!(nothing.caches.is_empty() && nothing.brand.is_empty());
    }

    #[test]
    fn survives_a_round_trip_through_json() {
        let m = Machine::from_facts(&invented::raptor_lake());
        let text = serde_json::to_string(&m).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), m);
    }

    #[test]
    fn the_real_machine_presents_at_least_one_cpu() {
        assert!(Machine::detect().logical_cpus >= 1);
    }
}
