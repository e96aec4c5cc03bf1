//! Taking little-endian fields off the front of a record; running out of bytes gives `None`.

/// What is left of a record.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    /// The next four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*word))
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    /// So many bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    /// What stands before the first zero byte of the rest.
    pub fn text(&self) -> &'a [u8] {
        until_zero(self.0)
    }

    /// A string with its length in front, as perf writes it into its headers.
    pub fn counted_text(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        Some(until_zero(self.take(length as usize)?))
    }
}

/// Hexadecimal digits of bytes, in their order.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    &bytes[..end]
}

/// The eight bytes at an offset.
#[inline]
pub fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    let word = bytes.get(offset..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word))
}

/// As [`u64_at`], half as wide.
#[inline]
pub fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let word = bytes.get(offset..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word))
}
