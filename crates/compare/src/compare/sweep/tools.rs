//! What a build rests on besides its sources: the programs that the command names, and the environment
//! that compilers read.
//!
//! Only what the command shows is seen. A compiler that a Makefile or a script chooses by itself is not,
//! unless one of the variables below names it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::compare::fingerprint;
use crate::run::child::{Child, Launch, Limits, resolve_program};

/// Variables that compilers, linkers and build systems read.
const READ_BY_BUILDS: [&str; 42] = [
    "AR",
    "AS",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CC",
    "CFLAGS",
    "CGO_CFLAGS",
    "CGO_ENABLED",
    "CGO_LDFLAGS",
    "COMPILER_PATH",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "CPPFLAGS",
    "CXX",
    "CXXFLAGS",
    "C_INCLUDE_PATH",
    "GCC_EXEC_PREFIX",
    "GOAMD64",
    "GOARCH",
    "GOFLAGS",
    "GOOS",
    "GOPATH",
    "GOROOT",
    "GOTOOLCHAIN",
    "LD",
    "LDFLAGS",
    "LDLIBS",
    "LD_LIBRARY_PATH",
    "LD_RUN_PATH",
    "LIBRARY_PATH",
    "MAKEFLAGS",
    "OBJC_INCLUDE_PATH",
    "PATH",
    "PKG_CONFIG_PATH",
    "RUSTC",
    "RUSTC_WRAPPER",
    "RUSTFLAGS",
    "RUSTUP_TOOLCHAIN",
    "SDKROOT",
    "SOURCE_DATE_EPOCH",
    "SYSROOT",
    "ZIG_LIB_DIR",
];
/// Parts of a program's name that make it one which tells its version and does nothing else.
const TELLS_VERSION: [&str; 18] = [
    "as", "c++", "cargo", "cc", "clang", "clang++", "g++", "gcc", "gfortran", "gold", "icpx",
    "icx", "ld", "lld", "mold", "nvcc", "rustc", "tcc",
];
/// Longest time that a compiler may take to tell its version.
const PATIENCE: Duration = Duration::from_secs(10);

/// The environment that a build command reads, as text: the variables above and those it names.
pub(super) fn environment(command: &str, read: &dyn Fn(&str) -> Option<OsString>) -> String {
    let named = command.split('$').skip(1).map(|behind| {
        let name = behind.strip_prefix('{').unwrap_or(behind);
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
        &name[..end]
    });
    let mut names: Vec<&str> = READ_BY_BUILDS.into_iter().chain(named).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().filter_map(|name| Some(format!("{name}={:?}\n", read(name)?))).collect()
}

/// The programs that build commands name, each looked at once.
#[derive(Debug, Default)]
pub(super) struct Tools {
    known: Mutex<BTreeMap<PathBuf, String>>,
}

impl Tools {
    /// Resolved path, content and, of compilers, version of every program that `command` names.
    pub fn of(&self, command: &str) -> String {
        let words = shlex::split(command)
            .unwrap_or_else(|| command.split_whitespace().map(str::to_owned).collect());
        let mut out = String::new();
        for word in words.iter().flat_map(|w| [w.as_str(), w.rsplit('=').next().unwrap_or(w)]) {
            let bare = word.trim_matches(|c: char| "(){};&|".contains(c));
            if let Some(path) = program(bare) {
                let _ = writeln!(out, "{bare} {}", self.look_at(bare, &path));
            }
        }
        out
    }

    fn look_at(&self, typed: &str, path: &Path) -> String {
        // By the typed name too: some programs are whatever they are called.
        let key = Path::new(typed).join(path);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let described = known.entry(key).or_insert_with(|| {
            let content = fingerprint::of_path(path).unwrap_or_default();
            format!("{} {content:?} {}", path.display(), version(typed))
        });
        described.clone()
    }
}

/// The file behind a word, if it is a program.
fn program(word: &str) -> Option<PathBuf> {
    let path = resolve_program(word.as_ref()).ok().filter(|_| !word.is_empty())?;
    let path = path.canonicalize().ok()?;
    let meta = path.metadata().ok()?;
    (meta.is_file() && meta.permissions().mode() & 0o111 != 0).then_some(path)
}

/// What a compiler says of itself: the driver's own bytes need not change with its libraries.
fn version(typed: &str) -> String {
    let name = Path::new(typed).file_name().unwrap_or_default().to_string_lossy();
    let arg =
        match name.split(['-', '.']).find(|part| *part == "go" || TELLS_VERSION.contains(part)) {
            Some("go") => "version",
            Some(_) => "--version",
            None => return String::new(),
        };
    let Ok(program) = resolve_program(typed.as_ref()) else { return String::new() };
    let launch = Launch { program, args: vec![arg.into()], ..Launch::default() };
    let limits = Limits { timeout: Some(PATIENCE), ..Limits::default() };
    let said = Child::hold(&launch).and_then(|child| child.wait(&limits));
    said.map(|exit| exit.stdout.tail).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn another_compiler_under_the_same_name_is_another_tool() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("my-gcc-12");
        let write = |text: &str| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        let tools = |command: String| Tools::default().of(&command);
        let command = || format!("env X=1 {} -c x.c", path.display());
        write("#!/bin/sh\ncat version 2>/dev/null; echo 12.1\n");
        let first = tools(command());
        assert!(first.contains("my-gcc-12") && first.contains("12.1"), "{first}");
        write("#!/bin/sh\ncat version 2>/dev/null; echo 12.1 # other bytes\n");
        let second = tools(command());
        assert_ne!(first, second, "content");
        write(&format!("#!/bin/sh\ncat {}/version\n", folder.path().display()));
        let [old, new] = ["16.0.6", "16.0.7"].map(|version| {
            fs::write(folder.path().join("version"), version).unwrap();
            tools(command())
        });
        assert_ne!(old, new, "version");
        // Behind a variable, and a link that points elsewhere.
        let link = folder.path().join("cc");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let linked = tools(format!("CC={} make", link.display()));
        assert!(linked.contains(path.canonicalize().unwrap().to_str().unwrap()), "{linked}");
    }

    #[test]
    fn what_compilers_and_the_command_read_counts() {
        let with = |name: &'static str, value: &'static str| {
            move |asked: &str| (asked == name).then(|| OsString::from(value))
        };
        for name in ["CPATH", "LIBRARY_PATH", "CFLAGS", "PATH"] {
            let [a, b] = ["/a", "/b"].map(|value| environment("cc x.c", &with(name, value)));
            assert_ne!(a, b, "{name}");
        }
        let of = |command: &str| environment(command, &with("MINE", "1"));
        assert_eq!(of("cc x.c"), "");
        assert_eq!(of("cc $MINE x.c"), of("cc ${MINE:-2} x.c"));
        assert!(of("cc $MINE x.c").contains("MINE"));
    }
}
