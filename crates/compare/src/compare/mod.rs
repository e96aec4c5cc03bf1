//! Which of two programs is slower, by how much and how sure.
//!
//! Data go one way: [`schedule`] says what runs when, a [`Runner`] turns each planned run into a
//! [`RunSample`], [`analyse`] turns samples into estimate, diagnostics, warnings and [`Verdict`].
//! The unit is the process, the comparison is paired and interleaved, and the samples stay in the
//! result with their order, so that anyone can judge them again. This room knows no mechanism: it
//! says whether there is something to explain.

mod amounts;
mod analysis;
pub mod bisect;
mod command;
mod diagnostics;
mod error;
mod files;
mod fingerprint;
pub mod fleet;
pub mod history;
mod identical;
pub mod layouts;
mod measure;
pub mod neighbours;
mod pilot;
mod program;
mod ranking;
pub mod results;
mod runner;
pub mod schedule;
pub mod sequential;
pub mod simulate;
mod steps;
mod strata;
pub mod sweep;
mod verdict;
mod waiting;
mod warning;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock::Cpus;
pub use amounts::Amounts;
pub use analysis::typical;
pub use analysis::{Analysis, Contrast, Metric, Ratio, Sequence, analyse, pair_up};
pub use command::{CommandLine, Step};
pub use diagnostics::{Autocorrelation, Diagnostics, Drift, SlotEffect};
pub use error::CompareError;
pub use files::{
    FileRole, UsedFile, are_identical, different_libraries, hold_the_same, library_name,
};
pub use identical::{SameCode, SameHotCode, same_code, same_hot_code};
pub use measure::{Measure, MeasureError};
pub use neighbours::Disturbances;
pub use pilot::PairPlan;
pub use program::{ArmRecord, StepRecord};
pub use ranking::{Ranked, Ranking, rank};
pub use runner::{
    AT_ONCE, ProcessLimits, ProcessRunner, RunSample, Runner, allowed_cpus, default_cpu,
};
pub use schedule::{Arm, Order, PlannedRun, Slot};
pub use sequential::Until;
pub use strata::{Strata, Stratum};
pub use verdict::{Decision, Doubt, Verdict};
pub use waiting::{WaitedFor, waited_for};
use warning::take_turns;
pub use warning::{Severity, Warning};

/// The most pairs of one comparison; the interval needs memory in the square of it.
pub const MAX_PAIRS: u32 = 2000;

/// What a comparison is asked to do; kept with its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Settings {
    /// How many pairs to run.
    pub pairs: u32,
    /// How the runs of a pair are ordered.
    pub order: Order,
    /// Seed of the order and of the environment padding.
    pub seed: u64,
    /// The smallest effect of interest as a share of the time: 0.01 is 1 %.
    pub effect: f64,
    /// Longest wall time of one run, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// The logical processors all runs stay on; absent when the scheduler chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Whether a program that keeps more than one processor busy gets as many as it has threads; in a result, whether
    /// that was tried.
    #[serde(default)]
    pub spreads: bool,
    /// Count runs that fail, instead of giving up.
    pub ignore_failure: bool,
    /// Runs of each that are made before, unmeasured; one at least, for a look at what it maps.
    #[serde(default)]
    pub warmup: u32,
    /// The file that every run reads as its standard input; absent where there is nothing to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<PathBuf>,
    /// What the verdict is about.
    #[serde(default)]
    pub measure: Measure,
    /// Stop when this is known, judged by a confidence sequence; `pairs` is then the most there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
    /// Stop after this time, in milliseconds, if six pairs are there; `pairs` is then the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_ms: Option<u64>,
    /// Run each command again and again for this time, in milliseconds, as one run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations_in_ms: Option<u64>,
    /// Repeat runs around which the machine was slower than its best.
    #[serde(default)]
    pub guard: bool,
}

impl Default for Settings {
    /// 20 pairs in random order, an effect of 1 %, seed 0, no limit, no pinning.
    fn default() -> Self {
        Self {
            pairs: 20,
            order: Order::Random,
            seed: 0,
            effect: 0.01,
            timeout_ms: None,
            cpus: None,
            spreads: false,
            ignore_failure: false,
            warmup: 1,
            input: None,
            measure: Measure::Auto,
            until: None,
            budget_ms: None,
            operations_in_ms: None,
            guard: false,
        }
    }
}

impl Settings {
    /// The smallest effect of interest as a log ratio.
    #[must_use]
    pub fn effect_log(&self) -> f64 {
        self.effect.ln_1p()
    }

    /// The limits that these settings put on processes.
    #[must_use]
    pub fn limits<'a>(&self, interrupt: &'a std::sync::atomic::AtomicBool) -> ProcessLimits<'a> {
        ProcessLimits {
            timeout: self.timeout_ms.map(Duration::from_millis),
            cpu: self.cpus.clone(),
            ignore_failure: self.ignore_failure,
            input: self.input.clone(),
            interrupt,
        }
    }

    fn check(&self) -> Result<(), CompareError> {
        let problem = |text: String| Err(CompareError::Settings(text));
        if !(1..=MAX_PAIRS).contains(&self.pairs) {
            return problem(format!("{} pairs: choose between 1 and {MAX_PAIRS}", self.pairs));
        }
        if !(self.effect > 0.0 && self.effect <= 1.0) {
            return problem(format!(
                "the smallest effect of interest must lie between 0 and 100 %, not at {} %",
                100.0 * self.effect
            ));
        }
        Ok(())
    }
}

/// A finished comparison: what was run, every sample, and what follows from them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// Settings of the comparison.
    pub settings: Settings,
    /// What was run as A and as B.
    pub arms: [ArmRecord; 2],
    /// What follows from the samples.
    pub analysis: Analysis,
    /// Every run in order of time.
    pub samples: Vec<RunSample>,
}

impl Comparison {
    /// Judges `samples`, whether they are fresh or were read from a file.
    ///
    /// # Errors
    /// As [`analyse`].
    pub fn new(
        arms: [ArmRecord; 2],
        settings: Settings,
        samples: Vec<RunSample>,
    ) -> Result<Self, CompareError> {
        let mut analysis = analyse(&samples, &settings)?;
        let last = analysis.warnings.len().saturating_sub(1);
        let threads = arms.each_ref().map(|arm| arm.threads.unwrap_or(1));
        if settings.spreads && settings.cpus.as_ref().is_some_and(|cpus| cpus.single().is_none()) {
            let cpus = settings.cpus.as_ref().map(ToString::to_string).unwrap_or_default();
            analysis.warnings.insert(last, Warning::Spread { cpus });
        } else if !settings.spreads && take_turns(settings.cpus.as_ref(), &threads) {
            analysis.warnings.insert(last, Warning::ThreadsOnOneProcessor { threads });
        }
        let libraries = different_libraries(&arms);
        if are_identical(&arms) {
            // They can run at different speeds; but then it is not the program that is slower.
            analysis.verdict.doubt_identical_files();
            analysis.warnings.insert(last, Warning::IdenticalPrograms);
        } else if !libraries.is_empty() {
            analysis.warnings.insert(last, Warning::DifferentLibraries { names: libraries });
        }
        let shells = Warning::of_shells(&arms, &analysis);
        analysis.warnings.splice(last..last, shells);
        Ok(Self { settings, arms, analysis, samples })
    }

    /// In how many of a hundred looks beside its runs another process was on the core; `None` where nothing looked.
    #[must_use]
    pub fn shared_percent(&self) -> Option<f64> {
        strata::shared_percent(&self.samples)
    }
}

/// How far a comparison has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Progress {
    /// One unmeasured run of an arm has begun.
    WarmingUp {
        /// Arm that is warmed up.
        arm: Arm,
    },
    /// The warm-up is over and the number of runs is known.
    Planned {
        /// How many runs there will be.
        runs: u64,
        /// How long they will take together, judged by the warm-up, in nanoseconds.
        expected_ns: u64,
    },
    /// The first pairs are over: what they promise. Not when nothing is left to plan.
    Piloted(PairPlan),
    /// A measured run has ended.
    Ran {
        /// Number of runs that have ended.
        done: u64,
    },
}

/// Warms up, runs the whole schedule and judges it.
///
/// # Errors
/// Whatever the runner reports first; then there is no partial result.
pub fn compare(
    runner: &mut dyn Runner,
    settings: &Settings,
    progress: &mut dyn FnMut(Progress),
) -> Result<Comparison, CompareError> {
    settings.check()?;
    let schedule = schedule::plan(settings.pairs, settings.order, settings.seed);
    let mut settings = settings.clone();
    let samples = run_all(runner, &mut settings, &schedule, 2, progress)?;
    let [a, b] = <[ArmRecord; 2]>::try_from(runner.arms())
        .map_err(|arms| CompareError::Samples(format!("{} arms, not two", arms.len())))?;
    Comparison::new([a, b], settings, samples)
}

/// Warms every arm up and runs the schedule, as far as time and what is known by then ask for it.
fn run_all(
    runner: &mut dyn Runner,
    settings: &mut Settings,
    schedule: &[PlannedRun],
    arms: usize,
    progress: &mut dyn FnMut(Progress),
) -> Result<Vec<RunSample>, CompareError> {
    let warm_up_ns = warmed_up(runner, settings, &schedule[..arms.min(schedule.len())], progress)?;
    let in_time = settings.budget_ms.map(|ms| ms.saturating_mul(1_000_000) / warm_up_ns.max(1));
    let pairs = in_time.unwrap_or(u64::MAX).clamp(1, u64::from(settings.pairs));
    let runs = arms as u64 * pairs;
    progress(Progress::Planned { runs, expected_ns: warm_up_ns.saturating_mul(pairs) });
    let mut samples = Vec::with_capacity(schedule.len());
    let started = Instant::now();
    for plan in schedule {
        samples.push(runner.run(plan)?);
        progress(Progress::Ran { done: samples.len() as u64 });
        if arms == 2
            && samples.len() == 2 * pilot::PILOT_PAIRS
            && let Some(plan) = pilot::plan(&samples, settings, pairs)
        {
            progress(Progress::Piloted(plan));
        }
        let is_whole = samples.len().is_multiple_of(arms);
        if is_whole && is_enough(&samples, settings, started, arms) {
            break;
        }
    }
    runner.check_files()?;
    Ok(samples)
}

/// Warms every arm up, by the runs of the first round: these hold every arm. How long the last of each took, in
/// nanoseconds; `settings` say then on which processors they run.
fn warmed_up(
    runner: &mut dyn Runner,
    settings: &mut Settings,
    first: &[PlannedRun],
    progress: &mut dyn FnMut(Progress),
) -> Result<u64, CompareError> {
    let mut warm_up_ns = 0_u64;
    for plan in first {
        progress(Progress::WarmingUp { arm: plan.arm });
        for _ in 1..settings.warmup {
            runner.run(plan)?;
        }
        warm_up_ns = warm_up_ns.saturating_add(runner.warm_up(plan)?.amounts.wall_ns);
    }
    if settings.spreads {
        // What watches one processor for disturbances could not watch several.
        let found = if settings.guard { None } else { runner.spread(first)? };
        settings.spreads = found.is_some();
        settings.cpus = found.or(settings.cpus.take());
    }
    Ok(warm_up_ns)
}

/// Whether to stop after a whole pair: the time is over, or what was asked for is known.
fn is_enough(samples: &[RunSample], settings: &Settings, started: Instant, arms: usize) -> bool {
    let pairs = samples.len() / arms.max(1);
    let over = settings.budget_ms.is_some_and(|ms| started.elapsed() >= Duration::from_millis(ms));
    if over && pairs >= crate::stats::power::FEWEST_PAIRS {
        return true;
    }
    // The look costs time in the square of the pairs; every pair up to 50, then every tenth.
    let looks = pairs >= sequential::BURN_IN_PAIRS && (pairs <= 50 || pairs.is_multiple_of(10));
    let Some(until) = settings.until.filter(|_| looks && arms == 2) else {
        return false;
    };
    analyse(samples, settings).is_ok_and(|analysis| match until {
        Until::Verdict => analysis.verdict.decision != Decision::Inconclusive,
        // Not equivalent is known once the sequence excludes zero.
        Until::Equivalent => {
            analysis.verdict.decision == Decision::Equivalent
                || analysis.sequence.is_some_and(|s| s.low_log > 0.0 || s.high_log < 0.0)
        }
    })
}

#[cfg(test)]
mod tests;
