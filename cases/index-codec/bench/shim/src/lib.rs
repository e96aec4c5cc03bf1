//! index-codec behind the C interface of meshoptimizer's codec.

use std::ffi::{c_int, c_void};

use index_codec::variants::{Narrow, Paired, WideLoad, WideStore, decode_by_table, decode_plainly};
use index_codec::{Error, Version};

/// Runs a decoder on memory given the C way.
///
/// # Safety
///
/// `out` holds `index_count` indices of `index_bytes` bytes, `stream` `length_bytes` bytes.
unsafe fn decode(
    out: *mut c_void,
    index_count: usize,
    index_bytes: usize,
    (stream, length_bytes): (*const u8, usize),
    narrow: fn(&[u8], &mut [u16]) -> Result<(), Error>,
    wide: fn(&[u8], &mut [u32]) -> Result<(), Error>,
) -> c_int {
    // SAFETY: as the caller promises.
    let result = unsafe {
        let stream = std::slice::from_raw_parts(stream, length_bytes);
        match index_bytes {
            2 => narrow(stream, std::slice::from_raw_parts_mut(out.cast(), index_count)),
            _ => wide(stream, std::slice::from_raw_parts_mut(out.cast(), index_count)),
        }
    };
    if result.is_ok() { 0 } else { -1 }
}

macro_rules! decoders {
    ($($symbol:ident = $decoder:expr;)*) => { $(
        /// A decoder with the signature of `meshopt_decodeIndexBuffer`.
        ///
        /// # Safety
        ///
        /// `out` holds `index_count` indices of `index_bytes` bytes, `stream` `length_bytes` bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol(
            out: *mut c_void,
            index_count: usize,
            index_bytes: usize,
            stream: *const u8,
            length_bytes: usize,
        ) -> c_int {
            let stream = (stream, length_bytes);
            // SAFETY: as the caller promises.
            unsafe { decode(out, index_count, index_bytes, stream, $decoder, $decoder) }
        }
    )* };
}

decoders! {
    ours_default = index_codec::decode_triangles;
    ours_portable = index_codec::fast::decode_triangles_portably;
    ours_checked = index_codec::checked::decode_triangles;
    ours_plain_narrow = decode_plainly::<Narrow, _>;
    ours_plain_paired = decode_plainly::<Paired, _>;
    ours_plain_wide_load = decode_plainly::<WideLoad, _>;
    ours_plain_wide_store = decode_plainly::<WideStore, _>;
    ours_table_narrow = decode_by_table::<Narrow, _>;
    ours_table_paired = decode_by_table::<Paired, _>;
    ours_table_wide_load = decode_by_table::<WideLoad, _>;
    ours_table_wide_store = decode_by_table::<WideStore, _>;
}

/// The encoder with the signature of `meshopt_encodeIndexBuffer`.
///
/// # Safety
///
/// `out` has room for `capacity_bytes`, `indices` holds `index_count` indices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ours_encode(
    out: *mut u8,
    capacity_bytes: usize,
    indices: *const u32,
    index_count: usize,
) -> usize {
    // SAFETY: as the caller promises.
    let (out, indices) = unsafe {
        let out = std::slice::from_raw_parts_mut(out, capacity_bytes);
        (out, std::slice::from_raw_parts(indices, index_count))
    };
    index_codec::encode_triangles(indices, Version::V1, out).unwrap_or(0)
}
