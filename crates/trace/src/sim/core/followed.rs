//! Which taken branches the front end follows in a cycle each: those that were taken on the same way shortly before.
//!
//! A predictor that answers in the same cycle is small. Where it does not know the way, and for some branches behind one that was
//! mispredicted or an indirect one that went elsewhere than the last time, the larger one answers, a cycle later. *Sign*: a loop
//! whose branches are all predicted takes two cycles a taken branch where their order is long or changes, and one where it is
//! short. *Literature*: D. Jimenez, S. Keckler and C. Lin, "The impact of delay on the design of branch predictors" (2000).

use super::predictor::hash;
use super::sets::Sets;
use crate::machine::CoreShape;
use crate::model::Avma;

const WAYS: u64 = 16;
/// Bits of a taken branch in the way: each one later moves them up by one, so that 40 are seen of it.
const OF_A_BRANCH: u64 = 0xff_ffff;
/// Indirect branches of which the last target is remembered; a power of two.
const TARGETS: usize = 1024;
/// Taken branches behind one that the small predictor had wrong that are slow.
const SLOW_BRANCHES: u32 = 40;

/// The small predictor.
pub(super) struct Followed {
    near: Option<Sets>,
    way: u64,
    /// By indirect branch: where it went the last time.
    targets: Vec<Avma>,
    slow: u32,
}

impl Followed {
    pub(super) fn new(shape: &CoreShape) -> Self {
        let entries = u64::from(shape.near_branches);
        let near = (shape.far_branch_cycles > 0).then(|| Sets::new(entries, entries / WAYS));
        Self { near, way: 0, targets: vec![Avma(0); TARGETS], slow: 0 }
    }

    /// A branch was mispredicted.
    pub(super) fn mispredicted(&mut self) {
        self.slow = SLOW_BRANCHES;
    }

    /// A branch is taken to a place: whether the way there is not known, or one shortly before it was not.
    pub(super) fn is_far(&mut self, branch: Avma, to: Avma, is_indirect: bool) -> bool {
        let Some(near) = &mut self.near else { return false };
        let now = hash(branch.0 ^ to.0.rotate_left(32));
        let is_new = near.insert_missing(hash(now ^ self.way), 0);
        self.way = (self.way << 1) ^ (now & OF_A_BRANCH);
        let is_slow = self.slow > 0;
        self.slow = self.slow.saturating_sub(1);
        if is_indirect {
            let last = &mut self.targets[hash(branch.0) as usize % TARGETS];
            if std::mem::replace(last, to) != to {
                self.slow = SLOW_BRANCHES;
            }
        }
        is_new || is_slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Design, Microarchitecture};

    #[test]
    fn a_short_way_that_repeats_is_fast_and_a_long_one_or_one_behind_a_misprediction_is_not() {
        let shape = Design::of(Microarchitecture::RedwoodCove).core().value;
        let far = |turns: u64, mispredicts: bool| {
            let mut followed = Followed::new(&shape);
            let mut run = |_| {
                let turn = |n| followed.is_far(Avma(0x1000 + 16 * n), Avma(0x1010 + 16 * n), false);
                let far = (0..turns).map(turn).filter(|is_far| *is_far).count();
                if mispredicts {
                    followed.mispredicted();
                }
                far
            };
            (0..10).map(&mut run).last().unwrap_or_default() as u64
        };
        assert_eq!(far(100, false), 0);
        assert_eq!(far(2000, false), 2000);
        assert_eq!(far(100, true), u64::from(SLOW_BRANCHES));
    }

    #[test]
    fn what_follows_an_indirect_branch_is_slow_where_it_goes_elsewhere_than_the_last_time() {
        let shape = Design::of(Microarchitecture::RedwoodCove).core().value;
        let far = |targets: u64| {
            let mut followed = Followed::new(&shape);
            let mut turn = |n: u64| {
                let to = Avma(0x2000 + n % targets * 64);
                followed.is_far(Avma(0x1000), to, true);
                followed.is_far(to, Avma(0x1000), false)
            };
            (0..1000).map(&mut turn).filter(|is_far| *is_far).count()
        };
        assert!(far(1) < 100);
        assert!(far(4) > 990);
    }
}
