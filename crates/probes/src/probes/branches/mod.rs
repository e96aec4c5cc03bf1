//! The probe `branches`: how long a sequence of branches the predictor learns by heart.
//!
//! *Effect.* A predictor keeps what a branch did behind each history that it came with, in tables. A sequence that comes
//! again is learned where the tables hold it, and mispredicted where they do not. *Sign.* Core cycles of one branch of a
//! random sequence that has come tens of times. *Contrast.* Sequences of more and more branches, between one that any
//! predictor knows and one that never comes again: where half of what lies between the two is paid, half is learned. Once
//! for the directions of a conditional branch, once for the targets of an indirect jump. *Positive control.* A sequence
//! that never comes again takes longer than a short one. *Negative control.* Two short sequences take the same.
//!
//! Neighbours on the same core share its tables, and a hypervisor may clear them: this measures what is left.
//! *Literature.* H. Yavarzadeh and others, "Half&Half: Demystifying Intel's Directional Branch Predictors for Fast, Secure
//! Partitioned Execution" (2023).

mod report;
#[cfg(target_arch = "x86_64")]
mod rig;

pub use report::{BranchReport, BranchRow};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(not(target_arch = "x86_64"))]
use super::elsewhere as run;
use super::{Bench, Probe, ProbeError, ProbeReport};

/// Its id, and the origin of its figures.
pub const ID: &str = "branches";

/// What comes by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Drawn {
    /// Whether a conditional branch is taken.
    Directions,
    /// Where an indirect jump goes: one of 32 places.
    Targets,
}

/// One sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// What is drawn.
    pub drawn: Drawn,
    /// How many branches it has; absent where it never comes again.
    pub length: Option<u32>,
}

/// Lengths that any predictor learns.
const SHORT: [u32; 2] = [64, 128];
/// Lengths that are tried, each some 40 % more than the one before.
const DIRECTIONS: [u32; 16] = [
    1000, 1400, 2000, 2800, 4000, 5700, 8000, 11_300, 16_000, 22_600, 32_000, 45_000, 64_000,
    90_500, 128_000, 181_000,
];
const TARGETS: [u32; 13] =
    [250, 350, 500, 700, 1000, 1400, 2000, 2800, 4000, 5700, 8000, 11_300, 16_000];

/// Every case: of both kinds the short ones, the ladder, and the one that never comes again.
#[must_use]
pub fn all_cases() -> Vec<Case> {
    let of = |drawn, ladder: &[u32]| -> Vec<Case> {
        let lengths = SHORT.iter().chain(ladder).map(|length| Some(*length));
        lengths.chain([None]).map(|length| Case { drawn, length }).collect()
    };
    [of(Drawn::Directions, &DIRECTIONS), of(Drawn::Targets, &TARGETS)].concat()
}

/// The probe.
pub const PROBE: Probe = Probe {
    id: ID,
    title: "how long a sequence of branches the predictor learns",
    prices: true,
    run,
    wide: None,
};

#[cfg(target_arch = "x86_64")]
fn run(bench: &Bench<'_>) -> Result<ProbeReport, ProbeError> {
    use super::sampling::{Plan, measure};
    let cases = all_cases();
    let plan = Plan { rounds: 6, limit_ns: 4_000_000_000, ..Plan::new(bench.seed) };
    let of = (cases.len(), plan);
    let rig = |clock, _: &_| rig::BranchRig::new(clock, cases, bench.seed);
    let report = measure(bench, of, rig, BranchReport::new)?;
    Ok(ProbeReport::Branches(Box::new(report)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::FakeClock;
    use crate::machine::{Design, Machine, Microarchitecture, invented};
    use crate::probes::fake::{quiet, sampled};
    use crate::probes::{Protocol, UpdatesProfile};

    /// Of a core that learns sequences up to these lengths.
    fn report(clock: FakeClock, learned: [u32; 2], penalty_cycles: f64) -> BranchReport {
        let cases = all_cases();
        let count = cases.len();
        let cycles = move |case: usize| {
            let Case { drawn, length } = cases[case];
            let learned = learned[usize::from(drawn == Drawn::Targets)];
            let missed = match length {
                Some(length) => (f64::from(length) / f64::from(learned) - 0.5).clamp(0.0, 1.0),
                None => 1.0,
            };
            2.0 + missed * penalty_cycles
        };
        let machine = Machine::from_facts(&invented::zen_5_guest());
        BranchReport::new(&sampled(clock, count, cycles), Protocol::new(machine, 1))
    }

    #[test]
    fn what_half_is_learned_of_goes_into_the_profile() {
        let found = report(quiet(), [9000, 3000], 10.0);
        assert!(found.protocol.conclusive, "{}", found.protocol.verdict);
        let mut design = Design::of(Microarchitecture::GoldenCove);
        found.apply_to(&mut design);
        let learned = design.core().value.learned;
        assert!((8500..9500).contains(&learned.directions), "{learned:?}");
        assert!((2800..3200).contains(&learned.targets), "{learned:?}");
        assert_eq!(
            learned.history,
            Design::of(Microarchitecture::GoldenCove).core().value.learned.history
        );
    }

    #[test]
    fn what_is_longer_than_all_that_was_tried_is_the_longest() {
        let found = report(quiet(), [1_000_000, 3000], 10.0);
        let directions = found.directions.as_ref().unwrap();
        assert_eq!(directions.value, 181_000.0);
        assert!(found.protocol.verdict.contains("more than 181000"), "{}", found.protocol.verdict);
    }

    #[test]
    fn a_core_that_pays_nothing_for_chance_says_nothing() {
        let found = report(quiet(), [9000, 3000], 0.01);
        assert!(!found.protocol.conclusive, "{}", found.protocol.verdict);
        let before = Design::of(Microarchitecture::Zen5);
        let mut after = before.clone();
        found.apply_to(&mut after);
        assert_eq!(after, before);
    }
}
