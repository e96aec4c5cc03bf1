//! A program file: its bytes, where they will stand in memory, and its functions.
//!
//! Positions in the file and addresses as stated in the file are converted here and nowhere else.
//! A file is read once, whole; nothing is mapped, so a file that shrinks while we look at it cannot
//! end us. Broken tables give an error or fewer functions, never a panic.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use object::read::elf::{ElfFile64, FileHeader};
use object::{Object, ObjectKind, ObjectSection, ObjectSegment, SectionKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::error::{CodeError, looks_like};
use super::functions::{self, Function};
use crate::model::{FileOffset, Svma};

/// Where the list of functions came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FunctionSource {
    /// The symbol table.
    Symbols,
    /// The unwind tables (`.eh_frame`), because the program is stripped: ranges without names.
    EhFrame,
}

/// A stretch of the file that is mapped at an address.
#[derive(Clone, Debug)]
struct Mapping {
    svma: Svma,
    file: Range<usize>,
}

impl Mapping {
    fn size(&self) -> u64 {
        (self.file.end - self.file.start) as u64
    }
}

/// One program file.
pub struct Image {
    path: PathBuf,
    data: Vec<u8>,
    segments: Vec<Mapping>,
    code: Vec<Mapping>,
    functions: Vec<Function>,
    source: FunctionSource,
    build_id: Option<String>,
}

impl Image {
    /// Reads and indexes a program.
    ///
    /// # Errors
    /// See [`CodeError`]: missing, unreadable, not ELF, damaged, for another processor, without code.
    pub fn open(path: &Path) -> Result<Self, CodeError> {
        let meta = fs::metadata(path).map_err(|e| CodeError::from_io(path, e))?;
        if meta.is_dir() {
            return Err(CodeError::Directory(path.into()));
        }
        let data = fs::read(path).map_err(|e| CodeError::from_io(path, e))?;
        Self::parse(path, data)
    }

    /// Indexes a program that is already in memory; `path` is for messages.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn parse(path: &Path, data: Vec<u8>) -> Result<Self, CodeError> {
        check_header(path, &data)?;
        let file = ElfFile64::<object::Endianness>::parse(&*data)
            .map_err(|e| CodeError::damaged(path, e))?;
        check_architecture(path, &file)?;
        if file.kind() == ObjectKind::Relocatable {
            return Err(CodeError::NotLinked(path.into()));
        }
        check_ranges(path, &file, data.len())?;
        let segments = file
            .segments()
            .filter_map(|s| mapping(s.address(), s.file_range(), data.len()))
            .collect();
        let code: Vec<Mapping> = file
            .sections()
            .filter(|s| s.kind() == SectionKind::Text)
            .filter_map(|s| mapping(s.address(), s.file_range()?, data.len()))
            .collect();
        if code.is_empty() {
            return Err(CodeError::Empty { path: path.into(), what: "machine code" });
        }
        let ranges: Vec<_> = code.iter().map(|m| (m.svma, m.size())).collect();
        let (functions, source) = functions::list(&file, &ranges);
        if functions.is_empty() {
            return Err(CodeError::Empty {
                path: path.into(),
                what: "function symbols and no unwind tables, so its functions cannot be found",
            });
        }
        let build_id = file.build_id().ok().flatten().map(hex);
        Ok(Self { path: path.into(), segments, code, functions, source, build_id, data })
    }

    /// The path it was read from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole file.
    pub(super) fn data(&self) -> &[u8] {
        &self.data
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
        let mut free = Vec::new();
        for section in &self.code {
            let end = section.svma.offset(section.size() as i64);
            let mut at = section.svma;
            let first = self.functions.partition_point(|f| f.start < section.svma);
            for function in self.functions[first..].iter().take_while(|f| f.start < end) {
                if let Some(gap) = function.start.distance_from(at).filter(|gap| *gap > 0) {
                    free.push((at, gap));
                }
                at = at.max(function.end());
            }
            if let Some(gap) = end.distance_from(at).filter(|gap| *gap > 0) {
                free.push((at, gap));
            }
        }
        free.sort_unstable();
        free
    }

    /// How many bytes of machine code there are.
    #[must_use]
    pub fn code_bytes(&self) -> u64 {
        self.code.iter().map(Mapping::size).sum()
    }

    /// The function that holds `svma`.
    #[must_use]
    pub fn function_at(&self, svma: Svma) -> Option<&Function> {
        let after = self.functions.partition_point(|f| f.start <= svma);
        let candidate = self.functions.get(after.checked_sub(1)?)?;
        (svma < candidate.end()).then_some(candidate)
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
            .find_map(|m| {
                let skip = svma.distance_from(m.svma).filter(|skip| *skip < m.size())? as usize;
                let end = (m.file.start + skip).saturating_add(size_bytes as usize).min(m.file.end);
                self.data.get(m.file.start + skip..end)
            })
            .unwrap_or(&[])
    }

    /// The stated address of a position in the file, if it is mapped.
    #[must_use]
    pub fn svma_of(&self, offset: FileOffset) -> Option<Svma> {
        let at = usize::try_from(offset.0).ok()?;
        let m = self.segments.iter().find(|m| m.file.contains(&at))?;
        Some(m.svma.offset((at - m.file.start) as i64))
    }
}

fn mapping(address: u64, (offset, size): (u64, u64), length: usize) -> Option<Mapping> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    (size > 0 && end <= length).then_some(Mapping { svma: Svma(address), file: start..end })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, b| text + &format!("{b:02x}"))
}

fn check_header(path: &Path, data: &[u8]) -> Result<(), CodeError> {
    if !data.starts_with(b"\x7fELF") {
        return Err(CodeError::NotElf { path: path.into(), looks_like: looks_like(data) });
    }
    if data.len() < size_of::<object::elf::FileHeader64<object::Endianness>>() {
        return Err(CodeError::damaged(path, "it ends inside its header"));
    }
    if data[4] == object::elf::ELFCLASS32.0 {
        return Err(CodeError::Foreign {
            path: path.into(),
            architecture: "a 32-bit processor".into(),
        });
    }
    Ok(())
}

fn check_architecture(
    path: &Path,
    file: &ElfFile64<'_, object::Endianness>,
) -> Result<(), CodeError> {
    match file.architecture() {
        object::Architecture::X86_64 => Ok(()),
        object::Architecture::Unknown => Err(CodeError::Foreign {
            path: path.into(),
            architecture: format!(
                "machine number {}",
                file.elf_header().e_machine(file.endian()).0
            ),
        }),
        other => Err(CodeError::Foreign { path: path.into(), architecture: format!("{other:?}") }),
    }
}

/// Every section and segment must lie inside the file: the tables stand at the end, so this is how
/// a copy that stopped early shows.
fn check_ranges(
    path: &Path,
    file: &ElfFile64<'_, object::Endianness>,
    length: usize,
) -> Result<(), CodeError> {
    let fits = |(offset, size): (u64, u64)| {
        offset.checked_add(size).is_some_and(|end| end <= length as u64)
    };
    for segment in file.segments() {
        if !fits(segment.file_range()) {
            return Err(CodeError::damaged(path, "a segment reaches past the end of the file"));
        }
    }
    for section in file.sections() {
        if section.file_range().is_some_and(|range| !fits(range)) {
            let name = section.name().unwrap_or("?").to_owned();
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
        assert!(parse(b"\x7fELF\x02\x01\x01").contains("truncated"));
        let whole = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(parse(&whole[..whole.len() / 2]).contains("truncated"));
        let mut object = whole.clone();
        object[16] = 1;
        assert!(parse(&object).contains("linked into"));
        let mut foreign = whole;
        foreign[18..20].copy_from_slice(&183_u16.to_le_bytes());
        assert!(parse(&foreign).contains("Aarch64"));
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
        let bytes = image.function_bytes(function);
        let offset = bytes.as_ptr() as usize - image.data.as_ptr() as usize;
        assert_eq!(image.svma_of(FileOffset(offset as u64)), Some(function.start));
    }
}
