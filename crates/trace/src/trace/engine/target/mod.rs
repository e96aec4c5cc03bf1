//! A command under observation: started, run to the start of a window, stopped there, let go.
//!
//! Every engine that follows the original needs this part, and none needs to know how it is done.
//! The command is traced from its first instruction, so that it can be stopped at the start of the
//! window in whatever thread comes there first. That stop is one of the processor's own four
//! breakpoints, set in every thread: the program's text is not touched, and threads that do not
//! come there are not slowed down. In the window only the thread that arrived is held; the others
//! run on, and their stops (signals, new threads) are answered between our steps.
//!
//! When we die, the kernel kills the command; when a [`Target`] is dropped, we do. A process that ran before
//! ([`Target::attach`]) is let go instead, each time.

mod after;
mod attached;
mod ending;
mod others;
mod place;
mod rights;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{EngineError, Mapping, Start, Subject};
use crate::foreign::Status;
use crate::model::Avma;
use crate::run::child::{Child, ChildError, Launch, Limits};
use crate::run::maps;
use crate::run::tracee::{self, News, Slot, State};
use after::Looks;
pub(super) use place::offset_of;
use place::{StartAddress, Wanted};
pub(super) use rights::capability;
use rights::{loses_rights, why_forbidden};

/// Threads are followed.
const FOLLOWED: libc::c_int = libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT
    | libc::PTRACE_O_TRACESYSGOOD;
/// And the command never outlives us.
const OPTIONS: libc::c_int = FOLLOWED | libc::PTRACE_O_EXITKILL;
/// Where a window starts in whatever process is at work, the processes that the command starts are followed, too.
const OPTIONS_WITH_CHILDREN: libc::c_int =
    OPTIONS | libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK;

/// A stop at a system call, told from a trap by this bit.
const SYSTEM_CALL_STOP: i32 = libc::SIGTRAP | 0x80;
/// Looks without news after which we sleep between looks.
const EAGER_LOOKS: u32 = 100;
/// The first and the longest sleep between looks.
const NAPS: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

/// A running command that we trace, or a process that ran before.
pub(super) struct Target<'a> {
    child: Option<Child>,
    /// Whether it ran before: it is not ours to end.
    is_attached: bool,
    /// Since when.
    began: Instant,
    /// The process that was started, or attached to.
    leader: i32,
    /// The process of the window: that one, or one that it has started.
    pid: i32,
    /// Per thread of all of them, whether it has the breakpoint.
    threads: HashMap<i32, bool>,
    /// The thread that is stopped in our hands, if one is.
    held: Option<i32>,
    /// Other threads that are kept stopped, and the signal that each is still to get.
    parked: Vec<(i32, i32)>,
    /// Whether other threads run since they were stopped.
    others_run: bool,
    /// When they are let go although the held thread has not come to where it should.
    release_at: Option<Instant>,
    /// Signals of the program that were delivered.
    signals: u64,
    /// A signal that the held thread is still to get when it is let go.
    undelivered: i32,
    breakpoint: Option<Avma>,
    /// A library that is not loaded yet: system calls are watched until it is.
    awaited: Option<Wanted>,
    looks: Looks,
    limits: Limits<'a>,
    path: PathBuf,
    memory: Option<File>,
}

impl<'a> Target<'a> {
    /// A command that stands before its first instruction, or a process that runs on, traced.
    ///
    /// # Errors
    /// As [`Target::start`] and [`Target::attach`].
    pub(super) fn of(subject: Subject<'_>, limits: Limits<'a>) -> Result<Self, EngineError> {
        match subject {
            Subject::Command(launch) => Self::start(launch, limits),
            Subject::Process(pid) => Self::attach(pid, limits),
        }
    }

    /// Starts the command and stops it before its first instruction (the dynamic loader's, if it
    /// has one).
    ///
    /// # Errors
    /// When the command cannot be executed, and when the system forbids tracing.
    pub(super) fn start(launch: &Launch, limits: Limits<'a>) -> Result<Self, EngineError> {
        if let Some(reason) = loses_rights(&launch.program) {
            return Err(EngineError::Forbidden(reason));
        }
        let child = Child::hold(launch)?;
        let pid = child.pid();
        tracee::seize(pid, OPTIONS)
            .map_err(|cause| EngineError::Forbidden(why_forbidden(&cause)))?;
        let mut target = Self::new(pid, Some(child), launch.program.clone(), limits);
        target.threads.insert(pid, false);
        if let Some(child) = &mut target.child {
            child.start()?;
        }
        loop {
            match target.next()? {
                News::Stopped { tid, event: libc::PTRACE_EVENT_EXEC, .. } => {
                    target.hold(tid);
                    return Ok(target);
                }
                News::Stopped { tid, signal, event } => target.answer(tid, signal, event)?,
                News::Ended => {
                    // The kernel did not accept the program, and `wait` says why.
                    let exit = target.finish_command()?;
                    return Err(EngineError::NeverStarted(format!(
                        "it ended with {}",
                        exit.status
                    )));
                }
                News::None | News::Gone { .. } => {}
            }
        }
    }

    fn new(pid: i32, child: Option<Child>, path: PathBuf, limits: Limits<'a>) -> Self {
        Self {
            is_attached: child.is_none(),
            child,
            began: Instant::now(),
            leader: pid,
            pid,
            threads: HashMap::new(),
            held: None,
            parked: Vec::new(),
            others_run: false,
            release_at: None,
            signals: 0,
            undelivered: 0,
            breakpoint: None,
            awaited: None,
            looks: Looks::default(),
            limits,
            path,
            memory: None,
        }
    }

    /// Runs the command until a thread has come to `start` once more than `skip` times; that
    /// thread is then held before the instruction there.
    ///
    /// # Errors
    /// [`EngineError::NeverStarted`] when the command ends before.
    pub(super) fn run_to(&mut self, start: &Start, skip: u64) -> Result<i32, EngineError> {
        match start {
            Start::After(time) => return self.run_for(*time, false),
            Start::AfterInMadeCode(time) => return self.run_for(*time, true),
            Start::Entry | Start::At { .. } => {}
        }
        match place::find(self.pid, start).map_err(EngineError::NeverStarted)? {
            StartAddress::At(address) => self.breakpoint = Some(address),
            StartAddress::NotLoaded(wanted) => self.awaited = Some(wanted),
        }
        let mut arrivals = 0_u64;
        match self.held.take() {
            Some(tid) => {
                self.arm(tid)?;
                self.go(tid, 0);
            }
            None => self.interrupt_all(),
        }
        loop {
            match self.next()? {
                News::Stopped { tid, signal: libc::SIGTRAP, event: 0 } if self.has_arrived(tid) => {
                    if arrivals == skip {
                        self.hold(tid);
                        self.disarm(tid);
                        return Ok(tid);
                    }
                    arrivals += 1;
                    self.go(tid, 0);
                }
                News::Stopped { tid, signal, event } => self.answer(tid, signal, event)?,
                News::Ended => return Err(self.never_started(arrivals, skip)),
                News::None | News::Gone { .. } => {}
            }
        }
    }

    fn never_started(&mut self, arrivals: u64, skip: u64) -> EngineError {
        let awaited = self.awaited.take();
        let reason = match (awaited, arrivals) {
            (Some(wanted), _) => format!(
                "{} was never loaded into the command's own process, and processes that it starts \
                 are not followed",
                wanted.object().display()
            ),
            (None, 0) => "execution never came to its start".to_owned(),
            (None, n) => {
                format!("execution came to its start {n} times, and the first {skip} were to pass")
            }
        };
        self.ended_before(&reason)
    }

    /// It has ended, and the window has not begun.
    fn ended_before(&mut self, reason: &str) -> EngineError {
        match self.finish() {
            Ok(Some(exit)) => EngineError::NeverStarted(format!(
                "{reason}; the command ended with {}",
                exit.status
            )),
            Ok(None) => EngineError::NeverStarted(format!("{reason}; the process has ended")),
            Err(error) => error,
        }
    }

    /// Whether this thread is stopped in our hands.
    pub(super) fn holds(&self, tid: i32) -> bool {
        self.held == Some(tid)
    }

    /// The threads of the window's process.
    fn own_threads(&self) -> impl Iterator<Item = i32> {
        self.threads.keys().copied().filter(|tid| self.is_own(*tid))
    }

    fn is_own(&self, tid: i32) -> bool {
        Path::new(&format!("/proc/{}/task/{tid}", self.pid)).exists()
    }

    /// Known from now on, should it be stopped before it has been heard of.
    fn note_started_by(&mut self, tid: i32) {
        if let Ok(new) = tracee::event_message(tid) {
            self.threads.entry(new).or_insert(false);
        }
    }

    /// Holds a stopped thread, whose process is that of the window then.
    fn hold(&mut self, tid: i32) {
        self.held = Some(tid);
        let process = Status::of(tid).ok().and_then(|status| status.process("Tgid"));
        self.pid = process.unwrap_or(self.pid);
        self.memory = File::open(format!("/proc/{}/mem", self.pid)).ok();
    }

    /// How many signals the program was sent and got.
    pub(super) fn signals_delivered(&self) -> u64 {
        self.signals
    }

    /// Lets the held thread run until just before an instruction at one of `stops`, two at most;
    /// false when it never comes there.
    pub(super) fn run_until(&mut self, tid: i32, stops: &[Avma]) -> Result<bool, EngineError> {
        tracee::set_breakpoints(tid, stops)
            .map_err(|cause| EngineError::Forbidden(no_breakpoints(&cause)))?;
        self.held = None;
        let signal = std::mem::take(&mut self.undelivered);
        self.go(tid, signal);
        loop {
            match self.next()? {
                News::Stopped { tid: stopped, signal: libc::SIGTRAP, event: 0 }
                    if stopped == tid && stops.iter().any(|stop| is_at(tid, *stop)) =>
                {
                    self.held = Some(tid);
                    // Fails only for a thread that is gone.
                    let _ = tracee::set_breakpoints(tid, &[]);
                    return Ok(true);
                }
                News::Stopped { tid, signal, event } => self.answer(tid, signal, event)?,
                News::Gone { tid: gone } if gone == tid => return Ok(false),
                News::Ended => return Ok(false),
                News::None | News::Gone { .. } => {}
            }
        }
    }

    /// Executes one instruction of a held thread, delivering `signal` unless it is 0, and says how
    /// it stopped; it is held again unless it is gone. `may_block` when the instruction may wait
    /// for other threads.
    pub(super) fn step(
        &mut self,
        tid: i32,
        signal: i32,
        may_block: bool,
    ) -> Result<State, EngineError> {
        self.advance(tid, may_block, || tracee::step(tid, signal))
    }

    /// As [`Target::step`], to the next taken branch where that works; see [`tracee::step_branch`].
    pub(super) fn step_branch(&mut self, tid: i32) -> Result<State, EngineError> {
        self.advance(tid, true, || tracee::step_branch(tid))
    }

    /// As [`Target::step`], until just before the instruction at `stop`.
    pub(super) fn run_on_to(
        &mut self,
        tid: i32,
        signal: i32,
        stop: Avma,
    ) -> Result<State, EngineError> {
        const SCRATCH: Slot = Slot(1);
        if tracee::set_breakpoint(tid, SCRATCH, Some(stop)).is_err() {
            return self.step(tid, signal, false);
        }
        let state = self.advance(tid, true, || tracee::resume(tid, signal));
        // Fails when the thread is gone, and its breakpoints with it.
        let _ = tracee::set_breakpoint(tid, SCRATCH, None);
        state
    }

    fn advance(
        &mut self,
        tid: i32,
        may_block: bool,
        go: impl FnOnce() -> io::Result<()>,
    ) -> Result<State, EngineError> {
        self.held = None;
        if go().is_err() {
            return Ok(State::Gone);
        }
        if !may_block {
            tracee::await_stop(tid);
        }
        loop {
            match self.next()? {
                News::Stopped { tid: stopped, signal, event } if stopped == tid => {
                    self.held = Some(tid);
                    return Ok(State::Stopped { signal, event });
                }
                News::Gone { tid: gone } if gone == tid => return Ok(State::Gone),
                News::Ended => return Ok(State::Gone),
                News::Stopped { tid, signal, event } => self.answer(tid, signal, event)?,
                News::None | News::Gone { .. } => {}
            }
        }
    }

    /// Lets a held thread wait for the end of a stop by job control.
    pub(super) fn wait_for_continue(&mut self, tid: i32) -> Result<State, EngineError> {
        self.advance(tid, true, || tracee::listen(tid))
    }

    /// Answers what other threads have to say, and keeps their output and the limits in sight.
    /// To be called now and then while stepping.
    pub(super) fn look_around(&mut self) -> Result<(), EngineError> {
        self.check_limits()?;
        if let Some(child) = &mut self.child {
            child.drain();
        }
        while let News::Stopped { tid, signal, event } = tracee::news(self.leader) {
            self.threads.entry(tid).or_insert(false);
            self.answer(tid, signal, event)?;
        }
        Ok(())
    }

    /// Reads memory; how many bytes could be read.
    pub(super) fn read(&self, address: Avma, bytes: &mut [u8]) -> usize {
        self.memory.as_ref().and_then(|m| m.read_at(bytes, address.0).ok()).unwrap_or(0)
    }

    /// Reads one word of memory.
    pub(super) fn read_word(&self, address: Avma) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.read(address, &mut bytes) == 8).then(|| u64::from_le_bytes(bytes))
    }

    /// Writes memory; whether all of it could be written.
    pub(super) fn write(&self, address: Avma, bytes: &[u8]) -> bool {
        let file = std::fs::OpenOptions::new().write(true).open(format!("/proc/{}/mem", self.pid));
        file.and_then(|m| m.write_all_at(bytes, address.0)).is_ok()
    }

    /// Whatever is mapped executable now.
    pub(super) fn mappings(&self) -> Vec<Mapping> {
        mappings(self.pid)
    }

    pub(super) fn thread_count(&self) -> usize {
        self.own_threads().count()
    }

    /// Has the held thread get this signal when it is let go.
    pub(super) fn deliver_later(&mut self, signal: i32) {
        self.undelivered = signal;
    }

    /// Waits for news of any thread. Never returns [`News::None`].
    fn next(&mut self) -> Result<News, EngineError> {
        // Also where there always is some: threads may come to a window's start for as long as they run.
        self.check_limits()?;
        let (mut looks, mut nap) = (0, NAPS.0);
        loop {
            let news = tracee::news(self.leader);
            match news {
                News::None => {}
                News::Stopped { tid, .. } => {
                    self.threads.entry(tid).or_insert(false);
                    return Ok(news);
                }
                News::Gone { tid } => {
                    self.threads.remove(&tid);
                    return Ok(news);
                }
                News::Ended => return Ok(news),
            }
            self.stop_when_it_is_time();
            looks += 1;
            if looks < EAGER_LOOKS {
                std::thread::yield_now();
                continue;
            }
            self.check_limits()?;
            if let Some(child) = &mut self.child {
                child.drain();
            }
            if self.release_at.is_some_and(|at| Instant::now() >= at) {
                self.release_at = None;
                self.release_others();
            }
            std::thread::sleep(nap);
            nap = (nap * 2).min(NAPS.1);
        }
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// When the command is to be given up, if ever.
    pub(super) fn deadline(&self) -> Option<Instant> {
        Some(self.began + self.limits.timeout.filter(|_| !self.is_attached)?)
    }

    /// Whether the user, or the limits, want an end.
    pub(super) fn check_limits(&self) -> Result<(), EngineError> {
        if self.limits.interrupt.load(Ordering::Relaxed) {
            return Err(ChildError::Interrupted.into());
        }
        if self.is_attached {
            return self.check_patience();
        }
        match self.limits.timeout {
            Some(limit) if self.began.elapsed() >= limit => {
                Err(ChildError::TimedOut { path: self.path.clone(), limit }.into())
            }
            _ => Ok(()),
        }
    }

    /// Lets a thread run on that stopped for a reason that is not the window's.
    fn answer(&mut self, tid: i32, signal: i32, event: i32) -> Result<(), EngineError> {
        self.arm(tid)?;
        match event {
            0 if signal == SYSTEM_CALL_STOP => {
                self.look_for_library()?;
                self.arm(tid)?;
                self.go(tid, 0);
            }
            // Another thread came to where the window started, or will: not the program's business.
            0 if self.is_ours(tid, signal) => self.go(tid, 0),
            0 => {
                self.signals += 1;
                self.go(tid, signal);
            }
            libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => {
                self.note_started_by(tid);
                self.go(tid, 0);
            }
            libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => {
                // One that was killed meanwhile refuses, and its end is the next news.
                let _ = tracee::listen(tid);
            }
            libc::PTRACE_EVENT_EXEC => {
                // The other threads of its process are gone, and its breakpoint.
                self.threads.insert(tid, false);
                self.threads.retain(|tid, _| Path::new(&format!("/proc/{tid}")).exists());
                if tid == self.pid {
                    self.memory = File::open(format!("/proc/{tid}/mem")).ok();
                    self.breakpoint = None;
                }
                self.go(tid, 0);
            }
            _ => self.go(tid, 0),
        }
        Ok(())
    }

    fn go(&self, tid: i32, signal: i32) {
        // Refused only by a thread that was killed meanwhile; its end is the next news.
        let _ = match self.awaited {
            Some(_) => tracee::resume_to_system_call(tid, signal),
            None => tracee::resume(tid, signal),
        };
    }

    fn look_for_library(&mut self) -> Result<(), EngineError> {
        let Some(wanted) = &self.awaited else { return Ok(()) };
        if let Some(address) = wanted.find(self.pid) {
            self.breakpoint = Some(address);
            self.awaited = None;
            self.interrupt_all();
        }
        Ok(())
    }

    /// Has all threads stop soon: each takes the breakpoint then.
    fn interrupt_all(&self) {
        for tid in self.threads.keys() {
            // Refused only by one that is gone.
            let _ = tracee::interrupt(*tid);
        }
    }

    /// Sets the breakpoint in a stopped thread that does not have it yet.
    fn arm(&mut self, tid: i32) -> Result<(), EngineError> {
        let (Some(address), Some(armed)) = (self.breakpoint, self.threads.get_mut(&tid)) else {
            return Ok(());
        };
        if std::mem::replace(armed, true) {
            return Ok(());
        }
        match tracee::set_breakpoint(tid, Slot(0), Some(address)) {
            Err(cause) if cause.raw_os_error() != Some(libc::ESRCH) => {
                Err(EngineError::Forbidden(no_breakpoints(&cause)))
            }
            // Killed meanwhile: its end is the next news.
            _ => Ok(()),
        }
    }

    fn disarm(&mut self, tid: i32) {
        self.breakpoint = None;
        // Fails only for a thread that is gone.
        let _ = tracee::set_breakpoint(tid, Slot(0), None);
    }

    fn has_arrived(&self, tid: i32) -> bool {
        self.breakpoint.is_some_and(|address| is_at(tid, address))
    }

    /// Whether a thread stopped with this signal for a reason that the program knows nothing of.
    fn is_ours(&self, tid: i32, signal: i32) -> bool {
        signal == SYSTEM_CALL_STOP || (signal == libc::SIGTRAP && !tracee::is_own_trap(tid))
    }
}

/// Whatever a process has mapped executable now.
pub(super) fn mappings(pid: i32) -> Vec<Mapping> {
    let lines = maps::read(pid).unwrap_or_default();
    lines.into_iter().filter(|line| line.executable).map(|line| line.mapping).collect()
}

/// Whether a stopped thread came to a breakpoint of the processor's here.
pub(super) fn is_at(tid: i32, address: Avma) -> bool {
    tracee::signal_code(tid).ok() == Some(tracee::TRAP_HWBKPT)
        && tracee::registers(tid).is_ok_and(|r| Avma(r.rip) == address)
}

fn no_breakpoints(cause: &io::Error) -> String {
    format!(
        "the kernel refuses the processor's breakpoints ({cause}), which mark the start and the \
         end of the window"
    )
}
