//! Invented memories that eliminate zeros, or do not.

use std::sync::atomic::AtomicBool;

use super::sampling::{Filler, Plan, all};
use super::*;
use crate::clock::{Clock, FakeClock, HoldsClock};
use crate::machine::{Machine, invented};
use crate::probes::fake::{disturbed, quiet};
use crate::probes::protocol::Protocol;

struct FakeFiller {
    clock: FakeClock,
    /// Speed of zeros over ones behind the second level.
    gain: f64,
    /// Whether half the zeros gain half.
    by_dose: bool,
    region: usize,
    random: u64,
    noise: f64,
}

impl Filler for FakeFiller {
    fn prepare(&mut self, bytes: usize) {
        self.region = bytes;
    }
    fn fill(&mut self, fill: Fill, _start: usize, bytes: usize, passes: u64) {
        let far = self.region > 1 << 20;
        let per_cycle = if far { 8.0 } else { 32.0 };
        let gain = match fill {
            Fill::Zero | Fill::SparseZero if far => self.gain,
            Fill::Alternating if far && self.by_dose => self.gain.sqrt(),
            Fill::Alternating if far => self.gain,
            Fill::Shorter => 1.0 / 0.95,
            _ => 1.0,
        };
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        let noise = (self.random >> 40) as f64 / (1u64 << 24) as f64 - 0.5;
        let cycles = bytes as f64 * passes as f64 / per_cycle / gain * (1.0 + self.noise * noise);
        self.clock.run_latency_chain(cycles as u64);
    }
}

impl HoldsClock for FakeFiller {
    type Held = FakeClock;

    fn held_clock(&mut self) -> &mut FakeClock {
        &mut self.clock
    }
}

fn report_of(clock: FakeClock, gain: f64, noise: f64) -> EliminationReport {
    report_by(FakeFiller { clock, gain, by_dose: true, region: 0, random: 7, noise })
}

fn report_by(mut filler: FakeFiller) -> EliminationReport {
    let regions = all(&mut filler, &SIZES, Plan::new(1), &AtomicBool::new(false)).unwrap();
    let machine = Machine::from_facts(&invented::zen_5_guest());
    EliminationReport::new(&regions, None, Protocol::new(machine, 0))
}

fn claims(report: &EliminationReport) -> Vec<Option<bool>> {
    let far = |r: &&RegionReport| matches!(r.level, Level::L3 | Level::Memory);
    report.regions.iter().filter(far).map(|r| r.eliminated).collect()
}

#[test]
fn a_machine_that_eliminates_is_found_out() {
    let report = report_of(quiet(), 1.17, 0.01);
    assert!(report.protocol.conclusive, "{}", report.protocol.verdict);
    let claims = claims(&report);
    assert!(claims.len() >= 2 && claims.iter().all(|c| *c == Some(true)), "{claims:?}");
    let near = report.regions.iter().find(|r| r.level == Level::L1).unwrap();
    assert_eq!(near.eliminated, Some(false));
}

#[test]
fn a_machine_that_does_not_is_said_not_to_with_what_could_have_been_seen() {
    let report = report_of(quiet(), 1.0, 0.01);
    assert!(report.protocol.conclusive, "{}", report.protocol.verdict);
    assert!(claims(&report).iter().all(|c| *c == Some(false)));
    assert!(report.protocol.verdict.contains("smallest detectable"));
    let third = report.regions.iter().find(|r| r.level == Level::L3).unwrap();
    assert!(third.detectable_percent.unwrap() < 1.0, "{third:?}");
}

#[test]
fn what_half_the_zeros_gain_as_well_is_no_elimination() {
    let clock = quiet();
    let filler =
        FakeFiller { clock, gain: 1.12, by_dose: false, region: 0, random: 7, noise: 0.01 };
    let report = report_by(filler);
    assert!(claims(&report).iter().all(Option::is_none), "{}", report.protocol.verdict);
    assert!(
        report.protocol.verdict.contains("but half as many are too"),
        "{}",
        report.protocol.verdict
    );
}

#[test]
fn disturbed_machines_are_right_or_silent() {
    for (name, clock) in disturbed() {
        // This probe runs for seconds: the drift of the others would have stopped the clock by
        // then.
        let clock = if name == "drift" { quiet().drifting(-0.05) } else { clock };
        for (gain, wrong) in [(1.17, Some(false)), (1.0, Some(true))] {
            let report = report_of(clock.clone(), gain, 0.02);
            if report.protocol.conclusive {
                assert!(claims(&report).iter().all(|c| *c != wrong), "{name} {gain}");
            }
        }
    }
}
