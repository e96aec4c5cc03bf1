//! The reading side.

use std::ffi::OsString;
use std::io::{self, BufRead};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::number::apply;
use super::{
    DESCRIBE, DRAINS_STORES, END, LONGEST_TEXT, MAGIC, MOST_ACCESSES, MOST_ENTRIES, MOST_INSNS,
    RESTART, RUN, VERSION,
};
use crate::foreign::plain_bytes;
use crate::model::{Avma, FileOffset};
use crate::run::child::{ChildError, Exit, Status};
use crate::trace::engine::{
    AccessKind, Block, BlockId, BlockInsn, CodePage, Ended, EngineError, Mapping, MemoryAccess,
    Recording, SelfCheck, Sink, VALUE_BYTES,
};

/// Why a file could not be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum ReplayError {
    #[error("not a recorded trace (`stallscope trace --record FILE` writes one)")]
    NotATrace,
    #[error("a recorded trace of version {0}; this program reads versions up to {VERSION}")]
    TooNew(u8),
    #[error("the recorded trace ends too early, at byte {0} (record it again)")]
    CutOff(u64),
    #[error("the recorded trace is damaged at byte {at}: {what} (record it again)")]
    Damaged { at: u64, what: &'static str },
    #[error("the recorded trace cannot be read: {0}")]
    Unreadable(io::Error),
    /// The user wants an end.
    #[error("interrupted")]
    Interrupted,
}

impl ReplayError {
    /// As what an engine reports that has made the recording.
    #[must_use]
    pub fn of_engine(self, engine: &'static str) -> EngineError {
        match self {
            Self::Interrupted => ChildError::Interrupted.into(),
            other => EngineError::Unsupported { engine, reason: other.to_string() },
        }
    }
}

/// Reads a whole file, tells `sink` what happened, and returns how the window ended. A model may take
/// seconds for what it is told: `interrupt` ends that between two blocks.
///
/// # Errors
/// See [`ReplayError`]. The sink may have been told a part by then.
pub fn replay(
    input: impl BufRead,
    interrupt: &AtomicBool,
    sink: &mut dyn Sink,
) -> Result<Recording, ReplayError> {
    let mut reader = Reader { input, at: 0, version: 0, last_insn: 0, last_access: 0 };
    reader.header()?;
    let mut lengths: Vec<u32> = Vec::new();
    loop {
        match reader.byte()? {
            DESCRIBE => {
                let (id, block) = reader.block()?;
                if u64::from(id.0) != lengths.len() as u64 {
                    return Err(reader.damaged("a block out of turn"));
                }
                lengths.push(block.insns.len() as u32);
                sink.describe(id, &block);
            }
            RUN => {
                let id = reader.u32("a block's number")?;
                let Some(length) = lengths.get(id as usize) else {
                    return Err(reader.damaged("a block that was not described"));
                };
                let accesses = reader.accesses(*length)?;
                if interrupt.load(Ordering::Relaxed) {
                    return Err(ReplayError::Interrupted);
                }
                sink.run(BlockId(id), &accesses);
            }
            RESTART => {
                lengths.clear();
                (reader.last_insn, reader.last_access) = (0, 0);
                sink.restart();
            }
            END => return reader.end(),
            _ => return Err(reader.damaged("a record of unknown kind")),
        }
    }
}

struct Reader<R> {
    input: R,
    at: u64,
    version: u8,
    last_insn: u64,
    last_access: u64,
}

impl<R: BufRead> Reader<R> {
    fn damaged(&self, what: &'static str) -> ReplayError {
        ReplayError::Damaged { at: self.at, what }
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), ReplayError> {
        self.input.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => ReplayError::CutOff(self.at),
            _ => ReplayError::Unreadable(error),
        })?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn header(&mut self) -> Result<(), ReplayError> {
        let mut start = [0; MAGIC.len() + 1];
        match self.fill(&mut start) {
            Err(ReplayError::CutOff(_)) => return Err(ReplayError::NotATrace),
            other => other?,
        }
        let [magic @ .., version] = start;
        self.version = version;
        match (magic == *MAGIC, version) {
            (false, _) | (true, 0) => Err(ReplayError::NotATrace),
            (true, 1..=VERSION) => Ok(()),
            (true, _) => Err(ReplayError::TooNew(version)),
        }
    }

    fn byte(&mut self) -> Result<u8, ReplayError> {
        let mut byte = [0];
        self.fill(&mut byte)?;
        Ok(byte[0])
    }

    fn number(&mut self) -> Result<u64, ReplayError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(self.damaged("a number that is too large"));
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.damaged("a number that is too long"))
    }

    fn at_most(&mut self, most: u64, what: &'static str) -> Result<u64, ReplayError> {
        match self.number()? {
            value if value <= most => Ok(value),
            _ => Err(self.damaged(what)),
        }
    }

    fn u32(&mut self, what: &'static str) -> Result<u32, ReplayError> {
        Ok(self.at_most(u64::from(u32::MAX), what)? as u32)
    }

    fn text(&mut self) -> Result<Vec<u8>, ReplayError> {
        let length = self.at_most(LONGEST_TEXT, "a text that is too long")?;
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    fn words(&mut self) -> Result<String, ReplayError> {
        Ok(plain_bytes(&self.text()?))
    }

    fn block(&mut self) -> Result<(BlockId, Block), ReplayError> {
        let id = BlockId(self.u32("a block's number")?);
        let count = self.at_most(MOST_INSNS, "a block that is too long")?;
        if count == 0 {
            return Err(self.damaged("an empty block"));
        }
        let mut block = Block::default();
        for _ in 0..count {
            let address = apply(self.number()?, self.last_insn);
            let byte = self.byte()?;
            let (size_bytes, drains_stores) = (byte & !DRAINS_STORES, byte & DRAINS_STORES != 0);
            self.last_insn = address.wrapping_add(u64::from(size_bytes));
            block.insns.push(BlockInsn { address: Avma(address), size_bytes, drains_stores });
        }
        Ok((id, block))
    }

    fn accesses(&mut self, length: u32) -> Result<Vec<MemoryAccess>, ReplayError> {
        let count = self.at_most(MOST_ACCESSES, "too many accesses")?;
        // What is announced may not be there: no memory for more than what has been read.
        let mut accesses = Vec::new();
        let mut insn = 0_u32;
        for _ in 0..count {
            let step = self.number()?;
            insn = u32::try_from(step >> 1)
                .ok()
                .and_then(|step| insn.checked_add(step))
                .filter(|insn| *insn < length)
                .ok_or_else(|| self.damaged("an access of no instruction"))?;
            let (kind, size_bytes) = match (step & 1, self.u32("an access that is too wide")?) {
                (0, 0) => (AccessKind::Prefetch, 1),
                (_, 0) if self.version >= 5 => (AccessKind::Value, VALUE_BYTES),
                (_, 0) => return Err(self.damaged("a store without bytes")),
                (0, size_bytes) => (AccessKind::Load, size_bytes),
                (_, size_bytes) => (AccessKind::Store, size_bytes),
            };
            self.last_access = apply(self.number()?, self.last_access);
            accesses.push(MemoryAccess { insn, kind, size_bytes, address: Avma(self.last_access) });
        }
        Ok(accesses)
    }

    fn end(&mut self) -> Result<Recording, ReplayError> {
        let engine = self.words()?;
        let engine = crate::trace::engine::engine(&engine).map_or("another", |e| e.id());
        let (instructions, wall_ns) = (self.number()?, self.number()?);
        let kind = self.byte()?;
        let signal = self.u32("a signal's number")?.cast_signed();
        let ended = match kind {
            0 => Ended::Length,
            1 => Ended::Exit,
            2 => Ended::Exec,
            3 => Ended::Signal(signal),
            4 => Ended::Short,
            _ => return Err(self.damaged("an end of unknown kind")),
        };
        let kind = self.byte()?;
        let number = self.u32("an exit code")?.cast_signed();
        let exit = match kind {
            0 => Some(Exit::of(Status::Code(number))),
            1 => Some(Exit::of(Status::Signal(number))),
            2 => None,
            _ => return Err(self.damaged("an exit of unknown kind")),
        };
        let kind = self.byte()?;
        let words = self.words()?;
        let self_check = match kind {
            0 => SelfCheck::NotCompared,
            1 => SelfCheck::Equal(words),
            2 => SelfCheck::Differs(words),
            _ => return Err(self.damaged("a check of unknown kind")),
        };
        let (mappings, notes, code) = (self.mappings()?, self.notes()?, self.code()?);
        let mut rest = [0];
        match self.input.read(&mut rest) {
            Ok(0) => {}
            Ok(_) => return Err(self.damaged("something behind the end")),
            Err(error) => return Err(ReplayError::Unreadable(error)),
        }
        Ok(Recording {
            engine,
            instructions,
            wall_ns,
            ended,
            mappings,
            self_check,
            notes,
            code,
            exit,
        })
    }

    fn mappings(&mut self) -> Result<Vec<Mapping>, ReplayError> {
        let count = self.at_most(MOST_ENTRIES, "too many mappings")?;
        (0..count)
            .map(|_| {
                Ok(Mapping {
                    start: Avma(self.number()?),
                    end: Avma(self.number()?),
                    file_offset: FileOffset(self.number()?),
                    path: OsString::from_vec(self.text()?).into(),
                })
            })
            .collect()
    }

    fn code(&mut self) -> Result<Vec<CodePage>, ReplayError> {
        if self.version < 2 {
            return Ok(Vec::new());
        }
        let count = self.at_most(MOST_ENTRIES, "too many pages of code")?;
        (0..count)
            .map(|_| Ok(CodePage { start: Avma(self.number()?), bytes: self.text()? }))
            .collect()
    }

    fn notes(&mut self) -> Result<Vec<String>, ReplayError> {
        let count = self.at_most(MOST_ENTRIES, "too many notes")?;
        (0..count).map(|_| self.words()).collect()
    }
}
