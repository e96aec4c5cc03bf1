//! What has been run so far, on disk: a sweep that was interrupted goes on where it was, and a later one of
//! the same builds adds to what there is.
//!
//! One line per round, a [`BlockResult`], written as the round ends, and one where a sweep was finished. A
//! line that was cut off is as if it had not been run, and what follows something else is not believed.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{BlockResult, Cell, SweepError};
use crate::foreign;
use crate::trace::whole_file::WholeFile;

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
    /// Blocks of a round each, in the order of time.
    pub blocks: Vec<BlockResult>,
    /// Rounds of sweeps that came to their end; those behind them belong to one that was interrupted.
    pub finished_rounds: u32,
}

/// The line that ends a sweep.
#[derive(Serialize, Deserialize)]
struct Finished {
    finished_rounds: u32,
}

impl Journal {
    /// Opens the journal `name` below `folder`, with what it holds of this plan and these builds. With
    /// `fresh` older runs are forgotten.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn open(
        folder: &Path,
        name: &str,
        plan: &str,
        seats: &BTreeSet<Cell>,
        fresh: bool,
    ) -> Result<(Self, Kept), SweepError> {
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |cause| SweepError::File { path, cause }
        };
        fs::create_dir_all(folder).map_err(failed(folder))?;
        let path = folder.join(format!("{name}.jsonl"));
        let text = match foreign::read_text(&path, MOST_BYTES) {
            _ if fresh => String::new(),
            Ok(text) => text,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => String::new(),
            Err(cause) => return Err(SweepError::Journal { path, cause }),
        };
        let kept = read(text.lines(), plan, seats);
        // Written anew, so that half a line is gone from the file as well.
        let mut whole = String::new();
        for (number, block) in (1..).zip(&kept.blocks) {
            whole += &line(block);
            if number == kept.finished_rounds {
                whole += &line(&Finished { finished_rounds: number });
            }
        }
        WholeFile::write(&path, whole.as_bytes()).map_err(failed(&path))?;
        let file = OpenOptions::new().append(true).open(&path).map_err(failed(&path))?;
        Ok((Self { path, file }, kept))
    }

    /// Adds a round.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn add(&mut self, block: &BlockResult) -> Result<(), SweepError> {
        self.write(&line(block))
    }

    /// The sweep is finished after so many rounds: the next one adds to them.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn finish(mut self, finished_rounds: u32) -> Result<(), SweepError> {
        self.write(&line(&Finished { finished_rounds }))
    }

    fn write(&mut self, line: &str) -> Result<(), SweepError> {
        let failed = |cause| SweepError::File { path: self.path.clone(), cause };
        self.file.write_all(line.as_bytes()).map_err(failed)
    }
}

fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default() + "\n"
}

/// Whole rounds, from the first one on.
fn read<'a>(lines: impl Iterator<Item = &'a str>, plan: &str, seats: &BTreeSet<Cell>) -> Kept {
    let mut kept = Kept::default();
    for line in lines {
        let round = kept.blocks.len() as u32;
        if let Ok(Finished { finished_rounds }) = foreign::from_json(line) {
            kept.finished_rounds = finished_rounds.min(round);
            continue;
        }
        match foreign::from_json::<BlockResult>(line) {
            Ok(block) if block.plan == plan && block.is_whole(round..round + 1, seats) => {
                kept.blocks.push(block);
            }
            _ => break,
        }
    }
    kept
}
