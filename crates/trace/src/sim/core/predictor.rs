//! Which branches a modern predictor gets wrong: directions, indirect targets, returns.
//!
//! Directions come from tagged tables that are looked up with more and more history, the longest match
//! first, targets of indirect jumps from the same kind of tables, returns from a stack. What a real core
//! does better or worse than this is not known from outside; differences between two builds of one program
//! are told with less doubt than counts.
//! Literature: A. Seznec and P. Michaud, "A case for (partially) TAgged GEometric history length branch
//! prediction" (2006).

use super::ops::{Flow, Op};
use super::program::Program;
use crate::machine::{BranchHistory, LearnedBranches};
use crate::model::Avma;
use crate::trace::engine::{Block, BlockId, MemoryAccess, Sink};

/// Tables, each of which sees more of the history than the one before.
const TABLES: usize = 7;
/// Branches that they see where all are kept, and where only those that are taken.
const OUTCOMES: [u32; TABLES] = [4, 8, 16, 32, 64, 96, 127];
/// The longer ones hold most of what is learned of a random sequence: where they are few, less is learned than cores do (measured on
/// Redwood Cove: of 8,000 directions, a quarter taken, nine tenths).
const TAKEN: [u32; TABLES] = [3, 8, 16, 28, 34, 40, 44];
/// Branches that are remembered, a power of two that no table sees all of.
const REMEMBERED: usize = 128;
/// Taken branches of which the place is known where of others only outcomes are, and bits of each.
const PATH: u32 = 3;
const OF_PATH: u32 = 20;
/// Bits that the long history has of the address of an indirect branch, and that are kept of a quarter of the last return's.
const OF_JUMP: u64 = 15;
const OF_RETURN: u64 = 3;
/// Branches whose last outcomes are remembered whatever the history; a power of two.
const PLAIN_ENTRIES: usize = 1 << 14;
/// Random directions that come again and again, and targets, for each entry of one table, where half are learned; so the
/// tables below behave, whatever their size.
const LEARNED_DIRECTIONS: u32 = 12;
const LEARNED_TARGETS: u32 = 7;
/// Branches of which it is known apart whether new entries are to be trusted; a power of two.
const TRUSTED: usize = 1 << 10;
/// Tables that get an entry for a branch that was wrong, at the most.
const NEW_ENTRIES: usize = 3;
/// Return addresses that are remembered.
const RETURNS: usize = 32;

/// What a branch did behind one history: it was taken, or where it went.
#[derive(Clone, Copy, Default)]
struct Entry<V> {
    tag: u16,
    value: V,
    /// How often more it came true than not.
    confidence: u8,
    /// How often it was right where the next shorter history was not.
    useful: u8,
}

impl<V: Copy + Eq> Entry<V> {
    /// It has told nothing yet that the shorter history did not.
    fn is_new(&self) -> bool {
        self.useful == 0 && self.confidence == 0
    }

    /// Holds what it says against what happened; believes it up to `most`.
    fn learn(&mut self, value: V, most: u8) {
        match self.confidence.checked_sub(1) {
            _ if self.value == value => self.confidence = (self.confidence + 1).min(most),
            Some(less) => self.confidence = less,
            None => self.value = value,
        }
    }
}

/// What branches do, by the history in front of them.
#[derive(Clone)]
struct Tagged<V> {
    /// By branch, whatever the history.
    plain: Vec<Entry<V>>,
    /// By branch: whether new entries were right where the next shorter history was not; from 0 on they are trusted.
    trust: Vec<i8>,
    /// By table.
    entries: Vec<Vec<Entry<V>>>,
    /// By branch, where tables are held against what it did last, which `plain` is then: from 0 on they are trusted.
    against_last: Option<Vec<i8>>,
    /// State of the draws.
    draw: u64,
}

impl<V: Copy + Eq + Default> Tagged<V> {
    /// With so many entries in each table, and `unknown` for branches that were never seen. Of targets, Zen 5 was measured to choose
    /// for each branch between tables and its last target: calls of one of twelve functions, another one behind each 3, 6 or 12,
    /// are mispredicted 1.0 to 1.3 times a change, whatever branches are in the functions.
    fn new(entries: usize, unknown: V, is_held_against_last: bool) -> Self {
        Self {
            plain: vec![Entry { value: unknown, ..Entry::default() }; PLAIN_ENTRIES],
            trust: vec![0; TRUSTED],
            entries: vec![vec![Entry::default(); entries.max(1)]; TABLES],
            against_last: is_held_against_last.then(|| vec![0; TRUSTED]),
            draw: 1,
        }
    }

    /// A branch did this behind this history; whether that was predicted.
    fn learn(&mut self, branch: Avma, history: &History, value: V) -> bool {
        let way = history.way();
        let slots: [(usize, u16); TABLES] = std::array::from_fn(|table| {
            let (index, tag) = history.slot(branch, way, table);
            ((index * self.entries[table].len()) >> 32, tag)
        });
        let plain = (branch.0 ^ (branch.0 >> 14)) as usize & (PLAIN_ENTRIES - 1);
        let matching = |table: &usize| self.entries[*table][slots[*table].0].tag == slots[*table].1;
        let mut found = (0..TABLES).rev().filter(matching);
        let (longest, next) = (found.next(), found.next());
        let entry = |table: Option<usize>| match table {
            Some(table) => self.entries[table][slots[table].0],
            None => self.plain[plain],
        };
        let is_right = |table: Option<usize>| entry(table).value == value;
        let is_needed = entry(longest).value != entry(next).value;
        let longest_is_right = is_right(longest);
        let trust = (branch.0 ^ (branch.0 >> 10)) as usize & (TRUSTED - 1);
        let mut right = longest_is_right;
        if is_needed && longest.is_some() && entry(longest).is_new() {
            let before = self.trust[trust];
            if before < 0 {
                right = is_right(next);
            }
            self.trust[trust] = (before + if longest_is_right { 1 } else { -1 }).clamp(-8, 7);
        }
        match longest {
            Some(table) => {
                let entry = &mut self.entries[table][slots[table].0];
                entry.learn(value, 3);
                entry.useful = match longest_is_right {
                    true => (entry.useful + u8::from(is_needed)).min(3),
                    false => entry.useful.saturating_sub(u8::from(is_needed)),
                };
            }
            None if self.against_last.is_none() => self.plain[plain].learn(value, 1),
            None => {}
        }
        if let Some(against_last) = &mut self.against_last {
            let last_is_right = std::mem::replace(&mut self.plain[plain].value, value) == value;
            let before = against_last[trust];
            if right != last_is_right {
                against_last[trust] = (before + if right { 1 } else { -1 }).clamp(-8, 7);
            }
            right = if before < 0 { last_is_right } else { right };
        }
        if !right {
            // A longer history may tell; entries that help nothing else are taken, not always the next ones.
            let longer = longest.map_or(0, |table| table + 1);
            self.draw = self.draw.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let first = longer + usize::from(self.draw >> 63 == 1 && longer + 1 < TABLES);
            let is_free = |table: &usize| self.entries[*table][slots[*table].0].useful == 0;
            let free: Vec<usize> = (first..TABLES).filter(is_free).take(NEW_ENTRIES).collect();
            for table in &free {
                let (index, tag) = slots[*table];
                self.entries[*table][index] = Entry { tag, value, ..Entry::default() };
            }
            if free.is_empty() {
                for (table, (index, _)) in self.entries.iter_mut().zip(slots).skip(longer) {
                    table[index].useful = table[index].useful.saturating_sub(1);
                }
            }
        }
        right
    }
}

/// The branches before.
#[derive(Clone)]
struct History {
    kept: BranchHistory,
    /// What was remembered of each, from `at` on the oldest first.
    branches: [u64; REMEMBERED],
    at: usize,
    /// By table: those that it sees, each turned by as many bits as branches came behind it.
    folded: [u128; TABLES],
    /// Places of the last taken branches, the last one lowest, for [`BranchHistory::Outcomes`].
    path: u64,
    /// Bits of the place of the last return, for the same.
    returned: u64,
    /// By conditional branch: bits of whether it was taken and whether it was not, for the same.
    seen: Vec<u8>,
}

impl History {
    fn new(kept: BranchHistory) -> Self {
        Self {
            kept,
            branches: [0; REMEMBERED],
            at: 0,
            folded: [0; TABLES],
            path: 0,
            returned: 0,
            seen: vec![0; PLAIN_ENTRIES],
        }
    }

    /// A branch at the first address, with the second one behind it, went to `to`.
    fn remember(&mut self, flow: Flow, [at, next]: [Avma; 2], to: Avma) {
        let taken = to != next;
        if self.kept == BranchHistory::Outcomes {
            self.pass(flow, at, to, taken);
        }
        let (branch, seen) = match (self.kept, flow) {
            (BranchHistory::Outcomes, Flow::Either) if self.goes_both_ways(at, taken) => {
                (u64::from(taken), &OUTCOMES)
            }
            (BranchHistory::Outcomes, Flow::IndirectJump | Flow::IndirectCall) => {
                (hash(at.0 & OF_JUMP), &OUTCOMES)
            }
            (BranchHistory::TakenBranches, _) if taken && flow != Flow::On => {
                (hash(at.0 ^ to.0.rotate_left(32)), &TAKEN)
            }
            _ => return,
        };
        for (folded, length) in self.folded.iter_mut().zip(seen) {
            let oldest = self.branches[(self.at + REMEMBERED - *length as usize) % REMEMBERED];
            let turned = u128::from(oldest).rotate_left(*length);
            *folded = folded.rotate_left(1) ^ u128::from(branch) ^ turned;
        }
        self.branches[self.at] = branch;
        self.at = (self.at + 1) % REMEMBERED;
    }

    /// A branch went to a place. As measured on Zen 4: an indirect one is told for two taken branches, others for three, and
    /// a return leaves nothing but its bits.
    fn pass(&mut self, flow: Flow, at: Avma, to: Avma, taken: bool) {
        let (place, first) = match flow {
            Flow::On => return,
            Flow::Either if !taken => return,
            Flow::Return => {
                (self.path, self.returned) = (0, (at.0 >> 2) & OF_RETURN);
                return;
            }
            Flow::IndirectJump | Flow::IndirectCall => (at.0 ^ to.0.rotate_left(32), 1),
            Flow::Either | Flow::Jump | Flow::Call => (at.0, 0),
        };
        let place = hash(place) & ((1 << OF_PATH) - 1);
        let path = self.path << OF_PATH ^ place << (first * OF_PATH);
        self.path = path & ((1 << (PATH * OF_PATH)) - 1);
    }

    /// A conditional branch did this; whether it has done the other, too.
    fn goes_both_ways(&mut self, at: Avma, taken: bool) -> bool {
        let seen = &mut self.seen[hash(at.0) as usize % PLAIN_ENTRIES];
        *seen |= if taken { 1 } else { 2 };
        *seen == 3
    }

    /// What all tables know of the way to a branch.
    fn way(&self) -> u64 {
        hash(self.path ^ self.returned << 60)
    }

    /// Index (of 32 bits) and tag in a table of a branch that this way leads to.
    fn slot(&self, branch: Avma, way: u64, table: usize) -> (usize, u16) {
        let folded = self.folded[table];
        // Not folded upon itself: the end of a loop would be told from one of its turns no more.
        let folded = (folded as u64) ^ ((folded >> 64) as u64).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let hash = hash(
            folded ^ way ^ branch.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ((table as u64) << 50),
        );
        (hash as usize & 0xffff_ffff, (hash >> 40) as u16 | 1)
    }
}

/// Spreads bits over all bits; no two numbers become one.
pub(super) fn hash(mut bits: u64) -> u64 {
    bits ^= bits >> 29;
    bits = bits.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits ^ bits >> 32
}

/// The state of a predictor; it starts with no knowledge.
#[derive(Clone)]
pub(super) struct Predictor {
    directions: Tagged<bool>,
    targets: Tagged<u64>,
    returns: Vec<Avma>,
    history: History,
}

impl Predictor {
    /// With the tables of this shape.
    pub(super) fn new(learned: LearnedBranches) -> Self {
        let directions = learned.directions / LEARNED_DIRECTIONS;
        let targets = learned.targets / LEARNED_TARGETS;
        Self {
            directions: Tagged::new(directions as usize, true, false),
            targets: Tagged::new(targets as usize, 0, learned.history == BranchHistory::Outcomes),
            returns: Vec::with_capacity(RETURNS + 1),
            history: History::new(learned.history),
        }
    }

    /// The branch went to `to`; whether that was predicted.
    pub(super) fn branch(&mut self, op: &Op, to: Avma) -> bool {
        self.flow(op.flow, [op.address, op.next], to)
    }

    /// The same of a branch at the first address, with the second one behind it.
    fn flow(&mut self, flow: Flow, [at, next]: [Avma; 2], to: Avma) -> bool {
        let right = match flow {
            Flow::On | Flow::Jump | Flow::Call => true,
            Flow::Either => self.directions.learn(at, &self.history, to != next),
            Flow::IndirectJump | Flow::IndirectCall => self.targets.learn(at, &self.history, to.0),
            Flow::Return => self.returns.pop() == Some(to),
        };
        if matches!(flow, Flow::Call | Flow::IndirectCall) {
            self.call(next);
        }
        self.history.remember(flow, [at, next], to);
        right
    }

    /// A call that returns to `behind`.
    fn call(&mut self, behind: Avma) {
        if self.returns.len() == RETURNS {
            self.returns.remove(0);
        }
        self.returns.push(behind);
    }
}

/// The predictor alone, driven by the trace of a window: which of its branches are predicted. That is no matter of when they
/// are executed: it is the same with each mechanism and without.
pub(super) struct Mispredictions<'a> {
    program: &'a Program,
    /// What it knew before.
    trained: &'a Predictor,
    predictor: Predictor,
    /// The last instruction, if it may have gone elsewhere.
    branch: Option<&'a Op>,
    /// In order.
    predicted: Vec<bool>,
}

impl<'a> Mispredictions<'a> {
    pub(super) fn new(program: &'a Program, trained: &'a Predictor) -> Self {
        let predictor = trained.clone();
        Self { program, trained, predictor, branch: None, predicted: Vec::new() }
    }

    /// Of all branches that it was told, in order, whether each is predicted.
    pub(super) fn into_predicted(self) -> Vec<bool> {
        self.predicted
    }

    /// What it knows behind all that it was told.
    pub(super) fn into_predictor(self) -> Predictor {
        self.predictor
    }
}

impl Sink for Mispredictions<'_> {
    fn describe(&mut self, _id: BlockId, _block: &Block) {}

    fn restart(&mut self) {
        *self = Self::new(self.program, self.trained);
    }

    fn run(&mut self, id: BlockId, _accesses: &[MemoryAccess]) {
        let program = self.program;
        let Some(ops) = program.blocks.get(id.0 as usize) else { return };
        let op = |number: &u32| &program.ops[*number as usize];
        if let Some(first) = ops.first().map(op)
            && let Some(branch) = self.branch.take()
        {
            self.predicted.push(self.predictor.branch(branch, first.address));
        }
        self.branch = ops.iter().rev().map(op).find(|op| op.flow != Flow::On).or(self.branch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZEN: LearnedBranches =
        LearnedBranches { directions: 70_000, targets: 2200, history: BranchHistory::Outcomes };
    const COVE: LearnedBranches =
        LearnedBranches { directions: 3600, targets: 650, history: BranchHistory::TakenBranches };
    /// A branch, what is behind it, and where it goes if it is taken.
    const BRANCH: [Avma; 3] = [Avma(0x40_1000), Avma(0x40_1002), Avma(0x40_1010)];
    const LOOP: [Avma; 3] = [Avma(0x40_1020), Avma(0x40_1022), Avma(0x40_0ff0)];

    fn is_wrong(predictor: &mut Predictor, [at, next, to]: [Avma; 3], taken: bool) -> usize {
        let to = if taken { to } else { next };
        usize::from(!predictor.flow(Flow::Either, [at, next], to))
    }

    fn wrong(outcomes: impl Iterator<Item = bool>) -> usize {
        let mut predictor = Predictor::new(ZEN);
        outcomes.map(|taken| is_wrong(&mut predictor, BRANCH, taken)).sum()
    }

    fn random() -> impl Iterator<Item = u64> {
        let mut state = 7_u64;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state
        })
    }

    /// The part that is mispredicted of a sequence that has come so many times.
    fn missed<T>(
        learned: LearnedBranches,
        (sequence, passes): (&[T], usize),
        one: impl Fn(&mut Predictor, &T) -> usize,
    ) -> f64 {
        let mut predictor = Predictor::new(learned);
        let mut pass = |_| sequence.iter().map(|it| one(&mut predictor, it)).sum::<usize>();
        (0..passes).map(&mut pass).last().unwrap_or(0) as f64 / sequence.len() as f64
    }

    #[test]
    fn patterns_are_learnt_and_chance_is_not() {
        assert!(wrong((0..4000).map(|n| n % 10 != 0)) < 60);
        assert!(wrong((0..4000).map(|n| n % 48 != 47)) < 250);
        let of_random = wrong(random().map(|bits| bits >> 63 == 1).take(4000));
        assert!((1600..2400).contains(&of_random), "{of_random}");
    }

    #[test]
    fn of_chance_with_a_bias_hardly_more_is_missed_than_the_rare_ones() {
        let missed = wrong(random().map(|bits| bits >> 56 < 26).take(100_000)) as f64 / 100_000.0;
        assert!((0.09..0.115).contains(&missed), "a tenth is rare: {missed}");
    }

    #[test]
    fn the_end_of_a_loop_is_predicted_as_far_as_the_history_reaches() {
        // As measured on Redwood Cove: 44 taken branches, one a turn or two.
        for (learned, turns, is_right) in
            [(ZEN, 120, true), (ZEN, 140, false), (COVE, 40, true), (COVE, 50, false)]
        {
            let outer = |predictor: &mut Predictor, _: &()| {
                is_wrong(predictor, BRANCH, true);
                (1..=turns).map(|turn| is_wrong(predictor, LOOP, turn < turns)).sum()
            };
            let missed = missed(learned, (&[(); 100], 10), outer);
            assert_eq!(missed < 0.1, is_right, "{learned:?}, {turns} turns: {missed}");
        }
    }

    #[test]
    fn directions_that_come_again_are_learned_where_the_tables_hold_them() {
        for (learned, length, expected) in [
            // As measured on Zen 4, Zen 5 and on Redwood Cove: of as many mispredictions as without memory, half as a part.
            (ZEN, 40_000, 0.0..0.02),
            (ZEN, 70_000, 0.2..0.3),
            (ZEN, 100_000, 0.35..0.42),
            (LearnedBranches { directions: 40_000, ..ZEN }, 22_600, 0.0..0.02),
            (LearnedBranches { directions: 40_000, ..ZEN }, 65_536, 0.36..0.48),
            (COVE, 2000, 0.0..0.03),
            (COVE, 2800, 0.02..0.16),
            (COVE, 3600, 0.2..0.32),
            (COVE, 5700, 0.37..0.5),
        ] {
            let bits: Vec<bool> = random().map(|bits| bits >> 63 == 1).take(length).collect();
            let missed = missed(learned, (&bits, 20), |predictor, taken| {
                let wrong = is_wrong(predictor, BRANCH, *taken);
                is_wrong(predictor, LOOP, true);
                wrong
            });
            assert!(expected.contains(&missed), "{length} of {learned:?}: {missed}");
        }
    }

    #[test]
    fn targets_that_come_again_are_learned_where_the_tables_hold_them() {
        for (learned, length, expected) in [
            // As measured there.
            (ZEN, 1000, 0.0..0.1),
            (ZEN, 2000, 0.35..0.6),
            (ZEN, 6000, 0.8..1.0),
            (COVE, 350, 0.0..0.01),
            (COVE, 700, 0.4..0.7),
            (COVE, 1400, 0.7..1.0),
        ] {
            // Each place jumps to the next one by itself, from another byte of a block of 16.
            let of = |bits: u64| Avma(0x40_2000 + (bits >> 59) * 65);
            let places: Vec<Avma> = random().map(of).take(length).collect();
            let jumps: Vec<[Avma; 2]> = places
                .iter()
                .copied()
                .zip(places.iter().copied().cycle().skip(1))
                .map(<[_; 2]>::from)
                .collect();
            let missed = missed(learned, (&jumps, 40), |predictor, [at, to]| {
                usize::from(!predictor.flow(Flow::IndirectJump, [*at, at.offset(2)], *to))
            });
            assert!(expected.contains(&missed), "{length} of {learned:?}: {missed}");
        }
    }

    /// The part mispredicted of indirect branches by which a loop goes to eight bodies, so many bytes apart and more, in an
    /// order of so many that comes again and again.
    fn missed_of_bodies(flow: Flow, order: usize, stride: u64) -> f64 {
        let bodies: Vec<Avma> =
            random().map(|bits| Avma(0x40_2000 + (bits >> 61) * stride)).take(order).collect();
        let top = Avma(0x40_1000);
        missed(ZEN, (&bodies, 4000 / order), |predictor, body| {
            let right = predictor.flow(flow, [top, top.offset(2)], *body);
            let end = [body.offset(16), body.offset(18)];
            match flow {
                Flow::IndirectCall => {
                    predictor.flow(Flow::Return, end, top.offset(2));
                    predictor.flow(Flow::Either, [top.offset(2), top.offset(4)], top);
                }
                _ => _ = predictor.flow(Flow::Jump, end, top),
            }
            usize::from(!right)
        })
    }

    #[test]
    fn calls_by_one_place_are_not_told_apart_on_zen_and_jumps_are_by_the_last_two() {
        // Measured: calls 0.8 of 8, 1.0 of 64 in order, from bodies whose returns lie elsewhere modulo 16 0.1 and 0.6; jumps 0 of
        // 8, 0.1 to 0.4 of 64, 0.5 to 1 of 1000.
        let calls = |order, stride| missed_of_bodies(Flow::IndirectCall, order, stride);
        assert!(calls(8, 64) > 0.6 && calls(64, 64) > 0.8, "{} {}", calls(8, 64), calls(64, 64));
        assert!(calls(8, 68) < calls(8, 64), "{} {}", calls(8, 68), calls(8, 64));
        let jumps = |order| missed_of_bodies(Flow::IndirectJump, order, 64);
        assert!(jumps(8) < 0.1, "{}", jumps(8));
        assert!(
            (0.1..0.5).contains(&jumps(64)) && jumps(1000) > 0.5,
            "{} {}",
            jumps(64),
            jumps(1000)
        );
    }

    #[test]
    fn a_call_of_another_function_behind_each_few_is_mispredicted_about_once() {
        // Functions with a loop of as many turns as three others, or without one.
        let of = |run: usize, has_loops: bool| {
            let mut predictor = Predictor::new(LearnedBranches { targets: 700, ..ZEN });
            let functions: Vec<u64> = random().map(|bits| (bits >> 32) % 12).take(4000).collect();
            let changes = functions.windows(2).filter(|two| two[0] != two[1]).count();
            let mut wrong = 0;
            for function in functions.iter().flat_map(|function| std::iter::repeat_n(function, run))
            {
                let body = Avma(0x40_2000 + function * 64);
                let call = [BRANCH[0], BRANCH[1]];
                wrong += usize::from(!predictor.flow(Flow::IndirectCall, call, body));
                for turn in 0..if has_loops { function % 4 + 2 } else { 0 } {
                    let again = [body.offset(8), body.offset(10), body.offset(4)];
                    is_wrong(&mut predictor, again, turn < function % 4 + 1);
                }
                predictor.flow(Flow::Return, [body.offset(16), body.offset(17)], BRANCH[1]);
                is_wrong(&mut predictor, LOOP, true);
            }
            wrong as f64 / changes as f64
        };
        for (run, has_loops) in [(3, false), (3, true), (6, false), (6, true), (12, true)] {
            let wrong = of(run, has_loops);
            assert!((0.8..1.35).contains(&wrong), "{run} {has_loops}: {wrong}");
        }
    }

    #[test]
    fn of_the_branches_before_those_count_that_go_both_ways() {
        // A jump to one of two places, behind a branch that tells which or not; between them branches that are never taken.
        let of = |tells: bool| {
            let mut predictor = Predictor::new(ZEN);
            let mut wrong = 0;
            for (n, bits) in random().take(8000).enumerate() {
                let second = bits >> 63 == 1;
                is_wrong(&mut predictor, BRANCH, tells && second);
                for never in 0..200 {
                    let at = Avma(0x40_8000 + 4 * never);
                    is_wrong(&mut predictor, [at, at.offset(2), at], false);
                }
                let to = Avma(0x40_2000 + u64::from(second) * 4096);
                let jump = [Avma(0x40_9000), Avma(0x40_9002)];
                let right = predictor.flow(Flow::IndirectJump, jump, to);
                predictor.flow(Flow::Return, [to, to.offset(1)], BRANCH[0]);
                wrong += usize::from(n > 4000 && !right);
            }
            wrong as f64 / 4000.0
        };
        assert!(of(true) < 0.02 && of(false) > 0.4, "{} {}", of(true), of(false));
    }

    #[test]
    fn returns_go_behind_their_calls() {
        let mut predictor = Predictor::new(ZEN);
        predictor.call(Avma(5));
        predictor.call(Avma(6));
        let mut ret = |to| predictor.flow(Flow::Return, [Avma(0x100), Avma(0x101)], Avma(to));
        assert!(ret(6) && ret(5) && !ret(5));
    }
}
