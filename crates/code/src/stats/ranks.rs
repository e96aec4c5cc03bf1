//! Ranks with ties, and Spearman's correlation.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Ranks from 1; equal values share the mean of their ranks.
#[must_use]
pub fn midranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0.0;
    for run in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let shared = before + (run.len() as f64 + 1.0) / 2.0;
        run.iter().for_each(|&i| ranks[i] = shared);
        before += run.len() as f64;
    }
    ranks
}

/// Sizes of the groups of equal values, groups of one included.
#[must_use]
pub fn tie_sizes(values: &[f64]) -> Vec<usize> {
    let ascending = super::robust::sorted(values);
    ascending.chunk_by(|a, b| a == b).map(<[f64]>::len).collect()
}

/// Spearman's rank correlation; zero when either side does not vary or the lengths differ.
#[must_use]
pub fn spearman(x: &[f64], y: &[f64]) -> f64 {
    if x.len() != y.len() || x.len() < 3 {
        return 0.0;
    }
    let (rx, ry) = (midranks(x), midranks(y));
    let mean = (x.len() as f64 + 1.0) / 2.0;
    let dot = |a: &[f64], b: &[f64]| -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum()
    };
    let scale = (dot(&rx, &rx) * dot(&ry, &ry)).sqrt();
    if scale > 0.0 { dot(&rx, &ry) / scale } else { 0.0 }
}

/// Two-sided p-value of a correlation over `n` points (t approximation); 1 where there is no test.
#[must_use]
pub fn correlation_p(r: f64, n: usize) -> f64 {
    let freedom = n as f64 - 2.0;
    let Ok(t) = StudentsT::new(0.0, 1.0, freedom) else {
        return 1.0;
    };
    if r.abs() >= 1.0 {
        return 0.0;
    }
    let statistic = r * (freedom / (1.0 - r * r)).sqrt();
    (2.0 * t.cdf(-statistic.abs())).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share_their_rank() {
        assert_eq!(midranks(&[10.0, 20.0, 10.0, 30.0]), [1.5, 3.0, 1.5, 4.0]);
        assert_eq!(tie_sizes(&[10.0, 20.0, 10.0, 30.0]), [2, 1, 1]);
        assert!(midranks(&[]).is_empty());
    }

    #[test]
    fn agrees_with_scipy() {
        // SciPy 1.17: x = [3, 1, 4, 1, 5, 9, 2, 6]; y = [2, 7, 1, 8, 2, 8, 1, 8]
        // scipy.stats.spearmanr(x, y)
        let x = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0];
        let y = [2.0, 7.0, 1.0, 8.0, 2.0, 8.0, 1.0, 8.0];
        let r = spearman(&x, &y);
        assert!((r - SPEARMAN.0).abs() < 1e-9, "{r}");
        assert!((correlation_p(r, 8) - SPEARMAN.1).abs() < 1e-9);
    }

    const SPEARMAN: (f64, f64) = (0.19885368120992467, 0.6368617833253286);

    #[test]
    fn three_points_and_more_correlate_and_sides_of_two_lengths_do_not() {
        assert!((spearman(&[1.0, 2.0, 3.0], &[1.0, 5.0, 7.0]) - 1.0).abs() < 1e-12);
        assert!((spearman(&[1.0, 2.0, 3.0], &[9.0, 5.0, 1.0]) + 1.0).abs() < 1e-12);
        assert_eq!(spearman(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
        assert_eq!(spearman(&[1.0, 2.0, 3.0, 4.0], &[1.0, 2.0, 3.0]), 0.0);
        // Four degrees of freedom: P(|T| > t) = 1 - x (3 - x²) / 2 with x = t / √(4 + t²), which is r.
        assert!((correlation_p(0.5, 6) - 0.3125).abs() < 1e-9);
        assert!((correlation_p(-0.5, 6) - 0.3125).abs() < 1e-9);
        assert_eq!(correlation_p(0.0, 6), 1.0);
    }

    #[test]
    fn what_does_not_vary_correlates_with_nothing() {
        assert_eq!(spearman(&[1.0, 1.0, 1.0], &[1.0, 2.0, 3.0]), 0.0);
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[1.0, 1.0, 1.0]), 0.0);
        assert_eq!(correlation_p(0.5, 2), 1.0);
        assert_eq!(correlation_p(-1.0, 5), 0.0);
        assert_eq!(correlation_p(1.0, 5), 0.0);
    }
}
