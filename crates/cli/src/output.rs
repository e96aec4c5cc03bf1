//! Where results go: JSON to a file or to standard output, checked before a long run begins.

use std::path::Path;

use anyhow::{Context as _, bail};
use serde::Serialize;
use serde_json::Value;
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
    let text = if context.redacts_args() {
        let mut value = serde_json::to_value(result)?;
        redact(&mut value);
        report::to_json(kind, &value)?
    } else {
        report::to_json(kind, result)?
    };
    if path == Path::new("-") {
        terminal::print(&text)?;
    } else {
        report::write_file(path, &text)?;
    }
    Ok(())
}

/// What stands for an argument that is left out.
const REDACTED: &str = "[redacted]";

/// Takes the arguments out of a result: behind the first word of every command line, and the whole
/// of templates, in which they cannot be told apart.
fn redact(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(redact),
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                match (name.as_str(), field) {
                    ("command", Value::Array(words)) => {
                        words.iter_mut().skip(1).for_each(|word| *word = REDACTED.into());
                    }
                    ("run" | "build", Value::String(text)) => {
                        *text = REDACTED.into();
                    }
                    (_, other) => redact(other),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_taken_out_wherever_a_command_stands() {
        let mut value = serde_json::json!({
            "arms": [{ "command": ["./p", "--token", "secret"], "program": "/bin/p" }],
            "settings": { "build": "cc -DKEY=secret", "run": "{out} secret", "seed": 1 },
        });
        redact(&mut value);
        let text = value.to_string();
        assert!(!text.contains("secret") && !text.contains("--token"), "{text}");
        assert!(text.contains("./p") && text.contains("/bin/p") && text.contains("[redacted]"));
    }
}
