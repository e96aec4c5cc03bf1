//! Runs the window in the copy: resumes translated code, answers its stops, decides when it ends.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use iced_x86::{Code, Decoder, DecoderOptions};
use rustc_hash::FxHashMap;

use super::block::Memories;
use super::calls::{Calls, Verdict};
use super::process::{Process, Registers, Stopped};
use super::region::{GUARD_BYTES, LOG_BYTES, Slot};
use super::setup::{self, MapLine};
use super::supervised;
use super::translator::{Full, JUMP_REGISTERS, Stop, Translator};
use crate::model::Avma;
use crate::trace::engine::{Block, BlockInsn, Length, Sink};

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

/// When a window by calls ends: which address is watched for it, and what to make of arrivals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finish {
    /// Calls that must still return.
    left: u64,
    start: u64,
    returns_to: u64,
    /// The stack pointer on entry.
    stack: u64,
    inside: bool,
}

impl Finish {
    /// From the registers at the first call's entry.
    pub(super) fn new(calls: u64, entry: &Registers, memory: &Process) -> Self {
        Self {
            left: calls,
            start: entry.rip,
            returns_to: memory.word(entry.rsp).unwrap_or(0),
            stack: entry.rsp,
            inside: true,
        }
    }

    /// At the next arrival at an address.
    pub(super) fn at(address: u64) -> Self {
        Self { left: 1, start: address, returns_to: address, stack: 0, inside: true }
    }

    /// The address to watch.
    pub(super) fn address(&self) -> u64 {
        if self.inside { self.returns_to } else { self.start }
    }

    /// The program has come to the watched address. True when that ends the window.
    pub(super) fn arrived(&mut self, registers: &Registers, memory: &Process) -> bool {
        if !self.inside {
            *self = Self { left: self.left, ..Self::new(self.left, registers, memory) };
            self.start = registers.rip;
        } else if registers.rsp > self.stack {
            self.left = self.left.saturating_sub(1);
            self.inside = false;
        }
        self.left == 0
    }
}

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
    enough: Option<u64>,
    /// The byte of translated code under a watch, by its offset, with the program's address.
    armed: Option<(u64, u64, u8)>,
    maps: Vec<MapLine>,
    maps_are_old: bool,
    /// Pages with code that we have made read-only, with the rights they should have.
    protected: FxHashMap<u64, u64>,
    checked: usize,
    /// The program's registers when it is not in translated code.
    pub(super) program: Registers,
}

/// What to do next.
enum Next {
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
            protected: FxHashMap::default(),
            checked: 0,
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

    fn is_enough(&self) -> bool {
        self.enough.is_some_and(|enough| self.counts.instructions >= enough)
    }

    /// Reads the log to where the copy has written whole records.
    fn drain(&mut self) -> Result<(), DriveError> {
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
    fn place_log(&mut self) {
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
    fn answer(&mut self, stopped: Stopped) -> Result<Next, DriveError> {
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
    fn trap(&mut self, registers: &Registers) -> Result<Option<Next>, DriveError> {
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

    fn give_back(&mut self, borrowed: &[super::emit::Gpr]) {
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

    /// The copy stopped for a signal, somewhere. Finds out where the program is.
    fn interrupted(&mut self, registers: Registers, signal: i32) -> Result<Next, DriveError> {
        let mut registers = registers;
        // From between the program's instructions to the next place that is one of them.
        for _ in 0..10_000 {
            let offset = self.translator.region.code_offset(registers.rip);
            let Some(offset) = offset else {
                return Ok(Next::End(Outcome::GaveUp(format!(
                    "it stopped for signal {signal} at {:#x}, outside of translated code",
                    registers.rip
                ))));
            };
            if let Some(stop) = self.translator.stop_before(registers.rip + 1) {
                registers.rip += 1;
                self.copy.held.push(signal);
                let _ = stop;
                return Ok(self.trap(&registers)?.unwrap_or(Next::Resume));
            }
            if let Some(place) = self.translator.blocks.place(offset) {
                if offset == place.start {
                    self.program = registers;
                    self.program.rip = place.block;
                    self.drain()?;
                    return self.signal(signal);
                }
                if let Some(insn) = place.insn {
                    self.program = registers;
                    self.give_back(&place.borrowed);
                    self.program.rip = place.address;
                    self.drain_partly(insn)?;
                    return self.signal(signal);
                }
            }
            match self.copy.step(0)? {
                Stopped::Exited(code) => return Ok(Next::End(Outcome::Exit(code))),
                Stopped::Killed(signal) => return Ok(Next::End(Outcome::Signal(signal))),
                Stopped::Event(_) | Stopped::Signal(_) => registers = self.copy.registers()?,
            }
        }
        Ok(Next::End(Outcome::GaveUp(format!("signal {signal} came in the middle of nowhere"))))
    }

    /// Tells all whole records and the part of the last one before instruction `insn`.
    fn drain_partly(&mut self, insn: u32) -> Result<(), DriveError> {
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

    /// Delivers a signal to the program, which stands between two instructions.
    fn signal(&mut self, signal: i32) -> Result<Next, DriveError> {
        match disposition(self.copy.pid, signal)? {
            Disposition::Ignored => Ok(Next::Go),
            Disposition::Ends => Ok(Next::End(Outcome::Signal(signal))),
            Disposition::Caught => {
                self.counts.signals += 1;
                self.copy.set_registers(&self.program)?;
                match self.copy.step(signal)? {
                    Stopped::Exited(code) => Ok(Next::End(Outcome::Exit(code))),
                    Stopped::Killed(signal) => Ok(Next::End(Outcome::Signal(signal))),
                    Stopped::Event(_) | Stopped::Signal(_) => {
                        self.program = self.copy.registers()?;
                        Ok(Next::Go)
                    }
                }
            }
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
        self.give_back(&place.borrowed);
        self.program.rip = place.address;
        self.drain_partly(insn)?;
        self.forget()?;
        self.supervise()
    }

    /// Drops all translations and gives all guarded pages back.
    fn forget(&mut self) -> Result<(), DriveError> {
        self.drain()?;
        self.counts.emptied += 1;
        self.translator.forget();
        self.armed = None;
        self.checked = 0;
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
        let seen = self.translator.pages.count();
        if seen == self.checked {
            return Ok(());
        }
        self.checked = seen;
        if self.maps_are_old {
            self.maps = setup::maps(self.copy.pid)?;
            self.maps_are_old = false;
        }
        let guarded: Vec<(u64, u64)> = self
            .translator
            .pages
            .seen()
            .filter(|page| !self.protected.contains_key(page))
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

    /// Executes the instruction where the program stands at its own place.
    fn supervise(&mut self) -> Result<Next, DriveError> {
        self.drain()?;
        if self.is_enough() {
            return Ok(Next::End(Outcome::Length));
        }
        let pc = self.program.rip;
        let mut code = [0; 15];
        let got = self.copy.read(pc, &mut code);
        let insn = Decoder::with_ip(64, &code[..got], pc, DecoderOptions::NONE).decode();
        if insn.code() == Code::Syscall {
            return self.system_call(insn.next_ip());
        }
        self.counts.supervised += 1;
        let accesses = if self.translator.with_memory && !insn.is_invalid() {
            supervised::accesses(&insn, &self.program, self.copy.pid)?
        } else {
            Vec::new()
        };
        self.copy.set_registers(&self.program)?;
        loop {
            match self.copy.step(0)? {
                Stopped::Signal(libc::SIGTRAP) => {}
                Stopped::Signal(signal) => {
                    self.program = self.copy.registers()?;
                    return if self.program.rip == pc {
                        self.signal(signal)
                    } else {
                        self.copy.held.push(signal);
                        Ok(Next::Go)
                    };
                }
                Stopped::Event(_) => continue,
                Stopped::Exited(code) => return Ok(Next::End(Outcome::Exit(code))),
                Stopped::Killed(signal) => return Ok(Next::End(Outcome::Signal(signal))),
            }
            self.program = self.copy.registers()?;
            let repeats = insn.is_string_instruction() && self.program.rip == pc;
            if !repeats {
                break;
            }
        }
        let code = self.copy.signal_info()?.1;
        if self.program.rip == pc && code != TRAP_TRACE && code != TRAP_BRKPT {
            return self.signal(libc::SIGTRAP);
        }
        self.one(pc, insn.len(), &accesses);
        Ok(Next::Go)
    }

    /// Tells the sink of one instruction.
    fn one(&mut self, pc: u64, length: usize, accesses: &[crate::trace::engine::MemoryAccess]) {
        let insn = BlockInsn { address: Avma(pc), size_bytes: length as u8 };
        self.translator.blocks.single(&Block { insns: vec![insn] }, accesses, self.sink);
        self.counts.instructions += 1;
        if self.enough.is_some() {
            self.place_log();
        }
    }

    /// The program makes a system call; it goes on at `next`.
    fn system_call(&mut self, next: u64) -> Result<Next, DriveError> {
        let r = self.program;
        let number = r.rax.cast_signed();
        let arguments = [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9];
        self.counts.calls += 1;
        let answer = match self.calls.judge(&self.copy, number, arguments) {
            Verdict::Answer(answer) => answer,
            Verdict::Run => self.make_call(number, arguments)?,
            Verdict::RunPrivately(fd) => {
                if let Err(reason) = self.calls.reopen(&mut self.copy, fd) {
                    return Ok(Next::End(Outcome::GaveUp(reason)));
                }
                self.make_call(number, arguments)?
            }
            Verdict::SignalReturn => {
                self.one(r.rip, 2, &[]);
                self.program = self.copy.return_from_signal(&r)?;
                return Ok(Next::Go);
            }
            Verdict::Exit(code) => {
                self.one(r.rip, 2, &[]);
                return Ok(Next::End(Outcome::Exit(code)));
            }
            Verdict::Exec => {
                self.one(r.rip, 2, &[]);
                return Ok(Next::End(Outcome::Exec));
            }
            Verdict::GiveUp(reason) => return Ok(Next::End(Outcome::GaveUp(reason))),
        };
        self.one(r.rip, 2, &[]);
        // As the processor leaves them: where it returned to, and the flags it returned with.
        self.program.rax = answer.cast_unsigned();
        self.program.rcx = next;
        self.program.r11 = r.eflags;
        self.program.rip = next;
        Ok(Next::Go)
    }

    fn make_call(&mut self, number: i64, arguments: [u64; 6]) -> Result<i64, DriveError> {
        let maps_change = matches!(
            number,
            libc::SYS_mmap
                | libc::SYS_munmap
                | libc::SYS_mprotect
                | libc::SYS_mremap
                | libc::SYS_brk
        );
        let range = arguments[0]..arguments[0].saturating_add(arguments[1]);
        let code_changes = matches!(
            number,
            libc::SYS_mmap | libc::SYS_munmap | libc::SYS_mprotect | libc::SYS_mremap
        ) && self.translator.pages.seen().any(|page| range.contains(&page));
        // The kernel may write for the program where we let nobody write.
        if code_changes || !self.protected.is_empty() {
            self.forget()?;
        }
        let arguments = self.calls.with_own_ids(self.copy.pid, number, arguments);
        self.copy.set_registers(&self.program)?;
        let answer = self.copy.call(number, arguments)?;
        self.calls.made(number, arguments, answer);
        if maps_change {
            self.maps_are_old = true;
        }
        if number == libc::SYS_arch_prctl {
            let now = self.copy.registers()?;
            (self.program.fs_base, self.program.gs_base) = (now.fs_base, now.gs_base);
        }
        Ok(answer)
    }
}

const TRAP_BRKPT: i32 = 1;
const TRAP_TRACE: i32 = 2;

/// What a signal does to the program.
enum Disposition {
    Ignored,
    Caught,
    Ends,
}

fn disposition(pid: i32, signal: i32) -> io::Result<Disposition> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let set = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
    };
    let bit = 1_u64 << (signal - 1).clamp(0, 63);
    if set("SigCgt:") & bit != 0 {
        return Ok(Disposition::Caught);
    }
    let harmless = matches!(
        signal,
        libc::SIGCHLD
            | libc::SIGURG
            | libc::SIGWINCH
            | libc::SIGCONT
            | libc::SIGSTOP
            | libc::SIGTSTP
            | libc::SIGTTIN
            | libc::SIGTTOU
    );
    let ignored = harmless || set("SigIgn:") & bit != 0;
    Ok(if ignored { Disposition::Ignored } else { Disposition::Ends })
}

fn rights_of(line: &MapLine) -> u64 {
    let bit = |set: bool, bit: i32| if set { bit as u64 } else { 0 };
    bit(line.readable, libc::PROT_READ)
        | bit(line.writable, libc::PROT_WRITE)
        | bit(line.executable, libc::PROT_EXEC)
}

const _: () = assert!(GUARD_BYTES > super::block::LONGEST_INSNS * 8 * 8);
