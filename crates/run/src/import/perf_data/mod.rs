//! `perf.data` read directly: which instruction of which file was sampled how often.
//!
//! perf's own way is to print every sample as a line of text. Here the records are walked in their
//! binary form, twice: first for what processes mapped and when, then for the samples, which are
//! counted per address at once. Memory grows with the number of different addresses and not with
//! the number of samples. This is the one reader of such files: `layout` asks it for counts, `scan`
//! for weights. Files, pipes (`perf record -o -`) and compressed recordings (`-z`) are
//! read; callchains, registers and branch stacks are stepped over.

mod count;
mod event;
mod file;
mod spaces;
#[cfg(test)]
mod tests;
mod unpack;
mod walk;

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use crate::foreign::{Bytes, u32_at, u64_at};
use crate::model::{FileOffset, Svma};
use count::Counter;
use event::Attr;
use file::{Frame, Opened};
use spaces::Changes;
use unpack::Unpacker;
use walk::{Broken, Record, walk};

const LOST: u32 = 2;
const THROTTLE: u32 = 5;
const SAMPLE: u32 = 9;
const LOST_SAMPLES: u32 = 13;
/// The types that are known here: the kernel's, and those of perf itself.
const KERNEL_TYPES: RangeInclusive<u32> = 1..=21;
const TOOL_TYPES: RangeInclusive<u32> = 64..=83;
const HEADER_ATTR: u32 = 64;
const HEADER_BUILD_ID: u32 = 67;
const HEADER_FEATURE: u32 = 80;
const COMPRESSED: u32 = 81;
const COMPRESSED_WITH_SIZE: u32 = 83;
const MISC_MODE: u16 = 7;
const MODE_USER: u16 = 2;
/// The process in which the kernel's parts are mapped.
const KERNEL_PID: u32 = u32::MAX;

/// Why a recording cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum PerfDataError {
    #[error("{path} cannot be read: {cause}")]
    Unreadable { path: PathBuf, cause: io::Error },
    #[error("{0} is no perf.data file: it does not start with PERFILE2; make one with perf record")]
    NotPerfData(PathBuf),
    #[error("{path} is truncated: {detail}; record it again, or copy it whole")]
    Truncated { path: PathBuf, detail: String },
    #[error("{path} is damaged: {detail}; record it again")]
    Damaged { path: PathBuf, detail: String },
    #[error("{path} was recorded on {architecture}; only {readable} recordings can be analysed")]
    Foreign { path: PathBuf, architecture: String, readable: &'static str },
    #[error("{0} holds no samples; let perf record run longer or sample more often")]
    Empty(PathBuf),
    /// The program is not the one that was recorded.
    #[error(
        "{program} was built again since {recording} was recorded (build id {now}, recorded \
         {then}); record again, or name the program that was recorded"
    )]
    Rebuilt { program: PathBuf, recording: PathBuf, now: String, then: String },
    #[error(
        "{recording} has no samples in {program}, but in {others}; name the program that was recorded"
    )]
    NotRecorded { program: PathBuf, recording: PathBuf, others: String },
}

/// The samples of one event in one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FileHits {
    /// As the kernel names it.
    pub path: PathBuf,
    /// Its build id in hex, where the recording has it.
    pub build_id: Option<String>,
    /// Samples by position in the file.
    pub hits: BTreeMap<FileOffset, u64>,
    /// Events that those samples stand for; empty where samples do not say, and all are alike.
    pub weights: BTreeMap<FileOffset, u64>,
}

impl FileHits {
    /// All samples in this file.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.hits.values().sum()
    }
}

/// Where the kernel was sampled: its files are mapped at the addresses that they state, unless it was
/// moved at boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KernelHits {
    /// As the kernel names its part, such as `[kernel.kallsyms]_text` or a module's file.
    pub path: PathBuf,
    /// Events (samples where they do not say) by address.
    pub weights: BTreeMap<Svma, u64>,
}

/// The samples of one event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EventHits {
    /// As perf names it.
    pub name: String,
    /// Events per sample, where that was fixed.
    pub period: Option<u64>,
    /// Samples per second aimed at, where that was fixed.
    pub frequency_hz: Option<u64>,
    /// How precise an address is: 0 may be late, 2 and 3 name the instruction itself.
    pub precision: u8,
    /// Whether samples carry the branches before them.
    pub has_branch_stack: bool,
    /// Whether samples carry the address of data.
    pub has_data_address: bool,
    /// All samples.
    pub samples: u64,
    /// Those outside user code.
    pub kernel: u64,
    /// Those in code that no file holds.
    pub unmapped: u64,
    /// Per file, the one with the most samples first.
    pub files: Vec<FileHits>,
    /// Per part of the kernel, as far as it was mapped in the recording.
    pub kernel_parts: Vec<KernelHits>,
}

/// A recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PerfData {
    /// The file.
    pub path: PathBuf,
    /// The kind of processor that it was recorded on, where it says so.
    pub architecture: Option<String>,
    /// Per event, in the order of the file.
    pub events: Vec<EventHits>,
    /// Samples that the kernel had no room for.
    pub lost: u64,
    /// How often the kernel paused the sampling.
    pub throttled: u64,
    /// Records of a type that is not known here; they were stepped over.
    pub unknown_records: u64,
}

impl PerfData {
    /// Reads a whole recording.
    ///
    /// # Errors
    /// See [`PerfDataError`]; the last two come from [`PerfData::in_program`] only.
    pub fn read(path: &Path) -> Result<Self, PerfDataError> {
        Self::of(Opened::open(path)?)
    }

    /// Reads a recording that is already in memory; `path` is for messages.
    ///
    /// # Errors
    /// As [`PerfData::read`].
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, PerfDataError> {
        Self::of(Opened::of(path, io::Cursor::new(bytes), bytes.len() as u64))
    }

    fn of<S: Read + Seek>(mut opened: Opened<'_, S>) -> Result<Self, PerfDataError> {
        let path = opened.path;
        let mut frame = opened.frame()?;
        let mut gathered = Gathered::default();
        let data = frame.data;
        each_record(&mut opened, data, |r| gathered.take(r, &mut frame))?;
        if frame.events.is_empty() {
            return Err(PerfDataError::Empty(path.into()));
        }
        let spaces = std::mem::take(&mut gathered.changes).sort();
        let mut counter = Counter::new(&frame, &spaces);
        each_record(&mut opened, data, |r| counter.take(r))?;
        let events = counter.finish(&frame);
        if events.iter().all(|e| e.samples == 0) {
            return Err(PerfDataError::Empty(path.into()));
        }
        Ok(Self {
            path: path.into(),
            architecture: frame.architecture,
            events,
            lost: gathered.lost,
            throttled: gathered.throttled,
            unknown_records: gathered.unknown,
        })
    }

    /// Refuses a recording that says it was not made on x86-64.
    ///
    /// # Errors
    /// [`PerfDataError::Foreign`].
    pub fn of_x86_64(self) -> Result<Self, PerfDataError> {
        match self.architecture {
            Some(architecture) if architecture != "x86_64" => {
                Err(PerfDataError::Foreign { path: self.path, architecture, readable: "x86-64" })
            }
            _ => Ok(self),
        }
    }

    /// The event with the most samples.
    #[must_use]
    pub fn main_event(&self) -> Option<&EventHits> {
        // The first of those with equally many.
        self.events.iter().rev().max_by_key(|e| e.samples)
    }

    /// The samples of `event` in a program, found by build id, else by name; and what the reader
    /// should know when that cannot be checked.
    ///
    /// # Errors
    /// [`PerfDataError::Rebuilt`] and [`PerfDataError::NotRecorded`].
    pub fn in_program<'a>(
        &'a self,
        event: &'a EventHits,
        program: &Path,
        build_id: Option<&str>,
    ) -> Result<(&'a FileHits, Option<String>), PerfDataError> {
        let same_id = |f: &&FileHits| build_id.is_some() && f.build_id.as_deref() == build_id;
        if let Some(file) = event.files.iter().find(same_id) {
            return Ok((file, None));
        }
        let real = program.canonicalize().unwrap_or_else(|_| program.into());
        let named = |f: &&FileHits| f.path.file_name() == real.file_name();
        let by_path = event.files.iter().find(|f| f.path == real);
        match (by_path.or_else(|| event.files.iter().find(named)), build_id) {
            (Some(FileHits { build_id: Some(then), .. }), Some(now)) => {
                Err(PerfDataError::Rebuilt {
                    program: program.into(),
                    recording: self.path.clone(),
                    now: now.into(),
                    then: then.clone(),
                })
            }
            (Some(file), _) => Ok((file, Some(self.unchecked(program)))),
            (None, _) => {
                let others: Vec<_> =
                    event.files.iter().take(3).map(|f| f.path.display().to_string()).collect();
                let others =
                    if others.is_empty() { "no file at all".into() } else { others.join(", ") };
                Err(PerfDataError::NotRecorded {
                    program: program.into(),
                    recording: self.path.clone(),
                    others,
                })
            }
        }
    }

    fn unchecked(&self, program: &Path) -> String {
        format!(
            "{} and {} do not both have a build id: whether the program was built again since \
             cannot be told",
            program.display(),
            self.path.display()
        )
    }
}

/// Walks over the records, those that are packed included.
fn each_record<S: Read + Seek>(
    opened: &mut Opened<'_, S>,
    (start, size): (u64, Option<u64>),
    mut take: impl FnMut(Record<'_>),
) -> Result<(), PerfDataError> {
    let (path, length) = (opened.path, opened.length);
    opened
        .source
        .seek(SeekFrom::Start(start))
        .map_err(|cause| PerfDataError::Unreadable { path: path.into(), cause })?;
    let mut unpacker = None;
    let walked = walk(opened.source.by_ref().take(size.unwrap_or(u64::MAX)), |record| {
        let piece = match record.kind {
            COMPRESSED => record.body,
            COMPRESSED_WITH_SIZE => {
                let mut body = Bytes(record.body);
                let size = body.u64().and_then(|n| usize::try_from(n).ok());
                size.and_then(|n| body.take(n)).unwrap_or_default()
            }
            _ => {
                take(record);
                return Ok(());
            }
        };
        unpacker.get_or_insert_with(|| Unpacker::new(length)).push(piece, &mut take)
    });
    let walked = walked.and_then(|()| match &mut unpacker {
        Some(unpacker) => unpacker.finish(&mut take),
        None => Ok(()),
    });
    walked.map_err(|error| match error {
        Broken::Io(cause) => PerfDataError::Unreadable { path: path.into(), cause },
        Broken::Cut { at } => PerfDataError::Truncated {
            path: path.into(),
            detail: format!("it ends inside the record {at} bytes behind the first"),
        },
        Broken::Nonsense { at, kind } => PerfDataError::Damaged {
            path: path.into(),
            detail: format!(
                "the record {at} bytes behind the first, of type {kind}, makes no sense"
            ),
        },
    })
}

/// What the first walk finds: everything but the samples.
#[derive(Default)]
struct Gathered {
    changes: Changes,
    lost: u64,
    throttled: u64,
    unknown: u64,
}

impl Gathered {
    fn take(&mut self, record: Record<'_>, frame: &mut Frame) {
        let mut body = Bytes(record.body);
        match record.kind {
            SAMPLE => {}
            LOST => self.lost += u64_at(record.body, 8).unwrap_or(0),
            LOST_SAMPLES => self.lost += body.u64().unwrap_or(0),
            THROTTLE => self.throttled += 1,
            HEADER_ATTR => {
                // The attribute says how long it is; its numbers follow.
                let length = u32_at(record.body, 4).map_or(0, |n| n as usize);
                if let Some((attr, ids)) = record.body.split_at_checked(length)
                    && let Some(attr) = Attr::read(attr)
                {
                    frame.add_event(attr, ids);
                }
            }
            HEADER_BUILD_ID => frame.add_build_id(record.misc, record.body),
            HEADER_FEATURE => {
                if let Some(feature) = body.u64().and_then(|f| u32::try_from(f).ok()) {
                    frame.add_feature(feature, body.0);
                }
            }
            kind if KERNEL_TYPES.contains(&kind) => {
                let places = frame.events.first().map(|e| e.attr.places()).unwrap_or_default();
                let time = places
                    .time_from_end
                    .and_then(|back| record.body.len().checked_sub(back))
                    .and_then(|at| u64_at(record.body, at));
                self.changes.take(record, time.unwrap_or(0));
            }
            kind if TOOL_TYPES.contains(&kind) => {}
            _ => self.unknown += 1,
        }
    }
}
