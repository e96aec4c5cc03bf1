//! From classes to the rule that hazards and the simulator evaluate.
//!
//! Every rule that the machine profile can hold is held against every case of the matrix that was
//! decided. One contradiction is enough to drop a rule: cells are repeated until they are sure or
//! given up as inconclusive, so a contradiction is a fact and not noise.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::case::{Case, Group};
use super::classify::Class;
use crate::machine::ForwardingRule;

/// Of each combination of widths, this share of the offsets must have been decided.
const LEAST_DECIDED: f64 = 0.6;

/// The rule, or why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RuleFinding {
    /// The rule that agrees with every decided case.
    pub rule: Option<ForwardingRule>,
    /// The rule in a sentence, or the reason why there is none.
    pub sentence: String,
    /// Cases of the matrix that were decided.
    pub decided: usize,
    /// Cases of the matrix.
    pub of: usize,
    /// Decided cases that speak against the nearest rule; the first few by name.
    pub against: Vec<String>,
}

/// The simplest first: of two rules that agree with all cases the earlier is taken.
fn candidates() -> Vec<ForwardingRule> {
    let mut rules = vec![ForwardingRule::SingleStoreContains];
    for wide_store_bytes in [16, 32, 64] {
        for piece_bytes in [32, 16, 8, 4] {
            if piece_bytes < wide_store_bytes {
                rules.push(ForwardingRule::ContainsInPieces { wide_store_bytes, piece_bytes });
            }
        }
    }
    rules.extend([
        ForwardingRule::StartOrMiddle,
        ForwardingRule::SameStart,
        ForwardingRule::AnyOverlap,
    ]);
    rules
}

fn agrees(rule: ForwardingRule, case: &Case, served: bool) -> bool {
    let store = case.stores.first().map_or(0, |s| s.bytes);
    rule.forwards(i64::from(case.load.offset_bytes), store, case.load.bytes) == served
}

/// The rule that the classes of the matrix show.
pub fn infer(cases: &[Case], classes: &[Class]) -> RuleFinding {
    let matrix: Vec<(&Case, Option<bool>)> = cases
        .iter()
        .zip(classes)
        .filter(|(case, _)| case.group == Group::Matrix)
        .map(|(case, class)| (case, class.served()))
        .collect();
    let decided: Vec<(&Case, bool)> =
        matrix.iter().filter_map(|(case, served)| Some((*case, (*served)?))).collect();
    let (of, count) = (matrix.len(), decided.len());
    let none = |sentence: String, against| RuleFinding {
        rule: None,
        sentence,
        decided: count,
        of,
        against,
    };
    if let Some(widths) = thinnest(&matrix) {
        let why = format!(
            "no rule inferred: {count} of {of} cells decided, too few of those with {widths}"
        );
        return none(why, Vec::new());
    }
    let against = |rule: &ForwardingRule| {
        decided.iter().filter(|(case, served)| !agrees(*rule, case, *served)).count()
    };
    let Some(best) = candidates().into_iter().min_by_key(against) else {
        return none("no rule inferred: there is none to choose from".to_owned(), Vec::new());
    };
    if against(&best) == 0 {
        let sentence = best.sentence();
        return RuleFinding { rule: Some(best), sentence, decided: count, of, against: vec![] };
    }
    let names = decided.iter().filter(|(case, served)| !agrees(best, case, *served));
    let names: Vec<String> = names.map(|(case, _)| case.to_string()).take(5).collect();
    let why = format!(
        "no known rule agrees with every cell; {} speak against the nearest: {}",
        against(&best),
        best.sentence()
    );
    none(why, names)
}

/// A combination of widths of which too few offsets were decided.
fn thinnest(matrix: &[(&Case, Option<bool>)]) -> Option<String> {
    let mut counts: BTreeMap<_, (usize, usize)> = BTreeMap::new();
    for (case, served) in matrix {
        let store = case.stores.first().map_or(0, |s| s.bytes);
        let count = counts.entry((case.registers, store, case.load.bytes)).or_default();
        count.0 += usize::from(served.is_some());
        count.1 += 1;
    }
    let thin = counts.iter().find(|(_, (yes, all))| (*yes as f64) < LEAST_DECIDED * *all as f64);
    thin.map(|((_, store, load), _)| format!("{store}-byte stores and {load}-byte loads"))
}
