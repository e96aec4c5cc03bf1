//! Shapes in machine code that cost, one rule a file.
//!
//! A rule reads a decoded function and names sites; it runs nothing and asks the design
//! for prices. What a rule finds is a *pattern*: whether the code runs, and whether its data make
//! the accesses meet, is for a run to say.

mod calls;
mod card;
mod crowded_set;
mod difference;
mod false_dependency;
mod finding;
mod heat;
mod loop_alignment;
mod rep_string;
mod scan;
mod split_access;
mod store_forward;
mod strings;
mod view;

pub use calls::{CallGraph, CallingLoop, Calls, DirectCall, direct_target};
pub use card::RuleCard;
pub use crowded_set::CROWDED_SET;
pub use difference::{FindingsDifference, MovedFinding, PlacedFinding};
pub use false_dependency::FALSE_DEPENDENCY;
pub use heat::Heat;
pub use loop_alignment::LOOP_ALIGNMENT;
pub use loop_alignment::Spread;
pub use rep_string::REP_STRING;
pub use scan::{RuleSet, ScanFilter, ScanReport, describe_sites, scan, scan_function};
pub use split_access::SPLIT_ACCESS;
pub use store_forward::{Callees, STORE_FORWARD};
pub use strings::{InstructionCount, SizeClass, StringEntry, StringSummary};
pub use view::{FunctionView, Needs};

use crate::code::Architecture;
use crate::machine::Design;
use crate::model::{Certainty, CyclesLost, Grade, Svma};

/// What a rule has found, in terms of one function's instructions.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Index of the instruction that pays.
    pub site: usize,
    /// Indices of the instructions that make it pay, in sets that act together, nearest set first.
    pub sets: Vec<Vec<usize>>,
    /// Instructions of other functions that act with the nearest set.
    pub elsewhere: Vec<Svma>,
    /// What pays, where the site only leads to another function.
    pub pays_elsewhere: Option<Svma>,
    /// How certain the addresses are.
    pub certainty: Certainty,
    /// Whether it is where the linker has put code or data that makes it.
    pub by_placement: bool,
    /// Instructions on the shortest path from the nearest of them to the site.
    pub distance_instructions: u32,
    /// What one execution loses, by the design.
    pub cycles_lost: CyclesLost,
    /// How often and how surely that may happen, as far as code alone says: a factor of the rank.
    pub weight: f64,
    /// The mechanism in one sentence.
    pub mechanism: String,
    /// What to do about it.
    pub remedy: String,
}

/// A shape of machine code that costs time.
pub trait Hazard: Sync {
    /// Its stable id, for example `store-forward`.
    fn id(&self) -> &'static str;
    /// The card that `rule ID` shows.
    fn card(&self, design: &Design) -> RuleCard;
    /// What is known about a candidate before any run: `priced` where the profile holds a price
    /// that was measured on this machine.
    fn grade(&self, design: &Design) -> Grade;
    /// Whether the rule knows what it reads in code for this processor.
    fn understands(&self, architecture: Architecture) -> bool {
        architecture == Architecture::X86_64
    }
    /// What a function must have; the scan asks before it does any work for the rule.
    fn needs(&self) -> Needs;
    /// Whether each execution of the site itself costs; else it is the loop or function that it
    /// stands for.
    fn pays_at_site(&self) -> bool {
        true
    }
    /// All candidates in one function.
    fn look(&self, view: &FunctionView<'_>, design: &Design) -> Vec<Candidate>;
    /// Whether it also looks outside loops: in functions that are called from one, or that a profile
    /// says run.
    fn looks_where_called(&self) -> bool {
        false
    }
    /// All candidates outside the loops of such a function.
    fn look_where_called(&self, _view: &FunctionView<'_>, _design: &Design) -> Vec<Candidate> {
        Vec::new()
    }
    /// All candidates that take several functions to see: the function that holds the site, the
    /// candidate, and the first instructions of the other functions involved.
    fn look_at_program(
        &self,
        _graph: &CallGraph<'_>,
        _design: &Design,
    ) -> Vec<(Svma, Candidate, Vec<Svma>)> {
        Vec::new()
    }
}

/// How much more often code runs for standing in loops: judgement, not a count. Code outside loops
/// runs at least where it is called from, which is not seen here.
#[must_use]
pub fn loop_weight(depth: u32) -> f64 {
    if depth == 0 { 0.25 } else { f64::from(depth).sqrt() }
}

/// All rules, by id.
pub static HAZARDS: &[&dyn Hazard] =
    &[&CROWDED_SET, &FALSE_DEPENDENCY, &LOOP_ALIGNMENT, &REP_STRING, &SPLIT_ACCESS, &STORE_FORWARD];

/// The rule with this id.
#[must_use]
pub fn find_rule(id: &str) -> Option<&'static dyn Hazard> {
    HAZARDS.iter().copied().find(|h| h.id() == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_outside_loops_counts_a_quarter_and_nesting_by_its_root() {
        assert_eq!([0, 1, 4, 9].map(loop_weight), [0.25, 1.0, 2.0, 3.0]);
    }

    #[test]
    fn what_a_rule_costs_is_at_the_site_or_at_what_it_stands_for() {
        let elsewhere: Vec<_> =
            HAZARDS.iter().filter(|h| !h.pays_at_site()).map(|h| h.id()).collect();
        assert_eq!(elsewhere, ["crowded-set", "loop-alignment"]);
    }

    #[test]
    fn ids_are_unique_sorted_and_have_a_page() {
        let ids: Vec<_> = HAZARDS.iter().map(|h| h.id()).collect();
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        for id in ids {
            let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/hazards/");
            assert!(std::path::Path::new(&format!("{page}{id}.md")).exists(), "docs page of {id}");
            assert!(find_rule(id).is_some());
        }
    }
}
