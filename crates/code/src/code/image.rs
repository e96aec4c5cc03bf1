//! A program file: its machine code, where it will stand in memory, and its functions.
//!
//! Positions in the file and addresses as stated in the file are converted here and nowhere else.
//! Broken tables give an error or fewer functions, never a panic. An object file has no addresses
//! yet: it is placed first, as a linker would ([`super::place`]).

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use object::read::archive::ArchiveFile;
use object::{FileKind, Object, ObjectKind, ObjectSection, ObjectSegment, SectionKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::arch::Architecture;
use super::cfg::MOST_FUNCTION_BYTES;
use super::error::{CodeError, looks_like};
use super::functions::{self, Function};
use super::insn::LONGEST_INSN_BYTES;
use super::parts::{Parts, ProgramFile};
use super::place::Placed;
use super::x86::gaps;
use crate::foreign::{hex, plain, plain_bytes};
use crate::model::{FileOffset, Svma};

/// More machine code than this is in no program; the largest browsers have a quarter of it.
const MOST_CODE_BYTES: u64 = 1 << 30;

/// The kernel maps nothing below.
const LOWEST_ADDRESS: u64 = 1 << 16;
/// Sections of what the linker makes to lead into other files.
const STUBS: [&str; 5] = [".plt", ".plt.sec", ".plt.got", ".plt.bnd", ".iplt"];

/// Where the list of functions came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FunctionSource {
    /// The symbol table.
    Symbols,
    /// The unwind tables (`.eh_frame`), because the program is stripped: ranges without names.
    EhFrame,
    /// Go's own table of functions, which stripping leaves in place: with names.
    GoTable,
}

/// How much of a program's machine code was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Coverage {
    /// Bytes of machine code, filler between functions and what leads into other files not counted.
    pub executable_bytes: u64,
    /// Of these, bytes that were looked at.
    pub scanned_bytes: u64,
    /// Functions that no table names: the code tells where they start and end.
    pub unlisted_functions: usize,
}

impl Coverage {
    /// The share that was looked at, from 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.scanned_bytes as f64 / self.executable_bytes.max(1) as f64
    }
}

/// A stretch of the file that is mapped at an address.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    svma: Svma,
    file_offset: u64,
    size_bytes: u64,
}

struct Code {
    svma: Svma,
    file_offset: u64,
    bytes: Vec<u8>,
    /// Whether the linker made it, to lead into other files.
    is_stubs: bool,
    /// Positions of what a relocation of an object file filled, ascending.
    relocated: Vec<usize>,
}

impl Code {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// How far into it an address is.
    fn skip(&self, svma: Svma) -> Option<usize> {
        svma.distance_from(self.svma).filter(|skip| *skip < self.size()).map(|skip| skip as usize)
    }
}

/// One program, library, kernel image or object file.
pub struct Image {
    path: PathBuf,
    architecture: Architecture,
    /// Of what has segments; an object file has none.
    segments: Vec<Segment>,
    /// Of a program that runs where its file says: what constants in its code may point to.
    addresses: Vec<Range<u64>>,
    code: Vec<Code>,
    functions: Vec<Function>,
    source: FunctionSource,
    /// Functions that no table names.
    unlisted: usize,
    build_id: Option<String>,
    parts: Mutex<Parts>,
    placed: Option<Placed>,
}

/// The images in a file, one after the other: one for a program, one for each object file of an
/// archive. Members that are no object files are passed over.
pub struct Images {
    path: PathBuf,
    /// The whole file, or where the members of an archive are.
    state: State,
}

enum State {
    One(Option<Parts>),
    Members { parts: Parts, ranges: std::vec::IntoIter<(String, u64, u64)> },
}

impl Images {
    /// Opens a file.
    ///
    /// # Errors
    /// See [`CodeError`]: missing, unreadable, or an archive whose table is damaged.
    pub fn open(path: &Path) -> Result<Self, CodeError> {
        let parts = Parts::open(path).map_err(|e| CodeError::from_io(path, e))?;
        Self::of(path, parts)
    }

    fn of(path: &Path, parts: Parts) -> Result<Self, CodeError> {
        let is_archive = matches!(FileKind::parse(&parts), Ok(FileKind::Archive));
        let state = if is_archive {
            let ranges = members(path, &parts)?.into_iter();
            State::Members { parts, ranges }
        } else {
            State::One(Some(parts))
        };
        Ok(Self { path: path.into(), state })
    }
}

fn members(path: &Path, parts: &Parts) -> Result<Vec<(String, u64, u64)>, CodeError> {
    let archive = ArchiveFile::parse(parts).map_err(|e| CodeError::damaged(path, e))?;
    if archive.is_thin() {
        return Err(CodeError::ThinArchive(path.into()));
    }
    let mut ranges = Vec::new();
    for member in archive.members() {
        let member = member.map_err(|e| CodeError::damaged(path, e))?;
        let (offset, size) = member.file_range();
        ranges.push((plain_bytes(member.name()), offset, size));
    }
    Ok(ranges)
}

impl Iterator for Images {
    type Item = Result<Image, CodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.state {
            State::One(parts) => parts.take().map(|parts| Image::index(&self.path, parts)),
            State::Members { parts, ranges } => loop {
                let (name, offset, size) = ranges.next()?;
                let label = PathBuf::from(format!("{}({name})", self.path.display()));
                let Some(bytes) = parts.copy(offset, size) else {
                    let detail = "a member reaches past its end";
                    return Some(Err(CodeError::damaged(&self.path, detail)));
                };
                match Image::index(&label, Parts::of_bytes(bytes)) {
                    // Members may be anything: indices, compiler metadata, data without code.
                    Err(CodeError::NotElf { .. } | CodeError::Empty { .. }) => {}
                    other => return Some(other),
                }
            },
        }
    }
}

impl Image {
    /// Reads and indexes a program.
    ///
    /// # Errors
    /// See [`CodeError`]: missing, unreadable, no program, damaged, for another processor, without
    /// code, an archive (see [`Images`]).
    pub fn open(path: &Path) -> Result<Self, CodeError> {
        match Images::open(path)?.state {
            State::One(Some(parts)) => Self::index(path, parts),
            _ => Err(CodeError::Archive(path.into())),
        }
    }

    /// Indexes a program that is already in memory; `path` is for messages.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn parse(path: &Path, data: Vec<u8>) -> Result<Self, CodeError> {
        Self::index(path, Parts::of_bytes(data))
    }

    fn index(path: &Path, parts: Parts) -> Result<Self, CodeError> {
        check_header(path, &parts)?;
        let file = object::File::parse(&parts).map_err(|e| CodeError::damaged(path, e))?;
        let architecture = check_architecture(path, &file)?;
        check_ranges(path, &file, parts.length())?;
        let placed = (file.kind() == ObjectKind::Relocatable).then(|| Placed::of(&file));
        let segments = match placed {
            Some(_) => Vec::new(),
            None => segments(&file),
        };
        let addresses = fixed_addresses(&file);
        let code = read_code(path, &file, &parts, placed.as_ref())?;
        let ranges: Vec<_> = code.iter().map(|c| (c.svma, c.size())).collect();
        let (mut functions, source) =
            functions::list(&file, &ranges, placed.as_ref(), parts.budget());
        let mut unlisted = 0;
        if architecture == Architecture::X86_64 && placed.is_none() {
            let own = code.iter().filter(|c| !c.is_stubs).map(|c| (c.svma, c.bytes.as_slice()));
            let own: Vec<(Svma, &[u8])> = own.collect();
            let entry = Svma(file.entry());
            unlisted = functions::add_unlisted(&own, entry, &mut functions, parts.budget());
        }
        if functions.is_empty() {
            return Err(CodeError::Empty {
                path: path.into(),
                what: "function symbols and no unwind tables, so its functions cannot be found",
            });
        }
        let build_id = file.build_id().ok().flatten().map(hex);
        drop(file);
        let (path, parts) = (path.into(), Mutex::new(parts));
        Ok(Self {
            path,
            architecture,
            segments,
            addresses,
            code,
            functions,
            source,
            unlisted,
            build_id,
            parts,
            placed,
        })
    }

    /// The path it was read from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The processor that it is for.
    #[must_use]
    pub fn architecture(&self) -> Architecture {
        self.architecture
    }

    pub(super) fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the sections of an object file were placed.
    pub(super) fn placed(&self) -> Option<&Placed> {
        self.placed.as_ref()
    }

    /// All functions, by address, without overlap.
    #[must_use]
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// Where the functions came from; [`FunctionSource::EhFrame`] means a stripped program.
    #[must_use]
    pub fn function_source(&self) -> FunctionSource {
        self.source
    }

    /// The linker's build id in hex, if there is one.
    #[must_use]
    pub fn build_id(&self) -> Option<&str> {
        self.build_id.as_deref()
    }

    /// Stretches of machine code that belong to no function, by address.
    #[must_use]
    pub fn unowned_code(&self) -> Vec<(Svma, u64)> {
        functions::unowned(self.code.iter().map(|c| (c.svma, c.size())), &self.functions)
    }

    /// How many bytes of machine code there are.
    #[must_use]
    pub fn code_bytes(&self) -> u64 {
        self.code.iter().map(Code::size).sum()
    }

    /// How much of the machine code is in functions, filler between them and what leads into other files not counted.
    #[must_use]
    pub fn coverage(&self) -> Coverage {
        let own = self.code.iter().filter(|c| !c.is_stubs).map(|c| (c.svma, c.size()));
        let rest = functions::unowned(own, &self.functions).into_iter().map(|(start, size)| {
            let bytes = self.code_at(start, size);
            (bytes.len() - gaps::filler_bytes(bytes)) as u64
        });
        let rest: u64 = rest.sum();
        let scanned = |f: &Function| f.size_bytes.min(MOST_FUNCTION_BYTES as u64);
        let functions: u64 = self.functions.iter().map(|f| f.size_bytes).sum();
        Coverage {
            executable_bytes: functions + rest,
            scanned_bytes: self.functions.iter().map(scanned).sum(),
            unlisted_functions: self.unlisted,
        }
    }

    /// The function that holds `svma`.
    #[must_use]
    pub fn function_at(&self, svma: Svma) -> Option<&Function> {
        let after = self.functions.partition_point(|f| f.start <= svma);
        let candidate = self.functions.get(after.checked_sub(1)?)?;
        (svma < candidate.end()).then_some(candidate)
    }

    /// The function that begins at `svma`.
    #[must_use]
    pub fn function_from(&self, svma: Svma) -> Option<&Function> {
        self.function_at(svma).filter(|function| function.start == svma)
    }

    /// The bytes of a function; shorter than its size when the file is.
    #[must_use]
    pub fn function_bytes(&self, function: &Function) -> &[u8] {
        self.code_at(function.start, function.size_bytes)
    }

    /// Up to `size_bytes` of machine code from `svma` on; empty outside code.
    #[must_use]
    pub fn code_at(&self, svma: Svma, size_bytes: u64) -> &[u8] {
        self.code
            .iter()
            .find_map(|c| {
                let skip = c.skip(svma)?;
                let end = skip.saturating_add(size_bytes as usize).min(c.bytes.len());
                c.bytes.get(skip..end)
            })
            .unwrap_or(&[])
    }

    /// The stated address of a position in the file, if it is mapped.
    #[must_use]
    pub fn svma_of(&self, offset: FileOffset) -> Option<Svma> {
        svma_of(&self.segments, offset)
    }

    /// The bytes of a function without what changes when it, its neighbours or data move: distances to what is outside of
    /// it, and addresses.
    #[must_use]
    pub fn normalised(&self, function: &Function) -> Vec<u8> {
        self.without_addresses(self.function_bytes(function), function.start)
    }

    /// The same of one instruction; `None` where distances alone can move, which its text shows.
    #[must_use]
    pub fn normalised_insn(&self, svma: Svma) -> Option<Vec<u8>> {
        let bytes = self.code_at(svma, LONGEST_INSN_BYTES as u64);
        match self.architecture {
            Architecture::X86_64 if self.addresses.is_empty() && self.placed.is_none() => None,
            Architecture::X86_64 => {
                let insn = self.architecture.decode(bytes, svma);
                let length = usize::from(insn.first()?.length_bytes);
                Some(self.without_addresses(bytes.get(..length)?, svma))
            }
            // Whether it holds half of an address the instructions before tell.
            Architecture::Aarch64 => {
                let function = self.function_at(svma)?;
                let skip = svma.distance_from(function.start)? as usize;
                Some(self.normalised(function).get(skip..skip + 4)?.to_vec())
            }
        }
    }

    fn without_addresses(&self, bytes: &[u8], start: Svma) -> Vec<u8> {
        let is_address = |at: usize, value: u64| {
            if self.placed.is_some() {
                let code = self.code.iter().find_map(|c| Some((c, c.skip(start)?)));
                code.is_some_and(|(c, skip)| c.relocated.binary_search(&(skip + at)).is_ok())
            } else {
                self.addresses.iter().any(|range| range.contains(&value))
            }
        };
        self.architecture.normalised(bytes, start, &is_address)
    }

    /// The position in the file of a stated address, if the file holds its byte.
    #[must_use]
    pub fn offset_of(&self, svma: Svma) -> Option<FileOffset> {
        let of_code = |c: &Code| c.file_offset.checked_add(c.skip(svma)? as u64).map(FileOffset);
        self.code.iter().find_map(of_code).or_else(|| {
            self.segments.iter().find_map(|m| {
                let skip = svma.distance_from(m.svma).filter(|skip| *skip < m.size_bytes)?;
                m.file_offset.checked_add(skip).map(FileOffset)
            })
        })
    }
}

/// What a program has mapped if it runs where its file says; what begins lower is none: parts of a kernel that each
/// processor has for its own.
fn fixed_addresses(file: &ProgramFile<'_>) -> Vec<Range<u64>> {
    if file.kind() != ObjectKind::Executable {
        return Vec::new();
    }
    let mapped = file.segments().filter(|segment| segment.address() >= LOWEST_ADDRESS);
    mapped
        .map(|segment| segment.address()..segment.address().saturating_add(segment.size()))
        .collect()
}

/// What of a program is mapped where.
pub(super) fn segments(file: &ProgramFile<'_>) -> Vec<Segment> {
    file.segments().filter_map(|s| mapping(s.address(), s.file_range())).collect()
}

/// The stated address of a position in the file, if it is mapped.
pub(super) fn svma_of(segments: &[Segment], offset: FileOffset) -> Option<Svma> {
    segments.iter().find_map(|m| {
        let skip = offset.0.checked_sub(m.file_offset).filter(|skip| *skip < m.size_bytes)?;
        Some(m.svma.offset(skip as i64))
    })
}

fn mapping(address: u64, (file_offset, size_bytes): (u64, u64)) -> Option<Segment> {
    (size_bytes > 0).then_some(Segment { svma: Svma(address), file_offset, size_bytes })
}

fn read_code(
    path: &Path,
    file: &ProgramFile<'_>,
    parts: &Parts,
    placed: Option<&Placed>,
) -> Result<Vec<Code>, CodeError> {
    let mut code = Vec::new();
    let mut total_bytes = 0_u64;
    for section in file.sections().filter(|s| s.kind() == SectionKind::Text) {
        let Some((offset, size)) = section.file_range().filter(|(_, size)| *size > 0) else {
            continue;
        };
        total_bytes = total_bytes.saturating_add(size);
        if total_bytes > MOST_CODE_BYTES {
            return Err(CodeError::TooMuchCode(path.into()));
        }
        let unreadable = || CodeError::damaged(path, "a section cannot be read");
        let mut bytes = parts.copy(offset, size).ok_or_else(unreadable)?;
        let mut relocated = Vec::new();
        let svma = match placed {
            Some(placed) => {
                relocated = placed.relocate(file, &section, &mut bytes);
                placed.address(section.index()).unwrap_or_default()
            }
            None => Svma(section.address()),
        };
        let is_stubs = section.name().is_ok_and(|name| STUBS.contains(&name));
        code.push(Code { svma, file_offset: offset, bytes, is_stubs, relocated });
    }
    if code.is_empty() {
        return Err(CodeError::Empty { path: path.into(), what: "machine code" });
    }
    Ok(code)
}

pub(super) fn check_header(path: &Path, parts: &Parts) -> Result<(), CodeError> {
    let start = parts.copy(0, parts.length().min(1024)).unwrap_or_default();
    if start.starts_with(b"\x7fELF") {
        if start.len() < size_of::<object::elf::FileHeader64<object::Endianness>>() {
            return Err(CodeError::damaged(path, "it ends inside its header"));
        }
        if start[4] == object::elf::ELFCLASS32.0 {
            let architecture = "a 32-bit processor".into();
            return Err(CodeError::Foreign { path: path.into(), architecture });
        }
        return Ok(());
    }
    match FileKind::parse(parts) {
        Ok(FileKind::MachO64 | FileKind::Pe64 | FileKind::Coff) => Ok(()),
        _ => Err(CodeError::NotElf { path: path.into(), looks_like: looks_like(&start) }),
    }
}

pub(super) fn check_architecture(
    path: &Path,
    file: &ProgramFile<'_>,
) -> Result<Architecture, CodeError> {
    let foreign = |architecture| CodeError::Foreign { path: path.into(), architecture };
    match file.architecture() {
        object::Architecture::X86_64 => Ok(Architecture::X86_64),
        object::Architecture::Aarch64 if file.is_little_endian() => Ok(Architecture::Aarch64),
        object::Architecture::Unknown => {
            let number = match file {
                object::File::Elf64(elf) => elf.elf_header().e_machine.get(elf.endian()).0,
                _ => 0,
            };
            Err(foreign(format!("machine number {number}")))
        }
        other => Err(foreign(format!("{other:?}"))),
    }
}

/// Every section and segment must lie inside the file: the tables stand at the end, so this is how
/// a copy that stopped early shows.
fn check_ranges(path: &Path, file: &ProgramFile<'_>, length: u64) -> Result<(), CodeError> {
    let fits =
        |(offset, size): (u64, u64)| offset.checked_add(size).is_some_and(|end| end <= length);
    for segment in file.segments() {
        if !fits(segment.file_range()) {
            return Err(CodeError::damaged(path, "a segment reaches past the end of the file"));
        }
    }
    for section in file.sections() {
        if section.file_range().is_some_and(|range| !fits(range)) {
            let name = plain(section.name().unwrap_or("?"));
            let detail = format!("section {name} reaches past the end of the file");
            return Err(CodeError::damaged(path, detail));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Image {
        Image::open(&std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    fn reads_its_own_test_binary() {
        let image = own();
        assert_eq!(image.function_source(), FunctionSource::Symbols);
        assert!(image.functions().len() > 1000);
        for pair in image.functions().windows(2) {
            assert!(pair[0].end() <= pair[1].start, "{pair:?} overlap");
        }
        let f = image.functions().iter().find(|f| f.size_bytes > 16).unwrap();
        assert_eq!(image.function_at(f.start.offset(1)), Some(f));
        assert_eq!(image.function_bytes(f).len() as u64, f.size_bytes);
    }

    #[test]
    fn each_bad_file_gets_its_own_sentence() {
        let parse =
            |data: &[u8]| Image::parse(Path::new("f"), data.to_vec()).err().unwrap().to_string();
        assert!(parse(b"").contains("empty"));
        assert!(parse(b"hello there").contains("a text file"));
        assert!(parse(b"#!/bin/sh\n").contains("a script"));
        assert!(parse(b"MZ\x90\0").contains("Windows"));
        assert!(parse(b"!<arch>\nxx").contains("archive"));
        assert!(parse(b"\x7fELF\x02\x01\x01").contains("truncated"));
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(parse(&whole[..whole.len() / 2]).contains("truncated"));
        let mut foreign = whole;
        foreign[18..20].copy_from_slice(&243_u16.to_le_bytes());
        assert!(parse(&foreign).contains("Riscv64"));
    }

    #[test]
    fn missing_files_and_directories_are_told_apart() {
        let open = |p: &str| Image::open(Path::new(p)).err().unwrap().to_string();
        assert_eq!(open("/no/such/file"), "no such file: /no/such/file");
        assert!(open("/").contains("is a directory"));
    }

    #[test]
    fn file_offsets_and_addresses_agree() {
        let image = own();
        let function = &image.functions()[image.functions().len() / 2];
        let whole = std::fs::read(image.path()).unwrap();
        let position = |m: &Segment| {
            let skip = function.start.distance_from(m.svma)?;
            (skip < m.size_bytes).then_some((m.file_offset + skip) as usize)
        };
        let at = image.segments.iter().find_map(position).unwrap();
        let bytes = image.function_bytes(function);
        assert_eq!(&whole[at..at + bytes.len()], bytes);
        assert_eq!(image.svma_of(FileOffset(at as u64)), Some(function.start));
    }
}
