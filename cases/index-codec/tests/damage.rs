//! Damaged streams: an error with a place, or indices, and always the same from both decoders and
//! from meshoptimizer.

mod reference;
mod shapes;

use index_codec::variants::{Paired, decode_plainly};
use index_codec::{
    Error, Version, checked, decode_sequence, decode_triangles, encode_sequence, encode_triangles,
    fast::decode_triangles_portably,
};
use proptest::prelude::*;
use reference::their_decoding;

/// A small stream with every kind of code in it.
fn small(version: Version) -> (Vec<u8>, usize) {
    let mut indices = shapes::strips(2, 8);
    indices.extend(shapes::strips(1, 3));
    indices.extend(shapes::tangled(20, 4));
    indices.extend([0, 1, 2, 900_000, 1, 2, u32::MAX, 7, 1 << 30]);
    let mut stream = vec![0; 1000];
    let length_bytes = encode_triangles(&indices, version, &mut stream).expect("large enough");
    stream.truncate(length_bytes);
    (stream, indices.len())
}

/// Decodes in all ways; what they say must agree.
fn decode_everywhere(stream: &[u8], index_count: usize) -> Result<Vec<u32>, Error> {
    let mut reference = vec![0_u32; index_count];
    let result = checked::decode_triangles(stream, &mut reference);
    let mut fast = vec![0_u32; index_count];
    assert_eq!(decode_triangles(stream, &mut fast), result);
    let mut plain = vec![0_u32; index_count];
    assert_eq!(decode_plainly::<Paired, u32>(stream, &mut plain), result);
    let mut portable = vec![0_u32; index_count];
    assert_eq!(decode_triangles_portably(stream, &mut portable), result);
    let mut narrow = vec![0_u16; index_count];
    assert_eq!(decode_triangles(stream, &mut narrow), result);
    let theirs = their_decoding(stream, index_count, false);
    assert_eq!(theirs.is_some(), result.is_ok());
    if let Some(theirs) = theirs {
        assert_eq!(theirs, reference);
        assert_eq!(fast, reference);
        assert_eq!(portable, reference);
        assert_eq!(plain, reference);
        assert!(narrow.iter().zip(&reference).all(|(n, r)| *n == *r as u16));
    }
    if let Err(error) = result {
        assert!(error.offset().is_some_and(|offset| offset <= stream.len()), "{error}");
    }
    result.map(|()| reference)
}

#[test]
fn every_truncation_is_an_error() {
    for version in [Version::V0, Version::V1] {
        let (stream, index_count) = small(version);
        assert!(decode_everywhere(&stream, index_count).is_ok());
        for length_bytes in 0..stream.len() {
            let outcome = decode_everywhere(&stream[..length_bytes], index_count);
            assert!(outcome.is_err(), "{length_bytes} bytes");
        }
    }
}

#[test]
fn every_damaged_byte_is_an_error_or_gives_indices() {
    for version in [Version::V0, Version::V1] {
        let (stream, index_count) = small(version);
        for at in 0..stream.len() {
            let mut damaged = stream.clone();
            for byte in 0..=u8::MAX {
                damaged[at] = byte;
                let _ = decode_everywhere(&damaged, index_count);
            }
        }
    }
}

#[test]
fn a_wrong_count_is_an_error() {
    let (stream, index_count) = small(Version::V1);
    for other in (0..index_count + 30).step_by(3).filter(|c| *c != index_count) {
        let _ = decode_everywhere(&stream, other);
    }
    assert!(matches!(decode_everywhere(&stream, 0), Err(Error::DataLeft { .. })));
}

#[test]
fn the_place_of_the_damage_is_told() {
    let (stream, index_count) = small(Version::V1);
    let mut out = vec![0_u32; index_count];
    let mut longer = stream.clone();
    longer.insert(stream.len() - 16, 1);
    let left = Error::DataLeft { offset: stream.len() - 16, left_bytes: 1 };
    assert_eq!(decode_triangles(&longer, &mut out), Err(left));
    let mut other = stream.clone();
    other[0] = 0xe7;
    let unknown = Error::UnknownVersion { header: 0xe7 };
    assert_eq!(decode_triangles(&other, &mut out), Err(unknown));
    other[0] = 0xd1;
    assert_eq!(decode_triangles(&other, &mut out), Err(Error::WrongKind { header: 0xd1 }));
    let short = &stream[..stream.len() - 1];
    let Err(Error::DataEnd { item, offset }) = decode_triangles(short, &mut out) else {
        panic!("one byte less is noticed");
    };
    assert!(item < index_count / 3);
    assert_eq!(offset, stream.len() - 17);
}

#[test]
fn damaged_sequences_are_errors_or_indices() {
    let indices = [1, 2, 3, 900, 901, 4, 1 << 28, 5];
    let mut stream = vec![0; 100];
    let length_bytes = encode_sequence(&indices, Version::V1, &mut stream).expect("large enough");
    stream.truncate(length_bytes);
    let agree = |stream: &[u8], count: usize| {
        let mut out = vec![0_u32; count];
        let result = decode_sequence(stream, &mut out);
        let theirs = their_decoding(stream, count, true);
        assert_eq!(result.is_ok(), theirs.is_some(), "{stream:?}");
        if let Some(theirs) = theirs {
            assert_eq!(out, theirs);
        }
        result
    };
    for shorter in 0..stream.len() {
        assert!(agree(&stream[..shorter], indices.len()).is_err());
    }
    for at in 0..stream.len() {
        let mut damaged = stream.clone();
        for byte in 0..=u8::MAX {
            damaged[at] = byte;
            let _ = agree(&damaged, indices.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Anything behind a right header, with counts that make the stream just about long enough.
    #[test]
    fn any_bytes_are_an_error_or_indices(
        header in 0xe0_u8..0xe2,
        body in prop::collection::vec(
            prop_oneof![any::<u8>(), 0xf0_u8..=0xff, Just(0xfe), 0_u8..0x20], 16..400),
        share in 0_usize..=100,
    ) {
        let stream: Vec<u8> = core::iter::once(header).chain(body).collect();
        let triangles = (stream.len() - 17) * share / 100;
        let _ = decode_everywhere(&stream, triangles * 3);
    }
}
