//! From classes to the rule that hazards and the simulator evaluate.
//!
//! Every rule that the machine profile can hold is held against every case of the matrix that was
//! decided. One contradiction is enough to drop a rule: cells are repeated until they are sure or
//! given up as inconclusive, so a contradiction is a fact and not noise. What stayed open costs itself alone: the
//! decided cases give the rule, unless two rules agree with all of them and differ in what is open.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::case::{Case, Group};
use super::classify::Class;
use crate::machine::ForwardingRule;

/// Of the matrix, this share must have been decided, and of a combination of widths not to be called open.
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
    /// Combinations of widths of which too few offsets were decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<String>,
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

fn forwards(rule: ForwardingRule, case: &Case) -> bool {
    let store = case.stores.first().map_or(0, |s| s.bytes);
    rule.forwards(i64::from(case.load.offset_bytes), store, case.load.bytes)
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
    let open = thin(&matrix);
    let none = |sentence: String, against| RuleFinding {
        rule: None,
        sentence,
        decided: count,
        of,
        against,
        open: open.clone(),
    };
    if (count as f64) < LEAST_DECIDED * of as f64 {
        let widths = open.first().map_or("any widths", String::as_str);
        let why = format!(
            "no rule inferred: {count} of {of} cells decided, too few of those with {widths}"
        );
        return none(why, Vec::new());
    }
    let against = |rule: &ForwardingRule| {
        decided.iter().filter(|(case, served)| forwards(*rule, case) != *served).count()
    };
    let Some(best) = candidates().into_iter().min_by_key(against) else {
        return none("no rule inferred: there is none to choose from".to_owned(), Vec::new());
    };
    if against(&best) == 0 {
        // What is open must not matter: a rule that agrees with all that is decided says the same of it.
        let differs = |rule: &ForwardingRule| {
            let unknown = matrix.iter().filter(|(_, served)| served.is_none());
            unknown.map(|(case, _)| case).find(|case| forwards(*rule, case) != forwards(best, case))
        };
        let rivals = candidates().into_iter().filter(|rule| against(rule) == 0);
        if let Some((rival, case)) = rivals.filter_map(|r| Some((r, differs(&r)?))).next() {
            let why = format!(
                "open: {count} of {of} cells agree as well with \"{}\" as with \"{}\", which differ \
                 at {case}",
                best.sentence(),
                rival.sentence()
            );
            return none(why, Vec::new());
        }
        let sentence = best.sentence();
        return RuleFinding { rule: Some(best), ..none(sentence, Vec::new()) };
    }
    let names = decided.iter().filter(|(case, served)| forwards(best, case) != *served);
    let names: Vec<String> = names.map(|(case, _)| case.to_string()).take(5).collect();
    let why = format!(
        "no known rule agrees with every cell; {} speak against the nearest: {}",
        against(&best),
        best.sentence()
    );
    none(why, names)
}

impl RuleFinding {
    /// Whether what was decided contradicts no rule, and only what is open keeps it from being one.
    pub(super) fn is_open(&self) -> bool {
        let enough = self.decided as f64 >= LEAST_DECIDED * self.of as f64;
        self.rule.is_none() && self.against.is_empty() && self.of > 0 && enough
    }
}

/// Combinations of widths of which too few offsets were decided.
fn thin(matrix: &[(&Case, Option<bool>)]) -> Vec<String> {
    let mut counts: BTreeMap<_, (usize, usize)> = BTreeMap::new();
    for (case, served) in matrix {
        let store = case.stores.first().map_or(0, |s| s.bytes);
        let count = counts.entry((case.registers, store, case.load.bytes)).or_default();
        count.0 += usize::from(served.is_some());
        count.1 += 1;
    }
    let thin = counts.iter().filter(|(_, (yes, all))| (*yes as f64) < LEAST_DECIDED * *all as f64);
    let name = |((_, store, load), _): (&(_, u16, u16), _)| {
        format!("{store}-byte stores and {load}-byte loads")
    };
    let mut names: Vec<String> = thin.map(name).collect();
    names.dedup();
    names
}
