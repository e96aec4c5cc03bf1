//! How much is known about a conclusion, and what could not be found out.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Evidence grades, weakest first. A report always prints the grade beside the claim.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Grade {
    /// The code has the shape that costs.
    Pattern,
    /// And a probe measured the penalty on this machine.
    Priced,
    /// And a trace or model of this run counted how often it happens.
    Counted,
    /// And a hardware counter, calibrated on this machine, saw it.
    Observed,
    /// And a build or patched copy without it recovers the time.
    Confirmed,
}

impl Grade {
    /// The word that reports use, and that the JSON uses.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Pattern => "pattern",
            Self::Priced => "priced",
            Self::Counted => "counted",
            Self::Observed => "observed",
            Self::Confirmed => "confirmed",
        }
    }

    /// What the grade means, as the end of the sentence "it is known that ...".
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Pattern => "the code has the shape that costs",
            Self::Priced => "a probe measured the penalty on this machine",
            Self::Counted => "a trace of this run counted how often it happens",
            Self::Observed => "a calibrated hardware counter saw it",
            Self::Confirmed => "a build, or a run of this one, without it recovers the time",
        }
    }
}

impl fmt::Display for Grade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Something the machine can do, or the reason why it cannot. A missing capability is a
/// value that reaches the report: never a crash, never silence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// It works here.
    Present,
    /// It does not, and why, in words that tell the user what would help (or that nothing would).
    Absent {
        /// The cause, as a full clause without a final stop.
        cause: String,
    },
}

impl Capability {
    /// An absent capability with its cause.
    pub fn absent(cause: impl Into<String>) -> Self {
        Self::Absent { cause: cause.into() }
    }

    /// Whether it works here.
    #[must_use]
    pub fn is_present(&self) -> bool {
        matches!(self, Self::Present)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grades_are_ordered_weakest_first() {
        assert!(Grade::Pattern < Grade::Priced);
        assert!(Grade::Counted < Grade::Observed);
        assert!(Grade::Observed < Grade::Confirmed);
        assert_eq!(serde_json::to_string(&Grade::Pattern).unwrap(), "\"pattern\"");
    }
}
