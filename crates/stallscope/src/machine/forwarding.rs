//! The forwarding rule: may this store serve that load?
//!
//! Static rules and the simulator ask the same object, so they cannot disagree.

use super::profile::{ForwardingRule, MachineProfile, PriceOrigin, PriceRange};

impl ForwardingRule {
    /// Whether a store of `store_bytes` can serve a load of `load_bytes` that starts
    /// `load_offset_bytes` behind the store's first byte.
    #[must_use]
    pub fn forwards(self, load_offset_bytes: i64, store_bytes: u16, load_bytes: u16) -> bool {
        match self {
            Self::SingleStoreContains => {
                load_offset_bytes >= 0
                    && load_offset_bytes.saturating_add(i64::from(load_bytes))
                        <= i64::from(store_bytes)
            }
        }
    }
}

impl PriceRange {
    /// `13 to 15 cycles (documented: ...; not probed on this machine)`.
    #[must_use]
    pub fn sentence(&self) -> String {
        let (low, high) = (self.low_cycles, self.high_cycles);
        let amount = if low == high {
            format!("{low:.0} cycles")
        } else {
            format!("{low:.0} to {high:.0} cycles")
        };
        match &self.origin {
            PriceOrigin::Probed { probe } => format!("{amount} (measured here by probe {probe})"),
            PriceOrigin::Documented { source } => {
                format!("{amount} (documented: {source}; not probed on this machine)")
            }
            PriceOrigin::Assumed => {
                format!("{amount} (assumed: nothing is known about this design)")
            }
        }
    }
}

impl MachineProfile {
    /// What a blocked load costs here, as a sentence without final stop.
    #[must_use]
    pub fn blocked_load_sentence(&self) -> String {
        format!(
            "a blocked load takes {} from the store, where a forwarded one takes 4 to 6",
            self.store_forward_blocked_cycles.sentence()
        )
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
}
