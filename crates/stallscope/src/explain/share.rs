//! A part of a whole, never without saying of which whole.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::work::MOST;
use crate::model::Measurement;

/// What a share is a share of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Whole {
    /// What the slower build spends longer on the processor. All parts of it together are 100 %; what
    /// went the other way is negative.
    DifferenceInProcessorTime,
    /// All samples in one function.
    FunctionSamples,
    /// All samples in one loop.
    LoopSamples,
}

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DifferenceInProcessorTime => "the difference in processor time",
            Self::FunctionSamples => "its function's samples",
            Self::LoopSamples => "the loop's samples",
        })
    }
}

/// A part in per cent, with its whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Share {
    /// The part, with its interval.
    pub percent: Measurement,
    /// Of what.
    pub of: Whole,
}

impl Share {
    /// More than half of it, with all of the interval.
    pub(super) fn is_most(&self) -> bool {
        self.percent.low >= MOST
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Measurement { value, low, high, .. } = self.percent;
        write!(f, "{value:.1} % [{low:.1}, {high:.1}] of {}", self.of)
    }
}
