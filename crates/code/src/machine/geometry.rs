//! The geometry of a cache: which line a byte is in, which set a line goes to.
//!
//! One type for every cache of lines: instruction caches, what probes infer of them, and a TLB, which
//! is a cache of pages. A cache of 64 sets of 64-byte lines takes the set from address bits 6 to 11,
//! which lie inside a page: address space randomisation moves whole pages, so the set of every line is
//! known from the file alone. A cache with more sets uses bits above the page, and then it is not.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Machine;
use super::caches::CacheKind;
use crate::model::{PAGE_BYTES, Svma};

/// Size and shape of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheGeometry {
    /// Number of sets; a power of two.
    pub sets: u32,
    /// Lines per set.
    pub ways: u32,
    /// Size of a line in bytes; a power of two.
    pub line_bytes: u32,
}

/// A text that describes no cache.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid cache geometry `{0}`: expected SIZE,WAYS,LINE")]
pub struct GeometryError(String);

impl CacheGeometry {
    /// The instruction cache next to the core as this machine presents it; `None` where it presents
    /// nothing usable.
    #[must_use]
    pub fn presented(machine: &Machine) -> Option<Self> {
        let cache = machine.cache(1, CacheKind::Instruction)?;
        let (sets, ways, line_bytes) = (cache.sets, cache.ways, cache.line_bytes);
        Self { sets, ways, line_bytes }.possible()
    }

    /// Itself, if a cache can be like that: sets and line powers of two, nothing zero or absurdly
    /// large.
    #[must_use]
    pub fn possible(self) -> Option<Self> {
        let powers = self.sets.is_power_of_two() && self.line_bytes.is_power_of_two();
        let sizes = self.sets <= 1 << 20 && (16..=1 << 16).contains(&self.line_bytes);
        (powers && sizes && (1..=64).contains(&self.ways)).then_some(self)
    }

    /// What the whole cache holds, in bytes.
    #[must_use]
    pub fn size_bytes(self) -> u64 {
        self.period_bytes() * u64::from(self.ways)
    }

    /// The first byte of the line that holds `at`.
    #[must_use]
    pub fn line_of(self, at: Svma) -> Svma {
        Svma(at.0 & !(u64::from(self.line_bytes) - 1))
    }

    /// The set that the line of `at` goes to.
    #[must_use]
    pub fn set_of(self, at: Svma) -> u32 {
        (at.0 / u64::from(self.line_bytes) % u64::from(self.sets)) as u32
    }

    /// The distance after which sets repeat.
    #[must_use]
    pub fn period_bytes(self) -> u64 {
        u64::from(self.line_bytes) * u64::from(self.sets)
    }

    /// Whether sets follow from the file alone, whatever pages it is loaded to.
    #[must_use]
    pub fn is_fixed_by_the_file(self) -> bool {
        self.period_bytes() <= PAGE_BYTES
    }

    /// What is left of it while the other thread of the core uses it too.
    #[must_use]
    pub fn half(self) -> Self {
        Self { ways: (self.ways / 2).max(1), ..self }
    }
}

impl FromStr for CacheGeometry {
    type Err = GeometryError;

    /// As cachegrind writes it: size in bytes, ways, line in bytes.
    fn from_str(text: &str) -> Result<Self, GeometryError> {
        let parts: Option<Vec<u32>> =
            text.split(',').map(|part| part.trim().parse().ok()).collect();
        let geometry = match parts.as_deref() {
            Some(&[size, ways, line_bytes]) => {
                let row = ways.checked_mul(line_bytes).filter(|row| *row > 0 && size % row == 0);
                row.and_then(|row| Self { sets: size / row, ways, line_bytes }.possible())
            }
            _ => None,
        };
        geometry.ok_or_else(|| GeometryError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_lines_and_sets() {
        let l1i: CacheGeometry = "32768,8,64".parse().unwrap();
        assert_eq!(l1i, CacheGeometry { sets: 64, ways: 8, line_bytes: 64 });
        assert_eq!((l1i.size_bytes(), l1i.half().ways), (32768, 4));
        // Two occupants of the fourth story's set 35.
        assert_eq!((l1i.set_of(Svma(0x55_b8c0)), l1i.set_of(Svma(0x5b_28c0))), (35, 35));
        assert_eq!(l1i.line_of(Svma(0x55_b8ff)), Svma(0x55_b8c0));
        assert!(l1i.is_fixed_by_the_file());
        assert!(!"65536,4,64".parse::<CacheGeometry>().unwrap().is_fixed_by_the_file());
    }

    #[test]
    fn impossible_caches_are_refused() {
        for text in ["", "1,2", "0,8,64", "32768,0,64", "32768,8,63", "100,8,64", "a,b,c"] {
            let error = text.parse::<CacheGeometry>().unwrap_err().to_string();
            let wanted = format!("invalid cache geometry `{text}`: expected SIZE,WAYS,LINE");
            assert_eq!(error, wanted);
        }
    }
}
