//! One recording: to the window's start, through it in a copy, and the comparisons behind it.
//!
//! The copy is believed when a second copy, which ran the window natively under the same rules for
//! system calls, ends as it does. Until then the original stands at the window's start, so that a
//! copy that is not believed, or cannot be made, costs only time: a shorter window is tried, as long
//! as it tells more than stepping, and then the original is stepped. Last the original runs the
//! window itself, and what differs from it is reported.

use std::io;
use std::time::{Duration, Instant};

use super::calls::Calls;
use super::driver::{Counts, DriveError, Driver, FEW_ARRIVALS, Outcome};
use super::finish::Finish;
use super::process::{Process, Registers};
use super::setup::{self, SetupError};
use super::translator::Translator;
use super::verify::{self, Comparison, Native, Pace};
use super::{EngineError, ID, Recording, Sink, Window};
use crate::model::Avma;
use crate::trace::child::{Exit, Launch, Limits, Status};
use crate::trace::engine::target::{self, Target};
use crate::trace::engine::{Ended, Length, Mapping, step};
use crate::trace::tracee::State;

/// A window that the copy could not follow to its end is kept if it has so many instructions.
const ENOUGH_TO_KEEP: u64 = 100_000;

/// The original is stepped for so many instructions at most, which takes half a minute.
const MOST_STEPPED: u64 = 1_000_000;

/// Whoever is not believed at one length may be at this part of it: less time goes by, in which
/// threads and clocks can interfere.
const SHORTER: u64 = 8;

/// Windows that are tried in a copy.
const MOST_TRIES: u32 = 6;

/// How fast the native copies run whose differences are excused, one after the other while they are
/// needed.
const PACES: [Pace; 4] = [Pace::Full, Pace::Slow, Pace::Full, Pace::Slow];

/// A native copy may take so much longer than the translated one, which is slower, and this long at least.
const PATIENCE: (u32, Duration) = (4, Duration::from_secs(10));

/// The other threads of a program may be kept waiting so long while the original runs the window
/// alone.
const MOST_WAITING: Duration = Duration::from_secs(2);

/// Of the time that a window may take, what is kept for stepping should the copy not be believed.
const KEPT_FOR_STEPPING: u32 = 4;

/// Records a window.
pub(super) fn record(
    launch: &Launch,
    window: &Window,
    limits: Limits<'_>,
    sink: &mut dyn Sink,
) -> Result<Recording, EngineError> {
    let mut target = Target::start(launch, limits)?;
    let tid = target.run_to(&window.start, window.skip)?;
    let began = Instant::now();
    let mut session = Session { target, tid, window, limits, began, notes: Vec::new() };
    let threads = session.target.stop_others()?;
    let reason = match session.in_copies(threads, sink)? {
        Ok(told) => return session.finish(told),
        Err(reason) => reason,
    };
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
}

/// Native copies at the window's end.
struct Natives {
    /// One with its registers; `None` when it did not get there.
    control: Option<(Process, Registers)>,
    /// How others differ from it.
    noise: Vec<Comparison>,
    /// What of it equals the translated copy.
    equal: String,
}

/// What the report will say.
struct Told {
    instructions: u64,
    wall_ns: u64,
    ended: Ended,
    exit_code: Option<i32>,
    mappings: Vec<Mapping>,
    self_check: Option<Result<String, String>>,
}

impl Session<'_> {
    /// Follows the window in copies, shorter and shorter while they are not believed. The inner
    /// error says why no copy is; the original then still stands at the window's start.
    fn in_copies(
        &mut self,
        threads: usize,
        sink: &mut dyn Sink,
    ) -> Result<Result<Told, String>, EngineError> {
        if setup::has_filter(self.tid) {
            return Ok(Err(
                "it runs under a filter of system calls (seccomp), which may kill it for \
                           a call that is put into it"
                    .into(),
            ));
        }
        let mut thread = match Process::borrowed_for_calls(self.tid) {
            Ok(thread) => thread,
            Err(cause) => return Ok(Err(cause.to_string())),
        };
        let mut length = self.window.length;
        let (mut tries, mut reason) = (0, None);
        loop {
            self.notes.clear();
            self.note_threads(threads);
            let refused = match self.follow(&mut thread, length, sink)? {
                Ok(mut told) => {
                    if let Some(reason) = reason {
                        self.end_early(&mut told, reason);
                    }
                    return Ok(Ok(told));
                }
                Err(refused) => refused,
            };
            tries += 1;
            let in_time = self.copies_until().is_none_or(|until| Instant::now() < until);
            match refused.shorter.filter(|n| *n >= ENOUGH_TO_KEEP && tries < MOST_TRIES && in_time)
            {
                Some(shorter) => length = Length::Instructions(shorter),
                None => return Ok(Err(refused.reason)),
            }
            sink.restart();
            reason = Some(refused.reason);
        }
    }

    /// When copies must have told what they can.
    fn copies_until(&self) -> Option<Instant> {
        self.window.budget.map(|budget| self.began + (budget - budget / KEPT_FOR_STEPPING))
    }

    fn note_threads(&mut self, threads: usize) {
        if threads > 1 {
            self.notes.push(format!(
                "the other {} threads stood still while the copy ran and are not followed",
                threads - 1
            ));
        }
    }

    /// A shorter window than the one asked for was followed.
    fn end_early(&mut self, told: &mut Told, reason: String) {
        if told.ended == Ended::Length {
            told.ended = Ended::Short;
        }
        self.notes
            .push(format!("the window ends early, for at its whole length it failed: {reason}"));
    }

    /// Follows `length` from the window's start in a copy, and compares. The inner error says why
    /// that does not count; the original then still stands at the window's start.
    fn follow(
        &mut self,
        thread: &mut Process,
        length: Length,
        sink: &mut dyn Sink,
    ) -> Result<Result<Told, Refused>, EngineError> {
        let copied = match self.in_copy(thread, length, sink) {
            Ok(copied) => copied,
            Err(Setback::Setup(error)) => return Ok(Err(error.to_string().into())),
            Err(Setback::Over) => {
                self.target.check_limits()?;
                return Err(failed(io::Error::from(io::ErrorKind::Interrupted)));
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
            Outcome::Signal(number) => {
                if !self.native_dies(thread, *number, copied.wall_ns)? {
                    let reason = format!(
                        "signal {number} ends the translated copy at {:#x} and not a native one",
                        copied.program.rip
                    );
                    let shorter = Some(copied.instructions / SHORTER);
                    return Ok(Err(Refused { reason, shorter }));
                }
                (Ended::Signal(*number), None)
            }
            Outcome::Short(reason) if copied.waited_since.is_some() => {
                // What follows is the waiting itself, and a window may end behind its length.
                let shorter = copied.waited_since.map(|n| n - n / 4);
                return Ok(Err(Refused { reason: reason.clone(), shorter }));
            }
            Outcome::Short(reason) if keeps => {
                self.notes.push(format!("the window ends early: {reason}"));
                (Ended::Short, None)
            }
            Outcome::Short(reason) | Outcome::Lost(reason) => {
                return Ok(Err(reason.clone().into()));
            }
        };
        let mut mappings = target::mappings(copied.copy.pid);
        mappings.retain(|m| !setup::is_ours(&m.path.to_string_lossy()));
        let mut told = Told {
            instructions: copied.instructions,
            wall_ns: copied.wall_ns,
            ended,
            exit_code,
            mappings,
            self_check: None,
        };
        if matches!(ended, Ended::Length | Ended::Short) {
            match self.compare(thread, copied)? {
                Ok(check) => told.self_check = check,
                Err(refused) => return Ok(Err(refused)),
            }
        }
        Ok(Ok(told))
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
        let translator = Translator::new(region, self.window.memory);
        let calls = self.calls();
        let mut driver = Driver::new(copy, translator, calls, length, sink, self.limits.interrupt)?;
        driver.deadline = self.target.deadline();
        driver.budget_until = self.copies_until();
        let outcome = driver.run().map_err(|error| match error {
            DriveError::Interrupted | DriveError::TimedOut => Setback::Over,
            DriveError::System(cause) => Setback::Setup(cause.into()),
        })?;
        note_counts(&mut self.notes, &driver.counts, &driver.calls);
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
            copy: driver.copy,
        })
    }

    fn calls(&self) -> Calls {
        Calls::new(self.target.pid(), self.tid)
    }

    /// Compares the copy with native copies, then with the original. `Ok(None)` when nothing could
    /// be compared, which a note says.
    ///
    /// What differs between two native copies is excused: clocks, random numbers. All copies are
    /// forks, so what differs between them and the original is not.
    fn compare(
        &mut self,
        thread: &mut Process,
        copied: Copied,
    ) -> Result<Result<Option<Result<String, String>>, Refused>, EngineError> {
        let finish = match &copied.finish {
            Ok(finish) => finish,
            Err(reason) => {
                self.notes.push(format!("not compared with the original: {reason}"));
                return Ok(Ok(None));
            }
        };
        let natives = match self.confirmed(thread, &copied, finish)? {
            Ok(natives) => natives,
            Err(refused) => return Ok(Err(refused)),
        };
        let by_native = natives.control.is_some().then(|| Ok(natives.equal.clone()));
        if by_native.is_none() {
            self.notes.push("no native copy came to the window's end".into());
        }
        if let Finish::Counted { left, .. } = finish {
            self.notes.push(format!(
                "compared with a native copy and not with the original, which passes the window's \
                 end {left} times"
            ));
            return Ok(Ok(by_native));
        }
        // Started last and not run yet, for what the time of day changes.
        let mut late = self.fork(thread)?;
        let signals = self.target.signals_delivered();
        let Some(at) = self.original_at_end(finish)? else {
            self.notes
                .push("not compared with the original: it did not come to the window's end".into());
            return Ok(Ok(by_native));
        };
        let mut found =
            verify::compare(&copied.copy, &copied.program, thread, &at).map_err(failed)?;
        let before = found.pages.len();
        natives.noise.iter().for_each(|two| found.excuse(two));
        if !found.is_equal()
            && let (Some((control, its)), Some(late)) = (&natives.control, &mut late)
            && let Native::Arrived(at) =
                self.run_native(late, finish, patience(copied.wall_ns), Pace::Full)?
        {
            found.excuse(&verify::compare(late, &at, control, its).map_err(failed)?);
        }
        let signals = self.target.signals_delivered() - signals;
        let cause = if signals > 0 {
            format!("{signals} signals came to it in the window, and copies get none")
        } else if !self.target.others_stand_still() {
            "it needed its other threads to come to the window's end".into()
        } else {
            let excused = before - found.pages.len();
            return Ok(Ok(Some(verdict(&found, excused, "the original's"))));
        };
        self.notes.push(format!("not compared with the original: {cause}"));
        Ok(Ok(by_native))
    }

    /// Whether a signal that ends the translated copy also ends a native one.
    fn native_dies(
        &self,
        thread: &mut Process,
        signal: i32,
        wall_ns: u64,
    ) -> Result<bool, EngineError> {
        let Some(mut copy) = self.fork(thread)? else { return Ok(true) };
        let end = self.run_native(&mut copy, &Finish::Never, patience(wall_ns), Pace::Full)?;
        Ok(matches!(end, Native::Killed(number) if number == signal))
    }

    /// Whether native copies end as the translated one does. The inner error says how they do not.
    fn confirmed(
        &self,
        thread: &mut Process,
        copied: &Copied,
        finish: &Finish,
    ) -> Result<Result<Natives, Refused>, EngineError> {
        let patience = patience(copied.wall_ns);
        let control = self.native(thread, finish, patience, Pace::Full)?;
        let mut natives = Natives { control: None, noise: Vec::new(), equal: String::new() };
        let Some((control, at)) = control else { return Ok(Ok(natives)) };
        let mut found =
            verify::compare(&copied.copy, &copied.program, &control, &at).map_err(failed)?;
        let before = found.pages.len();
        for pace in PACES {
            if found.is_equal() {
                break;
            }
            if let Some((other, its)) = self.native(thread, finish, patience, pace)? {
                let two = verify::compare(&other, &its, &control, &at).map_err(failed)?;
                found.excuse(&two);
                natives.noise.push(two);
            }
        }
        match verdict(&found, before - found.pages.len(), "a native copy's") {
            Ok(equal) => natives.equal = equal,
            Err(_) => {
                let what = differences(&found);
                let reason = format!(
                    "at {:#x} the translated copy is not what a native one is: {what}",
                    copied.program.rip
                );
                let shorter = Some(copied.instructions / SHORTER);
                return Ok(Err(Refused { reason, shorter }));
            }
        }
        natives.control = Some((control, at));
        Ok(Ok(natives))
    }

    /// A copy at the window's start; `None` when it cannot be made as the others were.
    fn fork(&self, thread: &mut Process) -> Result<Option<Process>, EngineError> {
        let mut copy = thread.fork().map_err(failed)?;
        Ok(setup::complete(&mut copy, thread).is_ok().then_some(copy))
    }

    fn run_native(
        &self,
        copy: &mut Process,
        finish: &Finish,
        patience: Duration,
        pace: Pace,
    ) -> Result<Native, EngineError> {
        match verify::run_natively(copy, &mut self.calls(), finish.clone(), patience, pace) {
            Ok(native) => Ok(native),
            // No room for a counter, or the like.
            Err(SetupError::Unsuitable(_) | SetupError::Call { .. }) => Ok(Native::Lost),
            Err(SetupError::System(cause)) => Err(failed(cause)),
        }
    }

    /// A copy that ran the window natively, and its registers there; `None` when it got lost.
    fn native(
        &self,
        thread: &mut Process,
        finish: &Finish,
        patience: Duration,
        pace: Pace,
    ) -> Result<Option<(Process, Registers)>, EngineError> {
        let Some(mut copy) = self.fork(thread)? else { return Ok(None) };
        Ok(match self.run_native(&mut copy, finish, patience, pace)? {
            Native::Arrived(registers) => Some((copy, registers)),
            Native::Killed(_) | Native::Lost => None,
        })
    }

    /// Lets the original run the window; its registers at the end. The other threads stand still as
    /// they do in the copies, unless it takes too long.
    fn original_at_end(&mut self, finish: &Finish) -> Result<Option<Registers>, EngineError> {
        let mut finish = finish.clone();
        self.target.release_others_after(MOST_WAITING);
        loop {
            // From the window's start, or from a stop on the way, without that stop; see `run_natively`.
            match self.target.step(self.tid, 0, true)? {
                State::Stopped { signal, event: 0 } if signal != libc::SIGTRAP => {
                    self.target.deliver_later(signal);
                }
                State::Stopped { .. } => {}
                State::Gone | State::Running => return Ok(None),
            }
            if !self.target.run_until(self.tid, &finish.addresses())? {
                return Ok(None);
            }
            let thread = Process::borrowed(self.tid).map_err(failed)?;
            let registers = thread.registers().map_err(failed)?;
            if finish.arrived(&registers, &thread) {
                return Ok(Some(registers));
            }
        }
    }

    /// Lets the command run to its end, and reports.
    fn finish(mut self, told: Told) -> Result<Recording, EngineError> {
        let exit = self.target.finish()?;
        let by_exit = told.compared_by_exit(&exit);
        // How a copy ends is not how the command ended.
        let ended = if matches!(by_exit, Some(Err(_))) { Ended::Short } else { told.ended };
        Ok(Recording {
            engine: ID,
            instructions: told.instructions,
            wall_ns: told.wall_ns,
            ended,
            mappings: told.mappings,
            self_check: told.self_check.or(by_exit),
            notes: self.notes,
            exit,
        })
    }
}

impl Told {
    /// Where the window is the rest of the run, the ways in which copy and original end.
    fn compared_by_exit(&self, exit: &Exit) -> Option<Result<String, String>> {
        match (self.ended, exit.status) {
            (Ended::Exit, Status::Code(code)) => {
                let copy = self.exit_code?;
                Some(if copy == code {
                    Ok(format!("copy and original both exit with code {code}"))
                } else {
                    Err(format!("the copy exits with code {copy}, the original with {code}"))
                })
            }
            (Ended::Signal(copy), Status::Signal(original)) if copy == original => {
                Some(Ok(format!("signal {copy} ends copy and original")))
            }
            (Ended::Exit, _) => {
                let code = self.exit_code?;
                Some(Err(format!("the copy exits with code {code}, the original: {}", exit.status)))
            }
            (Ended::Signal(copy), _) => {
                Some(Err(format!("signal {copy} ends the copy, the original: {}", exit.status)))
            }
            _ => None,
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

/// How long a native copy of what the translated one did may take.
fn patience(wall_ns: u64) -> Duration {
    PATIENCE.1.max(Duration::from_nanos(wall_ns) * PATIENCE.0)
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

fn verdict(found: &Comparison, excused: usize, whose: &str) -> Result<String, String> {
    if !found.is_equal() {
        return Err(format!(
            "at the window's end these differ from {whose}: {}",
            differences(found)
        ));
    }
    let mut text = format!(
        "18 registers and {} pages of memory equal {whose} at the window's end",
        found.compared_pages as usize - excused
    );
    if excused > 0 {
        text.push_str(&format!("; {excused} pages differ as they do between two native runs"));
    }
    if found.left_out_bytes > 0 {
        text.push_str(&format!("; {} MiB were not compared", found.left_out_bytes >> 20));
    }
    Ok(text)
}

fn differences(found: &Comparison) -> String {
    let registers = found.registers.iter();
    let mut what = registers
        .map(|(name, ours, theirs)| format!("{name} ({ours:#x}, not {theirs:#x})"))
        .collect::<Vec<_>>()
        .join(", ");
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
    what
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
