//! What Zen 5 does otherwise than the other designs, loops and chains as they were measured there.

use super::*;

const NOP: &[u8] = &[0x90];

/// Cycles of a turn and events of each mechanism, of instructions with these accesses.
fn run_zen_5(
    insns: &[&[u8]],
    accesses: &[MemoryAccess],
    without: Option<Mechanism>,
) -> (f64, [u64; Mechanism::ALL.len()]) {
    let kernel = Kernel { insns, accesses: &|_| accesses.to_vec() };
    run_on(&kernel, without, Microarchitecture::Zen5)
}

fn zen_5(insns: &[&[u8]], accesses: &[MemoryAccess]) -> f64 {
    run_zen_5(insns, accesses, None).0
}

#[track_caller]
fn near(cycles: f64, measured: f64) {
    assert!((cycles - measured).abs() < 0.1, "{cycles}");
}

#[test]
fn more_than_twelve_instructions_in_a_line_are_fetched_in_three_cycles() {
    let turn = |nops: usize, without| {
        let mut insns = vec![NOP; nops];
        insns.extend([DEC_EDX, JNE]);
        run_zen_5(&insns, &[], without)
    };
    for (nops, measured) in [(5, 1.02), (11, 1.52), (12, 3.03), (23, 3.05), (24, 5.04), (35, 5.04)]
    {
        let (cycles, events) = turn(nops, None);
        assert!((cycles / measured - 1.0).abs() < 0.04, "{nops}: {cycles} {measured}");
        let is_slow = events[Mechanism::SlowFetch as usize] > 0;
        assert_eq!(is_slow, nops > 11, "{nops}");
    }
    let dispatched = turn(24, Some(Mechanism::SlowFetch)).0;
    assert!((dispatched - 25.0 / 8.0).abs() < 0.05, "{dispatched}");
    // Without taken branches a line still takes what it holds more than twelve.
    assert!(turn(12, Some(Mechanism::TakenBranches)).0 > 1.9);
}

#[test]
fn an_index_that_is_multiplied_and_a_sign_take_a_cycle_each() {
    let chain = |insn: &[u8], bytes: u32| zen_5(&[insn], &[load(0, 0x9000, bytes)]);
    near(chain(&[0x48, 0x8b, 0x04, 0x06], 8), 4.0); // mov rax, [rsi+rax]
    near(chain(&[0x48, 0x8b, 0x04, 0xc6], 8), 5.0); // mov rax, [rsi+rax*8]
    near(chain(&[0x4a, 0x8b, 0x04, 0xf0], 8), 4.0); // mov rax, [rax+r14*8]
    near(chain(&[0x48, 0x63, 0x04, 0x86], 4), 6.0); // movsxd rax, dword ptr [rsi+rax*4]
}

#[test]
fn stores_to_twelve_lines_take_half_a_cycle_each_and_other_lines_one() {
    let of = |lines: u64, to_each: u64| {
        let stores: Vec<_> = (0..lines * to_each)
            .map(|n| store(n as u32, 0x9000 + 64 * (n / to_each) + 8 * (n % to_each), 8))
            .collect();
        zen_5(&vec![&[0x48, 0x89, 0x06][..]; stores.len()], &stores) // mov [rsi], rax
    };
    for (lines, to_each, measured) in [(12, 1, 6.06), (13, 1, 13.6), (16, 2, 16.1), (16, 4, 32.2)] {
        let cycles = of(lines, to_each);
        assert!((cycles / measured - 1.0).abs() < 0.05, "{lines}, {to_each} to each: {cycles}");
    }
}

#[test]
fn vectors_share_units_in_pairs_and_moves_in_and_out_have_their_own() {
    const SHIFT: &[u8] = &[0xc5, 0xf1, 0x72, 0xf2, 0x03]; // vpslld xmm1, xmm2, 3
    const ADD: &[u8] = &[0xc5, 0xe8, 0x58, 0xcb]; // vaddps xmm1, xmm2, xmm3
    const MULTIPLY: &[u8] = &[0xc5, 0xe8, 0x59, 0xcb]; // vmulps xmm1, xmm2, xmm3
    const IN: &[u8] = &[0x66, 0x0f, 0x6e, 0xe0]; // movd xmm4, eax
    const OUT: &[u8] = &[0x66, 0x0f, 0x7e, 0xd1]; // movd ecx, xmm2
    const CONVERT_IN: &[u8] = &[0xc5, 0xd3, 0x2a, 0xe0]; // vcvtsi2sd xmm4, xmm5, eax
    let four_of_each = |kinds: &[&[u8]]| zen_5(&[kinds; 4].concat(), &[]);
    for (kinds, measured) in [
        (&[SHIFT, ADD][..], 4.0),
        (&[SHIFT, MULTIPLY], 2.0),
        (&[SHIFT, OUT], 2.2),
        (&[IN], 4.0),
        (&[OUT], 2.0),
        (&[IN, OUT], 4.0),
        (&[IN, CONVERT_IN], 8.0),
    ] {
        let cycles = four_of_each(kinds);
        assert!((cycles - measured).abs() < 0.25, "{kinds:x?}: {cycles} {measured}");
    }
}

#[test]
fn a_division_takes_longer_the_more_bits_its_quotient_has() {
    let value = |address| MemoryAccess {
        insn: 0,
        kind: AccessKind::Value,
        size_bytes: 8,
        address: Avma(address),
    };
    // Each waits for the one before.
    let chain = |insn: &[u8], dividend: u64, divisor: u64| {
        zen_5(&[insn], &[dividend, 0, divisor].map(value))
    };
    let wide = |bits: u32| chain(&[0x49, 0xf7, 0xf0], u64::MAX >> 1, (u64::MAX >> 1) >> bits); // div r8
    for (bits, measured) in [(4, 10.0), (16, 11.0), (28, 13.0), (40, 14.0), (56, 16.0), (62, 16.0)]
    {
        assert!((wide(bits) - measured).abs() < 1.1, "{bits}: {}", wide(bits));
    }
    assert!(wide(56) > wide(28) + 2.5 && wide(28) > wide(4) + 2.5);
    let narrow = |divisor| chain(&[0x41, 0xf7, 0xf0], u64::MAX, divisor); // div r8d
    near(narrow(1 << 28), 10.0);
    near(narrow(2), 13.0);
    // What is divided is not known.
    near(zen_5(&[&[0x49, 0xf7, 0xf0]], &[]), 13.0);
}

#[test]
fn values_that_are_renamed_take_a_cycle_where_their_sign_is_copied() {
    let round = |load_insn: &[u8], bytes: u32| {
        // mov [rsi], rax
        let insns = [&[0x48, 0x89, 0x06][..], load_insn, ADD_RAX_1];
        zen_5(&insns, &[store(0, 0x9000, 8), load(1, 0x9000, bytes)])
    };
    near(round(&[0x48, 0x8b, 0x06], 8), 1.02); // mov rax, [rsi]
    near(round(&[0x8b, 0x06], 4), 1.02); // mov eax, [rsi]
    near(round(&[0x48, 0x63, 0x06], 4), 2.02); // movsxd rax, dword ptr [rsi]
    near(round(&[0x0f, 0xb6, 0x06], 1), 8.04); // movzx eax, byte ptr [rsi]
}

#[test]
fn a_stored_vector_is_forwarded_two_cycles_later_than_other_values() {
    // movaps [rsi], xmm0; movaps xmm0, [rsi]; paddd xmm0, xmm0
    let insns = [&[0x0f, 0x29, 0x06][..], &[0x0f, 0x28, 0x06], &[0x66, 0x0f, 0xfe, 0xc0]];
    let cycles = zen_5(&insns, &[store(0, 0x9000, 16), load(1, 0x9000, 16)]);
    assert!((cycles - 11.0).abs() < 0.1, "{cycles}");
}

#[test]
fn stores_across_lines_reach_the_cache_one_in_a_cycle_and_others_two() {
    let stores = |at: u64| {
        let accesses: Vec<_> = (0..4).map(|n| store(n, at + u64::from(n) * 64, 8)).collect();
        // mov [rsi], rax, the places as if by four bases
        zen_5(&[&[0x48, 0x89, 0x06][..]; 4], &accesses)
    };
    assert!((stores(0x9000) - 2.0).abs() < 0.1, "{}", stores(0x9000));
    assert!((stores(0x903c) - 4.0).abs() < 0.1, "{}", stores(0x903c));
}

#[test]
fn what_is_pushed_and_popped_is_only_moved() {
    // push rax; pop rax; add rax, 1
    let insns = [&[0x50][..], &[0x58], ADD_RAX_1];
    let cycles = zen_5(&insns, &[store(0, 0x9000, 8), load(1, 0x9000, 8)]);
    assert!((cycles - 1.0).abs() < 0.1, "{cycles}");
}

#[test]
fn nothing_is_dispatched_behind_an_atomic_operation_for_a_while() {
    // lock inc qword ptr [rsi], in lines of their own
    const LOCK_INC: &[u8] = &[0xf0, 0x48, 0xff, 0x06];
    const LONG_NOP: &[u8] = &[0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00];
    let turn = |nops: usize, stores: usize, without| {
        let mut insns = vec![LOCK_INC];
        insns.extend(vec![LONG_NOP; nops]);
        insns.extend(vec![&[0x48, 0x89, 0x07][..]; stores]); // mov [rdi], rax
        let store_to = |n: usize| store((1 + nops + n) as u32, 0xa000, 8);
        let stored = (0..stores).map(store_to);
        let accesses: Vec<_> =
            [load(0, 0x9000, 8), store(0, 0x9000, 8)].into_iter().chain(stored).collect();
        run_zen_5(&insns, &accesses, without).0
    };
    for (nops, stores, measured) in
        [(0, 0, 19.9), (40, 0, 22.2), (80, 0, 27.2), (200, 0, 42.3), (40, 1, 25.2), (40, 2, 25.2)]
    {
        let cycles = turn(nops, stores, None);
        assert!((cycles / measured - 1.0).abs() < 0.05, "{nops}, {stores}: {cycles} {measured}");
    }
    assert!(turn(40, 1, Some(Mechanism::LockedOperations)) < 6.0);
    // A chain of 48 cycles hides it: imul rax, rax. Measured: 48.3.
    let mut insns = vec![LOCK_INC];
    insns.extend([IMUL_RAX; 16]);
    let cycles = zen_5(&insns, &[load(0, 0x9000, 8), store(0, 0x9000, 8)]);
    assert!((cycles - 48.3).abs() < 1.0, "{cycles}");
}

#[test]
fn chains_of_short_operations_share_five_of_six_units_and_so_do_the_values_of_stores() {
    // add r, 1 of so many registers, and so many stores.
    let adds: [&[u8]; 6] = [
        &[0x48, 0x83, 0xc0, 0x01],
        &[0x48, 0x83, 0xc3, 0x01],
        &[0x48, 0x83, 0xc1, 0x01],
        &[0x48, 0x83, 0xc5, 0x01],
        &[0x49, 0x83, 0xc0, 0x01],
        &[0x49, 0x83, 0xc1, 0x01],
    ];
    let turn = |chains: usize, stores: usize| {
        let mut insns = adds[..chains].to_vec();
        insns.extend(vec![&[0x48, 0x89, 0x07][..]; stores]);
        insns.extend([DEC_EDX, JNE]);
        let accesses: Vec<_> = (0..stores).map(|n| store((chains + n) as u32, 0x9000, 8)).collect();
        zen_5(&insns, &accesses)
    };
    for (chains, stores, measured) in [
        (3, 0, 1.02),
        (4, 0, 1.13),
        (5, 0, 1.28),
        (6, 0, 1.45),
        (3, 1, 1.05),
        (5, 1, 1.37),
        (6, 1, 1.59),
        (4, 2, 1.32),
        (6, 2, 1.77),
    ] {
        let cycles = turn(chains, stores);
        assert!((cycles / measured - 1.0).abs() < 0.13, "{chains} {stores} {cycles} {measured}");
    }
    // A multiplication takes two: imul r, rcx, 7 beside additions.
    let multiplied = |multiplications: usize, additions: usize| {
        let all: [&[u8]; 3] =
            [&[0x48, 0x6b, 0xc1, 0x07], &[0x48, 0x6b, 0xd9, 0x07], &[0x48, 0x6b, 0xe9, 0x07]];
        let mut insns = all[..multiplications].to_vec();
        insns.extend(&adds[2..2 + additions]);
        insns.extend([DEC_EDX, JNE]);
        zen_5(&insns, &[])
    };
    near(multiplied(1, 4), 1.2);
    near(multiplied(0, 4), 1.0);
    // What waits for nothing has all six: lea r, [rsi+8].
    let free = [0x46, 0x4e, 0x5e, 0x6e, 0x7e].map(|register| [0x48, 0x8d, register, 0x08]);
    let free: Vec<&[u8]> = free.iter().map(|insn| &insn[..]).chain([DEC_EDX, JNE]).collect();
    near(zen_5(&free, &[]), 1.0);
}

#[test]
fn lines_of_one_set_come_and_go_slowly_where_they_were_written() {
    let lines = |is_store: bool| {
        let kernel = Kernel {
            insns: &[if is_store { &[0x48, 0x89, 0x06] } else { &[0x48, 0x8b, 0x06] }],
            accesses: &|n| {
                let at = 0x10_0000 + n % 64 * 4096;
                vec![if is_store { store(0, at, 8) } else { load(0, at, 8) }]
            },
        };
        run_on(&kernel, None, Microarchitecture::Zen5).0
    };
    assert!((lines(false) - 7.5).abs() < 1.0, "{}", lines(false));
    assert!((lines(true) - 34.0).abs() < 4.0, "{}", lines(true));
}

#[test]
fn a_store_to_running_code_has_older_chains_begin_again() {
    // imul rax, rax eight times; mov [rdi], rcx. Measured: 155 cycles, 26 without the store.
    let mut insns = vec![&[0x48, 0x0f, 0xaf, 0xc0][..]; 8];
    insns.extend([&[0x48, 0x89, 0x0f][..], DEC_EDX, JNE]);
    let turn = |address: u64| run_zen_5(&insns, &[store(8, address, 8)], None);
    near(turn(0x2000).0, 24.0);
    let (cycles, events) = turn(0x1038);
    assert!((cycles / 155.0 - 1.0).abs() < 0.1, "{cycles}");
    assert_eq!(events[Mechanism::WrittenCode as usize], ITERATIONS - ITERATIONS / 4);
}

#[test]
fn stores_of_64_bytes_across_lines_take_from_what_loads_get() {
    // vmovups zmm0, [rsi] and vmovups [rdi], zmm3, of so many lines each.
    let turn = |loads: u32, stores: u32, offset: u64| {
        let mut insns = vec![&[0x62, 0xf1, 0x7c, 0x48, 0x10, 0x06][..]; loads as usize];
        insns.extend(vec![&[0x62, 0xf1, 0x7c, 0x48, 0x11, 0x1f][..]; stores as usize]);
        insns.extend([DEC_EDX, JNE]);
        let loaded = (0..loads).map(|n| load(n, 0x9000 + 0x200 * u64::from(n) + offset, 64));
        let stored =
            (loads..loads + stores).map(|n| store(n, 0xa000 + 64 * u64::from(n) + offset, 64));
        zen_5(&insns, &loaded.chain(stored).collect::<Vec<_>>())
    };
    // Measured: 4.0, 3.1, and 1.6 to 2.0.
    for (loads, stores, cycles) in [(3, 2, 4.0), (2, 2, 3.0), (1, 1, 1.5)] {
        near(turn(loads, stores, 24), cycles);
    }
    near(turn(2, 1, 0), 1.0);
}
