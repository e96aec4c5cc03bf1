//! Places in memory that a function's addresses are made of, followed like registers.
//!
//! `o->buf[i]` in a loop loads `o->buf` each time, because what the loop writes might be `o->buf`
//! itself as far as the language says. A place that is loaded and then stored at as well as loaded
//! at (a *cell*) gets a number behind those of the registers: loading it copies that number, storing
//! to it replaces it, and where paths meet, it merges like any register.
//!
//! What may change a cell: a store that overlaps it and counts from the same roots, a store as wide
//! and as far from another pointer (the same member of another object, which may be this one), a
//! call, and whatever makes the pointer that it counts from. Other stores through other pointers
//! are taken to go elsewhere: no address in code that is in use is made of what its own stores
//! overwrite by chance.

use rustc_hash::FxHashMap;

use super::order::{Asked, Order};
use super::{Addresses, Number, State, Values, spelled};
use crate::code::cfg::FunctionCode;
use crate::code::insn::{Access, Flow, Insn, Reg};
use crate::code::symbolic::{Root, RootKind, SymbolicAddress};

/// More accesses of a function are not held against each other.
const MOST_ACCESSES: usize = 4096;

/// One place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Cell {
    address: SymbolicAddress,
    size_bytes: u16,
}

impl Cell {
    /// Of a pointer and a constant, or of a constant alone.
    fn of(address: SymbolicAddress, size_bytes: u16) -> Option<Self> {
        let fits = address.is_plain() && matches!(size_bytes, 4 | 8);
        fits.then_some(Self { address, size_bytes })
    }

    fn may_change(&self, store: &SymbolicAddress, size_bytes: u16) -> bool {
        if !store.is_plain() {
            return false;
        }
        if let Some(overlaps) = store.overlaps(size_bytes, &self.address, self.size_bytes) {
            return overlaps;
        }
        let is_frame = |address: &SymbolicAddress| {
            let stack = |root: Root| {
                matches!(root.kind(), RootKind::Entry(Reg::STACK | Reg::AARCH64_STACK))
            };
            address.base.is_some_and(stack)
        };
        let both_point = store.base.is_some() && self.address.base.is_some();
        let same_member = store.offset_bytes == self.address.offset_bytes;
        both_point && same_member && size_bytes == self.size_bytes && !is_frame(&self.address)
    }
}

/// The cells of a function, by the number behind those of its registers.
#[derive(Clone, Debug, Default)]
pub(super) struct Cells(Vec<Cell>);

impl Cells {
    /// Pointers to pointers are followed so far.
    pub const MOST_DEEP: usize = 3;
    const MOST: usize = 16;

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These and what turns out to be one: places whose values the code that is asked for counts from
    /// when it stores, and when it loads more than that.
    pub fn and_more(&self, code: &FunctionCode, order: &Order<'_>, addresses: &Addresses) -> Self {
        let asked = order.blocks.iter().filter(|block| order.asked[**block] == Asked::Accesses);
        let insns = || asked.clone().flat_map(|b| code.blocks[*b].first..code.blocks[*b].end);
        let mut more = self.clone();
        let mut stored: Vec<Counted> = Vec::new();
        for at in insns() {
            let Some(store) = code.insns[at].store else { continue };
            if addresses.may_count_from_loads(code, at, true) {
                counted(code, store.size_bytes, addresses.store(code, at), &mut stored);
            }
        }
        // Most code is done with here.
        let Some(narrowest) = stored.iter().map(|s| s.size_bytes).min() else { return more };
        let mut loaded = Vec::new();
        for at in insns() {
            let wide = code.insns[at].load.filter(|access| access.size_bytes > narrowest);
            let Some(load) = wide else { continue };
            if addresses.may_count_from_loads(code, at, false) {
                counted(code, load.size_bytes, addresses.load(code, at), &mut loaded);
            }
        }
        if loaded.is_empty() {
            return more;
        }
        let mut insns: Vec<usize> = insns().collect();
        insns.sort_unstable();
        for cell in Kinds::of(code, addresses, &insns).followed(&stored, &loaded) {
            if more.len() < Self::MOST && !more.0.contains(&cell) {
                more.0.push(cell);
            }
        }
        more
    }

    /// The beginning of a block: a cell is another one where the pointer is that it counts from.
    pub fn enter(&self, in_memory: &mut State, block: usize, first: usize, registers: usize) {
        for (at, cell) in self.0.iter().enumerate() {
            let base = cell.address.base.map(Root::kind);
            if matches!(base, Some(RootKind::Merge(made, _)) if made as usize == block) {
                in_memory[at] = lost(first, registers + at);
            }
        }
    }

    /// What a register holds that is loaded from a cell.
    pub fn loaded(
        &self,
        values: &Values,
        registers: &State,
        in_memory: &State,
        insn: &Insn,
    ) -> Option<(Reg, Number)> {
        let (reg, access) = loads_a_register(insn)?;
        let cell = Cell::of(address_of(values, registers, &access)?, access.size_bytes)?;
        let at = self.0.iter().position(|known| *known == cell)?;
        Some((reg, in_memory[at]))
    }

    /// What an instruction does to the cells.
    pub fn step(
        &self,
        values: &Values,
        registers: &State,
        in_memory: &mut State,
        index: usize,
        insn: &Insn,
    ) {
        let calls = insn.flow == Flow::Call;
        let store = insn.store.filter(|_| !calls);
        let to = store
            .and_then(|access| Some((address_of(values, registers, &access)?, access.size_bytes)));
        for (at, cell) in self.0.iter().enumerate() {
            let base = cell.address.base.map(Root::kind);
            let moved = matches!(base, Some(RootKind::Result(made, _)) if made as usize == index);
            let changed = to.is_some_and(|(address, bytes)| cell.may_change(&address, bytes));
            if !(calls || moved || changed) {
                continue;
            }
            let whole = to.is_some_and(|(address, bytes)| Cell::of(address, bytes) == Some(*cell));
            let kept = store.and_then(|access| access.moved).filter(|_| whole && !moved);
            in_memory[at] = match kept.and_then(|reg| registers.get(usize::from(reg.0))) {
                Some(number) => *number,
                None => lost(index, registers.len() + at),
            };
        }
    }
}

/// The name of what a cell holds when it is not known.
fn lost(insn: usize, register: usize) -> Number {
    Number::of_root(Root::result(insn as u32, Reg(register as u8)))
}

pub(super) fn loads_a_register(insn: &Insn) -> Option<(Reg, Access)> {
    let access = insn.load?;
    Some((access.moved?, access))
}

fn address_of(values: &Values, registers: &State, access: &Access) -> Option<SymbolicAddress> {
    let held = |reg: Reg| Some(values.value(*registers.get(usize::from(reg.0))?));
    spelled(&access.address, held)
}

/// Loads into registers, those from one place taken together as if nothing were ever stored.
struct Kinds {
    /// Per instruction that loads, the first that loads from the same place.
    first: FxHashMap<u32, u32>,
    cells: FxHashMap<u32, Cell>,
}

impl Kinds {
    fn of(code: &FunctionCode, addresses: &Addresses, insns: &[usize]) -> Self {
        let mut known: FxHashMap<Cell, u32> = FxHashMap::default();
        let mut kinds = Self { first: FxHashMap::default(), cells: FxHashMap::default() };
        for index in insns {
            let Some((_, access)) = loads_a_register(&code.insns[*index]) else { continue };
            let address = addresses.load(code, *index);
            let Some(cell) = address.and_then(|a| Cell::of(a, access.size_bytes)) else { continue };
            let alike = Cell { address: kinds.named_once(cell.address), ..cell };
            let first = *known.entry(alike).or_insert(*index as u32);
            kinds.first.insert(*index as u32, first);
            kinds.cells.entry(first).or_insert(cell);
        }
        kinds
    }

    /// With the pointer by the name of the first load of its place.
    fn named_once(&self, address: SymbolicAddress) -> SymbolicAddress {
        let first = address.base.and_then(|base| match base.kind() {
            RootKind::Result(at, _) => self.first.get(&at),
            _ => None,
        });
        // One register stands for all: the place is what counts.
        let base = first.map(|at| Root::result(*at, Reg(0))).or(address.base);
        SymbolicAddress { base, ..address }
    }

    /// The cells that the address of a store is made of and that of a wider load which it may overlap,
    /// and those on the way there.
    fn followed(&self, stored: &[Counted], loaded: &[Counted]) -> Vec<Cell> {
        let of_kind =
            |access: &Counted| Some(Counted { load: *self.first.get(&access.load)?, ..*access });
        let mut stores: Vec<Counted> = stored.iter().filter_map(of_kind).collect();
        stores.sort_unstable();
        let meets = |load: &Counted| {
            let first = stores.partition_point(|store| store.load < load.load);
            let own = stores[first..].iter().take_while(|store| store.load == load.load);
            own.clone().any(|store| store.size_bytes < load.size_bytes && store.may_overlap(load))
        };
        let wider = loaded.iter().filter_map(of_kind).filter(meets);
        let mut wanted: Vec<u32> = wider.map(|access| access.load).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut found = 0;
        while let Some(at) = wanted.get(found) {
            found += 1;
            let base = self.cells[at].address.base.map(Root::kind);
            if let Some(RootKind::Result(before, _)) = base
                && let Some(first) = self.first.get(&before)
                && !wanted.contains(first)
            {
                wanted.push(*first);
            }
        }
        wanted.sort_unstable();
        wanted.iter().map(|at| self.cells[at]).collect()
    }
}

/// An access whose address is made of what an instruction loads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Counted {
    load: u32,
    /// Whether it is made of more than that and a constant.
    indexed: bool,
    offset_bytes: i64,
    size_bytes: u16,
}

impl Counted {
    fn may_overlap(&self, other: &Self) -> bool {
        let ahead = self.offset_bytes.wrapping_sub(other.offset_bytes);
        let meet = ahead < i64::from(other.size_bytes) && ahead > -i64::from(self.size_bytes);
        self.indexed || other.indexed || meet
    }
}

fn counted(
    code: &FunctionCode,
    size_bytes: u16,
    address: Option<SymbolicAddress>,
    found: &mut Vec<Counted>,
) {
    let Some(address) = address else { return };
    // A long function could have too many to hold against each other.
    if found.len() >= MOST_ACCESSES {
        return;
    }
    let (indexed, offset_bytes) = (address.roots().count() > 1, address.offset_bytes);
    for root in address.roots() {
        if let RootKind::Result(load, _) = root.kind()
            && code.insns.get(load as usize).is_some_and(|i| loads_a_register(i).is_some())
        {
            found.push(Counted { load, indexed, offset_bytes, size_bytes });
        }
    }
}
