//! Makes the programs of a gallery case: its sources, out of this program, through a C compiler.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use super::definition::{Case, Gallery, Pair};
use super::judgement::Which;
use stallscope::foreign::plain_bytes;
use stallscope::report;

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
        compile(command, compiler)?;
        fresh.persist(&*program).with_context(|| format!("cannot write {}", program.display()))?;
    }
    Ok(programs)
}

fn own_flags(pair: &Pair, after: u8) -> &[String] {
    if after == 1 { &pair.after_flags } else { &pair.before_flags }
}

fn compile(mut command: Command, compiler: &OsStr) -> anyhow::Result<()> {
    let name = plain_bytes(compiler.as_encoded_bytes());
    let done = match command.stdin(Stdio::null()).output() {
        Ok(done) => done,
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "there is no C compiler `{name}`: install gcc or clang (apt install gcc, dnf install \
             gcc, pacman -S gcc), or name one with --cc"
        ),
        Err(error) => return Err(error).with_context(|| format!("cannot run `{name}`")),
    };
    if !done.status.success() {
        let said: Vec<String> = done.stderr.split(|byte| *byte == b'\n').map(plain_bytes).collect();
        bail!("`{name}` does not build it:\n{}", said.join("\n").trim_end());
    }
    Ok(())
}
