//! Which accesses of a loop can be about the same memory at all: a look before the walk.
//!
//! On its way backwards a walk replaces the roots of a load's address by what they were made of in
//! the block before. All roots that can replace each other so are kin. A store can only meet a load
//! when both count from the same kin, and it can only block the load when it is narrower, or when
//! the constants in play can bring the two to a partial overlap. Most loads have no such store and
//! need no walk. An address whose roots nothing replaces (a slot of the frame) is compared at once.

use rustc_hash::FxHashMap;

use crate::code::{Addresses, FunctionCode, Loop, Root, RootKind, SymbolicAddress};
use crate::machine::ForwardingRule;

/// The kinds of kin that an address counts from, least first; what may be constant counts for none.
type Family = [u32; 2];
const NOBODY: u32 = u32::MAX;
/// The kind of everything that may turn into a constant.
const CONSTANT: u32 = 0;
/// No access is wider, and all widths that matter divide it.
const WIDEST_BYTES: i64 = 64;

/// What is known about a store beside its family.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Manner {
    size_bytes: u16,
    /// Constant part of its address, modulo [`WIDEST_BYTES`].
    offset_bytes: i64,
    /// Scale of its index; 0 without index.
    scale: u8,
}

/// The stores of a loop, by what they can meet.
pub(super) struct Kin {
    number: FxHashMap<Root, u32>,
    /// Union-find: towards the kind's name.
    parent: Vec<u32>,
    /// Per kind, what divides all constants that are added on the way from one root to another.
    step: Vec<u64>,
    /// Stores at addresses that no walk changes, by their roots: sorted offsets with widths.
    fixed: FxHashMap<[Option<Root>; 2], Vec<(i64, u16)>>,
    families: FxHashMap<Family, Vec<Manner>>,
}

impl Kin {
    /// Sorts the accesses of a loop.
    pub fn of(
        code: &FunctionCode,
        addresses: &Addresses,
        outer: &Loop,
        stores: &[(SymbolicAddress, u16)],
    ) -> Self {
        let mut kin = Self {
            number: FxHashMap::default(),
            parent: vec![CONSTANT],
            step: vec![0],
            fixed: FxHashMap::default(),
            families: FxHashMap::default(),
        };
        let insns = outer.blocks.iter().flat_map(|b| code.blocks[*b].first..code.blocks[*b].end);
        let loads = insns.filter_map(|i| addresses.load(i));
        let all = stores.iter().map(|(store, _)| *store).chain(loads);
        kin.join_all(code, addresses, outer, all.flat_map(|a| starts(&a)).flatten().collect());
        for (store, size_bytes) in stores {
            if store.index.is_none() {
                let slot = kin.fixed.entry(starts(store)).or_default();
                slot.push((store.offset_bytes, *size_bytes));
            }
            let family = kin.family(store);
            let manners = kin.families.entry(family).or_default();
            let manner = manner(store, *size_bytes);
            if !manners.contains(&manner) {
                manners.push(manner);
            }
        }
        kin.fixed.values_mut().for_each(|slots| slots.sort_unstable());
        kin
    }

    /// Follows roots to what replaces them, all through the loop.
    fn join_all(
        &mut self,
        code: &FunctionCode,
        addresses: &Addresses,
        outer: &Loop,
        mut work: Vec<Root>,
    ) {
        for root in &work {
            self.number_of(*root);
        }
        work.sort_unstable();
        work.dedup();
        while let Some(root) = work.pop() {
            let RootKind::Merge(block, _) = root.kind() else { continue };
            let Some(body) = code.blocks.get(block as usize) else { continue };
            let mine = self.number_of(root).0;
            for predecessor in body.predecessors.iter().filter(|p| outer.contains(**p)) {
                let address = SymbolicAddress::of_root(root);
                let Some(before) = addresses.before(address, block as usize, *predecessor) else {
                    continue;
                };
                let mut constant = true;
                for other in before.roots() {
                    let (theirs, is_new) = self.number_of(other);
                    self.join(mine, theirs, before.offset_bytes.unsigned_abs());
                    constant = false;
                    if is_new {
                        work.push(other);
                    }
                }
                if let Some((_, scale)) = before.index {
                    self.join(mine, mine, u64::from(scale));
                }
                if constant {
                    self.join(mine, CONSTANT, before.offset_bytes.unsigned_abs());
                }
            }
        }
    }

    fn number_of(&mut self, root: Root) -> (u32, bool) {
        let next = self.parent.len() as u32;
        let number = *self.number.entry(root).or_insert(next);
        if number == next {
            self.parent.push(next);
            self.step.push(0);
        }
        (number, number == next)
    }

    fn join(&mut self, a: u32, b: u32, step: u64) {
        let (a, b) = (self.find(a), self.find(b));
        // The constants keep their name.
        let (above, below) = (a.min(b), a.max(b));
        self.parent[below as usize] = above;
        let steps = greatest_divisor(self.step[above as usize], self.step[below as usize]);
        self.step[above as usize] = greatest_divisor(steps, step);
    }

    fn find(&self, mut number: u32) -> u32 {
        while self.parent[number as usize] != number {
            number = self.parent[number as usize];
        }
        number
    }

    fn family(&self, address: &SymbolicAddress) -> Family {
        let kind = |root: Option<Root>| {
            let number = root.and_then(|r| self.number.get(&r)).map_or(CONSTANT, |n| self.find(*n));
            if number == CONSTANT { NOBODY } else { number }
        };
        let [a, b] = starts(address).map(kind);
        // Equal ones count once: one may come from the other.
        if a == b { [a, NOBODY] } else { [a.min(b), a.max(b)] }
    }

    /// Whether any store of the loop may keep this load from being forwarded. False is certain.
    pub fn may_block(
        &self,
        load: &SymbolicAddress,
        size_bytes: u16,
        rule: &ForwardingRule,
    ) -> bool {
        let starts = starts(load);
        let moves = |root: &Root| matches!(root.kind(), RootKind::Merge(..));
        if load.index.is_none() && !starts.iter().flatten().any(moves) {
            let near = self.fixed.get(&starts).map_or(&[][..], Vec::as_slice);
            let first = load.offset_bytes.saturating_sub(WIDEST_BYTES);
            let end = load.offset_bytes.saturating_add(i64::from(size_bytes));
            return near[near.partition_point(|(at, _)| *at <= first)..]
                .iter()
                .take_while(|(at, _)| *at < end)
                .any(|(at, bytes)| {
                    let into = load.offset_bytes.wrapping_sub(*at);
                    into < i64::from(*bytes) && !rule.forwards(into, *bytes, size_bytes)
                });
        }
        let family = self.family(load);
        let Some(stores) = self.families.get(&family) else { return false };
        let load = manner(load, size_bytes);
        let step = family
            .iter()
            .filter(|kind| **kind != NOBODY)
            .fold(0, |step, kind| greatest_divisor(step, self.step[*kind as usize]));
        !stores.iter().all(|store| keeps_clear(load, *store, step, rule))
    }
}

/// Whether the two can only miss each other or be forwarded, wherever the constants lead.
fn keeps_clear(load: Manner, store: Manner, step: u64, rule: &ForwardingRule) -> bool {
    let width = load.size_bytes;
    let fits = |bytes: u64| bytes.is_multiple_of(u64::from(width));
    let contains = *rule == ForwardingRule::SingleStoreContains && store.size_bytes > width;
    width.is_power_of_two()
        && (store.size_bytes == width || contains && fits(u64::from(store.size_bytes)))
        && fits(step)
        && fits(u64::from(load.scale))
        && fits(u64::from(store.scale))
        && (load.offset_bytes - store.offset_bytes) % i64::from(width) == 0
}

fn manner(address: &SymbolicAddress, size_bytes: u16) -> Manner {
    Manner {
        size_bytes,
        offset_bytes: address.offset_bytes.rem_euclid(WIDEST_BYTES),
        scale: address.index.map_or(0, |(_, scale)| scale),
    }
}

/// The roots that an address counts from, its index aside.
fn starts(address: &SymbolicAddress) -> [Option<Root>; 2] {
    [address.base, address.also]
}

fn greatest_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
