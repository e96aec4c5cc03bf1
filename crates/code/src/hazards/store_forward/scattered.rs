//! Narrow stores under an index of their own, and loads of several elements of the same array.
//!
//! A histogram, a set of flags, a small sorted array: each turn writes one element that data pick,
//! and reads many at once. Where the load begins is known and where the store goes is not, so the
//! question is whether the load reads the array at all, and not what lies behind it.

use crate::code::SymbolicAddress;
use crate::model::Certainty;

use super::walk::{Blocked, Met, Stores, Walk, nearest};

/// So many loads of one width are looked for between the start of an array and a load.
pub(super) const MOST_IN_A_ROW: i64 = 16;

impl Walk<'_> {
    /// How far ahead of the load the array begins that the store picks an element of, where the load
    /// counts from the same place without an index. An index that goes on by steps is none: such
    /// a walk over a long array has left its beginning behind.
    pub(super) fn scattered_by(
        &self,
        store: &SymbolicAddress,
        load: &SymbolicAddress,
    ) -> Option<i64> {
        if load.also.is_some() {
            return None;
        }
        let index = match (store.index, store.also) {
            (Some((index, _)), None) if store.base == load.base => index,
            (None, Some(also)) if store.base == load.base => also,
            (None, Some(also)) if Some(also) == load.base => store.base?,
            (None, None) if load.base.is_none() && is_place(store.offset_bytes) => store.base?,
            _ => return None,
        };
        (!self.addresses.walks_by(self.code, index, 1))
            .then(|| store.offset_bytes.wrapping_sub(load.offset_bytes))
    }

    /// Narrow stores somewhere in an array that is loaded wide: this load reads its first element,
    /// or others of its width lie one behind the other from there to this one. What comes behind
    /// an array is read whole, too.
    pub(super) fn scattered(
        &self,
        met: &Met,
        load: &SymbolicAddress,
        size_bytes: u16,
    ) -> Option<Blocked> {
        // Straight code that fills an array and reads it hardly meets one element twice.
        if self.rule.merges() || self.outer.depth == 0 {
            return None;
        }
        let reads_array = |(_, (_, ahead)): &(&usize, &(u32, i64))| {
            let (width, ahead) = (i64::from(size_bytes), *ahead);
            let before = ahead.div_euclid(width);
            (-MOST_IN_A_ROW..=0).contains(&before)
                && (before..0).all(|step| self.is_loaded(load, step * width, size_bytes))
        };
        let stores: Stores =
            met.scattered.iter().filter(reads_array).map(|(at, seen)| (*at, *seen)).collect();
        (!stores.is_empty()).then(|| Blocked {
            sets: stores.keys().map(|store| vec![*store]).collect(),
            certainty: Certainty::Probable,
            distance_instructions: nearest(&stores),
            complete: false,
            also_whole: false,
            scattered: true,
            filled: false,
        })
    }

    /// Whether the masks of their indices keep the two in parts of an array that have no byte in common.
    pub(super) fn never_meet(
        &self,
        store: &SymbolicAddress,
        store_bytes: u16,
        load: &SymbolicAddress,
        load_bytes: u16,
    ) -> bool {
        let reach = |own, other| self.addresses.reach(self.code, own, other);
        let (Some(written), Some(read)) = (reach(store, load), reach(load, store)) else {
            return false;
        };
        written.1.saturating_add(store_bytes.into()) <= read.0
            || read.1.saturating_add(load_bytes.into()) <= written.0
    }

    /// Whether the loop loads so many bytes so far from there, too.
    fn is_loaded(&self, from: &SymbolicAddress, ahead: i64, size_bytes: u16) -> bool {
        self.code.insns_in(self.outer).any(|at| {
            self.code.insns[at].load.is_some_and(|load| load.size_bytes == size_bytes)
                && self.addresses.load(self.code, at).and_then(|a| a.minus(from)) == Some(ahead)
        })
    }
}

/// Whether a constant says where something is, and not how far from something else.
pub(super) fn is_place(constant: i64) -> bool {
    constant >= 1 << 12
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_of_a_page_and_more_is_a_place() {
        assert_eq!([-1, 0, 4095, 4096, 0x60_0000].map(is_place), [false, false, false, true, true]);
    }
}
