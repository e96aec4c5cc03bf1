//! A window as a file: written while an engine follows a run, read back into any sink.
//!
//! The form is described in FORMAT.md. It is a stream of small records with addresses as
//! differences, some two bytes for an instruction and three for an access, and it ends with a
//! record that says how the window ended: a file without that is one that was cut off. A reader
//! trusts nothing: any bytes give events and then either the end or an error that names the place.

mod number;
mod read;
mod write;

pub use read::{ReplayError, replay};
pub use write::{Writer, create, keep};

/// The first bytes of a file; the version follows.
const MAGIC: &[u8; 7] = b"STLTRC\0";
/// Since 2, code that no file holds stands at the end; since 4, which instructions drain stores.
const VERSION: u8 = 5;
/// Beside the length of an instruction: it drains stores.
const DRAINS_STORES: u8 = 0x80;
/// Kinds of records.
const DESCRIBE: u8 = 1;
const RUN: u8 = 2;
const END: u8 = 3;
const RESTART: u8 = 4;
/// Larger numbers in a file are damage, not data.
const MOST_INSNS: u64 = 1 << 16;
const MOST_ACCESSES: u64 = 1 << 20;
const MOST_ENTRIES: u64 = 1 << 16;
const LONGEST_TEXT: u64 = 1 << 16;

#[cfg(test)]
mod tests;
