//! Wilcoxon's signed ranks: the test, Hodges–Lehmann's estimate and the interval that belongs to it.
//!
//! Up to 30 pairs the distribution is exact, by dynamic programming over all sign patterns; above,
//! normal with a continuity correction. Pairs without any difference keep their rank and lose their
//! sign (Pratt): dropping them would make a coarse timer look like evidence. Equal differences share
//! a rank, and the exact distribution is that of the shared ranks. The interval takes the quantiles
//! of the distribution without ties and includes its ends, which under ties can only make it wider.

use super::ranks::{midranks, tie_sizes};
use super::{ALPHA, Z, normal_cdf};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Pairs up to which the distribution is enumerated.
const EXACT_LIMIT: usize = 30;

/// The signed-rank test against zero.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SignedRank {
    /// Two-sided, against zero.
    pub p_value: f64,
    /// Whether the distribution was enumerated; otherwise it was taken as normal.
    pub exact: bool,
    /// Pairs without any difference.
    pub zeros: u32,
    /// Pairs that share the size of their difference with another pair.
    pub tied: u32,
}

/// Estimate and interval, in the units of the differences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The median of all pairwise means (Hodges–Lehmann).
    pub centre: f64,
    /// Lower end, included.
    pub low: f64,
    /// Upper end, included.
    pub high: f64,
    /// Its coverage if noise is symmetric: at least 0.95 from six pairs on, less below.
    pub confidence: f64,
}

/// Tests whether `differences` are symmetric about zero.
#[must_use]
pub fn test(differences: &[f64]) -> SignedRank {
    let sizes: Vec<f64> = differences.iter().map(|d| d.abs()).collect();
    let ranks = midranks(&sizes);
    // Doubled, so that shared ranks are whole numbers too.
    let signed: Vec<(u64, bool)> = differences
        .iter()
        .zip(&ranks)
        .filter(|(d, _)| **d != 0.0)
        .map(|(d, rank)| ((2.0 * rank) as u64, *d > 0.0))
        .collect();
    let positive: u64 = signed.iter().filter(|s| s.1).map(|s| s.0).sum();
    let all: Vec<u64> = signed.iter().map(|s| s.0).collect();
    let exact = differences.len() <= EXACT_LIMIT;
    let p_value = if exact { exact_p(&all, positive) } else { normal_p(&all, positive) };
    SignedRank {
        p_value,
        exact,
        zeros: (differences.len() - signed.len()) as u32,
        tied: tie_sizes(&sizes).iter().filter(|&&t| t > 1).sum::<usize>() as u32,
    }
}

/// The probability of every sum when each of `parts` is added or not by the toss of a coin.
fn sum_distribution(parts: &[u64]) -> Vec<f64> {
    let total: u64 = parts.iter().sum();
    let mut probability = vec![0.0; total as usize + 1];
    probability[0] = 1.0;
    let mut reach = 0_usize;
    for &part in parts {
        let part = part as usize;
        reach += part;
        for sum in (0..=reach).rev() {
            let with = if sum >= part { probability[sum - part] } else { 0.0 };
            probability[sum] = 0.5 * (probability[sum] + with);
        }
    }
    probability
}

fn exact_p(parts: &[u64], positive: u64) -> f64 {
    let probability = sum_distribution(parts);
    let at = positive as usize;
    let below: f64 = probability[..=at].iter().sum();
    let above: f64 = probability[at..].iter().sum();
    (2.0 * below.min(above)).min(1.0)
}

fn normal_p(parts: &[u64], positive: u64) -> f64 {
    let mean = parts.iter().sum::<u64>() as f64 / 2.0;
    let variance = parts.iter().map(|&p| (p as f64).powi(2)).sum::<f64>() / 4.0;
    if variance <= 0.0 {
        return 1.0;
    }
    // One step of the sum is two in doubled ranks, so half a step is one.
    let distance = ((positive as f64 - mean).abs() - 1.0).max(0.0);
    (2.0 * normal_cdf(-distance / variance.sqrt())).min(1.0)
}

/// How many of the ordered pairwise means lie outside the 95 % interval on each side, and the
/// confidence that is reached. With fewer than six pairs no 95 % interval exists: all means are inside.
#[must_use]
pub fn outside(n: usize) -> (usize, f64) {
    if n <= EXACT_LIMIT {
        let ranks: Vec<u64> = (1..=n as u64).collect();
        let mut cumulated = 0.0;
        let mut best = None;
        for (sum, p) in sum_distribution(&ranks).into_iter().enumerate() {
            cumulated += p;
            if cumulated > ALPHA / 2.0 {
                break;
            }
            best = Some((sum, 1.0 - 2.0 * cumulated));
        }
        return best.unwrap_or((0, 1.0 - 2.0 * 0.5_f64.powi(n as i32)));
    }
    let n = n as f64;
    let mean = n * (n + 1.0) / 4.0;
    let sd = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
    let cut = (mean - Z * sd - 0.5).floor();
    (cut as usize, 1.0 - 2.0 * normal_cdf((cut + 0.5 - mean) / sd))
}

/// Hodges–Lehmann's estimate of the centre with its 95 % interval; `None` without values.
#[must_use]
pub fn interval(differences: &[f64]) -> Option<Interval> {
    let mut means = Vec::with_capacity(differences.len() * (differences.len() + 1) / 2);
    for (i, a) in differences.iter().enumerate() {
        means.extend(differences[i..].iter().map(|b| 0.5 * (a + b)));
    }
    let (cut, confidence) = outside(differences.len());
    Interval::of_all(&mut means, cut, confidence)
}

impl Interval {
    /// The median of values with what is left between the ends when so many are cut off at each; `None` without values.
    pub(super) fn of_all(values: &mut [f64], cut: usize, confidence: f64) -> Option<Self> {
        let last = values.len().checked_sub(1)?;
        let mut nth = |k: usize| *values.select_nth_unstable_by(k, f64::total_cmp).1;
        let (low, high) = (nth(cut.min(last)), nth(last - cut.min(last)));
        let centre = 0.5 * (nth(last / 2) + nth(last.div_ceil(2)));
        Some(Self { centre, low, high, confidence })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: [f64; 8] = [0.012, -0.003, 0.018, 0.007, 0.022, -0.001, 0.009, 0.014];

    #[test]
    fn the_exact_p_value_is_scipys() {
        // scipy.stats.wilcoxon(d, method="exact").pvalue, SciPy 1.17
        let t = test(&D);
        assert!(t.exact && t.zeros == 0 && t.tied == 0);
        assert!((t.p_value - EXACT_8).abs() < 1e-12, "{}", t.p_value);
    }

    #[test]
    fn ties_and_zeros_are_enumerated_as_pratt_ranks_them() {
        // d = [2, 0, -1, 3, 3, 0, 1, 2, 5, -2]; every sign pattern over the non-zero Pratt midranks:
        // r = scipy.stats.rankdata(numpy.abs(d)); itertools.product((0, 1), repeat=8)
        let t = test(&[2.0, 0.0, -1.0, 3.0, 3.0, 0.0, 1.0, 2.0, 5.0, -2.0]);
        assert_eq!((t.zeros, t.tied), (2, 9));
        assert!((t.p_value - PRATT_10).abs() < 1e-12, "{}", t.p_value);
    }

    #[test]
    fn above_thirty_pairs_the_normal_p_value_is_scipys() {
        // d = [((i * 37) % 41 - 15) / 1000 + i * 1e-6 for i in range(40)]
        // scipy.stats.wilcoxon(d, method="asymptotic", correction=True).pvalue
        let d: Vec<f64> =
            (0..40).map(|i| f64::from((i * 37) % 41 - 15) / 1000.0 + f64::from(i) * 1e-6).collect();
        let t = test(&d);
        assert!(!t.exact);
        assert!((t.p_value - NORMAL_40).abs() < 1e-9, "{}", t.p_value);
    }

    #[test]
    fn thirty_pairs_are_enumerated_and_thirty_one_are_not() {
        // d = [(i * 7) % 11 - 3 for i in range(31)]; Pratt's midranks, the normal formula in Python with math.erfc.
        let d: Vec<f64> = (0..31).map(|i| f64::from((i * 7) % 11 - 3)).collect();
        let t = test(&d);
        assert!(!t.exact && (t.p_value - 0.006_100_053_4).abs() < 1e-9, "{t:?}");
        assert_eq!((t.zeros, t.tied), (3, 31));
        assert!(test(&d[..30]).exact);
        // Turned around, the same.
        let turned: Vec<f64> = d.iter().map(|d| -d).collect();
        assert_eq!(test(&turned), t);
    }

    const EXACT_8: f64 = 0.0390625;
    const PRATT_10: f64 = 0.1171875;
    const NORMAL_40: f64 = 0.008594568957861494;

    #[test]
    fn the_critical_values_are_those_of_the_tables() {
        // Two-sided 5 % critical values of the signed-rank statistic, as printed in every textbook.
        let table = [
            (6, 0),
            (7, 2),
            (8, 3),
            (9, 5),
            (10, 8),
            (12, 13),
            (15, 25),
            (20, 52),
            (25, 89),
            (30, 137),
        ];
        for (n, critical) in table {
            let (cut, confidence) = outside(n);
            assert_eq!(cut, critical, "n = {n}");
            assert!((0.95..1.0).contains(&confidence), "n = {n}: {confidence}");
        }
        assert_eq!(outside(5), (0, 0.9375));
        // Above thirty by the normal approximation, half a step inside.
        for (n, cut, confidence) in [(31, 147, 0.951_098_880), (40, 263, 0.951_064_138)] {
            let found = outside(n);
            assert!(found.0 == cut && (found.1 - confidence).abs() < 1e-8, "{n}: {found:?}");
        }
        assert_eq!(outside(6), (0, 0.96875));
        assert!(outside(1000).1 >= 0.95);
    }

    #[test]
    fn the_estimate_and_its_interval_are_those_of_the_ordered_means() {
        // w = sorted((a + b) / 2 for i, a in enumerate(d) for b in d[i:]); median(w), w[3], w[-4]
        let i = interval(&D).unwrap();
        for (got, want) in [(i.centre, CENTRE), (i.low, LOW), (i.high, HIGH)] {
            assert!((got - want).abs() < 1e-12, "{got} {want}");
        }
        assert_eq!(interval(&[]), None);
        assert_eq!(interval(&[0.5]).unwrap().centre, 0.5);
    }

    const CENTRE: f64 = 0.01;
    const LOW: f64 = 0.002;
    const HIGH: f64 = 0.018;

    #[test]
    fn interval_and_test_agree_without_ties() {
        for shift in -30..30 {
            let d: Vec<f64> = D.iter().map(|d| d + f64::from(shift) * 0.00101).collect();
            let i = interval(&d).unwrap();
            let excludes = i.low > 0.0 || i.high < 0.0;
            assert_eq!(excludes, test(&d).p_value <= ALPHA, "shift {shift}");
        }
    }

    #[test]
    fn only_zeros_prove_nothing() {
        assert_eq!(test(&[0.0; 20]).p_value, 1.0);
        assert_eq!(test(&[0.0; 40]).p_value, 1.0);
        assert_eq!(test(&[]).p_value, 1.0);
        let i = interval(&[0.0; 20]).unwrap();
        assert_eq!((i.low, i.high), (0.0, 0.0));
    }
}
