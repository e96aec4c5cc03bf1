//! Holds what `explain` said of a pair against what was planted in it.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;
use stallscope::compare::Arm;
use stallscope::explain::{Answer, Explanation};

use super::definition::{Gallery, Pair};
use crate::commands::words::change;

/// Below this, as a log ratio, a difference is no effect of what was planted: placement alone makes as much.
const NO_EFFECT: f64 = 0.03;

/// One of the two pairs of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// The one of the question.
    Case,
    /// The one like it with another cause.
    Trap,
}

impl Which {
    pub fn of(self, pairs: &Gallery) -> &Pair {
        match self {
            Self::Case => &pairs.case,
            Self::Trap => &pairs.trap,
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Case => "case",
            Self::Trap => "trap",
        })
    }
}

/// How the two relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// What is planted was told.
    Named,
    /// What is planted costs nothing here.
    NoEffect,
    /// There is a difference, and no cause was told.
    Open,
    /// Another cause was told.
    OtherCause,
    /// The cause of the case was told of its trap.
    StoryOfTheCase,
}

/// What came of a case.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CaseReport {
    /// Its name.
    pub case: &'static str,
    /// Which of its pairs was explained.
    pub pair: Which,
    /// What may be told as the cause.
    pub expected: Vec<Answer>,
    /// How that and `answer` in the explanation relate.
    pub verdict: Verdict,
    /// The same as a sentence.
    pub sentence: String,
    /// What was found.
    pub explanation: Explanation,
}

impl CaseReport {
    pub(super) fn of(
        case: &'static str,
        (pairs, pair): (&Gallery, Which),
        explanation: Explanation,
    ) -> Self {
        let log = explanation.comparison.analysis.wall.log_ratio;
        let is_slower = explanation.slow_arm == Some(Arm::B);
        let verdict = judge(pairs, pair, explanation.answer, is_slower.then_some(log));
        let expected = pair.of(pairs).says.clone();
        let sentence = sentence(pair, verdict, &expected, &explanation);
        Self { case, pair, expected, verdict, sentence, explanation }
    }
}

/// `slower_log` is by how much AFTER is slower, if it is.
fn judge(pairs: &Gallery, pair: Which, answer: Answer, slower_log: Option<f64>) -> Verdict {
    // What may be told of the trap is not its case's story, even where one answer is open enough for both.
    let is_story = pair == Which::Trap && pairs.case.says.contains(&answer) && !answer.is_open();
    if is_story {
        return Verdict::StoryOfTheCase;
    }
    match slower_log {
        None => Verdict::NoEffect,
        Some(_) if pair.of(pairs).says.contains(&answer) => Verdict::Named,
        Some(log) if log < NO_EFFECT => Verdict::NoEffect,
        Some(_) if answer.is_open() => Verdict::Open,
        Some(_) => Verdict::OtherCause,
    }
}

fn sentence(pair: Which, verdict: Verdict, expected: &[Answer], found: &Explanation) -> String {
    let by = change(found.comparison.analysis.judged(), 0);
    let answer = found.answer;
    let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
    let expected = expected.join(" or ");
    match (pair, verdict) {
        (Which::Case, Verdict::Named) => format!("this machine has it: {by}, {answer}"),
        (Which::Case, Verdict::NoEffect) => format!("this machine has it not ({by})"),
        (Which::Trap, Verdict::Named) => format!("the trap is silent: {by}, {answer}"),
        (Which::Trap, Verdict::NoEffect) => format!("the trap is silent and has no effect ({by})"),
        (Which::Trap, Verdict::Open) => {
            format!("the trap is silent: explain says {answer}, the trap has {expected} ({by})")
        }
        (Which::Trap, Verdict::StoryOfTheCase) => {
            format!("the trap told the case's story: {answer}; it has {expected} ({by})")
        }
        _ => format!("explain says {answer}, the {pair} expects {expected} ({by})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::case::definition::{Kind, all};

    fn answer(word: &str) -> Answer {
        serde_json::from_value(word.into()).unwrap()
    }

    #[test]
    fn only_what_is_planted_counts_as_named_and_never_the_story_for_the_trap() {
        let cases = all().unwrap();
        let case = cases.iter().find(|c| c.id == "sorted-array").unwrap();
        let Kind::Gallery(pairs) = &case.definition.kind else { panic!("a pair") };
        let of = |pair, word, log| judge(pairs, pair, answer(word), log);
        let (case, trap) = (Which::Case, Which::Trap);
        assert_eq!(of(case, "mispredicted_branches", Some(0.4)), Verdict::Named);
        // A small difference with the right cause is what is planted; without a cause it is placement.
        assert_eq!(of(case, "mispredicted_branches", Some(0.02)), Verdict::Named);
        assert_eq!(of(case, "slower_work", Some(0.029)), Verdict::NoEffect);
        assert_eq!(of(case, "slower_work", Some(0.031)), Verdict::Open);
        assert_eq!(of(case, "divisions", Some(0.4)), Verdict::OtherCause);
        assert_eq!(of(case, "divisions", None), Verdict::NoEffect);
        assert_eq!(of(trap, "mispredicted_branches", Some(0.4)), Verdict::StoryOfTheCase);
        assert_eq!(of(trap, "data_cache_misses", Some(0.4)), Verdict::Named);
        assert_eq!(of(trap, "slower_work", Some(0.4)), Verdict::Open);
    }
}
