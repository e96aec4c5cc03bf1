//! Where a command's time goes: at regular intervals, which instruction is it at?
//!
//! Two engines. [`Engine::PerfClock`] lets the kernel's own clock interrupt the command, which
//! needs no hardware counter. Where the kernel forbids that, [`Engine::Ptrace`] stops the command
//! a thousand times a second and looks; which engine ran, and
//! why, is part of the result. Addresses come back as positions in files, so that they can be
//! joined with the code room whatever address space randomisation did.
//!
//! Where it is asked for, call stacks are taken of a share of the samples ([`Stacks`]).
//!
//! Cost: an interrupt takes 0.3 to 17 µs of the command's time (measured before the first run), a `ptrace`
//! stop about 20 µs. So a sampled run shows *where* time goes; how much time a command takes is
//! measured in runs without sampling.

mod cost;
mod perf;
mod ptrace;
pub mod records;
mod ring;
mod skid;
mod space;
mod stacks;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::FileOffset;
use crate::run::child::{Child, ChildError, Exit, Launch, Limits};
pub use cost::period_for_overhead;
pub use skid::{Landmarks, Skid, divide, skid_of};
use space::Tally;
pub use stacks::{CallStack, Frame, Snapshot, Stacks};
use stacks::{STACK_PERIOD_NS, Unwinder};

/// A stop and a look cost some ten microseconds; more often than this, they would be the run.
const LEAST_PTRACE_PERIOD_NS: u64 = 1_000_000;
/// Below this the picture is too coarse to rank instructions by.
const FEW_SAMPLES: u64 = 100;

/// How a sample was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Engine {
    /// The kernel's `cpu-clock` event: processor time, children included. A sample
    /// mostly lands on the instruction *behind* the one that took the time (on Zen 5: 94 % behind
    /// a load that waits for a store, 86 % behind a division).
    PerfClock,
    /// `ptrace` stops at regular wall time; samples of threads that sit in the kernel are told
    /// apart where the processor allows it.
    Ptrace,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::PerfClock => "perf cpu-clock",
            Self::Ptrace => "ptrace",
        })
    }
}

/// Choice of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineChoice {
    /// `PerfClock` where the kernel allows it, else `Ptrace`, with a note.
    #[default]
    Auto,
    /// [`Engine::PerfClock`] or an error.
    PerfClock,
    /// [`Engine::Ptrace`] or an error.
    Ptrace,
}

/// How to sample.
#[derive(Clone, Copy, Debug)]
pub struct SampleSettings {
    /// Time between two samples of one thread, in nanoseconds; raised, with a note, to what the
    /// engine can do.
    pub period_ns: u64,
    /// The engine, or the choice of the best.
    pub engine: EngineChoice,
    /// Whether call stacks are taken: one a millisecond of a thread's time, at the most.
    pub stacks: bool,
}

impl Default for SampleSettings {
    /// 200 µs: a run of a third of a second gives some 1500 samples, for up to 8 % of its time.
    fn default() -> Self {
        Self { period_ns: 200_000, engine: EngineChoice::Auto, stacks: false }
    }
}

/// The samples that fell into one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectSamples {
    /// The program or library as the kernel names it; `[vdso]` for the kernel's own page, whose
    /// offsets count from its start.
    pub path: PathBuf,
    /// Whether it is the program that was launched.
    pub is_main_program: bool,
    /// How many samples found a thread about to execute the instruction at this position.
    pub hits: BTreeMap<FileOffset, u64>,
}

impl ObjectSamples {
    /// All samples in this file.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.hits.values().sum()
    }
}

/// One sampled run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SampleRun {
    /// How the samples were taken.
    pub engine: Engine,
    /// Time between two samples of one thread, in nanoseconds, as it was in effect.
    pub period_ns: u64,
    /// Per file, the one with the most samples first.
    pub samples: Vec<ObjectSamples>,
    /// Samples in user code: those of all files, the `generated` and the `unmapped`.
    pub total: u64,
    /// Samples the kernel had no room for.
    pub lost: u64,
    /// Samples in code that was made at run time, by the names that the program wrote for them
    /// ([`GeneratedCode`](crate::run::generated::GeneratedCode)).
    pub generated: BTreeMap<String, u64>,
    /// Samples in other code that no file holds.
    pub unmapped: u64,
    /// Samples in the kernel; absent where `perf` may not tell of them (kernel.perf_event_paranoid above 1 and no
    /// `CAP_PERFMON`).
    pub kernel: Option<u64>,
    /// How the command ended. Its times include what the sampling cost.
    #[serde(skip)]
    pub exit: Exit,
    /// Call stacks, where they were asked for and could be taken.
    #[serde(skip)]
    pub stacks: Option<Stacks>,
    /// What a reader of the numbers must know: a fallback and its cause, throttling, few samples.
    pub notes: Vec<String>,
}

impl SampleRun {
    /// Samples in the kernel, where they are known and of processor time.
    #[must_use]
    pub fn in_kernel(&self) -> Option<u64> {
        self.kernel.filter(|_| self.engine == Engine::PerfClock)
    }

    /// Adds its notes to those of other runs, each once; not that it has few samples: together they may have enough.
    pub fn add_notes_to(&self, notes: &mut Vec<String>) {
        let few = too_few(self.total);
        for note in self.notes.iter().filter(|note| few.as_ref() != Some(note)) {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
    }
}

/// Why a command could not be sampled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum SampleError {
    /// The command did not start, or did not end by itself.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// The engine that was asked for does not work here.
    #[error("cannot sample with {engine}: {cause}")]
    Unavailable { engine: Engine, cause: String },
    #[error("cannot sample: {perf}; and {ptrace}")]
    NoEngine { perf: String, ptrace: String },
}

/// Runs a command to its end and reports where its time went.
///
/// Call it from a thread that lives until it returns, as for [`Child::hold`].
///
/// # Errors
/// When the command cannot be run or hits a limit, and when no engine works here.
pub fn sample(
    launch: &Launch,
    settings: &SampleSettings,
    limits: &Limits<'_>,
) -> Result<SampleRun, SampleError> {
    let since = SystemTime::now();
    let child = Child::hold(launch)?;
    let mut notes = Vec::new();
    let takes_stacks = settings.stacks && cfg!(target_arch = "x86_64");
    let perf_cause = match settings.engine {
        EngineChoice::Ptrace => None,
        EngineChoice::Auto | EngineChoice::PerfClock => {
            let period_ns = at_least(settings.period_ns, cost::least_period_ns(), &mut notes);
            match perf::Sampler::attach(child.pid(), period_ns, takes_stacks) {
                Ok(sampler) => {
                    let (exit, collected) = sampler.run(child, limits)?;
                    return Ok(collected.into_run(launch, period_ns, exit, notes, since));
                }
                Err(cause) => Some(perf_cause(&cause)),
            }
        }
    };
    if let (EngineChoice::PerfClock, Some(cause)) = (settings.engine, &perf_cause) {
        return Err(SampleError::Unavailable { engine: Engine::PerfClock, cause: cause.clone() });
    }
    notes.clear();
    let period_ns = at_least(settings.period_ns, LEAST_PTRACE_PERIOD_NS, &mut notes);
    match (ptrace::Sampler::attach(child.pid(), period_ns, takes_stacks), perf_cause) {
        (Ok(sampler), perf_cause) => {
            notes.extend(perf_cause.map(|cause| format!("sampled with ptrace: {cause}")));
            let (exit, collected) = sampler.run(child, launch, limits)?;
            Ok(collected.into_run(launch, period_ns, exit, notes, since))
        }
        (Err(cause), Some(perf)) => {
            Err(SampleError::NoEngine { perf, ptrace: ptrace_cause(&cause) })
        }
        (Err(cause), None) => {
            Err(SampleError::Unavailable { engine: Engine::Ptrace, cause: ptrace_cause(&cause) })
        }
    }
}

/// System calls of one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallsOfNumber {
    /// How many.
    pub count: u64,
    /// From where each was entered to where it returned, all threads and processes together, in nanoseconds: what it
    /// waited for, and up to a millisecond for us.
    pub inside_ns: u64,
}

/// How many system calls a run makes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemCalls {
    /// Those that were counted.
    pub count: u64,
    /// Those of each number, as the kernel counts its calls for 64-bit programs of this processor.
    pub by_number: BTreeMap<u64, CallsOfNumber>,
    /// Whether that is the whole run's; it was ended early else, at the time limit.
    pub all: bool,
    /// From where one in eight of them was made.
    pub callers: Callers,
}

/// Call stacks of system calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Callers {
    /// The files in which the frames are.
    pub files: Vec<PathBuf>,
    /// Which of them is the program that was launched.
    pub main_program: Option<u32>,
    /// How often each was seen, by the number of the call.
    pub counts: FxHashMap<(u64, CallStack), u64>,
}

/// Runs a command to its end or to the time limit and counts the system calls of all its threads and children: each
/// stops it twice, for some microseconds.
///
/// # Errors
/// When the command cannot be run, and where ptrace is forbidden.
pub fn count_system_calls(
    launch: &Launch,
    limits: &Limits<'_>,
) -> Result<SystemCalls, SampleError> {
    let child = Child::hold(launch)?;
    let sampler = ptrace::Sampler::attach_to_calls(child.pid()).map_err(|cause| {
        SampleError::Unavailable { engine: Engine::Ptrace, cause: ptrace_cause(&cause) }
    })?;
    sampler.count(child, launch, limits)
}

fn at_least(asked_ns: u64, least_ns: u64, notes: &mut Vec<String>) -> u64 {
    if asked_ns >= least_ns {
        return asked_ns;
    }
    notes.push(format!(
        "sampled every {} µs: more often, it would take more than half of the run's time",
        least_ns / 1000
    ));
    least_ns
}

fn perf_cause(cause: &io::Error) -> String {
    let refused = matches!(cause.raw_os_error(), Some(libc::EACCES | libc::EPERM));
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
    match level {
        Ok(level) if refused && level.trim().parse().is_ok_and(|n: i32| n > 2) => format!(
            "the kernel forbids its sampling clock (kernel.perf_event_paranoid is {}, 2 would do)",
            level.trim()
        ),
        Ok(_) if refused => {
            format!("the kernel or a container's filter forbids perf_event_open ({cause})")
        }
        Ok(_) => format!("the kernel's sampling clock does not work ({cause})"),
        Err(_) => format!("the kernel has no perf events ({cause})"),
    }
}

fn ptrace_cause(cause: &io::Error) -> String {
    format!("the command cannot be stopped to look at it: ptrace fails ({cause})")
}

/// What is to be said of so few samples.
#[must_use]
pub fn too_few(samples: u64) -> Option<String> {
    let said =
        || format!("only {samples} samples: let the command run longer to rank its instructions");
    (samples < FEW_SAMPLES).then(said)
}

struct Collected {
    engine: Engine,
    tally: Tally,
    lost: u64,
    kernel: Option<u64>,
    unwinder: Option<Unwinder>,
    notes: Vec<String>,
}

impl Collected {
    fn into_run(
        self,
        launch: &Launch,
        period_ns: u64,
        exit: Exit,
        mut notes: Vec<String>,
        since: SystemTime,
    ) -> SampleRun {
        let main_program = launch.program.canonicalize().ok();
        let code = self.tally.generated_code(since);
        let (generated, unmapped) = self.tally.generated(&code);
        let stacks =
            self.unwinder.map(|it| it.into_stacks(&self.tally, main_program.as_deref(), &code));
        let samples = self.tally.into_objects(main_program.as_deref());
        let in_files = samples.iter().map(ObjectSamples::total).sum::<u64>();
        let total = unmapped + in_files + generated.values().sum::<u64>();
        notes.extend(self.notes);
        notes.extend(too_few(total));
        SampleRun {
            engine: self.engine,
            period_ns,
            samples,
            total,
            lost: self.lost,
            generated,
            unmapped,
            kernel: self.kernel,
            exit,
            stacks,
            notes,
        }
    }
}

#[cfg(test)]
mod tests;
