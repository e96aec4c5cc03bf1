//! The paired t-test: the cross-check. It is right when noise is normal, so a disagreement with
//! the signed ranks says that it is not.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::ALPHA;

/// Mean, interval and p-value under the assumption of normal noise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PairedT {
    /// Mean of the log ratios.
    pub mean_log_ratio: f64,
    /// Lower end of the 95 % interval of the mean.
    pub low_log_ratio: f64,
    /// Upper end of the 95 % interval of the mean.
    pub high_log_ratio: f64,
    /// Two-sided, against zero.
    pub p_value: f64,
}

/// Mean and standard deviation (n − 1); zeros where there are too few values.
#[must_use]
pub fn mean_and_sd(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let mean = values.iter().sum::<f64>() / n;
    if values.len() < 2 {
        return (mean, 0.0);
    }
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0)).sqrt())
}

/// Standard deviation around the mean of the own group, over all groups; 0 where none has two values.
#[must_use]
pub fn pooled_sd<G: AsRef<[f64]>>(groups: &[G]) -> f64 {
    let (mut squares, mut freedom) = (0.0, 0.0);
    for values in groups.iter().map(AsRef::as_ref).filter(|values| values.len() > 1) {
        let f = values.len() as f64 - 1.0;
        squares += mean_and_sd(values).1.powi(2) * f;
        freedom += f;
    }
    if freedom > 0.0 { (squares / freedom).sqrt() } else { 0.0 }
}

/// The quantile `p` of Student's t; `None` when `freedom` is not positive.
#[must_use]
pub fn t_quantile(p: f64, freedom: f64) -> Option<f64> {
    Some(StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(p))
}

/// The paired t-test of `log_ratios` against zero; `None` for fewer than two pairs or no spread.
#[must_use]
pub fn paired_t(log_ratios: &[f64]) -> Option<PairedT> {
    let (mean, sd) = mean_and_sd(log_ratios);
    if sd <= 0.0 {
        return None;
    }
    let freedom = log_ratios.len() as f64 - 1.0;
    let error = sd / (log_ratios.len() as f64).sqrt();
    let t = StudentsT::new(0.0, 1.0, freedom).ok()?;
    let reach = t_quantile(1.0 - ALPHA / 2.0, freedom)? * error;
    Some(PairedT {
        mean_log_ratio: mean,
        low_log_ratio: mean - reach,
        high_log_ratio: mean + reach,
        p_value: (2.0 * t.cdf(-(mean / error).abs())).min(1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_scipy() {
        // d = [.012, -.003, .018, .007, .022, -.001, .009, .014]
        // scipy.stats.ttest_1samp(d, 0) and .confidence_interval(.95), SciPy 1.17
        let d = [0.012, -0.003, 0.018, 0.007, 0.022, -0.001, 0.009, 0.014];
        let t = paired_t(&d).unwrap();
        assert!((t.p_value - SCIPY_P).abs() < 1e-9, "{}", t.p_value);
        assert!((t.low_log_ratio - SCIPY_LOW).abs() < 1e-9, "{}", t.low_log_ratio);
        assert!((t.high_log_ratio - SCIPY_HIGH).abs() < 1e-9, "{}", t.high_log_ratio);
    }

    const SCIPY_P: f64 = 0.015560193410202526;
    const SCIPY_LOW: f64 = 0.002492628450131675;
    const SCIPY_HIGH: f64 = 0.017007371549868325;

    #[test]
    fn the_mean_lies_in_the_middle_of_its_interval() {
        let t = paired_t(&[0.25, 0.75]).unwrap();
        // t(1) is Cauchy: its 97.5 % point is tan(0.475 π), the standard error 0.25.
        let reach = 0.25 * (0.475 * std::f64::consts::PI).tan();
        assert_eq!(t.mean_log_ratio, 0.5);
        assert!((t.high_log_ratio - 0.5 - reach).abs() < 1e-9, "{t:?}");
        assert!((0.5 - t.low_log_ratio - reach).abs() < 1e-9, "{t:?}");
        // P(|T| > 2) = 1 - 2 arctan(2) / π.
        let p = 1.0 - 2.0 * 2.0_f64.atan() / std::f64::consts::PI;
        assert!((t.p_value - p).abs() < 1e-9, "{t:?}");
        // The sign of the mean does not matter to the chance of it.
        assert!((paired_t(&[-0.25, -0.75]).unwrap().p_value - p).abs() < 1e-9);
    }

    #[test]
    fn spread_is_pooled_by_degrees_of_freedom() {
        let groups = [vec![1.0, 2.0, 4.0], vec![5.0, 9.0], vec![7.0], vec![]];
        // Squares 14/3 and 8 over 2 + 1 degrees of freedom; one value alone has none.
        assert!((pooled_sd(&groups) - ((14.0 / 3.0 + 8.0) / 3.0_f64).sqrt()).abs() < 1e-12);
        assert_eq!(pooled_sd(&[vec![1.0], vec![9.0]]), 0.0);
        assert_eq!(pooled_sd::<Vec<f64>>(&[]), 0.0);
    }

    #[test]
    fn few_values_have_a_mean_and_no_spread() {
        assert_eq!(mean_and_sd(&[]), (0.0, 0.0));
        assert_eq!(mean_and_sd(&[3.0]), (3.0, 0.0));
        assert_eq!(mean_and_sd(&[2.0, 4.0]), (3.0, 2.0_f64.sqrt()));
        assert_eq!(t_quantile(0.9, 0.0), None);
    }

    #[test]
    fn without_spread_there_is_no_test() {
        assert_eq!(paired_t(&[]), None);
        assert_eq!(paired_t(&[0.1]), None);
        assert_eq!(paired_t(&[0.1, 0.1]), None);
    }
}
