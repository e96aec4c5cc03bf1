//! Shapes in machine code that cost, one rule a file.
//!
//! A rule reads a decoded function and names sites; it runs nothing and asks the machine profile
//! for prices. What a rule finds is a *pattern*: whether the code runs, and whether its data make
//! the accesses meet, is for a run to say.

mod card;
mod scan;
mod store_forward;

pub use card::RuleCard;
pub use scan::{ScanFilter, ScanReport, describe_sites, scan, scan_function};
pub use store_forward::STORE_FORWARD;

use crate::code::{Addresses, FunctionCode};
use crate::machine::MachineProfile;
use crate::model::{Certainty, Grade};

/// What a rule has found, in terms of one function's instructions.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Index of the instruction that pays.
    pub site: usize,
    /// Indices of the instructions that make it pay, in sets that act together, nearest set first.
    pub sets: Vec<Vec<usize>>,
    /// How certain the addresses are.
    pub certainty: Certainty,
    /// Instructions on the shortest path from the nearest of them to the site.
    pub distance_instructions: u32,
    /// Rank: larger deserves attention sooner.
    pub score: f64,
    /// The mechanism in one sentence.
    pub mechanism: String,
    /// What to do about it.
    pub remedy: String,
}

/// One rule.
pub trait Hazard: Sync {
    /// Its stable id, for example `store-forward`.
    fn id(&self) -> &'static str;
    /// The card that `rule ID` shows.
    fn card(&self, profile: &MachineProfile) -> RuleCard;
    /// What is known about a candidate before any run: `priced` where the profile holds a price
    /// that was measured on this machine.
    fn grade(&self, profile: &MachineProfile) -> Grade;
    /// All candidates in one function.
    fn check(
        &self,
        code: &FunctionCode,
        addresses: &Addresses,
        profile: &MachineProfile,
    ) -> Vec<Candidate>;
}

/// All rules, by id.
pub static HAZARDS: &[&dyn Hazard] = &[&STORE_FORWARD];

/// The rule with this id.
#[must_use]
pub fn find_rule(id: &str) -> Option<&'static dyn Hazard> {
    HAZARDS.iter().copied().find(|h| h.id() == id)
}

#[cfg(test)]
mod tests {
    use super::*;

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
