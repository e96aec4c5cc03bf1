//! An invented fleet with a known truth: machines that are slow, die, lie, run what others have run, or have clocks
//! that run wrong.
//!
//! Results go through the same files and the same join as those of real machines.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use crate::compare::Amounts;
use crate::compare::simulate::{normal, uniform};
use crate::compare::sweep::{
    Asked, Axis, Block, BlockResult, Cell, CellRecord, Host, Knob, SweepError, SweepReport,
    SweepRun, SweepSettings, join, variants,
};

/// Machines and what is wrong with them.
#[derive(Clone, Debug)]
pub struct SimulatedFleet {
    /// Number of machines.
    pub machines: u32,
    /// Number of blocks, dealt to the machines by turns.
    pub blocks: u32,
    /// Rounds of a block.
    pub rounds: u32,
    /// Random placements of each arm.
    pub layouts: u32,
    /// The true log ratio, as a mean over machines.
    pub effect_log: f64,
    /// Standard deviation of that between machines (log).
    pub machine_sd_log: f64,
    /// Standard deviation between layouts (log), the same on all machines.
    pub layout_sd_log: f64,
    /// Standard deviation of a layout between machines (log).
    pub layout_machine_sd_log: f64,
    /// Standard deviation of a run (log).
    pub run_sd_log: f64,
    /// Part of the machines that are up to ten times as slow, and three times as noisy.
    pub slow: f64,
    /// Part that is lost after a third of its blocks.
    pub dying: f64,
    /// Part that reports an effect of its own.
    pub lying: f64,
    /// What these add to the effect (log).
    pub lie_log: f64,
    /// Part whose clock runs wrong, and whose effects are ten times the true one.
    pub skewed: f64,
    /// Part of the blocks that another machine has run as well.
    pub duplicated: f64,
    /// Seed of everything.
    pub seed: u64,
}

impl SimulatedFleet {
    /// Machines without any fault: an effect of 3 % with a spread of 1 % between machines, three placements
    /// with a spread of 0.5 %, run noise of 1 %.
    #[must_use]
    pub fn new(machines: u32, blocks: u32, seed: u64) -> Self {
        Self {
            machines,
            blocks,
            rounds: 1,
            layouts: 3,
            effect_log: 0.03,
            machine_sd_log: 0.01,
            layout_sd_log: 0.005,
            layout_machine_sd_log: 0.002,
            run_sd_log: 0.01,
            slow: 0.0,
            dying: 0.0,
            lying: 0.0,
            lie_log: 0.1,
            skewed: 0.0,
            duplicated: 0.0,
            seed,
        }
    }

    /// The plan that this fleet runs: its first block.
    #[must_use]
    pub fn plan(&self) -> Block {
        let axis = Axis { name: "tree".into(), values: vec!["before".into(), "after".into()] };
        let settings = SweepSettings {
            layouts: self.layouts,
            knob: Knob::Lld,
            build: Some("make OUT={out}".into()),
            seed: self.seed,
            ..SweepSettings::new(axis, "{out}")
        };
        let build = |cell: Cell| CellRecord {
            cell,
            program: Some(format!("/builds/{}-{}/out", cell.variant, cell.layout).into()),
            program_bytes: 100_000,
            fingerprint: format!("{:08x}{:08x}", cell.variant, cell.layout),
            build_ns: 1_000_000_000,
            cached: false,
            failure: None,
            log: None,
        };
        Block {
            plan: format!("{:016x}", self.seed),
            block: 0,
            blocks: self.blocks,
            rounds: self.rounds,
            cost_ns: 1_000_000_000,
            folder: "/".into(),
            files: Vec::new(),
            cells: self.cells().into_iter().map(build).collect(),
            settings,
            identical: Vec::new(),
            notes: Vec::new(),
            commands: None,
        }
    }

    fn cells(&self) -> Vec<Cell> {
        let layouts = 0..=self.layouts;
        (0..2)
            .flat_map(|variant| layouts.clone().map(move |layout| Cell { variant, layout }))
            .collect()
    }

    /// What the builds as they come owe to where they sit (log), in the difference.
    #[must_use]
    pub fn as_built_log(&self) -> f64 {
        let mut shared = Pcg64Mcg::seed_from_u64(self.seed);
        let places: Vec<f64> = self.cells().iter().map(|_| normal(&mut shared)).collect();
        self.layout_sd_log * (places[self.layouts as usize + 1] - places[0])
    }

    /// What a machine sends back.
    #[must_use]
    pub fn results(&self, machine: u32) -> Vec<BlockResult> {
        let mut shared = Pcg64Mcg::seed_from_u64(self.seed);
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed ^ (u64::from(machine) + 1) << 20);
        let mut has = |part: f64| uniform(&mut rng) < part;
        let (is_slow, dies, lies, is_skewed) =
            (has(self.slow), has(self.dying), has(self.lying), has(self.skewed));
        let speed_log = 18.0 + if is_slow { 10_f64.ln() * uniform(&mut rng) } else { 0.0 };
        let run_sd_log = self.run_sd_log * if is_slow { 3.0 } else { 1.0 };
        let mut effect_log = self.effect_log + self.machine_sd_log * normal(&mut rng);
        effect_log += if lies { self.lie_log } else { 0.0 };
        effect_log *= if is_skewed { 10.0 } else { 1.0 };
        let seats: Vec<(Cell, f64)> = self
            .cells()
            .into_iter()
            .map(|cell| {
                let place = self.layout_sd_log * normal(&mut shared)
                    + self.layout_machine_sd_log * normal(&mut rng);
                let code = if cell.variant == 1 { effect_log } else { 0.0 };
                (cell, speed_log + place + code)
            })
            .collect();
        let mine = (machine..self.blocks).step_by(self.machines.max(1) as usize);
        let count = mine.clone().count();
        let kept = if dies { count.div_ceil(3) } else { count };
        let host = Host {
            kind: "amd-25-97-2".into(),
            name: format!("node{machine:05}"),
            id: format!("{machine:016x}"),
        };
        // Some of what the machine before it had is run here, too.
        let before = if machine == 0 { self.machines.saturating_sub(1) } else { machine - 1 };
        let of_others = (before..self.blocks).step_by(self.machines.max(1) as usize);
        let twice: Vec<u32> = of_others.filter(|_| uniform(&mut rng) < self.duplicated).collect();
        mine.take(kept)
            .chain(twice)
            .map(|block| {
                let rounds = block * self.rounds..(block + 1) * self.rounds;
                let mut time = |cell: Cell, log: f64, round| {
                    let wall_ns = (log + run_sd_log * normal(&mut rng)).exp() as u64;
                    let amounts = Amounts { wall_ns, cpu_ns: wall_ns, ..Amounts::default() };
                    SweepRun { cell, round, amounts, repeats: 0, machine: 0 }
                };
                let (mut runs, mut placebos) = (Vec::new(), Vec::new());
                for round in rounds {
                    let level = 0.02 * f64::from(round % 7);
                    placebos.push(time(seats[0].0, seats[0].1 + level, round));
                    runs.extend(seats.iter().map(|(cell, log)| time(*cell, log + level, round)));
                }
                BlockResult {
                    plan: format!("{:016x}", self.seed),
                    block,
                    machine: host.clone(),
                    clock_log: Some(if is_skewed { 0.01 } else { 1e-6 }),
                    disturbances: None,
                    placebos,
                    runs,
                }
            })
            .collect()
    }

    /// What follows from all of it, without files.
    ///
    /// # Errors
    /// When no machine is believed.
    pub fn report(&self) -> Result<SweepReport, SweepError> {
        let plan = self.plan();
        let variants = variants(&plan.settings.axes)?;
        let asked = Asked {
            settings: &plan.settings,
            variants: &variants,
            cells: &plan.cells,
            identical: &plan.identical,
        };
        join(&asked, (0..self.machines).flat_map(|machine| self.results(machine)).collect())
    }
}
