//! Other tools' results: read them, judge them again, say what they cannot show.
//!
//! One reader per format, each from text to [`Series`]; [`judge`] compares two files series by
//! series with the test that benchstat uses; [`Threat`] names what a careful reader would hold
//! against the numbers. Readers are tolerant of what they do not know and strict about what they
//! use: a number that is none, an unknown unit and a file cut in half are errors with a place.

mod columns;
mod criterion;
mod error;
mod go;
mod google;
mod hyperfine;
mod judge;
mod per_process;
mod perf_stat;
mod pytest;
mod reach;
mod threats;
mod units;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::fingerprint;
use crate::foreign;

pub use error::ResultError;
pub use judge::{Centre, Change, FileRecord, Geomean, Judgement, Row, judge};
pub use threats::Threat;

/// Files above this are refused: no benchmark writes that much.
const MOST_BYTES: u64 = 16 << 20;

/// Who wrote a file of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// `go test -bench`, as text.
    Go,
    /// google-benchmark, `--benchmark_format=json` or `csv`.
    GoogleBenchmark,
    /// `hyperfine --export-json`.
    Hyperfine,
    /// A criterion folder (`target/criterion` or one below it).
    Criterion,
    /// JMH, `-rf json`.
    Jmh,
    /// pytest-benchmark, `--benchmark-json`.
    PytestBenchmark,
    /// pyperf, `-o FILE`.
    Pyperf,
    /// BenchmarkDotNet, `--exporters json`.
    BenchmarkDotNet,
    /// `perf stat -x,` or `perf stat -j`.
    PerfStat,
    /// Numbers in columns, with a heading or without.
    Csv,
    /// One number on each line.
    Numbers,
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Go => "go test -bench",
            Self::GoogleBenchmark => "google-benchmark",
            Self::Hyperfine => "hyperfine JSON",
            Self::Criterion => "a criterion folder",
            Self::Jmh => "JMH JSON",
            Self::PytestBenchmark => "pytest-benchmark JSON",
            Self::Pyperf => "pyperf JSON",
            Self::BenchmarkDotNet => "BenchmarkDotNet JSON",
            Self::PerfStat => "perf stat",
            Self::Csv => "CSV",
            Self::Numbers => "a column of numbers",
        })
    }
}

/// Whether lower or higher values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Lower is better: times, bytes, misses.
    Lower,
    /// Higher is better: rates.
    Higher,
}

/// What a file says when it kept no samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// The mean (or the median, where only that is there).
    pub mean: f64,
    /// Standard deviation of a single sample, where the file knows one.
    pub sd: Option<f64>,
    /// Samples behind it, where the file says so.
    pub n: Option<u64>,
}

/// The samples of one benchmark in one unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name of the benchmark.
    pub name: String,
    /// The unit as it is shown; times of files that mix units are in nanoseconds.
    pub unit: String,
    /// Whether lower or higher values are better.
    pub better: Better,
    /// The samples in the order of the file.
    pub values: Vec<f64>,
    /// What stands in for samples that the file did not keep.
    pub summary: Option<Summary>,
    /// Which part of this real time was on the processor, where the file says so.
    pub cpu_share: Option<f64>,
    /// How long all of its samples took together, where the file says so.
    pub covered_s: Option<f64>,
    /// How far the machine moved the samples that stand behind its values (log), where each is of a process.
    pub moved_log: f64,
}

impl Series {
    /// A series without samples.
    fn named(name: &str, unit: &str) -> Self {
        Self {
            name: name.into(),
            unit: unit.into(),
            better: units::better(unit),
            values: Vec::new(),
            summary: None,
            cpu_share: None,
            covered_s: None,
            moved_log: 0.0,
        }
    }
}

/// Everything that was read from one file.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultFile {
    /// Path of the file as the user named it.
    pub path: String,
    /// Format of the file, by the tool that writes it.
    pub format: Format,
    /// Its series, in the order of the file.
    pub series: Vec<Series>,
    /// What the file says about its circumstances: machine, package, library.
    pub config: BTreeMap<String, String>,
    /// Fingerprint of the content: equal for equal content.
    pub digest: u64,
    /// Whether its samples come from one process, or from too few to be told apart.
    pub one_process: bool,
    /// Whether the runs of its series took turns, as ours do.
    pub interleaved: bool,
    /// What was seen in it that can be held against its numbers.
    pub threats: Vec<Threat>,
}

/// Reads a file or folder of results.
///
/// # Errors
/// When it cannot be read, is in no format that is known, or is broken; with the place.
pub fn read(path: &Path) -> Result<ResultFile, ResultError> {
    let shown = path.display().to_string();
    let unreadable = |cause| ResultError::Unreadable { path: shown.clone(), cause };
    if fs::metadata(path).map_err(unreadable)?.is_dir() {
        return criterion::read(path, &shown);
    }
    let bytes = foreign::read(path, MOST_BYTES).map_err(unreadable)?;
    let text = String::from_utf8(bytes).map_err(|_| ResultError::NotText(shown.clone()))?;
    parse(&shown, &text)
}

/// Reads results from text; `path` is for messages.
///
/// # Errors
/// As [`read`].
pub fn parse(path: &str, text: &str) -> Result<ResultFile, ResultError> {
    if text.trim().is_empty() {
        return Err(ResultError::Empty(path.into()));
    }
    // Of every kind of text, line by line; what stands in JSON as an escape is spelled out where it
    // is read.
    let digest = fingerprint::of(text.as_bytes());
    let text = &*foreign::plain_lines(text);
    let format = recognise(path, text)?;
    let mut file = ResultFile {
        path: path.into(),
        format,
        series: Vec::new(),
        config: BTreeMap::new(),
        digest,
        one_process: matches!(
            format,
            Format::Go | Format::GoogleBenchmark | Format::PytestBenchmark
        ),
        interleaved: false,
        threats: Vec::new(),
    };
    match format {
        Format::Go => go::read(&mut file, text)?,
        Format::GoogleBenchmark if text.trim_start().starts_with('{') => {
            google::read(&mut file, text)?
        }
        Format::GoogleBenchmark => google::read_csv(&mut file, text)?,
        Format::Jmh => per_process::jmh(&mut file, text)?,
        Format::PytestBenchmark => pytest::read(&mut file, text)?,
        Format::Pyperf => per_process::pyperf(&mut file, text)?,
        Format::BenchmarkDotNet => per_process::benchmark_dot_net(&mut file, text)?,
        Format::Hyperfine => hyperfine::read(&mut file, text)?,
        Format::PerfStat => perf_stat::read(&mut file, text)?,
        Format::Csv | Format::Numbers | Format::Criterion => columns::read(&mut file, text)?,
    }
    if file.series.is_empty() {
        // What it says of itself may be the reason.
        let said = file.threats.iter().find_map(|threat| match threat {
            Threat::Failed { name, what, .. } => {
                Some(format!(" ({}: {what})", name.as_deref().unwrap_or("it")))
            }
            _ => None,
        });
        let why = said.unwrap_or_default();
        return Err(ResultError::NoSamples { path: path.into(), format, why });
    }
    Ok(file)
}

/// The two commands of one file of hyperfine as two files.
///
/// # Errors
/// When it is of another tool, or holds another number of commands.
pub fn halves(file: ResultFile) -> Result<[ResultFile; 2], ResultError> {
    let commands = file.series.len();
    if file.format != Format::Hyperfine || commands != 2 {
        return Err(ResultError::NotTwo { path: file.path, format: file.format, commands });
    }
    let is_of = |threat: &&Threat, series: &Series| match threat {
        Threat::Failed { name: Some(name), .. } => *name == series.name,
        _ => true,
    };
    let half = |at: usize| ResultFile {
        threats: file.threats.iter().filter(|t| is_of(t, &file.series[at])).cloned().collect(),
        path: format!("{}: {}", file.path, file.series[at].name),
        series: vec![file.series[at].clone()],
        // Two commands with the same times would still be two.
        digest: file.digest.wrapping_add(at as u64),
        ..file.clone()
    };
    Ok([half(0), half(1)])
}

/// Whether `path` is a file or folder of results rather than a program: a file that nobody may
/// execute, or a folder with criterion's files in it.
#[must_use]
pub fn looks_like_results(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => criterion::holds_results(path),
        Ok(meta) => meta.is_file() && meta.permissions().mode() & 0o111 == 0,
        Err(_) => false,
    }
}

fn recognise(path: &str, text: &str) -> Result<Format, ResultError> {
    // perf heads a file that it appends to with the date, as a comment.
    let told = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
    let first = text.lines().find(told).map(str::trim);
    let start = first.and_then(|line| text.find(line)).map_or("", |at| &text[at..]);
    if start.starts_with('{') {
        return recognise_json(path, start);
    }
    if start.starts_with('[') && start.contains("\"primaryMetric\"") {
        return Ok(Format::Jmh);
    }
    if text.lines().any(google::is_heading) {
        return Ok(Format::GoogleBenchmark);
    }
    if text.lines().any(go::is_result) {
        return Ok(Format::Go);
    }
    match first {
        Some(line) if perf_stat::is_line(line) => Ok(Format::PerfStat),
        Some(line) if columns::number(line).is_some() => Ok(Format::Numbers),
        Some(line) if columns::separator(line).is_some() => Ok(Format::Csv),
        _ => Err(ResultError::Unknown(path.into())),
    }
}

fn recognise_json(path: &str, text: &str) -> Result<Format, ResultError> {
    // perf writes one object per line, so the file as a whole is no document.
    let first: Option<serde_json::Value> =
        text.lines().next().and_then(|line| foreign::from_json(line).ok());
    if first.is_some_and(|v| v.get("event").is_some() || v.get("interval").is_some()) {
        return Ok(Format::PerfStat);
    }
    let head = |key: &str| text.contains(&format!("\"{key}\""));
    if head("Benchmarks") && head("HostEnvironmentInfo") {
        Ok(Format::BenchmarkDotNet)
    } else if head("benchmarks") && head("machine_info") {
        Ok(Format::PytestBenchmark)
    } else if head("benchmarks") && head("runs") && head("metadata") {
        Ok(Format::Pyperf)
    } else if head("benchmarks") && (head("context") || head("real_time")) {
        Ok(Format::GoogleBenchmark)
    } else if head("results") {
        Ok(Format::Hyperfine)
    } else if let Err(cause) = foreign::from_json::<serde::de::IgnoredAny>(text) {
        Err(ResultError::Json { path: path.into(), what: "JSON".into(), cause })
    } else {
        Err(ResultError::Unknown(path.into()))
    }
}

impl ResultFile {
    /// The JSON of the file as a whole; `what` is what it should be.
    fn document<T: DeserializeOwned>(&self, text: &str, what: &str) -> Result<T, ResultError> {
        foreign::from_json(text).map_err(|cause| ResultError::Json {
            path: self.path.clone(),
            what: what.into(),
            cause,
        })
    }

    /// Adds a sample to the series `name` in `unit`, which `index` finds again.
    fn add(
        &mut self,
        index: &mut BTreeMap<(String, String), usize>,
        name: &str,
        unit: &str,
        value: f64,
    ) {
        let key = (name.to_owned(), unit.to_owned());
        let at = *index.entry(key).or_insert_with(|| {
            self.series.push(Series::named(name, unit));
            self.series.len() - 1
        });
        self.series[at].values.push(value);
    }

    /// Says that others kept the machine busy, where more wanted its processors than there are.
    fn see_load(&mut self, load: Option<f64>, processors: Option<f64>) {
        if let (Some(load), Some(processors)) = (load, processors)
            && load > processors
            && load.is_finite()
        {
            self.threats.push(Threat::Busy { file: self.path.clone(), load, processors });
        }
    }

    /// A sample must be a finite number that is not negative.
    fn checked(&self, place: &str, value: f64) -> Result<f64, ResultError> {
        if value.is_finite() && value >= 0.0 {
            Ok(value)
        } else {
            Err(ResultError::Value { path: self.path.clone(), place: place.into(), value })
        }
    }
}

#[cfg(test)]
mod tests;
