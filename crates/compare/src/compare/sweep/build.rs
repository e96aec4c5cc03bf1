//! Builds, kept by content: the same command over the same sources is not run again.
//!
//! The key covers the filled template, the variables that carry flags, the names and bytes of the
//! sources, the programs that the template names, the environment that compilers read and the folder
//! that they run in. What a build wrote counts only once it is whole: a note beside it holds its fingerprint, and what the
//! build took, when it has ended well, and what no longer has it is built again. Cells that differ only in how they are run have one key, and two sweeps may share
//! the cache: a builder holds a lock on its key, the others wait and take what came out.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::SweepError;
use super::tools::{Tools, environment};
use crate::compare::fingerprint;
use crate::run::child::{Child, ChildError, Launch, Limits};
use crate::trace::whole_file::WholeFile;

/// The note beside a build holds a length, a fingerprint and a time.
const MOST_NOTE_BYTES: u64 = 256;
/// Files below a source folder above which the user has to say which ones count.
const MOST_FILES: usize = 20_000;
/// Bytes of sources, likewise.
const MOST_BYTES: u64 = 512 << 20;
/// Folders that hold no sources.
const SKIPPED: [&str; 4] = ["target", "node_modules", "build", "__pycache__"];
/// How long one who waits for another's build sleeps before it looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Whether a build left a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildOutcome {
    /// The build left a program.
    Built {
        /// Path of the program in the cache.
        program: PathBuf,
        /// Time the build took, also when that was earlier.
        build_ns: u64,
        /// Whether it was there already.
        cached: bool,
    },
    /// There is none, and this is why.
    Failed {
        /// Why it failed, as a sentence.
        why: String,
        /// File with the output of the build.
        log: PathBuf,
    },
}

/// Runs builds and keeps what they make.
#[derive(Debug)]
pub struct Builder {
    folder: PathBuf,
    sources: u64,
    tools: Tools,
}

impl Builder {
    /// Fingerprints the `sources` (folders or files); what is built goes below `folder`.
    ///
    /// # Errors
    /// When a source cannot be read, or there are too many to be sources.
    pub fn new(folder: &Path, sources: &[PathBuf]) -> Result<Self, SweepError> {
        let mut print = Print { hash: fingerprint::of(b""), files: 0, bytes: 0 };
        for source in sources {
            print.add(source, true)?;
        }
        fs::create_dir_all(folder)
            .map_err(|cause| SweepError::File { path: folder.into(), cause })?;
        // Templates change folders as they like: what they are given must not depend on that.
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.into());
        Ok(Self { folder, sources: print.hash, tools: Tools::default() })
    }

    /// Where the build with this `key` puts its program.
    #[must_use]
    pub fn program(&self, key: u64) -> PathBuf {
        self.folder.join(format!("{key:016x}")).join("out")
    }

    /// Keeps a file that builds refer to; its path.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&self, name: &str, text: &str) -> Result<PathBuf, SweepError> {
        let hash = fingerprint::of(text.as_bytes());
        let path = self.folder.join(format!("{hash:016x}-{name}"));
        // Never half there: a build beside this one may be reading it.
        match WholeFile::write(&path, text.as_bytes()) {
            Ok(()) => Ok(path),
            Err(cause) => Err(SweepError::File { path, cause }),
        }
    }

    /// The key of a template with everything filled in but `{out}`.
    #[must_use]
    pub fn key(&self, command: &str, variables: &[(&'static str, String)]) -> u64 {
        let here = std::env::current_dir().unwrap_or_default();
        let words = format!(
            "{command}\0{variables:?}\0{}\0{}\0{}\0{}",
            self.sources,
            self.tools.of(command),
            environment(command, &|name| std::env::var_os(name)),
            here.display()
        );
        fingerprint::of(words.as_bytes())
    }

    /// Builds, or takes what is there. `command` makes the command from the path for `{out}`.
    ///
    /// # Errors
    /// When no process can be started or the cache cannot be written; a build that fails is
    /// [`BuildOutcome::Failed`].
    pub fn build(
        &self,
        key: u64,
        command: impl Fn(&str) -> Result<String, SweepError>,
        variables: &[(&'static str, String)],
        interrupt: &AtomicBool,
    ) -> Result<BuildOutcome, SweepError> {
        let program = self.program(key);
        let whole = self.folder.join(format!("{key:016x}")).join("whole");
        let _lock = self.lock(key, interrupt)?;
        if let Some(build_ns) = whole_since(&program, &whole) {
            return Ok(BuildOutcome::Built { program, build_ns, cached: true });
        }
        let last = self.folder.join(format!("{key:016x}"));
        // The build is told the final path, because it may get into the program. What a killed build
        // left there counts for nothing: the note that it is whole comes last.
        let _ = fs::remove_dir_all(&last);
        fs::create_dir(&last).map_err(|cause| SweepError::File { path: last.clone(), cause })?;
        let result = self.run(&command(&quoted(&program)?)?, variables, interrupt);
        let failed = |why: String, said: &str| -> Result<BuildOutcome, SweepError> {
            let _ = fs::remove_dir_all(&last);
            let log = self.folder.join(format!("{key:016x}.log"));
            fs::write(&log, said).map_err(|cause| SweepError::File { path: log.clone(), cause })?;
            Ok(BuildOutcome::Failed { why, log })
        };
        match result {
            Err(error) => {
                let _ = fs::remove_dir_all(&last);
                Err(error)
            }
            Ok(Ended { failure: Some(why), said, .. }) => failed(why, &said),
            Ok(Ended { failure: None, said, wall_ns: build_ns }) => match fs::metadata(&program) {
                Ok(meta) if meta.is_file() && meta.len() > 0 => {
                    fingerprint_of(&program)
                        .and_then(|own| fs::write(&whole, format!("{own} {build_ns}")))
                        .map_err(|cause| SweepError::File { path: whole.clone(), cause })?;
                    Ok(BuildOutcome::Built { program, build_ns, cached: false })
                }
                Ok(meta) if meta.is_file() => failed("the build wrote an empty file".into(), &said),
                _ => failed(
                    "the build ended well and wrote nothing to {out}: name {out} in --build".into(),
                    &said,
                ),
            },
        }
    }

    /// Waits until no other builds this key, in this process or another. The lock goes with the
    /// file, so with a process that is killed.
    fn lock(&self, key: u64, interrupt: &AtomicBool) -> Result<File, SweepError> {
        let path = self.folder.join(format!("{key:016x}.lock"));
        let failed = |cause| SweepError::File { path: path.clone(), cause };
        let file = File::create(&path).map_err(failed)?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if interrupt.load(Ordering::Relaxed) => {
                    return Err(SweepError::Interrupted);
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK_AGAIN),
                Err(TryLockError::Error(cause)) => return Err(failed(cause)),
            }
        }
    }

    /// Runs a build command to its end.
    fn run(
        &self,
        command: &str,
        variables: &[(&'static str, String)],
        interrupt: &AtomicBool,
    ) -> Result<Ended, SweepError> {
        let set: String = variables
            .iter()
            .map(|(name, value)| {
                // What the user has set there already stays, in front. A NUL byte is in no flag.
                let quoted = shlex::try_quote(value).unwrap_or_default();
                format!("export {name}=\"${{{name}:-}}${{{name}:+ }}\"{quoted}\n")
            })
            .collect();
        let launch = Launch::shell(format!("{set}{command}"));
        let limits = Limits { timeout: None, interrupt };
        let exit = match Child::hold(&launch).and_then(|c| c.wait(&limits)) {
            Ok(exit) => exit,
            Err(ChildError::Interrupted) => return Err(SweepError::Interrupted),
            Err(cause) => return Err(cause.into()),
        };
        let said = format!("$ {command}\n{}{}", exit.stdout.tail, exit.stderr.tail);
        let failure = (!exit.status.success()).then(|| {
            // A build may fail without a word.
            let told = exit.stderr.complaint();
            let told = told.map(|told| format!(": {}", told.replace(char::is_control, " ")));
            format!("{}{}", exit.status, told.unwrap_or_default())
        });
        Ok(Ended { failure, said, wall_ns: exit.wall_ns })
    }
}

/// How a build command ended.
struct Ended {
    /// Exit code or signal and what standard error complains of; `None` for success.
    failure: Option<String>,
    /// The command and the end of its output.
    said: String,
    wall_ns: u64,
}

/// How long the build took, where the note says that what lies there is what it wrote.
fn whole_since(program: &Path, note: &Path) -> Option<u64> {
    let noted = crate::foreign::read_text(note, MOST_NOTE_BYTES).ok()?;
    let (print, build_ns) = noted.rsplit_once(' ')?;
    let own = fingerprint_of(program).ok()?;
    (own == print).then(|| build_ns.parse().ok()).flatten()
}

pub(super) fn fingerprint_of(program: &Path) -> io::Result<String> {
    let (bytes, fnv1a) = fingerprint::of_path(program)?;
    Ok(format!("{bytes} {fnv1a}"))
}

/// A path as a word for the shell.
///
/// # Errors
/// When no shell can be given it.
pub(super) fn quoted(path: &Path) -> Result<String, SweepError> {
    let cause = |_| io::Error::new(io::ErrorKind::InvalidInput, "no shell can be given this path");
    let text = path.to_string_lossy();
    let word = shlex::try_quote(&text).map_err(cause);
    word.map(Into::into).map_err(|cause| SweepError::File { path: path.into(), cause })
}

struct Print {
    hash: u64,
    files: usize,
    bytes: u64,
}

impl Print {
    fn add(&mut self, path: &Path, named: bool) -> Result<(), SweepError> {
        let failed = |cause: io::Error| SweepError::File { path: path.into(), cause };
        let meta = match fs::symlink_metadata(path) {
            Ok(meta) => meta,
            Err(cause) => return Err(failed(cause)),
        };
        if meta.is_dir() {
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
            let hidden = name.as_deref().is_some_and(|n| n.starts_with('.') && n.len() > 1);
            if !named && (hidden || name.as_deref().is_some_and(|n| SKIPPED.contains(&n))) {
                return Ok(());
            }
            let mut below: Vec<PathBuf> =
                fs::read_dir(path).map_err(failed)?.flatten().map(|e| e.path()).collect();
            below.sort();
            return below.iter().try_for_each(|p| self.add(p, false));
        }
        // Links, pipes and devices count by name only.
        let content = if meta.is_file() { fs::read(path).map_err(failed)? } else { Vec::new() };
        self.files += 1;
        self.bytes += content.len() as u64;
        if self.files > MOST_FILES || self.bytes > MOST_BYTES {
            return Err(SweepError::Sources(format!(
                "more than {MOST_FILES} files or {} MiB of sources here; say which ones count with \
                 --source PATH (it may be given several times)",
                MOST_BYTES >> 20
            )));
        }
        let part = fingerprint::of(&content)
            ^ fingerprint::of(path.to_string_lossy().as_bytes()).rotate_left(7);
        self.hash = (self.hash ^ part).wrapping_mul(0x0000_0100_0000_01b3);
        Ok(())
    }
}
