//! What blocked loads cost a loop: the larger of two times, not a sum.
//!
//! A blocked load waits until its store has been committed, the commit waits for the store to
//! retire, and retirement waits for the blocked load of an earlier iteration: loads that look
//! independent form a chain. When a load reads what was stored k iterations ago, k + 1 of these
//! waits overlap, so an iteration takes `max(own time, penalty / (k + 1))`. Measured on Cascade
//! Lake for k = 0 to 4 and 0 to 80 filler instructions: every cell within 2 %.
//! The price of a count alone (count times penalty) is wrong by up to the whole penalty wherever
//! the loop has other work to do.

use schemars::JsonSchema;
use serde::Serialize;

use crate::machine::PriceRange;

/// Core cycles that one iteration takes, with and without the blocked load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct IterationPrice {
    /// Cycles of a turn when every load is forwarded.
    pub own_cycles: f64,
    /// With it, at the low end of the penalty.
    pub low_cycles: f64,
    /// With it, at the high end of the penalty.
    pub high_cycles: f64,
}

impl IterationPrice {
    /// What the blocked load adds: least and most.
    #[must_use]
    pub fn extra_cycles(&self) -> (f64, f64) {
        (self.low_cycles - self.own_cycles, self.high_cycles - self.own_cycles)
    }
}

/// The law for a load that reads what was stored `reuse_iterations` iterations before, in a loop
/// whose iterations take `own_cycles` without it. `penalty` is the whole latency of a blocked
/// load, from store to load.
#[must_use]
pub fn blocked_iteration(
    own_cycles: f64,
    penalty: &PriceRange,
    reuse_iterations: u32,
) -> IterationPrice {
    let share = f64::from(reuse_iterations) + 1.0;
    let with = |penalty_cycles: f64| own_cycles.max(penalty_cycles / share);
    IterationPrice {
        own_cycles,
        low_cycles: with(penalty.low_cycles),
        high_cycles: with(penalty.high_cycles),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::PriceOrigin;

    fn penalty(cycles: f64) -> PriceRange {
        PriceRange {
            low_cycles: cycles,
            high_cycles: cycles,
            origin: PriceOrigin::Assumed,
            measured: None,
        }
    }

    /// Measured on Cascade Lake: (own time without overlap, cycles for k = 0 to 4).
    const MEASURED: [(f64, [f64; 5]); 4] = [
        (2.0, [14.0, 7.0, 4.7, 3.5, 2.8]),
        (5.1, [14.0, 7.0, 5.1, 5.1, 5.2]),
        (12.3, [14.0, 12.3, 12.2, 12.3, 12.3]),
        (23.2, [23.2, 23.2, 23.2, 23.1, 23.2]),
    ];

    #[test]
    fn the_law_gives_the_measured_table() {
        for (own, row) in MEASURED {
            for (k, measured) in (0..).zip(row) {
                let law = blocked_iteration(own, &penalty(14.0), k);
                assert!((law.low_cycles / measured - 1.0).abs() < 0.02, "{own} {k}: {law:?}");
            }
        }
    }

    #[test]
    fn work_hides_the_penalty() {
        let price = blocked_iteration(20.0, &penalty(14.0), 0);
        assert_eq!(price.extra_cycles(), (0.0, 0.0));
        let price = blocked_iteration(4.0, &penalty(14.0), 0);
        assert_eq!(price.extra_cycles(), (10.0, 10.0));
    }
}
