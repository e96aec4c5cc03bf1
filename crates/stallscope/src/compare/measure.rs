//! What a verdict is about: a time, peak memory, or a number that the program itself prints.

use regex_lite::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::results::{self, Better, ResultFile};
use crate::clock::{LinuxPerf, Pmu};
use crate::machine::Machine;
use crate::model::Capability;
use crate::stats::robust::median;
use crate::trace::child::Exit;
use crate::trace::counter::CounterEvent;

/// What is compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// From start to end.
    #[default]
    Wall,
    /// Processor time in user mode.
    User,
    /// Processor time in the kernel.
    System,
    /// User plus system.
    Cpu,
    /// The largest resident set.
    PeakMemory,
    /// A performance counter, in user mode.
    Counter {
        /// Which.
        event: CounterEvent,
    },
    /// `ns/op` of Go benchmarks that the program prints (geometric mean of the medians).
    GoBench,
    /// Real times of the google-benchmark JSON that it prints, likewise.
    GoogleBench,
    /// The first group (or the whole) of the first match in what it prints.
    Regex {
        /// The expression.
        pattern: String,
        /// Whether more is better, as for rates.
        higher_is_better: bool,
    },
}

impl Measure {
    /// What changes, in words.
    #[must_use]
    pub fn noun(&self) -> &'static str {
        match self {
            Self::Wall => "time",
            Self::User => "user time",
            Self::System => "system time",
            Self::Cpu => "processor time",
            Self::PeakMemory => "peak memory",
            Self::Counter { .. } => "the count",
            Self::GoBench | Self::GoogleBench | Self::Regex { .. } => "what is printed",
        }
    }

    /// Whether the number comes from what the program prints.
    #[must_use]
    pub fn is_printed(&self) -> bool {
        matches!(self, Self::GoBench | Self::GoogleBench | Self::Regex { .. })
    }

    /// Checks before anything runs: whether an expression is valid, whether there is such a counter.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Counter { event } if event.is_hardware() => {
                match Pmu::detect(&mut LinuxPerf, &Machine::detect()).hardware {
                    Capability::Present => Ok(()),
                    Capability::Absent { cause } => Err(format!("cannot count {event}: {cause}")),
                }
            }
            Self::Regex { pattern, .. } => Regex::new(pattern)
                .map(|_| ())
                .map_err(|e| format!("the expression `{pattern}` is not valid: {e}")),
            _ => Ok(()),
        }
    }

    /// The number that a finished run printed, turned so that less is better; `None` for a measure
    /// that is not printed.
    ///
    /// # Errors
    /// When there is no such number in its output.
    pub fn printed(&self, exit: &Exit) -> Result<Option<f64>, String> {
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
            Err(format!("it printed {number}, which is no amount above zero"))
        }
    }
}

fn matched(pattern: &str, text: &str) -> Result<f64, String> {
    let regex = Regex::new(pattern).map_err(|e| e.to_string())?;
    let found = regex
        .captures(text)
        .and_then(|groups| groups.get(1).or_else(|| groups.get(0)))
        .ok_or_else(|| format!("nothing that it printed matches `{pattern}`"))?;
    let word = found.as_str();
    word.trim().parse().map_err(|_| format!("`{pattern}` matched `{word}`, which is no number"))
}

fn of_series(read: Result<ResultFile, results::ResultError>, unit: &str) -> Result<f64, String> {
    let file = read.map_err(|e| e.to_string())?;
    let logs: Vec<f64> = file
        .series
        .iter()
        .filter(|s| s.unit == unit && s.better == Better::Lower)
        .filter_map(|s| median(&s.values))
        .map(f64::ln)
        .collect();
    if logs.is_empty() {
        return Err(format!("it printed no benchmark in {unit}"));
    }
    Ok((logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::child::{Output, Status};

    fn exit(text: &str) -> Exit {
        Exit {
            wall_ns: 1,
            user_ns: 1,
            system_ns: 0,
            peak_memory_bytes: 0,
            off_processor: crate::trace::child::OffProcessor::default(),
            status: Status::Code(0),
            stdout: Output { tail: text.into(), ..Output::default() },
            left_behind: Vec::new(),
            stderr: Output::default(),
        }
    }

    #[test]
    fn numbers_are_found_in_what_is_printed() {
        let go = exit("BenchmarkA 10 4 ns/op\nBenchmarkA 10 4 ns/op\nBenchmarkB 10 9 ns/op\n");
        assert!((Measure::GoBench.printed(&go).unwrap().unwrap() - 6.0).abs() < 1e-9);
        let regex =
            |p: &str, higher_is_better| Measure::Regex { pattern: p.into(), higher_is_better };
        let rate = exit("rate: 250 op/s\n");
        assert_eq!(regex(r"rate: (\d+)", false).printed(&rate), Ok(Some(250.0)));
        assert_eq!(regex(r"rate: (\d+)", true).printed(&rate), Ok(Some(0.004)));
        assert_eq!(Measure::Wall.printed(&rate), Ok(None));
        for (measure, want) in [
            (regex("speed", false), "nothing that it printed matches"),
            (regex("rate", false), "is no number"),
            (Measure::GoBench, "in no format"),
        ] {
            assert!(measure.printed(&rate).unwrap_err().contains(want), "{want}");
        }
        assert!(regex("(", false).check().unwrap_err().contains("not valid"));
    }
}
