//! What is to run under the emulator: which processor's program it is, what it needs beside itself,
//! and where in its files the window starts.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object};

use super::failed;
use crate::code::Architecture;
use crate::model::{Avma, FileOffset, Svma};
use crate::run::child::Launch;
use crate::trace::engine::target::offset_of;
use crate::trace::engine::{EngineError, Mapping, Start};

/// Scripts that are run by scripts, at the most.
const MOST_INTERPRETERS: usize = 4;
/// Where Debian's cross compilers keep the libraries of AArch64.
const AARCH64_ROOT: &str = "/usr/aarch64-linux-gnu";

pub(super) struct Guest {
    /// Its processor.
    pub architecture: Architecture,
    /// The program file, which for a script is that of its interpreter.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its first instruction behind the dynamic loader.
    entry: Svma,
    /// The dynamic loader that it asks for.
    loader: Option<PathBuf>,
}

/// Where a window starts, as a place in a file.
pub(super) struct Wanted {
    object: PathBuf,
    svma: Svma,
    found: Option<Avma>,
}

impl Guest {
    /// What `launch` would run.
    ///
    /// # Errors
    /// When it is no program for a processor that can be emulated.
    pub(super) fn of(launch: &Launch) -> Result<Self, EngineError> {
        let (mut program, mut args) = (launch.program.clone(), launch.args.clone());
        for _ in 0..MOST_INTERPRETERS {
            let data = read(&program)?;
            let Some(line) = data.strip_prefix(b"#!") else {
                return Self::parse(program, args, &data);
            };
            let line = line.split(|b| *b == b'\n').next().unwrap_or_default().trim_ascii();
            let (interpreter, argument) = match line.iter().position(u8::is_ascii_whitespace) {
                Some(at) => (&line[..at], Some(line[at..].trim_ascii())),
                None => (line, None),
            };
            args.insert(0, program.into());
            if let Some(argument) = argument {
                args.insert(0, OsString::from_vec(argument.to_vec()));
            }
            program = OsStr::from_bytes(interpreter).into();
        }
        Err(failed("the program is a script of scripts of scripts"))
    }

    fn parse(program: PathBuf, args: Vec<OsString>, data: &[u8]) -> Result<Self, EngineError> {
        let file = ElfFile64::<Endianness>::parse(data)
            .map_err(|e| failed(&format!("{} is no 64-bit ELF file: {e}", program.display())))?;
        let architecture = match file.architecture() {
            object::Architecture::X86_64 => Architecture::X86_64,
            object::Architecture::Aarch64 if file.is_little_endian() => Architecture::Aarch64,
            other => {
                let text = format!("{} is for {other:?}, not x86-64 or AArch64", program.display());
                return Err(failed(&text));
            }
        };
        let endian = file.endian();
        let loader = file
            .elf_program_headers()
            .iter()
            .find_map(|header| header.interpreter(endian, data).ok().flatten())
            .map(|path| OsStr::from_bytes(path).into());
        let entry = Svma(file.entry());
        Ok(Self { architecture, program, args, entry, loader })
    }

    pub(super) fn emulator(&self) -> &'static str {
        match self.architecture {
            Architecture::X86_64 => "qemu-x86_64",
            Architecture::Aarch64 => "qemu-aarch64",
        }
    }

    /// Where its libraries are, if they are not where it thinks.
    pub(super) fn root(&self) -> Option<&'static Path> {
        let root = Path::new(AARCH64_ROOT);
        let loader = self.loader.as_deref()?.strip_prefix("/").ok()?;
        let elsewhere = self.architecture == Architecture::Aarch64
            && !Path::new("/").join(loader).exists()
            && root.join(loader).exists();
        elsewhere.then_some(root)
    }

    /// Where a window of it starts.
    ///
    /// # Errors
    /// When the program has no code there.
    pub(super) fn wanted(&self, start: &Start) -> Result<Wanted, EngineError> {
        let program = self.program.canonicalize().unwrap_or_else(|_| self.program.clone());
        let (object, svma) = match start {
            Start::Entry => (program.clone(), self.entry),
            Start::At { object: None, svma } => (program.clone(), *svma),
            Start::At { object: Some(object), svma } => {
                (object.canonicalize().unwrap_or_else(|_| object.clone()), *svma)
            }
            Start::After(_) | Start::AfterInMadeCode(_) => {
                return Err(EngineError::Unsupported {
                    engine: "qemu",
                    reason: "time in an emulator is not the program's".into(),
                });
            }
        };
        if object == program && position_of(&read(&program)?, svma).is_none() {
            return Err(EngineError::NeverStarted(format!(
                "{svma} lies in no executable part of {}",
                program.display()
            )));
        }
        Ok(Wanted { object, svma, found: None })
    }
}

impl Wanted {
    /// The file's name as asked for.
    pub(super) fn object(&self) -> &Path {
        &self.object
    }

    /// Whether its file has been seen.
    pub(super) fn is_found(&self) -> bool {
        self.found.is_some()
    }

    /// Where the start is, once a mapping has it.
    pub(super) fn look_in(&mut self, mapped: &Mapping) -> Option<Avma> {
        if self.found.is_none() && self.is_it(&mapped.path) {
            let data = fs::read(&mapped.path).unwrap_or_default();
            let inside = position_of(&data, self.svma)?.distance_from(mapped.file_offset)?;
            let address = Avma(mapped.start.0.checked_add(inside)?);
            self.found = (address < mapped.end).then_some(address);
        }
        self.found
    }

    fn is_it(&self, path: &Path) -> bool {
        match self.object.is_absolute() {
            true => self.object == path,
            false => path.file_name() == Some(self.object.as_os_str()),
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, EngineError> {
    fs::read(path).map_err(|e| failed(&format!("{} cannot be read: {e}", path.display())))
}

fn position_of(data: &[u8], svma: Svma) -> Option<FileOffset> {
    offset_of(&ElfFile64::<Endianness>::parse(data).ok()?, svma)
}
