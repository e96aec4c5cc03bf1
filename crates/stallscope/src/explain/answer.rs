//! What an explanation comes to, in one word: for what judges explanations without reading sentences.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Conclusion, Explanation, Removed};
use crate::sim::core::Mechanism;

/// The cause that is told first, or how it ended where none is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Answer {
    /// What causes the difference.
    Cause(Removed),
    /// Why no cause is told.
    Ended(Conclusion),
}

impl Answer {
    /// Whether nothing is claimed about the cause that could be wrong.
    #[must_use]
    pub fn is_open(self) -> bool {
        use Conclusion::{InParts, NoMechanism, NotLocated, NothingToExplain, SlowerWork};
        let open = [InParts, NoMechanism, NotLocated, NothingToExplain, SlowerWork];
        matches!(self, Self::Ended(conclusion) if open.contains(&conclusion))
    }

    pub(super) fn of(explanation: &Explanation) -> Self {
        if explanation.conclusion != Conclusion::Mechanism {
            return Self::Ended(explanation.conclusion);
        }
        let proved = explanation.confirmed_cure().map(|cure| cure.mechanism);
        // Loads that are found by their shape are told before what the model names.
        let blocked = Removed::Mechanism(Mechanism::BlockedLoads);
        let named = explanation.named_ledger().and_then(|ledger| ledger.named());
        let named = named.filter(|_| explanation.causes.is_empty());
        let named = named.map(|line| Removed::Mechanism(line.mechanism));
        Self::Cause(proved.or(named).unwrap_or(blocked))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cause(cause) => return cause.fmt(f),
            Self::Ended(Conclusion::NothingToExplain) => "nothing",
            Self::Ended(Conclusion::Mechanism) => "a mechanism",
            Self::Ended(Conclusion::MoreWork) => "more work",
            Self::Ended(Conclusion::SlowerWork) => "slower work",
            Self::Ended(Conclusion::Kernel) => "the kernel",
            Self::Ended(Conclusion::InParts) => "several parts",
            Self::Ended(Conclusion::NotRunning) => "waiting",
            Self::Ended(Conclusion::NoMechanism) => "no cause",
            Self::Ended(Conclusion::NotLocated) => "no place",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_written_as_one_word_and_read_again() {
        for word in ["blocked_loads", "code_alignment", "shared_lines", "more_work", "slower_work"]
        {
            let text = format!("\"{word}\"");
            let answer: Answer = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&answer).unwrap(), text);
            assert_eq!(answer.is_open(), word == "slower_work");
        }
        assert!(serde_json::from_str::<Answer>("\"magic\"").is_err());
    }
}
