//! Reading `/proc/PID/maps`: what is mapped where in a process.

use std::path::Path;

use crate::model::{Avma, FileOffset};

/// One line of the kernel's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::trace) struct Line<'a> {
    /// First byte.
    pub start: Avma,
    /// One behind the last byte; never below `start`.
    pub end: Avma,
    /// Whether its bytes may be executed.
    pub executable: bool,
    /// Position in the file of the first byte.
    pub file_offset: FileOffset,
    /// The file, the kernel's name for a special region, or nothing.
    pub path: &'a Path,
}

/// Reads one line; `None` for one that makes no sense.
pub(in crate::trace) fn parse_line(line: &str) -> Option<Line<'_>> {
    // "start-end perms offset dev inode   path with spaces"
    let mut rest = line;
    let mut word = || {
        let trimmed = rest.trim_start();
        let (word, tail) = trimmed.split_once(' ').unwrap_or((trimmed, ""));
        rest = tail;
        word
    };
    let (range, permissions, offset) = (word(), word(), word());
    let (_device, _inode) = (word(), word());
    let (start, end) = range.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (start, end, offset) = (hex(start)?, hex(end)?, hex(offset)?);
    (start <= end).then_some(Line {
        start: Avma(start),
        end: Avma(end),
        executable: permissions.contains('x'),
        file_offset: FileOffset(offset),
        path: Path::new(rest.trim_start()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_line_and_refuses_nonsense() {
        let line = parse_line("1000-3000 r-xp 00002000 fe:00 12     /bin/a b").unwrap();
        assert_eq!((line.start, line.end), (Avma(0x1000), Avma(0x3000)));
        assert!(line.executable);
        assert_eq!((line.file_offset, line.path), (FileOffset(0x2000), Path::new("/bin/a b")));
        for nonsense in ["", "x", "3000-1000 r-xp 0 0:0 0", "1000-2000 rw-p zz 0:0 0"] {
            assert_eq!(parse_line(nonsense), None, "{nonsense}");
        }
    }
}
