//! Says it: one file per form. Used by the command line alone.

mod benchfmt;
pub mod export;
mod json;
pub mod markdown;
pub mod page;
mod sarif;
pub mod words;

pub use benchfmt::benchfmt;
pub use json::{
    Defaults, Document, ENVELOPE_VERSION, ReportError, to_json, to_json_with, write_file,
};
pub use sarif::{SARIF_SCHEMA, to_sarif};
