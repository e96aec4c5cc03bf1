//! Keeping the verdict of a comparison for `history`.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::bail;
use clap::Args;
use stallscope::compare::Comparison;
use stallscope::compare::history::{History, HistoryEntry, label_objection};
use stallscope::machine::Machine;

use crate::commands::words;

#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Add the verdict to FILE, for `stallscope history FILE`; A stays the same, B is the commit
    #[arg(long, value_name = "FILE", requires = "label")]
    history: Option<PathBuf>,
    /// The commit that B was built from
    #[arg(long, value_name = "COMMIT", requires = "history")]
    label: Option<String>,
    /// How far placements of B lie apart (layout sd, as `sweep` tells it), kept with the verdict
    #[arg(long, value_name = "SHARE", requires = "history", value_parser = words::share)]
    layout_spread: Option<f64>,
}

impl HistoryArgs {
    pub fn is_given(&self) -> bool {
        self.history.is_some()
    }

    /// The history, looked at before minutes are spent on what will be added.
    ///
    /// # Errors
    /// When nothing can be added to it, or the label names no commit.
    pub fn open(&self) -> anyhow::Result<Option<History>> {
        let Some(path) = &self.history else { return Ok(None) };
        if let Some(what) = self.label.as_deref().and_then(label_objection) {
            bail!("--label: {what}");
        }
        Ok(Some(History::open(path)?))
    }

    /// What is added.
    pub fn entry(&self, comparison: &Comparison, redacts_args: bool) -> HistoryEntry {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut entry = HistoryEntry::of(
            comparison,
            self.label.as_deref().unwrap_or_default(),
            now_s,
            &Machine::detect().profile_key(),
            self.layout_spread.map(f64::ln_1p),
        );
        if redacts_args {
            entry.series.reference.truncate(1);
            entry.series.command.truncate(1);
        }
        entry
    }
}
