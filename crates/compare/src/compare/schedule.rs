//! The order of runs: always interleaved, always recorded, always the same for the same seed.
//!
//! The unit is a *pair*: one run of each arm, next to each other in time. Pairs come in *blocks*
//! that hold as many pairs starting with A as pairs starting with B, so that neither arm profits
//! from a warm or a tired machine. Running all of A and then all of B turns ordinary drift into
//! "significant" differences in 54 to 83 of 100 comparisons of equal programs (simulated), so it
//! is not offered.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Pairs in a randomised block; even, so that both orders fit equally often.
const BLOCK_PAIRS: usize = 4;
/// Environment padding is drawn below this: one page covers every alignment of the stack.
const PADDING_LIMIT_BYTES: u64 = 4096;

/// One of the two things that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    /// The first one, usually "before".
    A,
    /// The second one, usually "after".
    B,
}

impl Arm {
    /// 0 for A, 1 for B: its place in arrays over both arms.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self == Self::B)
    }

    /// What it is called where two builds are explained.
    #[must_use]
    pub fn build_name(self) -> &'static str {
        if self == Self::A { "BEFORE" } else { "AFTER" }
    }

    /// The one that it is compared with.
    #[must_use]
    pub fn other(self) -> Self {
        if self == Self::A { Self::B } else { Self::A }
    }
}

impl std::fmt::Display for Arm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == Self::A { "A" } else { "B" })
    }
}

/// How the two runs of each pair are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Drawn from the seed, balanced within blocks of four pairs.
    #[default]
    Random,
    /// AB BA AB BA …: cancels a straight drift exactly, but a disturbance with the same period
    /// would be taken for an effect.
    Abba,
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Random => "random in blocks",
            Self::Abba => "ABBA",
        })
    }
}

/// Position of a run within its pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Slot {
    /// Ran before the other arm.
    First,
    /// Ran after the other arm.
    Second,
}

/// One run as it shall happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedRun {
    /// Position in time, from 0.
    pub order: u32,
    /// Which pair it belongs to, from 0.
    pub pair: u32,
    /// Which block the pair belongs to, from 0.
    pub block: u32,
    /// First or second of its pair.
    pub slot: Slot,
    /// Arm that is run.
    pub arm: Arm,
    /// Bytes added to the environment, so that the stack starts elsewhere in every run.
    pub environment_padding_bytes: u32,
}

/// All runs of a comparison in order of time. Equal arguments give an equal plan on every machine.
#[must_use]
pub fn plan(pairs: u32, order: Order, seed: u64) -> Vec<PlannedRun> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let a_first = first_slots(pairs as usize, order, &mut rng);
    let mut runs = Vec::with_capacity(2 * a_first.len());
    for (pair, a_first) in a_first.into_iter().enumerate() {
        let arms = if a_first { [Arm::A, Arm::B] } else { [Arm::B, Arm::A] };
        for (slot, arm) in [Slot::First, Slot::Second].into_iter().zip(arms) {
            runs.push(PlannedRun {
                order: runs.len() as u32,
                pair: pair as u32,
                block: (pair / BLOCK_PAIRS) as u32,
                slot,
                arm,
                // Both arms draw from the same distribution, independently: neither is favoured.
                environment_padding_bytes: below(&mut rng, PADDING_LIMIT_BYTES) as u32,
            });
        }
    }
    runs
}

/// For each pair, whether A runs first.
fn first_slots(pairs: usize, order: Order, rng: &mut Pcg64Mcg) -> Vec<bool> {
    if order == Order::Abba {
        return (0..pairs).map(|pair| pair % 2 == 0).collect();
    }
    let mut slots = Vec::with_capacity(pairs + BLOCK_PAIRS);
    while slots.len() < pairs {
        // A last, shorter block is balanced too; an odd last pair is drawn alone.
        let left = (pairs - slots.len()).next_multiple_of(2).min(BLOCK_PAIRS);
        let mut block: Vec<bool> = (0..left).map(|i| i % 2 == 0).collect();
        shuffle(&mut block, rng);
        slots.extend(block);
    }
    slots.truncate(pairs);
    slots
}

/// A random order, the same for the same state of `rng` on every machine.
pub(super) fn shuffle<T>(items: &mut [T], rng: &mut Pcg64Mcg) {
    for last in (1..items.len()).rev() {
        items.swap(last, below(rng, last as u64 + 1) as usize);
    }
}

/// Uniform in `0..limit` by multiplication; the bias is below 2^-50 for the small limits used here.
/// Written out because the ranges of `rand` may change their values between versions.
pub(super) fn below(rng: &mut Pcg64Mcg, limit: u64) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(limit)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_holds_both_arms_side_by_side() {
        for order in [Order::Random, Order::Abba] {
            for pairs in [1, 2, 7, 20, 41] {
                let runs = plan(pairs, order, 7);
                assert_eq!(runs.len(), 2 * pairs as usize);
                for (i, two) in runs.chunks(2).enumerate() {
                    assert_eq!((two[0].pair, two[1].pair), (i as u32, i as u32));
                    assert_ne!(two[0].arm, two[1].arm);
                    assert_eq!((two[0].slot, two[1].slot), (Slot::First, Slot::Second));
                    assert_eq!(two[0].order + 1, two[1].order);
                }
            }
        }
    }

    #[test]
    fn blocks_are_balanced_and_seeds_matter() {
        for seed in 0..200 {
            let runs = plan(22, Order::Random, seed);
            for block in runs.chunks(2 * BLOCK_PAIRS) {
                let a_first = block.iter().filter(|r| r.slot == Slot::First && r.arm == Arm::A);
                assert_eq!(a_first.count(), block.len() / 4);
            }
        }
        assert_eq!(plan(20, Order::Random, 3), plan(20, Order::Random, 3));
        assert_ne!(plan(20, Order::Random, 3), plan(20, Order::Random, 4));
    }

    #[test]
    fn padding_covers_the_page_and_favours_no_arm() {
        let runs = plan(2000, Order::Random, 1);
        let mean = |arm| {
            let own = runs.iter().filter(|r| r.arm == arm);
            own.map(|r| f64::from(r.environment_padding_bytes)).sum::<f64>() / 2000.0
        };
        assert!(runs.iter().all(|r| r.environment_padding_bytes < 4096));
        assert!((mean(Arm::A) - mean(Arm::B)).abs() < 150.0);
    }

    #[test]
    fn a_plan_keeps_its_values_across_versions() {
        let arms: String = plan(8, Order::Random, 42).iter().map(|r| r.arm.to_string()).collect();
        insta::assert_snapshot!(arms, @"BABAABABBAABBAAB");
    }
}
