//! The delay curve: from where on a blocked load costs no more than a forwarded one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::case::{Case, FILLERS, STEPS, Served, delay};
use crate::model::Measurement;
use crate::probes::sampling::Cell;

/// A difference up to this is no cost.
const FREE_BELOW_CYCLES: f64 = 0.5;

/// Cost of a load at one distance from its store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DelayPoint {
    /// Dependent one-cycle steps, or independent instructions, between store and load.
    pub between: u32,
    /// A repetition in which two narrow stores feed the load.
    pub blocked: Option<Measurement>,
    /// A repetition in which one store holds it.
    pub forwarded: Option<Measurement>,
    /// A repetition in which the load reads other bytes, from the cache.
    pub cached: Option<Measurement>,
}

impl DelayPoint {
    /// What being blocked adds to being forwarded, core cycles.
    #[must_use]
    pub fn extra_cycles(&self) -> Option<f64> {
        Some(self.blocked.as_ref()?.value - self.forwarded.as_ref()?.value)
    }

    /// Whether the difference is none, as far as the two intervals can tell.
    fn is_free(&self) -> bool {
        let (Some(blocked), Some(forwarded)) = (&self.blocked, &self.forwarded) else {
            return false;
        };
        let spread = (blocked.high - blocked.low).max(forwarded.high - forwarded.low);
        blocked.value - forwarded.value <= FREE_BELOW_CYCLES + spread.min(FREE_BELOW_CYCLES / 2.0)
    }
}

/// Cost of loads by their distance from the store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DelayCurve {
    /// Over dependent one-cycle steps between the stored value and the load's address.
    pub steps: Vec<DelayPoint>,
    /// Over independent instructions between store and load.
    pub fillers: Vec<DelayPoint>,
    /// From this many cycles on it is free; absent where the curve does not reach zero, or a point
    /// behind it is missing.
    pub free_after_cycles: Option<u32>,
    /// The same in instructions; they also take time of their own, which hides the wait.
    pub free_after_instructions: Option<u32>,
}

impl DelayCurve {
    /// Collects the points.
    pub fn of(cases: &[Case], cells: &[Cell]) -> Self {
        let cycles = |wanted: &Case| {
            let at = cases.iter().position(|c| c == wanted)?;
            cells.get(at)?.cycles.clone()
        };
        let point = |between: u32, steps: u32, fillers: u32| DelayPoint {
            between,
            blocked: cycles(&delay(Served::Blocked, steps, fillers)),
            forwarded: cycles(&delay(Served::Forwarded, steps, fillers)),
            cached: cycles(&delay(Served::Cache, steps, fillers)),
        };
        let steps: Vec<DelayPoint> = STEPS.iter().map(|&n| point(n, n, 0)).collect();
        let fillers: Vec<DelayPoint> = FILLERS.iter().map(|&n| point(n, 0, n)).collect();
        let (free_after_cycles, free_after_instructions) = (free_from(&steps), free_from(&fillers));
        Self { steps, fillers, free_after_cycles, free_after_instructions }
    }
}

/// The first point of the free tail.
fn free_from(points: &[DelayPoint]) -> Option<u32> {
    points.iter().rev().take_while(|p| p.is_free()).last().map(|p| p.between)
}
