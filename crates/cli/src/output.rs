//! Where results go: JSON to a file or to standard output, and a page, checked before a long run begins.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use serde::Serialize;
use serde_json::Value;
use stallscope::report;

use crate::context::Context;
use crate::terminal;

/// Refuses a `--json` or `--html` target that cannot work, before minutes are spent on its content.
///
/// # Errors
/// When the folder of the file does not exist, the file is a folder, or a page should go to standard output.
pub fn check(context: &Context) -> anyhow::Result<()> {
    if let Some(path) = context.json().filter(|p| *p != Path::new("-")) {
        check_target(path).context("--json")?;
    }
    if let Some(folder) = context.json_dir() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("--json-dir: cannot make {}", folder.display()))?;
    }
    match context.html() {
        Some(path) if path == Path::new("-") => bail!("--html -: a page goes to a file; name one"),
        Some(path) => check_target(path).context("--html"),
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

/// Writes `result` as JSON where `--json` says, and as a page, drawn from that same text, where `--html` says.
///
/// # Errors
/// When a file or standard output cannot be written, or there is no page of it.
pub fn result(context: &Context, kind: &str, result: &impl Serialize) -> anyhow::Result<()> {
    if context.json().or(context.json_dir()).is_none() && context.html().is_none() {
        return Ok(());
    }
    let text = if context.redacts_args() {
        let mut value = serde_json::to_value(result)?;
        redact(&mut value);
        report::to_json_with(kind, &value, context.defaults())?
    } else {
        report::to_json_with(kind, result, context.defaults())?
    };
    if let Some(folder) = context.json_dir() {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis());
        report::write_file(&folder.join(format!("{kind}-{now_ms}.json")), &text)?;
    }
    match context.json() {
        Some(path) if path == Path::new("-") => terminal::print(&text)?,
        Some(path) => report::write_file(path, &text)?,
        None => {}
    }
    match context.html() {
        Some(path) => page(context, path, &text).context("--html"),
        None => Ok(()),
    }
}

/// Draws the page of a document and writes it.
///
/// # Errors
/// When there is no page of it, or the file cannot be written.
pub fn page(context: &Context, path: &Path, document: &str) -> anyhow::Result<()> {
    report::write_file(path, &report::page::page(document)?)?;
    if context.opens() {
        open(path);
    }
    Ok(())
}

/// Shows a page that was written. Where that cannot be, it is still there.
fn open(path: &Path) {
    let browser = std::env::var_os("BROWSER").filter(|name| !name.is_empty());
    let browser = browser.unwrap_or_else(|| "xdg-open".into());
    let name = stallscope::foreign::plain_bytes(browser.as_encoded_bytes());
    let why = match Command::new(&browser).arg(path).stdin(Stdio::null()).status() {
        Ok(status) if status.success() => return,
        Ok(status) => format!("`{name}` ended with {status}"),
        Err(error) => format!("`{name}` cannot be run: {error}"),
    };
    terminal::warning(&format!(
        "--open: {why}; BROWSER names the program that shows pages, and this one is {}",
        path.display()
    ));
}

/// What stands for an argument that is left out.
const REDACTED: &str = "[redacted]";

/// Takes the arguments out of a result: behind the first word of every command line, and the whole
/// of templates, in which they cannot be told apart.
pub fn redact(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(redact),
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                match (name.as_str(), field) {
                    ("command", Value::Array(words)) => {
                        words.iter_mut().skip(1).for_each(|word| *word = REDACTED.into());
                    }
                    // Behind a name, and in what steps are.
                    ("environment", Value::Array(pairs)) => {
                        for pair in pairs.iter_mut() {
                            let name = pair.as_str().and_then(|pair| pair.split_once('='));
                            *pair = name
                                .map_or(REDACTED.into(), |(n, _)| format!("{n}={REDACTED}"))
                                .into();
                        }
                    }
                    ("parameters", Value::Object(values)) => {
                        values.iter_mut().for_each(|(_, value)| *value = REDACTED.into());
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
            "arms": [{ "command": ["./p", "--token", "secret"], "program": "/bin/p",
                       "environment": ["KEY=secret"], "parameters": { "n": "secret" } }],
            "settings": { "build": "cc -DKEY=secret", "run": "{out} secret", "seed": 1 },
        });
        redact(&mut value);
        let text = value.to_string();
        assert!(!text.contains("secret") && !text.contains("--token"), "{text}");
        assert!(text.contains("./p") && text.contains("/bin/p") && text.contains("[redacted]"));
    }
}
