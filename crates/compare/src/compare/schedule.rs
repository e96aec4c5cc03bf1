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

/// One of the commands that are compared, by its letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "char", into = "char")]
#[schemars(with = "char")]
pub struct Arm(u8);

impl Arm {
    /// The first one, usually "before".
    pub const A: Self = Self(0);
    /// The second one, usually "after".
    pub const B: Self = Self(1);
    /// As many as there are letters.
    pub const MOST: usize = 26;

    /// The first so many.
    pub fn first(count: usize) -> impl Iterator<Item = Self> {
        (0..count.min(Self::MOST)).map(|index| Self(index as u8))
    }

    /// 0 for A, 1 for B: its place in arrays over all arms.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// What it is called where two builds are explained.
    #[must_use]
    pub fn build_name(self) -> &'static str {
        if self == Self::A { "BEFORE" } else { "AFTER" }
    }

    /// The one that it is compared with, of two.
    #[must_use]
    pub fn other(self) -> Self {
        if self == Self::A { Self::B } else { Self::A }
    }
}

impl From<Arm> for char {
    fn from(arm: Arm) -> Self {
        Self::from(b'a' + arm.0)
    }
}

impl TryFrom<char> for Arm {
    type Error = String;

    fn try_from(letter: char) -> Result<Self, String> {
        let index = u32::from(letter).checked_sub(u32::from('a'));
        let index = index.filter(|index| *index < Self::MOST as u32);
        let index = index.ok_or_else(|| format!("`{letter}` names no arm: a to z do"))?;
        Ok(Self(index as u8))
    }
}

impl std::fmt::Display for Arm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", char::from(*self).to_ascii_uppercase())
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
    /// Ran before the other arm, or before all others.
    First,
    /// Ran after the other arm, or after one of them.
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

/// Rounds in which each of `arms` runs once, in an order that is drawn for every round. A round stands for a pair.
#[must_use]
pub fn rounds(rounds: u32, arms: usize, seed: u64) -> Vec<PlannedRun> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut runs = Vec::new();
    for round in 0..rounds {
        let mut order: Vec<Arm> = Arm::first(arms).collect();
        shuffle(&mut order, &mut rng);
        for (place, arm) in order.into_iter().enumerate() {
            runs.push(PlannedRun {
                order: runs.len() as u32,
                pair: round,
                block: round,
                slot: if place == 0 { Slot::First } else { Slot::Second },
                arm,
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
    fn every_round_holds_every_arm_in_an_order_of_its_own() {
        let runs = rounds(300, 3, 5);
        let orders: std::collections::BTreeSet<Vec<usize>> =
            runs.chunks(3).map(|round| round.iter().map(|run| run.arm.index()).collect()).collect();
        assert_eq!(orders.len(), 6, "all orders of three occur, and nothing else");
        assert!(runs.iter().enumerate().all(|(n, run)| run.pair as usize == n / 3));
        assert_eq!(rounds(9, 3, 5), runs[..27]);
    }

    #[test]
    fn arms_are_letters() {
        let text = serde_json::to_string(&[Arm::A, Arm::B]).unwrap();
        assert_eq!(text, r#"["a","b"]"#);
        assert_eq!(serde_json::from_str::<[Arm; 2]>(&text).unwrap(), [Arm::A, Arm::B]);
        assert!(serde_json::from_str::<Arm>(r#""A""#).is_err());
        assert_eq!(Arm::first(100).last().unwrap().to_string(), "Z");
    }

    #[test]
    fn a_plan_keeps_its_values_across_versions() {
        let arms: String = plan(8, Order::Random, 42).iter().map(|r| r.arm.to_string()).collect();
        insta::assert_snapshot!(arms, @"BABAABABBAABBAAB");
    }
}
