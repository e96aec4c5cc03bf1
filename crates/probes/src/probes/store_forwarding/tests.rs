//! Invented machines with a known rule: the inference finds it or says that it does not know.

use std::sync::atomic::AtomicBool;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::clock::{Clock, FakeClock, HoldsClock};
use crate::machine::{Design, ForwardingRule, Machine, PriceOrigin, invented};
use crate::probes::UpdatesProfile as _;
use crate::probes::fake::{changes_nothing, sampled_by};

/// Loads that get the stored register itself: general registers, from the first byte of one store
/// of at least four bytes.
#[derive(Clone, Copy)]
struct Renaming {
    cycles: f64,
    /// Narrower loads go through memory.
    least_load_bytes: u16,
    /// Whether both addresses must be written alike: the same base register and displacement.
    same_base: bool,
}

/// What a machine charges, core cycles.
#[derive(Clone, Copy)]
struct Prices {
    renamed: Option<Renaming>,
    general: f64,
    vector: f64,
    blocked: f64,
    merging: f64,
    alias: f64,
    split: f64,
}

const SKYLAKE: Prices = Prices {
    renamed: None,
    general: 5.0,
    vector: 6.0,
    blocked: 15.0,
    merging: 0.0,
    alias: 3.4,
    split: 4.0,
};

const GOLDEN_COVE: Prices = Prices {
    renamed: Some(Renaming { cycles: 0.5, least_load_bytes: 1, same_base: false }),
    blocked: 19.0,
    alias: 1.0,
    vector: 7.0,
    ..SKYLAKE
};

/// 32 and 64 bits, simple addresses that are written alike (A. Fog); 1 cycle, else 7 and 8, blocked
/// 21 (uarch-bench, danlark1).
const ZEN_2: Prices = Prices {
    renamed: Some(Renaming { cycles: 1.0, least_load_bytes: 4, same_base: true }),
    general: 7.0,
    vector: 8.0,
    blocked: 21.0,
    alias: 1.0,
    ..SKYLAKE
};

const APPLE: Prices =
    Prices { general: 7.5, vector: 8.0, blocked: 28.0, merging: 3.0, alias: 1.0, ..SKYLAKE };

/// A load of bytes that no store wrote.
const DISJOINT_CYCLES: f64 = 1.0;

/// From one file of registers to the other.
const MOVE_BACK_CYCLES: f64 = 2.0;

/// A fake clock beside which cases cost what the invented rule and prices say.
struct FakeRig {
    clock: FakeClock,
    cases: Vec<Case>,
    rule: ForwardingRule,
    prices: Prices,
    /// Share of the pairs of pages in which an alias costs something.
    aliasing_share: f64,
    /// What decides which.
    process: u64,
    /// Relative noise of every visit.
    noise: f64,
    random: u64,
}

impl FakeRig {
    fn new(clock: FakeClock, rule: ForwardingRule, prices: Prices) -> Self {
        let cases = [case::all_cases(true), case::wide_cases()].concat();
        Self { clock, cases, rule, prices, aliasing_share: 1.0, process: 0, noise: 0.0, random: 7 }
    }

    /// Only so many pairs of pages alias; which ones is drawn anew by each process.
    fn aliasing_in(self, aliasing_share: f64, process: u64) -> Self {
        Self { aliasing_share, process, ..self }
    }

    /// What the pairs of pages cost on average in which one copy of a kernel works.
    fn alias_cycles(&self, case: &Case, placement: usize) -> f64 {
        let pairs = super::kernel::PER_PASS as i32;
        let aliases = |repetition: &i32| {
            let page = super::kernel::apart(case, *repetition) / 4096;
            let pair = [placement as i32, page, case.load.offset_bytes / 4096];
            let seed = pair.iter().fold(self.process, |seed, &n| seed * 1000 + n as u64);
            Pcg64Mcg::seed_from_u64(seed).random_bool(self.aliasing_share)
        };
        let aliasing = (0..pairs).filter(aliases).count() as f64;
        DISJOINT_CYCLES + aliasing / f64::from(pairs) * (self.prices.alias - DISJOINT_CYCLES)
    }

    fn noisy(mut self, noise: f64) -> Self {
        self.noise = noise;
        self
    }

    /// Whether one store, or with a merging rule any, serves the load.
    fn serves(&self, case: &Case) -> bool {
        let last_first = || case.stores.iter().rev();
        let relative = |s: &case::Access| i64::from(case.load.offset_bytes - s.offset_bytes);
        let overlaps = |s: &&case::Access| {
            ForwardingRule::AnyOverlap.forwards(relative(s), s.bytes, case.load.bytes)
        };
        // The youngest store that overlaps decides.
        last_first()
            .find(overlaps)
            .is_some_and(|s| self.rule.forwards(relative(s), s.bytes, case.load.bytes))
    }

    fn cycles(&self, case: &Case, placement: usize) -> f64 {
        let p = &self.prices;
        let forwarded = match case.registers {
            Registers::General => p.general,
            Registers::Vector | Registers::Wide => p.vector,
            Registers::IntoVector | Registers::IntoGeneral => p.vector + MOVE_BACK_CYCLES,
        };
        let back = if matches!(case.registers, Registers::IntoVector | Registers::IntoGeneral) {
            MOVE_BACK_CYCLES
        } else {
            0.0
        };
        let split = match case.group {
            Group::LineSplit => p.split,
            Group::PageSplit => 10.0 * p.split,
            _ => 0.0,
        };
        let served = self.serves(case);
        let plain = case.stores.len() == 1
            && case.load.offset_bytes == 0
            && case.stores[0].bytes >= 4
            && case.registers == Registers::General;
        let renames = |r: &Renaming| {
            let alike = case.group != Group::OtherBase || !r.same_base;
            plain && alike && case.load.bytes >= r.least_load_bytes
        };
        let trip = match (served, p.renamed.filter(renames)) {
            (true, Some(renamed)) => renamed.cycles,
            (true, _) if case.contained() => forwarded,
            (true, _) => forwarded + p.merging,
            (false, _) => p.blocked + back,
        };
        match case.group {
            Group::Disjoint => DISJOINT_CYCLES,
            Group::Alias => self.alias_cycles(case, placement),
            Group::Unused if served => 1.0,
            Group::Delay => {
                let own = f64::from(case.steps) + f64::from(case.fillers) / 4.0;
                // The store has left the buffer by then.
                let wait = (p.blocked - forwarded - own).max(0.0);
                let other_bytes = case.load.offset_bytes > 500;
                own + forwarded + if served || other_bytes { 0.0 } else { wait }
            }
            _ => trip + split,
        }
    }
}

impl HoldsClock for FakeRig {
    fn held_clock(&mut self) -> &mut impl Clock {
        &mut self.clock
    }
}

impl Rig for FakeRig {
    fn placements(&self) -> usize {
        4
    }
    fn repetitions(&self, _case: usize) -> u64 {
        512
    }
    fn run_case(&mut self, case: usize, placement: usize, repetitions: u64) {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        let noise = (self.random >> 40) as f64 / (1u64 << 24) as f64 - 0.5;
        // Placements differ a little too.
        let factor = 1.0 + self.noise * noise + 0.002 * placement as f64;
        let cycles = self.cycles(&self.cases[case], placement) * factor * repetitions as f64;
        self.clock.run_latency_chain(cycles as u64);
    }
}

fn report_of(rig: FakeRig) -> ForwardingReport {
    report_on(Machine::from_facts(&invented::zen_5_guest()), rig)
}

fn report_on(machine: Machine, mut rig: FakeRig) -> ForwardingReport {
    let cases = rig.cases.clone();
    let protocol = Protocol::new(machine, 0);
    let plan = Plan { rounds: 3, more_rounds: 6, ..Plan::new(1) };
    let mut sampler = Sampler::new(&mut rig, cases.len(), plan);
    sample(&mut rig, &mut sampler, &cases, &protocol, &AtomicBool::new(false)).unwrap();
    ForwardingReport::new(&cases, &sampler.sampled(), protocol)
}

const CONTAINS: ForwardingRule = ForwardingRule::SingleStoreContains;
const PIECES: ForwardingRule =
    ForwardingRule::ContainsInPieces { wide_store_bytes: 16, piece_bytes: 8 };
/// As where a 64-byte store is kept in two halves.
const HALVES_OF_64: ForwardingRule =
    ForwardingRule::ContainsInPieces { wide_store_bytes: 64, piece_bytes: 32 };

fn quiet() -> FakeClock {
    FakeClock::quiet(2.5, 3.1)
}

/// Every cell of the matrix is classed as the machine was made, or not at all; returns how many
/// were left open.
fn check_truth(report: &ForwardingReport, rule: ForwardingRule, prices: Prices) -> usize {
    let truth = FakeRig::new(quiet(), rule, prices);
    let mut open = 0;
    for cell in report.cells.iter().filter(|c| c.case.group == Group::Matrix) {
        match cell.class.served() {
            Some(served) => assert_eq!(served, truth.serves(&cell.case), "{cell:?}"),
            None => open += 1,
        }
        if cell.class == Class::Renamed {
            assert!(prices.renamed.is_some(), "{cell:?}");
        }
    }
    open
}

#[test]
fn perfect_machines_give_their_rule_back() {
    let machines = [
        (CONTAINS, SKYLAKE),
        (PIECES, SKYLAKE),
        (HALVES_OF_64, SKYLAKE),
        (CONTAINS, GOLDEN_COVE),
        (CONTAINS, ZEN_2),
        (ForwardingRule::SameStart, SKYLAKE),
        (ForwardingRule::StartOrMiddle, SKYLAKE),
    ];
    for (rule, prices) in machines {
        let report = report_of(FakeRig::new(quiet(), rule, prices));
        assert_eq!(check_truth(&report, rule, prices), 0);
        assert_eq!(report.rule.rule, Some(rule), "{:?}", report.rule);
        // Two designs do not forward the contrast's cell, and say so instead of giving a price.
        let usual =
            matches!(rule, CONTAINS | PIECES | HALVES_OF_64 | ForwardingRule::StartOrMiddle);
        assert_eq!(report.protocol.conclusive, usual, "{}", report.protocol.verdict);
        let blocked = report.blocked.unwrap();
        assert!((blocked.low_cycles - prices.blocked).abs() < 0.3, "{blocked:?}");
    }
}

#[test]
fn renaming_and_aliasing_are_told_apart() {
    let report = report_of(FakeRig::new(quiet(), CONTAINS, GOLDEN_COVE));
    let class = |case: Case| report.cell(&case).unwrap().class;
    let pair = |s, l, o| Case::pair(Registers::General, s, l, o);
    assert_eq!(class(pair(8, 8, 0)), Class::Renamed);
    assert_eq!(class(pair(8, 4, 4)), Class::Forwarded);
    assert_eq!(class(pair(8, 8, 4096).in_group(Group::Alias)), Class::Independent);
    let lake = report_of(FakeRig::new(quiet(), PIECES, SKYLAKE));
    let alias = lake.cell(&pair(8, 8, 4096).in_group(Group::Alias)).unwrap();
    assert_eq!(alias.class, Class::Aliased);
    assert_eq!(lake.cell(&pair(8, 8, 0)).unwrap().class, Class::Forwarded);
}

/// Zen 2 renames a load whose address is written like the store's, and only of 32 and 64 bits.
#[test]
fn renaming_by_the_form_of_the_address_is_told_from_forwarding() {
    let mut machine = Machine::from_facts(&invented::zen_5_guest());
    machine.microarchitecture = crate::machine::Microarchitecture::Zen2;
    let report = report_on(machine, FakeRig::new(quiet(), CONTAINS, ZEN_2));
    assert!(report.protocol.conclusive, "{}", report.protocol.verdict);
    assert_eq!(report.rule.rule, Some(CONTAINS));
    assert_eq!(check_truth(&report, CONTAINS, ZEN_2), 0);
    let class = |case: Case| report.cell(&case).unwrap().class;
    let pair = |s, l, o| Case::pair(Registers::General, s, l, o);
    for (store, load) in [(8, 8), (8, 4), (4, 4)] {
        assert_eq!(class(pair(store, load, 0)), Class::Renamed, "{store} {load}");
    }
    for case in [pair(8, 2, 0), pair(2, 2, 0), pair(1, 1, 0), pair(8, 4, 4)] {
        assert_eq!(class(case.clone()), Class::Forwarded, "{case}");
    }
    for bytes in [4, 8] {
        let other = pair(bytes, bytes, 0).in_group(Group::OtherBase);
        assert_eq!(class(other), Class::Forwarded, "{bytes}");
    }
    assert_eq!(class(Case::pair(Registers::Vector, 16, 16, 0)), Class::Forwarded);
    assert_eq!(class(pair(4, 8, 0)), Class::Blocked);
    // What renaming takes is no price of forwarding.
    let forwarded = report.forwarded.as_ref().unwrap();
    assert!(forwarded.low_cycles > 6.5, "{forwarded:?}");
    let published = &report.protocol.published;
    assert!(published.len() >= 4 && published.iter().all(|p| p.agrees == Some(true)));
}

/// The class of a load 4 KiB behind its store where that share of the pairs of pages aliases, for
/// so many cycles.
fn alias_class(aliasing_share: f64, alias: f64, process: u64) -> Class {
    let prices = Prices { alias, ..SKYLAKE };
    let mut rig = FakeRig::new(quiet(), PIECES, prices).aliasing_in(aliasing_share, process);
    let needed = |c: &Case| {
        let matrix = c.group == Group::Matrix && c.registers == Registers::General;
        matrix || matches!(c.group, Group::Alias | Group::Disjoint | Group::Unused)
    };
    rig.cases.retain(needed);
    let case = Case::pair(Registers::General, 8, 8, 4096).in_group(Group::Alias);
    report_of(rig).cell(&case).unwrap().class
}

#[test]
fn whether_pages_alias_is_no_matter_of_luck() {
    // One process alone would find pages that all alias, or none.
    for process in 0..40 {
        let (few, many) = (alias_class(0.07, 2.6, process), alias_class(0.4, 6.2, process));
        assert_ne!(few, Class::Aliased, "{process}");
        assert_ne!(many, Class::Independent, "{process}");
    }
}

/// What an invented core says when the cases that `is_lost` picks have too few clean samples.
fn without(is_lost: impl Fn(usize, &Case) -> bool) -> ForwardingReport {
    let mut rig = FakeRig::new(quiet(), PIECES, SKYLAKE);
    let cases = rig.cases.clone();
    let mut sampled = sampled_by(&mut rig, cases.len(), Plan::new(3));
    for (at, case) in cases.iter().enumerate() {
        if case.group == Group::Matrix && is_lost(at, case) {
            sampled.cells[at].cycles = None;
        }
    }
    let machine = Machine::from_facts(&invented::cascade_lake_guest());
    ForwardingReport::new(&cases, &sampled, Protocol::new(machine, 0))
}

#[test]
fn what_stayed_open_costs_itself_alone() {
    // All of a combination of widths that no other rule would treat differently, and here and there one more.
    let is_narrow = |c: &Case| c.stores[0].bytes == 2 && c.load.bytes == 4;
    let report = without(|at, case| is_narrow(case) || at % 30 == 5);
    assert_eq!(report.rule.rule, Some(PIECES), "{:?}", report.rule);
    assert!(report.rule.decided < report.rule.of && !report.rule.open.is_empty());
    assert!(report.protocol.conclusive, "{}", report.protocol.verdict);
    let said = "too few decided of 2-byte stores and 4-byte loads";
    assert!(report.protocol.verdict.contains(said), "{}", report.protocol.verdict);
}

#[test]
fn what_decides_between_two_rules_leaves_the_rule_open_and_the_price_known() {
    let serves = |rule: ForwardingRule, case: &Case| {
        rule.forwards(case.load.offset_bytes.into(), case.stores[0].bytes, case.load.bytes)
    };
    let report = without(|_, case| serves(PIECES, case) != serves(CONTAINS, case));
    assert_eq!(report.rule.rule, None, "{:?}", report.rule);
    let said = "cells agree as well with";
    assert!(report.protocol.verdict.contains(said), "{}", report.protocol.verdict);
    let mut profile = Design::of_machine(&report.protocol.machine);
    let before = profile.forwarding_rule_origin.clone();
    report.apply_to(&mut profile);
    assert!(profile.blocked_load_is_probed(), "{}", report.protocol.verdict);
    assert_eq!(profile.forwarding_rule_origin, before);
}

#[test]
fn the_delay_curve_ends_where_the_store_has_left() {
    let report = report_of(FakeRig::new(quiet(), PIECES, SKYLAKE));
    // 15 less 5: from ten steps on nothing is left; the tolerance allows one step before.
    assert!(matches!(report.delay.free_after_cycles, Some(9 | 10)), "{:?}", report.delay);
    assert!(matches!(report.delay.free_after_instructions, Some(40 | 48)));
    let extra: Vec<f64> = report.delay.steps.iter().filter_map(|p| p.extra_cycles()).collect();
    assert!((extra[0] - 10.0).abs() < 0.3 && extra.last().unwrap().abs() < 0.3, "{extra:?}");
}

#[test]
fn a_merging_machine_blocks_nothing_in_a_line() {
    let report = report_of(FakeRig::new(quiet(), ForwardingRule::AnyOverlap, APPLE));
    assert_eq!(report.rule.rule, Some(ForwardingRule::AnyOverlap), "{:?}", report.rule);
    assert!(check_truth(&report, ForwardingRule::AnyOverlap, APPLE) < 20);
    assert!(report.protocol.verdict.contains("nothing was blocked"), "{}", report.protocol.verdict);
    // There is no price of a blocked load to write down.
    assert!(changes_nothing(&report));
}

#[test]
fn disturbed_machines_are_right_or_silent() {
    let clocks = [
        ("turbo", quiet().stepping(2e6, 0.3, 0.875)),
        // Over such a run the clock loses more than half.
        ("drift", quiet().drifting(-1.5)),
        ("preempted", quiet().preempted(400_000.0, 4_000.0)),
        ("time slices", quiet().preempted(3e6, 3e6)),
        ("hammered", quiet().preempted(60_000.0, 4_000.0)),
        ("sibling", quiet().busy_sibling(0.4)),
    ];
    for (name, clock) in clocks {
        for (rule, prices) in [(PIECES, SKYLAKE), (CONTAINS, GOLDEN_COVE), (CONTAINS, ZEN_2)] {
            let report = report_of(FakeRig::new(clock.clone(), rule, prices).noisy(0.02));
            let open = check_truth(&report, rule, prices);
            assert!(report.rule.rule.is_none_or(|r| r == rule), "{name}: {:?}", report.rule);
            if !matches!(name, "hammered") {
                assert_eq!(
                    report.rule.rule,
                    Some(rule),
                    "{name}: {open} open, {}",
                    report.protocol.verdict
                );
            }
        }
    }
}

#[test]
fn noise_as_large_as_the_gap_gives_no_rule() {
    let report = report_of(FakeRig::new(quiet(), PIECES, SKYLAKE).noisy(3.0));
    assert!(!report.protocol.conclusive, "{}", report.protocol.verdict);
    assert!(report.protocol.verdict.starts_with("inconclusive"), "{}", report.protocol.verdict);
    check_truth(&report, PIECES, SKYLAKE);
}

#[test]
fn what_was_found_becomes_a_probed_price() {
    let report = report_of(FakeRig::new(quiet(), PIECES, SKYLAKE));
    let mut profile = Design::of_machine(&report.protocol.machine);
    report.apply_to(&mut profile);
    assert_eq!(profile.forwarding_rule, PIECES);
    let price = &profile.store_forward_blocked_cycles;
    assert_eq!(price.origin, PriceOrigin::Probed { probe: "store-forwarding".into() });
    assert!(price.measured.as_ref().unwrap().n >= 8);
    let text = profile.to_json().unwrap();
    let again = Design::from_json(&text).unwrap();
    assert_eq!(again.environment, profile.environment);
    assert_eq!(again.blocked_load_sentence(), profile.blocked_load_sentence());
    let whole = serde_json::to_string(&ProbeReport::StoreForwarding(Box::new(report))).unwrap();
    assert!(whole.starts_with("{\"probe\":\"store-forwarding\""), "{}", &whole[..60]);
}

#[test]
fn the_counter_is_held_against_the_contrast() {
    use crate::clock::counters::{CounterState, EventCounter};
    use crate::machine::Microarchitecture;

    /// Counts the same whatever runs.
    struct Constant;
    impl EventCounter for Constant {
        fn count(&mut self, _config: u64, run: &mut dyn FnMut()) -> Result<u64, i32> {
            run();
            Ok(20_000)
        }
    }
    let mut rig = FakeRig::new(quiet(), CONTAINS, SKYLAKE);
    let cases = rig.cases.clone();
    let mut kernel = Constant;
    let lake = Microarchitecture::CascadeLake;
    let found = counted::counted(&mut rig, &cases, lake, &mut kernel).unwrap();
    // As many in the kernel that must not raise it: no such event.
    assert_eq!(found.state, CounterState::Disproved);
    let none = Microarchitecture::Gracemont;
    assert!(counted::counted(&mut rig, &cases, none, &mut kernel).is_none());
}

#[test]
fn an_interrupt_ends_it() {
    let mut rig = FakeRig::new(quiet(), CONTAINS, SKYLAKE);
    let cases = rig.cases.clone();
    let machine = Machine::from_facts(&invented::zen_5_guest());
    let protocol = Protocol::new(machine, 0);
    let stop = AtomicBool::new(true);
    let mut sampler = Sampler::new(&mut rig, cases.len(), Plan::new(1));
    assert!(sample(&mut rig, &mut sampler, &cases, &protocol, &stop).is_err());
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_hardware_path_ends_in_a_report() {
    let interrupt = AtomicBool::new(false);
    let bench = Bench::new(1, &interrupt);
    let ProbeReport::StoreForwarding(report) = run(&bench).unwrap() else {
        panic!("another probe's report");
    };
    assert!(report.protocol.samples > 0 && !report.protocol.verdict.is_empty());
}

#[test]
fn what_is_published_is_about_cases_that_are_measured() {
    let cases: Vec<String> = case::all_cases(true).iter().map(ToString::to_string).collect();
    for design in crate::machine::Microarchitecture::ALL {
        for row in crate::probes::published::compare(*design, report::ID, |_| None) {
            let named = cases.iter().filter(|case| **case == row.quantity).count();
            assert_eq!(named, 1, "{design}: {}", row.quantity);
        }
    }
}
