//! A file that is at its place whole or not at all.
//!
//! It has no name while it is written (`O_TMPFILE`), so that nothing is left of it should we be
//! killed. Where the file system has no such files, it has a name beside its place meanwhile. A device or a pipe (`/dev/stdout`,
//! `/dev/null`) is no file that could be replaced: it is written to.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::linkat;
use tempfile::{NamedTempFile, TempPath};

/// A file that is being written.
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    place: Place,
    target: PathBuf,
}

/// Where it is meanwhile.
#[derive(Debug)]
enum Place {
    Nameless,
    Beside(TempPath),
    /// A device or a pipe that stays what it is.
    Written,
}

impl WholeFile {
    /// Begins the file that will be at `path`.
    ///
    /// # Errors
    /// When its folder cannot be written to.
    pub fn create(path: &Path) -> io::Result<Self> {
        // Renaming over a link would replace the link, not the file that it means.
        let target = path.canonicalize().unwrap_or_else(|_| path.into());
        if target.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        if target.metadata().is_ok_and(|it| !it.is_file()) {
            let file = File::options().write(true).open(&target)?;
            return Ok(Self { file, place: Place::Written, target });
        }
        let nameless = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_TMPFILE)
            .mode(0o600)
            .open(folder(&target));
        let (file, place) = match nameless {
            Ok(file) => (file, Place::Nameless),
            Err(_) => {
                let (file, name) = NamedTempFile::new_in(folder(&target))?.into_parts();
                (file, Place::Beside(name))
            }
        };
        Ok(Self { file, place, target })
    }

    /// Writes these bytes to a file at `path`.
    ///
    /// # Errors
    /// Whatever fails; then an older file is still there.
    pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = Self::create(path)?;
        file.write_all(bytes)?;
        file.keep()
    }

    /// Puts the file in its place, with the permissions of the one that it replaces, else those of an
    /// ordinary new file.
    ///
    /// # Errors
    /// Whatever fails; then an older file is still there.
    pub fn keep(self) -> io::Result<()> {
        let permissions = match self.target.metadata() {
            Ok(existing) if existing.is_file() => existing.permissions(),
            _ => Permissions::from_mode(0o644),
        };
        let name = match self.place {
            Place::Written => return Ok(()),
            Place::Beside(name) => name,
            Place::Nameless => named(&self.file, folder(&self.target))?,
        };
        self.file.set_permissions(permissions)?;
        name.persist(&self.target).map_err(|e| e.error)
    }

    /// Puts the file in its place where none is there yet, with the permissions of an ordinary new file.
    ///
    /// # Errors
    /// Whatever fails, [`io::ErrorKind::AlreadyExists`] among it; what is there stays as it is.
    pub fn keep_new(self) -> io::Result<()> {
        let permissions = Permissions::from_mode(0o644);
        match self.place {
            Place::Written => Err(io::Error::from(io::ErrorKind::AlreadyExists)),
            Place::Beside(name) => {
                self.file.set_permissions(permissions)?;
                name.persist_noclobber(&self.target).map_err(|e| e.error)
            }
            Place::Nameless => {
                self.file.set_permissions(permissions)?;
                link(&self.file, &self.target)
            }
        }
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn folder(target: &Path) -> &Path {
    match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Gives a nameless file a name: the kernel has no call that would put it in another's place.
fn named(file: &File, folder: &Path) -> io::Result<TempPath> {
    Ok(tempfile::Builder::new().make_in(folder, |to| link(file, to))?.into_temp_path())
}

/// Gives a nameless file the name `to`, where nothing has it.
fn link(file: &File, to: &Path) -> io::Result<()> {
    let this = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    linkat(AT_FDCWD, &this, AT_FDCWD, to, AtFlags::AT_SYMLINK_FOLLOW).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileTypeExt as _;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn it_replaces_whole_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.json");
        for text in ["old and longer", "new"] {
            let mut file = WholeFile::create(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            let before = std::fs::read_to_string(&path).ok();
            assert_ne!(before.as_deref(), Some(text));
            file.keep().unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(names(folder.path()), ["r.json"]);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o644);
    }

    #[test]
    fn a_new_file_replaces_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.json");
        let written = |text: &[u8]| {
            let mut file = WholeFile::create(&path).unwrap();
            file.write_all(text).unwrap();
            file.keep_new()
        };
        written(b"first").unwrap();
        assert_eq!(written(b"second").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        assert_eq!(names(folder.path()), ["r.json"]);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o644);
    }

    #[test]
    fn what_is_not_kept_was_never_there() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = WholeFile::create(&folder.path().join("r.json")).unwrap();
        file.write_all(b"half").unwrap();
        let has_name = matches!(file.place, Place::Beside(_));
        assert_eq!(names(folder.path()).len(), usize::from(has_name));
        drop(file);
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn a_device_and_a_pipe_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("null");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        for path in [Path::new("/dev/null"), &link] {
            WholeFile::write(path, b"nothing").unwrap();
            assert!(std::fs::metadata(path).unwrap().file_type().is_char_device());
        }
        let full = WholeFile::write(Path::new("/dev/full"), b"x").unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let reader = {
            let pipe = pipe.clone();
            std::thread::spawn(move || std::fs::read(pipe).unwrap())
        };
        WholeFile::write(&pipe, b"told").unwrap();
        assert_eq!(reader.join().unwrap(), b"told");
        assert!(pipe.metadata().unwrap().file_type().is_fifo());
        let kept = WholeFile::create(Path::new("/dev/null")).unwrap().keep_new();
        assert_eq!(kept.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn permissions_and_links_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("r"), folder.path().join("link"));
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let mut file = WholeFile::create(&link).unwrap();
        file.write_all(b"new").unwrap();
        file.keep().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert!(link.is_symlink());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    }
}
