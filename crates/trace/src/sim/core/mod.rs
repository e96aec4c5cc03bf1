//! A core out of order, driven by a trace: how many cycles a window takes, and why.
//!
//! Instructions are dispatched in order, so many a cycle, into a window of so many; each starts when what
//! it needs is there and a port is free, and retires behind the one before it; there is room for so many that wait. Loads look for their bytes
//! in the stores that have not reached the cache, then in the caches; a branch that the predictor gets wrong
//! holds back all that follows until it is resolved. A load that cannot be forwarded waits until *every*
//! store that it overlaps has retired and reached the cache: that is what puts whatever is older into its
//! chain, and why counts times a price tell too little.
//!
//! What a mechanism costs is told by running the same window without it ([`Mechanism`]): the difference is
//! what it costs here, beside everything else that goes on. Two mechanisms that hide behind one another both
//! cost nothing alone.
//!
//! A store to a line of code that was executed since it was last written clears everything in flight, and each one behind
//! it does so again for what was fetched ahead.
//!
//! Instructions of SSE that find the upper halves of vector registers in use have them put away first, and the next one of
//! AVX has them brought back; on Skylake's kind they wait for what they keep instead.
//!
//! A conversion, a root or a bit count that keeps a part of its destination, or that its core lets wait for it, waits for what
//! that register held.
//!
//! A load that starts when the address of a store in front of it has just become known is taken for a load of what that writes
//! where both go to the same place of different pages, and waits longer.
//!
//! A branch that was not taken for so long that nothing remembers where it goes is found out when it is decoded.
//!
//! Left out: windows of decoded code, memory that other cores write, assists
//! (denormal numbers), huge pages, the clock. Lines that a window touches first are taken for
//! being where the whole window fits. A model, no measurement: whoever names a cause by it holds its ratio
//! against the measured one first.
//! Literature: H. Wong, "Measuring Reorder Buffer Capacity" (2013) and "Store-to-Load Forwarding and Memory
//! Disambiguation in x86 Processors" (2014); A. Abel and J. Reineke, "uiCA" (2022).

mod accesses;
mod account;
mod blocked;
mod code_lines;
mod division;
mod false_dependencies;
mod fetched;
mod followed;
mod footprint;
mod forwarding;
mod halves;
mod mechanism;
mod memory;
mod memory_use;
mod microcode_use;
mod ops;
mod predictor;
mod program;
mod report;
mod resources;
mod scheduler;
mod sets;
mod slots;
mod state;
mod streams;
mod training;
mod upper_halves;
mod x87;

pub use account::{Account, Accounts, BlockedBy, RecordedWindow, WeightedSum};
pub use mechanism::Mechanism;
use program::{Program, WindowCode};
pub use report::{CycleReport, FunctionCycles, InsnCycles, ModelInput, Wait};
pub use training::{Learned, Training};

use std::collections::HashMap;

use crate::machine::{CoreShape, Design, ForwardingRule, OpClass, StringCosts};
use crate::model::{Avma, LINE_BYTES};
use crate::trace::engine::{AccessKind, Block, BlockId, MemoryAccess, Sink};
use blocked::BlockedCycles;
use ops::{FLAGS, Flow, Op, REGISTERS, VECTORS};
use predictor::hash;
use scheduler::Scheduler;
use state::State;

/// Wider accesses are made of many and are not forwarded.
const WIDEST_BYTES: u32 = 64;
/// From a store's data to its commit, at the least: what a blocked load costs has this in it.
const DATA_TO_COMMIT_CYCLES: u64 = 3;
/// From the end of an operation to its retirement, at the least: what waits for others to be done waits less long.
const RETIREMENT_CYCLES: u64 = 3;
/// Behind so many instructions an atomic operation is not near the one before.
const NEAR_LOCKED_INSTRUCTIONS: u64 = 20;
/// A store is right before an atomic operation up to so many cycles of dispatch.
const NEAR_STORE_CYCLES: u64 = 3;
/// What the queue in front of dispatch holds, in cycles of fetching.
const FETCHED_AHEAD_CYCLES: u64 = 12;
/// Stores in flight are found by their line; a power of two.
const STORE_LINES: usize = 1024;

/// What an operation waits for, and what waits for it.
#[derive(Clone, Copy, Default)]
struct Fences {
    /// It waits for the stores before it to reach the cache.
    stores: bool,
    /// It waits for everything before it.
    older: bool,
    /// Everything behind it waits.
    younger: bool,
}

/// A core that runs the window of a [`Program`].
struct Core<'a> {
    program: &'a Program,
    shape: CoreShape,
    rule: ForwardingRule,
    blocked_cycles: BlockedCycles,
    /// Of moves and of stores: those of more than a byte at a time, and of single bytes.
    strings: [[StringCosts; 2]; 2],
    without: Option<Mechanism>,
    /// Instructions that warm it up and are not accounted.
    warm_up: u64,
    instructions: u64,
    accounts: Vec<Account>,
    /// How often each load was blocked by each store, by their numbers.
    blocked_by: HashMap<[u32; 2], u64>,
    /// The stores in flight that the load at hand overlaps.
    overlapped: Vec<u32>,
    /// Whether each branch of the window is predicted, in order.
    predicted: &'a [bool],
    state: State,
}

impl<'a> Core<'a> {
    /// A core of this shape, with the rules and prices of `design`, that saw nothing of the program before and predicts these
    /// branches of the window; the first `warm_up` instructions are run and not accounted.
    fn new(
        design: &Design,
        shape: &CoreShape,
        program: &'a Program,
        predicted: &'a [bool],
        without: Option<Mechanism>,
        warm_up: u64,
    ) -> Self {
        Self {
            state: State::new(shape, program, without),
            predicted,
            rule: design.forwarding_rule,
            blocked_cycles: BlockedCycles::of_design(design),
            strings: [
                [8, 1].map(|unit| design.string_move_costs(unit)),
                [8, 1].map(|unit| design.string_store_costs(unit)),
            ],
            shape: shape.clone(),
            program,
            without,
            warm_up,
            instructions: 0,
            accounts: vec![Account::default(); program.ops.len()],
            blocked_by: HashMap::new(),
            overlapped: Vec::new(),
        }
    }

    /// Every instruction of the window with what became of it.
    fn accounts(&self) -> impl Iterator<Item = (Avma, &Account)> {
        self.program.ops.iter().map(|op| op.address).zip(&self.accounts)
    }

    /// From a store's commit to the value of a load that waited for it, and waits so long for its data.
    fn behind_commit_cycles(&self, blocked_cycles: u64) -> u64 {
        let most = u64::from(self.shape.behind_commit_cycles);
        most.min(blocked_cycles.saturating_sub(DATA_TO_COMMIT_CYCLES))
    }

    fn has(&self, mechanism: Mechanism) -> bool {
        self.without != Some(mechanism)
    }

    fn event(&mut self, op: u32, mechanism: Mechanism) {
        if self.instructions > self.warm_up {
            self.accounts[op as usize].events[mechanism as usize] += 1;
        }
    }

    /// The branch before went to `to`: was that predicted?
    fn resolve(&mut self, to: Avma) {
        let Some((number, known_at)) = self.state.branch.take() else { return };
        let op = &self.program.ops[number as usize];
        let right = self.predicted.get(self.state.branches).is_none_or(|right| *right);
        self.state.branches += 1;
        let taken = to != op.next;
        let follow_cycles = match taken {
            true => self.state.followed.cycles([op.address, op.next, to], op.flow.is_indirect()),
            false => 0,
        };
        if !right && self.has(Mechanism::MispredictedBranches) {
            self.event(number, Mechanism::MispredictedBranches);
            self.state.followed.mispredicted();
            self.state.hold_dispatch(known_at + u64::from(self.shape.mispredict_cycles));
            self.state.fetch = self.state.dispatch.0;
            self.state.code.redirect(self.state.dispatch.0);
        } else if taken {
            // One taken branch a cycle, or less often.
            let cycles = self.taken_branch(number, follow_cycles);
            self.fetched(number, cycles);
            self.state.fetch += self.unknown_branch(number);
            self.state.hold_dispatch(self.state.fetch);
        }
    }

    /// What comes before an instruction, or with it, was fetched in so many cycles, not more ahead than the queue in front of
    /// dispatch holds.
    fn fetched(&mut self, number: u32, cycles: u64) {
        let ahead = self.state.dispatch.0.saturating_sub(FETCHED_AHEAD_CYCLES);
        self.state.fetch = (self.state.fetch + cycles).max(ahead);
        if self.state.fetch > self.state.dispatch.0 {
            let is_slow = self.state.followed.was_slow();
            let mechanism = if is_slow { Mechanism::SlowFetch } else { Mechanism::TakenBranches };
            self.event(number, mechanism);
            self.state.hold_dispatch(self.state.fetch);
        }
    }

    /// Cycles in which one branch of its kind is followed.
    fn taken_branch(&self, number: u32, follow_cycles: u64) -> u64 {
        if !self.has(Mechanism::TakenBranches) {
            return follow_cycles;
        }
        let CoreShape { indirect_branch_cycles: indirect, call_cycles: [call, back], .. } =
            self.shape;
        let least = match self.program.ops[number as usize].flow {
            Flow::IndirectJump => indirect,
            Flow::IndirectCall => indirect.max(call),
            Flow::Call => call,
            Flow::Return => back,
            Flow::On | Flow::Either | Flow::Jump => 0,
        };
        follow_cycles.max(least.into())
    }

    /// What the fetch of a target waits for, of a branch that was taken: nothing where the branch is known.
    fn unknown_branch(&mut self, number: u32) -> u64 {
        let op = &self.program.ops[number as usize];
        // Not by its lowest bits: branches stand some bytes apart.
        let branch = hash(op.address.0);
        let known = self.state.known_branches.as_mut();
        let is_unknown = known.is_some_and(|known| known.insert_missing(branch, 0));
        // Where an indirect one goes is for the predictor to know.
        if !is_unknown || op.flow.is_indirect() || !self.has(Mechanism::CodeCacheMisses) {
            return 0;
        }
        self.event(number, Mechanism::CodeCacheMisses);
        self.shape.unknown_branch_cycles.into()
    }

    fn execute(&mut self, number: u32, accesses: &[MemoryAccess]) {
        let program = self.program;
        let op = &program.ops[number as usize];
        self.instructions += 1;
        let line = op.address.0 / LINE_BYTES;
        if program.code_and_data.contains(&line) {
            self.state.executed.insert(line, (self.instructions, true));
        }
        if self.state.code.may_wait(line) {
            self.fetch_code(number, line);
        }
        let fetched_cycles = self.state.followed.executed([op.address, op.next], op.in_jump);
        if fetched_cycles > 0 {
            self.fetched(number, fetched_cycles);
        }
        let row = self.shape.execution(op.class);
        let operations = match Mechanism::slow(op.class) {
            _ if op.joined => 0,
            Some(mechanism) if !self.has(mechanism) => 1,
            _ => u32::from(row.operations.max(op.memory.operations(&self.shape))),
        };
        let waits = op.class != OpClass::Renamed && !op.zeroes;
        if waits {
            let dispatch = self.state.dispatch.0;
            let room_at = self.scheduler(op.class).room_at(dispatch);
            self.state.hold_dispatch(room_at);
        }
        let keeps_upper = self.upper_halves(number, op.upper_halves);
        let dispatched = self.state.dispatch(&self.shape, op.renamed(), operations);
        let ready = |registers: &[u64; REGISTERS], mut set: u64| {
            let mut at = dispatched + 1;
            while set != 0 {
                at = at.max(registers[set.trailing_zeros() as usize]);
                set &= set - 1;
            }
            at
        };
        if op.repeated_bytes > 0 {
            let start = ready(&self.state.registers, op.inputs | op.addresses);
            self.repeat(number, start, accesses);
            return;
        }
        let mut addresses = ready(&self.state.registers, op.addresses);
        if op.scaled != 0 && self.shape.scaled_index_cycles > 0 {
            let cycles = self.latency(self.shape.scaled_index_cycles);
            addresses = addresses.max(ready(&self.state.registers, op.scaled) + cycles);
        }
        let mut inputs = ready(&self.state.registers, op.inputs);
        let sums = op.inputs & self.state.sums;
        if sums != 0 && op.class != OpClass::FloatAdd && !op.only_moves {
            let cycles = self.latency(self.shape.sum_elsewhere_cycles);
            inputs = inputs.max(ready(&self.state.registers, sums) + cycles);
        }
        if !op.stack.is_none() {
            inputs = inputs.max(self.state.x87.ready(&op.stack));
        }
        let merged = match keeps_upper {
            true => ready(&self.state.registers, op.outputs & VECTORS) + 1,
            false => 0,
        };
        let is_locked = op.class == OpClass::Locked;
        if is_locked && self.has(Mechanism::LockedOperations) {
            self.hold_behind_locked(dispatched);
        }
        let fences = match op.class {
            _ if !self.has(Mechanism::LockedOperations) => Fences::default(),
            OpClass::Fence => Fences { stores: true, older: true, younger: true },
            OpClass::LoadFence => Fences { stores: false, older: true, younger: true },
            OpClass::Locked => Fences {
                stores: self.shape.locked_waits_for_stores,
                older: self.shape.locked_is_fence,
                younger: false,
            },
            _ => Fences::default(),
        };
        if fences.older {
            inputs = inputs.max(self.state.retire.0.saturating_sub(RETIREMENT_CYCLES));
        }
        if fences.stores {
            inputs = inputs.max(self.state.stores_drained_at);
        }
        let mut loaded = 0;
        for access in accesses {
            match access.kind {
                // What an atomic operation takes holds its load, from wherever in the core that comes.
                AccessKind::Load if is_locked && !self.shape.locked_is_fence => {
                    loaded = loaded.max(self.fetch(number, access, addresses).0);
                }
                AccessKind::Load => loaded = loaded.max(self.load(number, op, access, addresses)),
                AccessKind::Prefetch => self.prefetch(access, addresses),
                AccessKind::Store | AccessKind::Value => {}
            }
        }
        let done = match is_locked && !self.shape.locked_waits_for_stores {
            // It starts with its address, and what it adds comes to that.
            true => self
                .compute(number, op, dispatched, addresses.max(loaded), accesses)
                .max(inputs + self.latency(1)),
            false => self.compute(number, op, dispatched, inputs.max(loaded), accesses),
        };
        let done = done.max(merged);
        let done = self.wait_for_held(number, op, done);
        if fences.younger {
            self.state.hold_dispatch(done);
        } else if fences.older {
            self.state.barrier = done;
        }
        let is_sum = op.class == OpClass::FloatAdd || op.only_moves && sums != 0;
        self.state.sums = match is_sum {
            true => self.state.sums | op.outputs & VECTORS,
            false => self.state.sums & !op.outputs,
        };
        let mut set = op.outputs;
        while set != 0 {
            let late = if op.late & set & set.wrapping_neg() != 0 { self.latency(1) } else { 0 };
            self.state.registers[set.trailing_zeros() as usize] = done + late;
            self.state.writes[set.trailing_zeros() as usize] += 1;
            set &= set - 1;
        }
        if !op.stack.is_none() {
            self.state.x87.write(&op.stack, done);
        }
        let mut complete = done;
        let mut data = 0;
        let stores = || accesses.iter().filter(|access| access.kind == AccessKind::Store);
        if let Some(store) = stores().next() {
            self.state.stored_at = self.state.dispatch.0;
            if self.shape.stores_take_load_slots {
                self.start_address(self.shape.loads_per_cycle, addresses);
            }
            data = self.take_data(done.max(addresses), store.size_bytes);
            if self.shape.waited_ports != 0 && !op.uses_vector {
                self.take(self.shape.waited_ports, data);
            }
            complete = complete.max(data);
        }
        self.retire(number, complete + 1);
        for access in accesses {
            match access.kind {
                AccessKind::Load => self.state.leave_load_queue(),
                AccessKind::Store => self.store(number, access, [addresses, done, data]),
                AccessKind::Prefetch | AccessKind::Value => {}
            }
        }
        if op.flow != Flow::On {
            self.state.branch = Some((number, done));
        }
    }

    fn fetch_code(&mut self, number: u32, line: u64) {
        let state = &mut self.state;
        let (there_at, missed) = state.code.fetch(line, state.dispatch.0, &mut state.caches);
        if !missed {
            self.state.hold_dispatch(there_at);
        } else if self.has(Mechanism::CodeCacheMisses) {
            self.event(number, Mechanism::CodeCacheMisses);
            self.state.hold_dispatch(there_at);
        }
    }

    /// Where operations of a class wait for their start.
    fn scheduler(&mut self, class: OpClass) -> &mut Scheduler {
        match &mut self.state.schedulers {
            (_, Some(vectors)) if class.is_vector() => vectors,
            (integers, _) => integers,
        }
    }

    /// An operation starts at `start`, and waits until then.
    fn starts(&mut self, class: OpClass, dispatched: u64, start: u64) {
        if start > dispatched + 1 {
            self.scheduler(class).enter(start);
        }
    }

    fn take(&mut self, ports: u32, cycle: u64) -> u64 {
        match self.has(Mechanism::BusyPorts) {
            true => self.state.slots.take(ports, cycle),
            false => cycle,
        }
    }

    /// How long what needs a result waits for it.
    fn latency(&self, cycles: u8) -> u64 {
        if self.has(Mechanism::LongChains) { u64::from(cycles) } else { 0 }
    }

    /// When the result is there.
    fn compute(
        &mut self,
        number: u32,
        op: &Op,
        dispatched: u64,
        ready: u64,
        accesses: &[MemoryAccess],
    ) -> u64 {
        if op.zeroes {
            return dispatched;
        }
        if op.adds_constant && self.shape.renames_additions {
            return ready;
        }
        // The flags are there when the jump has run, a register that it changes a cycle after what it needs.
        if op.in_jump {
            let writes = op.outputs & !(1 << FLAGS) != 0;
            return ready + if writes { self.latency(1) } else { 0 };
        }
        let microcode_cycles = op.microcode.cycles(&self.shape);
        let class = if microcode_cycles.is_some() { OpClass::Microcode } else { op.class };
        let row = self.shape.execution(class);
        let is_free = op.flow == Flow::Jump && !self.shape.jumps_take_units;
        if class == OpClass::Renamed || is_free {
            return ready;
        }
        let Some(slow) = Mechanism::slow(class) else {
            let (ports, times) = self.shape.ports(class, op.vector_bytes);
            let mut ports = op.memory.ports(&self.shape, ports);
            let waited_ports = self.shape.waited_ports;
            if waited_ports != 0 && class == OpClass::Integer && ready > dispatched + 1 {
                ports &= waited_ports;
            }
            for _ in 1..times {
                self.take(ports, ready);
            }
            let start = self.take(ports, ready);
            if waited_ports != 0 && class == OpClass::Multiply {
                self.take(waited_ports, start);
            }
            self.starts(class, dispatched, start);
            let more = if op.multiplies_and_adds { self.shape.multiply_add_cycles } else { 0 };
            return start + self.latency(row.latency_cycles + more);
        };
        self.event(number, slow);
        if !self.has(slow) {
            return self.take(row.ports, ready) + 1;
        }
        let unit = match class {
            OpClass::Divide32 | OpClass::Divide64 => 1,
            _ if slow == Mechanism::Divisions => 2,
            _ => 4,
        };
        let parts = u32::from(op.vector_bytes).div_ceil(self.shape.divider_bytes.max(1)).max(1);
        let (later, busy_later) = division::beside_probed(class, accesses, &self.shape);
        let once = u64::from(row.busy_cycles) + busy_later;
        let busy = microcode_cycles.unwrap_or(once * u64::from(parts));
        if slow == Mechanism::Divisions && self.instructions > self.warm_up {
            self.accounts[number as usize].divider_cycles += busy;
        }
        let start = self.take(row.ports, ready);
        let start = self.state.units.take(unit, start);
        self.starts(class, dispatched, start);
        let mut taken = busy;
        if class == OpClass::Locked {
            let before = std::mem::replace(&mut self.state.locked, self.instructions);
            if self.shape.locked_hold_cycles[0] > 0 {
                taken = 1;
            } else if self.instructions - before > NEAR_LOCKED_INSTRUCTIONS {
                taken = taken.max(self.shape.locked_apart_cycles.into());
            }
        }
        for _ in 1..taken {
            self.state.units.take(unit, start + 1);
        }
        let latency_cycles = u64::from(row.latency_cycles).saturating_add_signed(later);
        start + microcode_cycles.unwrap_or(latency_cycles + busy - once)
    }

    /// Some cores dispatch nothing behind an atomic operation for a while, however early it could start.
    fn hold_behind_locked(&mut self, dispatched: u64) {
        let [cycles, behind_store] = self.shape.locked_hold_cycles.map(u64::from);
        let is_behind = dispatched < self.state.stored_at + NEAR_STORE_CYCLES;
        let longer = if is_behind { behind_store } else { 0 };
        if cycles > 0 {
            self.state.hold_dispatch(dispatched + cycles + longer);
        }
    }

    fn retire(&mut self, number: u32, complete: u64) {
        let (before, width) = (self.state.retire.0, self.shape.retire_width);
        let is_joined = self.program.ops[number as usize].joined;
        let (cycle, retired) = &mut self.state.retire;
        if complete > *cycle {
            if complete > *cycle + 1 {
                self.state.waited_for = number;
            }
            (*cycle, *retired) = (complete, 0);
        } else if *retired >= width && !is_joined {
            (*cycle, *retired) = (*cycle + 1, 0);
        }
        // What is one with the operation before it has no entry of its own.
        let entries = u64::from(!is_joined);
        *retired += entries as u32;
        let now = *cycle;
        self.state.files.take(self.program.ops[number as usize].renamed(), now);
        let window = self.state.window.len() as u64;
        self.state.dispatched += entries;
        self.state.window[((self.state.dispatched + window - 1) % window) as usize] = now;
        if self.instructions > self.warm_up {
            let account = &mut self.accounts[number as usize];
            account.executions += 1;
            account.cycles += now - before;
        }
    }

    /// What has not retired when the latest operation does takes so many cycles longer, which are those of the operation that
    /// it waited for.
    fn retire_later(&mut self, cycles: u64) -> u64 {
        self.state.retire.0 += cycles;
        if self.instructions > self.warm_up {
            self.accounts[self.state.waited_for as usize].cycles += cycles;
        }
        cycles
    }
}

impl Sink for Core<'_> {
    fn describe(&mut self, _id: BlockId, _block: &Block) {}

    fn restart(&mut self) {
        self.state = State::new(&self.shape, self.program, self.without);
        self.accounts.fill(Account::default());
        self.instructions = 0;
    }

    fn run(&mut self, id: BlockId, accesses: &[MemoryAccess]) {
        let program = self.program;
        let Some(ops) = program.blocks.get(id.0 as usize) else { return };
        if let Some(first) = ops.first() {
            self.resolve(program.ops[*first as usize].address);
        }
        let mut rest = accesses;
        for (index, number) in ops.iter().enumerate() {
            let own = rest.iter().take_while(|access| access.insn as usize == index).count();
            let (these, others) = rest.split_at(own);
            rest = others;
            self.execute(*number, these);
        }
    }
}

#[cfg(test)]
mod tests;
