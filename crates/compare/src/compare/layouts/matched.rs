//! Knobs that match conditions across both arms: alignment 16, 32 and 64, two compilers, two inputs.
//!
//! A seed does not pair layouts of different code, a padding or an alignment does: both arms are
//! built with it, so each level is a block, and the question becomes whether the difference holds at
//! every level or changes its sign.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LayoutRun;
use super::split::Part;
use crate::compare::schedule::Arm;
use crate::compare::sequential::{self, Looks};
use crate::stats::signed_rank;
use crate::stats::student::{PairedT, paired_t};

/// B over A at one level of the knobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LevelEffect {
    /// The level in words, for example `align=32`.
    pub level: String,
    /// Ratio of B over A at this level of the condition.
    pub effect: Part,
}

/// Whether the effect is the same at every level of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Agreement {
    /// The same sign at every level, each beyond its noise.
    Holds,
    /// Slower at one level and faster at another, each beyond its noise.
    ChangesSign,
    /// Beyond noise at some levels, and never against them.
    Partly,
    /// No level shows an effect beyond noise.
    Nowhere,
}

impl Agreement {
    /// As a reader is told.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Holds => "the difference holds at every level",
            Self::ChangesSign => "the difference changes its sign between levels",
            Self::Partly => "the difference shows at some levels only, and against none",
            Self::Nowhere => "no level shows a difference beyond its noise",
        }
    }
}

/// The effect at each level of a condition, and over all levels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Matched {
    /// The effect at each level.
    pub levels: Vec<LevelEffect>,
    /// Whether the levels show the same effect.
    pub agreement: Agreement,
    /// Levels as pairs: the mean over them; absent for one level, or without any spread.
    pub over_levels: Option<PairedT>,
}

/// Judges the levels against each other; `None` when there is none.
#[must_use]
pub fn agree(levels: Vec<LevelEffect>) -> Option<Matched> {
    if levels.is_empty() {
        return None;
    }
    let up = levels.iter().filter(|l| l.effect.low_log > 0.0).count();
    let down = levels.iter().filter(|l| l.effect.high_log < 0.0).count();
    let agreement = match (up, down) {
        (0, 0) => Agreement::Nowhere,
        (up, down) if up > 0 && down > 0 => Agreement::ChangesSign,
        (up, down) if up + down == levels.len() => Agreement::Holds,
        _ => Agreement::Partly,
    };
    let centres: Vec<f64> = levels.iter().map(|l| l.effect.log_ratio).collect();
    Some(Matched { agreement, over_levels: paired_t(&centres), levels })
}

/// B over A from runs of one layout each, paired by their round (signed ranks); `None` with fewer
/// than six rounds that hold both. Where the interval is read every round, a confidence sequence, with
/// ten rounds at least.
#[must_use]
pub fn effect_by_rounds(runs: &[LayoutRun], looks: Looks) -> Option<Part> {
    let mut rounds: BTreeMap<u32, [Option<f64>; 2]> = BTreeMap::new();
    for run in runs.iter().filter(|r| r.value > 0.0) {
        rounds.entry(run.round).or_default()[run.arm.index()] = Some(run.value.ln());
    }
    let differences: Vec<f64> = rounds
        .into_values()
        .filter_map(|seats| Some(seats[Arm::B.index()]? - seats[Arm::A.index()]?))
        .collect();
    let i = match looks {
        Looks::Once => signed_rank::interval(&differences)?,
        Looks::EveryRound => sequential::interval(&differences)?,
    };
    // With fewer than six pairs the interval promises too little to exclude anything.
    (i.confidence >= 0.95).then_some(Part { log_ratio: i.centre, low_log: i.low, high_log: i.high })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(intervals: &[(f64, f64)]) -> Agreement {
        let levels = intervals
            .iter()
            .enumerate()
            .map(|(i, (low, high))| LevelEffect {
                level: format!("align={i}"),
                effect: Part { log_ratio: 0.5 * (low + high), low_log: *low, high_log: *high },
            })
            .collect();
        agree(levels).unwrap().agreement
    }

    #[test]
    fn levels_agree_or_not() {
        assert_eq!(word(&[(0.01, 0.02), (0.03, 0.05), (0.01, 0.09)]), Agreement::Holds);
        assert_eq!(word(&[(-0.09, -0.07), (0.1, 0.2), (-0.01, 0.01)]), Agreement::ChangesSign);
        assert_eq!(word(&[(0.01, 0.02), (-0.01, 0.05)]), Agreement::Partly);
        assert_eq!(word(&[(-0.01, 0.02)]), Agreement::Nowhere);
        assert_eq!(agree(vec![]), None);
        // What touches nothing is not beyond noise.
        assert_eq!(word(&[(0.0, 0.02), (-0.02, 0.0)]), Agreement::Nowhere);
        assert_eq!(word(&[(-0.04, -0.02), (-0.01, 0.02)]), Agreement::Partly);
        assert_eq!(word(&[(-0.04, -0.02), (-0.03, -0.01)]), Agreement::Holds);
        assert_eq!(word(&[(0.01, 0.02), (-0.02, -0.01)]), Agreement::ChangesSign);
        let all = [Agreement::Holds, Agreement::ChangesSign, Agreement::Partly, Agreement::Nowhere];
        let words: std::collections::BTreeSet<&str> = all.map(Agreement::words).into();
        assert_eq!(words.len(), 4);
    }

    #[test]
    fn runs_are_paired_by_round_and_few_exclude_nothing() {
        let runs = |rounds: u32| -> Vec<LayoutRun> {
            (0..rounds)
                .flat_map(|round| {
                    [(Arm::A, 1.0), (Arm::B, 1.1)].map(|(arm, factor)| LayoutRun {
                        arm,
                        layout: 0,
                        round,
                        value: factor * f64::from(100 + round % 3),
                    })
                })
                .collect()
        };
        assert!(effect_by_rounds(&runs(8), Looks::Once).unwrap().low_log > 0.09);
        assert_eq!(effect_by_rounds(&runs(8), Looks::EveryRound), None);
        assert!(effect_by_rounds(&runs(10), Looks::EveryRound).unwrap().low_log > 0.09);
        assert!(effect_by_rounds(&runs(6), Looks::Once).is_some());
        assert_eq!(effect_by_rounds(&runs(5), Looks::Once), None);
        // A round without one of the arms, or without a time, is no round.
        let mut holes = runs(8);
        (holes[0].value, holes[3].value) = (0.0, 0.0);
        assert!(effect_by_rounds(&holes, Looks::Once).is_some());
        holes.remove(5);
        assert_eq!(effect_by_rounds(&holes, Looks::Once), None);
        assert_eq!(effect_by_rounds(&[], Looks::Once), None);
    }
}
