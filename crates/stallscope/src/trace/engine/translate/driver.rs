//! Runs the window in the copy: resumes translated code, answers its stops, decides when it ends.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustc_hash::FxHashMap;

use super::calls::Calls;
use super::finish::Finish;
use super::process::{Process, Registers, Stopped};
use super::region::{GUARD_BYTES, LOG_BYTES, Slot};
use super::setup::{self, MapLine};
use super::translator::{Full, JUMP_REGISTERS, Stop, Translator};
use crate::trace::engine::{Length, Sink};

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
    /// The copy cannot follow the original any further.
    GaveUp(String),
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
    pub(super) copy: Process,
    pub(super) translator: Translator,
    pub(super) calls: Calls,
    pub(super) counts: Counts,
    pub(super) sink: &'a mut dyn Sink,
    pub(super) interrupt: &'a AtomicBool,
    pub(super) deadline: Option<Instant>,
    watch: Option<Finish>,
    /// Instructions after which a window by instructions ends.
    pub(super) enough: Option<u64>,
    /// The byte of translated code under a watch, by its offset, with the program's address.
    armed: Option<(u64, u64, u8)>,
    maps: Vec<MapLine>,
    pub(super) maps_are_old: bool,
    /// How often each supervised instruction ran.
    pub(super) supervised_at: FxHashMap<u64, u64>,
    /// Pages with code that we have made read-only, with the rights they should have.
    pub(super) protected: FxHashMap<u64, u64>,
    /// The program's registers when it is not in translated code.
    pub(super) program: Registers,
}

/// What to do next.
pub(super) enum Next {
    /// Go on where the program's registers say.
    Go,
    /// As `Go`, by way of an indirect jump.
    GoIndirectly,
    /// The copy is ready to be resumed as it is.
    Resume,
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
            copy,
            translator,
            calls,
            counts: Counts::default(),
            sink,
            interrupt,
            deadline: None,
            watch: None,
            enough: None,
            armed: None,
            maps: Vec::new(),
            maps_are_old: true,
            supervised_at: FxHashMap::default(),
            protected: FxHashMap::default(),
            program,
        };
        match length {
            Length::Instructions(enough) => new.enough = Some(enough),
            Length::Calls(calls) => {
                let watch = Finish::new(calls, &program, &new.copy);
                new.translator.cuts = vec![watch.start, watch.returns_to];
                new.watch = Some(watch);
            }
        }
        Ok(new)
    }

    /// Runs the window.
    pub(super) fn run(&mut self) -> Result<Outcome, DriveError> {
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
                Next::Resume => {
                    let stopped = self.copy.run(0)?;
                    self.counts.stops += 1;
                    self.answer(stopped)?
                }
                Next::End(outcome) => return Ok(outcome),
            };
        }
    }

    /// Goes on in translated code where the program's registers say.
    fn enter(&mut self, indirectly: bool) -> Result<Next, DriveError> {
        if self.is_enough() {
            self.drain()?;
            if self.is_enough() {
                return Ok(Next::End(Outcome::Length));
            }
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
        self.guard_new_pages()?;
        let mut registers = self.program;
        registers.rip = code;
        self.copy.set_registers(&registers)?;
        Ok(Next::Resume)
    }

    /// How often the program has executed, in the window, the instruction where it stands now.
    pub(super) fn arrivals(&self) -> u64 {
        self.translator.blocks.executions(self.program.rip)
            + self.supervised_at.get(&self.program.rip).copied().unwrap_or(0)
    }

    /// Whether [`Self::arrivals`] knows of everything that ran.
    pub(super) fn counts_are_whole(&self) -> bool {
        self.watch.is_some() || (self.counts.emptied == 0 && self.counts.signals == 0)
    }

    /// Tells the translator what is code, if that has changed.
    fn look_at_maps(&mut self) -> Result<(), DriveError> {
        if !std::mem::take(&mut self.maps_are_old) {
            return Ok(());
        }
        self.maps = setup::maps(self.copy.pid)?;
        let code = self.maps.iter().filter(|m| m.executable && !setup::is_ours(m));
        self.translator.pages.set_executable(code.map(|m| m.start..m.end).collect());
        Ok(())
    }

    pub(super) fn is_enough(&self) -> bool {
        self.enough.is_some_and(|enough| self.counts.instructions >= enough)
    }

    /// Reads the log to where the copy has written whole records.
    pub(super) fn drain(&mut self) -> Result<(), DriveError> {
        let position = self.translator.region.slot(Slot::LogPosition);
        self.drain_to(position)?;
        self.place_log();
        Ok(())
    }

    fn drain_to(&mut self, position: u64) -> Result<(), DriveError> {
        self.counts.drains += 1;
        let start = self.translator.region.log_start();
        let region = &self.translator.region;
        let blocks = &mut self.translator.blocks;
        blocks.bases = [0, self.program.fs_base, self.program.gs_base];
        let counted = blocks
            .drain(region.log(start, position), self.sink)
            .map_err(|_| io::Error::other("the program wrote into the log"))?;
        self.counts.instructions += counted;
        Ok(())
    }

    /// Sets where the next record goes: at the log's start, or so close to its end that the window
    /// cannot run over. Every record has at least a word and at most so many instructions.
    pub(super) fn place_log(&mut self) {
        let words = self.words_allowed(1);
        let at = self.translator.region.log_end() - 8 * words;
        self.translator.region.set_log_start(at);
        self.translator.region.set_slot(Slot::LogPosition, at);
    }

    fn words_allowed(&self, at_least: u64) -> u64 {
        let all = (LOG_BYTES / 8) as u64;
        let Some(enough) = self.enough else {
            return all;
        };
        let left = enough.saturating_sub(self.counts.instructions);
        (left / super::block::LONGEST_INSNS as u64).clamp(at_least.min(all), all)
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
        if let Some((code, _, _)) = self.armed.filter(|(code, ..)| code + 1 == registers.rip) {
            let mut at = *registers;
            at.rip = code;
            return self.watched(at).map(Some);
        }
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

    pub(super) fn give_back(&mut self, borrowed: &[super::emit::Gpr]) {
        for register in borrowed {
            let value = self.translator.region.slot(Slot::Saved(*register));
            register.set(&mut self.program, value);
        }
    }

    /// The log is full: tells its records, and repeats the store that had no room.
    fn log_is_full(&mut self, mut registers: Registers) -> Result<Next, DriveError> {
        let Some(place) = self
            .translator
            .region
            .code_offset(registers.rip)
            .and_then(|at| self.translator.blocks.place(at))
        else {
            return self.interrupted(registers, libc::SIGSEGV);
        };
        let record = self.translator.region.slot(Slot::LogPosition);
        self.drain_to(record)?;
        let end = self.translator.region.log_end();
        let begun = end.saturating_sub(record);
        if begun == 0 && self.is_enough() {
            self.program = registers;
            self.give_back(&place.borrowed);
            self.program.rip = place.block;
            return Ok(Next::End(Outcome::Length));
        }
        let words = self.words_allowed(u64::from(place.record_words));
        let at = end - 8 * words;
        self.translator.region.move_record(record, begun, at);
        self.translator.region.set_log_start(at);
        self.translator.region.set_slot(Slot::LogPosition, at);
        place.borrowed[0].set(&mut registers, at);
        self.copy.set_registers(&registers)?;
        Ok(Next::Resume)
    }

    /// Tells all whole records and the part of the last one before instruction `insn`.
    pub(super) fn drain_partly(&mut self, insn: u32) -> Result<(), DriveError> {
        let record = self.translator.region.slot(Slot::LogPosition);
        self.drain_to(record)?;
        let end = self.translator.region.log_end();
        let begun = self.translator.region.log(record, end);
        let counted = self
            .translator
            .blocks
            .drain_partly(begun, insn, self.sink)
            .map_err(|_| io::Error::other("the program wrote into the log"))?;
        self.counts.instructions += counted;
        self.place_log();
        Ok(())
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
        self.give_back(&place.borrowed);
        self.program.rip = place.address;
        self.drain_partly(insn)?;
        self.forget()?;
        self.supervise()
    }

    /// Drops all translations and gives all guarded pages back.
    pub(super) fn forget(&mut self) -> Result<(), DriveError> {
        self.drain()?;
        self.counts.emptied += 1;
        self.translator.forget();
        self.armed = None;
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

    /// Makes pages read-only that code was read from and that the program could write to.
    fn guard_new_pages(&mut self) -> Result<(), DriveError> {
        let guarded: Vec<(u64, u64)> = self
            .translator
            .pages
            .take_fresh()
            .into_iter()
            .filter_map(|page| {
                let line = self.maps.iter().find(|m| m.start <= page && page < m.end)?;
                (line.writable && line.readable).then_some((page, rights_of(line)))
            })
            .collect();
        for (page, rights) in guarded {
            self.protect(page, rights & !(libc::PROT_WRITE as u64))?;
            self.protected.insert(page, rights);
        }
        Ok(())
    }

    /// Puts a stop on the translation of the address that is watched.
    fn arm(&mut self) -> Result<(), Full> {
        let Some(watch) = &self.watch else {
            return Ok(());
        };
        let address = watch.address();
        if self.armed.is_none_or(|(_, armed, _)| armed != address) {
            self.disarm();
            let code = self.translator.translate_target(&self.copy, address)?;
            let was = self.translator.replace_byte(code, 0xcc);
            self.armed = Some((code, address, was));
        }
        Ok(())
    }

    fn disarm(&mut self) {
        if let Some((code, _, was)) = self.armed.take() {
            self.translator.replace_byte(code, was);
        }
    }

    /// The program is where a watch is: a call has returned, or the next begins.
    fn watched(&mut self, registers: Registers) -> Result<Next, DriveError> {
        let Some(watch) = &mut self.watch else {
            return Ok(Next::Resume);
        };
        self.program = registers;
        self.program.rip = watch.address();
        let before = watch.address();
        if watch.arrived(&self.program, &self.copy) {
            self.disarm();
            self.drain()?;
            return Ok(Next::End(Outcome::Length));
        }
        if watch.address() != before {
            let next = watch.address();
            if !self.translator.cuts.contains(&next) {
                self.translator.cuts.push(next);
            }
            return Ok(Next::Go);
        }
        // Not this return: over the stop.
        let address = self.program.rip;
        self.disarm();
        self.copy.set_registers(&registers)?;
        match self.copy.step(0)? {
            Stopped::Signal(libc::SIGTRAP) => {}
            other => return self.answer(other),
        }
        let code = registers.rip;
        let was = self.translator.replace_byte(code, 0xcc);
        self.armed = Some((code, address, was));
        Ok(Next::Resume)
    }
}

fn rights_of(line: &MapLine) -> u64 {
    let bit = |set: bool, bit: i32| if set { bit as u64 } else { 0 };
    bit(line.readable, libc::PROT_READ)
        | bit(line.writable, libc::PROT_WRITE)
        | bit(line.executable, libc::PROT_EXEC)
}

const _: () = assert!(GUARD_BYTES > super::block::LONGEST_INSNS * 8 * 8);
