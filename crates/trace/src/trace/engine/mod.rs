//! Engines that follow a run instruction by instruction: one trait, one form of events.
//!
//! A window is a stretch of one thread's run. What happened in it is told to a [`Sink`] as blocks:
//! straight runs of instructions, each described once and then named by its number, with the
//! memory that each execution touched. An instruction cache model needs the blocks alone, a store
//! buffer model also the accesses; both see the same order in which the program ran.
//!
//! All engines agree on these conventions, so that their events can be compared one by one:
//! - A block ends behind every instruction that may go elsewhere, and where an engine must stop.
//!   Engines may cut blocks differently; the sequence of instructions is the same.
//! - A `rep` instruction is one instruction with one access per memory operand, as long as all its
//!   repetitions together and starting at the lowest byte; zero repetitions touch nothing. Where a
//!   signal interrupts it, each stretch counts as an instruction of its own.
//! - A gather or scatter touches its active elements, in the order of the lanes; a masked vector
//!   access touches its active elements as one access from the first to the last of them (from the
//!   first byte on for those that compress or expand); with no active element it touches nothing.
//! - `cmpxchg` and its kin load and store, whether or not the exchange takes place. Instructions of
//!   the `xsave` family touch 576 bytes, the legacy area and the header.
//! - What an instruction loads comes before what it stores. A prefetch names the first byte of what it asks for. `lea`, `nop` and the
//!   instruction's own bytes are no accesses, nor is what the kernel does in a system call.

#[cfg(target_arch = "x86_64")]
mod blocks;
#[cfg(target_arch = "x86_64")]
mod calls;
#[cfg(target_arch = "x86_64")]
mod changed;
#[cfg(target_arch = "x86_64")]
mod denormals;
#[cfg(target_arch = "x86_64")]
mod operands;
#[cfg(target_arch = "x86_64")]
mod process;
#[cfg(target_arch = "x86_64")]
mod qemu;
#[cfg(target_arch = "x86_64")]
mod state;
#[cfg(target_arch = "x86_64")]
mod step;
#[cfg(target_arch = "x86_64")]
mod target;

#[cfg(target_arch = "x86_64")]
pub mod translate;

use std::path::PathBuf;
use std::time::Duration;

use crate::code::x86::Patch;
use crate::model::{Avma, Capability, FileOffset, Svma};
use crate::run::child::{Exit, Launch, Limits};
pub use crate::run::maps::Mapping;
#[cfg(target_arch = "x86_64")]
pub use changed::run_changed;
#[cfg(target_arch = "x86_64")]
pub use denormals::denormals;

/// Number of a block within one recording, counted from 0 in the order of description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

impl BlockId {
    /// Puts what is kept of this block to its place in a list by number.
    pub fn put<T: Default>(self, kept: T, blocks: &mut Vec<T>) {
        let index = self.0 as usize;
        if blocks.len() <= index {
            blocks.resize_with(index + 1, T::default);
        }
        blocks[index] = kept;
    }
}

/// One instruction of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockInsn {
    /// Where it is in the process.
    pub address: Avma,
    /// Its length.
    pub size_bytes: u8,
    /// Whether older stores are in the cache before anything younger loads.
    pub drains_stores: bool,
}

#[cfg(target_arch = "x86_64")]
impl From<&iced_x86::Instruction> for BlockInsn {
    fn from(insn: &iced_x86::Instruction) -> Self {
        Self {
            address: Avma(insn.ip()),
            size_bytes: insn.len() as u8,
            drains_stores: crate::code::x86::drains_stores(insn),
        }
    }
}

/// Instructions that ran one behind the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Block {
    /// In the order of execution; never empty once described.
    pub insns: Vec<BlockInsn>,
}

/// Which way an access goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessKind {
    /// Memory was read.
    Load,
    /// Memory was written.
    Store,
    /// Memory was asked for that nothing waits for; it need not be there. The emulator does not tell of these.
    Prefetch,
    /// No memory, but what a register holds that the time of a division depends on, in place of an address: the lower and the upper
    /// half of its dividend and, where that is in a register, its divisor. The emulator does not tell of these.
    Value,
}

/// Bytes of a value, whatever of it counts.
pub(crate) const VALUE_BYTES: u32 = 8;

/// Memory that one instruction touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryAccess {
    /// Index of the instruction in its block.
    pub insn: u32,
    /// What was done with it.
    pub kind: AccessKind,
    /// Bytes touched, never 0; 1 of a prefetch, 8 of a value.
    pub size_bytes: u32,
    /// The lowest of them.
    pub address: Avma,
}

/// Takes the events of a window, in order.
pub trait Sink {
    /// A block that has not been seen before. Code that changes itself gets a new number.
    fn describe(&mut self, id: BlockId, block: &Block);

    /// Everything told so far is void: the engine found that it cannot follow this window, or that
    /// what it told was wrong. The same window follows again from its start.
    fn restart(&mut self);

    /// The block ran, whole, and touched this memory, in order. When the window was asked for without
    /// memory, `accesses` has those of `rep` instructions alone (none of an emulated program).
    fn run(&mut self, id: BlockId, accesses: &[MemoryAccess]);

    /// The block ran so often, whole and without memory to tell of. Of a window to the end of the run
    /// without memory, blocks are told so, in no order.
    fn runs(&mut self, id: BlockId, times: u64) {
        for _ in 0..times {
            self.run(id, &[]);
        }
    }
}

/// Where a window starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the program's own first instruction (behind the dynamic loader).
    Entry,
    /// Each time that execution comes to this address of this file; usually a function's start.
    At {
        /// Program or library, as the system resolves it; `None` is the launched program.
        object: Option<PathBuf>,
        /// The address as stated in that file.
        svma: Svma,
    },
    /// Where the thread that is at work is when all threads together have been on the processor for so long.
    After(Duration),
    /// As [`Start::After`], where that thread is in code without a file, made at run time: other threads of the program
    /// compile it, or collect garbage.
    AfterInMadeCode(Duration),
}

/// After so much processor time, or else at the run's first instruction.
impl From<Option<Duration>> for Start {
    fn from(after: Option<Duration>) -> Self {
        after.map_or(Self::Entry, Self::After)
    }
}

/// How long a window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Until the function at the start has returned this many times to where it was called from,
    /// calls inside calls not counted; everything between the calls belongs to the window.
    Calls(u64),
    /// At least this many instructions, to the end of a block.
    Instructions(u64),
    /// Until the process ends: a run that cannot be followed so far tells nothing. Without memory, an engine
    /// may count how often each block runs instead of telling of each run, and then follows the threads and processes that
    /// it starts, too; programs that they call have addresses of their own, in mappings of their own.
    ToEnd,
}

/// The stretch of a run to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Where it starts.
    pub start: Start,
    /// How many arrivals there to let pass first.
    pub skip: u64,
    /// How long it is.
    pub length: Length,
    /// Whether to report all memory accesses, and not those of `rep` instructions alone.
    pub memory: bool,
    /// The longest time from its start to its end, as slow as the engine makes it; the window ends
    /// there, [`Ended::Short`]. `None`: as long as it takes.
    pub budget: Option<Duration>,
}

impl Window {
    /// One that starts after so much processor time, or else at the run's first instruction.
    #[must_use]
    pub fn after(after: Option<Duration>, length: Length, memory: bool, budget: Duration) -> Self {
        Self { start: after.into(), skip: 0, length, memory, budget: Some(budget) }
    }
}

/// Why a window is shorter than it was to be, in words, when its [`Window::budget`] was used up.
const OUT_OF_TIME: &str = "its budget of time is used up (--budget)";

/// Why a window ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// At the length asked for.
    Length,
    /// Earlier, where the engine could not follow any further; a note says why.
    Short,
    /// The thread or its process ended first.
    Exit,
    /// The program replaced itself (`exec`).
    Exec,
    /// A signal ended the process in the window.
    Signal(i32),
}

/// Whether what an engine followed ended as the original did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelfCheck {
    /// Nothing was compared: the engine follows the original, or a note says why it could not be.
    NotCompared,
    /// What was compared, all of it equal.
    Equal(String),
    /// What differed.
    Differs(String),
}

/// What an engine says of a finished recording.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Id of the engine that ran.
    pub engine: &'static str,
    /// Instructions in the window.
    pub instructions: u64,
    /// Time in the window, as slow as the engine makes it.
    pub wall_ns: u64,
    /// Why the window ended.
    pub ended: Ended,
    /// What was mapped executable at the window's end.
    pub mappings: Vec<Mapping>,
    /// What came of the engine's check of itself.
    pub self_check: SelfCheck,
    /// What the reader must know: a fallback, a suppressed system call, threads not followed.
    pub notes: Vec<String>,
    /// Code of the window that stands in no file, page by page, as it was when it was last translated; from engines
    /// that keep it.
    pub code: Vec<CodePage>,
    /// How the command itself ended, with its output; absent of a process that had been running before, and runs on.
    pub exit: Option<Exit>,
}

/// Code of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodePage {
    /// Where it is.
    pub start: Avma,
    /// A page, and the end of its last instruction in the next one.
    pub bytes: Vec<u8>,
}

/// What an engine follows a window of.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// A command, from its start to its end.
    Command(&'a Launch),
    /// A process that runs already, and is let go of. [`Recording::exit`] is absent then, [`Start::After`] is processor time
    /// from now on, and the limits end the wait for the window's start alone.
    Process(i32),
}

/// A way of following a run.
pub trait Engine: Sync {
    /// Stable id: `step`, `translate`, `qemu`.
    fn id(&self) -> &'static str;

    /// One line: what it does and costs.
    fn summary(&self) -> &'static str;

    /// Whether it works here, and why not.
    fn available(&self) -> Capability;

    /// Whether the program runs on a made-up processor, which must be asked for.
    fn is_emulator(&self) -> bool {
        false
    }

    /// Follows the window. A command is run to its end; a process that runs already runs on behind it.
    ///
    /// # Errors
    /// When the command cannot be started, there is no such process, the window's start is never reached, or the system
    /// forbids what the engine needs; of a process from engines that start programs themselves.
    fn follow(
        &self,
        subject: Subject<'_>,
        window: &Window,
        limits: Limits<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Recording, EngineError>;

    /// Runs the command to its end and follows the window.
    ///
    /// # Errors
    /// As [`Engine::follow`].
    fn record(
        &self,
        launch: &Launch,
        window: &Window,
        limits: Limits<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Recording, EngineError> {
        self.follow(Subject::Command(launch), window, limits, sink)
    }
}

/// All engines, the preferred one first.
pub static ENGINES: &[&dyn Engine] = &[
    #[cfg(target_arch = "x86_64")]
    &translate::Translate,
    #[cfg(target_arch = "x86_64")]
    &step::Step,
    #[cfg(target_arch = "x86_64")]
    &qemu::Qemu,
];

/// The engine with this id.
#[must_use]
pub fn engine(id: &str) -> Option<&'static dyn Engine> {
    ENGINES.iter().copied().find(|engine| engine.id() == id)
}

/// The first engine that works here and runs programs on this processor.
///
/// # Errors
/// [`EngineError::Forbidden`] with why each does not.
pub fn preferred() -> Result<&'static dyn Engine, EngineError> {
    let mut causes = Vec::new();
    for engine in ENGINES.iter().copied().filter(|engine| !engine.is_emulator()) {
        match engine.available() {
            Capability::Present => return Ok(engine),
            Capability::Absent { cause } => causes.push(format!("{}: {cause}", engine.id())),
        }
    }
    Err(EngineError::Forbidden(causes.join("; ")))
}

/// What is changed where a run begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change<'a> {
    /// Nothing: it is held and let go as with the others.
    Nothing,
    /// Code is replaced.
    Code(&'a Patch),
    /// Operands and results that are denormal numbers become zero, as far as the SSE and AVX units compute them, in the
    /// main thread and in those that it starts; the code replaced is that which would change it back.
    FlushToZero(&'a Patch),
    /// All its threads stay on one of the processors that it may use.
    OneProcessor,
    /// The kernel gives it no huge pages unasked.
    SmallPages,
}

/// An instruction that met denormal numbers in a stretch of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenormalSite {
    /// The file that holds it.
    pub file: PathBuf,
    /// Where in that.
    pub offset: FileOffset,
    /// How often it met them.
    pub times: u32,
}

/// Runs are changed on x86-64 only.
///
/// # Errors
/// Always.
#[cfg(not(target_arch = "x86_64"))]
pub fn run_changed(_: &Launch, _: Change<'_>, _: Limits<'_>) -> Result<Exit, EngineError> {
    Err(EngineError::Forbidden("only runs of x86-64 programs can be changed".into()))
}

/// Denormal numbers are looked for on x86-64 only.
///
/// # Errors
/// Always.
#[cfg(not(target_arch = "x86_64"))]
pub fn denormals(_: &Launch, _: Duration, _: Limits<'_>) -> Result<Vec<DenormalSite>, EngineError> {
    Err(EngineError::Forbidden("only x86-64 processors tell of denormal numbers".into()))
}

/// Why a window could not be followed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The command itself could not be run.
    #[error(transparent)]
    Child(#[from] crate::run::child::ChildError),
    /// The system forbids tracing.
    #[error("cannot trace: {0}")]
    Forbidden(String),
    /// Execution never came to the start of the window.
    #[error("the window never started: {0}")]
    NeverStarted(String),
    /// A run that was to be followed to its end went on for longer than it may take.
    #[error("{engine} followed the run for {seconds:.0} s, and it went on")]
    OutOfTime {
        /// Id of the engine.
        engine: &'static str,
        /// What the window's budget left for that.
        seconds: f64,
    },
    /// The program or the system did something that the engine does not support.
    #[error("{engine} cannot follow this run: {reason}")]
    Unsupported {
        /// Id of the engine.
        engine: &'static str,
        /// What happened.
        reason: String,
    },
}

impl Recording {
    /// Whether what was followed is what the program did, as far as that was compared.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] with what differs.
    pub fn checked(&self) -> Result<(), EngineError> {
        match &self.self_check {
            SelfCheck::Differs(reason) => {
                let reason = reason.clone();
                Err(EngineError::Unsupported { engine: self.engine, reason })
            }
            SelfCheck::NotCompared | SelfCheck::Equal(_) => Ok(()),
        }
    }
}

impl EngineError {
    /// Whether the user wants an end.
    #[must_use]
    pub fn is_interrupt(&self) -> bool {
        matches!(self, Self::Child(crate::run::child::ChildError::Interrupted))
    }
}
