//! The memory of the last 16 edges or vertices, as the encoder asks it: how long ago was this one?
//!
//! Looking through 16 entries for three edges is 48 comparisons, and a triangle in random order
//! pays all of them to learn that there is nothing. So beside the ring there is a small table:
//! for each of 256 hash values of a vertex the time at which one with that value was last
//! remembered. It is exact in one direction: nothing with that hash value is younger. A question
//! is answered at once when that time is out of reach, and otherwise the search starts there and
//! mostly ends there.

#![forbid(unsafe_code)]

use crate::format::MEMORY_ENTRIES;

const RING_MASK: u32 = MEMORY_ENTRIES as u32 - 1;
const HASH_VALUES: usize = 256;

/// An entry, and the vertex by which it is looked up.
pub(super) trait Entry: Copy + PartialEq {
    fn vertex(self) -> u32;
}

impl Entry for u32 {
    fn vertex(self) -> u32 {
        self
    }
}

/// An edge, with its first vertex in the low half.
impl Entry for u64 {
    fn vertex(self) -> u32 {
        self as u32
    }
}

/// The last 16 entries. An entry's *age* is 0 for the one remembered last.
pub(super) struct Recent<T> {
    ring: [T; MEMORY_ENTRIES],
    /// How many entries were ever remembered.
    now: u32,
    /// How many there were when all were forgotten. Ages are counted modulo 2^32, so after that
    /// many entries a forgotten one can come back; by then it has been overwritten.
    remembered: u32,
    /// Per hash value: the number of the last entry with it.
    newest: [u32; HASH_VALUES],
}

impl<T: Entry> Recent<T> {
    /// Decoders start with `blank` in all places, so that can be found from the start.
    pub(super) fn new(blank: T) -> Self {
        let mut new = Self {
            ring: [blank; MEMORY_ENTRIES],
            now: 0,
            remembered: 0,
            newest: [u32::MAX - HASH_VALUES as u32; HASH_VALUES],
        };
        for _ in 0..MEMORY_ENTRIES {
            new.push(blank);
        }
        new
    }

    /// Remembers an entry.
    #[inline]
    pub(super) fn push(&mut self, entry: T) {
        self.ring[(self.now & RING_MASK) as usize] = entry;
        self.newest[slot(entry.vertex())] = self.now;
        self.now = self.now.wrapping_add(1);
        self.remembered = (self.remembered + 1).min(MEMORY_ENTRIES as u32);
    }

    /// Forgets everything, while decoders keep what they have. meshoptimizer's encoder fills its
    /// memory with index 2^32-1 here, and then takes that index for remembered: its stream decodes
    /// to another one. Here nothing is found, and the bytes are the same for all other indices.
    pub(super) fn forget(&mut self) {
        self.remembered = 0;
    }

    /// The least age that something at `vertex` can have.
    #[inline]
    fn least_age(&self, vertex: u32) -> u32 {
        self.now.wrapping_sub(self.newest[slot(vertex)]).wrapping_sub(1)
    }

    #[inline]
    fn at(&self, age: u32) -> T {
        self.ring[(self.now.wrapping_sub(1).wrapping_sub(age) & RING_MASK) as usize]
    }

    #[inline]
    fn reach(&self, limit: usize) -> u32 {
        self.remembered.min(limit as u32)
    }

    /// The least age, below `limit`, at which this entry is remembered.
    #[inline]
    pub(super) fn find(&self, entry: T, limit: usize) -> Option<usize> {
        let ages = self.least_age(entry.vertex())..self.reach(limit);
        ages.into_iter().find(|age| self.at(*age) == entry).map(|age| age as usize)
    }

    /// The least age, below `limit`, at which one of three edges is remembered, and which; of two
    /// that are equal the first one.
    #[inline]
    pub(super) fn find_edge(&self, edges: [T; 3], limit: usize) -> Option<(usize, usize)> {
        let least = edges.map(|edge| self.least_age(edge.vertex()));
        let from = least[0].min(least[1]).min(least[2]);
        for age in from..self.reach(limit) {
            let there = self.at(age);
            for (which, edge) in edges.iter().enumerate() {
                if there == *edge {
                    return Some((age as usize, which));
                }
            }
        }
        None
    }
}

#[inline]
fn slot(vertex: u32) -> usize {
    // Neighbouring indices are what a mesh is made of: the low bits tell them apart best.
    vertex as usize % HASH_VALUES
}
