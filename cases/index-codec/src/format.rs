//! The frame that all streams share: header byte, version, smallest and largest length.

#![forbid(unsafe_code)]

use crate::Error;

/// High half of the first byte of a triangle stream.
const TRIANGLES_HEADER: u8 = 0xe0;
/// High half of the first byte of an index sequence.
const SEQUENCE_HEADER: u8 = 0xd0;

/// Bytes behind the data of a triangle stream: a table of 16 codes. Because no triangle has more
/// than 16 bytes of data, it is also what a decoder may read ahead without a check.
pub(crate) const TRIANGLES_TAIL_BYTES: usize = 16;
/// Bytes behind the data of an index sequence, for the same reason: an index has at most 5.
pub(crate) const SEQUENCE_TAIL_BYTES: usize = 4;

/// How many edges and how many vertices encoder and decoder remember.
pub(crate) const MEMORY_ENTRIES: usize = 16;

/// From this code on a triangle shares no remembered edge.
pub(crate) const FIRST_FREE_CODE: u8 = 0xf0;
/// From this code on the vertices of such a triangle are told in a byte of their own, not by the
/// table: 0xfe if the first one is new, 0xff if it is coded as a difference.
pub(crate) const FIRST_LONG_CODE: u8 = 0xfe;

/// Version of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// The first one.
    V0,
    /// Adds short codes for a vertex beside the last one, and for starting over at vertex 0.
    #[default]
    V1,
}

impl Version {
    const fn bits(self) -> u8 {
        match self {
            Self::V0 => 0,
            Self::V1 => 1,
        }
    }

    /// Third vertices are looked up in the vertex memory below this code, and coded from it on.
    pub(crate) const fn first_coded_vertex(self) -> u8 {
        match self {
            Self::V0 => 15,
            Self::V1 => 13,
        }
    }
}

/// What a stream holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A triangle list, for [`crate::decode_triangles`].
    Triangles,
    /// Indices of any topology, for [`crate::decode_sequence`].
    Sequence,
}

impl Kind {
    pub(crate) const fn header(self, version: Version) -> u8 {
        let kind = match self {
            Self::Triangles => TRIANGLES_HEADER,
            Self::Sequence => SEQUENCE_HEADER,
        };
        kind | version.bits()
    }
}

/// What a stream says it holds, and in which version.
///
/// # Errors
///
/// An empty stream, an unknown first byte, or a version later than 1.
pub fn kind_of(stream: &[u8]) -> Result<(Kind, Version), Error> {
    let &header = stream.first().ok_or(Error::TooShort { length_bytes: 0, needed_bytes: 1 })?;
    let kind = match header & 0xf0 {
        TRIANGLES_HEADER => Kind::Triangles,
        SEQUENCE_HEADER => Kind::Sequence,
        _ => return Err(Error::WrongKind { header }),
    };
    match header & 0x0f {
        0 => Ok((kind, Version::V0)),
        1 => Ok((kind, Version::V1)),
        _ => Err(Error::UnknownVersion { header }),
    }
}

/// The version of a stream that must be of this kind and at least that long.
pub(crate) fn expect(stream: &[u8], kind: Kind, needed_bytes: usize) -> Result<Version, Error> {
    if stream.len() < needed_bytes {
        return Err(Error::TooShort { length_bytes: stream.len(), needed_bytes });
    }
    match kind_of(stream)? {
        (found, version) if found == kind => Ok(version),
        _ => Err(Error::WrongKind { header: stream[0] }),
    }
}

/// The shortest stream of that many triangles: header, one code each, and the table.
pub(crate) const fn least_triangles_bytes(triangle_count: usize) -> usize {
    1 + triangle_count + TRIANGLES_TAIL_BYTES
}

/// The shortest stream of that many indices: header, one byte each, and the tail.
pub(crate) const fn least_sequence_bytes(index_count: usize) -> usize {
    (1 + SEQUENCE_TAIL_BYTES).saturating_add(index_count)
}

/// No encoding of `index_count` indices, each below `vertex_count`, is longer than this many
/// bytes: what to allocate for [`crate::encode_triangles`].
#[must_use]
pub const fn triangles_bound(index_count: usize, vertex_count: usize) -> usize {
    // A difference needs a sign bit; seven bits go into a byte.
    let bytes_per_vertex = (index_bits(vertex_count) + 1).div_ceil(7);
    // A code, a byte that tells where the vertices come from, and three differences.
    let bytes_per_triangle = 2 + 3 * bytes_per_vertex;
    (index_count / 3).saturating_mul(bytes_per_triangle).saturating_add(1 + TRIANGLES_TAIL_BYTES)
}

/// No encoding of `index_count` indices, each below `vertex_count`, is longer than this many
/// bytes: what to allocate for [`crate::encode_sequence`].
#[must_use]
pub const fn sequence_bound(index_count: usize, vertex_count: usize) -> usize {
    // A sign bit, and one that tells which of the two last indices is the base.
    let bytes_per_index = (index_bits(vertex_count) + 2).div_ceil(7);
    index_count.saturating_mul(bytes_per_index).saturating_add(1 + SEQUENCE_TAIL_BYTES)
}

/// Bits that hold every index below `vertex_count`.
const fn index_bits(vertex_count: usize) -> usize {
    let mut bits = 1;
    while bits < 32 && vertex_count > 1 << bits {
        bits += 1;
    }
    bits
}
