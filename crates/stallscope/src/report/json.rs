//! Results as JSON: one envelope for all kinds, files that are either whole or not there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::foreign::escape_json;
use crate::trace::whole_file::WholeFile;

/// The version of the envelope; see FORMAT.md for what each version changed.
pub const ENVELOPE_VERSION: u32 = 1;

/// What the envelope says that it is.
const FORMAT: &str = "stallscope";

/// Why a result could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum ReportError {
    #[error("cannot write {path}: {cause}")]
    Write { path: PathBuf, cause: std::io::Error },
    #[error("cannot write a result as JSON: {0}")]
    Encode(#[from] serde_json::Error),
}

/// Options that a file has set, for every run in its folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Defaults {
    /// The file.
    pub file: PathBuf,
    /// The values of each option; several where the option can be given again.
    pub set: BTreeMap<String, Vec<String>>,
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    format: &'static str,
    version: u32,
    kind: &'a str,
    tool_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    defaults: Option<&'a Defaults>,
    result: &'a T,
}

/// A document that was read, with its envelope.
#[derive(Deserialize)]
pub struct Document<T> {
    format: String,
    version: u32,
    /// What the result is.
    pub kind: String,
    /// The version of the stallscope that wrote it; empty where it does not say.
    #[serde(default)]
    pub tool_version: String,
    /// The result itself.
    pub result: T,
}

impl<T> Document<T> {
    /// Whether it says that stallscope wrote it.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.format == FORMAT
    }

    /// The version of its envelope, where that is one of a newer stallscope.
    #[must_use]
    pub fn newer(&self) -> Option<u32> {
        Some(self.version).filter(|version| *version > ENVELOPE_VERSION)
    }
}

/// `result` in its envelope, indented, with a newline at the end. It may be shown in a terminal:
/// what would do something there is written as an escape.
///
/// # Errors
/// [`ReportError::Encode`] when a map in `result` has keys that are no strings.
pub fn to_json(kind: &str, result: &impl Serialize) -> Result<String, ReportError> {
    to_json_with(kind, result, None)
}

/// The same, with what a file has set.
///
/// # Errors
/// As [`to_json`].
pub fn to_json_with(
    kind: &str,
    result: &impl Serialize,
    defaults: Option<&Defaults>,
) -> Result<String, ReportError> {
    let envelope = Envelope {
        format: FORMAT,
        version: ENVELOPE_VERSION,
        kind,
        tool_version: env!("CARGO_PKG_VERSION"),
        defaults,
        result,
    };
    Ok(escape_json(&serde_json::to_string_pretty(&envelope)?).into_owned() + "\n")
}

/// Writes `text` so that a reader finds the old file or the whole new one. A device or a pipe
/// (`/dev/stdout`) is written in place.
///
/// # Errors
/// [`ReportError::Write`] with the path; then an older file is still there.
pub fn write_file(path: &Path, text: &str) -> Result<(), ReportError> {
    WholeFile::write(path, text.as_bytes())
        .map_err(|cause| ReportError::Write { path: path.into(), cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_envelope_says_what_it_holds() {
        let text = to_json("comparison", &[1, 2]).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["format"], "stallscope");
        assert_eq!(value["version"], 1);
        assert_eq!(value["kind"], "comparison");
        assert_eq!(value["result"][1], 2);
        assert!(text.ends_with("}\n"));
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let error = write_file(Path::new("/no/such/folder/r.json"), "x").unwrap_err().to_string();
        assert!(error.contains("/no/such/folder/r.json"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        assert!(write_file(folder.path(), "x").is_err());
    }
}
