//! Which files may be shown as source text.
//!
//! Debug information names any file it likes, and the folder that it was compiled in as well: a
//! program must not grant itself the right to have `/etc/shadow` printed. So only what the user
//! stands in, names, or has beside the program is read.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use super::file::read;

/// Larger files are no source.
const LARGEST_BYTES: u64 = 16 << 20;

/// Folders below which source text is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceRoots(Vec<PathBuf>);

impl SourceRoots {
    /// The working directory and the folders that the user named, without links.
    ///
    /// # Errors
    /// When a folder is not there; with its name.
    pub fn of(named: &[PathBuf]) -> io::Result<Self> {
        let mut roots: Vec<PathBuf> = std::env::current_dir().into_iter().collect();
        for folder in named {
            let failed = |e| io::Error::other(format!("{}: {e}", folder.display()));
            roots.push(folder.canonicalize().map_err(failed)?);
        }
        Ok(Self(roots))
    }

    /// Adds the folder in which a program lies, where small programs are compiled: not the folder
    /// that it says it was compiled in.
    pub fn add_folder_of(&mut self, program: &Path) {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let home = home.and_then(|home| home.canonicalize().ok());
        let Ok(program) = program.canonicalize() else { return };
        let own = |folder: &&Path| is_own(folder) && is_narrow(folder, home.as_deref());
        self.0.extend(program.parent().filter(own).map(Path::to_owned));
    }

    /// The text of a source file; `None` when it is not there, not text, or may not be shown.
    #[must_use]
    pub fn read(&self, file: &Path) -> Option<String> {
        let path = file.canonicalize().ok()?;
        let shows = |root: &PathBuf| path.strip_prefix(root).is_ok_and(is_visible);
        self.0
            .iter()
            .any(shows)
            .then(|| read(&path, LARGEST_BYTES).ok())
            .flatten()
            .and_then(|bytes| String::from_utf8(bytes).ok())
    }
}

/// Whether no part of a path is hidden: keys and settings lie in such folders, source does not.
fn is_visible(below: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    below.components().all(|part| match part {
        Component::Normal(name) => !name.as_bytes().starts_with(b"."),
        _ => false,
    })
}

/// Whether a folder belongs to the user and nobody else may put files there.
fn is_own(folder: &Path) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    folder.metadata().is_ok_and(|meta| meta.uid() == own && meta.mode() & 0o002 == 0)
}

/// Whether a folder is smaller than a home and deeper than `/etc`.
fn is_narrow(folder: &Path, home: Option<&Path>) -> bool {
    folder.components().count() > 2 && !home.is_some_and(|home| home.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_files_below_a_root_are_read_and_no_link_leads_out() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("root/.hidden")).unwrap();
        for name in ["root/a.c", "outside.c", "root/.hidden/key"] {
            fs::write(at(name), "text").unwrap();
        }
        symlink(at("outside.c"), at("root/link.c")).unwrap();
        let roots = SourceRoots::of(&[at("root")]).unwrap();
        assert_eq!(roots.read(&at("root/a.c")).as_deref(), Some("text"));
        assert_eq!(roots.read(&at("root/../root/a.c")).as_deref(), Some("text"));
        for hidden in ["outside.c", "root/link.c", "root/../outside.c", "root/.hidden/key"] {
            assert_eq!(roots.read(&at(hidden)), None, "{hidden}");
        }
        assert_eq!(roots.read(Path::new("/etc/passwd")), None);
        assert!(SourceRoots::of(&[at("none")]).unwrap_err().to_string().contains("none"));
    }

    #[test]
    fn the_folder_of_a_program_counts_and_never_a_system_folder_or_a_home() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().canonicalize().unwrap().join("build");
        fs::create_dir(&own).unwrap();
        fs::write(own.join("p"), "").unwrap();
        let roots_of = |program: &Path| {
            let mut roots = SourceRoots::default();
            roots.add_folder_of(program);
            roots
        };
        assert_eq!(roots_of(&own.join("p")), SourceRoots(vec![own]));
        assert_eq!(roots_of(Path::new("/etc/passwd")), SourceRoots::default());
        assert!(!is_narrow(Path::new("/home/u"), Some(Path::new("/home/u"))));
        assert!(!is_narrow(Path::new("/home"), Some(Path::new("/home/u"))));
        assert!(is_narrow(Path::new("/home/u/p"), Some(Path::new("/home/u"))));
    }
}
