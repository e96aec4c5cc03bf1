//! The files of a fleet: a plan with a block on each line, and a folder with a result for each block.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::engine::{EngineError, Ticket};
use super::job::Job;
use super::selection::Selection;
use crate::compare::sweep::SweepError;
use crate::foreign;
use crate::machine::ProfileError;
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
    #[error("these folders hold {0}")]
    Otherwise(&'static str),
    #[error("the profile in {path} is none: {cause}")]
    Profile { path: PathBuf, cause: ProfileError },
    #[error(transparent)]
    Sweep(#[from] SweepError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

pub(super) fn failed(path: &Path) -> impl FnOnce(io::Error) -> FleetError + use<> {
    let path = path.to_path_buf();
    move |cause| FleetError::File { path, cause }
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
    pub fn write(
        path: &Path,
        blocks: impl Iterator<Item = impl Serialize>,
    ) -> Result<(), FleetError> {
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
    pub fn read(&self, wanted: Option<&Selection>) -> Result<Vec<Job>, FleetError> {
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
            let job = self.parsed(number, &line, Job::parse)?;
            job.check()?;
            found.push(job);
            if wanted.is_some_and(|w| w.blocks().len() == found.len()) {
                return Ok(found);
            }
        }
        if let Some(last) = wanted.and_then(|w| w.blocks().last()) {
            return Err(FleetError::NoBlock { path: path.clone(), has: lines, wanted: *last });
        }
        Ok(found)
    }

    /// What its first line asks for, and the numbers of the blocks on its lines.
    ///
    /// # Errors
    /// When the file cannot be read, or a line is no block.
    pub fn listed(&self) -> Result<(Job, Vec<u32>), FleetError> {
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
    pub fn prepare(&self, job: &Job) -> Result<(), FleetError> {
        fs::create_dir_all(&self.0).map_err(failed(&self.0))?;
        let path = self.0.join(format!("{PLAN}{}.json", job.head().plan));
        if path.exists() {
            return Ok(());
        }
        written(&path, job).and_then(WholeFile::keep).map_err(failed(&path))
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
        let Some(job) = Plan::at(self.0.join(plan)).read(None)?.into_iter().next() else {
            return Ok(None);
        };
        let start = format!("{}-", job.head().plan);
        let done = names.iter().filter(|n| n.starts_with(&start)).count() as u32;
        Ok(Some((done, job.head().blocks)))
    }

    fn result(&self, plan: &str, block: u32) -> PathBuf {
        self.0.join(format!("{plan}-{block:07}.json"))
    }

    /// Whether the result of this block is here.
    #[must_use]
    pub fn has(&self, plan: &str, block: u32) -> bool {
        self.result(plan, block).exists()
    }

    /// Keeps the result of a block, unless one is there already.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&self, plan: &str, block: u32, result: &impl Serialize) -> Result<(), FleetError> {
        let path = self.result(plan, block);
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
