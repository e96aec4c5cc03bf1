//! The model against a reference that keeps every byte, and the shapes of the first story.

use proptest::prelude::*;

use super::*;
use crate::trace::engine::BlockInsn;

const CONTAINS: ForwardingRule = ForwardingRule::SingleStoreContains;

fn access(insn: u32, kind: AccessKind, address: u64, size_bytes: u32) -> MemoryAccess {
    MemoryAccess { insn, kind, size_bytes, address: Avma(address) }
}

fn load(insn: u32, address: u64, size_bytes: u32) -> MemoryAccess {
    access(insn, AccessKind::Load, address, size_bytes)
}

fn store(insn: u32, address: u64, size_bytes: u32) -> MemoryAccess {
    access(insn, AccessKind::Store, address, size_bytes)
}

/// A buffer that knows one block of `length` instructions, four bytes each from address 0.
/// That of Cascade Lake, with the 200 instructions that these tests count out.
const LAKE: StoreBufferShape = StoreBufferShape { depth: 56, window_instructions: 200 };

fn buffer(rule: ForwardingRule, shape: StoreBufferShape, length: u64) -> StoreBuffer {
    let mut model = StoreBuffer::new(rule, shape);
    let insn = |n| BlockInsn { address: Avma(4 * n), size_bytes: 4 };
    model.describe(BlockId(0), &Block { insns: (0..length).map(insn).collect() });
    model
}

fn after(rule: ForwardingRule, runs: &[&[MemoryAccess]]) -> StoreBufferReport {
    let mut model = buffer(rule, LAKE, 16);
    runs.iter().for_each(|accesses| model.run(BlockId(0), accesses));
    model.report()
}

#[test]
fn two_narrow_stores_block_a_wide_load_and_are_named() {
    let report =
        after(CONTAINS, &[&[store(2, 0x1000, 4), store(3, 0x1004, 4), load(7, 0x1000, 8)]]);
    assert_eq!((report.blocked, report.forwarded, report.loads), (1, 0, 1));
    let site = &report.sites[0];
    assert_eq!((site.insn, site.size_bytes), (Avma(28), 8));
    assert_eq!(site.blockers, [Blockers { stores: vec![Avma(12), Avma(8)], count: 1 }]);
    assert_eq!(site.distances.instructions, [0, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(site.distances.reuse_iterations[0], 1);
}

#[test]
fn a_core_that_merges_is_never_blocked() {
    let runs = [store(2, 0x1000, 4), store(3, 0x1004, 4), load(7, 0x1000, 8)];
    let report = after(ForwardingRule::AnyOverlap, &[&runs]);
    assert_eq!((report.blocked, report.forwarded), (0, 1));
}

#[test]
fn a_covering_store_hides_older_ones() {
    let runs = [store(1, 0x1000, 4), store(2, 0x1000, 8), load(3, 0x1000, 8)];
    assert_eq!(after(CONTAINS, &[&runs]).forwarded, 1);
    let other_order = [store(1, 0x1000, 8), store(2, 0x1000, 4), load(3, 0x1000, 8)];
    let report = after(CONTAINS, &[&other_order]);
    assert_eq!((report.blocked, report.sites[0].blockers[0].stores.len()), (1, 2));
}

#[test]
fn bytes_that_a_younger_store_wrote_are_not_taken_from_an_older_one() {
    let runs = [store(1, 0x1000, 4), store(2, 0x1000, 4), store(3, 0x1004, 4), load(7, 0x1000, 8)];
    let report = after(CONTAINS, &[&runs]);
    let named = &report.sites[0].blockers;
    assert_eq!(*named, [Blockers { stores: vec![Avma(12), Avma(8)], count: 1 }]);
}

#[test]
fn a_store_that_was_committed_blocks_nothing() {
    let first = [store(2, 0x1000, 4), store(3, 0x1004, 4)];
    let mut runs: Vec<&[MemoryAccess]> = vec![&first];
    runs.extend(std::iter::repeat_n::<&[MemoryAccess]>(&[], 12));
    let late = [load(3, 0x1000, 8)];
    runs.push(&late);
    // 208 instructions back; one run fewer is 192.
    assert_eq!(after(CONTAINS, &runs).blocked, 0);
    runs.remove(1);
    assert_eq!(after(CONTAINS, &runs).blocked, 1);
}

#[test]
fn a_store_pushed_out_of_the_buffer_blocks_nothing() {
    let shape = StoreBufferShape { depth: 2, window_instructions: 200 };
    let mut model = buffer(CONTAINS, shape, 16);
    let others = [store(1, 0x1000, 4), store(2, 0x2020, 4), store(3, 0x2040, 4)];
    model.run(BlockId(0), &others);
    model.run(BlockId(0), &[load(1, 0x1000, 8)]);
    assert_eq!(model.report().blocked, 0);
}

#[test]
fn reuse_counts_the_storing_iterations_between() {
    // Iteration i stores to slot i and loads slot i - 2 at double width.
    let slot = |i: u64| 0x1000 + 8 * i;
    let runs: Vec<Vec<MemoryAccess>> = (2..42)
        .map(|i| vec![store(1, slot(i), 4), store(2, slot(i) + 4, 4), load(3, slot(i - 2), 8)])
        .collect();
    let runs: Vec<&[MemoryAccess]> = runs.iter().map(Vec::as_slice).collect();
    let report = after(CONTAINS, &runs);
    assert_eq!(report.blocked, 38);
    assert_eq!(report.sites[0].distances.reuse_iterations, [0, 0, 38, 0, 0, 0, 0, 0]);
}

#[test]
fn same_place_in_another_page_is_an_alias() {
    let runs = [store(1, 0x1ffe, 4), load(2, 0x5000, 8), load(3, 0x5010, 8)];
    let report = after(CONTAINS, &[&runs]);
    assert_eq!((report.aliased, report.blocked, report.forwarded), (1, 0, 0));
    assert_eq!(report.sites.len(), 1);
}

#[test]
fn wide_strings_and_addresses_at_the_end_are_survived() {
    let runs =
        [store(1, u64::MAX - 3, 8), load(2, u64::MAX - 1, 2), store(3, 0, 4096), load(4, 0, 0)];
    let report = after(CONTAINS, &[&runs]);
    assert_eq!((report.forwarded, report.unjudged), (1, 2));
}

/// For each byte the number of the store that wrote it last, and all stores ever.
struct Reference {
    rule: ForwardingRule,
    shape: StoreBufferShape,
    stores: Vec<(u64, u32, u64)>,
}

impl Reference {
    /// Blocked, forwarded, or neither.
    fn load(&self, address: u64, size_bytes: u32, at: u64) -> Option<bool> {
        let oldest = self.stores.len().saturating_sub(self.shape.depth as usize);
        let in_flight = |(_, store): &(usize, &(u64, u32, u64))| {
            at - store.2 <= u64::from(self.shape.window_instructions)
        };
        let writer = |byte: u64| {
            let live = self.stores.iter().enumerate().skip(oldest).filter(in_flight);
            live.filter(|(_, (a, s, _))| (*a..a + u64::from(*s)).contains(&byte))
                .map(|(number, _)| number)
                .max()
        };
        let writers: Vec<Option<usize>> =
            (address..address + u64::from(size_bytes)).map(writer).collect();
        let youngest = writers.iter().flatten().max()?;
        let (store, bytes, _) = self.stores[*youngest];
        let offset = address as i64 - store as i64;
        let serves = self.rule.forwards(offset, bytes as u16, size_bytes as u16);
        Some(!(serves || self.rule.merges()))
    }
}

fn rules() -> impl Strategy<Value = ForwardingRule> {
    prop_oneof![
        Just(ForwardingRule::SingleStoreContains),
        Just(ForwardingRule::ContainsInPieces { wide_store_bytes: 16, piece_bytes: 8 }),
        Just(ForwardingRule::SameStart),
        Just(ForwardingRule::StartOrMiddle),
        Just(ForwardingRule::AnyOverlap),
    ]
}

proptest! {
    #[test]
    fn agrees_with_the_reference(
        rule in rules(),
        (depth, window) in (1_u32..8, 1_u32..40),
        events in prop::collection::vec((any::<bool>(), 0_u64..96, 0_u32..7, 0_u32..3), 0..200),
    ) {
        let shape = StoreBufferShape { depth, window_instructions: window };
        let mut model = buffer(rule, shape, 3);
        let mut reference = Reference { rule, shape, stores: Vec::new() };
        let (mut blocked, mut forwarded) = (0, 0);
        for (run, (is_load, place, width, insn)) in (0_u64..).zip(events) {
            // Two pages, so that aliases come up.
            let (address, size) = (0x1000 + place % 48 + place / 48 * 4096, 1 << width);
            let at = run * 3 + u64::from(insn);
            if is_load {
                model.run(BlockId(0), &[load(insn, address, size)]);
                match reference.load(address, size, at) {
                    Some(true) => blocked += 1,
                    Some(false) => forwarded += 1,
                    None => {}
                }
            } else {
                model.run(BlockId(0), &[store(insn, address, size)]);
                reference.stores.push((address, size, at));
            }
        }
        let report = model.report();
        prop_assert_eq!((report.blocked, report.forwarded), (blocked, forwarded));
        let named: u64 = report.sites.iter().flat_map(|s| &s.blockers).map(|b| b.count).sum();
        prop_assert_eq!(named, blocked);
    }
}
