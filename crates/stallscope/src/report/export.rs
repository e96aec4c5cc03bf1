//! Runs in the forms that hyperfine exports, for what reads those: JSON, CSV, a table in Markdown. Times are seconds.

use std::fmt::Write;

use serde::Serialize;
use serde_json::{Map, Value};

use super::{ReportError, markdown::cell};
use crate::compare::{Amounts, Arm, ArmRecord, Comparison, Ranking, RunSample};
use crate::foreign::escape_json;
use crate::stats::robust::median;
use crate::stats::student::mean_and_sd;

const SECOND_NS: f64 = 1e9;

/// A command and its runs in order of time.
type Runs<'a> = (&'a ArmRecord, Vec<&'a RunSample>);

/// What is exported of one command.
#[derive(Debug, Serialize)]
pub struct Exported {
    command: String,
    mean: f64,
    /// Absent for a single run.
    stddev: Option<f64>,
    median: f64,
    /// Absent where the kernel only guesses it.
    user: Option<f64>,
    system: Option<f64>,
    min: f64,
    max: f64,
    times: Vec<f64>,
    memory_usage_byte: Vec<u64>,
    exit_codes: Vec<Option<i32>>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    parameters: Map<String, Value>,
}

impl Exported {
    /// Both commands of a comparison.
    #[must_use]
    pub fn of_comparison(comparison: &Comparison) -> Vec<Self> {
        let runs = |arm: Arm| comparison.samples.iter().filter(move |run| run.plan.arm == arm);
        [Arm::A, Arm::B]
            .map(|arm| Self::of((&comparison.arms[arm.index()], runs(arm).collect())))
            .into()
    }

    /// All commands of a ranking, in the order given.
    #[must_use]
    pub fn of_ranking(ranking: &Ranking) -> Vec<Self> {
        let all = ranking.commands.iter();
        all.map(|command| Self::of((&command.arm, command.runs.iter().collect()))).collect()
    }

    fn of((arm, runs): Runs<'_>) -> Self {
        let seconds = |of: fn(&Amounts) -> Option<u64>| -> Option<Vec<f64>> {
            runs.iter().map(|run| of(&run.amounts).map(|ns| ns as f64 / SECOND_NS)).collect()
        };
        let mean = |times: &[f64]| times.iter().sum::<f64>() / times.len().max(1) as f64;
        let times = seconds(|a| Some(a.wall_ns)).unwrap_or_default();
        let text = |(name, value): (&String, &String)| (name.clone(), Value::from(value.clone()));
        Self {
            command: arm.display(),
            mean: mean(&times),
            stddev: (times.len() > 1).then(|| mean_and_sd(&times).1),
            median: median(&times).unwrap_or_default(),
            user: seconds(|a| a.user_ns).map(|all| mean(&all)),
            system: seconds(|a| a.system_ns).map(|all| mean(&all)),
            min: times.iter().copied().fold(f64::INFINITY, f64::min),
            max: times.iter().copied().fold(0.0, f64::max),
            memory_usage_byte: runs.iter().map(|run| run.amounts.peak_memory_bytes).collect(),
            exit_codes: runs.iter().map(|run| run.exit_code()).collect(),
            parameters: arm.parameters.iter().map(text).collect(),
            times,
        }
    }
}

/// As `--export-json` of hyperfine has it.
///
/// # Errors
/// [`ReportError::Encode`].
pub fn json(commands: &[Exported]) -> Result<String, ReportError> {
    #[derive(Serialize)]
    struct Document<'a> {
        results: &'a [Exported],
        /// Beside what hyperfine writes: its runs do not take turns, ours do.
        interleaved: bool,
    }
    let text = serde_json::to_string_pretty(&Document { results: commands, interleaved: true })?;
    Ok(escape_json(&text).into_owned() + "\n")
}

/// One line for each command.
#[must_use]
pub fn csv(commands: &[Exported]) -> String {
    let mut parameters: Vec<&str> = Vec::new();
    for name in commands.iter().flat_map(|command| command.parameters.keys()) {
        if !parameters.contains(&name.as_str()) {
            parameters.push(name);
        }
    }
    let mut out = String::from("command,mean,stddev,median,user,system,min,max");
    parameters.iter().for_each(|name| {
        let _ = write!(out, ",{}", quoted(&format!("parameter_{name}")));
    });
    out.push('\n');
    for one in commands {
        out += &quoted(&one.command);
        let numbers = [Some(one.mean), one.stddev, Some(one.median), one.user, one.system];
        for number in numbers.into_iter().chain([Some(one.min), Some(one.max)]) {
            let _ = write!(out, ",{}", number.map_or(String::new(), |n| n.to_string()));
        }
        for name in &parameters {
            let value = one.parameters.get(*name).and_then(Value::as_str).unwrap_or_default();
            let _ = write!(out, ",{}", quoted(value));
        }
        out.push('\n');
    }
    out
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// A table with the mean of each command and its ratio to the smallest, each with its standard deviation.
#[must_use]
pub fn markdown(commands: &[Exported]) -> String {
    let fastest = commands.iter().min_by(|a, b| a.mean.total_cmp(&b.mean));
    let Some(fastest) = fastest else { return String::new() };
    let (unit, scale, digits) = match fastest.mean {
        mean if mean >= 1.0 => ("s", 1.0, 3),
        mean if mean >= 1e-3 => ("ms", 1e3, 1),
        _ => ("µs", 1e6, 1),
    };
    let mut out = format!(
        "| Command | Mean [{unit}] | Min [{unit}] | Max [{unit}] | Relative |\n\
         |:---|---:|---:|---:|---:|\n"
    );
    for one in commands {
        let spread = |value: Option<f64>, digits: usize| {
            value.map_or(String::new(), |sd| format!(" ± {sd:.digits$}"))
        };
        let relative = one.mean / fastest.mean;
        let part = |of: &Exported| of.stddev.map(|sd| (sd / of.mean).powi(2));
        let relative_sd = part(one).zip(part(fastest)).map(|(a, b)| relative * (a + b).sqrt());
        let relative_sd = relative_sd.filter(|_| !std::ptr::eq(one, fastest));
        let _ = writeln!(
            out,
            "| `{}` | {:.digits$}{} | {:.digits$} | {:.digits$} | {relative:.2}{} |",
            cell(&one.command).replace('`', "'"),
            one.mean * scale,
            spread(one.stddev.map(|sd| sd * scale), digits),
            one.min * scale,
            one.max * scale,
            spread(relative_sd, 2),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::results;
    use crate::compare::simulate::{Noise, SimulatedMachine};
    use crate::compare::{Settings, compare};

    fn exported() -> Vec<Exported> {
        let mut machine = SimulatedMachine::new(Noise::Quiet, 8, 1);
        machine.effect_log = 2.0_f64.ln();
        let settings = Settings { pairs: 8, ..Settings::default() };
        let mut comparison = compare(&mut machine, &settings, &mut |_| {}).unwrap();
        comparison.arms[1].command = vec!["grep".into(), "a|b,c".into()];
        comparison.samples[0].failure = Some("exit code 3".into());
        comparison.samples[1].failure = Some("killed by SIGSEGV".into());
        Exported::of_comparison(&comparison)
    }

    #[test]
    fn what_is_exported_is_read_as_results_of_hyperfine() {
        let text = json(&exported()).unwrap();
        let file = results::parse("f", &text).unwrap();
        assert_eq!(file.series.len(), 2);
        assert!(file.series.iter().all(|s| s.unit == "s" && s.values.len() == 8));
        let value: Value = serde_json::from_str(&text).unwrap();
        let first = &value["results"][0];
        for field in ["mean", "stddev", "median", "user", "system", "min", "max"] {
            assert!(first[field].as_f64().is_some_and(|n| n > 0.0), "{field}");
        }
        let codes = |n: usize| value["results"][n]["exit_codes"].as_array().unwrap().clone();
        let all = [codes(0), codes(1)].concat();
        assert_eq!(all.iter().filter(|code| **code == 3).count(), 1);
        assert_eq!(all.iter().filter(|code| code.is_null()).count(), 1);
        assert!(first.get("parameters").is_none());
    }

    #[test]
    fn tables_hold_what_would_end_their_cells() {
        let commands = exported();
        let table = markdown(&commands);
        assert!(table.contains("| `grep 'a\\|b,c'` | ") && table.contains(" ± "), "{table}");
        assert_eq!(table.lines().filter(|line| line.ends_with(" 1.00 |")).count(), 1, "{table}");
        assert!(csv(&commands).contains("\"grep 'a|b,c'\",0.1"), "{}", csv(&commands));
    }
}
