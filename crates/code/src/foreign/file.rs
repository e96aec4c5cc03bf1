//! The one door for files that are named on the command line or by another file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a regular file to read it. Opening waits for nothing: a pipe without a writer would wait
/// for ever.
///
/// # Errors
/// What the system says, and for what is no regular file a sentence.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        let what = "it is a pipe or a device, not a regular file; copy what it holds to a file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    Ok(file)
}

/// Opens a regular file of at most `most_bytes`. It may grow meanwhile: one byte more can be read, and
/// no second.
///
/// # Errors
/// As [`open`], and when it is larger.
pub fn open_within(path: &Path, most_bytes: u64) -> io::Result<io::Take<File>> {
    let file = open(path)?;
    if file.metadata()?.len() > most_bytes {
        return Err(too_large(most_bytes));
    }
    Ok(file.take(most_bytes.saturating_add(1)))
}

/// A size in bytes for the eye, in whole units: `64 KiB`, `1 MiB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

fn too_large(most_bytes: u64) -> io::Error {
    let what = format!("it is larger than the {} that are read", size(most_bytes));
    io::Error::new(io::ErrorKind::FileTooLarge, what)
}

/// The bytes of a regular file of at most `most_bytes`.
///
/// # Errors
/// As [`open_within`].
pub fn read(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    // What lies under /proc says that it is empty.
    let mut bytes = Vec::new();
    open_within(path, most_bytes)?.read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most_bytes { Err(too_large(most_bytes)) } else { Ok(bytes) }
}

/// The same for text.
///
/// # Errors
/// As [`read`], and when it is no UTF-8.
pub fn read_text(path: &Path, most_bytes: u64) -> io::Result<String> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not text in UTF-8");
    String::from_utf8(read(path, most_bytes)?).map_err(not_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_and_devices_are_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for path in [pipe.as_path(), Path::new("/dev/zero"), Path::new("/dev/tty")] {
            assert!(open(path).is_err(), "{}", path.display());
        }
        let said = read(&pipe, 10).unwrap_err().to_string();
        assert!(said.contains("not a regular file"), "{said}");
        assert_eq!(open(folder.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }

    #[test]
    fn a_file_is_read_up_to_its_limit_and_refused_above() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "four").unwrap();
        assert_eq!(read_text(&path, 4).unwrap(), "four");
        assert!(read_text(&path, 3).unwrap_err().to_string().contains("larger than the 3 B that"));
        let said = |most: u64| too_large(most).to_string();
        assert!(said(1 << 16).contains("the 64 KiB that"), "no limit is 0 MiB");
        assert!(said(4 << 20).contains("the 4 MiB that"));
        std::fs::write(&path, [0xff]).unwrap();
        assert!(read_text(&path, 4).unwrap_err().to_string().contains("not text"));
        assert!(!read(Path::new("/proc/self/status"), 1 << 20).unwrap().is_empty());
    }
}
