//! Many machines, one question: the machine as a random effect.
//!
//! Each unit (a machine) has an effect of its own that was measured with some noise; what is asked for is
//! the mean over units like these, and how far they lie apart. Taking all runs as one sample answers
//! neither: it makes the interval shorter with every run, however few machines there are.
//!
//! The spread between units is the moment estimate of DerSimonian and Laird (*Controlled Clinical Trials*
//! 1986), the interval that of Hartung and Knapp (*Statistics in Medicine* 2001) with Student's t, which
//! keeps its level for few units where the normal interval does not (IntHout, Ioannidis and Borm, *BMC
//! Medical Research Methodology* 2014). The interval for one more unit adds the spread of what was observed, noise
//! included, with Student's t of the units: of equal noise that is where one more observation would lie. (The spread with the
//! noise taken out, and the degrees of freedom of Higgins, Thompson and Spiegelhalter, *JRSS A* 2009, hold one more of three
//! units in 86 to 92 %: of few units the spread comes out as nothing too often.)

use statrs::distribution::{ChiSquared, ContinuousCDF as _};

use super::ALPHA;
use super::robust::{MAD_TO_SD, mad, median};
use super::student::{mean_and_sd, t_quantile};

/// The mean over units and the spread between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomEffects {
    /// Mean over units like these.
    pub mean: f64,
    /// Standard error of that, of Hartung and Knapp.
    pub standard_error: f64,
    /// Its degrees of freedom, the units less one.
    pub freedom: f64,
    /// Standard deviation between units, noise taken out.
    pub between_sd: f64,
    /// The same with their noise.
    pub observed_sd: f64,
}

impl RandomEffects {
    /// How far the 95 % interval for one more unit like these reaches, where that of the mean reaches so far;
    /// `None` for two.
    #[must_use]
    pub fn reach_of_another(&self, reach_of_mean: f64) -> Option<f64> {
        let t = t_quantile(1.0 - ALPHA / 2.0, self.freedom).filter(|_| self.freedom > 1.0)?;
        Some(reach_of_mean.hypot(t * self.observed_sd))
    }
}

/// Joins the effects of units with the variance of their noise; `None` for fewer than two.
#[must_use]
pub fn random_effects(effects: &[(f64, f64)]) -> Option<RandomEffects> {
    let n = effects.len() as f64;
    if effects.len() < 2 {
        return None;
    }
    let between = between_variance(effects);
    // Without any noise there is no weight but an equal one.
    let weight = |noise: f64| if between + noise > 0.0 { 1.0 / (between + noise) } else { 1.0 };
    let total: f64 = effects.iter().map(|e| weight(e.1)).sum();
    let mean = effects.iter().map(|e| weight(e.1) * e.0).sum::<f64>() / total;
    let squares: f64 = effects.iter().map(|e| weight(e.1) * (e.0 - mean).powi(2)).sum();
    Some(RandomEffects {
        mean,
        standard_error: (squares / ((n - 1.0) * total)).sqrt(),
        freedom: n - 1.0,
        between_sd: between.sqrt(),
        observed_sd: mean_and_sd(&effects.iter().map(|e| e.0).collect::<Vec<_>>()).1,
    })
}

fn between_variance(effects: &[(f64, f64)]) -> f64 {
    let values: Vec<f64> = effects.iter().map(|e| e.0).collect();
    if effects.iter().any(|e| e.1 <= 0.0) {
        let noise = effects.iter().map(|e| e.1).sum::<f64>() / effects.len() as f64;
        return (mean_and_sd(&values).1.powi(2) - noise).max(0.0);
    }
    let sum = |power: i32| effects.iter().map(|e| e.1.powi(-power)).sum::<f64>();
    let (first, second) = (sum(1), sum(2));
    ((cochran(effects) - (effects.len() as f64 - 1.0)) / (first - second / first)).max(0.0)
}

/// Cochran's Q: squares around the mean, each by its own noise.
fn cochran(effects: &[(f64, f64)]) -> f64 {
    let weights: f64 = effects.iter().map(|e| 1.0 / e.1).sum();
    let mean = effects.iter().map(|e| e.0 / e.1).sum::<f64>() / weights;
    effects.iter().map(|e| (e.0 - mean).powi(2) / e.1).sum()
}

/// The chance of units so far apart where nothing but their noise sets them apart (Cochran 1954); `None` for fewer
/// than two, or for one without noise.
#[must_use]
pub fn chance_of_spread(effects: &[(f64, f64)]) -> Option<f64> {
    if effects.len() < 2 || effects.iter().any(|e| e.1.is_nan() || e.1 <= 0.0) {
        return None;
    }
    let chi = ChiSquared::new(effects.len() as f64 - 1.0).ok()?;
    Some(cochran(effects)).filter(|q| q.is_finite()).map(|q| chi.sf(q))
}

/// Units below which none can be called far off.
const ENOUGH_UNITS: usize = 8;
/// Robust standard deviations beyond which one is.
const FAR_OFF_SD: f64 = 4.0;

/// Which units lie so far from most others that they are of another kind, or not to be believed.
#[must_use]
pub fn far_off(effects: &[(f64, f64)]) -> Vec<bool> {
    let values: Vec<f64> = effects.iter().map(|e| e.0).collect();
    let noises: Vec<f64> = effects.iter().map(|e| e.1).collect();
    let (Some(centre), Some(spread), Some(noise)) =
        (median(&values), mad(&values), median(&noises))
    else {
        return Vec::new();
    };
    let between = ((spread * MAD_TO_SD).powi(2) - noise).max(0.0);
    let is_far = |(value, noise): &(f64, f64)| {
        let sd = (between + noise).sqrt();
        effects.len() >= ENOUGH_UNITS && sd > 0.0 && (value - centre).abs() > FAR_OFF_SD * sd
    };
    effects.iter().map(is_far).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_worked_example() {
        // By hand: w = 1/v, sum 186.6667, fixed mean 0.457143, Q = 9.023810, C = 119.047619, tau2 = Q-3 over C;
        // w* = 1/(v + tau2), mean 0.373966, variance sum w*(y - mean)^2 / (3 sum w*).
        let y = [(0.10, 0.03), (0.30, 0.03), (0.35, 0.05), (0.65, 0.01)];
        let r = random_effects(&y).unwrap();
        assert!((r.between_sd.powi(2) - 0.050_600).abs() < 1e-6, "{r:?}");
        assert!((r.mean - 0.373_966).abs() < 1e-6, "{r:?}");
        assert!((r.standard_error - 0.121_291).abs() < 1e-6, "{r:?}");
        assert_eq!(r.freedom, 3.0);
        // pchisq(9.023810, 3, lower.tail = FALSE)
        assert!((chance_of_spread(&y).unwrap() - 0.028_98).abs() < 1e-4);
        assert_eq!(chance_of_spread(&[(1e308, 1.0), (-1e308, 1.0)]), None, "no number is so large");
    }

    #[test]
    fn equal_noise_is_the_plain_t_interval_and_no_noise_too() {
        let plain = |noise| random_effects(&[(1.0, noise), (2.0, noise), (4.0, noise)]).unwrap();
        let (mean, sd) = mean_and_sd(&[1.0, 2.0, 4.0]);
        for r in [plain(0.0), plain(0.1)] {
            assert!(
                (r.mean - mean).abs() < 1e-12
                    && (r.standard_error - sd / 3_f64.sqrt()).abs() < 1e-12
            );
        }
        // 1, 2 and 4: where a fourth would lie is t(2) times the standard deviation times the root of 1 + 1/3.
        let reach = t_quantile(0.975, 2.0).unwrap();
        let another = plain(0.1).reach_of_another(reach * sd / 3_f64.sqrt()).unwrap();
        assert!((another - reach * sd * (4.0_f64 / 3.0).sqrt()).abs() < 1e-9, "{another}");
        let two = random_effects(&[(1.0, 0.1), (2.0, 0.1)]).unwrap();
        assert_eq!(two.reach_of_another(1.0), None);
        assert_eq!(random_effects(&[(1.0, 0.1)]), None);
        let same = random_effects(&[(1.0, 0.0), (1.0, 0.0)]).unwrap();
        assert_eq!((same.mean, same.standard_error, same.between_sd), (1.0, 0.0, 0.0));
    }

    #[test]
    fn units_without_noise_count_beside_noisy_ones() {
        // By hand: variance of 1, 2, 4 is 7/3, mean noise 0.2, so tau2 = 32/15; w = 1/tau2, 1/(tau2 + 0.3) twice.
        let r = random_effects(&[(1.0, 0.0), (2.0, 0.3), (4.0, 0.3)]).unwrap();
        assert!((r.between_sd.powi(2) - 32.0 / 15.0).abs() < 1e-12, "{r:?}");
        assert!((r.mean - 2.273_631_84).abs() < 1e-8, "{r:?}");
        assert!((r.standard_error - 0.883_725_505).abs() < 1e-8, "{r:?}");
        assert!((r.observed_sd.powi(2) - 7.0 / 3.0).abs() < 1e-12, "{r:?}");
        // No spread but noise: w = 1 and 1/4, mean (1 + 2/4) / 1.25.
        let fixed = random_effects(&[(1.0, 1.0), (2.0, 4.0)]).unwrap();
        assert!((fixed.mean - 1.2).abs() < 1e-12 && fixed.between_sd == 0.0, "{fixed:?}");
        // More noise than spread leaves nothing between units.
        assert_eq!(random_effects(&[(1.0, 0.0), (2.0, 9.0)]).unwrap().between_sd, 0.0);
        assert_eq!(random_effects(&[(1.0, 9.0), (2.0, 9.0)]).unwrap().between_sd, 0.0);
    }

    #[test]
    fn what_has_no_noise_or_no_company_has_no_chance() {
        assert_eq!(chance_of_spread(&[(1.0, 0.1)]), None);
        assert_eq!(chance_of_spread(&[(1.0, 0.1), (2.0, 0.0)]), None);
        assert_eq!(chance_of_spread(&[(1.0, 0.1), (2.0, f64::NAN)]), None);
        assert_eq!(chance_of_spread(&[(1.0, 0.1), (2.0, -0.2)]), None);
        // Q = 2 with one degree of freedom: P(|z| > √2).
        let two = chance_of_spread(&[(1.0, 1.0), (3.0, 1.0)]).unwrap();
        assert!((two - 2.0 * crate::stats::normal_cdf(-2.0_f64.sqrt())).abs() < 1e-9, "{two}");
    }

    #[test]
    fn four_robust_deviations_are_where_far_off_begins() {
        // Median 0, median distance 1: with noise 0.01 the bound is 4 √(1.4826² - 0.01 + 0.01).
        let at = |last: f64| {
            let values = [-1.0, -1.0, -1.0, 0.0, 0.0, 1.0, 1.0, last];
            *far_off(&values.map(|v| (v, 0.01))).last().unwrap()
        };
        assert!(!at(4.0 * MAD_TO_SD - 0.01) && at(4.0 * MAD_TO_SD + 0.01));
        // Below zero as above, and by its own noise.
        assert_eq!(far_off(&[(-9.0, 0.01), (0.0, 0.01)].repeat(4)), [false; 8]);
        let mut effects = [(0.0, 0.01); 8];
        effects[0].0 = -0.41;
        assert!(far_off(&effects)[0]);
        effects[0].1 = 0.02;
        assert!(!far_off(&effects)[0], "4 √0.02 is 0.57");
        effects[0] = (-0.39, 0.01);
        assert!(!far_off(&effects)[0]);
        // Eight are enough to accuse one, seven are not, and without any spread nobody is.
        effects[0].0 = -9.0;
        assert!(far_off(&effects)[0] && !far_off(&effects[..7])[0]);
        let mut silent = [(0.0, 0.0); 8];
        silent[0].0 = 9.0;
        assert!(!far_off(&silent)[0]);
        // The bound itself is not far off: four deviations of 2.
        let mut even = [(0.0, 4.0); 8];
        even[0].0 = 8.0;
        assert!(!far_off(&even)[0]);
        assert!(far_off(&[]).is_empty());
    }

    #[test]
    fn one_that_lies_is_far_off_and_few_units_accuse_none() {
        let mut effects: Vec<(f64, f64)> =
            (0..20).map(|i| (f64::from(i % 5) * 0.01, 1e-6)).collect();
        assert!(far_off(&effects).iter().all(|far| !far));
        effects[3].0 = 0.5;
        assert_eq!(far_off(&effects).iter().position(|far| *far), Some(3));
        // The same value with as much noise is no accusation.
        effects[3].1 = 0.1;
        assert!(far_off(&effects).iter().all(|far| !far));
        assert!(far_off(&[(0.0, 1e-6), (0.0, 1e-6), (9.0, 1e-6)]).iter().all(|far| !far));
    }
}
