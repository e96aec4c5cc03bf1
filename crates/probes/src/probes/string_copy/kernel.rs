//! A case as machine code.
//!
//! `r8` is the destination, `r9` the source, `r10` counts. All bytes are zero and stay so, so that
//! what was read back can be added to an address without changing it. Kernels that call the C
//! library keep their state in `rbx`, `rbp`, `r12` and `r13`, which they put back.

use iced_x86::IcedError;
use iced_x86::code_asm::*;

use super::case::{Case, Form, Job, Method};

/// Repetitions of a case in one pass of its loop.
pub const PER_PASS: u64 = 4;

/// The destination lies two pages and a half behind the source: a load and the stores before it
/// then never have the same place in their pages unless they are half a page apart.
const DESTINATION: i32 = 2 * 4096 + 2048;

/// Bytes of buffer that kernels may touch.
pub const BUFFER_BYTES: usize = 4 * 4096;

/// Multiplications of the chain: 3 cycles each.
const CHAIN_MULTIPLIES: usize = 100;

/// Writes the loop of `case`. `libc` is the address of the function that does its job.
pub fn assemble(case: &Case, libc: u64, a: &mut CodeAssembler) -> Result<(), IcedError> {
    if case.method == Method::Libc {
        return calls(case, libc, a);
    }
    if case.method == Method::Avx512 {
        // Without it a mispredicted call would start 512-bit code and lower the clock.
        a.lfence()?;
    }
    a.mov(r10, rsi)?;
    a.mov(r9, rdi)?;
    a.lea(r8, ptr(rdi + DESTINATION))?;
    a.mov(r11d, 1)?;
    if case.job == Job::Fill {
        a.xor(eax, eax)?;
        a.vpxor_or_sse(case.method)?;
    }
    let mut top = a.create_label();
    a.set_label(&mut top)?;
    for _ in 0..PER_PASS {
        body(case, a)?;
    }
    a.dec(r10)?;
    a.jnz(top)?;
    if matches!(case.method, Method::Avx2 | Method::Avx512) {
        a.vzeroupper()?;
    }
    Ok(())
}

trait ZeroVector {
    fn vpxor_or_sse(&mut self, method: Method) -> Result<(), IcedError>;
}

impl ZeroVector for CodeAssembler {
    fn vpxor_or_sse(&mut self, method: Method) -> Result<(), IcedError> {
        match method {
            Method::Avx2 | Method::Avx512 => self.vpxor(xmm0, xmm0, xmm0),
            _ => self.pxor(xmm0, xmm0),
        }
    }
}

fn body(case: &Case, a: &mut CodeAssembler) -> Result<(), IcedError> {
    let chain = |a: &mut CodeAssembler, n| (0..n).try_for_each(|_| a.imul_2(r11, r11));
    if case.form == Form::Shadow {
        chain(a, CHAIN_MULTIPLIES / 2)?;
    }
    if case.bytes > 0 {
        match case.method {
            Method::RepBytes | Method::RepQuads => string(case, a)?,
            _ => moves(case, a)?,
        }
    }
    let last = case.bytes as i32 - 8;
    match case.form {
        Form::Shadow => chain(a, CHAIN_MULTIPLIES - CHAIN_MULTIPLIES / 2),
        Form::DependentFirst | Form::DependentLast => {
            let offset = if case.form == Form::DependentFirst { 0 } else { last };
            a.mov(rax, qword_ptr(r8 + offset))?;
            a.add(r8, rax)?;
            a.add(r9, rax)
        }
        Form::Throughput | Form::Placebo => Ok(()),
    }
}

fn string(case: &Case, a: &mut CodeAssembler) -> Result<(), IcedError> {
    let quads = case.method == Method::RepQuads;
    a.mov(rdi, r8)?;
    a.mov(ecx, case.bytes / if quads { 8 } else { 1 })?;
    match (case.job, quads) {
        (Job::Fill, true) => a.rep().stosq(),
        (Job::Fill, false) => a.rep().stosb(),
        (Job::Copy, quads) => {
            a.mov(rsi, r9)?;
            if quads { a.rep().movsq() } else { a.rep().movsb() }
        }
    }
}

/// Four moves per turn of a loop, as compilers unroll them, then narrower ones for the rest.
fn moves(case: &Case, a: &mut CodeAssembler) -> Result<(), IcedError> {
    let width = match case.method {
        Method::Sse => 16,
        Method::Avx2 => 32,
        Method::Avx512 => 64,
        _ => 8,
    };
    let (turn, bytes) = (4 * width, case.bytes as i32);
    let mut done = 0;
    if bytes / turn > 1 {
        done = bytes / turn * turn;
        a.xor(ecx, ecx)?;
        let mut again = a.create_label();
        a.set_label(&mut again)?;
        for step in 0..4 {
            one(case, a, Some(rcx), step * width, width)?;
        }
        a.add(ecx, turn)?;
        a.cmp(ecx, done)?;
        a.jb(again)?;
    }
    while done < bytes {
        let mut width = width;
        while width > bytes - done {
            width /= 2;
        }
        one(case, a, None, done, width)?;
        done += width;
    }
    Ok(())
}

fn one(
    case: &Case,
    a: &mut CodeAssembler,
    index: Option<AsmRegister64>,
    offset: i32,
    width: i32,
) -> Result<(), IcedError> {
    let at = |base: AsmRegister64| match index {
        Some(index) => base + index + offset,
        None => base + offset,
    };
    let copy = case.job == Job::Copy;
    let vex = matches!(case.method, Method::Avx2 | Method::Avx512);
    match (width, vex) {
        (8, _) => {
            if copy {
                a.mov(rax, qword_ptr(at(r9)))?;
            }
            a.mov(qword_ptr(at(r8)), rax)
        }
        (16, false) => {
            if copy {
                a.movdqu(xmm0, xmmword_ptr(at(r9)))?;
            }
            a.movdqu(xmmword_ptr(at(r8)), xmm0)
        }
        (16, true) => {
            if copy {
                a.vmovdqu(xmm0, xmmword_ptr(at(r9)))?;
            }
            a.vmovdqu(xmmword_ptr(at(r8)), xmm0)
        }
        (32, _) => {
            if copy {
                a.vmovdqu(ymm0, ymmword_ptr(at(r9)))?;
            }
            a.vmovdqu(ymmword_ptr(at(r8)), ymm0)
        }
        _ => {
            if copy {
                a.vmovdqu64(zmm0, zmmword_ptr(at(r9)))?;
            }
            a.vmovdqu64(zmmword_ptr(at(r8)), zmm0)
        }
    }
}

fn calls(case: &Case, libc: u64, a: &mut CodeAssembler) -> Result<(), IcedError> {
    for register in [rbx, rbp, r12, r13] {
        a.push(register)?;
    }
    a.sub(rsp, 8)?;
    a.mov(rbx, rsi)?;
    a.mov(r12, rdi)?;
    a.lea(rbp, ptr(rdi + DESTINATION))?;
    a.mov(r13, libc)?;
    let mut top = a.create_label();
    a.set_label(&mut top)?;
    for _ in 0..PER_PASS {
        a.mov(rdi, rbp)?;
        match case.job {
            Job::Copy => a.mov(rsi, r12)?,
            Job::Fill => a.xor(esi, esi)?,
        }
        a.mov(edx, case.bytes)?;
        a.call(r13)?;
    }
    a.dec(rbx)?;
    a.jnz(top)?;
    a.add(rsp, 8)?;
    for register in [r13, r12, rbp, rbx] {
        a.pop(register)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::case::{all_cases, wide_cases};
    use super::*;

    /// Runs every copy on real memory: exactly the bytes that were asked for are moved.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn every_kernel_moves_what_it_says() {
        use crate::probes::emit::CodeWriter;
        let avx2 = std::arch::is_x86_feature_detected!("avx2");
        let mut cases = all_cases(avx2);
        if std::arch::is_x86_feature_detected!("avx512f") {
            cases.extend(wide_cases());
        }
        for case in cases.iter().filter(|c| c.bytes > 0) {
            let libc = if case.job == Job::Copy {
                libc::memcpy as *const () as u64
            } else {
                libc::memset as *const () as u64
            };
            let mut writer = CodeWriter::new(16384).unwrap();
            let entry = writer.add(0, |a| assemble(case, libc, a)).unwrap();
            let pages = writer.seal().unwrap();
            let mut buffer = vec![1u8; BUFFER_BYTES];
            let dependent = matches!(case.form, Form::DependentFirst | Form::DependentLast);
            if dependent || case.job == Job::Copy {
                buffer[..4096].fill(0);
            }
            // SAFETY: the kernels stay inside the buffer: what follows checks it.
            unsafe { pages.run(entry, buffer.as_mut_ptr(), 1) };
            let (start, n) = (DESTINATION as usize, case.bytes as usize);
            assert!(buffer[start..start + n].iter().all(|b| *b == 0), "{case:?}");
            assert!(buffer[4096..start].iter().all(|b| *b == 1), "{case:?}");
            assert!(buffer[start + n..].iter().all(|b| *b == 1), "{case:?}");
        }
    }
}
