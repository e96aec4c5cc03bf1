//! Do two clocks of the kernel agree on how long something took?
//!
//! *Effect.* `CLOCK_MONOTONIC`, which runs are timed with, is steered: while it is slewed, or in a guest whose clock is
//! wrong, a second is not a second, and a jump of it falls on whatever runs at that moment.
//!
//! *Measurable sign.* `CLOCK_MONOTONIC_RAW` is not steered. NTP slews by 500 millionths at the most, so that a larger
//! disagreement over some time is a broken clock.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    steered: Duration,
    free: Duration,
}

impl Pace {
    /// Now; `None` where the kernel lacks one of them.
    #[must_use]
    pub fn now() -> Option<Self> {
        let read = |clock| clock_gettime(clock).ok().map(Duration::from);
        Some(Self {
            steered: read(ClockId::CLOCK_MONOTONIC)?,
            free: read(ClockId::CLOCK_MONOTONIC_RAW)?,
        })
    }

    /// Logarithm of what the steered clock says has passed since then over what the free one says; `None` where
    /// nothing has.
    #[must_use]
    pub fn log_since(&self, earlier: &Self) -> Option<f64> {
        let passed = |now: Duration, then| now.checked_sub(then).map(|d| d.as_secs_f64());
        let ratio = passed(self.steered, earlier.steered)? / passed(self.free, earlier.free)?;
        (ratio > 0.0 && ratio.is_finite()).then(|| ratio.ln())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_runs_fast_shows_and_one_that_stands_says_nothing() {
        let at = |steered, free| Pace {
            steered: Duration::from_millis(steered),
            free: Duration::from_millis(free),
        };
        let log = at(2100, 2000).log_since(&at(0, 0)).unwrap();
        assert!((log - 1.05_f64.ln()).abs() < 1e-12);
        assert_eq!(at(5, 5).log_since(&at(5, 5)), None);
        assert_eq!(at(4, 5).log_since(&at(5, 4)), None);
    }
}
