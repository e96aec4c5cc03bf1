//! Golden screens of invented reports; `INSTA_UPDATE=always cargo test` accepts new ones.

use stallscope::machine::{ForwardingRule, Machine, PriceOrigin, PriceRange};
use stallscope::model::Unit;
use stallscope::probes::store_forwarding::{Boundaries, Case, DelayCurve, RuleFinding};
use stallscope::probes::{Control, Evidence, Protocol, Published};

use super::*;
use crate::terminal::width;

fn cycles(value: f64) -> Measurement {
    Measurement {
        value,
        unit: Unit::Cycles,
        low: value - 0.1,
        high: value + 0.1,
        n: 24,
        how: "median of placements; lowest to highest placement".into(),
    }
}

fn cell(case: Case, class: Class, value: f64) -> CellReport {
    let known = class != Class::Inconclusive;
    CellReport {
        name: case.to_string(),
        case,
        class,
        cycles: known.then(|| cycles(value)),
        clean_percent: if known { 92.0 } else { 11.0 },
    }
}

/// A machine as no test machine presents itself: the facts are empty.
fn machine() -> Machine {
    let mut machine = Machine::from_facts(&stallscope::machine::Facts::default());
    machine.hypervisor = Some("KVM".into());
    machine
}

fn price(low: f64, high: f64) -> PriceRange {
    PriceRange {
        low_cycles: low,
        high_cycles: high,
        origin: PriceOrigin::Probed { probe: "store-forwarding".into() },
        measured: Some(cycles(low)),
    }
}

fn pieces() -> ForwardingRule {
    ForwardingRule::ContainsInPieces { wide_store_bytes: 16, piece_bytes: 8 }
}

fn matrix_cells() -> Vec<CellReport> {
    let mut cells = Vec::new();
    for (registers, widths) in
        [(Registers::General, [1u16, 2, 4, 8]), (Registers::Vector, [4, 8, 16, 32])]
    {
        for store in widths {
            for load in widths {
                for offset in 1 - i32::from(load)..i32::from(store) {
                    let served = pieces().forwards(i64::from(offset), store, load);
                    let (class, value) = match (served, registers) {
                        (true, Registers::General) if offset == 0 && store == load => {
                            (Class::Renamed, 0.5)
                        }
                        (true, Registers::General) => (Class::Forwarded, 5.0),
                        (true, _) => (Class::Forwarded, 6.0),
                        (false, _) => (Class::Blocked, 15.0),
                    };
                    cells.push(cell(Case::pair(registers, store, load, offset), class, value));
                }
            }
        }
    }
    cells
}

fn conclusive() -> ForwardingReport {
    let general = |s, l, o| Case::pair(Registers::General, s, l, o);
    let mut cells = matrix_cells();
    let halves = Case::several(Registers::General, &[(4, 4), (0, 4)], 8);
    cells.push(cell(halves, Class::Blocked, 16.0));
    let unused = general(8, 8, 0).in_group(Group::Unused);
    cells.push(cell(unused, Class::Forwarded, 0.5));
    cells.push(cell(general(8, 8, 0).in_group(Group::PageSplit), Class::Blocked, 140.0));
    cells.push(cell(general(8, 8, 4096).in_group(Group::Alias), Class::Aliased, 3.4));
    let vector = Case::pair(Registers::Vector, 16, 16, 0).in_group(Group::OtherBase);
    cells.push(cell(vector, Class::Inconclusive, 0.0));
    let point = |between: u32, blocked: f64| DelayPoint {
        between,
        blocked: Some(cycles(blocked)),
        forwarded: Some(cycles(5.0 + f64::from(between))),
        cached: Some(cycles(5.0 + f64::from(between))),
    };
    let steps = (0..13).map(|n| point(n, 15.0_f64.max(5.0 + f64::from(n)))).collect();
    let unmeasured = DelayPoint { between: 8, blocked: None, forwarded: None, cached: None };
    let mut protocol = Protocol::new(machine(), 1);
    protocol.controls = vec![control("positive", Some(true)), control("placebo", None)];
    protocol.skipped = vec!["64-byte stores and loads: left for another process".into()];
    protocol.verdict = format!("{}: 5 to 6 cycles, otherwise 15 to 16", pieces().sentence());
    protocol.conclusive = true;
    protocol.published = vec![Published {
        quantity: "8 -> 4 at +4".into(),
        low: 8.0,
        high: 8.0,
        tolerance: 1.0,
        source: "somebody, published measurement".into(),
        evidence: Evidence::Measured,
        measured: Some(cycles(5.0)),
        agrees: Some(false),
    }];
    (protocol.samples, protocol.clean_percent, protocol.took_ms) = (12_000, Some(92.0), 1_234);
    ForwardingReport {
        protocol,
        cells,
        boundaries: Boundaries::default(),
        rule: RuleFinding {
            rule: Some(pieces()),
            sentence: pieces().sentence(),
            decided: 309,
            of: 309,
            against: Vec::new(),
            open: Vec::new(),
        },
        forwarded: Some(price(5.0, 6.0)),
        blocked: Some(price(15.0, 16.0)),
        delay: DelayCurve {
            steps,
            fillers: vec![unmeasured],
            free_after_cycles: Some(10),
            free_after_instructions: None,
        },
        counter: None,
    }
}

fn control(kind: &str, passed: Option<bool>) -> Control {
    Control { kind: kind.into(), passed, words: "this against that".into() }
}

fn inconclusive() -> ForwardingReport {
    let case = Case::pair(Registers::General, 8, 8, 0);
    let mut protocol = conclusive().protocol;
    protocol.published = Vec::new();
    protocol.controls = vec![control("negative", Some(false))];
    protocol.verdict =
        "inconclusive: 11 % clean samples, negative control failed (this against that)".into();
    (protocol.conclusive, protocol.clean_percent) = (false, Some(11.0));
    ForwardingReport {
        cells: vec![cell(case, Class::Inconclusive, 0.0)],
        rule: RuleFinding {
            rule: None,
            sentence:
                "no rule inferred: 0 of 1 cells decided, too few of those with 8-byte stores \
                       and 8-byte loads"
                    .into(),
            decided: 0,
            of: 1,
            against: vec!["8 -> 4 at +2".into()],
            open: Vec::new(),
        },
        forwarded: None,
        blocked: None,
        delay: DelayCurve::default(),
        protocol,
        ..conclusive()
    }
}

/// The page as it looks where there are no colours.
fn plain(report: &ForwardingReport) -> String {
    anstream::adapter::strip_str(&screen(report)).to_string()
}

#[test]
fn golden_conclusive() {
    insta::assert_snapshot!(plain(&conclusive()));
}

#[test]
fn golden_inconclusive() {
    insta::assert_snapshot!(plain(&inconclusive()));
}

#[test]
fn no_line_is_wider_than_the_page() {
    for report in [conclusive(), inconclusive()] {
        for line in plain(&report).lines() {
            assert!(line.chars().count() <= width(), "{line}");
        }
    }
}
