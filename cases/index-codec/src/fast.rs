//! The default decoder: the same answers as [`crate::checked`], several times as fast.
//!
//! # How
//!
//! Codes are worked off in blocks of 256. A table of 256 entries tells for each code what there is
//! to do (`common`), and nearly all codes are done in one loop of some 24 instructions per
//! triangle, on x86-64 in assembly. What is rare in real meshes leaves that loop (`rare`).
//!
//! # What was tried, and what it gained
//!
//! Cycles per triangle on a Zen 5 core at 4.2 GHz, on strips / an optimised grid / random
//! triangles, each line including those above it. meshoptimizer 0.25 by clang 19: 7.1 / 8.3 / 51.
//!
//! | step | strips | grid | random |
//! |---|---|---|---|
//! | checked decoder, rings with masked positions | 24.2 | 25.3 | 84 |
//! | raw pointers; memories grow linearly through a block instead of wrapping round, so no position is masked; the last two edges kept in registers and chosen by conditional moves | 7.8 | 9.2 | 52 |
//! | common codes in an assembly loop with one table entry per code; three differences found with one byte mask | 5.7 | 8.6 | 27 |
//! | third vertices by difference in the same loop; codes copied in front of an end mark, so that the loop counts nothing | 6.0 | 7.1 | 29 |
//! | two triangles per turn, the table tells how far "next" moves | 5.2 | 6.6 | 28 |
//! | memories moved between blocks in the widths in which they were written, which `scan` asked for; no arrays zipped in the rare path | 5.2 | 6.7 | 30 |
//!
//! What each idea is for:
//!
//! - *The last two edges stay in registers.* In strips each triangle reads the edge that the one
//!   before it wrote; through memory that is a chain of one store forwarding per triangle. The
//!   edge is also stored, as one 8-byte number, and older ones are loaded with one 8-byte load, so
//!   that widths always match. For an edge in a register the load reads an entry 15 back, which no
//!   recent store wrote, and its result is dropped.
//! - *The next new vertex is stored before it is asked for*, in the place that it will have. Then
//!   "new" and "remembered" are the same load at different distances: no branch, no comparison.
//! - *Tried and dropped:* the one to three differences of a triangle without a remembered edge by one
//!   branch-free path, whatever their number: 54 instead of 28 on random triangles and 55 instead of
//!   49 on a scanned model, probably because each difference then waits for the one before.
//! - *Fewer instructions.* Of one triangle per turn in 5.7 cycles, taking out both conditional moves
//!   or both output stores gained half a cycle, taking out the load or the store of the vertex
//!   nothing: no single latency binds the loop. So what is left is to spend less on each triangle.
//!
//! # Placement
//!
//! The loop is aligned to a cache line by the assembler; moving the code by 16 bytes at a time
//! changes nothing beyond 1 %.

mod common;
mod rare;
mod scratch;

use crate::checked::{self, Frame};
use crate::format::{FIRST_FREE_CODE, TRIANGLES_TAIL_BYTES};
use crate::variants::Paired;
use crate::{Error, Index, Version};
pub(crate) use common::Portable;
use common::{Common, Native};
use scratch::{BLOCK_TRIANGLES, Scratch};

/// Decodes as many triangles as `out` holds.
///
/// # Errors
///
/// See [`Error`]; `out` then holds anything.
pub fn decode_triangles<I: Index>(stream: &[u8], out: &mut [I]) -> Result<(), Error> {
    decode_with::<I, Native>(stream, out)
}

/// The same without assembly: what other processors run.
///
/// # Errors
///
/// See [`Error`]; `out` then holds anything.
pub fn decode_triangles_portably<I: Index>(stream: &[u8], out: &mut [I]) -> Result<(), Error> {
    decode_with::<I, Portable<Paired>>(stream, out)
}

#[inline(always)]
pub(crate) fn decode_with<I: Index, C: Common>(stream: &[u8], out: &mut [I]) -> Result<(), Error> {
    let frame = Frame::of(stream, out.len())?;
    let sound = match frame.version {
        Version::V0 => decode::<I, C, 15>(&frame, out),
        Version::V1 => decode::<I, C, 13>(&frame, out),
    };
    // Where it is wrong costs nothing to know as long as nothing is wrong.
    if sound { Ok(()) } else { checked::decode_triangles(stream, out) }
}

/// Where the decoder stands.
pub(crate) struct State {
    /// The lowest index that has not been new yet.
    next: u32,
    /// The last index that was coded as a difference.
    last: u32,
    /// The next byte of data.
    data: *const u8,
    /// Where the data end. [`TRIANGLES_TAIL_BYTES`] more can be read.
    data_end: *const u8,
    /// The last edge; older ones lie behind it.
    edges: *mut u64,
    /// Where the next vertex goes; the last ones lie before it.
    vertices: *mut u32,
}

/// Whether the stream is sound; `CODED` is its [`Version::first_coded_vertex`].
#[inline(always)]
fn decode<I: Index, C: Common, const CODED: u8>(frame: &Frame<'_>, out: &mut [I]) -> bool {
    let mut scratch = Scratch::new();
    let home = scratch.start();
    // From one pointer to data and tail, so that a read may run from one into the other.
    let stream: *const u8 = frame.stream.as_ptr();
    let at_data = frame.stream.len() - TRIANGLES_TAIL_BYTES - frame.data.len();
    let mut state = State {
        next: 0,
        last: 0,
        data: stream.wrapping_add(at_data),
        data_end: stream.wrapping_add(at_data + frame.data.len()),
        edges: home.edges,
        vertices: home.vertices,
    };
    let blocks = frame.codes.chunks(BLOCK_TRIANGLES).zip(out.chunks_mut(3 * BLOCK_TRIANGLES));
    for (codes, out) in blocks {
        home.rewind::<C::Access>(&mut state);
        debug_assert_eq!(out.len(), 3 * codes.len());
        // SAFETY: both memories have been rewound, so they have room for a block; there are three
        // indices of `out` per code; data lie before the tail of a stream that outlives this.
        if !unsafe { block::<I, C, CODED>(&mut state, codes, out.as_mut_ptr(), frame.table) } {
            return false;
        }
    }
    state.data == state.data_end
}

/// Decodes a block; false when the data have ended before.
///
/// # Safety
///
/// `codes` are at most [`BLOCK_TRIANGLES`], `out` has room for three indices each. The memories in
/// `state` hold 16 entries and have room for three more per code, and one vertex beyond.
/// `state.data` and `state.data_end` belong to one stream, with the tail behind `data_end`.
#[inline(always)]
unsafe fn block<I: Index, C: Common, const CODED: u8>(
    state: &mut State,
    codes: &[u8],
    out: *mut I,
    table: &[u8; TRIANGLES_TAIL_BYTES],
) -> bool {
    // Behind the last code stands one that is never common: there the loop stops by itself.
    let mut marked = [0xff_u8; BLOCK_TRIANGLES + 1];
    marked[..codes.len()].copy_from_slice(codes);
    let mut done = 0;
    loop {
        // SAFETY: `marked` ends in a code that is not common, the rest is promised by the caller.
        done = unsafe { C::run::<I, CODED>(state, &marked, done, out) };
        while done < codes.len() {
            if state.data > state.data_end {
                return false;
            }
            // SAFETY: there is a code left, so room for a triangle in `out` and in the memories;
            // data have not ended, and the tail is as long as the data of a triangle can be.
            unsafe {
                rare::triangle::<I, C::Access>(state, marked[done], out.add(3 * done), table)
            };
            done += 1;
            // Triangles in random order are all of this kind: then do not leave in between.
            if marked[done] < FIRST_FREE_CODE {
                break;
            }
        }
        if done == codes.len() {
            return true;
        }
    }
}

/// Writes a triangle.
///
/// # Safety
///
/// `out` has room for three indices.
#[inline(always)]
unsafe fn write<I: Index>(out: *mut I, ab: u64, c: u32) {
    // SAFETY: as the caller promises; an index is two or four bytes long.
    unsafe {
        if size_of::<I>() == 4 && cfg!(target_endian = "little") {
            out.cast::<u64>().write_unaligned(ab);
        } else {
            out.write(I::narrow(ab as u32));
            out.add(1).write(I::narrow((ab >> 32) as u32));
        }
        out.add(2).write(I::narrow(c));
    }
}

/// An edge as it is remembered: the first vertex in the low half.
#[inline(always)]
pub(crate) fn edge(from: u32, to: u32) -> u64 {
    u64::from(from) | u64::from(to) << 32
}
