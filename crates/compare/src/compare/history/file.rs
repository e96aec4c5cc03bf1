//! The file of a history: one JSON object a line, added whole or not at all.
//!
//! It is the user's, may live for years, and may be edited, merged and cut. Nothing is added to a file that
//! holds anything else than entries; what is read from one is what is whole, and the rest is named.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::HistoryEntry;
use crate::foreign;

/// A hundred commits a day for a year.
const MOST_BYTES: u64 = 32 << 20;

/// Why a history cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum HistoryError {
    #[error("cannot use the history {path}: {cause}")]
    File { path: PathBuf, cause: io::Error },
    /// Something would be added behind what is no entry.
    #[error(
        "nothing is added to {path}: line {line} is no entry of a history ({what}); repair or remove \
         that line, or name another file"
    )]
    Damaged { path: PathBuf, line: u64, what: String },
}

/// A line that is not believed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DamagedLine {
    /// Number of the line, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub what: String,
}

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistoryFile {
    /// The entries, in the order of the file.
    pub entries: Vec<HistoryEntry>,
    /// Lines that are none.
    pub damaged: Vec<DamagedLine>,
}

/// Reads entries from text.
#[must_use]
pub fn parse(text: &str) -> HistoryFile {
    let mut file = HistoryFile::default();
    // An editor may have put a byte order mark in front.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let what = match foreign::from_json::<HistoryEntry>(line) {
            // What was cut off behind the last brace is whole, and yet nobody knows what follows it.
            _ if !line.ends_with('\n') => "it has no end".to_owned(),
            Err(cause) => cause.to_string(),
            Ok(entry) => match entry.objection() {
                Some(what) => what.to_owned(),
                None => {
                    file.entries.push(entry);
                    continue;
                }
            },
        };
        file.damaged.push(DamagedLine { line: number as u64 + 1, what });
    }
    file
}

/// Reads the history in `path`.
///
/// # Errors
/// When it cannot be read, or is too large to be one.
pub fn read(path: &Path) -> Result<HistoryFile, HistoryError> {
    let text = foreign::read_text(path, MOST_BYTES);
    Ok(parse(&text.map_err(|cause| HistoryError::File { path: path.into(), cause })?))
}

/// A history that is added to; nobody else adds to it meanwhile.
#[derive(Debug)]
pub struct History {
    path: PathBuf,
}

impl History {
    /// Looks whether something can be added to `path`, which may not be there yet.
    ///
    /// # Errors
    /// When it cannot be read or written, or holds anything else than entries.
    pub fn open(path: &Path) -> Result<Self, HistoryError> {
        let new = Self { path: path.into() };
        new.locked().map(|_| new)
    }

    /// Adds an entry, whole or not at all.
    ///
    /// # Errors
    /// As [`History::open`].
    pub fn add(&self, entry: &HistoryEntry) -> Result<(), HistoryError> {
        let failed = |cause| HistoryError::File { path: self.path.clone(), cause };
        let (mut file, bytes) = self.locked()?;
        let line = serde_json::to_string(entry).map_err(|e| failed(e.into()))? + "\n";
        let written = file.write_all(line.as_bytes()).and_then(|()| file.sync_data());
        written.map_err(|cause| {
            // A full disk leaves half a line otherwise.
            let _ = file.set_len(bytes);
            failed(cause)
        })
    }

    /// The file, locked, and its length, if all of its lines are entries.
    fn locked(&self) -> Result<(File, u64), HistoryError> {
        let failed = |cause| HistoryError::File { path: self.path.clone(), cause };
        let file = OpenOptions::new().create(true).append(true).open(&self.path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "it is no file")));
        }
        file.lock().map_err(failed)?;
        let text = foreign::read_text(&self.path, MOST_BYTES).map_err(failed)?;
        match parse(&text).damaged.into_iter().next() {
            Some(DamagedLine { line, what }) => {
                Err(HistoryError::Damaged { path: self.path.clone(), line, what })
            }
            None => Ok((file, text.len() as u64)),
        }
    }
}
