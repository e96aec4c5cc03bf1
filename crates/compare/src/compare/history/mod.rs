//! What comparisons said about one commit after the other: since which one is it slower?
//!
//! Every commit is held against one reference that stays the same, so that what the machine was like on a
//! day is in both and cancels. [`changes`] finds where the series of effects steps. A step is called one
//! only where it is large enough to matter, and larger than what placement alone does to this program, where
//! that is known: a commit that moves code steps just like one that changes it.

mod divisive;
mod entry;
mod file;
pub mod simulate;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use divisive::{Change, FEWEST, changes};
pub use entry::{HistoryEntry, SeriesKey, label_objection};
pub use file::{DamagedLine, History, HistoryError, HistoryFile, parse, read};

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
    /// It changes by less than what matters.
    TooSmall,
    /// It changes by no more than placements of the same code do.
    WithinLayoutSpread,
}

/// A place where a series changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryStep {
    /// The first commit behind it.
    pub label: String,
    /// The last one before it.
    pub before: String,
    /// Index of that first commit among the entries.
    pub at: u64,
    /// The mean of the stretch behind over that before (log), with its interval for the noise of commits.
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

/// Judges a history. `effect` is the smallest step of interest as a share.
#[must_use]
pub fn judge(path: &str, file: HistoryFile, effect: f64, seed: u64) -> HistoryReport {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut series: Vec<Vec<HistoryEntry>> = Vec::new();
    for entry in file.entries {
        let key = serde_json::to_string(&entry.series).unwrap_or_default();
        let at = *places.entry(key).or_insert(series.len());
        if at == series.len() {
            series.push(Vec::new());
        }
        series[at].push(entry);
    }
    HistoryReport {
        path: path.into(),
        effect,
        seed,
        series: series.into_iter().filter_map(|all| one(all, effect.ln_1p(), seed)).collect(),
        damaged: file.damaged,
    }
}

fn one(mut entries: Vec<HistoryEntry>, delta_log: f64, seed: u64) -> Option<HistorySeries> {
    let left_out = entries.len().saturating_sub(MOST_ENTRIES);
    entries.drain(..left_out);
    let logs: Vec<f64> = entries.iter().map(|e| e.log_ratio).collect();
    let found = changes(&logs, seed);
    let bounds: Vec<usize> =
        [0].into_iter().chain(found.iter().map(|c| c.at)).chain([logs.len()]).collect();
    let stretches: Vec<&[f64]> = bounds.windows(2).map(|b| &logs[b[0]..b[1]]).collect();
    // The latest that was told is what is known of this program.
    let layout_sd_log = entries.iter().rev().find_map(|e| e.layout_sd_log);
    let steps = found.iter().zip(stretches.windows(2)).map(|(change, sides)| {
        let part = step(sides[0], sides[1]);
        // Both sides are one placement each: their difference has the spread of two draws.
        let reach = layout_sd_log.map(|sd| Z * std::f64::consts::SQRT_2 * sd);
        HistoryStep {
            label: entries[change.at].label.clone(),
            before: entries[change.at - 1].label.clone(),
            at: change.at as u64,
            change: part,
            p_value: change.p_value,
            layout_reach_log: reach,
            word: word(part.log_ratio, delta_log, reach),
        }
    });
    let steps = steps.collect();
    Some(HistorySeries {
        series: entries.first()?.series.clone(),
        left_out: left_out as u64,
        steps,
        commit_sd_log: pooled_sd(&stretches),
        enough: entries.len() >= FEWEST,
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

fn word(log: f64, delta_log: f64, reach_log: Option<f64>) -> StepWord {
    match log {
        log if log.abs() < delta_log => StepWord::TooSmall,
        log if reach_log.is_some_and(|reach| log.abs() <= reach) => StepWord::WithinLayoutSpread,
        log if log > 0.0 => StepWord::Slower,
        _ => StepWord::Faster,
    }
}

#[cfg(test)]
mod tests;
