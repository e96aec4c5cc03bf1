//! One recording from attaching to the report: which phase the original is in, and what is next.

use std::io;
use std::time::{Duration, Instant};

use super::calls::Calls;
use super::driver::{Counts, DriveError, Driver, Outcome};
use super::finish::Finish;
use super::origin::{Event, Origin, TURN};
use super::process::{Process, Registers};
use super::setup::{self, SetupError};
use super::stepping::Stepping;
use super::translator::Translator;
use super::verify::{self, Comparison};
use super::{EngineError, ID, Recording, Sink, Window};
use crate::model::{Avma, FileOffset};
use crate::trace::child::{ChildError, Exit, Limits, Status};
use crate::trace::engine::{Ended, Length, Mapping, Start};

/// The original is stopped at most so often on its way to the window's end.
const MOST_ARRIVALS: u64 = 20_000;

/// What the session waits for.
enum Phase {
    /// The program is to be executed.
    Exec,
    /// It is to come to its own first instruction.
    Entry { address: u64 },
    /// It is to come to the window's start.
    Start { address: u64, left: u64 },
    /// The original runs the window by itself.
    Check(Box<Check>),
    /// The original is followed step by step.
    Stepping(Box<Stepping>),
    /// It runs to its end.
    Free,
}

/// What is needed to compare at the window's end.
struct Check {
    copy: Process,
    control: Process,
    program: Registers,
    finish: Finish,
    control_finish: Finish,
    is_checkable: bool,
    calls: Calls,
    tid: i32,
}

/// A recording in progress.
pub(super) struct Session<'a> {
    origin: Origin,
    window: &'a Window,
    limits: Limits<'a>,
    sink: &'a mut dyn Sink,
    phase: Phase,
    began: Instant,
    failure: Option<EngineError>,
    engine: &'static str,
    /// Follows the original step by step from the start, without a copy.
    pub(super) only_step: bool,
    instructions: u64,
    wall_ns: u64,
    ended: Option<Ended>,
    exit_code: Option<i32>,
    mappings: Vec<Mapping>,
    self_check: Option<Result<String, String>>,
    notes: Vec<String>,
}

impl<'a> Session<'a> {
    pub(super) fn attach(
        pid: i32,
        window: &'a Window,
        limits: Limits<'a>,
        sink: &'a mut dyn Sink,
    ) -> Result<Self, EngineError> {
        Ok(Self {
            origin: Origin::attach(pid)?,
            window,
            limits,
            sink,
            phase: Phase::Exec,
            began: Instant::now(),
            failure: None,
            engine: ID,
            only_step: false,
            instructions: 0,
            wall_ns: 0,
            ended: None,
            exit_code: None,
            mappings: Vec::new(),
            self_check: None,
            notes: Vec::new(),
        })
    }

    /// One turn. Called while the child runs, from the thread that started it.
    pub(super) fn tick(&mut self) -> Result<(), ChildError> {
        let done = self.turn();
        match done {
            Ok(()) => Ok(()),
            Err(EngineError::Child(error)) => Err(error),
            Err(error) => {
                self.failure = Some(error);
                self.phase = Phase::Free;
                self.origin.let_go().map_err(system)?;
                // Nobody wants the rest of the run.
                // SAFETY: plain integers; the group is the child's own.
                unsafe { libc::killpg(self.origin.pid, libc::SIGKILL) };
                Ok(())
            }
        }
    }

    fn turn(&mut self) -> Result<(), EngineError> {
        if let Phase::Free = self.phase {
            return Ok(());
        }
        if let Phase::Stepping(stepping) = &mut self.phase {
            // What the other threads do must be answered too.
            self.origin.turn(Duration::ZERO).map_err(failed)?;
            let ended = stepping.some(self.sink).map_err(failed)?;
            self.instructions = stepping.instructions;
            if let Some(outcome) = ended {
                self.over(&outcome)?;
            }
            return Ok(());
        }
        let event = self.origin.turn(TURN).map_err(failed)?;
        match event {
            Event::Nothing => {}
            Event::Gone => self.phase = Phase::Free,
            Event::Exec => self.executed()?,
            Event::Arrived { tid, address } => self.arrived(tid, address)?,
        }
        Ok(())
    }

    fn executed(&mut self) -> Result<(), EngineError> {
        if !matches!(self.phase, Phase::Exec) {
            // It replaced itself before the window, or behind it.
            self.origin.let_go().map_err(failed)?;
            self.phase = Phase::Free;
            return Ok(());
        }
        let address = self.origin.entry().map_err(failed)?;
        self.origin.put(address).map_err(failed)?;
        self.phase = Phase::Entry { address };
        self.origin.go_all().map_err(failed)
    }

    fn arrived(&mut self, tid: i32, address: u64) -> Result<(), EngineError> {
        match &mut self.phase {
            Phase::Entry { address: entry } if *entry == address => {
                self.origin.take(address).map_err(failed)?;
                let start = self.origin.resolve(&self.window.start)?;
                if start == address {
                    return self.record_from(tid, address);
                }
                self.origin.put(start).map_err(failed)?;
                self.phase = Phase::Start { address: start, left: self.window.skip };
                self.origin.go(tid).map_err(failed)
            }
            Phase::Start { address: start, left } if *start == address => {
                if *left > 0 {
                    *left -= 1;
                    return self.origin.pass(tid, address).map_err(failed);
                }
                self.record_from(tid, address)
            }
            Phase::Check(check) => {
                let thread = Process::borrowed(tid).map_err(failed)?;
                let registers = thread.registers().map_err(failed)?;
                let before = check.finish.address();
                if tid != check.tid || !check.finish.arrived(&registers, &thread) {
                    let next = check.finish.address();
                    if tid == check.tid && next != before {
                        self.origin.take(before).map_err(failed)?;
                        self.origin.put(next).map_err(failed)?;
                        return self.origin.go(tid).map_err(failed);
                    }
                    return self.origin.pass(tid, address).map_err(failed);
                }
                self.check(tid)
            }
            _ => self.origin.pass(tid, address).map_err(failed),
        }
    }

    /// The original stands at the window's start: fork, translate, run.
    fn record_from(&mut self, tid: i32, address: u64) -> Result<(), EngineError> {
        self.origin.take(address).map_err(failed)?;
        let threads = self.origin.hold_all().map_err(failed)?;
        if threads > 1 {
            self.notes.push(format!(
                "the other {} threads stood still while the copy ran and are not followed",
                threads - 1
            ));
        }
        if self.only_step {
            return self.step_instead(tid, "asked for");
        }
        let began = Instant::now();
        let copied = self.in_copy(tid);
        self.wall_ns = began.elapsed().as_nanos() as u64;
        match copied {
            Ok((outcome, check)) => self.copied(outcome, check),
            Err(Setback::Setup(error)) => self.step_instead(tid, &error.to_string()),
            Err(Setback::Engine(error)) => Err(error),
        }
    }

    /// Runs the window in a copy.
    fn in_copy(&mut self, tid: i32) -> Result<(Outcome, Check), Setback> {
        let mut thread = Process::borrowed_for_calls(tid).map_err(SetupError::System)?;
        let entry = thread.registers().map_err(SetupError::System)?;
        let mut copy = thread.fork().map_err(SetupError::System)?;
        let mut control = thread.fork().map_err(SetupError::System)?;
        self.origin.deliver_later(tid, &thread.held);
        setup::unshare(&mut copy)?;
        setup::unshare(&mut control)?;
        let region = setup::make_region(&mut copy)?;
        let translator = Translator::new(region, self.window.memory);
        let calls = || Calls::new(self.origin.pid, tid);
        let mut driver = Driver::new(
            copy,
            translator,
            calls(),
            self.window.length,
            self.sink,
            self.limits.interrupt,
        )
        .map_err(SetupError::System)?;
        driver.deadline = self.limits.timeout.map(|limit| self.began + limit);
        let outcome = driver.run().map_err(|error| match error {
            DriveError::Interrupted => Setback::Engine(ChildError::Interrupted.into()),
            DriveError::TimedOut => Setback::Engine(ChildError::Interrupted.into()),
            DriveError::System(cause) => Setback::Setup(SetupError::System(cause)),
        })?;
        self.instructions = driver.counts.instructions;
        note_counts(&mut self.notes, &driver.counts, &driver.calls);
        let finish = match self.window.length {
            Length::Calls(n) => Finish::new(n, &entry, &thread),
            Length::Instructions(_) => Finish::at(driver.program.rip, driver.arrivals() + 1),
        };
        let check = Check {
            program: driver.program,
            is_checkable: finish.arrivals_left() <= MOST_ARRIVALS && driver.counts_are_whole(),
            finish,
            control_finish: finish,
            calls: calls(),
            copy: driver.copy,
            control,
            tid,
        };
        Ok((outcome, check))
    }

    /// The copy has come to the window's end, or not.
    fn copied(&mut self, outcome: Outcome, check: Check) -> Result<(), EngineError> {
        match outcome {
            Outcome::GaveUp(reason) => {
                let tid = check.tid;
                drop(check);
                self.step_instead(tid, &reason)
            }
            Outcome::Length
                if check.is_checkable && self.origin.put(check.finish.address()).is_ok() =>
            {
                self.ended = Some(Ended::Length);
                self.remember_mappings(check.copy.pid);
                self.phase = Phase::Check(Box::new(check));
                self.origin.go_all().map_err(failed)
            }
            outcome => {
                if outcome == Outcome::Length {
                    self.notes.push(
                        "not compared with the original: where the window ends cannot be told from \
                         earlier passes there, or holds no code yet when it starts"
                            .into(),
                    );
                }
                self.remember_mappings(check.copy.pid);
                drop(check);
                self.over(&outcome)
            }
        }
    }

    /// Follows the original itself from the window's start.
    fn step_instead(&mut self, tid: i32, reason: &str) -> Result<(), EngineError> {
        self.sink.restart();
        self.notes.clear();
        self.notes.push(format!("followed step by step instead of translated: {reason}"));
        self.engine = "step";
        self.began = Instant::now();
        let thread = Process::borrowed(tid).map_err(failed)?;
        let is_main = tid == self.origin.pid;
        let stepping = Stepping::new(thread, self.window.length, self.window.memory, is_main)
            .map_err(failed)?;
        self.origin.go_others(tid).map_err(failed)?;
        self.phase = Phase::Stepping(Box::new(stepping));
        Ok(())
    }

    /// The window is over and the original has nothing left to be checked.
    fn over(&mut self, outcome: &Outcome) -> Result<(), EngineError> {
        if self.engine != ID {
            self.wall_ns = self.began.elapsed().as_nanos() as u64;
            self.remember_mappings(self.origin.pid);
        }
        self.ended = Some(match outcome {
            Outcome::Length | Outcome::GaveUp(_) => Ended::Length,
            Outcome::Exit(code) => {
                self.exit_code = Some(*code);
                Ended::Exit
            }
            Outcome::Exec => Ended::Exec,
            Outcome::Signal(number) => Ended::Signal(*number),
        });
        self.phase = Phase::Free;
        self.origin.let_go().map_err(failed)
    }

    /// Copy and original both stand at the window's end.
    fn check(&mut self, tid: i32) -> Result<(), EngineError> {
        let Phase::Check(check) = std::mem::replace(&mut self.phase, Phase::Free) else {
            return Ok(());
        };
        self.origin.hold_all().map_err(failed)?;
        self.origin.take(check.finish.address()).map_err(failed)?;
        let original = Process::borrowed(tid).map_err(failed)?;
        let mut check = *check;
        let mut found = verify::compare(&check.copy, &check.program, &original).map_err(failed)?;
        let mut excused = 0;
        if !found.is_equal() {
            let ended =
                verify::run_natively(&mut check.control, &mut check.calls, check.control_finish)
                    .map_err(failed)?;
            if let Some(registers) = ended {
                let control =
                    verify::compare(&check.control, &registers, &original).map_err(failed)?;
                let before = found.pages.len();
                found.excuse(&control);
                excused = before - found.pages.len();
            }
        }
        self.self_check = Some(verdict(&found, excused));
        self.origin.let_go().map_err(failed)
    }

    fn remember_mappings(&mut self, pid: i32) {
        let maps = setup::maps(pid).unwrap_or_default();
        self.mappings = maps
            .into_iter()
            .filter(|m| m.executable && !setup::is_ours(m))
            .map(|m| Mapping {
                start: Avma(m.start),
                end: Avma(m.end),
                path: m.path.into(),
                file_offset: FileOffset(m.offset),
            })
            .collect();
    }

    /// The report, once the command has ended.
    pub(super) fn finish(self, exit: Result<Exit, ChildError>) -> Result<Recording, EngineError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let exit = exit?;
        let Some(ended) = self.ended else {
            let what = match &self.window.start {
                Start::Entry => "its first instruction".to_owned(),
                Start::At { svma, .. } => format!("{svma}, after {} arrivals", self.window.skip),
            };
            return Err(EngineError::NeverStarted(format!(
                "the command ended ({}) without coming to {what}",
                exit.status
            )));
        };
        let by_exit = match (ended, exit.status) {
            (Ended::Exit, Status::Code(code)) => Some(self.exit_code.map_or(
                Err("the copy does not say how it ended".to_owned()),
                |copy| {
                    let text = format!("copy and original both exit with code {code}");
                    if copy == code {
                        Ok(text)
                    } else {
                        Err(format!("the copy exits with code {copy}, the original with {code}"))
                    }
                },
            )),
            (Ended::Signal(copy), Status::Signal(original)) => Some(if copy == original {
                Ok(format!("signal {copy} ends copy and original"))
            } else {
                Err(format!("signal {copy} ends the copy, {original} the original"))
            }),
            _ => None,
        };
        Ok(Recording {
            engine: self.engine,
            instructions: self.instructions,
            wall_ns: self.wall_ns,
            ended,
            mappings: self.mappings,
            self_check: if self.engine == ID { self.self_check.or(by_exit) } else { None },
            notes: self.notes,
            exit,
        })
    }
}

/// Why there is no result from a copy.
enum Setback {
    /// It cannot be made or driven here; the original can still be stepped.
    Setup(SetupError),
    Engine(EngineError),
}

impl From<SetupError> for Setback {
    fn from(error: SetupError) -> Self {
        Self::Setup(error)
    }
}

fn failed(cause: io::Error) -> EngineError {
    EngineError::Unsupported { engine: ID, reason: cause.to_string() }
}

fn system(cause: io::Error) -> ChildError {
    ChildError::System { action: "let the command go", cause }
}

fn verdict(found: &Comparison, excused: usize) -> Result<String, String> {
    let mut text = format!(
        "18 registers and {} pages of memory equal the original's at the window's end",
        found.compared_pages as usize - found.pages.len()
    );
    if excused > 0 {
        text.push_str(&format!("; {excused} pages differ as they do between two native runs"));
    }
    if found.left_out_bytes > 0 {
        text.push_str(&format!("; {} MiB were not compared", found.left_out_bytes >> 20));
    }
    if found.is_equal() {
        return Ok(text);
    }
    let mut what = found.registers.join(", ");
    if !found.pages.is_empty() {
        if !what.is_empty() {
            what.push_str(" and ");
        }
        what.push_str(&format!(
            "{} pages of memory, first at {:#x}",
            found.pages.len(),
            found.bytes.first().copied().unwrap_or(0)
        ));
    }
    Err(format!("at the window's end these differ from the original's: {what}"))
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
