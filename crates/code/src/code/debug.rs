//! Debug information: where it is, and as much of it as is asked for.
//!
//! It stands in the program itself, in a separate file that a build id or a debug link names, or in
//! split files (`.dwo`, `.dwp`). Most of the time a few addresses are asked for, so nothing is read
//! before the first. Of an image as large as a kernel's only the units that hold those addresses are
//! read, found through the table of address ranges.

use std::cell::{OnceCell, RefCell};
use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use addr2line::{Context, LookupResult, SplitDwarfLoad};
use gimli::{EndianArcSlice, LittleEndian, SectionId};
use object::{Object, ObjectSection};
use rustc_hash::FxHashMap;

use super::functions::demangle;
use super::image::Image;
use super::parts::{Parts, ProgramFile};
use super::place::Placed;
use super::variables::Variables;
use crate::foreign::{hex, plain};
use crate::model::{SourceLine, Svma};

pub(super) type Reader = EndianArcSlice<LittleEndian>;
type Dwarf = gimli::Dwarf<Reader>;

/// A section that is not there.
fn nothing() -> Reader {
    Reader::new(Arc::from([]), LittleEndian)
}

/// Debug information larger than this is read unit by unit.
const WHOLE_BYTES: u64 = 64 << 20;
/// Where distributions put separate debug files.
const SYSTEM_FOLDER: &str = "/usr/lib/debug";

/// The debug information about one stretch of the program.
pub(super) struct Book {
    context: Context<Reader>,
    pub variables: Variables,
}

enum Form {
    Whole(Rc<Book>),
    Units(Units),
}

/// What is known of one program, read when it is first asked for.
pub(super) struct Debug {
    form: Option<Form>,
    /// The program's own path: split files are looked for beside it.
    path: PathBuf,
    package: OnceCell<Option<gimli::DwarfPackage<Reader>>>,
    refused: RefCell<Refused>,
}

/// Files that bear the right name and belong to another build.
#[derive(Default)]
struct Refused(Vec<(PathBuf, &'static str)>);

impl Refused {
    fn add(&mut self, path: &Path, why: &'static str) {
        if self.0.iter().all(|(known, _)| known != path) {
            self.0.push((path.into(), why));
        }
    }
}

/// Debug information that is read unit by unit.
struct Units {
    parts: Parts,
    /// All sections but `.debug_info`.
    shared: OnceCell<FxHashMap<SectionId, Reader>>,
    info_offset: u64,
    info_size: u64,
    /// Address ranges with the place of their unit in `.debug_info`, by address.
    ranges: Vec<(u64, u64, u64)>,
    books: RefCell<FxHashMap<u64, Option<Rc<Book>>>>,
}

impl Debug {
    pub fn of(image: &Image) -> Self {
        let mut refused = Refused::default();
        let form = if has_debug_info(&image.parts()) {
            let own = (image.placed().is_none()).then(|| open_units(image.path())).flatten();
            own.map(Form::Units).or_else(|| open_whole(&image.parts(), image.placed()))
        } else {
            separate_file(image, &mut refused).and_then(|path| open_form(&path))
        };
        let refused = RefCell::new(refused);
        Self { form, path: image.path().into(), package: OnceCell::new(), refused }
    }

    /// The files that were found so far and not believed, each as a sentence that says why.
    pub fn refused(&self) -> Vec<String> {
        let say = |(path, why): &(PathBuf, &str)| {
            let path = plain(&path.to_string_lossy()).into_owned();
            format!("{path} is not used: it is debug information of another build, by its {why}")
        };
        self.refused.borrow().0.iter().map(say).collect()
    }

    /// What is known around an address.
    pub fn book(&self, svma: Svma) -> Option<Rc<Book>> {
        match self.form.as_ref()? {
            Form::Whole(book) => Some(Rc::clone(book)),
            Form::Units(units) => units.book(svma),
        }
    }

    /// The frames at an address, innermost first.
    pub fn frames(&self, svma: Svma) -> Vec<SourceLine> {
        // The reader looks one byte further and would run over the end of the address space.
        let Some(book) = self.book(svma).filter(|_| svma.0 != u64::MAX) else { return Vec::new() };
        let mut lookup = book.context.find_frames(svma.0);
        let frames = loop {
            match lookup {
                LookupResult::Output(frames) => break frames,
                LookupResult::Load { load, continuation } => {
                    let split = self.split(load);
                    lookup = addr2line::LookupContinuation::resume(continuation, split);
                }
            }
        };
        let Ok(mut frames) = frames else { return Vec::new() };
        let mut lines = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            let Some(location) = frame.location else { continue };
            let Some(file) = location.file else { continue };
            let function =
                frame.function.and_then(|f| f.raw_name().ok().map(|name| demangle(&name)));
            let line = location.line.unwrap_or(0);
            lines.push(SourceLine { file: plain(file).into_owned(), line, function });
        }
        lines
    }

    /// Whether code between two addresses is of a line of a file whose path ends so.
    pub fn has_line(&self, [low, high]: [Svma; 2], file: &str, line: u32) -> bool {
        let Some(book) = self.book(low) else { return false };
        let Ok(mut ranges) = book.context.find_location_range(low.0, high.0) else { return false };
        let is_it = |path: &str| Path::new(path).ends_with(file);
        ranges.any(|(.., at)| at.line == Some(line) && at.file.is_some_and(is_it))
    }

    /// The split part of a unit, from the package beside the program or a file of its own.
    fn split(&self, load: SplitDwarfLoad<Reader>) -> Option<Arc<Dwarf>> {
        let package = self.package.get_or_init(|| {
            let mut name = self.path.clone().into_os_string();
            name.push(".dwp");
            let parts = Parts::open(name.as_ref()).ok()?;
            let file = object::File::parse(&parts).ok()?;
            gimli::DwarfPackage::load(split_sections(&parts, &file), nothing()).ok()
        });
        if let Some(package) = package
            && let Ok(Some(unit)) = package.find_cu(load.dwo_id, &load.parent)
        {
            return Some(Arc::new(unit));
        }
        let text = |reader: &Option<Reader>| {
            let bytes = gimli::Reader::to_slice(reader.as_ref()?).ok()?.into_owned();
            Some(PathBuf::from(std::ffi::OsStr::from_bytes(&bytes)))
        };
        let path = text(&load.comp_dir).unwrap_or_default().join(text(&load.path)?);
        let parts = Parts::open(&path).ok()?;
        let file = object::File::parse(&parts).ok()?;
        let mut dwarf = Dwarf::load(split_sections(&parts, &file)).ok()?;
        dwarf.make_dwo(&load.parent);
        // A rebuild that failed half-way leaves the split file of another build under this name.
        if holds_unit(&dwarf, load.dwo_id) {
            return Some(Arc::new(dwarf));
        }
        self.refused.borrow_mut().add(&path, "DWO id");
        None
    }
}

impl Book {
    fn of(dwarf: Dwarf) -> Option<Self> {
        let dwarf = Arc::new(dwarf);
        let context = Context::from_arc_dwarf(Arc::clone(&dwarf)).ok()?;
        Some(Self { context, variables: Variables::of(dwarf) })
    }
}

fn has_debug_info(parts: &Parts) -> bool {
    let file = object::File::parse(parts);
    file.is_ok_and(|f| f.section_by_name(".debug_info").is_some_and(|s| s.size() > 0))
}

/// Units of DWARF hold together by themselves: each can be read alone.
fn open_units(path: &Path) -> Option<Units> {
    let parts = Parts::open(path).ok()?;
    let file = object::File::parse(&parts).ok()?;
    let info = file.section_by_name(".debug_info").filter(|s| s.size() > WHOLE_BYTES)?;
    let plain = info.compressed_file_range().ok()?;
    if plain.format != object::CompressionFormat::None {
        return None;
    }
    let mut ranges = Vec::new();
    let arranged = section_named(&parts, &file, None, Some(".debug_aranges"))?;
    let mut headers = gimli::DebugAranges::from(arranged).headers();
    while let Ok(Some(header)) = headers.next() {
        let mut entries = header.entries();
        while let Ok(Some(entry)) = entries.next() {
            let end = entry.address().saturating_add(entry.length());
            ranges.push((entry.address(), end, header.debug_info_offset().0 as u64));
        }
    }
    ranges.sort_unstable();
    let (info_offset, info_size) = (plain.offset, plain.uncompressed_size);
    drop(file);
    let (shared, books) = (OnceCell::new(), RefCell::default());
    (!ranges.is_empty()).then_some(Units { parts, shared, info_offset, info_size, ranges, books })
}

impl Units {
    fn book(&self, svma: Svma) -> Option<Rc<Book>> {
        let after = self.ranges.partition_point(|(start, ..)| *start <= svma.0);
        let (_, end, unit) = *self.ranges.get(after.checked_sub(1)?)?;
        if svma.0 >= end {
            return None;
        }
        let mut books = self.books.borrow_mut();
        books.entry(unit).or_insert_with(|| self.read(unit).map(Rc::new)).clone()
    }

    fn read(&self, unit: u64) -> Option<Book> {
        let start = self.info_offset.checked_add(unit)?;
        let size = u32::from_le_bytes(self.parts.copy(start, 4)?.try_into().ok()?);
        // The escape to 64 bits: no unit is that large.
        let size = u64::from(size).checked_add(4).filter(|size| *size < WHOLE_BYTES)?;
        let inside = unit.checked_add(size).is_some_and(|end| end <= self.info_size);
        let bytes = inside.then(|| self.parts.copy(start, size)).flatten()?;
        let info = Reader::new(Arc::from(bytes), LittleEndian);
        let shared = self.shared.get_or_init(|| self.read_shared());
        let section = |id: SectionId| {
            Ok::<_, gimli::Error>(match id {
                SectionId::DebugInfo => info.clone(),
                // Its offsets count from the whole of `.debug_info`.
                SectionId::DebugAranges => nothing(),
                other => shared.get(&other).cloned().unwrap_or_else(nothing),
            })
        };
        Book::of(Dwarf::load(section).ok()?)
    }

    fn read_shared(&self) -> FxHashMap<SectionId, Reader> {
        let Ok(file) = object::File::parse(&self.parts) else { return FxHashMap::default() };
        const IDS: [SectionId; 8] = [
            SectionId::DebugAbbrev,
            SectionId::DebugAddr,
            SectionId::DebugLine,
            SectionId::DebugLineStr,
            SectionId::DebugRanges,
            SectionId::DebugRngLists,
            SectionId::DebugStr,
            SectionId::DebugStrOffsets,
        ];
        IDS.into_iter()
            .filter_map(|id| Some((id, section_named(&self.parts, &file, None, Some(id.name()))?)))
            .collect()
    }
}

fn open_whole(parts: &Parts, placed: Option<&Placed>) -> Option<Form> {
    let file = object::File::parse(parts).ok()?;
    let section = |id: SectionId| {
        Ok::<_, gimli::Error>(
            section_named(parts, &file, placed, Some(id.name())).unwrap_or_else(nothing),
        )
    };
    Some(Form::Whole(Rc::new(Book::of(Dwarf::load(section).ok()?)?)))
}

/// Of a file of its own: the program, or the separate one.
fn open_form(path: &Path) -> Option<Form> {
    if let Some(units) = open_units(path) {
        return Some(Form::Units(units));
    }
    open_whole(&Parts::open(path).ok()?, None)
}

/// A section's bytes, decompressed, its holes filled if the file was placed.
/// The sections of a split file, by the names that they have there; nothing for one that is not there.
fn split_sections(
    parts: &Parts,
    file: &ProgramFile<'_>,
) -> impl Fn(SectionId) -> Result<Reader, gimli::Error> {
    |id| Ok(section_named(parts, file, None, id.dwo_name()).unwrap_or_else(nothing))
}

fn section_named(
    parts: &Parts,
    file: &ProgramFile<'_>,
    placed: Option<&Placed>,
    name: Option<&str>,
) -> Option<Reader> {
    let section = file.section_by_name(name?)?;
    let range = section.compressed_file_range().ok()?;
    if range.format != object::CompressionFormat::None {
        parts.budget().spend(range.uncompressed_size)?;
    }
    if placed.is_none() && range.format == object::CompressionFormat::None {
        let bytes = parts.share(range.offset, range.uncompressed_size)?;
        return Some(Reader::new(bytes, LittleEndian));
    }
    let data = section.uncompressed_data().ok()?;
    let bytes: Arc<[u8]> = match placed {
        Some(placed) => {
            let mut bytes = data.into_owned();
            placed.relocate(file, &section, &mut bytes);
            Arc::from(bytes)
        }
        None => Arc::from(&*data),
    };
    Some(Reader::new(bytes, LittleEndian))
}

/// The separate debug file of a program, by build id, else by debug link. A name proves nothing: a
/// file of another build beside the program would put every line wrong.
fn separate_file(image: &Image, refused: &mut Refused) -> Option<PathBuf> {
    let by_id = image.build_id().filter(|id| id.len() > 2).map(|id| {
        Path::new(SYSTEM_FOLDER)
            .join(".build-id")
            .join(&id[..2])
            .join(format!("{}.debug", &id[2..]))
    });
    if let Some(path) = by_id.filter(|path| belongs(path, image.build_id(), None, refused)) {
        return Some(path);
    }
    let parts = image.parts();
    let file = object::File::parse(&*parts).ok()?;
    let (name, crc) = file.gnu_debuglink().ok()??;
    // A name, and no way to another place.
    let name = Path::new(std::ffi::OsStr::from_bytes(name))
        .file_name()
        .filter(|n| n.as_bytes() == name)?;
    let folder = image.path().canonicalize().ok()?.parent()?.to_owned();
    let below_system = Path::new(SYSTEM_FOLDER).join(folder.strip_prefix("/").ok()?);
    [folder.join(name), folder.join(".debug").join(name), below_system.join(name)]
        .into_iter()
        .find(|path| path != image.path() && belongs(path, image.build_id(), Some(crc), refused))
}

/// Whether the file at `path` has this build id or, where one of the two has none, this checksum.
fn belongs(path: &Path, build_id: Option<&str>, crc: Option<u32>, refused: &mut Refused) -> bool {
    // A file of debug information alone has no machine code: it is no image.
    let own_id = || {
        let parts = Parts::open(path).ok()?;
        object::File::parse(&parts).ok()?.build_id().ok()?.map(hex)
    };
    let (is_it, by) = match (build_id, own_id(), crc) {
        (Some(wanted), Some(own), _) => (wanted == own, "build id"),
        (_, _, Some(crc)) => (checksum(path).is_ok_and(|own| own == crc), "checksum"),
        _ => (false, "build id"),
    };
    if !is_it && path.is_file() {
        refused.add(path, by);
    }
    is_it
}

/// The CRC-32 that debug links carry.
fn checksum(path: &Path) -> std::io::Result<u32> {
    let mut crc =
        flate2::CrcReader::new(BufReader::with_capacity(1 << 20, crate::foreign::open(path)?));
    std::io::copy(&mut crc, &mut std::io::sink())?;
    Ok(crc.crc().sum())
}

/// Whether split debug information holds the unit that was asked for.
fn holds_unit(dwarf: &Dwarf, id: gimli::DwoId) -> bool {
    let mut units = dwarf.units();
    std::iter::from_fn(|| units.next().ok().flatten())
        .any(|header| dwarf.unit(header).is_ok_and(|unit| unit.dwo_id == Some(id)))
}
