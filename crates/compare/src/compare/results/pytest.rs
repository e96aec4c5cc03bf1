//! pytest-benchmark JSON: a benchmark with its rounds in seconds (`--benchmark-json`, `--benchmark-save-data`), or with their mean
//! and spread alone.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{Better, ResultError, ResultFile, Series, Summary};
use crate::foreign;

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
    let document: Document = foreign::from_json(text).map_err(|cause| ResultError::Json {
        path: file.path.clone(),
        what: "pytest-benchmark JSON".into(),
        cause,
    })?;
    for key in ["node", "machine", "python_version", "python_implementation"] {
        if let Some(text) = document.machine_info.get(key).and_then(Value::as_str) {
            file.config.insert(key.into(), text.into());
        }
    }
    for entry in document.benchmarks {
        let name = entry.fullname.unwrap_or(entry.name);
        let values = entry.stats.data;
        for value in &values {
            file.checked(&name, *value)?;
        }
        let summary = match (values.is_empty(), entry.stats.mean) {
            (false, _) => None,
            (true, None) => continue,
            (true, Some(mean)) => Some(Summary {
                mean: file.checked(&name, mean)?,
                sd: entry.stats.stddev,
                n: entry.stats.rounds,
            }),
        };
        let unit = "s".into();
        file.series.push(Series {
            name,
            unit,
            better: Better::Lower,
            values,
            summary,
            cpu_share: None,
        });
    }
    Ok(())
}
