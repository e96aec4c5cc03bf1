//! What a core takes for one thing, as machine code.
//!
//! `rdi` is the buffer, `rsi` counts. What is asked for its latency goes round in `rax` or `xmm0`; what is asked for its
//! interval writes to registers in turn, from operands that do not change, so that nothing waits. Only instructions of
//! the base set are used, and newer ones that are themselves asked about, where the processor has them.

use iced_x86::IcedError;
use iced_x86::code_asm::*;

use super::{Case, PER_PASS};
use crate::machine::{BESIDE_LOCKED, CoreCost, FalseDependency, OpClass};
use crate::model;

/// Where the random numbers stand: a run goes on where the last one ended, or a predictor would know what comes.
const RANDOM: usize = 64 * PER_PASS;
/// Eight bytes here are in two lines, and in two pages.
const LINE_END: usize = 64 - 4;
const PAGE_BYTES: usize = model::PAGE_BYTES as usize;
const PAGE_END: usize = PAGE_BYTES - 4;
/// Where a load is that is taken for one of what is stored a page behind it.
const ALIASED: usize = 16;
/// Bytes of buffer that kernels may touch, from the start of a page on.
pub const BUFFER_BYTES: usize = PAGE_BYTES + 64;
/// More bytes than one kernel has.
pub const MOST_CODE_BYTES: usize = 3072;

/// Registers that are written in turn.
const GENERAL: [AsmRegister64; 6] = [rax, rdx, r8, r9, r10, r11];
const DOUBLE_WORDS: [AsmRegister32; 6] = [eax, edx, r8d, r9d, r10d, r11d];
const VECTORS: [AsmRegisterXmm; 13] =
    [xmm0, xmm1, xmm2, xmm3, xmm4, xmm5, xmm6, xmm7, xmm8, xmm9, xmm10, xmm11, xmm12];

/// Quotients have about half of the bits that they can have.
const DIVIDEND: u64 = 0x5f35_9241_7f4a_7c15;
const DIVISOR: u64 = 0x9_3b71_0c35;

pub fn assemble(case: Case, a: &mut CodeAssembler) -> Result<(), IcedError> {
    prepare(case, a)?;
    let mut top = a.create_label();
    a.set_label(&mut top)?;
    let repetitions = (0..PER_PASS).step_by(case.one_in());
    for n in repetitions {
        match case.cost {
            CoreCost::Latency(class) => latency(class, a)?,
            CoreCost::Interval(class) => interval(class, n, a)?,
            // Some cores join no-ops.
            CoreCost::Dispatch => a.xor(DOUBLE_WORDS[n % 6], DOUBLE_WORDS[n % 6])?,
            CoreCost::Load => a.mov(GENERAL[n % GENERAL.len()], qword_ptr(rdi + 8 * n))?,
            CoreCost::VectorLoad => {
                a.movaps(VECTORS[n % VECTORS.len()], xmmword_ptr(rdi + 16 * n))?;
            }
            CoreCost::LoadLatency => a.mov(rax, qword_ptr(rdi + rax))?,
            CoreCost::SplitLoadLatency => a.mov(rax, qword_ptr(rdi + rax + LINE_END))?,
            CoreCost::PageSplitLoadLatency => a.mov(rax, qword_ptr(rdi + rax + PAGE_END))?,
            CoreCost::AliasedLoad => {
                a.mov(qword_ptr(rdi + rax + PAGE_BYTES + ALIASED), rcx)?;
                a.mov(rax, qword_ptr(rdi + rax + ALIASED))?;
            }
            CoreCost::SameName => {
                a.mov(qword_ptr(rdi), rax)?;
                a.mov(rax, qword_ptr(rdi))?;
            }
            CoreCost::SameStore => {
                a.mov(qword_ptr(rdi), rax)?;
                a.mov(rax, qword_ptr(r11))?;
            }
            CoreCost::Commit => a.mov(qword_ptr(rdi + 64 * n), rax)?,
            CoreCost::CombinedCommit => a.mov(qword_ptr(rdi + 64 * (n % 4)), rax)?,
            CoreCost::LockedWait => locked_wait(case.is_plain, a)?,
            CoreCost::LockedApart => {
                for other in 0..BESIDE_LOCKED {
                    a.add(GENERAL[other % GENERAL.len()], rcx)?;
                }
                a.lock().add(qword_ptr(rdi), rcx)?;
            }
            // Without AVX there is nothing to move, and it takes nothing.
            CoreCost::UpperHalves if is_x86_feature_detected!("avx") => {
                a.vperm2f128(ymm15, ymm14, ymm14, 0)?;
                a.paddd(xmm0, xmm14)?;
            }
            CoreCost::UpperHalves => {}
            CoreCost::SameDestination(kind) => same_destination(kind, a)?,
            CoreCost::AddConstant => a.add(rax, 1)?,
            CoreCost::SplitLoad => a.mov(GENERAL[n % GENERAL.len()], qword_ptr(rdi + LINE_END))?,
            CoreCost::SplitStore => a.mov(qword_ptr(rdi + LINE_END), rax)?,
            CoreCost::PageSplitStore => a.mov(qword_ptr(rdi + PAGE_END), rax)?,
            CoreCost::Misprediction => branch(case.is_plain, a)?,
        }
    }
    a.dec(rsi)?;
    a.jnz(top)?;
    match case.cost {
        CoreCost::Misprediction => a.mov(qword_ptr(rdi + RANDOM), rax),
        CoreCost::UpperHalves | CoreCost::SameDestination(FalseDependency::Permutation)
            if is_x86_feature_detected!("avx") =>
        {
            a.vzeroupper()
        }
        _ => Ok(()),
    }
}

/// Operands that do not change.
fn prepare(case: Case, a: &mut CodeAssembler) -> Result<(), IcedError> {
    let general = match case.cost {
        CoreCost::Misprediction => DIVIDEND,
        CoreCost::Latency(OpClass::Divide32 | OpClass::Divide64) => DIVIDEND,
        _ => 0,
    };
    a.mov(rax, general)?;
    a.xor(edx, edx)?;
    a.mov(ecx, 1)?;
    a.xor(r8d, r8d)?;
    a.xor(r9d, r9d)?;
    match case.cost {
        CoreCost::Latency(OpClass::Divide64) | CoreCost::Interval(OpClass::Divide64) => {
            a.mov(r8, DIVIDEND)?;
            a.mov(rcx, DIVISOR)?;
        }
        CoreCost::Latency(OpClass::Divide32) | CoreCost::Interval(OpClass::Divide32) => {
            a.mov(r8d, DIVIDEND as u32)?;
            a.mov(ecx, (DIVISOR >> 16) as u32)?;
        }
        CoreCost::LoadLatency => a.mov(qword_ptr(rdi), rax)?,
        CoreCost::SplitLoadLatency => a.mov(qword_ptr(rdi + LINE_END), rax)?,
        CoreCost::PageSplitLoadLatency => a.mov(qword_ptr(rdi + PAGE_END), rax)?,
        CoreCost::AliasedLoad => a.mov(qword_ptr(rdi + ALIASED), rax)?,
        CoreCost::SameStore => a.mov(r11, rdi)?,
        CoreCost::Misprediction => a.add(rax, qword_ptr(rdi + RANDOM))?,
        _ => {}
    }
    // A number near 1 with all its bits, and one that is 2.
    let is_single = |class| matches!(class, OpClass::FloatDivide32 | OpClass::FloatRoot32);
    let (near, two) = match case.cost {
        CoreCost::Latency(class) | CoreCost::Interval(class) if is_single(class) => {
            (u64::from(1.000_03_f32.to_bits()), u64::from(2.0_f32.to_bits()))
        }
        _ => (1.000_000_03_f64.to_bits(), 2.0_f64.to_bits()),
    };
    // What is left in the others may be a denormal number, which takes hundreds of cycles.
    let others = VECTORS.into_iter().map(|register| (register, two));
    for (register, bits) in [(xmm13, near), (xmm14, two)].into_iter().chain(others) {
        a.mov(r10, bits)?;
        a.movq(register, r10)?;
    }
    Ok(())
}

/// One operation that waits for the one before.
fn latency(class: OpClass, a: &mut CodeAssembler) -> Result<(), IcedError> {
    match class {
        OpClass::Integer => a.add(rax, r8),
        OpClass::Shift => a.rol(rax, 3),
        OpClass::ShiftByCount => a.shl(rax, cl),
        OpClass::SlowAddress => a.lea(rax, ptr(rax + r8 + 8)),
        OpClass::Multiply => a.imul_2(rax, rcx),
        OpClass::BitCount if is_x86_feature_detected!("popcnt") => a.popcnt(rax, rax),
        OpClass::Divide32 => {
            a.xor(edx, edx)?;
            a.div(ecx)?;
            a.add(eax, r8d)
        }
        OpClass::Divide64 => {
            a.xor(edx, edx)?;
            a.div(rcx)?;
            a.add(rax, r8)
        }
        OpClass::Vector => a.paddd(xmm0, xmm14),
        OpClass::VectorShift => a.pslld(xmm0, 1u32),
        OpClass::Shuffle => a.pshufd(xmm0, xmm0, 0x1b),
        OpClass::VectorMultiply => a.pmullw(xmm0, xmm14),
        OpClass::FloatAdd => a.addsd(xmm0, xmm13),
        OpClass::FloatMultiply => a.mulsd(xmm0, xmm13),
        OpClass::FloatDivide32 => a.divss(xmm0, xmm13),
        OpClass::FloatDivide64 => a.divsd(xmm0, xmm13),
        OpClass::FloatRoot32 => {
            a.sqrtss(xmm0, xmm0)?;
            a.addss(xmm0, xmm14)
        }
        OpClass::FloatRoot64 => {
            a.sqrtsd(xmm0, xmm0)?;
            a.addsd(xmm0, xmm14)
        }
        // There and back.
        OpClass::Convert => {
            a.cvtss2sd(xmm0, xmm0)?;
            a.cvtsd2ss(xmm0, xmm0)
        }
        OpClass::ConvertIn | OpClass::ConvertAcross => {
            a.cvtsi2sd(xmm0, rax)?;
            a.cvttsd2si(rax, xmm0)
        }
        OpClass::CrossIn | OpClass::Cross => {
            a.movq(xmm0, rax)?;
            a.movq(rax, xmm0)
        }
        OpClass::Locked => a.lock().xadd(qword_ptr(rdi), rax),
        _ => Ok(()),
    }
}

/// One operation that waits for nothing, the `n`th.
fn interval(class: OpClass, n: usize, a: &mut CodeAssembler) -> Result<(), IcedError> {
    let general = GENERAL[n % GENERAL.len()];
    let vector = VECTORS[n % VECTORS.len()];
    match class {
        OpClass::Integer => a.add(general, rcx),
        OpClass::Shift => a.rol(general, 3),
        OpClass::ShiftByCount => a.shl(general, cl),
        OpClass::SlowAddress => a.lea(general, ptr(rdi + rcx + 8)),
        OpClass::Multiply => a.imul_3(general, rcx, 7),
        OpClass::BitCount if is_x86_feature_detected!("popcnt") => a.popcnt(general, rcx),
        OpClass::Divide32 => {
            a.mov(eax, r8d)?;
            a.xor(edx, edx)?;
            a.div(ecx)
        }
        OpClass::Divide64 => {
            a.mov(rax, r8)?;
            a.xor(edx, edx)?;
            a.div(rcx)
        }
        OpClass::Vector => a.paddd(vector, xmm14),
        OpClass::VectorShift => a.pslld(vector, 1u32),
        OpClass::Shuffle => a.pshufd(vector, xmm14, 0x1b),
        OpClass::VectorMultiply => a.pmullw(vector, xmm14),
        OpClass::FloatAdd => a.addsd(vector, xmm13),
        OpClass::FloatMultiply => a.mulsd(vector, xmm13),
        OpClass::FloatDivide32 => {
            a.movaps(vector, xmm14)?;
            a.divss(vector, xmm13)
        }
        OpClass::FloatDivide64 => {
            a.movaps(vector, xmm14)?;
            a.divsd(vector, xmm13)
        }
        OpClass::FloatRoot32 => a.sqrtss(vector, xmm14),
        OpClass::FloatRoot64 => a.sqrtsd(vector, xmm14),
        OpClass::Convert => a.cvtss2sd(vector, xmm14),
        OpClass::ConvertIn => a.cvtsi2sd(vector, rcx),
        OpClass::ConvertAcross => a.cvttsd2si(general, xmm14),
        OpClass::CrossIn => a.movq(vector, rcx),
        OpClass::Cross => a.movq(general, xmm14),
        OpClass::Locked => a.lock().add(qword_ptr(rdi + 64 * (n % 4)), rcx),
        OpClass::Fence => a.mfence(),
        OpClass::LoadFence => a.lfence(),
        OpClass::StoreFence => a.sfence(),
        OpClass::Renamed
        | OpClass::BitCount
        | OpClass::Branch
        | OpClass::Cipher
        | OpClass::Digest
        | OpClass::Microcode => Ok(()),
    }
}

/// An instruction that writes the register that the one before wrote, and reads others. Without the features that it is part of
/// there is nothing to wait for.
fn same_destination(kind: FalseDependency, a: &mut CodeAssembler) -> Result<(), IcedError> {
    use FalseDependency as F;
    match kind {
        F::Conversion => a.cvtsi2sd(xmm0, rcx),
        F::Root => a.sqrtsd(xmm0, xmm14),
        F::Rounding if is_x86_feature_detected!("sse4.1") => a.roundsd(xmm0, xmm14, 1),
        F::BitCount if is_x86_feature_detected!("popcnt") => a.popcnt(rax, rcx),
        F::ZeroCount if is_x86_feature_detected!("bmi1") => a.tzcnt(rax, rcx),
        F::Permutation if is_x86_feature_detected!("avx2") => a.vpermd(ymm0, ymm13, ymm14),
        F::Rounding | F::BitCount | F::ZeroCount | F::Permutation => Ok(()),
    }
}

/// An atomic operation, or none, and a load behind it that is part of a chain.
fn locked_wait(is_plain: bool, a: &mut CodeAssembler) -> Result<(), IcedError> {
    if !is_plain {
        a.lock().add(qword_ptr(rdi), rcx)?;
    }
    a.mov(rdx, qword_ptr(rdi + 64))?;
    a.add(rax, rdx)?;
    (0..20).try_for_each(|_| a.add(rax, r8))
}

/// A step of a generator of random numbers (G. Marsaglia, "Xorshift RNGs", 2003) and a jump that goes by one of its
/// bits; or, plain, by a bit that never changes.
fn branch(is_plain: bool, a: &mut CodeAssembler) -> Result<(), IcedError> {
    for (is_left, by) in [(true, 13), (false, 7), (true, 17)] {
        a.mov(rdx, rax)?;
        if is_left {
            a.shl(rdx, by)?
        } else {
            a.shr(rdx, by)?
        }
        a.xor(rax, rdx)?;
    }
    let mut on = a.create_label();
    // With `r8` that is zero, the bit still waits for the number.
    let (bit, mask) = (r10d, if is_plain { r8d } else { ecx });
    a.mov(bit, mask)?;
    a.and(bit, eax)?;
    a.jnz(on)?;
    a.nop()?;
    a.set_label(&mut on)?;
    a.nop()
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess, Register};

    use super::super::all_cases;
    use super::*;

    /// Every kernel changes what it may change and nothing else, and stays in its buffer and its code.
    #[test]
    fn kernels_obey_the_convention() {
        let kept = [Register::RBX, Register::RBP, Register::RSP, Register::R12, Register::R13]
            .into_iter()
            .chain([Register::R14, Register::R15]);
        let kept: Vec<Register> = kept.collect();
        for case in all_cases() {
            let mut a = CodeAssembler::new(64).unwrap();
            assemble(case, &mut a).unwrap();
            let code = a.assemble(0x1000).unwrap();
            assert!(code.len() + 64 <= MOST_CODE_BYTES, "{case:?}: {}", code.len());
            let mut infos = InstructionInfoFactory::new();
            for insn in &mut Decoder::with_ip(64, &code, 0x1000, DecoderOptions::NONE) {
                assert!(!insn.is_invalid(), "{case:?}");
                let info = infos.info(&insn);
                for used in info.used_registers() {
                    let writes = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
                    let full = used.register().full_register();
                    assert!(!writes || !kept.contains(&full), "{case:?}: {insn}");
                }
                let accesses = info.used_memory().iter();
                for memory in accesses.filter(|m| m.access() != OpAccess::NoMemAccess) {
                    let end = memory.displacement() + memory.memory_size().size() as u64;
                    // Holds the same address.
                    let copy = case.cost == CoreCost::SameStore && memory.base() == Register::R11;
                    let is_ours = memory.base() == Register::RDI || copy;
                    assert!(is_ours && end <= BUFFER_BYTES as u64, "{insn}");
                }
            }
        }
    }
}
