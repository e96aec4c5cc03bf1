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

use super::rounds::FirstRounds;
use super::stores::{LoopStores, Store};

/// The kinds of kin that an address counts from, least first; what may be constant counts for none.
type Family = [u32; 2];
const NOBODY: u32 = u32::MAX;
/// The kind of everything that may turn into a constant.
const CONSTANT: u32 = 0;
/// No access is wider.
const WIDEST_BYTES: i64 = 64;

/// A set of stores: a bit each for those of one family and manner, shared when there are many.
pub(super) type Suspects = u64;

/// What is known about a store beside its family.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Manner {
    size_bytes: u16,
    /// Constant part of its address.
    offset_bytes: i64,
    /// Scale of its index; 0 without index.
    scale: u8,
    /// Whether one of its roots may turn into a constant.
    floats: bool,
}

/// A store without an index: offset, width, class.
type Slot = (i64, u16, Suspects);

/// The stores of a loop, by what they can meet.
pub(super) struct Kin {
    number: FxHashMap<Root, u32>,
    /// Union-find: towards the kind's name.
    parent: Vec<u32>,
    /// Per kind, what divides all constants that are added on the way from one root to another.
    step: Vec<u64>,
    /// Stores at addresses that no walk changes, by their roots, sorted.
    fixed: FxHashMap<[Option<Root>; 2], Vec<Slot>>,
    families: FxHashMap<Family, Vec<(Manner, Suspects)>>,
    classes: FxHashMap<(Family, Manner), u32>,
}

impl Kin {
    /// Sorts the accesses of a loop, and tells the stores who they are. `asked` are addresses that
    /// functions load from which the loop calls.
    pub fn of(
        code: &FunctionCode,
        addresses: &Addresses,
        outer: &Loop,
        stores: &mut LoopStores,
        rounds: &FirstRounds<'_>,
        asked: &[SymbolicAddress],
    ) -> Self {
        let mut kin = Self {
            number: FxHashMap::default(),
            parent: vec![CONSTANT],
            step: vec![0],
            fixed: FxHashMap::default(),
            families: FxHashMap::default(),
            classes: FxHashMap::default(),
        };
        let insns = outer.blocks.iter().flat_map(|b| code.blocks[*b].first..code.blocks[*b].end);
        let is_wide = |i: &usize| code.insns[*i].load.is_some_and(|a| a.size_bytes > 1);
        let loads = insns.filter(is_wide).filter_map(|i| addresses.load(code, i));
        let firsts: Vec<Store> = rounds.all(code).collect();
        let written = stores.all().iter().chain(&firsts).map(|store| store.address);
        let mut work = Vec::new();
        let mut sums = Vec::new();
        for address in written.chain(loads).chain(asked.iter().copied()) {
            for root in address.roots() {
                if kin.number_of(root).1 {
                    work.push(root);
                }
            }
            if address.also.is_some() || address.index.is_some() {
                sums.push(address);
            }
        }
        kin.join_all(code, addresses, outer, work);
        sums.sort_unstable();
        sums.dedup();
        sums.iter().for_each(|address| kin.join_doubles(address));
        stores.mark(|store| kin.enter(store));
        for store in &firsts {
            let class = kin.enter(store);
            stores.mark_also(store.insn, class);
        }
        kin.fixed.values_mut().for_each(|slots| slots.sort_unstable());
        kin
    }

    /// Enters a store among those that loads are held against.
    fn enter(&mut self, store: &Store) -> Suspects {
        let family = self.family(&store.address);
        let manner = self.manner(&store.address, store.size_bytes);
        let next = self.classes.len() as u32;
        let number = *self.classes.entry((family, manner)).or_insert(next);
        let class = 1 << (number % Suspects::BITS);
        if number == next {
            self.families.entry(family).or_default().push((manner, class));
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

    fn manner(&self, address: &SymbolicAddress, size_bytes: u16) -> Manner {
        let floats = |root: Root| self.kind(root) == CONSTANT;
        Manner {
            size_bytes,
            offset_bytes: address.offset_bytes,
            scale: address.index.map_or(0, |(_, scale)| scale),
            floats: starts(address).into_iter().flatten().any(floats),
        }
    }

    fn kind(&self, root: Root) -> u32 {
        self.number.get(&root).map_or(CONSTANT, |number| self.find(*number))
    }

    /// Two roots of an address that may turn out to be one and the same become a scaled index, and
    /// then nothing is left that the address starts from.
    fn join_doubles(&mut self, address: &SymbolicAddress) {
        let kinds: Vec<u32> = address.roots().map(|root| self.kind(root)).collect();
        let start = kinds.first().copied().filter(|_| address.base.is_some());
        let twice = |kind: u32| kinds.iter().filter(|k| **k == kind).count() > 1;
        for kind in start.into_iter().chain(address.also.and(kinds.get(1).copied())) {
            if twice(kind) {
                self.join(kind, CONSTANT, 0);
            }
        }
    }

    fn family(&self, address: &SymbolicAddress) -> Family {
        let kind = |root: Option<Root>| {
            let number = root.map_or(CONSTANT, |root| self.kind(root));
            if number == CONSTANT { NOBODY } else { number }
        };
        let [a, b] = starts(address).map(kind);
        // Equal ones count once: one may come from the other.
        if a == b { [a, NOBODY] } else { [a.min(b), a.max(b)] }
    }

    /// Which stores of the loop may keep this load from being forwarded: no others can.
    pub fn suspects(
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
        let family = self.family(load);
        let Some(stores) = self.families.get(&family) else { return 0 };
        let load = self.manner(load, size_bytes);
        let step = family
            .iter()
            .filter(|kind| **kind != NOBODY)
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
fn keeps_clear(load: Manner, store: Manner, step: u64, rule: &ForwardingRule) -> bool {
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
