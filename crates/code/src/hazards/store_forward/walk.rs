//! The walk backwards from a load to the stores that its bytes may come from.
//!
//! The load's symbolic address is carried along: at the start of a block its parts are replaced by
//! what they are at the end of each predecessor, so that over the back edge of a loop it is
//! compared with the stores of the iteration before in their own terms. Behind the instruction
//! that makes the index, the index is unknown, and only the array is left to compare.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::FxHashSet;

use crate::code::{Addresses, FunctionCode, Loop, Root, RootKind, SymbolicAddress};
use crate::machine::ForwardingRule;
use crate::model::{Certainty, Svma};

use super::super::FunctionView;
use super::WINDOW_INSTRUCTIONS;
use super::aliases::{AliasClasses, Suspects};
use super::reached::Reached;
use super::rounds::Rounds;
use super::stores::{LoopStores, Store};

const WINDOW_SPAN: usize = WINDOW_INSTRUCTIONS as usize;

/// A load and the stores that keep it from being forwarded.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Blocked {
    /// Sets of stores that act together, nearest first.
    pub sets: Vec<Vec<usize>>,
    pub certainty: Certainty,
    pub distance_instructions: u32,
    /// The stores write all bytes of the load.
    pub complete: bool,
    /// On other paths the loop also writes the array's elements whole.
    pub also_whole: bool,
    /// The stores go to a part of what is loaded that only the run knows.
    pub scattered: bool,
    /// A loop before the load stores there, and how often it goes round then only the run knows.
    pub filled: bool,
}

/// What a store does to a load further on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meeting {
    /// They never overlap, or nothing is known.
    Apart,
    /// The store serves the load: older stores do not matter.
    Serves,
    /// They overlap, and the store cannot serve the load.
    Blocks { offset_bytes: i64 },
    /// A piece of an element of the same array, under the index `group`.
    Piece { offset_bytes: i64, group: Group },
    /// A whole element of the same array.
    Whole,
    /// Narrower than the load, and anywhere in an array; without an index it would be so far ahead.
    Scattered { ahead: i64 },
}

/// The load's address as it reads at the point that the walk has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Target {
    pub address: SymbolicAddress,
    pub index_known: bool,
}

impl Target {
    /// Which instructions of a stretch make parts of the address; the last of each kind.
    fn made_at(&self, stretch: Range<usize>) -> Made {
        let at = |root: Root| match root.kind() {
            RootKind::Result(at, _) => Some(at as usize).filter(|at| stretch.contains(at)),
            _ => None,
        };
        Made {
            start: self.address.base.and_then(at).max(self.address.also.and_then(at)),
            index: self.address.index.and_then(|(root, _)| at(root)),
        }
    }
}

/// Instructions that make the start of an address, and its index.
struct Made {
    start: Option<usize>,
    index: Option<usize>,
}

/// A point of the walk: everything in `block` before `end` is still to be looked at.
#[derive(Clone, Copy, Debug)]
struct Point {
    block: usize,
    end: usize,
    distance: u32,
    target: Target,
}

/// Store to its distance from the load and the offset of its first byte from the load's.
pub(super) type Stores = BTreeMap<usize, (u32, i64)>;
/// What the pieces of one element have in common: their index (none at a pointer that moves), and
/// how many elements further on.
type Group = (Option<Root>, i64);

#[derive(Default)]
pub(super) struct Met {
    /// They overlap the load for certain.
    blocking: Stores,
    /// They are pieces of elements that the load may read.
    pieces: BTreeMap<Group, Stores>,
    /// They may lie anywhere in what is loaded, with how far ahead of the load their array begins.
    pub scattered: Stores,
    /// A loop writes them in its first round.
    filled: Stores,
}

pub(super) struct Walk<'a> {
    pub(super) code: &'a FunctionCode,
    pub(super) addresses: &'a Addresses,
    pub(super) outer: &'a Loop,
    pub(super) rule: &'a ForwardingRule,
    stores: LoopStores,
    rounds: Rounds<'a>,
    /// None walks from every load, for tests.
    aliases: Option<AliasClasses>,
    reached: RefCell<Reached>,
}

impl<'a> Walk<'a> {
    /// `asked` are the addresses that will be asked for behind calls.
    pub fn new(
        code: &'a FunctionCode,
        addresses: &'a Addresses,
        outer: &'a Loop,
        rule: &'a ForwardingRule,
        mut stores: LoopStores,
        asked: &[SymbolicAddress],
        view: Option<&FunctionView<'_>>,
    ) -> Self {
        let rounds = Rounds::of(code, addresses, outer, view);
        let aliases = Some(AliasClasses::of(code, addresses, outer, &mut stores, &rounds, asked));
        let reached = RefCell::default();
        Self { code, addresses, outer, rule, stores, rounds, aliases, reached }
    }

    /// The same, without a look before each walk.
    #[cfg(test)]
    pub fn without_aliases(mut self) -> Self {
        self.stores.mark(|_| Suspects::MAX);
        Self { aliases: None, ..self }
    }

    /// The stores that keep the load at `index` from being forwarded, if there are any.
    pub fn blocked_load(&self, index: usize) -> Option<Blocked> {
        let insn = &self.code.insns[index];
        if insn.drains_stores {
            return None;
        }
        let size_bytes = insn.load?.size_bytes;
        let address = self.addresses.load(self.code, index)?;
        if !insn.is_pair {
            return self.blocked(index, address, size_bytes);
        }
        // A pair is two loads; each may be served by a store of its own.
        let half = size_bytes / 2;
        let upper = address.ahead(half.into());
        self.blocked(index, address, half).or_else(|| self.blocked(index, upper, half))
    }

    /// The same for a load behind the call at `call`: of a function that is told where.
    pub fn blocked_behind(
        &self,
        call: usize,
        address: SymbolicAddress,
        size_bytes: u16,
        distance: u32,
    ) -> Option<Blocked> {
        let suspects = self.suspects(&address, size_bytes);
        if suspects == 0 {
            return None;
        }
        let block = self.code.block_of(call);
        let target = Target { address, index_known: true };
        let met = self.walk(Point { block, end: call, distance, target }, size_bytes, suspects);
        if self.joins(&met.blocking, size_bytes) {
            return None;
        }
        self.definite(&met, size_bytes)
    }

    /// Which stores of the loop may block such a load: no others can.
    fn suspects(&self, address: &SymbolicAddress, size_bytes: u16) -> Suspects {
        let aliases = self.aliases.as_ref();
        aliases.map_or(Suspects::MAX, |aliases| aliases.suspects(address, size_bytes, self.rule))
    }

    fn blocked(&self, index: usize, address: SymbolicAddress, size_bytes: u16) -> Option<Blocked> {
        let suspects = if size_bytes < 2 { 0 } else { self.suspects(&address, size_bytes) };
        if suspects == 0 {
            return None;
        }
        let block = self.code.block_of(index);
        let target = Target { address, index_known: true };
        let start = Point { block, end: index, distance: 0, target };
        let met = self.walk(start, size_bytes, suspects);
        if !met.blocking.is_empty() && self.joins(&met.blocking, size_bytes) {
            return None;
        }
        self.definite(&met, size_bytes)
            .or_else(|| self.probable(&met, &address, size_bytes))
            .or_else(|| self.scattered(&met, &address, size_bytes))
            .or_else(|| self.filled(&met, size_bytes))
    }

    fn walk(&self, start: Point, size_bytes: u16, suspects: Suspects) -> Met {
        let mut met = Met::default();
        let mut reached = self.reached.borrow_mut();
        let moves = start.target.address.moves();
        reached.begin(self.outer.blocks.len(), moves);
        let mut work = vec![start];
        while let Some(point) = work.pop() {
            let Some(at_start) = self.through_block(point, start.block, size_bytes, &mut met)
            else {
                continue;
            };
            // Nothing further back is near enough.
            if at_start.distance >= WINDOW_INSTRUCTIONS {
                continue;
            }
            for predecessor in &self.code.blocks[point.block].predecessors {
                let Some((place, end)) = self.stores.place_of(*predecessor) else { continue };
                if self.stores.behind(self.code, self.outer, place) & suspects == 0 {
                    continue;
                }
                // Outside loops, what comes before one that may go round for long is left alone.
                let between = self.rounds.between(point.block, *predecessor);
                let more = between.or((self.outer.depth > 0).then_some(0));
                let Some(more) = more else { continue };
                let distance = at_start.distance + more;
                let mut target = at_start.target;
                if moves {
                    let address = self.addresses.before(target.address, point.block, *predecessor);
                    let Some(address) = address else { continue };
                    target.address = address;
                }
                if distance < WINDOW_INSTRUCTIONS && reached.is_nearer(place, &target, distance) {
                    work.push(Point { block: *predecessor, end, distance, target });
                }
            }
        }
        met
    }

    /// Goes back through one block; `None` when the path ends in it.
    fn through_block(
        &self,
        mut point: Point,
        load_block: usize,
        size_bytes: u16,
        met: &mut Met,
    ) -> Option<Point> {
        let first = self.code.blocks[point.block].first;
        // Not through a call or fence, not further than the window, and not behind what makes a part of the
        // address: then nothing is left to compare.
        let window = (point.end + point.distance as usize).saturating_sub(WINDOW_SPAN);
        let barrier = self.stores.behind_barrier(point.block, point.end).max(window);
        let made = point.target.made_at(first.max(barrier)..point.end);
        let last = barrier.max(made.start.unwrap_or(0));
        for store in self.stores.before(point.block, point.end) {
            if store.insn < last {
                break;
            }
            if made.index.is_some_and(|at| store.insn < at) {
                point.target.index_known = false;
            }
            let distance = point.distance + (point.end - store.insn) as u32;
            if self.meet(store, distance, &point.target, load_block, size_bytes, met) {
                return None;
            }
        }
        if made.start.is_none()
            && let Some(call) = self.stores.behind_barrier(point.block, point.end).checked_sub(1)
            && call + 1 == last
        {
            let target = Target {
                index_known: point.target.index_known & made.index.is_none(),
                ..point.target
            };
            let behind = point.distance + (point.end - barrier) as u32;
            self.meet_left(call, behind, &target, load_block, size_bytes, met);
        }
        if made.start.is_some() || barrier > first {
            return None;
        }
        point.target.index_known &= made.index.is_none();
        point.distance += (point.end - first) as u32;
        Some(point)
    }

    /// Notes what the stores do to the load that a function called before it leaves.
    fn meet_left(
        &self,
        call: usize,
        behind: u32,
        target: &Target,
        load_block: usize,
        size_bytes: u16,
        met: &mut Met,
    ) {
        for path in self.stores.left_by(call) {
            for (store, distance) in path {
                let distance = behind + distance;
                if distance > WINDOW_INSTRUCTIONS
                    || self.meet(store, distance, target, load_block, size_bytes, met)
                {
                    break;
                }
            }
        }
    }

    /// How many bytes a store writes, its own or that of a function called.
    pub fn store_bytes(&self, store: usize) -> u16 {
        match self.stores.elsewhere(store) {
            Some((_, bytes)) => bytes,
            None => self.code.insns[store].store.map_or(0, |access| access.size_bytes),
        }
    }

    /// Where those of some stores are that functions called make, each once.
    pub fn elsewhere(&self, stores: &[usize]) -> Vec<Svma> {
        let places = stores.iter().filter_map(|store| Some(self.stores.elsewhere(*store)?.0));
        let mut places: Vec<Svma> = places.collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// The sets without the stores that functions called make.
    pub fn here(&self, sets: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let own = |set: &Vec<usize>| {
            set.iter().copied().filter(|store| self.stores.elsewhere(*store).is_none()).collect()
        };
        sets.iter().map(own).filter(|set: &Vec<usize>| !set.is_empty()).collect()
    }

    /// Notes what the store does to the load; true when older stores do not matter.
    fn meet(
        &self,
        store: &Store,
        distance: u32,
        target: &Target,
        load_block: usize,
        size_bytes: u16,
        met: &mut Met,
    ) -> bool {
        let seen = |offset_bytes| (distance, offset_bytes);
        match self.meeting(&store.address, store.size_bytes, target, size_bytes) {
            Meeting::Apart => {
                let is_known = |_: &i64| target.index_known;
                for round in self.rounds.before(store.insn, load_block) {
                    let distance = distance + round.behind;
                    let ahead = round.start.minus(&target.address).filter(is_known);
                    if distance <= WINDOW_INSTRUCTIONS
                        && let Some(ahead) = ahead
                        && let Meeting::Blocks { offset_bytes } =
                            self.overlap(ahead, store.size_bytes, size_bytes)
                    {
                        let is_certain = round.is_counted || self.outer.depth > 0;
                        let met = if is_certain { &mut met.blocking } else { &mut met.filled };
                        note(met, store.insn, (distance, offset_bytes));
                    }
                }
                false
            }
            Meeting::Serves | Meeting::Whole => true,
            Meeting::Blocks { offset_bytes } => {
                note(&mut met.blocking, store.insn, seen(offset_bytes));
                // It covers the load.
                offset_bytes <= 0
                    && offset_bytes + i64::from(store.size_bytes) >= i64::from(size_bytes)
            }
            Meeting::Scattered { ahead } => {
                note(&mut met.scattered, store.insn, seen(ahead));
                false
            }
            Meeting::Piece { offset_bytes, group } => {
                note(met.pieces.entry(group).or_default(), store.insn, seen(offset_bytes));
                false
            }
        }
    }

    fn meeting(
        &self,
        store: &SymbolicAddress,
        store_bytes: u16,
        target: &Target,
        load_bytes: u16,
    ) -> Meeting {
        let load = &target.address;
        if target.index_known
            && let Some(offset_bytes) = store.minus(load)
        {
            return self.overlap(offset_bytes, store_bytes, load_bytes);
        }
        match self.meeting_in_array(store, store_bytes, load, load_bytes) {
            Meeting::Apart => Meeting::Apart,
            _ if self.never_meet(store, store_bytes, load, load_bytes) => Meeting::Apart,
            may_meet => may_meet,
        }
    }

    fn meeting_in_array(
        &self,
        store: &SymbolicAddress,
        store_bytes: u16,
        load: &SymbolicAddress,
        load_bytes: u16,
    ) -> Meeting {
        let Some((_, scale)) = load.index else {
            return match self.scattered_by(store, load).filter(|_| store_bytes < load_bytes) {
                Some(ahead) => Meeting::Scattered { ahead },
                None => Meeting::Apart,
            };
        };
        if !store.same_start(load) || u16::from(scale) < load_bytes {
            return Meeting::Apart;
        }
        match store.index {
            Some((index, store_scale)) if store_scale == scale => {
                element_piece(store, Some(index), scale, store_bytes, load, load_bytes)
            }
            None if self.is_moving(load, scale) => {
                // Such an index counts from the pointer on: what lies before it is something else,
                // the head of a record for example.
                match element_piece(store, None, scale, store_bytes, load, load_bytes) {
                    Meeting::Piece { group: (_, ..0), .. } => Meeting::Apart,
                    other => other,
                }
            }
            _ => Meeting::Apart,
        }
    }

    /// Whether the address counts from a pointer that walks over elements of `scale` bytes in this
    /// loop. From one that stays, a store without an index may as well go to another variable.
    fn is_moving(&self, address: &SymbolicAddress, scale: u8) -> bool {
        address.base.into_iter().chain(address.also).any(|root| {
            let inside =
                matches!(root.kind(), RootKind::Merge(block, _) if self.outer.contains(block as usize));
            inside && self.addresses.walks_by(self.code, root, scale)
        })
    }

    fn overlap(&self, offset_bytes: i64, store_bytes: u16, load_bytes: u16) -> Meeting {
        let (store_len, load_len) = (i64::from(store_bytes), i64::from(load_bytes));
        if offset_bytes >= load_len || offset_bytes.saturating_add(store_len) <= 0 {
            Meeting::Apart
        } else if self.rule.forwards(-offset_bytes, store_bytes, load_bytes) {
            Meeting::Serves
        } else {
            Meeting::Blocks { offset_bytes }
        }
    }

    /// Sets of pieces under one index that tile the load, on a path on which no whole element is
    /// written in between.
    fn probable(&self, met: &Met, load: &SymbolicAddress, size_bytes: u16) -> Option<Blocked> {
        if self.rule.merges() {
            return None;
        }
        let tiled: Vec<(&Group, &Stores)> = met
            .pieces
            .iter()
            .filter(|(_, group)| self.are_several(group) && self.tiles(group, size_bytes))
            .filter(|(_, group)| !self.joins(group, size_bytes))
            .collect();
        let also_whole = tiled.iter().all(|((index, _), _)| index.is_some())
            && self.is_written_whole(load, size_bytes);
        let mut sets: Vec<(u32, Vec<usize>)> = tiled
            .into_iter()
            .map(|(_, group)| (nearest(group), group.keys().copied().collect()))
            .collect();
        sets.sort();
        // A moving pointer meets the same stores again, one element further on every time.
        let mut seen = FxHashSet::default();
        sets.retain(|(_, stores)| seen.insert(stores.clone()));
        let distance_instructions = sets.first()?.0;
        Some(Blocked {
            sets: sets.into_iter().map(|(_, stores)| stores).collect(),
            certainty: Certainty::Probable,
            distance_instructions,
            complete: true,
            also_whole,
            scattered: false,
            filled: false,
        })
    }

    /// Whether these are more than one store. A pair is two by one instruction.
    fn are_several(&self, stores: &Stores) -> bool {
        stores.len() > 1
            || stores.keys().any(|s| self.code.insns.get(*s).is_some_and(|i| i.is_pair))
    }

    /// Whether the loop also writes whole elements of the array, under any index.
    fn is_written_whole(&self, load: &SymbolicAddress, size_bytes: u16) -> bool {
        let target = Target { address: *load, index_known: false };
        self.stores.all().iter().any(|store| {
            store.address.index.is_some()
                && self.meeting(&store.address, store.size_bytes, &target, size_bytes)
                    == Meeting::Whole
        })
    }
}

impl Walk<'_> {
    /// Whether these stores are the two halves of the load, on a processor that joins halves.
    fn joins(&self, stores: &Stores, size_bytes: u16) -> bool {
        let half = |(store, (_, offset)): (&usize, &(u32, i64))| {
            2 * self.store_bytes(*store) == size_bytes
                && (*offset == 0 || 2 * offset == i64::from(size_bytes))
        };
        self.rule.joins_halves() && stores.iter().all(half) && self.tiles(stores, size_bytes)
    }

    fn definite(&self, met: &Met, size_bytes: u16) -> Option<Blocked> {
        (!met.blocking.is_empty()).then(|| Blocked {
            sets: vec![met.blocking.keys().copied().collect()],
            certainty: Certainty::Definite,
            distance_instructions: nearest(&met.blocking),
            complete: self.tiles(&met.blocking, size_bytes),
            also_whole: false,
            scattered: false,
            filled: false,
        })
    }

    /// What a loop stores in its first round, and is long written when many follow.
    fn filled(&self, met: &Met, size_bytes: u16) -> Option<Blocked> {
        let halves = |store: &usize| 2 * self.store_bytes(*store) == size_bytes;
        let joins = self.rule.joins_halves() && met.filled.keys().all(halves);
        (!met.filled.is_empty() && !joins).then(|| Blocked {
            sets: vec![met.filled.keys().copied().collect()],
            certainty: Certainty::Probable,
            distance_instructions: nearest(&met.filled),
            complete: false,
            also_whole: false,
            scattered: false,
            filled: true,
        })
    }

    /// Whether the stores together write every byte of the load.
    fn tiles(&self, stores: &Stores, size_bytes: u16) -> bool {
        let mut written = 0_u64;
        for (store, (_, offset)) in stores {
            let end = offset.saturating_add(i64::from(self.store_bytes(*store)));
            for byte in (*offset).max(0)..end.min(i64::from(size_bytes)) {
                written |= 1 << byte;
            }
        }
        written.count_ones() == u32::from(size_bytes)
    }
}

/// The distance of the nearest store; the window when there is none.
pub(super) fn nearest(stores: &Stores) -> u32 {
    stores.values().map(|(distance, _)| *distance).min().unwrap_or(WINDOW_INSTRUCTIONS)
}

/// Where in the element the store falls, given that any index can equal any other.
fn element_piece(
    store: &SymbolicAddress,
    store_index: Option<Root>,
    scale: u8,
    store_bytes: u16,
    load: &SymbolicAddress,
    load_bytes: u16,
) -> Meeting {
    let difference = store.offset_bytes.wrapping_sub(load.offset_bytes);
    let offset_bytes = difference.rem_euclid(i64::from(scale));
    let end = offset_bytes + i64::from(store_bytes);
    if offset_bytes == 0 && store_bytes >= load_bytes {
        Meeting::Whole
    } else if end <= i64::from(load_bytes) {
        let element = difference.div_euclid(i64::from(scale));
        Meeting::Piece { offset_bytes, group: (store_index, element) }
    } else {
        Meeting::Apart
    }
}

fn note(seen: &mut Stores, store: usize, (distance, offset): (u32, i64)) {
    let entry = seen.entry(store).or_insert((distance, offset));
    if distance < entry.0 {
        *entry = (distance, offset);
    }
}
