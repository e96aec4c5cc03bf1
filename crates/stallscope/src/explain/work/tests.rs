//! What is more work, what is slower work, and what cannot be told.

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
        ns_per_instruction: [0.0; 2],
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
        let parts = UserCode { share, ns: [98.0, 102.0], longer_ns }.split([0.99e6, 1.01e6], 0.0);
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
        let parts = UserCode { share, ns: [98.0, 102.0], longer_ns }.split([0.99e6, 1.01e6], 1e4);
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

#[test]
fn instructions_that_became_cheaper_are_told_by_their_mean_time() {
    let of = |ns_per_instruction| {
        let work = work([1000, 2000], [share(99.0), share(1.0)]);
        Work { ns_per_instruction, ..work }
    };
    assert!(of([0.5, 0.4]).is_cheaper(Arm::B) && !of([0.5, 0.41]).is_cheaper(Arm::B));
    assert!(of([0.4, 0.5]).is_cheaper(Arm::A) && !of([0.4, 0.5]).is_cheaper(Arm::B));
}
