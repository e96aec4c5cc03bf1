//! The libraries that a program names: which of them hold more code than it does (a program can be a shell around its library), and
//! where each is that it or one of them names.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};

use object::elf;
use object::read::elf::{Dyn, ElfFile64, FileHeader};
use object::{Endianness, Object, ObjectSection, SectionKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::image::Image;
use super::parts::Parts;
use crate::foreign::plain_bytes;

/// What nearly every program names: the C library, the compilers' own, the loader.
const OF_ALL_PROGRAMS: [&str; 11] = [
    "libc.so",
    "libm.so",
    "libpthread.so",
    "libdl.so",
    "librt.so",
    "libgcc_s.so",
    "libstdc++.so",
    "libc++.so",
    "libc++abi.so",
    "ld-linux",
    "libresolv.so",
];
/// Where the loader looks last. What its cache has beside that is not asked.
const FOLDERS: [&str; 8] = [
    "/lib64",
    "/usr/lib64",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib",
    "/usr/lib",
];
/// A library that holds less than so many times the program's code is worth no word.
const TIMES: u64 = 2;
/// A program with more code does something of its own.
const MOST_OF_A_SHELL_BYTES: u64 = 256 << 10;

/// A library that a program names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NeededLibrary {
    /// Its file.
    pub path: PathBuf,
    /// Bytes of machine code in it.
    pub code_bytes: u64,
}

/// The libraries that hold most of what a small program runs, largest first: those that it names itself, and that have more code than
/// it has.
#[must_use]
pub fn larger_libraries(image: &Image) -> Vec<NeededLibrary> {
    if image.code_bytes() > MOST_OF_A_SHELL_BYTES {
        return Vec::new();
    }
    let (names, folders) = needed(image.path(), &image.parts()).unwrap_or_default();
    let is_own = |name: &&String| !OF_ALL_PROGRAMS.iter().any(|common| name.starts_with(common));
    let find = |name: &String| {
        let mut files = candidates(name, &folders);
        files.find_map(|path| Some((code_bytes(&path)?, path)))
    };
    let mut libraries: Vec<NeededLibrary> = names
        .iter()
        .filter(is_own)
        .filter_map(find)
        .map(|(code_bytes, path)| NeededLibrary { path, code_bytes })
        .filter(|library| library.code_bytes >= TIMES * image.code_bytes())
        .collect();
    libraries.sort_by(|a, b| b.code_bytes.cmp(&a.code_bytes).then_with(|| a.path.cmp(&b.path)));
    libraries
}

/// Libraries that are looked into, at the most: nobody names more, but a file may claim to.
const MOST_LIBRARIES: usize = 512;

/// The files of the libraries that a program names, and of those that these name, each once: nearest first. They are looked for where
/// the files want it, in `folders` (those of `LD_LIBRARY_PATH`, as a rule), and where the loader looks last.
#[must_use]
pub fn named_libraries(image: &Image, folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut seen: HashSet<String> = HashSet::new();
    let mut asked: VecDeque<_> = needed(image.path(), &image.parts()).into_iter().collect();
    while let Some((names, mut wanted)) = asked.pop_front() {
        wanted.extend_from_slice(folders);
        for name in names {
            if found.len() == MOST_LIBRARIES || !seen.insert(name.clone()) {
                continue;
            }
            let opened = candidates(&name, &wanted).find_map(|path| {
                let of_library = needed(&path, &Parts::open(&path).ok()?)?;
                Some((path, of_library))
            });
            if let Some((path, of_library)) = opened {
                found.push(path);
                asked.push_back(of_library);
            }
        }
    }
    found
}

/// Where a library may be.
fn candidates(name: &str, folders: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    let others = FOLDERS.iter().map(PathBuf::from);
    folders.iter().cloned().chain(others).map(move |folder| folder.join(name))
}

/// The names of the libraries, and the folders that the program or library at `path` wants searched for them.
fn needed(path: &Path, parts: &Parts) -> Option<(Vec<String>, Vec<PathBuf>)> {
    let file = ElfFile64::<Endianness, _>::parse(parts).ok()?;
    let endian = file.endian();
    let header = file.elf_header();
    let sections = header.sections(endian, parts).ok()?;
    let (entries, link) = sections.dynamic(endian, parts).ok()??;
    let strings = sections.strings(endian, parts, link).ok()?;
    let (mut names, mut folders) = (Vec::new(), Vec::new());
    for entry in entries {
        let text = || entry.string(endian, strings).ok().map(plain_bytes);
        match entry.tag(endian) {
            elf::DT_NEEDED => {
                // A name with a slash is a path, which the loader does not search.
                names.extend(text().filter(|name| !name.contains('/')));
            }
            elf::DT_RUNPATH | elf::DT_RPATH => {
                let origin = path.canonicalize().ok();
                let origin = origin.as_deref().and_then(Path::parent).unwrap_or(Path::new("."));
                let origin = origin.to_string_lossy();
                let list = text().unwrap_or_default();
                folders.extend(list.split(':').map(|folder| {
                    PathBuf::from(folder.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin))
                }));
            }
            _ => {}
        }
    }
    Some((names, folders))
}

/// How much machine code a file holds; `None` where it is no program.
fn code_bytes(path: &Path) -> Option<u64> {
    let parts = Parts::open(path).ok()?;
    let file = object::File::parse(&parts).ok()?;
    let code = file.sections().filter(|section| section.kind() == SectionKind::Text);
    Some(code.map(|section| section.size()).sum())
}
