//! google-benchmark JSON: one entry per repetition, with real and processor time and counters;
//! aggregates (`_mean`, `_median`, `_stddev`) stand in where the repetitions were not kept.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::units::{better, ns_in};
use super::{ResultError, ResultFile, Series, Summary};
use crate::foreign;

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    context: BTreeMap<String, Value>,
    benchmarks: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    name: String,
    run_name: Option<String>,
    run_type: Option<String>,
    aggregate_name: Option<String>,
    repetitions: Option<u64>,
    real_time: Option<f64>,
    cpu_time: Option<f64>,
    time_unit: Option<String>,
    #[serde(default)]
    error_occurred: bool,
    error_message: Option<String>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

/// Numbers of an entry that are no measurements.
const NO_COUNTERS: [&str; 6] = [
    "iterations",
    "repetition_index",
    "threads",
    "family_index",
    "per_family_instance_index",
    "aggregate_unit",
];

pub(super) fn read(file: &mut ResultFile, text: &str) -> Result<(), ResultError> {
    let document: Document = foreign::from_json(text).map_err(|cause| ResultError::Json {
        path: file.path.clone(),
        what: "google-benchmark JSON".into(),
        cause,
    })?;
    for (key, value) in document.context {
        if let Value::String(text) = value
            && key != "date"
        {
            file.config.insert(key, text);
        }
    }
    let (aggregates, runs): (Vec<Entry>, Vec<Entry>) =
        document.benchmarks.into_iter().partition(|e| e.run_type.as_deref() == Some("aggregate"));
    let mut index = BTreeMap::new();
    for entry in &runs {
        run(file, &mut index, entry)?;
    }
    if file.series.is_empty() {
        summaries(file, &aggregates)?;
    }
    Ok(())
}

fn factor(file: &ResultFile, entry: &Entry) -> Result<f64, ResultError> {
    let unit = entry.time_unit.as_deref().unwrap_or("ns");
    ns_in(unit).ok_or_else(|| ResultError::Unit {
        path: file.path.clone(),
        place: entry.name.clone(),
        unit: unit.into(),
    })
}

fn run(
    file: &mut ResultFile,
    index: &mut BTreeMap<(String, String), usize>,
    entry: &Entry,
) -> Result<(), ResultError> {
    let name = entry.run_name.as_ref().unwrap_or(&entry.name).clone();
    if entry.error_occurred {
        let said = entry.error_message.clone().unwrap_or_default();
        file.config.insert(format!("failed: {name}"), said);
        return Ok(());
    }
    let scale = factor(file, entry)?;
    for (time, unit) in [(entry.real_time, "real ns"), (entry.cpu_time, "cpu ns")] {
        if let Some(time) = time {
            let value = file.checked(&name, time * scale)?;
            file.add(index, &name, unit, value);
        }
    }
    for (counter, value) in &entry.rest {
        let number = value.as_f64().filter(|_| !NO_COUNTERS.contains(&counter.as_str()));
        if let Some(number) = number {
            let value = file.checked(&format!("{name}, {counter}"), number)?;
            file.add(index, &name, counter, value);
        }
    }
    Ok(())
}

fn summaries(file: &mut ResultFile, aggregates: &[Entry]) -> Result<(), ResultError> {
    let mut found: BTreeMap<String, BTreeMap<String, (f64, Option<u64>)>> = BTreeMap::new();
    for entry in aggregates {
        let (Some(kind), Some(time)) = (&entry.aggregate_name, entry.real_time) else {
            continue;
        };
        let name = entry.run_name.as_ref().unwrap_or(&entry.name).clone();
        let value = file.checked(&name, time * factor(file, entry)?)?;
        found.entry(name).or_default().insert(kind.clone(), (value, entry.repetitions));
    }
    for (name, kinds) in found {
        let Some((mean, n)) = kinds.get("mean").or_else(|| kinds.get("median")) else {
            continue;
        };
        let sd = kinds.get("stddev").map(|s| s.0);
        file.series.push(Series {
            name,
            unit: "real ns".into(),
            better: better("real ns"),
            values: Vec::new(),
            summary: Some(Summary { mean: *mean, sd, n: *n }),
        });
    }
    Ok(())
}
