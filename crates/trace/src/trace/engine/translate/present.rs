//! Which pages of a process are there: in memory, or swapped out.
//!
//! A list of all pages of a range is as long as the range, and some programs map terabytes of which they touch little (the
//! address sanitizer, some collectors of garbage). Linux tells since 6.7 where there are any (`PAGEMAP_SCAN`).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::model::PAGE_BYTES;

/// Larger ranges are asked where they have pages.
const LARGE_BYTES: u64 = 64 << 30;

/// The pages of one process.
pub(super) struct Present {
    map: File,
}

impl Present {
    pub(super) fn of(pid: i32) -> io::Result<Self> {
        Ok(Self { map: File::open(format!("/proc/{pid}/pagemap"))? })
    }

    /// Which of so many pages from `at` on are there.
    pub(super) fn pages(&self, at: u64, pages: u64) -> io::Result<Vec<bool>> {
        let mut bytes = vec![0; (pages * 8) as usize];
        self.map.read_exact_at(&mut bytes, at / PAGE_BYTES * 8)?;
        // Bit 63: in memory; bit 62: swapped out.
        Ok(bytes.chunks_exact(8).map(|word| word[7] >> 6 != 0).collect())
    }

    /// The parts of a range that have pages: all of it unless it is large.
    pub(super) fn parts(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        if range.end - range.start <= LARGE_BYTES { Ok(vec![range]) } else { self.scan(range) }
    }

    fn scan(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        let mut found = Vec::new();
        let mut from = range.start;
        while from < range.end {
            let mut regions = [Region::default(); 512];
            let mut scan = Scan {
                size: size_of::<Scan>() as u64,
                start: from,
                end: range.end,
                vec: regions.as_mut_ptr() as u64,
                vec_len: regions.len() as u64,
                category_anyof_mask: PRESENT | SWAPPED,
                return_mask: PRESENT | SWAPPED,
                ..Scan::default()
            };
            // SAFETY: the kernel reads and writes one `Scan`, and no more regions than there is room for.
            let told = unsafe {
                libc::ioctl(self.map.as_raw_fd(), PAGEMAP_SCAN as libc::Ioctl, &raw mut scan)
            };
            let regions = usize::try_from(told).ok().and_then(|told| regions.get(..told));
            let regions = regions.ok_or_else(io::Error::last_os_error)?;
            found.extend(regions.iter().map(|region| region.start..region.end));
            if scan.walk_end <= from {
                break;
            }
            from = scan.walk_end;
        }
        Ok(found)
    }
}

/// Joins parts of two processes, each in order, to what at least one of them has.
pub(super) fn either(a: Vec<Range<u64>>, b: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = a.into_iter().chain(b).collect();
    all.sort_by_key(|part| part.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for part in all {
        match joined.last_mut().filter(|last| last.end >= part.start) {
            Some(last) => last.end = last.end.max(part.end),
            None => joined.push(part),
        }
    }
    joined
}

// As in linux/fs.h.
const PAGEMAP_SCAN: u64 = 3 << 30 | (size_of::<Scan>() as u64) << 16 | (b'f' as u64) << 8 | 16;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_both_are_joined() {
        let joined = either(vec![0..4, 8..12, 20..24], vec![4..6, 10..16]);
        assert_eq!(joined, [0..6, 8..16, 20..24]);
        assert_eq!(either(vec![], vec![3..4, 6..7]), [3..4, 6..7]);
    }

    #[test]
    fn the_pages_of_a_terabyte_are_found_at_once() {
        const BYTES: usize = 1 << 40;
        let (rights, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: a new mapping of our own.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, rights, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            // A limit on address space: nothing to be asked here.
            return;
        }
        let at = start as u64;
        let touched = [0, 5 << 30, (5 << 30) + 1, (1 << 40) - 1];
        for offset in touched {
            // SAFETY: within that mapping.
            unsafe { start.cast::<u8>().add(offset).write_volatile(1) };
        }
        let present = Present::of(std::process::id().cast_signed()).unwrap();
        // Kernels before 6.7 do not tell.
        if let Ok(parts) = present.parts(at..at + BYTES as u64) {
            for offset in touched {
                let byte = at + offset as u64;
                assert!(parts.iter().any(|part| part.contains(&byte)), "{offset}: {parts:?}");
                assert_eq!(present.pages(byte / PAGE_BYTES * PAGE_BYTES, 1).unwrap(), [true]);
            }
            let all: u64 = parts.iter().map(|part| part.end - part.start).sum();
            assert!(all <= 4 * (4 << 20), "{parts:?}");
        }
        assert_eq!(present.pages(at + (7 << 30), 2).unwrap(), [false; 2]);
        // SAFETY: the same mapping.
        unsafe { libc::munmap(start, BYTES) };
    }
}
