//! Invented memories that eliminate zeros, or do not.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use super::sampling::{Filler, Plan, all};
use super::*;
use crate::clock::counters::{CounterState, EventCounter, Role};
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
    /// What was filled last, and lines that left the second level so far: unchanged, changed.
    last: Option<Fill>,
    left: Rc<[Cell<u64>; 2]>,
}

impl FakeFiller {
    fn new(clock: FakeClock, gain: f64, noise: f64) -> Self {
        let (last, left) = (None, Rc::default());
        Self { clock, gain, by_dose: true, region: 0, random: 7, noise, last, left }
    }

    /// Lines of the region leave; so many of a hundred unchanged.
    fn leave(&self, bytes: usize, unchanged_percent: u64) {
        let lines = (bytes / 64) as u64;
        let [unchanged, changed] = &*self.left;
        unchanged.set(unchanged.get() + lines * unchanged_percent / 100);
        changed.set(changed.get() + lines * (100 - unchanged_percent) / 100);
    }
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
        if bytes > 1 << 20 {
            let again = self.last == Some(fill);
            let eliminated = |share| if self.gain > 1.0 { share } else { 0 };
            for pass in 0..passes {
                let percent = match fill {
                    Fill::Zero if again || pass > 0 => eliminated(60),
                    Fill::Alternating if again || pass > 0 => eliminated(30),
                    _ => 0,
                };
                self.leave(bytes, percent);
            }
        }
        self.last = Some(fill);
    }

    fn read(&mut self, bytes: usize) {
        self.leave(bytes, 100);
    }
}

impl HoldsClock for FakeFiller {
    fn held_clock(&mut self) -> &mut impl Clock {
        &mut self.clock
    }
}

fn report_of(clock: FakeClock, gain: f64, noise: f64) -> EliminationReport {
    report_by(FakeFiller::new(clock, gain, noise))
}

fn report_by(mut filler: FakeFiller) -> EliminationReport {
    let regions = all(&mut filler, &SIZES, Plan::new(1), &AtomicBool::new(false)).unwrap();
    let machine = Machine::from_facts(&invented::zen_5_guest());
    EliminationReport::new(&regions, None, true, Protocol::new(machine, 0))
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
    let filler = FakeFiller { by_dose: false, ..FakeFiller::new(quiet(), 1.12, 0.01) };
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

/// Counts lines that left, of the kind that the event is of; an event that is not known counts
/// everything.
struct FakePmu {
    left: Rc<[Cell<u64>; 2]>,
}

impl EventCounter for FakePmu {
    fn count(&mut self, config: u64, run: &mut dyn FnMut()) -> Result<u64, i32> {
        let now = || [self.left[0].get(), self.left[1].get()];
        let before = now();
        run();
        let [unchanged, changed] = [0, 1].map(|kind| now()[kind] - before[kind]);
        match config {
            0x01f2 => Ok(unchanged),
            0x02f2 => Ok(changed),
            _ => Err(13),
        }
    }
}

fn counted_on(gain: f64) -> Vec<CountedEvent> {
    let mut filler = FakeFiller::new(quiet(), gain, 0.0);
    let left = Rc::clone(&filler.left);
    let lake = crate::machine::Microarchitecture::CascadeLake;
    counted::counted(&mut filler, lake, |_| Box::new(FakePmu { left: Rc::clone(&left) }))
}

#[test]
fn counters_show_the_lines_that_left_unchanged() {
    for (gain, zeros, half) in [(1.17, 0.6, 0.3), (1.0, 0.0, 0.0)] {
        let events = counted_on(gain);
        let roles: Vec<_> = events.iter().map(|e| e.role).collect();
        assert_eq!(roles, [Role::SilentEvictions, Role::DirtyEvictions, Role::MemoryWrites]);
        let of = |event: &CountedEvent, fill| {
            let found = event.per_line.iter().find(|(f, _)| *f == fill);
            (found.unwrap().1 * 100.0).round() / 100.0
        };
        for (event, zeros, half, ones) in
            [(&events[0], zeros, half, 0.0), (&events[1], 1.0 - zeros, 1.0 - half, 1.0)]
        {
            assert_eq!(event.check.state, CounterState::Believed, "{event:?}");
            assert_eq!(of(event, Fill::Zero), zeros, "{event:?}");
            assert_eq!(of(event, Fill::Alternating), half, "{event:?}");
            assert_eq!((of(event, Fill::One), of(event, Fill::Two)), (ones, ones), "{event:?}");
        }
        let refused = &events[2];
        assert_eq!(refused.check.state, CounterState::Refused { errno: 13 });
        assert!(refused.per_line.is_empty());
    }
}

#[test]
fn no_counter_is_made_up_for_a_design_without() {
    let mut filler = FakeFiller::new(quiet(), 1.0, 0.0);
    let zen_3 = crate::machine::Microarchitecture::Zen3;
    let none = counted::counted(&mut filler, zen_3, |_| unreachable!());
    assert!(none.is_empty());
}
