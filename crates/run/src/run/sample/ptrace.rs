//! The engine that stops the command to look at it, for where the kernel's clock is forbidden.
//!
//! Every thread of the command and of its children is asked to stop once a period; where it stands
//! is read, and it runs on. All is done without waiting, from the tick of [`Child::wait_with`], so
//! limits hold whatever the command does. The price: a fork, a signal or an exec in the command
//! may wait up to a millisecond for us.
//!
//! The same attachment counts system calls: then nothing is asked to stop; the exec stops the command, and from
//! there on every thread stops by itself where it enters and leaves the kernel.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::space::{self, AddressSpace, Located, Tally};
use super::stacks::STACK_BYTES;
use super::{
    CallStack, Callers, CallsOfNumber, Collected, Engine, STACK_PERIOD_NS, SampleError, Snapshot,
    SystemCalls, Unwinder,
};
use crate::code::Registers;
use crate::foreign::threads;
use crate::model::Avma;
use crate::run::child::{Child, ChildError, Exit, Launch, Limits};
use crate::run::tracee::{self, State};

/// Follow threads and children, report execs, and never let a stopped program outlive us.
const OPTIONS: libc::c_int = libc::PTRACE_O_EXITKILL
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC;

/// Tells a stop at a system call from a signal.
const CALL_STOP: i32 = libc::SIGTRAP | 0x80;
/// While system calls are counted, stops are answered without a pause for as long as they come, so long at once.
const ANSWERING: Duration = Duration::from_millis(20);
/// Of so many calls of a number, the first one's stack is looked at; and so many different ones are kept.
const CALLS_BETWEEN_STACKS: u64 = 8;
const MOST_CALLERS: usize = 4096;
/// How often the wait calls back; the poll behind it knows only milliseconds.
const TICK: Duration = Duration::from_millis(1);
/// How long threads that were asked to stop are awaited at once: a running one needs a few
/// microseconds. One in an uninterruptible sleep is taken up at a later tick.
const PATIENCE: Duration = Duration::from_micros(300);
/// Looks between which the child's threads are listed.
const ROUNDS_BETWEEN_LISTS: u64 = 64;
/// How long the end of what was killed may take.
const LAST_PATIENCE: Duration = Duration::from_secs(2);
/// A library that is unloaded and replaced at the same address is noticed after this many looks.
const LOOKS_PER_READING: u32 = 200;

struct Thread {
    tid: i32,
    /// Asked to stop, and has not yet.
    asked: bool,
    /// Stopped by job control; must not be asked.
    stopped_by_job_control: bool,
    space: AddressSpace,
    looks_until_reading: u32,
    /// The system call that it is in, and since when, where these are counted.
    inside: Option<(u64, Instant)>,
}

impl Thread {
    fn new(tid: i32) -> Self {
        Self {
            tid,
            asked: false,
            stopped_by_job_control: false,
            space: AddressSpace::default(),
            looks_until_reading: 0,
            inside: None,
        }
    }

    /// Where an address lies; what the thread has mapped is read where that is not known, and now and then.
    fn locate(&mut self, at: Avma, tally: &mut Tally) -> Located {
        let mut place = self.space.locate(at);
        if place.is_none() || self.looks_until_reading == 0 {
            self.space = space::read(self.tid, tally);
            self.looks_until_reading = LOOKS_PER_READING;
            place = self.space.locate(at);
        }
        self.looks_until_reading -= 1;
        place
    }
}

/// Attached to a held child and to all that it will start.
pub(super) struct Sampler {
    child: i32,
    period: Duration,
    threads: Vec<Thread>,
    tally: Tally,
    kernel: u64,
    blind: u64,
    due: Instant,
    rounds: u64,
    /// Entries into and returns from the kernel, where these are counted.
    call_stops: Option<u64>,
    /// System calls by their number.
    calls: BTreeMap<u64, CallsOfNumber>,
    callers: FxHashMap<(u64, CallStack), u64>,
    unwinder: Option<Unwinder>,
}

impl Sampler {
    pub(super) fn attach(pid: i32, period_ns: u64, takes_stacks: bool) -> io::Result<Self> {
        tracee::seize(pid, OPTIONS)?;
        let unwinder = takes_stacks.then(|| Unwinder::new(period_ns.max(STACK_PERIOD_NS)));
        Ok(Self { unwinder, ..Self::new(pid, period_ns) })
    }

    /// One that counts system calls.
    pub(super) fn attach_to_calls(pid: i32) -> io::Result<Self> {
        tracee::seize(pid, OPTIONS | libc::PTRACE_O_TRACESYSGOOD)?;
        let unwinder = Some(Unwinder::new(0));
        Ok(Self { call_stops: Some(0), unwinder, ..Self::new(pid, 0) })
    }

    fn new(pid: i32, period_ns: u64) -> Self {
        Self {
            child: pid,
            period: Duration::from_nanos(period_ns),
            threads: vec![Thread::new(pid)],
            tally: Tally::default(),
            kernel: 0,
            blind: 0,
            due: Instant::now(),
            rounds: 0,
            call_stops: None,
            calls: BTreeMap::new(),
            callers: FxHashMap::default(),
            unwinder: None,
        }
    }

    pub(super) fn run(
        mut self,
        child: Child,
        launch: &Launch,
        limits: &Limits<'_>,
    ) -> Result<(Exit, Collected), SampleError> {
        let exit = self.follow(child, launch, limits)?;
        Ok((exit, self.into_collected()))
    }

    /// The system calls of a run from its exec on, which returns once more than it enters; the last call does not
    /// return.
    pub(super) fn count(
        mut self,
        child: Child,
        launch: &Launch,
        limits: &Limits<'_>,
    ) -> Result<SystemCalls, SampleError> {
        let all = match self.follow(child, launch, limits) {
            Err(SampleError::Child(ChildError::TimedOut { .. })) => false,
            ended => ended.map(|_| true)?,
        };
        let count = self.call_stops.unwrap_or_default().div_ceil(2);
        let main_program = launch.program.canonicalize().ok();
        let (files, main_program) = self.tally.files(main_program.as_deref());
        let callers = Callers { files, main_program, counts: self.callers };
        Ok(SystemCalls { count, by_number: self.calls, all, callers })
    }

    fn follow(
        &mut self,
        child: Child,
        launch: &Launch,
        limits: &Limits<'_>,
    ) -> Result<Exit, SampleError> {
        // The limits are kept here and not by the child: before it can be collected, we must have
        // collected its threads, which are ours as long as we are attached.
        let endless = Limits::default();
        let started = Instant::now();
        let tick = |pid: i32| {
            if let Some(error) = over_limit(launch, limits, started) {
                // SAFETY: plain integers; the group is the child's own, never ours.
                unsafe { libc::killpg(pid, libc::SIGKILL) };
                self.release();
                return Err(error);
            }
            self.step();
            Ok(())
        };
        let exit = child.wait_with(&endless, tick, TICK)?;
        self.release();
        Ok(exit)
    }

    /// Answers what has stopped and, once a period, looks at every thread.
    fn step(&mut self) {
        let now = Instant::now();
        if self.call_stops.is_some() {
            self.answer_calls(now);
            return;
        }
        self.answer_all();
        if now < self.due {
            return;
        }
        self.due = now + self.period;
        self.rounds += 1;
        if self.rounds.is_multiple_of(ROUNDS_BETWEEN_LISTS) {
            self.adopt_unknown();
        }
        for thread in &mut self.threads {
            if !thread.asked && !thread.stopped_by_job_control {
                thread.asked = tracee::interrupt(thread.tid).is_ok();
            }
        }
        while self.threads.iter().any(|t| t.asked) && now.elapsed() < PATIENCE {
            std::thread::yield_now();
            self.answer_all();
        }
    }

    /// Answers stops as long as they come one soon behind the other.
    fn answer_calls(&mut self, started: Instant) {
        let (mut stops, mut latest) = (self.call_stops, started);
        while latest.elapsed() < PATIENCE && started.elapsed() < ANSWERING {
            self.answer_all();
            if self.call_stops != stops {
                (stops, latest) = (self.call_stops, Instant::now());
            }
            std::thread::yield_now();
        }
    }

    fn answer_all(&mut self) {
        let mut index = 0;
        while let Some(thread) = self.threads.get(index) {
            let (tid, is_child) = (thread.tid, thread.tid == self.child);
            match tracee::look(tid, !is_child) {
                State::Running => index += 1,
                // The child's own end shows as gone, too; its entry stays, for its exec in a
                // thread would come under its number.
                State::Gone if is_child => index += 1,
                State::Gone => drop(self.threads.swap_remove(index)),
                State::Stopped { signal, event } => {
                    self.answer(index, signal, event);
                    index += 1;
                }
            }
        }
    }

    /// Lets a stopped thread run on, after whatever its stop means to us.
    fn answer(&mut self, index: usize, signal: i32, event: i32) {
        let Some(thread) = self.threads.get_mut(index) else {
            return;
        };
        // Any stop uses up the request for one.
        let asked = std::mem::take(&mut thread.asked);
        thread.stopped_by_job_control = false;
        let tid = thread.tid;
        let resume = match self.call_stops {
            None => tracee::resume,
            Some(_) => tracee::resume_to_system_call,
        };
        if let (Some(stops), CALL_STOP, 0) = (&mut self.call_stops, signal, event) {
            *stops += 1;
            if let Some((number, enters)) = tracee::call_number(tid) {
                let calls = self.calls.entry(number).or_default();
                let left = thread.inside.take().filter(|(entered, _)| *entered == number);
                if let Some((_, since)) = left {
                    calls.inside_ns += since.elapsed().as_nanos() as u64;
                } else if enters {
                    thread.inside = Some((number, Instant::now()));
                    calls.count += 1;
                    if (calls.count - 1).is_multiple_of(CALLS_BETWEEN_STACKS) {
                        self.look_at_caller(index, number);
                    }
                }
            }
            let _ = resume(tid, 0);
            return;
        }
        let mut snapshot = None;
        // A thread that was killed meanwhile refuses every answer, which is no error of ours.
        let _ = match event {
            0 => resume(tid, signal),
            libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => {
                thread.stopped_by_job_control = true;
                tracee::listen(tid)
            }
            libc::PTRACE_EVENT_STOP => {
                if asked {
                    snapshot = self.look_at(index);
                }
                resume(tid, 0)
            }
            libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => {
                self.adopt(tid);
                resume(tid, 0)
            }
            libc::PTRACE_EVENT_EXEC => {
                thread.looks_until_reading = 0;
                thread.space.clear();
                let former = tracee::event_message(tid).unwrap_or(tid);
                self.threads.retain(|t| t.tid == tid || t.tid != former);
                resume(tid, 0)
            }
            _ => resume(tid, 0),
        };
        // It runs while its stack is unwound.
        let parts = self.unwinder.as_mut().zip(self.threads.get(index)).zip(snapshot);
        if let Some(((unwinder, thread), snapshot)) = parts {
            unwinder.add(&snapshot, &thread.space, &self.tally);
        }
    }

    /// Enters the thread that `maker` has just made; we are attached to it already.
    fn adopt(&mut self, maker: i32) {
        if let Ok(tid) = tracee::event_message(maker)
            && self.threads.iter().all(|t| t.tid != tid)
        {
            self.threads.push(Thread::new(tid));
        }
    }

    /// Enters the child's threads that were not announced: one that was made in the moment in which its
    /// maker was killed is ours, and unless we collect it the child never ends.
    fn adopt_unknown(&mut self) {
        for tid in threads(self.child) {
            if tid != self.child && self.threads.iter().all(|t| t.tid != tid) {
                self.threads.push(Thread::new(tid));
            }
        }
    }

    /// Keeps from where a thread makes the call that it is about to enter.
    fn look_at_caller(&mut self, index: usize, number: u64) {
        let Some(thread) = self.threads.get_mut(index) else { return };
        let Some(snapshot) = snapshot(thread.tid) else { return };
        thread.locate(Avma(snapshot.registers.instruction()), &mut self.tally);
        let Some(unwinder) = &mut self.unwinder else { return };
        let key = (number, unwinder.unwind(&snapshot, &thread.space, &self.tally).0);
        if self.callers.len() < MOST_CALLERS || self.callers.contains_key(&key) {
            *self.callers.entry(key).or_default() += 1;
        }
    }

    /// Books where a stopped thread is; what is needed to unwind its stack, where that is asked for.
    fn look_at(&mut self, index: usize) -> Option<Snapshot> {
        let thread = self.threads.get_mut(index)?;
        let Ok(position) = tracee::position(thread.tid) else {
            self.blind += 1;
            return None;
        };
        if position.in_kernel {
            self.kernel += 1;
            return None;
        }
        let place = thread.locate(position.address, &mut self.tally);
        // Of a thread that is no process, there is no file of names.
        self.tally.count(place, thread.tid);
        self.unwinder.is_some().then(|| snapshot(thread.tid)).flatten()
    }

    /// Collects what was killed and lets go of what lives on (a daemon that left the group). The
    /// child itself is left for [`Child`] to collect.
    fn release(&mut self) {
        let started = Instant::now();
        let child = self.child;
        self.threads.retain(|t| t.tid != child);
        self.adopt_unknown();
        for thread in &self.threads {
            // One that is stopped or dead refuses, and is found below.
            let _ = tracee::interrupt(thread.tid);
        }
        while !self.threads.is_empty() && started.elapsed() < LAST_PATIENCE {
            let mut made = Vec::new();
            self.threads.retain(|thread| {
                match tracee::look(thread.tid, true) {
                    State::Running => true,
                    State::Gone => false,
                    State::Stopped { signal, event } => {
                        made.extend(tracee::event_message(thread.tid).ok().filter(|_| {
                            matches!(
                                event,
                                libc::PTRACE_EVENT_CLONE
                                    | libc::PTRACE_EVENT_FORK
                                    | libc::PTRACE_EVENT_VFORK
                            )
                        }));
                        // Refused only when it was killed meanwhile: look again.
                        tracee::detach(thread.tid, if event == 0 { signal } else { 0 }).is_err()
                    }
                }
            });
            self.threads.extend(made.into_iter().map(Thread::new));
            self.adopt_unknown();
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn into_collected(self) -> Collected {
        let mut notes = Vec::new();
        if self.kernel > 0 {
            notes.push(format!(
                "{} samples found a thread inside a system call and are counted apart",
                self.kernel
            ));
        }
        if cfg!(not(target_arch = "x86_64")) {
            notes.push(
                "time spent in system calls is counted at the instruction behind the call".into(),
            );
        }
        if self.blind > 0 {
            notes.push(format!(
                "{} times a thread stopped but its position could not be read",
                self.blind
            ));
        }
        Collected {
            engine: Engine::Ptrace,
            tally: self.tally,
            lost: self.blind,
            kernel: Some(self.kernel),
            unwinder: self.unwinder,
            notes,
        }
    }
}

/// A stopped thread's registers and the top of its stack; none of a 32-bit program.
#[cfg(target_arch = "x86_64")]
fn snapshot(tid: i32) -> Option<Snapshot> {
    let r = tracee::registers_of_64_bits(tid)?;
    let registers = Registers([
        r.rax, r.rdx, r.rcx, r.rbx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12,
        r.r13, r.r14, r.r15, r.rip,
    ]);
    Some(Snapshot { registers, stack: tracee::read_memory(tid, Avma(r.rsp), STACK_BYTES) })
}

/// Not on this processor.
#[cfg(not(target_arch = "x86_64"))]
fn snapshot(_tid: i32) -> Option<Snapshot> {
    None
}

fn over_limit(launch: &Launch, limits: &Limits<'_>, started: Instant) -> Option<ChildError> {
    if limits.interrupt.load(Ordering::Relaxed) {
        return Some(ChildError::Interrupted);
    }
    let limit = limits.timeout.filter(|limit| started.elapsed() >= *limit)?;
    Some(ChildError::TimedOut { path: launch.program.clone(), limit })
}
