//! What the two builds ask of the kernel: system calls and page faults, and whether that is the difference.
//!
//! System calls come from the counted runs, or, where a run cannot be followed, from one run of each arm that
//! is stopped at every call; that one also tells which they are. Where the kernel is sampled, its part of the
//! difference is measured. What the cheapest call costs here, times how many more there are, is the least
//! that they can make up.

use std::collections::BTreeMap;
use std::time::Instant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use syscalls::Sysno;

use super::events::Counts;
use super::work::MOST;
use super::{Bench, FunctionRow, Share, Work, is_most};
use crate::compare::{Arm, Comparison};
use crate::run::child::ChildError;
use crate::run::sample::SampleError;

/// Where places in user code hold this part of the difference, in per cent, no run is stopped at its calls.
const USER_CODE_HOLDS: f64 = 80.0;
/// Page faults that one huge page saves.
const HUGE_PAGE_FAULTS: u64 = 511;
/// A call is named where it is this part of what all calls differ by.
const LEAST_OF_CALLS: f64 = 0.5;
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
}

impl NamedCalls {
    /// Their name, and what they stand for where no program makes them itself.
    #[must_use]
    pub fn words(&self) -> &str {
        match self.name.as_str() {
            "rt_sigreturn" => "rt_sigreturn (the end of each signal's handler)",
            name => name,
        }
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
        work: Option<&Work>,
        rows: &[FunctionRow],
        difference_ns: f64,
    ) -> Result<(), SampleError> {
        let in_user_code = rows.iter().map(|row| row.share_of_difference.percent.low).sum::<f64>();
        let known = work.map(|work| work.system_calls);
        let is_worth_a_run = match &known {
            Some(known) => known.shows_events(),
            None => in_user_code < USER_CODE_HOLDS,
        };
        if !is_worth_a_run {
            return Ok(());
        }
        let counted = counted(bench)?;
        // Runs that are followed are counted twice and to their end.
        let calls = known.or(counted.as_ref().map(|counted| counted.all));
        let Some(calls) = calls.filter(Counts::shows_events) else { return Ok(()) };
        self.system_calls = Some(calls);
        self.more_than_counted =
            known.is_none() && counted.as_ref().is_some_and(|it| it.more_than_counted);
        self.most_of_calls = counted.and_then(|counted| counted.most);
        self.cheapest_call_ns = bench.system_call_ns();
        let part = |ns: f64| 100.0 * calls.change() * ns / difference_ns;
        self.least_part_of_calls = self.cheapest_call_ns.map(part);
        Ok(())
    }

    /// What the builds differ in, by name, and whether the larger number is of a run not counted to its end.
    pub fn events(&self) -> impl Iterator<Item = (&'static str, Counts, bool)> {
        let calls = self.system_calls.map(|calls| ("system calls", calls, self.more_than_counted));
        calls.into_iter().chain(self.page_faults.map(|faults| ("page faults", faults, false)))
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
        if self.part.as_ref().is_some_and(is_most) {
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
}

/// None where they cannot be counted.
fn counted(bench: &mut dyn Bench) -> Result<Option<Counted>, SampleError> {
    let mut of_arm = |arm| match bench.system_calls(arm) {
        Err(SampleError::Child(ChildError::Interrupted)) => {
            Err(SampleError::Child(ChildError::Interrupted))
        }
        calls => Ok(calls.ok()),
    };
    let calls = [of_arm(Arm::A)?, of_arm(Arm::B)?];
    let [Some(before), Some(after)] = &calls else { return Ok(None) };
    let [fewer, more] = if before.count < after.count { [before, after] } else { [after, before] };
    // Of an arm that was not counted to its end it is not known that it makes fewer.
    let all = fewer.all.then(|| Counts::of([&[before.count], &[after.count]])).flatten();
    Ok(all.map(|all| {
        let most = most([&before.by_number, &after.by_number], all.change());
        Counted { all, more_than_counted: !more.all, most }
    }))
}

/// The call whose numbers differ most, where it is half of the change of all.
fn most(by_number: [&BTreeMap<u64, u64>; 2], change_of_all: f64) -> Option<NamedCalls> {
    let of_number = |number: &u64| {
        let [before, after] = by_number.map(|calls| calls.get(number).copied().unwrap_or(0));
        let counts = Counts { before: [before; 2], after: [after; 2], runs: 1 };
        Some(NamedCalls { name: Sysno::new(*number as usize)?.name().to_owned(), counts })
    };
    let named = by_number.into_iter().flat_map(BTreeMap::keys).filter_map(of_number);
    named
        .max_by(|a, b| a.counts.change().abs().total_cmp(&b.counts.change().abs()))
        .filter(|most| most.counts.change() / change_of_all >= LEAST_OF_CALLS)
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
    use crate::explain::{ObjectCode, Place, Whole};
    use crate::model::{Measurement, Unit};

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
                calls.iter().map(|(call, n)| (*call as u64, *n)).collect::<BTreeMap<_, _>>()
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
    fn a_call_has_a_price() {
        let ns = cheapest_call_ns();
        assert!(ns > 0.0 && ns < 1e6, "{ns}");
    }
}
