//! Where a modelled core stands: registers, queues, caches, and the cycles of dispatch and retirement.

use rustc_hash::FxHashMap;

use super::STORE_LINES;
use super::code_lines::CodeLines;
use super::followed::Followed;
use super::mechanism::Mechanism;
use super::memory::DataCaches;
use super::ops::{Flow, REGISTERS, Registers};
use super::program::{PAGE_LINES, Program};
use super::resources::{CombinedLines, RegisterFiles};
use super::scheduler::Scheduler;
use super::sets::{EMPTY, Sets};
use super::slots::Slots;
use super::upper_halves::UpperState;
use super::x87::Stack;
use crate::machine::CoreShape;
use crate::model::LINE_BYTES;
use crate::trace::engine::MemoryAccess;

#[derive(Clone, Copy, Default)]
pub(super) struct Store {
    pub address: u64,
    pub size_bytes: u32,
    /// When its address is known.
    pub addressed: u64,
    /// When its value is known.
    pub value: u64,
    /// When the store queue has it.
    pub data: u64,
    /// The instruction that stored it.
    pub op: u32,
    /// [`Op::place`], and how often its base had been written.
    pub place: (u64, u64),
    /// When it is in the cache.
    pub commit: u64,
    /// Whether it serves no load before that, because it goes to two pages.
    pub is_in_parts: bool,
}

/// What stores in flight give to a load.
pub(super) enum Served {
    /// The value itself, while renaming.
    Renamed(u64),
    /// It cannot be there before.
    At(u64),
}

pub(super) struct State {
    pub registers: [u64; REGISTERS],
    /// How often each was written.
    pub writes: [u64; REGISTERS],
    pub x87: Stack,
    /// Vector registers that hold the result of a floating-point addition.
    pub sums: Registers,
    pub upper_halves: UpperState,
    /// The cycle of dispatch, and how many were dispatched in it.
    pub dispatch: (u64, u32),
    /// When the latest block was fetched.
    pub fetch: u64,
    pub retire: (u64, u32),
    /// The latest operation that what is younger waited for to retire.
    pub waited_for: u32,
    /// When what left the window retired, by number modulo the window.
    pub window: Vec<u64>,
    pub dispatched: u64,
    pub files: RegisterFiles,
    pub loads: Vec<u64>,
    pub loaded: u64,
    pub stores: Vec<Store>,
    pub stored: u64,
    pub combined: CombinedLines,
    /// By instruction: the number of its last store, and which one served it the last so many times.
    pub latest: Vec<u64>,
    pub served: Vec<(u32, u8)>,
    /// By line: when the last store to it is in the cache.
    pub store_lines: Vec<u64>,
    /// By line of a page: when the address of a store to such a line is known at the latest.
    pub page_lines: [u64; PAGE_LINES as usize],
    /// Of lines that hold code and data: how many instructions were executed when the last one there was, and whether it was
    /// not written since.
    pub executed: FxHashMap<u64, (u64, bool)>,
    /// Loads start behind this.
    pub barrier: u64,
    /// When the last store is in the cache that is no part of an atomic operation: these follow on one another by themselves.
    pub stores_drained_at: u64,
    /// Instructions that were executed when the last atomic operation was.
    pub locked: u64,
    /// The cycle of dispatch of the latest store.
    pub stored_at: u64,
    /// In which cycles the units are taken that are not pipelined: for integers, for floating point, for atomic operations,
    /// fences and microcode.
    pub units: Slots,
    pub slots: Slots,
    /// What waits for its start: of integers, and of vectors where these wait elsewhere.
    pub schedulers: (Scheduler, Option<Scheduler>),
    pub caches: DataCaches,
    pub code: CodeLines,
    /// Branches that went somewhere.
    pub branches: usize,
    /// Branches of which it is known where they go; absent where there is room for all of the window.
    pub known_branches: Option<Sets>,
    pub followed: Followed,
    /// The last instruction, if it may have gone elsewhere, and when that is known.
    pub branch: Option<(u32, u64)>,
}

/// Ways of the table of known branches.
const BRANCH_WAYS: u64 = 8;

fn branches(entries: u32, program: &Program) -> Option<Sets> {
    let entries = u64::from(entries);
    let branches = program.ops.iter().filter(|op| op.flow != Flow::On).count() as u64;
    // Half, because they do not spread over the sets evenly.
    (branches > entries / 2).then(|| Sets::new(entries, entries / BRANCH_WAYS))
}

impl State {
    pub(super) fn new(shape: &CoreShape, program: &Program, without: Option<Mechanism>) -> Self {
        Self {
            registers: [0; REGISTERS],
            writes: [0; REGISTERS],
            x87: Stack::default(),
            sums: 0,
            upper_halves: UpperState::Clean,
            dispatch: (0, 0),
            fetch: 0,
            retire: (0, 0),
            waited_for: 0,
            window: vec![0; shape.reorder_window.max(1) as usize],
            dispatched: 0,
            files: RegisterFiles::new(shape),
            loads: vec![0; shape.load_queue.max(1) as usize],
            loaded: 0,
            stores: vec![Store::default(); shape.store_queue.max(1) as usize],
            stored: 0,
            combined: CombinedLines::new(shape),
            latest: vec![0; program.ops.len()],
            served: vec![(u32::MAX, 0); program.ops.len()],
            store_lines: vec![0; STORE_LINES],
            page_lines: [0; PAGE_LINES as usize],
            executed: FxHashMap::default(),
            barrier: 0,
            stores_drained_at: 0,
            locked: 0,
            stored_at: 0,
            units: Slots::new(),
            slots: Slots::new(),
            schedulers: (
                Scheduler::new(shape.scheduler),
                (shape.vector_scheduler > 0).then(|| Scheduler::new(shape.vector_scheduler)),
            ),
            caches: DataCaches::new(shape, &program.reuse),
            code: CodeLines::new(shape.code_cache, program.code_lines.iter().copied()),
            branches: 0,
            known_branches: branches(shape.known_branches, program),
            followed: Followed::new(shape, without),
            branch: None,
        }
    }

    pub(super) fn hold_dispatch(&mut self, until: u64) {
        if until > self.dispatch.0 {
            self.dispatch = (until, 0);
        }
    }

    pub(super) fn leave_load_queue(&mut self) {
        let entries = self.loads.len() as u64;
        self.loads[(self.loaded % entries) as usize] = self.retire.0;
        self.loaded += 1;
    }

    /// When the cache can take another store, in order.
    pub(super) fn next_commit(&self, store: &MemoryAccess, shape: &CoreShape) -> u64 {
        let line = store.address.0 / LINE_BYTES;
        self.earliest_commit(self.stored, (store.address.0, store.size_bytes), shape)
            .max(self.combined.room_at(line))
    }

    /// The same for the `n`th store, of so many bytes to this address, behind those before it.
    fn earliest_commit(&self, n: u64, (address, size_bytes): (u64, u32), shape: &CoreShape) -> u64 {
        let last = self.commit_before(n, 1);
        let is_joined = self.store_before(n, 1).is_some_and(|before| {
            let all = [(before.address, before.size_bytes), (address, size_bytes)];
            all.iter().all(|(at, size_bytes)| {
                *size_bytes <= shape.joined_stores_bytes
                    && [*at, at + u64::from(*size_bytes) - 1].map(|at| at / LINE_BYTES)
                        == [address / LINE_BYTES; 2]
            })
        });
        match is_joined {
            true => last,
            false => last.max(self.commit_before(n, shape.commits_per_cycle) + 1),
        }
    }

    /// When the store is in the cache that comes so many before the `n`th; 0 where there was none.
    pub(super) fn commit_before(&self, n: u64, stores: u32) -> u64 {
        self.store_before(n, stores).map_or(0, |store| store.commit)
    }

    /// The store that comes so many before the `n`th.
    fn store_before(&self, n: u64, stores: u32) -> Option<&Store> {
        let number = n.checked_sub(stores.into())?;
        Some(&self.stores[(number % self.stores.len() as u64) as usize])
    }

    /// A line leaves the first level at `cycle`: stores that are on their way to it bring it back, and those behind them wait.
    pub(super) fn evict(&mut self, line: u64, cycle: u64, shape: &CoreShape) {
        if line == EMPTY || self.store_lines[line as usize % STORE_LINES] <= cycle {
            return;
        }
        let entries = self.stores.len() as u64;
        let slot = |n: u64| (n % entries) as usize;
        let is_to_line = |store: &Store| store.address / LINE_BYTES == line && store.commit > cycle;
        let mut in_flight = self.stored.saturating_sub(entries)..self.stored;
        let Some(first) = in_flight.find(|n| is_to_line(&self.stores[slot(*n)])) else { return };
        let there_at = self.caches.bring_back(line, self.stores[slot(first)].commit);
        self.caches.write(line);
        self.stores[slot(first)].commit = there_at;
        for n in in_flight {
            let Store { address, size_bytes, .. } = self.stores[slot(n)];
            let earliest = self.earliest_commit(n, (address, size_bytes), shape);
            let store = &mut self.stores[slot(n)];
            store.commit = store.commit.max(earliest);
            let of_line =
                &mut self.store_lines[(store.address / LINE_BYTES) as usize % STORE_LINES];
            *of_line = (*of_line).max(store.commit);
        }
    }

    /// The cycle in which the next instruction is dispatched, which writes registers that it needs others for.
    pub(super) fn dispatch(
        &mut self,
        shape: &CoreShape,
        renamed: Registers,
        operations: u32,
    ) -> u64 {
        let window = self.window.len() as u64;
        if operations > 0 {
            self.hold_dispatch(self.window[(self.dispatched % window) as usize]);
        }
        self.hold_dispatch(self.files.room_at(renamed));
        let fits_whole = (2..=shape.dispatch_width).contains(&operations);
        let needed = if shape.dispatches_whole && fits_whole { operations } else { 1 };
        if operations > 0 && self.dispatch.1 + needed > shape.dispatch_width {
            self.dispatch = (self.dispatch.0 + 1, 0);
        }
        self.dispatch.1 += operations;
        if self.dispatch.1 > shape.dispatch_width {
            // What takes more slots than a cycle has goes on in the next ones.
            let over = self.dispatch.1 - shape.dispatch_width;
            let cycles = over.div_ceil(shape.dispatch_width);
            self.dispatch =
                (self.dispatch.0 + u64::from(cycles), over - (cycles - 1) * shape.dispatch_width);
        }
        self.slots.forget_before(self.dispatch.0);
        self.units.forget_before(self.dispatch.0);
        self.dispatch.0
    }
}
