//! What has been run so far, on disk: a sweep that was interrupted goes on where it was.
//!
//! The first line holds the settings, then one line per run, each written as the run ends. A line
//! that was cut off is as if it had not been run; so is a round that was not finished, because its
//! runs belong next to each other in time.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::foreign;

use super::{SweepError, SweepRun, SweepSettings};

/// A sweep of weeks has fewer runs than fit in so much.
const MOST_BYTES: u64 = 64 << 20;

/// The journal of one sweep.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens the journal of these settings below `folder`, and hands back the runs of finished rounds
    /// (`cells` runs each) and the seed they were made with. With `fresh` older runs are forgotten.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn open(
        folder: &Path,
        settings: &SweepSettings,
        identity: u64,
        cells: usize,
        fresh: bool,
    ) -> Result<(Self, Vec<SweepRun>), SweepError> {
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |cause| SweepError::File { path, cause }
        };
        fs::create_dir_all(folder).map_err(failed(folder))?;
        let path = folder.join(format!("{identity:016x}.jsonl"));
        let text = if fresh {
            String::new()
        } else {
            foreign::read_text(&path, MOST_BYTES).unwrap_or_default()
        };
        let head = serde_json::to_string(settings).unwrap_or_default();
        let mut lines = text.lines();
        let same = lines.next() == Some(head.as_str());
        let mut runs: Vec<SweepRun> =
            lines.filter(|_| same).map_while(|l| foreign::from_json(l).ok()).collect();
        runs.truncate(runs.len() - runs.len() % cells.max(1));
        // Written anew, so that half a line or half a round is gone from the file as well.
        let mut whole = head + "\n";
        for run in &runs {
            whole += &serde_json::to_string(run).unwrap_or_default();
            whole.push('\n');
        }
        fs::write(&path, whole).map_err(failed(&path))?;
        let file = OpenOptions::new().append(true).open(&path).map_err(failed(&path))?;
        Ok((Self { path, file }, runs))
    }

    /// Adds a run.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn add(&mut self, run: &SweepRun) -> Result<(), SweepError> {
        let line = serde_json::to_string(run).unwrap_or_default() + "\n";
        let failed = |cause| SweepError::File { path: self.path.clone(), cause };
        self.file.write_all(line.as_bytes()).map_err(failed)
    }

    /// The sweep is finished: nothing is left to go on with.
    pub fn finish(self) {
        let _ = fs::remove_file(&self.path);
    }
}
