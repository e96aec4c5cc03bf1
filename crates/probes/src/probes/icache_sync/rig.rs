//! Writing, synchronising, reading and executing on this processor.

use iced_x86::IcedError;
use iced_x86::code_asm::*;

use super::sampling::Rig;
use super::twin::TwinPages;
use super::{Method, SIZES};
use crate::clock::{Clock, HardwareClock, HoldsClock};
use crate::probes::emit::{CodePages, CodeWriter, EmitError, Entry};

pub struct HardwareRig {
    clock: HardwareClock,
    pages: CodePages,
    syncs: Vec<(Method, Entry)>,
    read: Entry,
    twin: TwinPages,
    /// What is written next.
    code: Vec<u8>,
}

const LINE_BYTES: usize = crate::model::LINE_BYTES as usize;

impl HardwareRig {
    /// Makes a kernel for each method, which the processor must have.
    pub fn new(clock: HardwareClock, methods: &[Method]) -> Result<Self, EmitError> {
        let mut writer = CodeWriter::new(8192)?;
        let mut syncs = Vec::new();
        for &method in methods {
            syncs.push((method, writer.add(0, |a| sync(method, a))?));
        }
        let read = writer.add(0, read_back)?;
        let twin = TwinPages::new(SIZES[SIZES.len() - 1])?;
        Ok(Self { clock, pages: writer.seal()?, syncs, read, twin, code: Vec::new() })
    }
}

/// `rdi` is the code, `rsi` its lines.
fn sync(method: Method, a: &mut CodeAssembler) -> Result<(), IcedError> {
    if method.flushes() {
        let mut top = a.create_label();
        a.set_label(&mut top)?;
        match method {
            Method::Clflush => a.clflush(byte_ptr(rdi))?,
            Method::Clflushopt => a.clflushopt(byte_ptr(rdi))?,
            _ => a.clwb(byte_ptr(rdi))?,
        }
        a.add(rdi, LINE_BYTES as i32)?;
        a.dec(rsi)?;
        a.jnz(top)?;
        // Without it the flushes would still be under way, and their cost would move on.
        return a.mfence();
    }
    match method {
        Method::Cpuid => {
            a.push(rbx)?;
            a.xor(eax, eax)?;
            a.xor(ecx, ecx)?;
            a.cpuid()?;
            a.pop(rbx)
        }
        Method::Serialize => a.db(&[0x0f, 0x01, 0xe8]),
        Method::Iret => {
            let mut after = a.create_label();
            a.mov(rax, rsp)?;
            a.mov(ecx, ss)?;
            a.push(rcx)?;
            a.push(rax)?;
            a.pushfq()?;
            a.mov(ecx, cs)?;
            a.push(rcx)?;
            a.lea(rcx, ptr(after))?;
            a.push(rcx)?;
            a.iretq()?;
            a.set_label(&mut after)?;
            a.nop()
        }
        _ => a.nop(),
    }
}

/// Every eight bytes of every line, as data.
fn read_back(a: &mut CodeAssembler) -> Result<(), IcedError> {
    let mut top = a.create_label();
    a.set_label(&mut top)?;
    for at in (0..LINE_BYTES as i32).step_by(8) {
        a.mov(rax, qword_ptr(rdi + at))?;
    }
    a.add(rdi, LINE_BYTES as i32)?;
    a.dec(rsi)?;
    a.jnz(top)
}

/// A function of `bytes` that returns a sum, which is given too: twelve additions in each line.
fn function(bytes: usize, salt: u32) -> (Vec<u8>, u32) {
    let (lines, mut sum) = (bytes / LINE_BYTES, 0u32);
    let mut code = Vec::with_capacity(bytes);
    for line in 0..lines {
        let end = (line + 1) * LINE_BYTES;
        if line == 0 {
            code.extend([0x31, 0xc0]);
        }
        let last = line + 1 == lines;
        while code.len() + 5 + usize::from(last) <= end {
            let value = salt.wrapping_add(code.len() as u32);
            sum = sum.wrapping_add(value);
            code.push(0x05);
            code.extend(value.to_le_bytes());
        }
        if last {
            code.push(0xc3);
        }
        code.resize(end, 0x90);
    }
    (code, sum)
}

impl Rig for HardwareRig {
    fn prepare(&mut self, bytes: usize, salt: u32) -> u64 {
        let (code, sum) = function(bytes, salt);
        self.code = code;
        u64::from(sum)
    }

    fn write(&mut self) {
        self.twin.write(&self.code);
    }

    fn sync(&mut self, method: Method) {
        let Some((_, entry)) = self.syncs.iter().find(|s| s.0 == method) else { return };
        let lines = (self.code.len() / LINE_BYTES) as u64;
        // SAFETY: flushes the lines that were just written, or none; the caller of `new` left out
        // methods that this processor has not. IRETQ comes back to the next instruction with the
        // stack, flags and segments it had.
        unsafe { self.pages.run(*entry, self.twin.executable(), lines) }
    }

    fn read_back(&mut self) {
        let lines = (self.code.len() / LINE_BYTES) as u64;
        // SAFETY: reads the lines that were just written.
        unsafe { self.pages.run(self.read, self.twin.executable(), lines) }
    }

    fn execute(&mut self) -> u64 {
        // SAFETY: the executable pages start with the function that `write` put there, which
        // touches `rax` and the flags alone.
        unsafe {
            let function: extern "sysv64" fn() -> u64 = std::mem::transmute(self.twin.executable());
            function()
        }
    }
}

impl HoldsClock for HardwareRig {
    fn held_clock(&mut self) -> &mut impl Clock {
        &mut self.clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_the_length_they_say() {
        for bytes in SIZES {
            let (code, _) = function(bytes, 3);
            assert_eq!(code.len(), bytes);
            assert_eq!(
                code.iter().rposition(|b| *b == 0xc3).map(|at| at / 64),
                Some(bytes / 64 - 1)
            );
        }
    }

    #[test]
    fn what_was_written_is_what_runs() {
        let mut rig = HardwareRig::new(HardwareClock::new().unwrap(), &[Method::Iret]).unwrap();
        for salt in 1..20 {
            let sum = rig.prepare(256, salt);
            rig.write();
            rig.sync(Method::Iret);
            rig.read_back();
            assert_eq!((rig.execute(), rig.execute()), (sum, sum));
        }
    }
}
