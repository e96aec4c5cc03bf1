//! How often a candidate happens in windows of both builds: a shape alone is no cause.
//!
//! The function that holds the difference is followed in both builds, and the model of the store
//! buffer counts which loads were blocked. A candidate is named only if its own load was blocked, and
//! if the function of the slow build has clearly more blocked loads per instruction than that of the
//! fast one. Loads that come long behind their store count as free: a store has left the buffer by
//! then (probe `store-forwarding`: from 64 instructions on).

use schemars::JsonSchema;
use serde::Serialize;

use super::{Bench, Cause};
use crate::code::{Function, Image};
use crate::compare::Arm;
use crate::machine::Design;
use crate::model::{FileOffset, Grade, Svma};
use crate::sim::store_buffer::LoadSite;
use crate::trace::engine::EngineError;

/// Arrivals at the function that each of the windows of an arm lets pass first.
const SKIPS: [u64; 2] = [0, 100];
/// Distances up to 64 instructions, in the model's buckets.
const NEAR_BUCKETS: usize = 7;
/// A load that was blocked less often than this, in parts of its executions, costs next to nothing.
const LEAST_BLOCKED: f64 = 0.02;
/// The slow build must have so many times the blocked loads per instruction of the fast one.
const LEAST_RATIO: f64 = 1.5;
/// Executions that a share is worth something from.
const LEAST_EXECUTIONS: u64 = 50;

/// What one window of one arm counted, in the program's own file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowCount {
    /// Instructions followed.
    pub instructions: u64,
    /// The loads that met a store in flight or were blocked, by their place in the file.
    pub loads: Vec<(FileOffset, LoadCount)>,
}

/// What became of a load instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadCount {
    /// Times that it ran.
    pub executions: u64,
    /// Times that it was blocked by a store at most 64 instructions before it.
    pub blocked: u64,
}

impl LoadCount {
    /// From the model's count.
    pub(super) fn of(site: &LoadSite) -> Self {
        let near = site.distances.instructions.iter().take(NEAR_BUCKETS).sum();
        Self { executions: site.executions, blocked: near }
    }
}

/// The windows of one arm together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Tally {
    /// Windows that were followed.
    pub windows: u32,
    /// Instructions in them.
    pub instructions: u64,
    /// Blocked loads of the function in them, by stores at most 64 instructions before.
    pub blocked: u64,
}

impl Tally {
    /// Blocked loads in 1000 instructions.
    #[must_use]
    pub fn per_thousand(&self) -> f64 {
        1000.0 * self.blocked as f64 / self.instructions.max(1) as f64
    }
}

/// A candidate counted in both builds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Counted {
    /// Times that the load ran in the windows of its own arm.
    pub executions: u64,
    /// Times that it was blocked by a store at most 64 instructions before it.
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
        if self.blocked_share() < LEAST_BLOCKED {
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

/// Something that the code's shape makes suspect, with the functions to be followed.
pub(super) struct Candidate {
    pub cause: Cause,
    /// Its function.
    pub function: Function,
    /// That of the other arm.
    pub other: Option<Function>,
}

/// The candidates that the counts confirm, with their counts, and a sentence about each of the first
/// others.
///
/// # Errors
/// Only when the user wants an end.
pub(super) fn confirm(
    candidates: Vec<Candidate>,
    images: &[Image; 2],
    bench: &mut dyn Bench,
    profile: &Design,
    progress: &mut dyn FnMut(u32, u32),
) -> Result<(Vec<Cause>, Vec<String>), EngineError> {
    const MOST_FUNCTIONS: usize = 2;
    const MOST_SENTENCES: usize = 3;
    let (mut causes, mut sentences) = (Vec::new(), Vec::new());
    let mut counted: Vec<(Svma, BothArms)> = Vec::new();
    for Candidate { mut cause, function, other } in candidates {
        let known = counted.iter().position(|(start, _)| *start == function.start);
        let at = match known {
            Some(at) => at,
            None if counted.len() < MOST_FUNCTIONS => {
                let functions = match cause.arm {
                    Arm::A => [Some(&function), other.as_ref()],
                    Arm::B => [other.as_ref(), Some(&function)],
                };
                let both = windows(functions, images, bench, profile, progress)?;
                counted.push((function.start, both));
                counted.len() - 1
            }
            None => continue,
        };
        let site = &cause.finding.site;
        let why_not = match &counted[at].1 {
            Err(reason) => Some(format!("it could not be counted: {reason}")),
            Ok(both) => {
                let here = both[cause.arm.index()].as_ref();
                let there = both[1 - cause.arm.index()].as_ref().map(|w| w.tally.clone());
                let count = here.and_then(|w| w.load(site.svma)).unwrap_or_default();
                let result = Counted {
                    executions: count.executions,
                    blocked: count.blocked,
                    here: here.map(|w| w.tally.clone()).unwrap_or_default(),
                    there,
                };
                let why_not = result.acquits();
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
    Ok((causes, sentences))
}

/// The windows of a function in each arm that has it, or why there are none.
type BothArms = Result<[Option<Windows>; 2], String>;

/// All windows of one function in one arm.
struct Windows {
    tally: Tally,
    loads: Vec<(Svma, LoadCount)>,
}

impl Windows {
    fn load(&self, svma: Svma) -> Option<LoadCount> {
        let runs = self.loads.iter().filter(|(at, _)| *at == svma).map(|(_, count)| count);
        runs.copied().reduce(|a, b| LoadCount {
            executions: a.executions + b.executions,
            blocked: a.blocked + b.blocked,
        })
    }
}

/// Windows of the function in both arms; the inner error says why there are none.
fn windows(
    functions: [Option<&Function>; 2],
    images: &[Image; 2],
    bench: &mut dyn Bench,
    profile: &Design,
    progress: &mut dyn FnMut(u32, u32),
) -> Result<BothArms, EngineError> {
    let of = (SKIPS.len() * functions.iter().flatten().count()) as u32;
    let mut done = 0;
    let mut both = [None, None];
    for arm in [Arm::A, Arm::B] {
        let Some(function) = functions[arm.index()] else { continue };
        let mut all = Windows { tally: Tally::default(), loads: Vec::new() };
        for skip in SKIPS {
            progress(done, of);
            done += 1;
            let window = match bench.count(arm, function.start, skip, profile) {
                Ok(window) => window,
                Err(error) if is_interrupt(&error) => return Err(error),
                // Not called so often: the first window is all there is.
                Err(EngineError::NeverStarted(_)) if skip > 0 => break,
                Err(error) => return Ok(Err(error.to_string())),
            };
            all.tally.windows += 1;
            all.tally.instructions += window.instructions;
            for (offset, count) in window.loads {
                let Some(svma) = images[arm.index()].svma_of(offset) else { continue };
                if (function.start..function.end()).contains(&svma) {
                    all.tally.blocked += count.blocked;
                    all.loads.push((svma, count));
                }
            }
        }
        both[arm.index()] = Some(all);
    }
    Ok(Ok(both))
}

pub(super) fn is_interrupt(error: &EngineError) -> bool {
    use crate::trace::child::ChildError;
    matches!(error, EngineError::Child(ChildError::Interrupted))
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
    fn what_is_rare_or_in_both_builds_is_acquitted() {
        let why = |c: Counted| c.acquits().unwrap_or_default();
        assert!(why(counted(49, 49, 49, None)).contains("only 49 times"));
        assert!(why(counted(1000, 19, 19, Some(0))).contains("blocked in 19 of 1000"));
        assert!(why(counted(7_400_000, 3, 3, Some(0))).contains("blocked in 3 of"));
        assert!(why(counted(1000, 990, 990, Some(990))).contains("both builds"));
        assert!(why(counted(1000, 990, 990, Some(661))).contains("both builds"));
    }
}
