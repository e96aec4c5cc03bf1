//! Invented processors with known prices of synchronisation.

use std::sync::atomic::AtomicBool;

use super::sampling::{Plan, Rig, sample};
use super::*;
use crate::clock::{Clock, FakeClock, HoldsClock};
use crate::machine::{Machine, invented};
use crate::probes::fake::{disturbed, quiet};
use crate::probes::protocol::Protocol;

/// CLFLUSH 85 ns a line, CPUID and IRETQ so many nanoseconds.
struct FakeRig {
    clock: FakeClock,
    cpuid_ns: f64,
    iret_ns: f64,
    bytes: usize,
    sum: u64,
    written: u64,
    forgets: bool,
}

const GHZ: f64 = 3.1;

impl FakeRig {
    fn new(clock: FakeClock) -> Self {
        let (bytes, sum, written) = (0, 0, 0);
        Self { clock, cpuid_ns: 750.0, iret_ns: 95.0, bytes, sum, written, forgets: false }
    }
    fn take_ns(&mut self, ns: f64) {
        self.clock.run_latency_chain((ns * GHZ) as u64);
    }
    fn lines(&self) -> f64 {
        self.bytes as f64 / 64.0
    }
}

impl Rig for FakeRig {
    fn prepare(&mut self, bytes: usize, salt: u32) -> u64 {
        (self.bytes, self.sum) = (bytes, u64::from(salt));
        self.sum
    }
    fn write(&mut self) {
        self.take_ns(20.0 + self.lines());
        if !(self.forgets && self.sum.is_multiple_of(50)) {
            self.written = self.sum;
        }
    }
    fn sync(&mut self, method: Method) {
        let ns = match method {
            Method::Clflush => 85.0 * self.lines(),
            Method::Clflushopt | Method::Clwb => 4.0 * self.lines() + 50.0,
            Method::Cpuid => self.cpuid_ns,
            Method::Iret | Method::Serialize => self.iret_ns,
            Method::None | Method::NoneAgain => 5.0,
        };
        self.take_ns(ns);
    }
    fn read_back(&mut self) {
        self.take_ns(5.0 + self.lines());
    }
    fn execute(&mut self) -> u64 {
        self.take_ns(10.0 + 4.0 * self.lines());
        self.written
    }
}

impl HoldsClock for FakeRig {
    fn held_clock(&mut self) -> &mut impl Clock {
        &mut self.clock
    }
}

fn report_of(mut rig: FakeRig) -> SyncReport {
    let machine = Machine::from_facts(&invented::cascade_lake_guest());
    let methods: Vec<Method> = METHODS.into_iter().filter(|m| *m != Method::Serialize).collect();
    let plan = Plan { seed: 1, rounds: 25, limit_ns: u64::MAX / 4 };
    let sampled = sample(&mut rig, &methods, plan, &AtomicBool::new(false)).unwrap();
    SyncReport::new(&sampled, Protocol::new(machine, 0))
}

fn even(report: &SyncReport, flush: Method, serialise: Method) -> Option<u64> {
    let wanted = |b: &&BreakEven| b.flush == flush && b.serialise == serialise;
    report.break_even.iter().find(wanted).unwrap().from_bytes
}

#[test]
fn prices_and_break_even_sizes_are_found() {
    let report = report_of(FakeRig::new(quiet()));
    assert!(report.protocol.conclusive, "{}", report.protocol.verdict);
    let line = report.line_ns(Method::Clflush).unwrap();
    assert!((line.value - 85.0).abs() < 2.0, "{line:?}");
    // 750 ns are nine lines of 85.
    assert_eq!(even(&report, Method::Clflush, Method::Cpuid), Some(1024));
    // (750 - 50) / 4 = 175 lines, 11 KiB.
    assert_eq!(even(&report, Method::Clflushopt, Method::Cpuid), Some(16_384));
    assert!(report.protocol.verdict.contains("IRETQ"), "{}", report.protocol.verdict);
    assert!(report.protocol.verdict.contains("exits to KVM"), "{}", report.protocol.verdict);
}

#[test]
fn bare_metal_reverses_the_order() {
    let mut rig = FakeRig::new(quiet());
    (rig.cpuid_ns, rig.iret_ns) = (28.0, 95.0);
    let report = report_of(rig);
    assert!(
        report.protocol.verdict.contains("instruction is CPUID"),
        "{}",
        report.protocol.verdict
    );
    assert_eq!(even(&report, Method::Clflushopt, Method::Cpuid), Some(256));
}

#[test]
fn stale_code_fails_the_control() {
    let mut rig = FakeRig::new(quiet());
    rig.forgets = true;
    let report = report_of(rig);
    assert!(report.stale > 0 && !report.protocol.conclusive);
    assert!(report.protocol.verdict.contains("stale"), "{}", report.protocol.verdict);
}

#[test]
fn disturbed_machines_are_right_or_silent() {
    for (name, clock) in disturbed() {
        let report = report_of(FakeRig::new(clock));
        if report.protocol.conclusive {
            let from = even(&report, Method::Clflush, Method::Cpuid);
            assert!(from.is_none_or(|b| b >= 1024), "{name}: {from:?}");
        }
    }
}

#[test]
fn a_missing_feature_is_named() {
    let features = crate::machine::Features::default();
    assert_eq!(Method::Clwb.missing(&features), Some("CLWB"));
    assert_eq!(Method::Serialize.missing(&features), Some("SERIALIZE"));
    assert_eq!(Method::Cpuid.missing(&features), None);
}

#[test]
fn a_missing_feature_is_left_out_by_its_name() {
    use crate::machine::Features;
    let mut machine = Machine::from_facts(&invented::zen_5_guest());
    let all = Features { clflushopt: true, clwb: true, serialize: true, ..machine.features };
    for (features, method, name) in [
        (Features { clflushopt: false, ..all }, Method::Clflushopt, "CLFLUSHOPT"),
        (Features { clwb: false, ..all }, Method::Clwb, "CLWB"),
        (Features { serialize: false, ..all }, Method::Serialize, "SERIALIZE"),
    ] {
        machine.features = features;
        let mut protocol = Protocol::new(machine.clone(), 0);
        let methods = there(&mut protocol);
        assert_eq!(methods.len(), METHODS.len() - 1);
        assert!(!methods.contains(&method));
        let said = format!("shows no {name}");
        assert!(protocol.skipped.len() == 1 && protocol.skipped[0].ends_with(&said), "{name}");
    }
    machine.features = all;
    assert_eq!(there(&mut Protocol::new(machine, 0)), METHODS);
}
