//! The parts of a file that are asked for.
//!
//! Of a kernel image of 600 MB a scan needs 20; the rest is debug information that it looks at for a
//! few addresses, if at all. Nothing is mapped, so a file that shrinks while we look at it cannot
//! end us. What is read stays, up to the file's budget: one that claims absurd sizes is refused before
//! any memory is spent on it.

use std::cell::Cell;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use elsa::FrozenVec;
use object::ReadRef;

use crate::foreign::{self, Budget};

/// Names are read in windows of this size, not one by one.
const WINDOW_BYTES: u64 = 1 << 20;
/// A name longer than this is none.
const LONGEST_NAME_BYTES: u64 = 1 << 16;

/// A program or object file, read through its parts.
pub(super) type ProgramFile<'a> = object::File<'a, &'a Parts>;

enum Source {
    File(File),
    Memory(Vec<u8>),
}

struct Part {
    start: u64,
    bytes: Box<[u8]>,
}

/// A file, or what stands for one, read in parts.
pub(super) struct Parts {
    source: Source,
    length: u64,
    parts: FrozenVec<Box<Part>>,
    /// The part that answered last.
    recent: Cell<usize>,
    budget: Budget,
}

impl Parts {
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::of_file(foreign::open(path)?)
    }

    fn of_file(file: File) -> io::Result<Self> {
        let meta = file.metadata()?;
        Ok(Self::new(Source::File(file), meta.len(), Budget::of_file(&meta)))
    }

    pub fn of_bytes(bytes: Vec<u8>) -> Self {
        let length = bytes.len() as u64;
        Self::new(Source::Memory(bytes), length, Budget::of(length))
    }

    fn new(source: Source, length: u64, budget: Budget) -> Self {
        Self { source, length, parts: FrozenVec::new(), recent: Cell::new(0), budget }
    }

    pub fn length(&self) -> u64 {
        self.length
    }

    /// A stretch of the file as bytes of the caller's own; `None` when the file does not have it, or
    /// the limit is reached.
    pub fn copy(&self, offset: u64, size: u64) -> Option<Vec<u8>> {
        let end = offset.checked_add(size).filter(|end| *end <= self.length)?;
        if let Source::Memory(bytes) = &self.source {
            return Some(bytes.get(offset as usize..end as usize)?.to_vec());
        }
        self.read(offset, size)
    }

    fn read(&self, offset: u64, size: u64) -> Option<Vec<u8>> {
        let Source::File(file) = &self.source else { return None };
        self.budget.spend(size)?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(usize::try_from(size).ok()?).ok()?;
        // Into memory that is not initialised, unlike reading at a position.
        let mut file = file;
        file.seek(SeekFrom::Start(offset)).ok()?;
        file.take(size).read_to_end(&mut bytes).ok()?;
        (bytes.len() as u64 == size).then_some(bytes)
    }

    /// What the file may still take, for what is made of its bytes.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// The same as [`Self::copy`] for bytes that several will hold.
    pub fn share(&self, offset: u64, size: u64) -> Option<Arc<[u8]>> {
        let end = offset.checked_add(size).filter(|end| *end <= self.length)?;
        match &self.source {
            Source::Memory(bytes) => Some(Arc::from(bytes.get(offset as usize..end as usize)?)),
            Source::File(file) => {
                self.budget.spend(size)?;
                let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, size as usize).collect();
                file.read_exact_at(Arc::get_mut(&mut bytes)?, offset).ok()?;
                Some(bytes)
            }
        }
    }

    /// What is there of a range, without reading.
    fn held(&self, range: &Range<u64>) -> Option<&[u8]> {
        if let Source::Memory(bytes) = &self.source {
            return bytes.get(range.start as usize..range.end as usize);
        }
        let inside = |part: &Part| {
            let skip = range.start.checked_sub(part.start)?;
            skip.checked_add(range.end - range.start)
                .is_some_and(|end| end <= part.bytes.len() as u64)
                .then_some(skip as usize)
        };
        let recent = self.recent.get();
        let indices = std::iter::once(recent).chain((0..self.parts.len()).rev());
        for index in indices {
            if let Some(part) = self.parts.get(index)
                && let Some(skip) = inside(part)
            {
                self.recent.set(index);
                return part.bytes.get(skip..skip + (range.end - range.start) as usize);
            }
        }
        None
    }

    fn hold(&self, offset: u64, size: u64) -> Option<&[u8]> {
        let bytes = self.read(offset, size)?.into_boxed_slice();
        self.recent.set(self.parts.len());
        Some(&self.parts.push_get(Box::new(Part { start: offset, bytes })).bytes)
    }
}

impl<'a> ReadRef<'a> for &'a Parts {
    fn len(self) -> Result<u64, ()> {
        Ok(self.length)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if size == 0 {
            return Ok(&[]);
        }
        let end = offset.checked_add(size).filter(|end| *end <= self.length).ok_or(())?;
        self.held(&(offset..end)).or_else(|| self.hold(offset, size)).ok_or(())
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let end = range.end.min(self.length).min(range.start.saturating_add(LONGEST_NAME_BYTES));
        if range.start >= end {
            return Err(());
        }
        let mut wanted = range.start..range.start.saturating_add(256).min(end);
        loop {
            let bytes = match self.held(&wanted) {
                Some(bytes) => bytes,
                None => {
                    // The window starts where the name does not, so that its neighbours fit too.
                    let start = wanted.start / WINDOW_BYTES * WINDOW_BYTES;
                    let stop = (wanted.end.div_ceil(WINDOW_BYTES) * WINDOW_BYTES).min(self.length);
                    let window = self.hold(start, stop - start).ok_or(())?;
                    window
                        .get((wanted.start - start) as usize..(wanted.end - start) as usize)
                        .ok_or(())?
                }
            };
            if let Some(length) = position(delimiter, bytes) {
                return Ok(&bytes[..length]);
            }
            if wanted.end == end {
                return Err(());
            }
            wanted.end = wanted.end.saturating_add(4096).min(end);
        }
    }
}

/// Where a byte is first found.
fn position(wanted: u8, bytes: &[u8]) -> Option<usize> {
    match wanted {
        // Many bytes at a time: a hundred thousand names are read.
        0 => CStr::from_bytes_until_nul(bytes).ok().map(CStr::count_bytes),
        _ => bytes.iter().position(|byte| *byte == wanted),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_in_parts_reads_like_its_bytes() {
        let bytes: Vec<u8> = (0..3 * WINDOW_BYTES + 100).map(|i| (i % 251 + 1) as u8).collect();
        let mut bytes = bytes;
        for at in [10, WINDOW_BYTES as usize + 3, 3 * WINDOW_BYTES as usize + 99] {
            bytes[at] = 0;
        }
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let on_disk = Parts::of_file(file).unwrap();
        let in_memory = Parts::of_bytes(bytes.clone());
        let length = bytes.len() as u64;
        for start in [0, 9, 11, WINDOW_BYTES - 5, WINDOW_BYTES + 3, 3 * WINDOW_BYTES, length] {
            let whole = start..length;
            let found = (&on_disk).read_bytes_at_until(whole.clone(), 0);
            assert_eq!(found, (&in_memory).read_bytes_at_until(whole, 0), "name at {start}");
            for size in [0, 1, 4097, WINDOW_BYTES, length] {
                let found = (&on_disk).read_bytes_at(start, size);
                assert_eq!(found, (&in_memory).read_bytes_at(start, size), "{size} at {start}");
                assert_eq!(on_disk.copy(start, size), in_memory.copy(start, size));
                assert_eq!(on_disk.share(start, size), in_memory.share(start, size));
            }
        }
        assert!((&on_disk).read_bytes_at(u64::MAX, 2).is_err());
        assert!((&on_disk).read_bytes_at_until(u64::MAX - 1..u64::MAX, 0).is_err());
    }
}
