//! How the builds were made, as far as their files tell: other flags are the plainest cause of all.
//!
//! Asked is the unit of the function that holds most of the difference; where debug information says nothing, the
//! `.comment` of the files. Only what differs is kept. It is a fact about the files and never the cause by itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::FunctionRow;
use super::cause::LEAST_PART;
use crate::code::{DebugInfo, Image, Producer, comments};
use crate::compare::Arm;

/// Flags of a build that are listed: `-march=native` is written as some eighty.
const MOST_FLAGS: usize = 8;

/// What the files say of how they were made, where they differ in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Built {
    /// The function whose unit was made so; absent where it is told of the files as a whole.
    pub function: Option<String>,
    /// Compilers and flags that only BEFORE and that only AFTER was made with.
    pub only: [Vec<String>; 2],
}

impl Built {
    /// By the function with most of the difference that both builds tell of, else by the files.
    pub(super) fn of(
        images: &[Image; 2],
        debug: &[DebugInfo<'_>; 2],
        rows: &[FunctionRow],
    ) -> Option<Self> {
        let told = rows
            .iter()
            .filter(|row| row.share_of_difference.percent.value >= LEAST_PART)
            .filter_map(|row| {
                let of = |arm: Arm| debug[arm.index()].producer(row.place.function(arm)?.start);
                Some((row.place.name().to_owned(), [of(Arm::A)?, of(Arm::B)?]))
            });
        let mut told = told.peekable();
        if told.peek().is_none() {
            return differing(None, images.each_ref().map(comments));
        }
        let of_function =
            |(name, both): (String, [Producer; 2])| differing(Some(name), both.map(words));
        told.find_map(of_function)
    }

    /// How the slow build was made otherwise than the fast one.
    pub(super) fn sentence(&self, slow: Arm) -> String {
        let [here, there] = [slow, slow.other()].map(|arm| listed(&self.only[arm.index()]));
        let other = slow.other().build_name();
        match (here.is_empty(), there.is_empty()) {
            (false, false) => format!("it was built with {here} ({other} with {there})"),
            (false, true) => format!("it was built with {here}, which {other} was not"),
            (true, _) => format!("it was built without {there}, which {other} has"),
        }
    }
}

fn words(producer: Producer) -> Vec<String> {
    [producer.compiler].into_iter().chain(producer.flags).collect()
}

/// What each has that the other has not.
fn differing(function: Option<String>, [a, b]: [Vec<String>; 2]) -> Option<Built> {
    let without = |these: &[String], others: &[String]| -> Vec<String> {
        these.iter().filter(|word| !others.contains(word)).cloned().collect()
    };
    let only = [without(&a, &b), without(&b, &a)];
    only.iter().any(|only| !only.is_empty()).then_some(Built { function, only })
}

fn listed(words: &[String]) -> String {
    let more = words.len().saturating_sub(MOST_FLAGS);
    let shown = words[..words.len() - more].join(" ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence(before: &str, after: &str, slow: Arm) -> Option<String> {
        let both = [before, after].map(|text| words(Producer::of(text)));
        differing(None, both).map(|built| built.sentence(slow))
    }

    #[test]
    fn only_what_differs_is_told() {
        let said = sentence("GNU C17 12.2.0 -g -O2", "GNU C17 12.2.0 -O0", Arm::B);
        assert_eq!(said.unwrap(), "it was built with -O0 (BEFORE with -O2)");
        let said = sentence("GNU C17 12.2.0 -O3", "GNU C17 12.2.0 -O3 -fno-inline", Arm::B);
        assert_eq!(said.unwrap(), "it was built with -fno-inline, which BEFORE was not");
        let said = sentence(
            "Go cmd/compile go1.26.8; -l regabi",
            "Go cmd/compile go1.26.8; regabi",
            Arm::A,
        );
        assert_eq!(said.unwrap(), "it was built with -l, which AFTER was not");
        assert_eq!(sentence("clang version 16 -g", "clang version 16", Arm::A), None);
        let said = sentence("clang version 16", "GNU C17 12.2.0 -O2", Arm::B);
        assert_eq!(
            said.unwrap(),
            "it was built with GNU C17 12.2.0 -O2 (BEFORE with clang version 16)"
        );
    }

    #[test]
    fn what_the_slow_build_lacks_is_told_and_long_lists_are_cut() {
        let native: Vec<String> = (0..80).map(|n| format!("-mavx{n}")).collect();
        let said =
            sentence("GNU C17 12 -O2", &format!("GNU C17 12 -O2 {}", native.join(" ")), Arm::A);
        let said = said.unwrap();
        assert!(
            said.starts_with("it was built without -mavx0 -mavx1 ")
                && said.ends_with("-mavx7 and 72 more, which AFTER has"),
            "{said}"
        );
    }
}
