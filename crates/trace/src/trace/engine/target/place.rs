//! Where in the process an address of a file is: through the file's segments and what is mapped.
//!
//! No load bias is computed. The stated address has a position in the file, and the kernel says
//! where that position is mapped executable; so fixed, position-independent, static and shared
//! objects are all one case.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSegment};

use super::super::Start;
use crate::model::{Avma, FileOffset, Svma};
use crate::run::maps::{self, Mapping};

/// A start that was looked for.
pub(super) enum StartAddress {
    /// It is here.
    At(Avma),
    /// Its object is not mapped yet.
    NotLoaded(Wanted),
}

/// An object that may be loaded later, and the address wanted in it.
#[derive(Debug)]
pub(super) struct Wanted {
    object: PathBuf,
    svma: Svma,
}

impl Wanted {
    /// The object's name as asked for.
    pub(super) fn object(&self) -> &Path {
        &self.object
    }

    /// Where it is, if it is loaded by now.
    pub(super) fn find(&self, pid: i32) -> Option<Avma> {
        find_mapped(pid, &self.object, self.svma).ok().flatten()
    }
}

/// Looks for a start in a process that has just executed its program. An error is the sentence to
/// show.
pub(super) fn find(pid: i32, start: &Start) -> Result<StartAddress, String> {
    let link = PathBuf::from(format!("/proc/{pid}/exe"));
    let program = fs::read_link(&link).map_err(|e| format!("cannot tell what was started: {e}"))?;
    let (object, svma) = match start {
        Start::Entry | Start::After(_) | Start::AfterInMadeCode(_) => (None, None),
        Start::At { object, svma } => {
            (object.as_deref().filter(|o| !same(o, &program)), Some(*svma))
        }
    };
    if let (Some(object), Some(svma)) = (object, svma) {
        let wanted = Wanted { object: object.into(), svma };
        return Ok(match find_mapped(pid, object, svma)? {
            Some(address) => StartAddress::At(address),
            None => StartAddress::NotLoaded(wanted),
        });
    }
    // The link leads to the file even when it has been replaced or removed meanwhile.
    let data = fs::read(&link).map_err(|e| format!("{} cannot be read: {e}", program.display()))?;
    let file = parse(&program, &data)?;
    let svma = svma.unwrap_or_else(|| Svma(file.entry()));
    let offset = offset_of(&file, svma).ok_or_else(|| no_code(&program, svma))?;
    mapped_at(pid, |path| path == program, offset)
        .map(StartAddress::At)
        .ok_or_else(|| no_code(&program, svma))
}

fn no_code(object: &Path, svma: Svma) -> String {
    format!("{svma} lies in no executable part of {}", object.display())
}

fn same(asked: &Path, mapped: &Path) -> bool {
    if !asked.as_os_str().as_bytes().contains(&b'/') {
        return mapped.file_name().is_some_and(|name| name == OsStr::new(asked));
    }
    asked == mapped || asked.canonicalize().is_ok_and(|path| path == mapped)
}

fn find_mapped(pid: i32, object: &Path, svma: Svma) -> Result<Option<Avma>, String> {
    let mapped = mappings(pid).map(|m| m.path).find(|path| same(object, path));
    let Some(path) = mapped else {
        return Ok(None);
    };
    let data = fs::read(&path).map_err(|e| format!("{} cannot be read: {e}", path.display()))?;
    let file = parse(&path, &data)?;
    let offset = offset_of(&file, svma).ok_or_else(|| no_code(&path, svma))?;
    Ok(mapped_at(pid, |other| other == path, offset))
}

fn parse<'d>(path: &Path, data: &'d [u8]) -> Result<ElfFile64<'d, Endianness>, String> {
    let file = ElfFile64::<Endianness>::parse(data)
        .map_err(|e| format!("{} is no 64-bit ELF file: {e}", path.display()))?;
    match file.architecture() {
        object::Architecture::X86_64 => Ok(file),
        other => Err(format!("{} is for {other:?}, not x86-64", path.display())),
    }
}

/// The position in a file of what has this stated address.
pub(in crate::trace::engine) fn offset_of(
    file: &ElfFile64<'_, Endianness>,
    svma: Svma,
) -> Option<FileOffset> {
    file.segments().find_map(|segment| {
        let (offset, size) = segment.file_range();
        let inside = svma.distance_from(Svma(segment.address())).filter(|d| *d < size)?;
        Some(FileOffset(offset.checked_add(inside)?))
    })
}

fn mapped_at(pid: i32, is_it: impl Fn(&Path) -> bool, offset: FileOffset) -> Option<Avma> {
    let code = super::mappings(pid).into_iter().filter(|mapping| is_it(&mapping.path));
    let mut found = code.filter_map(|mapping| {
        let inside = offset.distance_from(mapping.file_offset)?;
        (inside < mapping.bytes()).then(|| Avma(mapping.start.0 + inside))
    });
    found.next()
}

fn mappings(pid: i32) -> impl Iterator<Item = Mapping> {
    maps::read(pid).unwrap_or_default().into_iter().map(|line| line.mapping)
}
