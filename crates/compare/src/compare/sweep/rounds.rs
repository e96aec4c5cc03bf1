//! The runs: round by round over all cells, on from where earlier ones ended, until it is enough.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::build::{Builder, fingerprint_of};
use super::journal::{Journal, Kept};
use super::knob::Knob;
use super::pilot::{PILOT_ROUNDS, plan};
use super::report::{CellRecord, LevelResult, comparisons, ensemble_of, metric_of};
use super::run::{Folders, Plan, Ready, STACK_STEPS, Stage};
use super::{Cell, SweepError, SweepRun};
use crate::compare::MAX_PAIRS;
use crate::compare::neighbours::Guard;
use crate::compare::schedule::shuffle;
use crate::compare::sequential::Looks;
use crate::machine::Machine;
use crate::run::child::FixedAddresses;
use crate::stats::power::FEWEST_PAIRS;

/// What is known before the rounds.
pub(super) struct Known<'a> {
    pub cells: &'a [CellRecord],
    pub identical: &'a [[u32; 2]],
}

/// What the rounds left.
pub(super) struct Ran {
    pub runs: Vec<SweepRun>,
    pub earlier_runs: u64,
    pub guard: Option<Guard>,
}

impl Plan<'_> {
    /// Every cell once a round, in random order, on from where an earlier sweep ended or was stopped.
    pub(super) fn rounds(
        &self,
        builder: &Builder,
        folders: &Folders,
        known: &Known<'_>,
        ready: &[Ready],
        interrupt: &AtomicBool,
        progress: &(dyn Fn(Stage) + Sync),
    ) -> Result<Ran, SweepError> {
        let settings = self.settings;
        let in_round: Vec<Cell> = ready.iter().map(|one| one.cell).collect();
        let (mut journal, Kept { mut runs, finished_rounds }) = Journal::open(
            &folders.cache.join("sweeps"),
            settings,
            self.identity(builder, ready),
            &in_round,
            folders.fresh,
        )?;
        if !runs.is_empty() {
            progress(Stage::Resumed { runs: runs.len() as u64 });
        }
        let moves_stack = settings.knob == Knob::Environment;
        let _fixed = moves_stack.then(FixedAddresses::new);
        let cpus = settings.cpus.as_ref().filter(|_| settings.guard);
        let mut guard = cpus.and_then(|cpus| Guard::new(cpus.single()));
        let earlier = runs.len();
        let mut round = (earlier / ready.len().max(1)) as u32;
        // Rounds of a sweep that was interrupted are part of this one, those of finished ones are not.
        let mut rounds = finished_rounds + settings.rounds.unwrap_or(PILOT_ROUNDS);
        let mut planned = false;
        let started = Instant::now();
        loop {
            if round >= PILOT_ROUNDS && !planned {
                let done = round - finished_rounds;
                let plan = plan(settings, &runs, known.cells, self.variants.len(), done);
                // The plan says what fits into the time; the clock ends it.
                let most = match (settings.rounds, settings.budget_ms) {
                    (None, Some(_)) => MAX_PAIRS,
                    _ => plan.rounds,
                };
                (rounds, planned) = (rounds.max(finished_rounds.saturating_add(most)), true);
                if round < rounds {
                    progress(Stage::Piloted(plan));
                }
            }
            if round >= rounds || self.is_enough(&runs, earlier, started, known) {
                break;
            }
            self.one_round(round, ready, &mut guard, interrupt, &mut |run| {
                journal.add(&run)?;
                runs.push(run);
                let (done, of) = (runs.len() as u64, u64::from(rounds) * ready.len() as u64);
                let each = started.elapsed().as_nanos() as u64 / (done - earlier as u64).max(1);
                let left_ns = each * of.saturating_sub(done);
                let budget_ns = self.budget().saturating_sub(started.elapsed()).as_nanos() as u64;
                progress(Stage::Running { done, of, left_ns: left_ns.min(budget_ns) });
                Ok(())
            })?;
            round += 1;
        }
        journal.finish(round)?;
        Ok(Ran { runs, earlier_runs: earlier as u64, guard })
    }

    fn budget(&self) -> Duration {
        self.settings.budget_ms.map_or(Duration::MAX, Duration::from_millis)
    }

    /// Whether to stop behind a whole round: the time is over, or what was asked for is known.
    fn is_enough(
        &self,
        runs: &[SweepRun],
        earlier: usize,
        started: Instant,
        known: &Known<'_>,
    ) -> bool {
        let settings = self.settings;
        let rounds = runs.last().map_or(0, |run| run.round + 1);
        let fewest = if settings.layouts > 0 { PILOT_ROUNDS } else { FEWEST_PAIRS as u32 };
        if rounds >= fewest && runs.len() > earlier && started.elapsed() >= self.budget() {
            return true;
        }
        let Some(until) = settings.until.filter(|_| Looks::EveryRound.may(rounds as usize)) else {
            return false;
        };
        let metric = metric_of(settings, runs);
        let judged = (runs, metric, &ensemble_of(runs, metric));
        let mut found = comparisons(settings, self.variants, judged, known.identical);
        // What could not be built will never be known.
        found.retain(|comparison| !comparison.levels.is_empty());
        let settled = |level: &LevelResult| level.settles(until);
        found.iter().all(|comparison| comparison.levels.iter().all(settled))
    }

    fn one_round(
        &self,
        round: u32,
        ready: &[Ready],
        guard: &mut Option<Guard>,
        interrupt: &AtomicBool,
        ran: &mut dyn FnMut(SweepRun) -> Result<(), SweepError>,
    ) -> Result<(), SweepError> {
        let mut order: Vec<&Ready> = ready.iter().collect();
        // Every round has its own draw, so that a sweep that goes on has the same order.
        let mut rng = Pcg64Mcg::seed_from_u64(self.settings.seed ^ (u64::from(round) << 32));
        shuffle(&mut order, &mut rng);
        for one in order {
            let padding = (rng.next_u64() % STACK_STEPS * 16) as usize;
            ran(self.guarded(one, round, padding, guard, interrupt)?)?;
        }
        Ok(())
    }

    /// Equal for the same question over the same builds on the same kind of machine: the programs that are
    /// run and the files that their arguments name count with their bytes.
    fn identity(&self, builder: &Builder, ready: &[Ready]) -> u64 {
        let files = ready.iter().flat_map(|one| {
            let named = one.args.iter().map(PathBuf::from).filter(|path| path.is_file());
            std::iter::once(one.program.clone()).chain(named)
        });
        let prints: BTreeSet<(PathBuf, Option<String>)> =
            files.map(|path| (path.clone(), fingerprint_of(&path).ok())).collect();
        let question = self.settings.question();
        let machine = Machine::detect().profile_key();
        builder.key(&format!("{question:?} {prints:?} {machine}"), &[])
    }
}
