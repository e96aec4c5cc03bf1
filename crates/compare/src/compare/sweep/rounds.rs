//! The runs: round by round over all cells, on from where earlier ones ended, until it is enough.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::build::Builder;
use super::journal::{Journal, Kept};
use super::knob::Knob;
use super::pilot::{PILOT_ROUNDS, plan};
use super::report::{CellRecord, LevelResult, at_level, comparisons, ensemble_of, metric_of};
use super::run::{Folders, Plan, Ready, STACK_STEPS, Stage};
use super::{BlockFile, BlockResult, Host, SweepError, SweepRun, SweepSettings};
use crate::clock::Pace;
use crate::compare::MAX_PAIRS;
use crate::compare::neighbours::Guard;
use crate::compare::schedule::shuffle;
use crate::compare::sequential::Looks;
use crate::run::child::FixedAddresses;
use crate::stats::power::FEWEST_PAIRS;

/// What is known before the rounds.
pub(super) struct Known<'a> {
    pub cells: &'a [CellRecord],
    pub identical: &'a [[u32; 2]],
}

/// What the rounds left.
pub(super) struct Ran {
    /// A round each, those of earlier sweeps first.
    pub blocks: Vec<BlockResult>,
    pub earlier_runs: u64,
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
        let name = self.identity(builder, &self.files(ready), 1);
        let host = Host::here(None);
        let (mut journal, Kept { mut blocks, finished_rounds }) = Journal::open(
            &folders.cache.join("sweeps"),
            &format!("{name}-{}", host.kind),
            &name,
            &ready.iter().map(|one| one.cell).collect(),
            folders.fresh,
        )?;
        let mut runs: Vec<SweepRun> = blocks.iter().flat_map(|b| b.runs.clone()).collect();
        if !runs.is_empty() {
            progress(Stage::Resumed { runs: runs.len() as u64 });
        }
        let mut bench = Bench::of(settings, host);
        let earlier = runs.len();
        let mut round = blocks.len() as u32;
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
            let mut done = runs.len() as u64;
            let found =
                self.block(&mut bench, ready, round..round + 1, false, interrupt, &mut || {
                    done += 1;
                    let of = u64::from(rounds) * ready.len() as u64;
                    let each = started.elapsed().as_nanos() as u64 / (done - earlier as u64).max(1);
                    let left_ns = each * of.saturating_sub(done);
                    let budget_ns =
                        self.budget().saturating_sub(started.elapsed()).as_nanos() as u64;
                    progress(Stage::Running { done, of, left_ns: left_ns.min(budget_ns) });
                })?;
            let block = BlockResult { plan: name.clone(), block: round, ..found };
            journal.add(&block)?;
            runs.extend(&block.runs);
            blocks.push(block);
            round += 1;
        }
        journal.finish(round)?;
        Ok(Ran { blocks, earlier_runs: earlier as u64 })
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
        let mut found = comparisons(settings, self.variants, known.identical, &|variant, pair| {
            at_level(settings, variant, pair, judged)
        });
        // What could not be built will never be known.
        found.retain(|comparison| !comparison.levels.is_empty());
        let settled = |level: &LevelResult| level.settles(until);
        found.iter().all(|comparison| comparison.levels.iter().all(settled))
    }

    /// Runs these rounds here. The result belongs to no plan yet.
    pub(super) fn block(
        &self,
        bench: &mut Bench,
        ready: &[Ready],
        rounds: Range<u32>,
        has_placebo: bool,
        interrupt: &AtomicBool,
        ran: &mut dyn FnMut(),
    ) -> Result<BlockResult, SweepError> {
        let before = bench.guard.as_ref().map(Guard::counts);
        let (host, seed) = (bench.host.clone(), self.settings.seed);
        let mut one = |seat: usize, round, padding| {
            let run = self.guarded(&ready[seat], round, padding, &mut bench.guard, interrupt)?;
            ran();
            Ok(run)
        };
        let found = in_rounds(host, seed, rounds, ready.len(), has_placebo, &mut one)?;
        let after = bench.guard.as_ref().map(Guard::counts);
        let disturbances = after.map(|after| after.since(before.unwrap_or_default()));
        Ok(BlockResult { disturbances, ..found })
    }

    /// The files that are run, and that arguments name.
    pub(super) fn files(&self, ready: &[Ready]) -> BTreeSet<BlockFile> {
        let files = ready.iter().flat_map(|one| {
            let named = one.args.iter().map(PathBuf::from).filter(|path| path.is_file());
            std::iter::once(one.program.clone()).chain(named)
        });
        let paths: BTreeSet<PathBuf> = files.collect();
        paths.iter().map(|path| BlockFile::of(path)).collect()
    }

    /// Equal for the same question about the same builds and files, which count with their bytes, in blocks of as many rounds.
    pub(super) fn identity(
        &self,
        builder: &Builder,
        files: &BTreeSet<BlockFile>,
        rounds: u32,
    ) -> String {
        let question = self.settings.question();
        format!("{:016x}", builder.key(&format!("{question:?} {files:?} {rounds}"), &[]))
    }
}

/// Rounds of a run of each of `seats` in random order; `one` makes a run of a seat in a round, with so many bytes more in
/// its environment. The result belongs to no plan yet, and says nothing of disturbances.
pub(super) fn in_rounds(
    host: Host,
    seed: u64,
    rounds: Range<u32>,
    seats: usize,
    has_placebo: bool,
    one: &mut dyn FnMut(usize, u32, usize) -> Result<SweepRun, SweepError>,
) -> Result<BlockResult, SweepError> {
    let start = Pace::now();
    let (mut runs, mut placebos) = (Vec::new(), Vec::new());
    for round in rounds {
        // Every round has its own draw, so that a sweep that goes on, or a block that is run anew, has the
        // same order; the placebo has another one and does not change it.
        let seed = seed ^ (u64::from(round) << 32);
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut other = Pcg64Mcg::seed_from_u64(seed ^ 0x97ac);
        let mut order: Vec<usize> = (0..seats).collect();
        shuffle(&mut order, &mut rng);
        let at = other.next_u64() as usize % (order.len() + 1);
        let mut drawn = |seat, rng: &mut Pcg64Mcg| {
            one(seat, round, (rng.next_u64() % STACK_STEPS * 16) as usize)
        };
        for slot in 0..=order.len() {
            if has_placebo && slot == at && seats > 0 {
                placebos.push(drawn(0, &mut other)?);
            }
            if let Some(next) = order.get(slot) {
                runs.push(drawn(*next, &mut rng)?);
            }
        }
    }
    Ok(BlockResult {
        plan: String::new(),
        block: 0,
        machine: host,
        clock_log: start.and_then(|start| Pace::now()?.log_since(&start)),
        disturbances: None,
        placebos,
        runs,
    })
}

/// The machine as it is run on: what has to stay over several blocks.
pub(super) struct Bench {
    guard: Option<Guard>,
    host: Host,
    _fixed: Option<Option<FixedAddresses>>,
}

impl Bench {
    pub(super) fn of(settings: &SweepSettings, host: Host) -> Self {
        let moves_stack = settings.knob == Knob::Environment;
        let cpus = settings.cpus.as_ref().filter(|_| settings.guard);
        Self {
            guard: cpus.and_then(|cpus| Guard::new(cpus.single(), true)),
            host,
            _fixed: moves_stack.then(FixedAddresses::new),
        }
    }
}
