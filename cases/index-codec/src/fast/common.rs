//! The codes that nearly all triangles have: those at a remembered edge.
//!
//! What to do for a code is looked up in a table. Two loops follow it: one in Rust, and one in
//! assembly for x86-64.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64;

use core::hint::select_unpredictable;
use core::marker::PhantomData;

use super::{State, edge, write};
use crate::Index;
use crate::variants::EdgeAccess;
use crate::varint::unfold_difference;

/// The fastest loop for this processor.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) type Native = x86_64::Assembly;
/// The fastest loop for this processor.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) type Native = Portable<crate::variants::Paired>;

/// A loop over common codes.
pub(crate) trait Common {
    /// How it reaches the memory of edges.
    type Access: EdgeAccess;

    /// Decodes from code number `done` on until a code comes that is not common, or needs more
    /// bytes of data than this loop reads, or until the data have ended; returns its number.
    ///
    /// # Safety
    ///
    /// A code that is not common comes in `codes`. For the codes before it, the memories in
    /// `state` and `out` have room, and the data in `state` are followed by a tail.
    unsafe fn run<I: Index, const CODED: u8>(
        state: &mut State,
        codes: &[u8],
        done: usize,
        out: *mut I,
    ) -> usize;
}

/// What to do for a code.
#[derive(Clone, Copy)]
#[repr(C)]
struct Kind {
    /// 1 if the third vertex is a new one.
    new_vertices: u32,
    /// Which edge to load. Edges 0 and 1 are in registers: for them one that was stored long ago.
    loaded_edge: u8,
    /// Which vertex to load, from where the next one goes; above 0 it is not loaded, but one of
    /// the following.
    vertex: i8,
    /// 0 or 1 for the last two edges, 2 for all others.
    edge_class: u8,
    _to_eight_bytes: u8,
}

const LAST_MINUS_ONE: i8 = 1;
const LAST_PLUS_ONE: i8 = 2;
const DIFFERENCE: i8 = 3;
/// Not a common code.
const RARE: i8 = 4;

/// The edges that are kept in registers.
const KEPT_EDGES: u8 = 2;
const LONG_AGO: u8 = 15;

static KINDS_V0: [Kind; 256] = kinds(15);
static KINDS_V1: [Kind; 256] = kinds(13);

const fn kinds(coded: u8) -> [Kind; 256] {
    let rare = Kind {
        new_vertices: 0,
        loaded_edge: LONG_AGO,
        vertex: RARE,
        edge_class: KEPT_EDGES,
        _to_eight_bytes: 0,
    };
    let mut kinds = [rare; 256];
    let mut code = 0;
    while code < crate::format::FIRST_FREE_CODE {
        let (age, third) = (code >> 4, code & 15);
        kinds[code as usize] = Kind {
            new_vertices: (third == 0) as u32,
            loaded_edge: if age < KEPT_EDGES { LONG_AGO } else { age },
            vertex: match third {
                0 => 0,
                _ if third < coded => -1 - third as i8,
                13 => LAST_MINUS_ONE,
                14 => LAST_PLUS_ONE,
                _ => DIFFERENCE,
            },
            edge_class: if age < KEPT_EDGES { age } else { KEPT_EDGES },
            _to_eight_bytes: 0,
        };
        code += 1;
    }
    kinds
}

#[inline(always)]
fn kinds_of<const CODED: u8>() -> &'static [Kind; 256] {
    if CODED == 13 { &KINDS_V1 } else { &KINDS_V0 }
}

/// The loop in Rust.
pub(crate) struct Portable<A>(PhantomData<A>);

impl<A: EdgeAccess> Common for Portable<A> {
    type Access = A;

    #[inline(always)]
    unsafe fn run<I: Index, const CODED: u8>(
        state: &mut State,
        codes: &[u8],
        mut done: usize,
        out: *mut I,
    ) -> usize {
        let kinds = kinds_of::<CODED>();
        // SAFETY: the memories hold 16 edges at least.
        let mut kept = unsafe { [A::load(state.edges), A::load(state.edges.add(1))] };
        loop {
            let kind = &kinds[usize::from(codes[done])];
            // SAFETY: as promised, with a code in hand that is common unless `third` says no.
            unsafe {
                let Some(c) = third(state, kind) else { return done };
                let ab = A::load(state.edges.add(kind.loaded_edge.into()));
                let ab = select_unpredictable(kind.edge_class == 1, kept[1], ab);
                let ab = select_unpredictable(kind.edge_class == 0, kept[0], ab);
                let (a, b) = (ab as u32, (ab >> 32) as u32);
                kept = [edge(a, c), edge(c, b)];
                state.edges = state.edges.sub(2);
                A::store(state.edges.add(1), c, b);
                A::store(state.edges, a, c);
                write(out.add(3 * done), ab, c);
            }
            done += 1;
        }
    }
}

/// The third vertex, remembered where it has to be.
///
/// # Safety
///
/// The memory has room for one more vertex, the data are followed by a tail.
#[inline(always)]
unsafe fn third(state: &mut State, kind: &Kind) -> Option<u32> {
    // SAFETY: one slot is free; a difference of one byte is read from data or tail.
    unsafe {
        if kind.vertex <= 0 {
            state.vertices.write(state.next);
            let c = state.vertices.offset(kind.vertex.into()).read();
            state.vertices = state.vertices.add(kind.new_vertices as usize);
            state.next = state.next.wrapping_add(kind.new_vertices);
            return Some(c);
        }
        state.last = match kind.vertex {
            LAST_MINUS_ONE => state.last.wrapping_sub(1),
            LAST_PLUS_ONE => state.last.wrapping_add(1),
            DIFFERENCE if state.data <= state.data_end && *state.data < 128 => {
                let folded = u32::from(*state.data);
                state.data = state.data.add(1);
                unfold_difference(folded, state.last)
            }
            _ => return None,
        };
        state.vertices.write(state.last);
        state.vertices = state.vertices.add(1);
        Some(state.last)
    }
}
