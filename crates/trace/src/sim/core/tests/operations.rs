//! What an instruction takes at dispatch, and on which units it starts: all as measured on Zen 4.

use super::*;

const COPY: &[u8] = &[0x44, 0x89, 0xfa]; // mov edx, r15d
const SHIFT: &[u8] = &[0xc1, 0xea, 0x03]; // shr edx, 3
const AND: &[u8] = &[0x83, 0xe2, 0x03]; // and edx, 3
const COMPARE: &[u8] = &[0x3b, 0x06]; // cmp eax, [rsi]
const COMPARE_BY_INDEX: &[u8] = &[0x3b, 0x04, 0x8e]; // cmp eax, [rsi+rcx*4]
const LOAD_BY_INDEX: &[u8] = &[0x8b, 0x04, 0x8e]; // mov eax, [rsi+rcx*4]
const STORE_BY_INDEX: &[u8] = &[0x89, 0x04, 0x8e]; // mov [rsi+rcx*4], eax
const STORE_VECTOR: &[u8] = &[0xf3, 0x0f, 0x7f, 0x04, 0x8e]; // movdqu [rsi+rcx*4], xmm0
const ADD_TO_MEMORY: &[u8] = &[0x83, 0x06, 0x01]; // add dword ptr [rsi], 1

/// Cycles of these instructions, whose last one uses memory in the first level.
fn zen(insns: &[&[u8]]) -> f64 {
    let insn = insns.len() as u32 - 1;
    let last = insns[insns.len() - 1];
    let accesses = |n: u64| {
        let address = 0x9000 + n % 16 * 64;
        match last {
            STORE_BY_INDEX => vec![store(insn, address, 4)],
            STORE_VECTOR => vec![store(insn, address, 16)],
            ADD_TO_MEMORY => vec![load(insn, address, 4), store(insn, address, 4)],
            _ => vec![load(insn, address, 4)],
        }
    };
    run_on(&Kernel { insns, accesses: &accesses }, None, Microarchitecture::Zen4).0
}

/// The same behind so many copies, which start nowhere.
fn behind_copies(copies: usize, last: &'static [u8]) -> f64 {
    let mut insns = vec![COPY; copies];
    insns.push(last);
    zen(&insns)
}

#[test]
fn what_computes_with_memory_by_an_index_or_changes_it_is_two_operations_that_are_dispatched_together()
 {
    for (copies, last, measured) in [
        (2, COMPARE_BY_INDEX, 8.3 / 12.0),
        // Five operations: the next two find no room beside them.
        (3, COMPARE_BY_INDEX, 12.0 / 12.0),
        (5, COMPARE_BY_INDEX, 14.45 / 12.0),
        (2, COMPARE, 6.15 / 12.0),
        (2, LOAD_BY_INDEX, 6.15 / 12.0),
        (5, ADD_TO_MEMORY, 14.45 / 12.0),
        (8, STORE_BY_INDEX, 20.25 / 12.0),
        (8, STORE_VECTOR, 18.1 / 12.0),
    ] {
        let cycles = behind_copies(copies, last);
        assert!((cycles / measured - 1.0).abs() < 0.04, "{copies} {last:x?}: {cycles} {measured}");
    }
}

#[test]
fn what_computes_with_memory_starts_beside_a_unit_for_addresses() {
    // Two units can shift, three compute with what was loaded, one of four does neither.
    let shifts = zen(&[COPY, SHIFT, COMPARE]);
    assert!((shifts / (8.0 / 12.0) - 1.0).abs() < 0.05, "{shifts}");
    let others = zen(&[COPY, AND, COMPARE]);
    assert!((others / (6.24 / 12.0) - 1.0).abs() < 0.05, "{others}");
}
