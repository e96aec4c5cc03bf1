//! Many questions at once: p-values of a whole suite, adjusted.
//!
//! *Holm* keeps the chance of any false alarm in the suite at 5 %: for verdicts. *Benjamini and
//! Hochberg* keep the share of false alarms among the alarms at 5 %: for triage.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the p-values of a suite are adjusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Adjustment {
    /// No correction.
    None,
    /// The chance of any false alarm (Holm 1979).
    #[default]
    Holm,
    /// The share of false alarms (Benjamini and Hochberg 1995).
    BenjaminiHochberg,
}

/// Adjusted p-values in the order of `p_values`; a NaN stays where it is and counts for nothing.
#[must_use]
pub fn adjust(p_values: &[f64], how: Adjustment) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).filter(|&i| !p_values[i].is_nan()).collect();
    order.sort_by(|&a, &b| p_values[a].total_cmp(&p_values[b]));
    let m = order.len() as f64;
    let mut adjusted = p_values.to_vec();
    match how {
        Adjustment::None => {}
        Adjustment::Holm => {
            let mut floor = 0.0_f64;
            for (rank, &i) in order.iter().enumerate() {
                floor = floor.max((m - rank as f64) * p_values[i]).min(1.0);
                adjusted[i] = floor;
            }
        }
        Adjustment::BenjaminiHochberg => {
            let mut ceiling = 1.0_f64;
            for (rank, &i) in order.iter().enumerate().rev() {
                ceiling = ceiling.min(m / (rank as f64 + 1.0) * p_values[i]);
                adjusted[i] = ceiling;
            }
        }
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn agrees_with_r() {
        // p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm"); p.adjust(…, "BH")
        let p = [0.01, 0.04, 0.03, 0.005];
        let near = |got: Vec<f64>, want: [f64; 4]| {
            got.iter().zip(want).all(|(g, w)| (g - w).abs() < 1e-12)
        };
        assert!(near(adjust(&p, Adjustment::Holm), [0.03, 0.06, 0.06, 0.02]));
        assert!(near(adjust(&p, Adjustment::BenjaminiHochberg), [0.02, 0.04, 0.04, 0.02]));
        assert_eq!(adjust(&p, Adjustment::None), p);
        // What is no number stays, and the others are as many as they are.
        for how in [Adjustment::Holm, Adjustment::BenjaminiHochberg] {
            let with_nan = adjust(&[0.01, f64::NAN, 0.02], how);
            assert!((with_nan[0] - 0.02).abs() < 1e-12 && with_nan[1].is_nan());
            assert!((with_nan[2] - 0.02).abs() < 1e-12);
        }
    }

    proptest! {
        #[test]
        fn adjusting_keeps_the_order_and_never_lowers(p in proptest::collection::vec(0.0..1.0_f64, 0..20)) {
            for how in [Adjustment::Holm, Adjustment::BenjaminiHochberg] {
                let q = adjust(&p, how);
                for i in 0..p.len() {
                    prop_assert!(q[i] >= p[i] - 1e-15 && q[i] <= 1.0);
                    for j in 0..p.len() {
                        prop_assert!(p[i] > p[j] || q[i] <= q[j] + 1e-15);
                    }
                }
            }
        }
    }
}
