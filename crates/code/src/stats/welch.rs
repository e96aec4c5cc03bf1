//! Two independent groups of means: Welch's t with Satterthwaite's degrees of freedom.
//!
//! The groups are layouts of two programs, so their spreads differ and nothing pairs them. With
//! equal spreads Welch loses next to nothing against the pooled test; with unequal ones the pooled
//! test is wrong.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::ALPHA;
use super::student::{mean_and_sd, t_quantile};

/// Second group minus first, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Welch {
    /// Mean of the second group minus mean of the first.
    pub difference: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
    /// Standard error of the difference.
    pub standard_error: f64,
    /// Satterthwaite's degrees of freedom.
    pub freedom: f64,
    /// Two-sided, against no difference.
    pub p_value: f64,
}

/// Compares two groups; `None` when one has fewer than two values or neither has any spread, for
/// then there is no error to hold the difference against.
#[must_use]
pub fn welch(first: &[f64], second: &[f64]) -> Option<Welch> {
    if first.len() < 2 || second.len() < 2 {
        return None;
    }
    let ((mean_1, sd_1), (mean_2, sd_2)) = (mean_and_sd(first), mean_and_sd(second));
    let (n_1, n_2) = (first.len() as f64, second.len() as f64);
    let (part_1, part_2) = (sd_1 * sd_1 / n_1, sd_2 * sd_2 / n_2);
    from_parts(mean_2 - mean_1, [(part_1, n_1 - 1.0), (part_2, n_2 - 1.0)])
}

/// A difference whose variance is a sum of estimated parts, each with its degrees of freedom.
#[must_use]
pub fn from_parts(difference: f64, parts: [(f64, f64); 2]) -> Option<Welch> {
    let variance: f64 = parts.iter().map(|p| p.0).sum();
    if variance.is_nan() || variance <= 0.0 {
        return None;
    }
    let weights: f64 = parts.iter().filter(|p| p.0 > 0.0).map(|(v, f)| v * v / f).sum();
    let freedom = variance * variance / weights;
    let standard_error = variance.sqrt();
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
    let reach = t_quantile(1.0 - ALPHA / 2.0, freedom)? * standard_error;
    Some(Welch {
        difference,
        low: difference - reach,
        high: difference + reach,
        standard_error,
        freedom,
        p_value: (2.0 * t.cdf(-(difference / standard_error).abs())).min(1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_worked_example() {
        // a = [3.0, 4.0, 5.0, 6.0], b = [5.0, 9.0, 7.0, 11.0, 8.0]: by hand, var a = 5/3, var b = 5,
        // se = sqrt(5/12 + 1) = 1.190238, df = (17/12)^2 / ((5/12)^2/3 + 1/4) = 6.518797
        let w = welch(&[3.0, 4.0, 5.0, 6.0], &[5.0, 9.0, 7.0, 11.0, 8.0]).unwrap();
        assert!((w.difference - 3.5).abs() < 1e-12);
        assert!((w.standard_error - 1.190_238).abs() < 1e-6, "{w:?}");
        assert!((w.freedom - 6.518_797).abs() < 1e-5, "{w:?}");
        // Student's t with 6.518797 degrees of freedom, integrated: P(|T| > 2.940588), and its 97.5 % point 2.400473.
        assert!((w.p_value - 0.023_539_173).abs() < 1e-7, "{w:?}");
        assert!((w.low - 0.642_865_2).abs() < 1e-6, "{w:?}");
        assert!((w.high - 6.357_134_8).abs() < 1e-6, "{w:?}");
        // Turned around, everything but the sign stays.
        let turned = welch(&[5.0, 9.0, 7.0, 11.0, 8.0], &[3.0, 4.0, 5.0, 6.0]).unwrap();
        assert_eq!((turned.difference, turned.low, turned.high), (-w.difference, -w.high, -w.low));
        assert_eq!(turned.p_value, w.p_value);
    }

    #[test]
    fn without_spread_or_values_there_is_no_answer() {
        assert_eq!(welch(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(welch(&[1.0, 2.0], &[1.0]), None);
        assert!(welch(&[1.0, 2.0], &[2.0, 5.0]).is_some());
        assert_eq!(welch(&[1.0, 1.0], &[2.0, 2.0]), None);
        // One side without spread: the other side's error, with its degrees of freedom.
        let w = welch(&[1.0, 1.0], &[2.0, 3.0, 7.0]).unwrap();
        assert!(
            (w.freedom - 2.0).abs() < 1e-12 && (w.standard_error.powi(2) - 7.0 / 3.0).abs() < 1e-12
        );
        assert_eq!(from_parts(1.0, [(-1.0, 1.0), (0.5, 1.0)]), None, "no variance is below zero");
        assert!(from_parts(1.0, [(0.0, 0.0), (1.0, 3.0)]).is_some_and(|w| w.freedom == 3.0));
        assert_eq!(from_parts(1.0, [(f64::NAN, 1.0), (1.0, 1.0)]), None);
    }
}
