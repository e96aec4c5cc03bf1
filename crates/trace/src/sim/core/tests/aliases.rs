//! Loads beside stores to the same place of another page.

use super::*;
use crate::model::PAGE_BYTES;

/// mov [rdi+rax], r8
const STORE: &[u8] = &[0x4c, 0x89, 0x04, 0x07];
/// mov rax, [rsi+rax]
const LOAD: &[u8] = &[0x48, 0x8b, 0x04, 0x06];
/// add rax, rbx
const ADD: &[u8] = &[0x48, 0x01, 0xd8];

/// A chain through a load behind so many additions, beside a store of so many bytes so far from its place in another page.
fn chain(ahead: i64, additions: usize, without: Option<Mechanism>) -> (f64, u64) {
    let insns = [&[STORE][..], &vec![ADD; additions], &[LOAD, DEC_EDX, JNE]].concat();
    let accesses = |turn: u64| {
        // Elsewhere in each turn: only the store of the same one is near.
        let at = 0x10_0000 + 64 * (turn % 8);
        let other = (at + 3 * PAGE_BYTES).wrapping_add_signed(ahead);
        vec![store(0, other, 8), load(1 + additions as u32, at, 8)]
    };
    let kernel = Kernel { insns: &insns, accesses: &accesses };
    let (cycles, events) = run_on(&kernel, without, Microarchitecture::Zen4);
    (cycles, events[Mechanism::AliasedLoads as usize])
}

#[test]
fn a_load_beside_a_store_to_its_place_in_another_page_waits() {
    let (clear, none) = chain(2048, 0, None);
    assert_eq!(none, 0);
    // Measured on Zen 4: 12 cycles in place of 5, from a byte in common on.
    for (ahead, longer) in [(0, 7.0), (7, 7.0), (-7, 7.0), (8, 0.0), (-8, 0.0), (64, 0.0)] {
        let (cycles, events) = chain(ahead, 0, None);
        assert!((cycles - clear - longer).abs() < 0.1, "{ahead}: {cycles} {clear}");
        assert_eq!(events > 0, longer > 0.0, "{ahead}");
    }
    let (without, _) = chain(0, 0, Some(Mechanism::AliasedLoads));
    assert!((without - clear).abs() < 0.1, "{without}");
    // One cycle behind the address of the store it waits, and two behind it no more.
    let longer = |additions| chain(0, additions, None).0 - chain(2048, additions, None).0;
    assert!((longer(1) - 7.0).abs() < 0.1 && longer(2).abs() < 0.1, "{}", longer(2));
}

#[test]
fn what_is_not_known_of_a_core_is_not_charged() {
    let accesses = |_: u64| vec![store(0, 0x10_3000, 8), load(1, 0x10_0000, 8)];
    let kernel = Kernel { insns: &[STORE, LOAD, DEC_EDX, JNE], accesses: &accesses };
    let (_, events) = run_on(&kernel, None, Microarchitecture::GoldenCove);
    assert_eq!(events[Mechanism::AliasedLoads as usize], 0);
}
