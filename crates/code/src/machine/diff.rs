//! Two machine profiles side by side: which prices and rules differ, and whether the intervals let
//! that be said.
//!
//! Every row has an id that never changes its meaning, so that tables of different versions can be
//! joined. A row is *apart* only when both sides know something and their ranges do not meet; where
//! one side only assumes, nothing is concluded.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::design::{Design, PriceOrigin, PriceRange};
use super::front_end::{DecodedCache, Sourced};
use super::geometry::CacheGeometry;

/// One side of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// The value in words, with its unit.
    pub text: String,
    /// Least and largest, in the unit of the row; absent for what is no number.
    pub range: Option<(f64, f64)>,
    /// Source of this price; absent where a profile does not say.
    pub origin: Option<PriceOrigin>,
}

/// What may be said about the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// Equal, or their ranges meet.
    Alike,
    /// They differ, and both sides know it.
    Apart,
    /// One side is missing or assumed.
    Unknown,
}

/// One fact of two machines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DiffRow {
    /// Stable name.
    pub id: String,
    /// Unit of the ranges; empty for what is no number.
    pub unit: String,
    /// First profile.
    pub a: Option<Entry>,
    /// Second profile.
    pub b: Option<Entry>,
    /// Whether the two differ.
    pub relation: Relation,
}

/// All rows, in a fixed order.
#[must_use]
pub fn diff(a: &Design, b: &Design) -> Vec<DiffRow> {
    rows(a)
        .into_iter()
        .zip(rows(b))
        .map(|((id, unit, a), (_, _, b))| {
            let relation = relation(a.as_ref(), b.as_ref());
            DiffRow { id: id.to_owned(), unit: unit.to_owned(), a, b, relation }
        })
        .collect()
}

fn relation(a: Option<&Entry>, b: Option<&Entry>) -> Relation {
    let (Some(a), Some(b)) = (a, b) else { return Relation::Unknown };
    if [a, b].iter().any(|e| e.origin == Some(PriceOrigin::Assumed)) {
        return Relation::Unknown;
    }
    let alike = match (a.range, b.range) {
        (Some(a), Some(b)) => a.0 <= b.1 && b.0 <= a.1,
        _ => a.text == b.text,
    };
    if alike { Relation::Alike } else { Relation::Apart }
}

/// Id, unit and value of one fact.
pub type Row = (&'static str, &'static str, Option<Entry>);

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
    vec![
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
    ]
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
    Entry {
        text: format!("{} cycles", range.amount()),
        range: Some((range.low_cycles, range.high_cycles)),
        origin: Some(range.origin.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Microarchitecture::{CascadeLake, Unknown, Zen5};
    use super::*;

    fn of(design: super::super::Microarchitecture) -> Design {
        Design::of(design)
    }

    fn relation_of(rows: &[DiffRow], id: &str) -> Relation {
        rows.iter().find(|r| r.id == id).unwrap().relation
    }

    #[test]
    fn a_profile_is_like_itself() {
        let rows = diff(&of(Zen5), &of(Zen5));
        assert!(rows.iter().all(|r| r.relation != Relation::Apart), "{rows:?}");
        assert_eq!(relation_of(&rows, "store-forwarding.blocked"), Relation::Alike);
    }

    #[test]
    fn what_is_assumed_is_no_difference() {
        let rows = diff(&of(CascadeLake), &of(Unknown));
        assert_eq!(relation_of(&rows, "store-forwarding.blocked"), Relation::Unknown);
        assert_eq!(relation_of(&rows, "store-forwarding.rule"), Relation::Unknown);
        assert_eq!(relation_of(&rows, "machine.design"), Relation::Apart);
        assert_eq!(relation_of(&rows, "machine.brand"), Relation::Unknown);
    }

    #[test]
    fn ranges_that_do_not_meet_are_apart() {
        let (mut a, mut b) = (of(Zen5), of(CascadeLake));
        let probed = PriceOrigin::Probed { probe: "store-forwarding".into() };
        for (profile, low, high) in [(&mut a, 13.9, 14.1), (&mut b, 14.0, 15.2)] {
            let price = &mut profile.store_forward_blocked_cycles;
            (price.low_cycles, price.high_cycles) = (low, high);
            price.origin = probed.clone();
        }
        let id = "store-forwarding.blocked";
        assert_eq!(relation_of(&diff(&a, &b), id), Relation::Alike);
        b.store_forward_blocked_cycles.low_cycles = 14.5;
        assert_eq!(relation_of(&diff(&a, &b), id), Relation::Apart);
    }

    #[test]
    fn ids_are_unique() {
        let rows = diff(&of(Zen5), &of(Zen5));
        let mut ids: Vec<&str> = rows.iter().map(|r| r.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), rows.len());
    }
}
