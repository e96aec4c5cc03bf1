//! Which class an instruction is of: the units that can make it, and what it takes.
//!
//! A class stands for many instructions that use the same units; one of them is what [`probe core`](crate::machine::CoreCost) asks. *Literature*: A. Fog,
//! "Instruction tables"; uops.info.

use super::*;

pub(super) fn of(raw: &Instruction, explicit: Registers) -> OpClass {
    use I::*;
    use OpClass as C;
    let vector = explicit & VECTORS != 0;
    let crosses = vector && explicit & GENERAL != 0;
    let goes_in = raw.op0_register().is_vector_register();
    let is_wide = raw.op0_register().size() == 8 || raw.memory_size().size() == 8;
    if raw.has_lock_prefix() || (raw.mnemonic() == Xchg && raw.op0_kind() == OpKind::Memory) {
        return C::Locked;
    }
    match raw.mnemonic() {
        Mfence => C::Fence,
        Lfence => C::LoadFence,
        Sfence => C::StoreFence,
        Imul | Mul | Mulx | Pdep | Pext | Crc32 | Shld | Shrd => C::Multiply,
        Popcnt | Tzcnt | Lzcnt | Bsf | Bsr => C::BitCount,
        Div | Idiv if is_wide => C::Divide64,
        Div | Idiv => C::Divide32,
        Shl | Shr | Sar | Rol | Ror if raw.op1_register() == Register::CL => C::ShiftByCount,
        Shl | Shr | Sar | Rol | Ror | Rcl | Rcr | Shlx | Shrx | Sarx | Rorx | Bt | Bts | Btr
        | Btc => C::Shift,
        Lea if is_slow_address(raw) => C::SlowAddress,
        Movd | Movq | Vmovd | Vmovq | Movmskps | Movmskpd | Pmovmskb | Vmovmskps | Vmovmskpd
        | Vpmovmskb | Pinsrb | Pinsrw | Pinsrd | Pinsrq | Vpinsrb | Vpinsrd | Vpinsrq | Pextrb
        | Pextrw | Pextrd | Pextrq | Vpextrb | Vpextrd | Vpextrq
            if crosses =>
        {
            if goes_in {
                C::CrossIn
            } else {
                C::Cross
            }
        }
        Divss | Divps | Vdivss | Vdivps => C::FloatDivide32,
        Divsd | Divpd | Vdivsd | Vdivpd => C::FloatDivide64,
        Sqrtss | Sqrtps | Vsqrtss | Vsqrtps => C::FloatRoot32,
        Sqrtsd | Sqrtpd | Vsqrtsd | Vsqrtpd | Fsqrt => C::FloatRoot64,
        Addss | Addsd | Addps | Addpd | Subss | Subsd | Subps | Subpd | Vaddss | Vaddsd
        | Vaddps | Vaddpd | Vsubss | Vsubsd | Vsubps | Vsubpd | Minss | Minsd | Minps | Minpd
        | Maxss | Maxsd | Maxps | Maxpd | Vminss | Vminsd | Vminps | Vminpd | Vmaxss | Vmaxsd
        | Vmaxps | Vmaxpd | Cmpss | Cmpps | Cmppd | Comiss | Comisd | Ucomiss | Ucomisd
        | Vcomiss | Vcomisd | Vucomiss | Vucomisd | Haddps | Haddpd => C::FloatAdd,
        Mulss | Mulsd | Mulps | Mulpd | Vmulss | Vmulsd | Vmulps | Vmulpd => C::FloatMultiply,
        Cvtsi2ss | Cvtsi2sd | Cvttss2si | Cvttsd2si | Cvtss2sd | Cvtsd2ss | Cvtdq2ps | Cvtdq2pd
        | Cvttps2dq | Vcvtsi2ss | Vcvtsi2sd | Vcvttss2si | Vcvttsd2si | Vcvtss2sd | Vcvtsd2ss
        | Vcvtdq2ps | Vcvtdq2pd | Vcvttps2dq | Cvtsd2si | Cvtss2si | Roundsd | Roundss
        | Roundps | Roundpd | Vroundss | Vroundsd | Vroundps | Vroundpd => {
            match (crosses, goes_in) {
                (false, _) => C::Convert,
                (true, true) => C::ConvertIn,
                (true, false) => C::ConvertAcross,
            }
        }
        Pmulld | Vpmulld | Pmullw | Vpmullw | Pmaddwd | Vpmaddwd | Pmuludq | Vpmuludq | Pmulhw
        | Pmulhuw | Pmaddubsw | Vpmaddubsw | Psadbw | Vpsadbw => C::VectorMultiply,
        Pclmulqdq | Vpclmulqdq | Aesenc | Aesenclast | Aesdec | Aesdeclast | Vaesenc
        | Vaesenclast | Vaesdec | Vaesdeclast => C::Cipher,
        Sha1rnds4 | Sha1nexte | Sha1msg1 | Sha1msg2 | Sha256rnds2 | Sha256msg1 | Sha256msg2 => {
            C::Digest
        }
        Psllw | Pslld | Psllq | Psrlw | Psrld | Psrlq | Psraw | Psrad | Vpsllw | Vpslld
        | Vpsllq | Vpsrlw | Vpsrld | Vpsrlq | Vpsraw | Vpsrad | Vpsraq | Vpsllvd | Vpsllvq
        | Vpsrlvd | Vpsrlvq | Vpsravd | Vprold | Vprolq | Vprord | Vprorq => C::VectorShift,
        Pshufd | Pshufb | Pshuflw | Pshufhw | Vpshufd | Vpshufb | Shufps | Shufpd | Vshufps
        | Palignr | Vpalignr | Punpcklbw | Punpcklwd | Punpckldq | Punpcklqdq | Punpckhbw
        | Punpckhwd | Punpckhdq | Punpckhqdq | Vpunpckldq | Vpunpcklqdq | Vpunpckhdq
        | Vpunpckhqdq | Unpcklps | Unpcklpd | Unpckhps | Unpckhpd | Packuswb | Packssdw
        | Packsswb | Packusdw | Vpackuswb | Vpackssdw | Pslldq | Psrldq | Vpslldq | Vpsrldq
        | Movhlps | Movlhps | Pmovzxbw | Pmovzxbd | Pmovzxwd | Pmovzxdq | Pmovsxwd | Pmovsxdq
        | Vpmovzxbw | Vpmovzxbd | Vpmovzxwd | Vpmovzxdq | Vextracti128 | Vextractf128
        | Vinserti128 | Vinsertf128 | Vperm2i128 | Vpermd | Vpermq | Insertps => C::Shuffle,
        Cpuid | Rdtsc | Rdtscp | Syscall | Xgetbv | Fsin | Fcos | Fptan | Fyl2x | F2xm1 | Fprem
        | Fbstp | Maskmovdqu | Vpscatterdd | Enter | Rdrand | Rdseed => C::Microcode,
        Fdiv | Fdivp | Fdivr | Fdivrp | Fidiv => C::FloatDivide64,
        Fadd | Faddp | Fsub | Fsubp | Fsubr | Fsubrp | Fcom | Fcomi | Fcomip | Fucomi | Fucomip => {
            C::FloatAdd
        }
        Fmul | Fmulp => C::FloatMultiply,
        // Measured on Redwood Cove: two in a cycle.
        Fld | Fld1 | Fldz | Fild | Fst | Fstp | Fist | Fistp | Fisttp | Fchs | Fabs => C::Shuffle,
        _ if raw.flow_control() != FlowControl::Next => C::Branch,
        _ if vector && is_fused_multiply(raw.code()) => C::FloatMultiply,
        _ if vector => C::Vector,
        _ => C::Integer,
    }
}

pub(super) fn is_fused_multiply(code: Code) -> bool {
    let name = format!("{code:?}");
    name.contains("Vfmadd")
        || name.contains("Vfmsub")
        || name.contains("Vfnmadd")
        || name.contains("Vfnmsub")
}

/// Base, index and displacement together.
fn is_slow_address(raw: &Instruction) -> bool {
    raw.memory_base() != Register::None
        && raw.memory_index() != Register::None
        && raw.memory_displacement64() != 0
}
