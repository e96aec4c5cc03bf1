//! Medians and quantiles, and the one way in which this room turns values into a measurement.

use crate::model::{Measurement, Unit};

/// The `q`-quantile (0 to 1) of ascending `sorted`, by linear interpolation; NaN when empty.
pub(crate) fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let at = q.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

/// Ascending copy without what is not a number.
pub(crate) fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut v: Vec<f64> = values.into_iter().filter(|x| x.is_finite()).collect();
    v.sort_by(f64::total_cmp);
    v
}

/// Median; NaN when empty.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    quantile(&sorted(values), 0.5)
}

/// Median with the 5th and 95th percentiles; `None` without a finite value.
pub(crate) fn measurement(
    values: impl IntoIterator<Item = f64>,
    unit: Unit,
    of: &str,
) -> Option<Measurement> {
    let v = sorted(values);
    (!v.is_empty()).then(|| Measurement {
        value: quantile(&v, 0.5),
        unit,
        low: quantile(&v, 0.05),
        high: quantile(&v, 0.95),
        n: v.len(),
        how: format!("median and 5-95 % of {of}"),
    })
}

/// `part` of `whole` in percent; 0 of nothing.
pub(crate) fn percent(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate_and_survive_nothing() {
        let v = sorted([3.0, f64::NAN, 1.0, 2.0]);
        assert_eq!(quantile(&v, 0.5), 2.0);
        assert_eq!(quantile(&v, 0.25), 1.5);
        assert!(quantile(&[], 0.5).is_nan());
        assert!(measurement([f64::NAN], Unit::Ticks, "x").is_none());
        assert_eq!(percent(1, 0), 0.0);
    }
}
