//! The difference taken apart: code, placement, noise of the runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ensemble::{Ensemble, LayoutValue, layout_spread, logs, placed, run_variance};
use super::planning::{detectable, layouts_needed};
use super::{AS_BUILT, FEWEST_LAYOUTS, LayoutError, LayoutRun};
use crate::compare::schedule::Arm;
use crate::compare::sequential::Looks;
use crate::compare::verdict::Decision;
use crate::stats::student::{pooled_sd, t_quantile};
use crate::stats::welch::{Welch, from_parts, welch};
use crate::stats::{ALPHA, Z};

/// The 99.5 % point of the normal distribution.
const Z_99: f64 = 2.575_829_303_548_901;

/// A part of the difference, as a log ratio of B over A, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// Estimate of the part, natural logarithm of the ratio.
    pub log_ratio: f64,
    /// Lower end of the interval.
    pub low_log: f64,
    /// Upper end of the interval.
    pub high_log: f64,
}

impl Part {
    pub(crate) fn around(centre: f64, reach: f64) -> Self {
        Self { log_ratio: centre, low_log: centre - reach, high_log: centre + reach }
    }

    /// Whether the interval leaves "no difference" out.
    #[must_use]
    pub fn excludes_zero(&self) -> bool {
        self.low_log > 0.0 || self.high_log < 0.0
    }

    /// The same estimate with an interval that reaches `by` times as far.
    fn wider(self, by: f64) -> Self {
        let reach = |end: f64| self.log_ratio + by * (end - self.log_ratio);
        Self { low_log: reach(self.low_log), high_log: reach(self.high_log), ..self }
    }

    fn holds(&self, log: f64) -> bool {
        self.low_log <= log && log <= self.high_log
    }
}

impl From<Welch> for Part {
    fn from(w: Welch) -> Self {
        Self { log_ratio: w.difference, low_log: w.low, high_log: w.high }
    }
}

/// Where a difference comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Source {
    /// It stays over random placements.
    Code,
    /// It is there between the two builds as they come, and not over random placements.
    Placement,
    /// There is no difference that matters.
    Nothing,
    /// The layouts do not decide.
    Open,
}

impl Source {
    /// As a reader is told.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Code => "the code",
            Self::Placement => "where the code sits",
            Self::Nothing => "no difference that matters",
            Self::Open => "open",
        }
    }
}

/// The difference between two programs, taken apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Split {
    /// The layouts of A and of B.
    pub layouts: [Vec<LayoutValue>; 2],
    /// What the two builds as they come show, with the noise of runs only; absent without them.
    pub observed: Option<Part>,
    /// What stays over random placements.
    pub code: Option<Part>,
    /// Welch's test of the layout values, which `code` rests on.
    pub welch: Option<Welch>,
    /// What the builds as they come owe to their placement: observed minus code, with a 99 % interval: it is
    /// the second thing that is said of one pair of builds, out of few runs.
    pub placement: Option<Part>,
    /// Standard deviation between layouts (log), noise of runs taken out.
    pub layout_sd_log: f64,
    /// Its 95 % interval; absent for fewer than two layouts of either arm.
    pub layout_sd_interval_log: Option<[f64; 2]>,
    /// Standard deviation of a single run within its layout (log), robust.
    pub run_sd_log: f64,
    /// The word about the code.
    pub decision: Decision,
    /// Where the difference comes from.
    pub source: Source,
    /// The smallest effect that so many layouts show with 80 % power (log).
    pub detectable_log: Option<f64>,
    /// Layouts per arm that would show the smallest effect of interest with 80 % power.
    pub layouts_needed: Option<u64>,
}

impl Split {
    /// How many random placements of A and of B were run.
    #[must_use]
    pub fn placed(&self) -> [usize; 2] {
        self.layouts.each_ref().map(|arm| arm.iter().filter(|l| l.layout != AS_BUILT).count())
    }
}

/// Takes the difference of both arms apart; `delta_log` is the smallest effect of interest.
///
/// # Errors
/// When an arm has no runs, or a value has no logarithm.
pub fn split(runs: &[LayoutRun], delta_log: f64) -> Result<Split, LayoutError> {
    if let Some(bad) = runs.iter().find(|r| !(r.value > 0.0 && r.value.is_finite())) {
        return Err(LayoutError::Value { arm: bad.arm, layout: bad.layout, value: bad.value });
    }
    let cell = |r: &LayoutRun| ((r.arm.index() as u32, r.layout), r.round, r.value);
    Ensemble::new(runs.iter().map(cell)).split([0, 1], delta_log, Looks::Once)
}

impl Ensemble {
    /// Takes the difference of the second of two programs to the first apart.
    ///
    /// # Errors
    /// When one of them has no runs.
    pub fn split(
        &self,
        programs: [u32; 2],
        delta_log: f64,
        looks: Looks,
    ) -> Result<Split, LayoutError> {
        let layouts = programs.map(|program| self.layouts(program));
        for (arm, values) in [Arm::A, Arm::B].into_iter().zip(&layouts) {
            if values.is_empty() {
                return Err(LayoutError::NoLayout(arm));
            }
        }
        let noise = Noise {
            run_sd_log: self.run_sd_log(&programs),
            freedom: self.freedom(&programs),
            widening: looks.widening(self.rounds()),
        };
        let placed = placed(&layouts);
        let random = logs(&placed);
        let welch = welch(&random[0], &random[1]);
        let code = welch.map(|w| Part::from(w).wider(noise.widening));
        let observed = noise.observed(&layouts);
        let placement = noise.placement(welch, observed);
        let (layout_sd_log, layout_sd_interval_log) = layout_spread(&placed, noise.run_sd_log);
        let enough = random.iter().all(|r| r.len() >= FEWEST_LAYOUTS) && looks.may(self.rounds());
        let (decision, source) = judge(code.filter(|_| enough), observed, placement, delta_log);
        let fewest = random[0].len().min(random[1].len());
        // What planning must beat is the spread of layout medians, noise of the runs included.
        let spread = pooled_sd(&random);
        Ok(Split {
            placement,
            observed,
            code,
            welch,
            layout_sd_log,
            layout_sd_interval_log,
            run_sd_log: noise.run_sd_log,
            decision,
            source,
            detectable_log: detectable(fewest, spread),
            layouts_needed: layouts_needed(spread, delta_log).map(|n| n as u64),
            layouts,
        })
    }
}

/// What the runs of two programs leave open about a layout.
#[derive(Clone, Copy)]
struct Noise {
    run_sd_log: f64,
    freedom: f64,
    widening: f64,
}

impl Noise {
    /// What a comparison of the two builds as they come would have said.
    fn observed(self, layouts: &[Vec<LayoutValue>; 2]) -> Option<Part> {
        let [a, b] = layouts.each_ref().map(|all| all.iter().find(|l| l.layout == AS_BUILT));
        let (a, b) = (a?, b?);
        let variance =
            run_variance(self.run_sd_log, a.runs) + run_variance(self.run_sd_log, b.runs);
        let reach = t_quantile(1.0 - ALPHA / 2.0, self.freedom)? * variance.sqrt();
        Some(Part::around(b.median_log - a.median_log, reach).wider(self.widening))
    }

    fn placement(self, code: Option<Welch>, observed: Option<Part>) -> Option<Part> {
        let (code, observed) = (code?, observed?);
        let t = t_quantile(1.0 - ALPHA / 2.0, self.freedom)? * self.widening;
        let observed_error = (observed.high_log - observed.log_ratio) / t;
        let parts = [
            (code.standard_error * code.standard_error, code.freedom),
            (observed_error * observed_error, self.freedom),
        ];
        let part = from_parts(observed.log_ratio - code.difference, parts)?;
        Some(Part::from(part).wider(self.widening * Z_99 / Z))
    }
}

/// The word about the code, and where the difference of the builds as they come is from. Placement is
/// named only where its own interval says so: that one part is likely not the code makes it no placement.
fn judge(
    code: Option<Part>,
    observed: Option<Part>,
    placement: Option<Part>,
    delta_log: f64,
) -> (Decision, Source) {
    let matters = |p: &Part| p.excludes_zero() && p.log_ratio.abs() >= delta_log;
    let seen = observed.filter(matters);
    let placed = seen
        .zip(placement.filter(matters))
        .is_some_and(|(seen, placed)| seen.log_ratio * placed.log_ratio > 0.0);
    let Some(code) = code else {
        return (Decision::Inconclusive, Source::Open);
    };
    if code.low_log > -delta_log && code.high_log < delta_log {
        let source = match (placed, seen) {
            (true, _) => Source::Placement,
            (false, Some(_)) => Source::Open,
            (false, None) => Source::Nothing,
        };
        return (Decision::Equivalent, source);
    }
    if matters(&code) {
        let word = if code.log_ratio > 0.0 { Decision::Slower } else { Decision::Faster };
        return (word, Source::Code);
    }
    // Too few layouts to exclude every effect that matters, and yet enough for this one.
    let source = if placed && code.holds(0.0) { Source::Placement } else { Source::Open };
    (Decision::Inconclusive, source)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::simulate::LayoutMachine;
    use super::*;

    const DELTA: f64 = 0.01;

    #[test]
    fn a_lucky_placement_is_told_from_code() {
        // Equal code; B as it comes sits 3.2 % better than its random placements.
        let mut machine = LayoutMachine::new(1);
        machine.layout_sd_log = 0.012;
        machine.as_built_log = [0.0, -0.032];
        let result = split(&machine.ensemble(12, 5), DELTA).unwrap();
        assert_eq!(result.source, Source::Placement, "{result:?}");
        assert!(result.observed.unwrap().log_ratio < -0.02);
        assert!(result.placement.unwrap().high_log < 0.0);
        assert_ne!(result.decision, Decision::Faster);
    }

    #[test]
    fn an_effect_of_code_is_called_by_its_name() {
        let mut machine = LayoutMachine::new(2);
        machine.layout_sd_log = 0.01;
        machine.effect_log = 0.05;
        let result = split(&machine.ensemble(10, 3), DELTA).unwrap();
        assert_eq!((result.decision, result.source), (Decision::Slower, Source::Code));
        machine.effect_log = -0.05;
        let result = split(&machine.ensemble(10, 3), DELTA).unwrap();
        assert_eq!(result.decision, Decision::Faster);
    }

    #[test]
    fn the_spreads_are_told_apart() {
        let mut machine = LayoutMachine::new(3);
        (machine.layout_sd_log, machine.run_sd_log) = (0.03, 0.005);
        let s = split(&machine.ensemble(40, 6), DELTA).unwrap();
        assert!((0.022..0.038).contains(&s.layout_sd_log), "{}", s.layout_sd_log);
        let [low, high] = s.layout_sd_interval_log.unwrap();
        assert!(low < 0.03 && 0.03 < high, "{low} {high}");
        assert!((0.004..0.006).contains(&s.run_sd_log), "{}", s.run_sd_log);
        machine.layout_sd_log = 0.0;
        let s = split(&machine.ensemble(20, 6), DELTA).unwrap();
        assert!(s.layout_sd_log < 0.002 && s.decision == Decision::Equivalent, "{s:?}");
    }

    #[test]
    fn placement_is_judged_by_its_own_interval() {
        let part = |log, reach| Some(Part::around(log, reach));
        let word = |code, observed, placement| judge(code, observed, placement, DELTA).1;
        // The builds differ, the code could be equal: placement only where that part is not nothing.
        let wide = part(0.004, 0.02);
        assert_eq!(word(wide, part(0.03, 0.002), part(0.026, 0.02)), Source::Placement);
        assert_eq!(word(wide, part(0.02, 0.002), part(0.016, 0.02)), Source::Open);
        // Nor is it when it points the other way, or is too small to matter.
        assert_eq!(word(wide, part(0.03, 0.002), part(-0.026, 0.02)), Source::Open);
        assert_eq!(word(wide, part(0.012, 0.002), part(0.008, 0.002)), Source::Open);
        // Equal code beside a difference that is not proved to be placement stays open.
        let equal = part(0.006, 0.003);
        let open = judge(equal, part(0.014, 0.002), part(0.008, 0.004), DELTA);
        assert_eq!(open, (Decision::Equivalent, Source::Open));
        assert_eq!(word(equal, part(0.001, 0.002), part(-0.005, 0.004)), Source::Nothing);
    }

    #[test]
    fn the_word_about_the_code_is_that_of_its_interval() {
        let part = |low_log: f64, high_log: f64| {
            Some(Part { log_ratio: 0.5 * (low_log + high_log), low_log, high_log })
        };
        let word = |code| judge(code, None, None, DELTA);
        assert_eq!(word(part(0.01, 0.03)), (Decision::Slower, Source::Code));
        assert_eq!(word(part(-0.03, -0.01)), (Decision::Faster, Source::Code));
        assert_eq!(word(part(-0.009, 0.009)), (Decision::Equivalent, Source::Nothing));
        // What matters itself is neither inside nor too small.
        assert_eq!(word(part(-0.01, 0.009)), (Decision::Inconclusive, Source::Open));
        assert_eq!(word(part(-0.009, 0.01)), (Decision::Inconclusive, Source::Open));
        let exact = Part { log_ratio: DELTA, low_log: 0.001, high_log: 0.02 };
        assert_eq!(word(Some(exact)), (Decision::Slower, Source::Code));
        assert_eq!(word(part(0.001, 0.015)), (Decision::Inconclusive, Source::Open));
        assert_eq!(word(part(0.0, 0.03)), (Decision::Inconclusive, Source::Open));
        assert_eq!(word(None), (Decision::Inconclusive, Source::Open));
        // Placement takes code that may be nothing, the ends of its interval included.
        let shift = part(0.025, 0.035);
        let placed = |code| judge(code, shift, shift, DELTA).1;
        assert_eq!(placed(part(-0.009, 0.009)), Source::Placement);
        assert_eq!(placed(part(0.0, 0.018)), Source::Placement);
        assert_eq!(placed(part(-0.018, 0.0)), Source::Placement);
        assert_eq!(placed(part(0.001, 0.015)), Source::Open);
        assert_eq!(placed(part(-0.015, -0.001)), Source::Open);
    }

    #[test]
    fn an_interval_widens_around_its_estimate() {
        let part = Part { log_ratio: 1.0, low_log: 0.5, high_log: 2.0 };
        assert_eq!(part.wider(3.0), Part { log_ratio: 1.0, low_log: -0.5, high_log: 4.0 });
        let around = |centre, reach| Part::around(centre, reach).excludes_zero();
        assert!(around(2.0, 1.0) && around(-2.0, 1.0) && !around(1.0, 1.0) && !around(-1.0, 1.0));
        let words: std::collections::BTreeSet<&str> =
            [Source::Code, Source::Placement, Source::Nothing, Source::Open]
                .map(Source::words)
                .into();
        assert_eq!(words.len(), 4);
    }

    #[test]
    fn the_parts_of_a_difference_have_the_errors_of_their_runs() {
        let noise = Noise { run_sd_log: 0.02, freedom: 10.0, widening: 1.5 };
        let value =
            |layout, median_log, runs| LayoutValue { layout, median_log, runs, disturbed: 0 };
        let layouts = [
            vec![value(3, 9.0, 1), value(AS_BUILT, 1.0, 4)],
            vec![value(AS_BUILT, 1.3, 1), value(5, 9.0, 1)],
        ];
        let observed = noise.observed(&layouts).unwrap();
        // A median of four runs has π/2 of the variance of their mean; one run has its own.
        let variance = 0.02 * 0.02 * (std::f64::consts::FRAC_PI_2 / 4.0 + 1.0);
        let t = t_quantile(0.975, 10.0).unwrap();
        assert!((observed.log_ratio - 0.3).abs() < 1e-12);
        assert!(
            (observed.high_log - 0.3 - 1.5 * t * f64::sqrt(variance)).abs() < 1e-9,
            "{observed:?}"
        );
        assert_eq!(noise.observed(&[layouts[0].clone(), Vec::new()]), None);
        // Observed less code, the squares of both errors added, at 99 %, as often as it is looked at.
        let code = welch(&[0.0, 0.1, 0.2], &[0.1, 0.2, 0.3]).unwrap();
        let placement = noise.placement(Some(code), Some(observed)).unwrap();
        let parts = [(code.standard_error.powi(2), code.freedom), (variance, 10.0)];
        let want = from_parts(0.3 - 0.1, parts).unwrap();
        assert!((placement.log_ratio - 0.2).abs() < 1e-9, "{placement:?}");
        let reach = 1.5 * Z_99 / Z * (want.high - want.difference);
        assert!((placement.high_log - 0.2 - reach).abs() < 1e-9, "{placement:?} {want:?}");
        assert_eq!(noise.placement(None, Some(observed)), None);
    }

    #[test]
    fn the_difference_is_that_of_the_rows() {
        let machine = LayoutMachine::new(5);
        let cell = |r: &LayoutRun| ((r.arm.index() as u32, r.layout), r.round, r.value);
        let ensemble = Ensemble::new(machine.ensemble(6, 7).iter().map(cell));
        let found = ensemble.split([0, 1], DELTA, Looks::Once).unwrap();
        let row = |program| ensemble.layouts(program)[0].median_log;
        assert!((found.observed.unwrap().log_ratio - (row(1) - row(0))).abs() < 1e-12);
    }

    #[test]
    fn looks_after_every_round_widen_and_wait() {
        let mut machine = LayoutMachine::new(6);
        machine.effect_log = 0.3;
        let at = |rounds, looks| {
            let cell = |r: &LayoutRun| ((r.arm.index() as u32, r.layout), r.round, r.value);
            let runs = machine.ensemble(6, rounds);
            Ensemble::new(runs.iter().map(cell)).split([0, 1], DELTA, looks).unwrap()
        };
        assert_eq!(at(9, Looks::Once).decision, Decision::Slower);
        let early = at(9, Looks::EveryRound);
        assert_eq!((early.decision, early.source), (Decision::Inconclusive, Source::Open));
        let (once, often) =
            (at(10, Looks::Once).code.unwrap(), at(10, Looks::EveryRound).code.unwrap());
        assert!(often.high_log - often.low_log > 1.3 * (once.high_log - once.low_log));
        assert_eq!(at(10, Looks::EveryRound).decision, Decision::Slower);
    }

    #[test]
    fn two_layouts_never_decide_and_bad_values_are_named() {
        let mut machine = LayoutMachine::new(4);
        machine.effect_log = 0.5;
        let s = split(&machine.ensemble(2, 4), DELTA).unwrap();
        assert_eq!((s.decision, s.source), (Decision::Inconclusive, Source::Open));
        assert_eq!((s.placed(), s.layouts[0].len(), s.detectable_log), ([2, 2], 3, None));
        assert!(split(&machine.ensemble(3, 4), DELTA).unwrap().detectable_log.is_some());
        let mut runs = machine.ensemble(3, 2);
        runs[0].value = 0.0;
        assert!(split(&runs, DELTA).unwrap_err().to_string().contains("above zero"));
        runs.retain(|r| r.arm == Arm::A);
        runs[0].value = 1.0;
        assert_eq!(split(&runs, DELTA), Err(LayoutError::NoLayout(Arm::B)));
    }

    proptest! {
        #[test]
        fn the_machine_and_the_unit_do_not_matter(
            seed in 0_u64..1000, scale in 0.001..1000.0_f64, steps in proptest::collection::vec(-0.3..0.3_f64, 4),
        ) {
            // Whole rounds at another speed, everything in another unit: the same split.
            let runs = LayoutMachine::new(seed).ensemble(5, 4);
            let moved: Vec<LayoutRun> = runs.iter().map(|r| LayoutRun {
                value: r.value * scale * steps[r.round as usize].exp(), ..*r
            }).collect();
            let (a, b) = (split(&runs, DELTA).unwrap(), split(&moved, DELTA).unwrap());
            let (a, b) = (a.code.unwrap(), b.code.unwrap());
            prop_assert!((a.log_ratio - b.log_ratio).abs() < 3e-3, "{a:?} {b:?}");
        }

        #[test]
        fn swapping_the_arms_turns_the_sign(seed in 0_u64..1000) {
            let runs = LayoutMachine::new(seed).ensemble(4, 3);
            let swapped: Vec<LayoutRun> = runs.iter().map(|r| LayoutRun {
                arm: if r.arm == Arm::A { Arm::B } else { Arm::A }, ..*r
            }).collect();
            let (a, b) = (split(&runs, DELTA).unwrap(), split(&swapped, DELTA).unwrap());
            prop_assert!((a.code.unwrap().log_ratio + b.code.unwrap().log_ratio).abs() < 1e-9);
        }
    }
}
