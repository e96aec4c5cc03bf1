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
/// Of the predicted difference, what is gone without a mechanism that is told as a part of it, where none alone is most of it.
const LEAST_OF_PARTS: f64 = 0.2;
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
    /// All that is executed in the windows, as a whole run executes it, where that was counted: a place may wait for branches that
    /// are mispredicted in front of it.
    pub in_run: Option<&'a [Side; 2]>,
}

/// What a mispredicted branch costs at the most: what comes behind it waits for its operands, too.
const MOST_OF_A_BRANCH_CYCLES: u64 = 100;

/// Whether a place waits for branches that are mispredicted in front of it: its own are too few for what it loses.
pub(super) fn is_paid_for_elsewhere(mechanism: Mechanism, place: &Account) -> bool {
    let own = MOST_OF_A_BRANCH_CYCLES.saturating_mul(place.events_of(mechanism));
    mechanism == Mechanism::MispredictedBranches && place.cycles_of(mechanism) > own.cast_signed()
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
            in_run: None,
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

/// The same without what the fast build would have if it executed as many instructions, where the slow one executes more: so
/// many times its own, but no more than executions that have it became more. Instructions that do not have it bring none along.
pub(super) fn more_for_each(sides: &[Side; 2], mechanism: Mechanism, slow: Arm) -> f64 {
    let times = |of: &dyn Fn(&Side) -> f64| {
        let [here, there] = [slow, slow.other()].map(|arm| of(&sides[arm.index()]));
        here / there.max(1.0)
    };
    let executed = times(&|side| side.instructions);
    let had = times(&|side| side.of_a_run(|it| it.events_of(mechanism) as f64)[0]);
    let times = if mechanism.has_events() { executed.min(had) } else { executed };
    beyond(sides, mechanism, slow, times.max(1.0))
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
    // Whose executions have it: the place's own, or all, where it waits for others.
    let had_by = |mechanism: Mechanism| {
        let in_run =
            spent.in_run.filter(|_| is_paid_for_elsewhere(mechanism, &sides[slow.index()].all));
        in_run.unwrap_or(sides)
    };
    let mut lines: Vec<LedgerLine> = Mechanism::ALL
        .into_iter()
        .map(|mechanism| LedgerLine {
            mechanism,
            per_thousand: mechanism.has_events().then(|| {
                had_by(mechanism).each_ref().map(|side| side.all.events_per_thousand(mechanism))
            }),
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
            is_part: false,
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
    let is_part = |line: &LedgerLine, least: f64| {
        let mechanism = line.mechanism;
        let had_by = had_by(mechanism);
        let of_a_run = |what: &dyn Fn(&Account) -> f64| {
            [slow.index(), 1 - slow.index()].map(|arm| had_by[arm].of_a_run(what)[0])
        };
        let more = |[here, there]: [f64; 2]| here > LEAST_RATIO * there;
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
            && of_predicted(line.part.percent.value.min(line.for_each_percent)) >= least
    };
    let tell_spread = sides.iter().all(Side::tells_spread);
    let is_certain = |line: &LedgerLine, least: f64| {
        tell_spread && of_predicted(line.part.percent.low) >= least / 2.0
    };
    let holds = |line: &LedgerLine, least: f64| is_part(line, least) && is_certain(line, least);
    let can_be_named = |line: &LedgerLine| holds(line, least(line));
    let is_spread = |line: &LedgerLine| {
        let least = least(line);
        line.mechanism.has_events() && is_part(line, least) && !is_certain(line, least)
    };
    let undecided = lines.iter().find(|line| agrees && is_spread(line)).map(|line| line.mechanism);
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
    match named {
        Some(named) => lines[named].is_named = true,
        None => {
            let is_told =
                |line: &LedgerLine| line.mechanism.has_events() && holds(line, LEAST_OF_PARTS);
            let parts: Vec<bool> = lines.iter().map(|line| agrees && is_told(line)).collect();
            lines.iter_mut().zip(parts).for_each(|(line, is_part)| line.is_part = is_part);
        }
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
        undecided,
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
mod tests;
