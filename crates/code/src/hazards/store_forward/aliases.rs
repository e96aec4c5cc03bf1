//! Which accesses of a loop can be about the same memory at all: a look before the walk.
//!
//! On its way backwards a walk replaces the roots of a load's address by what they were made of in
//! the block before. Roots that can replace each other form a class. A store can only meet a load
//! when both count from the same classes, and it can only block the load when it is narrower, or
//! when the constants in play can bring the two to a partial overlap. Most loads have no such store
//! and need no walk. An address whose roots nothing replaces (a slot of the frame) is compared at
//! once.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::code::{Addresses, FunctionCode, Loop, Root, RootKind, SymbolicAddress};
use crate::machine::ForwardingRule;

use super::rounds::Rounds;
use super::scattered::{MOST_IN_A_ROW, is_place};
use super::stores::{LoopStores, Store};

/// The classes of roots that an address counts from, least first; what may be constant counts for
/// none.
type AliasClass = [u32; 2];
const NO_ROOT: u32 = u32::MAX;
/// The class of everything that may turn into a constant.
const CONSTANT: u32 = 0;
/// No access is wider.
const WIDEST_BYTES: i64 = 64;

/// A set of stores: a bit each for those of one alias class and shape, shared when there are many.
pub(super) type Suspects = u64;

/// What is known about an access beside its alias class.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct AccessShape {
    size_bytes: u16,
    /// Constant part of its address.
    offset_bytes: i64,
    /// Scale of its index; 0 without index.
    scale: u8,
    /// Whether one of its roots may turn into a constant.
    floats: bool,
    /// Whether it has one root and no index: only others reach into arrays that begin at any of their roots.
    is_plain: bool,
}

/// A store without an index: offset, width, class.
type Slot = (i64, u16, Suspects);

/// The stores of a loop, by what they can meet.
pub(super) struct AliasClasses {
    number: FxHashMap<Root, u32>,
    /// Union-find over classes of roots: towards the number of the class.
    parent: Vec<u32>,
    /// Per class, what divides all constants that are added on the way from one root to another.
    step: Vec<u64>,
    /// Stores at addresses that no walk changes, by their roots, sorted.
    fixed: FxHashMap<[Option<Root>; 2], Vec<Slot>>,
    by_alias: FxHashMap<AliasClass, Vec<(AccessShape, Suspects)>>,
    /// Stores into arrays, under an index or at a sum, by each class that an array may begin at.
    arrays: FxHashMap<u32, Vec<(AccessShape, Suspects)>>,
    shapes: FxHashMap<(AliasClass, AccessShape), u32>,
}

impl AliasClasses {
    /// Sorts the accesses of a loop, and tells the stores their class. `asked` are addresses that
    /// functions load from which the loop calls.
    pub fn of(
        code: &FunctionCode,
        addresses: &Addresses,
        outer: &Loop,
        stores: &mut LoopStores,
        rounds: &Rounds<'_>,
        asked: &[SymbolicAddress],
    ) -> Self {
        let mut classes = Self {
            number: FxHashMap::default(),
            parent: vec![CONSTANT],
            step: vec![0],
            fixed: FxHashMap::default(),
            by_alias: FxHashMap::default(),
            arrays: FxHashMap::default(),
            shapes: FxHashMap::default(),
        };
        let insns = code.insns_in(outer);
        let is_wide = |i: &usize| code.insns[*i].load.is_some_and(|a| a.size_bytes > 1);
        let loads = insns.filter(is_wide).filter_map(|i| addresses.load(code, i));
        let firsts: Vec<Store> = rounds.all(code).collect();
        let left: Vec<(usize, Store)> = stores.all_left().map(|(call, s)| (call, *s)).collect();
        let written = stores.all().iter().chain(&firsts).chain(left.iter().map(|(_, s)| s));
        let written = written.map(|store| store.address);
        let mut work = Vec::new();
        let mut sums = Vec::new();
        for address in written.chain(loads).chain(asked.iter().copied()) {
            for root in address.roots() {
                if classes.number_of(root).1 {
                    work.push(root);
                }
            }
            if address.also.is_some() || address.index.is_some() {
                sums.push(address);
            }
        }
        classes.join_all(code, addresses, outer, work);
        sums.sort_unstable();
        sums.dedup();
        sums.iter().for_each(|address| classes.join_doubles(address));
        stores.mark(|store| classes.enter(store));
        for store in &firsts {
            let class = classes.enter(store);
            stores.mark_also(store.insn, class);
        }
        let mut by_call: FxHashMap<usize, Suspects> = FxHashMap::default();
        for (call, store) in &left {
            *by_call.entry(*call).or_default() |= classes.enter(store);
        }
        stores.mark_left(by_call);
        classes.fixed.values_mut().for_each(|slots| slots.sort_unstable());
        classes
    }

    /// Enters a store among those that loads are held against.
    fn enter(&mut self, store: &Store) -> Suspects {
        let alias = self.alias(&store.address);
        let shape = self.shape(&store.address, store.size_bytes);
        let next = self.shapes.len() as u32;
        let number = *self.shapes.entry((alias, shape)).or_insert(next);
        let class = 1 << (number % Suspects::BITS);
        if number == next {
            self.by_alias.entry(alias).or_default().push((shape, class));
            if store.address.is_plain() {
                // At a fixed place, the one root picks the element.
                if store.address.base.is_some() && is_place(store.address.offset_bytes) {
                    self.arrays.entry(CONSTANT).or_default().push((shape, class));
                }
            } else {
                for kind in self.array_starts(&store.address) {
                    self.arrays.entry(kind).or_default().push((shape, class));
                }
            }
        }
        if store.address.index.is_none() {
            let slot = self.fixed.entry(starts(&store.address)).or_default();
            slot.push((store.address.offset_bytes, store.size_bytes, class));
        }
        class
    }

    /// Follows roots to what replaces them, all through the loop.
    fn join_all(
        &mut self,
        code: &FunctionCode,
        addresses: &Addresses,
        outer: &Loop,
        mut work: Vec<Root>,
    ) {
        while let Some(root) = work.pop() {
            let RootKind::Merge(block, _) = root.kind() else { continue };
            let Some(body) = code.blocks.get(block as usize) else { continue };
            let mine = self.number_of(root).0;
            for predecessor in body.predecessors.iter().filter(|p| outer.contains(**p)) {
                let address = SymbolicAddress::of_root(root);
                let Some(before) = addresses.before(address, block as usize, *predecessor) else {
                    continue;
                };
                for other in before.roots() {
                    let (theirs, is_new) = self.number_of(other);
                    self.join(mine, theirs, before.offset_bytes.unsigned_abs());
                    if is_new {
                        work.push(other);
                    }
                }
                if let Some((_, scale)) = before.index {
                    self.join(mine, mine, u64::from(scale));
                }
                // Nothing, or a scaled index alone, starts an address: it is as good as a constant.
                if before.base.is_none() {
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
        // The constants keep their number.
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

    fn shape(&self, address: &SymbolicAddress, size_bytes: u16) -> AccessShape {
        let floats = |root: Root| self.class_of(root) == CONSTANT;
        AccessShape {
            size_bytes,
            offset_bytes: address.offset_bytes,
            scale: address.index.map_or(0, |(_, scale)| scale),
            floats: starts(address).into_iter().flatten().any(floats),
            is_plain: address.is_plain(),
        }
    }

    fn class_of(&self, root: Root) -> u32 {
        self.number.get(&root).map_or(CONSTANT, |number| self.find(*number))
    }

    /// Two roots of an address that may turn out to be one and the same become a scaled index, and
    /// then nothing is left that the address starts from.
    fn join_doubles(&mut self, address: &SymbolicAddress) {
        let roots: Vec<u32> = address.roots().map(|root| self.class_of(root)).collect();
        let start = roots.first().copied().filter(|_| address.base.is_some());
        let twice = |kind: u32| roots.iter().filter(|k| **k == kind).count() > 1;
        for kind in start.into_iter().chain(address.also.and(roots.get(1).copied())) {
            if twice(kind) {
                self.join(kind, CONSTANT, 0);
            }
        }
    }

    fn alias(&self, address: &SymbolicAddress) -> AliasClass {
        let kind = |root: Option<Root>| {
            let number = root.map_or(CONSTANT, |root| self.class_of(root));
            if number == CONSTANT { NO_ROOT } else { number }
        };
        let [a, b] = starts(address).map(kind);
        // Equal ones count once: one may come from the other.
        if a == b { [a, NO_ROOT] } else { [a.min(b), a.max(b)] }
    }

    /// The classes that an array may begin at which is accessed there.
    fn array_starts(&self, address: &SymbolicAddress) -> SmallVec<[u32; 2]> {
        let mut kinds: SmallVec<[u32; 2]> =
            starts(address).into_iter().flatten().map(|root| self.class_of(root)).collect();
        if kinds.is_empty() {
            kinds.push(CONSTANT);
        }
        kinds.dedup();
        kinds
    }

    /// Narrower stores anywhere in an array that this load may read as well.
    fn scattered(&self, load: &SymbolicAddress, size_bytes: u16) -> Suspects {
        let stays = load.index.is_none() && !load.moves();
        let reach = MOST_IN_A_ROW * i64::from(size_bytes);
        let is_near = |store: &AccessShape| {
            let ahead = store.offset_bytes.wrapping_sub(load.offset_bytes);
            !stays || (-reach..i64::from(size_bytes)).contains(&ahead)
        };
        self.array_starts(load)
            .iter()
            .filter_map(|kind| self.arrays.get(kind))
            .flatten()
            .filter(|(store, _)| store.size_bytes < size_bytes && is_near(store))
            .fold(0, |all, (_, class)| all | class)
    }

    /// Which stores of the loop may keep this load from being forwarded: no others can.
    pub fn suspects(
        &self,
        load: &SymbolicAddress,
        size_bytes: u16,
        rule: &ForwardingRule,
    ) -> Suspects {
        self.overlapping(load, size_bytes, rule) | self.scattered(load, size_bytes)
    }

    fn overlapping(
        &self,
        load: &SymbolicAddress,
        size_bytes: u16,
        rule: &ForwardingRule,
    ) -> Suspects {
        if load.index.is_none() && !load.moves() {
            let near = self.fixed.get(&starts(load)).map_or(&[][..], Vec::as_slice);
            let first = load.offset_bytes.saturating_sub(WIDEST_BYTES);
            let end = load.offset_bytes.saturating_add(i64::from(size_bytes));
            return near[near.partition_point(|(at, ..)| *at <= first)..]
                .iter()
                .take_while(|(at, ..)| *at < end)
                .filter(|(at, bytes, _)| {
                    let into = load.offset_bytes.wrapping_sub(*at);
                    into < i64::from(*bytes) && !rule.forwards(into, *bytes, size_bytes)
                })
                .fold(0, |all, (.., class)| all | class);
        }
        let alias = self.alias(load);
        let Some(stores) = self.by_alias.get(&alias) else { return 0 };
        let load = self.shape(load, size_bytes);
        let step = alias
            .iter()
            .filter(|kind| **kind != NO_ROOT)
            .fold(0, |step, kind| greatest_divisor(step, self.step[*kind as usize]));
        let floating = greatest_divisor(step, self.step[CONSTANT as usize]);
        let dangerous = stores.iter().filter(|(store, _)| {
            let step = if load.floats || store.floats { floating } else { step };
            !keeps_clear(load, *store, step, rule)
        });
        dangerous.fold(0, |all, (_, class)| all | class)
    }
}

/// Whether the two can only miss each other or be forwarded, wherever the constants lead: multiples
/// of `step` come and go on the way.
fn keeps_clear(load: AccessShape, store: AccessShape, step: u64, rule: &ForwardingRule) -> bool {
    let width = load.size_bytes;
    let scales = greatest_divisor(u64::from(load.scale), u64::from(store.scale));
    let step = greatest_divisor(step, scales);
    let ahead = store.offset_bytes.wrapping_sub(load.offset_bytes);
    if always_miss(ahead, i64::from(store.size_bytes), i64::from(width), step) {
        return true;
    }
    let fits = |bytes: u64| bytes.is_multiple_of(u64::from(width));
    let contains = *rule == ForwardingRule::SingleStoreContains && store.size_bytes > width;
    width.is_power_of_two()
        && (store.size_bytes == width || contains && fits(u64::from(store.size_bytes)))
        && fits(step)
        && ahead % i64::from(width) == 0
}

/// Whether a store so far ahead of a load overlaps it nowhere, whatever multiple of `step` is added.
fn always_miss(ahead: i64, store_bytes: i64, load_bytes: i64, step: u64) -> bool {
    match i64::try_from(step) {
        Ok(0) => ahead >= load_bytes || ahead.saturating_add(store_bytes) <= 0,
        Ok(step) => {
            let ahead = ahead.rem_euclid(step);
            ahead >= load_bytes && ahead + store_bytes <= step
        }
        Err(_) => false,
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

#[cfg(test)]
mod tests;
