//! The memory of the last edges and vertices as the fast decoder keeps it: straight, not a ring.
//!
//! A block of triangles is decoded with both memories growing in one direction, so that no
//! position has to be wrapped round; between blocks the last 16 entries are moved back.

use core::marker::PhantomData;
use core::mem::MaybeUninit;

use super::State;
use crate::format::MEMORY_ENTRIES;
use crate::variants::EdgeAccess;

/// So many that moving 16 entries back does not count, and so few that 10 kB of scratch stay in
/// the first-level cache beside what the caller has there.
pub(super) const BLOCK_TRIANGLES: usize = 256;

/// A triangle adds at most three entries to each memory.
const SLOTS: usize = MEMORY_ENTRIES + 3 * BLOCK_TRIANGLES;

/// Room for one block.
pub(super) struct Scratch {
    /// Filled from the end downwards, so that an age counts upwards from the last edge.
    edges: [MaybeUninit<u64>; SLOTS],
    /// Filled upwards; one more than can be remembered, because the next vertex is stored ahead.
    vertices: [MaybeUninit<u32>; SLOTS + 1],
}

impl Scratch {
    pub(super) fn new() -> Self {
        Self { edges: [MaybeUninit::uninit(); SLOTS], vertices: [MaybeUninit::uninit(); SLOTS + 1] }
    }

    /// Where the memories begin, filled with what a decoder remembers before the first triangle.
    ///
    /// All pointers come from this one borrow: another look at the scratch through a reference
    /// would end the life of those that the state holds.
    pub(super) fn start(&mut self) -> Home<'_> {
        let home = Home {
            edges: self.edges.as_mut_ptr().cast::<u64>().wrapping_add(SLOTS - MEMORY_ENTRIES),
            vertices: self.vertices.as_mut_ptr().cast::<u32>().wrapping_add(MEMORY_ENTRIES),
            scratch: PhantomData,
        };
        for age in 0..MEMORY_ENTRIES {
            // SAFETY: 16 entries lie behind the home of edges and before that of vertices.
            unsafe {
                home.edges.add(age).write(u64::MAX);
                home.vertices.sub(1 + age).write(u32::MAX);
            }
        }
        home
    }
}

/// Where the memories begin: with 16 entries each, and room for a block.
pub(super) struct Home<'a> {
    /// The last edge.
    pub(super) edges: *mut u64,
    /// Where the next vertex goes.
    pub(super) vertices: *mut u32,
    scratch: PhantomData<&'a mut Scratch>,
}

impl Home<'_> {
    /// Moves the last 16 entries back home, in the widths in which they were written: in wider
    /// ones, which compilers prefer for a copy, the last of them could not be forwarded.
    #[inline(always)]
    pub(super) fn rewind<A: EdgeAccess>(&self, state: &mut State) {
        // From the oldest on, which is the order in which entries can overlap.
        for age in (0..MEMORY_ENTRIES).rev() {
            // SAFETY: `state` has 16 entries of each, written by `start` or since.
            unsafe {
                let moved = A::load(state.edges.add(age));
                A::store(self.edges.add(age), moved as u32, (moved >> 32) as u32);
                let moved = state.vertices.sub(1 + age).read_volatile();
                self.vertices.sub(1 + age).write_volatile(moved);
            }
        }
        (state.edges, state.vertices) = (self.edges, self.vertices);
    }
}
