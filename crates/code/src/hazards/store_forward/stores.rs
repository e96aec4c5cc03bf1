//! The stores of one outermost loop, block by block, as a walk backwards meets them.

use std::cell::OnceCell;

use rustc_hash::FxHashMap;

use crate::code::{Addresses, Flow, FunctionCode, Loop, SymbolicAddress};
use crate::model::Svma;

use super::super::FunctionView;
use super::aliases::Suspects;
use super::calls::Called;
use super::exits::ExitStore;

/// One store; half a pair counts as one, as the strictest processors see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Store {
    pub insn: usize,
    pub address: SymbolicAddress,
    pub size_bytes: u16,
}

#[derive(Clone, Copy, Debug)]
struct Body {
    /// Its place among the blocks of the loop.
    position: usize,
    /// Behind its last instruction.
    end: usize,
    first_store: usize,
    end_store: usize,
    first_barrier: usize,
    end_barrier: usize,
}

pub(super) struct LoopStores {
    /// Block after block, in each from its end to its start.
    all: Vec<Store>,
    /// Where no walk goes on: calls, and what drains the stores before it. Block after block, in
    /// each from its start to its end.
    barriers: Vec<usize>,
    bodies: FxHashMap<usize, Body>,
    /// What the functions leave that are called, path by path, by the instruction that calls.
    exits: FxHashMap<usize, Vec<Vec<(Store, u32)>>>,
    /// Which they are, by the same.
    exit_classes: FxHashMap<usize, Suspects>,
    /// The stores of those, where they are and how wide; they are numbered behind all instructions
    /// of the function.
    elsewhere: Vec<(Svma, u16)>,
    first_elsewhere: usize,
    /// Per store, which it is.
    classes: Vec<Suspects>,
    /// Per block of the loop, what can be met on the way back from its end.
    behind: OnceCell<Vec<Suspects>>,
}

impl LoopStores {
    pub fn of(
        code: &FunctionCode,
        addresses: &Addresses,
        outer: &Loop,
        program: Option<(&FunctionView<'_>, &Called)>,
    ) -> Self {
        let mut this = Self {
            exits: FxHashMap::default(),
            exit_classes: FxHashMap::default(),
            elsewhere: Vec::new(),
            first_elsewhere: code.insns.len(),
            all: Vec::new(),
            barriers: Vec::new(),
            bodies: FxHashMap::default(),
            classes: Vec::new(),
            behind: OnceCell::new(),
        };
        this.bodies.reserve(outer.blocks.len());
        for (position, number) in outer.blocks.iter().enumerate() {
            let block = &code.blocks[*number];
            let (first_store, first_barrier) = (this.all.len(), this.barriers.len());
            for index in (block.first..block.end).rev() {
                this.all.extend(stores_of(code, addresses, index));
            }
            let stops = |index: &usize| {
                code.insns[*index].flow == Flow::Call || code.insns[*index].drains_stores
            };
            this.barriers.extend((block.first..block.end).filter(stops));
            let (end_store, end_barrier) = (this.all.len(), this.barriers.len());
            let end = block.end;
            let body = Body { position, end, first_store, end_store, first_barrier, end_barrier };
            this.bodies.insert(*number, body);
        }
        let Some((view, called)) = program else { return this };
        for call in this.barriers.clone() {
            let Some(summary) = called.get(&call) else { continue };
            for path in &summary.exits(view.image).paths {
                this.leave(code, addresses, call, path);
            }
        }
        this
    }

    /// Notes what a function leaves, in the terms of its caller.
    fn leave(
        &mut self,
        code: &FunctionCode,
        addresses: &Addresses,
        call: usize,
        path: &[ExitStore],
    ) {
        let mut stores = Vec::new();
        for left in path {
            let given = |reg| addresses.handed_over(code, call, reg);
            let index = match left.index {
                Some((reg, scale)) => given(reg).map(|value| Some((value, scale))),
                None => Some(None),
            };
            let Some((start, index)) = given(left.reg).zip(index) else { continue };
            let sum = SymbolicAddress::sum(Some(start), index, left.offset_bytes);
            let Some(address) = sum else { continue };
            let insn = self.first_elsewhere + self.elsewhere.len();
            self.elsewhere.push((left.svma, left.size_bytes));
            let size_bytes = left.size_bytes;
            stores.push((Store { insn, address, size_bytes }, left.distance));
        }
        if !stores.is_empty() {
            self.exits.entry(call).or_default().push(stores);
        }
    }

    /// What the function leaves that is called there, path by path, with the instructions from each
    /// store to the caller's next one.
    pub fn left_by(&self, call: usize) -> &[Vec<(Store, u32)>] {
        self.exits.get(&call).map_or(&[], Vec::as_slice)
    }

    /// The stores of functions called.
    pub fn all_left(&self) -> impl Iterator<Item = (usize, &Store)> {
        self.exits
            .iter()
            .flat_map(|(call, paths)| paths.iter().flatten().map(move |(store, _)| (*call, store)))
    }

    /// Tells the classes of what functions leave.
    pub fn mark_left(&mut self, classes: FxHashMap<usize, Suspects>) {
        self.exit_classes = classes;
    }

    /// Where a store of another function is, and how wide; `None` for the numbers of its own.
    pub fn elsewhere(&self, store: usize) -> Option<(Svma, u16)> {
        self.elsewhere.get(store.checked_sub(self.first_elsewhere)?).copied()
    }

    pub fn mark(&mut self, class: impl FnMut(&Store) -> Suspects) {
        self.classes = self.all.iter().map(class).collect();
    }

    /// Gives the stores of an instruction another one, too.
    pub fn mark_also(&mut self, insn: usize, class: Suspects) {
        for (store, known) in self.all.iter().zip(&mut self.classes) {
            if store.insn == insn {
                *known |= class;
            }
        }
    }

    /// Which stores a walk can meet that goes back from the end of a block (its place), barriers in its way but
    /// not the length of the way: no others. All, when stores have no classes.
    pub fn behind(&self, code: &FunctionCode, outer: &Loop, place: usize) -> Suspects {
        if self.classes.is_empty() {
            return Suspects::MAX;
        }
        self.behind.get_or_init(|| self.flow_back(code, outer))[place]
    }

    fn flow_back(&self, code: &FunctionCode, outer: &Loop) -> Vec<Suspects> {
        let bodies: Vec<Body> = outer.blocks.iter().map(|block| self.bodies[block]).collect();
        let own = |body: &Body| {
            let behind_barrier =
                self.barriers[body.first_barrier..body.end_barrier].last().map_or(0, |c| c + 1);
            let stores = body.first_store..body.end_store;
            let met = stores.filter(|store| self.all[*store].insn >= behind_barrier);
            let left = behind_barrier.checked_sub(1).and_then(|call| self.exit_classes.get(&call));
            met.fold(left.copied().unwrap_or(0), |all, store| all | self.classes[store])
        };
        let mut behind: Vec<Suspects> = bodies.iter().map(own).collect();
        let before = |block: &usize| {
            let predecessors = code.blocks[*block].predecessors.iter();
            predecessors.filter_map(|p| Some(self.bodies.get(p)?.position))
        };
        let through: Vec<usize> = (0..bodies.len())
            .filter(|at| bodies[*at].first_barrier == bodies[*at].end_barrier)
            .collect();
        let mut again = true;
        while std::mem::take(&mut again) {
            for at in &through {
                let met = before(&outer.blocks[*at]).fold(behind[*at], |all, p| all | behind[p]);
                again |= std::mem::replace(&mut behind[*at], met) != met;
            }
        }
        behind
    }

    pub fn all(&self) -> &[Store] {
        &self.all
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.exits.is_empty()
    }

    /// A block's place among those of the loop, and where it ends; `None` outside the loop.
    pub fn place_of(&self, block: usize) -> Option<(usize, usize)> {
        self.bodies.get(&block).map(|body| (body.position, body.end))
    }

    /// The stores of a block before an instruction, last first; the halves of a pair in order.
    pub fn before(&self, block: usize, insn: usize) -> &[Store] {
        let Some(body) = self.bodies.get(&block) else { return &[] };
        let stores = &self.all[body.first_store..body.end_store];
        &stores[stores.partition_point(|store| store.insn >= insn)..]
    }

    /// The instruction behind the last barrier before `insn` in its block; 0 where there is none.
    pub fn behind_barrier(&self, block: usize, insn: usize) -> usize {
        let Some(body) = self.bodies.get(&block) else { return 0 };
        let barriers = &self.barriers[body.first_barrier..body.end_barrier];
        let before = barriers.partition_point(|at| *at < insn);
        before.checked_sub(1).map_or(0, |last| barriers[last] + 1)
    }
}

fn stores_of(
    code: &FunctionCode,
    addresses: &Addresses,
    insn: usize,
) -> impl Iterator<Item = Store> {
    let access = code.insns[insn].store;
    let store = access.and_then(|access| Some((addresses.store(code, insn)?, access.size_bytes)));
    let (first, second) = match store {
        Some((address, bytes)) if code.insns[insn].is_pair => {
            let size_bytes = bytes / 2;
            let upper = address.ahead(size_bytes.into());
            (
                Some(Store { insn, address, size_bytes }),
                Some(Store { insn, address: upper, size_bytes }),
            )
        }
        other => (other.map(|(address, size_bytes)| Store { insn, address, size_bytes }), None),
    };
    first.into_iter().chain(second)
}
