//! When to stop, as typed: the arguments that `compare`, `explain` and `sweep` share.

use std::time::Duration;

use clap::{Args, ValueEnum};
use stallscope::compare::Until;

use super::words;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum UntilArg {
    /// Any verdict but "inconclusive"
    Verdict,
    /// "equivalent", or that it is not
    Equivalent,
}

#[derive(Debug, Args)]
pub struct StopArgs {
    /// Stop when this is known (by a confidence sequence, from 10 pairs or rounds on; the number of runs is
    /// then the most)
    #[arg(long, value_enum, value_name = "WHAT")]
    until: Option<UntilArg>,
    /// Run for about this long instead of a number of runs; with --until at most for so long
    #[arg(long = "for", value_name = "DURATION", value_parser = words::duration)]
    budget: Option<Duration>,
}

impl StopArgs {
    pub fn until(&self) -> Option<Until> {
        self.until.map(|until| match until {
            UntilArg::Verdict => Until::Verdict,
            UntilArg::Equivalent => Until::Equivalent,
        })
    }

    pub fn budget_ms(&self) -> Option<u64> {
        self.budget.map(|budget| budget.as_millis().max(1) as u64)
    }

    /// Whether something other than a number of runs ends it.
    pub fn is_open_end(&self) -> bool {
        self.until.is_some() || self.budget.is_some()
    }
}
