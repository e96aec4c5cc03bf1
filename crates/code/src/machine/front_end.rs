//! (table) The front end and the queues of a design: windows of code, the cache of decoded
//! instructions, the instruction cache and its TLB, the erratum on jumps, stores and instructions in
//! flight.
//!
//! Sources: Intel, "64 and IA-32 Architectures Optimization Reference Manual"; AMD, "Software
//! Optimization Guide" of families 17h, 19h and 1Ah; A. Fog, "The microarchitecture of Intel, AMD and
//! VIA CPUs" (reorder buffers and store queues); Intel, "Mitigations for Jump Conditional Code Erratum".
//! A value of a design that is not here is assumed. What a probe measured stands in the design and goes
//! before the table.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::design::{Design, PriceOrigin};
use super::fusion::Fusion;
use super::geometry::CacheGeometry;
use super::known::Microarchitecture as M;

/// The boundary that a jump must not touch on designs with the erratum, whatever their windows.
pub const JUMP_BOUNDARY_BYTES: u64 = 32;

/// What the tables follow.
const MAKERS: &str = "the maker's optimization manual; A. Fog";

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Source of the value.
    pub origin: PriceOrigin,
}

impl<T> Sourced<T> {
    /// What the table says, else what is assumed.
    pub(super) fn tabled(value: Option<T>, assumed: T) -> Self {
        match value {
            Some(value) => Self { value, origin: documented() },
            None => Self { value: assumed, origin: PriceOrigin::Assumed },
        }
    }
}

fn documented() -> PriceOrigin {
    PriceOrigin::Documented { source: MAKERS.to_owned() }
}

/// The shape of a cache of decoded instructions.
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

const fn code_cache(kib: u32, ways: u32) -> CacheGeometry {
    CacheGeometry { sets: kib * 1024 / 64 / ways, ways, line_bytes: 64 }
}

const fn pages(sets: u32, ways: u32) -> CacheGeometry {
    CacheGeometry { sets, ways, line_bytes: 4096 }
}

impl Design {
    /// Which pairs its front end fuses.
    #[must_use]
    pub fn fusion(&self) -> Sourced<Fusion> {
        let (fusion, known) = Fusion::of(self.microarchitecture);
        Sourced::tabled(known.then_some(fusion), fusion)
    }

    /// Whether Intel's erratum on jumps at 32-byte boundaries applies: by family, model and stepping
    /// where they are known, else whether any part of the design has it.
    #[must_use]
    pub fn jump_erratum(&self) -> Sourced<bool> {
        let known =
            (self.microarchitecture != M::Unknown).then(|| self.microarchitecture.has_jcc());
        Sourced::tabled(self.jump_erratum.or(known), false)
    }

    /// Bytes of code that the front end delivers together.
    #[must_use]
    pub fn fetch_window_bytes(&self) -> Sourced<u64> {
        if let Some(window) = &self.loop_window {
            let value = u64::from(window.window_bytes.max(1));
            return Sourced { value, origin: window.origin.clone() };
        }
        let published = self.decoded_cache().map(|cache| cache.value.window_bytes);
        Sourced::tabled(published, 64)
    }

    /// Loops above this many bytes are limited by other things than the windows that they touch: one
    /// window more is less than a quarter of what they take anyway.
    #[must_use]
    pub fn small_loop_bytes(&self) -> u64 {
        4 * self.fetch_window_bytes().value
    }

    /// The instruction cache next to the core: measured or presented, else published, else the 32 KiB
    /// in 8 ways of most designs.
    #[must_use]
    pub fn code_cache(&self) -> Sourced<CacheGeometry> {
        if let Some(value) = self.code_cache.and_then(CacheGeometry::possible) {
            let presented = || PriceOrigin::Documented { source: "CPUID or the kernel".to_owned() };
            return Sourced {
                value,
                origin: self.code_cache_origin.clone().unwrap_or_else(presented),
            };
        }
        let published = match self.microarchitecture {
            M::Nehalem | M::Westmere => Some(code_cache(32, 4)),
            M::RedwoodCove | M::LionCove => Some(code_cache(64, 16)),
            M::Gracemont | M::Crestmont | M::Skymont => Some(code_cache(64, 8)),
            M::Zen1 | M::ZenPlus | M::NeoverseN1 | M::NeoverseV2 => Some(code_cache(64, 4)),
            M::Unknown | M::AppleFirestorm | M::AmpereSkylark => None,
            _ => Some(code_cache(32, 8)),
        };
        Sourced::tabled(published, code_cache(32, 8))
    }

    /// The first-level TLB for pages of code of 4 KiB, as a cache of pages; `None` where its shape is
    /// not published. Intel's is shared out between two busy threads of a core, so a thread has between
    /// [`CacheGeometry::half`] of it and all.
    #[must_use]
    pub fn code_tlb(&self) -> Option<Sourced<CacheGeometry>> {
        let value = match self.microarchitecture {
            M::SandyBridge | M::IvyBridge | M::Haswell | M::Broadwell => pages(32, 4),
            M::Skylake | M::SkylakeServer | M::CascadeLake => pages(16, 8),
            M::SunnyCove | M::WillowCove | M::CypressCove => pages(16, 8),
            M::GoldenCove => pages(32, 8),
            M::Zen1 | M::ZenPlus | M::Zen2 | M::Zen3 | M::Zen4 | M::Zen5 => pages(1, 64),
            _ => return None,
        };
        Some(Sourced { value, origin: documented() })
    }

    /// The cache of decoded instructions; `None` where its shape is not published.
    #[must_use]
    pub fn decoded_cache(&self) -> Option<Sourced<DecodedCache>> {
        let (sets, ways, entry_operations, window_bytes, most_entries) =
            match self.microarchitecture {
                m if (M::SandyBridge..=M::CascadeLake).contains(&m) => (32, 8, 6, 32, Some(3)),
                M::Zen1 | M::ZenPlus => (32, 8, 8, 64, None),
                M::Zen2 | M::Zen3 => (64, 8, 8, 64, None),
                M::Zen4 => (64, 12, 9, 64, None),
                M::Zen5 => (64, 16, 6, 64, None),
                _ => return None,
            };
        let value = DecodedCache { sets, ways, entry_operations, window_bytes, most_entries };
        Some(Sourced { value, origin: documented() })
    }

    /// How many stores it holds between their execution and the cache.
    #[must_use]
    pub fn store_queue(&self) -> Sourced<u32> {
        let published = match self.microarchitecture {
            M::SandyBridge | M::IvyBridge => Some(36),
            M::Haswell | M::Broadwell => Some(42),
            M::Skylake | M::SkylakeServer | M::CascadeLake => Some(56),
            M::SunnyCove | M::WillowCove | M::CypressCove => Some(72),
            M::GoldenCove | M::RedwoodCove => Some(112),
            M::Zen1 | M::ZenPlus => Some(44),
            M::Zen2 => Some(48),
            M::Zen3 | M::Zen4 => Some(64),
            M::Zen5 => Some(104),
            _ => None,
        };
        Sourced::tabled(published, 56)
    }

    /// How many operations it holds between their decoding and their retirement.
    #[must_use]
    pub fn reorder_window(&self) -> Sourced<u32> {
        let published = match self.microarchitecture {
            M::Nehalem | M::Westmere | M::NeoverseN1 => Some(128),
            M::SandyBridge | M::IvyBridge => Some(168),
            M::Haswell | M::Broadwell | M::Zen1 | M::ZenPlus => Some(192),
            M::Skylake | M::SkylakeServer | M::CascadeLake | M::PalmCove | M::Zen2 => Some(224),
            M::SunnyCove | M::WillowCove | M::CypressCove => Some(352),
            M::GoldenCove | M::RedwoodCove => Some(512),
            M::LionCove => Some(576),
            M::Gracemont | M::Crestmont | M::Zen3 => Some(256),
            M::Skymont => Some(416),
            M::Zen4 | M::NeoverseV2 => Some(320),
            M::Zen5 => Some(448),
            M::AppleFirestorm | M::AmpereSkylark | M::Unknown => None,
        };
        Sourced::tabled(published, 200)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{LoopWindow, Machine, invented};

    #[test]
    fn the_shapes_hold_what_their_makers_say() {
        let operations = |design| {
            Design::of(design).decoded_cache().map(|c| {
                let DecodedCache { sets, ways, entry_operations, .. } = c.value;
                sets * ways * entry_operations
            })
        };
        let pages = |design| Design::of(design).code_tlb().map(|t| t.value.sets * t.value.ways);
        for (design, held, tlb) in [
            (M::CascadeLake, Some(1536), Some(128)),
            (M::Zen1, Some(2048), Some(64)),
            (M::Zen3, Some(4096), Some(64)),
            (M::Zen4, Some(6912), Some(64)),
            (M::Zen5, Some(6144), Some(64)),
            (M::GoldenCove, None, Some(256)),
            (M::Unknown, None, None),
        ] {
            assert_eq!((operations(design), pages(design)), (held, tlb), "{design}");
        }
        let half = Design::of(M::CascadeLake).code_tlb().unwrap().value.half();
        assert_eq!((half.sets, half.ways, half.line_bytes), (16, 4, 4096));
    }

    #[test]
    fn queues_and_windows_are_the_designs_own() {
        for (design, stores, instructions, window, small, kib) in [
            (M::CascadeLake, 56, 224, 32, 128, 32),
            (M::GoldenCove, 112, 512, 64, 256, 32),
            (M::RedwoodCove, 112, 512, 64, 256, 64),
            (M::Zen1, 44, 192, 64, 256, 64),
            (M::Unknown, 56, 200, 64, 256, 32),
        ] {
            let of = Design::of(design);
            let queues = (of.store_queue().value, of.reorder_window().value);
            assert_eq!(queues, (stores, instructions), "{design}");
            let windows = (of.fetch_window_bytes().value, of.small_loop_bytes());
            assert_eq!(windows, (window, small), "{design}");
            assert_eq!(of.code_cache().value.size_bytes(), kib * 1024, "{design}");
        }
        assert_eq!(Design::of(M::Unknown).store_queue().origin, PriceOrigin::Assumed);
    }

    #[test]
    fn what_was_measured_or_presented_goes_before_the_table() {
        let mut design = Design::of(M::CascadeLake);
        let origin = PriceOrigin::Probed { probe: "code-alignment".into() };
        design.loop_window =
            Some(LoopWindow { window_bytes: 64, extra_cycles: 0.5, origin: origin.clone() });
        assert_eq!(design.fetch_window_bytes(), Sourced { value: 64, origin });
        let machine = Machine::from_facts(&invented::zen_5_guest());
        let presented = Design::of_machine(&machine).code_cache();
        assert_eq!(Some(presented.value), CacheGeometry::presented(&machine));
        assert!(matches!(presented.origin, PriceOrigin::Documented { .. }));
    }

    #[test]
    fn the_erratum_follows_the_stepping_where_it_is_known() {
        let of = |design| Design::of(design).jump_erratum().value;
        assert!(of(M::CascadeLake) && !of(M::Zen5) && !of(M::Unknown));
        let mut cooper_lake = Machine::from_facts(&invented::cascade_lake_guest());
        assert!(Design::of_machine(&cooper_lake).jump_erratum().value);
        cooper_lake.jcc_erratum = false;
        let design = Design::of_machine(&cooper_lake);
        assert!(!design.jump_erratum().value && design.jump_at_boundary_price().is_none());
    }
}
