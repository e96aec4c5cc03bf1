//! (table) The first-level TLB for pages of code, for designs of which its shape is published.
//!
//! Sources: Intel, "64 and IA-32 Architectures Optimization Reference Manual" (tables of TLBs, 4 KiB
//! pages); AMD, "Software Optimization Guide" of families 17h, 19h and 1Ah. Intel's is shared out
//! between two busy threads of a core, so a thread has between half of it and all.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::known::Microarchitecture as M;
use super::profile::{MachineProfile, PriceOrigin, PriceRange};

/// Its shape, for pages of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CodeTlb {
    /// Number of sets; the number of a page chooses one.
    pub sets: u32,
    /// Pages per set.
    pub ways: u32,
}

/// What RMMA saw on a Haswell where the second level had the page (mynavi.jp, June 2013).
const HASWELL_REFILL_CYCLES: f64 = 18.2;
/// No design is known on which such a refill takes longer.
const LONGEST_REFILL_CYCLES: f64 = 20.0;

impl CodeTlb {
    /// That of a design; `None` where it is not published.
    #[must_use]
    pub fn of(design: M) -> Option<Self> {
        let (sets, ways) = match design {
            M::SandyBridge | M::IvyBridge | M::Haswell | M::Broadwell => (32, 4),
            M::Skylake | M::SkylakeServer | M::CascadeLake => (16, 8),
            M::SunnyCove | M::WillowCove | M::CypressCove => (16, 8),
            M::GoldenCove => (32, 8),
            M::Zen1 | M::ZenPlus | M::Zen2 | M::Zen3 | M::Zen4 | M::Zen5 => (1, 64),
            _ => return None,
        };
        Some(Self { sets, ways })
    }

    /// What is left of it while the other thread of the core is busy too.
    #[must_use]
    pub fn half(self) -> Self {
        Self { ways: (self.ways / 2).max(1), ..self }
    }
}

impl MachineProfile {
    /// What it costs to bring a page of code into the first-level TLB from the second.
    #[must_use]
    pub fn code_tlb_refill_price(&self) -> PriceRange {
        let (high_cycles, origin) = match self.microarchitecture {
            M::Haswell => {
                let source = "RMMA on Haswell, mynavi.jp 2013".to_owned();
                (HASWELL_REFILL_CYCLES, PriceOrigin::Documented { source })
            }
            _ => (LONGEST_REFILL_CYCLES, PriceOrigin::Assumed),
        };
        PriceRange { low_cycles: 0.0, high_cycles, origin, measured: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shapes_hold_what_their_makers_say() {
        let holds = |design| CodeTlb::of(design).map(|t| t.sets * t.ways);
        let published = [
            (M::Haswell, 128),
            (M::CascadeLake, 128),
            (M::GoldenCove, 256),
            (M::Zen1, 64),
            (M::Zen5, 64),
        ];
        for (design, pages) in published {
            assert_eq!(holds(design), Some(pages), "{design}");
        }
        assert_eq!((holds(M::Gracemont), holds(M::Unknown)), (None, None));
        assert_eq!(
            CodeTlb::of(M::CascadeLake).map(CodeTlb::half),
            Some(CodeTlb { sets: 16, ways: 4 })
        );
    }

    #[test]
    fn a_refill_may_cost_nothing_and_says_who_measured_its_most() {
        let price = |design| MachineProfile::for_microarchitecture(design).code_tlb_refill_price();
        assert!(matches!(price(M::Haswell).origin, PriceOrigin::Documented { .. }));
        assert_eq!(price(M::Zen4).origin, PriceOrigin::Assumed);
        assert_eq!((price(M::Zen4).low_cycles, price(M::Zen4).high_cycles), (0.0, 20.0));
    }
}
