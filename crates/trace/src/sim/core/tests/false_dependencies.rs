//! False dependencies: who waits for what its destination held, and what breaks the chain.

use super::*;

const POPCNT_RAX_RCX: &[u8] = &[0xf3, 0x48, 0x0f, 0xb8, 0xc1]; // popcnt rax, rcx
const POPCNT_RAX_RAX: &[u8] = &[0xf3, 0x48, 0x0f, 0xb8, 0xc0]; // popcnt rax, rax
const XOR_EAX_EAX: &[u8] = &[0x31, 0xc0]; // xor eax, eax
const CVTSI2SD: &[u8] = &[0xf2, 0x48, 0x0f, 0x2a, 0xc1]; // cvtsi2sd xmm0, rcx
const MULSD: &[u8] = &[0xf2, 0x0f, 0x59, 0xc1]; // mulsd xmm0, xmm1
const PXOR: &[u8] = &[0x66, 0x0f, 0xef, 0xc0]; // pxor xmm0, xmm0

/// Cycles of an iteration with and without false dependencies, and waits in a thousand iterations.
fn of(insns: &[&[u8]], design: Microarchitecture) -> ([f64; 2], u64) {
    let kernel = Kernel { insns, accesses: &nothing };
    let (cycles, events) = run_on(&kernel, None, design);
    let (without, _) = run_on(&kernel, Some(Mechanism::FalseDependencies), design);
    let waits = events[Mechanism::FalseDependencies as usize] * 1000 / (ITERATIONS * 3 / 4);
    ([cycles, without], waits)
}

#[test]
fn bit_counts_wait_on_the_cores_that_let_them() {
    use Microarchitecture::{CascadeLake, GoldenCove};
    let ([with, without], waits) = of(&[POPCNT_RAX_RCX], CascadeLake);
    assert!(
        (2.9..3.1).contains(&with) && without < 1.1 && waits >= 990,
        "{with} {without} {waits}"
    );
    let ([later, _], none) = of(&[POPCNT_RAX_RCX], GoldenCove);
    assert!(later < 1.1 && none == 0, "{later} {none}");
    // A count of its own register is a chain that the program has.
    let ([own, own_without], none) = of(&[POPCNT_RAX_RAX], CascadeLake);
    assert!((2.9..3.1).contains(&own) && own == own_without && none == 0, "{own} {none}");
}

#[test]
fn a_zeroed_register_is_not_waited_for() {
    let design = Microarchitecture::GoldenCove;
    let ([kept, without], _) = of(&[CVTSI2SD, MULSD], design);
    // 4 of the conversion and 4 of the multiplication.
    assert!((7.9..8.1).contains(&kept) && without < 2.5, "{kept} {without}");
    let ([zeroed, _], waits) = of(&[PXOR, CVTSI2SD, MULSD], design);
    assert!(zeroed < 2.5 && waits == 0, "{zeroed} {waits}");
    let ([counted, _], waits) = of(&[XOR_EAX_EAX, POPCNT_RAX_RCX], Microarchitecture::CascadeLake);
    assert!(counted < 1.1 && waits == 0, "{counted} {waits}");
}
