//! The proof: a run of the slow build without its blocked loads.
//!
//! Each load that the windows of the slow build found blocked, and those of the fast one did not, is replaced
//! in the running process by the same load in pieces that the stores can serve ([`split_loads`]): the *cure*.
//! The *control* takes the same detours and loads as before. Both, and both builds held and let go in the same
//! way, run interleaved. What the cure brings back and the control does not is what blocked loads cost,
//! whatever any model says of it; and where the cure brings back nothing, they are not the cause.
//! It needs neither source nor compiler, and no file is written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::counts::LEAST_BLOCKED;
use super::ledger::LEAST_RATIO;
use super::processor::ProcessorTime;
use super::windows::{ArmWindows, BothArms, is_interrupt};
use super::{Bench, Cause, Explanation, FunctionRow, Share, Whole};
use crate::code::x86::{Patch, split_loads};
use crate::code::{Architecture, DebugInfo, Image};
use crate::compare::Arm;
use crate::model::{Grade, Measurement, Site, Svma, Unit};
use crate::sim::Sites;
use crate::sim::core::{Account, Mechanism};
use crate::stats::signed_rank::{self, Interval};
use crate::trace::child::Exit;
use crate::trace::engine::EngineError;

/// Rounds: an interval needs six, and more than twice that tell little more.
const ROUNDS: [usize; 2] = [6, 14];
/// What all rounds together should take, and what they may take where six need longer.
const ROUNDS_NS: [f64; 2] = [15e9, 120e9];
/// The processes of a round: fast build, slow build, control, cure.
const ARMS: usize = 4;
/// Loads that are replaced, at the most.
const MOST_SITES: usize = 24;
/// A load is worth replacing if it has this part of the blocked loads of its place.
const LEAST_OF_PLACE: f64 = 0.03;
/// What a blocked load costs at the most, by every probe so far.
const MOST_BLOCKED_CYCLES: f64 = 40.0;
/// If they all cost that and it were less than this part of the difference, in per cent, nothing is tried.
const LEAST_POSSIBLE: f64 = 15.0;
/// The part of the difference that a cure must bring back to be a proof, in per cent: all of its interval.
const LEAST_RECOVERED: f64 = 50.0;
/// Below this, all of its interval, what was removed is not the cause.
const NOT_RECOVERED: f64 = 25.0;
/// The control may bring back this part of what the cure does.
const MOST_OF_CONTROL: f64 = 0.3;

/// What came of removing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CureVerdict {
    /// Without it most of the difference is gone, and the control changes little: it is the cause.
    Confirmed,
    /// Without it the difference is what it was: it is not the cause.
    Refuted,
    /// Some of the difference is gone, or the runs do not decide.
    Open,
}

/// Runs of the slow build without a mechanism.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Cure {
    /// What was removed.
    pub mechanism: Mechanism,
    /// The build that it was removed from.
    pub arm: Arm,
    /// The instructions that were replaced, the one that has it most often first.
    pub sites: Vec<Site>,
    /// What the cure brings back.
    pub recovered: Share,
    /// What the same detours bring back without the cure.
    pub control: Share,
    /// Processor time of a run of fast build, slow build, control and cure, in nanoseconds.
    pub times: [Measurement; ARMS],
    /// What follows.
    pub verdict: CureVerdict,
}

impl Cure {
    /// Whether the instruction at `svma` is one that was replaced.
    pub(super) fn has(&self, svma: Svma) -> bool {
        self.sites.iter().any(|site| site.svma == svma)
    }
}

/// A load that is blocked in the slow build.
#[derive(Clone, Copy, Debug, PartialEq)]
struct BlockedLoad {
    svma: Svma,
    blocked: u64,
    piece_bytes: u32,
}

/// Removes what can be removed, and sees what that brings back; `None` when there is nothing that is worth
/// it, the inner error when it cannot be tried.
///
/// # Errors
/// Only when the user wants an end.
pub(super) fn attempt(
    bench: &mut dyn Bench,
    (image, debug): (&Image, &DebugInfo<'_>),
    rows: &[FunctionRow],
    windows: &BothArms,
    slow: Arm,
    time: &ProcessorTime<'_>,
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Option<Result<Cure, String>>, EngineError> {
    let loads = blocked_loads(rows, &windows.arms, slow, time.difference_ns());
    if loads.is_empty() || image.architecture() != Architecture::X86_64 {
        return Ok(None);
    }
    let (patches, replaced) = match patches(image, loads) {
        Ok(found) => found,
        Err(why) => return Ok(Some(Err(why))),
    };
    let round_ns = ARMS as f64 * 0.5 * time.of_runs_ns().iter().sum::<f64>();
    if round_ns * ROUNDS[0] as f64 > ROUNDS_NS[1] {
        let minutes = round_ns * ROUNDS[0] as f64 / 60e9;
        return Ok(Some(Err(format!("that would take {minutes:.0} minutes"))));
    }
    let rounds = ((ROUNDS_NS[0] / round_ns.max(1.0)) as usize).clamp(ROUNDS[0], ROUNDS[1]);
    let nothing = Patch::default();
    let arms: [(Arm, &Patch); ARMS] =
        [(slow.other(), &nothing), (slow, &nothing), (slow, &patches[0]), (slow, &patches[1])];
    let times = match run_rounds(bench, &arms, rounds, progress) {
        Ok(times) => times,
        Err(Failed::Engine(error)) if is_interrupt(&error) => return Err(error),
        Err(Failed::Engine(error)) => return Ok(Some(Err(error.to_string()))),
        Err(Failed::Differs(what)) => return Ok(Some(Err(what))),
    };
    let mut all = Sites::new(image, debug);
    let sites = replaced.iter().filter_map(|load| all.site(load.svma)).collect();
    Ok(Some(judged(&times, slow, sites)))
}

/// The loads that are blocked clearly more often in the slow build, if that can make up a difference.
fn blocked_loads(
    rows: &[FunctionRow],
    arms: &[ArmWindows; 2],
    slow: Arm,
    difference_ns: f64,
) -> Vec<BlockedLoad> {
    let mut found = Vec::new();
    let holds =
        |row: &&FunctionRow| row.share_of_difference.percent.value >= super::cause::LEAST_PART;
    for row in rows.iter().filter(holds) {
        let Some(function) = row.place.function(slow) else { continue };
        let insns = arms[slow.index()].insns(function.start, function.end());
        let here: Account = insns.values().sum();
        let there: Account = arms[1 - slow.index()].in_place(slow.other(), &row.place).iter().sum();
        let blocked = |account: &Account| account.events_of(Mechanism::BlockedLoads) as f64;
        let in_a_run = |account: &Account, arm: Arm| {
            let executed = row.instructions.map_or(account.executions, |both| both[arm.index()]);
            blocked(account) * executed as f64 / account.executions.max(1) as f64
        };
        if in_a_run(&here, slow) <= LEAST_RATIO * in_a_run(&there, slow.other()) {
            continue;
        }
        let time_ns = if slow == Arm::A { row.before.value } else { row.after.value };
        let most = time_ns * blocked(&here) * MOST_BLOCKED_CYCLES / here.cycles.max(1) as f64;
        if 100.0 * most < LEAST_POSSIBLE * difference_ns.abs() {
            continue;
        }
        found.extend(insns.iter().filter_map(|(svma, account)| {
            let events = account.events_of(Mechanism::BlockedLoads);
            let is_often = events as f64 >= LEAST_BLOCKED * account.executions as f64
                && events as f64 >= LEAST_OF_PLACE * blocked(&here);
            // Between two edges of stores there is at most one store to ask.
            let piece_bytes = match account.store_edges {
                0 => 0,
                edges => {
                    let positions = (1..64).filter(|n| edges >> n & 1 != 0);
                    positions.map(|n: u32| 1 << n.trailing_zeros()).min().unwrap_or(0)
                }
            };
            is_often.then_some(BlockedLoad { svma: *svma, blocked: events, piece_bytes })
        }));
    }
    found.sort_by_key(|load| (std::cmp::Reverse(load.blocked), load.svma));
    found.truncate(MOST_SITES);
    found
}

/// Control and cure for those loads that can be replaced; why, when none can.
fn patches(
    image: &Image,
    mut loads: Vec<BlockedLoad>,
) -> Result<([Patch; 2], Vec<BlockedLoad>), String> {
    let mut refused = Vec::new();
    loop {
        let pieces: BTreeMap<Svma, u32> =
            loads.iter().map(|load| (load.svma, load.piece_bytes)).collect();
        if pieces.is_empty() {
            return Err(refused.join("; "));
        }
        match split_loads(image, &pieces) {
            Ok(both) if both.iter().all(Patch::runs_here) => return Ok((both, loads)),
            Ok(_) => {
                return Err("this processor lacks instructions that it needs (BMI2, SSE4.1)".into());
            }
            Err((svma, error)) => {
                refused.push(format!("the load at {svma} cannot be replaced: {error}"));
                loads.retain(|load| load.svma != svma);
            }
        }
    }
}

enum Failed {
    Engine(EngineError),
    Differs(String),
}

/// Processor time of each process of each round, in nanoseconds.
fn run_rounds(
    bench: &mut dyn Bench,
    arms: &[(Arm, &Patch); ARMS],
    rounds: usize,
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Vec<[f64; ARMS]>, Failed> {
    let mut times = Vec::with_capacity(rounds);
    let mut first: Option<Exit> = None;
    // One round more than is counted: the first warms everything up.
    for round in 0..=rounds {
        let mut time = [0.0; ARMS];
        for n in 0..ARMS {
            progress((round * ARMS + n) as u32, ((rounds + 1) * ARMS) as u32);
            // Every process comes behind every other, and in every place.
            let which =
                if round % 2 == 0 { (round / 2 + n) % ARMS } else { (round / 2 + ARMS - n) % ARMS };
            let (arm, patch) = arms[which];
            let exit = bench.run_patched(arm, patch, round).map_err(Failed::Engine)?;
            time[which] = (exit.user_ns + exit.system_ns) as f64;
            if arm == arms[ARMS - 1].0 {
                match &first {
                    None if patch.is_empty() => first = Some(exit),
                    Some(first)
                        if exit.status != first.status
                            || exit.stdout.digest != first.stdout.digest =>
                    {
                        return Err(Failed::Differs(match patch.is_empty() {
                            true => "its output is not the same in every run".into(),
                            false => format!(
                                "with the loads replaced it printed something else or ended otherwise ({})",
                                exit.status
                            ),
                        }));
                    }
                    _ => {}
                }
            }
        }
        if round > 0 {
            times.push(time);
        }
    }
    Ok(times)
}

fn judged(times: &[[f64; ARMS]], slow: Arm, sites: Vec<Site>) -> Result<Cure, String> {
    let differences =
        |a: usize, b: usize| -> Vec<f64> { times.iter().map(|t| t[a] - t[b]).collect() };
    let (Some(whole), Some(cure), Some(control)) = (
        signed_rank::interval(&differences(1, 0)),
        signed_rank::interval(&differences(1, 3)),
        signed_rank::interval(&differences(1, 2)),
    ) else {
        return Err("there were no runs".into());
    };
    if whole.low <= 0.0 {
        return Err(format!(
            "while it was tried the slow build took {:.1} ms [{:.1}, {:.1}] longer than the fast one: too \
             uncertain to be divided",
            whole.centre / 1e6,
            whole.low / 1e6,
            whole.high / 1e6
        ));
    }
    let share = |part: &Interval| Share {
        percent: Measurement {
            value: 100.0 * part.centre / whole.centre,
            unit: Unit::Percent,
            low: 100.0 * part.low / whole.centre,
            high: 100.0 * part.high / whole.centre,
            n: times.len(),
            how: "runs with and without, in turn: Hodges-Lehmann, 95 % signed-rank interval".into(),
        },
        of: Whole::DifferenceInProcessorTime,
    };
    let (recovered, control) = (share(&cure), share(&control));
    let verdict = verdict(&recovered.percent, &control.percent);
    let of_arm = |n: usize| {
        let values: Vec<f64> = times.iter().map(|t| t[n]).collect();
        let [low, value, high] = crate::stats::robust::quartiles(&values).unwrap_or_default();
        let how = "median, quartiles".into();
        Measurement { value, unit: Unit::Nanoseconds, low, high, n: values.len(), how }
    };
    let times = [of_arm(0), of_arm(1), of_arm(2), of_arm(3)];
    Ok(Cure {
        mechanism: Mechanism::BlockedLoads,
        arm: slow,
        sites,
        recovered,
        control,
        times,
        verdict,
    })
}

fn verdict(recovered: &Measurement, control: &Measurement) -> CureVerdict {
    if recovered.high < NOT_RECOVERED {
        CureVerdict::Refuted
    } else if recovered.low >= LEAST_RECOVERED
        && control.high < recovered.low
        && control.value <= MOST_OF_CONTROL * recovered.value
    {
        CureVerdict::Confirmed
    } else {
        CureVerdict::Open
    }
}

/// Enters what came of it: what is proved is the cause, what is refuted is none. A sentence about what that
/// leaves open.
pub(super) fn apply(
    explanation: &mut Explanation,
    tried: Option<Result<Cure, String>>,
) -> Option<String> {
    let removed = Mechanism::BlockedLoads;
    let names_it = |e: &Explanation| {
        let named = e.named_ledger().and_then(|ledger| ledger.named());
        !e.causes.is_empty() || named.is_some_and(|line| line.mechanism == removed)
    };
    let cure = match tried? {
        Ok(cure) => cure,
        Err(why) => {
            return names_it(explanation)
                .then(|| format!("what a run without {removed} takes was not measured: {why}"));
        }
    };
    let was_named = names_it(explanation);
    let has = |cause: &Cause| cure.has(cause.finding.site.svma);
    match cure.verdict {
        CureVerdict::Confirmed => {
            explanation.causes.retain(has);
            for cause in &mut explanation.causes {
                cause.finding.grade = Grade::Confirmed;
            }
            // Another mechanism that the model names is not what was proved.
            rename(explanation, |mechanism| mechanism == removed);
        }
        CureVerdict::Refuted => {
            explanation.causes.retain(|cause| !has(cause));
            rename(explanation, |mechanism| mechanism != removed);
        }
        CureVerdict::Open => {}
    }
    let said = (cure.verdict == CureVerdict::Refuted && was_named)
        .then(|| format!("{removed} are not the cause: without them {} is gone", cure.recovered));
    explanation.cure = Some(cure);
    said
}

/// Leaves only those mechanisms named that may be.
fn rename(explanation: &mut Explanation, may_be: impl Fn(Mechanism) -> bool) {
    let lines = explanation.ledgers.iter_mut().flat_map(|ledger| &mut ledger.lines);
    lines.for_each(|line| line.is_named &= may_be(line.mechanism));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: f64, spread: f64) -> Measurement {
        let (low, high) = (value - spread, value + spread);
        Measurement { value, unit: Unit::Percent, low, high, n: 8, how: String::new() }
    }

    #[test]
    fn only_what_the_cure_brings_back_and_the_control_does_not_is_proof() {
        use CureVerdict::*;
        for (recovered, control, want) in [
            (of(99.0, 3.0), of(1.0, 3.0), Confirmed),
            (of(60.0, 10.0), of(0.0, 3.0), Confirmed),
            (of(60.0, 10.1), of(0.0, 3.0), Open),
            (of(80.0, 3.0), of(24.0, 3.0), Confirmed),
            (of(80.0, 3.0), of(24.1, 3.0), Open),
            (of(80.0, 20.0), of(20.0, 41.0), Open),
            (of(0.0, 24.9), of(0.0, 3.0), Refuted),
            (of(-40.0, 10.0), of(-30.0, 3.0), Refuted),
            (of(0.0, 25.0), of(0.0, 3.0), Open),
        ] {
            assert_eq!(verdict(&recovered, &control), want, "{recovered} {control}");
        }
    }

    #[test]
    fn a_difference_that_is_gone_has_no_parts() {
        let rounds = |slow: f64| (0..8).map(move |n| [100.0 + f64::from(n), slow, slow, 101.0]);
        let judged = |slow| judged(&rounds(slow).collect::<Vec<_>>(), Arm::B, Vec::new());
        let cure = judged(200.0).unwrap();
        assert_eq!(cure.verdict, CureVerdict::Confirmed);
        assert!((95.0..110.0).contains(&cure.recovered.percent.value), "{:?}", cure.recovered);
        assert!(judged(104.0).unwrap_err().contains("too uncertain"));
    }
}
