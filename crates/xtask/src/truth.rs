//! Does the probe `store-forwarding` tell the truth when it is disturbed?
//!
//! Runs it several times alone and several times beside a busy loop on the same processor, and
//! counts the runs in which a cell has another class than in most runs. "Inconclusive" is no lie
//! and is counted apart.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};

/// Runs in each state.
const RUNS: usize = 10;

/// What a cell is called in one run.
type Classes = BTreeMap<String, String>;

/// A child that does not outlive its use.
struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        // It may have ended by itself; either way nothing is left to do about it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Prints one line for each state; an error when any cell was ever classed differently.
pub fn run(stallscope: &Path, cpu: &str) -> anyhow::Result<()> {
    let states = [("quiet", 0), ("busy loop on the same CPU", 1), ("three busy loops", 3)];
    let mut all: Vec<(&str, Vec<Classes>)> = Vec::new();
    for (state, loops) in states {
        let _busy = (0..loops).map(|_| busy(cpu)).collect::<anyhow::Result<Vec<Busy>>>()?;
        let runs =
            (0..RUNS).map(|seed| probe(stallscope, cpu, seed)).collect::<anyhow::Result<_>>();
        all.push((state, runs?));
    }
    let truth = majority(all.iter().flat_map(|(_, runs)| runs));
    let mut wrong_runs = 0;
    for (state, runs) in &all {
        let differs = |c: &&Classes| c.iter().any(|(k, v)| v != "inconclusive" && truth[k] != *v);
        let wrong = runs.iter().filter(differs).count();
        let open: usize =
            runs.iter().map(|c| c.values().filter(|v| *v == "inconclusive").count()).sum();
        let cells = truth.len();
        super::say(&format!(
            "{state}: {} of {RUNS} runs right in all {cells} cells, {wrong} wrong, {open} cells \
             inconclusive over all runs",
            RUNS - wrong
        ));
        wrong_runs += wrong;
    }
    if wrong_runs > 0 {
        bail!("{wrong_runs} runs have a wrong class")
    }
    Ok(())
}

fn busy(cpu: &str) -> anyhow::Result<Busy> {
    let arguments = ["-c", cpu, "sh", "-c", "while :; do :; done"];
    let child = Command::new("taskset").args(arguments).spawn().context("cannot run taskset")?;
    Ok(Busy(child))
}

/// One run; the classes of everything but the delay curve. The user's profile stays as it is.
fn probe(stallscope: &Path, cpu: &str, seed: usize) -> anyhow::Result<Classes> {
    let folder = std::env::temp_dir().join(format!("stallscope-truth-{}", std::process::id()));
    let output = Command::new("taskset")
        .args(["-c", cpu])
        .arg(stallscope)
        .args(["probe", "store-forwarding", "--json", "-", "--seed", &seed.to_string()])
        .env("XDG_CACHE_HOME", &folder)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run taskset")?;
    let _ = std::fs::remove_dir_all(&folder);
    if !output.status.success() {
        bail!("{} failed: {}", stallscope.display(), output.status);
    }
    let document: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let cells = document["result"]["probes"][0]["cells"].as_array().context("no cells")?;
    let text = |v: &serde_json::Value| v.as_str().unwrap_or_default().to_owned();
    Ok(cells
        .iter()
        .filter(|c| c["case"]["group"] != "delay")
        .map(|c| (format!("{} {}", text(&c["case"]["group"]), text(&c["name"])), text(&c["class"])))
        .collect())
}

/// The class that each cell has in most runs.
fn majority<'a>(runs: impl Iterator<Item = &'a Classes>) -> Classes {
    let mut votes: BTreeMap<&String, BTreeMap<&String, usize>> = BTreeMap::new();
    for (cell, class) in runs.flatten() {
        *votes.entry(cell).or_default().entry(class).or_default() += 1;
    }
    let winner = |classes: BTreeMap<&String, usize>| {
        classes.into_iter().max_by_key(|(_, n)| *n).map_or(String::new(), |(c, _)| c.clone())
    };
    votes.into_iter().map(|(cell, classes)| (cell.clone(), winner(classes))).collect()
}
