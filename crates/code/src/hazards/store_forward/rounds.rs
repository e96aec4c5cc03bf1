//! Stores of inner loops, in their first round: where a loop that fills a buffer piece by piece
//! begins.
//!
//! Inside such a loop an address counts from what moves, and behind the loop it is not known how often
//! it moved. But the first round happens whenever the loop is entered, and where its first block
//! stores can be said in terms of what came before the loop.

use rustc_hash::FxHashMap;

use crate::code::{Addresses, FunctionCode, Loop, SymbolicAddress};

use super::stores::Store;

/// Where the stores of inner loops begin, by instruction.
pub(super) struct FirstRounds<'a> {
    starts: FxHashMap<usize, Vec<(&'a Loop, SymbolicAddress)>>,
}

impl<'a> FirstRounds<'a> {
    pub fn of(code: &'a FunctionCode, addresses: &Addresses, outer: &Loop) -> Self {
        let mut starts = FxHashMap::default();
        // The innermost loop around a header is the one that it heads.
        let headed = |b: &usize| code.innermost_loop(*b).filter(|l| l.header == *b && l.depth > 1);
        for inner in outer.blocks.iter().filter_map(headed) {
            let header = &code.blocks[inner.header];
            if !code.insns[header.first..header.end].iter().any(|i| i.store.is_some()) {
                continue;
            }
            // Each way in is a path of its own.
            for entry in header.predecessors.iter().filter(|p| !inner.contains(**p)) {
                let stores = addresses.entered(code, inner.header, *entry).into_iter();
                let moving =
                    stores.filter(|(index, start)| addresses.store(code, *index) != Some(*start));
                for (index, start) in moving {
                    starts.entry(index).or_insert_with(Vec::new).push((inner, start));
                }
            }
        }
        Self { starts }
    }

    /// All of them, each as a store of its own.
    pub fn all(&self, code: &FunctionCode) -> impl Iterator<Item = Store> {
        let bytes = |index: &usize| code.insns[*index].store.map_or(0, |a| a.size_bytes);
        self.starts.iter().flat_map(move |(insn, starts)| {
            starts.iter().map(move |(_, start)| Store {
                insn: *insn,
                address: *start,
                size_bytes: bytes(insn),
            })
        })
    }

    /// Where the store begins, for a load in `block` behind its loop.
    pub fn starts(&self, store: usize, block: usize) -> impl Iterator<Item = SymbolicAddress> {
        let starts = self.starts.get(&store).map_or(&[][..], Vec::as_slice).iter();
        starts.filter(move |(inner, _)| !inner.contains(block)).map(|(_, start)| *start)
    }
}
