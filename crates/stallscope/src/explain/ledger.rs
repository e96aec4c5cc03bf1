//! The ledger: what the model of the core predicts for both builds, mechanism by mechanism, held against
//! what was measured.
//!
//! A place's cycles are the instructions that it executes in a whole run times the cycles of one in the
//! windows. Both builds on one scale, cycles to time, make a prediction of the difference; without a
//! mechanism they make another, and what is between the two is the mechanism's part. Each part is told with
//! that mechanism alone switched off: parts overlap, and need not add up to the whole.
//!
//! Time that a mechanism costs is not always sampled where it happens: behind a call, in what was inlined. Where no place
//! tells of one, and the builds differ by enough, the places that were counted and followed are held against the clock as one
//! (all of user code, where these do not hold most of the difference); only what single instructions have is named there.
//!
//! Where the instructions of whole runs could not be counted, both builds are taken to execute as many in a
//! function that both have, or, where the windows hold enough calls of it, to call it as often. The clock contradicts that, too, if it is not so: more instructions at the same
//! price take longer, and the model would not have predicted it.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::joined::Joined;
use super::prediction::{
    AS_MUCH, ForEach, LEAST_PART, More, Spent, had_more, is_alike, is_paid_for_elsewhere,
    more_for_each, ns_per_cycle, predict,
};
use super::rows::are_most_in_made_code;
use super::run_count::Executed;
use super::side::Side;
use super::summary::LEAST_BESIDE;
use super::windows::BothArms;
use super::work::{MOST, UserCode, Work};
use super::{FunctionRow, Place, Share};
use crate::code::{DebugInfo, Image, short_name};
use crate::compare::Arm;
use crate::machine::MemoryRenaming;
use crate::model::{FileOffset, Measurement, Site};
use crate::sim::Sites;
use crate::sim::core::{Account, Mechanism};

/// Places that get a ledger.
const MOST_PLACES: usize = 6;
/// The builds must differ by this factor for the model of a whole run to be asked.
const LEAST_WHOLE: f64 = 1.1;
/// Instructions of a run where they were not counted: any number, if it is the same for both.
pub(super) const TAKEN: [u64; 2] = [1_000_000_000; 2];
/// Calls of a function in the windows of each build that tell what one executes.
const LEAST_CALLS: u64 = 100;

/// What one mechanism does in one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerLine {
    /// Which.
    pub mechanism: Mechanism,
    /// Executions that had it in a thousand instructions of BEFORE and of AFTER, of the place, or of all user code where the
    /// place waits for branches that are mispredicted in front of it; absent for mechanisms that single executions do not have.
    pub per_thousand: Option<[f64; 2]>,
    /// Cycles of an instruction that are gone without it, in BEFORE and in AFTER.
    pub cycles_per_instruction: [f64; 2],
    /// The part of the difference that is gone without it, by the model; the spread is that between windows.
    pub part: Share,
    /// What of that is left, in per cent of the difference, where each instruction has it as often in both builds: more
    /// instructions alone have more of everything.
    #[serde(default)]
    pub for_each_percent: f64,
    /// The instruction of the slow build that has it most often.
    pub site: Option<Site>,
    /// Whether it is named as the cause.
    pub is_named: bool,
    /// Whether it is a good part of the difference, where no mechanism alone is most of it.
    #[serde(default)]
    pub is_part: bool,
}

/// What is not known of the core: of what it may be, what comes nearest to what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CoreTaken {
    /// Which loads it was taken to serve while renaming, of the ways that a design may do it.
    pub renames_memory: MemoryRenaming,
    /// Of the lines behind the second level whose place nothing in the windows tells, those that were taken to come from memory
    /// and not from the third level, in per cent.
    pub from_memory_percent: u64,
    /// How much of the third level was taken to be left to the core, in bytes, where that is more than was probed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub third_level_bytes: Option<u64>,
    /// Of the branches that tables of the predictor of twice the measured size hold and tables of a quarter of that size would
    /// not, those that were taken to be mispredicted, in per cent.
    pub forgotten_percent: u64,
    /// Of the instructions, those that were taken to be executed while another thread kept the core busy, in per cent; where
    /// one was seen.
    #[serde(default)]
    pub shared_percent: u64,
}

impl CoreTaken {
    /// A core as it was measured, that serves such loads while renaming.
    pub(super) fn plain(renames_memory: MemoryRenaming) -> Self {
        Self {
            renames_memory,
            from_memory_percent: 0,
            third_level_bytes: None,
            forgotten_percent: 0,
            shared_percent: 0,
        }
    }
}

/// What the model says of one place that holds a part of the difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ledger {
    /// The place.
    pub place: String,
    /// Functions that one build alone has, and that the place calls there: in the other build they are a part of it. Their time
    /// and what they execute are counted with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<String>,
    /// Whether that is all of user code, or all hot places together.
    pub is_whole: bool,
    /// The slow arm.
    pub slow_arm: Arm,
    /// Cycles of one instruction in BEFORE and AFTER, by the model; the spread is that between windows.
    pub cycles_per_instruction: [Measurement; 2],
    /// The part of the difference that the model predicts for the place.
    pub predicted: Share,
    /// The part that was measured there.
    pub measured: Share,
    /// What the core was taken for.
    #[serde(flatten)]
    pub core: CoreTaken,
    /// Whether the instructions of whole runs were counted; else both builds are taken to execute as many.
    pub counted: bool,
    /// Whether the two agree well enough for the model to be believed.
    pub agrees: bool,
    /// What instructions of microcode (`rep` and others) take longer in AFTER than in BEFORE, in per cent of the difference: their
    /// part of the place's cycles in the windows, of its measured time.
    #[serde(default)]
    pub microcode_percent: f64,
    /// The mechanism with events that would be named if there were more windows, or they did not differ by so much.
    #[serde(skip)]
    pub undecided: Option<Mechanism>,
    /// The mechanisms with a part worth showing, largest first.
    pub lines: Vec<LedgerLine>,
}

impl Ledger {
    /// What microcode waits for inside is not known: where it is most of the difference, chains and units are not why.
    pub(super) fn names_no_chain_in_microcode(&mut self) {
        if self.microcode_percent >= MOST {
            let lines = self.lines.iter_mut().filter(|line| !line.mechanism.has_events());
            lines.for_each(|line| line.is_named = false);
        }
    }

    /// Whether the model does not agree with the clock about most of the difference, where windows differ so much that more of
    /// them may.
    pub(super) fn may_agree(&self) -> bool {
        let Measurement { low, high, .. } = self.predicted.percent;
        let measured = self.measured.percent.value;
        !self.agrees && measured >= MOST && (low..=high).contains(&measured)
    }

    /// The line that is named as the cause.
    #[must_use]
    pub fn named(&self) -> Option<&LedgerLine> {
        self.lines.iter().find(|line| line.is_named)
    }

    /// What is gone without each mechanism that is a part of the difference, as words; none where one is named, or nothing is.
    #[must_use]
    pub fn parts_words(&self) -> Option<String> {
        let parts = self.lines.iter().filter(|line| line.is_part);
        let less = |line: &LedgerLine| {
            format!("without {} {:.0} % less", line.mechanism, line.part.percent.value)
        };
        let parts = parts.map(less).reduce(|all, one| format!("{all}, {one}"))?;
        Some(format!(
            "of {}, the model of the core predicts {:.0} % of the difference in processor time, {parts}",
            self.place, self.predicted.percent.value
        ))
    }

    /// What is counted with the place, as words behind its name.
    #[must_use]
    pub fn with_words(&self) -> String {
        match &self.with[..] {
            [] => String::new(),
            names => {
                let names: Vec<&str> = names.iter().map(|name| short_name(name)).collect();
                format!(" with {}, a part of it in the other build", names.join(", "))
            }
        }
    }

    /// Whether most of what is predicted for this place is gone without `mechanism`, which is no matter of more instructions.
    fn comes_from(&self, mechanism: Mechanism) -> bool {
        let line = self.lines.iter().find(|line| line.mechanism == mechanism);
        let part = line.map_or(0.0, |line| line.part.percent.value.min(line.for_each_percent));
        self.agrees && part >= LEAST_PART[0] * self.predicted.percent.value
    }

    /// Whether hardly anything of what is predicted is left without the mechanism that is named, which single executions have, also
    /// when what more instructions bring along is left out.
    pub(super) fn is_all_of_it(&self) -> bool {
        self.named().is_some_and(|line| {
            line.mechanism.has_events()
                && line.part.percent.value.min(line.for_each_percent)
                    >= AS_MUCH * self.predicted.percent.value
        })
    }

    /// What is gone without `mechanism`, in per cent of the difference.
    fn without(&self, mechanism: Mechanism) -> f64 {
        let line = self.lines.iter().find(|line| line.mechanism == mechanism);
        line.map_or(0.0, |line| line.part.percent.value)
    }

    /// The part of the place's difference that `mechanism` makes up, by a model that agrees with the clock.
    pub(super) fn part_of(&self, mechanism: Mechanism) -> Option<f64> {
        self.agrees.then(|| self.without(mechanism) / self.measured.percent.value)
    }
}

/// What the places whose difference comes from one mechanism have together, in per cent of the difference.
pub(super) struct Together {
    /// Names of these places.
    pub places: Vec<String>,
    pub predicted: f64,
    /// Of that, what is gone without the mechanism.
    pub without: f64,
    pub measured: f64,
}

impl Together {
    /// Of the mechanism that the first ledger that names one names; a function that is called behind a
    /// mispredicted branch pays for it, too.
    pub fn of(ledgers: &[Ledger]) -> Option<Self> {
        let (first, line) = ledgers.iter().find_map(|ledger| Some((ledger, ledger.named()?)))?;
        let mechanism = line.mechanism;
        if first.is_whole {
            Some(Self::alone(first, mechanism))
        } else {
            Self::by(ledgers, mechanism)
        }
    }

    /// Of all places whose difference comes from `mechanism`.
    pub fn by(ledgers: &[Ledger], mechanism: Mechanism) -> Option<Self> {
        let theirs = ledgers.iter().filter(|ledger| ledger.comes_from(mechanism));
        theirs.map(|ledger| Self::alone(ledger, mechanism)).reduce(|mut sum, one| {
            sum.places.extend(one.places);
            sum.predicted += one.predicted;
            sum.without += one.without;
            sum.measured += one.measured;
            sum
        })
    }

    /// What one place has.
    pub fn alone(ledger: &Ledger, mechanism: Mechanism) -> Self {
        Self {
            places: vec![ledger.place.clone()],
            predicted: ledger.predicted.percent.value,
            without: ledger.without(mechanism),
            measured: ledger.measured.percent.value,
        }
    }
}

/// What one shape of the core makes of the windows.
struct Shape<'a> {
    windows: &'a BothArms,
    /// Of each row; none where its instructions are not known.
    sides: Vec<Option<[Side; 2]>>,
    /// Of all user code, or of all hot places together.
    whole: [Side; 2],
    /// Of all that is executed, where whole runs were counted.
    in_run: Option<[Side; 2]>,
    /// Over all rows.
    more: More,
    /// Over those that were counted, if they hold most of the difference.
    for_each: Option<ForEach>,
    /// Over all of user code or all hot places, where they were counted.
    ns_per_cycle: Option<f64>,
}

impl Shape<'_> {
    /// Whether a place that takes its time by itself has a good part of the difference that this shape does not predict, or
    /// has not what it predicts: what all places together take says nothing then.
    fn is_contradicted(&self, rows: &[FunctionRow], difference_ns: f64) -> bool {
        let Some(ns_per_cycle) = self.ns_per_cycle else { return false };
        rows.iter().zip(&self.sides).any(|(row, sides)| {
            let is_by_itself =
                row.executed.is_some_and(|both| both.iter().all(Executed::is_by_itself));
            let followed = sides.as_ref().filter(|sides| sides.iter().all(Side::is_enough));
            followed.filter(|_| is_by_itself).is_some_and(|sides| {
                let [before, after] =
                    sides.each_ref().map(|side| side.of_a_run(|it| it.cycles as f64)[0]);
                let predicted = 100.0 * (after - before) * ns_per_cycle / difference_ns;
                (predicted - row.share_of_difference.percent.value).abs() >= LEAST_BESIDE
            })
        })
    }
}

/// What the windows of both builds hold of a place that whole runs execute so many instructions in.
fn sides_of(place: &Place, instructions: [u64; 2], both: &BothArms) -> [Side; 2] {
    [Arm::A, Arm::B].map(|arm| side_of(place, instructions, both, arm))
}

pub(super) fn side_of(place: &Place, instructions: [u64; 2], both: &BothArms, arm: Arm) -> Side {
    Side::of(instructions[arm.index()], both.arms[arm.index()].in_place(arm, place))
}

/// Whether windows of both builds hold enough of a place.
pub(super) fn is_followed(row: &FunctionRow, both: &BothArms) -> bool {
    let instructions = row.instructions().unwrap_or(TAKEN);
    sides_of(&row.place, instructions, both).iter().all(Side::is_enough)
}

/// The ledger by the shape that comes nearest to what was measured, and that shape: what is not known of the core is not
/// guessed.
fn nearest<'s, 'a>(
    shapes: &'s [Shape<'a>],
    ledger: impl Fn(&Shape<'a>) -> Option<Ledger>,
) -> Option<(Ledger, &'s Shape<'a>)> {
    let distance = |ledger: &Ledger| {
        let predicted = ledger.predicted.percent.value / ledger.measured.percent.value;
        if predicted > 0.0 { predicted.ln().abs() } else { f64::INFINITY }
    };
    let of_shape = |shape: &'s Shape<'a>| {
        let core = shape.windows.core;
        Some((Ledger { core, ..ledger(shape)? }, shape))
    };
    let all = shapes.iter().filter_map(of_shape);
    all.min_by(|(a, _), (b, _)| distance(a).total_cmp(&distance(b)))
}

/// The ledgers of the places that hold most of the difference, and of all user code, where only that names a cause; the
/// instructions of whole runs are those of `counted`.
pub(super) fn ledgers(
    rows: &[FunctionRow],
    (all, counted): (&UserCode, Option<&Work>),
    windows: &[BothArms],
    images: &[Image; 2],
    debug: &[DebugInfo<'_>; 2],
    slow: Arm,
    difference_ns: f64,
) -> Vec<Ledger> {
    let hold_most =
        |row: &FunctionRow| row.share_of_difference.percent.value >= super::cause::LEAST_PART;
    let sides = |row: &FunctionRow, both: &BothArms| {
        let is_in_both = row.place.is_in_both() || row.is_made_in_both();
        let taken = || is_in_both.then(|| per_call(&row.place, both));
        Some(sides_of(&row.place, row.instructions().or_else(taken)?, both))
    };
    let instructions = counted.map_or(TAKEN, |work| work.instructions.typical().map(|n| n as u64));
    let with_inlined = Joined::with_inlined(rows, images);
    let seen = Joined::of_all(rows, windows);
    let run_sides = |both: &BothArms| {
        [0, 1].map(|arm| Side::of(instructions[arm], both.arms[arm].in_whole_run()))
    };
    let whole_sides = |both: &BothArms| match &seen {
        Some(seen) => seen.sides(both),
        None => run_sides(both),
    };
    let (whole_place, whole_ns, whole_share) = match &seen {
        Some(seen) => ("all hot places", seen.ns, &seen.share),
        None => ("all of user code", all.ns, &all.share),
    };
    let shape = |windows| {
        let sides: Vec<_> = rows.iter().map(|row| sides(row, windows)).collect();
        let in_all = |it| {
            let each = sides.iter().flatten().map(|sides| had_more(sides, it, slow));
            each.fold([0.0; 2], |[cycles, events], [c, e]| [cycles + c, events + e])
        };
        let for_each = |it| {
            let known = rows.iter().zip(&sides).filter_map(|(row, sides)| {
                let sides = sides.as_ref().filter(|sides| sides.iter().all(Side::is_enough))?;
                row.executed.map(|_| more_for_each(sides, it, slow))
            });
            known.sum()
        };
        let for_each = seen.is_some().then(|| Mechanism::ALL.map(for_each));
        let whole = whole_sides(windows);
        let ns_per_cycle = counted.and_then(|_| ns_per_cycle(whole_ns, &whole));
        let in_run = counted.map(|_| run_sides(windows));
        let more = Mechanism::ALL.map(in_all);
        Shape { windows, more, for_each, ns_per_cycle, sides, whole, in_run }
    };
    let shapes: Vec<Shape<'_>> = windows.iter().map(shape).collect();
    let mut sites = Sites::new(&images[slow.index()], &debug[slow.index()]);
    let of_row = |(n, row): (usize, &FunctionRow)| {
        let whole = with_inlined[n].as_ref();
        let parts = whole.map_or(&[][..], Joined::parts);
        let (mut ledger, shape) = nearest(&shapes, |shape| {
            let (ns_per_cycle, in_run) = (shape.ns_per_cycle, shape.in_run.as_ref());
            let spent = Spent { ns_per_cycle, in_run, ..Spent::of(row) };
            match whole {
                Some(whole) => {
                    let spent = Spent { ns: whole.ns, share: &whole.share, ..spent };
                    let sides = whole.sides(shape.windows);
                    predict(&spent, &sides, &shape.more, slow, difference_ns)
                }
                None => predict(&spent, shape.sides[n].as_ref()?, &shape.more, slow, difference_ns),
            }
        })?;
        let of_arm = |arm: Arm| {
            let (windows, place) = (&shape.windows.arms[arm.index()], &row.place);
            let part = match (place.function(arm), place.object(arm)) {
                (Some(it), _) => part_in_microcode(&windows.insns(it.start, it.end())),
                (None, Some(path)) => part_in_microcode(&windows.insns_of_object(path)),
                (None, None) => 0.0,
            };
            part * [row.before.value, row.after.value][arm.index()]
        };
        ledger.microcode_percent = 100.0 * (of_arm(Arm::B) - of_arm(Arm::A)) / difference_ns;
        ledger.names_no_chain_in_microcode();
        ledger.with = parts.iter().map(|part| part.place.name().to_owned()).collect();
        let arm = &shape.windows.arms[slow.index()];
        if let Some(function) = row.place.function(slow) {
            let mut insns = arm.insns(function.start, function.end());
            for part in parts.iter().filter_map(|part| part.place.function(slow)) {
                insns.extend(arm.insns(part.start, part.end()));
            }
            for line in &mut ledger.lines {
                let at = match is_paid_for_elsewhere(line.mechanism, &insns.values().sum()) {
                    true => most(&arm.insns_of_program(), line.mechanism),
                    false => most(&insns, line.mechanism),
                };
                line.site = at.and_then(|at| sites.site(at));
            }
        } else if let Some(path) = row.place.object(slow) {
            sites_in_object(path, &arm.insns_of_object(path), &mut ledger.lines);
        }
        Some(ledger)
    };
    let places = rows.iter().enumerate().filter(|(_, row)| hold_most(row));
    let mut ledgers: Vec<Ledger> = places.take(MOST_PLACES).filter_map(of_row).collect();
    let [fast_ns, slow_ns] = [slow.other(), slow].map(|arm| whole_ns[arm.index()]);
    let calls_alike = |shape: &Shape<'_>| {
        let hot = rows.iter().zip(&shape.sides).filter(|(row, _)| hold_most(row));
        hot.filter_map(|(_, sides)| sides.as_ref()).all(is_alike)
    };
    // Windows that start in code made at run time alone tell nothing of what other threads execute.
    let are_of_a_run = counted.is_some() || !are_most_in_made_code(rows);
    if slow_ns >= LEAST_WHOLE * fast_ns
        && are_of_a_run
        && Together::of(&ledgers).is_none_or(|named| named.without < MOST)
        && (counted.is_some() || shapes.iter().all(calls_alike))
    {
        let nothing_moves = [[f64::INFINITY; 2]; Mechanism::ALL.len()];
        let whole = nearest(&shapes, |shape| {
            let spent = Spent {
                place: whole_place,
                ns: whole_ns,
                share: whole_share,
                is_counted: counted.is_some(),
                is_whole: true,
                for_each: shape.for_each,
                ns_per_cycle: None,
                in_run: None,
            };
            predict(&spent, &shape.whole, &nothing_moves, slow, difference_ns)
        });
        let whole = whole.map(|(mut ledger, shape)| {
            if shape.is_contradicted(rows, difference_ns) {
                ledger.lines.iter_mut().for_each(|line| line.is_named = false);
            }
            if let Some(line) = ledger.lines.iter_mut().find(|line| line.is_named) {
                let arm = &shape.windows.arms[slow.index()];
                let events = |all: &mut dyn Iterator<Item = &Account>| {
                    all.map(|account| account.events_of(line.mechanism)).sum::<u64>()
                };
                let insns = arm.insns_of_program();
                let here = events(&mut insns.values());
                let objects = rows.iter().filter(|row| matches!(row.place, Place::Object { .. }));
                let objects = objects.map(|row| (row, arm.insns_of(&row.place.object_name())));
                let most_there = objects
                    .map(|(row, insns)| (events(&mut insns.values()), row, insns))
                    .max_by_key(|(events, ..)| *events)
                    .filter(|(there, ..)| *there > here);
                match most_there.map(|(_, row, insns)| (row, row.place.object(slow), insns)) {
                    Some((_, Some(path), insns)) => {
                        sites_in_object(path, &insns, std::slice::from_mut(line));
                    }
                    Some((row, None, _)) => {
                        ledger.place += &format!(", most of all in {}", row.place.name());
                    }
                    None => line.site = most(&insns, line.mechanism).and_then(|at| sites.site(at)),
                }
            }
            ledger
        });
        let is_named = ledgers.iter().any(|ledger| ledger.named().is_some());
        let whole = whole.filter(|whole| match whole.named() {
            Some(line) => !is_named || whole.without(line.mechanism) >= MOST,
            None => ledgers.is_empty(),
        });
        if whole.is_some() {
            // The cycles of one place that waits may be spent in another: what is named is named of both together.
            ledgers.iter_mut().flat_map(|it| &mut it.lines).for_each(|line| line.is_named = false);
        }
        ledgers.extend(whole);
    }
    ledgers
}

/// The way to rename memory by which a place is undecided, where no place names anything.
pub(super) fn undecided(ledgers: &[Ledger]) -> Option<MemoryRenaming> {
    let is_named = ledgers.iter().any(|ledger| ledger.named().is_some());
    let undecided = ledgers.iter().find(|ledger| !is_named && ledger.undecided.is_some());
    undecided.map(|ledger| ledger.core.renames_memory)
}

/// What a place that both builds have is taken to execute where that was not counted: as many instructions, or, where
/// the windows hold enough calls of it, what these execute, called as often.
fn per_call(place: &Place, both: &BothArms) -> [u64; 2] {
    let of_a_call = [Arm::A, Arm::B].map(|arm| {
        let function = place.function(arm)?;
        let insns = both.arms[arm.index()].insns(function.start, function.end());
        let calls = insns.get(&function.start).filter(|entry| entry.executions >= LEAST_CALLS)?;
        let all: u64 = insns.values().map(|account| account.executions).sum();
        Some(all as f64 / calls.executions as f64)
    });
    let [Some(a), Some(b)] = of_a_call else { return TAKEN };
    [a, b].map(|of_a_call| (TAKEN[0] as f64 * of_a_call / a.max(b)) as u64)
}

/// The instructions of another file than the program; nothing where it cannot be read.
fn sites_in_object(path: &Path, insns: &BTreeMap<FileOffset, Account>, lines: &mut [LedgerLine]) {
    let Ok(image) = Image::open(path) else { return };
    let debug = DebugInfo::of(&image);
    let mut sites = Sites::new(&image, &debug);
    for line in lines {
        let at = most(insns, line.mechanism).and_then(|at| image.svma_of(at));
        line.site = at.and_then(|at| sites.site(at));
    }
}

/// Of the cycles of instructions, the part in which those of microcode retire.
fn part_in_microcode<K>(insns: &BTreeMap<K, Account>) -> f64 {
    let is_in_microcode = |account: &&Account| account.events_of(Mechanism::Microcode) > 0;
    let all: u64 = insns.values().map(|account| account.cycles).sum();
    let own: u64 = insns.values().filter(is_in_microcode).map(|account| account.cycles).sum();
    own as f64 / all.max(1) as f64
}

/// The instruction that has a mechanism most often, or takes longest.
fn most<K: Ord + Copy>(insns: &BTreeMap<K, Account>, mechanism: Mechanism) -> Option<K> {
    let weight = |account: &Account| match mechanism.has_events() {
        true => account.events_of(mechanism),
        false => account.cycles,
    };
    let best =
        insns.iter().max_by_key(|(at, account)| (weight(account), std::cmp::Reverse(**at)))?;
    (weight(best.1) > 0).then_some(*best.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_in_microcode_are_those_of_the_instructions_that_have_it() {
        let account = |cycles: u64, events: u64| {
            let mut account = Account { cycles, ..Account::default() };
            account.events[Mechanism::Microcode as usize] = events;
            account
        };
        let both = BTreeMap::from([(0, account(30, 0)), (4, account(90, 2))]);
        assert!((part_in_microcode(&both) - 0.75).abs() < 1e-9);
        assert!(part_in_microcode(&BTreeMap::<u64, Account>::new()) == 0.0);
    }
}
