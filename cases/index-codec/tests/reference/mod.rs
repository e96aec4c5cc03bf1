//! meshoptimizer's codec behind safe functions, and a mesh that it ordered.

// Each test binary uses some of this.
#![allow(dead_code)]

use std::sync::{Mutex, PoisonError};

use index_codec::Version;

/// All shapes, and one as meshoptimizer would order it for the vertex cache.
pub fn all() -> Vec<(&'static str, Vec<u32>)> {
    let grid = super::shapes::grid(40);
    let mut all = super::shapes::all();
    all.push(("optimised grid", meshopt::optimize_vertex_cache(&grid, 41 * 41)));
    all
}

/// The version that meshoptimizer writes is a global variable of it.
static VERSION: Mutex<()> = Mutex::new(());

/// What meshoptimizer's encoders write.
pub fn their_encoding(indices: &[u32], version: Version, sequence: bool) -> Vec<u8> {
    let _guard = VERSION.lock().unwrap_or_else(PoisonError::into_inner);
    let (data, count) = (indices.as_ptr(), indices.len());
    let mut out = vec![0; 64 + count * 6];
    // SAFETY: `out` and `indices` are passed with their lengths.
    let length_bytes = unsafe {
        meshopt::ffi::meshopt_encodeIndexVersion(i32::from(version == Version::V1));
        if sequence {
            meshopt::ffi::meshopt_encodeIndexSequence(out.as_mut_ptr(), out.len(), data, count)
        } else {
            meshopt::ffi::meshopt_encodeIndexBuffer(out.as_mut_ptr(), out.len(), data, count)
        }
    };
    assert!(length_bytes > 0);
    out.truncate(length_bytes);
    out
}

/// What meshoptimizer's decoders make of a stream; `None` if they refuse it.
pub fn their_decoding(stream: &[u8], index_count: usize, sequence: bool) -> Option<Vec<u32>> {
    let mut out = vec![0_u32; index_count];
    let (destination, bytes) = (out.as_mut_ptr().cast(), stream.as_ptr());
    // SAFETY: `out` holds `index_count` indices of four bytes, the stream comes with its length.
    let code = unsafe {
        if sequence {
            let decode = meshopt::ffi::meshopt_decodeIndexSequence;
            decode(destination, index_count, 4, bytes, stream.len())
        } else {
            let decode = meshopt::ffi::meshopt_decodeIndexBuffer;
            decode(destination, index_count, 4, bytes, stream.len())
        }
    };
    (code == 0).then_some(out)
}
