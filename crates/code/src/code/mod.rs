//! A binary as functions, instructions, loops, symbolic addresses and source lines.
//!
//! This room reads and describes; it judges nothing. Broken, truncated, stripped and foreign files
//! give an error or less information, never a panic.

mod aarch64;
mod address;
mod arch;
mod cfg;
mod debug;
mod error;
pub mod fixture;
mod functions;
mod image;
mod insn;
mod lines;
mod loops;
mod needed;
mod origins;
mod parts;
mod pclntab;
mod place;
mod producer;
mod query;
mod sections;
mod strings;
mod symbolic;
mod unwind;
mod variables;
pub mod x86;

pub use address::{Addresses, index_mask};
pub use arch::Architecture;
pub(crate) use cfg::MOST_FUNCTION_BYTES;
pub use cfg::{Block, Edges, FunctionCode};
pub use error::CodeError;
pub use functions::{Function, demangle, short_name};
pub use image::{Coverage, FunctionSource, Image, Images};
pub use insn::{Access, Flow, Insn, LONGEST_INSN_BYTES, RawAddress, Reg, Value};
pub use lines::{DebugInfo, SourceText};
pub use loops::Loop;
pub use needed::{NeededLibrary, larger_libraries, named_libraries};
pub use origins::{Exports, Origins, global_functions};
pub use pclntab::{GoFunction, go_functions};
pub use producer::{Producer, comments};
pub use query::{FunctionQuery, QueryError};
pub use sections::{Section, SectionRole, sections};
pub use strings::{StringKind, StringSite, may_hold_strings, string_sites};
pub use symbolic::{Root, RootKind, SymbolicAddress};
pub use unwind::{Registers, Scratch, Step, UnwindTables, step_by_frame_pointer};
