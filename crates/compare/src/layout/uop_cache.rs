//! The cache of decoded instructions: which of its sets a window of a run overfills.
//!
//! It is cut into sets like the instruction cache, but its entries hold operations that were decoded
//! from one aligned window of code. How many entries a window takes is not published in full, so the
//! model runs twice, and the two stand for the least and the most that it may be:
//!
//! * **packed**: a window's executed instructions fill its entries one behind the other, and a compare
//!   with the jump behind it is one operation. Taking those for two, as this room once did, pushes
//!   many windows of seven instructions from one entry of six to two and doubles or trebles the count.
//! * **split**: every instruction is an operation, and a window has entries for each place where it
//!   was entered, because real ones start anew where a jump leads to.
//!
//! In both, what is used least recently goes first. Instructions of several operations, limits on
//! jumps per entry and loop buffers are in neither. This ranks layouts and gives no time: in one
//! population of 29 layouts such misses explained under a tenth of the spread.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};
use schemars::JsonSchema;
use serde::Serialize;

use super::function_index;
use super::window::{TracedWindow, WindowInsn};
use crate::code::{Image, x86};
use crate::machine::{DecodedCache, Fusion};
use crate::model::Svma;

/// What the model counted in a window. Of two numbers, the first is that of the packed and the
/// second that of the split model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct DecodedUse {
    /// Windows of code that ran.
    pub windows: usize,
    /// Entries that they need.
    pub entries: [u64; 2],
    /// Sets that need more entries than they have.
    pub overfull_sets: [u32; 2],
    /// Windows that need more entries than one may take.
    pub too_dense_windows: [usize; 2],
    /// Windows decoded anew, once the cache is warm.
    pub misses: [u64; 2],
    /// Misses of one operation.
    pub misses_per_operation: [f64; 2],
}

/// A stay in one window: instructions that ran one behind the other without leaving it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stay {
    window: u64,
    /// Address of its first instruction, and behind its last.
    first: u64,
    end: u64,
    instructions: u32,
}

/// The part of a block in one window.
fn stays_of(block: &[WindowInsn], window_bytes: u64) -> Vec<Stay> {
    let mut stays: Vec<Stay> = Vec::new();
    for insn in block {
        let (at, size) = (insn.avma.0, u64::from(insn.size_bytes));
        let window = at / window_bytes;
        match stays.last_mut().filter(|s| s.window == window) {
            Some(stay) => {
                stay.end = at + size;
                stay.instructions += 1;
            }
            None => stays.push(Stay { window, first: at, end: at + size, instructions: 1 }),
        }
    }
    stays
}

/// Calls `take` with every stay of the window's run, blocks joined where control fell through.
fn each_stay(order: &[u32], blocks: &[Vec<Stay>], mut take: impl FnMut(Stay)) {
    let mut current: Option<Stay> = None;
    for next in order.iter().filter_map(|id| blocks.get(*id as usize)).flatten() {
        match &mut current {
            Some(stay) if stay.window == next.window && stay.end == next.first => {
                stay.end = next.end;
                stay.instructions += next.instructions;
            }
            _ => {
                if let Some(stay) = current.replace(*next) {
                    take(stay);
                }
            }
        }
    }
    if let Some(stay) = current {
        take(stay);
    }
}

/// What is held: all entries of a window, or those of one place where it is entered.
#[derive(Clone, Copy, Debug)]
struct Held {
    key: u64,
    window: u64,
    entries: u32,
}

/// Sets of what is held, the last used first.
struct Model {
    shape: DecodedCache,
    sets: Vec<Vec<Held>>,
    misses: u64,
}

impl Model {
    fn new(shape: DecodedCache) -> Self {
        Self { shape, sets: vec![Vec::new(); shape.sets.max(1) as usize], misses: 0 }
    }

    fn fetch(&mut self, next: Held) {
        let most = most_entries(self.shape);
        if next.entries > most {
            self.misses += 1;
            return;
        }
        let index = (next.window % u64::from(self.shape.sets.max(1))) as usize;
        let set = &mut self.sets[index];
        if let Some(place) = set.iter().position(|held| held.key == next.key) {
            set[..=place].rotate_right(1);
            return;
        }
        self.misses += 1;
        set.insert(0, next);
        drop_last(set, most, |held| held.window == next.window);
        drop_last(set, self.shape.ways, |_| true);
    }
}

/// Drops what was used longest ago among those that `counts`, until they take no more than `room`.
fn drop_last(set: &mut Vec<Held>, room: u32, counts: impl Fn(&Held) -> bool) {
    let mut taken: u32 = set.iter().filter(|h| counts(h)).map(|h| h.entries).sum();
    while taken > room {
        let Some(last) = set.iter().rposition(&counts) else { return };
        taken -= set.remove(last).entries;
    }
}

/// Entries that one window may take.
fn most_entries(shape: DecodedCache) -> u32 {
    shape.most_entries.unwrap_or(shape.ways)
}

type Needs = FxHashMap<u64, Held>;

/// Goes over the window twice with each model and counts the second time.
#[must_use]
pub fn decoded_use(
    image: &Image,
    traced: &TracedWindow,
    shape: DecodedCache,
    fusion: Fusion,
) -> DecodedUse {
    let window_bytes = shape.window_bytes.max(1);
    let blocks: Vec<Vec<Stay>> =
        traced.blocks.iter().map(|block| stays_of(block, window_bytes)).collect();
    let packed = packed_needs(&fused_jumps(image, traced, fusion), traced, shape);
    let split = split_needs(&traced.order, &blocks, shape);
    let (mut tight, mut loose) = (Model::new(shape), Model::new(shape));
    let (mut last, mut warm) = (None, [0, 0]);
    for _ in 0..2 {
        warm = [tight.misses, loose.misses];
        each_stay(&traced.order, &blocks, |stay| {
            // Going round within a window needs nothing new in the packed model.
            if last.replace(stay.window) != Some(stay.window)
                && let Some(held) = packed.get(&stay.window)
            {
                tight.fetch(*held);
            }
            if let Some(held) = split.get(&stay.first) {
                loose.fetch(*held);
            }
        });
    }
    let misses = [tight.misses - warm[0], loose.misses - warm[1]];
    let operations = traced.kept_operations() as f64;
    let both = [&packed, &split];
    DecodedUse {
        windows: packed.len(),
        entries: both.map(|needs| needs.values().map(|h| u64::from(h.entries)).sum()),
        overfull_sets: both.map(|needs| overfull(needs, shape)),
        too_dense_windows: both.map(|needs| too_dense(needs, shape)),
        misses,
        misses_per_operation: misses.map(|n| n as f64 / operations),
    }
}

/// What windows need if their executed instructions stand in them one behind the other.
fn packed_needs(fused: &FxHashSet<Svma>, traced: &TracedWindow, shape: DecodedCache) -> Needs {
    let insns: FxHashSet<WindowInsn> = traced.ran().copied().collect();
    let mut operations: FxHashMap<u64, u32> = FxHashMap::default();
    for insn in insns {
        let is_own = !insn.svma.is_some_and(|at| fused.contains(&at));
        let window = insn.avma.0 / shape.window_bytes.max(1);
        *operations.entry(window).or_default() += u32::from(is_own);
    }
    let need = |(window, operations): (u64, u32)| {
        let entries = operations.div_ceil(shape.entry_operations.max(1)).max(1);
        (window, Held { key: window, window, entries })
    };
    operations.into_iter().map(need).collect()
}

/// What places need where windows are entered: enough for the longest stay from there.
fn split_needs(order: &[u32], blocks: &[Vec<Stay>], shape: DecodedCache) -> Needs {
    let mut needs = Needs::default();
    each_stay(order, blocks, |stay| {
        let entries = stay.instructions.div_ceil(shape.entry_operations.max(1));
        let fresh = Held { key: stay.first, window: stay.window, entries };
        let held = needs.entry(stay.first).or_insert(fresh);
        held.entries = held.entries.max(entries);
    });
    needs
}

/// Jumps of the program's own code that are one operation with the compare in front of them, in
/// functions that ran. What libraries ran is not looked into.
fn fused_jumps(image: &Image, traced: &TracedWindow, fusion: Fusion) -> FxHashSet<Svma> {
    let functions: BTreeSet<usize> =
        traced.ran().filter_map(|i| function_index(image, i.svma?)).collect();
    let functions = functions.into_iter().filter_map(|index| image.functions().get(index));
    functions
        .flat_map(|f| x86::jumps(image.function_bytes(f), f.start, fusion))
        .filter(|jump| jump.start != jump.insn)
        .map(|jump| jump.insn)
        .collect()
}

fn overfull(needs: &Needs, shape: DecodedCache) -> u32 {
    let sets = u64::from(shape.sets.max(1));
    let mut taken: FxHashMap<u64, u32> = FxHashMap::default();
    for held in needs.values() {
        *taken.entry(held.window % sets).or_default() += held.entries;
    }
    taken.values().filter(|n| **n > shape.ways).count() as u32
}

fn too_dense(needs: &Needs, shape: DecodedCache) -> usize {
    let mut taken: FxHashMap<u64, u32> = FxHashMap::default();
    for held in needs.values() {
        *taken.entry(held.window).or_default() += held.entries;
    }
    taken.values().filter(|n| **n > most_entries(shape)).count()
}

#[cfg(test)]
mod tests;
