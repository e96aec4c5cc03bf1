//! Stores of inner loops, round by round: where a loop that fills a buffer piece by piece begins, and
//! where it ends.
//!
//! Inside such a loop an address counts from what moves, and behind the loop it is not known how often
//! it moved. But the first round happens whenever the loop is entered, and where its first block
//! stores can be said in terms of what came before the loop. Where a counter and its limit say how
//! often the loop goes round, the same can be said of its last rounds, and of those alone: what a long
//! loop stored first has left the buffer.

use rustc_hash::FxHashMap;

use crate::code::x86::limit;
use crate::code::{Addresses, Architecture, Flow, FunctionCode, Loop, SymbolicAddress};

use super::super::FunctionView;
use super::WINDOW_INSTRUCTIONS;
use super::stores::Store;

/// Where one round of an inner loop stores.
pub(super) struct Round<'a> {
    inner: &'a Loop,
    pub start: SymbolicAddress,
    /// Instructions of the rounds behind it.
    pub behind: u32,
    /// Whether it is known that no more than those come behind it.
    pub is_counted: bool,
}

/// The rounds of the stores of inner loops, by instruction.
pub(super) struct Rounds<'a> {
    of_stores: FxHashMap<usize, Vec<Round<'a>>>,
    /// Per way into an inner loop, header first: the instructions of its rounds but for one, where it
    /// is known how many there are.
    ways_in: FxHashMap<(usize, usize), Option<u32>>,
}

impl<'a> Rounds<'a> {
    pub fn of(
        code: &'a FunctionCode,
        addresses: &Addresses,
        outer: &Loop,
        view: Option<&FunctionView<'_>>,
    ) -> Self {
        let (mut of_stores, mut ways_in) = (FxHashMap::default(), FxHashMap::default());
        // The innermost loop around a header is the one that it heads.
        let headed =
            |b: &usize| code.innermost_loop(*b).filter(|l| l.header == *b && l.depth > outer.depth);
        for inner in outer.blocks.iter().filter_map(headed) {
            let header = &code.blocks[inner.header];
            let stores = code.insns[header.first..header.end].iter().any(|i| i.store.is_some());
            let each = code.insns_in(inner).count().max(1) as u32;
            // Each way in is a path of its own.
            for entry in header.predecessors.iter().filter(|p| !inner.contains(**p)) {
                let count = view.and_then(|view| rounds(view, addresses, inner, *entry));
                let more = count.map(|n| u32::try_from(n - 1).unwrap_or(u32::MAX));
                let more = more.map(|n| n.saturating_mul(each).min(WINDOW_INSTRUCTIONS));
                ways_in.insert((inner.header, *entry), more);
                if !stores {
                    continue;
                }
                for (index, start) in addresses.entered(code, inner.header, *entry) {
                    let own = addresses.store(code, index);
                    if own == Some(start) {
                        continue;
                    }
                    let step = own.and_then(|own| addresses.moves_by(&own, inner));
                    let of_store: &mut Vec<_> = of_stores.entry(index).or_default();
                    match count.zip(step) {
                        Some((count, step)) => {
                            of_store.extend(last_rounds(inner, each, start, count, step));
                        }
                        None => {
                            of_store.push(Round { inner, start, behind: 0, is_counted: false });
                        }
                    }
                }
            }
        }
        Self { of_stores, ways_in }
    }

    /// How many instructions lie between a block and the one before it, where the way between them is
    /// that into an inner loop: those of its rounds but for one. `None` where nobody knows.
    pub fn between(&self, block: usize, before: usize) -> Option<u32> {
        self.ways_in.get(&(block, before)).map_or(Some(0), |more| *more)
    }

    /// All of them, each as a store of its own.
    pub fn all(&self, code: &FunctionCode) -> impl Iterator<Item = Store> {
        let bytes = |index: &usize| code.insns[*index].store.map_or(0, |a| a.size_bytes);
        self.of_stores.iter().flat_map(move |(insn, rounds)| {
            rounds.iter().map(move |round| Store {
                insn: *insn,
                address: round.start,
                size_bytes: bytes(insn),
            })
        })
    }

    /// Those of a store, for a load in `block` behind its loop.
    pub fn before(&self, store: usize, block: usize) -> impl Iterator<Item = &Round<'a>> {
        let rounds = self.of_stores.get(&store).map_or(&[][..], Vec::as_slice).iter();
        rounds.filter(move |round| !round.inner.contains(block))
    }
}

/// How often a loop goes round.
fn rounds(
    view: &FunctionView<'_>,
    addresses: &Addresses,
    inner: &Loop,
    entry: usize,
) -> Option<i64> {
    let code = view.code();
    if code.architecture != Architecture::X86_64 {
        return None;
    }
    let [latch] = inner.latches[..] else { return None };
    let body = &code.blocks[latch];
    let [.., before, jump] = &code.insns[body.first..body.end] else { return None };
    let header = code.insns[code.blocks[inner.header].first].svma;
    let limit = limit(view.bytes_of(before), view.bytes_of(jump))?;
    (jump.flow == Flow::Branch(header)).then(|| addresses.rounds(code, inner, entry, &limit))?
}

/// Those that are near enough to the loop's end, last first.
fn last_rounds<'a>(
    inner: &'a Loop,
    each: u32,
    start: SymbolicAddress,
    count: i64,
    step: i64,
) -> impl Iterator<Item = Round<'a>> {
    let near = i64::from(WINDOW_INSTRUCTIONS / each) + 1;
    (0..count.min(near)).map(move |back| Round {
        inner,
        start: start.ahead((count - 1 - back).wrapping_mul(step)),
        behind: back as u32 * each,
        is_counted: true,
    })
}
