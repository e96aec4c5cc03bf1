//! Which design a processor is, by what it can do and what was measured of it, whatever it is called.
//!
//! A hypervisor chooses the family and model that a guest sees, and may choose the caches. It cannot show a
//! feature that the core lacks, and it cannot change how long a load waits for a store. So every design of the
//! tables is held against features, caches and measured cycles, and each witness is kept with its
//! words, for or against. The claim itself weighs least. It is overruled by measurement alone, and only where
//! two measured figures contradict it and another design explains clearly more.
//!
//! Expected figures: the tables of this room, and the profiles in `profiles/` (Redwood Cove, Zen 4, Zen 5) and
//! the study on Cascade Lake for what no maker publishes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::core::OpClass;
use super::design::{Design, PriceOrigin};
use super::known::Microarchitecture as M;
use super::measured_core::CoreCost;
use super::{Features, Machine};

/// One design, and what speaks for and against it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Candidate {
    /// The design.
    pub design: M,
    /// Witnesses for it less those against it.
    pub weight: f64,
    /// What fits.
    pub fits: Vec<String>,
    /// What contradicts it.
    pub contradicts: Vec<String>,
    /// How many of the contradictions were measured.
    pub measured_contradictions: usize,
}

/// The designs that a processor may be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resemblance {
    /// By family and model.
    pub claimed: M,
    /// By all evidence; the claimed one unless measurement overrules it.
    pub design: M,
    /// Best first; the claimed one last where it is not among the best.
    pub candidates: Vec<Candidate>,
}

/// So many candidates are listed.
const LISTED: usize = 3;
/// What the claim weighs: it decides between equals.
const CLAIM: f64 = 0.5;
/// A claim is overruled by a design that weighs so much more than it, and than the next one.
const CLEARLY: f64 = 3.0;
const DISTINCT: f64 = 0.9;
/// By so many measured contradictions at least.
const LEAST_MEASURED: usize = 2;

/// (design, least and largest typical blocked load in cycles): measured, where that is closer than what is published.
const BLOCKED_CYCLES: &[(M, f64, f64)] =
    &[(M::RedwoodCove, 19.0, 20.0), (M::Zen4, 19.0, 21.5), (M::Zen5, 14.0, 15.5)];

/// (design, bytes from which `rep movs` is cheaper than moves of eight bytes), measured.
const MOVES_CROSSOVER_BYTES: &[(M, f64)] =
    &[(M::CascadeLake, 345.0), (M::RedwoodCove, 607.0), (M::Zen4, 418.0), (M::Zen5, 843.0)];

struct Witness {
    fits: bool,
    measured: bool,
    weight: f64,
    words: String,
}

impl Witness {
    /// A measured number that a design expects between two others.
    fn number(what: &str, found: f64, low: f64, high: f64, weight: f64) -> Self {
        let fits = (low..=high).contains(&found);
        let expected = if fits { "as expected" } else { "expected" };
        let words = format!("{what} measured {found:.1}, {expected} {low:.1} to {high:.1}");
        Self { fits, measured: true, weight, words }
    }
}

impl Resemblance {
    /// Holds all x86-64 designs against what `profile` measured, and what `machine` shows where it is at hand.
    #[must_use]
    pub fn of(claimed: M, machine: Option<&Machine>, profile: &Design) -> Self {
        let designs = M::ALL.iter().copied().filter(|design| !design.is_aarch64());
        let mut all: Vec<Candidate> =
            designs.map(|design| candidate(design, claimed, machine, profile)).collect();
        all.sort_by(|a, b| b.weight.total_cmp(&a.weight));
        let own = all.iter().find(|c| c.design == claimed).cloned();
        let is_overruled = match (all.first(), all.get(1), &own) {
            (Some(best), Some(next), Some(own)) => {
                own.measured_contradictions >= LEAST_MEASURED
                    && best.weight >= own.weight + CLEARLY
                    && best.weight >= next.weight + DISTINCT
            }
            (Some(best), Some(next), None) => {
                best.weight >= CLEARLY && best.weight >= next.weight + DISTINCT
            }
            _ => false,
        };
        let design = all.first().filter(|_| is_overruled).map_or(claimed, |best| best.design);
        all.truncate(LISTED);
        all.extend(own.filter(|own| all.iter().all(|c| c.design != own.design)));
        Self { claimed, design, candidates: all }
    }

    /// The same of the processor at hand, whose model its features may have contradicted already.
    #[must_use]
    pub fn here(machine: &Machine, profile: &Design) -> Self {
        let found = Self::of(machine.microarchitecture, Some(machine), profile);
        Self { claimed: machine.claimed.unwrap_or(found.claimed), ..found }
    }

    /// `claims Cypress Cove; features and measurements say Redwood Cove`, as a clause.
    #[must_use]
    pub fn sentence(&self) -> String {
        if self.design != self.claimed {
            return format!(
                "claims {}; features and measurements say {}",
                self.claimed, self.design
            );
        }
        match self.candidates.first().filter(|best| best.design != self.claimed) {
            Some(best) => format!(
                "claims {}; {} fits better, not clearly enough to overrule the claim",
                self.claimed, best.design
            ),
            None => format!("claims {}, and nothing fits better", self.claimed),
        }
    }
}

fn candidate(design: M, claimed: M, machine: Option<&Machine>, profile: &Design) -> Candidate {
    let table = Design::of(design);
    let mut witnesses = of_features(design, machine);
    witnesses.extend(of_caches(&table, profile));
    witnesses.extend(of_forwarding(design, &table, profile));
    witnesses.extend(of_core(&table, profile));
    let mut found = Candidate {
        design,
        weight: if design == claimed { CLAIM } else { 0.0 },
        fits: Vec::new(),
        contradicts: Vec::new(),
        measured_contradictions: 0,
    };
    for Witness { fits, measured, weight, words } in witnesses {
        found.weight += if fits { weight } else { -weight };
        found.measured_contradictions += usize::from(measured && !fits);
        if fits { found.fits.push(words) } else { found.contradicts.push(words) }
    }
    found
}

/// What a core can do and a design cannot. What it does not show says nothing: it may be hidden.
fn of_features(design: M, machine: Option<&Machine>) -> Vec<Witness> {
    let Some(Machine { features, .. }) = machine else { return Vec::new() };
    let Features { serialize, avx, avx2, avx512f, fsrm, clflushopt, clwb, .. } = *features;
    let is_amd = (M::Zen1..=M::Zen5).contains(&design);
    let small = matches!(design, M::Gracemont | M::Crestmont | M::Skymont);
    let since = |intel: M, amd: M| if is_amd { design >= amd } else { small || design >= intel };
    let wide = !small && design != M::LionCove;
    [
        ("AVX", avx, since(M::SandyBridge, M::Zen1)),
        ("AVX2", avx2, since(M::Haswell, M::Zen1)),
        ("AVX-512", avx512f, wide && since(M::SkylakeServer, M::Zen4)),
        ("FSRM", fsrm, since(M::SunnyCove, M::Zen3)),
        ("CLFLUSHOPT", clflushopt, since(M::Skylake, M::Zen1)),
        ("CLWB", clwb, since(M::SkylakeServer, M::Zen2)),
        ("SERIALIZE", serialize, !is_amd && since(M::GoldenCove, M::Zen5)),
    ]
    .into_iter()
    .filter(|(_, shown, has)| *shown && !has)
    .map(|(name, ..)| {
        let words = format!("shows {name}, which {design} has not");
        Witness { fits: false, measured: false, weight: 4.0, words }
    })
    .collect()
}

fn of_caches(table: &Design, profile: &Design) -> Vec<Witness> {
    let mut found = Vec::new();
    let code = table.code_cache();
    if let (Some(cache), true) = (profile.code_cache, code.origin != PriceOrigin::Assumed) {
        let measured = profile.code_cache_origin.as_ref().is_some_and(PriceOrigin::is_probed);
        let (how, weight) = if measured { ("measured", 2.0) } else { ("presented", 1.0) };
        let kib = |bytes: u64| bytes / 1024;
        let words = format!(
            "L1i {how} {} KiB {}-way, expected {} KiB {}-way",
            kib(cache.size_bytes()),
            cache.ways,
            kib(code.value.size_bytes()),
            code.value.ways
        );
        found.push(Witness { fits: cache == code.value, measured, weight, words });
    }
    let core = table.core();
    if let (Some([first, ..]), true) =
        (profile.data_cache_bytes, core.origin != PriceOrigin::Assumed)
    {
        let expected = core.value.cache_bytes[0];
        let words = format!("L1d presented {} KiB, expected {} KiB", first / 1024, expected / 1024);
        found.push(Witness { fits: first == expected, measured: false, weight: 1.0, words });
    }
    found
}

fn of_forwarding(design: M, table: &Design, profile: &Design) -> Vec<Witness> {
    let mut found = Vec::new();
    let blocked = &profile.store_forward_blocked_cycles;
    let own = BLOCKED_CYCLES.iter().find(|row| row.0 == design).map(|row| (row.1, row.2));
    let published = &table.store_forward_blocked_cycles;
    let known = published.origin != PriceOrigin::Assumed;
    let range = own.or(known.then_some((published.low_cycles, published.high_cycles)));
    if let (true, Some(measured), Some((low, high))) =
        (blocked.origin.is_probed(), &blocked.measured, range)
    {
        found.push(Witness::number("blocked load", measured.value, low - 1.0, high + 1.0, 2.0));
    }
    let core = table.core();
    let forwarded = profile.store_forward_cycles.as_ref().filter(|p| p.origin.is_probed());
    if let (Some(price), true) = (forwarded, core.origin != PriceOrigin::Assumed) {
        let expected = f64::from(core.value.forward_cycles);
        let (low, high) = (expected - 1.0, expected + 1.0);
        found.push(Witness::number("fastest forwarding", price.low_cycles, low, high, 1.5));
    }
    let crossover = MOVES_CROSSOVER_BYTES.iter().find(|row| row.0 == design).map(|row| row.1);
    let moves = profile.rep_moves.as_ref().filter(|costs| costs.origin.is_probed());
    if let (Some(costs), Some(bytes)) = (moves, crossover) {
        let (found_bytes, low, high) = (costs.crossover_bytes as f64, 0.85 * bytes, 1.15 * bytes);
        found.push(Witness::number("`rep movs` pays from bytes", found_bytes, low, high, 1.0));
    }
    found
}

/// Width and latencies; those of operations together are one witness, because designs of one maker share most.
fn of_core(table: &Design, profile: &Design) -> Vec<Witness> {
    let core = table.core();
    if core.origin == PriceOrigin::Assumed {
        return Vec::new();
    }
    let mut found = Vec::new();
    if let Some([second, ..]) =
        profile.data_miss_cycles.as_ref().filter(|l| l[0].origin.is_probed())
    {
        let expected = f64::from(core.value.miss_cycles[0]);
        let middle = (second.low_cycles + second.high_cycles) / 2.0;
        found.push(Witness::number("L2 latency", middle, expected - 1.5, expected + 1.5, 0.5));
    }
    let Some(measured) = profile.measured_core.as_ref().filter(|m| m.origin.is_probed()) else {
        return found;
    };
    let of = |cost| measured.cycles_of(cost).map(|cycles| cycles.value);
    if let Some(interval) = of(CoreCost::Dispatch).filter(|cycles| *cycles > 0.0) {
        let width = f64::from(core.value.dispatch_width);
        let (low, high) = (width - 1.0, width + 0.8);
        found.push(Witness::number("dispatched a cycle", 1.0 / interval, low, high, 2.0));
    }
    if let Some(load) = of(CoreCost::LoadLatency) {
        let expected = f64::from(core.value.load_cycles);
        found.push(Witness::number("L1d latency", load, expected - 0.4, expected + 0.4, 1.0));
    }
    let classes =
        [OpClass::FloatAdd, OpClass::FloatMultiply, OpClass::VectorMultiply, OpClass::Divide64];
    let latencies = classes.iter().filter_map(|class| {
        let expected = f64::from(core.value.execution(*class).latency_cycles);
        let found = of(CoreCost::Latency(*class))?;
        Some((found - expected).abs() <= 0.15 * expected + 0.3)
    });
    let latencies: Vec<bool> = latencies.collect();
    let (fit, of_all) = (latencies.iter().filter(|fits| **fits).count(), latencies.len());
    if of_all > 0 {
        let words = format!("{fit} of {of_all} measured latencies of operations as expected");
        found.push(Witness { fits: 4 * fit >= 3 * of_all, measured: true, weight: 1.5, words });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::invented;
    use super::*;

    const PROFILES: [(&str, M); 3] = [
        (
            include_str!("../../../../profiles/intel-6-167-1-redwood-cove-guest.json"),
            M::RedwoodCove,
        ),
        (include_str!("../../../../profiles/amd-25-17-1-guest.json"), M::Zen4),
        (include_str!("../../../../profiles/amd-26-2-1-guest.json"), M::Zen5),
    ];

    #[test]
    fn relabelled_profiles_are_recognised_whatever_they_claim() {
        let claims =
            [M::CypressCove, M::CascadeLake, M::Haswell, M::Zen2, M::Zen4, M::Zen5, M::Unknown];
        for (text, truth) in PROFILES {
            let profile = Design::from_json(text).unwrap();
            for claimed in claims {
                let found = Resemblance::of(claimed, None, &profile);
                assert_eq!(found.candidates[0].design, truth, "claims {claimed}: {found:#?}");
            }
        }
    }

    #[test]
    fn a_true_claim_stands() {
        for (text, truth) in PROFILES {
            let profile = Design::from_json(text).unwrap();
            let found = Resemblance::of(truth, None, &profile);
            assert_eq!(found.design, truth, "{found:#?}");
            assert!(found.sentence().ends_with("nothing fits better"), "{}", found.sentence());
        }
    }

    #[test]
    fn measurements_overrule_a_claim_and_say_why() {
        let profile = Design::from_json(PROFILES[0].0).unwrap();
        let found = Resemblance::of(M::CascadeLake, None, &profile);
        assert_eq!(
            found.sentence(),
            "claims Cascade Lake; features and measurements say Redwood Cove"
        );
        let own = found.candidates.iter().find(|c| c.design == M::CascadeLake).unwrap();
        assert!(
            own.contradicts.iter().any(|w| w.starts_with("blocked load measured 19.7")),
            "{own:?}"
        );
    }

    #[test]
    fn nothing_measured_overrules_nothing() {
        for facts in
            [invented::cascade_lake_guest(), invented::raptor_lake(), invented::zen_5_guest()]
        {
            let machine = Machine::from_facts(&facts);
            let claimed = machine.microarchitecture;
            let design = Design::of_machine(&machine);
            assert_eq!(Resemblance::of(claimed, Some(&machine), &design).design, claimed);
            let other = Resemblance::of(M::Haswell, Some(&machine), &design);
            assert_eq!(other.design, M::Haswell, "features rank and do not decide");
        }
    }
}
