//! Compressed records: `perf record -z` packs records into one zstd stream and cuts it into pieces.

use ruzstd::decoding::FrameDecoder;

use crate::foreign::Budget;

use super::walk::{Broken, Record, first};

/// More than a block holds unpacked.
const STEP_BYTES: usize = 256 << 10;
/// Samples are more alike than debug information: they pack so much denser.
const DENSER: u64 = 8;
/// A stream asks for as much memory as its window; perf's need 0.5 to 8 MiB.
const LARGEST_PACKED_BYTES: usize = 1 << 20;

fn nonsense() -> Broken {
    Broken::Nonsense { at: 0, kind: super::COMPRESSED }
}

/// The stream, and what of it is unpacked but not a whole record yet.
pub(super) struct Unpacker {
    decoder: FrameDecoder,
    budget: Budget,
    packed: Vec<u8>,
    plain: Vec<u8>,
    step: Vec<u8>,
}

impl Unpacker {
    /// For a file of `length_bytes`: what is unpacked of it has a limit.
    pub fn new(length_bytes: u64) -> Self {
        Self {
            budget: Budget::of(length_bytes.saturating_mul(DENSER)),
            decoder: FrameDecoder::new(),
            packed: Vec::new(),
            plain: Vec::new(),
            step: vec![0; STEP_BYTES],
        }
    }

    /// Takes one piece and hands on the records that are whole by now.
    pub fn push(&mut self, piece: &[u8], take: impl FnMut(Record<'_>)) -> Result<(), Broken> {
        self.packed.extend_from_slice(piece);
        self.unpack()?;
        self.hand_on(take)
    }

    /// Ends the stream, which perf leaves open, and hands on what it held back.
    pub fn finish(&mut self, take: impl FnMut(Record<'_>)) -> Result<(), Broken> {
        if self.decoder.bytes_read_from_source() > 0 && !self.decoder.is_finished() {
            // An empty last block.
            self.packed.extend_from_slice(&[1, 0, 0]);
            self.unpack()?;
        }
        self.hand_on(take)?;
        if self.plain.is_empty() && self.packed.is_empty() {
            return Ok(());
        }
        Err(Broken::Cut { at: 0 })
    }

    fn unpack(&mut self) -> Result<(), Broken> {
        loop {
            if self.decoder.is_finished() && self.decoder.can_collect() == 0 {
                // At the start, or behind a frame: the next one, once its header is all there.
                if self.packed.len() < 18 {
                    return Ok(());
                }
                let mut rest = &self.packed[..];
                self.decoder.reset(&mut rest).map_err(|_| nonsense())?;
                let used = self.packed.len() - rest.len();
                self.packed.drain(..used);
            }
            let (read, written) = self
                .decoder
                .decode_from_to(&self.packed, &mut self.step)
                .map_err(|_| nonsense())?;
            self.packed.drain(..read);
            self.budget.spend(written as u64).ok_or_else(nonsense)?;
            self.plain.extend_from_slice(&self.step[..written]);
            if read == 0 && written == 0 {
                let stuck = self.packed.len() > LARGEST_PACKED_BYTES;
                return if stuck { Err(nonsense()) } else { Ok(()) };
            }
        }
    }

    /// All whole records of what is unpacked; the rest waits.
    fn hand_on(&mut self, mut take: impl FnMut(Record<'_>)) -> Result<(), Broken> {
        let mut used = 0;
        while let Some(record) = first(&self.plain[used..]) {
            let (record, size) =
                record.map_err(|kind| Broken::Nonsense { at: used as u64, kind })?;
            take(record);
            used += size;
        }
        self.plain.drain(..used);
        Ok(())
    }
}
