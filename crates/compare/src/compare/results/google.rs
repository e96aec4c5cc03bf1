//! google-benchmark, JSON or CSV: one entry per repetition, with real and processor time and counters;
//! aggregates (`_mean`, `_median`, `_stddev`) stand in where the repetitions were not kept.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::units::ns_in;
use super::{ResultError, ResultFile, Series, Summary, Threat};
use crate::stats::robust::median;

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
    let document: Document = file.document(text, "google-benchmark JSON")?;
    let number = |value: Option<&Value>| value.and_then(Value::as_f64);
    let load = number(document.context.get("load_avg").and_then(|averages| averages.get(0)));
    file.see_load(load, number(document.context.get("num_cpus")));
    for (key, value) in document.context {
        if let Value::String(text) = value
            && key != "date"
        {
            file.config.insert(key, text);
        }
    }
    add_all(file, document.benchmarks)
}

fn add_all(file: &mut ResultFile, entries: Vec<Entry>) -> Result<(), ResultError> {
    let (aggregates, runs): (Vec<Entry>, Vec<Entry>) =
        entries.into_iter().partition(|e| e.run_type.as_deref() == Some("aggregate"));
    let mut index = BTreeMap::new();
    for entry in &runs {
        run(file, &mut index, entry)?;
    }
    if file.series.is_empty() {
        summaries(file, &aggregates)?;
    }
    shares(file);
    Ok(())
}

/// Which part of the real times was on the processor, by the medians.
fn shares(file: &mut ResultFile) {
    let busy: BTreeMap<String, f64> = file
        .series
        .iter()
        .filter(|s| s.unit == "cpu ns")
        .filter_map(|s| Some((s.name.clone(), median(&s.values)?)))
        .collect();
    let shares: BTreeMap<String, f64> = file
        .series
        .iter()
        .filter(|s| s.unit == "real ns")
        .filter_map(|s| {
            let real = median(&s.values).filter(|real| *real > 0.0)?;
            Some((s.name.clone(), busy.get(&s.name)? / real))
        })
        .collect();
    // What kept it off the processor has also cooled its caches and shared its core: all rows of it.
    for series in &mut file.series {
        series.cpu_share = shares.get(&series.name).copied();
    }
}

/// Whether a line is the heading of google-benchmark's CSV.
pub(super) fn is_heading(line: &str) -> bool {
    line.trim_end().starts_with("name,iterations,real_time,cpu_time,time_unit")
}

/// The CSV: a line for each repetition, and aggregates by the ends of their names.
pub(super) fn read_csv(file: &mut ResultFile, text: &str) -> Result<(), ResultError> {
    // What was printed before the table says how the machine was; it has no form.
    let before = text.lines().take_while(|line| !is_heading(line)).count();
    let table = text.lines().skip(before).collect::<Vec<_>>().join("\n");
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    let line = |number: u64| before + usize::try_from(number).unwrap_or(usize::MAX / 2);
    let wrong = |number: u64, what: String| ResultError::Line {
        path: file.path.clone(),
        line: line(number),
        what,
    };
    let titles = reader.headers().cloned().map_err(|e| wrong(1, e.to_string()))?;
    let mut entries = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|cause| {
            wrong(cause.position().map_or(1, csv::Position::line), cause.to_string())
        })?;
        let row: BTreeMap<&str, &str> = titles.iter().zip(record.iter()).collect();
        let number = record.position().map_or(1, csv::Position::line);
        entries.push(entry(&row).map_err(|what| wrong(number, what))?);
    }
    let names: BTreeSet<String> = entries.iter().map(|e| e.name.clone()).collect();
    for entry in &mut entries {
        let parts =
            entry.name.rsplit_once('_').map(|(base, kind)| (base.to_owned(), kind.to_owned()));
        let Some((base, kind)) = parts else { continue };
        // A benchmark may be called so; aggregates come together.
        let is_aggregate = ["mean", "median", "stddev", "cv"].contains(&kind.as_str())
            && ["mean", "median", "stddev"].iter().all(|k| names.contains(&format!("{base}_{k}")));
        if is_aggregate && kind != "cv" {
            entry.repetitions = entry.rest.get("iterations").and_then(Value::as_u64);
        }
        if is_aggregate {
            (entry.run_name, entry.aggregate_name) = (Some(base), Some(kind));
            entry.run_type = Some("aggregate".into());
        }
    }
    add_all(file, entries)
}

fn entry(row: &BTreeMap<&str, &str>) -> Result<Entry, String> {
    let mut entry = Entry {
        name: row.get("name").copied().unwrap_or_default().to_owned(),
        run_name: None,
        run_type: None,
        aggregate_name: None,
        repetitions: None,
        real_time: None,
        cpu_time: None,
        time_unit: row
            .get("time_unit")
            .filter(|unit| !unit.is_empty())
            .map(|unit| (*unit).to_owned()),
        error_occurred: row.get("error_occurred") == Some(&"true"),
        error_message: row.get("error_message").map(|text| (*text).to_owned()),
        rest: BTreeMap::new(),
    };
    for (title, text) in row {
        if TEXTS.contains(title) || text.is_empty() {
            continue;
        }
        let number: f64 =
            text.parse().map_err(|_| format!("`{text}` stands where the {title} is expected"))?;
        match *title {
            "real_time" => entry.real_time = Some(number),
            "cpu_time" => entry.cpu_time = Some(number),
            _ => {
                // Whole numbers stay whole: iterations are counted.
                let value = text.parse::<u64>().map_or_else(|_| Value::from(number), Value::from);
                entry.rest.insert((*title).to_owned(), value);
            }
        }
    }
    Ok(entry)
}

/// Columns of google-benchmark's CSV that hold no numbers.
const TEXTS: [&str; 5] = ["name", "time_unit", "label", "error_occurred", "error_message"];

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
        let what = format!("a run says \"{said}\"");
        let threat = Threat::Failed { name: Some(name), file: file.path.clone(), what };
        if !file.threats.contains(&threat) {
            file.threats.push(threat);
        }
        return Ok(());
    }
    let scale = factor(file, entry)?;
    let iterations = entry.rest.get("iterations").and_then(Value::as_f64);
    let took = iterations.zip(entry.real_time).map(|(n, time)| n * time * scale / 1e9);
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
    if let Some(took) = took {
        for series in file.series.iter_mut().filter(|s| s.name == name) {
            *series.covered_s.get_or_insert(0.0) += took;
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
        let summary = Some(Summary { mean: *mean, sd, n: *n });
        file.series.push(Series { summary, ..Series::named(&name, "real ns") });
    }
    Ok(())
}
