//! By which design a command judges: the one that the user names, the profile that the user names,
//! both, else the cached profile of this kind of processor, else the processor at hand.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use stallscope::foreign;
use stallscope::machine::{Design, Machine, ProfileError};
use stallscope::probes::{self, ProbeReport};
use stallscope::report;

use crate::context::Context;
use crate::terminal::{self, FAINT, paint, wrap};

/// No profile has so much.
const MOST_BYTES: u64 = 1 << 20;

/// A design and the file that measured it.
#[derive(Debug)]
pub struct Chosen {
    /// The design.
    pub design: Design,
    /// Whether the user named it: then it need not be the processor at hand.
    pub named: bool,
    /// The file, where there is one.
    pub file: Option<PathBuf>,
}

impl Chosen {
    /// Says on the screen which file it is, unless there is none. To be called when there
    /// is a result to show: a refusal leaves standard output empty.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub fn announce(&self, context: &Context) -> anyhow::Result<()> {
        if context.shows_screen() {
            terminal::print(&self.announcement())?;
        }
        Ok(())
    }

    /// The line of [`Chosen::announce`]; empty where there is no file.
    pub fn announcement(&self) -> String {
        let Some(file) = &self.file else { return String::new() };
        let line = wrap("profile  ", &file.display().to_string());
        paint(FAINT, line.trim_end()) + "\n"
    }
}

/// The design to judge by. What was measured goes before the table.
///
/// # Errors
/// When a file was named and is not there, or a file is there and is no profile that this program
/// reads; the message names it and says what to do.
pub fn load(context: &Context) -> anyhow::Result<Chosen> {
    let machine = Machine::detect();
    let named = context.design();
    let file = match context.profile() {
        Some(file) => Some(file.to_owned()),
        None => cached_path(&machine).filter(|_| named.is_none()),
    };
    let profile = file.as_deref().map(read).transpose()?.flatten();
    if let (Some(file), None) = (context.profile(), &profile) {
        bail!(
            "there is no machine profile {0}; `stallscope probe --profile {0}` makes one",
            file.display()
        );
    }
    let file = file.filter(|_| profile.is_some());
    let design = match (named, profile) {
        (Some(name), Some(profile)) => Design::of(name).with_measured(profile).quoted_on(&machine),
        (Some(name), None) => Design::of(name),
        (None, Some(profile)) => Design::of_profile(profile, &machine),
        (None, None) => Design::of_machine(&machine),
    };
    Ok(Chosen { design, named: named.is_some(), file })
}

/// Where a probe writes, and what it adds to: a profile that is there already, else the built-in
/// one. A damaged file is replaced; one of a newer program is not.
///
/// # Errors
/// When the file is from a newer program or cannot be read. `None`: there is no place for one.
pub fn to_update(context: &Context) -> anyhow::Result<Option<(PathBuf, Design)>> {
    let machine = Machine::detect();
    let path = context.profile().map(Path::to_owned).or_else(|| cached_path(&machine));
    let Some(path) = path else { return Ok(None) };
    let fresh = Design::of_machine(&machine);
    let ours = |p: &Design| p.environment.as_ref().is_none_or(|e| e.key == machine.profile_key());
    let profile = match parse(&path) {
        Ok(Some(profile)) if ours(&profile) => {
            // What this processor was taken for may be corrected since.
            Design { microarchitecture: machine.microarchitecture, ..profile }
        }
        // Another processor's prices have no business in this one's profile.
        Ok(_) => fresh,
        Err(Trouble::Profile(error @ ProfileError::TooNew { .. })) => {
            return Err(refuse(&path, error.into()));
        }
        Err(Trouble::Profile(_)) => fresh,
        Err(Trouble::Io(error)) => return Err(refuse(&path, error.into())),
    };
    Ok(Some((path, profile)))
}

/// Adds what probes found to the profile that is used without one being named, so that it need not be measured again.
pub fn keep(context: &Context, reports: &[ProbeReport]) {
    let kept = to_update(context).and_then(|file| match file {
        Some((path, before)) => add(&path, before, reports).map(drop),
        None => Ok(()),
    });
    if let Err(error) = kept {
        not_kept(&error);
    }
}

/// Adds what probes found to a profile, in this file; whether that changes it.
///
/// # Errors
/// When the file cannot be written.
pub fn add(path: &Path, before: Design, reports: &[ProbeReport]) -> anyhow::Result<bool> {
    let mut profile = before.clone();
    probes::apply(reports, &mut profile);
    let changes = profile != before;
    if changes {
        write(path, &profile)?;
    }
    Ok(changes)
}

/// What was measured is on the screen, or was used: a cache that cannot be written loses nothing else.
pub fn not_kept(error: &anyhow::Error) {
    terminal::warning(&format!("the machine profile is not kept: {error:#}"));
}

/// Writes the profile, and the folders above a cached one.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, profile: &Design) -> anyhow::Result<()> {
    if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    let text = profile.to_json()? + "\n";
    report::write_file(path, &text)?;
    Ok(())
}

enum Trouble {
    Io(std::io::Error),
    Profile(ProfileError),
}

fn parse(path: &Path) -> Result<Option<Design>, Trouble> {
    match foreign::read_text(path, MOST_BYTES) {
        Ok(text) => Design::from_json(&text).map(Some).map_err(Trouble::Profile),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Trouble::Io(error)),
    }
}

/// The profile in a file; `None` where there is no such file.
///
/// # Errors
/// When it is no profile that this program reads; the message names it and says what to do.
pub fn read(path: &Path) -> anyhow::Result<Option<Design>> {
    parse(path).map_err(|trouble| match trouble {
        Trouble::Io(error) => refuse(path, error.into()),
        Trouble::Profile(error) => refuse(path, error.into()),
    })
}

/// The cause, the file and the way out.
fn refuse(path: &Path, cause: anyhow::Error) -> anyhow::Error {
    let newer = matches!(cause.downcast_ref(), Some(ProfileError::TooNew { .. }));
    let file = path.display();
    let is_ours = cache_root().is_some_and(|ours| path.starts_with(ours));
    let way_out = if newer {
        "update stallscope, or name another file with --profile".to_owned()
    } else if is_ours {
        format!("remove it, or measure again with `stallscope probe --profile {file}`")
    } else {
        // It may be any file: neither to be removed nor to be written over.
        "name a file that `stallscope probe --profile FILE` has written".to_owned()
    };
    // Without its own causes: the profile's errors have them in their words already.
    anyhow::anyhow!("cannot use the machine profile {file}: {cause}; {way_out}")
}

/// Where everything that can be made again is kept; `None` without a home.
pub fn cache_root() -> Option<PathBuf> {
    let folder = cache_folder(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"))?;
    Some(folder.join("stallscope"))
}

fn cached_path(machine: &Machine) -> Option<PathBuf> {
    Some(cache_root()?.join("profiles").join(format!("{}.json", machine.profile_key())))
}

/// As the XDG base directory specification has it: a relative path is ignored.
fn cache_folder(xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |v: Option<OsString>| v.map(PathBuf::from).filter(|p| p.is_absolute());
    absolute(xdg).or_else(|| absolute(home).map(|h| h.join(".cache")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_folder_follows_the_specification() {
        let folder = |x: Option<&str>, h: Option<&str>| {
            cache_folder(x.map(OsString::from), h.map(OsString::from))
        };
        assert_eq!(folder(Some("/x"), Some("/h")), Some("/x".into()));
        assert_eq!(folder(Some("x"), Some("/h")), Some("/h/.cache".into()));
        assert_eq!(folder(Some(""), Some("/h")), Some("/h/.cache".into()));
        assert_eq!(folder(None, None), None);
    }

    #[test]
    fn a_broken_file_is_named_with_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.json");
        assert!(read(&path).unwrap().is_none());
        std::fs::write(&path, "{").unwrap();
        let message = read(&path).unwrap_err().to_string();
        assert!(message.contains("p.json") && message.contains("stallscope probe"), "{message}");
        let named = [path.as_path(), folder.path(), Path::new("/dev/zero")];
        for file in named {
            let message = read(file).unwrap_err().to_string();
            assert!(message.contains("`stallscope probe --profile FILE`"), "{message}");
            assert!(!message.contains("remove"), "nobody knows what it is: {message}");
        }
        if let Some(ours) = cache_root() {
            let message = refuse(&ours.join("profiles/p.json"), anyhow::anyhow!("damaged"));
            assert!(message.to_string().contains("remove it"), "{message}");
        }
        std::fs::write(&path, "{\"version\": 9}").unwrap();
        let message = read(&path).unwrap_err().to_string();
        assert!(message.contains("version 9") && message.contains("update"), "{message}");
    }

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/p.json");
        let profile = Design::of_machine(&Machine::detect());
        write(&path, &profile).unwrap();
        assert_eq!(read(&path).unwrap(), Some(profile));
    }
}
