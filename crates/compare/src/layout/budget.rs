//! Can it pay? The cost of each effect, from least to most, against the difference that was measured.
//!
//! A count is no cause. The story that this room follows held 18 more misses per operation responsible
//! for 450 ns: at the most that a miss can cost they pay for a third of that. So each effect is
//! priced with what one event costs at least and at most, and one that cannot pay for half of the
//! difference is not named. Nor is one named that pulls the other way, or where the runs show no
//! difference at all.

use schemars::JsonSchema;
use serde::Serialize;

use crate::machine::PriceRange;

/// An effect that cannot pay for this share of the difference is not named as its cause.
const NAMED_FROM: f64 = 0.5;

/// What code can pay for by where it sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EffectKind {
    /// Jumps at 32-byte boundaries on designs with the erratum.
    BoundaryJumps,
    /// Misses of the instruction cache.
    CodeMisses,
    /// Windows that found no place among the decoded ones.
    DecodedMisses,
    /// Windows that hot loops touch beyond those that they need.
    ExtraWindows,
    /// Pages of code that the first-level TLB had to be told again.
    PageRefills,
}

impl EffectKind {
    /// The events that are counted, as a plural noun.
    #[must_use]
    pub fn events(self) -> &'static str {
        match self {
            Self::BoundaryJumps => "jumps at 32-byte boundaries",
            Self::CodeMisses => "misses of the instruction cache",
            Self::DecodedMisses => "windows decoded anew",
            Self::ExtraWindows => "extra windows of hot loops",
            Self::PageRefills => "refills of the TLB for code",
        }
    }
}

/// Events of one kind per operation in both builds, and what one costs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct EventCount {
    /// Effect of the placement.
    pub kind: EffectKind,
    /// Events per operation before: as two models count them that stand for the least and the most
    /// there may be; twice the same where there is no doubt.
    pub before: [f64; 2],
    /// Events per operation after, by the same two models.
    pub after: [f64; 2],
    /// Price of one event, core cycles.
    pub each: PriceRange,
}

/// The difference that was measured, of one operation.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MeasuredDifference {
    /// Core cycles that one operation took before.
    pub operation_cycles: f64,
    /// By how much it takes longer (or, below 0, shorter), as a share of that.
    pub share: f64,
    /// The interval of that share; absent where none was given.
    pub interval: Option<[f64; 2]>,
    /// Whether the runs show a difference; absent where that was not judged.
    pub differs: Option<bool>,
    /// That judgement in a word, such as `slower`.
    pub verdict: Option<String>,
    /// How many pairs of runs it comes from; absent where it was not measured here.
    pub pairs: Option<usize>,
}

impl MeasuredDifference {
    /// A difference that the user states.
    #[must_use]
    pub fn stated(operation_cycles: f64, share: f64) -> Self {
        Self { operation_cycles, share, interval: None, differs: None, verdict: None, pairs: None }
    }

    /// Whether there is anything to explain.
    #[must_use]
    pub fn is_difference(&self) -> bool {
        let has_sign = self.interval.is_none_or(|[low, high]| low * high > 0.0);
        self.differs.unwrap_or(true) && has_sign && self.share.abs() > 0.0
    }

    /// Cycles of the difference: the smallest and the largest that it may be, by size.
    fn cycles(&self) -> [f64; 2] {
        let [low, high] =
            self.interval.unwrap_or([self.share; 2]).map(|s| s * self.operation_cycles);
        if low.abs() <= high.abs() { [low, high] } else { [high, low] }
    }
}

/// What an effect can be held responsible for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Payment {
    /// Nothing was measured to hold it against.
    Unmeasured,
    /// The runs show no difference.
    NoDifference,
    /// Pays for nothing, or in the other direction.
    Nothing,
    /// At its most too little to be the cause.
    TooLittle,
    /// Can pay for at least half of it.
    CanPay,
    /// At its least already costs more than half again of what was measured: something hides it.
    TooMuch,
}

/// One effect with what it is predicted to do.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Effect {
    /// Events of both builds and the price of one.
    pub count: EventCount,
    /// Cycles per operation that the change of the count adds: least and most, below 0 where it saves.
    pub added_cycles: [f64; 2],
    /// The same as a share of the measured difference: of the largest and of the smallest that it may
    /// be.
    pub paid_share: Option<[f64; 2]>,
    /// Whether the effect can pay for the difference.
    pub payment: Payment,
}

/// All effects of one pair of builds.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Budget {
    /// What was measured, if anything.
    pub measured: Option<MeasuredDifference>,
    /// What surely costs most first.
    pub effects: Vec<Effect>,
    /// The first of them that can pay for the difference.
    pub named: Option<EffectKind>,
}

impl Budget {
    /// Prices the counts and holds them against the measured difference.
    #[must_use]
    pub fn of(counts: Vec<EventCount>, measured: Option<MeasuredDifference>) -> Self {
        let mut effects: Vec<Effect> =
            counts.into_iter().map(|c| effect(c, measured.as_ref())).collect();
        let surely = |e: &Effect| match e.added_cycles {
            [low, high] if low * high <= 0.0 => 0.0,
            [low, high] => low.abs().min(high.abs()),
        };
        let at_most = |e: &Effect| e.added_cycles[0].abs().max(e.added_cycles[1].abs());
        effects.sort_by(|x, y| {
            (surely(y), at_most(y))
                .partial_cmp(&(surely(x), at_most(x)))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        let named = effects.iter().find(|e| e.payment == Payment::CanPay).map(|e| e.count.kind);
        Self { measured, effects, named }
    }
}

fn effect(count: EventCount, measured: Option<&MeasuredDifference>) -> Effect {
    let more = [0, 1].map(|model| count.after[model] - count.before[model]);
    let prices = [count.each.low_cycles, count.each.high_cycles];
    let added_cycles = ends(more.iter().flat_map(|n| prices.map(|cycles| n * cycles)));
    let difference = measured.filter(|m| m.is_difference());
    let paid_share = difference.map(|m| {
        ends(
            added_cycles.iter().flat_map(|cycles| m.cycles().map(|difference| cycles / difference)),
        )
    });
    let payment = match paid_share {
        None if measured.is_some() => Payment::NoDifference,
        None => Payment::Unmeasured,
        Some([_, most]) if most <= 0.0 => Payment::Nothing,
        Some([least, _]) if least > 1.0 + NAMED_FROM => Payment::TooMuch,
        Some([_, most]) if most < NAMED_FROM => Payment::TooLittle,
        Some(_) => Payment::CanPay,
    };
    Effect { count, added_cycles, paid_share, payment }
}

/// The smallest and the largest; no zero has a sign.
fn ends(values: impl Iterator<Item = f64>) -> [f64; 2] {
    values
        .map(|v| v + 0.0)
        .fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], v| [low.min(v), high.max(v)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Design, Microarchitecture};

    fn count(kind: EffectKind, before: f64, after: f64) -> EventCount {
        let lake = Design::of(Microarchitecture::CascadeLake);
        let each = match kind {
            EffectKind::BoundaryJumps => lake.jump_at_boundary_price().unwrap(),
            EffectKind::CodeMisses => lake.code_miss_price(),
            EffectKind::DecodedMisses => lake.decode_again_price(),
            EffectKind::ExtraWindows => lake.extra_window_price(),
            EffectKind::PageRefills => lake.code_tlb_refill_price(),
        };
        EventCount { kind, before: [before; 2], after: [after; 2], each }
    }

    fn measured(operation_cycles: f64, share: f64) -> Option<MeasuredDifference> {
        Some(MeasuredDifference::stated(operation_cycles, share))
    }

    #[test]
    fn a_difference_has_a_sign_and_a_size() {
        let of = |share, interval, differs| MeasuredDifference {
            interval,
            differs,
            ..MeasuredDifference::stated(1000.0, share)
        };
        let is = |share, interval| of(share, interval, None).is_difference();
        assert!(is(0.03, None) && is(-0.03, None) && !is(0.0, None));
        assert!(is(0.03, Some([0.01, 0.05])) && is(-0.03, Some([-0.05, -0.01])));
        assert!(!is(0.03, Some([-0.01, 0.05])) && !is(0.03, Some([0.0, 0.05])));
        assert!(!of(0.03, None, Some(false)).is_difference());
        // The smaller end first, whatever its sign.
        assert_eq!(of(0.5, Some([0.25, 0.75]), None).cycles(), [250.0, 750.0]);
        assert_eq!(of(-0.5, Some([-0.75, -0.25]), None).cycles(), [-250.0, -750.0]);
        assert_eq!(of(0.5, None, None).cycles(), [500.0, 500.0]);
    }

    #[test]
    fn half_of_a_difference_is_enough_and_half_again_not_too_much() {
        // Two to three cycles each.
        let pays = |jumps, operation_cycles| {
            let counts = vec![count(EffectKind::BoundaryJumps, 0.0, jumps)];
            Budget::of(counts, measured(operation_cycles, 1.0)).effects[0].payment
        };
        assert_eq!(
            [pays(1000.0, 6000.0), pays(1000.0, 6001.0)],
            [Payment::CanPay, Payment::TooLittle]
        );
        assert_eq!(
            [pays(1500.0, 2000.0), pays(1500.0, 1999.0)],
            [Payment::CanPay, Payment::TooMuch]
        );
    }

    #[test]
    fn what_surely_costs_comes_before_what_may_pull_either_way() {
        let torn = EventCount {
            before: [600.0, 2400.0],
            after: [700.0, 2000.0],
            ..count(EffectKind::DecodedMisses, 0.0, 0.0)
        };
        let sure = count(EffectKind::BoundaryJumps, 0.0, 50.0);
        let budget = Budget::of(vec![torn, sure], None);
        let order: Vec<EffectKind> = budget.effects.iter().map(|e| e.count.kind).collect();
        assert_eq!(order, [EffectKind::BoundaryJumps, EffectKind::DecodedMisses]);
        let kinds = [
            EffectKind::BoundaryJumps,
            EffectKind::CodeMisses,
            EffectKind::DecodedMisses,
            EffectKind::ExtraWindows,
            EffectKind::PageRefills,
        ];
        let words: std::collections::BTreeSet<&str> = kinds.map(EffectKind::events).into();
        assert_eq!(words.len(), 5);
    }

    /// 18 misses more, 450 ns more of 15 us, at 3 GHz.
    #[test]
    fn the_storys_own_numbers_do_not_name_the_cause_that_it_named() {
        let budget =
            Budget::of(vec![count(EffectKind::CodeMisses, 20.0, 38.0)], measured(45_000.0, 0.03));
        assert_eq!(budget.named, None);
        let [effect] = budget.effects.as_slice() else { panic!("{budget:?}") };
        assert_eq!((effect.added_cycles, effect.payment), ([0.0, 432.0], Payment::TooLittle));
        assert!((effect.paid_share.unwrap()[1] - 0.32).abs() < 1e-9);
    }

    /// The program at 16-byte alignment: 8000 such jumps more per operation, 15 % of 112,000 cycles.
    #[test]
    fn jumps_at_boundaries_come_first_and_are_named_where_the_erratum_is() {
        let counts = vec![
            count(EffectKind::ExtraWindows, 100.0, 9000.0),
            count(EffectKind::CodeMisses, 35.0, 57.0),
            count(EffectKind::BoundaryJumps, 0.0, 8000.0),
            count(EffectKind::DecodedMisses, 700.0, 820.0),
        ];
        let budget = Budget::of(counts, measured(112_000.0, 0.15));
        assert_eq!(budget.named, Some(EffectKind::BoundaryJumps));
        let first = &budget.effects[0];
        assert_eq!(first.count.kind, EffectKind::BoundaryJumps);
        assert_eq!((first.added_cycles, first.payment), ([16_000.0, 24_000.0], Payment::CanPay));
        assert!(budget.effects[1..].iter().all(|e| e.added_cycles[0] == 0.0));
        let misses = budget.effects.iter().find(|e| e.count.kind == EffectKind::CodeMisses);
        assert_eq!(misses.map(|e| e.payment), Some(Payment::TooLittle));
    }

    #[test]
    fn what_pulls_the_other_way_or_not_at_all_pays_nothing() {
        let pays = |before, after, share| {
            let counts = vec![count(EffectKind::CodeMisses, before, after)];
            let budget = Budget::of(counts, measured(1000.0, share));
            assert_eq!(budget.named.is_some(), budget.effects[0].payment == Payment::CanPay);
            budget.effects[0].payment
        };
        assert_eq!(pays(40.0, 40.0, 0.1), Payment::Nothing);
        assert_eq!(pays(40.0, 10.0, 0.1), Payment::Nothing);
        assert_eq!(pays(10.0, 40.0, -0.1), Payment::Nothing);
        // Fewer misses and a build that became faster.
        assert_eq!(pays(40.0, 10.0, -0.1), Payment::CanPay);
        assert_eq!(pays(10.0, 11.0, 0.1), Payment::TooLittle);
    }

    #[test]
    fn what_should_cost_more_than_was_measured_is_said_and_not_named() {
        let counts = vec![count(EffectKind::BoundaryJumps, 0.0, 1000.0)];
        let budget = Budget::of(counts.clone(), measured(100_000.0, 0.005));
        assert_eq!((budget.effects[0].payment, budget.named), (Payment::TooMuch, None));
        let unmeasured = Budget::of(counts, None);
        assert_eq!(unmeasured.effects[0].payment, Payment::Unmeasured);
        assert_eq!((unmeasured.effects[0].paid_share, unmeasured.named), (None, None));
    }
    /// Two models count 100 or 1000 windows more; at 12 cycles at the most.
    #[test]
    fn where_two_models_count_both_ends_come_from_the_same_model() {
        let both = EventCount {
            before: [600.0, 2400.0],
            after: [700.0, 3400.0],
            ..count(EffectKind::DecodedMisses, 0.0, 0.0)
        };
        let pays = |count: &EventCount, share| {
            let budget = Budget::of(vec![count.clone()], measured(100_000.0, share));
            (budget.effects[0].added_cycles, budget.effects[0].payment)
        };
        assert_eq!(pays(&both, 0.1), ([0.0, 12_000.0], Payment::CanPay));
        assert_eq!(pays(&both, 0.3), ([0.0, 12_000.0], Payment::TooLittle));
        // One sees more and the other fewer: it may pull either way.
        let torn = EventCount { after: [700.0, 2000.0], ..both };
        assert_eq!(pays(&torn, 0.1), ([-4800.0, 1200.0], Payment::TooLittle));
    }

    /// 3 % slower, [2, 4] %, of 45,000 cycles: 900 to 1800.
    #[test]
    fn an_interval_widens_what_is_paid_and_without_a_difference_nothing_is_named() {
        let of = |interval, differs| {
            let interval = Some(interval);
            let stated = MeasuredDifference::stated(45_000.0, 0.03);
            let measured = MeasuredDifference { interval, differs, pairs: Some(20), ..stated };
            Budget::of(vec![count(EffectKind::CodeMisses, 20.0, 38.0)], Some(measured))
        };
        let paid = |budget: &Budget| budget.effects[0].paid_share;
        let slower = of([0.02, 0.04], Some(true));
        // 432 cycles at the most are 48 % of the smallest difference that it may be.
        assert!((paid(&slower).unwrap()[1] - 0.48).abs() < 1e-9, "{slower:?}");
        assert_eq!((slower.effects[0].payment, slower.named), (Payment::TooLittle, None));
        let vague = of([0.01, 0.05], Some(true));
        assert_eq!(vague.named, Some(EffectKind::CodeMisses));
        for nothing in [
            of([-0.01, 0.07], None),
            of([0.001, 0.002], Some(false)),
            of([0.02, 0.04], Some(false)),
        ] {
            assert_eq!((paid(&nothing), nothing.named), (None, None));
            assert_eq!(nothing.effects[0].payment, Payment::NoDifference);
        }
    }
}
