//! A case as machine code.
//!
//! `rdi` is the buffer, `rsi` counts, the value goes round in `rax` or `zmm0` (or in one and the
//! other, with a move between them) and is always zero, so that it can be added to an address
//! without changing it. `r9` is a copy of `rdi` for loads that shall look different from their
//! stores. `r8` is zero.

use iced_x86::IcedError;
use iced_x86::code_asm::*;

use super::case::{Access, Case, Group, Registers};

/// Repetitions of a case in one pass of its loop, and pairs of pages in which aliases are asked:
/// one pair says nothing, for on some designs (Zen 5) one in nineteen costs something, and which
/// ones is as good as drawn by lot.
pub const PER_PASS: u64 = 8;

/// Bytes from the start of the buffer to the place that [`Case::place_bytes`] counts from.
const SECOND_PAGE: i32 = 4096;

/// Bytes of buffer that kernels may touch: behind the first page lie those that aliases are asked
/// in.
pub const BUFFER_BYTES: usize = (1 + 2 * PER_PASS as usize) * 4096;

/// Cases whose repetitions must not meet use places this far apart, one for each repetition.
const APART_BYTES: i32 = 64;

pub fn assemble(case: &Case, a: &mut CodeAssembler) -> Result<(), IcedError> {
    a.mov(r9, rdi)?;
    a.xor(eax, eax)?;
    a.xor(r8d, r8d)?;
    if case.registers != Registers::General {
        a.vpxor(xmm0, xmm0, xmm0)?;
    }
    let mut top = a.create_label();
    a.set_label(&mut top)?;
    for repetition in 0..PER_PASS as i32 {
        let place = SECOND_PAGE + case.place_bytes() + apart(case, repetition);
        for access in &case.stores {
            store(a, case.registers.stores_vectors(), place, *access)?;
        }
        between(a, case)?;
        load(a, case, place)?;
        match case.registers {
            Registers::IntoVector => a.vmovq(rax, xmm0)?,
            Registers::IntoGeneral => a.vmovq(xmm0, rax)?,
            Registers::General | Registers::Vector | Registers::Wide => {}
        }
    }
    a.dec(rsi)?;
    a.jnz(top)?;
    if case.registers != Registers::General {
        a.vzeroupper()?;
    }
    Ok(())
}

/// Where one repetition works, behind where the first one does.
pub(super) fn apart(case: &Case, repetition: i32) -> i32 {
    match case.group {
        Group::Unused => repetition * APART_BYTES,
        // Two pages for each, and lines of their own: all in one set would push each other out.
        Group::Alias | Group::Disjoint => {
            let pages = (case.load.offset_bytes / 4096).max(1);
            let first = repetition / pages * 2 * pages + repetition % pages;
            first * 4096 + repetition * 2 * APART_BYTES
        }
        _ => 0,
    }
}

fn store(a: &mut CodeAssembler, vector: bool, place: i32, access: Access) -> Result<(), IcedError> {
    let at = rdi + place + access.offset_bytes;
    match (vector, access.bytes) {
        (false, 1) => a.mov(byte_ptr(at), al),
        (false, 2) => a.mov(word_ptr(at), ax),
        (false, 4) => a.mov(dword_ptr(at), eax),
        (false, _) => a.mov(qword_ptr(at), rax),
        (true, 4) => a.vmovd(dword_ptr(at), xmm0),
        (true, 8) => a.vmovq(qword_ptr(at), xmm0),
        (true, 16) => a.vmovdqu(xmmword_ptr(at), xmm0),
        (true, 32) => a.vmovdqu(ymmword_ptr(at), ymm0),
        (true, _) => a.vmovdqu64(zmmword_ptr(at), zmm0),
    }
}

/// What lies between store and load on the delay curve.
fn between(a: &mut CodeAssembler, case: &Case) -> Result<(), IcedError> {
    if case.group != Group::Delay {
        return Ok(());
    }
    // `add r, r` with a register that is zero: cores fold `add r, imm` and moves at rename.
    for step in 0..case.steps {
        if step == 0 { a.lea(rcx, ptr(rax + r8))? } else { a.add(rcx, r8)? }
    }
    for filler in 0..case.fillers {
        let target = [r10, r11, rdx][filler as usize % 3];
        a.lea(target, ptr(r9 + r8))?;
    }
    Ok(())
}

fn load(a: &mut CodeAssembler, case: &Case, place: i32) -> Result<(), IcedError> {
    let offset = place + case.load.offset_bytes;
    let at = match case.group {
        Group::Delay if case.steps > 0 => rdi + rcx + offset,
        Group::Delay => rdi + rax + offset,
        Group::OtherBase => r9 + offset,
        _ => rdi + offset,
    };
    let unused = case.group == Group::Unused;
    match (case.registers.loads_vectors(), case.load.bytes) {
        (false, 1) => a.movzx(eax, byte_ptr(at)),
        (false, 2) => a.movzx(eax, word_ptr(at)),
        (false, 4) => a.mov(eax, dword_ptr(at)),
        (false, _) if unused => a.mov(r10, qword_ptr(at)),
        (false, _) => a.mov(rax, qword_ptr(at)),
        (true, 4) => a.vmovd(xmm0, dword_ptr(at)),
        (true, 8) => a.vmovq(xmm0, qword_ptr(at)),
        (true, 16) => a.vmovdqu(xmm0, xmmword_ptr(at)),
        (true, 32) => a.vmovdqu(ymm0, ymmword_ptr(at)),
        (true, _) => a.vmovdqu64(zmm0, zmmword_ptr(at)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::{all_cases, wide_cases};
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, OpKind};

    /// Decodes every kernel: no access leaves the buffer, no register is changed that must not be.
    #[test]
    fn kernels_keep_to_their_buffer_and_registers() {
        use iced_x86::{InstructionInfoFactory, OpAccess, Register as R};
        let scratch = [R::RAX, R::RCX, R::RDX, R::RSI, R::R8, R::R9, R::R10, R::R11];
        let mut info = InstructionInfoFactory::new();
        for case in [all_cases(true), wide_cases()].concat() {
            let mut asm = CodeAssembler::new(64).unwrap();
            assemble(&case, &mut asm).unwrap();
            let code = asm.assemble(0x1000).unwrap();
            for insn in Decoder::with_ip(64, &code, 0x1000, DecoderOptions::NONE).iter() {
                assert!(!insn.is_invalid(), "{case}");
                for used in info.info(&insn).used_registers() {
                    let full = used.register().full_register();
                    let read = matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
                    let vector = full.is_vector_register();
                    assert!(read || vector || scratch.contains(&full), "{case}: {insn}");
                }
                let memory = insn.op_kinds().any(|k| k == OpKind::Memory);
                if memory && insn.mnemonic() != iced_x86::Mnemonic::Lea {
                    let first = insn.memory_displacement64() as i64;
                    let bytes = insn.memory_size().size() as i64;
                    assert!(first >= 0 && first + bytes <= BUFFER_BYTES as i64, "{case}: {insn}");
                }
            }
        }
    }
}
