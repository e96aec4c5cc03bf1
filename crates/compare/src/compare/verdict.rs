//! The one word, and when not to say it.
//!
//! * *equivalent*: the whole 95 % interval lies inside ±δ, the smallest effect of interest. That is
//!   the two one-sided tests (TOST) at 2.5 % each, stricter than the customary 5 %.
//! * *slower*, *faster*: the interval excludes zero **and** the estimate reaches δ.
//! * *inconclusive*: everything else, with what could have been seen and what it would take.
//!
//! With fewer than six pairs no exact two-sided test reaches 5 %, so nothing is ever concluded.
//! A true effect of exactly δ is called by its name in half of the comparisons at best, because the
//! estimate falls on either side of δ: choose δ as what may be overlooked.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::ALPHA;
use crate::stats::power::{FEWEST_PAIRS, detectable, pairs_needed};
use crate::stats::signed_rank::Interval;
use crate::stats::student::t_quantile;

/// The verdict in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// B takes more time than A, by an amount that matters.
    Slower,
    /// B takes less time than A, by an amount that matters.
    Faster,
    /// Any difference is smaller than what matters.
    Equivalent,
    /// The samples do not decide.
    Inconclusive,
}

impl std::fmt::Display for Decision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Slower => "slower",
            Self::Faster => "faster",
            Self::Equivalent => "equivalent",
            Self::Inconclusive => "inconclusive",
        })
    }
}

/// Why a comparison is inconclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Doubt {
    /// Fewer than six pairs: no exact test can reach p < 0.05.
    TooFewPairs,
    /// The interval holds zero and also effects that matter.
    TooNoisy,
    /// There is a difference, but whether it is large enough to matter is open.
    RealButSmall,
    /// Both arms ran the same bytes with the same arguments: whatever differs, it is not the program.
    IdenticalFiles,
    /// Both need less memory than what is seen of it.
    HiddenMemory,
}

/// The word with its reasons.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The verdict in one word.
    pub decision: Decision,
    /// Why there is none, when inconclusive.
    pub doubt: Option<Doubt>,
    /// The smallest effect that these pairs show with 80 % power, as a log ratio; absent below six
    /// pairs.
    pub detectable_log: Option<f64>,
    /// Pairs that would show the smallest effect of interest with 80 % power; absent above a million.
    pub pairs_needed: Option<u64>,
}

impl Verdict {
    /// Takes back "slower" and "faster" where many questions were asked, and this answer may be chance.
    pub(super) fn doubt_noise(&mut self) {
        self.doubt_difference(Doubt::TooNoisy);
    }

    /// Takes back every word about memory that is not seen.
    pub(super) fn doubt_memory(&mut self) {
        (self.decision, self.doubt) = (Decision::Inconclusive, Some(Doubt::HiddenMemory));
        (self.detectable_log, self.pairs_needed) = (None, None);
    }

    /// Takes back "slower" and "faster" where both arms are byte for byte the same.
    pub(super) fn doubt_identical_files(&mut self) {
        self.doubt_difference(Doubt::IdenticalFiles);
    }

    fn doubt_difference(&mut self, doubt: Doubt) {
        if matches!(self.decision, Decision::Slower | Decision::Faster) {
            (self.decision, self.doubt) = (Decision::Inconclusive, Some(doubt));
        }
    }
}

/// Judges an interval of `pairs` log ratios against `delta_log`, the smallest effect of interest.
#[must_use]
pub fn judge(interval: &Interval, pairs: usize, pair_sd_log: f64, delta_log: f64) -> Verdict {
    let excludes_zero = interval.low > 0.0 || interval.high < 0.0;
    let inside = interval.low > -delta_log && interval.high < delta_log;
    let (decision, doubt) = if pairs < FEWEST_PAIRS {
        (Decision::Inconclusive, Some(Doubt::TooFewPairs))
    } else if inside {
        (Decision::Equivalent, None)
    } else if !excludes_zero {
        (Decision::Inconclusive, Some(Doubt::TooNoisy))
    } else if interval.centre >= delta_log {
        (Decision::Slower, None)
    } else if interval.centre <= -delta_log {
        (Decision::Faster, None)
    } else {
        (Decision::Inconclusive, Some(Doubt::RealButSmall))
    };
    let noise_log = pair_sd_log.max(implied_sd(interval, pairs));
    Verdict {
        decision,
        doubt,
        detectable_log: detectable(pairs, noise_log),
        pairs_needed: pairs_needed(noise_log, delta_log).map(|n| n as u64),
    }
}

/// The spread of normal noise that would give an interval this wide. Spikes widen the interval and
/// leave the robust spread alone; planning with the latter would promise what the former denies.
fn implied_sd(interval: &Interval, pairs: usize) -> f64 {
    let n = pairs as f64;
    let critical = t_quantile(1.0 - ALPHA / 2.0, n - 1.0).unwrap_or(f64::INFINITY);
    let width = 0.5 * interval.high - 0.5 * interval.low;
    if width.is_finite() && width < 1e6 { width * n.sqrt() / critical } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(low: f64, centre: f64, high: f64, pairs: usize) -> (Decision, Option<Doubt>) {
        let interval = Interval { centre, low, high, confidence: 0.95 };
        let v = judge(&interval, pairs, 0.01, 0.01);
        (v.decision, v.doubt)
    }

    #[test]
    fn every_word_has_its_interval() {
        assert_eq!(word(0.011, 0.02, 0.03, 20), (Decision::Slower, None));
        assert_eq!(word(0.002, 0.012, 0.03, 20), (Decision::Slower, None));
        assert_eq!(word(-0.03, -0.02, -0.011, 20), (Decision::Faster, None));
        // Faster and slower have one threshold.
        assert_eq!(word(-0.03, -0.012, -0.002, 20), (Decision::Faster, None));
        let small = (Decision::Inconclusive, Some(Doubt::RealButSmall));
        assert_eq!(word(-0.02, -0.007, -0.002, 20), small);
        assert_eq!(word(-0.004, 0.0, 0.004, 20), (Decision::Equivalent, None));
        assert_eq!(word(0.002, 0.004, 0.006, 20), (Decision::Equivalent, None));
        assert_eq!(word(-0.02, 0.0, 0.004, 20), (Decision::Inconclusive, Some(Doubt::TooNoisy)));
        assert_eq!(word(0.002, 0.007, 0.02, 20), small);
        assert_eq!(word(0.5, 0.6, 0.7, 5), (Decision::Inconclusive, Some(Doubt::TooFewPairs)));
    }

    #[test]
    fn thresholds_belong_to_one_side() {
        let small = (Decision::Inconclusive, Some(Doubt::RealButSmall));
        let noisy = (Decision::Inconclusive, Some(Doubt::TooNoisy));
        // The estimate reaches what matters; an interval that touches zero or what matters does not exclude it.
        assert_eq!(word(0.002, 0.01, 0.03, 20), (Decision::Slower, None));
        assert_eq!(word(-0.03, -0.01, -0.002, 20), (Decision::Faster, None));
        assert_eq!(word(0.0, 0.02, 0.03, 20), noisy);
        assert_eq!(word(-0.03, -0.02, 0.0, 20), noisy);
        assert_eq!(word(-0.01, 0.0, 0.004, 20), noisy);
        assert_eq!(word(-0.004, 0.0, 0.01, 20), noisy);
        assert_eq!(word(0.002, 0.009, 0.01, 20), small);
        assert_eq!(word(0.011, 0.02, 0.03, 6), (Decision::Slower, None));
        assert_eq!(word(-0.004, 0.0, 0.004, 5).1, Some(Doubt::TooFewPairs));
    }

    #[test]
    fn a_word_is_taken_back_only_where_there_is_one() {
        let interval =
            |low, high| Interval { centre: 0.5 * (low + high), low, high, confidence: 0.95 };
        let judged = |low, high| judge(&interval(low, high), 20, 0.01, 0.01);
        for (low, high) in [(0.02, 0.03), (-0.03, -0.02)] {
            let mut verdict = judged(low, high);
            verdict.doubt_identical_files();
            assert_eq!(verdict.doubt, Some(Doubt::IdenticalFiles));
            assert_eq!(verdict.decision, Decision::Inconclusive);
            verdict = judged(low, high);
            verdict.doubt_noise();
            assert_eq!(verdict.doubt, Some(Doubt::TooNoisy));
        }
        let mut equal = judged(-0.004, 0.004);
        equal.doubt_noise();
        assert_eq!((equal.decision, equal.doubt), (Decision::Equivalent, None));
        let words =
            [Decision::Slower, Decision::Faster, Decision::Equivalent, Decision::Inconclusive];
        assert_eq!(
            words.map(|w| w.to_string()),
            ["slower", "faster", "equivalent", "inconclusive"]
        );
    }

    #[test]
    fn an_interval_tells_the_noise_that_it_comes_from() {
        // Student's interval of 16 pairs with noise of 2 %: the 97.5 % point for 15 is 2.13145.
        let reach = 2.131_449_546 * 0.02 / 4.0;
        let of = |low, high, pairs| {
            implied_sd(&Interval { centre: 0.0, low, high, confidence: 0.95 }, pairs)
        };
        assert!((of(0.1 - reach, 0.1 + reach, 16) - 0.02).abs() < 1e-9);
        assert_eq!([of(-f64::MAX, f64::MAX, 16), of(-1e6, 1e6, 16), of(-0.1, 0.1, 1)], [0.0; 3]);
    }

    #[test]
    fn planning_goes_with_every_verdict() {
        let interval = Interval { centre: 0.0, low: -0.009, high: 0.009, confidence: 0.95 };
        let v = judge(&interval, 20, 0.02, 0.01);
        assert_eq!(v.pairs_needed, Some(36));
        assert!((0.012..0.016).contains(&v.detectable_log.unwrap()), "{v:?}");
        let wide = Interval { low: -0.03, high: 0.03, ..interval };
        assert!(judge(&wide, 20, 0.02, 0.01).detectable_log.unwrap() > 0.03);
        assert_eq!(judge(&interval, 4, 0.02, 0.01).detectable_log, None);
    }
}
