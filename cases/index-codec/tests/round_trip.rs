//! What goes in comes out, for any indices.

mod reference;
mod shapes;

use index_codec::{
    Error, Kind, Version, check_indices, checked, decode_sequence, decode_triangles,
    encode_sequence, encode_triangles, kind_of, sequence_bound, triangles_bound,
};
use proptest::prelude::*;
use shapes::assert_same_triangles;

fn round_trip(indices: &[u32], version: Version) {
    let vertex_count = indices.iter().max().map_or(0, |i| *i as usize + 1);
    let mut stream = vec![0; triangles_bound(indices.len(), vertex_count)];
    let length_bytes = encode_triangles(indices, version, &mut stream).expect("the bound suffices");
    stream.truncate(length_bytes);
    assert_eq!(kind_of(&stream), Ok((Kind::Triangles, version)));
    let mut decoded = vec![0_u32; indices.len()];
    decode_triangles(&stream, &mut decoded).expect("our own stream");
    assert_same_triangles("round trip", indices, &decoded);
    let mut again = vec![0_u32; indices.len()];
    checked::decode_triangles(&stream, &mut again).expect("our own stream");
    assert_eq!(decoded, again);
    // Not a byte less is enough, and what is too small is said to be.
    stream.resize(length_bytes - 1, 0);
    let full = Error::OutputFull { capacity_bytes: length_bytes - 1 };
    assert_eq!(encode_triangles(indices, version, &mut stream), Err(full));
}

fn any_version() -> impl Strategy<Value = Version> {
    prop_oneof![Just(Version::V0), Just(Version::V1)]
}

/// Few different vertices so that memories are hit, now and then far ones, sometimes starting over.
fn any_triangles() -> impl Strategy<Value = Vec<u32>> {
    let vertex = prop_oneof![
        8 => 0_u32..24,
        2 => 0_u32..400,
        1 => any::<u32>(),
        1 => (0_u32..4).prop_map(|i| u32::MAX - i),
    ];
    let triangle = prop_oneof![
        9 => [vertex.clone(), vertex.clone(), vertex],
        1 => Just([0, 1, 2]),
    ];
    prop::collection::vec(triangle, 0..200).prop_map(|triangles| triangles.concat())
}

proptest! {
    #[test]
    fn any_triangles_come_back(indices in any_triangles(), version in any_version()) {
        round_trip(&indices, version);
    }

    #[test]
    fn any_sequence_comes_back_or_is_refused(
        indices in prop::collection::vec(prop_oneof![0_u32..100, any::<u32>()], 0..200),
        version in any_version(),
    ) {
        let mut stream = vec![0; sequence_bound(indices.len(), usize::MAX)];
        match encode_sequence(&indices, version, &mut stream) {
            Ok(length_bytes) => {
                let mut decoded = vec![0_u32; indices.len()];
                decode_sequence(&stream[..length_bytes], &mut decoded).expect("our own stream");
                prop_assert_eq!(decoded, indices);
            }
            Err(Error::TooFar { position, index }) => prop_assert_eq!(indices[position], index),
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn sequences_of_near_indices_are_never_refused(
        indices in prop::collection::vec(0_u32..1 << 30, 0..200),
    ) {
        let mut stream = vec![0; sequence_bound(indices.len(), 1 << 30)];
        let length_bytes = encode_sequence(&indices, Version::V1, &mut stream).expect("near");
        let mut decoded = vec![0_u32; indices.len()];
        decode_sequence(&stream[..length_bytes], &mut decoded).expect("our own stream");
        prop_assert_eq!(decoded, indices);
    }
}

#[test]
fn every_shape_comes_back() {
    for (_, indices) in reference::all() {
        round_trip(&indices, Version::V0);
        round_trip(&indices, Version::V1);
    }
}

/// Every count around the sizes in which the decoder works: each has its own last triangle.
#[test]
fn every_length_comes_back() {
    let indices = shapes::tangled(1100, 5);
    for triangles in (0..300).chain(500..540).chain(1000..1040) {
        round_trip(&indices[..triangles * 3], Version::V1);
    }
}

#[test]
fn indices_are_held_against_the_vertex_count() {
    assert_eq!(check_indices(&[0_u16, 4, 2], 5), Ok(()));
    assert_eq!(check_indices::<u32>(&[], 0), Ok(()));
    let error = Error::NoSuchVertex { position: 1, index: 4, vertex_count: 4 };
    assert_eq!(check_indices(&[0_u32, 4, 2], 4), Err(error));
}

#[test]
fn a_list_must_be_of_triangles() {
    let error = Err(Error::NotTriangles { index_count: 4 });
    assert_eq!(encode_triangles(&[0, 1, 2, 3], Version::V1, &mut [0; 99]).map(drop), error);
    assert_eq!(decode_triangles(&[0; 99], &mut [0_u32; 4]), error);
}

/// More triangles than 24 bits count.
#[test]
fn a_very_long_list_comes_back() {
    let indices = shapes::strips(17, 1_000_000);
    assert!(indices.len() / 3 > 1 << 24);
    round_trip(&indices, Version::V1);
}
