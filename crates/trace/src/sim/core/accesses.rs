//! What loads and stores do: ports, caches, lines and pages, the store queue; and string instructions, which are made of them.

use super::memory::Level;
use super::ops::Op;
use super::program::PAGE_LINES;
use super::state::{Served, Store};
use super::{Core, Mechanism, OpClass, STORE_LINES, WIDEST_BYTES};
use crate::machine::{WideVectors, WrittenCode};
use crate::model::{Avma, LINE_BYTES, PAGE_BYTES};
use crate::trace::engine::{AccessKind, MemoryAccess};

/// Lines of a wide access that are looked up.
const MOST_LINES: usize = 1024;
/// Behind so many instructions code is not near any more.
const NEAR_CODE_INSTRUCTIONS: u64 = 50_000;
/// From dispatch to the operands of a string instruction, where what they come from is dispatched with it.
const OPERANDS_CYCLES: u64 = 2;
/// Bits of the ports that loads and stores use; the table's operations use others.
const LOAD_PORTS: [u32; 4] = [1 << 5, 1 << 6, 1 << 7, 1 << 15];
const STORE_PORTS: [u32; 2] = [1 << 12, 1 << 13];

impl Core<'_> {
    /// When the value of a load is there.
    pub(super) fn load(&mut self, number: u32, op: &Op, access: &MemoryAccess, ready: u64) -> u64 {
        let loads = self.state.loads.len() as u64;
        let oldest = self.state.loads[(self.state.loaded % loads) as usize];
        let ready = ready.max(oldest).max(self.state.barrier);
        let (of_a_cycle, latency) = match op.uses_vector {
            true => {
                let of_a_cycle = self.shape.vector_loads_per_cycle(access.size_bytes);
                (of_a_cycle, self.shape.vector_load_cycles)
            }
            false => {
                let of_sign = if op.has_sign { self.shape.signed_load_cycles } else { 0 };
                (self.shape.loads_per_cycle, self.shape.load_cycles + of_sign)
            }
        };
        let start = self.start_address(of_a_cycle, ready);
        let latency = self.latency(latency);
        let (there_at, is_fresh) = self.fetch(number, access, start);
        if is_fresh {
            self.take_load_slots(self.shape.late_load_slots, there_at);
        }
        let mut done = there_at + latency;
        if self.crosses(access, LINE_BYTES) && self.has(Mechanism::SplitAccesses) {
            self.event(number, Mechanism::SplitAccesses);
            let more = 1..self.shape.split_load_slots;
            let last = more.fold(start, |start, _| self.take(load_ports(of_a_cycle), start));
            let longer =
                self.shape.split_load_cycles[usize::from(self.crosses(access, PAGE_BYTES))];
            done = done.max(last + latency).max(start + latency + u64::from(longer));
        }
        if access.size_bytes > WIDEST_BYTES {
            return done;
        }
        match self.serve(number, access, start) {
            Served::Renamed(at) if op.has_sign => at + self.latency(self.shape.signed_load_cycles),
            Served::Renamed(at) => at,
            Served::At(0) if self.is_aliased(access, start) => {
                self.event(number, Mechanism::AliasedLoads);
                done + u64::from(self.shape.alias_cycles)
            }
            Served::At(at) => done.max(at),
        }
    }

    pub(super) fn crosses(&self, access: &MemoryAccess, bytes: u64) -> bool {
        access.address.0 % bytes + u64::from(access.size_bytes) > bytes
    }

    /// When all lines of an access are in the first cache, and whether one of them is fresh.
    pub(super) fn fetch(&mut self, number: u32, access: &MemoryAccess, at: u64) -> (u64, bool) {
        if !self.has(Mechanism::DataCacheMisses) {
            return (at, false);
        }
        // Without them, an access is to its first line alone.
        let splits = access.size_bytes > WIDEST_BYTES || self.has(Mechanism::SplitAccesses);
        let mut there_at = at;
        let (mut missed, mut is_fresh) = (false, false);
        for line in lines(access).take(if splits { MOST_LINES } else { 1 }) {
            let fetched = self.state.caches.fetch(Avma(line * LINE_BYTES), at);
            there_at = there_at.max(fetched.there_at);
            is_fresh |= fetched.is_fresh;
            self.take_load_slots(fetched.filled * self.shape.fill_load_slots, fetched.there_at);
            missed |= fetched.level > Level::First || fetched.walked;
            let is_store = access.kind == AccessKind::Store;
            if is_store {
                self.state.caches.write(line);
            }
            let is_early = self.shape.leaves_when_asked && !is_store;
            let leaves_at = if is_early { fetched.asked_at } else { fetched.there_at };
            self.state.evict(fetched.evicted, leaves_at, &self.shape);
        }
        if missed {
            self.event(number, Mechanism::DataCacheMisses);
        }
        (there_at, is_fresh)
    }

    /// When a load, or a store with its address, starts that can from `ready` on; it waits until then.
    pub(super) fn start_address(&mut self, of_a_cycle: u32, ready: u64) -> u64 {
        let start = self.take(load_ports(of_a_cycle), ready);
        if self.shape.addresses_wait_with_integers {
            self.starts(OpClass::Integer, self.state.dispatch.0, start);
        }
        start
    }

    pub(super) fn take_load_slots(&mut self, slots: u32, at: u64) {
        for _ in 0..slots {
            self.take(load_ports(self.shape.loads_per_cycle), at);
        }
    }

    /// When a store past the caches can leave the queue.
    fn write_past(&mut self, number: u32, access: &MemoryAccess, at: u64) -> u64 {
        if !self.has(Mechanism::DataCacheMisses) {
            return at;
        }
        let mut leaves_at = at;
        for line in lines(access) {
            let (at, is_first) = self.state.caches.write_past(line, at);
            leaves_at = leaves_at.max(at);
            if is_first {
                self.event(number, Mechanism::DataCacheMisses);
            }
        }
        leaves_at
    }

    /// Brings a line that no instruction waits for.
    pub(super) fn prefetch(&mut self, access: &MemoryAccess, ready: u64) {
        let start = self.take(load_ports(self.shape.loads_per_cycle), ready);
        if self.has(Mechanism::DataCacheMisses) {
            let fetched = self.state.caches.fetch(access.address, start);
            self.state.evict(fetched.evicted, fetched.there_at, &self.shape);
        }
    }

    /// When the store queue takes the data of a store; of the widest in two parts.
    pub(super) fn take_data(&mut self, ready: u64, size_bytes: u32) -> u64 {
        let ports = ports(&STORE_PORTS, self.shape.stores_per_cycle);
        let first = self.take(ports, ready);
        if size_bytes == WIDEST_BYTES { self.take(ports, first) } else { first }
    }

    pub(super) fn store(
        &mut self,
        number: u32,
        access: &MemoryAccess,
        [addressed, value, data]: [u64; 3],
    ) {
        let there_at = match self.program.ops[number as usize].non_temporal {
            true => self.write_past(number, access, data),
            false => self.fetch(number, access, data).0,
        };
        let mut commit =
            self.state.next_commit(access, &self.shape).max(self.state.retire.0 + 2).max(there_at);
        let is_split = self.crosses(access, LINE_BYTES) && self.has(Mechanism::SplitAccesses);
        let is_in_parts = is_split && self.crosses(access, PAGE_BYTES);
        if is_split {
            self.event(number, Mechanism::SplitAccesses);
            let cycles = u64::from(self.shape.split_store_cycles[usize::from(is_in_parts)]);
            // Never with the one before it, where two others are.
            let last = self.state.commit_before(self.state.stored, 1);
            commit = (commit + cycles.saturating_sub(1)).max(last + cycles);
        }
        // The first level takes or gives two of the widest a cycle (measured on Redwood Cove: two loads and a store 1.5
        // cycles, one load and a store 1.0), or one where a store is to two lines (Zen 5: three loads and two stores across lines
        // 4.0, two and two 3.1, one and one 1.6 to 2.0).
        let takes_from_loads = match self.shape.wide_vectors {
            WideVectors::JoinPorts => true,
            WideVectors::Whole => is_split,
            WideVectors::InHalves => false,
        };
        if access.size_bytes == WIDEST_BYTES && takes_from_loads {
            let of_a_cycle = self.shape.vector_loads_per_cycle(WIDEST_BYTES);
            commit = self.take(load_ports(of_a_cycle), commit);
        }
        commit += self.write_code(number, access, [addressed, commit]);
        self.enqueue(number, access, [addressed, value, data, commit], is_in_parts);
    }

    /// Puts a store into the queue: when its address and its value are known, its data taken, and the cache has it.
    fn enqueue(
        &mut self,
        number: u32,
        access: &MemoryAccess,
        [addressed, value, data, commit]: [u64; 4],
        is_in_parts: bool,
    ) {
        let op = &self.program.ops[number as usize];
        let place = (op.place, self.state.writes[usize::from(op.base)]);
        let entries = self.state.stores.len() as u64;
        let slot = (self.state.stored % entries) as usize;
        // A store waits for an entry of the queue.
        let freed = self.state.stores[slot].commit;
        self.state.hold_dispatch(freed);
        self.state.stores[slot] = Store {
            address: access.address.0,
            size_bytes: access.size_bytes,
            addressed,
            value,
            data,
            op: number,
            place,
            commit,
            is_in_parts,
        };
        if op.class != OpClass::Locked {
            self.state.stores_drained_at = commit;
        }
        self.state.combined.take(access.address.0 / LINE_BYTES, commit);
        self.state.latest[number as usize] = self.state.stored;
        self.state.stored += 1;
        let last = access.address.0 + u64::from(access.size_bytes.min(WIDEST_BYTES)) - 1;
        for at in [access.address.0, last] {
            self.state.store_lines[(at / LINE_BYTES) as usize % STORE_LINES] = commit;
            let of_page = &mut self.state.page_lines[(at / LINE_BYTES % PAGE_LINES) as usize];
            *of_page = (*of_page).max(addressed);
        }
    }

    /// A store may be to code that has been fetched: all that follows is fetched again. Some cores start over what is older,
    /// too, as soon as the store has its address; this hands back by how much that delays it.
    fn write_code(
        &mut self,
        number: u32,
        access: &MemoryAccess,
        [addressed, commit]: [u64; 2],
    ) -> u64 {
        if self.state.executed.is_empty() || !self.has(Mechanism::WrittenCode) {
            return 0;
        }
        let mut later = 0;
        for line in lines(access).take(MOST_LINES) {
            let Some((executed, is_first)) = self.state.executed.get_mut(&line) else { continue };
            if self.instructions - *executed > NEAR_CODE_INSTRUCTIONS {
                continue;
            }
            let WrittenCode { first_cycles, next_cycles, clears, again_percent } =
                self.shape.written_code;
            let cycles = if std::mem::take(is_first) { first_cycles } else { next_cycles };
            self.event(number, Mechanism::WrittenCode);
            let older = self.state.retire.0.saturating_sub(addressed);
            later += self.retire_later(older * u64::from(again_percent) / 100);
            if clears {
                self.state.hold_dispatch(self.state.retire.0 + u64::from(cycles));
                self.state.fetch = self.state.dispatch.0;
            } else {
                let behind = self.state.code.written_at(line).max(commit + later);
                self.state.code.write(line, behind + u64::from(cycles));
            }
        }
        later
    }

    /// A string instruction: microcode that holds up what follows. What it takes was measured in loops in which its operands come
    /// from right in front of it.
    pub(super) fn repeat(&mut self, number: u32, start: u64, accesses: &[MemoryAccess]) {
        let bytes = accesses.iter().map(|access| u64::from(access.size_bytes)).max().unwrap_or(0);
        let loads = accesses.iter().any(|access| access.kind == AccessKind::Load);
        let unit_bytes = self.program.ops[number as usize].repeated_bytes;
        let costs = &self.strings[usize::from(!loads)][usize::from(unit_bytes == 1)];
        // Without microcode, as vector moves would do it.
        let cycles = match self.has(Mechanism::Microcode) {
            true => costs.rep_cycles(bytes) as u64,
            false => 1 + bytes / 32,
        };
        self.event(number, Mechanism::Microcode);
        let start = start.saturating_sub(OPERANDS_CYCLES);
        // Microcode goes on without the data: measured on Zen 4, `rep movsb` of 16 bytes takes 15 to 16 cycles where each line that
        // it reads or writes comes out of the second level, and 15 where all are in the first.
        let sequenced = start + cycles;
        let mut done = sequenced;
        for access in accesses {
            let there_at = self.fetch(number, access, start).0;
            if access.kind == AccessKind::Store {
                self.write_code(number, access, [start, sequenced]);
            } else {
                done = done.max(there_at);
            }
            if access.kind == AccessKind::Load && access.size_bytes <= WIDEST_BYTES {
                let (Served::Renamed(at) | Served::At(at)) = self.serve(number, access, start);
                done = done.max(at);
            }
        }
        self.state.hold_dispatch(sequenced);
        for register in [1, 6, 7] {
            self.state.registers[register] = sequenced;
        }
        self.retire(number, done);
        for access in accesses.iter().filter(|access| access.kind == AccessKind::Store) {
            let commit = self.state.next_commit(access, &self.shape).max(self.state.retire.0 + 2);
            self.enqueue(number, access, [done, done, done, commit], !self.shape.forwards_strings);
        }
    }
}

/// The lines that an access touches.
fn lines(access: &MemoryAccess) -> impl Iterator<Item = u64> {
    let first = access.address.0 / LINE_BYTES;
    let last = access.address.0.wrapping_add(u64::from(access.size_bytes) - 1) / LINE_BYTES;
    first..=last.max(first)
}

fn load_ports(of_a_cycle: u32) -> u32 {
    ports(&LOAD_PORTS, of_a_cycle)
}

fn ports(all: &[u32], count: u32) -> u32 {
    all.iter().take(count.max(1) as usize).fold(0, |set, port| set | port)
}
