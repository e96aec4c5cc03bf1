//! The engine `step`: one instruction at a time, by the processor's trap flag.
//!
//! After every instruction the kernel stops the thread and tells us, so we know the registers
//! before each and compute from them which memory it will touch. Nothing is translated, so every
//! instruction set extension, every language and every kind of program works; what it costs is some
//! ten microseconds for each instruction. It is the oracle of the faster engines.
//!
//! What single-stepping changes in the program, and what is done about it: `pushf` and `syscall`
//! copy the trap flag where the program can see it (it is taken out again), and a `rep` would stop
//! at each repetition (it runs on to a breakpoint behind it). Transactional memory aborts.

use std::collections::HashMap;
use std::time::Instant;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
};

use super::blocks::{Blocks, Touch};
use super::calls::Calls;
use super::operands::{Before, needs_extended, repeats, stretch, touches};
use super::state::Extended;
use super::target::{self, Target};
use super::{
    Ended, Engine, EngineError, Length, Mapping, OUT_OF_TIME, Recording, SelfCheck, Sink, Subject,
    Window,
};
use crate::model::{Avma, Capability};
use crate::run::child::{Limits, Status};
use crate::run::tracee::{self, State};

/// Steps between two looks at what other threads and the user want.
const STEPS_PER_LOOK: u32 = 64;
/// Fewer repetitions of a `rep` are stepped through; more run to a breakpoint.
const FEW_REPETITIONS: u64 = 3;
/// No instruction is longer.
const LONGEST_BYTES: usize = 15;
const TRAP_FLAG: u64 = 0x100;
/// `si_code` of a stop that the kernel makes at the entry of a signal handler.
const HANDLER_ENTRY: i32 = libc::SIGTRAP;
/// `si_code`s of the trap behind an instruction: of the processor, of the kernel behind a system
/// call, of our own breakpoint.
const STEP_TRAPS: [i32; 3] = [2, 1, 4];

pub(super) struct Step;

impl Engine for Step {
    fn id(&self) -> &'static str {
        "step"
    }

    fn summary(&self) -> &'static str {
        "one instruction at a time by ptrace: always works, about 100,000 a second"
    }

    fn available(&self) -> Capability {
        target::capability()
    }

    fn follow(
        &self,
        subject: Subject<'_>,
        window: &Window,
        limits: Limits<'_>,
        sink: &mut dyn Sink,
    ) -> Result<Recording, EngineError> {
        let mut target = Target::of(subject, limits)?;
        let tid = target.run_to(&window.start, window.skip)?;
        record_from(target, tid, window, u64::MAX, sink)
    }
}

/// Follows a thread that is held at the window's start, for so many instructions at most, and lets
/// the command run to its end.
pub(super) fn record_from(
    mut target: Target<'_>,
    tid: i32,
    window: &Window,
    at_most: u64,
    sink: &mut dyn Sink,
) -> Result<Recording, EngineError> {
    let began = Instant::now();
    let mut follower = Follower::new(&mut target, tid, window, at_most, sink)?;
    let mut ended = follower.follow()?;
    let instructions = follower.instructions;
    let mappings = follower.mappings.take();
    let mut notes = follower.notes();
    let wall_ns = began.elapsed().as_nanos() as u64;
    let mappings = mappings.unwrap_or_else(|| target.mappings());
    if ended == Ended::Length {
        notes.extend(branch_stepping_note(&mut target, tid)?);
    }
    let exit = target.finish()?;
    let status = exit.as_ref().map(|exit| exit.status);
    if let (Ended::Exit, Some(Status::Signal(signal))) = (ended, status) {
        ended = Ended::Signal(signal);
    }
    Ok(Recording {
        engine: Step.id(),
        instructions,
        wall_ns,
        ended,
        mappings,
        self_check: SelfCheck::NotCompared,
        notes,
        code: Vec::new(),
        exit,
    })
}

enum Outcome {
    /// The instruction is done; a signal may have come behind it.
    Executed { signal: i32 },
    /// It has not been executed (or, for a `rep`, not to its end), because a signal came first.
    Interrupted { signal: i32 },
    /// It has not been executed: a signal's handler is entered instead.
    Handler,
    /// The window's thread is gone or about to go.
    Over { ended: Ended, executed: bool },
}

struct Follower<'t, 'l, 's> {
    target: &'t mut Target<'l>,
    tid: i32,
    memory: bool,
    calls: Option<Calls>,
    at_least: u64,
    at_most: u64,
    sink: &'s mut dyn Sink,
    blocks: Blocks,
    decoded: HashMap<u64, ([u8; LONGEST_BYTES], Instruction)>,
    factory: InstructionInfoFactory,
    extended: Extended,
    touches: Vec<Touch>,
    registers: libc::user_regs_struct,
    instructions: u64,
    /// Whether the program has `SIGTRAP` blocked.
    blocks_traps: bool,
    until: Option<Instant>,
    out_of_time: bool,
    unreadable: u64,
    signals: u64,
    most_threads: usize,
    /// Taken early where the window's end makes them unreadable.
    mappings: Option<Vec<Mapping>>,
}

impl<'t, 'l, 's> Follower<'t, 'l, 's> {
    fn new(
        target: &'t mut Target<'l>,
        tid: i32,
        window: &Window,
        at_most: u64,
        sink: &'s mut dyn Sink,
    ) -> Result<Self, EngineError> {
        let registers = tracee::registers(tid).map_err(|_| vanished())?;
        let (calls, at_least) = match window.length {
            Length::Calls(count) => (Some(Calls::new(Avma(registers.rip), count)), 0),
            Length::Instructions(count) => (None, count),
            Length::ToEnd => (None, u64::MAX),
        };
        Ok(Self {
            target,
            tid,
            memory: window.memory,
            calls,
            at_least,
            at_most,
            sink,
            blocks: Blocks::default(),
            decoded: HashMap::new(),
            factory: InstructionInfoFactory::new(),
            extended: Extended::new(),
            touches: Vec::new(),
            registers,
            blocks_traps: tracee::blocks_traps(tid),
            instructions: 0,
            until: window.budget.map(|budget| Instant::now() + budget),
            out_of_time: false,
            unreadable: 0,
            signals: 0,
            most_threads: 1,
            mappings: None,
        })
    }

    /// Steps through the window; returns why it ended.
    fn follow(&mut self) -> Result<Ended, EngineError> {
        let mut signal = 0;
        let mut steps = 0_u32;
        loop {
            if signal == 0 && self.is_over() {
                self.blocks.end(self.sink);
                return Ok(Ended::Length);
            }
            if self.instructions >= self.at_most && self.blocks.is_empty() {
                return Ok(Ended::Short);
            }
            let insn = self.fetch();
            self.look_at_operands(insn.as_ref());
            let before = self.registers;
            let outcome = self.step(insn.as_ref(), signal)?;
            signal = match outcome {
                Outcome::Executed { signal } => {
                    self.keep_traps_blocked(insn.as_ref(), &before);
                    self.enter(insn.as_ref(), &before);
                    self.hide_trap_flag(insn.as_ref(), before.rax);
                    signal
                }
                Outcome::Interrupted { signal } => {
                    if insn.as_ref().is_some_and(repeats) && self.registers.rcx != before.rcx {
                        self.enter(insn.as_ref(), &before);
                    }
                    self.blocks.end(self.sink);
                    signal
                }
                Outcome::Handler => {
                    // No trap of the processor: what the handler blocks is still blocked.
                    self.blocks_traps = tracee::blocks_traps(self.tid);
                    self.signals += 1;
                    self.blocks.end(self.sink);
                    0
                }
                Outcome::Over { ended, executed } => {
                    if executed {
                        self.enter(insn.as_ref(), &before);
                    }
                    self.blocks.end(self.sink);
                    return Ok(ended);
                }
            };
            steps += 1;
            if steps.is_multiple_of(STEPS_PER_LOOK) {
                if self.until.is_some_and(|until| Instant::now() >= until) {
                    self.blocks.end(self.sink);
                    self.out_of_time = true;
                    self.target.deliver_later(signal);
                    return Ok(Ended::Short);
                }
                self.most_threads = self.most_threads.max(self.target.thread_count());
                self.target.look_around()?;
            }
        }
    }

    fn is_over(&mut self) -> bool {
        let (target, registers) = (&*self.target, &self.registers);
        match &mut self.calls {
            Some(calls) => calls.is_over_at(Avma(registers.rip), registers.rsp, || {
                target.read_word(Avma(registers.rsp))
            }),
            None => self.instructions >= self.at_least && self.blocks.is_empty(),
        }
    }

    /// The instruction at hand; `None` where its bytes cannot be read or mean nothing, which the
    /// program is about to notice itself.
    fn fetch(&mut self) -> Option<Instruction> {
        let address = self.registers.rip;
        let mut bytes = [0; LONGEST_BYTES];
        let length = self.target.read(Avma(address), &mut bytes);
        // Always read again: code that is written while it runs must not be taken for the old.
        if let Some((known, insn)) = self.decoded.get(&address)
            && known[..insn.len()] == bytes[..insn.len()]
        {
            return Some(*insn);
        }
        let insn = Decoder::with_ip(64, &bytes[..length], address, DecoderOptions::NONE).decode();
        if insn.is_invalid() {
            return None;
        }
        self.decoded.insert(address, (bytes, insn));
        Some(insn)
    }

    fn look_at_operands(&mut self, insn: Option<&Instruction>) {
        self.touches.clear();
        let Some(insn) = insn.filter(|insn| self.memory || repeats(insn)) else { return };
        if needs_extended(insn) {
            self.extended.read(self.tid);
        }
        let before = Before { general: &self.registers, extended: &self.extended };
        touches(insn, &mut self.factory, &before, &mut self.touches);
    }

    /// Executes the instruction and reads the registers behind it.
    fn step(&mut self, insn: Option<&Instruction>, signal: i32) -> Result<Outcome, EngineError> {
        let before = self.registers;
        let calls_kernel = insn
            .is_some_and(|i| matches!(i.code(), Code::Syscall | Code::Int_imm8 | Code::Sysenter));
        if calls_kernel && matches!(before.rax as i64, libc::SYS_execve | libc::SYS_execveat) {
            // Behind a successful one, they are another program's.
            self.mappings = Some(self.target.mappings());
        }
        let mut state = match insn.filter(|i| repeats(i) && before.rcx > FEW_REPETITIONS) {
            Some(insn) if signal == 0 => {
                self.target.run_on_to(self.tid, signal, Avma(insn.next_ip()))?
            }
            _ => self.target.step(self.tid, signal, calls_kernel || signal != 0)?,
        };
        let mut delivered = signal != 0;
        loop {
            let State::Stopped { signal, event } = state else {
                return Ok(Outcome::Over { ended: Ended::Exit, executed: calls_kernel });
            };
            match event {
                libc::PTRACE_EVENT_EXIT => return Ok(self.exiting(calls_kernel)),
                libc::PTRACE_EVENT_EXEC => {
                    return Ok(Outcome::Over { ended: Ended::Exec, executed: true });
                }
                libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => {
                    state = self.target.wait_for_continue(self.tid)?;
                    continue;
                }
                0 => {}
                _ => {
                    state = self.target.step(self.tid, 0, true)?;
                    continue;
                }
            }
            self.registers = tracee::registers(self.tid).map_err(|_| vanished())?;
            let moved = self.registers.rip != before.rip;
            if signal != libc::SIGTRAP {
                return Ok(match moved {
                    true => Outcome::Executed { signal },
                    false => Outcome::Interrupted { signal },
                });
            }
            let code = match moved && !delivered && !insn.is_some_and(traps) {
                true => STEP_TRAPS[0],
                false => tracee::signal_code(self.tid).unwrap_or(STEP_TRAPS[0]),
            };
            delivered = false;
            if code == HANDLER_ENTRY {
                return Ok(Outcome::Handler);
            }
            if !STEP_TRAPS.contains(&code) {
                return Ok(match moved {
                    true => Outcome::Executed { signal },
                    false => Outcome::Interrupted { signal },
                });
            }
            if !moved && insn.is_some_and(repeats) && self.registers.rcx != before.rcx {
                // One repetition done, more to come.
                state = self.target.step(self.tid, 0, false)?;
                continue;
            }
            return Ok(Outcome::Executed { signal: 0 });
        }
    }

    fn exiting(&mut self, calls_kernel: bool) -> Outcome {
        self.mappings = Some(self.target.mappings());
        let signal = tracee::event_message(self.tid).unwrap_or(0) & 0x7f;
        match signal {
            0 => Outcome::Over { ended: Ended::Exit, executed: calls_kernel },
            signal => Outcome::Over { ended: Ended::Signal(signal), executed: false },
        }
    }

    /// Records an instruction that was executed.
    fn enter(&mut self, insn: Option<&Instruction>, before: &libc::user_regs_struct) {
        let Some(insn) = insn else {
            self.unreadable += 1;
            return;
        };
        if repeats(insn) {
            stretch(insn, before, self.registers.rcx, &mut self.touches);
        }
        let address = insn.ip();
        if let Some((bytes, _)) = self.decoded.get(&address) {
            self.blocks.push(insn.into(), &bytes[..insn.len()], &self.touches);
            self.instructions += 1;
        }
        let goes_elsewhere = insn.flow_control() != FlowControl::Next
            || self.registers.rip != insn.next_ip()
            || self.blocks.is_full();
        if goes_elsewhere {
            self.blocks.end(self.sink);
        }
    }

    /// Our traps unblock `SIGTRAP`; if the program has it blocked, it is to stay so.
    fn keep_traps_blocked(&mut self, insn: Option<&Instruction>, before: &libc::user_regs_struct) {
        if insn.is_some_and(|insn| insn.code() == Code::Syscall) {
            let word = |at| self.target.read_word(Avma(at));
            self.blocks_traps = tracee::blocks_traps_behind(before, self.blocks_traps, word);
        }
        if self.blocks_traps {
            // Refused only by a thread that was killed meanwhile.
            let _ = tracee::block_traps(self.tid);
        }
    }

    /// Takes the trap flag out of where the instruction has copied it to. `rax_before` is the
    /// number of the system call, if it is one.
    fn hide_trap_flag(&mut self, insn: Option<&Instruction>, rax_before: u64) {
        match insn.map_or(Mnemonic::INVALID, Instruction::mnemonic) {
            Mnemonic::Pushf | Mnemonic::Pushfq => {
                let at = Avma(self.registers.rsp);
                if let Some(word) = self.target.read_word(at).filter(|w| w & TRAP_FLAG != 0) {
                    // Only the byte that holds it: `pushf` writes two bytes, `pushfq` eight.
                    let byte = ((word & !TRAP_FLAG) >> 8) as u8;
                    self.target.write(at.offset(1), &[byte]);
                }
            }
            // Behind the return from a signal handler, r11 is what the program had in it.
            Mnemonic::Syscall
                if rax_before != libc::SYS_rt_sigreturn as u64
                    && self.registers.r11 & TRAP_FLAG != 0 =>
            {
                let mut registers = self.registers;
                registers.r11 &= !TRAP_FLAG;
                // Refused only by a thread that was killed meanwhile.
                if tracee::set_registers(self.tid, &registers).is_ok() {
                    self.registers = registers;
                }
            }
            _ => {}
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.out_of_time {
            notes.push(format!("the window ends early: {OUT_OF_TIME}"));
        }
        if self.most_threads > 1 {
            notes.push(format!(
                "{} other threads ran on and were not followed",
                self.most_threads - 1
            ));
        }
        if self.signals > 0 {
            notes.push(format!(
                "{} signals came in the window; handlers are part of it",
                self.signals
            ));
        }
        if self.unreadable > 0 {
            notes.push(format!(
                "{} instructions could not be read and are missing (the kernel's own pages)",
                self.unreadable
            ));
        }
        notes
    }
}

/// Whether it raises a trap of its own.
fn traps(insn: &Instruction) -> bool {
    matches!(insn.mnemonic(), Mnemonic::Int3 | Mnemonic::Int1)
}

fn vanished() -> EngineError {
    EngineError::Unsupported { engine: "step", reason: "the traced thread was killed".into() }
}

/// Whether the kernel's stepping from branch to branch is what it says. Where a hypervisor leaves
/// the processor's flag for it out, the request succeeds and steps single instructions instead.
/// Nothing here relies on it; the note is for whoever wonders why.
fn branch_stepping_note(target: &mut Target<'_>, tid: i32) -> Result<Option<String>, EngineError> {
    let mut bytes = [0; LONGEST_BYTES];
    let Ok(before) = tracee::registers(tid) else { return Ok(None) };
    let length = target.read(Avma(before.rip), &mut bytes);
    let insn = Decoder::with_ip(64, &bytes[..length], before.rip, DecoderOptions::NONE).decode();
    if insn.is_invalid() || insn.flow_control() != FlowControl::Next || repeats(&insn) {
        return Ok(None);
    }
    let state = target.step_branch(tid)?;
    let after = tracee::registers(tid);
    if let State::Stopped { signal, event: 0 } = state
        && signal != libc::SIGTRAP
    {
        target.deliver_later(signal);
    }
    let degraded = matches!(state, State::Stopped { signal: libc::SIGTRAP, event: 0 })
        && after.is_ok_and(|r| r.rip == insn.next_ip());
    Ok(degraded.then(|| {
        "stepping from branch to branch (PTRACE_SINGLEBLOCK) does not work on this machine, though \
         the kernel accepts it; it is not used"
            .into()
    }))
}
