//! What can be wrong with a stream or with the memory given for it, and where.

#![forbid(unsafe_code)]

use core::fmt;

/// Why a stream was not read or not written. Offsets count bytes from the start of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A triangle list has three indices per triangle.
    NotTriangles {
        /// How many indices were given, or asked for.
        index_count: usize,
    },
    /// The stream ends before what that many indices need at least.
    TooShort {
        /// Its length.
        length_bytes: usize,
        /// The least that can be right.
        needed_bytes: usize,
    },
    /// The first byte does not start a stream of this kind.
    WrongKind {
        /// That byte.
        header: u8,
    },
    /// The stream is of a later version than 1.
    UnknownVersion {
        /// The first byte, which holds the version in its low four bits.
        header: u8,
    },
    /// The data end in the middle of a triangle or of an index.
    DataEnd {
        /// Which triangle, or for a sequence which index, from 0.
        item: usize,
        /// Where its next byte should be: there the tail of the stream begins.
        offset: usize,
    },
    /// Data are left over after the last index.
    DataLeft {
        /// Where the left-over data begin.
        offset: usize,
        /// How much is left.
        left_bytes: usize,
    },
    /// The memory given to the encoder is too small; the bound functions say what always suffices.
    OutputFull {
        /// How much was given.
        capacity_bytes: usize,
    },
    /// A sequence cannot hold a step that wide.
    TooFar {
        /// Where in the list the index stands.
        position: usize,
        /// The index.
        index: u32,
    },
    /// A decoded index addresses no vertex.
    NoSuchVertex {
        /// Where in the list it stands.
        position: usize,
        /// The index.
        index: u32,
        /// How many vertices there are.
        vertex_count: usize,
    },
}

impl Error {
    /// Where in the stream it is wrong; `None` if the stream is not to blame.
    #[must_use]
    pub const fn offset(&self) -> Option<usize> {
        match self {
            Self::TooShort { length_bytes, .. } => Some(*length_bytes),
            Self::WrongKind { .. } | Self::UnknownVersion { .. } => Some(0),
            Self::DataEnd { offset, .. } | Self::DataLeft { offset, .. } => Some(*offset),
            Self::NotTriangles { .. }
            | Self::OutputFull { .. }
            | Self::TooFar { .. }
            | Self::NoSuchVertex { .. } => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotTriangles { index_count } => {
                write!(f, "{index_count} indices do not make whole triangles")
            }
            Self::TooShort { length_bytes, needed_bytes } => write!(
                f,
                "the stream ends at byte {length_bytes}, that many indices need at least \
                 {needed_bytes} bytes"
            ),
            Self::WrongKind { header } => {
                write!(f, "byte 0 is {header:#04x}, which does not start a stream of this kind")
            }
            Self::UnknownVersion { header } => {
                write!(f, "byte 0 is {header:#04x}: version {} is not known", header & 0x0f)
            }
            Self::DataEnd { item, offset } => {
                write!(f, "the data end at byte {offset}, in the middle of item {item}")
            }
            Self::DataLeft { offset, left_bytes } => {
                write!(f, "{left_bytes} bytes from byte {offset} on belong to no index")
            }
            Self::OutputFull { capacity_bytes } => {
                write!(f, "the encoding does not fit into {capacity_bytes} bytes")
            }
            Self::TooFar { position, index } => {
                write!(f, "index {index} at position {position} is 2^30 or more from those before")
            }
            Self::NoSuchVertex { position, index, vertex_count } => {
                write!(f, "index {index} at position {position}, but {vertex_count} vertices")
            }
        }
    }
}

impl core::error::Error for Error {}
