//! The threads that the program starts in a copy whose run is counted to its end: one is at hand, the others run,
//! wait in the kernel, or wait for us.
//!
//! Each has a code cache of its own, so that counters are plain words that nobody else writes; the code cache of a thread
//! that has ended goes to the next one that starts. A call that may wait for another thread is begun, and its answer
//! taken when it comes. Code that changes while there are threads is not followed: each has its own translation of it.

use std::ops::Range;

use super::driver::{DriveError, Driver, Next, Outcome};
use super::setup;
use super::signals::{Disposition, disposition};
use super::translator::Translator;
use crate::trace::engine::process::{Process, Registers, Stopped, wait_for_any};

/// A call that was begun; the program goes on at `next` behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    pub(super) number: i64,
    pub(super) arguments: [u64; 6],
    pub(super) next: u64,
}

/// A thread that is not at hand.
pub(super) struct Thread {
    copy: Process,
    translator: Translator,
    program: Registers,
    maps_are_old: bool,
    begun: Option<Begun>,
    /// It stands before the instruction where `program` says.
    is_new: bool,
}

/// The answers by which the kernel has a call made again that a signal has interrupted, and by which it has it end with
/// `EINTR` if a handler is called.
const MADE_AGAIN: [i64; 2] = [-512, -513];
const ENDED_BY_HANDLER: [i64; 2] = [-514, -516];

impl Driver<'_> {
    /// Whether the thread at hand is the only one.
    pub(super) fn is_alone(&self) -> bool {
        self.others.is_empty()
    }

    /// Whether another thread has run code in this range.
    pub(super) fn others_run_code_in(&self, range: &Range<u64>) -> bool {
        self.others.iter().any(|it| it.translator.pages.seen().any(|page| range.contains(&page)))
    }

    /// What is mapped has changed, for all of them.
    pub(super) fn maps_have_changed(&mut self) {
        self.maps_are_old = true;
        self.others.iter_mut().for_each(|it| it.maps_are_old = true);
    }

    /// The program starts a thread by this call, and both go on at `next`.
    pub(super) fn start_thread(
        &mut self,
        number: i64,
        arguments: [u64; 6],
        next: u64,
    ) -> Result<Result<i64, Outcome>, DriveError> {
        if !self.protected.is_empty() {
            return Ok(Err(changes_code()));
        }
        self.copy.set_registers(&self.program)?;
        let (answer, copy) = self.copy.start_thread(number, arguments)?;
        let Some(copy) = copy else { return Ok(Ok(answer)) };
        let at = copy.registers()?;
        let program = Registers {
            rsp: at.rsp,
            fs_base: at.fs_base,
            gs_base: at.gs_base,
            rax: 0,
            rcx: next,
            r11: self.program.eflags,
            rip: next,
            ..self.program
        };
        let translator = match self.spare.pop() {
            Some(translator) => translator,
            None => match setup::make_region(&mut self.copy) {
                Ok(region) => Translator::new(region, false, true),
                Err(why) => return Ok(Err(Outcome::Short(why.to_string()))),
            },
        };
        self.others.push(Thread {
            copy,
            translator,
            program,
            maps_are_old: true,
            begun: None,
            is_new: true,
        });
        Ok(Ok(answer))
    }

    /// The thread at hand makes a call that may wait for others; its answer comes later.
    pub(super) fn begin_call(&mut self, begun: Begun) -> Result<Next, DriveError> {
        let arguments = self.with_own_ids(begun.number, begun.arguments);
        self.copy.set_registers(&self.program)?;
        self.copy.start_call(begun.number, arguments)?;
        self.begun = Some(begun);
        Ok(Next::Wait)
    }

    /// The arguments, with the ids of the copy where the program names those of the original.
    pub(super) fn with_own_ids(&self, number: i64, arguments: [u64; 6]) -> [u64; 6] {
        self.calls.with_own_ids(self.process, number, arguments)
    }

    /// Takes up the next thread that has something to say.
    pub(super) fn next_of_all(&mut self) -> Result<Next, DriveError> {
        if let Some(new) = self.others.iter().position(|it| it.is_new) {
            self.others[new].is_new = false;
            self.swap_with(new);
            self.place_log();
            return Ok(Next::Go);
        }
        let others = self.others.iter().map(|it| it.copy.pid);
        let (tid, stopped) = wait_for_any(others.chain([self.copy.pid]))?;
        if let Some(at) = self.others.iter().position(|it| it.copy.pid == tid) {
            self.swap_with(at);
        }
        self.counts.stops += 1;
        let stopped = self.copy.stopped(stopped)?;
        match (stopped, self.begun) {
            // Its process ends with it, or has ended.
            (Stopped::Exited(code), _) if tid == self.process => Ok(Next::End(Outcome::Exit(code))),
            (Stopped::Exited(_), _) => Ok(self.thread_has_ended()),
            (Stopped::Killed(signal), _) => Ok(Next::End(Outcome::Signal(signal))),
            (stopped, Some(begun)) => self.stopped_in_call(begun, stopped),
            (stopped, None) => self.answer(stopped),
        }
    }

    fn swap_with(&mut self, at: usize) {
        let other = &mut self.others[at];
        std::mem::swap(&mut self.copy, &mut other.copy);
        std::mem::swap(&mut self.translator, &mut other.translator);
        std::mem::swap(&mut self.program, &mut other.program);
        std::mem::swap(&mut self.maps_are_old, &mut other.maps_are_old);
        std::mem::swap(&mut self.begun, &mut other.begun);
        self.translator.blocks.go_on_from(&other.translator.blocks);
    }

    /// The thread at hand has ended; another one is at hand then.
    fn thread_has_ended(&mut self) -> Next {
        self.collect();
        let Some(last) = self.others.len().checked_sub(1) else {
            return Next::End(Outcome::Lost("all its threads ended unseen".into()));
        };
        self.swap_with(last);
        if let Some(ended) = self.others.pop() {
            // One that is new is taken up first of all.
            self.spare.push(ended.translator);
            if ended.is_new {
                return Next::Go;
            }
        }
        Next::Wait
    }

    /// The thread at hand has stopped in, or behind, a call that it had begun.
    fn stopped_in_call(&mut self, begun: Begun, stopped: Stopped) -> Result<Next, DriveError> {
        let signal = match stopped {
            Stopped::Signal(libc::SIGTRAP) => 0,
            Stopped::Signal(signal)
                if !matches!(disposition(self.copy.pid, signal)?, Disposition::Ignored) =>
            {
                signal
            }
            _ if self.is_out_of_time() => return Ok(Next::End(self.short_of_time())),
            _ => {
                self.copy.go_on_with_call()?;
                return Ok(Next::Wait);
            }
        };
        self.begun = None;
        let registers = self.copy.registers()?;
        // Where the step ends a call that a signal has interrupted, the signal comes next.
        match registers.rax.cast_signed() {
            _ if self.copy.is_before_call(&registers) => {}
            answer if MADE_AGAIN.contains(&answer) => {}
            answer if ENDED_BY_HANDLER.contains(&answer) => {
                self.behind_call(-i64::from(libc::EINTR), begun.next);
            }
            answer => {
                self.calls.made(begun.number, begun.arguments, answer);
                self.behind_call(answer, begun.next);
            }
        }
        if signal == 0 { Ok(Next::Go) } else { self.signal(signal) }
    }

    /// Ends all threads but the first, which is at hand then, and tells what they have executed.
    pub(super) fn end_threads(&mut self) {
        if let Some(first) = self.others.iter().position(|it| it.copy.pid == self.process) {
            self.swap_with(first);
        }
        if !self.is_alone() {
            // Nobody writes to counters that are read. The first thread ends when all others are gone.
            self.others.iter().map(|it| &it.copy).chain([&self.copy]).for_each(Process::end);
        }
        self.spare.extend(self.others.drain(..).map(|it| it.translator));
        for translator in std::mem::take(&mut self.spare) {
            let own = std::mem::replace(&mut self.translator, translator);
            self.translator.blocks.go_on_from(&own.blocks);
            self.collect();
            let other = std::mem::replace(&mut self.translator, own);
            self.translator.blocks.go_on_from(&other.blocks);
        }
        self.collect();
    }
}

/// Why a copy with threads is given up.
pub(super) fn changes_code() -> Outcome {
    Outcome::Short("it has several threads and code that it can write to".into())
}
