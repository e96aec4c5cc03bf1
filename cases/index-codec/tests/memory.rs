//! Small streams, whole and damaged, through every decoder: made for an interpreter that watches
//! each access (`make miri`), and run by the processor as well.
//!
//! Under Miri the default decoder runs its loop in Rust: inline assembly cannot be interpreted. The
//! fuzz target runs that loop under the address sanitizer instead.

mod shapes;

use index_codec::variants::{Narrow, Paired, WideLoad, WideStore, decode_by_table, decode_plainly};
use index_codec::{
    Error, Version, checked, decode_sequence, decode_triangles, encode_sequence, encode_triangles,
    fast::decode_triangles_portably,
};

type Decode = fn(&[u8], &mut [u32]) -> Result<(), Error>;

const DECODERS: [Decode; 10] = [
    decode_triangles,
    decode_triangles_portably,
    decode_by_table::<Narrow, u32>,
    decode_by_table::<Paired, u32>,
    decode_by_table::<WideLoad, u32>,
    decode_by_table::<WideStore, u32>,
    decode_plainly::<Narrow, u32>,
    decode_plainly::<Paired, u32>,
    decode_plainly::<WideLoad, u32>,
    decode_plainly::<WideStore, u32>,
];

/// How many steps an interpreter, some hundred times as slow, may leave out.
const STRIDE: usize = if cfg!(miri) { 23 } else { 1 };

/// Both longer and shorter than the blocks in which the fast decoder works.
fn meshes() -> Vec<Vec<u32>> {
    let mut mixed = shapes::strips(2, 8);
    mixed.extend(shapes::strips(1, 3));
    mixed.extend(shapes::tangled(20, 4));
    mixed.extend([0, 1, 2, 900_000, 1, 2, u32::MAX, 7, 1 << 30]);
    vec![
        vec![],
        vec![2, 0, 1],
        vec![7; 30],
        mixed,
        shapes::strips(1, 300),
        shapes::tangled(270, 2),
        shapes::random(40, 5000, 1),
    ]
}

fn encoded(indices: &[u32], version: Version) -> Box<[u8]> {
    let mut out = vec![0; 64 + 6 * indices.len()];
    let length_bytes = encode_triangles(indices, version, &mut out).expect("room");
    out.truncate(length_bytes);
    // Exactly as large as what may be read: one byte more is noticed.
    out.into()
}

/// All decoders say the same of a stream.
fn decode_everywhere(stream: &[u8], index_count: usize) -> Result<(), Error> {
    let mut expected = vec![0; index_count].into_boxed_slice();
    let result = checked::decode_triangles(stream, &mut expected);
    let mut out = vec![0; index_count].into_boxed_slice();
    for decode in DECODERS {
        out.fill(0);
        assert_eq!(decode(stream, &mut out), result);
        assert!(result.is_err() || out == expected);
    }
    let mut narrow = vec![0_u16; index_count].into_boxed_slice();
    assert_eq!(decode_triangles(stream, &mut narrow), result);
    result
}

#[test]
fn whole_streams_decode_alike() {
    for indices in meshes() {
        for version in [Version::V0, Version::V1] {
            assert_eq!(decode_everywhere(&encoded(&indices, version), indices.len()), Ok(()));
        }
    }
}

#[test]
fn truncated_streams_are_refused_and_damaged_ones_stay_inside() {
    for indices in &meshes()[1..4] {
        let stream = encoded(indices, Version::V1);
        for length_bytes in (0..stream.len()).step_by(STRIDE.min(7)) {
            let shorter: Box<[u8]> = stream[..length_bytes].into();
            assert!(decode_everywhere(&shorter, indices.len()).is_err());
        }
        for at in (0..stream.len()).step_by(STRIDE.min(3)) {
            for byte in (0..=u8::MAX).step_by(5 * STRIDE) {
                let mut damaged = stream.clone();
                damaged[at] ^= byte;
                let _ = decode_everywhere(&damaged, indices.len());
            }
        }
    }
}

#[test]
fn sequences_stay_inside_too() {
    let indices = [1, 2, 3, 900, 901, 4, 1 << 28, 5];
    let mut stream = vec![0; 100];
    let length_bytes = encode_sequence(&indices, Version::V1, &mut stream).expect("room");
    stream.truncate(length_bytes);
    let stream = stream.into_boxed_slice();
    let mut out = [0_u32; 8];
    assert_eq!(decode_sequence(&stream, &mut out), Ok(()));
    assert_eq!(out, indices);
    for at in 0..stream.len() {
        assert!(decode_sequence(&stream[..at], &mut out).is_err());
        let mut damaged = stream.clone();
        damaged[at] ^= 0x91;
        let _ = decode_sequence(&damaged, &mut out);
    }
}
