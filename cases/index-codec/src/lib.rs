//! Triangle lists as a few bits per triangle, in the format of meshoptimizer and of the glTF
//! extension `EXT_meshopt_compression` (modes 1, triangles, and 2, index sequence).
//!
//! A triangle list is encoded against two short memories that encoder and decoder keep alike: the
//! last 16 *edges* and the last 16 *vertices*. Most triangles share an edge with one of the last
//! few, and take one byte: which edge, and which third vertex. The order of triangles is kept, the
//! three corners of a triangle may be rotated, the winding is kept.
//!
//! ```
//! use index_codec::{Version, decode_triangles, encode_triangles, triangles_bound};
//!
//! let triangles = [0, 1, 2, 2, 1, 3, 4, 2, 3];
//! let mut stream = vec![0; triangles_bound(triangles.len(), 5)];
//! let length_bytes = encode_triangles(&triangles, Version::V1, &mut stream)?;
//! stream.truncate(length_bytes);
//!
//! let mut decoded = [0_u16; 9];
//! decode_triangles(&stream, &mut decoded)?;
//! assert_eq!(decoded, [0, 1, 2, 2, 1, 3, 2, 3, 4]);
//! # Ok::<(), index_codec::Error>(())
//! ```
//!
//! # Rooms
//!
//! | module | owns |
//! |---|---|
//! | [`mod@checked`] | the decoder without `unsafe`: the definition of what a stream means |
//! | [`mod@fast`] | the default decoder, several times as fast, with the same answers |
//! | [`mod@variants`] | one decoder with four ways to reach its edge memory, for experiments |
//!
//! Nothing here allocates. Streams may come from anywhere: every input gives an [`Error`] or
//! exactly as many indices as were asked for. The format does not bound the indices themselves;
//! whoever uses them to address vertices checks them with [`check_indices`].

#![cfg_attr(not(feature = "std"), no_std)]

pub mod checked;
mod encode;
mod error;
pub mod fast;
mod format;
mod index;
mod sequence;
pub mod variants;
mod varint;

pub use encode::encode_triangles;
pub use error::Error;
pub use fast::decode_triangles;
pub use format::{Kind, Version, kind_of, sequence_bound, triangles_bound};
pub use index::{Index, check_indices};
pub use sequence::{decode_sequence, encode_sequence};
