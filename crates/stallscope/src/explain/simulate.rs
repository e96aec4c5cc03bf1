//! An invented bench with a known truth: two programs, how long they take, where the time goes.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use syscalls::Sysno;

use super::{Bench, CoreNow, TimeLeft, WindowCount, WorkCount};
use crate::code::fixture;
use crate::code::x86::Patch;
use crate::compare::simulate::SimulatedMachine;
use crate::compare::{Arm, CompareError, Comparison, Progress, Settings, compare};
use crate::machine::{CoreShape, Design};
use crate::model::{FileOffset, Measurement, Unit};
use crate::run::child::{Exit, Status};
use crate::run::sample::{
    CallsOfNumber, Engine, ObjectSamples, SampleError, SampleRun, Stacks, SystemCalls,
};
use crate::trace::engine::{Change, DenormalSite, EngineError, Start};

/// Runs nothing; answers from what it was given.
pub struct InventedBench {
    /// Says how long the runs take.
    pub machine: SimulatedMachine,
    /// How they are compared.
    pub settings: Settings,
    /// Per arm: where one run's samples fall in the program.
    pub hits: [Vec<(FileOffset, u64)>; 2],
    /// Per arm: call stacks of one run.
    pub stacks: [Option<Stacks>; 2],
    /// Per arm: samples of one run in the library.
    pub library_hits: [u64; 2],
    /// Per arm: samples of one run in the kernel; `None` where it does not tell of them.
    pub kernel_samples: Option<[u64; 2]>,
    /// Per arm: where the library is.
    pub library: [PathBuf; 2],
    /// Per arm: what a window counts; `None` where nothing can be followed.
    pub counts: [Option<WindowCount>; 2],
    /// Whether windows cannot be followed.
    pub windows_fail: bool,
    /// Per arm: what a whole run executes; `None` where it cannot be followed to its end.
    pub work: [Option<WorkCount>; 2],
    /// Processor time of fast build, slow build, control and cure, in nanoseconds; `None` where nothing can be
    /// replaced.
    pub patched_ns: Option<[u64; 4]>,
    /// In how many of a hundred stretches looks at the core see others, the last look first; then in none.
    pub shared_percents: Vec<f64>,
    /// Per arm: processor time of a run that flushes denormal numbers to zero, of one on one processor and of one without huge
    /// pages.
    pub flushed_ns: Option<[u64; 2]>,
    /// Where the runs meet such numbers.
    pub denormals: Vec<DenormalSite>,
    /// The slow build.
    pub slowest: Arm,
    /// The first patch that replaces anything in the slow build.
    pub control: Option<Patch>,
    /// What the sampler has to say.
    pub notes: Vec<String>,
    /// Whether anything may be sampled.
    pub samples: bool,
    /// At how many random places hot functions are run.
    pub placements: u32,
    /// What is left of the time that all of it should take.
    pub left: TimeLeft,
}

impl Bench for InventedBench {
    fn compare(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<Comparison, CompareError> {
        compare(&mut self.machine, &self.settings, progress)
    }

    fn window(
        &mut self,
        arm: Arm,
        _start: Start,
        _skip: u64,
        _design: &Design,
        shapes: &[CoreShape],
    ) -> Result<Vec<WindowCount>, EngineError> {
        if self.windows_fail {
            let reason = "a signal came".into();
            return Err(EngineError::Unsupported { engine: "translate", reason });
        }
        let count = self.counts[arm.index()].clone();
        match count {
            Some(count) => Ok(vec![count; shapes.len()]),
            None => Err(EngineError::Forbidden("ptrace is forbidden".into())),
        }
    }

    fn run_changed(
        &mut self,
        arm: Arm,
        change: Change<'_>,
        round: usize,
    ) -> Result<Exit, EngineError> {
        let nothing = Patch::default();
        let patch = match (change, self.flushed_ns) {
            (Change::Nothing, _) => &nothing,
            (Change::Code(patch), _) => patch,
            (_, Some(times)) => return Ok(exit(times[arm.index()])),
            (_, None) => {
                return Err(EngineError::Forbidden("ptrace is forbidden".into()));
            }
        };
        let Some(times) = self.patched_ns else {
            return Err(EngineError::Forbidden("ptrace is forbidden".into()));
        };
        let is_slow = self.slowest == arm;
        if is_slow && !patch.is_empty() && self.control.is_none() {
            self.control = Some(patch.clone());
        }
        let which = match (is_slow, patch.is_empty(), self.control.as_ref() == Some(patch)) {
            (false, ..) => 0,
            (true, true, _) => 1,
            (true, false, is_control) => 3 - usize::from(is_control),
        };
        let of_place = if self.placements > 0 { place_ns(patch) } else { 0 };
        Ok(exit(times[which] + of_place + round as u64 * 1000))
    }

    fn denormals(&mut self, _: Arm, _: Duration) -> Result<Vec<DenormalSite>, EngineError> {
        Ok(self.denormals.clone())
    }

    fn work(&mut self, arm: Arm, _budget: Duration) -> Result<WorkCount, EngineError> {
        self.work[arm.index()]
            .clone()
            .ok_or_else(|| EngineError::Forbidden("ptrace is forbidden".into()))
    }

    fn system_calls(&mut self, arm: Arm) -> Result<SystemCalls, SampleError> {
        let calls = self.work[arm.index()].as_ref();
        let calls = calls.map(|work| SystemCalls {
            count: work.system_calls,
            by_number: BTreeMap::from([(
                Sysno::write as u64,
                CallsOfNumber { count: work.system_calls, inside_ns: 0 },
            )]),
            all: true,
            ..SystemCalls::default()
        });
        calls.ok_or_else(|| SampleError::Unavailable {
            engine: Engine::Ptrace,
            cause: "ptrace is forbidden".into(),
        })
    }

    fn placements(&self) -> u32 {
        self.placements
    }

    fn left(&self) -> TimeLeft {
        self.left
    }

    fn core_now(&mut self) -> Option<CoreNow> {
        let (unit, how) = (Unit::Megahertz, "invented".to_owned());
        let clock = Measurement { value: 2000.0, unit, low: 1990.0, high: 2010.0, n: 20, how };
        let shared_percent = self.shared_percents.pop().unwrap_or(0.0);
        Some(CoreNow { clock: Some(clock), shared_percent })
    }

    fn sample(&mut self, arm: Arm) -> Result<SampleRun, SampleError> {
        if !self.samples {
            let (perf, ptrace) = ("perf is forbidden".into(), "ptrace is forbidden".into());
            return Err(SampleError::NoEngine { perf, ptrace });
        }
        let object = |path: &Path, is_main_program, hits: Vec<(FileOffset, u64)>| ObjectSamples {
            path: path.into(),
            is_main_program,
            hits: hits.into_iter().collect(),
        };
        let library = vec![(FileOffset(fixture::CODE_START.1.0), self.library_hits[arm.index()])];
        let samples = vec![
            object(Path::new("/programs/invented"), true, self.hits[arm.index()].clone()),
            object(&self.library[arm.index()], false, library),
        ];
        let period_ns = 200_000;
        let total = samples.iter().map(ObjectSamples::total).sum();
        Ok(SampleRun {
            engine: Engine::PerfClock,
            period_ns,
            total,
            samples,
            lost: 0,
            generated: BTreeMap::new(),
            unmapped: 0,
            kernel: self.kernel_samples.map(|of_arms| of_arms[arm.index()]),
            exit: exit(total * period_ns),
            stacks: self.stacks[arm.index()].clone(),
            notes: self.notes.clone(),
        })
    }
}

/// What the places of copied functions add: up to a millisecond, the same for the same places.
fn place_ns(patch: &Patch) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{patch:?}").hash(&mut hasher);
    hasher.finish() % 1_000_000
}

fn exit(user_ns: u64) -> Exit {
    Exit { wall_ns: user_ns + 5_000_000, user_ns, ..Exit::of(Status::Code(0)) }
}
