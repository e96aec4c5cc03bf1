//! Which branches a modern predictor gets wrong: directions, indirect targets, returns.
//!
//! Directions come from tagged tables that are looked up with more and more history, the longest match
//! first, targets of indirect jumps from the same kind of tables, returns from a stack. What a real core
//! does better or worse than this is not known from outside; differences between two builds of one program
//! are told with less doubt than counts.
//! Literature: A. Seznec and P. Michaud, "A case for (partially) TAgged GEometric history length branch
//! prediction" (2006).

use crate::model::Avma;

/// Branches of history that the tables see.
const HISTORIES: [u32; 7] = [4, 8, 16, 32, 64, 96, 127];
/// Entries of one table of directions; a power of two.
const ENTRIES: usize = 1 << 12;
/// Branches without a match; a power of two.
const PLAIN_ENTRIES: usize = 1 << 14;
/// Histories of the tables of targets, as indices of [`HISTORIES`].
const TARGET_TABLES: [usize; 3] = [1, 3, 5];
/// Entries of one table of targets; a power of two.
const TARGETS: usize = 1 << 11;
/// Return addresses that are remembered.
const RETURNS: usize = 32;

#[derive(Clone, Copy, Default)]
struct Direction {
    tag: u16,
    /// Taken from 0 on, -4 to 3.
    counter: i8,
    /// How often it was right lately.
    useful: u8,
}

#[derive(Clone, Copy, Default)]
struct Target {
    tag: u16,
    confident: bool,
    to: u64,
}

/// The state of a predictor; it starts with no knowledge.
pub(super) struct Predictor {
    plain: Vec<i8>,
    tables: Vec<Vec<Direction>>,
    targets: Vec<Vec<Target>>,
    last_target: Vec<u64>,
    returns: Vec<u64>,
    history: u128,
}

impl Predictor {
    pub(super) fn new() -> Self {
        Self {
            plain: vec![0; PLAIN_ENTRIES],
            tables: vec![vec![Direction::default(); ENTRIES]; HISTORIES.len()],
            targets: vec![vec![Target::default(); TARGETS]; TARGET_TABLES.len()],
            last_target: vec![0; TARGETS],
            returns: Vec::with_capacity(RETURNS + 1),
            history: 0,
        }
    }

    /// Index (unmasked) and tag of a branch in the table with this much history.
    fn slot(&self, branch: Avma, table: usize) -> (usize, u16) {
        let history = self.history & ((1_u128 << HISTORIES[table]) - 1);
        let folded = (history as u64) ^ ((history >> 64) as u64).rotate_left(17);
        let mut hash =
            folded ^ branch.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ((table as u64) << 50);
        hash ^= hash >> 29;
        hash = hash.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash ^= hash >> 32;
        (hash as usize & 0xffff, (hash >> 40) as u16 | 1)
    }

    /// A conditional branch went this way; whether that was predicted.
    pub(super) fn direction(&mut self, branch: Avma, taken: bool) -> bool {
        let slots: [(usize, u16); HISTORIES.len()] = std::array::from_fn(|table| {
            let (index, tag) = self.slot(branch, table);
            (index & (ENTRIES - 1), tag)
        });
        let plain = (branch.0 ^ (branch.0 >> 14)) as usize & (PLAIN_ENTRIES - 1);
        let matching = |table: &usize| self.tables[*table][slots[*table].0].tag == slots[*table].1;
        let found = (0..HISTORIES.len()).rev().find(matching);
        let predicted = match found {
            Some(table) => self.tables[table][slots[table].0].counter >= 0,
            None => self.plain[plain] >= 0,
        };
        let right = predicted == taken;
        let towards = |counter: i8, low: i8, high: i8| {
            (if taken { counter + 1 } else { counter - 1 }).clamp(low, high)
        };
        match found {
            Some(table) => {
                let entry = &mut self.tables[table][slots[table].0];
                entry.counter = towards(entry.counter, -4, 3);
                entry.useful = match right {
                    true => (entry.useful + 1).min(3),
                    false => entry.useful.saturating_sub(1),
                };
            }
            None => self.plain[plain] = towards(self.plain[plain], -2, 1),
        }
        if !right {
            // A longer history may tell; the first entry that helps nothing else is taken.
            let longer = found.map_or(0, |table| table + 1);
            for (table, (index, tag)) in self.tables.iter_mut().zip(slots).skip(longer) {
                let entry = &mut table[index];
                if entry.useful == 0 {
                    *entry = Direction { tag, counter: if taken { 0 } else { -1 }, useful: 0 };
                    break;
                }
                entry.useful -= 1;
            }
        }
        self.history = (self.history << 1) | u128::from(taken);
        right
    }

    /// An indirect jump or call went there; whether that was predicted.
    pub(super) fn target(&mut self, branch: Avma, to: Avma) -> bool {
        let slots = TARGET_TABLES.map(|table| {
            let (index, tag) = self.slot(branch, table);
            (index & (TARGETS - 1), tag)
        });
        let last = (branch.0 ^ (branch.0 >> 11)) as usize & (TARGETS - 1);
        let matching = |table: &usize| self.targets[*table][slots[*table].0].tag == slots[*table].1;
        let found = (0..TARGET_TABLES.len()).rev().find(matching);
        let predicted = match found {
            Some(table) => self.targets[table][slots[table].0].to,
            None => self.last_target[last],
        };
        let right = predicted == to.0;
        if let Some(table) = found {
            let entry = &mut self.targets[table][slots[table].0];
            if !right && !std::mem::take(&mut entry.confident) {
                entry.to = to.0;
            } else if right {
                entry.confident = true;
            }
        }
        if !right
            && let Some(table) =
                found.map_or(Some(0), |t| Some(t + 1)).filter(|t| *t < TARGET_TABLES.len())
        {
            let (index, tag) = slots[table];
            self.targets[table][index] = Target { tag, confident: false, to: to.0 };
        }
        self.last_target[last] = to.0;
        self.history = (self.history << 2) | u128::from((to.0 >> 2 ^ to.0 >> 6) & 3);
        right
    }

    /// A call that returns to `behind`.
    pub(super) fn call(&mut self, behind: Avma) {
        if self.returns.len() == RETURNS {
            self.returns.remove(0);
        }
        self.returns.push(behind.0);
    }

    /// A return went there; whether that was predicted.
    pub(super) fn ret(&mut self, to: Avma) -> bool {
        self.returns.pop() == Some(to.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(outcomes: impl Iterator<Item = bool>) -> usize {
        let mut predictor = Predictor::new();
        outcomes.filter(|taken| !predictor.direction(Avma(0x40_1000), *taken)).count()
    }

    #[test]
    fn patterns_are_learnt_and_chance_is_not() {
        assert!(wrong((0..4000).map(|n| n % 10 != 0)) < 60);
        assert!(wrong((0..4000).map(|n| n % 48 != 47)) < 250);
        let mut state = 7_u64;
        let random = (0..4000).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 63 == 1
        });
        let of_random = wrong(random);
        assert!((1600..2400).contains(&of_random), "{of_random}");
    }

    #[test]
    fn targets_follow_the_history_and_returns_their_calls() {
        let mut predictor = Predictor::new();
        let mut missed = 0;
        for n in 0..3000_u64 {
            missed += u64::from(!predictor.target(Avma(0x500), Avma(0x1000 + 64 * (n % 3))));
        }
        assert!(missed < 60, "{missed}");
        predictor.call(Avma(5));
        predictor.call(Avma(6));
        assert!(predictor.ret(Avma(6)) && predictor.ret(Avma(5)) && !predictor.ret(Avma(5)));
    }
}
