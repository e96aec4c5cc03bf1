//! The instruction cache as address bits: which line a byte is in, which set a line goes to.
//!
//! An instruction cache of 64 sets of 64-byte lines takes the set from address bits 6 to 11, which
//! lie inside a page: address space randomisation moves whole pages, so the set of every line is
//! known from the file alone. A cache with more sets uses bits above the page, and then it is not.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::Serialize;

use crate::machine::{CacheKind, Machine};
use crate::model::Svma;

const PAGE_BYTES: u64 = 4096;

/// Size and shape of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Geometry {
    /// Size of a line in bytes; a power of two.
    pub line_bytes: u32,
    /// Number of sets; a power of two.
    pub sets: u32,
    /// Lines per set.
    pub ways: u32,
}

/// A geometry that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}; write bytes,ways,line like 32768,8,64")]
pub struct GeometryError(String);

impl Geometry {
    /// The instruction cache next to the core as this machine presents it; `None` where it says
    /// nothing usable.
    #[must_use]
    pub fn of(machine: &Machine) -> Option<Self> {
        let cache = machine.cache(1, CacheKind::Instruction)?;
        Self::new(cache.line_bytes, cache.sets, cache.ways).ok()
    }

    /// A geometry whose numbers make sense.
    ///
    /// # Errors
    /// When line or sets are no powers of two, or anything is nought.
    pub fn new(line_bytes: u32, sets: u32, ways: u32) -> Result<Self, GeometryError> {
        let fits = line_bytes.is_power_of_two() && sets.is_power_of_two() && ways > 0;
        if fits && line_bytes >= 16 && sets <= 1 << 16 && ways <= 1 << 10 {
            return Ok(Self { line_bytes, sets, ways });
        }
        Err(GeometryError(format!(
            "a cache of {sets} sets, {ways} ways and {line_bytes}-byte lines cannot be"
        )))
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

    /// The lines that a stretch of code lies in.
    pub fn lines(self, start: Svma, size_bytes: u64) -> impl Iterator<Item = Svma> {
        let first = self.line_of(start);
        let last = self.line_of(start.offset(size_bytes.saturating_sub(1) as i64));
        let count =
            if size_bytes == 0 { 0 } else { (last.0 - first.0) / u64::from(self.line_bytes) + 1 };
        (0..count).map(move |i| first.offset((i * u64::from(self.line_bytes)) as i64))
    }
}

impl FromStr for Geometry {
    type Err = GeometryError;

    /// As cachegrind writes it: size in bytes, ways, line in bytes.
    fn from_str(text: &str) -> Result<Self, GeometryError> {
        let parts: Vec<u32> = text
            .split(',')
            .map(|part| part.trim().parse())
            .collect::<Result<_, _>>()
            .map_err(|_| GeometryError(format!("`{text}` is no cache")))?;
        let &[size, ways, line] = parts.as_slice() else {
            return Err(GeometryError(format!("`{text}` has not three parts")));
        };
        let row = ways.checked_mul(line).filter(|row| *row > 0 && size % row == 0);
        let sets = row.map(|row| size / row);
        let error = || GeometryError(format!("`{text}` does not come out even"));
        Self::new(line, sets.ok_or_else(error)?, ways)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_lines_and_sets() {
        let l1i: Geometry = "32768,8,64".parse().unwrap();
        assert_eq!(l1i, Geometry { line_bytes: 64, sets: 64, ways: 8 });
        // Two occupants of the fourth story's set 35.
        assert_eq!((l1i.set_of(Svma(0x55_b8c0)), l1i.set_of(Svma(0x5b_28c0))), (35, 35));
        assert_eq!(l1i.line_of(Svma(0x55_b8ff)), Svma(0x55_b8c0));
        assert!(l1i.is_fixed_by_the_file());
        assert!(!"65536,4,64".parse::<Geometry>().unwrap().is_fixed_by_the_file());
        let lines: Vec<Svma> = l1i.lines(Svma(0x103f), 2).collect();
        assert_eq!(lines, [Svma(0x1000), Svma(0x1040)]);
        assert_eq!(l1i.lines(Svma(0x1000), 0).count(), 0);
    }

    #[test]
    fn impossible_caches_are_refused() {
        for text in ["", "1,2", "0,8,64", "32768,0,64", "32768,8,63", "100,8,64", "a,b,c"] {
            assert!(text.parse::<Geometry>().is_err(), "{text}");
        }
    }
}
