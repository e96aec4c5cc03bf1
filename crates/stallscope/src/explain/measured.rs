//! A paired comparison as what `layout` holds its counts against: `layout` itself runs nothing.

use schemars::JsonSchema;
use serde::Serialize;

use crate::compare::{Comparison, Decision};
use crate::layout::{LayoutReport, MeasuredDifference};

/// What `layout` says, with the runs that its budget rests on.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MeasuredLayout {
    /// What moved, who fights, what it can cost.
    #[serde(flatten)]
    pub layout: LayoutReport,
    /// The runs that were compared, when the difference was measured here.
    pub comparison: Option<Comparison>,
}

/// What a comparison found, for an operation that took so many cycles before.
#[must_use]
pub fn measured_difference(comparison: &Comparison, operation_cycles: f64) -> MeasuredDifference {
    let analysis = &comparison.analysis;
    let (ratio, decision) = (&analysis.wall, analysis.verdict.decision);
    MeasuredDifference {
        operation_cycles,
        share: ratio.log_ratio.exp_m1(),
        interval: Some([ratio.low_log.exp_m1(), ratio.high_log.exp_m1()]),
        differs: Some(shows_difference(decision)),
        verdict: Some(decision.to_string()),
        pairs: Some(comparison.analysis.wall.estimate.n),
    }
}

/// Whether there is anything to explain.
#[must_use]
pub fn shows_difference(decision: Decision) -> bool {
    matches!(decision, Decision::Slower | Decision::Faster)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::simulate::{Noise, SimulatedMachine};
    use crate::compare::{Settings, compare};
    use crate::layout::{Budget, EffectKind, EventCount, Payment};
    use crate::machine::{Design, Microarchitecture};

    /// An invented machine on which AFTER takes 15 % more, through the whole comparison.
    #[test]
    fn what_a_comparison_finds_is_held_against_the_counts() {
        let lake = Design::of(Microarchitecture::CascadeLake);
        let judged = |effect_log: f64, after: f64| {
            let settings = Settings::default();
            let mut machine = SimulatedMachine::new(Noise::Quiet, settings.pairs, 7);
            machine.effect_log = effect_log;
            let comparison = compare(&mut machine, &settings, &mut |_| {}).unwrap();
            let measured = measured_difference(&comparison, 112_000.0);
            let count = |kind, before, after, each| EventCount {
                kind,
                before: [before; 2],
                after: [after; 2],
                each,
            };
            let jumps = lake.jump_at_boundary_price().unwrap();
            let counts = vec![
                count(EffectKind::CodeMisses, 35.0, 57.0, lake.code_miss_price()),
                count(EffectKind::BoundaryJumps, 52.0, after, jumps),
            ];
            (measured.clone(), Budget::of(counts, Some(measured)))
        };
        let (measured, budget) = judged(0.15_f64.ln_1p(), 6015.0);
        assert!((measured.share - 0.15).abs() < 0.02, "{measured:?}");
        let [low, high] = measured.interval.unwrap();
        assert!(low < measured.share && measured.share < high && measured.pairs == Some(20));
        assert_eq!(budget.named, Some(EffectKind::BoundaryJumps));
        assert_eq!(budget.effects[1].payment, Payment::TooLittle, "22 misses cannot be it");
        // Fifty such jumps cannot pay for 15 %.
        assert_eq!(judged(0.15_f64.ln_1p(), 102.0).1.named, None);
        // No difference: whatever the counts are.
        let (measured, budget) = judged(0.0, 6015.0);
        assert!(!measured.is_difference(), "{measured:?}");
        assert_eq!((budget.named, budget.effects[0].payment), (None, Payment::NoDifference));
    }
}
