//! The threads and processes that the program starts in a copy whose run is counted to its end: one thread is at hand, the
//! others run, wait in the kernel, or wait for us.
//!
//! Each thread has a code cache of its own, so that counters are plain words that nobody else writes; the code cache of a
//! thread that has ended goes to the next one that its process starts. A call that may wait is begun, and its answer
//! taken when it comes. A program that calls another one goes on as that one, in a new code cache, and its addresses are told
//! with another number in front. Code that changes while there are threads is not followed: each has its own translation
//! of it.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use super::calls::{Calls, Copies, Start};
use super::driver::{DriveError, Driver, Next, Outcome};
use super::setup;
use super::signals::{Disposition, disposition};
use super::supervision::call_at;
use super::translator::Translator;
use crate::model::Avma;
use crate::run::maps::Line;
use crate::trace::engine::process::{Process, Registers, Stopped, wait_for_any};
use crate::trace::engine::{Mapping, target};

/// No program has addresses with these bits.
const IMAGE_SHIFT: u32 = 48;
/// More programs than there are numbers for are not followed.
const MOST_IMAGES: u64 = 1 << 15;

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
    process: i32,
    translator: Translator,
    calls: Rc<RefCell<Calls>>,
    program: Registers,
    maps: Vec<Line>,
    maps_are_old: bool,
    begun: Option<Begun>,
    /// It stands before the instruction where `program` says.
    is_new: bool,
}

/// The answers by which the kernel has a call made again that a signal has interrupted, and by which it has it end with
/// `EINTR` if a handler is called.
const MADE_AGAIN: [i64; 2] = [-512, -513];
const EXEC: [i64; 2] = [libc::SYS_execve, libc::SYS_execveat];
const ENDED_BY_HANDLER: [i64; 2] = [-514, -516];

impl Driver<'_> {
    /// Whether the thread at hand is the only one.
    pub(super) fn is_alone(&self) -> bool {
        self.others.is_empty()
    }

    /// Whether the thread at hand is one of the process that the copy has begun as.
    pub(super) fn is_first_process(&self) -> bool {
        self.process == self.first
    }

    fn has_threads(&self) -> bool {
        self.others.iter().any(|it| it.process == self.process)
    }

    /// Whether the whole copy ends with this call, which ends a thread or a process.
    pub(super) fn ends_with_this(&self, number: i64) -> bool {
        self.is_first_process() && !(number == libc::SYS_exit && self.has_threads())
    }

    /// Whether the process at hand can be followed into another program.
    pub(super) fn may_be_replaced(&self) -> bool {
        !self.has_threads()
            && self.protected.is_empty()
            && self.images < MOST_IMAGES
            && !self.calls.borrow().has_written()
    }

    /// What the copy is like when it makes a call with this first argument.
    pub(super) fn like(&self, argument: u64) -> Copies {
        let named = argument as i32;
        Copies {
            process: self.process,
            is_alone: self.is_alone(),
            is_several: self.others.iter().any(|it| it.process != self.process),
            names_own: self.others.iter().any(|it| [it.process, it.copy.pid].contains(&named)),
            counts: self.translator.counts,
        }
    }

    /// Whether another thread of the process has run code in this range.
    pub(super) fn others_run_code_in(&self, range: &Range<u64>) -> bool {
        let own = self.others.iter().filter(|it| it.process == self.process);
        own.flat_map(|it| it.translator.pages.seen()).any(|page| range.contains(&page))
    }

    /// What is mapped has changed, for all threads of the process.
    pub(super) fn maps_have_changed(&mut self) {
        self.maps_are_old = true;
        let own = self.others.iter_mut().filter(|it| it.process == self.process);
        own.for_each(|it| it.maps_are_old = true);
    }

    /// The program starts a thread or a process by this call, and both go on at `next`.
    pub(super) fn start(
        &mut self,
        what: Start,
        number: i64,
        arguments: [u64; 6],
        next: u64,
    ) -> Result<Result<i64, Outcome>, DriveError> {
        if !self.protected.is_empty() {
            return Ok(Err(changes_code()));
        }
        self.copy.set_registers(&self.program)?;
        let (number, arguments) = match what {
            Start::Thread => (number, arguments),
            Start::Process(arguments) => (libc::SYS_clone, arguments),
        };
        let (answer, copy) = self.copy.start_another(number, arguments)?;
        let Some(mut copy) = copy else { return Ok(Ok(answer)) };
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
        let (process, calls) = match what {
            Start::Thread => (self.process, Rc::clone(&self.calls)),
            Start::Process(_) => {
                let calls = self.calls.borrow().of_child(copy.pid);
                (copy.pid, Rc::new(RefCell::new(calls)))
            }
        };
        let image = self.translator.blocks.image();
        let translator = match self.spare.iter().position(|(of, _)| *of == process) {
            Some(at) => self.spare.swap_remove(at).1,
            None => match setup::make_region(&mut copy) {
                Ok(region) => Translator::of_image(region, false, true, image),
                Err(why) => return Ok(Err(Outcome::Short(why.to_string()))),
            },
        };
        self.others.push(Thread {
            copy,
            process,
            translator,
            calls,
            program,
            maps: Vec::new(),
            maps_are_old: true,
            begun: None,
            is_new: true,
        });
        Ok(Ok(answer))
    }

    /// Remembers what the process at hand has mapped executable.
    pub(super) fn note_mappings(&mut self) {
        note(&mut self.mappings, self.process, &self.translator);
    }

    /// Remembers what all processes have mapped executable.
    pub(super) fn note_all_mappings(&mut self) {
        self.note_mappings();
        for other in &self.others {
            note(&mut self.mappings, other.process, &other.translator);
        }
    }

    /// The process at hand has become another program.
    fn has_new_image(&mut self) -> Result<Next, DriveError> {
        self.collect();
        self.copy.has_new_image()?;
        let region = match setup::make_region(&mut self.copy) {
            Ok(region) => region,
            Err(why) => return Ok(Next::End(Outcome::Short(why.to_string()))),
        };
        self.images += 1;
        let new = Translator::of_image(region, false, true, self.images << IMAGE_SHIFT);
        let old = std::mem::replace(&mut self.translator, new);
        self.translator.blocks.go_on_from(&old.blocks);
        self.tell_spare(Some(self.process));
        self.calls.borrow_mut().has_new_image(self.process);
        self.program = self.copy.registers()?;
        self.maps_are_old = true;
        self.place_log();
        Ok(Next::Go)
    }

    /// The thread at hand makes a call that may wait for others; its answer comes later.
    pub(super) fn begin_call(&mut self, begun: Begun) -> Result<Next, DriveError> {
        self.one(call_at(self.program.rip), &[]);
        let arguments = self.with_own_ids(begun.number, begun.arguments);
        self.copy.start_call(&self.program, begun.number, arguments)?;
        self.begun = Some(begun);
        Ok(Next::Wait)
    }

    /// The arguments, with the ids of the copy where the program names those of the original.
    pub(super) fn with_own_ids(&self, number: i64, arguments: [u64; 6]) -> [u64; 6] {
        self.calls.borrow().with_own_ids(self.process, number, arguments)
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
            (Stopped::Exited(code), _) if tid == self.first => Ok(Next::End(Outcome::Exit(code))),
            (Stopped::Killed(signal), _) if self.is_first_process() => {
                Ok(Next::End(Outcome::Signal(signal)))
            }
            (Stopped::Exited(_) | Stopped::Killed(_), _) => Ok(self.thread_has_ended()),
            (stopped, Some(begun)) => self.stopped_in_call(begun, stopped),
            (stopped, None) => self.answer(stopped),
        }
    }

    fn swap_with(&mut self, at: usize) {
        let other = &mut self.others[at];
        std::mem::swap(&mut self.copy, &mut other.copy);
        std::mem::swap(&mut self.translator, &mut other.translator);
        std::mem::swap(&mut self.program, &mut other.program);
        std::mem::swap(&mut self.process, &mut other.process);
        std::mem::swap(&mut self.calls, &mut other.calls);
        std::mem::swap(&mut self.maps, &mut other.maps);
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
        let Some(ended) = self.others.pop() else { return Next::Wait };
        let is_process = ended.copy.pid == ended.process;
        self.spare.push((ended.process, ended.translator));
        if is_process {
            self.tell_spare(Some(ended.process));
        }
        // It was the other one that is new.
        if ended.is_new {
            self.place_log();
            return Next::Go;
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
            0 if EXEC.contains(&begun.number) => return self.has_new_image(),
            answer if MADE_AGAIN.contains(&answer) => {}
            answer if ENDED_BY_HANDLER.contains(&answer) => {
                self.behind_call(-i64::from(libc::EINTR), begun.next);
            }
            answer => {
                self.calls.borrow_mut().made(begun.number, begun.arguments, answer);
                self.behind_call(answer, begun.next);
            }
        }
        if signal == 0 { Ok(Next::Go) } else { self.signal(signal) }
    }

    /// Ends all threads but the first, which is at hand then, and tells what they have executed.
    pub(super) fn end_threads(&mut self) {
        if let Some(first) = self.others.iter().position(|it| it.copy.pid == self.first) {
            self.swap_with(first);
        }
        if !self.is_alone() {
            // Nobody writes to counters that are read. The first thread of a process ends when all others are gone.
            let (leaders, others): (Vec<&Thread>, Vec<&Thread>) =
                self.others.iter().partition(|it| it.copy.pid == it.process);
            others.iter().chain(&leaders).for_each(|it| it.copy.end());
            self.copy.end();
            // Those that it had started are our children now.
            leaders.iter().for_each(|it| it.copy.collect_orphan());
        }
        self.spare.extend(self.others.drain(..).map(|it| (it.process, it.translator)));
        self.tell_spare(None);
        self.collect();
    }

    /// Tells what threads of this process, or of all, have executed that have ended, and forgets their code caches.
    fn tell_spare(&mut self, process: Option<i32>) {
        let (told, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.spare)
            .into_iter()
            .partition(|(of, _)| process.is_none_or(|process| process == *of));
        self.spare = kept;
        for (_, translator) in told {
            let own = std::mem::replace(&mut self.translator, translator);
            self.translator.blocks.go_on_from(&own.blocks);
            self.collect();
            let other = std::mem::replace(&mut self.translator, own);
            self.translator.blocks.go_on_from(&other.blocks);
        }
    }
}

/// Adds what a process has mapped executable, at the addresses that are told of its program, unless that is known.
fn note(known: &mut Vec<Mapping>, process: i32, translator: &Translator) {
    let image = translator.blocks.image();
    if known.iter().any(|mapping| mapping.start.0 >> IMAGE_SHIFT == image >> IMAGE_SHIFT) {
        return;
    }
    let own = target::mappings(process).into_iter();
    // What is mapped higher up is the kernel's.
    known.extend(own.filter(|it| it.end.0 >> IMAGE_SHIFT == 0).map(|mapping| Mapping {
        start: Avma(mapping.start.0 + image),
        end: Avma(mapping.end.0 + image),
        ..mapping
    }));
}

/// Why a copy with threads is given up.
pub(super) fn changes_code() -> Outcome {
    Outcome::Short("it has several threads and code that it can write to".into())
}
