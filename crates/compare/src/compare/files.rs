//! The files that a comparison rests on: the programs, what they map, what their arguments name.
//! Were they the same in both arms, and did they stay what they were?
//!
//! Before every run the kernel is asked whether a file is still that file; what it holds is read at
//! both ends. A build that finishes in the middle of a comparison would otherwise give a verdict about
//! no two programs at all.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command::CommandLine;
use super::error::CompareError;
use super::fingerprint;
use super::program::ArmRecord;
use super::schedule::Arm;

/// Files above this are not read, only asked for.
const MOST_BYTES: u64 = 1 << 30;

/// What a file is to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileRole {
    /// The program that is run.
    Program,
    /// Its code was mapped: a library, or the interpreter of a script.
    Mapped,
    /// An argument names it.
    Argument,
    /// It is the standard input.
    Input,
}

impl std::fmt::Display for FileRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Program => "the program",
            Self::Mapped => "a library",
            Self::Argument => "an argument",
            Self::Input => "the standard input",
        })
    }
}

/// A file that one arm uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsedFile {
    /// Path of the file.
    pub path: PathBuf,
    /// What it is to the run.
    pub role: FileRole,
    /// Length of the file, bytes.
    pub bytes: u64,
    /// Its fingerprint as in [`ArmRecord::program_fnv1a`]; empty for one that cannot be read or is
    /// larger than a gibibyte.
    pub fnv1a: String,
}

impl UsedFile {
    fn is_same_as(&self, other: &Self) -> bool {
        let known = !self.fnv1a.is_empty() && !other.fnv1a.is_empty();
        self.path == other.path
            || (known && (self.bytes, &self.fnv1a) == (other.bytes, &other.fnv1a))
    }
}

/// What the kernel says of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified_ns: i128,
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let meta = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some(Self {
            device: meta.dev(),
            inode: meta.ino(),
            bytes: meta.len(),
            modified_ns: i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec()),
        })
    }
}

/// The content as it is now; empty when it cannot be read or is too large to be.
fn content(path: &Path, bytes: u64) -> (u64, String) {
    let read = || fingerprint::of_path(path).ok();
    (bytes <= MOST_BYTES).then(read).flatten().unwrap_or((bytes, String::new()))
}

#[derive(Debug, Default)]
pub(super) struct FileWatch {
    watched: Vec<(Arm, UsedFile, Stamp)>,
}

impl FileWatch {
    /// Watches a file from now on; one that is no regular file is none to watch.
    pub fn add(&mut self, arm: Arm, role: FileRole, path: &Path) {
        let known = self.watched.iter().any(|(a, record, _)| *a == arm && record.path == path);
        let Some(stamp) = Stamp::of(path).filter(|_| !known) else { return };
        // Both arms often use one file: it need not be read twice.
        let read = self.watched.iter().find(|(_, _, other)| *other == stamp);
        let (bytes, fnv1a) = match read {
            Some((_, record, _)) => (record.bytes, record.fnv1a.clone()),
            None => content(path, stamp.bytes),
        };
        self.watched.push((arm, UsedFile { path: path.into(), role, bytes, fnv1a }, stamp));
    }

    /// Watches the files that arguments name, alone or behind a `=`; those of a line for a shell are its words.
    pub fn add_arguments(&mut self, arm: Arm, line: &CommandLine) {
        let folder = line.folder.as_deref().unwrap_or(Path::new(""));
        let typed = line.args.last().filter(|_| line.by_shell).and_then(|typed| typed.to_str());
        let words = typed.and_then(shlex::split).unwrap_or_default();
        let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        for arg in line.args.iter().chain(&words) {
            let bytes = arg.as_bytes();
            let behind =
                bytes.iter().position(|b| *b == b'=').map_or(&[][..], |at| &bytes[at + 1..]);
            for name in [bytes, behind] {
                let path = folder.join(std::ffi::OsStr::from_bytes(name));
                self.add(arm, FileRole::Argument, &path);
            }
        }
    }

    /// An argument or input that changed while only one arm ran, unmeasured, is what that program, or what prepares
    /// it, writes.
    pub fn forget_what_is_written(&mut self) {
        self.watched.retain(|(_, record, stamp)| {
            let is_written = matches!(record.role, FileRole::Argument | FileRole::Input);
            !is_written || Stamp::of(&record.path) == Some(*stamp)
        });
    }

    /// Asks the kernel whether every file is still that file.
    pub fn check(&self) -> Result<(), CompareError> {
        let changed = self.watched.iter().find(|(_, r, stamp)| Stamp::of(&r.path) != Some(*stamp));
        changed.map_or(Ok(()), |(arm, record, _)| Err(replaced(*arm, record)))
    }

    /// As [`FileWatch::check`], and reads every file again: times can be set back.
    pub fn check_content(&self) -> Result<(), CompareError> {
        self.check()?;
        let mut read: BTreeMap<(u64, u64), (u64, String)> = BTreeMap::new();
        for (arm, record, stamp) in self.watched.iter().filter(|(_, r, _)| !r.fnv1a.is_empty()) {
            let now = read
                .entry((stamp.device, stamp.inode))
                .or_insert_with(|| content(&record.path, stamp.bytes));
            if *now != (record.bytes, record.fnv1a.clone()) {
                return Err(replaced(*arm, record));
            }
        }
        Ok(())
    }

    pub fn records(&self, of: Arm) -> Vec<UsedFile> {
        let own = self
            .watched
            .iter()
            .filter(|(arm, record, _)| *arm == of && record.role != FileRole::Program);
        own.map(|(_, record, _)| record.clone()).collect()
    }
}

fn replaced(arm: Arm, record: &UsedFile) -> CompareError {
    CompareError::Replaced { arm, role: record.role, path: record.path.clone() }
}

/// Whether two files hold the same bytes; `None` when that cannot be found out.
#[must_use]
pub fn hold_the_same(a: &Path, b: &Path) -> Option<bool> {
    let [a, b] = [a, b].map(|path| Some((Stamp::of(path)?, path)));
    let ((a_stamp, a), (b_stamp, b)) = (a?, b?);
    if a_stamp == b_stamp || a_stamp.bytes != b_stamp.bytes {
        return Some(a_stamp == b_stamp);
    }
    let [a, b] = [a, b].map(|path| content(path, a_stamp.bytes).1);
    (!a.is_empty() && !b.is_empty()).then_some(a == b)
}

/// What a library is called whatever its version: `libbz2.so` of `libbz2.so.1.0.4`. Other names stay; an empty path is that
/// of code in no file.
#[must_use]
pub fn library_name(path: &Path) -> String {
    if path.as_os_str().is_empty() {
        return "code without a file".to_owned();
    }
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    match name.find(".so.") {
        Some(at) => name[..at + 3].to_owned(),
        None => name.into_owned(),
    }
}

/// Libraries of one name that the arms map with other bytes. One that only one arm was seen to map says
/// nothing: it may have been too quick to be looked at (see [`ArmRecord::files`]).
#[must_use]
pub fn different_libraries(arms: &[ArmRecord; 2]) -> Vec<String> {
    let mapped = arms.each_ref().map(|arm| {
        let own = arm.files.iter().filter(|f| f.role == FileRole::Mapped);
        own.map(|f| (library_name(&f.path), f)).collect::<BTreeMap<_, _>>()
    });
    let [a, b] = &mapped;
    let differs = |(name, file): &(&String, &&UsedFile)| {
        b.get(*name).is_some_and(|other| !file.is_same_as(other))
    };
    a.iter().filter(differs).map(|(name, _)| name.clone()).collect()
}

/// Whether both arms run the same bytes with the same arguments, as far as their files were seen.
#[must_use]
pub fn are_identical(arms: &[ArmRecord; 2]) -> bool {
    let [a, b] = arms;
    let same_bytes = !a.program_fnv1a.is_empty()
        && (a.program_bytes, &a.program_fnv1a) == (b.program_bytes, &b.program_fnv1a);
    let told = |arm: &ArmRecord| {
        let arguments = arm.command.get(1..).map(<[String]>::to_vec);
        (arguments, arm.environment.clone(), arm.folder.clone(), arm.steps.clone())
    };
    same_bytes && told(a) == told(b) && different_libraries(arms).is_empty()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A file with `text`, watched as `role`.
    fn watching(role: FileRole, text: &str) -> (tempfile::TempDir, PathBuf, FileWatch) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, text).unwrap();
        let mut watch = FileWatch::default();
        watch.add(Arm::B, role, &path);
        (folder, path, watch)
    }

    #[test]
    fn whatever_is_replaced_is_noticed_and_named() {
        for role in [FileRole::Program, FileRole::Mapped, FileRole::Argument] {
            let (folder, path, watch) = watching(role, "one");
            assert!(watch.check().is_ok() && watch.check_content().is_ok());
            // As a build does it: another file under the same name, of the same size.
            let other = folder.path().join("other");
            fs::write(&other, "two").unwrap();
            fs::rename(&other, &path).unwrap();
            let said = watch.check().unwrap_err().to_string();
            for part in ["arm B", &role.to_string(), path.to_str().unwrap(), "compare again"] {
                assert!(said.contains(part), "{part}: {said}");
            }
            fs::remove_file(&path).unwrap();
            assert!(watch.check().is_err(), "gone");
        }
    }

    #[test]
    fn a_time_that_was_set_back_hides_nothing_from_the_last_look() {
        let (_folder, path, watch) = watching(FileRole::Mapped, "one");
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        let mut file = fs::File::options().write(true).open(&path).unwrap();
        file.write_all(b"two").unwrap();
        file.set_modified(time).unwrap();
        assert!(watch.check().is_ok(), "nothing to see from outside");
        assert!(matches!(watch.check_content(), Err(CompareError::Replaced { .. })));
    }

    #[test]
    fn what_a_program_writes_itself_is_no_input() {
        let (_folder, path, mut watch) = watching(FileRole::Argument, "one");
        fs::write(&path, "as the warm-up left it").unwrap();
        watch.forget_what_is_written();
        assert!(watch.check_content().is_ok() && watch.records(Arm::B).is_empty());
    }

    #[test]
    fn arguments_that_name_files_are_watched() {
        let (_folder, path, _) = watching(FileRole::Argument, "one");
        let name = path.to_str().unwrap();
        let mut watch = FileWatch::default();
        let words = [format!("--in={name}"), "-v".into(), "/".into()].map(Into::into);
        watch.add_arguments(Arm::A, &CommandLine::new("p", words.into()));
        assert_eq!(watch.records(Arm::A).len(), 1);
        watch.add_arguments(Arm::A, &CommandLine::new("p", vec![name.into()]));
        assert_eq!(watch.records(Arm::A).len(), 1, "one file twice is one file");
    }

    #[test]
    fn libraries_pair_whatever_their_version() {
        let name = |path: &str| library_name(Path::new(path));
        assert_eq!(name(""), name(&name("")), "the name of a place is that of its code");
        assert_eq!(name("/a/libbz2.so.1.0.4"), name("/b/libbz2.so.1.0"));
        assert_eq!((name("/lib/libc.so.6").as_str(), name("/bin/sh").as_str()), ("libc.so", "sh"));
    }
}
