//! What is known of machines, side by side: which prices and rules differ, and whether the figures let that be said.
//!
//! Every row has an id that never changes its meaning, so that tables of different versions can be joined. A row is
//! *apart* only where two machines know something and chance does not explain the difference: words are others, or
//! numbers are further from each other than their intervals, the places where a probe may come to lie and the number
//! of rows and pairs that were looked at allow (Holm 1979, 5 % for all rows together). What a machine only assumes
//! decides nothing.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::branches::MeasuredBranches;
use super::design::{Design, PriceOrigin, PriceRange};
use super::front_end::{DecodedCache, Sourced};
use super::geometry::CacheGeometry;
use crate::model::Measurement;
use crate::stats::ALPHA;
use crate::stats::families::{Adjustment, adjust};
use crate::stats::random_effects::chance_of_spread;

/// By how much a figure of a machine differs from one run of a probe to the next, as a share of it (standard deviation).
/// Measured in eight runs on a quiet guest: 0.0002 to 0.02, and 0.035 for a page walk.
const BETWEEN_RUNS: f64 = 0.03;
/// The same of what a machine shares with neighbours whom nobody inside a guest sees: 0.22, 0.15, 0.02 and 0.11 were measured.
const SHARED: [(&str, f64); 4] = [
    ("data-caches.third-level", 0.25),
    ("data-caches.memory", 0.25),
    ("branches.directions", 0.1),
    ("branches.targets", 0.15),
];
/// No probe tells less than so much apart, in the unit of the row.
const LEAST_STEP: f64 = 0.05;

/// What is known of one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// The value in words, with its unit.
    pub text: String,
    /// Least and largest, in the unit of the row; absent for what is no number.
    pub range: Option<(f64, f64)>,
    /// Source of this price; absent where a profile does not say.
    pub origin: Option<PriceOrigin>,
}

/// What may be said about the machines of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// All that know it say the same, or chance explains the difference.
    Alike,
    /// Two of them differ.
    Apart,
    /// Fewer than two know it: it is missing or assumed elsewhere.
    Unknown,
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Alike => "alike",
            Self::Apart => "apart",
            Self::Unknown => "unknown",
        })
    }
}

/// One fact of all machines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SurveyRow {
    /// Stable name.
    pub id: String,
    /// Unit of the ranges; empty for what is no number.
    pub unit: String,
    /// In the order of the machines; absent where one does not know it.
    pub machines: Vec<Option<Entry>>,
    /// Whether they differ.
    pub relation: Relation,
    /// The chance of such a difference between machines that do not differ, for all rows together; absent for words.
    pub p_value: Option<f64>,
}

/// Machines side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Survey {
    /// What each is called.
    pub machines: Vec<String>,
    /// All facts, in a fixed order.
    pub rows: Vec<SurveyRow>,
}

impl Survey {
    /// Puts machines side by side, each with what it is called.
    ///
    /// ```
    /// use stallscope_code::machine::survey::{Relation, Survey};
    /// use stallscope_code::machine::{Design, Microarchitecture};
    ///
    /// let [lake, zen] = [Microarchitecture::CascadeLake, Microarchitecture::Zen5].map(Design::of);
    /// let survey = Survey::of([("lake".to_owned(), &lake), ("zen".to_owned(), &zen)]);
    /// let design = survey.rows.iter().find(|row| row.id == "machine.design").unwrap();
    /// assert_eq!(design.relation, Relation::Apart);
    /// ```
    #[must_use]
    pub fn of<'a>(designs: impl IntoIterator<Item = (String, &'a Design)>) -> Self {
        let (machines, known): (Vec<String>, Vec<Vec<Row>>) =
            designs.into_iter().map(|(name, design)| (name, rows(design))).unzip();
        let mut order: Vec<(String, &str)> = Vec::new();
        let mut entries: BTreeMap<String, Vec<Option<Entry>>> = BTreeMap::new();
        for (nth, rows) in known.into_iter().enumerate() {
            for (id, unit, entry) in rows {
                let of_all = entries.entry(id.clone()).or_insert_with(|| {
                    order.push((id, unit));
                    vec![None; machines.len()]
                });
                of_all[nth] = entry;
            }
        }
        let row = |(id, unit): (String, &str)| {
            let machines = entries.remove(&id).unwrap_or_default();
            let (relation, p_value) = (Relation::Unknown, chance(&id, &machines));
            SurveyRow { id, unit: unit.to_owned(), machines, relation, p_value }
        };
        let mut rows: Vec<SurveyRow> = order.into_iter().map(row).collect();
        let chances: Vec<f64> = rows.iter().map(|row| row.p_value.unwrap_or(f64::NAN)).collect();
        for (row, p_value) in rows.iter_mut().zip(adjust(&chances, Adjustment::Holm)) {
            row.p_value = row.p_value.map(|_| p_value);
            row.relation = relation(&row.machines, row.p_value);
        }
        Self { machines, rows }
    }
}

/// What is not merely assumed.
fn known(machines: &[Option<Entry>]) -> Vec<&Entry> {
    let all = machines.iter().flatten();
    all.filter(|entry| entry.origin != Some(PriceOrigin::Assumed)).collect()
}

fn relation(machines: &[Option<Entry>], p_value: Option<f64>) -> Relation {
    let known = known(machines);
    let differ = match p_value {
        Some(p_value) => p_value < ALPHA,
        None => known.windows(2).any(|pair| pair[0].text != pair[1].text),
    };
    match (known.len(), differ) {
        (0 | 1, _) => Relation::Unknown,
        (_, true) => Relation::Apart,
        (_, false) => Relation::Alike,
    }
}

/// The chance that machines without a difference lie so far apart; `None` where fewer than two have a number.
fn chance(id: &str, machines: &[Option<Entry>]) -> Option<f64> {
    let shared = SHARED.iter().find(|(of, _)| *of == id);
    let between_runs = shared.map_or(BETWEEN_RUNS, |(_, share)| *share);
    let numbers = known(machines).into_iter().filter_map(|entry| entry.range);
    let with_noise =
        numbers.map(|range| (f64::midpoint(range.0, range.1), variance(range, between_runs)));
    chance_of_spread(&with_noise.collect::<Vec<_>>())
}

/// Of one figure: its own interval is some two standard deviations each way, and another run would find another.
fn variance((low, high): (f64, f64), between_runs: f64) -> f64 {
    let within = (high - low) / 4.0;
    let between = (between_runs * f64::midpoint(low, high)).max(LEAST_STEP);
    within * within + between * between
}

/// Id, unit and value of one fact.
pub type Row = (String, &'static str, Option<Entry>);

/// What is known of a design, in a fixed order: id, unit and value with its origin.
#[must_use]
pub fn rows(p: &Design) -> Vec<Row> {
    let environment = p.environment.as_ref();
    let words = |text: Option<String>| text.map(|text| Entry { text, range: None, origin: None });
    let rule = word(p.forwarding_rule.sentence(), p.forwarding_rule_origin.clone());
    let crossover = |costs: &Option<super::StringCosts>| {
        let costs = costs.as_ref()?;
        Some(number(costs.crossover_bytes as f64, "bytes", &costs.origin))
    };
    let free = p
        .store_forward_free_after_cycles
        .map(|cycles| number(f64::from(cycles), "cycles", &p.store_forward_blocked_cycles.origin));
    let decoded = p.decoded_cache().map(|c| {
        let DecodedCache { sets, ways, entry_operations, window_bytes, .. } = c.value;
        let text = format!(
            "{sets} sets of {ways} entries of {entry_operations} operations from {window_bytes} bytes"
        );
        word(text, c.origin)
    });
    let (window, fusion, erratum) = (p.fetch_window_bytes(), p.fusion(), p.jump_erratum());
    let (stores, reorder) = (p.store_queue(), p.reorder_window());
    let erratum_word = if erratum.value { "expensive" } else { "cost nothing more" };
    let miss = |level: usize| p.data_miss_cycles.as_ref().map(|all| price(&all[level]));
    let learned = |of: fn(&MeasuredBranches) -> &Measurement| {
        p.measured_branches.as_ref().map(|all| measured(of(all), &all.origin))
    };
    let walks_apart = p.page_walk_apart_cycles.as_ref().zip(p.page_walk_cycles.as_ref());
    let walks_apart = walks_apart.map(|(apart, walk)| measured(apart, &walk.origin));
    let of_all = [
        ("machine.design", "", words(Some(p.microarchitecture.name().to_owned()))),
        ("machine.brand", "", words(environment.map(|e| e.brand.clone()))),
        ("machine.microcode", "", words(environment.and_then(|e| e.microcode.clone()))),
        ("machine.hypervisor", "", words(environment.and_then(|e| e.hypervisor.clone()))),
        ("machine.kernel", "", words(environment.map(|e| e.kernel_release.clone()))),
        ("store-forwarding.rule", "", Some(rule)),
        ("store-forwarding.forwarded", "cycles", p.store_forward_cycles.as_ref().map(price)),
        ("store-forwarding.blocked", "cycles", Some(price(&p.store_forward_blocked_cycles))),
        ("store-forwarding.free-after", "cycles", free),
        ("string-copy.moves-crossover", "bytes", crossover(&p.rep_moves)),
        ("string-copy.stores-crossover", "bytes", crossover(&p.rep_stores)),
        ("string-copy.byte-moves-crossover", "bytes", crossover(&p.rep_byte_moves)),
        ("string-copy.byte-stores-crossover", "bytes", crossover(&p.rep_byte_stores)),
        ("line-split.extra", "cycles", p.measured_line_split().as_ref().map(price)),
        ("code-cache.shape", "", Some(cache(&p.code_cache()))),
        ("code-tlb.shape", "", p.code_tlb().as_ref().map(cache)),
        (
            "code-alignment.window",
            "bytes",
            Some(number(window.value as f64, "bytes", &window.origin)),
        ),
        ("code-alignment.extra", "cycles", Some(price(&p.extra_window_price()))),
        ("decoded-cache.shape", "", decoded),
        ("fusion.pairs", "", Some(word(fusion.value.sentence().to_owned(), fusion.origin))),
        ("jumps.at-boundary", "", Some(word(erratum_word.to_owned(), erratum.origin))),
        ("core.reorder-window", "operations", Some(count(&reorder, "operations"))),
        ("core.store-queue", "stores", Some(count(&stores, "stores"))),
        ("data-caches.second-level", "cycles", miss(0)),
        ("data-caches.third-level", "cycles", miss(1)),
        ("data-caches.memory", "cycles", miss(2)),
        ("data-caches.page-walk", "cycles", p.page_walk_cycles.as_ref().map(price)),
        ("data-caches.page-walks-apart", "cycles", walks_apart),
        ("branches.directions", "branches", learned(|m| &m.directions)),
        ("branches.targets", "branches", learned(|m| &m.targets)),
    ];
    let of_core = p.measured_core.iter().flat_map(|core| {
        core.costs.iter().map(|c| (c.cost.id(), "cycles", Some(measured(&c.cycles, &core.origin))))
    });
    of_all
        .into_iter()
        .map(|(id, unit, entry)| (id.to_owned(), unit, entry))
        .chain(of_core)
        .collect()
}

fn word(text: String, origin: PriceOrigin) -> Entry {
    Entry { text, range: None, origin: Some(origin) }
}

fn cache(of: &Sourced<CacheGeometry>) -> Entry {
    let CacheGeometry { sets, ways, line_bytes } = of.value;
    word(format!("{sets} sets of {ways} lines of {line_bytes} bytes"), of.origin.clone())
}

fn count(of: &Sourced<u32>, unit: &str) -> Entry {
    number(f64::from(of.value), unit, &of.origin)
}

fn number(value: f64, unit: &str, origin: &PriceOrigin) -> Entry {
    let rounded = (value * 10.0).round() / 10.0;
    Entry {
        text: format!("{rounded} {unit}"),
        range: Some((value, value)),
        origin: Some(origin.clone()),
    }
}

fn price(range: &PriceRange) -> Entry {
    if let Some(found) = &range.measured {
        return measured(found, &range.origin);
    }
    Entry {
        text: format!("{} cycles", range.amount()),
        range: Some((range.low_cycles, range.high_cycles)),
        origin: Some(range.origin.clone()),
    }
}

fn measured(of: &Measurement, origin: &PriceOrigin) -> Entry {
    let Measurement { value, low, high, unit, n, .. } = of;
    let digits = if value.abs() < 10.0 { 2 } else { 1 };
    let text =
        format!("{value:.digits$} {} [{low:.digits$}, {high:.digits$}], n = {n}", unit.suffix());
    Entry {
        text: text.replace("  ", " "),
        range: Some((*low, *high)),
        origin: Some(origin.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Microarchitecture::{CascadeLake, Unknown, Zen5};
    use super::*;
    use crate::model::Unit;

    fn survey(designs: &[&Design]) -> Survey {
        Survey::of(designs.iter().map(|design| (String::new(), *design)))
    }

    fn relation_of(survey: &Survey, id: &str) -> Relation {
        survey.rows.iter().find(|r| r.id == id).unwrap().relation
    }

    const BLOCKED: &str = "store-forwarding.blocked";

    /// A Zen 5 whose blocked loads were measured to cost so much.
    fn blocked(low: f64, high: f64) -> Design {
        let mut design = Design::of(Zen5);
        let price = &mut design.store_forward_blocked_cycles;
        price.origin = PriceOrigin::Probed { probe: "store-forwarding".into() };
        let (value, how) = (f64::midpoint(low, high), "median of placements".into());
        price.measured = Some(Measurement { value, unit: Unit::Cycles, low, high, n: 30, how });
        design
    }

    #[test]
    fn a_profile_is_like_itself() {
        let zen = Design::of(Zen5);
        let same = survey(&[&zen, &zen, &zen]);
        assert!(same.rows.iter().all(|r| r.relation != Relation::Apart), "{same:?}");
        assert_eq!(relation_of(&same, BLOCKED), Relation::Alike);
    }

    #[test]
    fn what_is_assumed_is_no_difference() {
        let [lake, unknown, zen] = [CascadeLake, Unknown, Zen5].map(Design::of);
        let two = survey(&[&lake, &unknown]);
        assert_eq!(relation_of(&two, BLOCKED), Relation::Unknown);
        assert_eq!(relation_of(&two, "store-forwarding.rule"), Relation::Unknown);
        assert_eq!(relation_of(&two, "machine.design"), Relation::Apart);
        assert_eq!(relation_of(&two, "machine.brand"), Relation::Unknown);
        let three = survey(&[&lake, &unknown, &zen]);
        let id = "core.reorder-window";
        assert_eq!(relation_of(&two, id), Relation::Unknown);
        assert_eq!(relation_of(&three, id), Relation::Apart, "two know it");
    }

    #[test]
    fn two_runs_of_one_machine_are_alike_though_their_intervals_do_not_meet() {
        let runs = [blocked(14.0, 14.1), blocked(14.4, 14.5)];
        assert_eq!(relation_of(&survey(&[&runs[0], &runs[1]]), BLOCKED), Relation::Alike);
        let other = blocked(19.6, 19.8);
        assert_eq!(relation_of(&survey(&[&runs[0], &other]), BLOCKED), Relation::Apart);
        let doubtful = blocked(10.0, 30.0);
        assert_eq!(relation_of(&survey(&[&runs[0], &doubtful]), BLOCKED), Relation::Alike);
    }

    #[test]
    fn what_one_machine_alone_was_asked_is_a_row_of_its_own() {
        let mut probed = Design::of(Zen5);
        let cycles = Measurement {
            value: 3.0,
            unit: Unit::Cycles,
            low: 2.9,
            high: 3.1,
            n: 9,
            how: "median, quartiles".into(),
        };
        let cost = super::super::CoreCost::Latency(super::super::OpClass::Multiply);
        let costs = vec![super::super::CoreCycles { cost, cycles }];
        let origin = PriceOrigin::Probed { probe: "core".into() };
        probed.measured_core = Some(super::super::MeasuredCore { costs, origin });
        let survey = survey(&[&Design::of(CascadeLake), &probed]);
        let row = survey.rows.iter().find(|row| row.id == "core.latency.multiply").unwrap();
        assert_eq!((row.relation, row.machines[0].as_ref()), (Relation::Unknown, None));
        assert_eq!(row.machines[1].as_ref().unwrap().text, "3.00 cycles [2.90, 3.10], n = 9");
    }

    #[test]
    fn ids_are_unique() {
        let mut ids: Vec<String> = rows(&Design::of(Zen5)).into_iter().map(|row| row.0).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all);
    }
}
