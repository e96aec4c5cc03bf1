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
//! A root names the *latest* value of its kind. Whoever walks a path backwards has to replace the
//! roots of a block's start by the values at the end of the predecessor ([`Addresses::before`]).

use std::fmt;
use std::num::NonZeroU64;
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::cfg::FunctionCode;
use super::insn::{Access, Flow, Insn, RawAddress, Reg, Value};
use super::loops::reverse_post_order;

/// Where a value comes from that cannot be followed further back. One word: these are copied and
/// compared millions of times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Root(NonZeroU64);

/// A root, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootKind {
    /// The register's value when the function was entered.
    Entry(Reg),
    /// The result of an instruction (its index in the function).
    Result(u32, Reg),
    /// The value that a register has at the start of a block where several meet.
    Merge(u32, Reg),
}

impl Root {
    const ENTRY: u64 = 1;
    const RESULT: u64 = 2;
    const MERGE: u64 = 3;

    const fn pack(kind: u64, at: u32, reg: Reg) -> Self {
        // The kind is never 0.
        match NonZeroU64::new((at as u64) << 16 | (reg.0 as u64) << 8 | kind) {
            Some(word) => Self(word),
            None => Self(NonZeroU64::MIN),
        }
    }

    /// See [`RootKind::Entry`].
    #[must_use]
    pub const fn entry(reg: Reg) -> Self {
        Self::pack(Self::ENTRY, 0, reg)
    }

    /// See [`RootKind::Result`].
    #[must_use]
    pub const fn result(insn: u32, reg: Reg) -> Self {
        Self::pack(Self::RESULT, insn, reg)
    }

    /// See [`RootKind::Merge`].
    #[must_use]
    pub const fn merge(block: u32, reg: Reg) -> Self {
        Self::pack(Self::MERGE, block, reg)
    }

    /// What it is.
    #[must_use]
    pub fn kind(self) -> RootKind {
        let word = self.0.get();
        let (at, reg) = ((word >> 16) as u32, Reg((word >> 8) as u8));
        match word & 0xff {
            Self::ENTRY => RootKind::Entry(reg),
            Self::RESULT => RootKind::Result(at, reg),
            _ => RootKind::Merge(at, reg),
        }
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind().fmt(f)
    }
}

/// A value as `base + also + index * scale + offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SymbolicAddress {
    /// The base; `None` for a constant address.
    pub base: Option<Root>,
    /// What is added to the base: a second register. The lesser of the two roots is the base, so
    /// that equal sums are equal.
    pub also: Option<Root>,
    /// The index with its scale of 2 or more.
    pub index: Option<(Root, u8)>,
    /// The constant part in bytes.
    pub offset_bytes: i64,
}

impl SymbolicAddress {
    fn constant(offset_bytes: i64) -> Self {
        Self { base: None, also: None, index: None, offset_bytes }
    }

    fn root(root: Root) -> Self {
        Self { base: Some(root), ..Self::constant(0) }
    }

    /// The address that is this root and nothing else.
    #[must_use]
    pub fn of_root(root: Root) -> Self {
        Self::root(root)
    }

    /// How many bytes `self` lies above `other`, when both have the same roots.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Option<i64> {
        (self.same_start(other) && self.index == other.index)
            .then(|| self.offset_bytes.wrapping_sub(other.offset_bytes))
    }

    /// Whether both count from the same place, indices and constants aside.
    #[must_use]
    pub fn same_start(&self, other: &Self) -> bool {
        (self.base, self.also) == (other.base, other.also)
    }

    /// The roots it is made of.
    pub fn roots(&self) -> impl Iterator<Item = Root> {
        self.base.into_iter().chain(self.also).chain(self.index.map(|(root, _)| root))
    }

    /// `base + index * scale + displacement` of values; `None` when the sum has too many parts.
    fn sum(base: Option<Self>, index: Option<(Self, u8)>, displacement: i64) -> Option<Self> {
        let sum = base.unwrap_or(Self::constant(0)).plus(&Self::constant(displacement))?;
        match index {
            Some((index, 1)) => sum.plus(&index),
            Some((index, scale)) => sum.plus(&index.times(scale)?),
            None => Some(sum),
        }
    }

    fn plus(&self, other: &Self) -> Option<Self> {
        let mut singles = [self.base, self.also, other.base, other.also].into_iter().flatten();
        let (mut base, mut also) = (singles.next(), singles.next());
        if singles.next().is_some() || (self.index.is_some() && other.index.is_some()) {
            return None;
        }
        if also.is_some() && also < base {
            std::mem::swap(&mut base, &mut also);
        }
        let offset_bytes = self.offset_bytes.wrapping_add(other.offset_bytes);
        Some(Self { base, also, index: self.index.or(other.index), offset_bytes })
    }

    /// A single root, or a constant, so many times.
    fn times(&self, scale: u8) -> Option<Self> {
        let offset_bytes = self.offset_bytes.wrapping_mul(i64::from(scale));
        let index = self.base.map(|root| (root, scale));
        let single = self.also.is_none() && self.index.is_none();
        single.then(|| Self { index, ..Self::constant(offset_bytes) })
    }
}

/// A register's value by number: a root's own word, or [`DERIVED`] and a place in [`Values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number(u64);

const DERIVED: u64 = 1 << 63;

impl Number {
    fn of_root(root: Root) -> Self {
        Self(root.0.get())
    }
}

/// Values that are more than a root, each once: equal values have equal numbers.
#[derive(Clone, Debug, Default)]
struct Values {
    known: Vec<SymbolicAddress>,
    numbers: FxHashMap<SymbolicAddress, u64>,
}

impl Values {
    fn number(&mut self, value: SymbolicAddress) -> Number {
        if let Some(root) = value.base
            && value == SymbolicAddress::root(root)
        {
            return Number::of_root(root);
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
        let word = NonZeroU64::new(number.0).unwrap_or(NonZeroU64::MIN);
        SymbolicAddress::root(Root(word))
    }
}

/// The values of all general registers at one point.
type State = [Number];

fn merge_number(block: usize, register: usize) -> Number {
    Number::of_root(Root::merge(block as u32, Reg(register as u8)))
}

/// Joins the values of another predecessor in; true when something changed.
fn join(known: &mut State, incoming: &State, block: usize) -> bool {
    let mut changed = false;
    for (register, (mine, theirs)) in known.iter_mut().zip(incoming).enumerate() {
        if *mine != *theirs {
            let merged = merge_number(block, register);
            changed |= std::mem::replace(mine, merged) != merged;
        }
    }
    changed
}

/// Merges each register that was merged at the same place before.
fn keep_merged(known: &mut State, before: Option<&State>, block: usize) {
    for (register, (mine, earlier)) in known.iter_mut().zip(before.unwrap_or(&[])).enumerate() {
        if *earlier == merge_number(block, register) {
            *mine = *earlier;
        }
    }
}

/// The order in which blocks are looked at, and where it goes back.
struct Order {
    blocks: Vec<usize>,
    position_of: Vec<usize>,
    is_entry: Vec<bool>,
    /// Whether a block is also reached from one that is not before it.
    repeats: Vec<bool>,
}

impl Order {
    fn of(code: &FunctionCode) -> Self {
        let (blocks, is_entry) = reverse_post_order(&code.blocks);
        let mut position_of = vec![0; code.blocks.len()];
        for (position, block) in blocks.iter().enumerate() {
            position_of[*block] = position;
        }
        let repeats = (0..code.blocks.len())
            .map(|b| code.blocks[b].predecessors.iter().any(|p| position_of[*p] >= position_of[b]))
            .collect();
        Self { blocks, position_of, is_entry, repeats }
    }
}

/// The symbolic form of an address spelled with registers; `None` when it has too many parts.
fn evaluate(state: &State, values: &Values, raw: &RawAddress) -> Option<SymbolicAddress> {
    let value = |reg: Reg| values.value(state[usize::from(reg.0) % state.len()]);
    let index = raw.index.map(|r| (value(r), raw.scale));
    SymbolicAddress::sum(raw.base.map(value), index, raw.displacement)
}

fn step(state: &mut State, values: &mut Values, index: usize, insn: &Insn) {
    let result = |reg| Number::of_root(Root::result(index as u32, reg));
    let mut number = |(reg, value): (Reg, Value)| {
        let known = match value {
            Value::Address(raw) => evaluate(state, values, &raw),
            Value::Masked(_) => None,
        };
        (reg, known.map_or(result(reg), |value| values.number(value)))
    };
    let defined = [insn.define.map(&mut number), insn.also_define.map(number)];
    let mut clobbers = insn.clobbers;
    while clobbers != 0 {
        let reg = Reg(clobbers.trailing_zeros() as u8);
        if let Some(value) = state.get_mut(usize::from(reg.0)) {
            *value = result(reg);
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
    /// Per instruction: where it loads, where it stores.
    accesses: Vec<[Option<SymbolicAddress>; 2]>,
    /// The registers at the end of each block, block after block.
    at_end: Vec<Number>,
    registers: usize,
    values: Values,
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
        let registers = code.architecture.registers();
        let order = Order::of(code);
        let mut this = Self {
            accesses: vec![[None, None]; code.insns.len()],
            at_end: Vec::new(),
            registers,
            values: Values::default(),
        };
        let first_round = this.flow_together(code, &order, &[]);
        if order.repeats.contains(&true) {
            this.flow_together(code, &order, &first_round);
        }
        this
    }

    /// Fills in the registers at the end of each block, and gives those at the start. `before` is
    /// what an earlier round gave.
    fn flow_together(&mut self, code: &FunctionCode, order: &Order, before: &State) -> Vec<Number> {
        let registers = self.registers;
        let blocks = code.blocks.len();
        let place = |block: usize| block * registers..(block + 1) * registers;
        // At first nothing is known about any register; entries stay so, but for the function's own.
        let merged = (0..blocks)
            .flat_map(|block| (0..registers).map(move |register| merge_number(block, register)));
        let mut at_end: Vec<Number> = merged.collect();
        let mut at_start = at_end.clone();
        for (register, value) in at_start.iter_mut().enumerate().take(registers) {
            *value = Number::of_root(Root::entry(Reg(register as u8)));
        }
        if order.repeats.first() == Some(&true) {
            keep_merged(&mut at_start[..registers], before.get(place(0)), 0);
        }
        let mut entered = order.is_entry.clone();
        let mut waiting = vec![true; blocks];
        let mut again = true;
        while std::mem::take(&mut again) {
            for (position, block) in order.blocks.iter().enumerate() {
                if !entered[*block] || !std::mem::take(&mut waiting[*block]) {
                    continue;
                }
                let body = &code.blocks[*block];
                let state = &mut at_end[place(*block)];
                state.copy_from_slice(&at_start[place(*block)]);
                self.run(state, code, body.first..body.end);
                for successor in &body.successors {
                    let known = &mut at_start[place(*successor)];
                    let changed = if std::mem::replace(&mut entered[*successor], true) {
                        join(known, state, *successor)
                    } else {
                        known.copy_from_slice(state);
                        if order.repeats[*successor] {
                            keep_merged(known, before.get(place(*successor)), *successor);
                        }
                        true
                    };
                    waiting[*successor] |= changed;
                    // What comes later in this round is looked at in this round.
                    again |= changed && order.position_of[*successor] <= position;
                }
            }
        }
        self.at_end = at_end;
        at_start
    }

    /// Goes through a block and notes where it reads and writes.
    fn run(&mut self, state: &mut State, code: &FunctionCode, body: Range<usize>) {
        for index in body {
            let insn = &code.insns[index];
            let symbolic = |access: Option<Access>| {
                access.and_then(|a| evaluate(state, &self.values, &a.address))
            };
            self.accesses[index] = [symbolic(insn.load), symbolic(insn.store)];
            step(state, &mut self.values, index, insn);
        }
    }

    /// Where instruction `index` loads from.
    #[must_use]
    pub fn load(&self, index: usize) -> Option<SymbolicAddress> {
        self.accesses.get(index)?[0]
    }

    /// Where instruction `index` stores to.
    #[must_use]
    pub fn store(&self, index: usize) -> Option<SymbolicAddress> {
        self.accesses.get(index)?[1]
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

    /// Whether `root` is a register that goes on by a multiple of `bytes` each time the loop around
    /// it comes round: a pointer, or a distance, that walks over an array of such elements.
    #[must_use]
    pub fn walks_by(&self, code: &FunctionCode, root: Root, bytes: u8) -> bool {
        let RootKind::Merge(block, reg) = root.kind() else {
            return false;
        };
        let Some(header) = code.blocks.get(block as usize) else {
            return false;
        };
        let steps = header.predecessors.iter().filter_map(|predecessor| {
            let place = predecessor * self.registers + usize::from(reg.0);
            self.values.value(*self.at_end.get(place)?).minus(&SymbolicAddress::root(root))
        });
        let mut moves = false;
        for step_bytes in steps {
            if step_bytes % i64::from(bytes.max(1)) != 0 {
                return false;
            }
            moves |= step_bytes != 0;
        }
        moves
    }
}

/// The constant that an index was and-ed with on its way into `address`, if it was: the sign of a
/// ring or a small table, whose elements are met again soon.
#[must_use]
pub fn index_mask(code: &FunctionCode, address: &SymbolicAddress) -> Option<u64> {
    let index = address.index.map(|(root, _)| root);
    index.into_iter().chain(address.also).chain(address.base.filter(|_| index.is_none())).find_map(
        |root| {
            let RootKind::Result(insn, reg) = root.kind() else {
                return None;
            };
            match code.insns.get(insn as usize)? {
                Insn { define: Some((defined, Value::Masked(mask))), flow: Flow::Next, .. }
                    if *defined == reg =>
                {
                    Some(*mask)
                }
                _ => None,
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Svma;

    fn addresses(bytes: &[u8]) -> (FunctionCode, Addresses) {
        let code = FunctionCode::decode(bytes, Svma(0));
        let addresses = Addresses::of(&code);
        (code, addresses)
    }

    #[test]
    fn copies_and_lea_are_seen_through() {
        // sub rsp, 0x18; lea r9, [rsp-8]; mov eax, [r9+rcx*8]; mov edx, [rsp+rcx*8-8]
        let (_, a) = addresses(&[
            0x48, 0x83, 0xec, 0x18, 0x4c, 0x8d, 0x4c, 0x24, 0xf8, 0x41, 0x8b, 0x04, 0xc9, 0x8b,
            0x54, 0xcc, 0xf8,
        ]);
        let (hoisted, plain) = (a.load(2).unwrap(), a.load(3).unwrap());
        assert_eq!(hoisted, plain);
        assert_eq!(plain.base, Some(Root::entry(Reg::STACK)));
        assert_eq!(plain.offset_bytes, -0x20);
    }

    #[test]
    fn a_push_and_the_load_that_reads_it_agree() {
        // push rbx; mov rax, [rsp]
        let (_, a) = addresses(&[0x53, 0x48, 0x8b, 0x04, 0x24]);
        assert_eq!(a.store(0).unwrap().minus(&a.load(1).unwrap()), Some(0));
    }

    #[test]
    fn a_loaded_index_has_a_root_of_its_own() {
        // mov ecx, [rdi]; mov [rsi+rcx*4], eax; mov ecx, [rdi]; mov [rsi+rcx*4], eax
        let (_, a) = addresses(&[0x8b, 0x0f, 0x89, 0x04, 0x8e, 0x8b, 0x0f, 0x89, 0x04, 0x8e]);
        assert_eq!(a.store(1).unwrap().minus(&a.store(3).unwrap()), None);
        assert_eq!(a.store(1).unwrap().base, a.store(3).unwrap().base);
    }

    #[test]
    fn sums_and_shifts_are_seen_through_in_any_order() {
        // shl edx, 3; add rdx, rdi; mov rdx, [rdx+r14]
        let (_, a) = addresses(&[0xc1, 0xe2, 0x03, 0x48, 0x01, 0xfa, 0x4a, 0x8b, 0x14, 0x32]);
        // lea rax, [rdx*8]; lea rax, [rax+r14]; mov rdx, [rdi+rax]
        let (_, b) = addresses(&[
            0x48, 0x8d, 0x04, 0xd5, 0, 0, 0, 0, 0x4a, 0x8d, 0x04, 0x30, 0x48, 0x8b, 0x14, 0x07,
        ]);
        let expected = SymbolicAddress {
            base: Some(Root::entry(Reg(7))),
            also: Some(Root::entry(Reg(14))),
            index: Some((Root::entry(Reg(2)), 8)),
            offset_bytes: 0,
        };
        assert_eq!((a.load(2), b.load(2)), (Some(expected), Some(expected)));
        // add rdi, rsi; add rdi, rdx; mov rax, [rdi]: more parts than can be written down
        let (_, a) = addresses(&[0x48, 0x01, 0xf7, 0x48, 0x01, 0xd7, 0x48, 0x8b, 0x07]);
        assert_eq!(a.load(2).unwrap().base, Some(Root::result(1, Reg(7))));
    }

    #[test]
    fn a_pointer_that_moves_is_told_from_one_that_stays() {
        // loop: mov [rdi+rsi], rax; sub rdi, 16; jmp loop
        let (code, a) = addresses(&[0x48, 0x89, 0x04, 0x37, 0x48, 0x83, 0xef, 0x10, 0xeb, 0xf6]);
        let at = a.store(0).unwrap();
        let (stays, moves) = (at.base.unwrap(), at.also.unwrap());
        assert_eq!(moves, Root::merge(0, Reg(7)));
        assert!(a.walks_by(&code, moves, 8) && !a.walks_by(&code, moves, 32));
        assert!(!a.walks_by(&code, stays, 8));
    }

    #[test]
    fn an_induction_variable_steps_by_a_constant() {
        // loop: mov [rdi+rcx*8], rax; inc rcx; jmp loop
        let (code, a) = addresses(&[0x48, 0x89, 0x04, 0xcf, 0x48, 0xff, 0xc1, 0xeb, 0xf7]);
        let store = a.store(0).unwrap();
        assert_eq!(store.index, Some((Root::merge(0, Reg(1)), 8)));
        let earlier = a.before(store, 0, 0).unwrap();
        assert_eq!(earlier.offset_bytes - store.offset_bytes, 8, "{code:?}");
    }

    #[test]
    fn a_branch_inside_a_loop_does_not_hide_what_moves() {
        // xor ebp, ebp; loop: test al, al; jz over; nop; over: mov [rdi+rbp], rax; sub rbp, 16;
        // jmp loop
        let (code, a) = addresses(&[
            0x31, 0xed, 0x84, 0xc0, 0x74, 0x01, 0x90, 0x48, 0x89, 0x04, 0x2f, 0x48, 0x83, 0xed,
            0x10, 0xeb, 0xf1,
        ]);
        let moves = a.store(4).unwrap().also.unwrap();
        assert_eq!(moves, Root::merge(1, Reg(5)));
        assert!(a.walks_by(&code, moves, 8));
    }

    #[test]
    fn a_mask_is_remembered() {
        // and ecx, 15; mov eax, [rsp+rcx*8]
        let (code, a) = addresses(&[0x83, 0xe1, 0x0f, 0x8b, 0x04, 0xcc]);
        assert_eq!(index_mask(&code, &a.load(1).unwrap()), Some(15));
    }
}
