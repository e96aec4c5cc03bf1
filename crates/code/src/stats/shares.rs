//! Shares of samples, with their doubt.

use super::Z;
use crate::model::{Measurement, Unit};

/// A share in per cent with its Wilson interval at 95 %. Samples a period apart are not quite
/// independent, so the interval is a lower bound of the doubt.
#[must_use]
pub fn share_of_samples(hits: u64, total: u64) -> Measurement {
    let (value, low, high) = if total == 0 {
        (0.0, 0.0, 100.0)
    } else {
        let n = total as f64;
        let p = hits as f64 / n;
        let centre = (p + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
        let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt() / (1.0 + Z * Z / n);
        (100.0 * p, 100.0 * (centre - half).max(0.0), 100.0 * (centre + half).min(1.0))
    };
    Measurement {
        value,
        unit: Unit::Percent,
        low,
        high,
        n: total as usize,
        how: "share of samples, Wilson 95 %".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_wilson_intervals() {
        // scipy.stats.binomtest(30, 100).proportion_ci(method="wilson"): 0.21895, 0.39585
        let share = share_of_samples(30, 100);
        assert!((share.low - 21.895).abs() < 0.01, "{share:?}");
        assert!((share.high - 39.585).abs() < 0.01, "{share:?}");
        assert_eq!((share.value, share.n, share.unit), (30.0, 100, Unit::Percent));
        // 3 of 8: 0.13684428, 0.69425760.
        let few = share_of_samples(3, 8);
        assert!((few.low - 13.684_428_6).abs() < 1e-6, "{few:?}");
        assert!((few.high - 69.425_760_5).abs() < 1e-6, "{few:?}");
        // None and all of ten: the interval ends where shares end.
        let (no, all) = (share_of_samples(0, 10), share_of_samples(10, 10));
        assert!(no.low == 0.0 && (no.high - 27.753_279_99).abs() < 1e-6, "{no:?}");
        assert!(all.high <= 100.0 && (all.low - 72.246_720_01).abs() < 1e-6, "{all:?}");
        let none = share_of_samples(0, 0);
        assert_eq!((none.value, none.low, none.high), (0.0, 0.0, 100.0));
    }
}
