//! The one model of a machine: what every room asks about a processor.
//!
//! A [`Design`] is built from the tables of this room, from a machine profile, or from both, and then
//! what was measured goes before the tables. A value is *probed* (measured on this very machine),
//! *documented* (published, presented by the processor, or measured elsewhere for this design) or
//! *assumed* (a range that holds for most designs). Its JSON form is the machine profile, a small file
//! with a version: it can be taken on one machine and used for another.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Machine;
use super::branches::MeasuredBranches;
use super::geometry::CacheGeometry;
use super::identity::Resemblance;
use super::known::Microarchitecture;
use super::measured_core::MeasuredCore;
use super::pairs::PairPrice;
use super::plausible;
use super::prices::{LoopWindow, StringCosts, assumed, documented};
use crate::foreign;
use crate::model::Measurement;

/// Version of the JSON form; a reader refuses a larger one.
pub const PROFILE_VERSION: u32 = 1;

/// What can go wrong with a profile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum ProfileError {
    #[error("not a machine profile: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error(
        "machine profile version {found} is newer than {PROFILE_VERSION}, which this program reads"
    )]
    TooNew { found: u32 },
    #[error("not a machine profile: `{field}` {why}, and no processor has that")]
    Impossible { field: String, why: String },
}

/// Where a price comes from, weakest last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum PriceOrigin {
    /// Measured on this machine by a probe.
    Probed {
        /// Id of the probe.
        probe: String,
    },
    /// Published or measured elsewhere for this core design.
    Documented {
        /// Publication, manual or study.
        source: String,
    },
    /// Nothing is known about this design; the range covers most.
    Assumed,
}

/// A price in core cycles as a range, with its origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PriceRange {
    /// Least plausible price, core cycles.
    pub low_cycles: f64,
    /// Largest plausible price, core cycles.
    pub high_cycles: f64,
    /// Source of this price.
    pub origin: PriceOrigin,
    /// The typical case with its interval and count, where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measurement>,
}

/// When a store may serve a later load out of the store buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ForwardingRule {
    /// Every byte of the load must come from one store, at whatever offset. Holds for the scalar
    /// accesses of all x86-64 designs in the table; Gracemont is stricter.
    SingleStoreContains,
    /// The same, but a store of `wide_store_bytes` or more serves only loads that stay inside one
    /// of its aligned pieces of `piece_bytes`, and wider loads only at multiples of their width.
    /// Skylake and its successors up to Cascade Lake, with 16 and 8.
    ContainsInPieces {
        /// Narrower stores have no pieces.
        wide_store_bytes: u16,
        /// Size of a piece.
        piece_bytes: u16,
    },
    /// The load must lie in one store and start where the store starts.
    SameStart,
    /// The load must lie in one store and start at its first byte or in its middle.
    StartOrMiddle,
    /// The same, and two stores that are exactly its lower and upper half serve it together.
    StartOrMiddleOrHalves,
    /// Any store that overlaps the load serves its part; the rest comes from elsewhere.
    AnyOverlap,
}

/// A level of the core clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockLevel {
    /// Core cycles per tick of the time stamp counter.
    pub cycles_per_tick: f64,
    /// Share of the samples at this level, percent.
    pub share_percent: f64,
}

/// How the core clock behaved while prices were measured, where the clock was probed along with
/// them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileClock {
    /// The core clock, MHz; absent where it was inconclusive.
    pub core_rate: Option<Measurement>,
    /// Its levels, largest share first.
    pub levels: Vec<ClockLevel>,
    /// What disturbed and what did not, load among it, a clause each.
    pub surroundings: Vec<String>,
}

/// Where a profile was measured. No host names and no serial numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProfileEnvironment {
    /// Vendor, family, model, stepping, and whether it was a guest: [`Machine::profile_key`].
    pub key: String,
    /// The brand string.
    pub brand: String,
    /// Microcode revision as presented.
    pub microcode: Option<String>,
    /// The hypervisor's name; `None` on bare metal.
    pub hypervisor: Option<String>,
    /// Kernel release.
    pub kernel_release: String,
    /// Size of a page of memory; absent where the system does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_bytes: Option<u64>,
    /// The core clock; absent where it was not probed in the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ProfileClock>,
}

impl ProfileEnvironment {
    /// The environment of a measurement on `machine`.
    #[must_use]
    pub fn of(machine: &Machine) -> Self {
        Self {
            key: machine.profile_key(),
            brand: machine.brand.clone(),
            microcode: machine.microcode.clone(),
            hypervisor: machine.hypervisor.clone(),
            kernel_release: machine.kernel_release.clone(),
            page_bytes: page_bytes(),
            clock: None,
        }
    }
}

fn page_bytes() -> Option<u64> {
    let answer = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok()??;
    u64::try_from(answer).ok()
}

/// A processor as every room asks for it: prices and rules as they stand, shapes and sizes by method
/// (`front_end` and `prices` of this room).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Design {
    /// Version of this form, `PROFILE_VERSION` when written by this program.
    pub version: u32,
    /// The core design it was made for.
    pub microarchitecture: Microarchitecture,
    /// Extra latency of a load that overlaps a store in flight and cannot be forwarded.
    pub store_forward_blocked_cycles: PriceRange,
    /// The same by widths and register files; empty where not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub store_forward_blocked_pairs: Vec<PairPrice>,
    /// Latency from store to load where it can be forwarded; absent where not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_forward_cycles: Option<PriceRange>,
    /// Core cycles between store and load from which a load that cannot be forwarded costs no more
    /// than one that can; absent where not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_forward_free_after_cycles: Option<u32>,
    /// When forwarding works.
    pub forwarding_rule: ForwardingRule,
    /// Where the rule comes from; assumed in profiles of version 1 that do not say.
    #[serde(default = "assumed_origin")]
    pub forwarding_rule_origin: PriceOrigin,
    /// What `rep movs` costs of more than a byte at a time; absent where not measured here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rep_moves: Option<StringCosts>,
    /// What `rep stos` costs of more than a byte at a time; absent where not measured here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rep_stores: Option<StringCosts>,
    /// What `rep movsb` costs; absent where not measured here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rep_byte_moves: Option<StringCosts>,
    /// What `rep stosb` costs; absent where not measured here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rep_byte_stores: Option<StringCosts>,
    /// The instruction cache as the machine presents it or a probe measured it; absent for a design
    /// from the table. Ask [`Design::code_cache`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_cache: Option<CacheGeometry>,
    /// Where it comes from; absent where the machine presents it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code_cache_origin: Option<PriceOrigin>,
    /// Sizes of the three levels of data cache as the machine presents them, in bytes; absent for a
    /// design from the table. Ask [`Design::core`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_cache_bytes: Option<[u64; 3]>,
    /// From address to value out of the second and the third level of data cache and from behind them;
    /// absent where nobody measured it here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_miss_cycles: Option<[PriceRange; 3]>,
    /// How much of the third level of data cache one core gets, in bytes, where a probe found that to be less than the
    /// machine presents: neighbours that nobody sees may use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub third_level_bytes: Option<u64>,
    /// Core cycles from one line to the next, of lines in order, out of the second and the third level and from behind them;
    /// absent where nobody measured it here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_line_cycles: Option<[Measurement; 3]>,
    /// What a load pays for a page walk; absent where nobody measured it here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_walk_cycles: Option<PriceRange>,
    /// Core cycles from one page walk to the next, of loads that do not wait for one another; absent where nobody
    /// measured it here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_walk_apart_cycles: Option<Measurement>,
    /// Pages that the data TLBs hold at the most, where a probe found that to be less than the table says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_tlb_pages: Option<u32>,
    /// Latencies, units and widths; absent where nobody measured them here. Ask [`Design::core`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_core: Option<MeasuredCore>,
    /// What the predictor learns; absent where nobody measured it here. Ask [`Design::core`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_branches: Option<MeasuredBranches>,
    /// Whether the erratum on jumps at 32-byte boundaries applies, by family, model and stepping;
    /// absent for a design from the table. Ask [`Design::jump_erratum`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jump_erratum: Option<bool>,
    /// How the front end cuts small loops; absent where not measured here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loop_window: Option<LoopWindow>,
    /// Where it was measured; absent when nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<ProfileEnvironment>,
}

fn assumed_origin() -> PriceOrigin {
    PriceOrigin::Assumed
}

/// (design, low, high, source). Cycles from load to use when blocked.
const STORE_FORWARD_BLOCKED: &[(Microarchitecture, f64, f64, &str)] = &[
    (Microarchitecture::SandyBridge, 17.0, 20.0, "uarch-bench, published results"),
    (Microarchitecture::Haswell, 15.0, 18.0, "uarch-bench, published results"),
    (Microarchitecture::Skylake, 13.0, 16.0, SKYLAKE_SOURCE),
    (Microarchitecture::SkylakeServer, 13.0, 16.0, SKYLAKE_SOURCE),
    (Microarchitecture::CascadeLake, 13.0, 16.0, SKYLAKE_SOURCE),
    (Microarchitecture::SunnyCove, 17.0, 22.0, "uarch-bench, published results"),
    (Microarchitecture::GoldenCove, 19.0, 19.0, "jiegec, published measurement"),
    (Microarchitecture::RedwoodCove, 19.0, 19.0, "jiegec, published measurement"),
    (Microarchitecture::Zen2, 21.0, 25.0, "uarch-bench, published results"),
    (Microarchitecture::Zen4, 13.0, 19.0, "LLVM pull request 199606 (13); AMD guide (19)"),
    (Microarchitecture::Zen5, 13.0, 15.0, "LLVM pull request 199606 (13); jiegec (14-15)"),
    (Microarchitecture::NeoverseN1, 10.0, 16.0, "danlark1, published measurement"),
    (Microarchitecture::NeoverseV2, 10.5, 10.5, JIEGEC),
    (Microarchitecture::AppleFirestorm, 28.0, 28.0, JIEGEC),
    (Microarchitecture::AmpereSkylark, 27.0, 27.0, JIEGEC),
];

const JIEGEC: &str = "jiegec, published measurement";

/// (design, rule, source), where it is not that one store must hold the load.
const FORWARDING_RULES: &[(Microarchitecture, ForwardingRule, &str)] = &[
    (
        Microarchitecture::NeoverseN1,
        ForwardingRule::StartOrMiddle,
        "danlark1, published measurement",
    ),
    (Microarchitecture::Skylake, SKYLAKE_RULE, SKYLAKE_SOURCE),
    (Microarchitecture::SkylakeServer, SKYLAKE_RULE, SKYLAKE_SOURCE),
    (Microarchitecture::CascadeLake, SKYLAKE_RULE, SKYLAKE_SOURCE),
    (Microarchitecture::NeoverseV2, ForwardingRule::StartOrMiddleOrHalves, "jiegec; Arm's guide"),
    (Microarchitecture::AppleFirestorm, ForwardingRule::AnyOverlap, JIEGEC),
    (Microarchitecture::AmpereSkylark, ForwardingRule::SingleStoreContains, JIEGEC),
];

const SKYLAKE_RULE: ForwardingRule =
    ForwardingRule::ContainsInPieces { wide_store_bytes: 16, piece_bytes: 8 };
const SKYLAKE_SOURCE: &str = "own feasibility study on Cascade Lake; uarch-bench agrees";

impl Design {
    /// The design of a machine that was not probed yet.
    #[must_use]
    pub fn of_machine(machine: &Machine) -> Self {
        let is_known = machine.microarchitecture != Microarchitecture::Unknown;
        Self {
            code_cache: CacheGeometry::presented(machine),
            data_cache_bytes: machine.data_cache_bytes(),
            jump_erratum: is_known.then_some(machine.jcc_erratum),
            ..Self::of(machine.microarchitecture)
        }
    }

    /// With everything that was measured for `profile`. What its machine only presents counts where
    /// both are one design.
    #[must_use]
    pub fn with_measured(self, mut profile: Self) -> Self {
        if !profile.store_forward_blocked_cycles.origin.is_probed() {
            profile.store_forward_blocked_cycles = self.store_forward_blocked_cycles;
        }
        if !profile.forwarding_rule_origin.is_probed() {
            profile.forwarding_rule = self.forwarding_rule;
            profile.forwarding_rule_origin = self.forwarding_rule_origin;
        }
        let is_same = self.microarchitecture == profile.microarchitecture;
        if !is_same && !profile.code_cache_origin.as_ref().is_some_and(PriceOrigin::is_probed) {
            (profile.code_cache, profile.code_cache_origin) = (None, None);
        }
        Self {
            microarchitecture: self.microarchitecture,
            code_cache: profile.code_cache.or(self.code_cache),
            data_cache_bytes: self
                .data_cache_bytes
                .or(profile.data_cache_bytes.filter(|_| is_same)),
            jump_erratum: self.jump_erratum.or(profile.jump_erratum.filter(|_| is_same)),
            ..profile
        }
    }

    /// The design that `profile` is of, with what it measured: `machine` where both are one, else the
    /// table.
    #[must_use]
    pub fn of_profile(profile: Self, machine: &Machine) -> Self {
        // What a processor was taken for when it was measured may be corrected since.
        let is_here = match profile.environment {
            Some(_) => profile.is_of(machine),
            None => profile.microarchitecture == machine.microarchitecture,
        };
        let base = match is_here {
            true => Self::of_machine(machine),
            false => Self::of(profile.microarchitecture),
        };
        base.with_measured(profile).quoted_on(machine).renamed(is_here.then_some(machine))
    }

    /// The same under the name that measurements give it: tables of queues, windows, units and errata follow
    /// the core and not what it is called.
    fn renamed(self, machine: Option<&Machine>) -> Self {
        let found = Resemblance::of(self.microarchitecture, machine, &self).design;
        if found == self.microarchitecture {
            return self;
        }
        Self { microarchitecture: found, jump_erratum: None, ..self }
    }

    /// Whether it was measured on this kind of processor, or not measured at all.
    #[must_use]
    pub fn is_of(&self, machine: &Machine) -> bool {
        self.environment.as_ref().is_none_or(|e| e.key == machine.profile_key())
    }

    /// The same from the tables alone, for a binary that will run elsewhere.
    #[must_use]
    pub fn of(design: Microarchitecture) -> Self {
        let blocked = STORE_FORWARD_BLOCKED.iter().find(|row| row.0 == design);
        let blocked = match blocked {
            Some((_, low, high, source)) => documented(*low, *high, source),
            None => assumed(10.0, 20.0),
        };
        let rule = FORWARDING_RULES.iter().find(|row| row.0 == design);
        let (forwarding_rule, forwarding_rule_origin) = match rule {
            Some((_, rule, source)) => {
                (*rule, PriceOrigin::Documented { source: (*source).to_owned() })
            }
            None => (ForwardingRule::SingleStoreContains, PriceOrigin::Assumed),
        };
        Self {
            version: PROFILE_VERSION,
            microarchitecture: design,
            store_forward_blocked_cycles: blocked,
            store_forward_blocked_pairs: Vec::new(),
            store_forward_cycles: None,
            store_forward_free_after_cycles: None,
            rep_moves: None,
            rep_stores: None,
            rep_byte_moves: None,
            rep_byte_stores: None,
            code_cache: None,
            code_cache_origin: None,
            data_cache_bytes: None,
            data_miss_cycles: None,
            third_level_bytes: None,
            data_line_cycles: None,
            page_walk_cycles: None,
            page_walk_apart_cycles: None,
            data_tlb_pages: None,
            measured_core: None,
            measured_branches: None,
            jump_erratum: None,
            loop_window: None,
            forwarding_rule,
            forwarding_rule_origin,
            environment: None,
        }
    }

    /// The same prices as they may be quoted on `machine`: what was measured on another kind of
    /// processor is not "measured here".
    #[must_use]
    pub fn quoted_on(mut self, machine: &Machine) -> Self {
        let Some(environment) = self.environment.as_ref().filter(|_| !self.is_of(machine)) else {
            return self;
        };
        let key = environment.key.clone();
        let quote = |origin: &mut PriceOrigin| {
            if let PriceOrigin::Probed { probe } = origin {
                *origin = PriceOrigin::Documented { source: format!("probe {probe} on {key}") };
            }
        };
        quote(&mut self.store_forward_blocked_cycles.origin);
        self.store_forward_blocked_pairs.iter_mut().for_each(|p| quote(&mut p.cycles.origin));
        quote(&mut self.forwarding_rule_origin);
        self.code_cache_origin.iter_mut().for_each(quote);
        for price in [&mut self.store_forward_cycles, &mut self.page_walk_cycles] {
            price.iter_mut().for_each(|p| quote(&mut p.origin));
        }
        self.data_miss_cycles.iter_mut().flatten().for_each(|p| quote(&mut p.origin));
        self.measured_core.iter_mut().for_each(|core| quote(&mut core.origin));
        self.measured_branches.iter_mut().for_each(|branches| quote(&mut branches.origin));
        self.loop_window.iter_mut().for_each(|w| quote(&mut w.origin));
        let moves = [&mut self.rep_moves, &mut self.rep_byte_moves];
        for costs in moves.into_iter().chain([&mut self.rep_stores, &mut self.rep_byte_stores]) {
            costs.iter_mut().for_each(|c| quote(&mut c.origin));
        }
        self
    }

    /// Reads the JSON form.
    ///
    /// # Errors
    /// [`ProfileError::TooNew`] for a newer version, [`ProfileError::Impossible`] for numbers that no
    /// processor has, [`ProfileError::Malformed`] for anything else.
    pub fn from_json(text: &str) -> Result<Self, ProfileError> {
        let value: serde_json::Value = foreign::from_json(text)?;
        // The version comes first: a newer profile may hold what this program cannot parse.
        let found = value.get("version").and_then(serde_json::Value::as_u64);
        match found.map(|v| u32::try_from(v).unwrap_or(u32::MAX)) {
            Some(found) if found > PROFILE_VERSION => Err(ProfileError::TooNew { found }),
            _ => match plausible::wrong(&value) {
                Some((field, why)) => Err(ProfileError::Impossible { field, why }),
                None => Ok(serde_json::from_value(value)?),
            },
        }
    }

    /// The JSON form, on one line: with all probes some 40 kB.
    ///
    /// # Errors
    /// [`ProfileError::Malformed`] when a price is not a finite number.
    pub fn to_json(&self) -> Result<String, ProfileError> {
        Ok(serde_json::to_string(self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::invented;
    use super::*;

    #[test]
    fn known_designs_are_documented_and_others_assumed() {
        let of = |facts| Design::of_machine(&Machine::from_facts(&facts));
        let clx = of(invented::cascade_lake_guest()).store_forward_blocked_cycles;
        assert_eq!((clx.low_cycles, clx.high_cycles), (13.0, 16.0));
        let zen = of(invented::zen_5_guest()).store_forward_blocked_cycles;
        assert!(matches!(zen.origin, PriceOrigin::Documented { .. }));
        let none = of(invented::unknown_vendor()).store_forward_blocked_cycles;
        assert_eq!(none.origin, PriceOrigin::Assumed);
        assert!(none.low_cycles < none.high_cycles);
    }

    #[test]
    fn the_json_form_has_a_version_and_refuses_the_future() {
        let profile = Design::of(Microarchitecture::Zen5);
        let text = profile.to_json().unwrap();
        assert_eq!(Design::from_json(&text).unwrap(), profile);
        let newer = text.replacen("\"version\":1", "\"version\":2,\"more\":[]", 1);
        let error = Design::from_json(&newer).unwrap_err();
        assert!(matches!(error, ProfileError::TooNew { found: 2 }));
        assert!(Design::from_json("{").is_err());
    }

    /// What all probes together wrote down on a Zen 5 guest.
    #[test]
    fn a_profile_as_probes_leave_it_can_be_read() {
        let text = include_str!("../../tests/profiles/amd-26-2-1-guest.json");
        let profile = Design::from_json(text).unwrap();
        assert_eq!(profile.microarchitecture, Microarchitecture::Zen5);
        assert!(profile.blocked_load_is_probed() && profile.environment.is_some());
        let cache = profile.code_cache.unwrap();
        assert_eq!((cache.ways, cache.sets, cache.line_bytes), (8, 64, 64));
        let again = Design::from_json(&profile.to_json().unwrap()).unwrap();
        assert_eq!(again, profile);
    }

    #[test]
    fn a_price_from_another_processor_is_quoted_not_measured_here() {
        let zen = Machine::from_facts(&invented::zen_5_guest());
        let lake = Machine::from_facts(&invented::cascade_lake_guest());
        let mut profile = Design::of_machine(&zen);
        profile.environment = Some(ProfileEnvironment::of(&zen));
        profile.store_forward_blocked_cycles.origin = PriceOrigin::Probed { probe: "p".into() };
        assert!(profile.clone().quoted_on(&zen).blocked_load_is_probed());
        let quoted = profile.quoted_on(&lake);
        assert!(!quoted.blocked_load_is_probed());
        assert!(quoted.blocked_load_sentence().contains("probe p on amd-26-2-1-guest"));
    }

    #[test]
    fn what_was_measured_goes_before_what_is_documented_for_a_named_design() {
        let zen = Machine::from_facts(&invented::zen_5_guest());
        let mut profile = Design::of_machine(&zen);
        let named = Design::of(Microarchitecture::Zen1).with_measured(profile.clone());
        assert_eq!(named, Design::of(Microarchitecture::Zen1), "nothing was measured");
        profile.environment = Some(ProfileEnvironment::of(&zen));
        let price = &mut profile.store_forward_blocked_cycles;
        (price.low_cycles, price.high_cycles) = (14.0, 17.0);
        price.origin = PriceOrigin::Probed { probe: "store-forwarding".into() };
        let design = Design::of(Microarchitecture::Zen1).with_measured(profile.clone());
        assert_eq!(design.store_forward_blocked_cycles.low_cycles, 14.0);
        assert_eq!(design.code_cache().value.ways, 4, "of the design, not of the guest");
        profile.code_cache_origin = Some(PriceOrigin::Probed { probe: "icache-sets".into() });
        let design = Design::of(Microarchitecture::Zen1).with_measured(profile);
        assert_eq!(design.code_cache().value.ways, 8, "measured");
    }

    #[test]
    fn a_profile_of_this_machine_follows_when_the_machine_is_known_better() {
        let zen = Machine::from_facts(&invented::zen_5_guest());
        let mut profile = Design::of(Microarchitecture::Zen2);
        profile.environment = Some(ProfileEnvironment::of(&zen));
        assert_eq!(Design::of_profile(profile, &zen).microarchitecture, Microarchitecture::Zen5);
        let of_another = Design::of(Microarchitecture::Zen2);
        let of_another = Design::of_profile(of_another, &zen);
        assert_eq!(of_another.microarchitecture, Microarchitecture::Zen2);
    }

    #[test]
    fn negative_and_inverted_prices_are_refused_in_a_sentence() {
        for (low_cycles, high_cycles) in [(-1.0, 15.0), (16.0, 15.0)] {
            let mut profile = Design::of(Microarchitecture::Zen5);
            let price = PriceRange { low_cycles, high_cycles, ..assumed(1.0, 2.0) };
            profile.page_walk_cycles = Some(price);
            let error = Design::from_json(&profile.to_json().unwrap()).unwrap_err().to_string();
            assert!(error.starts_with("not a machine profile: `page_walk_cycles"), "{error}");
            assert!(error.ends_with(", and no processor has that"), "{error}");
        }
    }

    #[test]
    fn a_profile_from_before_probes_is_still_read() {
        let text = r#"{"version":1,"microarchitecture":"zen5","store_forward_blocked_cycles":
            {"low_cycles":13.0,"high_cycles":15.0,"origin":{"kind":"assumed"}},
            "forwarding_rule":"single_store_contains"}"#;
        let profile = Design::from_json(text).unwrap();
        assert_eq!(profile.forwarding_rule, ForwardingRule::SingleStoreContains);
        assert_eq!(profile.environment, None);
    }
}
