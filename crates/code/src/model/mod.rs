//! The nouns that every other room speaks in. This room does no work.
//!
//! *site*: an instruction that can cost. *finding*: a site with the reason to suspect it.
//! *measurement*: a number with its spread, its count and how it was obtained.

mod address;
mod evidence;
mod finding;
mod hotspot;
mod measurement;

pub use address::{Avma, FileOffset, LINE_BYTES, PAGE_BYTES, Svma};
pub use evidence::{Capability, Grade};
pub use finding::{
    Certainty, CyclesLost, Finding, FindingId, InFile, LEAST_SHARE, Site, SourceLine,
};
pub use hotspot::{HotPlace, HotSpot};
pub use measurement::{Measurement, Unit};
