//! A decoder built like meshoptimizer's: rings of 16 entries whose positions are masked, and a
//! branch for each kind of code. Only the memory of edges is reached without checks, by the
//! access that is being tried.

use core::array;
use core::hint::select_unpredictable;

use super::EdgeAccess;
use crate::checked::{self, Frame};
use crate::format::{FIRST_FREE_CODE, FIRST_LONG_CODE, MEMORY_ENTRIES, Version};
use crate::{Error, Index, varint};

const MASK: usize = MEMORY_ENTRIES - 1;
const BY_DIFFERENCE: u8 = 15;

#[inline(always)]
pub(super) fn decode_triangles<A: EdgeAccess, I: Index>(
    stream: &[u8],
    out: &mut [I],
) -> Result<(), Error> {
    let frame = Frame::of(stream, out.len())?;
    match decode::<A, I>(&frame, out) {
        Some(read_bytes) if read_bytes == frame.data.len() => Ok(()),
        // To be told where it is wrong.
        _ => checked::decode_triangles(stream, out),
    }
}

/// How many bytes of data were read; `None` if they ended too early.
#[inline(always)]
fn decode<A: EdgeAccess, I: Index>(frame: &Frame<'_>, out: &mut [I]) -> Option<usize> {
    let mut edges = Edges { ring: [u64::MAX; MEMORY_ENTRIES], next: 0 };
    let mut rest = Rest {
        vertices: [u32::MAX; MEMORY_ENTRIES],
        vertex: 0,
        next: 0,
        last: 0,
        first_coded_vertex: if frame.version == Version::V0 { 15 } else { 13 },
        at: 0,
    };
    for (&code, out) in frame.codes.iter().zip(out.chunks_exact_mut(3)) {
        let [a, b, c] = if code < FIRST_FREE_CODE {
            let ab = edges.at::<A>(code >> 4);
            let (a, b) = (ab as u32, (ab >> 32) as u32);
            let c = rest.third(code & 15, frame.data)?;
            edges.push::<A>(c, b);
            edges.push::<A>(a, c);
            [a, b, c]
        } else {
            let [a, b, c] = rest.free(code, frame)?;
            edges.push::<A>(b, a);
            edges.push::<A>(c, b);
            edges.push::<A>(a, c);
            [a, b, c]
        };
        out[0] = I::narrow(a);
        out[1] = I::narrow(b);
        out[2] = I::narrow(c);
    }
    Some(rest.at)
}

/// The ring of edges.
struct Edges {
    ring: [u64; MEMORY_ENTRIES],
    next: usize,
}

impl Edges {
    #[inline(always)]
    fn at<A: EdgeAccess>(&self, age: u8) -> u64 {
        let place = self.next.wrapping_sub(1 + usize::from(age)) & MASK;
        // SAFETY: a place in the ring.
        unsafe { A::load(&raw const self.ring[place]) }
    }

    #[inline(always)]
    fn push<A: EdgeAccess>(&mut self, from: u32, to: u32) {
        // SAFETY: a place in the ring.
        unsafe { A::store(&raw mut self.ring[self.next & MASK], from, to) };
        self.next = self.next.wrapping_add(1);
    }
}

/// All that does not depend on edges.
struct Rest {
    vertices: [u32; MEMORY_ENTRIES],
    /// Where in the ring the next vertex goes.
    vertex: usize,
    next: u32,
    last: u32,
    first_coded_vertex: u8,
    at: usize,
}

impl Rest {
    #[inline(always)]
    fn remembered(&self, age: u8) -> u32 {
        self.vertices[self.vertex.wrapping_sub(1 + usize::from(age)) & MASK]
    }

    #[inline(always)]
    fn push_if(&mut self, vertex: u32, really: bool) {
        self.vertices[self.vertex & MASK] = vertex;
        self.vertex = self.vertex.wrapping_add(really.into());
    }

    #[inline(always)]
    fn new_or(&mut self, is_new: bool, remembered: u32) -> u32 {
        let vertex = select_unpredictable(is_new, self.next, remembered);
        self.next = self.next.wrapping_add(is_new.into());
        vertex
    }

    #[inline(always)]
    fn third(&mut self, third: u8, data: &[u8]) -> Option<u32> {
        if third < self.first_coded_vertex {
            let is_new = third == 0;
            let c = self.new_or(is_new, self.remembered(third));
            self.push_if(c, is_new);
            return Some(c);
        }
        let c = match third {
            13 => self.last.wrapping_sub(1),
            14 => self.last.wrapping_add(1),
            _ => self.difference(data)?,
        };
        self.last = c;
        self.push_if(c, true);
        Some(c)
    }

    /// Not part of the loop that is looked at.
    #[inline(never)]
    fn free(&mut self, code: u8, frame: &Frame<'_>) -> Option<[u32; 3]> {
        let in_table = code < FIRST_LONG_CODE;
        let places = if in_table {
            frame.table[usize::from(code & 15)]
        } else {
            self.at += 1;
            *frame.data.get(self.at - 1)?
        };
        if !in_table && places == 0 {
            self.next = 0;
        }
        let first = if code == u8::MAX { BY_DIFFERENCE } else { 0 };
        let places = [first, places >> 4, places & 15];
        let mut corners = places
            .map(|place| self.new_or(place == 0, self.remembered(place.wrapping_sub(1) & 15)));
        let differs: [bool; 3] = array::from_fn(|n| !in_table && places[n] == BY_DIFFERENCE);
        for (corner, differs) in corners.iter_mut().zip(differs) {
            if differs {
                *corner = self.difference(frame.data)?;
                self.last = *corner;
            }
        }
        for ((corner, place), differs) in corners.iter().zip(places).zip(differs) {
            self.push_if(*corner, place == 0 || differs);
        }
        Some(corners)
    }

    #[inline(always)]
    fn difference(&mut self, data: &[u8]) -> Option<u32> {
        match data.get(self.at) {
            Some(byte) if *byte < 128 => {
                self.at += 1;
                Some(varint::unfold_difference((*byte).into(), self.last))
            }
            _ => self.long_difference(data),
        }
    }

    #[inline(never)]
    fn long_difference(&mut self, data: &[u8]) -> Option<u32> {
        varint::read(data, &mut self.at).map(|n| varint::unfold_difference(n, self.last))
    }
}
