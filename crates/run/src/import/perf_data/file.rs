//! The frame of a file: magic number, sections, attributes, the tables behind the data.
//!
//! There are two forms. A file that perf could go back in has a header with the places of
//! everything; one that went through a pipe has sixteen bytes and says the rest in records.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::PerfDataError;
use super::event::Attr;
use crate::foreign::{self, Bytes, hex, plain_bytes};

const MAGIC: &[u8; 8] = b"PERFILE2";
const PIPE_HEADER_BYTES: u64 = 16;
const FILE_HEADER_BYTES: usize = 104;
/// Tables larger than this are no tables.
const LARGEST_SECTION_BYTES: u64 = 64 << 20;

const FEATURE_BUILD_IDS: u32 = 2;
const FEATURE_ARCHITECTURE: u32 = 6;
const FEATURE_EVENTS: u32 = 12;

/// One sampled event and the numbers that its samples carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub attr: Attr,
    pub name: String,
}

/// What stands around the records; a pipe's records add to it.
#[derive(Debug, Default)]
pub(super) struct Frame {
    pub events: Vec<Event>,
    /// Which event a sample with this number belongs to.
    pub event_of_id: HashMap<u64, usize>,
    pub build_ids: HashMap<PathBuf, String>,
    pub architecture: Option<String>,
    /// Where the records start, and how many bytes they are; `None` is to the end.
    pub data: (u64, Option<u64>),
}

#[derive(Clone, Copy, Debug)]
struct Section {
    offset: u64,
    size: u64,
}

impl Section {
    fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        Some(Self { offset: bytes.u64()?, size: bytes.u64()? })
    }

    fn end(self) -> u64 {
        self.offset.saturating_add(self.size)
    }
}

/// A file with what is needed for messages about it.
pub(super) struct Opened<'a, S> {
    pub path: &'a Path,
    pub source: S,
    pub length: u64,
}

impl<'a> Opened<'a, File> {
    pub fn open(path: &'a Path) -> Result<Self, PerfDataError> {
        let failed = |cause| PerfDataError::Unreadable { path: path.into(), cause };
        let file = foreign::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        Ok(Self { path, source: file, length })
    }
}

impl<'a, S: Read + Seek> Opened<'a, S> {
    pub fn of(path: &'a Path, source: S, length: u64) -> Self {
        Self { path, source, length }
    }

    fn truncated(&self, detail: impl ToString) -> PerfDataError {
        PerfDataError::Truncated { path: self.path.into(), detail: detail.to_string() }
    }

    fn damaged(&self, detail: impl ToString) -> PerfDataError {
        PerfDataError::Damaged { path: self.path.into(), detail: detail.to_string() }
    }

    /// The bytes of a section, which must lie in the file.
    fn section(&mut self, section: Section, what: &str) -> Result<Vec<u8>, PerfDataError> {
        if section.end() > self.length {
            return Err(self.truncated(format!(
                "{what} should end at byte {} of {}",
                section.end(),
                self.length
            )));
        }
        if section.size > LARGEST_SECTION_BYTES {
            return Err(self.damaged(format!("{what} claims {} bytes", section.size)));
        }
        let mut bytes = vec![0; section.size as usize];
        self.source
            .seek(SeekFrom::Start(section.offset))
            .and_then(|_| self.source.read_exact(&mut bytes))
            .map_err(|cause| PerfDataError::Unreadable { path: self.path.into(), cause })?;
        Ok(bytes)
    }

    pub fn frame(&mut self) -> Result<Frame, PerfDataError> {
        let start = Section { offset: 0, size: self.length.min(FILE_HEADER_BYTES as u64) };
        let header = self.section(start, "the header")?;
        self.check_magic(&header)?;
        let mut rest = Bytes(header.get(8..).unwrap_or_default());
        let size = rest.u64().ok_or_else(|| self.truncated("it ends inside its header"))?;
        if size == PIPE_HEADER_BYTES {
            return Ok(Frame { data: (PIPE_HEADER_BYTES, None), ..Frame::default() });
        }
        if header.len() < FILE_HEADER_BYTES {
            return Err(self.truncated("it ends inside its header"));
        }
        let fields = rest.u64().zip(Section::read(&mut rest)).zip(Section::read(&mut rest));
        let _event_types = Section::read(&mut rest);
        let Some((((attr_bytes, attrs), data), features)) = fields.zip(rest.u64()) else {
            return Err(self.truncated("it ends inside its header"));
        };
        if data.size == 0 {
            return Err(self.truncated(
                "its header says that there are no samples: perf record did not end by itself",
            ));
        }
        if data.end() > self.length {
            return Err(self.truncated(format!(
                "the samples should end at byte {} of {}",
                data.end(),
                self.length
            )));
        }
        let mut frame = Frame { data: (data.offset, Some(data.size)), ..Frame::default() };
        self.read_attrs(&mut frame, attrs, attr_bytes)?;
        self.read_features(&mut frame, data.end(), features)?;
        Ok(frame)
    }

    fn check_magic(&self, header: &[u8]) -> Result<(), PerfDataError> {
        let Some(magic) = header.first_chunk::<8>() else {
            return Err(self.truncated("it has fewer bytes than a magic number"));
        };
        let mut backwards = *magic;
        backwards.reverse();
        if magic == MAGIC {
            Ok(())
        } else if &backwards == MAGIC {
            Err(PerfDataError::Foreign {
                path: self.path.into(),
                architecture: "a big-endian processor".into(),
                readable: "little-endian",
            })
        } else if magic == b"PERFFILE" {
            Err(self.damaged("its format is that of perf before Linux 3.0"))
        } else {
            Err(PerfDataError::NotPerfData(self.path.into()))
        }
    }

    fn read_attrs(
        &mut self,
        frame: &mut Frame,
        attrs: Section,
        attr_bytes: u64,
    ) -> Result<(), PerfDataError> {
        let table = self.section(attrs, "the table of events")?;
        // Each entry ends in the place of its list of numbers.
        let Some(body) = usize::try_from(attr_bytes).ok().and_then(|n| n.checked_sub(16)) else {
            return Err(self.damaged("its events have no room for themselves"));
        };
        for entry in table.chunks_exact(body + 16) {
            let (attr, place) = entry.split_at(body);
            let Some((attr, ids)) = Attr::read(attr).zip(Section::read(&mut Bytes(place))) else {
                return Err(self.damaged("an event is too short"));
            };
            let ids = self.section(ids, "the numbers of an event")?;
            frame.add_event(attr, &ids);
        }
        if frame.events.is_empty() {
            return Err(self.damaged("it has no events"));
        }
        Ok(())
    }

    fn read_features(
        &mut self,
        frame: &mut Frame,
        at: u64,
        present: u64,
    ) -> Result<(), PerfDataError> {
        let count = u64::from(present.count_ones());
        let table =
            self.section(Section { offset: at, size: 16 * count }, "the table of tables")?;
        let mut places = Bytes(&table);
        for feature in (0..64).filter(|bit| present >> bit & 1 == 1) {
            let Some(place) = Section::read(&mut places) else { break };
            if place.end() > self.length {
                return Err(self.truncated("a table behind the samples is cut off"));
            }
            if [FEATURE_BUILD_IDS, FEATURE_ARCHITECTURE, FEATURE_EVENTS].contains(&feature) {
                let bytes = self.section(place, "a table")?;
                frame.add_feature(feature, &bytes);
            }
        }
        Ok(())
    }
}

impl Frame {
    /// Adds an event; `ids` are the 64-bit numbers of its samples.
    pub fn add_event(&mut self, attr: Attr, ids: &[u8]) {
        for id in ids.chunks_exact(8) {
            if let Some(id) = Bytes(id).u64() {
                self.event_of_id.insert(id, self.events.len());
            }
        }
        self.events.push(Event { name: attr.name(), attr });
    }

    /// Takes what is of use from a table; one that makes no sense is left out.
    pub fn add_feature(&mut self, feature: u32, bytes: &[u8]) {
        match feature {
            FEATURE_ARCHITECTURE => {
                self.architecture = Bytes(bytes).counted_text().map(text);
            }
            FEATURE_EVENTS => drop(self.read_event_names(bytes)),
            FEATURE_BUILD_IDS => {
                let mut rest = bytes;
                while let Some(Ok((record, size))) = super::walk::first(rest) {
                    self.add_build_id(record.misc, record.body);
                    rest = &rest[size..];
                }
            }
            _ => {}
        }
    }

    fn read_event_names(&mut self, bytes: &[u8]) -> Option<()> {
        let mut b = Bytes(bytes);
        let (count, attr_bytes) = (b.u32()?, b.u32()?);
        for index in 0..count as usize {
            b.take(attr_bytes as usize)?;
            let ids = b.u32()?;
            let name = b.counted_text()?;
            b.take(usize::try_from(ids).ok()?.checked_mul(8)?)?;
            if let Some(event) = self.events.get_mut(index).filter(|_| !name.is_empty()) {
                event.name = text(name);
            }
        }
        Some(())
    }

    /// Process, 20 bytes of id, its length where a flag says so, and the file's name.
    pub fn add_build_id(&mut self, misc: u16, body: &[u8]) {
        const SIZE_IS_GIVEN: u16 = 1 << 15;
        let mut b = Bytes(body);
        let _pid = b.u32();
        let Some(id) = b.take(24) else { return };
        let length = if misc & SIZE_IS_GIVEN != 0 { usize::from(id[20]).min(20) } else { 20 };
        self.build_ids.insert(path_of(b.text()), hex(&id[..length]));
    }
}

pub(super) fn text(bytes: &[u8]) -> String {
    plain_bytes(bytes)
}

pub(super) fn path_of(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::OsStr::from_bytes(bytes).into()
}
