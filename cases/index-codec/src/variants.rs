//! One decoder with four ways to reach its memory of edges, for experiments: what a compiler may
//! choose, chosen by hand and pinned.
//!
//! An edge is two 32-bit indices. Written and read in the same widths, or written wide and read
//! narrow, a load is served by the store before it. Written in two halves and read as one, no
//! single store in the store buffer holds what the load wants, and it waits until both are in the
//! cache: [`WideLoad`] is that conflict.
//!
//! Each comes with two decoders around it: [`decode_plainly`] is built like meshoptimizer's, with
//! rings and branches, and [`decode_by_table`] like the default one, with the last two edges in
//! registers and straight memories, but in Rust.
//!
//! Accesses are volatile: the compiler must do each of them as it is written, and may neither
//! merge nor split nor drop it.

mod plain;

use crate::fast::{self, edge};
use crate::{Error, Index};

/// How an edge is written to memory and read back.
pub trait EdgeAccess: sealed::Sealed {
    /// Reads an edge, first vertex in the low half.
    ///
    /// # Safety
    ///
    /// There is an edge.
    unsafe fn load(at: *const u64) -> u64;

    /// Writes an edge.
    ///
    /// # Safety
    ///
    /// There is room for it.
    unsafe fn store(at: *mut u64, from: u32, to: u32);
}

mod sealed {
    /// Decoders rely on what comes back being what was written.
    pub trait Sealed {}
}

/// Reads both halves for themselves.
///
/// # Safety
///
/// There is an edge.
#[inline(always)]
unsafe fn load_narrow(at: *const u64) -> u64 {
    let halves = at.cast::<u32>();
    // SAFETY: an edge has two halves.
    unsafe { edge(halves.read_volatile(), halves.add(1).read_volatile()) }
}

/// Writes both halves for themselves.
///
/// # Safety
///
/// There is room for an edge.
#[inline(always)]
unsafe fn store_narrow(at: *mut u64, from: u32, to: u32) {
    let halves = at.cast::<u32>();
    // SAFETY: an edge has two halves.
    unsafe {
        halves.write_volatile(from);
        halves.add(1).write_volatile(to);
    }
}

/// Reads an edge as one number, on any byte order.
///
/// # Safety
///
/// There is an edge.
#[inline(always)]
unsafe fn load_wide(at: *const u64) -> u64 {
    // SAFETY: as the caller promises.
    u64::from_le(unsafe { at.read_volatile() })
}

/// Writes an edge as one number, on any byte order.
///
/// # Safety
///
/// There is room for an edge.
#[inline(always)]
unsafe fn store_wide(at: *mut u64, from: u32, to: u32) {
    // SAFETY: as the caller promises.
    unsafe { at.write_volatile(edge(from, to).to_le()) }
}

macro_rules! access {
    ($(#[$doc:meta])* $name:ident, $load:ident, $store:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl sealed::Sealed for $name {}

        impl EdgeAccess for $name {
            #[inline(always)]
            unsafe fn load(at: *const u64) -> u64 {
                // SAFETY: the same promise.
                unsafe { $load(at) }
            }

            #[inline(always)]
            unsafe fn store(at: *mut u64, from: u32, to: u32) {
                // SAFETY: the same promise.
                unsafe { $store(at, from, to) }
            }
        }
    };
}

access!(
    /// Two 32-bit stores, two 32-bit loads: what clang makes of meshoptimizer, but for clang 16.
    Narrow, load_narrow, store_narrow
);
access!(
    /// One 64-bit store, one 64-bit load.
    Paired, load_wide, store_wide
);
access!(
    /// Two 32-bit stores, one 64-bit load: the conflict, which clang 16 and gcc 15.1 made.
    WideLoad, load_wide, store_narrow
);
access!(
    /// One 64-bit store, two 32-bit loads: what gcc 11 to 14 made.
    WideStore, load_narrow, store_wide
);

/// Decodes with rings of 16 entries and branches, like meshoptimizer.
///
/// # Errors
///
/// See [`Error`]; `out` then holds anything.
#[inline(always)]
pub fn decode_plainly<A: EdgeAccess, I: Index>(stream: &[u8], out: &mut [I]) -> Result<(), Error> {
    plain::decode_triangles::<A, I>(stream, out)
}

/// Decodes like the default decoder, without its assembly.
///
/// # Errors
///
/// See [`Error`]; `out` then holds anything.
#[inline(always)]
pub fn decode_by_table<A: EdgeAccess, I: Index>(stream: &[u8], out: &mut [I]) -> Result<(), Error> {
    fast::decode_with::<I, fast::Portable<A>>(stream, out)
}
