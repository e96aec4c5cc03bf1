//! Turning a planned run into a sample: a real process, or anything else that has a time.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Settings;
use super::amounts::{Amounts, NoAmounts, measured};
use super::command::{CommandLine, Step};
use super::error::CompareError;
use super::files::{FileRole, FileWatch};
use super::identical::{SameHotCode, sample_hot_code};
use super::measure::Measure;
use super::neighbours::{Disturbances, Guard, Watched};
use super::program::{ArmRecord, inspect, seems};
use super::schedule::{Arm, PlannedRun};
use super::steps;
use crate::clock::Cpus;
use crate::run::child::{
    Background, ChildError, Exit, Launch, Limits, Status, Streams, last_lines,
};
use crate::run::look::Seen;

/// A run that has ended, with its place in the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunSample {
    /// Where it stood in the schedule.
    #[serde(flatten)]
    pub plan: PlannedRun,
    /// Times, memory and counts of the run.
    #[serde(flatten)]
    pub amounts: Amounts,
    /// How often it was repeated because the machine was disturbed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repeats: u32,
    /// Cycles that a loop of no-ops took before and after: longer beside another process on the core. Absent where nothing
    /// looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_ops_cycles: Option<[f64; 2]>,
    /// A digest of its standard output, equal for equal output within one comparison.
    pub output: String,
    /// How it failed, when failures are tolerated; absent for exit code 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Names of the processes that were still there when it had ended, and were killed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_behind: Vec<String>,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl RunSample {
    /// The code with which it exited; `None` where a signal ended it.
    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        match &self.failure {
            None => Some(0),
            Some(how) => how.strip_prefix(Status::CODE)?.parse().ok(),
        }
    }
}

/// Something that can run every arm.
pub trait Runner {
    /// What the arms are.
    fn arms(&self) -> Vec<ArmRecord>;

    /// Runs once without measuring; takes a look at what is run where that is possible.
    ///
    /// # Errors
    /// As [`Runner::run`].
    fn warm_up(&mut self, plan: &PlannedRun) -> Result<RunSample, CompareError> {
        self.run(plan)
    }

    /// Behind the warm-up: where programs with threads keep more than one processor busy, all further runs get as many
    /// as there are threads. The processors of further runs, a run of each in `trials` later; `None` where there was
    /// nothing to try.
    ///
    /// # Errors
    /// As [`Runner::run`].
    fn spread(&mut self, _trials: &[PlannedRun]) -> Result<Option<Cpus>, CompareError> {
        Ok(None)
    }

    /// Whether everything that was run is still what it was at the beginning.
    ///
    /// # Errors
    /// [`CompareError::Replaced`] when it is not.
    fn check_files(&self) -> Result<(), CompareError> {
        Ok(())
    }

    /// Runs one planned run to its end.
    ///
    /// # Errors
    /// When it cannot be run, does not end in time, or fails and failures are not tolerated.
    fn run(&mut self, plan: &PlannedRun) -> Result<RunSample, CompareError>;
}

/// How processes are run.
#[derive(Clone, Debug)]
pub struct ProcessLimits<'a> {
    /// Longest wall time of one run; `None` waits for ever.
    pub timeout: Option<Duration>,
    /// The logical processors to stay on; `None` leaves the choice to the scheduler.
    pub cpu: Option<Cpus>,
    /// Count runs that fail, instead of giving up.
    pub ignore_failure: bool,
    /// What every run reads as its standard input.
    pub input: Option<PathBuf>,
    /// Set from outside (Ctrl-C) to stop.
    pub interrupt: &'a AtomicBool,
}

impl<'a> ProcessLimits<'a> {
    /// What ends a run: the time limit, and the user.
    fn of_run(&self) -> Limits<'a> {
        Limits { timeout: self.timeout, interrupt: self.interrupt }
    }

    /// What ends something that is run around runs: the user alone.
    fn of_step(&self) -> Limits<'a> {
        Limits { timeout: None, ..self.of_run() }
    }
}

/// What takes so many times its wall time on processors was on more than one.
pub const AT_ONCE: f64 = 1.1;

/// One command with what belongs to it.
struct Command {
    line: CommandLine,
    path: PathBuf,
    record: ArmRecord,
    /// What its shell takes to start, once that has been timed.
    shell_start: Option<Amounts>,
}

/// Runs each arm as a process of its own.
pub struct ProcessRunner<'a> {
    commands: Vec<Command>,
    limits: ProcessLimits<'a>,
    measure: Measure,
    operations_in: Option<Duration>,
    guard: Option<Guard>,
    watch: FileWatch,
    /// What the set-ups have left running, until the end.
    _background: Vec<Background>,
}

impl<'a> ProcessRunner<'a> {
    /// Runs what sets the commands up, then finds their programs. No command is started yet.
    ///
    /// # Errors
    /// When a set-up fails, when a program is missing, is no file or cannot be read, or when the processor is not ours.
    pub fn new(
        lines: impl IntoIterator<Item = CommandLine>,
        limits: ProcessLimits<'a>,
    ) -> Result<Self, CompareError> {
        for cpu in limits.cpu.iter().flat_map(Cpus::iter) {
            let allowed = allowed_cpus();
            // An empty list means that we could not find out; then the kernel will say.
            if !allowed.is_empty() && !allowed.contains(&cpu) {
                let words: Vec<String> = allowed.iter().map(ToString::to_string).collect();
                return Err(CompareError::NoSuchCpu { cpu, allowed: words.join(", ") });
            }
        }
        let lines: Vec<CommandLine> = lines.into_iter().collect();
        let mut background = Vec::new();
        // A set-up may build the very programs.
        for (arm, line) in Arm::first(lines.len()).zip(&lines) {
            let kept = steps::run(line, Step::Setup, limits.of_step());
            let kept = kept.map_err(|cause| child(arm, cause))?;
            background.extend(kept);
        }
        let mut watch = FileWatch::default();
        let mut commands = Vec::new();
        for (arm, line) in Arm::first(lines.len()).zip(lines) {
            let (path, record) = inspect(arm, &line)?;
            watch.add(arm, FileRole::Program, &path);
            watch.add_arguments(arm, &line);
            if let Some(input) = &limits.input {
                watch.add(arm, FileRole::Input, input);
            }
            commands.push(Command { line, path, record, shell_start: None });
        }
        Ok(Self {
            commands,
            limits,
            measure: Measure::Wall,
            operations_in: None,
            guard: None,
            watch,
            _background: background,
        })
    }

    /// Measures what `settings` say: what the verdict is about, operations in a fixed time, runs
    /// repeated while the machine is disturbed.
    ///
    /// # Errors
    /// When an expression is not valid.
    pub fn measuring(mut self, settings: &Settings) -> Result<Self, CompareError> {
        settings.measure.check()?;
        self.measure = settings.measure.clone();
        self.operations_in = settings.operations_in_ms.map(Duration::from_millis);
        self.guard = self.limits.cpu.as_ref().and_then(|c| Guard::new(c.single(), settings.guard));
        Ok(self)
    }

    /// What was repeated because the machine was disturbed; absent where nothing is.
    #[must_use]
    pub fn disturbances(&self) -> Option<Disturbances> {
        self.guard.as_ref().and_then(Guard::repeated)
    }

    /// Runs both arms again, sampled, and tells whether the code that takes the time is the same;
    /// `None` when it differs, or when that cannot be found out.
    #[must_use]
    pub fn same_hot_code(&self) -> Option<SameHotCode> {
        let [a, b] = &self.commands[..] else { return None };
        if a.path == b.path || !a.line.steps.is_empty() || !b.line.steps.is_empty() {
            // One program with two sets of arguments says nothing about builds.
            return None;
        }
        let [a, b] = [Arm::A, Arm::B].map(|arm| self.launch(arm, 0));
        let found = sample_hot_code([&a, &b], &self.child_limits());
        found.filter(|_| self.watch.check().is_ok())
    }

    /// The file that one arm executes.
    #[must_use]
    pub fn program(&self, arm: Arm) -> &Path {
        &self.commands[arm.index()].path
    }

    /// The commands as they are run, in the order of the arms.
    pub(super) fn lines(&self) -> impl Iterator<Item = &CommandLine> {
        self.commands.iter().map(|command| &command.line)
    }

    /// How one arm is started, with so many bytes more in its environment.
    fn launch(&self, arm: Arm, environment_padding_bytes: usize) -> Launch {
        let Command { line, path, .. } = &self.commands[arm.index()];
        Launch {
            environment_padding_bytes,
            cpu: self.limits.cpu.clone(),
            streams: self.limits.input.clone().map_or(Streams::Captured, Streams::Fed),
            ..line.launch_of(path.clone())
        }
    }

    /// Starts one arm by `run`, between what prepares a run and what concludes it.
    ///
    /// # Errors
    /// What `run` says, and [`ChildError::Step`] when what is around it fails.
    pub fn around<T, E: From<ChildError>>(
        &self,
        arm: Arm,
        environment_padding_bytes: usize,
        run: impl FnOnce(&Launch) -> Result<T, E>,
    ) -> Result<T, E> {
        let line = &self.commands[arm.index()].line;
        // What a preparation leaves running lives as long as the run.
        let _background = steps::run(line, Step::Prepare, self.limits.of_step())?;
        let mut launch = self.launch(arm, environment_padding_bytes);
        launch.load = steps::load(line, self.limits.cpu.as_ref())?.map(Box::new);
        let done = run(&launch)?;
        steps::run(line, Step::Conclude, self.limits.of_step())?;
        Ok(done)
    }

    /// Runs what cleans up, once, when nothing more is to be run.
    ///
    /// # Errors
    /// When that fails.
    pub fn clean_up(&self) -> Result<(), CompareError> {
        for (arm, command) in Arm::first(self.commands.len()).zip(&self.commands) {
            steps::run(&command.line, Step::Cleanup, self.limits.of_step())
                .map_err(|cause| child(arm, cause))?;
        }
        Ok(())
    }

    /// What ends a run: the time limit, and the user.
    pub fn child_limits(&self) -> Limits<'_> {
        self.limits.of_run()
    }

    fn start(
        &self,
        plan: &PlannedRun,
        seen: Option<&mut Seen>,
    ) -> Result<(Exit, Amounts), CompareError> {
        let padding = plan.environment_padding_bytes as usize;
        let run = self.around(plan.arm, padding, |launch| {
            measured(launch, &self.child_limits(), &self.measure, seen)
        });
        let (exit, amounts) = run.map_err(|cause| match cause {
            NoAmounts::Child(cause) => self.explain(plan.arm, cause),
            NoAmounts::Unmeasured(what) => CompareError::Printed { arm: plan.arm, what },
        })?;
        let command = &self.commands[plan.arm.index()];
        match &command.shell_start {
            Some(start) if amounts.wall_ns <= start.wall_ns => {
                Err(CompareError::ShorterThanShell {
                    arm: plan.arm,
                    command: command.line.display(),
                    start_ns: start.wall_ns,
                })
            }
            Some(start) => Ok((exit, amounts.less(start))),
            None => Ok((exit, amounts)),
        }
    }

    /// Times the shell that runs an arm, with nothing to do, unless the same was timed for another arm.
    fn time_shell(&mut self, arm: Arm) -> Result<(), CompareError> {
        let line = &self.commands[arm.index()].line;
        // Where a load has the time, no shell is in it.
        let is_loaded = line.around(Step::Load).next().is_some();
        let Some(alone) = line.shell_alone().filter(|_| !is_loaded) else { return Ok(()) };
        let is_as = |other: &&Command| other.line.shell_alone().as_ref() == Some(&alone);
        let known = self.commands.iter().filter(is_as).find_map(|other| other.shell_start);
        let start = match known {
            Some(known) => known,
            None => {
                let launch = Launch { args: alone.args, ..self.launch(arm, 0) };
                steps::least_start(&launch, &self.child_limits())
                    .map_err(|cause| child(arm, cause))?
            }
        };
        let command = &mut self.commands[arm.index()];
        command.shell_start = Some(start);
        command.record.shell_start_ns = Some(start.wall_ns);
        Ok(())
    }

    fn explain(&self, arm: Arm, cause: ChildError) -> CompareError {
        match cause {
            ChildError::NotExecutable { .. } | ChildError::NotFound(_) => {
                CompareError::Program { arm, seems: seems(self.program(arm)), cause }
            }
            cause => child(arm, cause),
        }
    }
}

fn child(arm: Arm, cause: ChildError) -> CompareError {
    match cause {
        ChildError::Interrupted => CompareError::Interrupted,
        cause => CompareError::Child { arm, cause },
    }
}

impl Runner for ProcessRunner<'_> {
    fn arms(&self) -> Vec<ArmRecord> {
        let record = |(arm, command): (Arm, &Command)| ArmRecord {
            files: self.watch.records(arm),
            ..command.record.clone()
        };
        Arm::first(self.commands.len()).zip(&self.commands).map(record).collect()
    }

    fn warm_up(&mut self, plan: &PlannedRun) -> Result<RunSample, CompareError> {
        self.watch.check()?;
        self.time_shell(plan.arm)?;
        let mut seen = Seen::default();
        let sample = self.sample(plan, Some(&mut seen))?;
        self.watch.forget_what_is_written();
        let program = self.program(plan.arm).canonicalize().ok();
        for path in seen.files.iter().filter(|path| Some(*path) != program.as_ref()) {
            self.watch.add(plan.arm, FileRole::Mapped, path);
        }
        let threads = (seen.threads > 0).then_some(seen.threads);
        self.commands[plan.arm.index()].record.threads = threads;
        Ok(sample)
    }

    fn spread(&mut self, trials: &[PlannedRun]) -> Result<Option<Cpus>, CompareError> {
        let threads = self.commands.iter().filter_map(|command| command.record.threads).max();
        let allowed = allowed_cpus();
        let several = threads.map_or(1, |threads| allowed.len().min(threads as usize));
        let Some(cpus) = Cpus::last(several, &allowed).filter(|_| several > 1) else {
            return Ok(None);
        };
        let one = self.limits.cpu.replace(cpus.clone());
        for plan in trials {
            let Amounts { cpu_ns, wall_ns, .. } = self.sample(plan, None)?.amounts;
            if cpu_ns as f64 > AT_ONCE * wall_ns as f64 {
                self.guard = None;
                return Ok(Some(cpus));
            }
        }
        self.limits.cpu = one.clone();
        Ok(one)
    }

    fn check_files(&self) -> Result<(), CompareError> {
        self.watch.check_content()
    }

    fn run(&mut self, plan: &PlannedRun) -> Result<RunSample, CompareError> {
        self.watch.check()?;
        // Taken out while it watches: it calls back into the runner.
        let Some(mut guard) = self.guard.take() else {
            return self.sample(plan, None);
        };
        let result = guard.watch(|| self.sample(plan, None));
        self.guard = Some(guard);
        let Watched { value, repeats, no_ops_cycles } = result?;
        Ok(RunSample { repeats, no_ops_cycles, ..value })
    }
}

impl ProcessRunner<'_> {
    /// One process, or as many as fit into the fixed time.
    fn sample(
        &self,
        plan: &PlannedRun,
        mut seen: Option<&mut Seen>,
    ) -> Result<RunSample, CompareError> {
        let (mut output, mut failure, mut left_behind) = (String::new(), None, Vec::new());
        let amounts = Amounts::in_time(self.operations_in, || {
            let (exit, amounts) = self.one(plan, seen.as_deref_mut())?;
            if output.is_empty() {
                output = format!("{:016x}", exit.stdout.digest);
            }
            if !exit.status.success() {
                failure = Some(exit.status.to_string());
            }
            left_behind.extend(exit.left_behind);
            Ok::<_, CompareError>(amounts)
        })?;
        let (plan, repeats, no_ops_cycles) = (*plan, 0, None);
        Ok(RunSample { plan, amounts, repeats, no_ops_cycles, output, failure, left_behind })
    }

    fn one(
        &self,
        plan: &PlannedRun,
        seen: Option<&mut Seen>,
    ) -> Result<(Exit, Amounts), CompareError> {
        let (exit, amounts) = self.start(plan, seen)?;
        if exit.status.success() || self.limits.ignore_failure {
            return Ok((exit, amounts));
        }
        // A program that was cut off is often killed by the kernel on its first page.
        let seems = match exit.status {
            Status::Signal(_) => seems(self.program(plan.arm)),
            Status::Code(_) => String::new(),
        };
        Err(CompareError::Failed {
            arm: plan.arm,
            command: self.commands[plan.arm.index()].line.display(),
            status: exit.status.to_string(),
            seems,
            said: last_lines(&exit.stderr.tail),
        })
    }
}

/// The logical processors this process may use, ascending; empty when that cannot be found out.
#[must_use]
pub fn allowed_cpus() -> Vec<usize> {
    crate::clock::allowed_cpus().unwrap_or_default()
}

/// The processor to run on by default: the last allowed, because interrupts and
/// everything that starts at boot gather on the first.
#[must_use]
pub fn default_cpu() -> Option<Cpus> {
    Cpus::last(1, &allowed_cpus())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::schedule::{Order, plan};
    use crate::run::child::NEVER;

    fn runner(
        a: &str,
        b: &str,
        timeout: Option<Duration>,
        ignore_failure: bool,
    ) -> ProcessRunner<'static> {
        let line = |script: &str| CommandLine::new("sh", vec!["-c".into(), script.into()]);
        let limits = ProcessLimits {
            timeout,
            cpu: default_cpu(),
            ignore_failure,
            input: None,
            interrupt: &NEVER,
        };
        ProcessRunner::new([line(a), line(b)], limits).unwrap()
    }

    fn first_of(arm: Arm) -> PlannedRun {
        *plan(2, Order::Abba, 0).iter().find(|p| p.arm == arm).unwrap()
    }

    #[test]
    fn a_run_has_times_and_a_digest() {
        let mut runner = runner("echo same", "echo same", None, false);
        let a = runner.run(&first_of(Arm::A)).unwrap();
        let b = runner.run(&first_of(Arm::B)).unwrap();
        assert!(a.amounts.wall_ns > 0);
        assert_eq!(a.output, b.output);
        assert_eq!(a.failure, None);
    }

    #[test]
    fn a_failure_names_arm_command_status_and_complaint() {
        let mut strict = runner("true", "echo oh no >&2; exit 3", None, false);
        let error = strict.run(&first_of(Arm::B)).unwrap_err().to_string();
        for part in ["arm B", "exit 3", "exit code 3", "oh no", "--ignore-failure"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let mut lenient = runner("true", "exit 3", None, true);
        let sample = lenient.run(&first_of(Arm::B)).unwrap();
        assert_eq!(sample.failure.as_deref(), Some("exit code 3"));
    }

    #[test]
    fn a_command_that_never_ends_is_killed_and_named() {
        let mut runner = runner("sleep 1000", "true", Some(Duration::from_millis(50)), false);
        let error = runner.run(&first_of(Arm::A)).unwrap_err().to_string();
        assert!(error.contains("arm A") && error.contains("--timeout"), "{error}");
    }

    #[test]
    fn a_processor_that_is_not_ours_is_refused() {
        let line = || CommandLine::new("true", vec![]);
        let limits = ProcessLimits {
            timeout: None,
            cpu: Some(Cpus::one(1023)),
            ignore_failure: false,
            input: None,
            interrupt: &NEVER,
        };
        let error = ProcessRunner::new([line(), line()], limits).err().map(|e| e.to_string());
        assert!(error.unwrap_or_default().contains("1023"));
    }
}
