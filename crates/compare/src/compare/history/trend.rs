//! Steps that are none: a series that drifts is cut into steps, too, each at a commit that did nothing.
//!
//! Steps in one direction that follow each other are held against a straight line over the same commits, by
//! Schwarz's criterion: n ln(squares / n) + parameters × ln n. A line has two parameters, steps have a level for
//! each part and a place for each step.

use super::{FEWEST_ON_A_SIDE, Part};
use crate::stats::student::{mean_and_sd, t_quantile};

/// Runs of steps that a line fits as well: of each the first step and the one behind its last, among those that
/// `bounds` has between its ends.
pub(super) fn drifts(values: &[f64], bounds: &[usize]) -> Vec<(usize, usize)> {
    let steps = bounds.len().saturating_sub(2);
    let parts: Vec<&[f64]> = bounds.windows(2).map(|b| &values[b[0]..b[1]]).collect();
    let means: Vec<f64> = parts.iter().map(|part| mean_and_sd(part).0).collect();
    let squares: Vec<f64> =
        parts.iter().map(|p| mean_and_sd(p).1.powi(2) * (p.len() as f64 - 1.0)).collect();
    let mut found: Vec<(usize, usize)> = Vec::new();
    // The longest runs first: what one line explains are not two drifts.
    for (run, from) in (1..=steps).rev().flat_map(|run| (0..=steps - run).map(move |at| (run, at)))
    {
        let to = from + run;
        let is_free = found.iter().all(|(a, b)| to <= *a || *b <= from);
        let is_monotone =
            (from..to).all(|i| (means[i + 1] > means[i]) == (means[from + 1] > means[from]));
        if !is_free || !is_monotone {
            continue;
        }
        let stretch = &values[bounds[from]..bounds[to + 1]];
        let n = stretch.len() as f64;
        let of_steps: f64 = squares[from..=to].iter().sum();
        let more_parameters = (2 * run + 1) as f64 - 2.0;
        if n * (Line::of(stretch).squares / of_steps).ln() <= more_parameters * n.ln() {
            found.push((from, to));
        }
    }
    found.sort_unstable();
    found
}

/// The straight line with the least squares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    slope: f64,
    /// What is left of the squares.
    squares: f64,
    /// Squares of the places around their mean.
    spread: f64,
    n: f64,
}

impl Line {
    pub fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let middle = (n - 1.0) / 2.0;
        let (mean, _) = mean_and_sd(values);
        let places = || (0..values.len()).map(|at| at as f64 - middle);
        let spread: f64 = places().map(|x| x * x).sum();
        let slope = places().zip(values).map(|(x, y)| x * (y - mean)).sum::<f64>() / spread;
        let squares = places().zip(values).map(|(x, y)| (y - mean - slope * x).powi(2)).sum();
        Self { slope, squares, spread, n }
    }

    /// From the first value to the last, with the 95 % interval of the slope.
    pub fn change(&self) -> Part {
        let length = self.n - 1.0;
        let error = (self.squares / (self.n - 2.0) / self.spread).sqrt();
        let reach = t_quantile(0.975, self.n - 2.0).unwrap_or(f64::NAN) * error;
        let reach = if reach.is_finite() { reach } else { 0.0 };
        Part {
            log_ratio: length * self.slope,
            low_log: length * (self.slope - reach),
            high_log: length * (self.slope + reach),
        }
    }
}

/// How many of the newest values lie apart from all before, too few as yet for a step: none in most series.
///
/// Each lies on one side of all before them, and their mean is farther from the others' than one in a thousand
/// draws of as many (Student).
pub(super) fn newest_apart(values: &[f64], delta_log: f64) -> Option<(usize, Part)> {
    let tail = |count: usize| {
        let (before, newest) = values.split_at(values.len().checked_sub(count)?);
        let n = before.len() as f64;
        if before.len() < 2 * FEWEST_ON_A_SIDE {
            return None;
        }
        let ((mean, sd), (newest_mean, _)) = (mean_and_sd(before), mean_and_sd(newest));
        let difference = newest_mean - mean;
        let beyond = |end: f64| newest.iter().all(|v| (v - end) * difference.signum() > 0.0);
        let error = sd * (1.0 / n + 1.0 / count as f64).sqrt();
        let [common, rare] =
            [0.975, 0.9995].map(|p| t_quantile(p, n - 1.0).unwrap_or(f64::INFINITY));
        let is_apart = before.iter().all(|v| beyond(*v))
            && difference.abs() >= delta_log
            && difference.abs() > rare * error;
        let reach = common * error;
        let part = Part {
            log_ratio: difference,
            low_log: difference - reach,
            high_log: difference + reach,
        };
        is_apart.then_some((count, part))
    };
    (1..=2 * FEWEST_ON_A_SIDE).rev().find_map(tail)
}
