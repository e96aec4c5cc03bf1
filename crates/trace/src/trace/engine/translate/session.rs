//! One recording: to the window's start, through it in a copy, and the comparisons behind it.
//!
//! The copy is believed when a second copy, which ran the window natively under the same rules for
//! system calls, ends as it does. Until then the original stands at the window's start, so that a
//! copy that is not believed, or cannot be made, costs only time: a shorter window is tried, as long
//! as it tells more than stepping, and then the original is stepped. Last the original runs the
//! window itself, and what differs from it is reported.

mod check;

use std::io;
use std::time::{Duration, Instant};

use super::calls::Calls;
use super::driver::{Counts, DriveError, Driver, FEW_ARRIVALS, Outcome};
use super::finish::Finish;
use super::setup::{self, SetupError};
use super::translator::Translator;
use super::{EngineError, ID, Recording, Sink, Window};
use crate::foreign::has_filter;
use crate::model::Avma;
use crate::run::child::{Exit, Limits, Status};
use crate::trace::engine::process::{Process, Registers};
use crate::trace::engine::target::Target;
use crate::trace::engine::{CodePage, Ended, Length, Mapping, SelfCheck, step};

/// A window that the copy could not follow to its end is kept if it has so many instructions.
const ENOUGH_TO_KEEP: u64 = 100_000;

/// The original is stepped for so many instructions at most, which takes half a minute.
const MOST_STEPPED: u64 = 1_000_000;

/// A copy that is refused at one length is tried again at this part of it: less time goes by, in
/// which threads and clocks can interfere.
const RETRY_DIVISOR: u64 = 8;

/// Windows that are tried in a copy.
const MOST_TRIES: u32 = 6;

/// Of the time that a window may take, what is kept for stepping should the copy not be believed.
const KEPT_FOR_STEPPING: u32 = 4;

/// Records a window.
pub(super) fn record(
    mut target: Target<'_>,
    window: &Window,
    limits: Limits<'_>,
    sink: &mut dyn Sink,
) -> Result<Recording, EngineError> {
    let tid = target.run_to(&window.start, window.skip)?;
    let began = Instant::now();
    let mut session = Session { target, tid, window, limits, began, notes: Vec::new() };
    let threads = session.target.stop_others()?;
    let reason = match session.in_copies(threads, sink) {
        Ok(told) => return session.finish(told),
        Err(Failure::Engine(error)) => return Err(error),
        Err(Failure::Refused(refused)) => refused.reason,
    };
    if window.length == Length::ToEnd {
        // Stepping is slower yet.
        let is_over = session.copies_until().is_some_and(|until| Instant::now() >= until);
        let seconds = began.elapsed().as_secs_f64();
        return Err(match is_over {
            true => EngineError::OutOfTime { engine: ID, seconds },
            false => EngineError::Unsupported { engine: ID, reason },
        });
    }
    sink.restart();
    session.target.release_others();
    let mut recording = step::record_from(
        session.target,
        tid,
        &Window {
            budget: window.budget.map(|all| all.saturating_sub(began.elapsed())),
            ..window.clone()
        },
        MOST_STEPPED,
        sink,
    )?;
    recording.notes.insert(0, format!("followed step by step instead of translated: {reason}"));
    if recording.ended == Ended::Short && recording.instructions >= MOST_STEPPED {
        recording.notes.push(format!(
            "stepping ends after {} instructions; --engine step has no such limit",
            recording.instructions
        ));
    }
    Ok(recording)
}

/// Why a window in the copy does not count.
struct Refused {
    reason: String,
    /// Instructions from the window's start among which a copy may do better.
    shorter: Option<u64>,
}

/// Why copies tell nothing.
enum Failure {
    /// This copy does not count; the original still stands at the window's start.
    Refused(Refused),
    /// Nothing can be followed any more.
    Engine(EngineError),
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

impl From<String> for Refused {
    fn from(reason: String) -> Self {
        Self { reason, shorter: None }
    }
}

struct Session<'a> {
    target: Target<'a>,
    tid: i32,
    window: &'a Window,
    limits: Limits<'a>,
    /// When the window was reached.
    began: Instant,
    notes: Vec<String>,
}

/// What the copy told, so far not compared.
struct Copied {
    outcome: Outcome,
    copy: Process,
    /// The program's registers where the copy stands.
    program: Registers,
    /// Where natives end the same window, or why that cannot be said.
    finish: Result<Finish, String>,
    instructions: u64,
    /// The instructions before it began to wait for nothing but others.
    waited_since: Option<u64>,
    wall_ns: u64,
    /// What is mapped executable at the window's end.
    mappings: Vec<Mapping>,
    /// All code that was translated last.
    code: Vec<CodePage>,
}

/// What the report will say.
struct Told {
    instructions: u64,
    wall_ns: u64,
    ended: Ended,
    exit_code: Option<i32>,
    mappings: Vec<Mapping>,
    /// Code of none of them.
    code: Vec<CodePage>,
    self_check: SelfCheck,
}

impl Session<'_> {
    /// Follows the window in copies, shorter and shorter while they are not believed.
    fn in_copies(&mut self, threads: usize, sink: &mut dyn Sink) -> Result<Told, Failure> {
        if has_filter(self.tid) {
            let reason = "it runs under a filter of system calls (seccomp), which may kill it for a \
                          call that is put into it";
            return Err(Refused::from(reason.to_owned()).into());
        }
        let mut thread = Process::borrowed_for_calls(self.tid)
            .map_err(|cause| Refused::from(cause.to_string()))?;
        let told = self.in_copies_of(&mut thread, threads, sink);
        if self.target.holds(self.tid) {
            thread.collect_copies();
        }
        told
    }

    fn in_copies_of(
        &mut self,
        thread: &mut Process,
        threads: usize,
        sink: &mut dyn Sink,
    ) -> Result<Told, Failure> {
        let mut length = self.window.length;
        let (mut tries, mut reason) = (0, None);
        loop {
            self.notes.clear();
            self.note_threads(threads);
            let refused = match self.follow(thread, length, sink) {
                Ok(mut told) => {
                    if let Some(reason) = reason {
                        self.end_early(&mut told, reason);
                    }
                    return Ok(told);
                }
                Err(Failure::Refused(refused)) => refused,
                Err(error) => return Err(error),
            };
            tries += 1;
            let in_time = self.copies_until().is_none_or(|until| Instant::now() < until);
            let may_be_shorter =
                self.window.length != Length::ToEnd && tries < MOST_TRIES && in_time;
            match refused.shorter.filter(|n| *n >= ENOUGH_TO_KEEP && may_be_shorter) {
                Some(shorter) => length = Length::Instructions(shorter),
                None => return Err(refused.into()),
            }
            sink.restart();
            reason = Some(refused.reason);
        }
    }

    /// When copies must have told what they can.
    fn copies_until(&self) -> Option<Instant> {
        let for_stepping = |budget: Duration| match self.window.length {
            Length::ToEnd => Duration::ZERO,
            Length::Calls(_) | Length::Instructions(_) => budget / KEPT_FOR_STEPPING,
        };
        self.window.budget.map(|budget| self.began + (budget - for_stepping(budget)))
    }

    fn note_threads(&mut self, threads: usize) {
        let others = match threads {
            0 | 1 => return,
            2 => "the other thread stood still while the copy ran and is not followed".to_owned(),
            n => format!(
                "the other {} threads stood still while the copy ran and are not followed",
                n - 1
            ),
        };
        self.notes.push(others);
    }

    /// A shorter window than the one asked for was followed.
    fn end_early(&mut self, told: &mut Told, reason: String) {
        if told.ended == Ended::Length {
            told.ended = Ended::Short;
        }
        self.notes
            .push(format!("the window ends early, for at its whole length it failed: {reason}"));
    }

    /// Follows `length` from the window's start in a copy, and compares.
    fn follow(
        &mut self,
        thread: &mut Process,
        length: Length,
        sink: &mut dyn Sink,
    ) -> Result<Told, Failure> {
        let mut copied = match self.in_copy(thread, length, sink) {
            Ok(copied) => copied,
            Err(Setback::Setup(error)) => return Err(Refused::from(error.to_string()).into()),
            Err(Setback::Over) => {
                self.target.check_limits()?;
                return Err(failed(io::Error::from(io::ErrorKind::Interrupted)).into());
            }
        };
        if let Some(signal) = std::mem::take(&mut thread.held).pop() {
            self.target.deliver_later(signal);
        }
        let keeps = copied.instructions >= ENOUGH_TO_KEEP;
        let (ended, exit_code) = match &copied.outcome {
            Outcome::Length => (Ended::Length, None),
            Outcome::Exit(code) => (Ended::Exit, Some(*code)),
            Outcome::Exec => (Ended::Exec, None),
            // Whether the original dies is seen when it has run to its end, too.
            Outcome::Signal(number) => {
                if length != Length::ToEnd && !self.native_dies(thread, *number, copied.wall_ns)? {
                    let reason = format!(
                        "signal {number} ends the translated copy at {:#x} and not a native one",
                        copied.program.rip
                    );
                    let shorter = Some(copied.instructions / RETRY_DIVISOR);
                    return Err(Refused { reason, shorter }.into());
                }
                (Ended::Signal(*number), None)
            }
            Outcome::Short(reason) if copied.waited_since.is_some() => {
                // What follows is the waiting itself, and a window may end behind its length.
                let shorter = copied.waited_since.map(|n| n - n / 4);
                return Err(Refused { reason: reason.clone(), shorter }.into());
            }
            Outcome::Short(reason) if keeps && length != Length::ToEnd => {
                self.notes.push(format!("the window ends early: {reason}"));
                (Ended::Short, None)
            }
            Outcome::Short(reason) | Outcome::Lost(reason) => {
                return Err(Refused::from(reason.clone()).into());
            }
        };
        let mut mappings = std::mem::take(&mut copied.mappings);
        mappings.retain(|m| !setup::is_ours(m));
        let mut code = std::mem::take(&mut copied.code);
        let in_file = |page: &CodePage| {
            let mapping = Mapping::find(&mappings, page.start);
            mapping.is_some_and(|(mapping, _)| mapping.path.is_absolute())
        };
        code.retain(|page| !in_file(page));
        let mut told = Told {
            code,
            instructions: copied.instructions,
            wall_ns: copied.wall_ns,
            ended,
            exit_code,
            mappings,
            self_check: SelfCheck::NotCompared,
        };
        if matches!(ended, Ended::Length | Ended::Short) {
            told.self_check = self.compare(thread, copied)?;
        }
        Ok(told)
    }

    /// Runs the window in a copy.
    fn in_copy(
        &mut self,
        thread: &mut Process,
        length: Length,
        sink: &mut dyn Sink,
    ) -> Result<Copied, Setback> {
        let began = Instant::now();
        let entry = thread.registers()?;
        let mut copy = thread.fork()?;
        setup::complete(&mut copy, thread)?;
        let region = setup::make_region(&mut copy)?;
        let memory = self.window.memory;
        let counts = length == Length::ToEnd && !memory;
        let translator = Translator::new(region, memory, counts);
        let calls = self.calls();
        let mut driver = Driver::new(copy, translator, calls, length, sink, self.limits.interrupt)?;
        driver.deadline = self.target.deadline();
        driver.budget_until = self.copies_until();
        let outcome = driver.run().map_err(|error| match error {
            DriveError::Interrupted | DriveError::TimedOut => Setback::Over,
            DriveError::System(cause) => Setback::Setup(cause.into()),
        })?;
        note_counts(&mut self.notes, &driver.counts, &driver.calls.borrow());
        let finish = match length {
            Length::Calls(n) if outcome == Outcome::Length => {
                Ok(Finish::behind_calls(n, &entry, thread))
            }
            _ => arrivals_at_end(&driver, &entry),
        };
        Ok(Copied {
            outcome,
            program: driver.program,
            finish,
            instructions: driver.counts.instructions,
            waited_since: driver.waited_since,
            wall_ns: began.elapsed().as_nanos() as u64,
            mappings: driver.mappings,
            code: driver.translator.pages.into_code(),
            copy: driver.copy,
        })
    }

    fn calls(&self) -> Calls {
        Calls::new(self.target.pid(), self.tid)
    }

    /// Lets the command run to its end, and reports.
    fn finish(mut self, told: Told) -> Result<Recording, EngineError> {
        let exit = self.target.finish()?;
        let by_exit = told.compared_by_exit(exit.as_ref());
        // How a copy ends is not how the command ended.
        let ended =
            if matches!(by_exit, SelfCheck::Differs(_)) { Ended::Short } else { told.ended };
        Ok(Recording {
            engine: ID,
            instructions: told.instructions,
            wall_ns: told.wall_ns,
            ended,
            mappings: told.mappings,
            self_check: match told.self_check {
                SelfCheck::NotCompared => by_exit,
                compared => compared,
            },
            notes: self.notes,
            code: told.code,
            exit,
        })
    }
}

impl Told {
    /// Where the window is the rest of the run, the ways in which copy and original end.
    fn compared_by_exit(&self, exit: Option<&Exit>) -> SelfCheck {
        let Some(exit) = exit else { return SelfCheck::NotCompared };
        match (self.ended, self.exit_code, exit.status) {
            (Ended::Exit, Some(copy), Status::Code(code)) if copy == code => {
                SelfCheck::Equal(format!("copy and original both exit with code {code}"))
            }
            (Ended::Exit, Some(copy), Status::Code(code)) => SelfCheck::Differs(format!(
                "the copy exits with code {copy}, the original with {code}"
            )),
            (Ended::Exit, Some(copy), status) => SelfCheck::Differs(format!(
                "the copy exits with code {copy}, the original: {status}"
            )),
            (Ended::Signal(copy), _, Status::Signal(original)) if copy == original => {
                SelfCheck::Equal(format!("signal {copy} ends copy and original"))
            }
            (Ended::Signal(copy), _, status) => {
                SelfCheck::Differs(format!("signal {copy} ends the copy, the original: {status}"))
            }
            _ => SelfCheck::NotCompared,
        }
    }
}

/// How often natives come to where the copy stands, for them to end there.
fn arrivals_at_end(driver: &Driver<'_>, entry: &Registers) -> Result<Finish, String> {
    if !driver.counts_are_whole() {
        return Err("the program changed its code or took signals in the window, so that its way \
                    to the end cannot be counted"
            .into());
    }
    let (at, arrivals) = (driver.program.rip, driver.arrivals());
    if arrivals <= FEW_ARRIVALS {
        let left = arrivals + 1 - u64::from(at == entry.rip);
        return Ok(Finish::Arrivals { address: Avma(at), left });
    }
    match driver.translator.passage(&driver.copy, at) {
        Ok(passage) => Ok(Finish::Counted { passage, left: arrivals + 1 }),
        Err(why) => Err(format!("it passes the window's end {arrivals} times, and {why}")),
    }
}

/// Why there is no result from a copy.
enum Setback {
    /// It cannot be made or driven here; the original can still be stepped.
    Setup(SetupError),
    /// The user, or the limits, want an end.
    Over,
}

impl From<SetupError> for Setback {
    fn from(error: SetupError) -> Self {
        Self::Setup(error)
    }
}

impl From<io::Error> for Setback {
    fn from(cause: io::Error) -> Self {
        Self::Setup(cause.into())
    }
}

fn failed(cause: io::Error) -> EngineError {
    EngineError::Unsupported { engine: ID, reason: cause.to_string() }
}

fn note_counts(notes: &mut Vec<String>, counts: &Counts, calls: &Calls) {
    if calls.withheld_calls > 0 {
        notes.push(format!(
            "{} system calls with effects outside ({} bytes of output) were made by the original \
             alone and only answered in the copy",
            calls.withheld_calls, calls.withheld_bytes
        ));
    }
    if counts.supervised > counts.instructions / 1000 {
        notes.push(format!(
            "{} of {} instructions were stepped because translation does not cover them",
            counts.supervised, counts.instructions
        ));
    }
    if counts.emptied > 0 {
        notes.push(format!("the program changed its code {} times", counts.emptied));
    }
}
