//! Prices besides store forwarding: string instructions, accesses across a line, the front end.
//!
//! What a probe measured stands in the profile.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Machine;
use super::caches::CacheKind;
use super::profile::PriceOrigin;

/// What a string instruction and what replaces it cost at one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StringPoint {
    /// Bytes moved.
    pub size_bytes: u64,
    /// Core cycles of `rep movs` or `rep stos`, one after the other.
    pub rep_cycles: f64,
    /// Core cycles of moves of eight bytes that do the same.
    pub moves_cycles: f64,
    /// Core cycles of the string instruction that even a long latency chain beside it cannot hide.
    pub shadow_cycles: f64,
}

/// What copying or filling with a string instruction costs, by size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StringCosts {
    /// The size from which the string instruction is cheaper than moves of eight bytes.
    pub crossover_bytes: u64,
    /// Measured or assumed sizes, ascending.
    pub points: Vec<StringPoint>,
    /// Who says so.
    pub origin: PriceOrigin,
}

/// How the front end cuts small loops.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopWindow {
    /// Bytes that are delivered together.
    pub window_bytes: u32,
    /// What a loop pays per turn for one more window, core cycles.
    pub extra_cycles: f64,
    /// Who says so.
    pub origin: PriceOrigin,
}

/// The instruction cache that code competes for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CodeCache {
    /// Number of sets.
    pub sets: u32,
    /// Lines per set.
    pub ways: u32,
    /// Bytes per line.
    pub line_bytes: u32,
}

impl CodeCache {
    /// That of a machine as it presents it.
    #[must_use]
    pub fn of(machine: &Machine) -> Option<Self> {
        let cache = machine.cache(1, CacheKind::Instruction)?;
        let (sets, ways, line_bytes) = (cache.sets, cache.ways, cache.line_bytes);
        (sets > 0 && ways > 0 && line_bytes > 0).then_some(Self { sets, ways, line_bytes })
    }
}
