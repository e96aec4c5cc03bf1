//! The cache of decoded instructions: which of its sets a window of a run overfills.
//!
//! It is cut into sets like the instruction cache, but its entries hold operations that were decoded
//! from one aligned window of code. The model: an instruction is one operation and belongs to the
//! window of its first byte; a window takes as many entries as its executed instructions need; the
//! windows of a set are replaced together, the one not used for longest first; a window that may not
//! take so many entries is decoded each time. Real ones start entries anew behind taken jumps,
//! split some instructions and fuse others, so this ranks layouts and gives no time: in one
//! population of 29 layouts such misses explained under a tenth of the spread.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::window::TracedWindow;
use crate::machine::DecodedCache;

/// What the model counted in a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct DecodedUse {
    /// Windows of code that ran.
    pub windows: usize,
    /// Entries that they need.
    pub entries: u64,
    /// Sets that need more entries than they have.
    pub overfull_sets: u32,
    /// Windows that need more entries than one may take.
    pub too_dense_windows: usize,
    /// Windows decoded anew, once the cache is warm.
    pub misses: u64,
    /// Those of one operation.
    pub misses_per_operation: f64,
}

/// A window of code by its number, address divided by size.
type WindowNumber = u64;

struct Model {
    shape: DecodedCache,
    /// Windows of each set with their entries, the last used first.
    sets: Vec<Vec<(WindowNumber, u32)>>,
    last: Option<WindowNumber>,
    misses: u64,
}

impl Model {
    fn fetch(&mut self, window: WindowNumber, entries: u32) {
        if self.last == Some(window) {
            return;
        }
        self.last = Some(window);
        if self.shape.most_entries.is_some_and(|most| entries > most) {
            self.misses += 1;
            return;
        }
        let index = (window % u64::from(self.shape.sets.max(1))) as usize;
        let set = &mut self.sets[index];
        match set.iter().position(|(held, _)| *held == window) {
            Some(place) => {
                let held = set.remove(place);
                set.insert(0, held);
            }
            None => {
                self.misses += 1;
                set.insert(0, (window, entries));
                let mut taken: u32 = set.iter().map(|(_, entries)| entries).sum();
                while taken > self.shape.ways && set.len() > 1 {
                    taken -= set.pop().map_or(0, |(_, entries)| entries);
                }
            }
        }
    }
}

/// Goes over the window twice and counts the second time.
#[must_use]
pub fn decoded_use(traced: &TracedWindow, shape: DecodedCache) -> DecodedUse {
    let window_of = |at: u64| at / shape.window_bytes.max(1);
    let mut starts: BTreeMap<WindowNumber, Vec<u64>> = BTreeMap::new();
    for insn in
        traced.blocks.iter().zip(&traced.counts).filter(|(_, n)| **n > 0).flat_map(|(b, _)| b)
    {
        starts.entry(window_of(insn.avma.0)).or_default().push(insn.avma.0);
    }
    let mut entries: BTreeMap<WindowNumber, u32> = BTreeMap::new();
    for (window, mut insns) in starts {
        insns.sort_unstable();
        insns.dedup();
        entries.insert(window, (insns.len() as u32).div_ceil(shape.entry_operations.max(1)));
    }
    let mut taken = vec![0_u32; shape.sets.max(1) as usize];
    for (window, needed) in &entries {
        let index = (window % u64::from(shape.sets.max(1))) as usize;
        taken[index] += needed;
    }
    let blocks: Vec<Vec<(WindowNumber, u32)>> = traced
        .blocks
        .iter()
        .map(|block| {
            let mut windows: Vec<WindowNumber> =
                block.iter().map(|i| window_of(i.avma.0)).collect();
            windows.dedup();
            windows.iter().map(|w| (*w, entries.get(w).copied().unwrap_or(1))).collect()
        })
        .collect();
    let mut model = Model { shape, sets: vec![Vec::new(); taken.len()], last: None, misses: 0 };
    let mut first = 0;
    for _ in 0..2 {
        first = std::mem::take(&mut model.misses).max(first);
        let runs = traced.order.iter().filter_map(|id| blocks.get(*id as usize));
        runs.flatten().for_each(|(window, entries)| model.fetch(*window, *entries));
    }
    DecodedUse {
        windows: entries.len(),
        entries: entries.values().map(|n| u64::from(*n)).sum(),
        overfull_sets: taken.iter().filter(|n| **n > shape.ways).count() as u32,
        too_dense_windows: entries
            .values()
            .filter(|n| shape.most_entries.is_some_and(|most| **n > most))
            .count(),
        misses: model.misses,
        misses_per_operation: model.misses as f64 / traced.kept_operations() as f64,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Geometry;
    use super::super::occupancy::misses_placed;
    use super::super::window::tests::window;
    use super::*;
    use crate::machine::Microarchitecture;

    fn lake() -> DecodedCache {
        DecodedCache::of(Microarchitecture::CascadeLake).unwrap()
    }

    /// Windows of 8 instructions (two entries) 1024 bytes apart go to one set of eight entries.
    #[test]
    fn four_windows_of_two_entries_fit_and_five_do_not() {
        for (windows, misses) in [(4, 0), (5, 5)] {
            let blocks: Vec<(u64, usize)> = (0..windows).map(|i| (1024 * i, 8)).collect();
            let order: Vec<u32> = (0..windows as u32).collect();
            let found = decoded_use(&window(&blocks, &order), lake());
            assert_eq!((found.windows as u64, found.entries), (windows, 2 * windows));
            assert_eq!((found.misses, found.overfull_sets > 0), (misses, misses > 0));
        }
    }

    #[test]
    fn what_is_too_dense_is_decoded_each_time() {
        let mut dense = window(&[(0, 1), (1024, 1)], &[0, 1, 0, 1]);
        let first = dense.blocks[0][0];
        // 19 instructions of one byte in one window: four entries of six.
        dense.blocks[0] = (0..19)
            .map(|i| {
                let mut insn = first;
                insn.avma = first.avma.offset(i);
                insn.size_bytes = 1;
                insn
            })
            .collect();
        let found = decoded_use(&dense, lake());
        assert_eq!((found.too_dense_windows, found.misses), (1, 2));
    }

    proptest! {
        /// With one entry per window it is the instruction cache with short lines.
        #[test]
        fn one_entry_each_is_plain_lru(order in prop::collection::vec(0_u32..40, 1..300)) {
            let blocks: Vec<(u64, usize)> = (0..40).map(|i| (256 * i, 1)).collect();
            let traced = window(&blocks, &order);
            let lines = Geometry::new(32, 32, 8).unwrap();
            let expected = misses_placed(&traced, lines, |insn| insn.avma).unwrap();
            prop_assert_eq!(decoded_use(&traced, lake()).misses, expected);
        }
    }
}
