//! Results as JSON: one envelope for all kinds, files that are either whole or not there.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::foreign::escape_json;

/// The version of the envelope; see FORMAT.md for what each version changed.
pub const ENVELOPE_VERSION: u32 = 1;

/// Why a result could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The file or its folder cannot be written.
    #[error("cannot write {path}: {cause}")]
    Write {
        /// Where it should have gone.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The value has no form in JSON.
    #[error("cannot write a result as JSON: {0}")]
    Encode(#[from] serde_json::Error),
}

#[derive(Serialize)]
struct Envelope<'a, T> {
    format: &'static str,
    version: u32,
    kind: &'a str,
    tool_version: &'static str,
    result: &'a T,
}

/// `result` in its envelope, indented, with a newline at the end. It may be shown in a terminal:
/// what would do something there is written as an escape.
///
/// # Errors
/// [`ReportError::Encode`] when a map in `result` has keys that are no strings.
pub fn to_json(kind: &str, result: &impl Serialize) -> Result<String, ReportError> {
    let envelope = Envelope {
        format: "stallscope",
        version: ENVELOPE_VERSION,
        kind,
        tool_version: env!("CARGO_PKG_VERSION"),
        result,
    };
    Ok(escape_json(&serde_json::to_string_pretty(&envelope)?).into_owned() + "\n")
}

/// Writes `text` to a temporary file next to `path` and renames it, so that a reader finds the old
/// file or the whole new one. A device or a pipe (`/dev/stdout`) is written in place.
///
/// # Errors
/// [`ReportError::Write`] with the path; then an older file is still there.
pub fn write_file(path: &Path, text: &str) -> Result<(), ReportError> {
    let failed = |cause| ReportError::Write { path: path.into(), cause };
    if path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        return std::fs::write(path, text).map_err(failed);
    }
    // Renaming over a link would replace the link, not the file that it means.
    let target = path.canonicalize().unwrap_or_else(|_| path.into());
    let folder = match target.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.as_file().set_permissions(mode(&target)).map_err(failed)?;
    file.persist(&target).map_err(|e| failed(e.error))?;
    Ok(())
}

/// The permissions of the file that is replaced, or those of an ordinary new file; a temporary file
/// would be readable by its owner alone.
fn mode(target: &Path) -> std::fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    match target.metadata() {
        Ok(existing) if existing.is_file() => existing.permissions(),
        _ => std::fs::Permissions::from_mode(0o644),
    }
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
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.json");
        write_file(&path, "old").unwrap();
        write_file(&path, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let error = write_file(Path::new("/no/such/folder/r.json"), "x").unwrap_err().to_string();
        assert!(error.contains("/no/such/folder/r.json"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        assert!(write_file(folder.path(), "x").is_err());
    }
}
