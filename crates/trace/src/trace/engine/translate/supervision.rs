//! What the copy does not do by itself: instructions that translation does not cover, system calls.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction};

use super::block::x87_pointer;
use super::calls::{self, MAY_WAIT, Verdict};
use super::driver::{DriveError, Driver, Next, Outcome};
use super::signals::SI_KERNEL;
use super::threads::{self, Begun};
use crate::model::Avma;
use crate::trace::engine::blocks::Touch;
use crate::trace::engine::operands::{Before, needs_extended, repeats, stretch, touches};
use crate::trace::engine::process::Memories;
use crate::trace::engine::process::{Registers, Stopped};
use crate::trace::engine::state::general;
use crate::trace::engine::{Block, BlockInsn, MemoryAccess};

/// The system call that the program makes at an address.
pub(super) fn call_at(address: u64) -> BlockInsn {
    BlockInsn { address: Avma(address), size_bytes: 2, drains_stores: false }
}

impl Driver<'_> {
    /// Executes the instruction where the program stands at its own place.
    pub(super) fn supervise(&mut self) -> Result<Next, DriveError> {
        self.drain()?;
        let pc = self.program.rip;
        if self.may_end(pc, 0) {
            return Ok(Next::End(Outcome::Length));
        }
        if self.is_out_of_time() {
            return Ok(Next::End(self.short_of_time()));
        }
        let mut code = [0; 15];
        let got = self.copy.read(pc, &mut code);
        let insn = Decoder::with_ip(64, &code[..got], pc, DecoderOptions::NONE).decode();
        if insn.code() == Code::Syscall {
            return self.system_call(insn.next_ip());
        }
        self.counts.supervised += 1;
        let before = self.program;
        let mut touched = self.touched(&insn);
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
            if !(repeats(&insn) && self.program.rip == pc) {
                break;
            }
        }
        if repeats(&insn) {
            stretch(&insn, &before, self.program.rcx, &mut touched);
        }
        self.correct_x87_pointer(&insn, &before)?;
        let own_trap = self.copy.signal_info()?.1 == SI_KERNEL;
        let accesses: Vec<_> = touched.iter().map(|t| t.of_insn(0)).collect();
        self.one((&insn).into(), &accesses);
        if own_trap { self.signal(libc::SIGTRAP) } else { Ok(Next::Go) }
    }

    /// Where the instruction has stored the address of the last x87 instruction, and that ran in the
    /// code cache, puts the address that it has in the program.
    fn correct_x87_pointer(
        &mut self,
        insn: &Instruction,
        before: &Registers,
    ) -> Result<(), DriveError> {
        let Some((offset, bytes)) = x87_pointer(insn.mnemonic()) else { return Ok(()) };
        let operand = insn.virtual_address(0, 0, |register, _, _| general(before, register));
        let Some(at) = operand.map(|start| start.wrapping_add(offset)) else { return Ok(()) };
        let Some(stored) = self.copy.word(at) else { return Ok(()) };
        let base = self.translator.region.base;
        let address = match bytes {
            8 => stored,
            // The low half is stored; the whole is as near to the region's start as its other code.
            _ => base.wrapping_add((stored as u32).wrapping_sub(base as u32).into()),
        };
        let place = self.translator.region.code_offset(address);
        let Some(place) = place.and_then(|at| self.translator.blocks.place(at)) else {
            return Ok(());
        };
        if place.insn.is_some() {
            self.copy.write(at, &place.address.to_le_bytes()[..bytes])?;
        }
        Ok(())
    }

    /// What the instruction where the program stands is going to touch.
    fn touched(&mut self, insn: &Instruction) -> Vec<Touch> {
        let mut touched = Vec::new();
        if !self.translator.with_memory || insn.is_invalid() {
            return touched;
        }
        if needs_extended(insn) {
            self.extended.read(self.copy.pid);
        }
        let before = Before { general: &self.program, extended: &self.extended };
        touches(insn, &mut self.translator.factory, &before, &mut touched);
        touched
    }

    /// Tells the sink of one instruction.
    pub(super) fn one(&mut self, insn: BlockInsn, accesses: &[MemoryAccess]) {
        self.translator.blocks.single(&Block { insns: vec![insn] }, accesses, self.sink);
        self.counts.instructions += 1;
        *self.supervised_at.entry(insn.address.0).or_default() += 1;
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
        let is_alone = self.is_alone();
        if is_alone {
            if calls::is_idle(number) {
                // What it executed between such calls tells waiting from working.
                self.collect();
            }
            if let Some(since) = self.calls.borrow_mut().waits(number, self.counts.instructions) {
                self.waited_since = Some(since);
                let reason = "it waits for its other threads, which stand still (a Go program needs none \
                     with GOMAXPROCS=1 GOGC=off GODEBUG=asyncpreemptoff=1)";
                return Ok(Next::End(Outcome::Short(reason.into())));
            }
        }
        let changed = changed_range(number, arguments);
        if changed.is_some_and(|range| self.others_run_code_in(&range)) {
            return Ok(Next::End(threads::changes_code()));
        }
        let like = self.like(arguments[0]);
        let verdict = self.calls.borrow_mut().judge(&mut self.copy, like, number, arguments);
        let answer = match verdict {
            Verdict::Answer(answer) => answer,
            Verdict::Opened(fd) => fd.into(),
            Verdict::Run if like.counts && MAY_WAIT.contains(&number) => {
                return self.begin_call(Begun { number, arguments, next });
            }
            Verdict::Run => self.make_call(number, arguments)?,
            Verdict::RunInstead(number, arguments) => self.make_call(number, arguments)?,
            Verdict::Start(what) => match self.start(what, number, arguments, next)? {
                Ok(answer) => answer,
                Err(end) => return Ok(Next::End(end)),
            },
            Verdict::Exit(_) if !self.ends_with_this(number) => {
                self.note_mappings();
                return self.begin_call(Begun { number, arguments, next });
            }
            Verdict::Exec if like.counts => {
                if !self.may_be_replaced() {
                    let reason =
                        "it calls another program while it has threads or has written files";
                    return Ok(Next::End(Outcome::Short(reason.into())));
                }
                self.note_mappings();
                return self.begin_call(Begun { number, arguments, next });
            }
            Verdict::SignalReturn => {
                self.one(call_at(r.rip), &[]);
                self.program = self.copy.return_from_signal(&r)?;
                return Ok(Next::Go);
            }
            Verdict::Exit(code) => {
                self.one(call_at(r.rip), &[]);
                return Ok(Next::End(Outcome::Exit(code)));
            }
            Verdict::Exec => {
                self.one(call_at(r.rip), &[]);
                return Ok(Next::End(Outcome::Exec));
            }
            Verdict::GiveUp(reason) => return Ok(Next::End(Outcome::Short(reason))),
        };
        self.one(call_at(r.rip), &[]);
        self.behind_call(answer, next);
        Ok(Next::Go)
    }

    /// Puts the program behind a system call, which has this answer.
    pub(super) fn behind_call(&mut self, answer: i64, next: u64) {
        // As the processor leaves them: where it returned to, and the flags it returned with.
        self.program.rax = answer.cast_unsigned();
        self.program.rcx = next;
        self.program.r11 = self.program.eflags;
        self.program.rip = next;
    }

    fn make_call(&mut self, number: i64, arguments: [u64; 6]) -> Result<i64, DriveError> {
        let code_changes = changed_range(number, arguments)
            .is_some_and(|range| self.translator.pages.seen().any(|page| range.contains(&page)));
        // The kernel may write for the program where we let nobody write.
        if code_changes || !self.protected.is_empty() {
            self.forget()?;
        }
        let arguments = self.with_own_ids(number, arguments);
        self.copy.set_registers(&self.program)?;
        let answer = self.copy.call(number, arguments)?;
        let mut calls = self.calls.borrow_mut();
        calls.made(number, arguments, answer);
        if answer == 0 {
            calls.made_pipe(&self.copy, number, arguments);
        }
        drop(calls);
        if matches!(
            number,
            libc::SYS_mmap
                | libc::SYS_munmap
                | libc::SYS_mprotect
                | libc::SYS_mremap
                | libc::SYS_brk
        ) {
            self.maps_have_changed();
        }
        if number == libc::SYS_arch_prctl {
            let now = self.copy.registers()?;
            (self.program.fs_base, self.program.gs_base) = (now.fs_base, now.gs_base);
        }
        Ok(answer)
    }
}

/// Where a call may change what is mapped already.
fn changed_range(number: i64, [at, bytes, _, flags, ..]: [u64; 6]) -> Option<Range<u64>> {
    let changes = match number {
        // Elsewhere the kernel takes what is free.
        libc::SYS_mmap => flags & libc::MAP_FIXED as u64 != 0,
        libc::SYS_munmap | libc::SYS_mprotect | libc::SYS_mremap => true,
        _ => false,
    };
    changes.then(|| at..at.saturating_add(bytes))
}
