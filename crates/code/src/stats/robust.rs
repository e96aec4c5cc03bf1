//! Order statistics that a few wild values cannot move.

/// Turns a median absolute deviation into the standard deviation of a normal distribution.
pub const MAD_TO_SD: f64 = 1.482_602_218_505_602;

/// `values` in ascending order; NaN sorts last.
#[must_use]
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut copy = values.to_vec();
    copy.sort_unstable_by(f64::total_cmp);
    copy
}

/// The finite ones of `values` in ascending order.
pub fn finite(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    sorted(&values.into_iter().filter(|v| v.is_finite()).collect::<Vec<_>>())
}

/// The quantile `q` (0 to 1) of ascending values, linear between neighbours (type 7, as NumPy and
/// R); NaN when there are no values.
#[must_use]
pub fn quantile(ascending: &[f64], q: f64) -> f64 {
    let Some(last) = ascending.len().checked_sub(1) else {
        return f64::NAN;
    };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (ascending[at.floor() as usize], ascending[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

/// The median; `None` when there are no values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| quantile(&sorted(values), 0.5))
}

/// Lower quartile, median, upper quartile; `None` when there are no values.
#[must_use]
pub fn quartiles(values: &[f64]) -> Option<[f64; 3]> {
    let ascending = sorted(values);
    (!values.is_empty()).then(|| [0.25, 0.5, 0.75].map(|q| quantile(&ascending, q)))
}

/// The 99 % interval of the median of ascending values, from the binomial by its normal
/// approximation, rounded outwards.
///
/// # Panics
///
/// When there are no values.
#[must_use]
pub fn median_interval_99(ascending: &[f64]) -> (f64, f64) {
    let n = ascending.len() as f64;
    let half = 2.576 * n.sqrt() / 2.0;
    let low = (n / 2.0 - half - 1.0).floor().max(0.0) as usize;
    let high = ((n / 2.0 + half).ceil() as usize).min(ascending.len() - 1);
    (ascending[low], ascending[high])
}

/// The median distance from the median; `None` when there are no values.
#[must_use]
pub fn mad(values: &[f64]) -> Option<f64> {
    let centre = median(values)?;
    let distances: Vec<f64> = values.iter().map(|v| (v - centre).abs()).collect();
    median(&distances)
}

/// The standard deviation that a normal distribution with this MAD would have. Falls back to the
/// ordinary standard deviation when more than half of the values are equal, so that a coarse timer
/// does not pass for a noiseless machine. Zero for fewer than two values.
#[must_use]
pub fn robust_sd(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    match mad(values) {
        Some(mad) if mad > 0.0 => mad * MAD_TO_SD,
        _ => super::student::mean_and_sd(values).1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_numpy() {
        // numpy.quantile([3, 1, 4, 1, 5, 9, 2, 6], [.25, .5, .75])
        let [low, mid, high] = quartiles(&[3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]).unwrap();
        assert_eq!([low, mid, high], [1.75, 3.5, 5.25]);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        let v = finite([3.0, f64::NAN, 1.0, f64::INFINITY, 2.0]);
        assert_eq!((quantile(&v, 0.5), quantile(&v, 0.25)), (2.0, 1.5));
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn the_interval_of_a_median_is_rounded_outwards_and_stays_among_the_values() {
        let of = |n: u32| median_interval_99(&(0..n).map(f64::from).collect::<Vec<_>>());
        // n / 2 ± 2.576 √n / 2, one rank further down: 50 ± 12.88, 8 ± 5.152, 2 ± 2.576.
        assert_eq!([of(100), of(16), of(4)], [(36.0, 63.0), (1.0, 14.0), (0.0, 3.0)]);
        assert_eq!(of(1), (0.0, 0.0));
    }

    #[test]
    fn the_robust_spread_is_that_of_normal_noise_and_few_values_have_none() {
        assert_eq!(robust_sd(&[1.0, 2.0, 3.0, 4.0, 5.0]), MAD_TO_SD);
        assert_eq!(robust_sd(&[1.0, 3.0]), MAD_TO_SD);
        // More than half are equal: the ordinary standard deviation, √(4 × 0.2² + 0.8²) / 2.
        assert!((robust_sd(&[0.0, 0.0, 0.0, 0.0, 1.0]) - 0.2_f64.sqrt()).abs() < 1e-12);
        assert_eq!(mad(&[]), None);
        assert_eq!(quartiles(&[]), None);
    }

    #[test]
    fn a_wild_value_moves_the_spread_little_and_equal_values_are_not_noiseless() {
        let calm = [1.0, 2.0, 3.0, 4.0, 5.0];
        let wild = [1.0, 2.0, 3.0, 4.0, 5000.0];
        assert_eq!(mad(&calm), mad(&wild));
        assert!(robust_sd(&[0.0, 0.0, 0.0, 0.0, 1.0]) > 0.0);
        assert_eq!(robust_sd(&[1.0]), 0.0);
    }
}
