//! Instructions without their false dependencies: the register that they wait for is written anew in front of them.
//!
//! A zeroing costs a slot of the dispatcher and waits for nothing ([`FalseDependency`] has the physics). It leaves the flags alone.
//! Where the instruction keeps lanes of its destination, these become zero: that is done only where the function works on the
//! lowest lanes alone. Literature: Intel, "Optimization Reference Manual", "Clearing registers and dependency breaking idioms".

use iced_x86::{Code, Decoder, DecoderOptions, EncodingKind, Instruction, OpKind, Register};

use super::super::{Image, LONGEST_INSN_BYTES};
use super::patch::{Patch, PatchError};
use crate::machine::FalseDependency;
use crate::model::Svma;

/// Instructions of `image` with a false dependency: the control, with a no-op in front of each, and the cure, with their
/// destination written anew.
///
/// # Errors
/// When one of them cannot be replaced; the address tells which.
pub fn without_false_dependencies(
    image: &Image,
    sites: &[Svma],
) -> Result<[Patch; 2], (Svma, PatchError)> {
    let mut asked = None;
    for site in sites {
        check(image, *site, &mut asked).map_err(|error| (*site, error))?;
    }
    let control = Patch::of(image, sites, &|insn| {
        // As long as most zeroings.
        let no_op = Instruction::with1(Code::Nop_rm32, Register::EAX);
        Ok(vec![no_op.map_err(|_| PatchError::TooFar)?, *insn])
    })?;
    let cure = Patch::of(image, sites, &|insn| Ok(vec![renewal(insn)?, *insn]))?;
    Ok([control, cure])
}

/// Writes the register anew that an instruction waits for.
fn renewal(insn: &Instruction) -> Result<Instruction, PatchError> {
    let no_way = |why| Err(PatchError::NoOtherWay(why));
    let Some((_, held)) = FalseDependency::of(insn) else {
        return no_way("it has no false dependency");
    };
    if held != insn.op0_register().full_register() {
        return no_way("it keeps lanes of a register that it does not write");
    }
    let number = held.number() as u32;
    let built = if held.is_gpr() {
        Instruction::with2(Code::Mov_r32_imm32, Register::EAX + number, 0)
    } else {
        let it = Register::XMM0 + number;
        match insn.encoding() {
            EncodingKind::Legacy => Instruction::with2(Code::Pxor_xmm_xmmm128, it, it),
            EncodingKind::VEX => Instruction::with3(Code::VEX_Vpxor_xmm_xmm_xmmm128, it, it, it),
            _ => Instruction::with3(Code::EVEX_Vpxord_xmm_k1z_xmm_xmmm128b32, it, it, it),
        }
    };
    built.map_err(|_| PatchError::TooFar)
}

/// Whether the instruction at a site can be cured. `asked` is the function of the site before, and whether that works on more than
/// the lowest lanes: a large one takes long to read.
fn check(image: &Image, site: Svma, asked: &mut Option<(Svma, bool)>) -> Result<(), PatchError> {
    let function = image.function_at(site).ok_or(PatchError::NoInstruction)?;
    let decoder = |svma: Svma, code| Decoder::with_ip(64, code, svma.0, DecoderOptions::NONE);
    let insn = decoder(site, image.code_at(site, LONGEST_INSN_BYTES as u64)).decode();
    renewal(&insn)?;
    if !FalseDependency::of(&insn).is_some_and(|(kind, _)| kind.keeps_lanes()) {
        return Ok(());
    }
    let all_lanes = match *asked {
        Some((start, all_lanes)) if start == function.start => all_lanes,
        _ => {
            let code = image.function_bytes(function);
            decoder(function.start, code).iter().any(|insn| moves_other_lanes(&insn))
        }
    };
    *asked = Some((function.start, all_lanes));
    match all_lanes {
        true => Err(PatchError::NoOtherWay("its function works on more than the lowest lanes")),
        false => Ok(()),
    }
}

/// Whether what is in other lanes of a vector register may get out of them. Logic of whole registers, by which compilers
/// change signs, and copies leave each lane where it is.
fn moves_other_lanes(insn: &Instruction) -> bool {
    let of_vectors = (0..insn.op_count()).any(|operand| {
        insn.op_kind(operand) == OpKind::Register && insn.op_register(operand).is_vector_register()
    });
    let name = format!("{:?}", insn.mnemonic()).to_ascii_lowercase();
    let name = name.strip_prefix('v').unwrap_or(&name);
    let starts = |with: &[&str]| with.iter().any(|start| name.starts_with(start));
    let is_scalar = name.ends_with("sd") || name.ends_with("ss") || name.ends_with("si");
    let is_lane_wise = starts(&["and", "or", "xor", "pxor", "por", "pand", "movd", "movq"])
        || starts(&["cvtsi2", "cvtusi2", "cvtts", "comis", "ucomis", "zeroupper"]);
    let copies = starts(&["mova", "movu", "movdq"])
        && (0..insn.op_count()).all(|operand| insn.op_kind(operand) == OpKind::Register);
    of_vectors && !is_scalar && !is_lane_wise && !copies
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::code::fixture::{self, CODE_START};
    use crate::model::Avma;

    /// The trampolines of control and cure of the first instruction.
    fn of(code: &[&[u8]]) -> Result<[Vec<u8>; 2], PatchError> {
        let program = fixture::program(&[("f", &code.concat())]);
        let image = Image::parse(Path::new("p"), program).unwrap();
        let both = without_false_dependencies(&image, &[CODE_START.0]);
        let encode = |patch: Patch| patch.encode(Avma(CODE_START.0.0 + 0x1000), 0).unwrap();
        both.map(|both| both.map(|patch| encode(patch).trampolines)).map_err(|(_, error)| error)
    }

    const RET: &[u8] = &[0xc3];
    const CVTSI2SD: &[u8] = &[0xf2, 0x48, 0x0f, 0x2a, 0xc1]; // cvtsi2sd xmm0, rcx

    #[test]
    fn the_destination_is_written_anew_without_touching_the_flags() {
        let [control, cure] = of(&[CVTSI2SD, RET]).unwrap();
        assert_eq!(control[..8], [&[0x0f, 0x1f, 0xc0][..], CVTSI2SD].concat());
        assert_eq!(cure[..9], [&[0x66, 0x0f, 0xef, 0xc0][..], CVTSI2SD].concat());
        let popcnt: &[u8] = &[0xf3, 0x48, 0x0f, 0xb8, 0xc1]; // popcnt rax, rcx
        let [_, cure] = of(&[popcnt, RET]).unwrap();
        assert_eq!(cure[..10], [&[0xb8, 0, 0, 0, 0][..], popcnt].concat());
        let vsqrtsd: &[u8] = &[0xc4, 0xe1, 0x7b, 0x51, 0xc2]; // vsqrtsd xmm0, xmm0, xmm2
        let [_, cure] = of(&[vsqrtsd, RET]).unwrap();
        assert_eq!(cure[..4], [0xc5, 0xf9, 0xef, 0xc0]);
    }

    #[test]
    fn lanes_that_somebody_may_need_are_left_alone() {
        let refused = |code: &[&[u8]]| of(code).unwrap_err();
        let lanes = PatchError::NoOtherWay("its function works on more than the lowest lanes");
        let unpcklpd: &[u8] = &[0x66, 0x0f, 0x14, 0xc1];
        assert_eq!(refused(&[CVTSI2SD, unpcklpd, RET]), lanes);
        let store: &[u8] = &[0x0f, 0x29, 0x07]; // movaps [rdi], xmm0
        assert_eq!(refused(&[CVTSI2SD, store, RET]), lanes);
        // xorpd xmm0, xmm1; movapd xmm2, xmm0; addsd xmm2, xmm1; movsd [rdi], xmm2; cvttsd2si eax, xmm2
        let lane_wise: [&[u8]; 7] = [
            CVTSI2SD,
            &[0x66, 0x0f, 0x57, 0xc1],
            &[0x66, 0x0f, 0x28, 0xd0],
            &[0xf2, 0x0f, 0x58, 0xd1],
            &[0xf2, 0x0f, 0x11, 0x17],
            &[0xf2, 0x0f, 0x2c, 0xc2],
            RET,
        ];
        assert!(of(&lane_wise).is_ok());
        let other: &[u8] = &[0xc4, 0xe1, 0x73, 0x51, 0xc2]; // vsqrtsd xmm0, xmm1, xmm2
        let kept = PatchError::NoOtherWay("it keeps lanes of a register that it does not write");
        assert_eq!(refused(&[other, RET]), kept);
        let none = PatchError::NoOtherWay("it has no false dependency");
        assert_eq!(refused(&[&[0xf2, 0x48, 0x0f, 0x58, 0xc1], RET]), none);
    }
}
