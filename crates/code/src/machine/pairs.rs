//! What a blocked load costs by the kind of the pair: widths, and which registers the data leave
//! and reach.
//!
//! The price of all blocked loads together is a wide range: on Zen 5 a load into a general register
//! waits about as long as the published figures say, and one that crosses from general to vector
//! registers half as long again. Where both instructions are known, ask for their kind.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::design::{Design, PriceRange};

/// Where the data of an access come from or go to.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum RegisterFile {
    /// General registers, and what needs no register.
    General,
    /// Vector registers.
    Vector,
}

/// One kind of store followed by a load that overlaps it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct PairKind {
    /// Width of the youngest store.
    pub store_bytes: u16,
    /// Register file that the store reads.
    pub store: RegisterFile,
    /// Width of the load.
    pub load_bytes: u16,
    /// Register file that the load writes.
    pub load: RegisterFile,
}

/// What a blocked load of one kind costs from store to load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PairPrice {
    /// Widths and register files of the pair.
    pub kind: PairKind,
    /// Over all offsets that were measured. Between two register files it contains the way back.
    pub cycles: PriceRange,
}

impl RegisterFile {
    /// Its name as an adjective.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::General => "general",
            Self::Vector => "vector",
        }
    }
}

impl Design {
    /// What a blocked load of this kind costs; `None` where this kind was not measured.
    #[must_use]
    pub fn blocked_pair(&self, kind: &PairKind) -> Option<&PairPrice> {
        self.store_forward_blocked_pairs.iter().find(|pair| pair.kind == *kind)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Microarchitecture, PriceOrigin};
    use super::*;

    #[test]
    fn a_kind_that_was_measured_has_its_own_price() {
        let mut profile = Design::of(Microarchitecture::Zen5);
        let kind = PairKind {
            store_bytes: 4,
            store: RegisterFile::General,
            load_bytes: 8,
            load: RegisterFile::Vector,
        };
        assert_eq!(profile.blocked_pair(&kind), None);
        let cycles = PriceRange {
            low_cycles: 18.0,
            high_cycles: 19.0,
            origin: PriceOrigin::Probed { probe: "store-forwarding".into() },
            measured: None,
        };
        profile.store_forward_blocked_pairs = vec![PairPrice { kind, cycles: cycles.clone() }];
        let again = Design::from_json(&serde_json::to_string(&profile).unwrap()).unwrap();
        assert_eq!(again.blocked_pair(&kind).map(|p| &p.cycles), Some(&cycles));
        assert_eq!(again.blocked_pair(&PairKind { load: RegisterFile::General, ..kind }), None);
    }
}
