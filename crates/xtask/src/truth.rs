//! Do probes tell the truth when they are disturbed?
//!
//! `store-forwarding` runs several times alone and several times beside busy loops on the same processor. What a
//! cell must be called is what most of the runs alone call it: the disturbed ones have no vote. A run
//! in which a cell has another class is wrong, also where most runs alone leave the cell open, and
//! every such cell is named. "Inconclusive" is no lie and is counted apart.
//!
//! All probes then run likewise, each time into a profile of its own, and `survey` holds every profile against the one of the runs
//! alone that is apart from the fewest others: a fact that is apart is wrong, one that is missing is no lie.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};

/// Runs in each state.
const RUNS: usize = 10;

/// What is no answer and no lie.
const OPEN: &str = "inconclusive";

struct Answer {
    class: String,
    cycles: String,
}

/// One run: by cell.
type Answers = BTreeMap<String, Answer>;

/// By cell: what most of the runs alone call it, and how many of them.
type Expected = BTreeMap<String, (String, usize)>;

/// A child that does not outlive its use.
struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        // It may have ended by itself; either way nothing is left to do about it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How the processor is disturbed: in words, and by how many loops.
const STATES: [(&str, usize); 3] =
    [("a busy loop on the same CPU", 1), ("three busy loops", 3), ("twenty busy loops", 20)];

/// Prints one line for each state, and one for each wrong cell or fact; an error when there are any.
pub fn run(stallscope: &Path, cpu: &str, facts: usize) -> anyhow::Result<()> {
    let wrong_runs = cells(stallscope, cpu)? + all_facts(stallscope, cpu, facts)?;
    if wrong_runs > 0 {
        bail!("{wrong_runs} runs have a wrong class or fact")
    }
    Ok(())
}

/// Runs of `store-forwarding` with a wrong class.
fn cells(stallscope: &Path, cpu: &str) -> anyhow::Result<usize> {
    let quiet = runs(stallscope, cpu, 0)?;
    let expected = majority(&quiet);
    let mut wrong_runs = report("quiet", &quiet, &expected);
    for (state, loops) in STATES.into_iter().take(2) {
        wrong_runs += report(state, &runs(stallscope, cpu, loops)?, &expected);
    }
    Ok(wrong_runs)
}

/// Runs of all probes with a wrong fact, of so many in each state.
fn all_facts(stallscope: &Path, cpu: &str, runs: usize) -> anyhow::Result<usize> {
    let folder = tempfile::tempdir()?;
    let profiles = |state: usize, loops: usize| -> anyhow::Result<Vec<PathBuf>> {
        let _busy = (0..loops).map(|_| busy(cpu)).collect::<anyhow::Result<Vec<Busy>>>()?;
        (0..runs)
            .map(|seed| {
                let path = folder.path().join(format!("{state}-{seed}.json"));
                all_probes(stallscope, cpu, seed, &path).map(|()| path)
            })
            .collect()
    };
    let quiet = profiles(0, 0)?;
    let mut best: Option<(usize, &PathBuf)> = None;
    for one in &quiet {
        let apart = quiet.iter().map(|other| Ok(beside(stallscope, one, other)?.0.len()));
        let apart = apart.sum::<anyhow::Result<usize>>()?;
        best = best.filter(|(least, _)| *least <= apart).or(Some((apart, one)));
    }
    let Some((_, expected)) = best else { return Ok(0) };
    let mut wrong_runs = 0;
    let disturbed = (1..).zip(STATES).map(|(nth, (state, loops))| (nth, state, loops));
    for (nth, state, loops) in [(0, "quiet", 0)].into_iter().chain(disturbed) {
        let found = if nth == 0 { quiet.clone() } else { profiles(nth, loops)? };
        let (mut wrong, mut told, mut known) = (0, 0, 0);
        for (seed, profile) in found.iter().enumerate() {
            let (apart, by_both, by_expected) = beside(stallscope, expected, profile)?;
            wrong += usize::from(!apart.is_empty());
            (told, known) = (told + by_both, known + by_expected);
            for fact in apart {
                super::say(&format!("  {state}, seed {seed}: {fact}"));
            }
        }
        super::say(&format!(
            "{state}: {} of {} runs of all probes have no fact apart, and tell {told} of {known} facts",
            found.len() - wrong,
            found.len()
        ));
        wrong_runs += wrong;
    }
    Ok(wrong_runs)
}

fn all_probes(stallscope: &Path, cpu: &str, seed: usize, profile: &Path) -> anyhow::Result<()> {
    let status = pinned(cpu, stallscope)
        .args(["probe", "--quiet", "--seed", &seed.to_string(), "--profile"])
        .arg(profile)
        .status()
        .context("cannot run taskset")?;
    if status.success() { Ok(()) } else { bail!("{} failed: {status}", stallscope.display()) }
}

/// Facts in which the second profile is apart from the first, in words; how many of those that the first was measured for both
/// tell, and how many these are.
fn beside(
    stallscope: &Path,
    expected: &Path,
    found: &Path,
) -> anyhow::Result<(Vec<String>, usize, usize)> {
    let output = Command::new(stallscope)
        .args(["survey", "--json", "-"])
        .args([expected, found])
        .output()
        .context("cannot run survey")?;
    if !output.status.success() {
        bail!("survey failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let document: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let rows = document["result"]["rows"].as_array().context("no rows")?;
    let measured = |row: &&serde_json::Value| row["machines"][0]["origin"]["kind"] == "probed";
    let text = |row: &serde_json::Value, nth: usize| {
        row["machines"][nth]["text"].as_str().unwrap_or("nothing").to_owned()
    };
    let apart = rows.iter().filter(|row| row["relation"] == "apart");
    let apart = apart.map(|row| format!("{}: {}, not {}", row["id"], text(row, 1), text(row, 0)));
    let known = rows.iter().filter(measured);
    let told = known.clone().filter(|row| row["machines"][1]["origin"]["kind"] == "probed");
    Ok((apart.collect(), told.count(), known.count()))
}

/// The probe in one state, over and over.
fn runs(stallscope: &Path, cpu: &str, loops: usize) -> anyhow::Result<Vec<Answers>> {
    let _busy = (0..loops).map(|_| busy(cpu)).collect::<anyhow::Result<Vec<Busy>>>()?;
    (0..RUNS).map(|seed| probe(stallscope, cpu, seed)).collect()
}

/// Says how one state went; how many of its runs are wrong.
fn report(state: &str, runs: &[Answers], expected: &Expected) -> usize {
    let is_wrong = |(cell, answer): &(&String, &Answer)| {
        answer.class != OPEN && expected.get(*cell).is_none_or(|(class, _)| *class != answer.class)
    };
    let mut wrong = 0;
    for (seed, answers) in runs.iter().enumerate() {
        let cells: Vec<(&String, &Answer)> = answers.iter().filter(is_wrong).collect();
        wrong += usize::from(!cells.is_empty());
        for (cell, Answer { class, cycles }) in cells {
            let must = expected.get(cell).map_or("no answer".to_owned(), |(class, votes)| {
                format!("{class} in {votes} of {RUNS} runs alone")
            });
            super::say(&format!("  {state}, seed {seed}: {cell}: {class}, {cycles}; {must}"));
        }
    }
    let open = runs.iter().flat_map(BTreeMap::values).filter(|a| a.class == OPEN).count();
    super::say(&format!(
        "{state}: {} of {RUNS} runs right in all {} cells, {wrong} wrong, {open} cells \
         inconclusive over all runs",
        RUNS - wrong,
        expected.len()
    ));
    wrong
}

fn busy(cpu: &str) -> anyhow::Result<Busy> {
    let mut command = pinned(cpu, Path::new("sh"));
    let child =
        command.args(["-c", "while :; do :; done"]).spawn().context("cannot run taskset")?;
    Ok(Busy(child))
}

/// A program on this processor alone.
fn pinned(cpu: &str, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", cpu]).arg(program);
    command
}

/// One run: everything but the delay curve. The user's profile stays as it is.
fn probe(stallscope: &Path, cpu: &str, seed: usize) -> anyhow::Result<Answers> {
    let folder = std::env::temp_dir().join(format!("stallscope-truth-{}", std::process::id()));
    let output = pinned(cpu, stallscope)
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
    let one = |cell: &serde_json::Value| {
        let name = format!("{} {}", text(&cell["case"]["group"]), text(&cell["name"]));
        (name, Answer { class: text(&cell["class"]), cycles: cycles(&cell["cycles"]) })
    };
    Ok(cells.iter().filter(|c| c["case"]["group"] != "delay").map(one).collect())
}

fn cycles(m: &serde_json::Value) -> String {
    let number = |key: &str| m[key].as_f64();
    match (number("value"), number("low"), number("high"), number("n")) {
        (Some(value), Some(low), Some(high), Some(n)) => {
            format!("{value:.2} [{low:.2}, {high:.2}] cycles, n = {n}")
        }
        _ => "too few clean samples".to_owned(),
    }
}

/// The class that each cell has in most runs.
fn majority(runs: &[Answers]) -> Expected {
    let mut votes: BTreeMap<&String, BTreeMap<&String, usize>> = BTreeMap::new();
    for (cell, answer) in runs.iter().flatten() {
        *votes.entry(cell).or_default().entry(&answer.class).or_default() += 1;
    }
    let winner = |classes: BTreeMap<&String, usize>| {
        let most = classes.into_iter().max_by_key(|(_, n)| *n);
        most.map_or((OPEN.to_owned(), 0), |(class, n)| (class.clone(), n))
    };
    votes.into_iter().map(|(cell, classes)| (cell.clone(), winner(classes))).collect()
}
