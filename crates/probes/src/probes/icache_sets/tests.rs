//! Invented instruction caches with known ways, sets and lines.

use std::collections::BTreeMap;

use super::*;
use crate::clock::FakeClock;
use crate::machine::{CacheGeometry, CacheKind, Design, Machine, invented};
use crate::probes::UpdatesProfile as _;
use crate::probes::fake::{FakeRig, changes_nothing, disturbed, quiet, sampled_long};
use crate::probes::protocol::Protocol;

/// What a dispatch costs: of a set with more lines than ways, ways are found.
fn cost(case: &Case, cache: CacheGeometry) -> f64 {
    let mut sets: BTreeMap<u32, f64> = BTreeMap::new();
    for i in 0..case.blocks {
        let line = case.layout.position(i) / cache.line_bytes;
        *sets.entry(line % cache.sets).or_default() += 1.0;
    }
    let missed: f64 = sets.values().map(|n| (n - f64::from(cache.ways)).max(0.0)).sum();
    28.0 + f64::from(case.blocks) * 0.05 + 24.0 * missed / f64::from(case.blocks)
}

/// What decoding costs besides, where decoded instructions are held in 64 sets of 16 places: six
/// instructions a place.
fn decoding(case: &Case) -> f64 {
    let places = if case.layout.odd_bytes > 0 { 5 } else { 10 };
    let mut sets: BTreeMap<u32, u32> = BTreeMap::new();
    for i in 0..case.blocks {
        *sets.entry(case.layout.position(i) / 64 % 64).or_default() += 1;
    }
    let overflown: u32 = sets.values().filter(|n| *n * places > 16).sum();
    12.0 * f64::from(overflown) / f64::from(case.blocks)
}

/// Of a machine that tells the truth about its cache.
fn report_of(clock: FakeClock, cache: CacheGeometry, noise: f64) -> IcacheReport {
    let mut machine = Machine::from_facts(&invented::cascade_lake_guest());
    for c in machine.caches.iter_mut().filter(|c| c.kind == CacheKind::Instruction) {
        (c.sets, c.ways, c.line_bytes) = (cache.sets, cache.ways, cache.line_bytes);
    }
    report_on(machine, clock, |case| cost(case, cache), noise)
}

fn report_on(
    machine: Machine,
    clock: FakeClock,
    cost: impl Fn(&Case) -> f64,
    noise: f64,
) -> IcacheReport {
    let cases = all_cases();
    let rig = FakeRig::new(clock, |i| cost(&cases[i])).noisy(noise);
    IcacheReport::new(&cases, &sampled_long(rig, cases.len()), Protocol::new(machine, 0))
}

const SMALL: CacheGeometry = CacheGeometry { sets: 64, ways: 8, line_bytes: 64 };
const LARGE: CacheGeometry = CacheGeometry { sets: 256, ways: 4, line_bytes: 64 };
const TWELVE: CacheGeometry = CacheGeometry { sets: 64, ways: 12, line_bytes: 64 };

#[test]
fn the_geometry_that_the_machine_has_is_found() {
    for (cache, noise) in [SMALL, LARGE, TWELVE].into_iter().flat_map(|c| [(c, 0.0), (c, 0.05)]) {
        let report = report_of(quiet(), cache, noise);
        assert!(report.protocol.conclusive, "{}", report.protocol.verdict);
        let mut profile = Design::of_machine(&report.protocol.machine);
        report.apply_to(&mut profile);
        assert_eq!(profile.code_cache, Some(cache));
        assert_eq!(
            report.capacity_bytes,
            Some(u64::from(cache.sets * cache.ways * cache.line_bytes))
        );
        let miss = report.miss_cycles.unwrap().value;
        assert!((miss - 24.0).abs() < 2.0, "{miss}");
    }
}

#[test]
fn decoded_instructions_that_overflow_first_do_not_hide_it() {
    let machine = Machine::from_facts(&invented::cascade_lake_guest());
    let both = |case: &Case| cost(case, SMALL) + decoding(case);
    let report = report_on(machine, quiet(), both, 0.01);
    assert!(report.protocol.conclusive, "{}", report.protocol.verdict);
    let found = (report.ways.unwrap().value, report.sets.unwrap().value, report.line_bytes);
    assert_eq!(found, (8.0, 64.0, Some(64)));
}

#[test]
fn a_curve_against_the_processors_own_word_is_inconclusive() {
    let machine = Machine::from_facts(&invented::cascade_lake_guest());
    let report = report_on(machine, quiet(), |case| cost(case, LARGE), 0.0);
    let verdict = &report.protocol.verdict;
    assert!(verdict.contains("4 ways of 256 sets") && verdict.contains("8 of 64"), "{verdict}");
    assert!(changes_nothing(&report));
}

#[test]
fn disturbed_machines_are_right_or_silent() {
    for (name, clock) in disturbed() {
        for cache in [SMALL, LARGE, TWELVE] {
            let report = report_of(clock.clone(), cache, 0.02);
            if report.protocol.conclusive {
                assert_eq!(report.ways.unwrap().value, f64::from(cache.ways), "{name}");
                assert_eq!(report.sets.unwrap().value, f64::from(cache.sets), "{name}");
            }
            // Preemption makes samples few, not wrong: it must not cost the answer.
            let named = &report.protocol.verdict;
            assert!(report.protocol.conclusive || name != "preempted", "{named}");
        }
    }
}

#[test]
fn a_cache_that_shows_nothing_is_inconclusive() {
    let free = CacheGeometry { ways: 64, ..SMALL };
    let report = report_of(quiet(), free, 0.0);
    assert!(report.protocol.verdict.starts_with("inconclusive"), "{}", report.protocol.verdict);
    assert!(changes_nothing(&report));
}
