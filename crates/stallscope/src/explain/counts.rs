//! How often a candidate happens in windows of both builds: a shape alone is no cause.
//!
//! A candidate is named only if its own load was blocked, and if the function of the slow build has clearly
//! more blocked loads per instruction than that of the fast one, and what it has more is not elsewhere in the fast build: what
//! one inlines takes its loads along. A load counts as blocked where the store
//! was still in flight when it started, by the model of the core.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::prediction::{LEAST_LEFT, LEAST_RATIO};
use super::windows::ArmWindows;
use super::{Cause, Ledger};
use crate::code::Function;
use crate::counted::{LEAST_EXECUTIONS, RARE_PART};
use crate::model::Grade;
use crate::sim::core::{Account, Mechanism};

/// The part of its function's difference that a candidate must make up, by a model that agrees.
const LEAST_PART: f64 = 0.25;

/// The windows of one arm together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tally {
    /// Windows that were followed.
    pub windows: u32,
    /// Instructions of the function in them.
    pub instructions: u64,
    /// Its blocked loads in them.
    pub blocked: u64,
}

impl Tally {
    fn of<'a>(windows: &ArmWindows, insns: impl Iterator<Item = &'a Account>) -> Self {
        let all: Account = insns.sum();
        Self {
            windows: windows.len() as u32,
            instructions: all.executions,
            blocked: all.events_of(Mechanism::BlockedLoads),
        }
    }

    /// Blocked loads in 1000 instructions.
    #[must_use]
    pub fn per_thousand(&self) -> f64 {
        1000.0 * self.blocked as f64 / self.instructions.max(1) as f64
    }
}

/// A candidate counted in both builds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counted {
    /// Times that the load ran in the windows of its own arm.
    pub executions: u64,
    /// Times that it was blocked.
    pub blocked: u64,
    /// The arm that has it.
    pub here: Tally,
    /// The other; absent if it has no such function.
    pub there: Option<Tally>,
}

impl Counted {
    /// The share of the load's executions that were blocked.
    #[must_use]
    pub fn blocked_share(&self) -> f64 {
        self.blocked as f64 / self.executions.max(1) as f64
    }

    /// Why what was counted cannot be the cause, if it cannot.
    fn acquits(&self) -> Option<String> {
        if self.executions < LEAST_EXECUTIONS {
            return Some(format!("it ran only {} times in the windows", self.executions));
        }
        if self.blocked_share() < RARE_PART {
            return Some(format!(
                "it was blocked in {} of {} executions",
                self.blocked, self.executions
            ));
        }
        let there = self.there.as_ref().map_or(0.0, Tally::per_thousand);
        let here = self.here.per_thousand();
        (here < LEAST_RATIO * there).then(|| {
            format!(
                "both builds have such loads: {here:.1} blocked in 1000 instructions here, \
                 {there:.1} in the other build"
            )
        })
    }
}

/// Why blocked loads that a function has more are no difference between the builds, if they are elsewhere in the other one:
/// of the function and of all code in the windows of this arm and of the other, with the instructions of whole runs.
fn is_elsewhere(function: [u64; 2], all: [&Tally; 2], instructions: [f64; 2]) -> Option<String> {
    let of_a_run = |blocked: u64, arm: usize| {
        blocked as f64 / all[arm].instructions.max(1) as f64 * instructions[arm]
    };
    let more = of_a_run(function[0], 0) - of_a_run(function[1], 1);
    let more_in_all = of_a_run(all[0].blocked, 0) - of_a_run(all[1].blocked, 1);
    (more_in_all < LEAST_LEFT * more).then(|| {
        format!(
            "over all of its code the other build has such loads, too: {:.1} blocked in 1000 instructions here, {:.1} in \
             the other build",
            all[0].per_thousand(),
            all[1].per_thousand()
        )
    })
}

/// Why blocked loads cannot be the cause by the model of the core, where it agrees with the clock.
fn cannot_pay(ledgers: &[Ledger], function: &str) -> Option<String> {
    let ledger = ledgers.iter().find(|ledger| ledger.place == function)?;
    let part = ledger.part_of(Mechanism::BlockedLoads)?;
    (part < LEAST_PART).then(|| {
        format!(
            "without blocked loads, the model of the core finds {:.0} % of the function's part of the \
             difference gone, not more",
            100.0 * part.max(0.0)
        )
    })
}

/// Something that the code's shape makes suspect, with the functions to be followed.
pub(super) struct Candidate {
    pub cause: Cause,
    /// Its function.
    pub function: Function,
    /// That of the other arm.
    pub other: Option<Function>,
}

/// The candidates that the windows confirm, with their counts, and a sentence about each of the first
/// others. Without windows none is confirmed, and the error says why there are none. `instructions` are those of whole runs,
/// where they were counted.
pub(super) fn confirm(
    candidates: Vec<Candidate>,
    windows: Result<&[ArmWindows; 2], String>,
    ledgers: &[Ledger],
    instructions: Option<[f64; 2]>,
) -> (Vec<Cause>, Vec<String>) {
    const MOST_SENTENCES: usize = 3;
    let (mut causes, mut sentences) = (Vec::new(), Vec::new());
    let all = windows
        .as_ref()
        .ok()
        .map(|both| both.each_ref().map(|windows| Tally::of(windows, windows.in_all().iter())));
    for Candidate { mut cause, function, other } in candidates {
        let site = &cause.finding.site;
        let why_not = match &windows {
            Err(reason) => Some(format!("it could not be counted: {reason}")),
            Ok(both) => {
                let here = &both[cause.arm.index()];
                let insns = here.insns(function.start, function.end());
                let load = insns.get(&site.svma).copied().unwrap_or_default();
                let there = &both[1 - cause.arm.index()];
                let result = Counted {
                    executions: load.executions,
                    blocked: load.events_of(Mechanism::BlockedLoads),
                    here: Tally::of(here, insns.values()),
                    there: other.map(|f| Tally::of(there, there.insns(f.start, f.end()).values())),
                };
                let arms = [cause.arm.index(), 1 - cause.arm.index()];
                let elsewhere = || {
                    let all = all.as_ref()?;
                    let there = result.there.as_ref().map_or(0, |tally| tally.blocked);
                    let function = [result.here.blocked, there];
                    let instructions = instructions.unwrap_or([1.0; 2]);
                    is_elsewhere(function, arms.map(|n| &all[n]), arms.map(|n| instructions[n]))
                };
                let why_not = result
                    .acquits()
                    .or_else(elsewhere)
                    .or_else(|| cannot_pay(ledgers, &site.function));
                cause.counted = Some(result);
                why_not
            }
        };
        match why_not {
            None => {
                cause.finding.grade = cause.finding.grade.max(Grade::Counted);
                causes.push(cause);
            }
            Some(why) if sentences.len() < MOST_SENTENCES => sentences.push(format!(
                "the load at {} in {} has the shape of a store-forwarding conflict and is not named \
                 as the cause: {why}",
                site.svma, site.function
            )),
            Some(_) => {}
        }
    }
    (causes, sentences)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(executions: u64, blocked: u64, here: u64, there: Option<u64>) -> Counted {
        let tally = |blocked| Tally { windows: 2, instructions: 100_000, blocked };
        Counted { executions, blocked, here: tally(here), there: there.map(tally) }
    }

    #[test]
    fn a_load_that_is_blocked_here_and_not_there_is_named() {
        assert_eq!(counted(1000, 990, 990, Some(0)).acquits(), None);
        assert_eq!(counted(1000, 990, 990, None).acquits(), None);
        assert_eq!(counted(1000, 20, 20, Some(13)).acquits(), None);
    }

    #[test]
    fn what_the_other_build_has_elsewhere_is_acquitted() {
        let tally = |blocked| Tally { windows: 4, instructions: 1_000_000, blocked };
        let says = |in_other: u64, instructions| {
            is_elsewhere([50_000, 0], [&tally(50_000), &tally(in_other)], instructions).is_some()
        };
        assert!(!says(0, [1.0, 1.0]) && !says(24_000, [1.0, 1.0]));
        assert!(says(26_000, [1.0, 1.0]) && says(50_000, [1.0, 1.0]));
        // Twice the instructions, half of which have such loads as often.
        assert!(says(25_000, [1.0, 2.0]) && !says(50_000, [2.0, 1.0]));
        // Other loads of both builds are no matter.
        let beside = |blocked| Tally { blocked, ..tally(0) };
        assert!(
            is_elsewhere([50_000, 0], [&beside(950_000), &beside(900_000)], [1.0; 2]).is_none()
        );
    }

    #[test]
    fn what_is_rare_or_in_both_builds_is_acquitted() {
        let why = |c: Counted| c.acquits().unwrap_or_default();
        assert!(why(counted(49, 49, 49, None)).contains("only 49 times"));
        assert!(why(counted(1000, 19, 19, Some(0))).contains("blocked in 19 of 1000"));
        assert!(why(counted(7_400_000, 3, 3, Some(0))).contains("blocked in 3 of"));
        assert!(why(counted(1000, 990, 990, Some(990))).contains("both builds"));
        assert!(why(counted(1000, 990, 990, Some(661))).contains("both builds"));
    }
}
