//! What a verdict is about: a time, peak memory, or a number that the program itself prints.

use regex_lite::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::results::{self, Better, ResultFile};
use crate::clock::{LinuxPerf, Pmu};
use crate::machine::Machine;
use crate::model::Capability;
use crate::run::child::Exit;
use crate::run::counter::{CounterError, CounterEvent};
use crate::stats::robust::median;

/// Why there is no number to compare.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum MeasureError {
    /// This machine or its kernel has no such counter for us.
    #[error("cannot count {0}: {1}")]
    NotCounted(CounterEvent, String),
    /// The counter did not see the whole run.
    #[error(transparent)]
    Counter(#[from] CounterError),
    #[error("the expression `{0}` is not valid: {1}")]
    Expression(String, regex_lite::Error),
    #[error("nothing that it printed matches `{0}`")]
    NoMatch(String),
    #[error("`{0}` matched `{1}`, which is no number")]
    NoNumber(String, String),
    /// The output is not that of the benchmark library.
    #[error(transparent)]
    Results(#[from] results::ResultError),
    #[error("it printed no benchmark in {0}")]
    NoBenchmark(&'static str),
    /// Zero, a negative number, or none that is finite.
    #[error("it printed {0}, which is no amount above zero")]
    NotPositive(f64),
    /// Only amounts above zero have ratios; why there is none.
    #[error("{0}")]
    Absent(&'static str),
}

/// The amount of a run that a verdict is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Wall time, or processor time where the runs waited for the processor.
    #[default]
    Auto,
    /// Wall time from start to end of the process.
    Wall,
    /// Processor time in user mode.
    User,
    /// Processor time in the kernel.
    System,
    /// Processor time, user plus system.
    Cpu,
    /// Largest resident set.
    PeakMemory,
    /// A performance counter, in user mode.
    Counter {
        /// Event that is counted.
        event: CounterEvent,
    },
    /// `ns/op` of Go benchmarks that the program prints (geometric mean of the medians).
    GoBench,
    /// Real times of the google-benchmark JSON that it prints, likewise.
    GoogleBench,
    /// The first group (or the whole) of the first match in what it prints.
    Regex {
        /// Regular expression that the output is searched for.
        pattern: String,
        /// Whether more is better, as for rates.
        higher_is_better: bool,
    },
}

impl Measure {
    /// The amount as a noun for sentences, such as "wall time".
    #[must_use]
    pub fn noun(&self) -> &'static str {
        match self {
            Self::Auto | Self::Wall => "time",
            Self::User => "user time",
            Self::System => "system time",
            Self::Cpu => "processor time",
            Self::PeakMemory => "peak memory",
            Self::Counter { .. } => "the count",
            Self::GoBench | Self::GoogleBench | Self::Regex { .. } => "what is printed",
        }
    }

    /// Checks before anything runs: whether an expression is valid, whether there is such a counter.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), MeasureError> {
        match self {
            Self::Counter { event } if event.is_hardware() => {
                match Pmu::detect(&mut LinuxPerf, &Machine::detect()).hardware {
                    Capability::Present => Ok(()),
                    Capability::Absent { cause } => Err(MeasureError::NotCounted(*event, cause)),
                }
            }
            Self::Regex { pattern, .. } => compiled(pattern).map(drop),
            _ => Ok(()),
        }
    }

    /// The number that a finished run printed, turned so that less is better; `None` for a measure
    /// that is not printed.
    ///
    /// # Errors
    /// When there is no such number in its output.
    pub fn printed(&self, exit: &Exit) -> Result<Option<f64>, MeasureError> {
        let text = &exit.stdout.tail;
        let number = match self {
            Self::GoBench => of_series(results::parse("its output", text), "ns/op")?,
            Self::GoogleBench => of_series(results::parse("its output", text), "real ns")?,
            Self::Regex { pattern, higher_is_better } => {
                let found = matched(pattern, text)?;
                if *higher_is_better { 1.0 / found } else { found }
            }
            _ => return Ok(None),
        };
        if number.is_finite() && number > 0.0 {
            Ok(Some(number))
        } else {
            Err(MeasureError::NotPositive(number))
        }
    }
}

fn compiled(pattern: &str) -> Result<Regex, MeasureError> {
    Regex::new(pattern).map_err(|cause| MeasureError::Expression(pattern.into(), cause))
}

fn matched(pattern: &str, text: &str) -> Result<f64, MeasureError> {
    let word = compiled(pattern)?
        .captures(text)
        .and_then(|groups| groups.get(1).or_else(|| groups.get(0)))
        .map(|found| found.as_str())
        .ok_or_else(|| MeasureError::NoMatch(pattern.into()))?;
    let number = word.trim().parse();
    number.map_err(|_| MeasureError::NoNumber(pattern.into(), word.into()))
}

fn of_series(
    read: Result<ResultFile, results::ResultError>,
    unit: &'static str,
) -> Result<f64, MeasureError> {
    let logs: Vec<f64> = read?
        .series
        .iter()
        .filter(|s| s.unit == unit && s.better == Better::Lower)
        .filter_map(|s| median(&s.values))
        .map(f64::ln)
        .collect();
    if logs.is_empty() {
        return Err(MeasureError::NoBenchmark(unit));
    }
    Ok((logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::child::{Output, Status};

    fn exit(text: &str) -> Exit {
        let stdout = Output { tail: text.into(), ..Output::default() };
        Exit { stdout, ..Exit::of(Status::Code(0)) }
    }

    #[test]
    fn numbers_are_found_in_what_is_printed() {
        let go = exit("BenchmarkA 10 4 ns/op\nBenchmarkA 10 4 ns/op\nBenchmarkB 10 9 ns/op\n");
        assert!((Measure::GoBench.printed(&go).unwrap().unwrap() - 6.0).abs() < 1e-9);
        let regex =
            |p: &str, higher_is_better| Measure::Regex { pattern: p.into(), higher_is_better };
        let rate = exit("rate: 250 op/s\n");
        assert_eq!(regex(r"rate: (\d+)", false).printed(&rate).unwrap(), Some(250.0));
        assert_eq!(regex(r"rate: (\d+)", true).printed(&rate).unwrap(), Some(0.004));
        assert_eq!(Measure::Wall.printed(&rate).unwrap(), None);
        for (measure, want) in [
            (regex("speed", false), "nothing that it printed matches"),
            (regex("rate", false), "is no number"),
            (Measure::GoBench, "in no format"),
        ] {
            assert!(measure.printed(&rate).unwrap_err().to_string().contains(want), "{want}");
        }
        assert!(regex("(", false).check().unwrap_err().to_string().contains("not valid"));
    }
}
