//! The proof: a run of the slow build without its blocked loads, string instructions or false dependencies, or with its
//! functions where the fast build has them.
//!
//! Each load that the windows of the slow build found blocked, and those of the fast one did not, is replaced
//! in the running process by the same load in pieces that the stores can serve
//! ([`split_loads`](crate::code::x86::split_loads)), each string instruction by a loop
//! ([`string_loops`](crate::code::x86::string_loops)), each instruction that waited for what its destination held gets it anew
//! ([`without_false_dependencies`](crate::code::x86::without_false_dependencies)): the *cure*. The *control* takes the same detours and does
//! as before. Both, and both builds held and let go in the same way, run interleaved. What the cure brings back
//! and the control does not is what they cost, whatever any model says; and where the cure of blocked loads
//! brings back nothing, they are not the cause. Neither source nor compiler is needed, and no file is written.

use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bench::or_why;
use super::ledger::{Ledger, Together};
use super::removable::{REMOVABLE, Removable, Search, Target};
use super::windows::BothArms;
use super::{Bench, Cause, Explanation, FunctionRow, Share, Whole, work};
use crate::code::{DebugInfo, Image};
use crate::compare::{AT_ONCE, Arm, typical};
use crate::model::{Grade, Measurement, Site, Svma, Unit};
use crate::sim::Sites;
use crate::sim::core::Mechanism;
use crate::stats::robust::median;
use crate::stats::signed_rank::{self, Interval};
use crate::trace::engine::{Change, EngineError};

/// Rounds: an interval needs six, and more than twice that tell little more.
const ROUNDS: [usize; 2] = [6, 14];
/// What all rounds together should take, and what they may take where six need longer.
const ROUNDS_NS: [f64; 2] = [15e9, 120e9];
/// The same of rounds without something that was met in the slow build, and not just tried.
const WITHOUT_WHAT_WAS_MET_NS: f64 = 300e9;
/// The processes of a round: fast build, slow build, control, cure.
pub(super) const ARMS: usize = 4;
/// The part of the difference that a cure must bring back to be a proof, in per cent: all of its interval. It takes the
/// same detours as the control: what these cost is not what the mechanism does not.
const LEAST_RECOVERED: f64 = 50.0;
/// The same where a model that agrees with the clock foretold what it brings back, within these factors, and names it.
const LEAST_FORETOLD: f64 = 40.0;
const AS_FORETOLD: [f64; 2] = [0.8, 1.25];
/// Below this, all of its interval, what was removed is not the cause.
const NOT_RECOVERED: f64 = 25.0;
/// Where the control takes longer by this part of the difference, in per cent, the detours may hide what a cure saves.
const MOST_OVERHEAD: f64 = 10.0;
/// A round in which a process takes longer than in most by this part of the difference was disturbed.
const DISTURBED: f64 = 0.25;
/// The control may bring back, or cost, this part of what the cure brings back.
const MOST_OF_CONTROL: f64 = 0.3;

/// What came of removing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CureVerdict {
    /// Without it most of the difference is gone, or as much of it as the model foretold, and the control changes little: it
    /// is the cause.
    Confirmed,
    /// Without it the difference is what it was: it is not the cause.
    Refuted,
    /// A part of the difference is gone for certain, and the control changes little: it is one cause of several, or the
    /// runs went without some of it.
    Partly,
    /// Some of the difference may be gone: the runs do not decide.
    Open,
}

impl CureVerdict {
    /// Whether it causes a part of the difference at least.
    pub(super) fn is_proof(self) -> bool {
        matches!(self, Self::Confirmed | Self::Partly)
    }
}

/// What a run goes without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Removed {
    /// The places where functions lie: they are placed as in the fast build.
    CodePlacement,
    /// The places of functions within a line of code: they are placed where that build is fastest.
    CodeAlignment,
    /// Numbers too small for the usual form: they become zero.
    DenormalNumbers,
    /// Lines of memory, or locks, that threads on several processors share: all threads are on one.
    SharedLines,
    /// Huge pages that the kernel gives one build and not the other: none are given.
    HugePages,
    /// A mechanism of the model.
    #[serde(untagged)]
    Mechanism(Mechanism),
}

impl fmt::Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CodePlacement => f.write_str("code placement"),
            Self::CodeAlignment => f.write_str("code alignment"),
            Self::DenormalNumbers => f.write_str("denormal numbers"),
            Self::SharedLines => {
                f.write_str("lines or locks that threads on several processors share")
            }
            Self::HugePages => f.write_str("pages of 4 KiB where the fast build has huge ones"),
            Self::Mechanism(mechanism) => mechanism.fmt(f),
        }
    }
}

/// Runs of the slow build without a mechanism.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cure {
    /// What was removed.
    pub mechanism: Removed,
    /// The build that it was removed from.
    pub arm: Arm,
    /// The library that the instructions are in; absent for the program itself.
    pub library: Option<PathBuf>,
    /// The instructions that were replaced, the one that has it most often first; the starts of functions that were
    /// placed elsewhere.
    pub sites: Vec<Site>,
    /// Of such functions, where they start in the slow build and in the fast one.
    pub placed: Vec<[Svma; 2]>,
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
    /// How far the first of the placed functions was moved on, in bytes.
    #[must_use]
    pub fn moved_bytes(&self) -> u64 {
        let first = self.placed.first();
        first.and_then(|[here, there]| there.distance_from(*here)).unwrap_or(0)
    }

    /// Whether the program's instruction at `svma` is one that was replaced.
    pub(super) fn has(&self, svma: Svma) -> bool {
        self.library.is_none() && self.sites.iter().any(|site| site.svma == svma)
    }
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
    run_ns: [f64; 2],
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Option<Result<Cure, String>>, EngineError> {
    let mut first = None;
    for removable in &REMOVABLE {
        let search =
            Search { removable, rows, windows, slow, difference_ns: run_ns[1] - run_ns[0] };
        let tried = match search.in_program() {
            targets if !targets.is_empty() => {
                remove(bench, (image, debug), removable, targets, slow, run_ns, progress)?
            }
            _ => match search.in_libraries() {
                Some((library, targets)) => {
                    let of = (&library, &DebugInfo::of(&library));
                    let path = Some(library.path().to_owned());
                    remove(bench, of, removable, targets, slow, run_ns, progress)?
                        .map(|cure| Cure { library: path, ..cure })
                }
                None => continue,
            },
        };
        if tried.as_ref().is_ok_and(|cure| cure.verdict == CureVerdict::Confirmed) {
            return Ok(Some(tried));
        }
        first.get_or_insert(tried);
    }
    Ok(first)
}

fn remove(
    bench: &mut dyn Bench,
    (image, debug): (&Image, &DebugInfo<'_>),
    removable: &Removable,
    targets: Vec<Target>,
    slow: Arm,
    run_ns: [f64; 2],
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Result<Cure, String>, EngineError> {
    let ([control, cure], replaced) = match removable.patches(image, targets) {
        Ok(found) => found,
        Err(why) => return Ok(Err(why)),
    };
    let what = (Removed::Mechanism(removable.mechanism), removable.is_free(&replaced));
    let (fast, as_is) = ((slow.other(), Change::Nothing), (slow, Change::Nothing));
    let [control, cure] = [&control, &cure].map(|patch| (slow, Change::Code(patch)));
    let times = run(bench, [fast, as_is, control, cure], run_ns, progress)?;
    let tried = times.and_then(|times| judged(&times, what, slow));
    let mut all = Sites::new(image, debug);
    let sites = replaced.iter().filter_map(|target| all.site(target.svma)).collect();
    Ok(tried.map(|cure| Cure { sites, ..cure }))
}

/// Runs fast build, slow build, control and cure in rounds; the inner error says why that cannot be.
pub(super) fn run(
    bench: &mut dyn Bench,
    arms: [Changed<'_>; ARMS],
    run_ns: [f64; 2],
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Result<Vec<[f64; ARMS]>, String>, EngineError> {
    let round_ns = ARMS as f64 * 0.5 * run_ns.iter().sum::<f64>();
    let most_ns = match arms[ARMS - 1].1 {
        Change::FlushToZero(_) => WITHOUT_WHAT_WAS_MET_NS,
        _ => ROUNDS_NS[1],
    };
    let why_not =
        |bench: &dyn Bench, rounds: usize| takes_longer(bench, round_ns * rounds as f64, most_ns);
    if let Some(why) = why_not(bench, ROUNDS[0]) {
        return Ok(Err(why));
    }
    let all_ns = ROUNDS_NS[0].min(bench.left().ns);
    let rounds = ((all_ns / round_ns.max(1.0)) as usize).clamp(ROUNDS[0], ROUNDS[1]);
    let mut all = run_rounds(bench, &arms, rounds, progress)?;
    if let Ok(times) = &mut all {
        let left = ROUNDS[1] - rounds;
        let fits = why_not(bench, left).is_none();
        // One such round of six makes all of the interval; of fourteen, it has no say.
        if left > 0 && fits && is_disturbed(times) {
            match run_rounds(bench, &arms, left, progress)? {
                Ok(more) => times.extend(more),
                Err(why) => return Ok(Err(why)),
            }
        }
    }
    Ok(all)
}

/// Why runs that take so long in all are not made, if they are not.
pub(super) fn takes_too_long(bench: &dyn Bench, ns: f64) -> Option<String> {
    takes_longer(bench, ns, ROUNDS_NS[1])
}

fn takes_longer(bench: &dyn Bench, ns: f64, most_ns: f64) -> Option<String> {
    let too_long = (ns > most_ns).then(|| format!("that would take {:.0} minutes", ns / 60e9));
    too_long.or_else(|| bench.left().too_long(ns))
}

/// By how much one process of a round took longer than another, in each.
fn differences(times: &[[f64; ARMS]], a: usize, b: usize) -> Vec<f64> {
    times.iter().map(|t| t[a] - t[b]).collect()
}

/// Whether a process took so much longer or less in one of the rounds than in most that few rounds tell nothing.
fn is_disturbed(times: &[[f64; ARMS]]) -> bool {
    let difference = median(&differences(times, 1, 0)).unwrap_or(0.0).abs();
    [0, 2, 3].into_iter().any(|n| {
        let all = differences(times, 1, n);
        let typical = median(&all).unwrap_or(0.0);
        all.iter().any(|it| (it - typical).abs() > DISTURBED * difference)
    })
}

/// An arm with a change.
pub(super) type Changed<'a> = (Arm, Change<'a>);

/// Processor time of each process of each round, in nanoseconds; errors as in [`run`].
fn run_rounds(
    bench: &mut dyn Bench,
    arms: &[Changed<'_>; ARMS],
    rounds: usize,
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Result<Vec<[f64; ARMS]>, String>, EngineError> {
    let mut times = Vec::with_capacity(rounds);
    let slow = arms[ARMS - 1].0;
    let mut first = None;
    // One round more than is counted: the first warms everything up.
    for round in 0..=rounds {
        let mut time = [0.0; ARMS];
        for n in 0..ARMS {
            progress((round * ARMS + n) as u32, ((rounds + 1) * ARMS) as u32);
            // Every process comes behind every other, and in every place.
            let which =
                if round % 2 == 0 { (round / 2 + n) % ARMS } else { (round / 2 + ARMS - n) % ARMS };
            let (arm, mut change) = arms[which];
            // The first run of the slow build says what the output is.
            if arm == slow && first.is_none() {
                change = Change::Nothing;
            }
            let exit = match or_why(bench.run_changed(arm, change, round))? {
                Ok(exit) => exit,
                Err(why) => return Ok(Err(why)),
            };
            time[which] = exit.processor_ns() as f64;
            if change == Change::OneProcessor && time[which] > AT_ONCE * exit.wall_ns as f64 {
                return Ok(Err("its threads ran on several processors all the same".into()));
            }
            let ended = (exit.status, exit.stdout.digest);
            if arm == slow && *first.get_or_insert(ended) != ended {
                let changed = match change {
                    Change::Nothing => {
                        return Ok(Err("its output is not the same in every run".into()));
                    }
                    Change::Code(_) => "its instructions replaced",
                    Change::FlushToZero(_) => "zero for denormal numbers",
                    Change::OneProcessor => "all threads on one processor",
                    Change::SmallPages => "no huge pages",
                };
                return Ok(Err(format!(
                    "with {changed} it printed something else or ended otherwise ({})",
                    exit.status
                )));
            }
        }
        if round > 0 {
            times.push(time);
        }
    }
    Ok(Ok(times))
}

pub(super) fn judged(
    times: &[[f64; ARMS]],
    (mechanism, is_free): (Removed, bool),
    slow: Arm,
) -> Result<Cure, String> {
    let interval = |a, b| signed_rank::interval(&differences(times, a, b));
    let (Some(whole), Some(cure), Some(control), Some(net)) =
        (interval(1, 0), interval(1, 3), interval(1, 2), interval(2, 3))
    else {
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
    let verdict = match verdict(&recovered.percent, &control.percent, &share(&net).percent) {
        // What is put in costs something itself: a loop may be as slow as what it replaces, and many pieces
        // have to be put together.
        CureVerdict::Refuted if !is_free => CureVerdict::Open,
        verdict => verdict,
    };
    Ok(Cure {
        mechanism,
        arm: slow,
        library: None,
        sites: Vec::new(),
        placed: Vec::new(),
        recovered,
        control,
        times: typical_times(times),
        verdict,
    })
}

pub(super) fn typical_times(times: &[[f64; ARMS]]) -> [Measurement; ARMS] {
    std::array::from_fn(|n| {
        typical(&times.iter().map(|t| t[n]).collect::<Vec<_>>(), Unit::Nanoseconds)
    })
}

/// `net` is what the cure brings back beyond the control.
fn verdict(recovered: &Measurement, control: &Measurement, net: &Measurement) -> CureVerdict {
    let is_hidden = control.value <= -MOST_OVERHEAD && net.high >= NOT_RECOVERED;
    let changes_little = changes_little(control, recovered);
    if recovered.high < NOT_RECOVERED && !is_hidden {
        CureVerdict::Refuted
    } else if recovered.low.max(net.low) >= LEAST_RECOVERED && changes_little {
        CureVerdict::Confirmed
    } else if recovered.low.min(net.low) >= NOT_RECOVERED && changes_little {
        CureVerdict::Partly
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
    let names = |e: &Explanation, removed| {
        let named = e.named_ledger().and_then(|ledger| ledger.named());
        removed == Removed::Mechanism(Mechanism::BlockedLoads) && !e.causes.is_empty()
            || named.is_some_and(|line| removed == Removed::Mechanism(line.mechanism))
    };
    let mut cure = match tried? {
        Ok(cure) => cure,
        Err(why) => {
            let all = REMOVABLE.iter().map(|removable| removable.mechanism);
            let named = all.into_iter().find(|it| names(explanation, Removed::Mechanism(*it)))?;
            return Some(format!("what a run without {named} takes was not measured: {why}"));
        }
    };
    let removed = cure.mechanism;
    let was_named = names(explanation, removed);
    if matches!(cure.verdict, CureVerdict::Partly | CureVerdict::Open)
        && is_foretold(&cure, &explanation.ledgers)
    {
        cure.verdict = CureVerdict::Confirmed;
    }
    let has = |cause: &Cause| cure.has(cause.finding.site.svma);
    match cure.verdict {
        CureVerdict::Confirmed => {
            explanation.causes.retain(has);
            for cause in &mut explanation.causes {
                cause.finding.grade = Grade::Confirmed;
            }
            // Another mechanism that the model names is not what was proved.
            rename(explanation, |mechanism| Removed::Mechanism(mechanism) == removed);
        }
        CureVerdict::Refuted => {
            explanation.causes.retain(|cause| !has(cause));
            rename(explanation, |mechanism| Removed::Mechanism(mechanism) != removed);
        }
        CureVerdict::Partly | CureVerdict::Open => {}
    }
    let said = (cure.verdict == CureVerdict::Refuted && was_named)
        .then(|| format!("{removed} are not the cause: without them {} is gone", cure.recovered));
    explanation.cure = Some(cure);
    said
}

/// Whether it brings back what the model, which names the same and agrees with the clock, says it would: what is left has
/// another reason, and is not so much that this one were none.
fn is_foretold(cure: &Cure, ledgers: &[Ledger]) -> bool {
    let (recovered, control) = (&cure.recovered.percent, &cure.control.percent);
    let named = ledgers.iter().find_map(Ledger::named).map(|line| line.mechanism);
    let named = named.filter(|it| Removed::Mechanism(*it) == cure.mechanism);
    let foretold = named.and_then(|it| Together::by(ledgers, it)).map_or(0.0, |all| all.without);
    let [least, most] = AS_FORETOLD.map(|factor| factor * foretold);
    recovered.low >= LEAST_FORETOLD
        && (least..=most).contains(&recovered.value)
        && changes_little(control, recovered)
}

/// Whether the control brings back little of what the cure does, and costs little.
fn changes_little(control: &Measurement, recovered: &Measurement) -> bool {
    control.high < recovered.low && control.value.abs() <= MOST_OF_CONTROL * recovered.value
}

/// Withdraws what was counted where the model contradicts the clock, or says that it is less than half of the difference,
/// and no run without it proves it: counts alone do not tell what something costs. A sentence about each.
pub(super) fn withdraw_unsupported(explanation: &mut Explanation) -> Vec<String> {
    if explanation.is_confirmed() {
        return Vec::new();
    }
    let ledgers = &explanation.ledgers;
    let agrees = |cause: &Cause| {
        let function = &cause.finding.site.function;
        ledgers.iter().find(|ledger| ledger.place == *function).map(|ledger| ledger.agrees)
    };
    let part = Together::by(ledgers, Mechanism::BlockedLoads).map_or(0.0, |all| all.without);
    let is_unsupported = |cause: &mut Cause| match agrees(cause) {
        Some(agrees) => !agrees || part < work::MOST,
        None => false,
    };
    let withdrawn: Vec<Cause> = explanation.causes.extract_if(.., is_unsupported).collect();
    let sentence = |cause: &Cause| {
        let site = &cause.finding.site;
        let counted = cause.counted.as_ref();
        let often = counted.map_or(String::new(), |it| {
            format!(" is blocked in {} of {} executions and", it.blocked, it.executions)
        });
        let why = match agrees(cause) {
            Some(true) => format!(
                "without all such loads the model of the core predicts {part:.0} % less of {}",
                Whole::DifferenceInProcessorTime
            ),
            _ => "the model of the core does not agree with the clock there".to_owned(),
        };
        format!(
            "the load at {} in {}{often} is not named as the cause: {why}, and no run without blocked loads \
             proves it",
            site.svma, site.function
        )
    };
    withdrawn.iter().map(sentence).collect()
}

/// Leaves only those mechanisms named that may be.
pub(super) fn rename(explanation: &mut Explanation, may_be: impl Fn(Mechanism) -> bool) {
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
            (of(60.0, 10.1), of(0.0, 3.0), Partly),
            (of(52.0, 4.0), of(-13.0, 4.0), Confirmed),
            (of(45.0, 4.0), of(-13.6, 4.0), Open),
            (of(47.0, 4.0), of(-12.0, 4.0), Partly),
            (of(80.0, 3.0), of(24.0, 3.0), Confirmed),
            (of(80.0, 3.0), of(24.1, 3.0), Open),
            (of(80.0, 20.0), of(20.0, 41.0), Open),
            (of(0.0, 24.9), of(0.0, 3.0), Refuted),
            (of(-40.0, 10.0), of(-9.9, 3.0), Refuted),
            (of(-40.0, 10.0), of(-50.0, 3.0), Open),
            (of(-40.0, 10.0), of(-49.9, 3.0), Refuted),
            (of(0.0, 25.0), of(0.0, 3.0), Open),
            (of(41.9, 7.0), of(-2.6, 10.0), Partly),
            (of(41.9, 16.9), of(0.0, 3.0), Partly),
            (of(41.9, 17.0), of(0.0, 3.0), Open),
            (of(39.9, 7.0), of(0.0, 3.0), Open),
            (of(40.0, 7.0), of(12.1, 3.0), Open),
        ] {
            let net = of(recovered.value - control.value, 15.0);
            assert_eq!(verdict(&recovered, &control, &net), want, "{recovered} {control}");
        }
    }

    #[test]
    fn a_difference_that_is_gone_has_no_parts() {
        let rounds = |slow: f64| (0..8).map(move |n| [100.0 + f64::from(n), slow, slow, 101.0]);
        let blocked = (Removed::Mechanism(Mechanism::BlockedLoads), true);
        let judged = |slow| judged(&rounds(slow).collect::<Vec<_>>(), blocked, Arm::B);
        let cure = judged(200.0).unwrap();
        assert_eq!(cure.verdict, CureVerdict::Confirmed);
        assert!((95.0..110.0).contains(&cure.recovered.percent.value), "{:?}", cure.recovered);
        assert!(judged(104.0).unwrap_err().contains("too uncertain"));
    }
}
