//! How what addresses are made of changes from turn to turn of a loop: by steps, or within a mask.

use super::Addresses;
use crate::code::cfg::FunctionCode;
use crate::code::insn::{Flow, Insn, Reg, Value};
use crate::code::loops::Loop;
use crate::code::symbolic::{LARGEST_MASK, Root, RootKind, SymbolicAddress};
use crate::code::x86::{Bound, GoesOn, Limit};

/// Masks that only say how wide a value is.
const WHOLE_VALUES: [u64; 3] = [0xff, 0xffff, 0xffff_ffff];

impl Addresses {
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

    /// What a register holds at the end of a block.
    fn held_behind(&self, block: usize, reg: Reg) -> Option<SymbolicAddress> {
        let place = block * self.registers + usize::from(reg.0);
        Some(self.values.value(*self.at_end.get(place)?))
    }

    /// How far an address moves each time a loop comes round that has one way back.
    #[must_use]
    pub fn moves_by(&self, address: &SymbolicAddress, around: &Loop) -> Option<i64> {
        let [latch] = around.latches[..] else { return None };
        self.before(*address, around.header, latch)?.minus(address)
    }

    /// How often a loop goes round when it is entered from a block, where it is left in one place only
    /// and the counter and its limit say so.
    #[must_use]
    pub fn rounds(
        &self,
        code: &FunctionCode,
        around: &Loop,
        entry: usize,
        limit: &Limit,
    ) -> Option<i64> {
        let [latch] = around.latches[..] else { return None };
        let leaves =
            |block: &usize| code.blocks[*block].successors.iter().any(|s| !around.contains(*s));
        if around.blocks.iter().any(|block| *block != latch && leaves(block)) {
            return None;
        }
        let counter = self.held_behind(latch, limit.counter)?;
        let RootKind::Merge(block, reg) = counter.base.filter(|_| counter.is_plain())?.kind()
        else {
            return None;
        };
        if block as usize != around.header {
            return None;
        }
        let step = self.moves_by(&counter, around)?;
        let bound = match limit.bound {
            Bound::Constant(number) => SymbolicAddress::constant(number),
            Bound::Register(reg) => self.held_behind(latch, reg)?,
        };
        let is_made_inside = |root: Root| match root.kind() {
            RootKind::Entry(_) => false,
            RootKind::Result(insn, _) => around.contains(code.block_of(insn as usize)),
            RootKind::Merge(block, _) => around.contains(block as usize),
        };
        if bound.roots().any(is_made_inside) {
            return None;
        }
        let after_first = self.held_behind(entry, reg)?.ahead(counter.offset_bytes);
        let left = bound.minus(&after_first)?;
        let more = match limit.goes_on {
            GoesOn::WhileDifferent => {
                (left.checked_rem(step)? == 0).then(|| left.checked_div(step)).flatten()?
            }
            _ if step <= 0 => return None,
            GoesOn::WhileBelow => left.max(0).checked_add(step - 1)? / step,
            GoesOn::WhileNotAbove => left.max(-1).checked_add(step)? / step,
        };
        (more >= 0).then_some(more.checked_add(1)?)
    }

    /// How far an address lies at least and at most from the pointers that it shares with another,
    /// where masks bound all else that it is made of.
    #[must_use]
    pub fn reach(
        &self,
        code: &FunctionCode,
        address: &SymbolicAddress,
        other: &SymbolicAddress,
    ) -> Option<(i64, i64)> {
        let shared = [other.base, other.also];
        let singles = [address.base, address.also].into_iter().flatten();
        let own = singles.filter(|root| !shared.contains(&Some(*root)));
        let parts = own.map(|root| (root, 1)).chain(address.index);
        self.sum_of(code, parts, address.offset_bytes, Self::MERGES_DEEP)
    }

    /// An index that is masked before the loop comes round meets its first value at the loop's start.
    const MERGES_DEEP: u32 = 2;

    fn sum_of(
        &self,
        code: &FunctionCode,
        mut parts: impl Iterator<Item = (Root, u8)>,
        offset_bytes: i64,
        deep: u32,
    ) -> Option<(i64, i64)> {
        parts.try_fold((offset_bytes, offset_bytes), |(least, most), (root, scale)| {
            let (low, high) = self.bounds(code, root, deep)?;
            let add = |sum: i64, bound: i64| sum.checked_add(bound.checked_mul(scale.into())?);
            Some((add(least, low)?, add(most, high)?))
        })
    }

    /// The least and the largest value of a root.
    fn bounds(&self, code: &FunctionCode, root: Root, deep: u32) -> Option<(i64, i64)> {
        match root.kind() {
            RootKind::Result(insn, reg) => Some((0, largest(made(code, insn, reg)?)?)),
            RootKind::Merge(block, reg) if usize::from(reg.0) < code.architecture.registers() => {
                let block = block as usize;
                if *code.order.is_entry.get(block)? {
                    return None;
                }
                let mut bounds: Option<(i64, i64)> = None;
                for predecessor in &code.blocks[block].predecessors {
                    let place = predecessor * self.registers + usize::from(reg.0);
                    let value = self.values.value(*self.at_end.get(place)?);
                    if value == SymbolicAddress::root(root) {
                        continue;
                    }
                    let singles = value.base.into_iter().chain(value.also).map(|root| (root, 1));
                    let parts = singles.chain(value.index);
                    let (low, high) =
                        self.sum_of(code, parts, value.offset_bytes, deep.checked_sub(1)?)?;
                    bounds = Some(bounds.map_or((low, high), |(l, h)| (l.min(low), h.max(high))));
                }
                bounds
            }
            _ => None,
        }
    }
}

/// What an instruction makes of a register.
fn made(code: &FunctionCode, insn: u32, reg: Reg) -> Option<&Value> {
    match code.insns.get(insn as usize)? {
        Insn { define: Some((defined, value)), flow: Flow::Next, .. } if *defined == reg => {
            Some(value)
        }
        _ => None,
    }
}

/// The largest number that a root can be that is made like this: it counts elements where the low
/// bits are masked away or it was shifted.
fn largest(value: &Value) -> Option<i64> {
    let (mask, whole) = match value {
        Value::Masked(mask) | Value::Cut(_, mask) | Value::Field(mask) => {
            let zeros = mask.trailing_zeros();
            (if zeros < 8 { mask >> zeros } else { *mask }, *mask)
        }
        Value::Spread(_, mask, scale) => (*mask, mask.checked_mul(u64::from(*scale))?),
        _ => return None,
    };
    (whole <= LARGEST_MASK).then(|| i64::try_from(mask).ok()).flatten()
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
            made(code, insn, reg)?.mask().filter(|mask| !WHOLE_VALUES.contains(mask))
        },
    )
}
