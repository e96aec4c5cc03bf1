//! Two independent samples by ranks: the test that benchstat uses, with the same limits, and
//! Hodges–Lehmann's shift with the interval that belongs to it.
//!
//! The p-value is exact up to 50 values on each side without ties and up to 25 with ties, by
//! counting all ways to deal the ranks; above, normal with corrections for ties and continuity.

use super::ranks::{midranks, tie_sizes};
use super::robust::{median, quantile, sorted};
use super::signed_rank::Interval;
use super::{Z, normal_cdf};

/// Values on each side up to which ranks without ties are counted out.
const EXACT: usize = 50;
/// The same with ties.
const EXACT_TIES: usize = 25;
/// Differences of pairs that are looked at one by one; above, the interval comes from quantiles.
const MOST_DIFFERENCES: usize = 1_000_000;

/// The two-sided p-value that both samples come from one distribution; `None` when a side is empty
/// or all values are equal, for then there is nothing to rank.
#[must_use]
pub fn p_value(x: &[f64], y: &[f64]) -> Option<f64> {
    if x.is_empty() || y.is_empty() {
        return None;
    }
    let all: Vec<f64> = x.iter().chain(y).copied().collect();
    let groups = tie_sizes(&all);
    if groups.len() == 1 {
        return None;
    }
    let limit = if groups.len() < all.len() { EXACT_TIES } else { EXACT };
    let ranks = midranks(&all);
    let sum: f64 = ranks[..x.len()].iter().sum();
    if x.len() <= limit && y.len() <= limit {
        return Some(exact(&groups, x.len(), sum));
    }
    Some(normal(&groups, x.len(), sum))
}

/// The p-value by the normal approximation, with corrections for ties and continuity, when `nx` of
/// the ranks add up to `sum`.
fn normal(groups: &[usize], nx: usize, sum: f64) -> f64 {
    let n = groups.iter().sum::<usize>() as f64;
    let (nx, ny) = (nx as f64, n - nx as f64);
    let u = sum - nx * (nx + 1.0) / 2.0;
    let ties: f64 = groups.iter().map(|&t| (t as f64).powi(3) - t as f64).sum();
    let variance = nx * ny / 12.0 * (n + 1.0 - ties / (n * (n - 1.0)));
    let distance = ((u - nx * ny / 2.0).abs() - 0.5).max(0.0);
    (2.0 * normal_cdf(-distance / variance.sqrt())).min(1.0)
}

/// Counts the ways to deal `n` of the ranks, group of equals by group of equals; twice the share of
/// those whose sum is as small as the smaller side's.
fn exact(groups: &[usize], n: usize, sum: f64) -> f64 {
    let total: usize = groups.iter().sum();
    // Doubled, so that shared ranks are whole numbers.
    let all_doubled = total * (total + 1);
    let mine = (2.0 * sum).round() as usize;
    let middle = n * (total + 1);
    if mine == middle {
        return 1.0;
    }
    let low = mine.min(2 * middle - mine);
    // ways[k][s]: k ranks dealt with doubled sum s. Sums above `low` are never asked for.
    let width = low.min(all_doubled) + 1;
    let mut ways = vec![vec![0.0_f64; width]; n + 1];
    ways[0][0] = 1.0;
    let (mut before, mut dealt) = (0, 0);
    for &size in groups {
        let rank_doubled = 2 * before + size + 1;
        before += size;
        for k in (0..=dealt.min(n)).rev() {
            let (done, open) = ways.split_at_mut(k + 1);
            let mut choose = 1.0;
            for take in 1..=size.min(n - k) {
                choose *= (size + 1 - take) as f64 / take as f64;
                let shift = take * rank_doubled;
                for s in 0..width.saturating_sub(shift) {
                    open[take - 1][s + shift] += choose * done[k][s];
                }
            }
        }
        dealt += size;
    }
    let mut combinations = 1.0;
    for i in 0..n {
        combinations *= (total - i) as f64 / (i + 1) as f64;
    }
    let below: f64 = ways[n].iter().sum();
    (2.0 * below / combinations).min(1.0)
}

/// Hodges–Lehmann's shift from `x` to `y` (the median of all differences) with its 95 % interval.
/// For huge samples the difference of the medians with a normal interval. `None` without values.
#[must_use]
pub fn shift(x: &[f64], y: &[f64]) -> Option<Interval> {
    if x.is_empty() || y.is_empty() {
        return None;
    }
    if x.len().saturating_mul(y.len()) > MOST_DIFFERENCES {
        return shift_of_medians(x, y);
    }
    let mut differences: Vec<f64> = x.iter().flat_map(|x| y.iter().map(move |y| y - x)).collect();
    let (nx, ny) = (x.len() as f64, y.len() as f64);
    let sd = (nx * ny * (nx + ny + 1.0) / 12.0).sqrt();
    let cut = (nx * ny / 2.0 - Z * sd - 0.5).floor();
    // Too few values for 95 %: the interval is all there is, and says so by its confidence.
    let (cut, confidence) = if cut < 0.0 {
        (0, 1.0 - 2.0 * normal_cdf((0.5 - nx * ny / 2.0) / sd))
    } else {
        (cut as usize, 1.0 - 2.0 * normal_cdf((cut + 0.5 - nx * ny / 2.0) / sd))
    };
    Interval::of_all(&mut differences, cut, confidence)
}

fn shift_of_medians(x: &[f64], y: &[f64]) -> Option<Interval> {
    let (centre, reach) =
        (median(y)? - median(x)?, Z * error_of_median(x).hypot(error_of_median(y)));
    Some(Interval { centre, low: centre - reach, high: centre + reach, confidence: 0.95 })
}

/// The standard error of the median, from the order statistics that bound its 95 % interval.
fn error_of_median(values: &[f64]) -> f64 {
    let ascending = sorted(values);
    let reach = Z / (2.0 * (values.len() as f64).sqrt());
    (quantile(&ascending, 0.5 + reach) - quantile(&ascending, 0.5 - reach)) / (2.0 * Z)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every way to choose n of the ranks, one by one.
    fn naive(x: &[f64], y: &[f64]) -> f64 {
        let all: Vec<f64> = x.iter().chain(y).copied().collect();
        let ranks = midranks(&all);
        let mine: f64 = ranks[..x.len()].iter().sum();
        let middle = x.len() as f64 * (all.len() as f64 + 1.0) / 2.0;
        if mine == middle {
            return 1.0;
        }
        let low = mine.min(2.0 * middle - mine);
        let (mut hits, mut ways) = (0.0, 0.0);
        for mask in 0_u32..1 << all.len() {
            if mask.count_ones() as usize == x.len() {
                let sum: f64 =
                    (0..all.len()).filter(|i| mask >> i & 1 == 1).map(|i| ranks[i]).sum();
                ways += 1.0;
                hits += f64::from(u8::from(sum <= low + 1e-9));
            }
        }
        f64::min(2.0 * hits / ways, 1.0)
    }

    proptest! {
        #[test]
        fn the_exact_p_value_is_that_of_counting(
            x in proptest::collection::vec(0_u8..12, 1..7),
            y in proptest::collection::vec(0_u8..12, 1..7),
        ) {
            let [x, y] = [x, y].map(|v| v.into_iter().map(f64::from).collect::<Vec<f64>>());
            match p_value(&x, &y) {
                Some(p) => prop_assert!((p - naive(&x, &y)).abs() < 1e-9, "{p} {}", naive(&x, &y)),
                None => prop_assert!(x.iter().chain(&y).all(|v| *v == x[0])),
            }
        }

        #[test]
        fn the_shift_lies_in_its_interval(
            x in proptest::collection::vec(-1e3..1e3_f64, 1..40),
            y in proptest::collection::vec(-1e3..1e3_f64, 1..40),
        ) {
            let i = shift(&x, &y).unwrap();
            prop_assert!(i.low <= i.centre && i.centre <= i.high);
        }
    }

    #[test]
    fn the_approximation_agrees_with_scipy() {
        // SciPy 1.17: scipy.stats.mannwhitneyu(x, y, method="asymptotic")
        let x = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0];
        let y = [2.0, 7.0, 1.0, 8.0, 2.0, 8.0, 1.0, 8.0];
        let all = [x, y].concat();
        let p = normal(&tie_sizes(&all), x.len(), midranks(&all)[..x.len()].iter().sum());
        assert!((p - 0.790_163_718_624_089_6).abs() < 1e-9, "{p}");
        assert_eq!(p_value(&[1.0, 1.0], &[1.0, 1.0]), None);
        assert_eq!(p_value(&[], &[]), None);
    }

    #[test]
    fn the_approximation_corrects_for_ties_on_sides_of_two_sizes() {
        // U = 7.5 of 80; the formula written out in Python with math.erfc.
        let x = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0, 5.0, 3.0];
        let y = [12.0, 7.0, 11.0, 8.0, 12.0, 8.0, 4.0, 18.0];
        let all = [x.as_slice(), &y].concat();
        let p = normal(&tie_sizes(&all), x.len(), midranks(&all)[..x.len()].iter().sum());
        assert!((p - 0.004_342_891_946).abs() < 1e-9, "{p}");
        let i = shift(&x, &y).unwrap();
        assert_eq!((i.low, i.centre, i.high), (3.0, 6.0, 9.0));
        assert!((i.confidence - 0.954_410_844).abs() < 1e-8, "{i:?}");
    }

    #[test]
    fn too_few_values_have_the_whole_as_interval() {
        let i = shift(&[1.0, 2.0, 4.0], &[3.0, 7.0, 8.0]).unwrap();
        assert_eq!((i.low, i.centre, i.high), (-1.0, 4.0, 7.0));
        assert!((i.confidence - 0.919_144_402).abs() < 1e-8, "{i:?}");
        assert_eq!((shift(&[], &[1.0]), shift(&[1.0], &[])), (None, None));
        assert_eq!((p_value(&[], &[1.0, 2.0]), p_value(&[1.0, 2.0], &[])), (None, None));
    }

    /// Values of two sides, the second nearly all above the first.
    fn two_sides(nx: usize, ny: usize) -> [Vec<f64>; 2] {
        [(nx, 0.0), (ny, 40.5)].map(|(n, more)| (0..n).map(|i| i as f64 + more).collect())
    }

    #[test]
    fn ranks_are_counted_out_up_to_fifty_values_a_side_and_with_ties_to_twenty_five() {
        let is_exact = |[x, y]: [Vec<f64>; 2]| {
            let all = [&x[..], &y].concat();
            let sum = midranks(&all)[..x.len()].iter().sum();
            let p = p_value(&x, &y).unwrap();
            p != normal(&tie_sizes(&all), x.len(), sum)
        };
        let tied = |nx, ny| {
            let [x, mut y] = two_sides(nx, ny);
            y[0] = x[9];
            [x, y]
        };
        assert!(is_exact(two_sides(50, 50)) && is_exact(tied(25, 25)));
        assert!(!is_exact(two_sides(51, 50)) && !is_exact(two_sides(50, 51)));
        assert!(!is_exact(tied(26, 25)) && !is_exact(tied(25, 26)));
    }

    #[test]
    fn many_values_are_quick_and_right() {
        let x: Vec<f64> = (0..5000).map(|i| f64::from(i * 7919 % 5000)).collect();
        let y: Vec<f64> = x.iter().map(|v| v + 100.0).collect();
        let i = shift(&x, &y).unwrap();
        assert!((i.centre - 100.0).abs() < 1.0 && i.low < 100.0 && i.high > 100.0, "{i:?}");
        assert!(p_value(&x, &y).unwrap() < 0.01);
        // A million differences are looked at, more are not.
        let looked_at = |n: usize| shift(&x[..n], &y[..1000]).unwrap().confidence != 0.95;
        assert!(looked_at(1000) && !looked_at(1001));
        // Z times the root of two squared errors of a median, each 4999 / (2 √5000).
        assert!((i.high - i.centre - 97.978_599_6).abs() < 1e-6, "{i:?}");
        assert!((i.centre - i.low - 97.978_599_6).abs() < 1e-6, "{i:?}");
        assert_eq!((i.centre, i.confidence), (100.0, 0.95));
    }
}
