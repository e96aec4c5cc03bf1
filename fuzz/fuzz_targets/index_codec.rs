//! Any bytes decode to an error or to indices, the same from every decoder; what decoded comes
//! back from the encoder.

#![no_main]

use index_codec::variants::{Paired, decode_by_table, decode_plainly};
use index_codec::{
    Version, checked, decode_sequence, decode_triangles, encode_triangles, triangles_bound,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((share, stream)) = input.split_first() else { return };
    // Exactly as large as the codec may write and read: one byte more is noticed.
    let stream: Box<[u8]> = stream.into();
    let triangles = stream.len() * usize::from(*share) / 255;
    let mut reference = vec![0_u32; 3 * triangles].into_boxed_slice();
    let mut out = reference.clone();
    let mut narrow = vec![0_u16; 3 * triangles].into_boxed_slice();
    let result = checked::decode_triangles(&stream, &mut reference);
    assert_eq!(decode_triangles(&stream, &mut narrow), result);
    for decode in [decode_triangles, decode_by_table::<Paired, _>, decode_plainly::<Paired, _>] {
        out.fill(0);
        assert_eq!(decode(&stream, &mut out), result);
        assert!(result.is_err() || out == reference);
    }
    let _ = decode_sequence(&stream, &mut out);
    if result.is_ok() {
        let mut again = vec![0; triangles_bound(reference.len(), usize::MAX)].into_boxed_slice();
        let length_bytes = encode_triangles(&reference, Version::V1, &mut again).expect("bound");
        decode_triangles(&again[..length_bytes], &mut out).expect("our own stream");
    }
});
