//! What a window costs with everything, and without each mechanism.

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Core, Mechanism, Program, WindowCode};
use crate::machine::{CoreShape, Design};
use crate::model::Avma;
use crate::sim::Places;
use crate::trace::engine::Recording;
use crate::trace::recorded::{ReplayError, replay};

/// Of a window's instructions, this part warms the model up and is not accounted.
const WARM_UP: u64 = 4;

/// What became of an instruction, or of many, in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Account {
    /// How often they retired.
    pub executions: u64,
    /// Cycles by which retirement came forward with them.
    pub cycles: u64,
    /// The same without each [`Mechanism`].
    pub cycles_without: [u64; Mechanism::ALL.len()],
    /// Executions that had each mechanism; none for those without events.
    pub events: [u64; Mechanism::ALL.len()],
}

impl Account {
    /// Both together.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.executions += other.executions;
        self.cycles += other.cycles;
        for n in 0..Mechanism::ALL.len() {
            self.cycles_without[n] += other.cycles_without[n];
            self.events[n] += other.events[n];
        }
        self
    }

    /// Executions that had `mechanism`.
    #[must_use]
    pub fn events_of(&self, mechanism: Mechanism) -> u64 {
        self.events[mechanism as usize]
    }

    /// Cycles that are there because of `mechanism`; negative where the model finds it faster with it.
    #[must_use]
    pub fn cycles_of(&self, mechanism: Mechanism) -> f64 {
        self.cycles as f64 - self.cycles_without[mechanism as usize] as f64
    }
}

/// A window by the model.
#[derive(Clone, Debug)]
pub struct Accounts {
    /// How the recording ended.
    pub recording: Recording,
    /// Every instruction that was executed behind the warm-up.
    pub insns: Vec<(Avma, Account)>,
    /// Executions of instructions whose bytes could not be read: they were taken for additions.
    pub unread_executions: u64,
}

/// Runs a recorded window through a core of this shape, with the rules and prices of `design`, whole and without
/// each mechanism.
///
/// # Errors
/// When the recording cannot be read.
pub fn account(
    recorded: &[u8],
    design: &Design,
    shape: &CoreShape,
) -> Result<Accounts, ReplayError> {
    let mut code = WindowCode::default();
    let recording = replay(recorded, &mut code)?;
    let mut places = Places::new(recording.mappings.clone());
    let program = code.decode(design.fusion().value, |at, bytes| places.x86_code(at, bytes));
    let warm_up = recording.instructions / WARM_UP;
    let run = |without| run_without(recorded, (design, shape), &program, without, warm_up);
    let variants: Vec<Option<Mechanism>> =
        std::iter::once(None).chain(Mechanism::ALL.map(Some)).collect();
    let cores: Vec<Core<'_>> = variants.into_par_iter().map(run).collect::<Result<_, _>>()?;
    let (whole, others) = cores.split_at(1);
    let executions =
        |op: &usize| whole.iter().map(|core| core.accounts[*op].executions).sum::<u64>();
    let unread_executions = program.unread.iter().map(executions).sum();
    let accounts =
        whole.iter().flat_map(Core::accounts).enumerate().filter(|(_, (_, a))| a.executions > 0);
    let accounts = accounts.map(|(op, (at, account))| {
        let mut cycles_without = [0; Mechanism::ALL.len()];
        for (cycles, core) in cycles_without.iter_mut().zip(others) {
            *cycles = core.accounts[op].cycles;
        }
        (at, Account { cycles_without, ..*account })
    });
    Ok(Accounts { recording, insns: accounts.collect(), unread_executions })
}

fn run_without<'a>(
    recorded: &[u8],
    (design, shape): (&Design, &CoreShape),
    program: &'a Program,
    without: Option<Mechanism>,
    warm_up: u64,
) -> Result<Core<'a>, ReplayError> {
    let mut core = Core::new(design, shape, program, without, warm_up);
    replay(recorded, &mut core)?;
    Ok(core)
}
