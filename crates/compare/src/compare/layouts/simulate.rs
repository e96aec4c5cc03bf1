//! Invented ensembles with a known truth: layouts that differ, runs that differ less, and a machine
//! that drifts, hiccups and has neighbours.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use super::{AS_BUILT, LayoutRun};
use crate::compare::schedule::{Arm, shuffle};
use crate::compare::simulate::{Disturbance, Noise, normal};

/// Two programs, their placements, and the machine they run on.
#[derive(Clone, Debug)]
pub struct LayoutMachine {
    /// The true log ratio of B's code to A's.
    pub effect_log: f64,
    /// Standard deviation between layouts (log).
    pub layout_sd_log: f64,
    /// Standard deviation of a run within its layout (log).
    pub run_sd_log: f64,
    /// What the builds as they come owe to their placement (log), for A and B.
    pub as_built_log: [f64; 2],
    /// Noise of the invented machine.
    pub noise: Noise,
    /// Whether a calibration chain around each run sees the neighbour, so that the run is repeated.
    pub guarded: bool,
    seed: u64,
}

impl LayoutMachine {
    /// A layout spread of 2 %, run noise of 0.5 %, nothing else.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            effect_log: 0.0,
            layout_sd_log: 0.02,
            run_sd_log: 0.005,
            as_built_log: [0.0; 2],
            noise: Noise::Quiet,
            guarded: false,
            seed,
        }
    }

    /// All runs of `layouts` random placements of each arm and of the builds as they come, in
    /// rounds that hold every layout once in random order.
    #[must_use]
    pub fn ensemble(&self, layouts: u32, rounds: u32) -> Vec<LayoutRun> {
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed);
        let mut seats = Vec::new();
        for arm in [Arm::A, Arm::B] {
            for layout in 0..=layouts {
                let place = if layout == AS_BUILT {
                    self.as_built_log[arm.index()]
                } else {
                    self.layout_sd_log * normal(&mut rng)
                };
                let code = if arm == Arm::B { self.effect_log } else { 0.0 };
                seats.push((arm, layout, 18.0 + place + code));
            }
        }
        let total = seats.len() as u32 * rounds;
        let mut machine = Disturbance::new(self.noise, total, &mut rng);
        let mut runs = Vec::with_capacity(total as usize);
        for round in 0..rounds {
            shuffle(&mut seats, &mut rng);
            for (arm, layout, log) in &seats {
                let order = runs.len() as u32;
                let mut disturbed = machine.at(order, &mut rng);
                while self.guarded && machine.has_neighbour() {
                    disturbed = machine.at(order, &mut rng);
                }
                let noise = self.run_sd_log * normal(&mut rng) + disturbed;
                runs.push(LayoutRun {
                    arm: *arm,
                    layout: *layout,
                    round,
                    value: (log + noise).exp(),
                });
            }
        }
        runs
    }
}
