//! What others wrote: the door through which files are opened, the budget of what is unpacked, text
//! that is safe to show, and what the kernel says of a process.
//!
//! A scanned program, its debug information, a profile or a baseline can come from anybody. None of
//! them decides what else is opened, how much memory that takes, or what a terminal does.

mod budget;
mod bytes;
mod file;
mod json;
mod process;
mod source;
mod text;

pub use budget::Budget;
pub use bytes::{Bytes, hex, u32_at, u64_at};
pub use file::{open, open_within, read, read_text, size};
pub use json::{escape_json, from_json, from_json_as_written};
pub use process::{Stat, Status, children, has_filter, processes, threads};
pub use source::SourceRoots;
pub use text::{Text, plain, plain_bytes, plain_lines};
