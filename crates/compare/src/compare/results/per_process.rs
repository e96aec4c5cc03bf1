//! JMH, pyperf and BenchmarkDotNet: values of several processes, each started anew.
//!
//! Values of one process share its placement and whatever its just-in-time compiler decided, and agree with
//! each other more than with those of the next. So where there are processes enough for a test, each counts
//! once, with its mean; where there are not, their values are taken as they are, and the file says so.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::reach::moved_log;
use super::units::ns_in;
use super::{Format, ResultError, ResultFile, Series, Summary};
use crate::stats::student::mean_and_sd;

/// Processes from which a rank test can reach 5 %.
const ENOUGH_PROCESSES: usize = 4;

/// A benchmark as each of them writes it down.
pub(super) struct Measured {
    pub name: String,
    pub unit: String,
    /// The values of each process.
    pub processes: Vec<Vec<f64>>,
    /// What is left where there are no values.
    pub summary: Option<Summary>,
}

pub(super) fn add(file: &mut ResultFile, measured: Measured) -> Result<(), ResultError> {
    let Measured { name, unit, mut processes, summary } = measured;
    processes.retain(|values| !values.is_empty());
    for value in processes.iter().flatten() {
        file.checked(&name, *value)?;
    }
    // The means of processes hide what moved within them.
    let moved_log = moved_log(&processes.concat());
    let values: Vec<f64> = if processes.len() >= ENOUGH_PROCESSES {
        processes.iter().map(|values| mean_and_sd(values).0).collect()
    } else {
        file.one_process = true;
        processes.concat()
    };
    let summary = summary.filter(|_| values.is_empty());
    if let Some(summary) = &summary {
        file.checked(&name, summary.mean)?;
    }
    if !values.is_empty() || summary.is_some() {
        let covered_s = ns_in(&unit).map(|ns| ns / 1e9 * values.iter().sum::<f64>());
        let covered_s = covered_s.filter(|_| file.format == Format::PytestBenchmark);
        let series = Series::named(&name, &unit);
        file.series.push(Series { values, summary, covered_s, moved_log, ..series });
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JmhEntry {
    benchmark: String,
    #[serde(default)]
    params: BTreeMap<String, Value>,
    jdk_version: Option<String>,
    vm_name: Option<String>,
    primary_metric: JmhMetric,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JmhMetric {
    score: Option<Value>,
    score_unit: String,
    /// Iterations of each fork.
    #[serde(default)]
    raw_data: Vec<Vec<Value>>,
}

/// A number; JMH writes `"NaN"` where it has none.
fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

pub(super) fn jmh(file: &mut ResultFile, text: &str) -> Result<(), ResultError> {
    for entry in file.document::<Vec<JmhEntry>>(text, "JMH JSON")? {
        for (key, value) in [("jdkVersion", entry.jdk_version), ("vmName", entry.vm_name)] {
            if let Some(value) = value {
                file.config.insert(key.into(), value);
            }
        }
        let params: Vec<String> =
            entry.params.iter().map(|(k, v)| format!("{k}={}", plain(v))).collect();
        let name = [vec![entry.benchmark], params].concat().join(":");
        let metric = entry.primary_metric;
        // Sampled modes keep a histogram instead of values: the score is what is left.
        let mean = metric.score.as_ref().map(number).filter(|mean| mean.is_finite());
        let processes = metric.raw_data.iter().map(|fork| fork.iter().map(number).collect());
        add(
            file,
            Measured {
                name,
                unit: metric.score_unit,
                processes: processes.collect(),
                summary: mean.map(|mean| Summary { mean, sd: None, n: None }),
            },
        )?;
    }
    Ok(())
}

/// A value without the quotes of a text.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[derive(Deserialize)]
struct PyperfSuite {
    #[serde(default)]
    metadata: BTreeMap<String, Value>,
    benchmarks: Vec<PyperfBenchmark>,
}

#[derive(Deserialize)]
struct PyperfBenchmark {
    #[serde(default)]
    metadata: BTreeMap<String, Value>,
    runs: Vec<PyperfRun>,
}

#[derive(Deserialize)]
struct PyperfRun {
    #[serde(default)]
    metadata: BTreeMap<String, Value>,
    /// Absent in the runs that only find out how many loops are needed.
    #[serde(default)]
    values: Vec<f64>,
}

pub(super) fn pyperf(file: &mut ResultFile, text: &str) -> Result<(), ResultError> {
    let suite: PyperfSuite = file.document(text, "pyperf JSON")?;
    for key in ["python_version", "cpu_model_name", "hostname", "platform"] {
        if let Some(value) = suite.metadata.get(key) {
            file.config.insert(key.into(), plain(value));
        }
    }
    let of = |metadata: &BTreeMap<String, Value>, key: &str| metadata.get(key)?.as_f64();
    let runs = || {
        suite.benchmarks.iter().flat_map(|b| b.runs.iter().map(move |r| (&b.metadata, &r.metadata)))
    };
    let all = |key: &'static str| {
        let said = runs().flat_map(|(b, r)| [b, r]).chain([&suite.metadata]);
        said.filter_map(|metadata| of(metadata, key)).reduce(f64::max)
    };
    let (load, processors) = (all("load_avg_1min"), all("cpu_count"));
    file.see_load(load, processors);
    for benchmark in suite.benchmarks {
        let known =
            |key: &str| benchmark.metadata.get(key).or_else(|| suite.metadata.get(key)).map(plain);
        let unit = match known("unit").as_deref() {
            None | Some("second") => "s".to_owned(),
            Some("byte") => "B".to_owned(),
            Some(other) => other.to_owned(),
        };
        let name = known("name").unwrap_or_else(|| "benchmark".into());
        let processes = benchmark.runs.into_iter().map(|run| run.values).collect();
        add(file, Measured { name, unit, processes, summary: None })?;
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DotNetDocument {
    #[serde(default)]
    host_environment_info: BTreeMap<String, Value>,
    benchmarks: Vec<DotNetBenchmark>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DotNetBenchmark {
    full_name: Option<String>,
    #[serde(default)]
    display_info: String,
    statistics: Option<DotNetStatistics>,
    #[serde(default)]
    measurements: Vec<DotNetMeasurement>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DotNetStatistics {
    #[serde(default)]
    original_values: Vec<f64>,
    n: Option<u64>,
    mean: Option<f64>,
    standard_deviation: Option<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DotNetMeasurement {
    #[serde(default)]
    iteration_mode: String,
    #[serde(default)]
    iteration_stage: String,
    #[serde(default)]
    launch_index: u64,
    #[serde(default)]
    operations: f64,
    #[serde(default)]
    nanoseconds: f64,
}

pub(super) fn benchmark_dot_net(file: &mut ResultFile, text: &str) -> Result<(), ResultError> {
    let document: DotNetDocument = file.document(text, "BenchmarkDotNet JSON")?;
    for key in ["ProcessorName", "RuntimeVersion", "OsVersion", "BenchmarkDotNetVersion"] {
        if let Some(value) = document.host_environment_info.get(key) {
            file.config.insert(key.into(), plain(value));
        }
    }
    for benchmark in document.benchmarks {
        let name = benchmark.full_name.unwrap_or(benchmark.display_info);
        // The result has the cost of the loop taken off, and no outliers; the launches stay apart.
        let mut launches: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        let results = benchmark.measurements.iter().filter(|m| {
            m.iteration_mode == "Workload" && m.iteration_stage == "Result" && m.operations > 0.0
        });
        for m in results {
            launches.entry(m.launch_index).or_default().push(m.nanoseconds / m.operations);
        }
        let statistics = benchmark.statistics;
        if launches.is_empty() {
            let values = statistics.as_ref().map(|s| s.original_values.clone());
            launches.insert(1, values.unwrap_or_default());
        }
        let summary = statistics
            .and_then(|s| Some(Summary { mean: s.mean?, sd: s.standard_deviation, n: s.n }));
        let processes = launches.into_values().collect();
        add(file, Measured { name, unit: "ns".into(), processes, summary })?;
    }
    Ok(())
}
