//! The plugin as a file that the emulator can load: compiled on first use and kept.
//!
//! Its source is part of this program. It is compiled by the C compiler that is there, into the
//! user's cache folder, under a name that says from which source; so a new version of ours never
//! meets an old plugin. Where that folder is not the user's alone, or there is none, it is compiled
//! for each run into a new one.

use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use tempfile::TempDir;

use super::failed;
use crate::run::child::{Child, ChildError, Launch, Limits, resolve_program};
use crate::trace::engine::EngineError;

const SOURCE: &str = include_str!("plugin.c");
/// From this release on, the emulator takes no plugin for the first version of its interface.
const FIRST_WITHOUT_VERSION_1: u32 = 9;

/// A command of ours: no input, its output kept.
pub(super) fn quiet_launch(program: &Path, args: Vec<OsString>) -> Launch {
    Launch { program: program.into(), args, ..Launch::default() }
}

/// Runs a command of ours to its end; its standard output and error, and whether it succeeded.
pub(super) fn run(
    program: &Path,
    args: Vec<OsString>,
    limits: &Limits<'_>,
) -> Result<(bool, String), ChildError> {
    let exit = Child::hold(&quiet_launch(program, args))?.wait(limits)?;
    Ok((exit.status.success(), exit.stdout.tail + &exit.stderr.tail))
}

/// The emulator's first version number; large where it does not say.
fn major_version(emulator: &Path, limits: &Limits<'_>) -> Result<u32, ChildError> {
    let (_, text) = run(emulator, vec!["--version".into()], limits)?;
    let number = text.split_whitespace().find(|w| w.starts_with(|c: char| c.is_ascii_digit()));
    let major = number.and_then(|n| n.split('.').next()?.parse().ok());
    Ok(major.unwrap_or(u32::MAX))
}

/// The plugin for this emulator, compiled if it is not there yet.
pub(super) fn plugin(emulator: &Path, limits: &Limits<'_>) -> Result<Plugin, EngineError> {
    let interface = if major_version(emulator, limits)? < FIRST_WITHOUT_VERSION_1 { 1 } else { 2 };
    let mut hasher = DefaultHasher::new();
    (SOURCE, interface).hash(&mut hasher);
    let name = format!("qemu-plugin-{:016x}.so", hasher.finish());
    let cache = folder(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"));
    if let Some(folder) = cache.filter(|folder| make_private(folder)) {
        let path = folder.join(name);
        if !(path.exists() && is_private(&path)) {
            compile(&folder, &path, interface, limits)?;
        }
        return Ok(Plugin { path, _scratch: None });
    }
    // Nowhere that is ours alone: in a new folder, for this run.
    let scratch = tempfile::tempdir().map_err(|e| failed(&format!("no temporary folder: {e}")))?;
    let path = scratch.path().join(name);
    compile(scratch.path(), &path, interface, limits)?;
    Ok(Plugin { path, _scratch: Some(scratch) })
}

/// The plugin as a file; one in a folder of its own goes with this.
pub(super) struct Plugin {
    pub path: PathBuf,
    _scratch: Option<TempDir>,
}

fn compile(
    folder: &Path,
    path: &Path,
    interface: u32,
    limits: &Limits<'_>,
) -> Result<(), EngineError> {
    let compiler = compiler().ok_or_else(|| failed("there is no C compiler (cc)"))?;
    let scratch = tempfile::tempdir_in(folder)
        .map_err(|e| failed(&format!("cannot write to {}: {e}", folder.display())))?;
    let (source, object) = (scratch.path().join("plugin.c"), scratch.path().join("plugin.so"));
    std::fs::write(&source, SOURCE)
        .map_err(|e| failed(&format!("cannot write {}: {e}", source.display())))?;
    let flags = ["-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread", "-w", "-o"];
    let mut args: Vec<OsString> = flags.map(Into::into).to_vec();
    args.push(object.clone().into());
    args.push(format!("-DAPI_VERSION={interface}").into());
    args.push(source.into());
    let (compiled, said) = run(&compiler, args, limits)?;
    if !compiled {
        return Err(failed(&format!("its plugin does not compile: {}", said.trim())));
    }
    // In one step: another of us may do the same at this moment.
    std::fs::rename(&object, path)
        .map_err(|e| failed(&format!("cannot write {}: {e}", path.display())))
}

pub(super) fn compiler() -> Option<PathBuf> {
    resolve_program(OsStr::new("cc")).ok()
}

/// Where the plugin is kept; nowhere without a home.
fn folder(xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |v: Option<OsString>| v.map(PathBuf::from).filter(|p| p.is_absolute());
    let cache = absolute(xdg).or_else(|| absolute(home).map(|h| h.join(".cache")))?;
    Some(cache.join("stallscope"))
}

/// Makes the folder where it is missing; whether it, and all around it, is ours to write alone.
fn make_private(folder: &Path) -> bool {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    let Ok(folder) = made.and_then(|()| folder.canonicalize()) else { return false };
    is_private(&folder) && folder.ancestors().skip(1).all(is_safe_around)
}

/// Whether a file or folder is ours, no link, and nobody else may write to it: code is loaded from
/// there.
fn is_private(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|meta| {
        meta.uid() == geteuid().as_raw() && !meta.is_symlink() && meta.mode() & 0o022 == 0
    })
}

/// Whether nobody but us and root can put another folder where one of ours stands.
fn is_safe_around(folder: &Path) -> bool {
    const STICKY: u32 = 0o1000;
    folder.metadata().is_ok_and(|meta| {
        [0, geteuid().as_raw()].contains(&meta.uid())
            && (meta.mode() & 0o022 == 0 || meta.mode() & STICKY != 0)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_plugin_is_kept_in_the_users_cache() {
        let of = |x: &str, h: &str| folder(Some(x.into()), Some(h.into()));
        assert_eq!(of("/c", "/h"), Some(PathBuf::from("/c/stallscope")));
        assert_eq!(of("relative", "/h"), Some(PathBuf::from("/h/.cache/stallscope")));
        assert_eq!(folder(None, None), None, "no name that others can know before");
    }

    #[test]
    fn code_is_loaded_only_from_where_nobody_else_writes() {
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let scratch = tempfile::tempdir().unwrap();
        let cache = scratch.path().join("cache/stallscope");
        assert!(make_private(&cache));
        assert_eq!(cache.metadata().unwrap().mode() & 0o777, 0o700);
        mode(&cache, 0o777);
        assert!(!make_private(&cache), "anybody may write there");
        mode(&cache, 0o700);
        mode(cache.parent().unwrap(), 0o777);
        assert!(!make_private(&cache), "anybody may put another folder there");
        mode(cache.parent().unwrap(), 0o700);
        let plugin = cache.join("p.so");
        std::fs::write(&plugin, "").unwrap();
        mode(&plugin, 0o666);
        assert!(!is_private(&plugin));
        std::fs::remove_file(&plugin).unwrap();
        std::os::unix::fs::symlink("/dev/null", &plugin).unwrap();
        assert!(!is_private(&plugin));
    }
}
