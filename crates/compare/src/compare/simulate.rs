//! Invented machines with a known truth, for checking error rates without a clock.
//!
//! A machine runs through the same [`Runner`] as real processes, so a simulation exercises the
//! schedule and the whole analysis. Times are log-additive: arm effect, slot effect, noise of the
//! run, noise of the machine at that moment.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::amounts::Amounts;
use super::error::CompareError;
use super::program::ArmRecord;
use super::runner::{RunSample, Runner};
use super::schedule::{Arm, PlannedRun, Slot};

/// What the machine adds to the noise of single runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Noise {
    /// No noise at all.
    Quiet,
    /// Slows down by this much (log) from the first run to the last.
    LinearDrift(f64),
    /// Each run starts where the last one ended, plus a step of this standard deviation (log).
    RandomWalk(f64),
    /// This share of runs is 5 to 30 per cent slower.
    Spikes(f64),
    /// From a random run on, everything is slower by this much (log).
    Step(f64),
    /// A neighbour comes and goes: about this share of runs, twenty at a time, takes half as long again.
    Bursts(f64),
}

/// Runs that a neighbour stays for, on average.
const BURST_RUNS: f64 = 20.0;

/// What the machine adds to each run, in order of time.
#[derive(Clone, Debug)]
pub(super) struct Disturbance {
    pub(super) noise: Noise,
    runs: u32,
    step_at: u32,
    level: f64,
    neighbour: bool,
}

impl Disturbance {
    pub(super) fn new(noise: Noise, runs: u32, rng: &mut Pcg64Mcg) -> Self {
        let step_at = (uniform(rng) * f64::from(runs)) as u32;
        Self { noise, runs, step_at, level: 0.0, neighbour: false }
    }

    /// Whether a neighbour slows everything down at this moment.
    pub(super) fn has_neighbour(&self) -> bool {
        self.neighbour
    }

    /// What the machine adds at this moment (log).
    pub(super) fn at(&mut self, order: u32, rng: &mut Pcg64Mcg) -> f64 {
        match self.noise {
            Noise::Quiet => 0.0,
            Noise::LinearDrift(total) => total * f64::from(order) / f64::from(self.runs.max(1)),
            Noise::RandomWalk(sd) => {
                self.level += sd * normal(rng);
                self.level
            }
            Noise::Spikes(share) => {
                let (hit, size) = (uniform(rng), uniform(rng));
                if hit < share { (0.05 + 0.25 * size).ln_1p() } else { 0.0 }
            }
            Noise::Step(height) if order >= self.step_at => height,
            Noise::Step(_) => 0.0,
            Noise::Bursts(share) => {
                let leave = 1.0 / BURST_RUNS;
                let come = leave * share / (1.0 - share);
                let turn = uniform(rng) < if self.neighbour { leave } else { come };
                self.neighbour ^= turn;
                if self.neighbour { 1.5_f64.ln() } else { 0.0 }
            }
        }
    }
}

/// A machine, two programs and the truth about them.
#[derive(Clone, Debug)]
pub struct SimulatedMachine {
    /// The true log ratio of B to A.
    pub effect_log: f64,
    /// What the second run of a pair takes longer (log).
    pub slot_effect_log: f64,
    /// Standard deviation of a single run (log).
    pub run_sd_log: f64,
    /// Noise of the invented machine.
    pub noise: Noise,
    /// Typical wall time of A, in nanoseconds.
    pub base_ns: f64,
    /// The timer's step, in nanoseconds.
    pub timer_step_ns: u64,
    /// Whether both arms are the same bytes.
    pub identical: bool,
    /// The threads that are seen in each arm.
    pub threads: Option<u32>,
    /// Page faults of a run of each arm.
    pub page_faults: [u64; 2],
    /// Whether its kernel measures user and system time apart.
    pub is_split: bool,
    /// Share of the wall time that is spent in the kernel.
    pub system_share: f64,
    /// What B takes longer beside a neighbour (log), instead of `effect_log`; `None` where that makes no difference.
    pub shared_effect_log: Option<f64>,
    machine: Disturbance,
    rng: Pcg64Mcg,
}

impl SimulatedMachine {
    /// A machine for `pairs` pairs with 1 % noise per run, a base of 50 ms, no effect and no slot
    /// effect; change the public fields at will.
    #[must_use]
    pub fn new(noise: Noise, pairs: u32, seed: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let machine = Disturbance::new(noise, 2 * pairs, &mut rng);
        Self {
            effect_log: 0.0,
            slot_effect_log: 0.0,
            run_sd_log: 0.01,
            noise,
            base_ns: 50e6,
            timer_step_ns: 1,
            identical: false,
            threads: None,
            page_faults: [0; 2],
            is_split: true,
            system_share: 0.1,
            shared_effect_log: None,
            machine,
            rng,
        }
    }
}

impl Runner for SimulatedMachine {
    fn arms(&self) -> Vec<ArmRecord> {
        ["before", "after"]
            .map(|name| ArmRecord {
                command: vec![format!("./{name}")],
                program: name.into(),
                program_bytes: 1 << 16,
                program_fnv1a: if self.identical { "same" } else { name }.into(),
                threads: self.threads,
                ..ArmRecord::default()
            })
            .into()
    }

    fn run(&mut self, plan: &PlannedRun) -> Result<RunSample, CompareError> {
        let mut log = self.base_ns.ln() + self.run_sd_log * normal(&mut self.rng);
        self.machine.noise = self.noise;
        let no_ops = |machine: &Disturbance| if machine.has_neighbour() { 16.0 } else { 10.0 };
        let before = no_ops(&self.machine);
        log += self.machine.at(plan.order, &mut self.rng);
        let shared = self.shared_effect_log.filter(|_| self.machine.has_neighbour());
        log += if plan.arm == Arm::B { shared.unwrap_or(self.effect_log) } else { 0.0 };
        log += if plan.slot == Slot::Second { self.slot_effect_log } else { 0.0 };
        let step = self.timer_step_ns.max(1);
        let wall_ns = (log.exp() / step as f64).round() as u64 * step;
        let system_ns = (wall_ns as f64 * self.system_share) as u64;
        Ok(RunSample {
            plan: *plan,
            amounts: Amounts {
                wall_ns,
                cpu_ns: wall_ns,
                user_ns: self.is_split.then_some(wall_ns - system_ns),
                system_ns: self.is_split.then_some(system_ns),
                peak_memory_bytes: 1 << 20,
                page_faults: self.page_faults[plan.arm.index()],
                ..Amounts::default()
            },
            repeats: 0,
            no_ops_cycles: Some([before, no_ops(&self.machine)]),
            output: "same".into(),
            failure: None,
            left_behind: Vec::new(),
        })
    }
}

pub(super) fn uniform(rng: &mut Pcg64Mcg) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Standard normal, by Box and Muller.
pub fn normal(rng: &mut Pcg64Mcg) -> f64 {
    let radius = (-2.0 * (1.0 - uniform(rng)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(rng)).cos()
}
