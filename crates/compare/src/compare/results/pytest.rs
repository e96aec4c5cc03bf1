//! pytest-benchmark JSON: a benchmark with its rounds in seconds (`--benchmark-json`, `--benchmark-save-data`), or with their mean
//! and spread alone.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::per_process::{Measured, add};
use super::{ResultError, ResultFile, Summary};

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    machine_info: BTreeMap<String, Value>,
    benchmarks: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    name: String,
    fullname: Option<String>,
    stats: Stats,
}

#[derive(Deserialize)]
struct Stats {
    #[serde(default)]
    data: Vec<f64>,
    mean: Option<f64>,
    stddev: Option<f64>,
    rounds: Option<u64>,
}

pub(super) fn read(file: &mut ResultFile, text: &str) -> Result<(), ResultError> {
    let document: Document = file.document(text, "pytest-benchmark JSON")?;
    for key in ["node", "machine", "python_version", "python_implementation"] {
        if let Some(text) = document.machine_info.get(key).and_then(Value::as_str) {
            file.config.insert(key.into(), text.into());
        }
    }
    for entry in document.benchmarks {
        let name = entry.fullname.unwrap_or(entry.name);
        let Stats { data, mean, stddev: sd, rounds: n } = entry.stats;
        let summary = mean.map(|mean| Summary { mean, sd, n });
        add(file, Measured { name, unit: "s".into(), processes: vec![data], summary })?;
    }
    Ok(())
}
