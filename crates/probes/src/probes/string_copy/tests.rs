//! Invented machines with a known start-up of their string instructions.

use std::sync::atomic::AtomicBool;

use super::*;
use crate::machine::{Design, Machine, PriceOrigin, invented};
use crate::probes::UpdatesProfile as _;
use crate::probes::fake::{FakeRig, changes_nothing, disturbed, quiet};
use crate::probes::protocol::{Answer, Protocol};

/// Start-up and bytes per cycle of the string instructions.
#[derive(Clone, Copy)]
struct Microcode {
    start: f64,
    per_cycle: f64,
}

fn cycles(case: &Case, m: Microcode) -> f64 {
    let bytes = f64::from(case.bytes);
    let alone = match case.method {
        Method::RepBytes | Method::RepQuads => m.start + bytes / m.per_cycle,
        Method::Moves8 => bytes / 8.0,
        Method::Sse => bytes / 16.0,
        Method::Avx2 | Method::Libc => bytes / 32.0 + 1.0,
        Method::Avx512 => bytes / 64.0 + 1.0,
    };
    match case.form {
        Form::Throughput | Form::Placebo => alone,
        Form::DependentFirst | Form::DependentLast => alone + 10.0,
        Form::Shadow if alone > m.start && case.bytes > 0 && case.method == Method::RepQuads => {
            315.0
        }
        Form::Shadow => 300.0,
    }
}

fn report_of(clock: crate::clock::FakeClock, m: Microcode, noise: f64) -> StringReport {
    let cases = case::all_cases(true);
    let mut rig = FakeRig::new(clock, |i| cycles(&cases[i], m)).noisy(noise);
    let machine = Machine::from_facts(&invented::cascade_lake_guest());
    let plan = Plan { rounds: 4, more_rounds: 12, limit_ns: u64::MAX / 4, ..Plan::new(1) };
    let stop = AtomicBool::new(false);
    let (sampled, _) = sample(&mut rig, &cases, plan, &Bench::new(1, &stop)).unwrap();
    StringReport::new(&cases, &sampled, Protocol::new(machine, 0))
}

/// 26 cycles and 50 bytes a cycle overtake 8-byte moves at 26 / (1/8 - 1/50) = 247.6 bytes.
const LAKE: Microcode = Microcode { start: 26.0, per_cycle: 50.0 };

fn size_of(report: &StringReport, against: Method) -> Option<(f64, f64, f64)> {
    let wanted =
        |c: &&Crossover| (c.job, c.rep, c.against) == (Job::Copy, Method::RepQuads, against);
    match &report.crossovers.iter().find(wanted)?.outcome {
        Outcome::From { size } => Some((size.low, size.value, size.high)),
        _ => None,
    }
}

#[test]
fn a_perfect_machine_gives_its_crossover_back() {
    let report = report_of(quiet(), LAKE, 0.0);
    assert!(report.protocol.conclusive, "{}", report.protocol.verdict);
    let (_, found, _) = size_of(&report, Method::Moves8).unwrap();
    assert!((found - 247.6).abs() < 12.0, "{found}");
    let exposed = report.exposed_cycles(Job::Copy, Method::RepQuads, 168).unwrap();
    assert!((exposed - 15.0).abs() < 1.0, "{exposed}");
    let option = report.advice[0].option.as_ref().unwrap();
    assert!(option.starts_with("-mmemcpy-strategy=unrolled_loop:2"), "{option}");
}

#[test]
fn machines_without_a_crossover_say_so() {
    let fast = report_of(quiet(), Microcode { start: 0.1, per_cycle: 64.0 }, 0.0);
    assert!(fast.protocol.verdict.contains("at every size"), "{}", fast.protocol.verdict);
    let slow = report_of(quiet(), Microcode { start: 60.0, per_cycle: 8.0 }, 0.0);
    assert!(slow.protocol.verdict.contains("never"), "{}", slow.protocol.verdict);
}

#[test]
fn disturbed_machines_are_right_or_silent() {
    for (name, clock) in disturbed() {
        let report = report_of(clock, LAKE, 0.02);
        match size_of(&report, Method::Moves8) {
            Some((low, found, high)) => {
                assert!((found - 247.6).abs() < 25.0, "{name}: {found}");
                assert!(low <= 260.0 && high >= 235.0, "{name}: {low} {high}");
            }
            None => assert_eq!(name, "hammered", "{}", report.protocol.verdict),
        }
    }
}

#[test]
fn what_was_found_becomes_probed_prices() {
    let report = report_of(quiet(), LAKE, 0.0);
    let mut profile = Design::of_machine(&report.protocol.machine);
    report.apply_to(&mut profile);
    let costs = profile.rep_moves.as_ref().unwrap();
    assert_eq!(costs.origin, PriceOrigin::Probed { probe: "string-copy".into() });
    assert!((230..270).contains(&costs.crossover_bytes), "{costs:?}");
    assert_eq!(costs.points.len(), SIZES.len());
    let text = profile.to_json().unwrap();
    let again = Design::from_json(&text).unwrap();
    assert_eq!(again.rep_stores.unwrap().points.len(), SIZES.len());
    let json = serde_json::to_string(&ProbeReport::StringCopy(Box::new(report))).unwrap();
    assert!(json.starts_with("{\"probe\":\"string-copy\""), "{}", &json[..60]);
}

#[test]
fn a_failed_control_takes_the_verdict_away() {
    let mut report = report_of(quiet(), LAKE, 0.0);
    report.protocol.controls[0].passed = Some(false);
    report.protocol.conclude(Answer::Found("anything".into()));
    assert!(report.protocol.verdict.starts_with("inconclusive"));
    assert!(changes_nothing(&report));
}
