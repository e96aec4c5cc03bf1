//! The triangle encoder.
//!
//! Writes the very bytes that meshoptimizer writes, but for one case in which those do not decode
//! to what was encoded: see [`recent::Recent::forget`].
//!
//! What it spends its time on is asking the two memories for an edge or a vertex; how that became
//! cheap is told in [`recent`].

#![forbid(unsafe_code)]

mod recent;

use crate::format::{
    self, FIRST_FREE_CODE, FIRST_LONG_CODE, Kind, MEMORY_ENTRIES, TRIANGLES_TAIL_BYTES, Version,
};
use crate::{Error, varint};
use recent::Recent;

/// The frequent ways in which the second and third vertex of a triangle without a remembered edge
/// are coded, as meshoptimizer chose them: high and low half of a byte, 0 for the next new vertex,
/// 1 to 14 for a remembered one. The last two are not used, they fill the tail.
const TABLE: [u8; TRIANGLES_TAIL_BYTES] = [
    0x00, 0x76, 0x87, 0x56, 0x67, 0x78, 0xa9, 0x86, 0x65, 0x89, 0x68, 0x98, 0x01, 0x69, 0x00, 0x00,
];
const TABLE_USED: usize = 14;
/// In [`POSITION_IN_TABLE`]: not there.
const NOWHERE: u8 = 0xff;
/// Where in [`TABLE`] a byte stands.
static POSITION_IN_TABLE: [u8; 256] = positions();

const fn positions() -> [u8; 256] {
    let mut positions = [NOWHERE; 256];
    let mut position = TABLE_USED;
    while position > 0 {
        position -= 1;
        positions[TABLE[position] as usize] = position as u8;
    }
    positions
}

/// A vertex that is coded as the difference to the last one so coded.
const BY_DIFFERENCE: u8 = 15;
/// A vertex that is the next new one.
const NEXT: u8 = 0;
/// Only the last 15 edges have a code.
const CODED_EDGES: usize = MEMORY_ENTRIES - 1;

/// Encodes a triangle list and returns how many bytes of `out` it takes.
/// [`crate::triangles_bound`] tells how large `out` must be in any case.
///
/// # Errors
///
/// [`Error::NotTriangles`], and [`Error::OutputFull`].
pub fn encode_triangles(indices: &[u32], version: Version, out: &mut [u8]) -> Result<usize, Error> {
    let (triangles, rest) = indices.as_chunks::<3>();
    if !rest.is_empty() {
        return Err(Error::NotTriangles { index_count: indices.len() });
    }
    let capacity_bytes = out.len();
    let full = Error::OutputFull { capacity_bytes };
    if capacity_bytes < format::least_triangles_bytes(triangles.len()) {
        return Err(full);
    }
    let (head, data) = out.split_at_mut(1 + triangles.len());
    head[0] = Kind::Triangles.header(version);
    let data_end = data.len() - TRIANGLES_TAIL_BYTES;
    let mut encoder = Encoder::new(version, &mut data[..data_end]);
    for (code, triangle) in head[1..].iter_mut().zip(triangles) {
        *code = encoder.triangle(*triangle).ok_or(full)?;
    }
    let at = encoder.at;
    data[at..at + TRIANGLES_TAIL_BYTES].copy_from_slice(&TABLE);
    Ok(1 + triangles.len() + at + TRIANGLES_TAIL_BYTES)
}

/// What the decoder will know, too, at this point of the stream.
struct Encoder<'a> {
    edges: Recent<u64>,
    vertices: Recent<u32>,
    /// The lowest index that has not been new yet.
    next: u32,
    /// The last index that was coded as a difference.
    last: u32,
    first_coded_vertex: u8,
    data: &'a mut [u8],
    /// Where in `data` the next byte goes.
    at: usize,
}

impl<'a> Encoder<'a> {
    fn new(version: Version, data: &'a mut [u8]) -> Self {
        Self {
            edges: Recent::new(u64::MAX),
            vertices: Recent::new(u32::MAX),
            next: 0,
            last: 0,
            first_coded_vertex: version.first_coded_vertex(),
            data,
            at: 0,
        }
    }

    /// The code of one triangle; its data are written. `None` if they do not fit.
    #[inline(always)]
    fn triangle(&mut self, [a, b, c]: [u32; 3]) -> Option<u8> {
        match self.edges.find_edge([edge(a, b), edge(b, c), edge(c, a)], CODED_EDGES) {
            Some((age, which)) => {
                // Turned so that the remembered edge comes first; by loads, because which one it
                // is cannot be predicted.
                let corners = [a, b, c, a, b];
                self.at_edge(age, corners[which], corners[which + 1], corners[which + 2])
            }
            None => self.free(rotated([a, b, c], self.next)),
        }
    }

    /// A triangle at a remembered edge.
    #[inline(always)]
    fn at_edge(&mut self, age: usize, a: u32, b: u32, c: u32) -> Option<u8> {
        let limit = usize::from(self.first_coded_vertex);
        let third = match self.vertices.find(c, limit) {
            // The youngest vertex belongs to the edge, so its code is free to mean the next one.
            Some(age) if age > 0 => age as u8,
            _ => {
                let third = self.unremembered(c)?;
                self.vertices.push(c);
                third
            }
        };
        self.edges.push(edge(c, b));
        self.edges.push(edge(a, c));
        Some((age as u8) << 4 | third)
    }

    /// The code of a third vertex that is not remembered.
    fn unremembered(&mut self, c: u32) -> Option<u8> {
        if c == self.next {
            self.next = self.next.wrapping_add(1);
            return Some(NEXT);
        }
        let last = self.last;
        let coded = self.first_coded_vertex < BY_DIFFERENCE;
        if coded && c.wrapping_add(1) == last {
            self.last = c;
            return Some(13);
        }
        if coded && c == last.wrapping_add(1) {
            self.last = c;
            return Some(14);
        }
        self.write_difference(c)?;
        Some(BY_DIFFERENCE)
    }

    /// A triangle without a remembered edge.
    fn free(&mut self, [a, b, c]: [u32; 3]) -> Option<u8> {
        // Several meshes behind each other: start over, so that "next" keeps being useful.
        let starts_over =
            [a, b, c] == [0, 1, 2] && self.next > 0 && self.first_coded_vertex < BY_DIFFERENCE;
        if starts_over {
            self.next = 0;
            self.vertices.forget();
        }
        let found = [b, c].map(|vertex| self.vertices.find(vertex, TABLE_USED));
        let first = if self.is_next(a) { NEXT } else { BY_DIFFERENCE };
        let second = self.place(b, found[0]);
        let third = self.place(c, found[1]);
        let places = second << 4 | third;
        let position = POSITION_IN_TABLE[usize::from(places)];
        let code = if first == NEXT && position != NOWHERE && !starts_over {
            FIRST_FREE_CODE | position
        } else {
            *self.data.get_mut(self.at)? = places;
            self.at += 1;
            FIRST_LONG_CODE | first
        };
        for (vertex, place) in [(a, first), (b, second), (c, third)] {
            if place == BY_DIFFERENCE {
                self.write_difference(vertex)?;
            }
            if place == NEXT || place == BY_DIFFERENCE {
                self.vertices.push(vertex);
            }
        }
        self.edges.push(edge(b, a));
        self.edges.push(edge(c, b));
        self.edges.push(edge(a, c));
        Some(code)
    }

    /// How the second or third vertex of a free triangle is coded.
    fn place(&mut self, vertex: u32, found: Option<usize>) -> u8 {
        match found {
            Some(age) => age as u8 + 1,
            None if self.is_next(vertex) => NEXT,
            None => BY_DIFFERENCE,
        }
    }

    /// Whether this is the next new vertex; then it no longer is.
    fn is_next(&mut self, vertex: u32) -> bool {
        let is = vertex == self.next;
        self.next = self.next.wrapping_add(is.into());
        is
    }

    fn write_difference(&mut self, vertex: u32) -> Option<()> {
        varint::write(self.data, &mut self.at, varint::fold_difference(vertex, self.last))?;
        self.last = vertex;
        Some(())
    }
}

/// An edge as one number, so that comparing takes one operation: the first vertex in the low half.
#[inline]
fn edge(from: u32, to: u32) -> u64 {
    u64::from(from) | u64::from(to) << 32
}

/// The triangle turned so that a new vertex comes first: only the first one is coded in no bits.
fn rotated([a, b, c]: [u32; 3], next: u32) -> [u32; 3] {
    if b == next {
        [b, c, a]
    } else if c == next {
        [c, a, b]
    } else {
        [a, b, c]
    }
}
