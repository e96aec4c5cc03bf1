//! Invented front ends with a known window.

use super::*;
use crate::clock::FakeClock;
use crate::machine::{Design, Machine, invented};
use crate::probes::UpdatesProfile as _;
use crate::probes::fake::{FakeRig, disturbed, quiet, sampled_long};
use crate::probes::protocol::Protocol;

fn report_of(clock: FakeClock, model: Option<Model>, noise: f64) -> AlignmentReport {
    let cases = all_cases();
    let cost = |i: usize| {
        let case: &Case = &cases[i];
        match (case.body, model) {
            (Body::Multiplies(n), _) => 3.0 * f64::from(n),
            (Body::Noops(n), None) => 1.0 + f64::from(n) / 4.0,
            (Body::Noops(n), Some(m)) => {
                1.0 + f64::from(n) / 4.0 + m.at(case.body, case.offset_bytes)
            }
        }
    };
    let sampled = sampled_long(FakeRig::new(clock, cost).noisy(noise), cases.len());
    let machine = Machine::from_facts(&invented::cascade_lake_guest());
    AlignmentReport::new(&cases, &sampled, Protocol::new(machine, 0))
}

fn models_found(report: &AlignmentReport) -> Vec<Model> {
    report.loops.iter().filter_map(|l| Some(l.explanation?.model)).collect()
}

#[test]
fn the_window_that_the_machine_has_is_found() {
    for model in fit::MODELS {
        let report = report_of(quiet(), Some(model), 0.0);
        assert!(report.protocol.conclusive, "{}", report.protocol.verdict);
        let found = models_found(&report);
        assert!(!found.is_empty() && found.iter().all(|m| *m == model), "{model:?}: {found:?}");
    }
}

#[test]
fn a_machine_that_does_not_care_has_no_window() {
    let report = report_of(quiet(), None, 0.0);
    assert!(report.protocol.conclusive, "{}", report.protocol.verdict);
    assert!(report.loops.iter().all(|l| l.depends == Some(false)), "{:?}", report.loops);
    assert!(report.protocol.verdict.contains("wherever it starts"));
    let mut profile = Design::of_machine(&report.protocol.machine);
    report.apply_to(&mut profile);
    assert_eq!(profile.loop_window, None);
}

#[test]
fn disturbed_machines_are_right_or_silent() {
    let model = Model::Windows { bytes: 32 };
    for (name, clock) in disturbed() {
        let report = report_of(clock, Some(model), 0.02);
        let found = models_found(&report);
        assert!(found.iter().all(|m| *m == model), "{name}: {found:?}");
    }
}

#[test]
fn what_was_found_becomes_a_probed_price() {
    let report = report_of(quiet(), Some(Model::Windows { bytes: 64 }), 0.0);
    let mut profile = Design::of_machine(&report.protocol.machine);
    report.apply_to(&mut profile);
    let window = profile.loop_window.unwrap();
    assert_eq!(window.window_bytes, 64);
    assert!((window.extra_cycles - 1.0).abs() < 0.1, "{window:?}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn loops_have_the_length_and_the_place_they_say() {
    for case in all_cases() {
        let mut asm = iced_x86::code_asm::CodeAssembler::new(64).unwrap();
        assemble(&case, &mut asm).unwrap();
        let code = asm.assemble(0x1000).unwrap();
        assert_eq!(code.len() as u32, case.offset_bytes + case.body.bytes(), "{case:?}");
    }
}
