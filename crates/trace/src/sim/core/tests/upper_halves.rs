//! Transitions between AVX and SSE: when the upper halves are moved, merged, or left alone.

use super::*;
use crate::machine::UpperHalves;

const VPADDD_YMM1: &[u8] = &[0xc5, 0xf5, 0xfe, 0xc9]; // vpaddd ymm1, ymm1, ymm1
const VPADDD_XMM2: &[u8] = &[0xc5, 0xe9, 0xfe, 0xd2]; // vpaddd xmm2, xmm2, xmm2
const VPADDD_YMM16: &[u8] = &[0x62, 0xa1, 0x7d, 0x20, 0xfe, 0xc0]; // vpaddd ymm16, ymm16, ymm16
const VPTEST_YMM1: &[u8] = &[0xc4, 0xe2, 0x7d, 0x17, 0xc9]; // vptest ymm1, ymm1
const VZEROUPPER: &[u8] = &[0xc5, 0xf8, 0x77];
const PADDD_XMM3: &[u8] = &[0x66, 0x0f, 0xfe, 0xd8]; // paddd xmm3, xmm0
const MOVD_EAX_XMM3: &[u8] = &[0x66, 0x0f, 0x7e, 0xd8]; // movd eax, xmm3
const MOVAPS_XMM4_XMM0: &[u8] = &[0x0f, 0x28, 0xe0]; // movaps xmm4, xmm0
const MULPS_XMM4_XMM4: &[u8] = &[0x0f, 0x59, 0xe4]; // mulps xmm4, xmm4

/// Cycles of an iteration and transitions in a thousand iterations.
fn of(insns: &[&[u8]], upper_halves: UpperHalves) -> (f64, u64) {
    let kernel = Kernel { insns, accesses: &nothing };
    let change = |shape: &mut CoreShape| shape.upper_halves = upper_halves;
    let (cycles, events) = run_shaped(&kernel, None, Microarchitecture::GoldenCove, change);
    let iterations = ITERATIONS * 3 / 4;
    (cycles, events[Mechanism::VectorTransitions as usize] * 1000 / iterations)
}

const MOVED: UpperHalves = UpperHalves::Moved { cycles: 200 };

#[test]
fn upper_halves_are_put_away_and_brought_back() {
    let (cycles, transitions) = of(&[VPADDD_YMM1, PADDD_XMM3], MOVED);
    assert_eq!(transitions, 2000);
    assert!((400.0..410.0).contains(&cycles), "{cycles}");
    // However many instructions stand on either side, and whatever the instruction of AVX does.
    for insns in [
        &[VPADDD_YMM1, VPADDD_YMM1, PADDD_XMM3, MOVAPS_XMM4_XMM0][..],
        &[VPADDD_YMM1, PADDD_XMM3, VPADDD_XMM2],
        &[VPADDD_YMM1, PADDD_XMM3, VPTEST_YMM1],
        &[VPADDD_YMM1, PADDD_XMM3, VZEROUPPER],
    ] {
        assert_eq!(of(insns, MOVED).1, 2000);
    }
}

#[test]
fn without_dirty_halves_or_writes_of_sse_nothing_is_moved() {
    for insns in [
        &[VPADDD_YMM1, VZEROUPPER, PADDD_XMM3][..],
        &[VPADDD_XMM2, PADDD_XMM3],
        &[VPADDD_YMM16, PADDD_XMM3],
        &[VPADDD_YMM1, MOVD_EAX_XMM3],
        &[VPTEST_YMM1, PADDD_XMM3],
    ] {
        assert_eq!(of(insns, MOVED).1, 0);
    }
    assert_eq!(of(&[VPADDD_YMM1, PADDD_XMM3], UpperHalves::Free).1, 0);
}

#[test]
fn a_core_that_merges_waits_for_what_the_register_held() {
    let insns = [VPADDD_YMM1, MOVAPS_XMM4_XMM0, MULPS_XMM4_XMM4];
    let (merged, events) = of(&insns, UpperHalves::Merged);
    let (free, _) = of(&insns, UpperHalves::Free);
    assert_eq!(events, 2000, "each instruction of SSE that writes a vector register");
    assert!(free < 1.1 && merged >= 4.9, "{free} {merged}");
}
