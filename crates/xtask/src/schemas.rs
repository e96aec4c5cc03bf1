//! JSON Schemas of what stallscope writes, made from the types that write it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use schemars::Schema;
use stallscope::clock::SystemReport;
use stallscope::compare::bisect::Bisection;
use stallscope::compare::fleet::{ExplainBlock, ProbeBlock, ProbeResult, Ticket};
use stallscope::compare::history::{HistoryEntry, HistoryReport};
use stallscope::compare::results::Judgement;
use stallscope::compare::sweep::{Block, BlockResult, SweepReport};
use stallscope::compare::{Comparison, Ranking};
use stallscope::counted::CountedScan;
use stallscope::explain::{
    CheckedTrace, ExplainResult, Explanation, ManyExplained, MeasuredLayout,
};
use stallscope::hazards::ScanReport;
use stallscope::machine::Design;
use stallscope::machine::survey::Survey;
use stallscope::model::Finding;
use stallscope::probes::ProbeReport;
use stallscope::run::sample::SampleRun;
use stallscope_cli::{CaseReport, ScanDifference, WorkerReport};

/// One schema: the file's name without its ending, and how it is made.
struct Entry {
    name: &'static str,
    make: fn() -> Schema,
}

/// Every type that is written to a file, in alphabetical order.
static SCHEMAS: &[Entry] = &[
    Entry { name: "bisection", make: schema_of::<Bisection> },
    Entry { name: "block", make: schema_of::<Block> },
    Entry { name: "block-result", make: schema_of::<BlockResult> },
    Entry { name: "case-report", make: schema_of::<CaseReport> },
    Entry { name: "comparison", make: schema_of::<Comparison> },
    Entry { name: "counted-scan", make: schema_of::<CountedScan> },
    Entry { name: "explain-block", make: schema_of::<ExplainBlock> },
    Entry { name: "explain-result", make: schema_of::<ExplainResult> },
    Entry { name: "explanation", make: schema_of::<Explanation> },
    Entry { name: "finding", make: schema_of::<Finding> },
    Entry { name: "history-entry", make: schema_of::<HistoryEntry> },
    Entry { name: "history-report", make: schema_of::<HistoryReport> },
    Entry { name: "judgement", make: schema_of::<Judgement> },
    Entry { name: "layout-report", make: schema_of::<MeasuredLayout> },
    Entry { name: "machine-profile", make: schema_of::<Design> },
    Entry { name: "many-explained", make: schema_of::<ManyExplained> },
    Entry { name: "probe-block", make: schema_of::<ProbeBlock> },
    Entry { name: "probe-report", make: schema_of::<ProbeReport> },
    Entry { name: "probe-result", make: schema_of::<ProbeResult> },
    Entry { name: "ranking", make: schema_of::<Ranking> },
    Entry { name: "sample-run", make: schema_of::<SampleRun> },
    Entry { name: "scan-difference", make: schema_of::<ScanDifference> },
    Entry { name: "scan-report", make: schema_of::<ScanReport> },
    Entry { name: "submitted", make: schema_of::<Ticket> },
    Entry { name: "survey", make: schema_of::<Survey> },
    Entry { name: "sweep-report", make: schema_of::<SweepReport> },
    Entry { name: "system-report", make: schema_of::<SystemReport> },
    Entry { name: "trace-report", make: schema_of::<CheckedTrace> },
    Entry { name: "worker-report", make: schema_of::<WorkerReport> },
];

/// As it is written, which is what a reader meets.
fn schema_of<T: schemars::JsonSchema>() -> Schema {
    schemars::generate::SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator()
        .into_root_schema_for::<T>()
}

fn render(entry: &Entry) -> anyhow::Result<String> {
    let schema = (entry.make)();
    let text = serde_json::to_string_pretty(&schema)
        .with_context(|| format!("cannot write the schema of {}", entry.name))?;
    Ok(text + "\n")
}

fn file_name(entry: &Entry) -> String {
    format!("{}.json", entry.name)
}

/// Writes all schemas and removes those of types that are gone.
pub fn generate(folder: &Path) -> anyhow::Result<()> {
    for entry in SCHEMAS {
        super::write(&folder.join(file_name(entry)), &render(entry)?)?;
    }
    for name in strangers(folder)? {
        fs::remove_file(folder.join(&name)).with_context(|| format!("cannot remove {name}"))?;
    }
    Ok(())
}

/// Names of the files that `generate` would change.
pub fn stale(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut stale = strangers(folder)?;
    for entry in SCHEMAS {
        let name = file_name(entry);
        // A file that cannot be read is not what it should be.
        if fs::read_to_string(folder.join(&name)).unwrap_or_default() != render(entry)? {
            stale.push(name);
        }
    }
    Ok(stale.iter().map(|name| format!("schema/{name}")).collect())
}

/// Files in the folder that no entry writes.
fn strangers(folder: &Path) -> anyhow::Result<Vec<String>> {
    let ours: BTreeSet<String> = SCHEMAS.iter().map(file_name).collect();
    let mut names = Vec::new();
    if !folder.exists() {
        return Ok(names);
    }
    for entry in fs::read_dir(folder).context("cannot list the schemas")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".json") && !ours.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_in_order() {
        let names: Vec<_> = SCHEMAS.iter().map(|entry| entry.name).collect();
        assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{names:?}");
    }

    #[test]
    fn every_schema_says_what_it_describes() {
        for entry in SCHEMAS {
            let value = (entry.make)().to_value();
            let name = entry.name;
            assert!(value["title"].is_string(), "{name} has no title");
            assert!(value["description"].is_string(), "{name} is not described");
        }
    }
}
