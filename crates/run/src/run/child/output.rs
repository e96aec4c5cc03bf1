//! The output of a child: digested as it comes, only the end of it kept.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::os::fd::OwnedFd;

/// How much of each output stream is kept, for messages and for what benchmarks print.
pub(super) const KEPT_BYTES: usize = 1 << 18;

/// What came out of one stream: its length, a digest, and the end of the text.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Output {
    /// All bytes that were written.
    pub bytes: u64,
    /// Equal for equal output within one run of ours; not stable across versions.
    pub digest: u64,
    /// The last quarter of a million bytes, as text.
    pub tail: String,
}

impl Output {
    /// What a program that failed complains of, more often than not: the first line that speaks of an error, or the
    /// last one that says anything.
    #[must_use]
    pub fn complaint(&self) -> Option<&str> {
        let error = self.tail.lines().find(|line| line.contains("error"));
        error.or_else(|| self.tail.lines().rfind(|line| !line.trim().is_empty()))
    }
}

pub(super) struct Stream {
    pub(super) file: Option<File>,
    hasher: DefaultHasher,
    bytes: u64,
    tail: Vec<u8>,
}

impl Stream {
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self { file: Some(fd.into()), hasher: DefaultHasher::new(), bytes: 0, tail: Vec::new() }
    }

    /// Takes what is there, one buffer of it; closes at the end of the stream. False when there
    /// was nothing to take.
    pub(super) fn drain(&mut self) -> bool {
        let mut buffer = [0_u8; 65536];
        let Some(file) = &mut self.file else {
            return false;
        };
        match file.read(&mut buffer) {
            Ok(0) => self.file = None,
            Ok(n) => {
                self.hasher.write(&buffer[..n]);
                self.bytes += n as u64;
                self.tail.extend_from_slice(&buffer[..n]);
                let surplus = self.tail.len().saturating_sub(KEPT_BYTES);
                self.tail.drain(..surplus);
                return true;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return true,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.file = None,
        }
        false
    }

    pub(super) fn finish(&self) -> Output {
        Output {
            bytes: self.bytes,
            digest: self.hasher.finish(),
            tail: String::from_utf8_lossy(&self.tail).into_owned(),
        }
    }
}
