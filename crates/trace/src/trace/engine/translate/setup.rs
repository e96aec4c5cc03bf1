//! Makes a copy ready to run translated: the shared region, and no memory shared with anybody else.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;

use super::present::Present;
use super::region::{CODE_BYTES, GUARD_BYTES, Region, SHARED_BYTES, TOTAL_BYTES};
use crate::model::PAGE_BYTES;
use crate::run::maps::{self, Line, Mapping, parse_line};
use crate::trace::engine::process::Memories;
use crate::trace::engine::process::Process;

/// The rights of a mapping as `mmap` and `mprotect` want them.
pub(super) fn rights(line: &Line) -> u64 {
    let right = |set: bool, bit: u64| if set { bit } else { 0 };
    right(line.readable, READ) | right(line.writable, WRITE) | right(line.executable, EXEC)
}

/// Why a copy cannot be made ready.
#[derive(Debug, thiserror::Error)]
pub(super) enum SetupError {
    #[error("the copy cannot be prepared: {0}")]
    System(#[from] io::Error),
    #[error("the copy cannot {action}: {cause}")]
    Call { action: &'static str, cause: io::Error },
    #[error("{0}")]
    Unsuitable(String),
}

/// Whether a mapping of the copy is part of the region.
pub(super) fn is_ours(mapping: &Mapping) -> bool {
    mapping.path.as_os_str().as_bytes().starts_with(b"/memfd:stallscope")
}

pub(super) const READ: u64 = libc::PROT_READ as u64;
pub(super) const WRITE: u64 = libc::PROT_WRITE as u64;
pub(super) const EXEC: u64 = libc::PROT_EXEC as u64;
const ANONYMOUS: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
const NONE: u64 = u64::MAX;

/// Shared memory that is given a private twin may be this large in all.
const LARGEST_SHARED_BYTES: u64 = 1 << 30;

fn call(
    copy: &mut Process,
    action: &'static str,
    number: i64,
    arguments: [u64; 6],
) -> Result<u64, SetupError> {
    let answer = copy.call(number, arguments)?;
    if (-4095..0).contains(&answer) {
        let cause = io::Error::from_raw_os_error(-answer as i32);
        return Err(SetupError::Call { action, cause });
    }
    Ok(answer.cast_unsigned())
}

/// Gives the copy memory of its own at an address where nothing is.
pub(super) fn map_pages(
    copy: &mut Process,
    at: u64,
    bytes: u64,
    rights: u64,
) -> Result<(), SetupError> {
    let flags = ANONYMOUS | libc::MAP_FIXED_NOREPLACE as u64;
    call(copy, "map memory", libc::SYS_mmap, [at, bytes, rights, flags, NONE, 0]).map(drop)
}

/// Takes memory away that [`map_pages`] gave.
pub(super) fn unmap_pages(copy: &mut Process, at: u64, bytes: u64) -> Result<(), SetupError> {
    call(copy, "unmap memory", libc::SYS_munmap, [at, bytes, 0, 0, 0, 0]).map(drop)
}

/// Gives the copy a region near its program and maps it here too.
pub(super) fn make_region(copy: &mut Process) -> Result<Region, SetupError> {
    let base = place(&maps::read(copy.pid)?).ok_or_else(|| {
        SetupError::Unsuitable("the program leaves no room for a code cache".into())
    })?;
    let file = shared_file(copy)?;
    let (fd, file) = (file.0, file.1);
    let fixed = (libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE) as u64;
    let map = libc::SYS_mmap;
    call(copy, "map a code cache", map, [base, CODE_BYTES as u64, READ | EXEC, fixed, fd, 0])?;
    let data = base + CODE_BYTES as u64;
    let data_bytes = (SHARED_BYTES - CODE_BYTES) as u64;
    let offset = CODE_BYTES as u64;
    call(copy, "map a log", map, [data, data_bytes, READ | WRITE, fixed, fd, offset])?;
    let guard = base + SHARED_BYTES as u64;
    map_pages(copy, guard, GUARD_BYTES as u64, 0)?;
    call(copy, "close a file", libc::SYS_close, [fd, 0, 0, 0, 0, 0])?;
    Region::map(&file, base).map_err(|errno| SetupError::System(errno.into()))
}

/// An anonymous file made in the copy, under its number there, and our own handle of it. It is made
/// there because we may look into the copy, but the copy perhaps not into us.
fn shared_file(copy: &mut Process) -> Result<(u64, File), SetupError> {
    let scratch = call(
        copy,
        "map memory",
        libc::SYS_mmap,
        [0, PAGE_BYTES, READ | WRITE, ANONYMOUS, NONE, 0],
    )?;
    copy.write(scratch, b"stallscope\0")?;
    let made = call(copy, "make a file", libc::SYS_memfd_create, [scratch, 0, 0, 0, 0, 0]);
    unmap_pages(copy, scratch, PAGE_BYTES)?;
    let fd = made?;
    let path = format!("/proc/{}/fd/{fd}", copy.pid);
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    file.set_len(SHARED_BYTES as u64)?;
    Ok((fd, file))
}

/// A process has so many regions at most: one for each thread.
const MOST_REGIONS: u64 = 512;

/// Where a region goes: below the lowest file, else far enough above everything low that the
/// heap can grow. Not where the kernel would put the program's own next mapping, which would
/// then get another address than in the original.
fn place(maps: &[Line]) -> Option<u64> {
    const SPACING: u64 = 16 << 20;
    const HEAP_ROOM: u64 = 1 << 30;
    let total = TOTAL_BYTES as u64;
    let image =
        maps.iter().find(|m| !m.mapping.path.as_os_str().is_empty())?.mapping.start.0 & !0xffff;
    let below = (0..MOST_REGIONS)
        .map_while(|n| image.checked_sub(SPACING + (n + 1) * total).filter(|at| *at >= 1 << 20));
    let above = (0..MOST_REGIONS).map(|n| image + HEAP_ROOM + n * total);
    let is_free = |at: &u64| maps.iter().all(|m| !m.mapping.overlaps(*at..at + total));
    below.map(|at| at & !0xffff).chain(above).find(is_free)
}

/// Makes a fork of `original`, which stands still, what it is not yet: the same memory, and none of
/// it shared with other processes for writing.
pub(super) fn complete(copy: &mut Process, original: &Process) -> Result<(), SetupError> {
    bring_what_forks_lose(copy, original)?;
    unshare(copy)
}

/// What a fork does not get of the memory that its parent has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// The content: the fork finds zeros (`MADV_WIPEONFORK`).
    Content,
    /// All of it (`MADV_DONTFORK`).
    Mapping,
}

/// The mappings that a fork of the process lacks or finds empty, from the text of its `smaps`.
fn lost_by_forks(smaps: &str) -> Vec<(Line, Lost)> {
    let mut lost = Vec::new();
    let mut mapping = None;
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let has = |flag: &str| flags.split_whitespace().any(|f| f == flag);
            let what = match (has("dc"), has("wf")) {
                (true, _) => Some(Lost::Mapping),
                (false, true) => Some(Lost::Content),
                (false, false) => None,
            };
            lost.extend(mapping.take().zip(what));
        } else if let Some(header) = parse_line(line) {
            mapping = Some(header);
        }
    }
    lost
}

/// Brings the memory into the copy that programs keep out of their forks: in the original it is
/// there.
fn bring_what_forks_lose(copy: &mut Process, original: &Process) -> Result<(), SetupError> {
    let smaps = std::fs::read(format!("/proc/{}/smaps", original.pid))?;
    let lost = lost_by_forks(&String::from_utf8_lossy(&smaps));
    for (line, what) in lost {
        let length = line.mapping.bytes();
        if what == Lost::Mapping {
            map_pages(copy, line.mapping.start.0, length, rights(&line))?;
        }
        bring(copy, original, &line)?;
    }
    Ok(())
}

/// Copies the content of a mapping from the original. Of memory without a file only what was
/// written: the rest is zero in both.
fn bring(copy: &Process, original: &Process, line: &Line) -> Result<(), SetupError> {
    const CHUNK_PAGES: u64 = 512;
    let present = Present::of(original.pid)?;
    let mut content = Vec::new();
    let range = line.mapping.start.0..line.mapping.end.0;
    let of_file = line.file.1 != 0;
    // Where the kernel does not tell, all of it is looked through.
    let parts = if of_file { None } else { present.parts(range.clone()).ok() };
    for mut part in parts.unwrap_or_else(|| vec![range]) {
        while part.start < part.end {
            let pages = ((part.end - part.start) / PAGE_BYTES).min(CHUNK_PAGES);
            let (at, bytes) = (part.start, pages * PAGE_BYTES);
            part.start += bytes;
            if !of_file && !present.pages(at, pages)?.contains(&true) {
                continue;
            }
            content.clear();
            content.resize(bytes as usize, 0);
            let got = original.read(at, &mut content);
            if got < content.len() && line.readable {
                return Err(SetupError::Unsuitable(format!(
                    "it has a device mapped that a copy must not touch ({})",
                    line.mapping.path.display()
                )));
            }
            copy.write(at, &content[..got])?;
        }
    }
    Ok(())
}

/// Gives the copy its own twin of all memory that it shares with others for writing, so that
/// what it writes stays its own.
fn unshare(copy: &mut Process) -> Result<(), SetupError> {
    let maps = maps::read(copy.pid)?;
    let shared: Vec<&Line> = maps.iter().filter(|m| m.shared && m.writable && m.readable).collect();
    let bytes = shared.iter().map(|m| m.mapping.bytes()).sum::<u64>();
    if bytes > LARGEST_SHARED_BYTES {
        return Err(SetupError::Unsuitable(format!(
            "it shares {} MiB with other processes for writing",
            bytes >> 20
        )));
    }
    for line in shared {
        let start = line.mapping.start.0;
        let twins = |m: &&Line| {
            m.mapping.start.0 != start
                && m.file == line.file
                && m.mapping.file_offset == line.mapping.file_offset
        };
        if line.file.1 != 0 && maps.iter().any(|m| twins(&m)) {
            return Err(SetupError::Unsuitable(format!(
                "it has {} mapped twice, which a copy cannot keep in step",
                line.mapping.path.display()
            )));
        }
        let length = line.mapping.bytes();
        let mut content = vec![0; length as usize];
        if copy.read(start, &mut content) < content.len() {
            return Err(SetupError::Unsuitable(format!(
                "it has a device mapped that a copy must not touch ({})",
                line.mapping.path.display()
            )));
        }
        let flags = ANONYMOUS | libc::MAP_FIXED as u64;
        let arguments = [start, length, rights(line), flags, NONE, 0];
        call(copy, "replace shared memory", libc::SYS_mmap, arguments)?;
        copy.write(start, &content)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_forks_lose_is_found_by_its_flags() {
        let smaps = "1000-2000 rw-p 0 0:0 0\nRss: 4 kB\nVmFlags: rd wr mr wf \n\
                     2000-3000 r--p 0 0:0 0 /f\nVmFlags: rd mr \n\
                     3000-5000 ---p 0 0:0 0\nVmFlags: mr dc wf \n";
        let lost = lost_by_forks(smaps);
        let found: Vec<_> = lost.iter().map(|(line, what)| (line.mapping.start.0, *what)).collect();
        assert_eq!(found, [(0x1000, Lost::Content), (0x3000, Lost::Mapping)]);
        assert_eq!(rights(&lost[0].0), READ | WRITE);
        assert_eq!(rights(&lost[1].0), 0);
    }

    #[test]
    fn the_region_goes_where_nothing_is() {
        let line = |start: u64, end: u64| {
            parse_line(&format!("{start:x}-{end:x} r-xp 0 0:0 0 /bin/x")).unwrap()
        };
        let high = 0x5555_5555_0000;
        let at = place(&[line(high, high + 0x1000)]).unwrap();
        assert!(at + TOTAL_BYTES as u64 <= high);
        let at = place(&[line(0x40_0000, 0x50_0000)]).unwrap();
        assert!(at >= 1 << 30);
    }
}
