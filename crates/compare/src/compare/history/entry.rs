//! One line of a history: what one comparison said about one commit.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::compare::{Comparison, Decision, Measure, Metric};

/// Ratios above it are no measurement of two builds of one program.
const MOST_LOG: f64 = 13.8;
/// Longest label, in bytes: a hash, a branch, a title.
const MOST_LABEL_BYTES: usize = 200;

/// What is compared in a history: entries are of one series only where all of this is the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SeriesKey {
    /// The command that the commits are compared with, as it was typed.
    pub reference: Vec<String>,
    /// Fingerprint of its program: one that was built anew is another reference.
    pub reference_fnv1a: String,
    /// The command of the commits.
    pub command: Vec<String>,
    /// What was asked for. By `auto` one commit may be judged by wall time and the next, which waited for the
    /// processor and nothing else, by processor time: both are about the same.
    pub measure: Measure,
    /// The kind of machine.
    pub machine: String,
}

/// One commit held against the reference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryEntry {
    /// The commit, or whatever it was called.
    pub label: String,
    /// When it was measured, in seconds since 1970.
    pub time_s: u64,
    /// What it belongs to.
    #[serde(flatten)]
    pub series: SeriesKey,
    /// Fingerprint of the commit's program.
    pub program_fnv1a: String,
    /// What the effect is about.
    pub metric: Metric,
    /// The verdict on the commit.
    pub decision: Decision,
    /// The commit over the reference, natural logarithm of the ratio.
    pub log_ratio: f64,
    /// Lower end of its 95 % interval.
    pub low_log: f64,
    /// Upper end of its 95 % interval.
    pub high_log: f64,
    /// Pairs of runs behind it.
    pub pairs: u64,
    /// How far placements of this program lie apart (standard deviation, log), where `sweep` has told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout_sd_log: Option<f64>,
}

impl HistoryEntry {
    /// What `comparison` says about the commit `label`.
    #[must_use]
    pub fn of(
        comparison: &Comparison,
        label: &str,
        time_s: u64,
        machine: &str,
        layout_sd_log: Option<f64>,
    ) -> Self {
        let [a, b] = &comparison.arms;
        let analysis = &comparison.analysis;
        let [low_log, log_ratio, high_log] = analysis.judged();
        Self {
            label: label.into(),
            time_s,
            series: SeriesKey {
                reference: a.command.clone(),
                reference_fnv1a: a.program_fnv1a.clone(),
                command: b.command.clone(),
                measure: comparison.settings.measure.clone(),
                machine: machine.into(),
            },
            program_fnv1a: b.program_fnv1a.clone(),
            metric: analysis.metric(),
            decision: analysis.verdict.decision,
            log_ratio,
            low_log,
            high_log,
            pairs: analysis.wall.estimate.n as u64,
            layout_sd_log,
        }
    }

    /// Why it cannot be what a comparison has written; `None` when it can.
    pub(super) fn objection(&self) -> Option<&'static str> {
        let logs = [self.low_log, self.log_ratio, self.high_log];
        if !logs.iter().all(|log| log.abs() <= MOST_LOG) || !logs.is_sorted() {
            return Some("its interval is none");
        }
        if self.layout_sd_log.is_some_and(|sd| !(0.0..=MOST_LOG).contains(&sd)) {
            return Some("its layout spread is none");
        }
        if self.pairs == 0 {
            return Some("it has no pairs");
        }
        label_objection(&self.label)
    }
}

/// Why `label` names no commit; `None` when it can.
#[must_use]
pub fn label_objection(label: &str) -> Option<&'static str> {
    let fits = !label.trim().is_empty() && label.len() <= MOST_LABEL_BYTES;
    (!fits || label.chars().any(char::is_control))
        .then_some("its label is empty, longer than 200 bytes, or more than one line")
}
