//! The stores of one outermost loop, block by block, as a walk backwards meets them.

use std::cell::OnceCell;

use rustc_hash::FxHashMap;

use crate::code::{Addresses, Flow, FunctionCode, Loop, SymbolicAddress};

use super::aliases::Suspects;

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
    first_call: usize,
    end_call: usize,
}

pub(super) struct LoopStores {
    /// Block after block, in each from its end to its start.
    all: Vec<Store>,
    /// Block after block, in each from its start to its end.
    calls: Vec<usize>,
    bodies: FxHashMap<usize, Body>,
    /// Per store, which it is.
    classes: Vec<Suspects>,
    /// Per block of the loop, what can be met on the way back from its end.
    behind: OnceCell<Vec<Suspects>>,
}

impl LoopStores {
    pub fn of(code: &FunctionCode, addresses: &Addresses, outer: &Loop) -> Self {
        let mut this = Self {
            all: Vec::new(),
            calls: Vec::new(),
            bodies: FxHashMap::default(),
            classes: Vec::new(),
            behind: OnceCell::new(),
        };
        this.bodies.reserve(outer.blocks.len());
        for (position, number) in outer.blocks.iter().enumerate() {
            let block = &code.blocks[*number];
            let (first_store, first_call) = (this.all.len(), this.calls.len());
            for index in (block.first..block.end).rev() {
                this.all.extend(stores_of(code, addresses, index));
            }
            let is_call = |index: &usize| code.insns[*index].flow == Flow::Call;
            this.calls.extend((block.first..block.end).filter(is_call));
            let (end_store, end_call) = (this.all.len(), this.calls.len());
            let end = block.end;
            let body = Body { position, end, first_store, end_store, first_call, end_call };
            this.bodies.insert(*number, body);
        }
        this
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

    /// Which stores a walk can meet that goes back from the end of a block (its place), calls in its way but
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
            let behind_call =
                self.calls[body.first_call..body.end_call].last().map_or(0, |c| c + 1);
            let stores = body.first_store..body.end_store;
            let met = stores.filter(|store| self.all[*store].insn >= behind_call);
            met.fold(0, |all, store| all | self.classes[store])
        };
        let mut behind: Vec<Suspects> = bodies.iter().map(own).collect();
        let before = |block: &usize| {
            let predecessors = code.blocks[*block].predecessors.iter();
            predecessors.filter_map(|p| Some(self.bodies.get(p)?.position))
        };
        let through: Vec<usize> =
            (0..bodies.len()).filter(|at| bodies[*at].first_call == bodies[*at].end_call).collect();
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

    pub fn calls(&self) -> &[usize] {
        &self.calls
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
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

    /// The instruction behind the last call before `insn` in its block; 0 where there is none.
    pub fn behind_call(&self, block: usize, insn: usize) -> usize {
        let Some(body) = self.bodies.get(&block) else { return 0 };
        let calls = &self.calls[body.first_call..body.end_call];
        let before = calls.partition_point(|call| *call < insn);
        before.checked_sub(1).map_or(0, |last| calls[last] + 1)
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
            let offset_bytes = address.offset_bytes.wrapping_add(i64::from(size_bytes));
            let upper = SymbolicAddress { offset_bytes, ..address };
            (
                Some(Store { insn, address, size_bytes }),
                Some(Store { insn, address: upper, size_bytes }),
            )
        }
        other => (other.map(|(address, size_bytes)| Store { insn, address, size_bytes }), None),
    };
    first.into_iter().chain(second)
}
