//! Files that the copy writes: memory of its own under the names that the program uses.
//!
//! The original will create, write and delete them for real. A copy that opens a file for writing gets an
//! unnamed file in memory instead, with what the file holds; later calls that name the path see that one, or
//! see that it is gone. What one copy wrote, neither the disk nor another copy ever sees.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use super::{STATELESS, Verdict, call, open_again, with_bytes};
use crate::trace::engine::process::{Memories, Process};

/// What one copy may keep of files in memory; programs that write more are given up.
const MOST_BYTES: u64 = 256 << 20;
/// Descriptors of kept files are put out of the program's way.
const FIRST_KEPT: u64 = 200;
/// Longer paths the kernel refuses.
const MOST_PATH_BYTES: usize = libc::PATH_MAX as usize;
/// Flags of an opening that also mean something for a file in memory.
const MEANT: i32 = libc::O_ACCMODE | libc::O_APPEND | libc::O_CLOEXEC | libc::O_NONBLOCK;

/// The files that one copy has created, written or deleted.
#[derive(Clone, Default)]
pub(super) struct Written {
    paths: FxHashMap<PathBuf, State>,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The copy keeps it open under this descriptor.
    Kept(i32),
    Gone,
}

/// How a file is to be opened.
#[derive(Clone, Copy, Debug)]
struct Opening {
    flags: i32,
    mode: u32,
}

impl Opening {
    fn has(self, flag: i32) -> bool {
        self.flags & flag == flag
    }

    fn creates(self) -> bool {
        self.has(libc::O_CREAT) || self.has(libc::O_TMPFILE)
    }

    /// Whether others could notice.
    fn changes(self) -> bool {
        let access = self.flags & libc::O_ACCMODE;
        !self.has(libc::O_PATH)
            && (access != libc::O_RDONLY || self.creates() || self.has(libc::O_TRUNC))
    }

    /// What one must be allowed to do with the file, as `access` takes it.
    fn rights(self) -> i32 {
        let writes = if self.has(libc::O_TRUNC) { libc::W_OK } else { 0 };
        writes
            | match self.flags & libc::O_ACCMODE {
                libc::O_RDONLY => libc::R_OK,
                libc::O_WRONLY => libc::W_OK,
                _ => libc::R_OK | libc::W_OK,
            }
    }
}

/// A path in the program's memory, and what it names in ours.
struct Named {
    folder: u64,
    at: u64,
    length: u64,
    path: PathBuf,
    /// The path names another path.
    is_link: bool,
}

impl Named {
    /// The path at `at`, as seen from the open folder `folder` of the copy; none where it cannot be told, or names
    /// the folder itself.
    fn read(copy: &Process, folder: u64, at: u64) -> Option<Self> {
        let mut bytes = vec![0; MOST_PATH_BYTES];
        let got = copy.read(at, &mut bytes);
        let length = bytes.get(..got)?.iter().position(|byte| *byte == 0).filter(|n| *n > 0)?;
        bytes.truncate(length);
        let named = PathBuf::from(OsString::from_vec(bytes));
        let full = full_path(copy, folder as i32, &named);
        let path = fs::canonicalize(&full).ok().or_else(|| {
            // What is to be created has a folder and no more.
            Some(fs::canonicalize(full.parent()?).ok()?.join(full.file_name()?))
        })?;
        let is_link = fs::symlink_metadata(&full).is_ok_and(|there| there.is_symlink());
        Some(Self { folder, at, length: length as u64, path, is_link })
    }

    /// Where an empty path is: the end of this one.
    fn nothing(&self) -> u64 {
        self.at + self.length
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }
}

/// Where we find what the copy names so, as seen from its open folder `folder`.
pub(super) fn full_path(copy: &Process, folder: i32, named: &Path) -> PathBuf {
    let of_process = PathBuf::from(format!("/proc/{}", copy.pid));
    let base = match folder {
        _ if named.is_absolute() => of_process.join("root"),
        libc::AT_FDCWD => of_process.join("cwd"),
        fd => of_process.join(format!("fd/{fd}")),
    };
    base.join(named.strip_prefix("/").unwrap_or(named))
}

impl Written {
    /// Whether nothing was created, written or deleted.
    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Judges calls that name files by their paths; the error is why the copy is given up.
    pub(super) fn judge(
        &mut self,
        copy: &mut Process,
        number: i64,
        a: [u64; 6],
    ) -> Result<Option<Verdict>, String> {
        const HERE: u64 = libc::AT_FDCWD as u64;
        let opening = match number {
            libc::SYS_open => Some((HERE, a[0], a[1], a[2])),
            libc::SYS_openat => Some((a[0], a[1], a[2], a[3])),
            libc::SYS_creat => {
                let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
                Some((HERE, a[0], flags as u64, a[1]))
            }
            _ => None,
        };
        if let Some((folder, path, flags, mode)) = opening {
            let how = Opening { flags: flags as i32, mode: mode as u32 };
            if !how.changes() && self.paths.is_empty() {
                return Ok(Some(Verdict::Run));
            }
            let Some(named) = Named::read(copy, folder, path) else {
                return Ok(Some(Verdict::Run));
            };
            return self.open(copy, &named, how).map(Some);
        }
        let named = |folder, path| Named::read(copy, folder, path);
        let deletion = match number {
            libc::SYS_unlink => named(HERE, a[0]),
            libc::SYS_unlinkat if a[2] == 0 => named(a[0], a[1]),
            _ => None,
        };
        if let Some(named) = deletion {
            return self.unlink(named).map(Some);
        }
        let renaming = match number {
            libc::SYS_rename => named(HERE, a[0]).zip(named(HERE, a[1])),
            libc::SYS_renameat => named(a[0], a[1]).zip(named(a[2], a[3])),
            libc::SYS_renameat2 if a[4] == 0 => named(a[0], a[1]).zip(named(a[2], a[3])),
            _ => None,
        };
        if let Some((from, to)) = renaming {
            return self.rename(from, to).map(Some);
        }
        if self.paths.is_empty() {
            return Ok(None);
        }
        // The program has never seen it.
        if number == libc::SYS_close && self.keeps(a[0] as i32) {
            return Ok(Some(refused(libc::EBADF)));
        }
        let question = match number {
            libc::SYS_stat
            | libc::SYS_lstat
            | libc::SYS_access
            | libc::SYS_readlink
            | libc::SYS_statfs => named(HERE, a[0]),
            libc::SYS_newfstatat
            | libc::SYS_statx
            | libc::SYS_faccessat
            | libc::SYS_faccessat2
            | libc::SYS_readlinkat => named(a[0], a[1]),
            _ => None,
        };
        Ok(question.map(|named| {
            self.ask(&named, |kept| match number {
                libc::SYS_stat | libc::SYS_lstat => {
                    Verdict::RunInstead(libc::SYS_fstat, [kept, a[1], 0, 0, 0, 0])
                }
                libc::SYS_newfstatat => {
                    Verdict::RunInstead(libc::SYS_fstat, [kept, a[2], 0, 0, 0, 0])
                }
                libc::SYS_statfs => {
                    Verdict::RunInstead(libc::SYS_fstatfs, [kept, a[1], 0, 0, 0, 0])
                }
                libc::SYS_statx => {
                    let flags = a[2] | libc::AT_EMPTY_PATH as u64;
                    Verdict::RunInstead(number, [kept, named.nothing(), flags, a[3], a[4], 0])
                }
                // It is no link.
                libc::SYS_readlink | libc::SYS_readlinkat => refused(libc::EINVAL),
                _ => Verdict::Answer(0),
            })
        }))
    }

    fn keeps(&self, fd: i32) -> bool {
        self.paths.values().any(|state| *state == State::Kept(fd))
    }

    /// Takes so many more bytes into memory, or says why not.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<(), String> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MOST_BYTES {
            return Err(format!(
                "it writes more than {} MiB to files in the window",
                MOST_BYTES >> 20
            ));
        }
        Ok(())
    }

    /// Whether the folder that is open under `fd` in the process `pid` is not what is on the disk.
    pub(super) fn changes_folder(&self, pid: i32, fd: i32) -> bool {
        let folder = fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok();
        self.paths.keys().any(|path| path.parent() == folder.as_deref())
    }

    /// Judges the opening of a file; the answer's descriptor is the copy's own.
    fn open(&mut self, copy: &mut Process, named: &Named, how: Opening) -> Result<Verdict, String> {
        match self.paths.get(&named.path) {
            Some(State::Kept(_)) if how.has(libc::O_CREAT | libc::O_EXCL) => {
                return Ok(refused(libc::EEXIST));
            }
            Some(State::Kept(kept)) => {
                return reopen(copy, *kept, how.flags & (MEANT | libc::O_TRUNC));
            }
            Some(State::Gone) if !how.creates() => return Ok(refused(libc::ENOENT)),
            Some(State::Gone) => return self.keep(copy, named, how, None),
            None if !how.changes() => return Ok(Verdict::Run),
            // Some lead to what is open already, and that is another thing in each process.
            None if named.is_link => {
                return Err("it opens a file for writing through a link in the window".into());
            }
            None => {}
        }
        match fs::metadata(&named.path) {
            _ if how.has(libc::O_TMPFILE) => match access(&named.path, libc::W_OK) {
                Err(errno) => Ok(refused(errno)),
                Ok(()) => unnamed(copy, how),
            },
            Ok(_) if how.has(libc::O_CREAT | libc::O_EXCL) => Ok(refused(libc::EEXIST)),
            // The kernel refuses to write to a folder; a device has nothing that others would read.
            // What goes to a terminal is held back, as from any other descriptor that the copy opens.
            Ok(there)
                if there.is_dir()
                    || is_stateless(&there, &named.path)
                    || there.rdev() == OWN_TERMINAL =>
            {
                Ok(Verdict::Run)
            }
            Ok(there) if there.is_file() && !is_the_kernels(&named.path) => {
                match access(&named.path, how.rights()) {
                    Err(errno) => Ok(refused(errno)),
                    Ok(()) => self.keep(copy, named, how, Some(&there)),
                }
            }
            Err(cause) if cause.kind() == io::ErrorKind::NotFound && !how.creates() => {
                Ok(Verdict::Run)
            }
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
                match access(named.folder(), libc::W_OK | libc::X_OK) {
                    Err(errno) => Ok(refused(errno)),
                    Ok(()) => self.keep(copy, named, how, None),
                }
            }
            _ => Err("it opens a device or pipe for writing in the window".into()),
        }
    }

    /// Keeps a file in memory for what the path names, with what `there` holds.
    fn keep(
        &mut self,
        copy: &mut Process,
        named: &Named,
        how: Opening,
        there: Option<&Metadata>,
    ) -> Result<Verdict, String> {
        let held = there.filter(|_| !how.has(libc::O_TRUNC)).map_or(0, Metadata::len);
        self.grow(held)?;
        let mode = there.map_or(how.mode, MetadataExt::mode);
        let kept = in_memory(copy, mode)?;
        if held > 0 {
            let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
            let from = call(copy, libc::SYS_openat, [named.folder, named.at, flags, 0, 0, 0])?;
            while call(copy, libc::SYS_sendfile, [kept, from, 0, held, 0, 0])? > 0 {}
            call(copy, libc::SYS_close, [from, 0, 0, 0, 0, 0])?;
        }
        self.paths.insert(named.path.clone(), State::Kept(kept as i32));
        reopen(copy, kept as i32, how.flags & MEANT)
    }

    /// Judges the deletion of a file.
    fn unlink(&mut self, named: Named) -> Result<Verdict, String> {
        match self.paths.get(&named.path) {
            Some(State::Gone) => return Ok(refused(libc::ENOENT)),
            Some(State::Kept(_)) => {}
            None if named.is_link => return Err("it deletes a link in the window".into()),
            None => match fs::metadata(&named.path) {
                // The kernel refuses that by itself.
                Err(_) => return Ok(Verdict::Run),
                Ok(there) if there.is_dir() => return Ok(Verdict::Run),
                Ok(_) => {
                    if let Err(errno) = access(named.folder(), libc::W_OK | libc::X_OK) {
                        return Ok(refused(errno));
                    }
                }
            },
        }
        // What is kept stays open: the program may have it open, too.
        self.paths.insert(named.path, State::Gone);
        Ok(Verdict::Answer(0))
    }

    /// Judges a renaming: of a file that the copy has written, to a name that is free or a file's.
    fn rename(&mut self, from: Named, to: Named) -> Result<Verdict, String> {
        match self.paths.get(&from.path).copied() {
            Some(State::Gone) => Ok(refused(libc::ENOENT)),
            Some(kept) if !fs::symlink_metadata(&to.path).is_ok_and(|there| there.is_dir()) => {
                self.paths.insert(to.path, kept);
                self.paths.insert(from.path, State::Gone);
                Ok(Verdict::Answer(0))
            }
            _ => Err("it renames a file in the window".into()),
        }
    }

    /// Judges a question about a path; `of_kept` is the answer for a file that the copy keeps under a descriptor.
    fn ask(&self, named: &Named, of_kept: impl Fn(u64) -> Verdict) -> Verdict {
        match self.paths.get(&named.path) {
            None => Verdict::Run,
            Some(State::Gone) => refused(libc::ENOENT),
            Some(State::Kept(kept)) => of_kept(*kept as u64),
        }
    }
}

fn refused(errno: i32) -> Verdict {
    Verdict::Answer(-i64::from(errno))
}

/// A new file in the copy's memory, under a descriptor out of the program's way.
fn in_memory(copy: &mut Process, mode: u32) -> Result<u64, String> {
    let new = with_bytes(copy, b"\0", |copy, name| {
        call(copy, libc::SYS_memfd_create, [name, libc::MFD_CLOEXEC.into(), 0, 0, 0, 0])
    })?;
    let aside = libc::F_DUPFD_CLOEXEC as u64;
    let kept = call(copy, libc::SYS_fcntl, [new, aside, FIRST_KEPT, 0, 0, 0]);
    call(copy, libc::SYS_close, [new, 0, 0, 0, 0, 0])?;
    let kept = kept?;
    call(copy, libc::SYS_fchmod, [kept, u64::from(mode & 0o7777), 0, 0, 0, 0])?;
    Ok(kept)
}

fn unnamed(copy: &mut Process, how: Opening) -> Result<Verdict, String> {
    let kept = in_memory(copy, how.mode)?;
    let verdict = reopen(copy, kept as i32, how.flags & MEANT);
    call(copy, libc::SYS_close, [kept, 0, 0, 0, 0, 0])?;
    verdict
}

fn reopen(copy: &mut Process, kept: i32, flags: i32) -> Result<Verdict, String> {
    Ok(Verdict::Opened(open_again(copy, kept, flags)? as i32))
}

/// Whether we, who may do what the program may, have these rights; else the error.
fn access(path: &Path, rights: i32) -> Result<(), i32> {
    let rights = nix::unistd::AccessFlags::from_bits_truncate(rights);
    nix::unistd::access(path, rights).map_err(|errno| errno as i32)
}

/// `/dev/tty`: the terminal that the program was started from, if any. To open it tells nobody.
const OWN_TERMINAL: u64 = libc::makedev(5, 0);

fn is_stateless(there: &Metadata, path: &Path) -> bool {
    there.file_type().is_char_device() && STATELESS.iter().any(|name| path == Path::new(name))
}

/// Files that are not stored anywhere: what is written there is done.
fn is_the_kernels(path: &Path) -> bool {
    path.starts_with("/proc") || path.starts_with("/sys")
}
