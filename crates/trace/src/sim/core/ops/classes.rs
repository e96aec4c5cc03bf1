//! Which unit an instruction asks for, and where it goes on.

use super::*;
use crate::machine::{Design, Microarchitecture};

fn op(bytes: &[u8]) -> Op {
    Op::of(bytes, Avma(0x1000), &mut InstructionInfoFactory::new())
}

#[test]
fn every_kind_of_arithmetic_has_its_class() {
    let all: [(&[u8], OpClass); 31] = [
        (&[0xf3, 0x0f, 0x5e, 0xc1], OpClass::FloatDivide32), // divss xmm0, xmm1
        (&[0xf2, 0x0f, 0x5e, 0xc1], OpClass::FloatDivide64), // divsd xmm0, xmm1
        (&[0xf3, 0x0f, 0x51, 0xc1], OpClass::FloatRoot32),   // sqrtss xmm0, xmm1
        (&[0xf2, 0x0f, 0x58, 0xc1], OpClass::FloatAdd),      // addsd xmm0, xmm1
        (&[0xf2, 0x0f, 0x59, 0xc1], OpClass::FloatMultiply), // mulsd xmm0, xmm1
        (&[0xf2, 0x0f, 0x2a, 0xc0], OpClass::ConvertIn),     // cvtsi2sd xmm0, eax
        (&[0xf2, 0x0f, 0x2c, 0xc0], OpClass::ConvertAcross), // cvttsd2si eax, xmm0
        (&[0x66, 0x0f, 0x7e, 0xc1], OpClass::Cross),         // movd ecx, xmm0
        (&[0xf3, 0x0f, 0x5a, 0xc1], OpClass::Convert),       // cvtss2sd xmm0, xmm1
        (&[0x66, 0x0f, 0x38, 0x40, 0xc1], OpClass::VectorMultiply), // pmulld xmm0, xmm1
        (&[0x66, 0x0f, 0x70, 0xc1, 0], OpClass::Shuffle),    // pshufd xmm0, xmm1, 0
        (&[0x66, 0x0f, 0xfe, 0xc1], OpClass::Vector),        // paddd xmm0, xmm1
        (&[0xf3, 0x48, 0x0f, 0xb8, 0xc1], OpClass::BitCount), // popcnt rax, rcx
        (&[0x66, 0x0f, 0x72, 0xf0, 2], OpClass::VectorShift), // pslld xmm0, 2
        (&[0x66, 0x0f, 0x73, 0xf8, 2], OpClass::Shuffle),    // pslldq xmm0, 2
        (&[0x66, 0x0f, 0x38, 0xdd, 0xc1], OpClass::Cipher),  // aesenclast xmm0, xmm1
        (&[0x0f, 0x38, 0xcb, 0xca], OpClass::Digest),        // sha256rnds2 xmm1, xmm2
        (&[0xd8, 0xf1], OpClass::FloatDivide64),             // fdiv st0, st1
        (&[0xd8, 0xc1], OpClass::FloatAdd),                  // fadd st0, st1
        (&[0xd8, 0xc9], OpClass::FloatMultiply),             // fmul st0, st1
        (&[0x0f, 0xae, 0xf0], OpClass::Fence),               // mfence
        (&[0x0f, 0xae, 0xe8], OpClass::LoadFence),           // lfence
        (&[0x0f, 0xae, 0xf8], OpClass::StoreFence),          // sfence
        (&[0x87, 0x07], OpClass::Locked),                    // xchg [rdi], eax
        (&[0xd3, 0xe0], OpClass::ShiftByCount),              // shl eax, cl
        (&[0xc1, 0xe0, 3], OpClass::Shift),                  // shl eax, 3
        (&[0xf7, 0x37], OpClass::Divide32),                  // div dword [rdi]
        (&[0x48, 0xf7, 0x37], OpClass::Divide64),            // div qword [rdi]
        (&[0x48, 0x8d, 0x44, 0x0f, 0], OpClass::Integer),    // lea rax, [rdi+rcx]
        (&[0x0f, 0xa2], OpClass::Microcode),                 // cpuid
        (&[0xc3], OpClass::Branch),                          // ret
    ];
    for (bytes, class) in all {
        assert_eq!(op(bytes).class, class, "{bytes:x?}");
    }
}

#[test]
fn what_microcode_does_has_a_price_where_it_was_measured() {
    use MicrocodeUse::{Compresses, None, Takes};
    let of = |bytes: &[u8]| op(bytes).microcode;
    assert_eq!(of(&[0x0f, 0xab, 0x0f]), Takes(8), "bts [rdi], ecx");
    assert_eq!(of(&[0x0f, 0xab, 0xc8]), None, "bts eax, ecx");
    assert_eq!(of(&[0x0f, 0xa3, 0xc8]), None, "bt eax, ecx");
    assert_eq!([of(&[0xd3, 0xd0]), of(&[0xd1, 0xd0])], [Takes(7), None], "rcl eax, cl");
    assert_eq!([of(&[0xfc]), of(&[0xfd])], [Takes(4); 2], "cld, std");
    let to_memory = [0x62, 0xf2, 0x7d, 0x49, 0x8b, 0x0f]; // vpcompressd [rdi]{k1}, zmm1
    assert_eq!(of(&to_memory), Compresses(16));
    let pairs = [0x62, 0xf2, 0xfd, 0x29, 0x8b, 0x0f]; // vpcompressq [rdi]{k1}, ymm1
    assert_eq!(of(&pairs), Compresses(4));
    let to_register = [0x62, 0xf2, 0x7d, 0x49, 0x8b, 0xca]; // vpcompressd zmm2{k1}, zmm1
    assert_eq!(of(&to_register), None);
    let of = |microarchitecture| Design::of(microarchitecture).core().value;
    let [zen3, zen4] = [Microarchitecture::Zen3, Microarchitecture::Zen4].map(of);
    assert_eq!(Compresses(16).cycles(&zen4), Some(47 + 4 * 16));
    assert_eq!([Compresses(16).cycles(&zen3), Takes(8).cycles(&zen3)], [Option::None, Some(8)]);
}

#[test]
fn every_kind_of_branch_goes_on_in_its_way() {
    for (bytes, flow) in [
        (&[0x90][..], Flow::On),
        (&[0x74, 0], Flow::Either),
        (&[0xeb, 0], Flow::Jump),
        (&[0xff, 0xe0], Flow::IndirectJump),
        (&[0xe8, 0, 0, 0, 0], Flow::Call),
        (&[0xff, 0xd0], Flow::IndirectCall),
        (&[0xc3], Flow::Return),
        (&[0x0f, 0x05], Flow::On),
    ] {
        assert_eq!(op(bytes).flow, flow, "{bytes:x?}");
    }
}

#[test]
fn registers_of_each_file_have_bits_of_their_own() {
    let bits =
        [Register::RAX, Register::R15, Register::XMM0, Register::XMM31, Register::K0, Register::K7]
            .map(|register| bit(register).trailing_zeros());
    assert_eq!(bits, [0, 15, 16, 47, 48, 55]);
    assert_eq!(
        (bit(Register::EAX), bit(Register::YMM3)),
        (bit(Register::RAX), bit(Register::XMM3))
    );
    assert_eq!((bit(Register::MM0), bit(Register::MM5)), (1 << MMX, 1 << MMX));
    assert_eq!(bit(Register::None), 0);
    assert_eq!(bit(Register::XMM31) & VECTORS, bit(Register::XMM31));
}
