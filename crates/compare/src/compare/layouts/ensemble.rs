//! All runs of some programs in some placements, rounds taken out once: every number about a layout comes
//! from here, so that a difference is the difference of the rows that it is shown with.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ChiSquared, ContinuousCDF};

use super::AS_BUILT;
use crate::stats::ALPHA;
use crate::stats::robust::{median, robust_sd, sorted};
use crate::stats::student::pooled_sd;

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

/// A difference of two programs, and what of its variance the runs are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Natural logarithm of the ratio.
    pub log_ratio: f64,
    /// Its variance from runs, in variances of one run.
    pub run_variance_share: f64,
    /// Standard deviation of a run (log), as far as these runs tell.
    pub run_sd_log: f64,
    /// Degrees of freedom of that.
    pub freedom: f64,
}

/// A run: its program (an arm, a variant of a sweep) and layout, its round, its value above zero.
pub type CellRun = ((u32, u32), u32, f64);

/// Runs of every layout with what whole rounds share taken out.
#[derive(Clone, Debug)]
pub struct Ensemble {
    /// Residual and layout of each run, by program and layout.
    values: BTreeMap<(u32, u32), Vec<f64>>,
    /// Standard deviation of a run (log), per program.
    run_sd_log: BTreeMap<u32, f64>,
    rounds: usize,
}

impl Ensemble {
    /// Takes rounds out by median polish: what all layouts of a round share is the machine. Values that
    /// have no logarithm are left out.
    #[must_use]
    pub fn new(runs: impl Iterator<Item = CellRun>) -> Self {
        let runs: Vec<CellRun> = runs.filter(|r| r.2 > 0.0 && r.2.is_finite()).collect();
        let values = polish(&runs);
        let programs: BTreeSet<u32> = values.keys().map(|key| key.0).collect();
        let rounds = runs.iter().map(|r| r.1).collect::<BTreeSet<_>>().len();
        let mut new = Self { values, run_sd_log: BTreeMap::new(), rounds };
        new.run_sd_log = programs.into_iter().map(|p| (p, new.run_sd_log(&[p]))).collect();
        new
    }

    /// How many rounds there were.
    #[must_use]
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// The layouts of a program.
    #[must_use]
    pub fn layouts(&self, program: u32) -> Vec<LayoutValue> {
        let mine = self.values.iter().filter(|(key, _)| key.0 == program);
        mine.map(|((_, layout), values)| {
            let clean = undisturbed(values, self.run_sd_log[&program]);
            LayoutValue {
                layout: *layout,
                median_log: median(&clean).unwrap_or_default(),
                runs: values.len() as u32,
                disturbed: (values.len() - clean.len()) as u32,
            }
        })
        .collect()
    }

    /// Spread between random layouts of these programs without the noise of runs, and that noise (logs).
    #[must_use]
    pub fn spread(&self, programs: &[u32]) -> [f64; 2] {
        let run_sd_log = self.run_sd_log(programs);
        let layouts: Vec<Vec<LayoutValue>> = programs.iter().map(|p| self.layouts(*p)).collect();
        [layout_spread(&placed(&layouts), run_sd_log).0, run_sd_log]
    }

    /// All programs that were run.
    #[must_use]
    pub fn programs(&self) -> Vec<u32> {
        self.run_sd_log.keys().copied().collect()
    }

    /// Standard deviation of a run within its layout (log), robust, over these programs.
    pub(super) fn run_sd_log(&self, programs: &[u32]) -> f64 {
        // Layouts with one run have no residual of their own.
        let mine = self.values.iter().filter(|(key, v)| v.len() > 1 && programs.contains(&key.0));
        let residuals: Vec<f64> = mine
            .flat_map(|(_, v)| {
                let centre = median(v).unwrap_or_default();
                let correct = (v.len() as f64 / (v.len() as f64 - 1.0)).sqrt();
                v.iter().map(move |x| (x - centre) * correct)
            })
            .collect();
        robust_sd(&residuals)
    }

    /// The difference of the second of two programs to the first, of their random placements or of the builds
    /// as they come; `None` when one of them has no such layout.
    #[must_use]
    pub fn difference(&self, programs: [u32; 2], of_placed: bool) -> Option<Difference> {
        let arms = programs.map(|program| {
            let mine = self.layouts(program).into_iter();
            mine.filter(|l| (l.layout != AS_BUILT) == of_placed).collect::<Vec<LayoutValue>>()
        });
        let mean = |layouts: &[LayoutValue], of: fn(&LayoutValue) -> f64| {
            let n = layouts.len() as f64;
            (n > 0.0).then(|| layouts.iter().map(of).sum::<f64>() / n)
        };
        let centre = |arm: usize| mean(&arms[arm], |l| l.median_log);
        let of_one_run = |arm: usize| {
            Some(mean(&arms[arm], |l| run_variance(1.0, l.runs))? / arms[arm].len() as f64)
        };
        Some(Difference {
            log_ratio: centre(1)? - centre(0)?,
            run_variance_share: of_one_run(0)? + of_one_run(1)?,
            run_sd_log: self.run_sd_log(&programs),
            freedom: self.freedom(&programs),
        })
    }

    /// Degrees of freedom of that: runs less layouts and rounds.
    pub(super) fn freedom(&self, programs: &[u32]) -> f64 {
        let mine = self.values.iter().filter(|(key, _)| programs.contains(&key.0));
        let (runs, layouts) = mine.fold((0, 0), |(runs, n), (_, v)| (runs + v.len(), n + 1));
        runs.saturating_sub(layouts + self.rounds.saturating_sub(1)).max(1) as f64
    }
}

/// The random placements of each program, without the builds as they come.
pub(super) fn placed(layouts: &[Vec<LayoutValue>]) -> Vec<Vec<LayoutValue>> {
    let placed =
        |all: &Vec<LayoutValue>| all.iter().filter(|l| l.layout != AS_BUILT).copied().collect();
    layouts.iter().map(placed).collect()
}

/// The typical logarithms of these layouts.
pub(super) fn logs(layouts: &[Vec<LayoutValue>]) -> Vec<Vec<f64>> {
    layouts.iter().map(|all| all.iter().map(|l| l.median_log).collect()).collect()
}

/// Variance of a layout's median that comes from its runs.
pub(super) fn run_variance(run_sd_log: f64, runs: u32) -> f64 {
    let price = if runs > 2 { MEDIAN_PRICE } else { 1.0 };
    price * run_sd_log * run_sd_log / f64::from(runs.max(1))
}

/// The mean of that over layouts.
fn noise_of_medians(layouts: &[Vec<LayoutValue>], run_sd_log: f64) -> f64 {
    let each: Vec<f64> =
        layouts.iter().flatten().map(|l| run_variance(run_sd_log, l.runs)).collect();
    each.iter().sum::<f64>() / each.len().max(1) as f64
}

/// Spread between layouts without the noise of runs, with its interval.
pub(super) fn layout_spread(
    placed: &[Vec<LayoutValue>],
    run_sd_log: f64,
) -> (f64, Option<[f64; 2]>) {
    let logs = logs(placed);
    let total = pooled_sd(&logs).powi(2);
    let noise = noise_of_medians(placed, run_sd_log);
    let freedom = logs.iter().map(|l| l.len().saturating_sub(1)).sum::<usize>() as f64;
    let without = |variance: f64| (variance - noise).max(0.0).sqrt();
    let interval = ChiSquared::new(freedom).ok().filter(|_| total > 0.0).map(|chi| {
        [1.0 - ALPHA / 2.0, ALPHA / 2.0].map(|q| without(total * freedom / chi.inverse_cdf(q)))
    });
    (without(total), interval)
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

/// Residual and layout of every run, by program and layout.
fn polish(runs: &[CellRun]) -> BTreeMap<(u32, u32), Vec<f64>> {
    let mut logs: Vec<f64> = runs.iter().map(|r| r.2.ln()).collect();
    let group = |logs: &[f64], of: &dyn Fn(&CellRun) -> (u32, u32)| {
        let mut groups: BTreeMap<(u32, u32), Vec<f64>> = BTreeMap::new();
        for (run, log) in runs.iter().zip(logs) {
            groups.entry(of(run)).or_default().push(*log);
        }
        groups
    };
    // Every round holds about the same layouts, so their medians are a first guess at its level.
    let first = levels(&group(&logs, &|r| (0, r.1)), 0.0);
    // What all rounds share stays, so that a layout's value is still a time.
    let common = median(&first.values().copied().collect::<Vec<f64>>()).unwrap_or_default();
    for (run, log) in runs.iter().zip(&mut logs) {
        *log -= first[&(0, run.1)] - common;
    }
    // Plain medians first; the spread that they leave then tells disturbed runs from others, so
    // that a neighbour who stays for most of a round does not become the round's level.
    let mut sd_log = 0.0;
    for _ in 0..POLISH_SWEEPS {
        let layouts = levels(&group(&logs, &|r| r.0), sd_log);
        let residuals: Vec<f64> =
            runs.iter().zip(&logs).map(|(r, log)| log - layouts[&r.0]).collect();
        let rounds = levels(&group(&residuals, &|r| (0, r.1)), sd_log);
        let left = runs.iter().zip(&residuals).map(|(r, log)| log - rounds[&(0, r.1)]);
        sd_log = robust_sd(&left.collect::<Vec<f64>>());
        for (run, log) in runs.iter().zip(&mut logs) {
            *log -= rounds[&(0, run.1)];
        }
    }
    group(&logs, &|r| r.0)
}

/// The median of each group's undisturbed values.
fn levels(groups: &BTreeMap<(u32, u32), Vec<f64>>, sd_log: f64) -> BTreeMap<(u32, u32), f64> {
    let level = |values: &[f64]| median(&undisturbed(values, sd_log)).unwrap_or_default();
    groups.iter().map(|(key, values)| (*key, level(values))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(layout: u32, median_log: f64, runs: u32) -> LayoutValue {
        LayoutValue { layout, median_log, runs, disturbed: 0 }
    }

    #[test]
    fn the_variance_of_a_layout_is_that_of_a_median_from_three_runs_on() {
        let half_pi = std::f64::consts::FRAC_PI_2;
        let of = |runs| run_variance(0.5, runs);
        assert_eq!([of(0), of(1), of(2)], [0.25, 0.25, 0.125]);
        assert!((of(3) - half_pi * 0.25 / 3.0).abs() < 1e-12);
        let layouts = [vec![value(1, 0.0, 1), value(2, 0.0, 2)], vec![value(1, 0.0, 1)]];
        assert!((noise_of_medians(&layouts, 0.5) - 0.625 / 3.0).abs() < 1e-12);
        assert_eq!(noise_of_medians(&[], 0.5), 0.0);
    }

    #[test]
    fn the_spread_of_layouts_has_the_noise_of_runs_taken_out() {
        let placed = [
            vec![value(1, 1.0, 1), value(2, 2.0, 1), value(3, 4.0, 1)],
            vec![value(1, 5.0, 1), value(2, 9.0, 1)],
        ];
        // Squares 14/3 and 8 over three degrees of freedom, less 0.25; χ²(3) has 9.3484036 and 0.2157953.
        let total = (14.0 / 3.0 + 8.0) / 3.0;
        let (sd, interval) = layout_spread(&placed, 0.5);
        assert!((sd - (total - 0.25_f64).sqrt()).abs() < 1e-12, "{sd}");
        let [low, high] = interval.unwrap();
        assert!((low - (3.0 * total / 9.348_403_6 - 0.25_f64).sqrt()).abs() < 1e-6, "{low}");
        assert!((high - (3.0 * total / 0.215_795_283 - 0.25_f64).sqrt()).abs() < 1e-5, "{high}");
        assert_eq!(layout_spread(&placed, 9.0).0, 0.0, "noise is all there is");
        assert_eq!(layout_spread(&[vec![value(1, 1.0, 1)]], 0.1), (0.0, None));
        assert_eq!(layout_spread(&[vec![value(1, 1.0, 1), value(2, 1.0, 1)]], 0.1), (0.0, None));
    }

    #[test]
    fn disturbed_runs_are_above_the_lowest_band_that_holds_two_of_five() {
        let sd = 0.01;
        // The band is 0.06 wide; four of ten hold it.
        let mut values = [0.0, 0.02, 0.04, 0.06, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7];
        assert_eq!(undisturbed(&values, sd), [0.0, 0.02, 0.04, 0.06]);
        values.reverse();
        assert_eq!(undisturbed(&values, sd), [0.0, 0.02, 0.04, 0.06], "in any order");
        // A lone fast run below the band stays, and the band is sought above it.
        let lone = [-0.5, 0.0, 0.02, 0.04, 0.06, 0.2, 0.3, 0.4, 0.5, 0.6];
        assert_eq!(undisturbed(&lone, sd), [-0.5, 0.0, 0.02, 0.04, 0.06]);
        // Three runs, and runs without noise, are left as they are; four are looked at.
        assert_eq!(undisturbed(&[0.0, 0.0, 9.0], sd), [0.0, 0.0, 9.0]);
        assert_eq!(undisturbed(&[0.0, 0.0, 0.0, 9.0], 0.0), [0.0, 0.0, 0.0, 9.0]);
        assert_eq!(undisturbed(&[0.0, 0.0, 0.0, 9.0], sd), [0.0, 0.0, 0.0]);
        // No band: what there is.
        assert_eq!(undisturbed(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], sd), [0.0]);
    }

    #[test]
    fn rounds_are_taken_out_and_what_is_no_time_is_left_out() {
        // Layout 1 takes twice layout 0; the second round of three is ten times as slow.
        let runs = (0..3).flat_map(|round| {
            let speed = if round == 1 { 10.0 } else { 1.0 };
            [
                ((7, 0), round, 100.0 * speed),
                ((7, 1), round, 200.0 * speed),
                ((8, 0), round, 50.0 * speed),
            ]
        });
        let broken = [((9, 0), 0, 0.0), ((9, 0), 0, -1.0), ((9, 0), 0, f64::INFINITY)];
        let ensemble = Ensemble::new(runs.chain(broken));
        assert_eq!((ensemble.programs(), ensemble.rounds()), (vec![7, 8], 3));
        let layouts = ensemble.layouts(7);
        assert_eq!(
            layouts.iter().map(|l| (l.layout, l.runs, l.disturbed)).collect::<Vec<_>>(),
            [(0, 3, 0), (1, 3, 0)]
        );
        assert!((layouts[0].median_log - 100.0_f64.ln()).abs() < 1e-9, "{layouts:?}");
        assert!((layouts[1].median_log - 200.0_f64.ln()).abs() < 1e-9, "{layouts:?}");
        // Nine runs of three layouts in three rounds leave four degrees of freedom.
        assert_eq!((ensemble.freedom(&[7, 8]), ensemble.freedom(&[8])), (4.0, 1.0));
        assert!(ensemble.run_sd_log(&[7, 8]) < 1e-9);
    }

    #[test]
    fn a_difference_is_of_random_placements_or_of_the_builds_as_they_come() {
        let at = |program, layout, log: f64| ((program, layout), 0, log.exp());
        let runs = [
            at(0, AS_BUILT, 1.0),
            at(0, 4, 2.0),
            at(0, 5, 4.0),
            at(1, AS_BUILT, 1.5),
            at(1, 4, 7.0),
        ];
        let ensemble = Ensemble::new(runs.into_iter());
        let built = ensemble.difference([0, 1], false).unwrap();
        assert!((built.log_ratio - 0.5).abs() < 1e-9, "{built:?}");
        assert_eq!(built.run_variance_share, 2.0);
        let placed = ensemble.difference([0, 1], true).unwrap();
        assert!((placed.log_ratio - 4.0).abs() < 1e-9, "{placed:?}");
        // Two layouts of one run on one side, one on the other.
        assert_eq!((placed.run_variance_share, placed.freedom), (1.5, 1.0));
        assert_eq!(ensemble.difference([0, 3], true), None);
    }

    #[test]
    fn the_noise_of_a_run_is_corrected_for_the_median_that_it_helped_to_set() {
        // Two runs a layout, 0.02 apart: residuals of ±0.01 times √2; layouts of one run tell nothing.
        let runs = (0..4).flat_map(|layout| {
            let log = |round: u32| 0.01 * (1.0 - 2.0 * f64::from((round + layout) % 2));
            [0, 1].map(|round| ((0, layout), round, (3.0 + log(round)).exp()))
        });
        let ensemble = Ensemble::new(runs.chain([((1, 0), 2, 9.0)]));
        let want = 0.01 * 2.0_f64.sqrt() * crate::stats::robust::MAD_TO_SD;
        assert!((ensemble.run_sd_log(&[0]) - want).abs() < 1e-9, "{}", ensemble.run_sd_log(&[0]));
        assert_eq!(ensemble.run_sd_log(&[1]), 0.0);
        let [between, noise] = ensemble.spread(&[0]);
        assert!(between < 1e-9 && (noise - want).abs() < 1e-9, "{between} {noise}");
    }
}
