//! The writing side.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::number::{put, put_difference};
use super::{DESCRIBE, DRAINS_STORES, END, MAGIC, RESTART, RUN, VERSION};
use crate::run::child::Status;
use crate::trace::engine::{
    AccessKind, Block, BlockId, Ended, MemoryAccess, Recording, SelfCheck, Sink,
};
use crate::trace::whole_file::WholeFile;

/// Bytes that are gathered before they are written.
const CHUNK_BYTES: usize = 1 << 16;

/// A sink that writes what it is told. What goes wrong is kept and said by [`Writer::finish`],
/// because a sink cannot refuse.
pub struct Writer<W: Write> {
    out: W,
    buffer: Vec<u8>,
    failure: Option<io::Error>,
    last_insn: u64,
    last_access: u64,
}

impl<W: Write> Writer<W> {
    /// Starts a file.
    pub fn new(out: W) -> Self {
        Self {
            out,
            buffer: [&MAGIC[..], &[VERSION]].concat(),
            failure: None,
            last_insn: 0,
            last_access: 0,
        }
    }

    fn flush_if_large(&mut self, limit: usize) {
        if self.buffer.len() >= limit {
            if self.failure.is_none() {
                self.failure = self.out.write_all(&self.buffer).err();
            }
            self.buffer.clear();
        }
    }

    /// Writes how the window ended, and hands the file back.
    ///
    /// # Errors
    /// Whatever failed first while writing.
    pub fn finish(mut self, recording: &Recording) -> io::Result<W> {
        let out = &mut self.buffer;
        out.push(END);
        text(out, recording.engine.as_bytes());
        put(out, recording.instructions);
        put(out, recording.wall_ns);
        let (kind, signal) = match recording.ended {
            Ended::Length => (0, 0),
            Ended::Exit => (1, 0),
            Ended::Exec => (2, 0),
            Ended::Signal(number) => (3, number),
            Ended::Short => (4, 0),
        };
        out.push(kind);
        put(out, u64::from(signal.cast_unsigned()));
        let (kind, number) = match recording.exit.as_ref().map(|exit| exit.status) {
            Some(Status::Code(code)) => (0, code),
            Some(Status::Signal(signal)) => (1, signal),
            None => (2, 0),
        };
        out.push(kind);
        put(out, u64::from(number.cast_unsigned()));
        let (kind, words) = match &recording.self_check {
            SelfCheck::NotCompared => (0, ""),
            SelfCheck::Equal(words) => (1, words.as_str()),
            SelfCheck::Differs(words) => (2, words.as_str()),
        };
        out.push(kind);
        text(out, words.as_bytes());
        put(out, recording.mappings.len() as u64);
        for mapping in &recording.mappings {
            put(out, mapping.start.0);
            put(out, mapping.end.0);
            put(out, mapping.file_offset.0);
            text(out, mapping.path.as_os_str().as_bytes());
        }
        put(out, recording.notes.len() as u64);
        for note in &recording.notes {
            text(out, note.as_bytes());
        }
        put(out, recording.code.len() as u64);
        for page in &recording.code {
            put(out, page.start.0);
            text(out, &page.bytes);
        }
        self.flush_if_large(0);
        match self.failure {
            Some(error) => Err(error),
            None => {
                self.out.flush()?;
                Ok(self.out)
            }
        }
    }
}

fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

impl<W: Write> Sink for Writer<W> {
    fn describe(&mut self, id: BlockId, block: &Block) {
        self.buffer.push(DESCRIBE);
        put(&mut self.buffer, u64::from(id.0));
        put(&mut self.buffer, block.insns.len() as u64);
        for insn in &block.insns {
            put_difference(&mut self.buffer, insn.address.0, self.last_insn);
            let drains = if insn.drains_stores { DRAINS_STORES } else { 0 };
            self.buffer.push(insn.size_bytes | drains);
            self.last_insn = insn.address.0.wrapping_add(u64::from(insn.size_bytes));
        }
        self.flush_if_large(CHUNK_BYTES);
    }

    fn restart(&mut self) {
        self.buffer.push(RESTART);
        (self.last_insn, self.last_access) = (0, 0);
    }

    fn run(&mut self, id: BlockId, accesses: &[MemoryAccess]) {
        self.buffer.push(RUN);
        put(&mut self.buffer, u64::from(id.0));
        put(&mut self.buffer, accesses.len() as u64);
        let mut insn = 0;
        for access in accesses {
            // What touches no memory has no bytes.
            let (is_store, touched) = match access.kind {
                AccessKind::Load => (0, access.size_bytes),
                AccessKind::Store => (1, access.size_bytes),
                AccessKind::Prefetch => (0, 0),
                AccessKind::Value => (1, 0),
            };
            put(&mut self.buffer, u64::from(access.insn.wrapping_sub(insn)) << 1 | is_store);
            put(&mut self.buffer, u64::from(touched));
            put_difference(&mut self.buffer, access.address.0, self.last_access);
            (insn, self.last_access) = (access.insn, access.address.0);
        }
        self.flush_if_large(CHUNK_BYTES);
    }
}

/// Starts a file that will be at `path` once it is whole; see [`keep`].
///
/// # Errors
/// When its folder cannot be written to.
pub fn create(path: &Path) -> io::Result<Writer<WholeFile>> {
    Ok(Writer::new(WholeFile::create(path)?))
}

/// Ends a file begun with [`create`] and puts it in its place.
///
/// # Errors
/// Whatever failed while writing; then an older file is still there.
pub fn keep(writer: Writer<WholeFile>, recording: &Recording) -> io::Result<()> {
    writer.finish(recording)?.keep()
}
