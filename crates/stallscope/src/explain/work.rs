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
pub(super) mod tests {
    use super::*;
    use crate::explain::{ObjectCode, Place, Whole};
    use crate::model::Unit;

    pub(in super::super) fn row(ms: [f64; 2], percent: f64) -> FunctionRow {
        let measured = |value: f64, unit| {
            let (low, high) = (0.98 * value, 1.02 * value);
            Measurement { value, unit, low, high, n: 10, how: String::new() }
        };
        let [before, after] = ms.map(|ms| measured(ms * 1e6, Unit::Nanoseconds));
        let percent = measured(percent, Unit::Percent);
        FunctionRow {
            place: Place::Object {
                name: "libc.so.6".into(),
                code: ObjectCode::NotCompared,
                most_in: None,
            },
            before,
            after,
            share_of_difference: Share { percent, of: Whole::DifferenceInProcessorTime },
            executed: None,
        }
    }

    fn share(value: f64) -> Share {
        row([1.0, 1.0], value).share_of_difference
    }

    fn within([low, value, high]: [f64; 3]) -> Share {
        let Share { percent, of } = share(value);
        Share { percent: Measurement { low, high, ..percent }, of }
    }

    fn counts([before, after]: [u64; 2]) -> Counts {
        Counts { before: [before; 2], after: [after; 2], runs: 2 }
    }

    fn work(instructions: [u64; 2], [more, slower]: [Share; 2]) -> Work {
        Work {
            instructions: counts(instructions),
            string_bytes: counts([0, 0]),
            calls: counts([9, 9]),
            system_calls: counts([9, 9]),
            more_at_mean_percent: 100.0 - slower.percent.value,
            library_calls: None,
            allocations: None,
            more_instructions: more,
            slower_instructions: slower,
        }
    }

    fn parts(ms: [f64; 2], instructions: [f64; 2]) -> [f64; 2] {
        let row = row(ms, 90.0);
        let times = [row.before.value, row.after.value];
        split(&row.share_of_difference, times, instructions).map(|it| it.percent.value.round())
    }

    #[test]
    fn a_places_part_is_split_by_what_it_executes() {
        assert_eq!(parts([100.0, 200.0], [1e6, 2e6]), [90.0, 0.0]);
        assert_eq!(parts([100.0, 200.0], [1e6, 1e6]), [0.0, 90.0]);
        // A fifth more, at what one takes over both builds.
        assert_eq!(parts([100.0, 200.0], [1e6, 1.2e6]), [25.0, 65.0]);
        // What BEFORE executes a thousandth of has no say in what one takes.
        assert_eq!(parts([0.0, 100.0], [1e5, 1e8]), [90.0, 0.0]);
        // What only AFTER has is more work.
        assert_eq!(parts([0.0, 14.0], [0.0, 4e6]), [90.0, 0.0]);
        // Faster, because it executes less.
        assert_eq!(parts([200.0, 100.0], [2e6, 1e6]), [90.0, 0.0]);
    }

    #[test]
    fn all_of_user_code_is_split_by_pairs_of_runs_unless_the_kernel_has_a_part() {
        let all = |low, high, longer_ns| {
            let share = within([low, 95.0, high]);
            let parts =
                UserCode { share, ns: [98.0, 102.0], longer_ns }.split([0.99e6, 1.01e6], 0.0);
            parts.map(|it| [it.percent.low, it.percent.value, it.percent.high].map(f64::round))
        };
        // 2 % more instructions where runs take 2.5 % longer, and 2 to 4 %.
        assert_eq!(all(40.0, 130.0, [2.0, 2.5, 4.0]), [[50.0, 80.0, 100.0], [0.0, 20.0, 50.0]]);
        // AFTER executes more and is faster.
        assert_eq!(all(40.0, 130.0, [-4.0, -3.0, -2.0]), [[0.0; 3], [100.0; 3]]);
        assert_eq!(all(40.0, 99.0, [2.0, 2.5, 4.0])[0], [20.0, 48.0, 50.0], "by samples");
        // Runs of one arm are 1 % of its instructions apart.
        let restless = |low, high| {
            let share = within([low, 95.0, high]);
            let longer_ns = [2.0, 2.5, 4.0];
            let parts =
                UserCode { share, ns: [98.0, 102.0], longer_ns }.split([0.99e6, 1.01e6], 1e4);
            parts.map(|it| [it.percent.low, it.percent.value, it.percent.high].map(f64::round))
        };
        assert_eq!(restless(40.0, 130.0), [[25.0, 80.0, 100.0], [0.0, 20.0, 75.0]]);
        assert_eq!(restless(40.0, 99.0), [[-20.0, 48.0, 90.0], [-20.0, 48.0, 90.0]]);
    }

    #[test]
    fn the_whole_run_says_how_much_is_more_work_unless_places_say_less() {
        let share = |value: f64, spread: f64| within([value - spread, value, value + spread]);
        let tells = |all, places| tells_more(&share(all, 5.0), &places, false);
        assert!(tells_more(&share(40.0, 5.0), &share(90.0, 5.0), true), "work that went elsewhere");
        assert!(!tells(40.0, share(90.0, 5.0)), "no place takes less time");
        assert!(tells(40.0, share(90.0, 50.0)), "a wide interval around it");
        assert!(tells(80.0, share(35.0, 150.0)), "a wide interval around it");
        assert!(!tells(80.0, share(35.0, 20.0)), "more is executed where it costs less");
        assert!(!tells(80.0, share(25.0, 150.0)), "or may well be");
    }

    #[test]
    fn instructions_that_cost_nothing_make_up_no_more_than_the_place_takes_longer() {
        assert_eq!(parts([100.0, 104.0], [1e6, 1.5e6]), [90.0, 0.0]);
        // Fewer instructions and yet slower: all of it is slower instructions.
        assert_eq!(parts([100.0, 150.0], [1e6, 0.9e6]), [0.0, 90.0]);
    }

    #[test]
    fn an_interval_that_does_not_decide_says_how_many_more_pairs_would() {
        let work = |more, slower| work([100, 115], [within(more), within(slower)]);
        let open = work([-10.0, 80.0, 170.0], [-20.0, 20.0, 60.0]);
        let (part, times) = open.undecided().unwrap();
        assert!((part.percent.value - 80.0).abs() < 1e-9 && (times - 9.0).abs() < 1e-9, "{times}");
        let (slower, most) = ([40.0, 75.0, 110.0], [20.0, 25.0, 30.0]);
        assert!((work(most, slower).undecided().unwrap().1 - 1.96).abs() < 1e-9);
        assert!(work([51.0, 80.0, 99.0], most).undecided().is_none(), "that is decided");
        assert!(work([0.0, 50.0, 99.0], most).undecided().is_none(), "no number of pairs would");
    }

    #[test]
    fn more_work_and_slower_work_are_the_cause_with_all_of_their_intervals() {
        // Places may differ where the whole does not.
        let as_many = work([100_000, 100_100], [share(60.0), share(40.0)]);
        assert!(as_many.more().is_none() && !as_many.is_the_cause());
        assert!(as_many.undecided().is_none());
        let fewer = work([100_000, 98_000], [share(99.0), share(1.0)]);
        let fewer = Work { more_at_mean_percent: -20.0, ..fewer };
        assert!(fewer.more().is_none() && !fewer.is_the_cause());
        let work = |more, slower| work([9, 900_000], [share(more), share(slower)]);
        assert!(work(60.0, 5.0).is_the_cause() && work(60.0, 5.0).leaves_less_than(10.0));
        let costlier = Work { more_at_mean_percent: 89.0, ..work(99.0, 0.0) };
        assert!(!costlier.leaves_less_than(10.0) && costlier.least_of_more() == 89.0);
        assert!(!work(51.0, 15.0).is_the_cause() && !work(51.0, 15.0).leaves_less_than(10.0));
        assert!(work(5.0, 52.0).is_slower() && !work(5.0, 51.0).is_slower());
        let beside_more = |percent| Work { more_at_mean_percent: percent, ..work(40.0, 60.0) };
        assert!(beside_more(49.0).is_slower());
        assert!(!beside_more(50.0).is_slower(), "it waits beside more work");
    }

    #[test]
    fn calls_are_told_where_they_bring_the_instructions_along() {
        let times = |instructions, calls, slow| {
            let work = work(instructions, [share(50.0), share(50.0)]);
            Work { calls: counts(calls), ..work }.times_the_calls(slow)
        };
        assert_eq!(times([1000, 1400], [10, 110], Arm::B), Some(11.0));
        assert_eq!(times([1400, 1000], [110, 10], Arm::A), Some(11.0));
        assert_eq!(times([1000, 1400], [10, 110], Arm::A), None, "the other one makes them");
        assert_eq!(times([1000, 2000], [100, 210], Arm::B), None, "as the instructions grow");
        assert_eq!(times([1000, 5000], [10, 110], Arm::B), None, "400 of 4000");
        assert_eq!(times([1000, 900], [10, 110], Arm::B), None, "fewer instructions");
        assert_eq!(times([1000, 1400], [0, 110], Arm::B), Some(110.0));
    }

    #[test]
    fn what_string_instructions_move_is_work() {
        let work = |instructions, bytes| {
            let work = work(instructions, [share(50.0), share(50.0)]);
            let work = Work { string_bytes: counts(bytes), ..work };
            [work.is_the_same(), work.is_in_strings()]
        };
        assert_eq!(work([1000, 1000], [320, 32_000]), [false, true]);
        assert_eq!(work([1000, 2000], [320, 32_000]), [false, false], "instructions are half");
        assert_eq!(work([100_000, 100_000], [320, 3200]), [true, false], "0.09 % of the work");
        // A fill that a loop does in the other build: fewer instructions, and as much work.
        assert_eq!(work([2000, 1000], [0, 32_000]), [true, false]);
        // Little beside all that is executed, and most of the difference by the place where it is.
        let most = |bytes, more: f64| {
            let work = super::tests::work([100_000, 100_010], [share(more), share(100.0 - more)]);
            let work = Work { string_bytes: counts(bytes), ..work };
            [work.is_the_same(), work.is_in_strings()]
        };
        assert_eq!(most([320, 3200], 60.0), [false, true]);
        assert_eq!(most([320, 3200], 50.0), [true, false], "with all of the interval");
        assert_eq!(most([3200, 4200], 60.0), [true, false], "1.3 times as many bytes");
        assert_eq!(most([3200, 3200], 60.0), [true, false]);
    }
}
