//! The knee of one curve, as it is shown beside it: from how many blocks on a set is too small.
//! What the probe concludes comes from all curves together ([`super::geometry`]).
//!
//! With W ways and N blocks that are drawn at random, N - W of N draws find their line evicted: the
//! excess over the control is c (N - W) / N. The whole curve is fitted, not the step at W + 1,
//! which is a fraction of a cycle.
//!
//! What holds decoded instructions overflows too, and earlier: its excess rises over the first few
//! blocks and stays as it is once nothing is found there any more. So a curve may begin with points
//! that the model leaves alone, at the price of one parameter each; the criterion (BIC) weighs the
//! better fit against that price. At least three points below the knee must be left to show that it
//! is one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Knee and cost of misses of one curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fit {
    /// Blocks that fit.
    pub knee: u32,
    /// Least number that explains the curve nearly as well.
    pub knee_low: u32,
    /// Largest number that explains the curve nearly as well.
    pub knee_high: u32,
    /// Price of one line that was evicted, core cycles.
    pub miss_cycles: f64,
    /// Typical distance of a point from the curve, core cycles.
    pub residual_cycles: f64,
    /// How much worse the next best number of blocks fits, as a factor of the residual.
    pub next_best: f64,
    /// Where the curve begins: below so many blocks something smaller than the cache overflows.
    #[serde(default)]
    pub from_blocks: u32,
}

/// A miss that costs less is none.
pub(super) const LEAST_MISS_CYCLES: f64 = 3.0;

/// A number of blocks whose criterion is at most this far above the best one's is as good: strong
/// evidence begins there (Kass and Raftery, 1995).
const AS_GOOD: f64 = 6.0;

/// No curve is believed to fit better than this, core cycles: medians of samples are no better.
const LEAST_RESIDUAL_CYCLES: f64 = 0.15;

/// Points on either side of a knee. On the lower side they are asked for only where points before
/// them were left alone.
const LEAST_ASIDE: usize = 3;

/// One model: a knee, and from which point on.
#[derive(Clone, Copy)]
struct Model {
    ways: u32,
    from_blocks: u32,
    miss_cycles: f64,
    residual_cycles: f64,
    criterion: f64,
}

/// Points as (blocks, excess in core cycles), ascending. `None` when there is no knee among them.
#[must_use]
pub fn fit(points: &[(u32, f64)]) -> Option<Fit> {
    let largest = points.last()?.0;
    let mut all: Vec<Model> = (0..=points.len() / 2)
        .flat_map(|start| (1..largest).filter_map(move |ways| model(points, start, ways)))
        .collect();
    all.sort_by(|a, b| a.criterion.total_cmp(&b.criterion));
    let best = *all.first()?;
    // At the top the curve must stand clear of its own scatter.
    let top = best.miss_cycles * f64::from(largest - best.ways) / f64::from(largest);
    if best.miss_cycles < LEAST_MISS_CYCLES || top < 3.0 * best.residual_cycles {
        return None;
    }
    let good = || all.iter().filter(|m| m.criterion <= best.criterion + AS_GOOD).map(|m| m.ways);
    let other = all.iter().find(|m| m.ways != best.ways);
    Some(Fit {
        knee: best.ways,
        knee_low: good().min()?,
        knee_high: good().max()?,
        miss_cycles: best.miss_cycles,
        residual_cycles: best.residual_cycles,
        next_best: other
            .map_or(f64::INFINITY, |m| m.residual_cycles / best.residual_cycles.max(0.01)),
        from_blocks: best.from_blocks,
    })
}

/// Price and criterion with a knee at `ways`, least squares from the point `start` on. A constant
/// part is fitted too: blocks in one set and in several are not fetched alike even when all of them
/// fit.
fn model(points: &[(u32, f64)], start: usize, ways: u32) -> Option<Model> {
    let held = points.get(start..)?;
    let below = held.iter().filter(|p| p.0 <= ways).count();
    if held.len() - below < LEAST_ASIDE || (start > 0 && below < LEAST_ASIDE) {
        return None;
    }
    let x = |n: u32| f64::from(n.saturating_sub(ways)) / f64::from(n);
    let n = held.len() as f64;
    let mean_x = held.iter().map(|p| x(p.0)).sum::<f64>() / n;
    let mean_y = held.iter().map(|p| p.1).sum::<f64>() / n;
    let (mut sxx, mut sxy) = (0.0, 0.0);
    for (blocks, excess) in held {
        sxx += (x(*blocks) - mean_x).powi(2);
        sxy += (x(*blocks) - mean_x) * (excess - mean_y);
    }
    let miss_cycles = if sxx > 0.0 { sxy / sxx } else { 0.0 };
    let square = |(blocks, excess): &(u32, f64)| {
        (excess - mean_y - miss_cycles * (x(*blocks) - mean_x)).powi(2)
    };
    let sum: f64 = held.iter().map(square).sum();
    // Knee, price, constant and every point that was left alone.
    let (all, parameters) = (points.len() as f64, (3 + start) as f64);
    let variance = (sum / all).max(LEAST_RESIDUAL_CYCLES.powi(2));
    Some(Model {
        ways,
        from_blocks: held.first()?.0,
        miss_cycles,
        residual_cycles: (sum / (n - 3.0).max(1.0)).sqrt(),
        criterion: all * variance.ln() + parameters * all.ln(),
    })
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
    fn what_overflows_before_the_cache_is_left_alone() {
        // A Zen 5 guest, 4 KiB apart: 16 ways of decoded instructions hold one such block.
        let excess = [
            11.5, 11.6, 12.0, 11.9, 12.0, 13.4, 14.7, 15.7, 16.6, 17.8, 19.0, 20.1, 20.5, 21.9,
            23.1, 23.8,
        ];
        let blocks = BLOCKS.into_iter().filter(|n| ![2, 5].contains(n));
        let found = fit(&blocks.zip(excess).collect::<Vec<_>>()).unwrap();
        assert_eq!((found.knee_low, found.knee, found.knee_high), (8, 8, 8), "{found:?}");
        // One set, two and four: nothing is left with two blocks in each.
        for (ways, sets) in [(4, 1), (8, 1), (8, 2), (12, 2), (16, 2), (16, 4)] {
            let small = |n: u32| 12.0 * (f64::from(n) / f64::from(sets) - 1.0).clamp(0.0, 1.0);
            let points: Vec<(u32, f64)> =
                curve(ways, 15.0, 0.3).iter().map(|&(n, y)| (n, y + small(n))).collect();
            let found = fit(&points).unwrap();
            assert!(found.knee_low <= ways && ways <= found.knee_high, "{ways}: {found:?}");
        }
    }

    #[test]
    fn no_knee_is_no_fit() {
        assert_eq!(fit(&curve(8, 0.0, 0.5)), None);
        assert_eq!(fit(&curve(39, 24.0, 0.5)), None);
        assert_eq!(fit(&[]), None);
    }
}
