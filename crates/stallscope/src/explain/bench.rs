//! The runs that an explanation needs, behind a trait so that tests can invent them.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use super::run_count::{self, RunCounter, object_name};
use super::{CodeAt, WindowCount, WorkCount, kernel};
use crate::clock::{Cpus, HardwareClock, Pin, Reading, SurveyPlan, survey};
use crate::compare::{
    Arm, CommandLine, CompareError, Comparison, ProcessRunner, Progress, Runner, Settings, compare,
};
use crate::machine::{CoreShape, Design, PriceOrigin};
use crate::model::{Avma, FileOffset, Measurement};
use crate::probes::{
    self, ProbeError, ProbeReport, branches, core, data_caches, store_forwarding, string_copy,
};
use crate::run::child::{Exit, Limits};
use crate::run::generated::GeneratedCode;
use crate::run::sample::{
    SampleError, SampleRun, SampleSettings, SystemCalls, count_system_calls, sample,
};
use crate::sim::core::{Accounts, RecordedWindow, Training};
use crate::trace::engine::{
    self, Change, DenormalSite, Ended, EngineError, Length, Mapping, Recording, Sink, Start, Window,
};
use crate::trace::recorded::{ReplayError, Writer};

/// How long a window is that the model of the core is run on, and how long it may take.
const WINDOW_INSTRUCTIONS: u64 = 2_000_000;
/// Behind each of them, instructions from which the predictor of the model learns.
const TRAINING_INSTRUCTIONS: u64 = 16_000_000;
const WINDOW_BUDGET: Duration = Duration::from_secs(10);

/// Between two runs of a command; `probe clock` looks ten times as long.
const CLOCK_SURVEY: SurveyPlan = SurveyPlan { windows: 2, window_ns: 20_000_000, sample: None };

/// How long a run may take that is stopped at every system call.
const CALLS_BUDGET: Duration = Duration::from_secs(10);
/// By how much the stack is moved from round to round.
const STACK_STEP_BYTES: usize = 208;

/// What is left of the time that an explanation should take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeLeft {
    /// As a part of all of it.
    pub share: f64,
    /// In nanoseconds.
    pub ns: f64,
}

impl TimeLeft {
    /// It may take any time.
    pub const ANY: Self = Self { share: 1.0, ns: f64::INFINITY };

    /// What one step of several may take of it.
    pub(super) fn for_a_step(self) -> Self {
        Self { ns: 0.6 * self.ns, ..self }
    }

    /// Why what takes `ns` is left out, if it is.
    pub(super) fn too_long(self, ns: f64) -> Option<String> {
        (ns > self.ns).then(|| {
            format!(
                "that would take about {:.0} s, and the time given (--budget) leaves {:.0} s for it",
                ns / 1e9,
                self.ns / 1e9
            )
        })
    }
}

/// What hinders a step is a reason to go on without it, as the inner error; only that the user wants an end ends all.
pub(super) fn or_why<T>(tried: Result<T, EngineError>) -> Result<Result<T, String>, EngineError> {
    match tried {
        Err(error) if error.is_interrupt() => Err(error),
        tried => Ok(tried.map_err(|error| error.to_string())),
    }
}

/// The core at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreNow {
    /// Its clock; none where no steady moment was found.
    pub clock: Option<Measurement>,
    /// In how many of a hundred short stretches another process was seen to share it.
    pub shared_percent: f64,
}

impl CoreNow {
    /// Whether another process takes so much of it that this is worth knowing.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.shared_percent >= SHARED_PERCENT
    }
}

/// From so many of a hundred short stretches on, a core is shared.
pub(super) const SHARED_PERCENT: f64 = 10.0;

/// Something that can run the two programs.
pub trait Bench {
    /// Runs the whole paired comparison.
    ///
    /// # Errors
    /// Whatever the comparison reports.
    fn compare(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<Comparison, CompareError>;

    /// Runs one arm once and says where its time went.
    ///
    /// # Errors
    /// Whatever the sampler reports.
    fn sample(&mut self, arm: Arm) -> Result<SampleRun, SampleError>;

    /// Follows a window of one run of an arm that starts after so much processor time, or else at its first
    /// instruction, and runs the model of the core on it, once for each of `shapes`.
    ///
    /// # Errors
    /// Whatever the engine reports; [`EngineError::NeverStarted`] when the run is shorter.
    fn window(
        &mut self,
        arm: Arm,
        start: Start,
        skip: u64,
        design: &Design,
        shapes: &[CoreShape],
    ) -> Result<Vec<WindowCount>, EngineError>;

    /// Follows one whole run of an arm, with the threads and processes that it starts, and counts what it executes, as
    /// long as `budget` lasts.
    ///
    /// # Errors
    /// Whatever the engine reports; [`EngineError::Unsupported`] when the run cannot be followed to its end.
    fn work(&mut self, arm: Arm, budget: Duration) -> Result<WorkCount, EngineError>;

    /// Counts the system calls of one run of an arm, or of a part of it, if that takes long.
    ///
    /// # Errors
    /// Whatever hinders that.
    fn system_calls(&mut self, arm: Arm) -> Result<SystemCalls, SampleError>;

    /// What the cheapest system call takes here, in nanoseconds, where that can be timed.
    fn system_call_ns(&mut self) -> Option<f64> {
        None
    }

    /// The core now, on the processor that the arms run on, where it can be looked at.
    fn core_now(&mut self) -> Option<CoreNow> {
        None
    }

    /// Runs one arm to its end with `change`; equal for all arms of a `round`.
    ///
    /// # Errors
    /// Whatever hinders that.
    fn run_changed(
        &mut self,
        arm: Arm,
        change: Change<'_>,
        round: usize,
    ) -> Result<Exit, EngineError>;

    /// Which instructions of a run of an arm meet denormal numbers behind so much processor time.
    ///
    /// # Errors
    /// Whatever hinders that.
    fn denormals(&mut self, arm: Arm, after: Duration) -> Result<Vec<DenormalSite>, EngineError>;

    /// Measures of this machine what the model needs and `design` does not hold, and puts it there; what was asked and what
    /// came of it, a sentence each; string instructions, which take long to measure, only if `strings` are moved by them. Nothing
    /// where the design is not that of this machine.
    ///
    /// # Errors
    /// [`ProbeError::Interrupted`]; what cannot be measured is a sentence.
    fn measure(&mut self, design: &mut Design, strings: bool) -> Result<Vec<String>, ProbeError> {
        let _ = (design, strings);
        Ok(Vec::new())
    }

    /// At how many random places the hot functions of both builds are to be run.
    fn placements(&self) -> u32 {
        0
    }

    /// What is left of the time that all this should take.
    fn left(&self) -> TimeLeft {
        TimeLeft::ANY
    }

    /// Whether everything that was run is still what it was at the beginning.
    ///
    /// # Errors
    /// [`CompareError::Replaced`] when it is not.
    fn check_files(&self) -> Result<(), CompareError> {
        Ok(())
    }
}

/// The real thing.
pub struct ProcessBench<'a> {
    runner: ProcessRunner<'a>,
    settings: Settings,
    sampling: SampleSettings,
    changes_runs: bool,
    interrupt: &'a AtomicBool,
    measures: bool,
    probed: Vec<ProbeReport>,
    placements: u32,
    /// How long all of it should take, from when on.
    budget: Option<(Duration, Instant)>,
    /// Instructions of training behind windows; none where the engine does not come so far.
    training: u64,
}

impl<'a> ProcessBench<'a> {
    /// Finds both programs; `interrupt` is set from outside (Ctrl-C) to stop. Nothing is started yet.
    ///
    /// # Errors
    /// As [`ProcessRunner::new`].
    pub fn new(
        lines: Vec<CommandLine>,
        settings: Settings,
        sampling: SampleSettings,
        interrupt: &'a AtomicBool,
    ) -> Result<Self, CompareError> {
        let runner = ProcessRunner::new(lines, settings.limits(interrupt))?;
        Ok(Self {
            runner,
            settings,
            sampling,
            changes_runs: true,
            interrupt,
            measures: false,
            probed: Vec::new(),
            placements: 0,
            budget: None,
            training: TRAINING_INSTRUCTIONS,
        })
    }

    /// Measures what the model needs and the design does not hold: the design is that of the processor at hand.
    #[must_use]
    pub fn with_probes(mut self) -> Self {
        self.measures = true;
        self
    }

    /// What was measured so that the design did not hold.
    #[must_use]
    pub fn probed(&self) -> &[ProbeReport] {
        &self.probed
    }

    /// Never changes a run.
    #[must_use]
    pub fn without_cures(mut self) -> Self {
        self.changes_runs = false;
        self
    }

    /// Runs the hot functions of both builds at so many random places.
    #[must_use]
    pub fn at_places(mut self, placements: u32) -> Self {
        self.placements = placements;
        self
    }

    /// Takes about so long from now on: what does not fit in is done less often, or left out and said.
    #[must_use]
    pub fn within(mut self, budget: Duration) -> Self {
        self.budget = Some((budget, Instant::now()));
        self
    }

    /// The files that the two arms execute.
    #[must_use]
    pub fn programs(&self) -> [PathBuf; 2] {
        [Arm::A, Arm::B].map(|arm| self.runner.program(arm).to_owned())
    }

    /// Runs what cleans up, when nothing more is to be run.
    ///
    /// # Errors
    /// When that fails.
    pub fn clean_up(&self) -> Result<(), CompareError> {
        self.runner.clean_up()
    }

    /// Follows a window of one run of an arm; the program's own file as the recording names it.
    fn follow(
        &self,
        arm: Arm,
        window: &Window,
        sink: &mut dyn Sink,
    ) -> Result<(PathBuf, Recording, GeneratedCode), EngineError> {
        let since = SystemTime::now();
        let program = self.runner.program(arm);
        let program = program.canonicalize().unwrap_or_else(|_| program.to_owned());
        let engine = engine::preferred()?;
        let limits = self.runner.child_limits();
        let recording =
            self.runner.around(arm, 0, |launch| engine.record(launch, window, limits, sink))?;
        let pids = recording.exit.iter().map(|exit| exit.pid).collect();
        let code = GeneratedCode::of_processes(&pids, since);
        Ok((program, recording, code))
    }
}

impl Bench for ProcessBench<'_> {
    fn measure(&mut self, design: &mut Design, strings: bool) -> Result<Vec<String>, ProbeError> {
        if !self.measures || probes::check_architecture(std::env::consts::ARCH).is_err() {
            return Ok(Vec::new());
        }
        let is_assumed = |origin: &PriceOrigin| *origin == PriceOrigin::Assumed;
        let rule = &design.forwarding_rule_origin;
        let wanted = [
            (core::ID, design.measured_core.is_none()),
            (branches::ID, design.measured_branches.is_none()),
            // Always: behind the second level, what others do on the machine doubles a latency within half an hour.
            (data_caches::ID, true),
            (store_forwarding::PROBE.id, is_assumed(rule)),
            (string_copy::ID, strings && design.rep_moves.is_none()),
        ];
        let wanted = wanted.into_iter().filter(|(_, is_wanted)| *is_wanted).map(|(id, _)| id);
        let probing = probes::Bench::new(self.settings.seed, self.interrupt);
        let mut said = Vec::new();
        for id in wanted.collect::<Vec<_>>() {
            match probes::find(id).and_then(|probe| (probe.run)(&probing)) {
                Ok(report) => {
                    let verdict = report.verdict().unwrap_or_default();
                    said.push(format!("probe {id}, measured for this: {verdict}"));
                    let is_new = id != data_caches::ID || design.data_miss_cycles.is_none();
                    probes::apply(std::slice::from_ref(&report), design);
                    self.probed.extend(is_new.then_some(report));
                }
                Err(error @ ProbeError::Interrupted) => return Err(error),
                Err(error) => said.push(format!("probe {id} was not run: {error}")),
            }
        }
        Ok(said)
    }

    fn compare(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<Comparison, CompareError> {
        let comparison = compare(&mut self.runner, &self.settings, progress)?;
        self.settings = comparison.settings.clone();
        Ok(comparison)
    }

    fn sample(&mut self, arm: Arm) -> Result<SampleRun, SampleError> {
        let limits = self.runner.child_limits();
        self.runner.around(arm, 0, |launch| sample(launch, &self.sampling, &limits))
    }

    fn window(
        &mut self,
        arm: Arm,
        start: Start,
        skip: u64,
        design: &Design,
        shapes: &[CoreShape],
    ) -> Result<Vec<WindowCount>, EngineError> {
        let length = Length::Instructions(WINDOW_INSTRUCTIONS + self.training);
        let mut writer = Writer::new(Vec::new());
        let mut trained = Training::behind(WINDOW_INSTRUCTIONS, &mut writer);
        let is_at_call = matches!(start, Start::At { .. });
        let asked = Window { start, skip, ..Window::after(None, length, true, WINDOW_BUDGET) };
        let (program, recording, code) = self.follow(arm, &asked, &mut trained)?;
        let learned = trained.learned();
        if recording.ended == Ended::Short {
            self.training = 0;
        }
        let unsupported = |reason| EngineError::Unsupported { engine: recording.engine, reason };
        recording.checked()?;
        let recorded = writer.finish(&recording).map_err(|e| unsupported(e.to_string()))?;
        let cannot_be_read = |error: ReplayError| error.of_engine(recording.engine);
        let window = RecordedWindow::read(&recorded, design, self.interrupt);
        let window = window.map_err(cannot_be_read)?.trained_by(learned);
        let window = if is_at_call { window.from_its_start() } else { window };
        // No file for the program's own.
        let place = |at: Avma| match Mapping::find(&recording.mappings, at) {
            Some((mapping, offset)) if mapping.path == program => (None, offset),
            Some((mapping, offset)) => (Some(mapping.path.as_path()), offset),
            None => (Some(Path::new("")), FileOffset(at.0)),
        };
        let code_at = |at: Avma| {
            let (object, offset) = place(at);
            CodeAt { object: object.map(Path::to_owned), offset }
        };
        let count = |accounts: &Accounts| {
            let blocked_by = accounts.blocked_by.iter().map(|it| it.at(code_at)).collect();
            let mut count = WindowCount { blocked_by, ..WindowCount::default() };
            for (at, account) in &accounts.insns {
                match place(*at) {
                    (None, offset) => count.program.push((offset, *account)),
                    (Some(path), offset) => {
                        let object =
                            count.objects.entry(object_name(path, &code, *at)).or_default();
                        *object.entry(offset).or_default() += account;
                    }
                }
            }
            count
        };
        let (accounts, of_shapes) = window.accounts(shapes).map_err(cannot_be_read)?;
        let counts: Vec<WindowCount> = accounts.iter().map(count).collect();
        Ok(of_shapes.into_iter().map(|which| counts[which].clone()).collect())
    }

    fn work(&mut self, arm: Arm, budget: Duration) -> Result<WorkCount, EngineError> {
        let window = Window::after(None, Length::ToEnd, false, budget);
        let mut counter = RunCounter::default();
        let (program, recording, code) = self.follow(arm, &window, &mut counter)?;
        let unsupported = |reason| EngineError::Unsupported { engine: recording.engine, reason };
        run_count::of_run(&counter, &program, &recording, &code).map_err(unsupported)
    }

    fn system_calls(&mut self, arm: Arm) -> Result<SystemCalls, SampleError> {
        let limits = Limits { timeout: Some(CALLS_BUDGET), ..self.runner.child_limits() };
        self.runner.around(arm, 0, |launch| count_system_calls(launch, &limits))
    }

    fn system_call_ns(&mut self) -> Option<f64> {
        Some(kernel::cheapest_call_ns())
    }

    fn core_now(&mut self) -> Option<CoreNow> {
        let cpu = self.settings.cpus.as_ref().and_then(Cpus::single);
        let _pin = cpu.map(Pin::to).transpose().ok()?;
        let summary = survey(&mut HardwareClock::new().ok()?, &CLOCK_SURVEY).summary();
        let clock = match probes::clock::core_rate(&summary) {
            Reading::Measured(rate) => Some(rate),
            Reading::Inconclusive { .. } => None,
        };
        Some(CoreNow { clock, shared_percent: summary.shared_percent })
    }

    fn run_changed(
        &mut self,
        arm: Arm,
        change: Change<'_>,
        round: usize,
    ) -> Result<Exit, EngineError> {
        if !self.changes_runs {
            return Err(EngineError::Forbidden("runs are not to be changed (--no-cure)".into()));
        }
        // The stack starts elsewhere in every round, as it does in every pair of a comparison.
        let limits = self.runner.child_limits();
        self.runner.around(arm, round * STACK_STEP_BYTES, |launch| {
            engine::run_changed(launch, change, limits)
        })
    }

    fn denormals(&mut self, arm: Arm, after: Duration) -> Result<Vec<DenormalSite>, EngineError> {
        let limits = self.runner.child_limits();
        self.runner.around(arm, 0, |launch| engine::denormals(launch, after, limits))
    }

    fn placements(&self) -> u32 {
        self.placements
    }

    fn left(&self) -> TimeLeft {
        let Some((budget, since)) = self.budget else { return TimeLeft::ANY };
        let left = budget.saturating_sub(since.elapsed());
        TimeLeft {
            share: left.as_secs_f64() / budget.as_secs_f64().max(1e-9),
            ns: left.as_nanos() as f64,
        }
    }

    fn check_files(&self) -> Result<(), CompareError> {
        self.runner.check_files()
    }
}
