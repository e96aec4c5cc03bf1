//! Atomic operations and fences: what waits for them, and what they wait for.

use super::*;

#[test]
fn an_atomic_operation_holds_later_loads_on_some_designs_and_not_on_others() {
    // lock inc qword ptr [rdi]; mov rcx, [rsi]; add rax, rcx; four multiplications of rax
    let lock = |_: u64| vec![load(0, 0x10_0000, 8), store(0, 0x10_0000, 8), load(1, 0x10_1000, 8)];
    let mut insns: Vec<&[u8]> =
        vec![&[0xf0, 0x48, 0xff, 0x07], &[0x48, 0x8b, 0x0e], &[0x48, 0x01, 0xc8]];
    insns.extend([IMUL_RAX, IMUL_RAX, IMUL_RAX, IMUL_RAX, DEC_EDX, JNE]);
    let kernel = Kernel { insns: &insns, accesses: &lock };
    let on = |design| run_on(&kernel, None, design).0;
    // Measured on Zen 4: 21 cycles with and without it, 6.8 where there is nothing else.
    let hidden = on(Microarchitecture::Zen4);
    assert!((hidden - 13.0).abs() < 0.5, "{hidden}");
    let waits = on(Microarchitecture::GoldenCove);
    assert!(waits > 30.0, "{waits}");
    let alone = Kernel {
        insns: &[&[0xf0, 0x48, 0xff, 0x07], DEC_EDX, JNE],
        accesses: &|_| vec![load(0, 0x10_0000, 8), store(0, 0x10_0000, 8)],
    };
    let alone = run_on(&alone, None, Microarchitecture::Zen4).0;
    assert!((alone - 7.0).abs() < 0.5, "{alone}");
}

#[test]
fn atomic_operations_are_farther_apart_where_others_stand_between() {
    // Measured on Redwood Cove, where later loads do not wait: 17.5 cycles with 16 additions between, 24.9 with 20, 32 with 32.
    const LOCK_ADD: &[u8] = &[0xf0, 0x48, 0x01, 0x0e]; // lock add [rsi], rcx
    const ADD_RAX_RBX: &[u8] = &[0x48, 0x01, 0xd8];
    let of = |additions: usize| {
        let insns = [vec![ADD_RAX_RBX; additions], vec![LOCK_ADD, DEC_EDX, JNE]].concat();
        let both = |kind| MemoryAccess { kind, ..load(additions as u32, 0x100_0000, 8) };
        let accesses = |_| vec![both(AccessKind::Load), both(AccessKind::Store)];
        let kernel = Kernel { insns: &insns, accesses: &accesses };
        let free = |shape: &mut CoreShape| shape.locked_is_fence = false;
        run_shaped(&kernel, None, Microarchitecture::RedwoodCove, free).0
    };
    for (additions, cycles) in [(4, 18.0), (16, 18.0), (20, 24.0), (32, 32.0)] {
        assert!((of(additions) - cycles).abs() < 1.1, "{additions}: {}", of(additions));
    }
}

#[test]
fn each_fence_holds_what_it_is_for() {
    const FENCE: &[u8] = &[0x0f, 0xae, 0xf0];
    const LOAD_FENCE: &[u8] = &[0x0f, 0xae, 0xe8];
    const STORE_FENCE: &[u8] = &[0x0f, 0xae, 0xf8];
    // Alone, and with ten multiplications in a chain behind it; measured on Redwood Cove: 39 and 60, 14 and 40, 6 and 30.
    for (fence, alone, beside) in
        [(FENCE, 39.0, 69.0), (LOAD_FENCE, 14.0, 44.0), (STORE_FENCE, 6.0, 30.0)]
    {
        let insns = [&[fence][..], &[DEC_EDX, JNE]].concat();
        let taken = cycles(&Kernel { insns: &insns, accesses: &nothing }, None);
        assert!((taken - alone).abs() < 1.1, "{fence:x?} alone: {taken}");
        let insns = [&[fence][..], &[IMUL_RAX; 10], &[DEC_EDX, JNE]].concat();
        let taken = cycles(&Kernel { insns: &insns, accesses: &nothing }, None);
        assert!((taken - beside).abs() < 2.1, "{fence:x?} beside: {taken}");
        let without = cycles(
            &Kernel { insns: &insns, accesses: &nothing },
            Some(Mechanism::LockedOperations),
        );
        assert!((without - 30.0).abs() < 1.1, "{fence:x?} without: {without}");
    }
}

#[test]
fn an_atomic_operation_waits_for_the_stores_before_it() {
    // mov [rdi], r8; lock inc qword ptr [rsi]. Measured on Redwood Cove: 18 cycles alone, 20 to 24 behind stores; on Zen 4 7.5 and 7.5.
    let accesses =
        |_: u64| vec![store(0, 0x10_1000, 8), load(1, 0x10_0000, 8), store(1, 0x10_0000, 8)];
    let insns: &[&[u8]] = &[&[0x4c, 0x89, 0x07], &[0xf0, 0x48, 0xff, 0x06], DEC_EDX, JNE];
    let kernel = Kernel { insns, accesses: &accesses };
    let of = |without, design| run_on(&kernel, without, design).0;
    let taken = of(None, Microarchitecture::RedwoodCove);
    assert!((19.5..25.0).contains(&taken), "{taken}");
    assert!(of(Some(Mechanism::LockedOperations), Microarchitecture::RedwoodCove) < 8.5);
    let taken = of(None, Microarchitecture::Zen4);
    assert!((taken - 7.0).abs() < 0.5, "{taken}");
}

#[test]
fn an_atomic_operation_that_waits_for_nothing_is_hidden_beside_what_it_adds() {
    // Three multiplications of rax; mov rdx, rax; lock xadd [rsi], rdx; add rax, rdx. Measured on Zen 4, ten multiplications: 32 cycles, of
    // which 30 are theirs.
    const MOV_RDX_RAX: &[u8] = &[0x48, 0x89, 0xc2];
    const XADD: &[u8] = &[0xf0, 0x48, 0x0f, 0xc1, 0x16];
    let insns =
        [IMUL_RAX, IMUL_RAX, IMUL_RAX, MOV_RDX_RAX, XADD, &[0x48, 0x01, 0xd0], DEC_EDX, JNE];
    let accesses = |_: u64| vec![load(4, 0x10_0000, 8), store(4, 0x10_0000, 8)];
    let kernel = Kernel { insns: &insns, accesses: &accesses };
    let taken = run_on(&kernel, None, Microarchitecture::Zen4).0;
    assert!((9.5..12.0).contains(&taken), "{taken}");
    let taken = run_on(&kernel, None, Microarchitecture::RedwoodCove).0;
    assert!(taken > 25.0, "{taken}");
}
