//! The difference taken apart: code, placement, noise of the runs.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ChiSquared, ContinuousCDF};

use super::planning::{detectable, layouts_needed};
use super::{AS_BUILT, FEWEST_LAYOUTS, LayoutError, LayoutRun};
use crate::compare::schedule::Arm;
use crate::compare::verdict::Decision;
use crate::stats::ALPHA;
use crate::stats::robust::{median, robust_sd, sorted};
use crate::stats::student::{mean_and_sd, t_quantile};
use crate::stats::welch::{Welch, from_parts, welch};

/// Variance of a median over the variance of a mean, for normal noise and many runs.
const MEDIAN_PRICE: f64 = std::f64::consts::FRAC_PI_2;
/// Sweeps of the median polish; it settles after two.
const POLISH_SWEEPS: usize = 3;

/// Runs of a layout below which nothing can be called disturbed.
const ENOUGH_RUNS: usize = 4;
/// Width of the band of undisturbed runs, in standard deviations of a run of that arm.
const CLEAN_BAND_SD: f64 = 6.0;
/// Share of a layout's runs that the band must hold.
const CLEAN_SHARE: f64 = 0.4;

/// One layout: the median of its undisturbed runs, rounds taken out.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayoutValue {
    /// Which placement; 0 is the build as it comes.
    pub layout: u32,
    /// Natural logarithm of its typical value.
    pub median_log: f64,
    /// How many runs there were.
    pub runs: u32,
    /// Of these, how many were far slower than the others and were left out of the median.
    pub disturbed: u32,
}

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
    fn around(centre: f64, reach: f64) -> Self {
        Self { log_ratio: centre, low_log: centre - reach, high_log: centre + reach }
    }

    /// Whether the interval leaves "no difference" out.
    #[must_use]
    pub fn excludes_zero(&self) -> bool {
        self.low_log > 0.0 || self.high_log < 0.0
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
    /// What the builds as they come owe to their placement: observed minus code.
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

/// Takes the difference of both arms apart; `delta_log` is the smallest effect of interest.
///
/// # Errors
/// When an arm has no runs, or a value has no logarithm.
pub fn split(runs: &[LayoutRun], delta_log: f64) -> Result<Split, LayoutError> {
    if let Some(bad) = runs.iter().find(|r| !(r.value > 0.0 && r.value.is_finite())) {
        return Err(LayoutError::Value { arm: bad.arm, layout: bad.layout, value: bad.value });
    }
    let seen: Vec<Seen> = runs.iter().map(Seen::from).collect();
    let polished = polish(&seen);
    let layouts = [Arm::A, Arm::B].map(|arm| polished.of(arm));
    for (arm, values) in [Arm::A, Arm::B].into_iter().zip(&layouts) {
        if values.is_empty() {
            return Err(LayoutError::NoLayout(arm));
        }
    }
    let random = layouts.each_ref().map(|all| -> Vec<f64> {
        all.iter().filter(|l| l.layout != AS_BUILT).map(|l| l.median_log).collect()
    });
    let welch = welch(&random[0], &random[1]);
    let code = welch.map(Part::from);
    let observed = observed(&layouts, &polished);
    let (layout_sd_log, layout_sd_interval_log) = layout_spread(&layouts, &polished);
    let enough = random.iter().all(|r| r.len() >= FEWEST_LAYOUTS);
    let (decision, source) = judge(code.filter(|_| enough), observed, delta_log);
    let fewest = random[0].len().min(random[1].len());
    // What planning must beat is the spread of layout medians, noise of the runs included.
    let spread = pooled_spread(&random);
    Ok(Split {
        placement: placement(welch, observed, &polished),
        observed,
        code,
        welch,
        layout_sd_log,
        layout_sd_interval_log,
        run_sd_log: polished.run_sd_log,
        decision,
        source,
        detectable_log: detectable(fewest, spread),
        layouts_needed: layouts_needed(spread, delta_log).map(|n| n as u64),
        layouts,
    })
}

/// One run, whatever its groups are: arms here, variants of a sweep.
#[derive(Clone, Copy)]
struct Seen {
    group: usize,
    layout: u32,
    round: u32,
    value: f64,
}

impl From<&LayoutRun> for Seen {
    fn from(run: &LayoutRun) -> Self {
        Self { group: run.arm.index(), layout: run.layout, round: run.round, value: run.value }
    }
}

/// A run of a sweep: variant and layout, round, value above zero.
pub type CellRun = ((u32, u32), u32, f64);

fn seen(runs: impl Iterator<Item = CellRun>) -> Vec<Seen> {
    runs.filter(|r| r.2 > 0.0)
        .map(|((group, layout), round, value)| Seen { group: group as usize, layout, round, value })
        .collect()
}

/// The typical logarithm of every cell, rounds taken out.
#[must_use]
pub fn layout_medians(runs: impl Iterator<Item = CellRun>) -> BTreeMap<(u32, u32), f64> {
    let polished = polish(&seen(runs));
    let typical = |group: usize, values: &[f64]| {
        median(&undisturbed(values, polished.group_sd_log[&group])).unwrap_or_default()
    };
    let cells = polished.values.iter();
    cells.map(|((g, layout), v)| ((*g as u32, *layout), typical(*g, v))).collect()
}

/// Spread between random layouts of a variant without the noise of runs, and that noise (logs).
#[must_use]
pub fn spread_of_cells(runs: impl Iterator<Item = CellRun>) -> [f64; 2] {
    let polished = polish(&seen(runs));
    let mut variants: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    let mut noise = Vec::new();
    for ((group, _), values) in polished.values.iter().filter(|(key, _)| key.1 != AS_BUILT) {
        let clean = undisturbed(values, polished.group_sd_log[group]);
        variants.entry(*group).or_default().push(median(&clean).unwrap_or_default());
        noise.push(polished.run_variance(values.len() as u32));
    }
    let groups: Vec<Vec<f64>> = variants.into_values().collect();
    let own = noise.iter().sum::<f64>() / noise.len().max(1) as f64;
    [(pooled_spread(&groups).powi(2) - own).max(0.0).sqrt(), polished.run_sd_log]
}

struct Polished {
    /// Residual and layout of each run, by arm and layout.
    values: BTreeMap<(usize, u32), Vec<f64>>,
    run_sd_log: f64,
    group_sd_log: BTreeMap<usize, f64>,
    freedom: f64,
}

impl Polished {
    fn of(&self, arm: Arm) -> Vec<LayoutValue> {
        let mine = self.values.iter().filter(|((a, _), _)| *a == arm.index());
        mine.map(|((_, layout), values)| {
            let clean = undisturbed(values, self.group_sd_log[&arm.index()]);
            LayoutValue {
                layout: *layout,
                median_log: median(&clean).unwrap_or_default(),
                runs: values.len() as u32,
                disturbed: (values.len() - clean.len()) as u32,
            }
        })
        .collect()
    }

    /// Variance of a layout's median that comes from its runs.
    fn run_variance(&self, runs: u32) -> f64 {
        let price = if runs > 2 { MEDIAN_PRICE } else { 1.0 };
        price * self.run_sd_log * self.run_sd_log / f64::from(runs.max(1))
    }
}

/// The runs of a layout in its lowest dense band. Neighbours and interrupts only ever add time, so
/// what lies far above a band that holds a good part of the runs is the machine, not the layout;
/// the median alone gives way when, by chance, most of a handful of runs are hit. In quiet runs the
/// band holds everything. What is left out is counted, see [`LayoutValue::disturbed`].
fn undisturbed(values: &[f64], run_sd_log: f64) -> Vec<f64> {
    let ascending = sorted(values);
    if ascending.len() < ENOUGH_RUNS || run_sd_log <= 0.0 {
        return ascending;
    }
    let needed = (CLEAN_SHARE * ascending.len() as f64).ceil() as usize;
    let band = CLEAN_BAND_SD * run_sd_log;
    let count = |from: usize| {
        ascending[from..].iter().take_while(|v| **v <= ascending[from] + band).count()
    };
    let start = (0..ascending.len()).find(|&i| count(i) >= needed).unwrap_or(0);
    // A lone fast run below the band is no disturbance: it stays.
    ascending[..start + count(start)].to_vec()
}

/// Takes rounds out by median polish: what all layouts of a round share is the machine.
fn polish(runs: &[Seen]) -> Polished {
    let mut logs: Vec<f64> = runs.iter().map(|r| r.value.ln()).collect();
    let key = |r: &Seen| (r.group, r.layout);
    let group = |logs: &[f64], of: &dyn Fn(&Seen) -> (usize, u32)| {
        let mut groups: BTreeMap<(usize, u32), Vec<f64>> = BTreeMap::new();
        for (run, log) in runs.iter().zip(logs) {
            groups.entry(of(run)).or_default().push(*log);
        }
        groups
    };
    // Every round holds about the same layouts, so their medians are a first guess at its level.
    let first = levels(&group(&logs, &|r| (0, r.round)), 0.0);
    // What all rounds share stays, so that a layout's value is still a time.
    let common = median(&first.values().copied().collect::<Vec<f64>>()).unwrap_or_default();
    for (run, log) in runs.iter().zip(&mut logs) {
        *log -= first[&(0, run.round)] - common;
    }
    // Plain medians first; the spread that they leave then tells disturbed runs from others, so
    // that a neighbour who stays for most of a round does not become the round's level.
    let mut sd_log = 0.0;
    for _ in 0..POLISH_SWEEPS {
        let layouts = levels(&group(&logs, &key), sd_log);
        let residuals: Vec<f64> =
            runs.iter().zip(&logs).map(|(r, log)| log - layouts[&key(r)]).collect();
        let rounds = levels(&group(&residuals, &|r| (0, r.round)), sd_log);
        let left = runs.iter().zip(&residuals).map(|(r, log)| log - rounds[&(0, r.round)]);
        sd_log = robust_sd(&left.collect::<Vec<f64>>());
        for (run, log) in runs.iter().zip(&mut logs) {
            *log -= rounds[&(0, run.round)];
        }
    }
    let values = group(&logs, &key);
    let rounds = runs.iter().map(|r| r.round).collect::<BTreeSet<_>>().len();
    // Layouts with one run have no residual of their own.
    let residuals = |arm: Option<usize>| -> Vec<f64> {
        let mine = values.iter().filter(|(key, v)| v.len() > 1 && arm.is_none_or(|a| key.0 == a));
        mine.flat_map(|(_, v)| {
            let centre = median(v).unwrap_or_default();
            let correct = (v.len() as f64 / (v.len() as f64 - 1.0)).sqrt();
            v.iter().map(move |x| (x - centre) * correct)
        })
        .collect()
    };
    let taken = values.len() + rounds.saturating_sub(1);
    let groups: BTreeSet<usize> = values.keys().map(|key| key.0).collect();
    Polished {
        run_sd_log: robust_sd(&residuals(None)),
        group_sd_log: groups.into_iter().map(|g| (g, robust_sd(&residuals(Some(g))))).collect(),
        freedom: (runs.len().saturating_sub(taken)).max(1) as f64,
        values,
    }
}

/// The median of each group's undisturbed values.
fn levels(groups: &BTreeMap<(usize, u32), Vec<f64>>, sd_log: f64) -> BTreeMap<(usize, u32), f64> {
    let level = |values: &[f64]| median(&undisturbed(values, sd_log)).unwrap_or_default();
    groups.iter().map(|(key, values)| (*key, level(values))).collect()
}

/// What a comparison of the two builds as they come would have said.
fn observed(layouts: &[Vec<LayoutValue>; 2], polished: &Polished) -> Option<Part> {
    let [a, b] = layouts.each_ref().map(|all| all.iter().find(|l| l.layout == AS_BUILT));
    let (a, b) = (a?, b?);
    let variance = polished.run_variance(a.runs) + polished.run_variance(b.runs);
    let reach = t_quantile(1.0 - ALPHA / 2.0, polished.freedom)? * variance.sqrt();
    Some(Part::around(b.median_log - a.median_log, reach))
}

fn placement(code: Option<Welch>, observed: Option<Part>, polished: &Polished) -> Option<Part> {
    let (code, observed) = (code?, observed?);
    let t = t_quantile(1.0 - ALPHA / 2.0, polished.freedom)?;
    let observed_error = (observed.high_log - observed.log_ratio) / t;
    let parts = [
        (code.standard_error * code.standard_error, code.freedom),
        (observed_error * observed_error, polished.freedom),
    ];
    from_parts(observed.log_ratio - code.difference, parts).map(Part::from)
}

/// Standard deviation of random layouts around the mean of their own arm.
fn pooled_spread(random: &[Vec<f64>]) -> f64 {
    let (mut squares, mut freedom) = (0.0, 0.0);
    for values in random.iter().filter(|v| v.len() > 1) {
        let f = values.len() as f64 - 1.0;
        squares += mean_and_sd(values).1.powi(2) * f;
        freedom += f;
    }
    if freedom > 0.0 { (squares / freedom).sqrt() } else { 0.0 }
}

/// Spread between layouts without the noise of runs, with its interval.
fn layout_spread(layouts: &[Vec<LayoutValue>; 2], polished: &Polished) -> (f64, Option<[f64; 2]>) {
    let random = layouts
        .each_ref()
        .map(|all| -> Vec<&LayoutValue> { all.iter().filter(|l| l.layout != AS_BUILT).collect() });
    let logs = random.each_ref().map(|r| r.iter().map(|l| l.median_log).collect::<Vec<f64>>());
    let total = pooled_spread(&logs).powi(2);
    let count = random.iter().map(Vec::len).sum::<usize>();
    let noise = random.iter().flatten().map(|l| polished.run_variance(l.runs)).sum::<f64>()
        / count.max(1) as f64;
    let freedom = logs.iter().map(|l| l.len().saturating_sub(1)).sum::<usize>() as f64;
    let without = |variance: f64| (variance - noise).max(0.0).sqrt();
    let interval = ChiSquared::new(freedom).ok().filter(|_| total > 0.0).map(|chi| {
        [1.0 - ALPHA / 2.0, ALPHA / 2.0].map(|q| without(total * freedom / chi.inverse_cdf(q)))
    });
    (without(total), interval)
}

/// The word about the code, and where the difference of the builds as they come is from.
fn judge(code: Option<Part>, observed: Option<Part>, delta_log: f64) -> (Decision, Source) {
    let seen = observed.filter(|o| o.excludes_zero() && o.log_ratio.abs() >= delta_log);
    let Some(code) = code else {
        return (Decision::Inconclusive, Source::Open);
    };
    if code.low_log > -delta_log && code.high_log < delta_log {
        let source = if seen.is_some() { Source::Placement } else { Source::Nothing };
        return (Decision::Equivalent, source);
    }
    if code.excludes_zero() && code.log_ratio.abs() >= delta_log {
        let word = if code.log_ratio > 0.0 { Decision::Slower } else { Decision::Faster };
        return (word, Source::Code);
    }
    // Too few layouts to exclude every effect that matters, and yet enough to exclude this one.
    let not_this = seen.is_some_and(|o| !code.holds(o.log_ratio));
    let source = if not_this && code.holds(0.0) { Source::Placement } else { Source::Open };
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
    fn two_layouts_never_decide_and_bad_values_are_named() {
        let mut machine = LayoutMachine::new(4);
        machine.effect_log = 0.5;
        let s = split(&machine.ensemble(2, 4), DELTA).unwrap();
        assert_eq!((s.decision, s.source), (Decision::Inconclusive, Source::Open));
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
