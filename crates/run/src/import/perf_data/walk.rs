//! The records of a file, one after the other, through a buffer of fixed size.

use std::io::{self, Read};

use crate::foreign::Bytes;

/// Room for many records; one is at most 64 KiB.
const BUFFER_BYTES: usize = 1 << 20;
/// Type, flags and size.
pub(super) const HEADER_BYTES: usize = 8;
/// Types that are followed by data whose length their body names.
const TRACING_DATA: u32 = 66;
const AUXTRACE: u32 = 71;

#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub kind: u32,
    pub misc: u16,
    pub body: &'a [u8],
}

/// Why the records end early.
#[derive(Debug)]
pub(super) enum Broken {
    Io(io::Error),
    Cut {
        /// Where that record starts, counted from the first.
        at: u64,
    },
    /// A record that claims less than the size of its own header.
    Nonsense {
        /// Where, counted from the first.
        at: u64,
        kind: u32,
    },
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The first whole record of `bytes` and its length, or the type of one that makes no sense; `None`
/// when more bytes are needed.
#[inline]
pub(super) fn first(bytes: &[u8]) -> Option<Result<(Record<'_>, usize), u32>> {
    let header = bytes.get(..HEADER_BYTES)?;
    let kind = u32::from_le_bytes(*header.first_chunk()?);
    let misc = u16::from_le_bytes([header[4], header[5]]);
    let size = usize::from(u16::from_le_bytes([header[6], header[7]]));
    if size < HEADER_BYTES {
        return Some(Err(kind));
    }
    let body = bytes.get(HEADER_BYTES..size)?;
    Some(Ok((Record { kind, misc, body }, size)))
}

/// Hands every record to `take`, which may stop the walk with an error of its own.
pub(super) fn walk<R: Read>(
    mut source: R,
    mut take: impl FnMut(Record<'_>) -> Result<(), Broken>,
) -> Result<(), Broken> {
    let mut buffer = vec![0_u8; BUFFER_BYTES];
    let (mut start, mut end, mut passed) = (0, 0, 0_u64);
    loop {
        let mut skip = 0;
        while let Some(record) = first(&buffer[start..end]) {
            let at = passed + start as u64;
            let (record, size) = record.map_err(|kind| Broken::Nonsense { at, kind })?;
            take(record)?;
            start += size;
            skip = trailing_bytes(record);
            if skip > 0 {
                break;
            }
        }
        if skip > 0 {
            let buffered = usize::try_from(skip).map_or(end - start, |s| s.min(end - start));
            start += buffered;
            let rest = skip - buffered as u64;
            let skipped = io::copy(&mut source.by_ref().take(rest), &mut io::sink())?;
            if skipped < rest {
                return Err(Broken::Cut { at: passed + start as u64 });
            }
            passed += skipped;
            continue;
        }
        buffer.copy_within(start..end, 0);
        passed += start as u64;
        end -= start;
        start = 0;
        match source.read(&mut buffer[end..]) {
            Ok(0) if end == 0 => return Ok(()),
            Ok(0) => return Err(Broken::Cut { at: passed }),
            Ok(count) => end += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Broken::Io(error)),
        }
    }
}

/// Bytes behind the record that belong to it and are no records.
fn trailing_bytes(record: Record<'_>) -> u64 {
    let mut body = Bytes(record.body);
    match record.kind {
        AUXTRACE => body.u64().unwrap_or(0),
        TRACING_DATA => body.u32().map_or(0, |size| u64::from(size).next_multiple_of(8)),
        _ => 0,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A record as perf writes it.
    pub fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let mut out = kind.to_le_bytes().to_vec();
        out.extend(misc.to_le_bytes());
        out.extend(((HEADER_BYTES + body.len()) as u16).to_le_bytes());
        out.extend(body);
        out
    }

    /// A source that gives as little as it likes.
    struct Dribble<'a>(&'a [u8], usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.1 = self.1 % 7 + 1;
            self.0.by_ref().take(self.1 as u64).read(out)
        }
    }

    fn kinds(bytes: &[u8]) -> Result<Vec<(u32, usize)>, Broken> {
        let mut seen = Vec::new();
        walk(Dribble(bytes, 0), |r| {
            seen.push((r.kind, r.body.len()));
            Ok(())
        })?;
        Ok(seen)
    }

    #[test]
    fn records_come_whole_however_they_are_read() {
        let mut bytes = record(9, 0, &[1; 24]);
        bytes.extend(record(AUXTRACE, 0, &13_u64.to_le_bytes()));
        bytes.extend([0xff; 13]);
        bytes.extend(record(1234, 0, &[]));
        assert_eq!(kinds(&bytes).unwrap(), [(9, 24), (AUXTRACE, 8), (1234, 0)]);
        for cut in 1..bytes.len() {
            let whole = [32, 61].contains(&cut);
            assert_eq!(kinds(&bytes[..cut]).is_ok(), whole, "cut at {cut}");
        }
    }

    #[test]
    fn a_record_of_no_size_is_nonsense() {
        let mut bytes = record(9, 0, &[]);
        bytes[6] = 7;
        assert!(matches!(kinds(&bytes), Err(Broken::Nonsense { at: 0, kind: 9 })));
    }
}
