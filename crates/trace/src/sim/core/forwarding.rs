//! What stores in flight do to a load: it gets the value while renaming, is forwarded, or waits for all that it overlaps.
//!
//! Literature: H. Wong, "Store-to-Load Forwarding and Memory Disambiguation in x86 Processors" (2014).

use super::program::PAGE_LINES;
use super::state::{Served, Store};
use super::{Core, Mechanism, STORE_LINES, WIDEST_BYTES};
use crate::machine::MemoryRenaming;
use crate::model::{LINE_BYTES, PAGE_BYTES};
use crate::trace::engine::MemoryAccess;

/// A load that one store has served so many times in a row is renamed by designs that learn that.
const TIMES_TO_LEARN: u8 = 8;
/// Such designs rename no narrower loads.
const LEAST_RENAMED_BYTES: u32 = 4;
/// Those that rename narrower ones do not rename these: they are merged into the register.
const NEVER_RENAMED_BYTES: u32 = 2;

/// A load is taken for one of what a store writes that has its address in the same cycle, or had it in the one before: measured on
/// Zen 4, of 2 to 10 cycles behind it none is, whatever the distance of the pages.
const ALIAS_CYCLES: u64 = 1;

impl Core<'_> {
    /// Whether a load that starts at `start` is taken for one of what a store in front of it writes to the same place of
    /// another page. Literature: Intel, "64 and IA-32 Architectures Optimization Reference Manual", on 4-KByte aliasing.
    pub(super) fn is_aliased(&self, access: &MemoryAccess, start: u64) -> bool {
        if self.shape.alias_cycles == 0 || !self.has(Mechanism::AliasedLoads) {
            return false;
        }
        let low = access.address.0;
        let ends = [low, low + u64::from(access.size_bytes) - 1];
        let latest = ends.map(|at| self.state.page_lines[(at / LINE_BYTES % PAGE_LINES) as usize]);
        if latest.into_iter().all(|addressed| addressed + ALIAS_CYCLES < start) {
            return false;
        }
        let entries = self.state.stores.len() as u64;
        let queued = self.state.stored.saturating_sub(entries)..self.state.stored;
        let queued = queued.rev().map(|n| &self.state.stores[(n % entries) as usize]);
        let is_aliased = |store: &Store| {
            let since = start.checked_sub(store.addressed);
            let behind = low.wrapping_sub(store.address) % PAGE_BYTES;
            let ahead = store.address.wrapping_sub(low) % PAGE_BYTES;
            since.is_some_and(|since| since <= ALIAS_CYCLES)
                && (behind < store.size_bytes.into() || ahead < access.size_bytes.into())
        };
        queued.take_while(|store| store.commit > start).any(is_aliased)
    }

    /// When the bytes are there that come from stores in flight; 0 where none do.
    pub(super) fn serve(&mut self, number: u32, access: &MemoryAccess, start: u64) -> Served {
        let (low, high) = (access.address.0, access.address.0 + u64::from(access.size_bytes));
        let in_flight =
            |at: u64| self.state.store_lines[(at / LINE_BYTES) as usize % STORE_LINES] > start;
        if !in_flight(low) && !in_flight(high - 1) {
            return Served::At(0);
        }
        let stores = self.state.stores.len() as u64;
        let oldest = self.state.stored.saturating_sub(stores);
        let (mut done, mut blocked, mut edges) = (0, false, 0);
        self.overlapped.clear();
        // The runs without a mechanism tell nothing of stores.
        let is_told = self.without.is_none() && self.instructions > self.warm_up;
        for n in (oldest..self.state.stored).rev() {
            let store = self.state.stores[(n % stores) as usize];
            if store.commit <= start {
                break;
            }
            if store.address >= high || store.address + u64::from(store.size_bytes) <= low {
                continue;
            }
            for edge in [store.address, store.address + u64::from(store.size_bytes)] {
                if low < edge && edge < high {
                    edges |= 1_u64 << (edge - low);
                }
            }
            if is_told && !self.overlapped.contains(&store.op) {
                self.overlapped.push(store.op);
            }
            let stored_by = &self.program.ops[store.op as usize];
            // What a string instruction stores is forwarded no more than pieces are.
            let is_of_string = stored_by.repeated_bytes > 0 && !self.shape.forwards_strings;
            blocked |= is_of_string;
            // Measured on Zen 4: 47 cycles for a round trip, 34 from one such store to the next.
            if store.is_in_parts && (!is_of_string || self.has(Mechanism::BlockedLoads)) {
                let blocked_cycles = self.blocked_cycles(number, access, &store);
                done = done.max(store.commit + self.behind_commit_cycles(blocked_cycles));
                continue;
            }
            let offset = low.wrapping_sub(store.address).cast_signed();
            let forwards = store.size_bytes <= WIDEST_BYTES
                && self.rule.forwards(offset, store.size_bytes as u16, access.size_bytes as u16);
            if forwards && !blocked && self.is_renamed(number, access, &store, n) {
                return Served::Renamed(store.value);
            }
            let op = &self.program.ops[number as usize];
            let computes = self.shape.joins_loads && (op.joins_load || !op.only_moves);
            let of_vector =
                if stored_by.uses_vector { self.shape.forward_from_vector_cycles } else { 0 };
            let cycles = self.shape.forward_cycles + u8::from(computes) + of_vector;
            let forwarded = store.data + self.latency(cycles);
            if forwards && !blocked {
                done = done.max(forwarded);
                break;
            }
            blocked = true;
            done = done.max(match self.has(Mechanism::BlockedLoads) {
                true => {
                    let blocked_cycles = self.blocked_cycles(number, access, &store);
                    forwarded
                        .max(store.data + blocked_cycles)
                        .max(store.commit + self.behind_commit_cycles(blocked_cycles))
                }
                // As one store of the whole value would serve it.
                false if self.hands_on(number, access, &store) => store.value,
                false => forwarded,
            });
            let covers =
                store.address <= low && store.address + u64::from(store.size_bytes) >= high;
            if covers {
                break;
            }
        }
        if blocked {
            if self.has(Mechanism::BlockedLoads) && self.crosses(access, PAGE_BYTES) {
                done += u64::from(self.shape.blocked_across_pages_cycles);
            }
            self.event(number, Mechanism::BlockedLoads);
            self.accounts[number as usize].store_edges |= edges;
            for store in &self.overlapped {
                *self.blocked_by.entry([number, *store]).or_default() += 1;
            }
        }
        Served::At(done)
    }

    /// From a store's data to the value of a load that it blocks.
    fn blocked_cycles(&self, number: u32, access: &MemoryAccess, store: &Store) -> u64 {
        let are_vectors = [store.op, number].map(|op| self.program.ops[op as usize].uses_vector);
        self.blocked_cycles.of([store.size_bytes, access.size_bytes], are_vectors)
    }

    /// Whether a load that the `n`th store serves gets the value while renaming.
    fn is_renamed(&mut self, number: u32, access: &MemoryAccess, store: &Store, n: u64) -> bool {
        let op = &self.program.ops[number as usize];
        let place = (op.place, self.state.writes[usize::from(op.base)]);
        let same_name = op.place != 0 && place == store.place;
        match self.shape.renames_memory {
            MemoryRenaming::Never => false,
            MemoryRenaming::SameName => same_name,
            MemoryRenaming::SameStore | MemoryRenaming::SameStart => {
                let (served_by, times) = &mut self.state.served[number as usize];
                if *served_by != store.op || self.state.latest[store.op as usize] != n {
                    (*served_by, *times) = (store.op, 0);
                }
                *times = times.saturating_add(1);
                (same_name || *times > TIMES_TO_LEARN)
                    && store.address == access.address.0
                    && (self.shape.renames_memory == MemoryRenaming::SameStart
                        || self.shape.renames_halves
                        || store.size_bytes == access.size_bytes)
                    && self.hands_on(number, access, store)
            }
        }
    }

    /// Whether cores that learn which store serves a load hand on such values.
    fn hands_on(&self, number: u32, access: &MemoryAccess, store: &Store) -> bool {
        let both = [number, store.op].map(|number| &self.program.ops[number as usize]);
        let [load, _] = both;
        let is_handed_on = match self.shape.renames_memory {
            MemoryRenaming::Never | MemoryRenaming::SameName => false,
            MemoryRenaming::SameStore => access.size_bytes >= LEAST_RENAMED_BYTES,
            MemoryRenaming::SameStart => {
                access.size_bytes != NEVER_RENAMED_BYTES && both.iter().all(|op| op.place != 0)
            }
        };
        is_handed_on
            && both.iter().all(|op| !op.uses_vector)
            && !(self.shape.joins_loads && load.joins_load)
    }
}
