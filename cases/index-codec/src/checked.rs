//! The decoder without `unsafe`: every access is checked, every step is as the format defines it.
//!
//! It is the reference for the fast one, and what that falls back on to say where a stream is
//! wrong.

#![forbid(unsafe_code)]

use crate::format::{
    self, FIRST_FREE_CODE, FIRST_LONG_CODE, Kind, MEMORY_ENTRIES, TRIANGLES_TAIL_BYTES, Version,
};
use crate::{Error, Index, varint};

/// Decodes as many triangles as `out` holds.
///
/// # Errors
///
/// See [`Error`]; `out` then holds anything.
pub fn decode_triangles<I: Index>(stream: &[u8], out: &mut [I]) -> Result<(), Error> {
    let frame = Frame::of(stream, out.len())?;
    let mut decoder = Decoder::new(&frame);
    for (item, (code, corners)) in frame.codes.iter().zip(out.chunks_exact_mut(3)).enumerate() {
        let at_end = Error::DataEnd { item, offset: stream.len() - TRIANGLES_TAIL_BYTES };
        let triangle = decoder.triangle(*code).ok_or(at_end)?;
        corners.copy_from_slice(&triangle.map(I::narrow));
    }
    match frame.data.len() - decoder.at {
        0 => Ok(()),
        left_bytes => Err(Error::DataLeft {
            offset: stream.len() - TRIANGLES_TAIL_BYTES - left_bytes,
            left_bytes,
        }),
    }
}

/// The parts of a triangle stream.
pub(crate) struct Frame<'a> {
    /// All of it.
    pub stream: &'a [u8],
    pub version: Version,
    /// One per triangle.
    pub codes: &'a [u8],
    /// What the codes leave open.
    pub data: &'a [u8],
    pub table: &'a [u8; TRIANGLES_TAIL_BYTES],
}

impl<'a> Frame<'a> {
    pub(crate) fn of(stream: &'a [u8], index_count: usize) -> Result<Self, Error> {
        if !index_count.is_multiple_of(3) {
            return Err(Error::NotTriangles { index_count });
        }
        let triangle_count = index_count / 3;
        let least = format::least_triangles_bytes(triangle_count);
        let version = format::expect(stream, Kind::Triangles, least)?;
        let too_short = Error::TooShort { length_bytes: stream.len(), needed_bytes: least };
        let (body, table) = stream.split_last_chunk().ok_or(too_short)?;
        let (codes, data) = body[1..].split_at(triangle_count);
        Ok(Self { stream, version, codes, data, table })
    }
}

/// The last 16 entries; age 0 is the last one.
struct Ring<T> {
    entries: [T; MEMORY_ENTRIES],
    next: usize,
}

impl<T: Copy> Ring<T> {
    fn push(&mut self, entry: T) {
        self.entries[self.next % MEMORY_ENTRIES] = entry;
        self.next = self.next.wrapping_add(1);
    }

    fn at(&self, age: u8) -> T {
        self.entries[self.next.wrapping_sub(1 + usize::from(age)) % MEMORY_ENTRIES]
    }
}

struct Decoder<'a> {
    edges: Ring<(u32, u32)>,
    vertices: Ring<u32>,
    /// The lowest index that has not been new yet.
    next: u32,
    /// The last index that was coded as a difference.
    last: u32,
    first_coded_vertex: u8,
    data: &'a [u8],
    /// Where in `data` the next byte is.
    at: usize,
    table: &'a [u8; TRIANGLES_TAIL_BYTES],
}

impl<'a> Decoder<'a> {
    fn new(frame: &Frame<'a>) -> Self {
        Self {
            edges: Ring { entries: [(u32::MAX, u32::MAX); MEMORY_ENTRIES], next: 0 },
            vertices: Ring { entries: [u32::MAX; MEMORY_ENTRIES], next: 0 },
            next: 0,
            last: 0,
            first_coded_vertex: frame.version.first_coded_vertex(),
            data: frame.data,
            at: 0,
            table: frame.table,
        }
    }

    /// `None` if the data end first.
    fn triangle(&mut self, code: u8) -> Option<[u32; 3]> {
        if code >= FIRST_FREE_CODE {
            return self.free(code);
        }
        let (a, b) = self.edges.at(code >> 4);
        let third = code & 15;
        let c = match third {
            0 => self.new_vertex(),
            _ if third < self.first_coded_vertex => self.vertices.at(third),
            _ => {
                self.last = match third {
                    13 => self.last.wrapping_sub(1),
                    14 => self.last.wrapping_add(1),
                    _ => self.difference()?,
                };
                self.last
            }
        };
        if third == 0 || third >= self.first_coded_vertex {
            self.vertices.push(c);
        }
        self.edges.push((c, b));
        self.edges.push((a, c));
        Some([a, b, c])
    }

    /// A triangle without a remembered edge.
    fn free(&mut self, code: u8) -> Option<[u32; 3]> {
        let in_table = code < FIRST_LONG_CODE;
        let places = if in_table { self.table[usize::from(code & 15)] } else { self.byte()? };
        if !in_table && places == 0 {
            self.next = 0;
        }
        let by_difference = |place| place == 15 && !in_table;
        let first = if code == 0xff { 15 } else { 0 };
        let places = [first, places >> 4, places & 15];
        // All new vertices come before the differences, as the encoder counted them.
        let mut corners = places.map(|place| match place {
            0 => self.new_vertex(),
            _ => self.vertices.at(place - 1),
        });
        for (corner, place) in corners.iter_mut().zip(places) {
            if by_difference(place) {
                self.last = self.difference()?;
                *corner = self.last;
            }
        }
        for (corner, place) in corners.iter().zip(places) {
            if place == 0 || by_difference(place) {
                self.vertices.push(*corner);
            }
        }
        let [a, b, c] = corners;
        self.edges.push((b, a));
        self.edges.push((c, b));
        self.edges.push((a, c));
        Some(corners)
    }

    fn new_vertex(&mut self) -> u32 {
        let vertex = self.next;
        self.next = vertex.wrapping_add(1);
        vertex
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = self.data.get(self.at).copied();
        self.at += 1;
        byte
    }

    fn difference(&mut self) -> Option<u32> {
        varint::read(self.data, &mut self.at).map(|v| varint::unfold_difference(v, self.last))
    }
}
