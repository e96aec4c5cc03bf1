//! The memory of the last 16 edges or vertices, as the encoder asks it: how long ago was this one?
//!
//! Looking through 16 entries for three edges is 48 comparisons, and a triangle in random order
//! pays all of them to learn that there is nothing. So beside the ring there is a small table:
//! for each of 256 hash values of a vertex the number of the last entry with that value, from which a
//! chain leads to the ones before it. Mostly the first one on the chain is the answer, or out of
//! reach, which is an answer, too.

#![forbid(unsafe_code)]

use crate::format::MEMORY_ENTRIES;

const RING_MASK: u32 = MEMORY_ENTRIES as u32 - 1;
const HASH_VALUES: usize = 256;
/// The number of an entry that is out of reach of the first ones.
const NEVER: u32 = u32::MAX / 2;

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
    /// How many there were when all were forgotten. Numbers are counted modulo 2^32: when they
    /// come round to this one again, a few entries are overlooked, which costs some bytes.
    forgotten: u32,
    /// Per entry: the number of the one before it with the same hash value.
    older: [u32; MEMORY_ENTRIES],
    /// Per hash value: the number of the last entry with it.
    newest: [u32; HASH_VALUES],
}

impl<T: Entry> Recent<T> {
    /// Decoders start with `blank` in all places, so that can be found from the start.
    pub(super) fn new(blank: T) -> Self {
        let mut new = Self {
            ring: [blank; MEMORY_ENTRIES],
            now: 0,
            forgotten: 0,
            older: [NEVER; MEMORY_ENTRIES],
            newest: [NEVER; HASH_VALUES],
        };
        for _ in 0..MEMORY_ENTRIES {
            new.push(blank);
        }
        new
    }

    /// Remembers an entry.
    #[inline]
    pub(super) fn push(&mut self, entry: T) {
        let place = (self.now & RING_MASK) as usize;
        let newest = &mut self.newest[slot(entry.vertex())];
        self.older[place] = *newest;
        *newest = self.now;
        self.ring[place] = entry;
        self.now = self.now.wrapping_add(1);
    }

    /// Forgets everything, while decoders keep what they have. meshoptimizer's encoder fills its
    /// memory with index 2^32-1 here, and then takes that index for remembered: its stream decodes
    /// to another one. Here nothing is found, and the bytes are the same for all other indices.
    pub(super) fn forget(&mut self) {
        self.forgotten = self.now;
    }

    #[inline]
    fn at(&self, age: u32) -> T {
        self.ring[(self.now.wrapping_sub(1).wrapping_sub(age) & RING_MASK) as usize]
    }

    #[inline]
    fn reach(&self, limit: usize) -> u32 {
        self.now.wrapping_sub(self.forgotten).min(limit as u32)
    }

    /// The least age, below `limit`, at which this entry is remembered.
    #[inline]
    pub(super) fn find(&self, entry: T, limit: usize) -> Option<usize> {
        let limit = self.reach(limit);
        let age = self.age_below(entry, limit);
        (age < limit).then_some(age as usize)
    }

    /// The least age, below `limit`, at which one of three edges is remembered, and which; of two
    /// that are equal the first one.
    #[inline]
    pub(super) fn find_edge(&self, edges: [T; 3], limit: usize) -> Option<(usize, usize)> {
        // In strips the edge is one of the last two: asked first, they spare the table.
        for age in 0..2 {
            let there = self.at(age);
            for (which, edge) in edges.iter().enumerate() {
                if there == *edge {
                    return Some((age as usize, which));
                }
            }
        }
        let mut least_age = self.reach(limit);
        let mut found = None;
        for (which, edge) in edges.iter().enumerate() {
            let age = self.age_below(*edge, least_age);
            if age < least_age {
                least_age = age;
                found = Some((age as usize, which));
            }
        }
        found
    }

    /// The age of an entry if it is below `limit`, else some number that is not.
    #[inline]
    fn age_below(&self, entry: T, limit: u32) -> u32 {
        let age_of = |number: u32| self.now.wrapping_sub(number).wrapping_sub(1);
        let mut number = self.newest[slot(entry.vertex())];
        let mut age = age_of(number);
        loop {
            let place = (number & RING_MASK) as usize;
            if age >= limit || self.ring[place] == entry {
                return age;
            }
            number = self.older[place];
            let before = age_of(number);
            // Numbers come round after 2^32 entries; a chain must not lead in circles then.
            if before <= age {
                return limit;
            }
            age = before;
        }
    }
}

#[inline]
fn slot(vertex: u32) -> usize {
    // Neighbouring indices are what a mesh is made of: the low bits tell them apart best.
    vertex as usize % HASH_VALUES
}
