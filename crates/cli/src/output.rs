//! Where results go: JSON to a file or to standard output, checked before a long run begins.

use std::path::Path;

use anyhow::{Context as _, bail};
use serde::Serialize;
use stallscope::report;

use crate::context::Context;
use crate::terminal;

/// Refuses a `--json` target that cannot work, before minutes are spent on its content.
///
/// # Errors
/// When the folder of the file does not exist, or the file is a folder.
pub fn check(context: &Context) -> anyhow::Result<()> {
    match context.json().filter(|p| *p != Path::new("-")) {
        Some(path) => check_target(path).context("--json"),
        None => Ok(()),
    }
}

/// Refuses a file that cannot be written, before minutes are spent on its content.
///
/// # Errors
/// When its folder does not exist, or it is a folder itself.
pub fn check_target(path: &Path) -> anyhow::Result<()> {
    if path.is_dir() {
        bail!("{}: this is a directory, not a file", path.display());
    }
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            bail!("{}: there is no directory {}", path.display(), folder.display())
        }
        _ => Ok(()),
    }
}

/// Writes `result` as JSON where `--json` says, if it says so.
///
/// # Errors
/// When the file or standard output cannot be written.
pub fn json(context: &Context, kind: &str, result: &impl Serialize) -> anyhow::Result<()> {
    let Some(path) = context.json() else {
        return Ok(());
    };
    let text = report::to_json(kind, result)?;
    if path == Path::new("-") {
        terminal::print(&text)?;
    } else {
        report::write_file(path, &text)?;
    }
    Ok(())
}
