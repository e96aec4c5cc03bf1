//! In what time the front end follows taken branches: those that come as a small predictor says take less than others.
//!
//! A predictor that answers in the same cycle is small and sees a short way. Where it was wrong, the larger one corrects it some cycles
//! later, though nothing is mispredicted, and for some branches behind that the larger one answers. *Sign*: a loop whose
//! branches are all predicted takes twice as long where its turns are many or change as where they are few or go on and on, and
//! longer still where its code lies across lines. *Literature*: D. Jimenez, S. Keckler and C. Lin, "The impact of delay on the
//! design of branch predictors" (2000).
//!
//! Measured on Redwood Cove: an inner loop of up to 16 turns 0.56 cycles a turn, of 18 to 44 turns 1.08, and 2.1 to 2.4 where its code
//! lies across two lines; of 200 turns 44 at that pace and the others fast. Branches that go by random bits, all of them
//! predicted: 2.2 to 3.2 cycles more for each bit that is another one than most.

use super::fetched::{FetchedLines, SIXTHS};
use super::mechanism::Mechanism;
use super::predictor::hash;
use super::sets::Sets;
use crate::machine::CoreShape;
use crate::model::{Avma, LINE_BYTES};

const WAYS: u64 = 16;
/// Taken branches that the small predictor sees, and the bits of each: the next one moves them up by so many.
const SEEN_BRANCHES: u32 = 16;
const OF_A_BRANCH: u32 = u64::BITS / SEEN_BRANCHES;
/// Ways of which it is remembered what came next; a power of two.
const ANSWERS: usize = 1 << 16;
/// Indirect branches of which the last target is remembered; a power of two.
const TARGETS: usize = 1024;
/// Taken branches behind one that the small predictor had wrong for which the larger one answers.
const SLOW_BRANCHES: u32 = 40;
/// Half cycles that a taken branch takes as the small predictor says, and as the larger one says.
const FAST: u64 = 1;
const SLOW: u64 = 2;
/// The same where the code on the way to it lies across two lines, and where the small predictor was wrong.
const ACROSS_LINES: u64 = 4;
const CORRECTED: u64 = 6;

/// Lines of code between two taken branches that are counted, at the most.
const MOST_LINES: u64 = 64;

/// The way through taken branches.
pub(super) struct Followed {
    /// Absent where one predictor answers for all of them.
    small: Option<Small>,
    /// Present where two are followed in a cycle, and what stands between them counts.
    lines: Option<(FetchedLines, Pairs)>,
    /// Whether branches take time at all.
    takes_time: bool,
    /// What each line of code but the first takes between two taken branches.
    next_line_cycles: u64,
    /// What an indirect branch takes at the least that goes elsewhere than the last time.
    elsewhere_cycles: u64,
    /// By indirect branch: where it went the last time.
    targets: Vec<Avma>,
    /// Where the last taken branch went.
    from: Avma,
}

/// A branch and where it leads, as one number.
fn way_of(branch: Avma, to: Avma) -> u64 {
    hash(branch.0 ^ to.0.rotate_left(32))
}

/// Which taken branches are followed in one cycle with the one before: where the two came behind one another the last time, too,
/// from the same place, and to another one.
struct Pairs {
    /// By place: the two branches that came behind it the last time.
    seen: Vec<u64>,
    /// The last branch, and from where it came.
    last_way: u64,
    last_from: Avma,
    /// Whether the last one can be the first of two.
    is_open: bool,
}

impl Pairs {
    fn new() -> Self {
        Self { seen: vec![0; ANSWERS], last_way: 0, last_from: Avma(u64::MAX), is_open: false }
    }

    /// A branch behind the place `from`, to which the one before led, and where it leads: whether the one before took a cycle of
    /// its own.
    fn parts(&mut self, from: Avma, [branch, to]: [Avma; 2]) -> bool {
        let way = way_of(branch, to);
        let before = std::mem::replace(&mut self.last_from, from);
        let pair = hash(std::mem::replace(&mut self.last_way, way) ^ way.rotate_left(32));
        let seen = &mut self.seen[hash(before.0) as usize % ANSWERS];
        let is_known = std::mem::replace(seen, pair) == pair && from != to;
        let is_open = std::mem::replace(&mut self.is_open, true);
        self.is_open = !(is_open && is_known);
        is_open && !is_known
    }
}

/// The small predictor.
struct Small {
    near: Sets,
    far_cycles: u64,
    way: u64,
    /// By way: what came next the last time.
    answers: Vec<u64>,
    /// Branches for which the larger one answers.
    slow: u32,
    /// Half cycles that no branch has paid yet.
    half: u64,
}

impl Followed {
    pub(super) fn new(shape: &CoreShape, without: Option<Mechanism>) -> Self {
        let entries = u64::from(shape.near_branches);
        let small = (shape.far_branch_cycles > 0).then(|| Small {
            near: Sets::new(entries, entries / WAYS),
            far_cycles: shape.far_branch_cycles.into(),
            way: 0,
            answers: vec![0; ANSWERS],
            slow: 0,
            half: 0,
        });
        let fetched = shape.fetched_instructions;
        let is_slow = without != Some(Mechanism::SlowFetch);
        Self {
            small,
            lines: (fetched > 0).then(|| (FetchedLines::new(fetched, is_slow), Pairs::new())),
            takes_time: without != Some(Mechanism::TakenBranches),
            next_line_cycles: shape.next_line_cycles.into(),
            elsewhere_cycles: shape.elsewhere_cycles.into(),
            targets: vec![Avma(0); TARGETS],
            from: Avma(u64::MAX),
        }
    }

    /// A branch was mispredicted.
    pub(super) fn mispredicted(&mut self) {
        if let Some(small) = &mut self.small {
            small.slow = SLOW_BRANCHES;
        }
    }

    /// An instruction; whether it is one with the jump behind it. Cycles in which the line before was fetched, if it begins or
    /// ends in another.
    pub(super) fn executed(&mut self, [from, next]: [Avma; 2], is_in_jump: bool) -> u64 {
        let ends = [from.0, next.0.saturating_sub(1)].map(|at| at / LINE_BYTES);
        self.lines.as_mut().map_or(0, |(lines, _)| lines.executed(ends, is_in_jump))
    }

    /// Whether the last line held more than is fetched in a cycle.
    pub(super) fn was_slow(&self) -> bool {
        self.lines.as_ref().is_some_and(|(lines, _)| lines.was_slow())
    }

    /// A branch, the instruction behind it, and where it is taken to: cycles until what is there follows it.
    pub(super) fn cycles(&mut self, [branch, next, to]: [Avma; 3], is_indirect: bool) -> u64 {
        let from = std::mem::replace(&mut self.from, to);
        if let Some((lines, pairs)) = &mut self.lines {
            if !self.takes_time {
                return lines.redirected(0, false);
            }
            return lines.redirected(SIXTHS / 2, pairs.parts(from, [branch, to]));
        }
        if !self.takes_time {
            return 0;
        }
        let last_line = next.0.saturating_sub(1) / LINE_BYTES;
        let next_lines = last_line.saturating_sub(from.0 / LINE_BYTES).min(MOST_LINES);
        let goes_elsewhere = is_indirect.then(|| {
            let last = &mut self.targets[hash(branch.0) as usize % TARGETS];
            std::mem::replace(last, to) != to
        });
        let Some(small) = &mut self.small else {
            let fetched = 1 + next_lines * self.next_line_cycles;
            let found = if goes_elsewhere == Some(true) { self.elsewhere_cycles } else { 0 };
            return fetched.max(found);
        };
        small.cycles([branch, to], goes_elsewhere, next_lines > 0)
    }
}

impl Small {
    /// A branch, which may be an indirect one, from and to places; code that lies across lines leads to it.
    fn cycles(
        &mut self,
        [branch, to]: [Avma; 2],
        goes_elsewhere: Option<bool>,
        lies_across: bool,
    ) -> u64 {
        let now = way_of(branch, to);
        let is_far = self.near.insert_missing(hash(now ^ self.way), 0);
        let answer = &mut self.answers[hash(self.way) as usize % ANSWERS];
        let is_wrong = std::mem::replace(answer, now) != now;
        self.way = self.way << OF_A_BRANCH ^ (now & ((1 << OF_A_BRANCH) - 1));
        let took = match (is_far, is_wrong, self.slow > 0) {
            (true, ..) => SLOW * (1 + self.far_cycles),
            (false, true, _) => CORRECTED,
            (false, false, true) if lies_across => ACROSS_LINES,
            (false, false, true) => SLOW,
            (false, false, false) => FAST,
        };
        self.slow = if is_wrong { SLOW_BRANCHES } else { self.slow.saturating_sub(1) };
        if let Some(elsewhere) = goes_elsewhere {
            // The next one at least.
            self.slow = self.slow.max(if elsewhere { SLOW_BRANCHES } else { 1 });
        }
        let all = self.half + took;
        self.half = all % 2;
        all / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Design, Microarchitecture};

    /// Cycles of the last of ten turns around a ring of branches, one in each line or two of them across lines.
    fn ring(turns: u64, inner: u64, mispredicts: bool) -> u64 {
        let shape = Design::of(Microarchitecture::RedwoodCove).core().value;
        let mut followed = Followed::new(&shape, None);
        let mut run = |_| {
            let mut cycles = 0;
            for n in 0..turns {
                let at = Avma(0x1000 + 16 * n);
                cycles +=
                    (0..inner).map(|_| followed.cycles([at, at.offset(2), at], false)).sum::<u64>();
                cycles +=
                    followed.cycles([at.offset(4), at.offset(6), Avma(0x1010 + 16 * n)], false);
            }
            if mispredicts {
                followed.mispredicted();
            }
            cycles
        };
        (0..10).map(&mut run).last().unwrap_or_default()
    }

    #[test]
    fn a_short_way_that_repeats_is_fast_and_a_long_one_or_one_behind_a_misprediction_is_not() {
        assert_eq!(ring(100, 0, false), 50);
        assert_eq!(ring(2000, 0, false), 4000);
        assert!((70..=71).contains(&ring(100, 0, true)), "40 of 100 at half the pace");
    }

    #[test]
    fn inner_loops_of_few_turns_or_many_are_fast_and_others_are_not() {
        let of = |turns: u64| ring(1, turns, false);
        assert_eq!(of(12), 6);
        // Wrong at the end and at the begin; between them one a cycle.
        assert!((30..=36).contains(&of(28)), "{}", of(28));
        assert!((128..=140).contains(&of(200)), "{}", of(200));
    }

    #[test]
    fn slow_branches_take_longer_where_the_code_between_lies_across_lines() {
        let shape = Design::of(Microarchitecture::RedwoodCove).core().value;
        let of = |to: u64, at: u64| {
            let mut followed = Followed::new(&shape, None);
            (0..100).for_each(|_| _ = followed.cycles([at, at + 2, to].map(Avma), false));
            followed.mispredicted();
            (0..20).map(|_| followed.cycles([at, at + 2, to].map(Avma), false)).sum::<u64>()
        };
        assert_eq!((of(0x1000, 0x1008), of(0x103c, 0x1044)), (20, 40));
    }

    #[test]
    fn what_follows_an_indirect_branch_is_slow_where_it_goes_elsewhere_than_the_last_time() {
        let shape = Design::of(Microarchitecture::RedwoodCove).core().value;
        let of = |targets: u64| {
            let mut followed = Followed::new(&shape, None);
            let mut turn = |n: u64| {
                let to = Avma(0x2000 + n % targets * 64);
                followed.cycles([Avma(0x1000), Avma(0x1002), to], true)
                    + followed.cycles([to, to.offset(2), Avma(0x1000)], false)
            };
            (0..1000).map(&mut turn).sum::<u64>()
        };
        assert!(of(1) < 1600, "{}", of(1));
        assert!(of(4) > 1950, "{}", of(4));
    }

    #[test]
    fn two_branches_are_followed_in_a_cycle_where_the_second_is_known_by_the_first() {
        let shape = Design::of(Microarchitecture::Zen5).core().value;
        // A loop of one branch inside another, or one of branches that each lead to the next, 100 times around.
        let cycles = |branches: &[[u64; 2]]| {
            let mut followed = Followed::new(&shape, None);
            let mut turn = |_| {
                let of = |[at, to]: &[u64; 2]| {
                    _ = followed.executed([*at, at + 2].map(Avma), false);
                    followed.cycles([*at, at + 2, *to].map(Avma), false)
                };
                branches.iter().map(of).sum::<u64>()
            };
            (0..10).for_each(|n| _ = turn(n));
            (0..100).map(turn).sum::<u64>()
        };
        let inner = [0x1010, 0x1008];
        let outer = [0x1020, 0x1000];
        assert_eq!(cycles(&[inner, outer]), 100);
        assert_eq!(cycles(&[inner, inner, outer]), 300);
        assert_eq!(cycles(&[inner, inner, inner, inner, inner, inner, inner, outer]), 800);
        let ring = [[0x1010, 0x1020], [0x1030, 0x1040], [0x1050, 0x1000]];
        assert_eq!((cycles(&ring), cycles(&ring[..2])), (150, 100));
        assert_eq!(cycles(&[outer]), 100);
    }

    #[test]
    fn an_indirect_jump_that_goes_elsewhere_than_the_last_time_takes_longer_on_zen_4() {
        let shape = Design::of(Microarchitecture::Zen4).core().value;
        let of = |targets: u64, is_indirect: bool| {
            let mut followed = Followed::new(&shape, None);
            let mut jump = |n: u64| {
                let to = Avma(0x1000 + n % targets * 128);
                followed.cycles([Avma(0x1000), Avma(0x1002), to], is_indirect)
            };
            (0..100).map(&mut jump).sum::<u64>()
        };
        assert!((100..=104).contains(&of(1, true)), "{}", of(1, true));
        assert!((398..=402).contains(&of(8, true)), "{}", of(8, true));
    }
}
