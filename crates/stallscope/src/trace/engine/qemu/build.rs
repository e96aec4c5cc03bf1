//! The plugin as a file that the emulator can load: compiled on first use and kept.
//!
//! Its source is part of this program. It is compiled by the C compiler that is there, into the
//! user's cache folder, under a name that says from which source; so a new version of ours never
//! meets an old plugin.

use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use super::failed;
use crate::trace::child::{Child, ChildError, Launch, Limits, Streams, resolve_program};
use crate::trace::engine::EngineError;

const SOURCE: &str = include_str!("plugin.c");
/// From this release on, the emulator takes no plugin for the first version of its interface.
const FIRST_WITHOUT_VERSION_1: u32 = 9;

/// A command of ours: no input, its output kept.
pub(super) fn quiet_launch(program: &Path, args: Vec<OsString>) -> Launch {
    Launch {
        program: program.into(),
        args,
        environment_padding_bytes: 0,
        cpu: None,
        streams: Streams::Captured,
    }
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
pub(super) fn plugin(emulator: &Path, limits: &Limits<'_>) -> Result<PathBuf, EngineError> {
    let interface = if major_version(emulator, limits)? < FIRST_WITHOUT_VERSION_1 { 1 } else { 2 };
    let mut hasher = DefaultHasher::new();
    (SOURCE, interface).hash(&mut hasher);
    let folder = folder(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"));
    let path = folder.join(format!("qemu-plugin-{:016x}.so", hasher.finish()));
    if path.exists() {
        return Ok(path);
    }
    let compiler = compiler().ok_or_else(|| failed("there is no C compiler (cc)"))?;
    std::fs::create_dir_all(&folder)
        .map_err(|e| failed(&format!("cannot make {}: {e}", folder.display())))?;
    let scratch = tempfile::tempdir_in(&folder)
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
    std::fs::rename(&object, &path)
        .map_err(|e| failed(&format!("cannot write {}: {e}", path.display())))?;
    Ok(path)
}

/// The C compiler.
pub(super) fn compiler() -> Option<PathBuf> {
    resolve_program(OsStr::new("cc")).ok()
}

/// Where the plugin is kept.
fn folder(xdg: Option<OsString>, home: Option<OsString>) -> PathBuf {
    let absolute = |v: Option<OsString>| v.map(PathBuf::from).filter(|p| p.is_absolute());
    let cache = absolute(xdg).or_else(|| absolute(home).map(|h| h.join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("stallscope")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugin_is_kept_in_the_users_cache() {
        let of = |x: &str, h: &str| folder(Some(x.into()), Some(h.into()));
        assert_eq!(of("/c", "/h"), PathBuf::from("/c/stallscope"));
        assert_eq!(of("relative", "/h"), PathBuf::from("/h/.cache/stallscope"));
        assert!(folder(None, None).is_absolute());
    }
}
