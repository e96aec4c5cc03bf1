//! The arithmetic of samples; no clocks, no processes, no opinions. The one place for quantiles,
//! ranks and tests.
//!
//! Comparisons work on log ratios of pairs, `ln(t_B / t_A)`: a program that is twice as fast
//! and one that is twice as slow are equally far from zero, and what both runs of a pair share (a
//! drifting clock, a busy neighbour) cancels. The estimate is Hodges–Lehmann's pseudo-median with
//! the interval that belongs to the signed-rank test: it keeps its coverage under spikes, where
//! means and bootstraps do not.

pub mod families;
pub mod power;
pub mod random_effects;
pub mod rank_sum;
pub mod ranks;
pub mod robust;
pub mod shares;
pub mod signed_rank;
pub mod student;
pub mod welch;

/// The error probability of every interval and test of a comparison, two-sided.
pub const ALPHA: f64 = 0.05;
/// The power that planning asks for.
pub const POWER: f64 = 0.80;

/// The 97.5 % point of the normal distribution.
pub const Z: f64 = 1.959_963_984_540_054;

/// `part` of `whole` in percent; 0 of nothing.
#[must_use]
pub fn percent(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

/// The standard normal distribution function.
#[must_use]
pub fn normal_cdf(x: f64) -> f64 {
    0.5 * statrs::function::erf::erfc(-x / std::f64::consts::SQRT_2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_of_nothing_is_nothing_and_half_of_the_normal_lies_below_zero() {
        assert_eq!(
            [percent(1, 4), percent(3, 3), percent(0, 7), percent(0, 0)],
            [25.0, 100.0, 0.0, 0.0]
        );
        assert_eq!(normal_cdf(0.0), 0.5);
        assert!((normal_cdf(Z) - 0.975).abs() < 1e-9 && (normal_cdf(-Z) - 0.025).abs() < 1e-9);
    }
}
