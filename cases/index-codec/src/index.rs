//! The two widths in which indices are delivered.

#![forbid(unsafe_code)]

use crate::Error;

/// An index as it is delivered: `u16` or `u32`. A `u16` gets the low half of what the stream
/// holds, as in meshoptimizer.
pub trait Index: sealed::Sealed + Copy + Default + Eq + Send + Sync + 'static {
    /// The low bits of `index`.
    fn narrow(index: u32) -> Self;
    /// As a number.
    fn widen(self) -> u32;
}

impl Index for u16 {
    #[inline]
    fn narrow(index: u32) -> Self {
        index as Self
    }
    #[inline]
    fn widen(self) -> u32 {
        self.into()
    }
}

impl Index for u32 {
    #[inline]
    fn narrow(index: u32) -> Self {
        index
    }
    #[inline]
    fn widen(self) -> u32 {
        self
    }
}

/// The fast decoder writes raw bytes and relies on there being no other widths.
mod sealed {
    pub trait Sealed {}
    impl Sealed for u16 {}
    impl Sealed for u32 {}
}

/// Says whether every index addresses one of `vertex_count` vertices. The format itself sets no
/// limit: a damaged stream can decode to any index.
///
/// # Errors
///
/// [`Error::NoSuchVertex`] for the first index that does not.
pub fn check_indices<I: Index>(indices: &[I], vertex_count: usize) -> Result<(), Error> {
    // One pass for the largest, which the compiler turns into wide operations; a second one to
    // name the culprit only when there is one.
    let largest = indices.iter().map(|i| i.widen()).max();
    if largest.is_none_or(|index| (index as usize) < vertex_count) {
        return Ok(());
    }
    let culprit = indices.iter().position(|i| i.widen() as usize >= vertex_count);
    culprit.map_or(Ok(()), |position| {
        Err(Error::NoSuchVertex { position, index: indices[position].widen(), vertex_count })
    })
}
