//! What comparisons said about one commit after the other: since which one is it slower?
//!
//! Every commit is held against one reference that stays the same, so that what the machine was like on a
//! day is in both and cancels. [`changes`] finds where the series of effects steps,
//! and what a line explains as well is a drift. A step is called one
//! only where it is large enough to matter, and larger than what placement alone does to this program, where
//! that is known: a commit that moves code steps just like one that changes it.

mod divisive;
mod entry;
mod file;
pub mod simulate;
mod trend;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use divisive::{Change, FEWEST, FEWEST_ON_A_SIDE, changes};
pub use entry::{HistoryEntry, SeriesKey, label_objection};
pub use file::{DamagedLine, History, HistoryError, HistoryFile, parse, read};

use self::trend::{Line, drifts, newest_apart};
use super::Decision;
use super::layouts::Part;
use crate::stats::Z;
use crate::stats::student::{mean_and_sd, pooled_sd};
use crate::stats::welch::welch;

/// Entries of a series that are looked at, the latest ones: shuffles take time in the square of them.
const MOST_ENTRIES: usize = 1000;

/// What is said of a place where a series changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum StepWord {
    /// From here on it is slower.
    Slower,
    /// From here on it is faster.
    Faster,
    /// Over these commits it gets slower, and at no one of them more than at others.
    DriftSlower,
    /// Over these commits it gets faster, and at no one of them more than at others.
    DriftFaster,
    /// It changes by less than what matters.
    TooSmall,
    /// It changes by no more than placements of the same code do.
    WithinLayoutSpread,
}

/// A place where a series changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryStep {
    /// The first commit behind it; of a drift its last one. A label that is there twice has the number of its line.
    pub label: String,
    /// The last one before it; of a drift its first one.
    pub before: String,
    /// Index of `label` among the entries.
    pub at: u64,
    /// The mean of the stretch behind over that before (log), with its interval for the noise of commits; of a drift
    /// that of the line from its first commit to its last.
    pub change: Part,
    /// How often shuffled commits change as much somewhere.
    pub p_value: f64,
    /// Up to where two placements of the same code differ in 95 of 100 cases (log), where that is known.
    pub layout_reach_log: Option<f64>,
    /// What it is called.
    pub word: StepWord,
}

impl HistoryStep {
    /// Whether it is called a step.
    #[must_use]
    pub fn is_called(&self) -> bool {
        matches!(self.word, StepWord::Slower | StepWord::Faster)
    }

    /// Whether it is called a drift.
    #[must_use]
    pub fn is_drift(&self) -> bool {
        matches!(self.word, StepWord::DriftSlower | StepWord::DriftFaster)
    }
}

/// The newest commits, where they lie apart from those before and are too few for a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NewestCommits {
    /// How many there are.
    pub count: u64,
    /// The first of them.
    pub label: String,
    /// Their mean over that of the commits since the last step (log), with the 95 % interval of as many more.
    pub change: Part,
}

/// One series of a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistorySeries {
    /// What is compared with what.
    pub series: SeriesKey,
    /// Its entries in the order of the file, the latest thousand.
    pub entries: Vec<HistoryEntry>,
    /// Entries before these.
    pub left_out: u64,
    /// Where it changes.
    pub steps: Vec<HistoryStep>,
    /// Its newest commits, where they differ and more are needed.
    pub newest: Option<NewestCommits>,
    /// The first commit that was measured before the one that it follows.
    pub back_in_time: Option<String>,
    /// Standard deviation of commits within a stretch (log).
    pub commit_sd_log: f64,
    /// Whether there are enough entries for any step to be found.
    pub enough: bool,
}

/// What a history shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryReport {
    /// The file as it was named.
    pub path: String,
    /// The smallest step of interest as a share.
    pub effect: f64,
    /// Seed of the shuffles.
    pub seed: u64,
    /// Its series, in the order in which they begin.
    pub series: Vec<HistorySeries>,
    /// Lines that are not believed.
    pub damaged: Vec<DamagedLine>,
}

impl HistorySeries {
    /// What its last step or drift that is called one says of it now.
    #[must_use]
    pub fn decision(&self) -> Option<Decision> {
        let last = self.steps.iter().rev().find(|step| step.is_called() || step.is_drift())?;
        Some(match last.word {
            StepWord::Faster | StepWord::DriftFaster => Decision::Faster,
            _ => Decision::Slower,
        })
    }
}

impl HistoryReport {
    /// What a gate makes of it: slower since the last step of a series, nothing known (too few commits, newest ones
    /// that may be slower, lines that are not believed at the end or in most places), or neither.
    #[must_use]
    pub fn decision(&self) -> Decision {
        let entries: u64 = self.series.iter().map(|s| s.left_out + s.entries.len() as u64).sum();
        let damaged = self.damaged.len() as u64;
        let last_line = self.damaged.iter().map(|line| line.line).max();
        let open = |series: &HistorySeries| {
            !series.enough || series.newest.as_ref().is_some_and(|n| n.change.log_ratio > 0.0)
        };
        if self.series.iter().any(|series| series.decision() == Some(Decision::Slower)) {
            Decision::Slower
        } else if damaged > entries
            || last_line == Some(entries + damaged)
            || self.series.iter().any(open)
        {
            Decision::Inconclusive
        } else {
            Decision::Equivalent
        }
    }
}

/// Judges a history. `effect` is the smallest step of interest as a share.
#[must_use]
pub fn judge(path: &str, file: HistoryFile, effect: f64, seed: u64) -> HistoryReport {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut series: Vec<Vec<(u64, HistoryEntry)>> = Vec::new();
    // A line is an entry or damaged.
    let damaged: BTreeSet<u64> = file.damaged.iter().map(|d| d.line).collect();
    let lines = (1..).filter(|line| !damaged.contains(line));
    for (line, entry) in lines.zip(file.entries) {
        let key = serde_json::to_string(&entry.series).unwrap_or_default();
        let at = *places.entry(key).or_insert(series.len());
        if at == series.len() {
            series.push(Vec::new());
        }
        series[at].push((line, entry));
    }
    HistoryReport {
        path: path.into(),
        effect,
        seed,
        series: series.into_iter().filter_map(|all| one(all, effect.ln_1p(), seed)).collect(),
        damaged: file.damaged,
    }
}

fn one(mut all: Vec<(u64, HistoryEntry)>, delta_log: f64, seed: u64) -> Option<HistorySeries> {
    let left_out = all.len().saturating_sub(MOST_ENTRIES);
    all.drain(..left_out);
    let (lines, entries): (Vec<u64>, Vec<HistoryEntry>) = all.into_iter().unzip();
    let logs: Vec<f64> = entries.iter().map(|e| e.log_ratio).collect();
    let found = changes(&logs, seed);
    let bounds: Vec<usize> =
        [0].into_iter().chain(found.iter().map(|c| c.at)).chain([logs.len()]).collect();
    let stretches: Vec<&[f64]> = bounds.windows(2).map(|b| &logs[b[0]..b[1]]).collect();
    let name = |at: usize| {
        let label = &entries[at].label;
        let is_one = entries.iter().filter(|e| e.label == *label).count() == 1;
        if is_one { label.clone() } else { format!("{label} (line {})", lines[at]) }
    };
    // The latest that was told is what is known of this program.
    let layout_sd_log = entries.iter().rev().find_map(|e| e.layout_sd_log);
    // Both sides are one placement each: their difference has the spread of two draws.
    let reach = layout_sd_log.map(|sd| Z * std::f64::consts::SQRT_2 * sd);
    let told = |before: usize, at: usize, change: Part, p_value: f64, is_drift: bool| HistoryStep {
        label: name(at),
        before: name(before),
        at: at as u64,
        change,
        p_value,
        layout_reach_log: reach,
        word: word(change.log_ratio, delta_log, reach, is_drift),
    };
    let runs = drifts(&logs, &bounds);
    let in_no_drift = |nth: &usize| !runs.iter().any(|(from, to)| (from..to).contains(&nth));
    let steps = (0..found.len()).filter(in_no_drift).map(|nth| {
        let Change { at, p_value } = found[nth];
        told(at - 1, at, step(stretches[nth], stretches[nth + 1]), p_value, false)
    });
    let drifts = runs.iter().map(|(from, to)| {
        let (first, behind) = (bounds[*from], bounds[to + 1]);
        let p_value = found[*from..*to].iter().map(|c| c.p_value).fold(1.0, f64::min);
        told(first, behind - 1, Line::of(&logs[first..behind]).change(), p_value, true)
    });
    let mut steps: Vec<HistoryStep> = steps.chain(drifts).collect();
    steps.sort_by_key(|step| step.at);
    let enough = entries.len() >= FEWEST;
    let is_steady = !runs.iter().any(|(_, to)| *to == found.len());
    let newest = stretches.last().filter(|_| enough && is_steady);
    let newest =
        newest.and_then(|stretch| newest_apart(stretch, delta_log)).map(|(count, change)| {
            NewestCommits { count: count as u64, label: name(entries.len() - count), change }
        });
    let back_in_time =
        (1..entries.len()).find(|at| entries[*at].time_s < entries[at - 1].time_s).map(name);
    Some(HistorySeries {
        series: entries.first()?.series.clone(),
        left_out: left_out as u64,
        steps,
        newest,
        back_in_time,
        commit_sd_log: pooled_sd(&stretches),
        enough,
        entries,
    })
}

fn step(before: &[f64], behind: &[f64]) -> Part {
    let mean = |side: &[f64]| mean_and_sd(side).0;
    // Without any spread the step is what it is.
    let plain = mean(behind) - mean(before);
    welch(before, behind)
        .map_or(Part { log_ratio: plain, low_log: plain, high_log: plain }, Part::from)
}

fn word(log: f64, delta_log: f64, reach_log: Option<f64>, is_drift: bool) -> StepWord {
    match log {
        log if log.abs() < delta_log => StepWord::TooSmall,
        log if reach_log.is_some_and(|reach| log.abs() <= reach) => StepWord::WithinLayoutSpread,
        log if is_drift && log > 0.0 => StepWord::DriftSlower,
        _ if is_drift => StepWord::DriftFaster,
        log if log > 0.0 => StepWord::Slower,
        _ => StepWord::Faster,
    }
}

#[cfg(test)]
mod tests;
