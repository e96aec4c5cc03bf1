//! What has been run so far, on disk: a sweep that was interrupted goes on where it was, and a later one of
//! the same builds adds to what there is.
//!
//! The first line holds the question, then one line per run, each written as the run ends, and one where a
//! sweep was finished. A line that was cut off is as if it had not been run; so is a round that was not
//! finished, because its runs belong next to each other in time. Whole rounds that follow something else
//! are not believed.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Cell, SweepError, SweepRun, SweepSettings};
use crate::foreign;

/// Above it no more is added: rounds of months.
const MOST_BYTES: u64 = 64 << 20;

/// The journal of one question about the same builds.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
}

/// What earlier sweeps have left.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    /// Runs of whole rounds, in the order of time.
    pub runs: Vec<SweepRun>,
    /// Rounds of sweeps that came to their end; those behind them belong to one that was interrupted.
    pub finished_rounds: u32,
}

/// The line that ends a sweep.
#[derive(Serialize, Deserialize)]
struct Finished {
    finished_rounds: u32,
}

impl Journal {
    /// Opens the journal of this question below `folder`, with what it holds of these cells. With `fresh`
    /// older runs are forgotten.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn open(
        folder: &Path,
        settings: &SweepSettings,
        identity: u64,
        cells: &[Cell],
        fresh: bool,
    ) -> Result<(Self, Kept), SweepError> {
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |cause| SweepError::File { path, cause }
        };
        fs::create_dir_all(folder).map_err(failed(folder))?;
        let path = folder.join(format!("{identity:016x}.jsonl"));
        let text = match foreign::read_text(&path, MOST_BYTES) {
            _ if fresh => String::new(),
            Ok(text) => text,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => String::new(),
            Err(cause) => return Err(SweepError::Journal { path, cause }),
        };
        let head = serde_json::to_string(&settings.question()).unwrap_or_default();
        let mut lines = text.lines();
        let same = lines.next() == Some(head.as_str());
        let kept = read(lines.filter(|_| same), cells);
        // Written anew, so that half a line or half a round is gone from the file as well; beside it
        // first, so that a kill leaves what there was.
        let mut whole = head + "\n";
        let finished = kept.finished_rounds as usize * cells.len();
        for (number, run) in kept.runs.iter().enumerate() {
            whole += &serde_json::to_string(run).unwrap_or_default();
            whole.push('\n');
            if number + 1 == finished {
                whole += &finished_line(kept.finished_rounds);
            }
        }
        let part = folder.join(format!("{identity:016x}.{}", std::process::id()));
        fs::write(&part, whole).and_then(|()| fs::rename(&part, &path)).map_err(failed(&path))?;
        let file = OpenOptions::new().append(true).open(&path).map_err(failed(&path))?;
        Ok((Self { path, file }, kept))
    }

    /// Adds a run.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn add(&mut self, run: &SweepRun) -> Result<(), SweepError> {
        self.write(serde_json::to_string(run).unwrap_or_default() + "\n")
    }

    /// The sweep is finished after so many rounds: the next one adds to them.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self, rounds: u32) -> Result<(), SweepError> {
        self.write(finished_line(rounds))
    }

    fn write(&mut self, line: String) -> Result<(), SweepError> {
        let failed = |cause| SweepError::File { path: self.path.clone(), cause };
        self.file.write_all(line.as_bytes()).map_err(failed)
    }
}

fn finished_line(finished_rounds: u32) -> String {
    serde_json::to_string(&Finished { finished_rounds }).unwrap_or_default() + "\n"
}

/// Whole rounds, from the first one on, each with every cell once.
fn read<'a>(lines: impl Iterator<Item = &'a str>, cells: &[Cell]) -> Kept {
    let wanted: BTreeSet<Cell> = cells.iter().copied().collect();
    let mut kept = Kept::default();
    let mut round: Vec<SweepRun> = Vec::new();
    for line in lines {
        let rounds = (kept.runs.len() / cells.len().max(1)) as u32;
        if let Ok(Finished { finished_rounds }) = foreign::from_json(line) {
            kept.finished_rounds = finished_rounds.min(rounds);
            continue;
        }
        let Ok(run) = foreign::from_json::<SweepRun>(line) else { break };
        // An interrupted round is begun again, and its number with it.
        if run.round != rounds || !wanted.contains(&run.cell) {
            break;
        }
        if round.iter().any(|r| r.cell == run.cell) {
            round.clear();
        }
        round.push(run);
        if round.len() == wanted.len() {
            kept.runs.append(&mut round);
        }
    }
    kept
}
