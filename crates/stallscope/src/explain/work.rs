//! How much each build executes: plain causes come before mechanisms.
//!
//! A run is followed from its first instruction to its end, without memory, so that its instructions
//! and system calls are counted and not estimated. Each place's part of the difference is its time, by
//! samples; the counts say what it is made of: time is instructions times the time of one, so a change of
//! either, at the mean of the other, is its part. More instructions never make up more than what the place
//! takes longer: instructions that cost nothing are no cause. A run that cannot be followed to its end
//! (pipes that it reads, code that changes beside threads, more instructions than fit into the budget) is not counted at all: half
//! a run of one build says nothing about half a run of another.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bench::or_why;
use super::events::{Counts, are_as_many};
use super::run_count::{Executed, InRun, InsnCounts, MOST_TIMES_AS_LONG, WorkCount, budget};
use super::{Bench, FunctionRow, LibraryCalls, Place, Share, library_calls, rows};
use crate::code::Image;
use crate::compare::Arm;
use crate::model::Measurement;
use crate::trace::engine::EngineError;

/// Runs of each arm that are followed, to see whether they execute the same each time.
const RUNS: usize = 2;
/// Longer runs are followed once.
const SHORT_RUN_NS: f64 = 2e9;
/// What a `rep` instruction moves in the time of about one other: what a vector instruction would, and what the cores
/// of the last ten years move in a cycle out of their first two levels.
const STEP_BYTES: f64 = 32.0;
/// What one instruction moves at the most.
const WIDEST_BYTES: f64 = 64.0;
/// What a call comes with at the least: itself, a return, a move of what is handed over and of what is given back.
const CALL_INSTRUCTIONS: f64 = 4.0;
/// Calls are worth a word where at least this part of the instructions that are executed more comes with them, and they
/// grow by this factor more than the instructions do.
const LEAST_WITH_CALLS: f64 = 0.25;
const LEAST_TIMES_THE_CALLS: f64 = 1.5;
/// Of what is executed, `rep` instructions have this part where their price matters.
const LEAST_IN_STRINGS: f64 = 0.01;
/// An instruction is clearly cheaper from this ratio on.
const LEAST_CHEAPER: f64 = 1.25;
/// Bytes of `rep` instructions count by themselves where one build moves so many times the other's.
const LEAST_TIMES_THE_BYTES: f64 = 1.5;
/// More than this part of the difference is most of it, in per cent.
pub(super) const MOST: f64 = 50.0;
/// A build that spends less than one part in so many of the other's time in a place hardly enters it.
pub(super) const HARDLY: f64 = 20.0;
/// Where places take less time by more than this part of the difference, in per cent, work may just be elsewhere.
const MOST_ELSEWHERE: f64 = 10.0;
/// Where the sum over places lies further below the whole than this, in per cent of the difference, more is executed
/// where it costs less.
const MOST_APART: f64 = 50.0;

/// All of user code, as one place.
pub(super) struct UserCode {
    /// Its part of the difference, by samples.
    pub(super) share: Share,
    /// What a run of each arm spends there.
    pub(super) ns: [f64; 2],
    /// What AFTER takes longer on the processor, by pairs of runs: the least, what is likely, the most.
    pub(super) longer_ns: [f64; 3],
}

impl UserCode {
    /// What it takes longer as more instructions and as slower ones, by what each arm executes and how far runs of one
    /// arm are apart in that. Pairs of runs tell it better than samples do, unless the kernel has a part in it.
    fn split(&self, [a, b]: [f64; 2], apart: f64) -> [Share; 2] {
        let Share { percent: by_samples, of } = &self.share;
        if by_samples.low > 100.0 || by_samples.high < 100.0 {
            return self.widened(split(&self.share, self.ns, [a, b]), [a, b], apart);
        }
        let part = |more: f64, longer_ns: f64| {
            (100.0 * more * mean_ns(self.ns, [a, b]) / longer_ns).clamp(0.0, 100.0)
        };
        let [least, likely, most] = self.longer_ns;
        let value = part(b - a, likely);
        let ends =
            [b - a - apart, b - a + apart].map(|more| [least, most].map(|ns| part(more, ns)));
        let more = Measurement {
            value,
            low: ends.into_iter().flatten().fold(value, f64::min),
            high: ends.into_iter().flatten().fold(value, f64::max),
            how: "counted instructions x time of one, of what pairs of runs differ by".into(),
            ..by_samples.clone()
        };
        let slower = Measurement {
            value: 100.0 - more.value,
            low: 100.0 - more.high,
            high: 100.0 - more.low,
            ..more.clone()
        };
        [more, slower].map(|percent| Share { percent, of: *of })
    }

    /// Parts with the uncertainty that comes from runs of one arm that do not execute the same.
    fn widened(&self, parts: [Share; 2], executed: [f64; 2], apart: f64) -> [Share; 2] {
        let longer_ns = self.longer_ns[1].abs().max(1.0);
        let percent = 100.0 * apart * mean_ns(self.ns, executed) / longer_ns;
        parts.map(|Share { percent: it, of }| Share {
            percent: Measurement { low: it.low - percent, high: it.high + percent, ..it },
            of,
        })
    }
}

/// The difference as more work and as slower work.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Work {
    /// Instructions in user code, whole runs.
    pub instructions: Counts,
    /// Bytes that `rep` instructions stored, or read where they store nothing, whole runs.
    pub string_bytes: Counts,
    /// Calls of functions, whole runs.
    pub calls: Counts,
    /// Calls of the kernel, whole runs.
    pub system_calls: Counts,
    /// The part that is in places which execute more (or, negative, fewer) instructions than in the other
    /// build, or move more bytes by `rep`, as far as that explains what they take longer.
    pub more_instructions: Share,
    /// The rest of the difference in user code: instructions that take longer.
    pub slower_instructions: Share,
    /// What more instructions make up at the mean time of one over the whole run, in per cent of the difference. Code that
    /// waits beside more work takes longer for as many instructions: where this says that they are most of it, slower
    /// instructions alone are no answer.
    #[serde(default)]
    pub more_at_mean_percent: f64,
    /// User time of an instruction in BEFORE and in AFTER, in nanoseconds, the mean over the run; 0 where that is not known.
    #[serde(default)]
    pub ns_per_instruction: [f64; 2],
    /// From where a library is called more often, where most of these calls are one function's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library_calls: Option<LibraryCalls>,
    /// How often the program's own code asks for memory (`malloc` and its kind) in a whole run of each build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocations: Option<[u64; 2]>,
}

impl Work {
    /// Whether both execute the same number of instructions and move as much by `rep`.
    #[must_use]
    pub fn is_the_same(&self) -> bool {
        let is_apart = self.instructions.is_apart() || self.string_bytes.is_apart();
        (self.are_as_many() || !is_apart) && !self.is_in_strings()
    }

    fn are_as_many(&self) -> bool {
        are_as_many(steps(self.instructions.typical(), self.string_bytes.typical()))
    }

    /// Whether what `rep` instructions move is most of what one build executes more. Out of far caches it takes many
    /// times what as many instructions do: a change that is small beside all that is executed counts where it is
    /// most of the difference.
    #[must_use]
    pub fn is_in_strings(&self) -> bool {
        let moved = self.string_bytes.change() / STEP_BYTES;
        let all = self.instructions.change() + moved;
        let ratio = self.string_bytes.ratio();
        let is_large =
            ratio.max(1.0 / ratio) >= LEAST_TIMES_THE_BYTES && self.more_instructions.is_most();
        self.string_bytes.is_apart() && (!self.are_as_many() || is_large) && moved / all > 0.5
    }

    /// Whether the slow build moves many times as much by `rep` instructions, and the fast one does not do it by others: it
    /// executes no more of these than a part of the moves would be.
    pub(super) fn fills_more(&self, slow: Arm) -> bool {
        let [bytes, fewer_bytes] = self.string_bytes.slow_first(slow);
        let [instructions, others] = self.instructions.slow_first(slow);
        let moves = (bytes - fewer_bytes) / WIDEST_BYTES;
        self.string_bytes.is_apart()
            && bytes >= LEAST_TIMES_THE_BYTES * fewer_bytes
            && others - instructions < moves / 2.0
    }

    /// How many times the calls of the fast build the slow one makes, where its instructions do not grow along and a good
    /// part of them comes with the calls: what was inlined is not.
    pub(super) fn times_the_calls(&self, slow: Arm) -> Option<f64> {
        let [calls, fewer_calls] = self.calls.slow_first(slow);
        let [instructions, fewer] = self.instructions.slow_first(slow);
        let times = calls / fewer_calls.max(1.0);
        let come_with_calls = (calls - fewer_calls) * CALL_INSTRUCTIONS;
        let more = instructions - fewer;
        (more > 0.0
            && come_with_calls >= LEAST_WITH_CALLS * more
            && times >= LEAST_TIMES_THE_CALLS * instructions / fewer.max(1.0))
        .then_some(times)
    }

    /// Whether `rep` instructions move enough for their price to matter.
    pub(super) fn moves_strings(&self) -> bool {
        let (bytes, instructions) = (self.string_bytes.typical(), self.instructions.typical());
        bytes.iter().zip(instructions).any(|(bytes, n)| bytes / STEP_BYTES >= LEAST_IN_STRINGS * n)
    }

    /// The part that more instructions make up, where the whole run of the slow build executes more: places alone
    /// differ also where the same program executes now more, now less, or elsewhere.
    pub(super) fn more(&self) -> Option<&Share> {
        let is_more = self.more_at_mean_percent > 0.0 || self.is_in_strings();
        (is_more && !self.is_the_same()).then_some(&self.more_instructions)
    }

    /// Whether more instructions are most of the difference, with all of the interval.
    #[must_use]
    pub fn is_the_cause(&self) -> bool {
        self.more().is_some_and(|part| part.percent.low >= MOST)
    }

    /// Whether more instructions are most of the difference, as far as can be told.
    pub(super) fn may_be_the_cause(&self) -> bool {
        self.more().is_some_and(|part| part.percent.value >= MOST)
    }

    /// Whether instructions that take longer are most of the difference, with all of the interval.
    #[must_use]
    pub fn is_slower(&self) -> bool {
        self.slower_instructions.percent.low >= MOST && self.more_at_mean_percent < MOST
    }

    /// The larger of the two parts, where its interval does not decide whether it is most of the difference, and how
    /// many times as many pairs would: intervals get narrower with the root of their number.
    pub(super) fn undecided(&self) -> Option<(&Share, f64)> {
        let parts = [self.more(), Some(&self.slower_instructions)];
        let value = |share: &Share| share.percent.value;
        let part = parts.into_iter().flatten().max_by(|a, b| value(a).total_cmp(&value(b)))?;
        let (margin, spread) = (value(part) - MOST, value(part) - part.percent.low);
        (margin > 0.0 && spread > margin).then(|| (part, (spread / margin).powi(2)))
    }

    /// Whether instructions that take longer cannot be a part of the difference that is worth naming,
    /// in per cent.
    pub(super) fn leaves_less_than(&self, percent: f64) -> bool {
        let slower = self.slower_instructions.percent.high.max(100.0 - self.more_at_mean_percent);
        !self.is_the_same() && slower < percent
    }

    /// Whether an instruction of the slow build takes clearly less than one of the fast build: then more of them may cost nothing,
    /// and something else the time.
    pub(super) fn is_cheaper(&self, slow: Arm) -> bool {
        let [here, there] = [slow, slow.other()].map(|arm| self.ns_per_instruction[arm.index()]);
        here * LEAST_CHEAPER <= there
    }

    /// What more instructions make up without what each takes longer where there are more of them, in per cent.
    pub(super) fn least_of_more(&self) -> f64 {
        self.more_instructions.percent.value.min(self.more_at_mean_percent)
    }
}

/// Counts the work of both arms and splits the parts of the rows, and all of user code, by it, and says how often each
/// instruction is executed; the inner error says why it could not be counted.
///
/// # Errors
/// Only when the user wants an end.
pub(super) fn count(
    bench: &mut dyn Bench,
    images: &[Image; 2],
    rows: &mut [FunctionRow],
    all: &UserCode,
    processor_ns: f64,
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Result<(Work, [InsnCounts; 2]), String>, EngineError> {
    let left = bench.left().for_a_step();
    // Each takes about half of the most.
    let both_ns = MOST_TIMES_AS_LONG * processor_ns;
    let is_long = processor_ns > SHORT_RUN_NS || both_ns * RUNS as f64 > left.ns;
    let times = if is_long { 1 } else { RUNS };
    let budget = match (budget(processor_ns), left.too_long(both_ns)) {
        (Ok(budget), None) => budget,
        (Ok(_), Some(why)) | (Err(why), _) => return Ok(Err(why)),
    };
    let runs = match followed(bench, (times, budget), progress)? {
        Ok(runs) => runs,
        Err(why) => return Ok(Err(why)),
    };
    let of_first = [Arm::A, Arm::B].map(|arm| {
        let run = runs[arm.index()].first();
        (arm, run.map(|run| InRun::of(&run.executed, &images[arm.index()])))
    });
    let insns =
        of_first.each_ref().map(|(_, run)| run.as_ref().map(InRun::insns).unwrap_or_default());
    let parts = rows.iter_mut().map(|row| {
        let in_place = |(arm, run): &(Arm, Option<InRun<'_>>)| {
            run.as_ref().map_or_else(Executed::default, |run| run.in_place(*arm, &row.place))
        };
        let executed = of_first.each_ref().map(in_place);
        row.executed = Some(executed);
        split(
            &row.share_of_difference,
            [row.before.value, row.after.value],
            steps(
                executed.map(|in_place| in_place.instructions as f64),
                executed.map(|in_place| in_place.string_bytes as f64),
            ),
        )
    });
    let counts = |what: fn(&WorkCount) -> u64| {
        let [a, b] = runs.each_ref().map(|runs| runs.iter().map(what).collect::<Vec<u64>>());
        Counts::of([&a, &b])
    };
    let by_place = parts.reduce(|sum, part| [0, 1].map(|n| plus(&sum[n], &part[n])));
    let (Some(instructions), Some(string_bytes), Some(calls), Some(system_calls), Some(by_place)) = (
        counts(|run| run.instructions),
        counts(|run| run.string_bytes),
        counts(|run| run.calls),
        counts(|run| run.system_calls),
        by_place,
    ) else {
        return Ok(Err("no place holds a part of the difference".into()));
    };
    let executed = steps(instructions.typical(), string_bytes.typical());
    let apart = instructions.apart() + string_bytes.apart() / STEP_BYTES;
    let of_all = all.split(executed, apart);
    let [more, slower] = all.widened(by_place, executed, apart);
    let mut work = Work {
        instructions,
        string_bytes,
        calls,
        system_calls,
        more_instructions: more,
        slower_instructions: slower,
        more_at_mean_percent: of_all[0].percent.value,
        ns_per_instruction: [0, 1].map(|arm| all.ns[arm] / executed[arm].max(1.0)),
        library_calls: None,
        allocations: None,
    };
    let first = |arm: usize| runs[arm].first().map(|run| &run.executed);
    let slow = if all.longer_ns[1] < 0.0 { Arm::A } else { Arm::B };
    let calls = library_calls::made(images, [0, 1].map(first));
    work.allocations = calls.as_ref().map(library_calls::allocations);
    let most = rows::most(rows).filter(|row| matches!(row.place, Place::Object { .. }));
    work.library_calls = most.and_then(|_| library_calls::most(images, &calls?, slow));
    // What `rep` moves takes other times than what else is executed: only places of their own tell.
    let told: f64 = rows.iter().map(|row| row.share_of_difference.percent.value).sum();
    let is_spread = (all.share.percent.value - told).abs() > MOST_ELSEWHERE;
    let of_all_tells = tells_more(&of_all[0], &work.more_instructions, may_move(rows));
    if !work.is_in_strings() && (is_spread || of_all_tells) {
        [work.more_instructions, work.slower_instructions] = of_all;
    }
    Ok(Ok((work, insns)))
}

/// Whole runs of each arm; the inner error says why one cannot be followed, the outer one that the user wants an end.
fn followed(
    bench: &mut dyn Bench,
    (times, budget): (usize, Duration),
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Result<[Vec<WorkCount>; 2], String>, EngineError> {
    let mut runs: [Vec<WorkCount>; 2] = [Vec::new(), Vec::new()];
    for n in 0..2 * times {
        progress(n as u32, 2 * times as u32);
        let arm = if n % 2 == 0 { Arm::A } else { Arm::B };
        match or_why(bench.work(arm, budget))? {
            Ok(count) => runs[arm.index()].push(count),
            Err(why) => return Ok(Err(why)),
        }
    }
    Ok(Ok(runs))
}

/// Whether places take so much less time that the slow build may just do their work elsewhere.
pub(super) fn may_move(rows: &[FunctionRow]) -> bool {
    let parts = rows.iter().map(|row| row.share_of_difference.percent.value);
    parts.filter(|part| *part < 0.0).sum::<f64>() < -MOST_ELSEWHERE
}

/// Whether what all of user code executes more tells more than the sum over the places does. Work that goes from one
/// place to another is more work in the one only, and the other takes less time: none does, unless it `may_move`. And
/// places that hold few samples add up to a wide interval.
fn tells_more(of_all: &Share, by_place: &Share, may_move: bool) -> bool {
    let (all, places) = (&of_all.percent, &by_place.percent);
    match all.value < places.value {
        true => may_move || all.value >= places.low,
        false => all.value <= places.high && all.value <= places.value + MOST_APART,
    }
}

/// What a place takes longer, as more instructions and as slower ones, by its times and what it executes in each arm.
pub(super) fn split(whole: &Share, [fast, slow]: [f64; 2], [a, b]: [f64; 2]) -> [Share; 2] {
    let change = slow - fast;
    let more = (b - a) * mean_ns([fast, slow], [a, b]);
    let by_work = if change == 0.0 { 0.0 } else { (more / change).clamp(0.0, 1.0) };
    [by_work, 1.0 - by_work].map(|part| {
        let Measurement { value, low, high, .. } = whole.percent;
        let percent = Measurement {
            value: part * value,
            low: part * low,
            high: part * high,
            how: format!("{}; counted instructions x time of one", whole.percent.how),
            ..whole.percent.clone()
        };
        Share { percent, of: whole.of }
    })
}

/// What each arm executes, as instructions: a `rep` moves as much as so many of them.
fn steps(instructions: [f64; 2], string_bytes: [f64; 2]) -> [f64; 2] {
    [0, 1].map(|arm| instructions[arm] + string_bytes[arm] / STEP_BYTES)
}

/// The time of one instruction, over what both arms execute: a build that hardly executes any has no say in it.
fn mean_ns([fast, slow]: [f64; 2], [a, b]: [f64; 2]) -> f64 {
    (fast + slow) / (a + b).max(1.0)
}

pub(super) fn plus(a: &Share, b: &Share) -> Share {
    let (x, y) = (&a.percent, &b.percent);
    let percent = Measurement {
        value: x.value + y.value,
        low: x.low + y.low,
        high: x.high + y.high,
        n: x.n.max(y.n),
        ..x.clone()
    };
    Share { percent, of: a.of }
}

#[cfg(test)]
pub(super) mod tests;
