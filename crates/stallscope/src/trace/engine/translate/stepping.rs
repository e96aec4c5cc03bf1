//! Follows the original itself, one instruction after the other: slow, and always right.

use std::io;
use std::time::{Duration, Instant};

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction};
use rustc_hash::FxHashMap;

use super::block::Memories;
use super::driver::Outcome;
use super::finish::Finish;
use super::origin;
use super::process::{Process, Registers, Stopped};
use super::signals::{Disposition, SI_KERNEL, disposition};
use super::supervised;
use crate::model::Avma;
use crate::trace::engine::{Block, BlockId, BlockInsn, Length, MemoryAccess, Sink};

/// A window that is followed in the original.
pub(super) struct Stepping {
    thread: Process,
    finish: Option<Finish>,
    enough: u64,
    with_memory: bool,
    /// Number of each one-instruction block, by address; code that changes gets a new one.
    known: FxHashMap<u64, (u32, Vec<u8>)>,
    described: u32,
    flight: Option<Flight>,
    /// A signal is being delivered: the next stop is at its handler.
    delivering: bool,
    is_main: bool,
    pub(super) instructions: u64,
}

/// An instruction on its way.
struct Flight {
    insn: Instruction,
    code: [u8; 15],
    accesses: Vec<MemoryAccess>,
    before: Registers,
}

/// How long one turn may be.
const TURN: Duration = Duration::from_millis(2);

impl Stepping {
    /// Takes up a thread that stands at the window's start.
    pub(super) fn new(
        thread: Process,
        length: Length,
        with_memory: bool,
        is_main: bool,
    ) -> io::Result<Self> {
        let (finish, enough) = match length {
            Length::Instructions(n) => (None, n),
            Length::Calls(n) => (Some(Finish::new(n, &thread.registers()?, &thread)), u64::MAX),
        };
        let known = FxHashMap::default();
        Ok(Self {
            thread,
            finish,
            enough,
            with_memory,
            known,
            described: 0,
            flight: None,
            delivering: false,
            is_main,
            instructions: 0,
        })
    }

    /// Follows it for a short while; the outcome once the window has ended. Never waits longer:
    /// the program may be waiting for somebody to read its output.
    pub(super) fn some(&mut self, sink: &mut dyn Sink) -> io::Result<Option<Outcome>> {
        let began = Instant::now();
        while began.elapsed() < TURN {
            if self.flight.is_none()
                && let Some(outcome) = self.begin(sink)?
            {
                return Ok(Some(outcome));
            }
            match origin::look(self.thread.pid, self.is_main)? {
                None => std::thread::yield_now(),
                Some(stopped) => {
                    if let Some(outcome) = self.stopped(stopped, sink)? {
                        return Ok(Some(outcome));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Starts the next instruction.
    fn begin(&mut self, sink: &mut dyn Sink) -> io::Result<Option<Outcome>> {
        let before = self.thread.registers()?;
        let pc = before.rip;
        let mut code = [0; 15];
        let got = self.thread.read(pc, &mut code);
        let insn = Decoder::with_ip(64, &code[..got], pc, DecoderOptions::NONE).decode();
        let accesses = if self.with_memory && !insn.is_invalid() {
            supervised::accesses(&insn, &before, self.thread.pid)?
        } else {
            Vec::new()
        };
        let call = before.rax.cast_signed();
        if insn.code() == Code::Syscall && ends_here(call) {
            self.tell(&insn, &code, &accesses, sink);
            self.instructions += 1;
            return Ok(Some(match call {
                libc::SYS_execve | libc::SYS_execveat => Outcome::Exec,
                _ => Outcome::Exit(before.rdi as i32 & 0xff),
            }));
        }
        self.flight = Some(Flight { insn, code, accesses, before });
        self.thread.begin_step(0)?;
        Ok(None)
    }

    /// Deals with a stop while an instruction is on its way.
    fn stopped(&mut self, stopped: Stopped, sink: &mut dyn Sink) -> io::Result<Option<Outcome>> {
        let mut signal = 0;
        match stopped {
            Stopped::Exited(code) => return Ok(Some(Outcome::Exit(code))),
            Stopped::Killed(number) => return Ok(Some(Outcome::Signal(number))),
            Stopped::Event(libc::PTRACE_EVENT_EXEC) => return Ok(Some(Outcome::Exec)),
            Stopped::Event(
                libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK,
            ) => origin::release(origin::message(self.thread.pid)?)?,
            Stopped::Event(_) => {}
            Stopped::Signal(libc::SIGTRAP) => return self.landed(sink),
            Stopped::Signal(number) => {
                signal = number;
                match disposition(self.thread.pid, number)? {
                    Disposition::Ignored => signal = 0,
                    Disposition::Caught => self.delivering = true,
                    Disposition::Ends => {}
                }
            }
        }
        self.thread.begin_step(signal)?;
        Ok(None)
    }

    /// One step is done: an instruction, one repetition of it, or the way to a signal's handler.
    fn landed(&mut self, sink: &mut dyn Sink) -> io::Result<Option<Outcome>> {
        let Some(mut flight) = self.flight.take() else {
            return Ok(None);
        };
        let after = self.thread.registers()?;
        let pc = flight.before.rip;
        let repeats = flight.insn.is_string_instruction();
        if repeats && after.rip == pc {
            self.flight = Some(flight);
            self.thread.begin_step(0)?;
            return Ok(None);
        }
        if std::mem::take(&mut self.delivering) {
            // At the handler's first instruction; the one on its way has not been executed.
            return Ok(None);
        }
        if self.thread.signal_info()?.1 == SI_KERNEL {
            // The program's own trap: executed, and its handler is next.
            self.tell(&flight.insn, &flight.code, &flight.accesses, sink);
            self.instructions += 1;
            if matches!(disposition(self.thread.pid, libc::SIGTRAP)?, Disposition::Caught) {
                self.delivering = true;
            }
            self.flight = Some(flight);
            self.thread.begin_step(libc::SIGTRAP)?;
            return Ok(None);
        }
        if repeats {
            trim(&flight.insn, &mut flight.accesses, &flight.before, &after);
        }
        self.tell(&flight.insn, &flight.code, &flight.accesses, sink);
        self.is_over(&flight.insn)
    }

    fn is_over(&mut self, insn: &Instruction) -> io::Result<Option<Outcome>> {
        self.instructions += 1;
        if self.instructions >= self.enough && insn.flow_control() != FlowControl::Next {
            return Ok(Some(Outcome::Length));
        }
        if let Some(finish) = &mut self.finish {
            let now = self.thread.registers()?;
            if now.rip == finish.address() && finish.arrived(&now, &self.thread) {
                return Ok(Some(Outcome::Length));
            }
        }
        Ok(None)
    }

    fn tell(
        &mut self,
        insn: &Instruction,
        code: &[u8],
        accesses: &[MemoryAccess],
        sink: &mut dyn Sink,
    ) {
        let bytes = &code[..insn.len().min(code.len())];
        let known = self.known.get(&insn.ip()).filter(|(_, seen)| seen == bytes).map(|k| k.0);
        let number = known.unwrap_or_else(|| {
            let number = self.described;
            self.described += 1;
            self.known.insert(insn.ip(), (number, bytes.to_vec()));
            let size_bytes = insn.len() as u8;
            let insns = vec![BlockInsn { address: Avma(insn.ip()), size_bytes }];
            sink.describe(BlockId(number), &Block { insns });
            number
        });
        sink.run(BlockId(number), accesses);
    }
}

fn ends_here(number: i64) -> bool {
    matches!(number, libc::SYS_exit | libc::SYS_exit_group | libc::SYS_execve | libc::SYS_execveat)
}

/// A repeated comparison may end before its count does: what it touched shows afterwards.
fn trim(
    insn: &Instruction,
    accesses: &mut Vec<MemoryAccess>,
    before: &Registers,
    after: &Registers,
) {
    if !(insn.has_rep_prefix() || insn.has_repe_prefix() || insn.has_repne_prefix()) {
        return;
    }
    let done = before.rcx.wrapping_sub(after.rcx);
    let down = before.eflags & 1 << 10 != 0;
    for access in accesses.iter_mut().filter(|_| before.rcx > 0) {
        let element = u64::from(access.size_bytes) / before.rcx;
        let bytes = done * element;
        if down {
            access.address = access.address.offset(i64::from(access.size_bytes) - bytes as i64);
        }
        access.size_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    }
    accesses.retain(|a| a.size_bytes > 0);
}
