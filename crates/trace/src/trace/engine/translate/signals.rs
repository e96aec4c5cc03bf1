//! Signals in the window: where the program is when one comes, and how it is delivered.
//!
//! A handler starts in the copy as it would in the original, because the kernel itself writes its frame
//! while the copy has the program's own registers; only its code is translated like all other.

use std::io;

use super::driver::{DriveError, Driver, Next, Outcome};
use crate::foreign::Status;
use crate::trace::engine::process::{Registers, Stopped};

impl Driver<'_> {
    /// The copy stopped for a signal, somewhere. Finds out where the program is.
    pub(super) fn interrupted(
        &mut self,
        registers: Registers,
        signal: i32,
    ) -> Result<Next, DriveError> {
        let mut registers = registers;
        // From between the program's instructions to the next place that is one of them.
        for _ in 0..10_000 {
            let offset = self.translator.region.code_offset(registers.rip);
            let Some(offset) = offset else {
                return Ok(Next::End(Outcome::Lost(format!(
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
                    self.give_back_borrowed(place.borrowed);
                    self.program.rip = place.address;
                    self.drain_partly(&place, insn)?;
                    return self.signal(signal);
                }
            }
            match self.copy.step(0)? {
                Stopped::Exited(code) => return Ok(Next::End(Outcome::Exit(code))),
                Stopped::Killed(signal) => return Ok(Next::End(Outcome::Signal(signal))),
                Stopped::Event(_) | Stopped::Signal(_) => registers = self.copy.registers()?,
            }
        }
        Ok(Next::End(Outcome::Lost(format!("signal {signal} came in the middle of nowhere"))))
    }

    /// Delivers a signal to the program, which stands between two instructions.
    pub(super) fn signal(&mut self, signal: i32) -> Result<Next, DriveError> {
        match disposition(self.copy.pid, signal)? {
            Disposition::Ignored => Ok(Next::Go),
            Disposition::Ends if self.is_first_process() => Ok(Next::End(Outcome::Signal(signal))),
            Disposition::Ends => {
                self.copy.set_registers(&self.program)?;
                self.copy.start(signal)?;
                Ok(Next::Wait)
            }
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
}

/// The code of a trap that an instruction of the program asked for (`int3`); that of a step is another.
pub(super) const SI_KERNEL: i32 = 128;

/// What a signal does to the program.
pub(super) enum Disposition {
    Ignored,
    Caught,
    Ends,
}

/// What this signal would do to it now.
pub(super) fn disposition(pid: i32, signal: i32) -> io::Result<Disposition> {
    let status = Status::of(pid)?;
    let bit = 1_u64 << (signal - 1).clamp(0, 63);
    if status.signals("SigCgt") & bit != 0 {
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
    let ignored = harmless || status.signals("SigIgn") & bit != 0;
    Ok(if ignored { Disposition::Ignored } else { Disposition::Ends })
}
