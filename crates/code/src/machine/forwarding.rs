//! The forwarding rule: may this store serve that load?
//!
//! Static rules and the simulator ask the same object, so they cannot disagree.

use std::fmt;

use super::design::{Design, ForwardingRule, PriceOrigin, PriceRange};

impl ForwardingRule {
    /// Whether a store of `store_bytes` can serve a load of `load_bytes` that starts
    /// `load_offset_bytes` behind the store's first byte.
    #[must_use]
    pub fn forwards(self, load_offset_bytes: i64, store_bytes: u16, load_bytes: u16) -> bool {
        let (store, load) = (i64::from(store_bytes), i64::from(load_bytes));
        let contained = load_offset_bytes >= 0 && load_offset_bytes.saturating_add(load) <= store;
        match self {
            Self::SingleStoreContains => contained,
            Self::ContainsInPieces { wide_store_bytes, piece_bytes } => {
                let piece = i64::from(piece_bytes).max(1);
                let inside_piece = || load_offset_bytes % piece + load <= piece;
                let whole_pieces = || load > piece && load_offset_bytes % load.max(1) == 0;
                contained && (store_bytes < wide_store_bytes || inside_piece() || whole_pieces())
            }
            Self::SameStart => contained && load_offset_bytes == 0,
            Self::StartOrMiddle | Self::StartOrMiddleOrHalves => {
                contained && (load_offset_bytes == 0 || load_offset_bytes * 2 == store)
            }
            Self::AnyOverlap => {
                load_offset_bytes < store && load_offset_bytes.saturating_add(load) > 0
            }
        }
    }

    /// Whether bytes of several stores are put together for one load.
    #[must_use]
    pub fn merges(self) -> bool {
        matches!(self, Self::AnyOverlap)
    }

    /// Whether two stores that are the lower and the upper half of a load serve it together.
    #[must_use]
    pub fn joins_halves(self) -> bool {
        matches!(self, Self::StartOrMiddleOrHalves)
    }

    /// The rule as a sentence without final stop.
    #[must_use]
    pub fn sentence(self) -> String {
        match self {
            Self::SingleStoreContains => {
                "a load is forwarded when one store holds all its bytes, at any offset".to_owned()
            }
            Self::ContainsInPieces { wide_store_bytes, piece_bytes } => format!(
                "a load is forwarded when one store holds all its bytes, at any offset; a store of \
                 {wide_store_bytes} bytes and more serves only loads inside one of its \
                 {piece_bytes}-byte pieces, or whole pieces at a multiple of the load's width"
            ),
            Self::SameStart => "a load is forwarded when one store holds all its bytes and both \
                                start at the same byte"
                .to_owned(),
            Self::StartOrMiddle => "a load is forwarded when one store holds all its bytes and it \
                                    starts at the first byte or in the middle of the store"
                .to_owned(),
            Self::StartOrMiddleOrHalves => {
                "a load is forwarded when one store holds all its bytes \
                                            and it starts at the first byte or in the middle of \
                                            the store, or when two stores are its halves"
                    .to_owned()
            }
            Self::AnyOverlap => {
                "a load is forwarded from every store that overlaps it, in parts".to_owned()
            }
        }
    }
}

impl PriceRange {
    /// The middle of the range in whole cycles, for models; no price of a profile exceeds 5000.
    #[must_use]
    pub fn whole_cycles(&self) -> u32 {
        ((self.low_cycles + self.high_cycles) / 2.0).round().clamp(0.0, 5000.0) as u32
    }

    /// `13 to 15`; one number when both round to it.
    #[must_use]
    pub fn amount(&self) -> String {
        // What is less than two cycles would round to nothing or to twice as much.
        let digits =
            |cycles: f64| usize::from(cycles < 1.95 && (cycles - cycles.round()).abs() > 0.05);
        let round = |cycles: f64| format!("{cycles:.*}", digits(cycles));
        let (low, high) = (round(self.low_cycles), round(self.high_cycles));
        if low == high { low } else { format!("{low} to {high}") }
    }

    /// `13 to 15 cycles (documented: ...; not probed on this machine)`.
    #[must_use]
    pub fn sentence(&self) -> String {
        let aside = match self.origin {
            PriceOrigin::Documented { .. } => "; not probed on this machine",
            _ => "",
        };
        format!("{} cycles ({}{aside})", self.amount(), self.origin.sentence())
    }
}

impl PriceOrigin {
    /// Whether a probe measured it.
    #[must_use]
    pub fn is_probed(&self) -> bool {
        matches!(self, Self::Probed { .. })
    }

    /// Where a price comes from, in a word.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Probed { .. } => "probed",
            Self::Documented { .. } => "documented",
            Self::Assumed => "assumed",
        }
    }

    /// The origin of something about the machine at hand, as a clause.
    #[must_use]
    pub fn sentence(&self) -> String {
        match self {
            Self::Probed { .. } => format!("measured here by {self}"),
            Self::Documented { .. } => self.to_string(),
            Self::Assumed => "assumed: nothing is known about this design".to_owned(),
        }
    }
}

impl fmt::Display for PriceOrigin {
    /// `probe clock`, `documented: ...`, `assumed`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Probed { probe } => write!(f, "probe {probe}"),
            Self::Documented { source } => write!(f, "documented: {source}"),
            Self::Assumed => f.write_str("assumed"),
        }
    }
}

impl Design {
    /// What a blocked load costs here, as a sentence without final stop.
    #[must_use]
    pub fn blocked_load_sentence(&self) -> String {
        format!(
            "a blocked load takes {} from the store, where a forwarded one takes {}",
            self.store_forward_blocked_cycles.sentence(),
            match &self.store_forward_cycles {
                Some(price) => price.amount(),
                // What the published measurements of all x86-64 designs span.
                None => "4 to 9".to_owned(),
            }
        )
    }

    /// Whether the price of a blocked load was measured on this machine.
    #[must_use]
    pub fn blocked_load_is_probed(&self) -> bool {
        self.store_forward_blocked_cycles.origin.is_probed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_store_must_hold_every_byte() {
        let rule = ForwardingRule::SingleStoreContains;
        assert!(rule.forwards(0, 8, 8));
        assert!(rule.forwards(4, 8, 4));
        assert!(!rule.forwards(0, 4, 8));
        assert!(!rule.forwards(4, 8, 8));
        assert!(!rule.forwards(-1, 8, 4));
        assert!(!rule.forwards(i64::MAX, 8, 8));
    }

    #[test]
    fn pieces_of_wide_stores_as_on_skylake() {
        let rule = ForwardingRule::ContainsInPieces { wide_store_bytes: 16, piece_bytes: 8 };
        let from_16: Vec<i64> = (0..=8).filter(|o| rule.forwards(*o, 16, 8)).collect();
        assert_eq!(from_16, [0, 8]);
        assert!(rule.forwards(4, 16, 4) && !rule.forwards(6, 16, 4) && rule.forwards(3, 8, 4));
        let from_32: Vec<i64> = (0..=16).filter(|o| rule.forwards(*o, 32, 16)).collect();
        assert_eq!(from_32, [0, 16]);
        assert!(rule.forwards(0, 16, 16) && rule.forwards(0, 32, 32));
    }

    #[test]
    fn the_other_rules() {
        use ForwardingRule::{AnyOverlap, SameStart, StartOrMiddle};
        assert!(SameStart.forwards(0, 8, 4) && !SameStart.forwards(4, 8, 4));
        assert!(StartOrMiddle.forwards(4, 8, 4) && !StartOrMiddle.forwards(2, 8, 4));
        assert!(!AnyOverlap.forwards(-8, 4, 8) && AnyOverlap.forwards(-7, 4, 8));
        assert!(AnyOverlap.forwards(3, 4, 8) && !AnyOverlap.forwards(4, 4, 8));
        assert!(AnyOverlap.merges() && !SameStart.merges());
    }

    #[test]
    fn the_price_of_a_blocked_load_says_who_measured_it() {
        use super::super::Microarchitecture;
        let mut profile = Design::of(Microarchitecture::Zen5);
        assert!(!profile.blocked_load_is_probed());
        assert!(profile.blocked_load_sentence().contains("not probed on this machine"));
        let probed = |low_cycles, high_cycles| PriceRange {
            low_cycles,
            high_cycles,
            origin: PriceOrigin::Probed { probe: "store-forwarding".into() },
            measured: None,
        };
        profile.store_forward_blocked_cycles = probed(13.98, 17.0);
        profile.store_forward_cycles = Some(probed(7.01, 6.99));
        assert_eq!(
            profile.blocked_load_sentence(),
            "a blocked load takes 14 to 17 cycles (measured here by probe store-forwarding) from \
             the store, where a forwarded one takes 7"
        );
        assert!(profile.blocked_load_is_probed());
    }
}
