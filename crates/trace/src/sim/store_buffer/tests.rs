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

/// That of Cascade Lake, with the 200 instructions that these tests count out.
const LAKE: StoreBufferShape = StoreBufferShape { depth: 56, window_instructions: 200 };

/// A buffer that knows one block of `length` instructions, four bytes each from address 0.
fn buffer(rule: ForwardingRule, shape: StoreBufferShape, length: u64) -> StoreBuffer {
    let mut model = StoreBuffer::new(rule, shape);
    let insn = |n| BlockInsn { address: Avma(4 * n), size_bytes: 4, drains_stores: false };
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
fn stores_in_front_of_a_fence_or_a_locked_operation_block_nothing_behind_it() {
    let halves = [store(1, 0x1000, 4), store(2, 0x1004, 4)];
    let behind = |runs: &[&[MemoryAccess]]| {
        let mut model = buffer(CONTAINS, LAKE, 0);
        let insn = |n| BlockInsn { address: Avma(4 * n), size_bytes: 4, drains_stores: n == 3_u64 };
        model.describe(BlockId(0), &Block { insns: (0..8).map(insn).collect() });
        runs.iter().for_each(|accesses| model.run(BlockId(0), accesses));
        let report = model.report();
        (report.blocked, report.loads)
    };
    let with = |more: &[MemoryAccess]| [&halves, more].concat();
    assert_eq!(behind(&[&with(&[load(5, 0x1000, 8)])]), (0, 1), "a fence");
    let locked = [load(3, 0x1000, 8), store(3, 0x1000, 8), load(5, 0x1002, 8)];
    assert_eq!(behind(&[&with(&locked)]), (0, 2), "its own load, and what it stored");
    assert_eq!(behind(&[&halves, &[load(1, 0x1000, 8)]]), (0, 1), "in the block before");
    let between = [store(4, 0x1000, 4), load(5, 0x1000, 8)];
    assert_eq!(behind(&[&with(&between)]), (1, 1), "a store behind the fence");
    assert_eq!(behind(&[&with(&[load(2, 0x1000, 8)])]), (1, 1), "a load in front of it");
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

#[test]
fn distances_are_counted_in_powers_of_two_and_the_last_ones_are_open() {
    let of = |instructions: u64, reuse: u64| {
        let mut distances = Distances::default();
        distances.count(instructions, reuse);
        let at = |counts: &[u64]| counts.iter().position(|n| *n == 1).unwrap();
        (at(&distances.instructions), at(&distances.reuse_iterations))
    };
    for (instructions, bucket) in [
        (0, 0),
        (1, 0),
        (2, 1),
        (3, 2),
        (4, 2),
        (5, 3),
        (64, 6),
        (65, 7),
        (128, 7),
        (129, 8),
        (9999, 8),
    ] {
        assert_eq!(of(instructions, 0).0, bucket, "{instructions}");
    }
    assert_eq!([of(1, 0).1, of(1, 6).1, of(1, 7).1, of(1, 99).1], [0, 6, 7, 7]);
}

#[test]
fn four_stores_are_named_of_a_load_that_more_of_them_block() {
    let bytes: Vec<MemoryAccess> = (0..8).map(|n| store(n, 0x1000 + u64::from(n), 1)).collect();
    let runs = [bytes, vec![load(9, 0x1000, 8)]].concat();
    let report = after(CONTAINS, &[&runs]);
    assert_eq!(report.sites[0].blockers[0].stores, [28, 24, 20, 16].map(Avma));
}

#[test]
fn what_blocks_most_comes_first_and_addresses_decide_between_equals() {
    let pair = |insn, at| [store(0, at, 4), load(insn, at, 8)];
    let other = |insn, at| [store(1, at, 4), load(insn, at, 8)];
    let mut runs: Vec<[MemoryAccess; 2]> = vec![pair(7, 0x1000), pair(5, 0x1100), other(9, 0x1200)];
    runs.extend([pair(9, 0x1300), pair(9, 0x1400)]);
    // An alias beside a blocked load, and one that was only forwarded.
    runs.push([store(2, 0x1500, 8), load(11, 0x1500, 8)]);
    runs.push([store(2, 0x2600, 4), load(5, 0x9600, 4)]);
    let runs: Vec<&[MemoryAccess]> = runs.iter().map(|r| &r[..]).collect();
    let report = after(CONTAINS, &runs);
    let sites: Vec<_> = report.sites.iter().map(|s| (s.insn.0, s.blocked, s.aliased)).collect();
    assert_eq!(sites, [(36, 3, 0), (20, 1, 1), (28, 1, 0), (44, 0, 0)]);
    let blockers: Vec<_> =
        report.sites[0].blockers.iter().map(|b| (b.stores[0].0, b.count)).collect();
    assert_eq!(blockers, [(0, 2), (4, 1)]);
    assert_eq!((report.loads, report.forwarded, report.blocked, report.aliased), (7, 1, 5, 1));
    assert_eq!(report.sites[0].executions, 3);
    assert_eq!(report.instructions, 7 * 16);
}

#[test]
fn sixty_four_bytes_are_judged_and_prefetches_are_no_loads() {
    let prefetch = access(3, AccessKind::Prefetch, 0x1000, 8);
    let runs = [store(1, 0x1000, 64), load(2, 0x1000, 64), load(4, 0x1000, 65), prefetch];
    let report = after(CONTAINS, &[&runs]);
    assert_eq!((report.loads, report.forwarded, report.unjudged), (1, 1, 1));
    // A block that nobody described, and an instruction behind its end.
    let mut model = buffer(CONTAINS, LAKE, 2);
    model.run(BlockId(7), &[store(0, 0x1000, 4)]);
    model.run(BlockId(0), &[store(2, 0x1000, 4), load(1, 0x1000, 8)]);
    assert_eq!((model.report().blocked, model.report().loads), (0, 1));
    model.run(BlockId(0), &[store(0, 0x1000, 4), load(1, 0x1000, 8)]);
    assert_eq!(model.report().blocked, 1);
    model.restart();
    assert_eq!((model.report().loads, model.report().instructions), (0, 0));
    // A buffer has one entry at the least.
    let mut least = buffer(CONTAINS, StoreBufferShape { depth: 0, ..LAKE }, 2);
    least.run(BlockId(0), &[store(0, 0x1000, 4), load(1, 0x1000, 4)]);
    assert_eq!((least.report().forwarded, least.report().shape.depth), (1, 1));
}

#[test]
fn places_in_a_page_overlap_by_a_byte_at_either_end() {
    let at = |address, size_bytes| Entry { address, size_bytes, ..Entry::default() };
    let overlaps = |address, store: &Entry| overlaps_in_page(address, 8, store);
    let store = at(0x1100, 4);
    assert!(overlaps(0x50f9, &store) && !overlaps(0x50f8, &store));
    assert!(overlaps(0x5103, &store) && !overlaps(0x5104, &store));
    // Over the end of the page.
    assert!(overlaps(0x5ffd, &at(0x1004, 4)) && overlaps(0x5001, &at(0x1ffe, 4)));
    assert_eq!(covered_bytes(0x1000, 8, &at(0x0ffe, 4)), 0b11);
    assert_eq!(covered_bytes(0x1000, 8, &at(0x1006, 4)), 0b1100_0000);
    assert_eq!(covered_bytes(0x1000, 8, &at(0x1002, 2)), 0b1100);
    assert_eq!(covered_bytes(0x1000, 64, &at(0x1000, 64)), u64::MAX);
    assert_eq!(
        [covered_bytes(0x1000, 8, &at(0x1008, 4)), covered_bytes(0x1000, 8, &at(0x0ffc, 4))],
        [0; 2]
    );
    assert_eq!(pieces(0x100f, 2).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(pieces(0x1ff0, 17).collect::<Vec<_>>(), [255, 0]);
    assert_eq!(pieces(0x1001, 64).count(), 5);
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
