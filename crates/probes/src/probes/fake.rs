//! An invented machine for the tests of probes: a fake clock beside which a case costs what a
//! function says, with noise.

use std::sync::atomic::AtomicBool;

use super::UpdatesProfile;
use super::rig::Rig;
use super::sampling::{Plan, Sampled, Sampler};
use crate::clock::{Clock, FakeClock, HoldsClock};
use crate::machine::Design;

pub struct FakeRig<F> {
    clock: FakeClock,
    cycles: F,
    noise: f64,
    random: u64,
}

impl<F: Fn(usize) -> f64> FakeRig<F> {
    /// A repetition of case `i` takes `cycles(i)` core cycles.
    pub fn new(clock: FakeClock, cycles: F) -> Self {
        Self { clock, cycles, noise: 0.0, random: 7 }
    }

    /// Every visit varies by this share.
    pub fn noisy(self, noise: f64) -> Self {
        Self { noise, ..self }
    }
}

impl<F: Fn(usize) -> f64> Rig for FakeRig<F> {
    fn placements(&self) -> usize {
        4
    }
    fn repetitions(&self, case: usize) -> u64 {
        ((8_000.0 / (self.cycles)(case)) as u64).clamp(16, 4096)
    }
    fn run_case(&mut self, case: usize, placement: usize, repetitions: u64) {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        let noise = (self.random >> 40) as f64 / (1u64 << 24) as f64 - 0.5;
        let factor = 1.0 + self.noise * noise + 0.002 * placement as f64;
        let cycles = (self.cycles)(case) * factor * repetitions as f64;
        self.clock.run_latency_chain(cycles as u64);
    }
}

impl<F> HoldsClock for FakeRig<F> {
    fn held_clock(&mut self) -> &mut impl Clock {
        &mut self.clock
    }
}

/// Samples of so many cases on an invented machine.
pub fn sampled(clock: FakeClock, count: usize, cycles: impl Fn(usize) -> f64) -> Sampled {
    sampled_by(&mut FakeRig::new(clock, cycles), count, Plan::new(3))
}

/// The same with noise, and as many rounds as it takes.
pub fn sampled_long(mut rig: FakeRig<impl Fn(usize) -> f64>, count: usize) -> Sampled {
    let plan = Plan { rounds: 3, more_rounds: 8, limit_ns: u64::MAX / 4, ..Plan::new(1) };
    sampled_by(&mut rig, count, plan)
}

pub fn sampled_by(rig: &mut impl Rig, count: usize, plan: Plan) -> Sampled {
    let mut sampler = Sampler::new(rig, count, plan);
    assert!(sampler.all(rig, &AtomicBool::new(false)).is_ok());
    sampler.sampled()
}

/// Whether a report has nothing to say to the profile of its machine.
pub fn changes_nothing(report: &impl UpdatesProfile) -> bool {
    let before = Design::of_machine(&report.protocol().unwrap().machine);
    let mut profile = before.clone();
    report.apply_to(&mut profile);
    profile == before
}

pub fn quiet() -> FakeClock {
    FakeClock::quiet(2.5, 3.1)
}

/// Machines that disturb, by name.
pub fn disturbed() -> Vec<(&'static str, FakeClock)> {
    vec![
        ("turbo", quiet().stepping(2e6, 0.3, 0.875)),
        ("drift", quiet().drifting(-3.0)),
        ("preempted", quiet().preempted(400_000.0, 4_000.0)),
        ("time slices", quiet().preempted(3e6, 3e6)),
        ("hammered", quiet().preempted(60_000.0, 4_000.0)),
        ("sibling", quiet().busy_sibling(0.4)),
    ]
}
