//! Why a file could not be read as a program. Each sentence names the cause and what to do.

use std::io;
use std::path::{Path, PathBuf};

/// What can go wrong between a path and its functions.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum CodeError {
    #[error("no such file: {0}")]
    NotFound(PathBuf),
    #[error("{0} is a directory; name a program inside it")]
    Directory(PathBuf),
    /// The operating system will not let us read it.
    #[error("{path} cannot be read: {cause}")]
    Unreadable { path: PathBuf, cause: io::Error },
    #[error("{path} is not a program: it is {looks_like}")]
    NotElf {
        path: PathBuf,
        /// What its first bytes say it is.
        looks_like: &'static str,
    },
    /// Starts like a program and ends too early, or its tables contradict each other.
    #[error("{path} is a truncated or damaged program: {detail} (copy or build it again)")]
    Damaged { path: PathBuf, detail: String },
    #[error("{path} is for {architecture}; only x86-64 and AArch64 programs can be analysed")]
    Foreign { path: PathBuf, architecture: String },
    #[error("{0} is an archive of object files: name the program that it is linked into")]
    Archive(PathBuf),
    #[error("{0} is a thin archive, which only names its members; name the object files instead")]
    ThinArchive(PathBuf),
    #[error(
        "{0} says that it has more than 1 GiB of machine code: no program has, so it is damaged"
    )]
    TooMuchCode(PathBuf),
    /// A program without machine code, or without anything that says where functions are.
    #[error("{path} has no {what}")]
    Empty { path: PathBuf, what: &'static str },
}

impl CodeError {
    pub(super) fn from_io(path: &Path, cause: io::Error) -> Self {
        match cause.kind() {
            io::ErrorKind::NotFound => Self::NotFound(path.into()),
            io::ErrorKind::IsADirectory => Self::Directory(path.into()),
            _ => Self::Unreadable { path: path.into(), cause },
        }
    }

    pub(super) fn damaged(path: &Path, detail: impl ToString) -> Self {
        Self::Damaged { path: path.into(), detail: detail.to_string() }
    }
}

/// What a file that is no ELF program seems to be, from its first bytes.
pub(super) fn looks_like(data: &[u8]) -> &'static str {
    match data {
        [] => "empty",
        [b'#', b'!', ..] => "a script; name the interpreter's program instead",
        [b'M', b'Z', ..] => "a Windows program of another kind than 64-bit PE",
        [0xce, 0xfa, 0xed, 0xfe, ..] => "a Mach-O program of 32 bits",
        [0xca, 0xfe, 0xba, 0xbe, ..] => {
            "a Mach-O program for several processors; extract one of them"
        }
        [b'!', b'<', b'a', b'r', b'c', b'h', b'>', ..] => "an archive of object files",
        [0x1f, 0x8b, ..] => "gzip-compressed data",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd-compressed data",
        [b'P', b'K', ..] => "a zip archive",
        [b'B', b'C', 0xc0, 0xde, ..] => "LLVM bitcode; compile it first",
        [0, b'a', b's', b'm', ..] => "a WebAssembly module",
        _ if data.iter().take(1024).all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace()) => {
            "a text file"
        }
        _ => "data of an unknown kind",
    }
}
