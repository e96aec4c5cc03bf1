//! One cache for all strides: which ways and which bytes a way explain every curve at once.
//!
//! With W ways of B bytes, N blocks a stride apart fall into B / stride sets, and of a set with n
//! of them n - W draws of n find their line evicted. So W and B say of every stride where its knee
//! is, and all of them share one price. What a stride has for itself is a constant, and points at
//! its beginning that are left alone because something smaller overflows there (see
//! [`super::fit`]), at the price of one parameter each. A curve that was disturbed has the others
//! against it.
//!
//! Every W and B is tried, and no cache at all. The answer is the best by its criterion (BIC), and
//! its distance to the second says whether it is one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fit::LEAST_MISS_CYCLES;
use super::{Layout, MOST_BLOCKS, STRIDES};
use crate::machine::CacheGeometry;
use crate::model::{Measurement, Unit};

/// What all strides say together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Joint {
    /// Lines per set.
    pub ways: u32,
    /// Bytes that one way holds: sets times line.
    pub way_bytes: u32,
    /// Price of one line that was evicted, core cycles, with the interval of the regression (99 %).
    pub miss_cycles: Measurement,
    /// Typical distance of a point from the model, core cycles.
    pub residual_cycles: f64,
    /// The second best: its ways, and bytes a way.
    pub rival: (u32, u32),
    /// How much worse its criterion (BIC) is.
    pub rival_worse_by: f64,
    /// How much worse that of no cache at all is.
    pub nothing_worse_by: f64,
}

impl Joint {
    /// What misses cost of the most blocks that are tried, in one set.
    pub(super) fn cycles_at_the_top(&self) -> f64 {
        let missed = f64::from(MOST_BLOCKS.saturating_sub(self.ways)) / f64::from(MOST_BLOCKS);
        self.miss_cycles.value * missed
    }
}

/// A rival whose criterion is at most so much worse is as good: "very strong" evidence begins there
/// (Kass and Raftery, 1995). In a disturbed run on Zen 5 a rival came as near as 10.4.
pub const DECISIVE: f64 = 10.0;

/// No point is believed to fit better than this, core cycles.
const LEAST_RESIDUAL_CYCLES: f64 = 0.25;

/// Most ways that are tried: beyond, 40 blocks show too little.
const MOST_WAYS: u32 = 32;

/// Sweeps over the strides in which the points to leave alone are chosen anew.
const SWEEPS: usize = 5;

/// The curve of one stride: blocks, and excess in core cycles.
pub struct Curve {
    pub layout: Layout,
    /// Ascending by blocks.
    pub points: Vec<(u32, f64)>,
}

/// A line shorter than the control's step changes nothing: 64 bytes stand for any. Strides tell ways
/// and the bytes of one; the line is inferred later.
const LINE_BYTES: u32 = crate::model::LINE_BYTES as u32;

fn cache(ways: u32, way_bytes: u32) -> CacheGeometry {
    CacheGeometry { sets: (way_bytes / LINE_BYTES).max(1), ways, line_bytes: LINE_BYTES }
}

/// One geometry with its best price.
#[derive(Clone, Copy)]
struct Model {
    geometry: Option<CacheGeometry>,
    miss_cycles: f64,
    /// Sum of squares of the regressor, for the error of the price.
    spread: f64,
    residual_cycles: f64,
    criterion: f64,
}

/// The best geometry; `None` when there are too few points, or when no cache at all is as good.
#[must_use]
pub fn joint(curves: &[Curve]) -> Option<Joint> {
    let smallest = STRIDES[0] / 2;
    let largest = STRIDES[STRIDES.len() - 1] * 2;
    let bytes = || std::iter::successors(Some(smallest), |b| Some(b * 2).filter(|b| *b <= largest));
    let all = (1..=MOST_WAYS).flat_map(|w| bytes().map(move |b| (w, b)));
    let mut models: Vec<Model> =
        all.filter_map(|(ways, way_bytes)| model(curves, Some(cache(ways, way_bytes)))).collect();
    models.sort_by(|a, b| a.criterion.total_cmp(&b.criterion));
    let (best, second) = (*models.first()?, *models.get(1)?);
    let (geometry, rival) = (best.geometry?, second.geometry?);
    let nothing = model(curves, None)?.criterion - best.criterion;
    if best.miss_cycles < LEAST_MISS_CYCLES || nothing <= DECISIVE {
        return None;
    }
    let error = 2.576 * best.residual_cycles / best.spread.sqrt();
    let miss_cycles = Measurement {
        value: best.miss_cycles,
        unit: Unit::Cycles,
        low: best.miss_cycles - error,
        high: best.miss_cycles + error,
        n: curves.iter().map(|c| c.points.len()).sum(),
        how: "one price for all strides; regression".to_owned(),
    };
    Some(Joint {
        ways: geometry.ways,
        way_bytes: geometry.period_bytes() as u32,
        miss_cycles,
        residual_cycles: best.residual_cycles,
        rival: (rival.ways, rival.period_bytes() as u32),
        rival_worse_by: second.criterion - best.criterion,
        nothing_worse_by: nothing,
    })
}

/// Of `blocks` draws so many more find their line evicted than in the control.
fn missed(geometry: CacheGeometry, layout: Layout, blocks: u32) -> f64 {
    let share = |layout: Layout| {
        let mut held = vec![0u32; geometry.sets as usize];
        for i in 0..blocks {
            held[(layout.position(i) / LINE_BYTES % geometry.sets) as usize] += 1;
        }
        let evicted: u32 = held.iter().map(|n| n.saturating_sub(geometry.ways)).sum();
        f64::from(evicted) / f64::from(blocks)
    };
    share(Layout { spread: false, ..layout }) - share(Layout { spread: true, ..layout })
}

/// What a curve adds to a regression through its own mean.
#[derive(Clone, Copy, Default)]
struct Sums {
    xx: f64,
    xy: f64,
    yy: f64,
}

impl Sums {
    fn of(points: &[(f64, f64)]) -> Self {
        let n = points.len().max(1) as f64;
        let mean_x = points.iter().map(|p| p.0).sum::<f64>() / n;
        let mean_y = points.iter().map(|p| p.1).sum::<f64>() / n;
        points.iter().fold(Self::default(), |sum, (x, y)| Self {
            xx: sum.xx + (x - mean_x).powi(2),
            xy: sum.xy + (x - mean_x) * (y - mean_y),
            yy: sum.yy + (y - mean_y).powi(2),
        })
    }

    fn plus(self, other: &Self) -> Self {
        Self { xx: self.xx + other.xx, xy: self.xy + other.xy, yy: self.yy + other.yy }
    }
}

/// Least squares with one price, a constant for each curve, and for each the best number of points
/// to leave alone, one curve at a time until none changes.
fn model(curves: &[Curve], geometry: Option<CacheGeometry>) -> Option<Model> {
    let sums_of = |curve: &Curve| {
        let x = |blocks| geometry.map_or(0.0, |g| missed(g, curve.layout, blocks));
        let points: Vec<(f64, f64)> = curve.points.iter().map(|&(n, y)| (x(n), y)).collect();
        (0..=points.len() / 2).map(|start| Sums::of(&points[start..])).collect::<Vec<_>>()
    };
    let table: Vec<Vec<Sums>> = curves.iter().map(sums_of).collect();
    let all = curves.iter().map(|c| c.points.len()).sum::<usize>();
    if all < 8 * curves.len().max(1) {
        return None;
    }
    let mut starts = vec![0; curves.len()];
    let mut best = criterion(&table, &starts, all, geometry);
    for _ in 0..SWEEPS {
        let before = best.criterion;
        for curve in 0..starts.len() {
            for start in 0..table[curve].len() {
                let old = std::mem::replace(&mut starts[curve], start);
                let tried = criterion(&table, &starts, all, geometry);
                if tried.criterion < best.criterion {
                    best = tried;
                } else {
                    starts[curve] = old;
                }
            }
        }
        if best.criterion >= before {
            break;
        }
    }
    Some(best)
}

fn criterion(
    table: &[Vec<Sums>],
    starts: &[usize],
    all: usize,
    geometry: Option<CacheGeometry>,
) -> Model {
    let held = table.iter().zip(starts).map(|(sums, start)| &sums[*start]);
    let sums = held.fold(Sums::default(), Sums::plus);
    let miss_cycles = if sums.xx > 1e-9 { (sums.xy / sums.xx).max(0.0) } else { 0.0 };
    let squares = sums.yy - 2.0 * miss_cycles * sums.xy + miss_cycles.powi(2) * sums.xx;
    // One price, and of every curve its constant and each point that was left alone.
    let left: usize = starts.iter().sum();
    let parameters = 1 + starts.len() + left;
    let n = all as f64;
    let variance = (squares / n).max(LEAST_RESIDUAL_CYCLES.powi(2));
    Model {
        geometry,
        miss_cycles,
        spread: sums.xx.max(1e-9),
        residual_cycles: (squares.max(0.0) / (n - parameters as f64).max(1.0)).sqrt(),
        criterion: n * variance.ln() + parameters as f64 * n.ln(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::BLOCKS;
    use super::*;

    fn layout(stride_bytes: u32) -> Layout {
        Layout { stride_bytes, odd_bytes: 0, spread: false }
    }

    fn curves(of: impl Fn(Layout, u32) -> f64) -> Vec<Curve> {
        let curve = |&stride: &u32| {
            let layout = layout(stride);
            Curve { layout, points: BLOCKS.iter().map(|&n| (n, of(layout, n))).collect() }
        };
        STRIDES.iter().map(curve).collect()
    }

    fn wave(layout: Layout, n: u32) -> f64 {
        0.5 * f64::from((n * 7 + layout.stride_bytes / 512) % 5) / 5.0
    }

    #[test]
    fn every_geometry_is_found() {
        for (ways, way_bytes) in
            [(4, 4096), (8, 4096), (12, 4096), (16, 2048), (4, 16384), (6, 8192)]
        {
            let truth = cache(ways, way_bytes);
            let found = joint(&curves(|l, n| 15.0 * missed(truth, l, n) + wave(l, n))).unwrap();
            assert_eq!((found.ways, found.way_bytes), (ways, way_bytes), "{found:?}");
            assert!(found.rival_worse_by > DECISIVE, "{found:?}");
            assert!((found.miss_cycles.value - 15.0).abs() < 1.0, "{found:?}");
        }
    }

    /// Measured on a Zen 5 guest (8 ways of 4 KiB) beside a compiler: at 8 KiB five to eight blocks
    /// were disturbed, and that stride alone says five ways.
    #[test]
    fn one_disturbed_stride_is_outvoted() {
        #[rustfmt::skip]
        let measured: [[f64; 18]; 6] = [
            [-0.7, -0.1, -0.2, 3.2, 5.2, 6.7, 7.5, 8.0, 8.4, 9.2, 9.2, 9.7, 9.6, 9.9, 10.1, 10.6, 11.6, 14.0],
            [-0.2, 5.2, 8.8, 9.4, 10.6, 10.4, 10.9, 10.5, 11.0, 11.4, 11.4, 11.3, 12.5, 14.1, 14.5, 16.9, 18.7, 20.1],
            [9.5, 11.4, 11.7, 11.2, 11.4, 11.5, 11.4, 13.1, 14.3, 14.9, 15.3, 17.3, 18.3, 19.0, 20.1, 20.5, 22.1, 22.7],
            [9.6, 11.7, 11.5, 11.9, 13.2, 13.3, 13.2, 13.9, 14.4, 15.0, 16.3, 17.2, 18.3, 19.3, 19.8, 20.6, 22.1, 22.3],
            [10.2, 11.4, 11.6, 11.0, 11.1, 11.7, 11.4, 13.0, 14.1, 15.1, 16.0, 17.1, 18.1, 19.3, 20.1, 20.5, 21.7, 22.5],
            [10.1, 11.8, 11.8, 11.5, 11.4, 11.4, 11.2, 13.1, 14.1, 15.5, 15.8, 17.1, 18.0, 19.5, 19.6, 20.8, 21.8, 22.9],
        ];
        let at = |list: &[u32], x| list.iter().position(|v| *v == x).unwrap();
        let found =
            joint(&curves(|l, n| measured[at(&STRIDES, l.stride_bytes)][at(&BLOCKS, n)])).unwrap();
        assert_eq!((found.ways, found.way_bytes), (8, 4096), "{found:?}");
        assert!(found.rival_worse_by > 30.0, "{found:?}");
    }

    #[test]
    fn no_cache_is_no_geometry() {
        assert_eq!(joint(&curves(wave)), None);
        assert_eq!(joint(&[]), None);
    }

    #[test]
    fn what_the_strides_cannot_tell_apart_is_no_decision() {
        // At the widest stride already two sets: as well 16 ways of half as much.
        let truth = cache(8, 65536);
        let found = joint(&curves(|l, n| 15.0 * missed(truth, l, n))).unwrap();
        assert!(found.rival_worse_by < DECISIVE, "{found:?}");
    }
}
