//! `--fail-if slower:2%`: when a command shall fail, and with which exit code.

use stallscope::compare::Decision;

use super::words;
use crate::context::Outcome;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gate {
    /// The word that fails.
    pub word: Decision,
    /// The smallest effect of interest as a share.
    pub limit: f64,
}

impl Gate {
    /// `slower:2%` or `faster:1%`; `slower` alone means 1 %.
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (word, limit) = text.split_once(':').unwrap_or((text, "1%"));
        let word = match word {
            "slower" => Decision::Slower,
            "faster" => Decision::Faster,
            _ => return Err("write slower:2% (or faster:2%)".into()),
        };
        Ok(Self { word, limit: words::share(limit)? })
    }

    /// The outcome for these words: any that fails, else any that is open, else fine.
    pub fn outcome(self, decisions: &[Decision]) -> Outcome {
        if decisions.contains(&self.word) {
            Outcome::Gated
        } else if decisions.contains(&Decision::Inconclusive) {
            Outcome::Inconclusive
        } else {
            Outcome::Fine
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_read_and_answer() {
        let gate = Gate::parse("slower:2%").unwrap();
        assert_eq!(gate, Gate { word: Decision::Slower, limit: 0.02 });
        assert_eq!(Gate::parse("faster").unwrap().limit, 0.01);
        for wrong in ["", "bigger:2%", "slower:", "slower:2", "slower:x"] {
            assert!(Gate::parse(wrong).is_err(), "{wrong}");
        }
        use Decision::{Equivalent, Faster, Inconclusive, Slower};
        assert_eq!(gate.outcome(&[Faster, Equivalent]), Outcome::Fine);
        assert_eq!(gate.outcome(&[Inconclusive, Slower]), Outcome::Gated);
        assert_eq!(gate.outcome(&[Faster, Inconclusive]), Outcome::Inconclusive);
    }
}
