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

use super::cfg::FunctionCode;
use super::insn::{Access, Flow, Insn, RawAddress, Reg, Value};
use super::loops::reverse_post_order;

/// Where a value comes from that cannot be followed further back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Root {
    /// The register's value when the function was entered.
    Entry(Reg),
    /// The result of an instruction (its index in the function).
    Result(u32, Reg),
    /// The value that a register has at the start of a block where several meet.
    Merge(u32, Reg),
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

/// The value of every general register at one point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State([SymbolicAddress; Reg::COUNT]);

impl State {
    fn entry() -> Self {
        Self(std::array::from_fn(|r| SymbolicAddress::root(Root::Entry(Reg(r as u8)))))
    }

    fn merge_of(block: usize) -> Self {
        Self(std::array::from_fn(|r| {
            SymbolicAddress::root(Root::Merge(block as u32, Reg(r as u8)))
        }))
    }

    fn get(&self, reg: Reg) -> SymbolicAddress {
        self.0[usize::from(reg.0) % Reg::COUNT]
    }

    /// Joins another predecessor in; true when something changed.
    fn join(&mut self, incoming: &Self, block: usize) -> bool {
        let mut changed = false;
        for (r, (mine, theirs)) in self.0.iter_mut().zip(&incoming.0).enumerate() {
            let merged = SymbolicAddress::root(Root::Merge(block as u32, Reg(r as u8)));
            if *mine != *theirs && *mine != merged {
                *mine = merged;
                changed = true;
            }
        }
        changed
    }

    /// With a merged value for each register that has one in `header`, the start of the same block.
    fn merged_like(mut self, header: Option<&Self>, block: usize) -> Self {
        for (mine, (known, merged)) in self
            .0
            .iter_mut()
            .zip(header.map_or([].as_slice(), |h| &h.0).iter().zip(Self::merge_of(block).0))
        {
            if *known == merged {
                *mine = merged;
            }
        }
        self
    }

    /// The symbolic form of an address spelled with registers; `None` when it has too many parts.
    fn evaluate(&self, raw: &RawAddress) -> Option<SymbolicAddress> {
        let base = raw.base.map(|r| self.get(r));
        let index = raw.index.map(|r| (self.get(r), raw.scale));
        SymbolicAddress::sum(base, index, raw.displacement)
    }

    fn step(&mut self, index: usize, insn: &Insn) {
        let defined = insn.define.map(|(reg, value)| {
            let known = match value {
                Value::Address(raw) => self.evaluate(&raw),
                Value::Masked(_) => None,
            };
            (reg, known.unwrap_or(SymbolicAddress::root(Root::Result(index as u32, reg))))
        });
        for r in 0..Reg::COUNT as u8 {
            if insn.clobbers & Reg(r).bit() != 0 {
                self.0[usize::from(r)] = SymbolicAddress::root(Root::Result(index as u32, Reg(r)));
            }
        }
        if let Some((reg, value)) = defined {
            self.0[usize::from(reg.0) % Reg::COUNT] = value;
        }
    }
}

/// The symbolic addresses of a function's accesses.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// Per instruction: where it loads, where it stores.
    accesses: Vec<[Option<SymbolicAddress>; 2]>,
    /// Per block: the registers at its end.
    at_end: Vec<State>,
}

impl Addresses {
    /// Follows all values through a function. Linear in its size but for loops, which are gone
    /// round a few times: each register of each block changes at most twice.
    #[must_use]
    pub fn of(code: &FunctionCode) -> Self {
        let at_start = states_at_block_starts(code);
        let mut accesses = vec![[None, None]; code.insns.len()];
        let mut at_end = at_start;
        for (block, state) in code.blocks.iter().zip(&mut at_end) {
            let body = block.first..block.end;
            for (index, access) in body.clone().zip(&mut accesses[body]) {
                let insn = &code.insns[index];
                let symbolic = |a: &Option<Access>| a.and_then(|a| state.evaluate(&a.address));
                *access = [symbolic(&insn.load), symbolic(&insn.store)];
                state.step(index, insn);
            }
        }
        Self { accesses, at_end }
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
        let value = |root: Root| match root {
            Root::Merge(at, reg) if at as usize == block => self.at_end[predecessor].get(reg),
            other => SymbolicAddress::root(other),
        };
        let index = address.index.map(|(root, scale)| (value(root), scale));
        let sum = SymbolicAddress::sum(address.base.map(value), index, address.offset_bytes)?;
        address.also.map_or(Some(sum), |root| sum.plus(&value(root)))
    }

    /// Whether `root` is a register that goes on by a multiple of `bytes` each time the loop around
    /// it comes round: a pointer, or a distance, that walks over an array of such elements.
    #[must_use]
    pub fn walks_by(&self, code: &FunctionCode, root: Root, bytes: u8) -> bool {
        let Root::Merge(block, reg) = root else {
            return false;
        };
        let Some(header) = code.blocks.get(block as usize) else {
            return false;
        };
        let steps = header.predecessors.iter().filter_map(|predecessor| {
            self.at_end[*predecessor].get(reg).minus(&SymbolicAddress::root(root))
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

/// In two rounds. What changes in a loop is found out only when its end has been seen, and by then
/// the blocks inside have met two values of it, the first of them outdated. The second round knows
/// from the start what merges where a loop begins.
fn states_at_block_starts(code: &FunctionCode) -> Vec<State> {
    let (order, is_entry) = reverse_post_order(&code.blocks);
    let first_round = flow_together(code, &order, &is_entry, &vec![None; code.blocks.len()]);
    let mut position = vec![0; code.blocks.len()];
    for (at, block) in order.iter().enumerate() {
        position[*block] = at;
    }
    let repeats =
        |b: usize| code.blocks[b].predecessors.iter().any(|p| position[*p] >= position[b]);
    let headers: Vec<Option<State>> =
        first_round.iter().enumerate().map(|(b, s)| s.filter(|_| repeats(b))).collect();
    let second_round = flow_together(code, &order, &is_entry, &headers);
    second_round.into_iter().enumerate().map(|(b, s)| s.unwrap_or(State::merge_of(b))).collect()
}

/// The registers at the start of each block that is reached. `headers` says what is known to merge
/// at some of them.
fn flow_together(
    code: &FunctionCode,
    order: &[usize],
    is_entry: &[bool],
    headers: &[Option<State>],
) -> Vec<Option<State>> {
    let mut at_start: Vec<Option<State>> = vec![None; code.blocks.len()];
    for (block, entry) in is_entry.iter().enumerate() {
        if *entry {
            at_start[block] = Some(match block {
                0 => State::entry().merged_like(headers[0].as_ref(), 0),
                // Reached in a way we cannot see: nothing is known about any register.
                _ => State::merge_of(block),
            });
        }
    }
    let mut changed = true;
    while changed {
        changed = false;
        for block in order {
            let Some(mut state) = at_start[*block] else {
                continue;
            };
            let body = &code.blocks[*block];
            for index in body.first..body.end {
                state.step(index, &code.insns[index]);
            }
            for successor in &body.successors {
                match &mut at_start[*successor] {
                    Some(known) => changed |= known.join(&state, *successor),
                    unknown => {
                        let header = headers[*successor].as_ref();
                        *unknown = Some(state.merged_like(header, *successor));
                        changed = true;
                    }
                }
            }
        }
    }
    at_start
}

/// The constant that an index was and-ed with on its way into `address`, if it was: the sign of a
/// ring or a small table, whose elements are met again soon.
#[must_use]
pub fn index_mask(code: &FunctionCode, address: &SymbolicAddress) -> Option<u64> {
    let index = address.index.map(|(root, _)| root);
    index.into_iter().chain(address.also).chain(address.base.filter(|_| index.is_none())).find_map(
        |root| {
            let Root::Result(insn, reg) = root else {
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
        assert_eq!(plain.base, Some(Root::Entry(Reg::STACK)));
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
            base: Some(Root::Entry(Reg(7))),
            also: Some(Root::Entry(Reg(14))),
            index: Some((Root::Entry(Reg(2)), 8)),
            offset_bytes: 0,
        };
        assert_eq!((a.load(2), b.load(2)), (Some(expected), Some(expected)));
        // add rdi, rsi; add rdi, rdx; mov rax, [rdi]: more parts than can be written down
        let (_, a) = addresses(&[0x48, 0x01, 0xf7, 0x48, 0x01, 0xd7, 0x48, 0x8b, 0x07]);
        assert_eq!(a.load(2).unwrap().base, Some(Root::Result(1, Reg(7))));
    }

    #[test]
    fn a_pointer_that_moves_is_told_from_one_that_stays() {
        // loop: mov [rdi+rsi], rax; sub rdi, 16; jmp loop
        let (code, a) = addresses(&[0x48, 0x89, 0x04, 0x37, 0x48, 0x83, 0xef, 0x10, 0xeb, 0xf6]);
        let at = a.store(0).unwrap();
        let (stays, moves) = (at.base.unwrap(), at.also.unwrap());
        assert_eq!(moves, Root::Merge(0, Reg(7)));
        assert!(a.walks_by(&code, moves, 8) && !a.walks_by(&code, moves, 32));
        assert!(!a.walks_by(&code, stays, 8));
    }

    #[test]
    fn an_induction_variable_steps_by_a_constant() {
        // loop: mov [rdi+rcx*8], rax; inc rcx; jmp loop
        let (code, a) = addresses(&[0x48, 0x89, 0x04, 0xcf, 0x48, 0xff, 0xc1, 0xeb, 0xf7]);
        let store = a.store(0).unwrap();
        assert_eq!(store.index, Some((Root::Merge(0, Reg(1)), 8)));
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
        assert_eq!(moves, Root::Merge(1, Reg(5)));
        assert!(a.walks_by(&code, moves, 8));
    }

    #[test]
    fn a_mask_is_remembered() {
        // and ecx, 15; mov eax, [rsp+rcx*8]
        let (code, a) = addresses(&[0x83, 0xe1, 0x0f, 0x8b, 0x04, 0xcc]);
        assert_eq!(index_mask(&code, &a.load(1).unwrap()), Some(15));
    }
}
