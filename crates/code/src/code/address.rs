//! Symbolic addresses: which accesses of a function can meet, without running it.
//!
//! Every register value is followed back to its *root*: the value at the function's entry, the
//! result of one instruction, or whatever flows together at the start of a block. Copies, sums
//! with constants and `lea` are seen through, so `[r9+8*i]` with `r9 = rsp-8` equals
//! `[rsp+8*i-8]`; sums of registers and shifts are too, as far as two roots and a scaled one hold
//! them: unoptimised code walks an array by a start and a distance in two registers. Two addresses
//! with the same roots differ by a known constant; with different roots nothing is known about
//! them, unless they share base and scale (the same array).
//!
//! What a loop loads again and again (a pointer or a length that is a member of something) is
//! followed through memory, too, where the function both loads and stores at it (`cells`).
//!
//! A root names the *latest* value of its kind. A walk backwards along a path has to replace the
//! roots of a block's start by the values at the end of the predecessor ([`Addresses::before`]).

mod cells;
mod order;
mod taken;
mod turns;

use std::num::NonZeroU32;

use rustc_hash::FxHashMap;

use super::cfg::FunctionCode;
use super::insn::{Access, Flow, Insn, RawAddress, Reg, Value};
use super::loops::Loop;
use super::symbolic::{Root, RootKind, SymbolicAddress, masked};
use cells::{Cells, loads_a_register};
use order::{Asked, Order};
use taken::TakenBits;
pub use turns::index_mask;

/// A register's value by number. A root and a constant, or a constant alone, stand in the number
/// itself: the root's word above the constant. What is more is [`DERIVED`] and a place in [`Values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number(u64);

const DERIVED: u64 = 1 << 63;
/// In place of a root's word, which always says its kind in the lowest bits: no root.
const CONSTANT: u32 = 1 << 2;

impl Number {
    const NONE: Self = Self(0);

    fn of_root(root: Root) -> Self {
        Self(u64::from(root.0.get()) << 32)
    }

    fn of_sum(base: Option<Root>, offset_bytes: i32) -> Self {
        let word = base.map_or(CONSTANT, |root| root.0.get());
        Self(u64::from(word) << 32 | u64::from(offset_bytes as u32))
    }

    /// The root plus a number of bytes; `None` where that has no number of its own.
    fn moved(self, by: i64) -> Option<Self> {
        if by == 0 {
            return Some(self);
        }
        if self == Self::NONE || self.0 & DERIVED != 0 {
            return None;
        }
        let sum = i64::from(self.0 as u32 as i32).checked_add(by)?;
        Some(Self(self.0 >> 32 << 32 | u64::from(i32::try_from(sum).ok()? as u32)))
    }
}

/// Values that are more than a root and a constant, each once: equal values have equal numbers.
#[derive(Clone, Debug, Default)]
struct Values {
    known: Vec<SymbolicAddress>,
    numbers: FxHashMap<SymbolicAddress, u64>,
}

impl Values {
    fn number(&mut self, value: SymbolicAddress) -> Number {
        if value.also.is_none()
            && value.index.is_none()
            && let Ok(offset_bytes) = i32::try_from(value.offset_bytes)
        {
            return Number::of_sum(value.base, offset_bytes);
        }
        let next = self.known.len() as u64;
        let place = *self.numbers.entry(value).or_insert(next);
        if place == next {
            self.known.push(value);
        }
        Number(DERIVED | place)
    }

    fn value(&self, number: Number) -> SymbolicAddress {
        if number.0 & DERIVED != 0
            && let Some(value) = self.known.get((number.0 & !DERIVED) as usize)
        {
            return *value;
        }
        let word = (number.0 >> 32) as u32;
        let base = NonZeroU32::new(word).filter(|_| word != CONSTANT).map(Root);
        let offset_bytes = i64::from(number.0 as u32 as i32);
        SymbolicAddress { base, ..SymbolicAddress::constant(offset_bytes) }
    }
}

/// The values of all general registers at one point.
type State = [Number];

fn merge_number(block: usize, register: usize) -> Number {
    Number::of_root(Root::merge(block as u32, Reg(register as u8)))
}

/// The set of registers that differ, without a branch for each.
fn differing(a: &State, b: &State) -> u64 {
    let pairs = a.iter().zip(b).enumerate();
    pairs.fold(0, |set, (register, (a, b))| set | u64::from(a.0 != b.0) << register)
}

/// Joins the values of another predecessor in; true when something changed.
fn join(known: &mut State, incoming: &State, block: usize) -> bool {
    let mut changed = false;
    let mut differing = differing(known, incoming);
    while differing != 0 {
        let register = differing.trailing_zeros() as usize;
        let merged = merge_number(block, register);
        changed |= std::mem::replace(&mut known[register], merged) != merged;
        differing &= differing - 1;
    }
    changed
}

/// Merges each register that was merged at the same place before.
fn keep_merged(known: &mut State, before: &State, block: usize) {
    for (register, (mine, earlier)) in known.iter_mut().zip(before).enumerate() {
        if *earlier == merge_number(block, register) {
            *mine = *earlier;
        }
    }
}

/// Nothing is known about any register where code is entered, but for the function's own; and
/// nothing yet about other blocks.
fn entries(order: &Order<'_>, registers: usize, before: &State) -> Vec<Number> {
    let mut at_start = vec![Number::NONE; order.is_entry.len() * registers];
    for (block, state) in at_start.chunks_mut(registers).enumerate() {
        if order.is_entry[block] {
            merge_all(state, block);
        }
    }
    for (register, value) in at_start.iter_mut().enumerate().take(registers) {
        *value = Number::of_root(Root::entry(Reg(register as u8)));
    }
    if order.repeats.first() == Some(&true) {
        keep_merged(&mut at_start[..registers], before.get(..registers).unwrap_or(&[]), 0);
    }
    at_start
}

fn merge_all(state: &mut State, block: usize) {
    for (register, value) in state.iter_mut().enumerate() {
        *value = merge_number(block, register);
    }
}

fn known(state: &State, values: &Values, reg: Reg) -> SymbolicAddress {
    values.value(state[usize::from(reg.0) % state.len()])
}

/// What an instruction makes of a register, given what registers hold; `new` names what cannot be
/// said in terms of them.
fn made(
    value: Value,
    to: Reg,
    held: impl Fn(Reg) -> Option<SymbolicAddress>,
    new: Root,
) -> Option<SymbolicAddress> {
    match value {
        Value::Address(raw) => spelled(&raw, held),
        Value::Masked(mask) => held(to)?.cut(mask, new),
        Value::Cut(from, mask) => held(from)?.cut(mask, new),
        Value::Spread(from, mask, scale) => match held(from)?.as_constant() {
            Some(_) => held(from)?.cut(mask, new)?.times(scale),
            None => masked(u32::from(scale), mask.wrapping_mul(u64::from(scale)), new),
        },
        Value::Field(mask) => masked(1 << mask.trailing_zeros().min(8), mask, new),
        Value::Joined(a, b) => held(a)?.joined(&held(b)?),
        Value::Raised(from, by) => held(from)?.raised(by),
        Value::Product(a, b, more) => {
            let product = held(a)?.product(&held(b)?);
            product.and_then(|p| more.map_or(Some(p), |r| p.plus(&held(r)?)))
        }
    }
}

/// The symbolic form of an address spelled with registers; `None` when it has too many parts.
fn spelled(
    raw: &RawAddress,
    held: impl Fn(Reg) -> Option<SymbolicAddress>,
) -> Option<SymbolicAddress> {
    let index = match raw.index {
        Some(r) => Some((held(r)?, raw.scale)),
        None => None,
    };
    let base = match raw.base {
        Some(r) => Some(held(r)?),
        None => None,
    };
    SymbolicAddress::sum(base, index, raw.displacement)
}

fn step(state: &mut State, values: &mut Values, taken: &mut TakenBits, index: usize, insn: &Insn) {
    let new = |reg| Root::result(index as u32, reg);
    let mut number = |(reg, value): (Reg, Value)| {
        // A copy, or a place near another.
        if let Value::Address(RawAddress { base: Some(from), index: None, displacement, .. }) =
            value
            && let Some(moved) = state[usize::from(from.0) % state.len()].moved(displacement)
        {
            return (reg, moved);
        }
        let from = match value {
            Value::Masked(_) => Some(reg),
            Value::Cut(from, _) | Value::Spread(from, ..) => Some(from),
            _ => None,
        };
        let name = from.zip(value.mask()).map_or(new(reg), |(from, mask)| {
            taken.name(known(state, values, from), mask, index as u32, new(reg))
        });
        let known = made(value, reg, |r| Some(known(state, values, r)), name);
        (reg, known.map_or(Number::of_root(name), |value| values.number(value)))
    };
    let moved = insn.moves_base.map(|(base, by)| (base, Value::moved(base, by)));
    let defined = [insn.define.map(&mut number), moved.map(number)];
    let mut clobbers = insn.clobbers;
    while clobbers != 0 {
        let reg = Reg(clobbers.trailing_zeros() as u8);
        if let Some(value) = state.get_mut(usize::from(reg.0)) {
            *value = Number::of_root(new(reg));
        }
        clobbers &= clobbers - 1;
    }
    for (reg, value) in defined.into_iter().flatten() {
        if let Some(place) = state.get_mut(usize::from(reg.0)) {
            *place = value;
        }
    }
}

/// The symbolic addresses of a function's accesses.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// Per instruction: what the registers held of which its address is made, base and index.
    accesses: Vec<[Number; 2]>,
    /// The same for stores of instructions that load from another address.
    stores: FxHashMap<u32, [Number; 2]>,
    /// The registers at the end of each block, block after block.
    at_end: Vec<Number>,
    /// How many general registers, and places in memory that are followed like registers.
    registers: usize,
    cells: Cells,
    /// The registers that a call changes, where that is less than its instruction says.
    changed: FxHashMap<u32, u32>,
    values: Values,
    /// Where in `handed` stands what each call hands over.
    calls: FxHashMap<u32, u32>,
    /// What calls hand over, each in the order of [`Architecture::handed_over`].
    handed: Vec<Number>,
}

impl Addresses {
    /// Follows all values through a function. Linear in its size but for loops, which are gone
    /// round a few times: each register of each block changes at most twice.
    ///
    /// In two rounds. What changes in a loop is found out only when its end has been seen, and by
    /// then the blocks inside have met two values of it, the first of them outdated. The second
    /// round knows from the start what merges where a loop begins.
    #[must_use]
    pub fn of(code: &FunctionCode) -> Self {
        Self::following(code, vec![Asked::Accesses; code.blocks.len()], FxHashMap::default())
    }

    /// The same for the accesses in these loops only: what cannot flow into them is not looked at.
    /// `changed` are the registers that calls change of which more is known than the convention.
    #[must_use]
    pub fn in_loops<'a>(
        code: &FunctionCode,
        loops: impl Iterator<Item = &'a Loop>,
        changed: FxHashMap<u32, u32>,
    ) -> Self {
        Self::following(code, order::what_loops_ask(code, loops), changed)
    }

    fn following(code: &FunctionCode, asked: Vec<Asked>, changed: FxHashMap<u32, u32>) -> Self {
        let registers = code.architecture.registers();
        let order = Order::of(code, asked);
        let mut this = Self {
            accesses: vec![[Number::NONE; 2]; code.insns.len()],
            stores: FxHashMap::default(),
            at_end: Vec::new(),
            registers,
            cells: Cells::default(),
            changed,
            values: Values::default(),
            calls: FxHashMap::default(),
            handed: Vec::new(),
        };
        this.flow(code, &order);
        // What is loaded through a pointer that is loaded itself shows when that one is known.
        for _ in 0..Cells::MOST_DEEP {
            let cells = this.cells.and_more(code, &order, &this);
            if cells.len() == this.cells.len() {
                break;
            }
            this.registers = registers + cells.len();
            this.cells = cells;
            this.at_end.clear();
            this.flow(code, &order);
        }
        this
    }

    fn flow(&mut self, code: &FunctionCode, order: &Order<'_>) {
        let first_round = self.flow_together(code, order, Vec::new());
        if order.repeats.contains(&true) {
            self.flow_together(code, order, first_round);
        }
    }

    /// Fills in the registers at the end of each block, and gives those at the start. `before` is
    /// what an earlier round gave.
    fn flow_together(
        &mut self,
        code: &FunctionCode,
        order: &Order<'_>,
        before: Vec<Number>,
    ) -> Vec<Number> {
        let registers = self.registers;
        let blocks = code.blocks.len();
        let place = |block: usize| block * registers..(block + 1) * registers;
        let mut at_end = std::mem::take(&mut self.at_end);
        at_end.resize(blocks * registers, Number::NONE);
        let mut at_start = entries(order, registers, &before);
        let is_first = before.is_empty();
        // With what each block was gone through last: with the same it need not be again. Until it
        // is, that is what the earlier round gave.
        let mut seen_with = before;
        seen_with.resize(blocks * registers, Number::NONE);
        let mut entered = order.is_entry.to_vec();
        let mut waiting = vec![true; blocks];
        let mut again = true;
        while std::mem::take(&mut again) {
            for block in &order.blocks {
                if !entered[*block] || !std::mem::take(&mut waiting[*block]) {
                    continue;
                }
                let state = &mut at_end[place(*block)];
                let start = &at_start[place(*block)];
                let seen = &mut seen_with[place(*block)];
                if differing(seen, start) != 0 {
                    seen.copy_from_slice(start);
                    state.copy_from_slice(start);
                    self.run(state, code, *block, order.asked[*block]);
                }
                for successor in &code.blocks[*block].successors {
                    if order.asked[*successor] == Asked::Nothing {
                        continue;
                    }
                    let known = &mut at_start[place(*successor)];
                    let changed = if std::mem::replace(&mut entered[*successor], true) {
                        join(known, state, *successor)
                    } else {
                        known.copy_from_slice(state);
                        if order.repeats[*successor] && !is_first {
                            keep_merged(known, &seen_with[place(*successor)], *successor);
                        }
                        true
                    };
                    waiting[*successor] |= changed;
                    // What comes later in this round is looked at in this round.
                    again |= changed && order.position_of[*successor] <= order.position_of[*block];
                }
            }
        }
        for block in order.blocks.iter().filter(|block| !entered[**block]) {
            merge_all(&mut at_end[place(*block)], *block);
            merge_all(&mut at_start[place(*block)], *block);
        }
        self.at_end = at_end;
        at_start
    }

    /// Goes through a block and notes where it reads and writes.
    fn run(&mut self, state: &mut State, code: &FunctionCode, block: usize, asked: Asked) {
        let mut taken = TakenBits::default();
        let body = &code.blocks[block];
        let (registers, in_memory) = state.split_at_mut(self.registers - self.cells.len());
        self.cells.enter(in_memory, block, body.first, registers.len());
        for (index, insn) in (body.first..).zip(&code.insns[body.first..body.end]) {
            let gentle = (insn.flow == Flow::Call && !self.changed.is_empty())
                .then(|| self.changed.get(&(index as u32)))
                .flatten()
                .map(|clobbers| Insn { clobbers: *clobbers, ..*insn });
            let insn = gentle.as_ref().unwrap_or(insn);
            if asked == Asked::Accesses {
                self.note(registers, code, index, insn);
            }
            if self.cells.is_empty() {
                step(registers, &mut self.values, &mut taken, index, insn);
                continue;
            }
            let loaded = self.cells.loaded(&self.values, registers, in_memory, insn);
            self.cells.step(&self.values, registers, in_memory, index, insn);
            step(registers, &mut self.values, &mut taken, index, insn);
            if let Some((place, number)) =
                loaded.and_then(|(r, n)| Some((registers.get_mut(usize::from(r.0))?, n)))
            {
                *place = number;
            }
        }
    }

    /// Notes where an instruction reads and writes, and what it hands over.
    fn note(&mut self, state: &State, code: &FunctionCode, index: usize, insn: &Insn) {
        let held =
            |reg: Option<Reg>| reg.map_or(Number::NONE, |r| state[usize::from(r.0) % state.len()]);
        let numbers = |access: Access| [held(access.address.base), held(access.address.index)];
        if let Some(access) = insn.load.or(insn.store) {
            self.accesses[index] = numbers(access);
            if let Some(store) = insn.store.filter(|s| s.address != access.address) {
                self.stores.insert(index as u32, numbers(store));
            }
        }
        let leaves = matches!(insn.flow, Flow::Jump(to) if code.insn_at(to).is_none());
        if insn.flow == Flow::Call || leaves {
            let regs = code.architecture.handed_over();
            let next = self.handed.len() as u32;
            let at = *self.calls.entry(index as u32).or_insert(next) as usize;
            self.handed.resize(self.handed.len().max(at + regs.len()), Number::NONE);
            for (place, reg) in self.handed[at..].iter_mut().zip(regs) {
                *place = state[usize::from(reg.0) % state.len()];
            }
        }
    }

    /// Whether an access may count from what the function has loaded into a register: a look at the
    /// parts before they are added up.
    fn may_count_from_loads(&self, code: &FunctionCode, index: usize, is_store: bool) -> bool {
        let own = self.stores.get(&(index as u32)).filter(|_| is_store);
        let Some(numbers) = own.or(self.accesses.get(index)) else { return false };
        numbers.iter().any(|number| {
            let root = NonZeroU32::new((number.0 >> 32) as u32).map(|word| Root(word).kind());
            number.0 & DERIVED != 0
                || matches!(root, Some(RootKind::Result(at, _))
                    if code.insns.get(at as usize).is_some_and(|i| loads_a_register(i).is_some()))
        })
    }

    /// Where instruction `index` loads from.
    #[must_use]
    pub fn load(&self, code: &FunctionCode, index: usize) -> Option<SymbolicAddress> {
        let access = code.insns.get(index)?.load?;
        self.evaluate(&access.address, *self.accesses.get(index)?)
    }

    /// Where instruction `index` stores to.
    #[must_use]
    pub fn store(&self, code: &FunctionCode, index: usize) -> Option<SymbolicAddress> {
        let access = code.insns.get(index)?.store?;
        let own = self.stores.get(&(index as u32)).filter(|_| !self.stores.is_empty());
        self.evaluate(&access.address, *own.or(self.accesses.get(index))?)
    }

    /// An address whose registers hold these; `None` also where no path leads.
    fn evaluate(&self, raw: &RawAddress, [base, index]: [Number; 2]) -> Option<SymbolicAddress> {
        let unreached = (raw.base.is_some() && base == Number::NONE)
            || (raw.index.is_some() && index == Number::NONE);
        if unreached {
            return None;
        }
        let index = raw.index.map(|_| (self.values.value(index), raw.scale));
        let base = raw.base.map(|_| self.values.value(base));
        SymbolicAddress::sum(base, index, raw.displacement)
    }

    /// What a register that hands values to a function holds at a call, or a jump to it; the stack
    /// pointer as the function finds it.
    #[must_use]
    pub fn handed_over(
        &self,
        code: &FunctionCode,
        call: usize,
        reg: Reg,
    ) -> Option<SymbolicAddress> {
        let architecture = code.architecture;
        let place = architecture.handed_over().iter().position(|handed| *handed == reg)?;
        let at = *self.calls.get(&(call as u32))? as usize;
        let value = self.values.value(*self.handed.get(at + place)?);
        let is_call = code.insns.get(call).is_some_and(|insn| insn.flow == Flow::Call);
        let pushed = is_call && reg == architecture.stack_pointer();
        let down = if pushed { architecture.call_pushes_bytes() } else { 0 };
        Some(value.ahead(-down))
    }

    /// An address that holds at the start of `block`, in terms of the end of its predecessor.
    /// `None` when it can no longer be written down.
    #[must_use]
    pub fn before(
        &self,
        address: SymbolicAddress,
        block: usize,
        predecessor: usize,
    ) -> Option<SymbolicAddress> {
        let is_made_here =
            |root: Root| matches!(root.kind(), RootKind::Merge(at, _) if at as usize == block);
        if !address.roots().any(is_made_here) {
            return Some(address);
        }
        let value = |root: Root| match root.kind() {
            RootKind::Merge(at, reg) if at as usize == block => {
                let place = predecessor * self.registers + usize::from(reg.0);
                self.at_end
                    .get(place)
                    .map_or(SymbolicAddress::root(root), |n| self.values.value(*n))
            }
            _ => SymbolicAddress::root(root),
        };
        let index = address.index.map(|(root, scale)| (value(root), scale));
        let sum = SymbolicAddress::sum(address.base.map(value), index, address.offset_bytes)?;
        address.also.map_or(Some(sum), |root| sum.plus(&value(root)))
    }

    /// Where the stores of `block` go when it is entered from `predecessor`, as far as that can be
    /// said in terms of what was before: a value made in the block itself says nothing, since its
    /// name may mean a later round.
    #[must_use]
    pub fn entered(
        &self,
        code: &FunctionCode,
        block: usize,
        predecessor: usize,
    ) -> Vec<(usize, SymbolicAddress)> {
        let place = predecessor * self.registers..(predecessor + 1) * self.registers;
        let Some(numbers) = self.at_end.get(place) else { return Vec::new() };
        let mut state: Vec<Option<SymbolicAddress>> =
            numbers.iter().map(|number| Some(self.values.value(*number))).collect();
        let mut stores = Vec::new();
        for index in code.blocks[block].first..code.blocks[block].end {
            let insn = &code.insns[index];
            let held = |r: Reg| state.get(usize::from(r.0)).copied().flatten();
            let store = insn.store.and_then(|access| spelled(&access.address, held));
            stores.extend(store.map(|address| (index, address)));
            let make = |(reg, value): (Reg, Value)| {
                let new = Root::result(index as u32, reg);
                let made = made(value, reg, held, new);
                (reg, made.filter(|value| value.roots().all(|root| root != new)))
            };
            let moved = insn.moves_base.map(|(base, by)| (base, Value::moved(base, by)));
            let defined = [insn.define.map(make), moved.map(make)];
            for (register, value) in state.iter_mut().enumerate() {
                if insn.clobbers.checked_shr(register as u32).unwrap_or(0) & 1 != 0 {
                    *value = None;
                }
            }
            for (reg, value) in defined.into_iter().flatten() {
                if let Some(place) = state.get_mut(usize::from(reg.0)) {
                    *place = value;
                }
            }
        }
        stores
    }
}

#[cfg(test)]
mod tests;
