//! (table) The cache of decoded instructions, for designs whose makers publish its shape.
//!
//! Sources: Intel, "64 and IA-32 Architectures Optimization Reference Manual" (Sandy Bridge to
//! Skylake); AMD, "Software Optimization Guide" of families 17h, 19h and 1Ah. Designs that are not here
//! have one too, of a shape that is not published.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::known::Microarchitecture as M;

/// Its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DecodedCache {
    /// Number of sets; the address of a window chooses one.
    pub sets: u32,
    /// Entries per set.
    pub ways: u32,
    /// Operations that one entry holds.
    pub entry_operations: u32,
    /// Size and alignment of the stretch of code that an entry is filled from.
    pub window_bytes: u64,
    /// Entries that one window may take; a window that needs more is decoded anew each time. `None`
    /// where no such limit is published.
    pub most_entries: Option<u32>,
}

impl DecodedCache {
    /// That of a design; `None` where it is not published.
    #[must_use]
    pub fn of(design: M) -> Option<Self> {
        let amd = |sets, ways, entry_operations| Self {
            sets,
            ways,
            entry_operations,
            window_bytes: 64,
            most_entries: None,
        };
        Some(match design {
            M::SandyBridge
            | M::IvyBridge
            | M::Haswell
            | M::Broadwell
            | M::Skylake
            | M::SkylakeServer
            | M::CascadeLake => Self {
                sets: 32,
                ways: 8,
                entry_operations: 6,
                window_bytes: 32,
                most_entries: Some(3),
            },
            M::Zen1 | M::ZenPlus => amd(32, 8, 8),
            M::Zen2 | M::Zen3 => amd(64, 8, 8),
            M::Zen4 => amd(64, 12, 9),
            M::Zen5 => amd(64, 16, 6),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shapes_hold_what_their_makers_say() {
        let holds = |design| DecodedCache::of(design).map(|c| c.sets * c.ways * c.entry_operations);
        let published = [
            (M::CascadeLake, 1536),
            (M::Zen1, 2048),
            (M::Zen3, 4096),
            (M::Zen4, 6912),
            (M::Zen5, 6144),
        ];
        for (design, operations) in published {
            assert_eq!(holds(design), Some(operations), "{design}");
        }
        assert_eq!((holds(M::GoldenCove), holds(M::Unknown)), (None, None));
    }
}
