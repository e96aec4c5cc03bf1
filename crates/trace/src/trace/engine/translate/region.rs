//! The memory that the copy and stallscope share: code cache, slots, table of targets, log.
//!
//! It is one anonymous file. The copy maps the code readable and executable and the rest readable
//! and writable; stallscope maps all of it readable and writable, never executable. So no page is
//! writable and executable at once in either process, and neither code nor log is ever copied.
//! Behind the log lies a stretch that nothing may touch: writing there is how a full log shows.
//!
//! ```text
//! base          code cache           CODE_BYTES    copy: r-x   stallscope: rw-
//! + CODE_BYTES  slots                SLOT_BYTES    copy: rw-   stallscope: rw-
//! + ...         table of targets     TABLE_BYTES   copy: rw-   stallscope: rw-
//! + ...         counters             COUNTER_BYTES copy: rw-   stallscope: rw-
//! + ...         log                  LOG_BYTES     copy: rw-   stallscope: rw-
//! + ...         guard                GUARD_BYTES   copy: ---   not mapped
//! ```

use std::fs::File;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use super::emit::Gpr;

/// Room for translated code. Only touched pages cost memory.
pub(super) const CODE_BYTES: usize = 64 << 20;
/// Room for saved registers and the log's position.
pub(super) const SLOT_BYTES: usize = 4096;
/// One entry for each value of the low 16 bits of a target address.
const TABLE_ENTRIES: usize = 1 << 16;
/// Bytes of the table.
const TABLE_BYTES: usize = TABLE_ENTRIES * 8;
/// Blocks that can be counted at a time. Only touched pages cost memory.
pub(super) const MOST_COUNTERS: usize = 1 << 20;
const COUNTER_BYTES: usize = MOST_COUNTERS * 8;
/// Small enough to stay in a second-level cache between being written and being read.
pub(super) const LOG_BYTES: usize = 384 << 10;
/// More than the record of one block can take.
pub(super) const GUARD_BYTES: usize = 64 << 10;
/// All that both processes map.
pub(super) const SHARED_BYTES: usize =
    CODE_BYTES + SLOT_BYTES + TABLE_BYTES + COUNTER_BYTES + LOG_BYTES;
/// All that the copy must have room for.
pub(super) const TOTAL_BYTES: usize = SHARED_BYTES + GUARD_BYTES;

const SLOTS_AT: usize = CODE_BYTES;
const TABLE_AT: usize = SLOTS_AT + SLOT_BYTES;
const COUNTERS_AT: usize = TABLE_AT + TABLE_BYTES;
const LOG_AT: usize = COUNTERS_AT + COUNTER_BYTES;

/// A word that translated code keeps in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// What the program has in a general register while translated code borrows it.
    Saved(Gpr),
    /// Where the next record goes.
    LogPosition,
    /// Where an indirect call of the program leads.
    Target,
}

impl Slot {
    fn index(self) -> usize {
        match self {
            Self::Saved(register) => usize::from(register.0 & 15),
            Self::LogPosition => 16,
            Self::Target => 17,
        }
    }
}

fn counter_at(block: u32) -> usize {
    COUNTERS_AT + block as usize % MOST_COUNTERS * 8
}

fn entry_at(target: u64) -> usize {
    TABLE_AT + (target as usize & (TABLE_ENTRIES - 1)) * 8
}

/// stallscope's view of the shared memory, and where the copy sees it.
pub(super) struct Region {
    view: NonNull<u8>,
    /// Where it starts in the copy.
    pub(super) base: u64,
    /// Where in the copy the records begin that have not been read yet.
    log_start: u64,
}

impl Region {
    /// Maps the file, which must be [`SHARED_BYTES`] long, for us; `base` is where the copy has it.
    pub(super) fn map(file: &File, base: u64) -> nix::Result<Self> {
        let length = NonZeroUsize::new(SHARED_BYTES).unwrap_or(NonZeroUsize::MIN);
        let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; only this value refers to it
        // in this process. The copy changes it too, but never while it is stopped, and we look at
        // it only then.
        let view = unsafe { mmap(None, length, rights, MapFlags::MAP_SHARED, file, 0) }?;
        let log_start = base + LOG_AT as u64;
        Ok(Self { view: view.cast(), base, log_start })
    }

    /// Where a slot is in the copy.
    pub(super) fn slot_address(&self, slot: Slot) -> u64 {
        self.base + (SLOTS_AT + slot.index() * 8) as u64
    }

    /// Where the table of targets is in the copy.
    pub(super) fn table_address(&self) -> u64 {
        self.base + TABLE_AT as u64
    }

    /// Where in the copy the counter of a block is.
    pub(super) fn counter_address(&self, block: u32) -> u64 {
        self.base + counter_at(block) as u64
    }

    /// Reads the counter of a block.
    pub(super) fn counter(&self, block: u32) -> u64 {
        self.bytes(counter_at(block), 8).try_into().map_or(0, u64::from_ne_bytes)
    }

    /// Writes the counter of a block.
    pub(super) fn set_counter(&mut self, block: u32, value: u64) {
        self.bytes_mut(counter_at(block), 8).copy_from_slice(&value.to_ne_bytes());
    }

    /// One behind the log in the copy.
    pub(super) fn log_end(&self) -> u64 {
        self.base + SHARED_BYTES as u64
    }

    /// Whether an address of the copy lies behind the log, where nothing may be touched.
    pub(super) fn in_guard(&self, address: u64) -> bool {
        (self.log_end()..self.log_end() + GUARD_BYTES as u64).contains(&address)
    }

    /// Where in the code cache an address of the copy lies.
    pub(super) fn code_offset(&self, address: u64) -> Option<u32> {
        let offset = address.checked_sub(self.base)?;
        (offset < CODE_BYTES as u64).then_some(offset as u32)
    }

    /// Reads a slot.
    pub(super) fn slot(&self, slot: Slot) -> u64 {
        self.bytes(SLOTS_AT + slot.index() * 8, 8).try_into().map_or(0, u64::from_ne_bytes)
    }

    /// Writes a slot.
    pub(super) fn set_slot(&mut self, slot: Slot, value: u64) {
        self.bytes_mut(SLOTS_AT + slot.index() * 8, 8).copy_from_slice(&value.to_ne_bytes());
    }

    /// The code cache, to write to.
    pub(super) fn code_mut(&mut self) -> &mut [u8] {
        self.bytes_mut(0, CODE_BYTES)
    }

    /// Where indirect jumps to `target`, and to all with the same low bits, go first.
    pub(super) fn entry(&self, target: u64) -> u64 {
        self.bytes(entry_at(target), 8).try_into().map_or(0, u64::from_ne_bytes)
    }

    /// Lets indirect jumps to `target`, and to all with the same low bits, go to `code` first.
    pub(super) fn set_entry(&mut self, target: u64, code: u64) {
        self.bytes_mut(entry_at(target), 8).copy_from_slice(&code.to_ne_bytes());
    }

    /// Lets all indirect jumps go to `code`.
    pub(super) fn reset_entries(&mut self, code: u64) {
        for entry in self.bytes_mut(TABLE_AT, TABLE_BYTES).chunks_exact_mut(8) {
            entry.copy_from_slice(&code.to_ne_bytes());
        }
    }

    /// Where in the copy the records begin that have not been read yet.
    pub(super) fn log_start(&self) -> u64 {
        self.log_start
    }

    /// Sets where the next records begin.
    pub(super) fn set_log_start(&mut self, at: u64) {
        self.log_start = at;
    }

    /// The log's words from `start` to `end`, addresses in the copy.
    pub(super) fn log(&self, start: u64, end: u64) -> &[u64] {
        let from = start.saturating_sub(self.base + LOG_AT as u64).min(LOG_BYTES as u64) as usize;
        let to = end.saturating_sub(self.base + LOG_AT as u64).min(LOG_BYTES as u64) as usize;
        let words = self.bytes(LOG_AT + (from & !7), to.saturating_sub(from) & !7);
        // SAFETY: the log lies at a multiple of the page size and `from` is a multiple of 8, so
        // this is aligned for words, and every bit pattern is one.
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len() / 8) }
    }

    /// Moves an unfinished record from `start`, `bytes` long, to `to`, addresses in the copy.
    pub(super) fn move_record(&mut self, start: u64, bytes: u64, to: u64) {
        let log = self.base + LOG_AT as u64;
        let from = start.saturating_sub(log).min(LOG_BYTES as u64) as usize;
        let end = (from + bytes as usize).min(LOG_BYTES);
        let to = to.saturating_sub(log) as usize;
        if to + (end - from) <= LOG_BYTES {
            self.bytes_mut(LOG_AT, LOG_BYTES).copy_within(from..end, to);
        }
    }

    fn bytes(&self, at: usize, length: usize) -> &[u8] {
        debug_assert!(at + length <= SHARED_BYTES);
        // SAFETY: all callers stay inside the mapping; the copy is stopped while we look, so
        // nothing changes under the reference.
        unsafe { std::slice::from_raw_parts(self.view.as_ptr().add(at), length) }
    }

    fn bytes_mut(&mut self, at: usize, length: usize) -> &mut [u8] {
        debug_assert!(at + length <= SHARED_BYTES);
        // SAFETY: as above, and `&mut self` makes this the only reference in this process.
        unsafe { std::slice::from_raw_parts_mut(self.view.as_ptr().add(at), length) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: what `map` got, and no reference outlives this value. A failure leaks address space.
        let _ = unsafe { munmap(self.view.cast(), SHARED_BYTES) };
    }
}
