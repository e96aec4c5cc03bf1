//! Makes the programs of a gallery case: its sources, out of this program, through a C compiler.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use super::definition::{Case, Gallery, Pair};
use super::judgement::Which;
use crate::commands::tool;
use stallscope::report;

/// What is missing where there is none, and what to do about it.
const COMPILER: [&str; 2] = [
    "C compiler",
    "install gcc or clang (apt install gcc, dnf install gcc, pacman -S gcc), or name one with --cc",
];

/// Builds both arms of a pair in `folder`; what was there is replaced.
///
/// # Errors
/// When there is no compiler, or it refuses; the message has what it wrote.
pub fn pair(
    case: &Case,
    (pairs, which): (&Gallery, Which),
    compiler: &OsStr,
    folder: &Path,
) -> anyhow::Result<[PathBuf; 2]> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let name = format!("{which}.c");
    let source = case.source(&name).with_context(|| format!("{} has no {name}", case.id))?;
    report::write_file(&folder.join(&name), source)?;
    let arms = [("before", 0), ("after", 1)];
    let mut programs = arms.map(|(arm, _)| folder.join(format!("{which}-{arm}")));
    for ((_, after), program) in arms.into_iter().zip(&mut programs) {
        let own = own_flags(which.of(pairs), after);
        // Renamed when it is whole: another run may be using the one that is there.
        let fresh = tempfile::Builder::new().prefix(".building-").tempfile_in(folder)?;
        let mut command = Command::new(compiler);
        command.current_dir(folder).args(&pairs.flags).args(own).arg(format!("-DAFTER={after}"));
        command.arg(&name).arg("-o").arg(fresh.path()).args(["-pthread", "-lm"]);
        command.stdin(Stdio::null());
        tool::run(command, COMPILER, "does not build it")?;
        fresh.persist(&*program).with_context(|| format!("cannot write {}", program.display()))?;
    }
    Ok(programs)
}

fn own_flags(pair: &Pair, after: u8) -> &[String] {
    if after == 1 { &pair.after_flags } else { &pair.before_flags }
}
