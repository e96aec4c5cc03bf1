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

/// The kinds of kin that an address counts from, least first; what may be constant counts for none.
type Family = [u32; 2];
const NOBODY: u32 = u32::MAX;
/// The kind of everything that may turn into a constant.
const CONSTANT: u32 = 0;
/// No access is wider, and all widths that matter divide it.
const WIDEST_BYTES: i64 = 64;
/// Fields further behind the start of a block of arguments are not looked for.
pub(super) const FARTHEST_FIELD_BYTES: i64 = 512;

/// What is known about a store beside its family.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Manner {
    size_bytes: u16,
    /// Constant part of its address, modulo [`WIDEST_BYTES`].
    offset_bytes: i64,
    /// Scale of its index; 0 without index.
    scale: u8,
    /// Whether one of its roots may turn into a constant.
    floats: bool,
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
        rounds: &FirstRounds<'_>,
    ) -> Self {
        let mut kin = Self {
            number: FxHashMap::default(),
            parent: vec![CONSTANT],
            step: vec![0],
            fixed: FxHashMap::default(),
            families: FxHashMap::default(),
        };
        let insns = outer.blocks.iter().flat_map(|b| code.blocks[*b].first..code.blocks[*b].end);
        let read = |i| {
            let handed = addresses.handed_over(code, i).map(|(_, address)| address);
            addresses.load(i).into_iter().chain(handed)
        };
        let stores = || stores.iter().copied().chain(rounds.all(code));
        let mut all: Vec<SymbolicAddress> =
            stores().map(|(store, _)| store).chain(insns.flat_map(read)).collect();
        kin.join_all(code, addresses, outer, all.iter().flat_map(SymbolicAddress::roots).collect());
        all.sort_unstable();
        all.dedup();
        all.iter().for_each(|address| kin.join_doubles(address));
        for (store, size_bytes) in stores() {
            if store.index.is_none() {
                let slot = kin.fixed.entry(starts(&store)).or_default();
                slot.push((store.offset_bytes, size_bytes));
            }
            let family = kin.family(&store);
            let manner = kin.manner(&store, size_bytes);
            let manners = kin.families.entry(family).or_default();
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
            offset_bytes: address.offset_bytes.rem_euclid(WIDEST_BYTES),
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

    /// Whether any store of the loop may write what a function finds at this address, or a little
    /// further on. False is certain.
    pub fn may_fill(&self, address: &SymbolicAddress) -> bool {
        let starts = starts(address);
        let moves = |root: &Root| matches!(root.kind(), RootKind::Merge(..));
        if address.index.is_none() && !starts.iter().flatten().any(moves) {
            let near = self.fixed.get(&starts).map_or(&[][..], Vec::as_slice);
            let first = address.offset_bytes.saturating_sub(WIDEST_BYTES);
            let behind = &near[near.partition_point(|(at, _)| *at < first)..];
            let end = address.offset_bytes.saturating_add(FARTHEST_FIELD_BYTES);
            return behind.first().is_some_and(|(at, _)| *at < end);
        }
        self.families.contains_key(&self.family(address))
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
        let load = self.manner(load, size_bytes);
        let step = family
            .iter()
            .filter(|kind| **kind != NOBODY)
            .fold(0, |step, kind| greatest_divisor(step, self.step[*kind as usize]));
        let floating = greatest_divisor(step, self.step[CONSTANT as usize]);
        !stores.iter().all(|store| {
            let step = if load.floats || store.floats { floating } else { step };
            keeps_clear(load, *store, step, rule)
        })
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
