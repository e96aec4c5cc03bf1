//! Says it: one file per form. Used by the command line alone.

mod json;

pub use json::{ENVELOPE_VERSION, ReportError, to_json, write_file};
