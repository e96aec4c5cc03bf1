//! What the two builds ask of the kernel: system calls and page faults, and whether that is the difference.
//!
//! System calls come from the counted runs, or, where a run cannot be followed, from one run of each arm that
//! is stopped at every call; that one also tells which they are. Where the kernel is sampled, its part of the
//! difference is measured. What the cheapest call costs here, times how many more there are, is the least
//! that they can make up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use syscalls::Sysno;

use super::events::Counts;
use super::processor::LEAST_PART;
use super::work::MOST;
use super::{Bench, FunctionRow, Share, Work};
use crate::code::Image;
use crate::compare::{Arm, Comparison};
use crate::run::child::ChildError;
use crate::run::sample::{Callers, CallsOfNumber, Frame, SampleError, SystemCalls};

/// Where places in user code hold this part of the difference, in per cent, no run is stopped at its calls.
const USER_CODE_HOLDS: f64 = 80.0;
/// Page faults that one huge page saves.
const HUGE_PAGE_FAULTS: u64 = 511;
/// A call is named where it is this part of what all calls differ by.
const LEAST_OF_CALLS: f64 = 0.5;
/// What starts a process or thread, as it is told; fewer than so many more of them are not.
const STARTS: &str = "processes and threads started";
const LEAST_STARTS: f64 = 10.0;
/// Fewer call stacks say nothing of where most calls come from.
const LEAST_STACKS: u64 = 4;
/// Calls that are timed for the price of one, and how often.
const TIMED_CALLS: u32 = 2000;
const TIMED: usize = 5;

/// System calls of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NamedCalls {
    /// Their name, such as `write`.
    pub name: String,
    /// Of one run of each arm; it may not have been counted to its end.
    pub counts: Counts,
    /// The function of the program from which most of them are made, in the build that makes more.
    pub called_from: Option<String>,
}

impl NamedCalls {
    /// Looks for the function that makes most of them in the build that makes more.
    fn find_caller(&mut self, images: &[Image; 2], calls: &[SystemCalls; 2]) {
        let arm = usize::from(self.counts.change() >= 0.0);
        let number = self.name.parse::<Sysno>().ok().map(|call| call as u64);
        self.called_from = number.and_then(|n| caller(&images[arm], &calls[arm].callers, n));
    }

    /// Their name, what they stand for where no program makes them itself, and from where they are made.
    #[must_use]
    pub fn words(&self) -> String {
        match (self.name.as_str(), &self.called_from) {
            ("rt_sigreturn", _) => {
                "rt_sigreturn (the end of each signal's handler; where a timer sends \
                                    them, a run that is stopped at its calls has more)"
                    .to_owned()
            }
            (name, Some(caller)) => format!("{name} in {caller}"),
            (name, None) => name.to_owned(),
        }
    }
}

/// The function of the program from which half of the calls at least are made whose stacks were looked at.
fn caller(image: &Image, callers: &Callers, number: u64) -> Option<String> {
    let (mut all, mut by_name) = (0, BTreeMap::<String, u64>::new());
    for ((_, stack), count) in callers.counts.iter().filter(|((of, _), _)| *of == number) {
        all += count;
        let is_own = |frame: &&Frame| frame.file.is_some() && frame.file == callers.main_program;
        let own = stack.frames.iter().rev().find(is_own);
        let function = own.and_then(|own| image.function_at(image.svma_of(own.at)?));
        if let Some(function) = function.filter(|function| function.named) {
            *by_name.entry(function.name()).or_default() += count;
        }
    }
    let (name, most) = by_name.into_iter().max_by_key(|(_, count)| *count)?;
    (all >= LEAST_STACKS && most as f64 >= LEAST_OF_CALLS * all as f64).then_some(name)
}

/// System calls of one kind in which the slow build waits longer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WaitingCalls {
    /// Which.
    pub calls: NamedCalls,
    /// How long one run of each arm was in them, in nanoseconds, all threads and processes together. The runs were
    /// stopped at every call, which makes each up to a millisecond longer.
    pub inside_ns: [u64; 2],
}

impl std::fmt::Display for WaitingCalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Counts { before: [before, _], after: [after, _], .. } = self.calls.counts;
        let [before_ms, after_ms] = self.inside_ns.map(|ns| ns as f64 / 1e6);
        let name = self.calls.words();
        write!(f, "{name} ({before} -> {after} calls, {before_ms:.0} -> {after_ms:.0} ms in them)")
    }
}

/// What the builds ask of the kernel, where they differ in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Kernel {
    /// The part of the difference that is in the kernel, where the kernel accounts for that or is sampled.
    pub part: Option<Share>,
    /// System calls of whole runs.
    pub system_calls: Option<Counts>,
    /// Whether the runs of the arm that makes more were not counted to their end: it makes at least so many.
    pub more_than_counted: bool,
    /// The system calls that differ most.
    pub most_of_calls: Option<NamedCalls>,
    /// Processes and threads that one run of each arm starts, where that differs.
    pub starts: Option<Counts>,
    /// Where the difference is in waiting: the system calls in which the slow build waits.
    #[serde(default)]
    pub waits: Vec<WaitingCalls>,
    /// Page faults of the compared runs.
    pub page_faults: Option<Counts>,
    /// What the cheapest system call takes here, in nanoseconds.
    pub cheapest_call_ns: Option<f64>,
    /// The least part of the difference in processor time that the system calls make up, in per cent.
    pub least_part_of_calls: Option<f64>,
}

impl Kernel {
    /// What the compared runs tell: page faults.
    pub(super) fn of_compared_runs(comparison: &Comparison) -> Self {
        Self { page_faults: page_faults(comparison), ..Self::default() }
    }

    /// Adds system calls, as the counted runs have them, or else as runs that are stopped at each of them.
    ///
    /// # Errors
    /// Only when the user wants an end.
    pub(super) fn add_system_calls(
        &mut self,
        bench: &mut dyn Bench,
        images: &[Image; 2],
        work: Option<&Work>,
        rows: &[FunctionRow],
        difference_ns: f64,
    ) -> Result<(), SampleError> {
        let in_user_code = rows.iter().map(|row| row.share_of_difference.percent.low).sum::<f64>();
        let known = work.map(|work| work.system_calls);
        let in_kernel = self.part.as_ref().map_or(0.0, |part| part.percent.low);
        let is_in_kernel = in_kernel >= LEAST_PART;
        let is_worth_a_run = match &known {
            Some(known) => known.shows_events(),
            None => in_user_code < USER_CODE_HOLDS || is_in_kernel,
        };
        if !is_worth_a_run {
            return Ok(());
        }
        let counted = counted(bench, images)?;
        // Runs that are followed are counted twice and to their end.
        let calls = known.or(counted.as_ref().map(|counted| counted.all));
        let Some(calls) = calls.filter(Counts::shows_events) else { return Ok(()) };
        self.system_calls = Some(calls);
        self.more_than_counted =
            known.is_none() && counted.as_ref().is_some_and(|it| it.more_than_counted);
        self.starts = counted.as_ref().and_then(|counted| counted.starts);
        self.most_of_calls = counted.and_then(|counted| counted.most);
        self.cheapest_call_ns = bench.system_call_ns();
        let part = |ns: f64| 100.0 * calls.change() * ns / difference_ns;
        self.least_part_of_calls = self.cheapest_call_ns.map(part);
        Ok(())
    }

    /// What the builds differ in, by name, and whether the larger number is of a run not counted to its end.
    pub fn events(&self) -> impl Iterator<Item = (&'static str, Counts, bool)> {
        let calls = self.system_calls.map(|calls| ("system calls", calls, self.more_than_counted));
        let faults = self.page_faults.map(|faults| ("page faults", faults, false));
        let starts = self.starts.map(|starts| (STARTS, starts, self.more_than_counted));
        calls.into_iter().chain(starts).chain(faults)
    }

    /// Whether the slow build has so many more page faults that huge pages may save the fast one some.
    pub(super) fn may_have_huge_pages(&self, slow: Arm) -> bool {
        self.page_faults.is_some_and(|Counts { before, after, .. }| {
            let (more, fewer) = if slow == Arm::B { (after, before) } else { (before, after) };
            more[0] >= fewer[1] + HUGE_PAGE_FAULTS
        })
    }

    /// Whether most of the difference is in the kernel, by all of its interval; or the slow build asks for more and that
    /// is most of the difference: the calls alone at the cheapest price, or all that is not in user code.
    pub(super) fn is_the_cause(&self, slow: Arm, rows: &[FunctionRow]) -> bool {
        if self.part.as_ref().is_some_and(Share::is_most) {
            return true;
        }
        let more = |counts: &Counts| (counts.change() > 0.0) == (slow == Arm::B);
        let asks_more = self.events().any(|(_, counts, _)| more(&counts));
        let in_user_code = rows.iter().map(|row| row.share_of_difference.percent.high).sum::<f64>();
        asks_more && (in_user_code < MOST || self.least_part_of_calls.is_some_and(|p| p >= MOST))
    }
}

/// System calls of one run of each arm.
struct Counted {
    all: Counts,
    /// Whether the run that makes more was not counted to its end.
    more_than_counted: bool,
    /// The call whose numbers differ most.
    most: Option<NamedCalls>,
    /// Processes and threads, where these differ.
    starts: Option<Counts>,
}

/// System calls of one run of each arm; none where they cannot be counted.
fn calls_of_runs(bench: &mut dyn Bench) -> Result<Option<[SystemCalls; 2]>, SampleError> {
    let mut of_arm = |arm| match bench.system_calls(arm) {
        Err(SampleError::Child(ChildError::Interrupted)) => {
            Err(SampleError::Child(ChildError::Interrupted))
        }
        calls => Ok(calls.ok()),
    };
    let (before, after) = (of_arm(Arm::A)?, of_arm(Arm::B)?);
    Ok(before.zip(after).map(<[_; 2]>::from))
}

/// None where they cannot be counted.
fn counted(bench: &mut dyn Bench, images: &[Image; 2]) -> Result<Option<Counted>, SampleError> {
    let Some(calls) = calls_of_runs(bench)? else { return Ok(None) };
    let [before, after] = &calls;
    let [fewer, more] = if before.count < after.count { [before, after] } else { [after, before] };
    // Of an arm that was not counted to its end it is not known that it makes fewer.
    let all = fewer.all.then(|| Counts::of([&[before.count], &[after.count]])).flatten();
    Ok(all.map(|all| {
        let by_number = [&before.by_number, &after.by_number];
        let mut most = most(by_number, all.change());
        most.iter_mut().for_each(|most| most.find_caller(images, &calls));
        let starts = starts(by_number);
        Counted { all, more_than_counted: !more.all, most, starts }
    }))
}

/// The call whose numbers differ most, where it is half of the change of all.
fn most(by_number: [&ByNumber; 2], change_of_all: f64) -> Option<NamedCalls> {
    named(by_number)
        .map(|(calls, _)| calls)
        .max_by(|a, b| a.counts.change().abs().total_cmp(&b.counts.change().abs()))
        .filter(|most| most.counts.change() / change_of_all >= LEAST_OF_CALLS)
}

/// Processes and threads that are started, where the builds differ in it.
fn starts(by_number: [&ByNumber; 2]) -> Option<Counts> {
    let of = |calls: &ByNumber| {
        let of_number = |call: &Sysno| calls.get(&(*call as u64)).map_or(0, |calls| calls.count);
        [Sysno::fork, Sysno::vfork, Sysno::clone, Sysno::clone3].iter().map(of_number).sum()
    };
    let [before, after] = by_number.map(of).map(|count| [count; 2]);
    let counts = Counts { before, after, runs: 1 };
    (counts.change().abs() >= LEAST_STARTS && !counts.is_the_same()).then_some(counts)
}

/// System calls by number.
type ByNumber = BTreeMap<u64, CallsOfNumber>;

/// The calls of both builds with a name, and how long a run of each was in them.
fn named(by_number: [&ByNumber; 2]) -> impl Iterator<Item = (NamedCalls, [u64; 2])> {
    let numbers: BTreeSet<u64> = by_number.iter().flat_map(|calls| calls.keys()).copied().collect();
    numbers.into_iter().filter_map(move |number| {
        let of = by_number.map(|calls| calls.get(&number).copied().unwrap_or_default());
        let [before, after] = of.map(|calls| [calls.count; 2]);
        let name = Sysno::new(number as usize)?.name().to_owned();
        let counts = Counts { before, after, runs: 1 };
        let calls = NamedCalls { name, counts, called_from: None };
        Some((calls, of.map(|calls| calls.inside_ns)))
    })
}

/// The system calls in which the slow build waits so much longer that it is half of `waiting_ns`: one process may wait in a
/// call for another that sleeps in one. First come those that it makes more often.
/// None where runs cannot be stopped at their calls.
///
/// # Errors
/// Only when the user wants an end.
pub(super) fn waits(
    bench: &mut dyn Bench,
    images: &[Image; 2],
    slow: Arm,
    waiting_ns: f64,
) -> Result<Vec<WaitingCalls>, SampleError> {
    let Some(calls) = calls_of_runs(bench)? else { return Ok(Vec::new()) };
    let mut waits = waiting([&calls[0].by_number, &calls[1].by_number], slow, waiting_ns);
    waits.iter_mut().for_each(|wait| wait.calls.find_caller(images, &calls));
    Ok(waits)
}

fn waiting(by_number: [&ByNumber; 2], slow: Arm, waiting_ns: f64) -> Vec<WaitingCalls> {
    let longer = |inside_ns: &[u64; 2]| {
        inside_ns[slow.index()] as f64 - inside_ns[slow.other().index()] as f64
    };
    let mut waits: Vec<_> = named(by_number)
        .filter(|(_, inside_ns)| longer(inside_ns) >= LEAST_OF_CALLS * waiting_ns)
        .map(|(calls, inside_ns)| WaitingCalls { calls, inside_ns })
        .collect();
    // In as many calls as before it waits for somebody; in more of them is why.
    let is_as_many = |wait: &WaitingCalls| wait.calls.counts.is_the_same();
    waits.sort_by(|a, b| {
        let by_time = || longer(&b.inside_ns).total_cmp(&longer(&a.inside_ns));
        is_as_many(a).cmp(&is_as_many(b)).then_with(by_time)
    });
    waits
}

/// Page faults of the compared runs, where they differ.
fn page_faults(comparison: &Comparison) -> Option<Counts> {
    let of = |arm: Arm| {
        let mut all: Vec<u64> = comparison
            .samples
            .iter()
            .filter(|sample| sample.plan.arm == arm)
            .map(|sample| sample.amounts.page_faults)
            .collect();
        all.sort_unstable();
        // One run in ten at either end may be anything: a file that was not in memory.
        let spare = all.len() / 10;
        all[spare..all.len() - spare].to_vec()
    };
    Counts::of([&of(Arm::A), &of(Arm::B)]).filter(Counts::shows_events)
}

/// What a call that does nothing takes here, in nanoseconds: the shortest of some stretches.
pub(super) fn cheapest_call_ns() -> f64 {
    let stretch = |_| {
        let start = Instant::now();
        for _ in 0..TIMED_CALLS {
            // The user's number: nothing to look up, and never answered without the kernel.
            std::hint::black_box(nix::unistd::getuid());
        }
        start.elapsed().as_nanos() as f64 / f64::from(TIMED_CALLS)
    };
    (0..TIMED).map(stretch).fold(f64::MAX, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::fixture;
    use crate::explain::{ObjectCode, Place, Whole};
    use crate::model::{FileOffset, Measurement, Unit};
    use crate::run::sample::CallStack;

    fn rows(percent: f64) -> Vec<FunctionRow> {
        let measured = |value: f64, unit| {
            let (low, high) = (0.9 * value, 1.1 * value);
            Measurement { value, unit, low, high, n: 10, how: String::new() }
        };
        vec![FunctionRow {
            place: Place::Object {
                name: "libc.so.6".into(),
                code: ObjectCode::NotCompared,
                most_in: None,
            },
            before: measured(1e6, Unit::Nanoseconds),
            after: measured(1e6, Unit::Nanoseconds),
            share_of_difference: Share {
                percent: measured(percent, Unit::Percent),
                of: Whole::DifferenceInProcessorTime,
            },
            executed: None,
        }]
    }

    #[test]
    fn the_kernel_is_the_cause_only_where_it_is_asked_for_more_and_that_is_most() {
        let counts = |n| Some(Counts { before: [1000, 1000], after: [n, n], runs: 2 });
        let asks = |calls| Kernel { system_calls: counts(calls), ..Kernel::default() };
        assert!(asks(400_000).is_the_cause(Arm::B, &rows(45.0)));
        assert!(!asks(400_000).is_the_cause(Arm::B, &rows(46.0)), "with all of the interval");
        assert!(!asks(400_000).is_the_cause(Arm::A, &rows(40.0)), "the fast build asks for more");
        assert!(asks(9).is_the_cause(Arm::A, &rows(40.0)));
        assert!(!Kernel::default().is_the_cause(Arm::B, &rows(40.0)));
        let faults = Kernel { page_faults: counts(4000), ..Kernel::default() };
        assert!(faults.is_the_cause(Arm::B, &rows(40.0)));
        let priced = |part| Kernel { least_part_of_calls: Some(part), ..asks(400_000) };
        assert!(priced(50.0).is_the_cause(Arm::B, &rows(60.0)));
        assert!(!priced(49.0).is_the_cause(Arm::B, &rows(60.0)));
    }

    #[test]
    fn a_call_is_named_where_it_is_most_of_what_all_differ_by() {
        let of = |before: &[(Sysno, u64)], after: &[(Sysno, u64)], change| {
            let calls = [before, after].map(|calls| {
                let of = |n: u64| CallsOfNumber { count: n, inside_ns: 0 };
                calls.iter().map(|(call, n)| (*call as u64, of(*n))).collect::<ByNumber>()
            });
            most(calls.each_ref(), change).map(|most| most.name)
        };
        let (reads, writes) = (Sysno::read, Sysno::write);
        let named = of(&[(reads, 10), (writes, 5)], &[(reads, 12), (writes, 800)], 797.0);
        assert_eq!(named.as_deref(), Some("write"));
        assert_eq!(of(&[(writes, 800)], &[(reads, 2)], -798.0).as_deref(), Some("write"));
        // The other way than all together, and less than half.
        assert_eq!(of(&[(writes, 800)], &[(reads, 700)], 200.0), None);
        assert_eq!(of(&[(reads, 1)], &[(reads, 100), (writes, 90)], 400.0), None);
        assert_eq!(of(&[], &[], 100.0), None);
    }

    #[test]
    fn the_function_that_makes_half_of_the_calls_is_told_with_them() {
        let code: [(&str, &[u8]); 2] = [("settle", &[0x90, 0xc3]), ("other", &[0x90, 0xc3])];
        let image = fixture::image(&code).unwrap();
        let of = |name: &str| {
            let function = image.functions().iter().find(|f| f.symbol == name).unwrap();
            Frame { file: Some(1), at: image.offset_of(function.start).unwrap() }
        };
        let in_library = Frame { file: Some(0), at: FileOffset(16) };
        let from = |counts: &[(&[Frame], u64)]| {
            let stack = |frames: &[Frame]| CallStack { frames: frames.to_vec(), is_whole: true };
            let of = |(frames, count): &(&[Frame], u64)| ((35, stack(frames)), *count);
            let mut callers = Callers { main_program: Some(1), ..Callers::default() };
            callers.counts = counts.iter().map(of).collect();
            caller(&image, &callers, 35)
        };
        // The innermost one of the program, whatever libraries stand between.
        let settles = [of("other"), of("settle"), in_library];
        let others = [of("other"), in_library];
        assert_eq!(from(&[(&settles, 5), (&others, 5)]).as_deref(), Some("settle"));
        assert_eq!(from(&[(&settles, 5), (&[in_library], 6)]), None, "less than half");
        assert_eq!(from(&[(&settles, 3)]), None, "few");
    }

    #[test]
    fn processes_that_are_started_are_told_where_they_are_ten_more() {
        let of = |of: &[(Sysno, u64)]| -> ByNumber {
            let call = |(call, count): &(Sysno, u64)| {
                (*call as u64, CallsOfNumber { count: *count, inside_ns: 0 })
            };
            of.iter().map(call).collect()
        };
        let few = of(&[(Sysno::clone, 2), (Sysno::vfork, 1), (Sysno::execve, 1)]);
        let more = of(&[(Sysno::clone, 2), (Sysno::clone3, 11), (Sysno::execve, 90)]);
        let counts = starts([&few, &more]);
        assert_eq!(counts.map(|c| (c.before, c.after)), Some(([3; 2], [13; 2])));
        assert_eq!(starts([&of(&[(Sysno::clone, 4)]), &more]), None, "nine");
        assert_eq!(starts([&more, &few]).map(|c| c.change()), Some(-10.0));
    }

    #[test]
    fn the_calls_that_the_slow_build_waits_in_are_half_of_the_waiting_at_least() {
        let of = |calls: &[(Sysno, u64, u64)]| -> ByNumber {
            let call = |(call, count, ms): &(Sysno, u64, u64)| {
                (*call as u64, CallsOfNumber { count: *count, inside_ns: ms * 1_000_000 })
            };
            calls.iter().map(call).collect()
        };
        let (sleeps, reads, locks) = (Sysno::nanosleep, Sysno::read, Sysno::futex);
        let before = of(&[(reads, 5000, 60), (locks, 3, 900)]);
        let after = of(&[(sleeps, 5000, 900), (reads, 5000, 980), (locks, 3, 700)]);
        let said = |slow, waiting_ms: f64| {
            let waits = waiting([&before, &after], slow, waiting_ms * 1e6);
            waits.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let slept = "nanosleep (0 -> 5000 calls, 0 -> 900 ms in them)";
        let waited = "read (5000 -> 5000 calls, 60 -> 980 ms in them)";
        assert_eq!(said(Arm::B, 900.0), [slept, waited], "one waits for the other");
        assert_eq!(said(Arm::B, 1810.0), [waited]);
        assert!(said(Arm::B, 1841.0).is_empty());
        assert_eq!(said(Arm::A, 400.0), ["futex (3 -> 3 calls, 900 -> 700 ms in them)"]);
    }

    #[test]
    fn a_call_has_a_price() {
        let ns = cheapest_call_ns();
        assert!(ns > 0.0 && ns < 1e6, "{ns}");
    }
}
