//! Planning: what a number of pairs can see, and how many pairs an effect needs.
//!
//! Power is that of the two-sided paired t-test (non-central t, integrated numerically); the
//! signed-rank test needs about five per cent more pairs, and never fewer than six.

use super::student::t_quantile;
use super::{ALPHA, POWER, normal_cdf};

/// The fewest pairs with which a two-sided exact test can reach p < 0.05.
pub const FEWEST_PAIRS: usize = 6;
/// The fewest pairs with which a two-sided exact test can reach p < 0.05 in one of so many comparisons that
/// are judged together: all signs alike have p = 2 / 2^pairs.
///
/// ```
/// use stallscope_code::stats::power::{FEWEST_PAIRS, fewest_pairs};
/// assert_eq!([1, 2, 9].map(fewest_pairs), [FEWEST_PAIRS, 7, 9]);
/// ```
#[must_use]
pub fn fewest_pairs(comparisons: usize) -> usize {
    let needed = 1.0 + (comparisons.max(1) as f64 / ALPHA).log2();
    needed.floor() as usize + 1
}

/// More pairs the signed-rank test needs than the t-test.
const SIGNED_RANK_SURCHARGE: f64 = 1.05;
/// Counts above this are not worth a search: the noise has to go down instead.
const MOST_PAIRS: usize = 1_000_000;

/// Power of the paired t-test with `n` pairs when the effect is `effect_in_sd` standard deviations
/// of a pair; zero for fewer than two pairs.
#[must_use]
pub fn power(n: usize, effect_in_sd: f64) -> f64 {
    let freedom = n as f64 - 1.0;
    match t_quantile(1.0 - ALPHA / 2.0, freedom) {
        Some(critical) => upper_tail(critical, freedom, effect_in_sd * (n as f64).sqrt()),
        None => 0.0,
    }
}

/// Power of the two-sample t-test with `n` values on each side when the effect is `effect_in_sd`
/// standard deviations; zero for fewer than two values.
#[must_use]
pub fn two_sample_power(n: usize, effect_in_sd: f64) -> f64 {
    let freedom = 2.0 * n as f64 - 2.0;
    match t_quantile(1.0 - ALPHA / 2.0, freedom) {
        Some(critical) => upper_tail(critical, freedom, effect_in_sd * (n as f64 / 2.0).sqrt()),
        None => 0.0,
    }
}

/// P(T > c) for the non-central t: the mean of Φ(δ − c·s) over s = √(χ²/ν), by Simpson's rule.
fn upper_tail(critical: f64, freedom: f64, shift: f64) -> f64 {
    const STEPS: usize = 200;
    // The density of s is proportional to s^(ν−1)·exp(−ν·s²/2), with its peak near 1 and a
    // standard deviation near 1/√(2ν). The constant cancels in the quotient of the two sums.
    let reach = 7.0 / (2.0 * freedom).sqrt();
    let (low, high) = ((1.0 - reach).max(0.0), 1.0 + reach);
    let step = (high - low) / STEPS as f64;
    let (mut mass, mut inside) = (0.0, 0.0);
    for i in 0..=STEPS {
        let s = (low + step * i as f64).max(1e-12);
        let simpson = if i == 0 || i == STEPS { 1.0 } else { 2.0 + 2.0 * (i % 2) as f64 };
        let density = ((freedom - 1.0) * s.ln() - freedom * (s * s - 1.0) / 2.0).exp();
        mass += simpson * density;
        inside += simpson * density * normal_cdf(shift - critical * s);
    }
    inside / mass
}

/// Pairs that the t-test needs to see `effect` with 80 % power; `None` beyond a million or for no effect.
#[must_use]
pub fn pairs_for_t(pair_sd: f64, effect: f64) -> Option<usize> {
    if pair_sd <= 0.0 && effect != 0.0 {
        return Some(2);
    }
    least_count(MOST_PAIRS, |n| power(n, effect.abs() / pair_sd))
}

/// The least number up to `most` with which `power` reaches 80 %; `power` must not fall.
#[must_use]
pub fn least_count(most: usize, power: impl Fn(usize) -> f64) -> Option<usize> {
    let (mut low, mut high) = (1, most);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if power(middle) >= POWER { high = middle } else { low = middle }
    }
    (power(most) >= POWER).then_some(high)
}

/// Pairs that this room needs to see `effect` (a log ratio) with 80 % power.
#[must_use]
pub fn pairs_needed(pair_sd: f64, effect: f64) -> Option<usize> {
    let pairs = pairs_for_t(pair_sd, effect)?;
    Some(((pairs as f64 * SIGNED_RANK_SURCHARGE).ceil() as usize).max(FEWEST_PAIRS))
}

/// The smallest effect (a log ratio) that `n` pairs show with 80 % power; `None` below six pairs.
#[must_use]
pub fn detectable(n: usize, pair_sd: f64) -> Option<f64> {
    if n < FEWEST_PAIRS {
        return None;
    }
    let root = (n as f64).sqrt();
    let freedom = n as f64 - 1.0;
    let critical = t_quantile(1.0 - ALPHA / 2.0, freedom)?;
    // The sum of the two quantiles is a good start; power is nearly linear around 80 %.
    let mut shift = critical + t_quantile(POWER, freedom)?;
    for _ in 0..4 {
        let miss = upper_tail(critical, freedom, shift) - POWER;
        shift -= miss / 0.28;
    }
    Some(shift / root * pair_sd * SIGNED_RANK_SURCHARGE.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_planning_table_is_reproduced() {
        // Pairs needed for 80 % power; rows: sd per pair in %, columns: effect in %. From the
        // non-central t, computed independently of this file; three pairs is the table's floor.
        let effects = [0.5, 1.0, 2.0, 3.0, 5.0];
        let table = [
            (0.3, [6, 3, 3, 3, 3]),
            (0.5, [10, 5, 3, 3, 3]),
            (1.0, [34, 10, 5, 4, 3]),
            (2.0, [128, 34, 10, 6, 4]),
            (3.0, [285, 73, 20, 10, 6]),
            (5.0, [787, 199, 52, 24, 10]),
        ];
        let mut got = Vec::new();
        let mut want = Vec::new();
        for (sd, row) in table {
            got.push((sd, effects.map(|e| pairs_for_t(sd, e).unwrap().max(3))));
            want.push((sd, row));
        }
        assert_eq!(got, want);
    }

    #[test]
    fn power_is_that_of_the_noncentral_t() {
        // scipy.stats.nct.sf(scipy.stats.t.ppf(.975, n - 1), n - 1, d * n ** .5), SciPy 1.17
        for (n, d, want) in NCT {
            assert!((power(n, d) - want).abs() < 1e-6, "{n} {d}: {} {want}", power(n, d));
        }
    }

    #[test]
    fn two_groups_need_more_values_than_pairs() {
        // The non-central t with 2n - 2 degrees of freedom and shift d √(n / 2), integrated over χ.
        for (n, d, want) in
            [(5, 1.5, 0.549_364_18), (10, 1.0, 0.561_984_62), (20, 0.5, 0.337_708_37)]
        {
            let got = two_sample_power(n, d);
            assert!((got - want).abs() < 1e-5, "{n} {d}: {got} {want}");
        }
        assert_eq!((two_sample_power(1, 9.0), power(1, 9.0)), (0.0, 0.0));
        assert!(two_sample_power(2, 99.0) > 0.9 && power(2, 99.0) > 0.9);
    }

    #[test]
    fn the_least_count_is_where_power_begins() {
        for first in [2, 3, 50, 99, 100] {
            let found = least_count(100, |n| if n >= first { POWER } else { 0.0 });
            assert_eq!(found, Some(first));
        }
        assert_eq!(least_count(100, |_| 0.0), None);
        assert_eq!(pairs_for_t(0.01, -0.02), pairs_for_t(0.01, 0.02));
        // Without noise two pairs show any effect, and none shows none.
        assert_eq!((pairs_for_t(0.0, 0.01), pairs_for_t(0.0, 0.0)), (Some(2), None));
        // 34 pairs by the t-test are 36 by ranks.
        assert_eq!(pairs_needed(0.01, 0.005), Some(36));
        assert_eq!(pairs_needed(0.02, 0.005), Some(135));
    }

    #[test]
    fn more_comparisons_need_more_pairs() {
        // All signs alike: 2 / 2^pairs times the comparisons has to be below 5 %.
        for (comparisons, pairs) in [(0, 6), (1, 6), (2, 7), (3, 7), (4, 8), (9, 9), (100, 12)] {
            assert_eq!(fewest_pairs(comparisons), pairs, "{comparisons}");
        }
    }

    const NCT: [(usize, f64, f64); 6] = [
        (3, 3.0, 0.7452680066623015),
        (6, 1.0, 0.5068166814068781),
        (10, 1.0, 0.8030962086904041),
        (20, 0.5, 0.5644828966786236),
        (40, 0.7, 0.9907593393730143),
        (199, 0.2, 0.8016900924629413),
    ];

    #[test]
    fn what_is_detectable_is_what_was_planned() {
        for n in [6, 10, 20, 40, 120, 1000] {
            let effect = detectable(n, 0.01).unwrap();
            let t_share = effect / SIGNED_RANK_SURCHARGE.sqrt() / 0.01;
            assert!((power(n, t_share) - POWER).abs() < 1e-4, "{n}: {}", power(n, t_share));
        }
        assert_eq!(detectable(5, 0.01), None);
        assert_eq!(pairs_needed(0.001, 0.05), Some(FEWEST_PAIRS));
        assert_eq!(pairs_needed(0.01, 0.0), None);
        assert_eq!(pairs_needed(0.0, 0.01), Some(FEWEST_PAIRS));
    }
}
