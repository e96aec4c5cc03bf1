//! What a window costs with everything, and without each mechanism.

use std::collections::BTreeMap;
use std::iter::Sum;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use schemars::JsonSchema;
use serde::Serialize;

use super::predictor::{Mispredictions, Predictor};
use super::{Core, Learned, Mechanism, Program, WindowCode};
use crate::machine::{CoreShape, Design, LearnedBranches};
use crate::model::Avma;
use crate::sim::Places;
use crate::trace::engine::{BlockId, Sink};
use crate::trace::recorded::{ReplayError, replay};

/// Of a window's instructions, this part warms the model up and is not accounted.
const WARM_UP: u64 = 4;
/// Cores differ that take one cycle of so many otherwise.
const LEAST_APART: u64 = 200;

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
    /// Cycles for which its divisions and roots kept their unit.
    pub divider_cycles: u64,
    /// Where inside the load, counted in bytes from its start, a store in flight began or ended when it was
    /// blocked: bit n for byte n.
    pub store_edges: u64,
}

impl Account {
    /// Executions that had `mechanism`.
    #[must_use]
    pub fn events_of(&self, mechanism: Mechanism) -> u64 {
        self.events[mechanism as usize]
    }

    /// The same in a thousand executions.
    #[must_use]
    pub fn events_per_thousand(&self, mechanism: Mechanism) -> f64 {
        1000.0 * self.events_of(mechanism) as f64 / self.executions.max(1) as f64
    }

    /// Cycles that are there because of `mechanism`; negative where the model finds it faster with it.
    #[must_use]
    pub fn cycles_of(&self, mechanism: Mechanism) -> i64 {
        self.cycles.wrapping_sub(self.cycles_without[mechanism as usize]).cast_signed()
    }

    /// What the executions that had `mechanism` weigh, where one of them may cost many times what another costs: lines
    /// come from near or from far, operands are narrow or wide. Else how many there are.
    #[must_use]
    pub fn weight_of(&self, mechanism: Mechanism) -> i64 {
        match mechanism {
            Mechanism::Divisions => self.divider_cycles.cast_signed(),
            it if it.has_distance() => self.cycles_of(it),
            it => self.events_of(it).cast_signed(),
        }
    }

    /// The same of so many times as many executions.
    #[must_use]
    pub fn times(&self, factor: f64) -> Self {
        let mut sum = WeightedSum::default();
        sum.add(self, factor);
        sum.account()
    }

    /// What it would be if so many in a hundred executions were those of `other`, another model of the same window.
    #[must_use]
    pub fn mixed_with(&self, other: &Self, percent: u64) -> Self {
        let mix = |a: u64, b: u64| (a * (100 - percent.min(100)) + b * percent.min(100)) / 100;
        let each = |a: &[u64; Mechanism::ALL.len()], b: &[u64; Mechanism::ALL.len()]| {
            std::array::from_fn(|n| mix(a[n], b[n]))
        };
        Self {
            cycles: mix(self.cycles, other.cycles),
            cycles_without: each(&self.cycles_without, &other.cycles_without),
            events: each(&self.events, &other.events),
            divider_cycles: mix(self.divider_cycles, other.divider_cycles),
            ..*self
        }
    }
}

impl AddAssign<&Self> for Account {
    fn add_assign(&mut self, other: &Self) {
        self.executions += other.executions;
        self.cycles += other.cycles;
        self.divider_cycles += other.divider_cycles;
        self.store_edges |= other.store_edges;
        for n in 0..Mechanism::ALL.len() {
            self.cycles_without[n] += other.cycles_without[n];
            self.events[n] += other.events[n];
        }
    }
}

impl<'a> Sum<&'a Self> for Account {
    fn sum<I: Iterator<Item = &'a Self>>(accounts: I) -> Self {
        let mut all = Self::default();
        accounts.for_each(|account| all += account);
        all
    }
}

/// A sum of accounts that have weights, also negative ones.
#[derive(Clone, Debug, Default)]
pub struct WeightedSum {
    executions: f64,
    cycles: f64,
    cycles_without: [f64; Mechanism::ALL.len()],
    events: [f64; Mechanism::ALL.len()],
    divider_cycles: f64,
    store_edges: u64,
}

impl WeightedSum {
    /// Adds `weight` times what `account` holds.
    pub fn add(&mut self, account: &Account, weight: f64) {
        let of = |counts: &[u64; Mechanism::ALL.len()]| counts.map(|n| n as f64);
        let sum = Self {
            executions: account.executions as f64,
            cycles: account.cycles as f64,
            cycles_without: of(&account.cycles_without),
            events: of(&account.events),
            divider_cycles: account.divider_cycles as f64,
            store_edges: account.store_edges,
        };
        self.add_sum(&sum, weight);
    }

    /// Adds `weight` times another sum.
    pub fn add_sum(&mut self, other: &Self, weight: f64) {
        self.executions += weight * other.executions;
        self.cycles += weight * other.cycles;
        self.divider_cycles += weight * other.divider_cycles;
        self.store_edges |= other.store_edges;
        for n in 0..Mechanism::ALL.len() {
            self.cycles_without[n] += weight * other.cycles_without[n];
            self.events[n] += weight * other.events[n];
        }
    }

    /// Executions of the sum.
    #[must_use]
    pub fn executions(&self) -> f64 {
        self.executions
    }

    /// The sum as an account; what is below zero is zero there.
    #[must_use]
    pub fn account(&self) -> Account {
        let whole = |sum: f64| sum.max(0.0).round() as u64;
        Account {
            executions: whole(self.executions),
            cycles: whole(self.cycles),
            cycles_without: self.cycles_without.map(whole),
            events: self.events.map(whole),
            divider_cycles: whole(self.divider_cycles),
            store_edges: self.store_edges,
        }
    }
}

/// How often a load was blocked by what one instruction had stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockedBy<A> {
    /// Address of the load.
    pub load: A,
    /// Address of the store.
    pub store: A,
    /// Executions of the load.
    pub times: u64,
}

impl<A: Copy> BlockedBy<A> {
    /// The same by other addresses.
    pub fn at<B>(&self, place: impl Fn(A) -> B) -> BlockedBy<B> {
        BlockedBy { load: place(self.load), store: place(self.store), times: self.times }
    }
}

/// A window by the model.
#[derive(Clone, Debug)]
pub struct Accounts {
    /// Instructions of the whole window, those that warm the model up among them.
    pub window_instructions: u64,
    /// Every instruction that was executed behind the warm-up.
    pub insns: Vec<(Avma, Account)>,
    /// Which stores blocked which loads.
    pub blocked_by: Vec<BlockedBy<Avma>>,
    /// Executions of instructions whose bytes could not be read: they were taken for additions.
    pub unread_executions: u64,
}

/// A recorded window, read and taken apart once for all cores that run it.
pub struct RecordedWindow<'a> {
    recorded: &'a [u8],
    design: &'a Design,
    interrupt: &'a AtomicBool,
    instructions: u64,
    warm_up: u64,
    program: Program,
    training: Vec<BlockId>,
    /// By [`CoreShape::learned`]: which branches a predictor is right about that is trained when the window begins.
    predicted: Mutex<BTreeMap<LearnedBranches, Arc<Vec<bool>>>>,
}

impl<'a> RecordedWindow<'a> {
    /// Takes apart what `recorded` holds, for cores of `design`; `interrupt` ends this and all that is asked of it then.
    ///
    /// # Errors
    /// When the recording cannot be read, and [`ReplayError::Interrupted`].
    pub fn read(
        recorded: &'a [u8],
        design: &'a Design,
        interrupt: &'a AtomicBool,
    ) -> Result<Self, ReplayError> {
        let mut code = WindowCode::default();
        let recording = replay(recorded, interrupt, &mut code)?;
        let mut places = Places::new(recording.mappings, recording.code);
        let instructions = code.instructions();
        let program = code.decode(design.fusion().value, |at, bytes| places.x86_code(at, bytes));
        let (training, predicted) = Default::default();
        let warm_up = instructions / WARM_UP;
        let window = Self {
            recorded,
            design,
            interrupt,
            instructions,
            warm_up,
            program,
            training,
            predicted,
        };
        Ok(window)
    }

    /// The same with its first quarter, which is not told otherwise because it fills caches: what the window begins with may be
    /// no longer than that.
    #[must_use]
    pub fn from_its_start(self) -> Self {
        Self { warm_up: 0, ..self }
    }

    /// The same for cores that went on behind the window, through blocks whose numbers are those of the recording (see
    /// [`Training`](super::Training)).
    #[must_use]
    pub fn trained_by(mut self, learned: Learned) -> Self {
        self.program.reuse = learned.data.reuse();
        Self { training: learned.way, predicted: Mutex::default(), ..self }
    }

    /// Which branches a predictor of this shape is right about.
    fn predicted(&self, shape: &CoreShape) -> Result<Arc<Vec<bool>>, ReplayError> {
        let mut predicted = self.predicted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = predicted.get(&shape.learned) {
            return Ok(Arc::clone(known));
        }
        let new = Predictor::new(shape.learned);
        let mut training = Mispredictions::new(&self.program, &new);
        for block in &self.training {
            if self.interrupt.load(Ordering::Relaxed) {
                return Err(ReplayError::Interrupted);
            }
            training.run(*block, &[]);
        }
        let trained = training.into_predictor();
        let mut window = Mispredictions::new(&self.program, &trained);
        replay(self.recorded, self.interrupt, &mut window)?;
        let found = Arc::new(window.into_predicted());
        predicted.insert(shape.learned, Arc::clone(&found));
        Ok(found)
    }

    /// Runs it through a core of this shape, with the rules and prices of the design, whole and without each mechanism.
    ///
    /// # Errors
    /// When the recording cannot be read.
    pub fn account(&self, shape: &CoreShape) -> Result<Accounts, ReplayError> {
        let predicted = self.predicted(shape)?;
        let run = |without| self.run(shape, &predicted, without);
        self.without_each(&run(None)?, run)
    }

    fn run<'c>(
        &'c self,
        shape: &CoreShape,
        predicted: &'c [bool],
        without: Option<Mechanism>,
    ) -> Result<Core<'c>, ReplayError> {
        let mut core =
            Core::new(self.design, shape, &self.program, predicted, without, self.warm_up);
        replay(self.recorded, self.interrupt, &mut core)?;
        Ok(core)
    }

    /// Runs it through cores of these shapes, as [`RecordedWindow::account`] does, once for those that make no difference to it:
    /// what comes of that, and by shape which of these.
    ///
    /// # Errors
    /// When the recording cannot be read.
    pub fn accounts(
        &self,
        shapes: &[CoreShape],
    ) -> Result<(Vec<Accounts>, Vec<usize>), ReplayError> {
        let predicted =
            shapes.iter().map(|shape| self.predicted(shape)).collect::<Result<Vec<_>, _>>()?;
        let run = |n: usize, without| self.run(&shapes[n], &predicted[n], without);
        let whole: Vec<Core<'_>> =
            (0..shapes.len()).into_par_iter().map(|n| run(n, None)).collect::<Result<_, _>>()?;
        let (mut found, mut of_shapes): (Vec<Accounts>, Vec<usize>) = Default::default();
        for (n, core) in whole.iter().enumerate() {
            match whole[..n].iter().position(|before| before.is_like(core)) {
                Some(before) => of_shapes.push(of_shapes[before]),
                None => {
                    of_shapes.push(found.len());
                    found.push(self.without_each(core, |without| run(n, without))?);
                }
            }
        }
        Ok((found, of_shapes))
    }

    /// What `whole` took, and what each instruction takes without each mechanism.
    fn without_each<'c>(
        &self,
        whole: &Core<'_>,
        run: impl Fn(Option<Mechanism>) -> Result<Core<'c>, ReplayError> + Sync,
    ) -> Result<Accounts, ReplayError> {
        let all: Account = whole.accounts.iter().sum();
        // What never happens costs nothing.
        let happens = |it: &Mechanism| !it.is_in_its_events() || all.events_of(*it) > 0;
        let others: Vec<Option<Core<'_>>> = Mechanism::ALL
            .into_par_iter()
            .map(|it| happens(&it).then(|| run(Some(it))).transpose())
            .collect::<Result<_, _>>()?;
        let executions = |op: &usize| whole.accounts[*op].executions;
        let unread_executions = self.program.unread.iter().map(executions).sum();
        let accounts = whole.accounts().enumerate();
        let accounts = accounts.filter(|(_, (_, account))| account.executions > 0);
        let insns = accounts.map(|(op, (at, account))| {
            let mut cycles_without = [account.cycles; Mechanism::ALL.len()];
            for (cycles, core) in cycles_without.iter_mut().zip(&others) {
                *cycles = core.as_ref().map_or(*cycles, |core| core.accounts[op].cycles);
            }
            (at, Account { cycles_without, ..*account })
        });
        let blocked_by = whole.blocked_by.iter().map(|([load, store], times)| {
            let by = BlockedBy { load: *load, store: *store, times: *times };
            by.at(|op| self.program.ops[op as usize].address)
        });
        Ok(Accounts {
            window_instructions: self.instructions,
            insns: insns.collect(),
            blocked_by: blocked_by.collect(),
            unread_executions,
        })
    }
}

impl Core<'_> {
    /// Whether it took as long as another core, instruction by instruction.
    fn is_like(&self, other: &Self) -> bool {
        let cycles = |core: &Self| core.accounts.iter().map(|it| it.cycles).sum::<u64>();
        let both = self.accounts.iter().zip(&other.accounts);
        let apart: u64 = both.map(|(a, b)| a.cycles.abs_diff(b.cycles)).sum();
        apart * LEAST_APART <= cycles(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Executions and cycles, and with each mechanism as many events as its place times ten.
    fn account(executions: u64, cycles: u64) -> Account {
        Account {
            executions,
            cycles,
            cycles_without: std::array::from_fn(|n| 10 * n as u64),
            events: std::array::from_fn(|n| 100 * n as u64),
            divider_cycles: 7,
            store_edges: 0b100,
        }
    }

    #[test]
    fn a_mechanism_has_its_own_events_and_cycles() {
        let found = account(4000, 15);
        let (first, second) = (Mechanism::BlockedLoads, Mechanism::MispredictedBranches);
        assert_eq!((found.events_of(second), found.events_per_thousand(second)), (100, 25.0));
        assert_eq!(
            Account { events: [3; Mechanism::ALL.len()], ..Account::default() }
                .events_per_thousand(first),
            3000.0
        );
        // It may be faster with it than without.
        let misses = Mechanism::DataCacheMisses;
        assert_eq!([first, second, misses].map(|m| found.cycles_of(m)), [15, 5, -5]);
        // Misses weigh by their cycles, divisions by those of their unit, all else by number.
        assert_eq!(found.weight_of(misses), -5);
        assert_eq!(found.weight_of(Mechanism::Divisions), 7);
        assert_eq!(found.weight_of(second), 100);
    }

    #[test]
    fn accounts_are_scaled_mixed_and_added_up_in_all_their_parts() {
        let (a, b) = (
            account(3, 8),
            Account { cycles: 16, divider_cycles: 11, store_edges: 1, ..account(5, 0) },
        );
        let more = a.times(2.5);
        assert_eq!(
            (more.executions, more.cycles, more.divider_cycles, more.store_edges),
            (8, 20, 18, 0b100)
        );
        assert_eq!((more.events[3], more.cycles_without[3]), (750, 75));
        let none = Account {
            events: [0; Mechanism::ALL.len()],
            cycles_without: [0; Mechanism::ALL.len()],
            ..b
        };
        let mixed = a.mixed_with(&none, 25);
        assert_eq!(
            (mixed.executions, mixed.cycles, mixed.divider_cycles, mixed.store_edges),
            (3, 10, 8, 0b100)
        );
        assert_eq!((mixed.events[4], mixed.cycles_without[4]), (300, 30));
        assert_eq!((a.mixed_with(&none, 0), a.mixed_with(&none, 999).cycles), (a, 16));
        let sum: Account = [a, b].iter().sum();
        assert_eq!(
            (sum.executions, sum.cycles, sum.divider_cycles, sum.store_edges),
            (8, 24, 18, 0b101)
        );
        assert_eq!((sum.events[5], sum.cycles_without[5]), (1000, 100));
    }
}
