//! The knee of a curve: from how many blocks on a set is too small.
//!
//! With W ways and N blocks that are drawn at random, N - W of N draws find their line evicted: the
//! excess over the control is c (N - W) / N. The whole curve is fitted, not the step at W + 1, which
//! is a fraction of a cycle.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a curve says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fit {
    /// Blocks that fit.
    pub knee: u32,
    /// Least number that explains the curve nearly as well.
    pub knee_low: u32,
    /// Largest number that does.
    pub knee_high: u32,
    /// Price of one line that was evicted, core cycles.
    pub miss_cycles: f64,
    /// Typical distance of a point from the curve, core cycles.
    pub residual_cycles: f64,
    /// How much worse the next best number of blocks fits, as a factor of the residual.
    pub next_best: f64,
}

/// A miss that costs less is none.
const LEAST_MISS_CYCLES: f64 = 3.0;

/// A number of blocks whose residual is at most this factor above the best one's is as good.
const AS_GOOD: f64 = 1.25;

/// Points as (blocks, excess in core cycles). `None` when there is no knee among them.
#[must_use]
pub fn fit(points: &[(u32, f64)]) -> Option<Fit> {
    let largest = points.iter().map(|p| p.0).max()?;
    let mut all: Vec<(u32, f64, f64)> = (1..largest).map(|ways| one(points, ways)).collect();
    all.sort_by(|a, b| a.2.total_cmp(&b.2));
    let (knee, miss_cycles, residual) = *all.first()?;
    // At the top the curve must stand clear of its own scatter.
    let top = miss_cycles * f64::from(largest - knee) / f64::from(largest);
    if miss_cycles < LEAST_MISS_CYCLES || top < 3.0 * residual {
        return None;
    }
    let near = residual * AS_GOOD + 0.05;
    let good = || all.iter().filter(|a| a.2 <= near).map(|a| a.0);
    Some(Fit {
        knee,
        knee_low: good().min()?,
        knee_high: good().max()?,
        miss_cycles,
        residual_cycles: residual,
        next_best: all.get(1).map_or(f64::INFINITY, |next| next.2 / residual.max(0.01)),
    })
}

/// Price and residual with a knee at `ways`, least squares. A constant part is fitted too: blocks in
/// one set and in several are not fetched alike even when all of them fit.
fn one(points: &[(u32, f64)], ways: u32) -> (u32, f64, f64) {
    let x = |n: u32| f64::from(n.saturating_sub(ways)) / f64::from(n);
    let n = points.len() as f64;
    let mean_x = points.iter().map(|p| x(p.0)).sum::<f64>() / n;
    let mean_y = points.iter().map(|p| p.1).sum::<f64>() / n;
    let (mut sxx, mut sxy) = (0.0, 0.0);
    for (blocks, excess) in points {
        sxx += (x(*blocks) - mean_x).powi(2);
        sxy += (x(*blocks) - mean_x) * (excess - mean_y);
    }
    let price = if sxx > 0.0 { sxy / sxx } else { 0.0 };
    let square =
        |(blocks, excess): &(u32, f64)| (excess - mean_y - price * (x(*blocks) - mean_x)).powi(2);
    let sum: f64 = points.iter().map(square).sum();
    (ways, price, (sum / (n - 2.0).max(1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::super::BLOCKS;
    use super::*;

    fn curve(ways: u32, price: f64, wobble: f64) -> Vec<(u32, f64)> {
        let excess = |n: u32| price * f64::from(n.saturating_sub(ways)) / f64::from(n);
        let wave = |n: u32| wobble * f64::from(n * 7 % 5) / 5.0;
        BLOCKS.iter().map(|&n| (n, excess(n) + wave(n) - 0.8)).collect()
    }

    #[test]
    fn every_knee_is_found() {
        for ways in [4, 6, 8, 12, 16] {
            let found = fit(&curve(ways, 24.0, 0.5)).unwrap();
            assert_eq!(found.knee, ways, "{found:?}");
            assert!((found.miss_cycles - 24.0).abs() < 2.0, "{found:?}");
            assert!(found.knee_low <= ways && ways <= found.knee_high);
        }
    }

    #[test]
    fn no_knee_is_no_fit() {
        assert_eq!(fit(&curve(8, 0.0, 0.5)), None);
        assert_eq!(fit(&curve(39, 24.0, 0.5)), None);
        assert_eq!(fit(&[]), None);
    }
}
