//! Which mechanism is named, and what must not be.

use super::*;
use crate::explain::ledger::Together;
use crate::explain::{ObjectCode, Place};

fn row(ms: [f64; 2]) -> FunctionRow {
    let measured = |value: f64, unit| Measurement {
        value,
        unit,
        low: 0.98 * value,
        high: 1.02 * value,
        n: 10,
        how: String::new(),
    };
    FunctionRow {
        place: Place::Object {
            name: "libc.so.6".into(),
            code: ObjectCode::NotCompared,
            most_in: None,
        },
        before: measured(ms[0] * 1e6, Unit::Nanoseconds),
        after: measured(ms[1] * 1e6, Unit::Nanoseconds),
        share_of_difference: Share {
            percent: measured(100.0, Unit::Percent),
            of: Whole::DifferenceInProcessorTime,
        },
        executed: None,
    }
}

/// Two windows: so many cycles for 1000 instructions, of which `by` go without a mechanism that
/// `events` executions have.
fn side(cycles: u64, mechanism: Mechanism, by: u64, events: u64) -> Side {
    let window = |more: u64| {
        let mut account =
            Account { executions: 1_000_000, cycles: 1000 * (cycles + more), ..Account::default() };
        account.cycles_without = [account.cycles; Mechanism::ALL.len()];
        account.cycles_without[mechanism as usize] -= 1000 * by;
        account.events[mechanism as usize] = 1000 * events;
        account
    };
    Side::of(100_000_000, vec![window(0), window(2)])
}

fn of(ms: [f64; 2], sides: [Side; 2]) -> Ledger {
    of_all(ms, sides, &[[f64::MAX; 2]; Mechanism::ALL.len()])
}

fn of_all(ms: [f64; 2], sides: [Side; 2], more_in_all: &More) -> Ledger {
    let all_ns = (ms[1] - ms[0]) * 1e6;
    let ledger = predict(&Spent::of(&row(ms)), &sides, more_in_all, Arm::B, all_ns).unwrap();
    let [before, after] = sides;
    let row = row([ms[1], ms[0]]);
    let other_way = Spent::of(&row);
    let other_way = predict(&other_way, &[after, before], more_in_all, Arm::A, -all_ns);
    let named = |of: &Ledger| of.named().map(|line| line.mechanism);
    assert_eq!(
        named(&ledger),
        named(&other_way.unwrap()),
        "faster is as slower, the other way round"
    );
    ledger
}

#[test]
fn what_happens_more_often_and_pays_is_named() {
    let branches = Mechanism::MispredictedBranches;
    let e = of([100.0, 200.0], [side(500, branches, 5, 1), side(1000, branches, 480, 30)]);
    assert!(e.agrees, "{e:?}");
    let line = e.named().unwrap();
    assert_eq!((line.mechanism, line.per_thousand), (branches, Some([1.0, 30.0])));
    assert!((line.part.percent.value - 95.0).abs() < 2.0, "{line:?}");
    assert!(e.predicted.percent.low < e.predicted.percent.high, "the spread between windows");
}

#[test]
fn what_is_a_part_of_the_difference_is_told_as_one_where_nothing_is_most_of_it() {
    let branches = Mechanism::MispredictedBranches;
    let by =
        |by: u64| of([100.0, 200.0], [side(500, branches, 0, 0), side(1000, branches, by, 30)]);
    let words = by(150).parts_words().unwrap();
    let expected = "of libc.so.6, the model of the core predicts 100 % of the difference in processor time, without \
                    mispredicted branches 30 % less";
    assert_eq!(words, expected);
    assert!(by(150).named().is_none() && by(99).parts_words().is_none());
    // Named, it is no part among others.
    assert!(by(201).named().is_some() && by(201).parts_words().is_none());
    // As often in both builds.
    let both = of([100.0, 200.0], [side(500, branches, 0, 30), side(1000, branches, 150, 30)]);
    assert!(both.parts_words().is_none(), "{both:?}");
}

#[test]
fn one_window_of_a_build_names_nothing() {
    let branches = Mechanism::MispredictedBranches;
    let of_windows = |n: usize| {
        let sides = [side(500, branches, 0, 0), side(1000, branches, 480, 30)];
        of([100.0, 200.0], sides.map(|it| Side::of(100_000_000, it.windows[..n].to_vec())))
    };
    let (one, two) = (of_windows(1), of_windows(2));
    assert!(one.named().is_none() && one.parts_words().is_none());
    assert_eq!((one.undecided, two.undecided), (Some(branches), None));
    assert!(two.named().is_some());
}

/// A run with a part that does not have what the rest has.
#[test]
fn windows_that_differ_decide_nothing_unless_they_are_many() {
    let branches = Mechanism::MispredictedBranches;
    let misses = Mechanism::DataCacheMisses;
    let windows = |of: &Side, n: usize| -> Vec<Account> {
        of.windows.iter().copied().cycle().take(n).collect()
    };
    let judged_by = |mechanism, events, idle_ones: usize, busy_ones: usize| {
        let (idle, busy) = (side(500, mechanism, 5, events), side(1000, mechanism, 480, 30));
        let all = [windows(&idle, idle_ones), windows(&busy, busy_ones)].concat();
        let fast = windows(&idle, idle_ones + busy_ones);
        let sides = [fast, all].map(|all| Side::of(100_000_000, all));
        let after_ms = 100.0 + 100.0 * busy_ones as f64 / (idle_ones + busy_ones) as f64;
        of([100.0, after_ms], sides)
    };
    let judged = |idle_ones, busy_ones| judged_by(branches, 1, idle_ones, busy_ones);
    let few = judged(1, 3);
    assert!(few.named().is_none() && few.undecided.is_some(), "{few:?}");
    assert!(few.lines[0].part.percent.low < 5.0, "{few:?}");
    let many = judged(2, 6);
    assert!(many.named().is_some() && many.undecided.is_none(), "{many:?}");
    let Measurement { value, low, high, n, .. } = many.lines[0].part.percent;
    // The mean of eight, two of which have none: 0.75 with a standard error of 0.164 and seven degrees of freedom.
    assert!(n == 16 && (low / value - 0.484).abs() < 0.01, "{low} {value}");
    assert!((value - low - (high - value)).abs() < 1e-6);
    assert!(judged(6, 2).named().is_none(), "a quarter of the windows may be chance");
    assert!(judged(0, 4).undecided.is_none() && judged(4, 0).undecided.is_none());
    // Lines that are missed as often, and come from farther away.
    assert!(
        judged_by(misses, 30, 1, 3).undecided.is_some()
            && judged_by(misses, 30, 0, 4).named().is_some()
    );
    assert!(judged_by(branches, 30, 1, 3).undecided.is_none());
}

#[test]
fn what_costs_nothing_in_the_fast_build_is_held_against_the_clock() {
    let blocked = Mechanism::BlockedLoads;
    let e = of([10.0, 200.0], [side(0, blocked, 0, 0), side(1000, blocked, 900, 500)]);
    assert!(e.agrees && e.named().is_some_and(|line| line.mechanism == blocked), "{e:?}");
    let nothing = [side(0, blocked, 0, 0), side(0, blocked, 0, 0)].map(|side| {
        let idle = |window: &Account| Account { cycles: 0, ..*window };
        Side::of(100_000_000, side.windows.iter().map(idle).collect())
    });
    let all = [[f64::MAX; 2]; Mechanism::ALL.len()];
    assert!(predict(&Spent::of(&row([1.0, 2.0])), &nothing, &all, Arm::B, 1e6).is_none());
}

#[test]
fn as_many_divisions_of_wider_operands_are_named() {
    let divisions = Mechanism::Divisions;
    let named = |busy: u64| {
        let keeping = |cycles: u64, by: u64, busy: u64| {
            let Side { instructions, mut windows, .. } = side(cycles, divisions, by, 100);
            windows.iter_mut().for_each(|window| window.divider_cycles = 1000 * busy);
            Side::of(instructions as u64, windows)
        };
        let sides = [keeping(500, 480, 400), keeping(1000, 980, busy)];
        of([100.0, 200.0], sides).named().is_some()
    };
    assert!(named(601) && !named(600), "1.5 times as long on their unit");
}

#[test]
fn a_chain_that_waits_for_what_happens_elsewhere_is_not_named() {
    let (chains, code) = (Mechanism::LongChains, Mechanism::WrittenCode);
    let named = |by: u64, events: u64| {
        let waiting = |cycles: u64, chain: u64, by: u64, events: u64| {
            let Side { instructions, mut windows, .. } = side(cycles, chains, chain, 0);
            for window in &mut windows {
                window.cycles_without[code as usize] -= 1000 * by;
                window.events[code as usize] = events;
            }
            Side::of(instructions as u64, windows)
        };
        let sides = [waiting(500, 0, 0, 0), waiting(1000, 490, by, events)];
        of([100.0, 200.0], sides).named().map(|line| line.mechanism)
    };
    assert_eq!(named(0, 0), Some(chains));
    assert_eq!(named(380, 0), Some(chains));
    assert_eq!(named(400, 0), None, "0.8 times as much");
    // Where it happens, it is named.
    assert_eq!(named(400, 10), Some(code));
}

#[test]
fn what_more_instructions_bring_along_is_not_the_mechanism() {
    let branches = Mechanism::MispredictedBranches;
    let named = |by: u64, events: u64| {
        let slow = Side { instructions: 200_000_000.0, ..side(500, branches, 300, 12) };
        let sides = [side(500, branches, by, events), slow];
        let row = row([100.0, 200.0]);
        let spent = Spent { is_counted: true, ..Spent::of(&row) };
        let more = [[f64::MAX; 2]; Mechanism::ALL.len()];
        let e = predict(&spent, &sides, &more, Arm::B, 100e6).unwrap();
        assert!(e.agrees, "{e:?}");
        e.named().is_some()
    };
    // Nor do they have a part in what is told of a mechanism that another place names.
    let twice = |by: u64| {
        let slow = Side { instructions: 200_000_000.0, ..side(500, branches, 300, 12) };
        let row = row([100.0, 200.0]);
        let spent = Spent { is_counted: true, ..Spent::of(&row) };
        let (fast, all) = (side(500, branches, by, 10), [[f64::MAX; 2]; Mechanism::ALL.len()]);
        predict(&spent, &[fast, slow], &all, Arm::B, 100e6).unwrap()
    };
    let of_both = |by: u64| Together::by(&[twice(by), twice(0)], branches).unwrap().places.len();
    assert_eq!((of_both(250), of_both(100)), (1, 2));
    assert!(!named(250, 10), "twice the instructions, 1.2 times the rate");
    assert!(!named(201, 8), "39 % beyond the fast build's rate");
    assert!(named(198, 8), "41 %");
}

#[test]
fn a_whole_run_is_named_no_mechanism_that_its_places_have_only_with_more_instructions() {
    let branches = Mechanism::MispredictedBranches;
    let named = |for_each: Option<f64>| {
        let sides = [side(500, branches, 5, 1), side(1000, branches, 480, 30)];
        let row = row([100.0, 200.0]);
        let for_each = for_each.map(|cycles| [cycles; Mechanism::ALL.len()]);
        let spent = Spent { is_whole: true, for_each, ..Spent::of(&row) };
        let more = [[f64::MAX; 2]; Mechanism::ALL.len()];
        predict(&spent, &sides, &more, Arm::B, 100e6).unwrap().named().is_some()
    };
    // 50 million cycles more in all.
    assert!(named(None) && named(Some(20.1e6)) && !named(Some(19.9e6)));
}

#[test]
fn a_model_that_does_not_agree_with_the_clock_names_nothing() {
    let branches = Mechanism::MispredictedBranches;
    let sides = || [side(500, branches, 5, 1), side(1000, branches, 480, 30)];
    assert!(of([100.0, 200.0], sides()).named().is_some());
    for after in [130.0, 500.0] {
        let e = of([100.0, after], sides());
        assert!(!e.agrees && e.named().is_none(), "{after}: {e:?}");
        assert_eq!(e.part_of(branches), None);
    }
}

#[test]
fn what_both_have_or_what_pays_too_little_is_not_named() {
    let branches = Mechanism::MispredictedBranches;
    let named = |sides| of([100.0, 200.0], sides).named().is_some();
    assert!(!named([side(500, branches, 100, 20), side(1000, branches, 580, 29)]), "1.45 times");
    assert!(!named([side(500, branches, 5, 1), side(1000, branches, 200, 30)]), "39 %");
    let chains = Mechanism::LongChains;
    assert!(named([side(500, chains, 10, 0), side(1000, chains, 330, 0)]));
    assert!(!named([side(500, chains, 10, 0), side(1000, chains, 300, 0)]), "58 %");
    // Of other code: 51 % of the difference is in how many there are, and 49 %.
    let executing = |times: f64, cycles: u64| {
        let by = cycles / 3;
        let side = side(cycles, chains, by, 0);
        Side { instructions: times * side.instructions, ..side }
    };
    assert!(!named([side(500, chains, 10, 0), executing(1.41, 740)]), "other chains");
    assert!(named([side(500, chains, 10, 0), executing(1.39, 750)]));
    assert!(!named([side(250, chains, 10, 0), executing(1.61, 1000)]));
}

#[test]
fn fewer_instructions_that_take_longer_may_have_another_chain() {
    let chains = Mechanism::LongChains;
    let row = row([100.0, 200.0]);
    let spent = Spent { is_counted: true, ..Spent::of(&row) };
    let named = |times: f64, cycles: u64, slow: Arm| {
        let slow_side = side(cycles, chains, cycles * 9 / 10, 0);
        let slow_side = Side { instructions: times * slow_side.instructions, ..slow_side };
        let sides = [side(250, chains, 10, 0), slow_side];
        let more = [[f64::MAX; 2]; Mechanism::ALL.len()];
        predict(&spent, &sides, &more, slow, 100e6).unwrap().named().is_some()
    };
    assert!(named(0.5, 1000, Arm::B));
    assert!(!named(1.7, 294, Arm::B), "more instructions");
}

#[test]
fn few_instructions_are_no_window() {
    let chains = Mechanism::LongChains;
    let short =
        Side::of(100_000_000, vec![Account { executions: 999, cycles: 999, ..Account::default() }]);
    let more = &[[f64::MAX; 2]; Mechanism::ALL.len()];
    let sides = [side(5, chains, 1, 0), short];
    assert!(predict(&Spent::of(&row([1.0, 2.0])), &sides, more, Arm::B, 1e6).is_none());
}

#[test]
fn what_only_came_here_from_another_place_is_not_named() {
    let branches = Mechanism::MispredictedBranches;
    let sides = || [side(500, branches, 5, 1), side(1000, branches, 480, 30)];
    let [here, events] = had_more(&sides(), branches, Arm::B);
    assert!((here - 47.5e6).abs() < 1e3, "{here}");
    let named = |in_all: f64| {
        let mut more = [[f64::MAX; 2]; Mechanism::ALL.len()];
        more[branches as usize] = [in_all * here, in_all * events];
        of_all([100.0, 200.0], sides(), &more).named().is_some()
    };
    assert!(named(0.51) && !named(0.49));
    // Without it, what runs beside it in another place takes longer.
    let mut displaced = [[f64::MAX; 2]; Mechanism::ALL.len()];
    displaced[branches as usize] = [0.0, events];
    assert!(of_all([100.0, 200.0], sides(), &displaced).named().is_some());
    // What one build inlines is in no place of its own there.
    let alone = Side { instructions: 0.0, windows: vec![], all: Account::default() };
    let mut more = [[0.0; 2]; Mechanism::ALL.len()];
    let sides =
        || [Side { all: alone.all, windows: vec![], ..alone }, side(1000, branches, 480, 30)];
    let by_clock = |more: &More, times: Option<f64>| {
        let row = row([0.0, 200.0]);
        let of_place = ns_per_cycle([0.0, 200e6], &sides()).unwrap();
        let ns_per_cycle = times.map(|times| times * of_place);
        let spent = Spent { is_counted: true, ns_per_cycle, ..Spent::of(&row) };
        predict(&spent, &sides(), more, Arm::B, 200e6).unwrap()
    };
    let counted = |more: &More| by_clock(more, Some(1.0));
    assert!(counted(&more).named().is_none());
    more[branches as usize] = [f64::MAX; 2];
    assert!(counted(&more).named().is_some());
    // By its own clock, what one build alone has always agrees.
    assert!(!by_clock(&more, None).agrees && !by_clock(&more, Some(0.5)).agrees);
    // Nor are events that it has in places which the slow build does not enter.
    more[branches as usize] = [f64::MAX, 0.0];
    assert!(counted(&more).named().is_none());
}

#[test]
fn calls_that_execute_other_amounts_are_not_compared_where_nobody_counted_them() {
    let branches = Mechanism::MispredictedBranches;
    let sides = |times: f64| {
        let [a, b] = [side(500, branches, 5, 1), side(1000, branches, 480, 30)];
        [Side { instructions: a.instructions / times, ..a }, b]
    };
    assert!(of([100.0, 200.0], sides(1.0)).agrees);
    assert!(of([100.0, 300.0], sides(1.5)).agrees);
    assert!(!of([100.0, 340.0], sides(1.7)).agrees);
}

#[test]
fn a_place_that_loses_more_than_its_own_branches_cost_waits_for_others() {
    let place = |events: u64, cycles: u64| {
        let mut account = Account { cycles, ..Account::default() };
        account.events[Mechanism::MispredictedBranches as usize] = events;
        account
    };
    let branches = |place| is_paid_for_elsewhere(Mechanism::MispredictedBranches, &place);
    assert!(branches(place(10, 1001)) && branches(place(0, 1)));
    assert!(!branches(place(10, 1000)) && !branches(place(0, 0)));
    // Of the others, what is lost is lost where it happens.
    assert!(!is_paid_for_elsewhere(Mechanism::DataCacheMisses, &place(0, 1001)));
}

/// An interpreter that jumps through a function of its own, whose return is mispredicted: it has fewer such branches than before.
#[test]
fn branches_that_are_mispredicted_in_front_of_a_place_are_those_of_the_whole_run() {
    let branches = Mechanism::MispredictedBranches;
    let row = row([100.0, 200.0]);
    let named = |own: u64, before: u64, after: u64, is_known: bool| {
        let sides = [side(500, branches, 5, 3), side(1000, branches, 480, own)];
        let in_run = [side(500, branches, 5, before), side(700, branches, 300, after)];
        let in_run = is_known.then_some(&in_run);
        let spent = Spent { is_counted: true, in_run, ..Spent::of(&row) };
        let more = [[f64::MAX; 2]; Mechanism::ALL.len()];
        let ledger = predict(&spent, &sides, &more, Arm::B, 1e8).unwrap();
        ledger.named().map(|line| line.per_thousand.unwrap())
    };
    assert_eq!(named(2, 3, 20, true), Some([3.0, 20.0]));
    assert_eq!(named(2, 14, 20, true), None, "the fast build has as many, somewhere");
    assert_eq!(named(2, 3, 20, false), None);
    // Own branches that can pay are what counts.
    assert_eq!(named(5, 3, 4, true), Some([3.0, 5.0]));
}

#[test]
fn more_instructions_bring_along_what_they_have_themselves() {
    let misses = Mechanism::DataCacheMisses;
    // Four times the instructions, and so many events and cycles of it.
    let left = |events: u64, cycles: u64| {
        let before = side(100, misses, 40, 40);
        let after = side(100, misses, cycles, events);
        let after = Side { instructions: 4.0 * before.instructions, ..after };
        let left = more_for_each(&[before, after], misses, Arm::B);
        (left / 100_000.0).round()
    };
    // As many misses as before, each of them longer.
    assert_eq!(left(10, 30), 4.0 * 30.0 - 40.0);
    // Twice as many: twice of what BEFORE has is brought along.
    assert_eq!(left(20, 30), 4.0 * 30.0 - 2.0 * 40.0);
    // As often in each instruction, or more often: four times.
    assert_eq!([left(40, 50), left(80, 50)], [4.0 * 50.0 - 4.0 * 40.0; 2]);
}
