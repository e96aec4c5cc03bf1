//! The memory that we share with the plugin inside the emulator: a page of control words and a
//! ring of events.
//!
//! It is memory and no pipe, so that it survives a program that closes all its descriptors, and
//! costs no system call. The plugin writes the ring and its head, we write the tail. What is in the
//! ring outlives the process that wrote it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::model::{Avma, FileOffset};
use crate::trace::engine::Mapping;

/// Words of the ring: 32 MiB.
const RING_WORDS: usize = 1 << 22;
/// Words of the control page; `plugin.c` has the same list.
const CONTROL_WORDS: usize = 1024;
/// Both, as they are mapped.
const BYTES: NonZeroUsize = NonZeroUsize::new((CONTROL_WORDS + RING_WORDS) * 8).unwrap();
const MAGIC: u64 = 0x3176_6e6f_7375_6d65;

/// Places in the control page.
mod at {
    pub const MAGIC: usize = 0;
    pub const RING_WORDS: usize = 1;
    pub const WANTS_MEMORY: usize = 2;
    pub const SKIP: usize = 3;
    pub const INSTALLED: usize = 4;
    pub const HEAD: usize = 8;
    pub const TAIL: usize = 16;
    pub const DONE: usize = 24;
    pub const REQUEST: usize = 32;
    pub const ANSWER: usize = 33;
    pub const START: usize = 34;
    pub const MAP_START: usize = 35;
    pub const MAP_END: usize = 36;
    pub const MAP_OFFSET: usize = 37;
    pub const PATH_BYTES: usize = 38;
    pub const ARRIVALS: usize = 39;
    pub const MOST_THREADS: usize = 40;
    pub const EXECUTING: usize = 41;
    pub const PATH: usize = 64;
}

/// Our side of the shared memory.
pub(super) struct Channel {
    file: File,
    words: NonNull<AtomicU64>,
    tail: u64,
}

impl Channel {
    /// Makes one for a window that starts at the arrival behind `skip` others.
    pub(super) fn new(skip: u64, memory: bool) -> io::Result<Self> {
        let file = File::from(memfd_create(c"stallscope-trace", MFdFlags::MFD_CLOEXEC)?);
        file.set_len(BYTES.get() as u64)?;
        let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, of a file that is as long.
        let start = unsafe { mmap(None, BYTES, rights, MapFlags::MAP_SHARED, &file, 0) }?;
        let channel = Self { file, words: start.cast(), tail: 0 };
        channel.set(at::RING_WORDS, RING_WORDS as u64);
        channel.set(at::WANTS_MEMORY, memory.into());
        channel.set(at::SKIP, skip);
        channel.set(at::MAGIC, MAGIC);
        Ok(channel)
    }

    /// The name by which a child of ours can open it.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < CONTROL_WORDS + RING_WORDS);
        // SAFETY: inside the mapping, which lives as long as `self`; all access is atomic.
        unsafe { self.words.add(index).as_ref() }
    }

    fn get(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Acquire)
    }

    fn set(&self, index: usize, value: u64) {
        self.word(index).store(value, Ordering::Release);
    }

    /// Hands over the words that have come by now, in order.
    pub(super) fn drain(&mut self, mut each: impl FnMut(u64)) {
        const BATCH: u64 = 1 << 14;
        let head = self.get(at::HEAD);
        while self.tail != head {
            let end = head.min(self.tail + BATCH);
            for number in self.tail..end {
                let index = CONTROL_WORDS + number as usize % RING_WORDS;
                each(self.word(index).load(Ordering::Relaxed));
            }
            self.tail = end;
            self.set(at::TAIL, end);
        }
    }

    /// Has the plugin stop telling.
    pub(super) fn stop(&self) {
        self.set(at::DONE, 1);
    }

    /// What the plugin has found mapped, if it waits for an answer.
    pub(super) fn question(&self) -> Option<Mapping> {
        if self.get(at::REQUEST) == self.get(at::ANSWER) {
            return None;
        }
        let length = (self.get(at::PATH_BYTES) as usize).min((CONTROL_WORDS - at::PATH) * 8);
        let bytes = (at::PATH..CONTROL_WORDS).flat_map(|i| self.get(i).to_le_bytes());
        let path: Vec<u8> = bytes.take(length).collect();
        Some(Mapping {
            start: Avma(self.get(at::MAP_START)),
            end: Avma(self.get(at::MAP_END)),
            file_offset: FileOffset(self.get(at::MAP_OFFSET)),
            path: OsString::from_vec(path).into(),
        })
    }

    /// Lets the plugin go on; `start` is where the window starts, as soon as it is known.
    pub(super) fn answer(&self, start: Option<Avma>) {
        if let Some(start) = start {
            self.set(at::START, start.0);
        }
        self.set(at::ANSWER, self.get(at::REQUEST));
    }

    /// Whether the emulator has taken the plugin.
    pub(super) fn installed(&self) -> bool {
        self.get(at::INSTALLED) == 1
    }

    /// How often a thread has come to the start of the window.
    pub(super) fn arrivals(&self) -> u64 {
        self.get(at::ARRIVALS)
    }

    /// The most threads at once since the window began.
    pub(super) fn most_threads(&self) -> u64 {
        self.get(at::MOST_THREADS)
    }

    /// Whether the program has asked the kernel to replace it and not been refused.
    pub(super) fn executing(&self) -> bool {
        self.get(at::EXECUTING) == 1
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and whole; nobody borrows from it any more.
        let _ = unsafe { munmap(self.words.cast(), BYTES.get()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_once_and_in_order_around_the_ring() {
        let mut channel = Channel::new(3, true).unwrap();
        let mut next = 0_u64;
        for stretch in [10, RING_WORDS as u64, 5] {
            for number in next..next + stretch {
                channel.set(CONTROL_WORDS + number as usize % RING_WORDS, number);
            }
            channel.set(at::HEAD, next + stretch);
            channel.drain(|word| {
                assert_eq!(word, next);
                next += 1;
            });
        }
        assert_eq!(channel.get(at::TAIL), next);
        assert!(channel.question().is_none() && !channel.installed());
    }

    #[test]
    fn a_question_is_asked_until_it_is_answered() {
        let channel = Channel::new(0, false).unwrap();
        channel.set(at::MAP_START, 0x1000);
        channel.set(at::MAP_END, 0x3000);
        channel.set(at::PATH_BYTES, 4);
        channel.set(at::PATH, u64::from_le_bytes(*b"/a b\0\0\0\0"));
        channel.set(at::REQUEST, 1);
        let mapped = channel.question().unwrap();
        assert_eq!((mapped.start, mapped.end), (Avma(0x1000), Avma(0x3000)));
        assert_eq!(mapped.path, std::path::Path::new("/a b"));
        channel.answer(Some(Avma(0x1234)));
        assert!(channel.question().is_none());
        assert_eq!(channel.get(at::START), 0x1234);
    }
}
