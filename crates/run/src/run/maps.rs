//! What is mapped where in a process: the kernel's list, and lookups by address.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::model::{Avma, FileOffset};

/// A stretch of a process's memory and the file that is mapped there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First byte in the process.
    pub start: Avma,
    /// One behind the last byte; never below `start`.
    pub end: Avma,
    /// The file, the kernel's name for a region without file, such as `[vdso]`, or nothing.
    pub path: PathBuf,
    /// Position in the file of the first byte.
    pub file_offset: FileOffset,
}

impl Mapping {
    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.end.0 - self.start.0
    }

    /// Whether any of these addresses lies in it.
    pub fn overlaps(&self, range: Range<u64>) -> bool {
        range.start < self.end.0 && self.start.0 < range.end
    }

    /// The position in the file of an address in it; `None` for one outside.
    pub fn offset_of(&self, address: Avma) -> Option<FileOffset> {
        let inside = address.distance_from(self.start).filter(|_| address < self.end)?;
        self.file_offset.0.checked_add(inside).map(FileOffset)
    }

    /// The first of these that holds an address, and where in its file that is.
    pub fn find(all: &[Self], address: Avma) -> Option<(&Self, FileOffset)> {
        all.iter().find_map(|mapping| Some((mapping, mapping.offset_of(address)?)))
    }
}

/// Memory that has a name like a file's: shared memory without one, huge pages, what .NET maps twice to write code.
const NO_FILES: [&[u8]; 3] = [b"/dev/zero", b"/anon_hugepage", b"/memfd:doublemapper"];

/// Whether a mapping's name is that of a file, or of the kernel's own page of code.
pub fn has_code(path: &Path) -> bool {
    // The kernel's name for memory without a file is `//anon`; true paths have one slash.
    let name = path.as_os_str().as_encoded_bytes();
    let is_path = name.starts_with(b"/") && !name.starts_with(b"//");
    name == b"[vdso]" || is_path && !NO_FILES.iter().any(|no_file| name.starts_with(no_file))
}

/// One line of `/proc/PID/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Where it lies and what it maps.
    pub mapping: Mapping,
    /// `r` in the line.
    pub readable: bool,
    /// `w`.
    pub writable: bool,
    /// `x`.
    pub executable: bool,
    /// `s`; writes reach the file or other processes.
    pub shared: bool,
    /// Device and inode; zero without a file.
    pub file: (String, u64),
}

/// Reads the kernel's list of a process; lines that make no sense are left out.
pub fn read(pid: impl std::fmt::Display) -> io::Result<Vec<Line>> {
    let bytes = std::fs::read(format!("/proc/{pid}/maps"))?;
    Ok(String::from_utf8_lossy(&bytes).lines().filter_map(parse_line).collect())
}

/// Reads one line; `None` for one that makes no sense.
pub fn parse_line(line: &str) -> Option<Line> {
    // "start-end perms offset dev inode   path with spaces"
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?.as_bytes();
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (start, end, offset) = (hex(start)?, hex(end)?, hex(words.next()?)?);
    let file = (words.next()?.to_owned(), words.next()?.parse().ok()?);
    let has = |index: usize, right| rights.get(index) == Some(&right);
    (start <= end).then(|| Line {
        mapping: Mapping {
            start: Avma(start),
            end: Avma(end),
            path: words.next().unwrap_or_default().trim_start().into(),
            file_offset: FileOffset(offset),
        },
        readable: has(0, b'r'),
        writable: has(1, b'w'),
        executable: has(2, b'x'),
        shared: has(3, b's'),
        file,
    })
}

/// The mappings of one process as they are made, each with what the caller knows its file by.
#[derive(Clone, Debug)]
pub struct AddressSpace<O> {
    /// By the first byte: one behind the last, the position in the file of the first, the file.
    by_start: BTreeMap<u64, (u64, u64, O)>,
}

impl<O> Default for AddressSpace<O> {
    fn default() -> Self {
        Self { by_start: BTreeMap::new() }
    }
}

impl<O: Copy> AddressSpace<O> {
    /// Enters a mapping; what it covers is gone, as in the kernel.
    pub fn map(&mut self, start: Avma, len: u64, offset: FileOffset, object: O) {
        let (start, end) = (start.0, start.0.saturating_add(len));
        if end <= start {
            return;
        }
        let covered: Vec<(u64, (u64, u64, O))> = self
            .by_start
            .range(..end)
            .rev()
            // Mappings do not overlap each other, so the first that ends too early is the last.
            .take_while(|(_, old)| old.0 > start)
            .map(|(old_start, old)| (*old_start, *old))
            .collect();
        for (old_start, (old_end, old_offset, old)) in covered {
            self.by_start.remove(&old_start);
            if old_start < start {
                self.by_start.insert(old_start, (start, old_offset, old));
            }
            if old_end > end {
                let old_offset = old_offset.wrapping_add(end - old_start);
                self.by_start.insert(end, (old_end, old_offset, old));
            }
        }
        self.by_start.insert(start, (end, offset.0, object));
    }

    /// Forgets everything, as an exec does.
    pub fn clear(&mut self) {
        self.by_start.clear();
    }

    /// Which file an address lies in, and where in it; `None` in no known mapping.
    pub fn locate(&self, address: Avma) -> Option<(O, FileOffset)> {
        let (start, (end, offset, object)) = self.by_start.range(..=address.0).next_back()?;
        let inside = address.0 - start;
        (address.0 < *end).then(|| (*object, FileOffset(offset.wrapping_add(inside))))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn reads_a_line_and_refuses_nonsense() {
        let line = parse_line("1000-3000 r-xs 00002000 fe:00 12     /bin/a b (deleted)").unwrap();
        let mapping = &line.mapping;
        assert_eq!((mapping.start, mapping.end), (Avma(0x1000), Avma(0x3000)));
        assert!(line.readable && !line.writable && line.executable && line.shared);
        assert_eq!(mapping.path, Path::new("/bin/a b (deleted)"));
        assert_eq!(mapping.file_offset, FileOffset(0x2000));
        assert_eq!(line.file, ("fe:00".to_owned(), 12));
        for nonsense in ["", "x", "3000-1000 r-xp 0 0:0 0", "1000-2000 rw-p zz 0:0 0"] {
            assert_eq!(parse_line(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_new_mapping_cuts_the_old_one() {
        let mut space = AddressSpace::default();
        space.map(Avma(0x1000), 0x3000, FileOffset(0x100), "old");
        space.map(Avma(0x2000), 0x1000, FileOffset(0), "new");
        let at = |address| space.locate(Avma(address));
        assert_eq!(at(0x1fff), Some(("old", FileOffset(0x10ff))));
        assert_eq!(at(0x2001), Some(("new", FileOffset(1))));
        assert_eq!(at(0x3000), Some(("old", FileOffset(0x2100))));
        assert_eq!((at(0xfff), at(0x4000)), (None, None));
        space.map(Avma(0), u64::MAX, FileOffset(0), "all");
        assert_eq!(space.locate(Avma(0x2001)), Some(("all", FileOffset(0x2001))));
    }
}
