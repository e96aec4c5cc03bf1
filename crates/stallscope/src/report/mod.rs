//! Says it: one file per form. Used by the command line alone.

mod json;
mod sarif;

pub use json::{ENVELOPE_VERSION, ReportError, to_json, write_file};
pub use sarif::{SARIF_SCHEMA, to_sarif};
