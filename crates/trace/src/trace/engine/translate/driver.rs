//! Runs the window in the copy: resumes translated code, answers its stops, decides when it ends.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustc_hash::FxHashMap;

use super::calls::Calls;
use super::region::{GUARD_BYTES, Slot};
use super::setup;
use super::threads::{self, Begun, Thread};
use super::translation::Borrowed;
use super::translator::{Full, JUMP_REGISTERS, Stop, Translator};
use super::watch::watched;
use crate::model::Avma;
use crate::run::maps::{self, Line};
use crate::trace::engine::calls::Calls as Watch;
use crate::trace::engine::process::{Handle, Process, Registers, Stopped};
use crate::trace::engine::state::Extended;
use crate::trace::engine::{Length, Mapping, OUT_OF_TIME, Sink};

/// The original can be stopped this often on its way to the window's end: each costs some microseconds.
pub(super) const FEW_ARRIVALS: u64 = 20_000;
/// Blocks behind the length asked for among which such an end is looked for.
const MOST_PASSED_ENDS: u32 = 20_000;

/// How the window ended in the copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// At the length asked for; the copy stands there with these registers of the program.
    Length,
    /// It exits with this code.
    Exit(i32),
    /// It replaces itself.
    Exec,
    /// A signal ends it.
    Signal(i32),
    /// The copy cannot follow the original any further; it stands there as at the end of a window.
    Short(String),
    /// It is not known where in the program the copy is.
    Lost(String),
}

/// Something went wrong with the copy itself.
#[derive(Debug, thiserror::Error)]
pub(super) enum DriveError {
    #[error(transparent)]
    System(#[from] io::Error),
    #[error("interrupted")]
    Interrupted,
    #[error("time is up")]
    TimedOut,
}

/// What the driver counts, for notes and for its own check.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) instructions: u64,
    pub(super) supervised: u64,
    pub(super) stops: u64,
    pub(super) drains: u64,
    pub(super) emptied: u64,
    pub(super) calls: u64,
    pub(super) signals: u64,
}

/// The copy while it runs the window.
pub(super) struct Driver<'a> {
    /// The thread at hand, or the only one.
    pub(super) copy: Process,
    /// That of the thread at hand.
    pub(super) translator: Translator,
    /// The process of the thread at hand, and the first of all.
    pub(super) process: i32,
    pub(super) first: i32,
    pub(super) others: Vec<Thread>,
    /// Those of threads that have ended, with their processes.
    pub(super) spare: Vec<(i32, Translator)>,
    /// Programs that have been called.
    pub(super) images: u64,
    /// The call that the thread at hand is in.
    pub(super) begun: Option<Begun>,
    /// Of the process of the thread at hand.
    pub(super) calls: Rc<RefCell<Calls>>,
    pub(super) counts: Counts,
    pub(super) sink: &'a mut dyn Sink,
    pub(super) interrupt: &'a AtomicBool,
    pub(super) deadline: Option<Instant>,
    /// When the window ends, however long it is by then.
    pub(super) budget_until: Option<Instant>,
    watch: Option<Watch>,
    /// Instructions after which a window by instructions ends.
    pub(super) enough: Option<u64>,
    /// Ends that were passed because the original could not be stopped there.
    passed_ends: u32,
    /// Stops at watched addresses.
    armed: Vec<Armed>,
    /// The watched address whose arrival has been dealt with and that is now to be executed.
    passing: Option<u64>,
    pub(super) maps: Vec<Line>,
    pub(super) maps_are_old: bool,
    /// What is mapped executable when the window, or a program that is called in it, has ended.
    pub(super) mappings: Vec<Mapping>,
    /// When it is given up for waiting for others: the instructions before that began.
    pub(super) waited_since: Option<u64>,
    /// How often each supervised instruction ran.
    pub(super) supervised_at: FxHashMap<u64, u64>,
    /// Pages with code that we have made read-only, with the rights they should have.
    pub(super) protected: FxHashMap<u64, u64>,
    /// The program's registers when it is not in translated code.
    pub(super) program: Registers,
    pub(super) extended: Extended,
}

/// A stop on the translation of an address of the program.
#[derive(Clone, Copy, Debug)]
struct Armed {
    /// Where in the copy.
    code: u64,
    address: u64,
    /// What was there.
    byte: u8,
}

/// What to do next.
pub(super) enum Next {
    /// Go on where the program's registers say.
    Go,
    /// As `Go`, by way of an indirect jump.
    GoIndirectly,
    /// The copy is ready to be resumed as it is.
    Resume,
    /// The thread at hand runs, or is no more: another one has the word.
    Wait,
    End(Outcome),
}

impl<'a> Driver<'a> {
    pub(super) fn new(
        copy: Process,
        translator: Translator,
        calls: Calls,
        length: Length,
        sink: &'a mut dyn Sink,
        interrupt: &'a AtomicBool,
    ) -> io::Result<Self> {
        let program = copy.registers()?;
        let mut new = Self {
            process: copy.pid,
            first: copy.pid,
            copy,
            translator,
            others: Vec::new(),
            spare: Vec::new(),
            images: 0,
            begun: None,
            calls: Rc::new(RefCell::new(calls)),
            counts: Counts::default(),
            sink,
            interrupt,
            deadline: None,
            budget_until: None,
            watch: None,
            enough: None,
            passed_ends: 0,
            armed: Vec::new(),
            passing: None,
            maps: Vec::new(),
            maps_are_old: true,
            mappings: Vec::new(),
            waited_since: None,
            supervised_at: FxHashMap::default(),
            protected: FxHashMap::default(),
            program,
            extended: Extended::new(),
        };
        match length {
            Length::Instructions(enough) => new.enough = Some(enough),
            Length::ToEnd => {}
            Length::Calls(calls) => {
                let mut watch = Watch::new(Avma(program.rip), calls);
                let copy = &new.copy;
                watch.is_over_at(Avma(program.rip), program.rsp, || copy.word(program.rsp));
                new.watch = Some(watch);
                new.cut();
                new.passing = Some(program.rip);
            }
        }
        Ok(new)
    }

    /// Runs the window.
    pub(super) fn run(&mut self) -> Result<Outcome, DriveError> {
        if !self.translator.counts {
            let outcome = self.follow();
            self.note_mappings();
            return outcome;
        }
        let until = self.deadline.into_iter().chain(self.budget_until).min();
        let copy = Handle::of(self.first)?;
        watched(copy, until, self.interrupt, || {
            let outcome = self.follow();
            self.note_all_mappings();
            self.end_threads();
            outcome
        })
    }

    fn follow(&mut self) -> Result<Outcome, DriveError> {
        self.place_log();
        let mut next = Next::Go;
        loop {
            if self.interrupt.load(Ordering::Relaxed) {
                return Err(DriveError::Interrupted);
            }
            if self.deadline.is_some_and(|at| Instant::now() >= at) {
                return Err(DriveError::TimedOut);
            }
            next = match next {
                Next::Go => self.enter(false)?,
                Next::GoIndirectly => self.enter(true)?,
                Next::Resume if self.is_alone() => {
                    let stopped = self.copy.run(0)?;
                    self.counts.stops += 1;
                    self.answer(stopped)?
                }
                Next::Resume => {
                    self.copy.start(0)?;
                    Next::Wait
                }
                Next::Wait => self.next_of_all()?,
                Next::End(outcome) => {
                    self.collect();
                    return Ok(outcome);
                }
            };
        }
    }

    /// Goes on in translated code where the program's registers say.
    fn enter(&mut self, indirectly: bool) -> Result<Next, DriveError> {
        if self.is_enough() {
            self.drain()?;
            if self.may_end(self.program.rip, 0) {
                return Ok(Next::End(Outcome::Length));
            }
        }
        if self.is_out_of_time() {
            self.drain()?;
            return Ok(Next::End(self.short_of_time()));
        }
        let signals = std::mem::take(&mut self.copy.held);
        if let Some(signal) = signals.into_iter().next_back() {
            return self.signal(signal);
        }
        self.look_at_maps()?;
        let pc = self.program.rip;
        let code = loop {
            let made = if indirectly {
                self.translator.translate_target(&self.copy, pc)
            } else {
                self.translator.translate(&self.copy, pc)
            };
            match made.and_then(|code| self.arm().map(|()| code)) {
                Ok(code) => break code,
                Err(Full) => self.forget()?,
            }
        };
        if !self.guard_new_pages()? {
            return Ok(Next::End(threads::changes_code()));
        }
        let mut registers = self.program;
        registers.rip = code;
        self.copy.set_registers(&registers)?;
        if self.passing == Some(pc) {
            self.passing = None;
            return self.pass(code);
        }
        Ok(Next::Resume)
    }

    /// Executes the first instruction of a translation that may be under a stop of ours.
    fn pass(&mut self, code: u64) -> Result<Next, DriveError> {
        let Some(armed) = self.armed.iter().copied().find(|a| a.code == code) else {
            return Ok(Next::Resume);
        };
        self.translator.replace_byte(code, armed.byte);
        let stopped = self.copy.step(0)?;
        self.translator.replace_byte(code, 0xcc);
        if stopped != Stopped::Signal(libc::SIGTRAP) {
            return self.answer(stopped);
        }
        let registers = self.copy.registers()?;
        // Where nothing could be translated, that was a stop of another kind.
        let stop = self.translator.stop_before(registers.rip);
        if stop.is_some() && registers.rip == code + 1 {
            return Ok(self.stopped_at(&registers)?.unwrap_or(Next::Resume));
        }
        Ok(Next::Resume)
    }

    /// How often the program has executed, in the window, the instruction where it stands now.
    pub(super) fn arrivals(&self) -> u64 {
        self.arrivals_at(self.program.rip)
    }

    fn arrivals_at(&self, address: u64) -> u64 {
        self.translator.blocks.executions(address)
            + self.supervised_at.get(&address).copied().unwrap_or(0)
    }

    /// Whether [`Self::arrivals`] knows of everything that ran.
    pub(super) fn counts_are_whole(&self) -> bool {
        self.counts.emptied == 0 && self.counts.signals == 0
    }

    /// Tells the translator what is code, if that has changed.
    fn look_at_maps(&mut self) -> Result<(), DriveError> {
        if !std::mem::take(&mut self.maps_are_old) {
            return Ok(());
        }
        self.maps = maps::read(self.copy.pid)?;
        let code = self.maps.iter().filter(|m| m.executable && !setup::is_ours(&m.mapping));
        self.translator
            .pages
            .set_executable(code.map(|m| m.mapping.start.0..m.mapping.end.0).collect());
        Ok(())
    }

    pub(super) fn is_out_of_time(&self) -> bool {
        self.budget_until.is_some_and(|at| Instant::now() >= at)
    }

    pub(super) fn short_of_time(&self) -> Outcome {
        Outcome::Short(OUT_OF_TIME.into())
    }

    pub(super) fn is_enough(&self) -> bool {
        self.enough.is_some_and(|enough| self.counts.instructions >= enough)
    }

    /// Whether the window ends before the instruction at `address`: it is long enough, and the
    /// original can be stopped at this same moment, or no such place has been found nearby. The
    /// instruction has been executed `at_least` so often before.
    pub(super) fn may_end(&mut self, address: u64, at_least: u64) -> bool {
        if !self.is_enough() {
            return false;
        }
        if self.passed_ends >= MOST_PASSED_ENDS || !self.counts_are_whole() {
            return true;
        }
        self.passed_ends += 1;
        at_least <= FEW_ARRIVALS && self.arrivals_at(address) <= FEW_ARRIVALS
    }

    /// Answers a stop.
    pub(super) fn answer(&mut self, stopped: Stopped) -> Result<Next, DriveError> {
        match stopped {
            Stopped::Exited(code) => Ok(Next::End(Outcome::Exit(code))),
            Stopped::Killed(signal) => Ok(Next::End(Outcome::Signal(signal))),
            Stopped::Event(_) => Ok(Next::Resume),
            Stopped::Signal(signal) => {
                let registers = self.copy.registers()?;
                if signal == libc::SIGTRAP
                    && let Some(next) = self.trap(&registers)?
                {
                    return Ok(next);
                }
                if signal == libc::SIGSEGV {
                    let (_, code, address) = self.copy.signal_info()?;
                    if code > 0 && self.translator.region.in_guard(address) {
                        return self.log_is_full(registers);
                    }
                    if code > 0 && self.protected.contains_key(&(address & !4095)) {
                        return self.code_is_written(registers);
                    }
                }
                self.interrupted(registers, signal)
            }
        }
    }

    /// A stop that we had put there.
    pub(super) fn trap(&mut self, registers: &Registers) -> Result<Option<Next>, DriveError> {
        if let Some(armed) = self.armed.iter().find(|a| a.code + 1 == registers.rip) {
            let mut at = *registers;
            at.rip = armed.address;
            return self.watched(at).map(Some);
        }
        self.stopped_at(registers)
    }

    /// A stop that the translator had put there.
    fn stopped_at(&mut self, registers: &Registers) -> Result<Option<Next>, DriveError> {
        let Some(stop) = self.translator.stop_before(registers.rip) else {
            return Ok(None);
        };
        self.program = *registers;
        Ok(Some(match stop {
            Stop::Missing(target) => {
                self.program.rip = target;
                Next::Go
            }
            Stop::Supervise(address) => {
                self.program.rip = address;
                self.supervise()?
            }
            Stop::Unknown => {
                let target = registers.rax;
                self.give_back(JUMP_REGISTERS.as_slice());
                self.program.rip = target;
                Next::GoIndirectly
            }
        }))
    }

    /// Gives back what the block at hand has borrowed.
    pub(super) fn give_back_borrowed(&mut self, borrowed: Borrowed) {
        self.give_back(borrowed.log.as_slice());
        self.give_back(borrowed.address.as_slice());
    }

    pub(super) fn give_back(&mut self, borrowed: &[super::emit::Gpr]) {
        for register in borrowed {
            let value = self.translator.region.slot(Slot::Saved(*register));
            register.set(&mut self.program, value);
        }
    }

    /// The program writes to a page that code was read from: that code is forgotten, the page is
    /// given back, and the instruction repeated under supervision.
    fn code_is_written(&mut self, registers: Registers) -> Result<Next, DriveError> {
        let place = self
            .translator
            .region
            .code_offset(registers.rip)
            .and_then(|at| self.translator.blocks.place(at));
        let Some((place, insn)) = place.and_then(|p| p.insn.map(|insn| (p, insn))) else {
            return self.interrupted(registers, libc::SIGSEGV);
        };
        self.program = registers;
        self.give_back_borrowed(place.borrowed);
        self.program.rip = place.address;
        self.drain_partly(&place, insn)?;
        self.forget()?;
        self.supervise()
    }

    /// Drops all translations and gives all guarded pages back.
    pub(super) fn forget(&mut self) -> Result<(), DriveError> {
        self.drain()?;
        self.collect();
        self.counts.emptied += 1;
        self.translator.forget();
        self.armed.clear();
        for (page, rights) in std::mem::take(&mut self.protected) {
            self.protect(page, rights)?;
        }
        Ok(())
    }

    fn protect(&mut self, page: u64, rights: u64) -> Result<(), DriveError> {
        let held = self.copy.registers()?;
        self.copy.call(libc::SYS_mprotect, [page, 4096, rights, 0, 0, 0])?;
        self.copy.set_registers(&held)?;
        Ok(())
    }

    /// Makes pages read-only that code was read from and that the program could write to; false when there are
    /// such pages and other threads.
    fn guard_new_pages(&mut self) -> Result<bool, DriveError> {
        let guarded: Vec<(u64, u64)> = self
            .translator
            .pages
            .take_fresh()
            .into_iter()
            .filter_map(|page| {
                let line = self.maps.iter().find(|m| m.mapping.overlaps(page..page + 1))?;
                (line.writable && line.readable).then_some((page, setup::rights(line)))
            })
            .collect();
        if !guarded.is_empty() && !self.is_alone() {
            return Ok(false);
        }
        for (page, rights) in guarded {
            self.protect(page, rights & !(libc::PROT_WRITE as u64))?;
            self.protected.insert(page, rights);
        }
        Ok(true)
    }

    /// Has blocks begin where a call may begin or return to.
    fn cut(&mut self) {
        for address in self.watched_addresses() {
            if !self.translator.cuts.contains(&address) {
                self.translator.cuts.push(address);
            }
        }
    }

    fn watched_addresses(&self) -> Vec<u64> {
        self.watch.iter().flat_map(Watch::watched).map(|address| address.0).collect()
    }

    /// Puts stops on the translations of the addresses that are watched.
    fn arm(&mut self) -> Result<(), Full> {
        for address in self.watched_addresses() {
            if self.armed.iter().any(|armed| armed.address == address) {
                continue;
            }
            let code = self.translator.translate_target(&self.copy, address)?;
            let byte = self.translator.replace_byte(code, 0xcc);
            self.armed.push(Armed { code, address, byte });
        }
        Ok(())
    }

    fn disarm(&mut self) {
        for armed in std::mem::take(&mut self.armed) {
            self.translator.replace_byte(armed.code, armed.byte);
        }
    }

    /// The program has come to a watched address: a call has returned, or one begins.
    fn watched(&mut self, program: Registers) -> Result<Next, DriveError> {
        self.program = program;
        let Some(watch) = &mut self.watch else {
            return Ok(Next::Go);
        };
        let copy = &self.copy;
        let over = watch.is_over_at(Avma(program.rip), program.rsp, || copy.word(program.rsp));
        self.disarm();
        if over {
            self.drain()?;
            return Ok(Next::End(Outcome::Length));
        }
        self.cut();
        self.passing = Some(program.rip);
        Ok(Next::Go)
    }
}

const _: () = assert!(GUARD_BYTES > super::block::LONGEST_INSNS * 8 * 8);
