//! What a blocked load waits for its store: by widths and register file, where that was measured.

use crate::machine::{Design, PairKind, PriceRange, RegisterFile};

/// Widths of 1, 2, 4 … 64 bytes.
const WIDTHS: usize = 7;
/// No price is taken for more.
const MOST_CYCLES: u64 = 1000;

/// Cycles from a store's data to the value of a load that overlaps it and is not served by it.
pub(super) struct BlockedCycles {
    /// Of pairs that were not measured, and of those between two register files, whose price contains the way back.
    others: u64,
    /// Of pairs of general registers, and of vector registers: by width of store and load.
    pairs: [[[u64; WIDTHS]; WIDTHS]; 2],
}

fn whole(cycles: &PriceRange) -> u64 {
    let middle = u64::from(cycles.whole_cycles());
    let measured = cycles.measured.as_ref().map(|measured| measured.value.round().max(1.0) as u64);
    measured.unwrap_or(middle).min(MOST_CYCLES)
}

impl BlockedCycles {
    pub(super) fn of_design(design: &Design) -> Self {
        let others = &design.store_forward_blocked_cycles;
        let others = u64::from(others.whole_cycles()).min(MOST_CYCLES);
        let of = |file: RegisterFile| {
            let width = |n: usize| 1_u16 << n;
            std::array::from_fn(|store| {
                std::array::from_fn(|load| {
                    let kind = PairKind {
                        store_bytes: width(store),
                        store: file,
                        load_bytes: width(load),
                        load: file,
                    };
                    design.blocked_pair(&kind).map_or(others, |pair| whole(&pair.cycles))
                })
            })
        };
        Self { others, pairs: [of(RegisterFile::General), of(RegisterFile::Vector)] }
    }

    /// Of a load behind a store, by their widths and whether vector registers hold what they move.
    pub(super) fn of(&self, widths: [u32; 2], are_vectors: [bool; 2]) -> u64 {
        let [store, load] = widths.map(|bytes| bytes.trailing_zeros() as usize);
        let is_measured = are_vectors[0] == are_vectors[1]
            && widths.iter().all(|bytes| bytes.is_power_of_two())
            && store.max(load) < WIDTHS;
        match is_measured {
            true => self.pairs[usize::from(are_vectors[0])][store][load],
            false => self.others,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Microarchitecture, PairPrice, PriceOrigin};

    #[test]
    fn a_measured_pair_of_one_register_file_has_its_price_and_others_that_of_all() {
        let mut design = Design::of(Microarchitecture::Zen5);
        let origin = PriceOrigin::Probed { probe: "store-forwarding".into() };
        let range = |low, high| PriceRange {
            low_cycles: low,
            high_cycles: high,
            origin: origin.clone(),
            measured: None,
        };
        let kind = |store, load| PairKind { store_bytes: 4, store, load_bytes: 8, load };
        use RegisterFile::{General, Vector};
        design.store_forward_blocked_cycles = range(14.0, 18.0);
        design.store_forward_blocked_pairs = vec![
            PairPrice { kind: kind(General, General), cycles: range(13.0, 15.0) },
            PairPrice { kind: kind(General, Vector), cycles: range(19.0, 19.0) },
            PairPrice { kind: kind(Vector, Vector), cycles: range(15.0, 15.0) },
        ];
        let blocked = BlockedCycles::of_design(&design);
        assert_eq!(blocked.of([4, 8], [false; 2]), 14);
        assert_eq!(blocked.of([4, 8], [true; 2]), 15);
        assert_eq!(blocked.of([4, 8], [false, true]), 16, "its price has the way back in it");
        assert_eq!([[8, 4], [4, 6], [4, 128], [0, 8]].map(|w| blocked.of(w, [false; 2])), [16; 4]);
    }
}
