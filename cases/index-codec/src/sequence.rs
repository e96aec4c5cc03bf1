//! Index sequences: any list of indices, each as a difference to one of the last two baselines.
//!
//! The lowest bit of a coded number tells which baseline, the next one holds the sign. The encoder
//! changes to the other baseline when the difference would not fit a byte.

#![forbid(unsafe_code)]

use crate::format::{self, Kind, SEQUENCE_TAIL_BYTES, Version};
use crate::{Error, Index, varint};

/// A larger difference than this, forth or back, makes the encoder try the other baseline.
const LARGEST_NEAR_DIFFERENCE: u32 = 29;
/// A number has 32 bits in the stream, of which one tells the baseline.
const LARGEST_FOLDED: u32 = u32::MAX >> 1;

/// Encodes indices in their order and returns how many bytes of `out` they take.
/// [`crate::sequence_bound`] tells how large `out` must be in any case.
///
/// # Errors
///
/// [`Error::OutputFull`], and [`Error::TooFar`] for an index 2^30 or more away from both
/// baselines: the format has no bits for that. (meshoptimizer writes a stream there that decodes to
/// another index.)
pub fn encode_sequence(indices: &[u32], version: Version, out: &mut [u8]) -> Result<usize, Error> {
    let full = Error::OutputFull { capacity_bytes: out.len() };
    if out.len() < format::least_sequence_bytes(indices.len()) {
        return Err(full);
    }
    out[0] = Kind::Sequence.header(version);
    let data_end = out.len() - SEQUENCE_TAIL_BYTES;
    let mut at = 1;
    let mut baselines = [0_u32; 2];
    let mut current = 0;
    for (position, &index) in indices.iter().enumerate() {
        let difference = index.wrapping_sub(baselines[current]).cast_signed();
        if difference.unsigned_abs() > LARGEST_NEAR_DIFFERENCE {
            current ^= 1;
        }
        let mut folded = varint::fold_difference(index, baselines[current]);
        if folded > LARGEST_FOLDED {
            current ^= 1;
            folded = varint::fold_difference(index, baselines[current]);
            if folded > LARGEST_FOLDED {
                return Err(Error::TooFar { position, index });
            }
        }
        varint::write(&mut out[..data_end], &mut at, (folded << 1) | current as u32).ok_or(full)?;
        baselines[current] = index;
    }
    out[at..at + SEQUENCE_TAIL_BYTES].fill(0);
    Ok(at + SEQUENCE_TAIL_BYTES)
}

/// Decodes as many indices as `out` holds.
///
/// # Errors
///
/// See [`Error`]; `out` then holds anything.
pub fn decode_sequence<I: Index>(stream: &[u8], out: &mut [I]) -> Result<(), Error> {
    format::expect(stream, Kind::Sequence, format::least_sequence_bytes(out.len()))?;
    let data = &stream[..stream.len() - SEQUENCE_TAIL_BYTES];
    let mut at = 1;
    let mut baselines = [0_u32; 2];
    for (item, slot) in out.iter_mut().enumerate() {
        let coded = varint::read(data, &mut at).ok_or(Error::DataEnd { item, offset: at })?;
        let baseline = &mut baselines[(coded & 1) as usize];
        *baseline = varint::unfold_difference(coded >> 1, *baseline);
        *slot = I::narrow(*baseline);
    }
    match data.len() - at {
        0 => Ok(()),
        left_bytes => Err(Error::DataLeft { offset: at, left_bytes }),
    }
}
