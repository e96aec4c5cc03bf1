//! What the model of the core predicts for one place, and which mechanism that names.
//!
//! A mechanism is named as the cause only where all of this holds: the model predicts what was measured,
//! the mechanism happens clearly more often in the slow build (lines that are missed may also come from
//! farther away, divisions be of wider operands), without it most of the difference is gone, in every window or, where these differ, with all
//! of an interval over more of them, also when what more instructions bring
//! along at the fast build's rate is left out (that is more work), and the other places do not have
//! it so much less: code that is inlined in one build only takes what happens in it along. The model does not
//! see everything; where it does not agree with the clock, nothing that it says about causes is believed.

use super::ledger::{CoreTaken, Ledger, LedgerLine};
use super::side::{FEW_WINDOWS, Side};
use super::work::{HARDLY, MOST, split};
use super::{FunctionRow, Share, Whole};
use crate::compare::Arm;
use crate::machine::MemoryRenaming;
use crate::model::{Measurement, Unit};
use crate::sim::core::{Account, Mechanism};

/// The part of the place's measured difference that the model must predict.
const AGREEMENT: [f64; 2] = [0.6, 1.5];
/// The part of the predicted difference that a mechanism must make up to be named, with events and without.
pub(super) const LEAST_PART: [f64; 2] = [0.4, 0.6];
/// The slow build must have so many times the events of the fast one, or they are not what differs.
pub(super) const LEAST_RATIO: f64 = 1.5;
/// Of the cycles that a place has more because of a mechanism, this part must be left over all places.
pub(super) const LEAST_LEFT: f64 = 0.5;
/// Nearly as much as the most.
pub(super) const AS_MUCH: f64 = 0.8;
/// The same as [`AGREEMENT`] where the instructions of whole runs were not counted and both are taken to execute as many.
const AGREEMENT_UNCOUNTED: [f64; 2] = [0.75, 1.33];
/// Other code has other chains: chains and units are named where one build executes up to so many times the
/// instructions of the other, and up to so many times if most of the difference is in how long they take; where the slow
/// build executes fewer, any number of times.
const SAME_WORK: [f64; 2] = [1.1, 1.6];
/// Lines below this part of the difference, in per cent, are not worth showing.
const LEAST_SHOWN: f64 = 5.0;

/// What the clock says of a place.
pub(super) struct Spent<'a> {
    pub place: &'a str,
    /// What a run of each arm spends there.
    pub ns: [f64; 2],
    pub share: &'a Share,
    /// Whether the instructions that whole runs execute there were counted.
    pub is_counted: bool,
    pub is_whole: bool,
    /// Of all user code: [`more_for_each`] over single places, where they are most of the difference and were counted. One that
    /// executes more at the same rate has more of everything, and that does not show in the whole.
    pub for_each: Option<ForEach>,
    /// What a cycle takes over all of user code, where that is known: a place that only one build has would agree with
    /// any clock.
    pub ns_per_cycle: Option<f64>,
}

/// Cycles, by mechanism.
pub(super) type ForEach = [f64; Mechanism::ALL.len()];

impl<'a> Spent<'a> {
    pub fn of(row: &'a FunctionRow) -> Self {
        Self {
            place: row.place.name(),
            ns: [row.before.value, row.after.value],
            share: &row.share_of_difference,
            is_counted: row.executed.is_some(),
            is_whole: false,
            for_each: None,
            ns_per_cycle: None,
        }
    }
}

/// What a cycle of the model takes, both builds on one scale: the clock is not known, and is the same for both.
pub(super) fn ns_per_cycle(ns: [f64; 2], sides: &[Side; 2]) -> Option<f64> {
    let cycles: f64 =
        sides.iter().map(|side| side.of_a_run(|account| account.cycles as f64)[0]).sum();
    // One build may be done with the place beside others, in no cycle of its own.
    (cycles > 0.0).then(|| ns.iter().sum::<f64>() / cycles)
}

/// Cycles of a run that the slow build has more because of each mechanism, and events that it has more.
pub(super) type More = [[f64; 2]; Mechanism::ALL.len()];

pub(super) fn had_more(sides: &[Side; 2], mechanism: Mechanism, slow: Arm) -> [f64; 2] {
    let events =
        |arm: Arm| sides[arm.index()].of_a_run(|account| account.events_of(mechanism) as f64)[0];
    [beyond(sides, mechanism, slow, 1.0), events(slow) - events(slow.other())]
}

/// The same without what the fast build would have if it executed as many instructions, where the slow one executes more.
pub(super) fn more_for_each(sides: &[Side; 2], mechanism: Mechanism, slow: Arm) -> f64 {
    let [executed, executed_there] =
        [slow, slow.other()].map(|arm| sides[arm.index()].instructions);
    beyond(sides, mechanism, slow, (executed / executed_there.max(1.0)).max(1.0))
}

/// Cycles of a run that the slow build has because of a mechanism, less so many times those of the fast one.
fn beyond(sides: &[Side; 2], mechanism: Mechanism, slow: Arm, times: f64) -> f64 {
    let of = |arm: Arm| sides[arm.index()].of_a_run(|account| account.cycles_of(mechanism) as f64);
    of(slow)[0] - times * of(slow.other())[0]
}

/// The ledger of a place; none where its windows hold too little.
pub(super) fn predict(
    spent: &Spent<'_>,
    sides: &[Side; 2],
    more_in_all: &More,
    slow: Arm,
    difference_ns: f64,
) -> Option<Ledger> {
    let executed = sides.iter().any(|side| side.instructions > 0.0);
    if !executed || !sides.iter().all(Side::is_enough) {
        return None;
    }
    let cycles = sides.each_ref().map(|side| side.of_a_run(|account| account.cycles as f64));
    let of_place = ns_per_cycle(spent.ns, sides)?;
    let is_in_one = times(sides) > HARDLY;
    let ns_per_cycle = spent.ns_per_cycle.filter(|_| is_in_one).unwrap_or(of_place);
    let samples = sides.each_ref().map(|side| side.windows.len());
    let part = |[before, after]: [[f64; 3]; 2]| {
        let percent = |cycles: f64| 100.0 * cycles * ns_per_cycle / difference_ns;
        let value = after[0] - before[0];
        let ends = match samples.into_iter().all(|n| n > FEW_WINDOWS) {
            // Of two means.
            true => [-1.0, 1.0]
                .map(|sign| value + sign * (after[2] - after[0]).hypot(before[2] - before[0])),
            false => [after[1] - before[2], after[2] - before[1]],
        };
        let ends = ends.map(percent);
        Share {
            percent: Measurement {
                value: percent(value),
                unit: Unit::Percent,
                low: ends[0].min(ends[1]),
                high: ends[0].max(ends[1]),
                n: samples[0] + samples[1],
                how: sides[0].ends().into(),
            },
            of: Whole::DifferenceInProcessorTime,
        }
    };
    let measured = spent.share.clone();
    let predicted = part(cycles);
    let agreement = predicted.percent.value / measured.percent.value;
    let [least, most] = if spent.is_counted { AGREEMENT } else { AGREEMENT_UNCOUNTED };
    // Where calls execute other amounts and nobody counted how many there are, a model that agrees does so by chance.
    let agrees = (spent.is_counted || is_alike(sides))
        && (least..=most).contains(&agreement)
        && !(is_in_one && spent.ns_per_cycle.is_none());
    let for_each = |mechanism: Mechanism| {
        let of_places = spent.for_each.map_or(f64::INFINITY, |all| all[mechanism as usize]);
        more_for_each(sides, mechanism, slow).min(of_places)
    };
    let mut lines: Vec<LedgerLine> = Mechanism::ALL
        .into_iter()
        .map(|mechanism| LedgerLine {
            mechanism,
            per_thousand: mechanism
                .has_events()
                .then(|| sides.each_ref().map(|side| side.all.events_per_thousand(mechanism))),
            cycles_per_instruction: sides.each_ref().map(|side| {
                side.all.cycles_of(mechanism) as f64 / side.all.executions.max(1) as f64
            }),
            part: part(
                sides.each_ref().map(|side| side.of_a_run(|a| a.cycles_of(mechanism) as f64)),
            ),
            // The difference is negative where the slow build is BEFORE.
            for_each_percent: 100.0 * for_each(mechanism) * ns_per_cycle / difference_ns.abs(),
            site: None,
            is_named: false,
        })
        .filter(|line| line.part.percent.value.abs() >= LEAST_SHOWN)
        .collect();
    lines.sort_by(|a, b| b.part.percent.value.total_cmp(&a.part.percent.value));
    let is_slower = is_slower_work(spent, sides, slow);
    let [executed, executed_there] =
        [slow, slow.other()].map(|arm| sides[arm.index()].instructions);
    let is_only_here = executed_there * HARDLY < executed;
    let of_predicted = |percent: f64| percent / predicted.percent.value;
    let least = |line: &LedgerLine| LEAST_PART[usize::from(!line.mechanism.has_events())];
    let would_be_named = |line: &LedgerLine| {
        let of_a_run = |what: &dyn Fn(&Account) -> f64| {
            [slow.index(), 1 - slow.index()].map(|arm| sides[arm].of_a_run(what)[0])
        };
        let more = |[here, there]: [f64; 2]| here > LEAST_RATIO * there;
        let mechanism = line.mechanism;
        let happens_more = match mechanism.has_events() {
            true => {
                more(of_a_run(&|account| account.events_of(mechanism) as f64))
                    || more(of_a_run(&|account| account.weight_of(mechanism) as f64))
            }
            false => is_slower && !spent.is_whole,
        };
        // What runs beside a wait may take longer without it, in other places: events stay where they are.
        let here = had_more(sides, mechanism, slow);
        let left = here.into_iter().zip(more_in_all[mechanism as usize]);
        let mut left = left.map(|(here, in_all)| here > 0.0 && in_all >= LEAST_LEFT * here);
        // A place that the fast build hardly enters may do what that does in others: then both must be left, but for lines
        // that come from farther away as often.
        let counts = mechanism.has_events() && !mechanism.has_distance();
        let is_left = match is_only_here && counts {
            true => left.all(|is_left| is_left),
            false => left.any(|is_left| is_left),
        };
        happens_more
            && is_left
            && of_predicted(line.part.percent.value.min(line.for_each_percent)) >= least(line)
    };
    let is_certain = |line: &LedgerLine| of_predicted(line.part.percent.low) >= least(line) / 2.0;
    let can_be_named = |line: &LedgerLine| would_be_named(line) && is_certain(line);
    let is_spread = |line: &LedgerLine| {
        line.mechanism.has_events() && would_be_named(line) && !is_certain(line)
    };
    let is_undecided = agrees && lines.iter().any(is_spread);
    // Events come first: a chain or a busy unit is often what they leave behind. Of two that bring back nearly as much, the
    // one that the fast build hardly has is the reason for the other.
    let events = |line: &LedgerLine| line.mechanism.has_events() && can_be_named(line);
    let most = lines.iter().find(|line| events(line)).map_or(0.0, |line| line.part.percent.value);
    let only_here = |line: &LedgerLine| {
        let [here, there] = [slow.index(), 1 - slow.index()]
            .map(|arm| line.per_thousand.map_or(0.0, |both| both[arm]));
        line.part.percent.value >= AS_MUCH * most && there * HARDLY < here
    };
    let named = lines.iter().position(|line| events(line) && only_here(line));
    let named = named.or_else(|| lines.iter().position(events));
    // Nor is a chain that waits for what happens in another place.
    let waits_for_others = |chain: &LedgerLine| {
        lines.iter().any(|line| {
            line.per_thousand.is_some_and(|both| both[slow.index()] == 0.0)
                && line.part.percent.value >= AS_MUCH * chain.part.percent.value
        })
    };
    let by_itself = |line: &LedgerLine| can_be_named(line) && !waits_for_others(line);
    let named = named.or_else(|| lines.iter().position(by_itself)).filter(|_| agrees);
    if let Some(named) = named {
        lines[named].is_named = true;
    }
    Some(Ledger {
        place: spent.place.to_owned(),
        with: Vec::new(),
        is_whole: spent.is_whole,
        slow_arm: slow,
        cycles_per_instruction: [sides[0].cycles_per_insn()?, sides[1].cycles_per_insn()?],
        predicted,
        measured,
        core: CoreTaken::plain(MemoryRenaming::Never),
        counted: spent.is_counted,
        agrees,
        microcode_percent: 0.0,
        is_undecided,
        lines,
    })
}

/// How many times as many instructions one build executes.
fn times(sides: &[Side; 2]) -> f64 {
    let [before, after] = sides.each_ref().map(|side| side.instructions);
    (after / before).max(before / after)
}

/// Whether the builds execute not so different numbers of instructions.
pub(super) fn is_alike(sides: &[Side; 2]) -> bool {
    times(sides) <= SAME_WORK[1]
}

/// Whether what a place takes longer is in how long its instructions take, and not in other ones.
fn is_slower_work(spent: &Spent<'_>, sides: &[Side; 2], slow: Arm) -> bool {
    let is_same = times(sides) <= SAME_WORK[0];
    let executed = sides.each_ref().map(|side| side.instructions);
    let [_, slower] = split(spent.share, spent.ns, executed);
    let part = 100.0 * slower.percent.value / spent.share.percent.value;
    // Fewer instructions, however few, are not why it takes longer.
    let is_fewer = executed[slow.index()] < executed[slow.other().index()];
    is_same || (is_alike(sides) || is_fewer) && part >= MOST
}

#[cfg(test)]
mod tests {
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
            let mut account = Account {
                executions: 1_000_000,
                cycles: 1000 * (cycles + more),
                ..Account::default()
            };
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
        assert!(few.named().is_none() && few.is_undecided, "{few:?}");
        assert!(few.lines[0].part.percent.low < 5.0, "{few:?}");
        let many = judged(2, 6);
        assert!(many.named().is_some() && !many.is_undecided, "{many:?}");
        let Measurement { value, low, high, n, .. } = many.lines[0].part.percent;
        // The mean of eight, two of which have none: 0.75 with a standard error of 0.164 and seven degrees of freedom.
        assert!(n == 16 && (low / value - 0.484).abs() < 0.01, "{low} {value}");
        assert!((value - low - (high - value)).abs() < 1e-6);
        assert!(judged(6, 2).named().is_none(), "a quarter of the windows may be chance");
        assert!(!judged(0, 4).is_undecided && !judged(4, 0).is_undecided);
        // Lines that are missed as often, and come from farther away.
        assert!(
            judged_by(misses, 30, 1, 3).is_undecided
                && judged_by(misses, 30, 0, 4).named().is_some()
        );
        assert!(!judged_by(branches, 30, 1, 3).is_undecided);
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
        let of_both =
            |by: u64| Together::by(&[twice(by), twice(0)], branches).unwrap().places.len();
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
        assert!(
            !named([side(500, branches, 100, 20), side(1000, branches, 580, 29)]),
            "1.45 times"
        );
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
        let short = Side::of(
            100_000_000,
            vec![Account { executions: 999, cycles: 999, ..Account::default() }],
        );
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
}
