//! Codecs in shared libraries: one library per builder and code placement.

use std::ffi::{CString, c_int, c_void};
use std::mem::transmute;
use std::path::Path;

type Decode = unsafe extern "C" fn(*mut c_void, usize, usize, *const u8, usize) -> c_int;
type Encode = unsafe extern "C" fn(*mut u8, usize, *const u32, usize) -> usize;

/// A function of a shared library that stays loaded.
fn load(path: &Path, symbol: &str) -> Result<*mut c_void, String> {
    let text = |s: &str| CString::new(s).map_err(|e| e.to_string());
    let path_text = text(&path.to_string_lossy())?;
    // SAFETY: both strings end in a zero byte; the libraries have no initialisers of their own.
    let found = unsafe {
        let library = libc::dlopen(path_text.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        if library.is_null() {
            return Err(format!("cannot load {}", path.display()));
        }
        libc::dlsym(library, text(symbol)?.as_ptr())
    };
    if found.is_null() {
        return Err(format!("no {symbol} in {}", path.display()));
    }
    Ok(found)
}

/// A decoder.
#[derive(Clone, Copy)]
pub struct Decoder(Decode);

impl Decoder {
    /// Loads it; the symbol must be a decoder.
    pub fn load(path: &Path, symbol: &str) -> Result<Self, String> {
        let found = load(path, symbol)?;
        // SAFETY: all decoders of these libraries have this signature.
        Ok(Self(unsafe { transmute::<*mut c_void, Decode>(found) }))
    }

    /// Decodes; the indices are `I`, of two or four bytes.
    pub fn decode<I>(self, stream: &[u8], out: &mut [I]) -> Result<(), String> {
        let (to, from) = (out.as_mut_ptr().cast(), stream.as_ptr());
        // SAFETY: both memories are passed with their lengths.
        match unsafe { (self.0)(to, out.len(), size_of::<I>(), from, stream.len()) } {
            0 => Ok(()),
            code => Err(format!("a decoder refuses a sound stream (code {code})")),
        }
    }
}

/// An encoder.
#[derive(Clone, Copy)]
pub struct Encoder(Encode);

impl Encoder {
    /// Loads it; the symbol must be an encoder.
    pub fn load(path: &Path, symbol: &str) -> Result<Self, String> {
        let found = load(path, symbol)?;
        // SAFETY: all encoders of these libraries have this signature.
        Ok(Self(unsafe { transmute::<*mut c_void, Encode>(found) }))
    }

    /// Encodes and returns the length.
    pub fn encode(self, indices: &[u32], out: &mut [u8]) -> Result<usize, String> {
        let (to, from) = (out.as_mut_ptr(), indices.as_ptr());
        // SAFETY: both memories are passed with their lengths.
        match unsafe { (self.0)(to, out.len(), from, indices.len()) } {
            0 => Err("an encoder found too little room".into()),
            length_bytes => Ok(length_bytes),
        }
    }
}
