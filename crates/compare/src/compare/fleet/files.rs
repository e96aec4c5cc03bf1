//! The files of a fleet: a plan with a block on each line, and a folder with a result for each block.

use std::fmt;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;

use super::engine::{EngineError, Ticket};
use crate::compare::sweep::{Block, BlockResult, MOST_BLOCKS, SweepError};
use crate::foreign;
use crate::trace::whole_file::WholeFile;

/// A block or a result with hundreds of builds has a megabyte.
pub(super) const MOST_LINE_BYTES: u64 = 64 << 20;

/// Why a fleet has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum FleetError {
    #[error("cannot use {path}: {cause}")]
    File { path: PathBuf, cause: io::Error },
    #[error("{path}, line {line}: this is no block: {cause}")]
    Line { path: PathBuf, line: u32, cause: String },
    #[error("`{0}` is no choice of blocks; write numbers and ranges, like 0-9,12")]
    Selection(String),
    #[error("{path} has {has} blocks; there is no block {wanted}")]
    NoBlock { path: PathBuf, has: u32, wanted: u32 },
    #[error("{0} holds no plan: it is no folder that a worker has written to")]
    NoPlan(PathBuf),
    #[error(
        "these folders hold blocks of several sweeps ({0} and {1}): collect each of them alone"
    )]
    SeveralPlans(String, String),
    #[error("no block has come back yet")]
    Nothing,
    #[error(transparent)]
    Sweep(#[from] SweepError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

pub(super) fn failed(path: &Path) -> impl FnOnce(io::Error) -> FleetError + use<> {
    let path = path.to_path_buf();
    move |cause| FleetError::File { path, cause }
}

/// Some blocks, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection(Vec<u32>);

impl Selection {
    /// These blocks.
    #[must_use]
    pub fn of(mut blocks: Vec<u32>) -> Self {
        blocks.sort_unstable();
        blocks.dedup();
        Self(blocks)
    }

    /// Their numbers.
    #[must_use]
    pub fn blocks(&self) -> &[u32] {
        &self.0
    }

    /// At most `most` parts with blocks that follow each other, as equal as may be.
    #[must_use]
    pub fn parts(&self, most: usize) -> Vec<Self> {
        let each = self.0.len().div_ceil(most.max(1)).max(1);
        self.0.chunks(each).map(|part| Self(part.to_vec())).collect()
    }

    /// One part for each of `count` takers, by turns.
    #[must_use]
    pub fn dealt(&self, count: usize) -> Vec<Self> {
        let taken = |first| self.0.iter().skip(first).step_by(count.max(1)).copied().collect();
        (0..count.min(self.0.len())).map(|first| Self(taken(first))).collect()
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for run in self.0.chunk_by(|a, b| a + 1 == *b) {
            match run {
                [one] => write!(f, "{comma}{one}")?,
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                [] => {}
            }
            comma = ",";
        }
        Ok(())
    }
}

impl FromStr for Selection {
    type Err = FleetError;

    fn from_str(text: &str) -> Result<Self, FleetError> {
        let wrong = || FleetError::Selection(text.into());
        let number = |word: &str| word.trim().parse::<u32>().map_err(|_| wrong());
        let mut blocks = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last >= MOST_BLOCKS {
                return Err(wrong());
            }
            blocks.extend(first..=last);
        }
        Ok(Self::of(blocks))
    }
}

/// A file with a block on each line.
#[derive(Clone, Debug)]
pub struct Plan(PathBuf);

impl Plan {
    /// The plan in this file.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Writes the blocks, one on each line.
    ///
    /// # Errors
    /// When the file cannot be written; then an older one is still there.
    pub fn write(path: &Path, blocks: impl Iterator<Item = Block>) -> Result<(), FleetError> {
        let write = || {
            let mut file = io::BufWriter::new(WholeFile::create(path)?);
            for block in blocks {
                file.write_all(&json_line(&block)?)?;
            }
            file.into_inner()?.keep()
        };
        write().map_err(failed(path))
    }

    /// The blocks that `wanted` names, of all that there are, without reading more than these.
    ///
    /// # Errors
    /// When the file cannot be read, a line is no block, or one of them is not there.
    pub fn read(&self, wanted: Option<&Selection>) -> Result<Vec<Block>, FleetError> {
        let path = &self.0;
        let file = foreign::open(path).map_err(failed(path))?;
        let mut found = Vec::new();
        let mut lines = 0;
        let mut reader = BufReader::new(file);
        while let Some(line) = next_line(&mut reader).map_err(failed(path))? {
            let number = lines;
            lines += 1;
            if wanted.is_some_and(|w| w.blocks().binary_search(&number).is_err()) {
                continue;
            }
            // A template is run as it was typed; what is shown of it the check looks at.
            let block: Block = self.parsed(number, &line, foreign::from_json_as_written)?;
            block.check()?;
            found.push(block);
            if wanted.is_some_and(|w| w.blocks().len() == found.len()) {
                return Ok(found);
            }
        }
        if let Some(last) = wanted.and_then(|w| w.blocks().last()) {
            return Err(FleetError::NoBlock { path: path.clone(), has: lines, wanted: *last });
        }
        Ok(found)
    }

    /// Its first block, and the numbers of the blocks on its lines.
    ///
    /// # Errors
    /// When the file cannot be read, or a line is no block.
    pub fn listed(&self) -> Result<(Block, Vec<u32>), FleetError> {
        #[derive(serde::Deserialize)]
        struct Number {
            block: u32,
        }
        let path = &self.0;
        let first = self.read(Some(&Selection::of(vec![0])))?.remove(0);
        let mut reader = BufReader::new(foreign::open(path).map_err(failed(path))?);
        let mut numbers = Vec::new();
        while let Some(line) = next_line(&mut reader).map_err(failed(path))? {
            let Number { block } = self.parsed(numbers.len() as u32, &line, foreign::from_json)?;
            numbers.push(block);
        }
        Ok((first, numbers))
    }

    /// What a line holds; lines count from 0 here, and from 1 where they are told.
    fn parsed<T>(
        &self,
        number: u32,
        line: &[u8],
        parse: impl FnOnce(&str) -> serde_json::Result<T>,
    ) -> Result<T, FleetError> {
        let text = std::str::from_utf8(line).map_err(|e| e.to_string());
        let parsed = text.and_then(|text| parse(text).map_err(|e| e.to_string()));
        parsed.map_err(|cause| FleetError::Line { path: self.0.clone(), line: number + 1, cause })
    }
}

/// The next line without its end; one that is too long is as if it were empty.
pub(super) fn next_line(reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let read = io::Read::take(&mut *reader, MOST_LINE_BYTES).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if read as u64 == MOST_LINE_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a line has more than 64 MiB"));
    }
    Ok((read > 0).then_some(line))
}

/// A document on a line of its own.
fn json_line(document: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(document)?;
    line.push(b'\n');
    Ok(line)
}

/// A file with a document on one line that is not there yet.
fn written(path: &Path, document: &impl Serialize) -> io::Result<WholeFile> {
    let mut file = WholeFile::create(path)?;
    file.write_all(&json_line(document)?)?;
    Ok(file)
}

/// A folder that workers write to.
#[derive(Clone, Debug)]
pub struct ResultFolder(PathBuf);

/// How the file with a plan begins.
pub(super) const PLAN: &str = "plan-";
/// Where it is kept which engine has the blocks.
const TICKET: &str = "submitted.json";

impl ResultFolder {
    /// This folder.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes it, and keeps in it what the blocks are of.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn prepare(&self, block: &Block) -> Result<(), FleetError> {
        fs::create_dir_all(&self.0).map_err(failed(&self.0))?;
        let path = self.0.join(format!("{PLAN}{}.json", block.plan));
        if path.exists() {
            return Ok(());
        }
        written(&path, block).and_then(WholeFile::keep).map_err(failed(&path))
    }

    /// How many blocks have a result of their own here, and how many there are of the plan; `None` before a
    /// worker has written.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn progress(&self) -> Result<Option<(u32, u32)>, FleetError> {
        let names: Vec<String> = fs::read_dir(&self.0)
            .and_then(|entries| {
                entries.map(|e| Ok(e?.file_name().to_string_lossy().into_owned())).collect()
            })
            .map_err(failed(&self.0))?;
        let Some(plan) = names.iter().find(|n| n.starts_with(PLAN) && n.ends_with(".json")) else {
            return Ok(None);
        };
        let Some(block) = Plan::at(self.0.join(plan)).read(None)?.into_iter().next() else {
            return Ok(None);
        };
        let start = format!("{}-", block.plan);
        let done = names.iter().filter(|n| n.starts_with(&start)).count() as u32;
        Ok(Some((done, block.blocks)))
    }

    fn result(&self, plan: &str, block: u32) -> PathBuf {
        self.0.join(format!("{plan}-{block:07}.json"))
    }

    /// Whether the result of this block is here.
    #[must_use]
    pub fn has(&self, plan: &str, block: u32) -> bool {
        self.result(plan, block).exists()
    }

    /// Keeps a result, unless one is there already.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&self, result: &BlockResult) -> Result<(), FleetError> {
        let path = self.result(&result.plan, result.block);
        match written(&path, result).and_then(WholeFile::keep_new) {
            // Another worker had the same block and was first.
            Err(_) if path.exists() => Ok(()),
            kept => kept.map_err(failed(&path)),
        }
    }

    /// Keeps who has the blocks.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_ticket(&self, ticket: &Ticket) -> Result<(), FleetError> {
        let path = self.0.join(TICKET);
        written(&path, ticket).and_then(WholeFile::keep).map_err(failed(&path))
    }

    /// Who has the blocks; `None` when none were handed out from here.
    ///
    /// # Errors
    /// When what is there is no such file.
    pub fn ticket(&self) -> Result<Option<Ticket>, FleetError> {
        let path = self.0.join(TICKET);
        let text = match foreign::read_text(&path, MOST_LINE_BYTES) {
            Ok(text) => text,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(failed(&path)(cause)),
        };
        let wrong = |e: serde_json::Error| FleetError::Line { path, line: 1, cause: e.to_string() };
        foreign::from_json(&text).map(Some).map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_of_blocks_are_read_as_they_are_written() {
        let of = |text: &str| text.parse::<Selection>().unwrap();
        assert_eq!(of("3,0-2,7").blocks(), [0, 1, 2, 3, 7]);
        assert_eq!(of("7,3,1,2,2").to_string(), "1-3,7");
        for wrong in ["", "x", "3-1", "1-", "-1", "0-99999999"] {
            assert!(wrong.parse::<Selection>().is_err(), "{wrong}");
        }
        let words =
            |parts: Vec<Selection>| parts.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(words(of("0-9").parts(4)), ["0-2", "3-5", "6-8", "9"]);
        assert_eq!(words(of("0-4").dealt(2)), ["0,2,4", "1,3"]);
        assert_eq!(words(of("0-1").dealt(4)), ["0", "1"]);
    }
}
