//! The same bytes as meshoptimizer, and the same triangles from its bytes.

mod reference;
mod shapes;

use index_codec::{
    Version, checked, decode_sequence, decode_triangles, encode_sequence, encode_triangles,
    sequence_bound, triangles_bound,
};
use reference::{their_decoding, their_encoding};
use shapes::assert_same_triangles;

const VERSIONS: [Version; 2] = [Version::V0, Version::V1];

fn vertex_count(indices: &[u32]) -> usize {
    indices.iter().max().map_or(0, |i| *i as usize + 1)
}

fn ours(indices: &[u32], version: Version) -> Vec<u8> {
    let mut out = vec![0; triangles_bound(indices.len(), vertex_count(indices))];
    let length_bytes = encode_triangles(indices, version, &mut out).expect("the bound suffices");
    out.truncate(length_bytes);
    out
}

fn our_sequence(indices: &[u32], version: Version) -> Vec<u8> {
    let mut out = vec![0; sequence_bound(indices.len(), vertex_count(indices))];
    let length_bytes = encode_sequence(indices, version, &mut out).expect("the bound suffices");
    out.truncate(length_bytes);
    out
}

#[test]
fn triangle_streams_are_the_same_bytes() {
    for (name, indices) in reference::all() {
        for version in VERSIONS {
            let stream = ours(&indices, version);
            assert!(stream == their_encoding(&indices, version, false), "{name} {version:?}");
        }
    }
}

#[test]
fn both_decoders_read_triangles_alike() {
    for (name, indices) in reference::all() {
        for version in VERSIONS {
            let stream = their_encoding(&indices, version, false);
            let theirs = their_decoding(&stream, indices.len(), false).expect("their own");
            assert_same_triangles(name, &indices, &theirs);
            let mut decoded = vec![0_u32; indices.len()];
            checked::decode_triangles(&stream, &mut decoded).expect("a sound stream");
            assert!(decoded == theirs, "{name} {version:?}, checked");
            decoded.fill(0);
            decode_triangles(&stream, &mut decoded).expect("a sound stream");
            assert!(decoded == theirs, "{name} {version:?}");
            let mut narrow = vec![0_u16; indices.len()];
            decode_triangles(&stream, &mut narrow).expect("a sound stream");
            assert!(narrow.iter().zip(&theirs).all(|(n, t)| *n == *t as u16), "{name}, u16");
        }
    }
}

#[test]
fn sequences_are_the_same_bytes_both_ways() {
    for (name, indices) in reference::all() {
        for version in VERSIONS {
            let far = |pair: &[u32]| pair[1].abs_diff(pair[0]) >= 1 << 28;
            if indices.windows(2).any(far) || indices.first().is_some_and(|i| *i >= 1 << 28) {
                continue;
            }
            let stream = our_sequence(&indices, version);
            assert!(stream == their_encoding(&indices, version, true), "{name} {version:?}");
            assert_eq!(their_decoding(&stream, indices.len(), true).as_ref(), Some(&indices));
            let mut decoded = vec![0_u32; indices.len()];
            decode_sequence(&stream, &mut decoded).expect("a sound stream");
            assert_eq!(decoded, indices, "{name}");
        }
    }
}

/// After starting over, meshoptimizer's encoder takes index 2^32-1 for remembered and its decoder
/// does not. Ours must come back, with different bytes, through both decoders.
#[test]
fn the_highest_index_after_a_restart_comes_back() {
    let mut indices = shapes::strips(1, 40);
    indices.extend([0, 1, 2, 50, u32::MAX, 60, 70, 80, u32::MAX]);
    let stream = ours(&indices, Version::V1);
    let decoded = their_decoding(&stream, indices.len(), false).expect("a sound stream");
    assert_same_triangles("ours", &indices, &decoded);
    let lossy = their_encoding(&indices, Version::V1, false);
    assert_ne!(stream, lossy);
    let decoded = their_decoding(&lossy, indices.len(), false).expect("a sound stream");
    assert_ne!(decoded[decoded.len() - 9..], indices[indices.len() - 9..]);
}
