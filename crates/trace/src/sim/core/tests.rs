//! Loops of a few instructions, whose cycles an iteration can be told by hand.

mod aliases;
mod branches;
mod false_dependencies;
mod fences;
mod operations;
mod upper_halves;
mod zen_5;

use super::*;
use crate::machine::{Fusion, Microarchitecture};
use crate::trace::engine::BlockInsn;
use predictor::{Mispredictions, Predictor};

impl Core<'_> {
    /// Instructions that were accounted.
    fn instructions(&self) -> u64 {
        self.instructions.saturating_sub(self.warm_up)
    }

    /// Cycles of what was accounted.
    fn cycles(&self) -> u64 {
        self.accounts.iter().map(|account| account.cycles).sum()
    }
}

/// A loop: its instructions' bytes, and what an iteration touches.
struct Kernel<'a> {
    insns: &'a [&'a [u8]],
    accesses: &'a dyn Fn(u64) -> Vec<MemoryAccess>,
}

const ITERATIONS: u64 = 4000;

fn nothing(_: u64) -> Vec<MemoryAccess> {
    Vec::new()
}

fn load(insn: u32, address: u64, size_bytes: u32) -> MemoryAccess {
    MemoryAccess { insn, kind: AccessKind::Load, size_bytes, address: Avma(address) }
}

fn store(insn: u32, address: u64, size_bytes: u32) -> MemoryAccess {
    MemoryAccess { kind: AccessKind::Store, ..load(insn, address, size_bytes) }
}

/// Cycles of an iteration, and how many of them had each mechanism.
fn run(kernel: &Kernel<'_>, without: Option<Mechanism>) -> (f64, [u64; Mechanism::ALL.len()]) {
    run_on(kernel, without, Microarchitecture::GoldenCove)
}

fn run_on(
    kernel: &Kernel<'_>,
    without: Option<Mechanism>,
    design: Microarchitecture,
) -> (f64, [u64; Mechanism::ALL.len()]) {
    run_shaped(kernel, without, design, |_| {})
}

/// Which branches a predictor is right about that knew nothing before.
fn predicted(program: &Program, shape: &CoreShape, all: &dyn Fn(&mut dyn Sink)) -> Vec<bool> {
    let new = Predictor::new(shape.learned);
    let mut predicted = Mispredictions::new(program, &new);
    all(&mut predicted);
    predicted.into_predicted()
}

/// On a core of a design that is changed.
fn run_shaped(
    kernel: &Kernel<'_>,
    without: Option<Mechanism>,
    design: Microarchitecture,
    change: impl Fn(&mut CoreShape),
) -> (f64, [u64; Mechanism::ALL.len()]) {
    look(kernel, without, design, change, |core| {
        let iterations = core.instructions() as f64 / kernel.insns.len() as f64;
        let all: Account = core.accounts().map(|(_, account)| account).sum();
        (core.cycles() as f64 / iterations, all.events)
    })
}

/// What `look` finds at the end of the run.
fn look<T>(
    kernel: &Kernel<'_>,
    without: Option<Mechanism>,
    design: Microarchitecture,
    change: impl Fn(&mut CoreShape),
    look: impl FnOnce(&Core<'_>) -> T,
) -> T {
    let mut at = 0x1000;
    let mut bytes = std::collections::HashMap::new();
    let mut block = Block::default();
    for insn in kernel.insns {
        bytes.insert(at, insn.to_vec());
        block.insns.push(BlockInsn {
            address: Avma(at),
            size_bytes: insn.len() as u8,
            drains_stores: false,
        });
        at += insn.len() as u64;
    }
    let mut code = WindowCode::default();
    code.describe(BlockId(0), &block);
    (0..ITERATIONS).for_each(|n| code.run(BlockId(0), &(kernel.accesses)(n)));
    let program = code.decode(Fusion::SandyBridge, |at, _| bytes[&at.0].clone());
    let mut design = Design::of(design);
    design.store_forward_cycles = None;
    let warm_up = ITERATIONS / 4 * kernel.insns.len() as u64;
    let mut shape = design.core().value;
    change(&mut shape);
    let all = |sink: &mut dyn Sink| {
        (0..ITERATIONS).for_each(|n| sink.run(BlockId(0), &(kernel.accesses)(n)));
    };
    let predicted = predicted(&program, &shape, &all);
    let mut core = Core::new(&design, &shape, &program, &predicted, without, warm_up);
    all(&mut core);
    look(&core)
}

fn cycles(kernel: &Kernel<'_>, without: Option<Mechanism>) -> f64 {
    run(kernel, without).0
}

const IMUL_RAX: &[u8] = &[0x48, 0x0f, 0xaf, 0xc0]; // imul rax, rax
const IMUL_RCX: &[u8] = &[0x48, 0x0f, 0xaf, 0xc9]; // imul rcx, rcx
const ADD_RAX_1: &[u8] = &[0x48, 0x83, 0xc0, 0x01]; // add rax, 1
const DEC_EDX: &[u8] = &[0xff, 0xca]; // dec edx
const JNE: &[u8] = &[0x75, 0x00];

#[test]
fn what_waits_for_misses_leaves_no_room_for_the_next_ones() {
    // mov rcx, [rsi], 300 cycles away; test rcx, rcx, ten times
    let mut insns: Vec<&[u8]> = vec![&[0x48, 0x8b, 0x0e]];
    insns.extend([&[0x48_u8, 0x85, 0xc9][..]; 10]);
    insns.extend([DEC_EDX, JNE]);
    let kernel = Kernel { insns: &insns, accesses: &|n| vec![load(0, 0x10_0000 + n * 0x5040, 8)] };
    let of = |entries: u32| {
        let change = |shape: &mut CoreShape| {
            (shape.scheduler, shape.page_walkers, shape.fill_buffers) = (entries, 100, 100);
            (shape.line_cycles, shape.miss_cycles) = ([1; 3], [300; 3]);
        };
        run_shaped(&kernel, None, Microarchitecture::GoldenCove, change).0
    };
    let [narrow, wide] = [of(97), of(1000)];
    assert!(narrow > 1.4 * wide, "{narrow} {wide}");
}

#[test]
fn loads_of_a_line_that_comes_take_their_slots_twice() {
    // So many loads of each of many lines of the second level, in disorder or one line behind the other.
    let of = |loads: u32, step: u64, design| {
        let insns: Vec<&[u8]> =
            [vec![&[0x48, 0x8b, 0x0e][..]; loads as usize], vec![DEC_EDX, JNE]].concat();
        let accesses = |n: u64| {
            let line = 0x10_0000 + n * step % 8192 * 64;
            (0..loads).map(|k| load(k, line + u64::from(k) * 8, 8)).collect()
        };
        let change = |shape: &mut CoreShape| shape.line_cycles[0] = 1;
        run_shaped(&Kernel { insns: &insns, accesses: &accesses }, None, design, change).0
    };
    // The line takes two slots of the three ports, and each load one and another one.
    for (loads, slots) in [(1, 4.0), (2, 6.0), (4, 10.0), (6, 14.0)] {
        let cycles = of(loads, 0x9e37, Microarchitecture::GoldenCove);
        assert!((cycles / (slots / 3.0) - 1.0).abs() < 0.06, "{loads}: {cycles}");
        // In order, groups of sets take a line in two cycles.
        let in_order = of(loads, 1, Microarchitecture::GoldenCove);
        let wanted = (slots / 3.0).max(2.0);
        assert!((in_order / wanted - 1.0).abs() < 0.06, "{loads} in order: {in_order}");
    }
    assert!(of(6, 0x9e37, Microarchitecture::Zen4) < 2.2, "not known to do so");
}

#[test]
fn a_blocked_load_across_pages_waits_longer_than_one_across_lines() {
    // mov [rdi], eax; mov [rdi+4], eax; mov rax, [rdi]. Measured on Redwood Cove: 6 cycles.
    let insns: &[&[u8]] = &[&[0x89, 0x07], &[0x89, 0x47, 0x04], &[0x48, 0x8b, 0x07], DEC_EDX, JNE];
    let of = |address: u64, without| {
        let accesses =
            |_| vec![store(0, address, 4), store(1, address + 4, 4), load(2, address, 8)];
        cycles(&Kernel { insns, accesses: &accesses }, without)
    };
    let [line, page] = [0x10_003c, 0x10_0ffc].map(|address| of(address, None));
    assert!((page - line - 6.0).abs() < 0.2, "{line} {page}");
    let blocked = Some(Mechanism::BlockedLoads);
    assert!((of(0x10_0ffc, blocked) - of(0x10_003c, blocked)).abs() < 0.2);
}

#[test]
fn a_chain_takes_its_latencies_and_independent_work_its_units() {
    let chain = Kernel { insns: &[IMUL_RAX, IMUL_RAX, DEC_EDX, JNE], accesses: &nothing };
    assert!((cycles(&chain, None) - 6.0).abs() < 0.1);
    assert!(cycles(&chain, Some(Mechanism::LongChains)) < 2.1, "one multiplication a cycle");
    let two = Kernel { insns: &[IMUL_RAX, IMUL_RCX, DEC_EDX, JNE], accesses: &nothing };
    assert!((cycles(&two, None) - 3.0).abs() < 0.1);
    let moves = Kernel {
        insns: &[&[0x48, 0x89, 0xc8], &[0x48, 0x89, 0xc1], ADD_RAX_1, JNE],
        accesses: &nothing,
    };
    assert!(
        (0.4..0.8).contains(&cycles(&moves, None)),
        "moves are renamed: {}",
        cycles(&moves, None)
    );
}

#[test]
fn sums_are_there_sooner_for_the_next_addition_than_for_others() {
    let add: &[u8] = &[0xf2, 0x0f, 0x58, 0xc2]; // addsd xmm0, xmm2
    let multiply: &[u8] = &[0xf2, 0x0f, 0x59, 0xc1]; // mulsd xmm0, xmm1
    let both: &[u8] = &[0xc4, 0xe2, 0xf1, 0xa9, 0xc2]; // vfmadd213sd xmm0, xmm1, xmm2
    let copy: &[u8] = &[0x66, 0x0f, 0x28, 0xc0]; // movapd xmm0, xmm0
    let of = |insns: &[&[u8]], design| {
        run_on(&Kernel { insns, accesses: &nothing }, None, design).0.round()
    };
    // As measured there.
    let here = |insns: &[&[u8]]| of(insns, Microarchitecture::RedwoodCove);
    assert_eq!((here(&[add]), here(&[multiply]), here(&[both])), (2.0, 3.0, 4.0));
    assert_eq!((here(&[multiply, add]), here(&[both, add])), (6.0, 7.0));
    assert_eq!((here(&[multiply, add, add]), here(&[multiply, add, copy])), (8.0, 6.0));
    assert_eq!(of(&[multiply, add], Microarchitecture::SkylakeServer), 8.0);
}

#[test]
fn a_comparison_that_is_joined_takes_the_unit_of_its_jump() {
    // Additions of 1 to registers of their own, and cmp rsi, rdi; jne: measured on Zen 4 as 1, 1 and 1.25 cycles for
    // three, four and five of them.
    let additions: [&[u8]; 5] = [
        ADD_RAX_1,
        &[0x48, 0x83, 0xc1, 0x01],
        &[0x48, 0x83, 0xc2, 0x01],
        &[0x48, 0x83, 0xc3, 0x01],
        &[0x49, 0x83, 0xc0, 0x01],
    ];
    let of = |count: usize, design| {
        let insns = [&additions[..count], &[&[0x48, 0x39, 0xfe], JNE]].concat();
        run_on(&Kernel { insns: &insns, accesses: &nothing }, None, design).0
    };
    for (count, expected) in [(3, 1.0), (4, 1.0), (5, 1.25)] {
        let cycles = of(count, Microarchitecture::Zen4);
        assert!((cycles - expected).abs() < 0.05, "{count}: {cycles}");
    }
    // On Skylake that is one of the four that add.
    let cycles = of(3, Microarchitecture::Skylake);
    assert!((0.95..1.3).contains(&cycles), "{cycles}");
}

#[test]
fn a_shift_by_a_count_takes_two_units_on_intel() {
    // Two of them, by cl and by 1, of registers that nothing else waits for.
    let by_count: &[&[u8]] = &[&[0x48, 0xd3, 0xe8], &[0x49, 0xd3, 0xe8], DEC_EDX, JNE];
    let by_one: &[&[u8]] = &[&[0x48, 0xd1, 0xe8], &[0x49, 0xd1, 0xe8], DEC_EDX, JNE];
    let of = |insns, design| run_on(&Kernel { insns, accesses: &nothing }, None, design).0;
    let golden = Microarchitecture::GoldenCove;
    assert!((2.4..2.7).contains(&of(by_count, golden)), "{}", of(by_count, golden));
    assert!((1.4..1.7).contains(&of(by_one, golden)), "{}", of(by_one, golden));
    assert!(of(by_count, Microarchitecture::Zen4) < 1.7);
}

#[test]
fn a_load_that_the_same_store_always_serves_is_renamed_where_the_core_learns_that() {
    // mov [rdi], rax; mov rax, [rsi]; add rax, 1; dec edx; jne: of one place, or of four in turns.
    let insns: &[&[u8]] = &[&[0x48, 0x89, 0x07], &[0x48, 0x8b, 0x06], ADD_RAX_1, DEC_EDX, JNE];
    let of = |places: u64, load_bytes: u32, design| {
        let at = |n: u64| 0x8000 + n % places * 64;
        let accesses = |n: u64| vec![store(0, at(n + 1), 8), load(1, at(n + 2), load_bytes)];
        run_on(&Kernel { insns, accesses: &accesses }, None, design).0
    };
    let (zen_2, zen_5) = (Microarchitecture::Zen2, Microarchitecture::Zen5);
    for design in [Microarchitecture::Zen4, zen_5] {
        assert!((0.9..1.3).contains(&of(1, 8, design)), "{}", of(1, 8, design));
    }
    assert!(of(1, 8, zen_2) > 7.0, "the names differ: {}", of(1, 8, zen_2));
    assert!(of(1, 2, zen_5) > 7.0, "narrow: {}", of(1, 2, zen_5));
    assert!(of(4, 8, zen_5) > 1.9, "not the latest one: {}", of(4, 8, zen_5));
}

#[test]
fn narrow_stores_to_one_line_reach_the_cache_together_where_the_core_does_that() {
    const STORE: &[u8] = &[0x48, 0x89, 0x07]; // mov [rdi], rax
    let insns = [vec![STORE; 12], vec![DEC_EDX, JNE]].concat();
    let of = |bytes: u32, in_turn: bool, design| {
        let place =
            move |n: u64| if in_turn { n % 2 * 64 + n / 2 * 8 } else { n * u64::from(bytes) };
        let at = move |n: u64| 0x8000 + place(n);
        let accesses = move |_| (0..12).map(|n| store(n, at(n.into()), bytes)).collect();
        run_on(&Kernel { insns: &insns, accesses: &accesses }, None, design).0
    };
    let zen_4 = Microarchitecture::Zen4;
    let cycles = [of(8, false, zen_4), of(16, false, zen_4), of(8, true, zen_4)];
    assert!(cycles.iter().zip([6.0, 12.0, 12.0]).all(|(a, b)| (a - b).abs() < 0.3), "{cycles:?}");
    assert!((of(8, false, Microarchitecture::RedwoodCove) - 12.0).abs() < 0.3);
}

#[test]
fn a_load_that_begins_where_its_store_does_is_renamed_where_the_core_does_that() {
    // As measured on Redwood Cove: 1 cycle for all that are renamed, 7.5 for the others.
    const STORE: &[u8] = &[0x48, 0x89, 0x07]; // mov [rdi], rax
    const LOAD: &[u8] = &[0x48, 0x8b, 0x06]; // mov rax, [rsi]
    const INDEXED: &[u8] = &[0x48, 0x8b, 0x04, 0xce]; // mov rax, [rsi+rcx*8]
    const BYTE: &[u8] = &[0x0f, 0xb6, 0x06]; // movzx eax, byte ptr [rsi]
    const LEA_RAX_R15: &[u8] = &[0x4a, 0x8d, 0x04, 0x38]; // lea rax, [rax+r15]
    const ADD_RAX_R15: &[u8] = &[0x4c, 0x01, 0xf8];
    let of = |load: &[u8], then: &[u8], bytes: u32, offset: u64| {
        let insns = &[STORE, load, then, DEC_EDX, JNE];
        let accesses =
            |_: u64| vec![store(0, 0x8000, 8), super::tests::load(1, 0x8000 + offset, bytes)];
        run_on(&Kernel { insns, accesses: &accesses }, None, Microarchitecture::RedwoodCove).0
    };
    for (load, then, bytes) in
        [(LOAD, LEA_RAX_R15, 8), (LOAD, ADD_RAX_1, 8), (BYTE, LEA_RAX_R15, 1)]
    {
        let cycles = of(load, then, bytes, 0);
        assert!(cycles < 1.3, "{load:x?} {then:x?}: {cycles}");
    }
    let others = [
        (LOAD, ADD_RAX_R15, 8, 0, "joined with what follows"),
        (INDEXED, LEA_RAX_R15, 8, 0, "with an index"),
        (BYTE, LEA_RAX_R15, 1, 1, "begins elsewhere"),
        (BYTE, LEA_RAX_R15, 2, 0, "two bytes"),
    ];
    for (load, then, bytes, offset, what) in others {
        let cycles = of(load, then, bytes, offset);
        assert!((5.0..8.0).contains(&cycles), "{what}: {cycles}");
    }
}

/// `mov [rdi], eax; mov [rdi+4], eax; mov rax, [rdi]; add rax, 1; dec edx; jne`.
const HALVES: &[&[u8]] =
    &[&[0x89, 0x07], &[0x89, 0x47, 0x04], &[0x48, 0x8b, 0x07], ADD_RAX_1, DEC_EDX, JNE];

#[test]
fn a_load_over_two_stores_waits_and_without_that_it_does_not() {
    let accesses = |_: u64| vec![store(0, 0x8000, 4), store(1, 0x8004, 4), load(2, 0x8000, 8)];
    let kernel = Kernel { insns: HALVES, accesses: &accesses };
    let (with, events) = run(&kernel, None);
    let blocked = events[Mechanism::BlockedLoads as usize];
    assert!((18.0..30.0).contains(&with), "{with}");
    assert!(blocked >= 2900, "{blocked}");
    let without = cycles(&kernel, Some(Mechanism::BlockedLoads));
    assert!((5.0..8.0).contains(&without), "{without}");
    // Both stores block it, each once in an execution.
    let by = |without| {
        let of = |core: &Core<'_>| core.blocked_by.clone();
        look(&kernel, without, Microarchitecture::GoldenCove, |_| {}, of)
    };
    assert_eq!(by(None), [([2, 0], blocked), ([2, 1], blocked)].into());
    assert_eq!(by(Some(Mechanism::MispredictedBranches)).len(), 0, "told once for all runs");
    // Reading what lies elsewhere, nothing waits.
    let apart =
        |n: u64| vec![store(0, 0x8000, 4), store(1, 0x8004, 4), load(2, 0x9000 + n % 8 * 8, 8)];
    let (free, events) = run(&Kernel { insns: HALVES, accesses: &apart }, None);
    assert!(free < 3.0 && events[Mechanism::BlockedLoads as usize] == 0, "{free}");
}

#[test]
fn a_store_to_code_that_was_executed_costs_hundreds_of_cycles() {
    // mov [rdi], rax; dec edx; jne: of the line behind the code, and of the code's own.
    let insns: &[&[u8]] = &[&[0x48, 0x89, 0x07], DEC_EDX, JNE];
    let at = |address: u64| {
        let accesses = move |_| vec![store(0, address, 8)];
        let (with, events) = run(&Kernel { insns, accesses: &accesses }, None);
        let without = cycles(&Kernel { insns, accesses: &accesses }, Some(Mechanism::WrittenCode));
        (with, events[Mechanism::WrittenCode as usize], without)
    };
    let (beside, events, _) = at(0x1040);
    assert!(beside < 2.0 && events == 0, "{beside} {events}");
    let (with, events, without) = at(0x1020);
    assert!((495.0..520.0).contains(&with) && without < 2.0, "{with} {without}");
    assert_eq!(events, ITERATIONS - ITERATIONS / 4);
}

#[test]
fn a_value_that_is_read_where_it_was_just_written_costs_nothing() {
    // mov [rdi], rax; mov rax, [rdi]; add rax, 1; dec edx; jne
    let same: &[&[u8]] = &[&[0x48, 0x89, 0x07], &[0x48, 0x8b, 0x07], ADD_RAX_1, DEC_EDX, JNE];
    let accesses = |_: u64| vec![store(0, 0x8000, 8), load(1, 0x8000, 8)];
    assert!(cycles(&Kernel { insns: same, accesses: &accesses }, None) < 2.0);
    // The same bytes by another name: mov rax, [rsi].
    let other: &[&[u8]] = &[&[0x48, 0x89, 0x07], &[0x48, 0x8b, 0x06], ADD_RAX_1, DEC_EDX, JNE];
    let named = cycles(&Kernel { insns: other, accesses: &accesses }, None);
    assert!((5.0..8.0).contains(&named), "{named}");
}

#[test]
fn divisions_splits_misses_and_locks_are_told_apart() {
    let all_but = |kernel: &Kernel<'_>, mechanism: Mechanism| {
        let (with, events) = run(kernel, None);
        let happens: Vec<Mechanism> =
            Mechanism::ALL.into_iter().filter(|m| events[*m as usize] > 1000).collect();
        assert_eq!(happens, [mechanism]);
        (with, cycles(kernel, Some(mechanism)))
    };
    let divide = Kernel { insns: &[&[0xf7, 0xf1], DEC_EDX, JNE], accesses: &nothing }; // div ecx
    let (with, without) = all_but(&divide, Mechanism::Divisions);
    assert!(with > 9.0 && without < 3.0, "{with} {without}");
    // mov rax, [rax]: a walk through 2 MiB.
    let walk = |n: u64| vec![load(0, 0x10_0000 + n * 77_777 % (1 << 15) * 64, 8)];
    let misses = Kernel { insns: &[&[0x48, 0x8b, 0x00], DEC_EDX, JNE], accesses: &walk };
    let (with, without) = all_but(&misses, Mechanism::DataCacheMisses);
    assert!(with > 15.0 && without < 5.5, "{with} {without}");
    // mov rax, [rdi+...] and mov [rsi], rax across lines.
    let split =
        |n: u64| vec![load(0, 0x10_003d + n % 8 * 64, 8), store(1, 0x10_103d + n % 8 * 64, 8)];
    let splits = Kernel {
        insns: &[&[0x48, 0x8b, 0x07], &[0x48, 0x89, 0x06], DEC_EDX, JNE],
        accesses: &split,
    };
    let (with, without) = all_but(&splits, Mechanism::SplitAccesses);
    assert!(with > 1.4 * without, "{with} {without}");
    // lock inc qword ptr [rdi]
    let lock = |_: u64| vec![load(0, 0x10_0000, 8), store(0, 0x10_0000, 8)];
    let locks = Kernel { insns: &[&[0xf0, 0x48, 0xff, 0x07], DEC_EDX, JNE], accesses: &lock };
    let (with, without) = all_but(&locks, Mechanism::LockedOperations);
    assert!(with > 15.0 && without < 10.0, "{with} {without}");
}

#[test]
fn a_store_across_pages_takes_its_time_and_serves_no_load() {
    // mov [rdi], rax; mov rax, [rdi]
    const STORE: &[u8] = &[0x48, 0x89, 0x07];
    const LOAD: &[u8] = &[0x48, 0x8b, 0x07];
    let across = |_: u64| vec![store(0, 0x10_0ffc, 8)];
    let stores = Kernel { insns: &[STORE, DEC_EDX, JNE], accesses: &across };
    let interval = run_on(&stores, None, Microarchitecture::Zen4).0;
    assert!((interval - 34.0).abs() < 0.5, "{interval}");
    let both = |_: u64| vec![store(0, 0x10_0ffc, 8), load(1, 0x10_0ffc, 8)];
    let round_trip = Kernel { insns: &[STORE, LOAD, DEC_EDX, JNE], accesses: &both };
    // Measured on Zen 4: 47.5.
    let (taken, events) = run_on(&round_trip, None, Microarchitecture::Zen4);
    assert!((42.0..53.0).contains(&taken), "{taken}");
    assert_eq!(events[Mechanism::BlockedLoads as usize], 0, "the parts are the reason");
    let whole = run_on(&round_trip, Some(Mechanism::SplitAccesses), Microarchitecture::Zen4).0;
    assert!(whole < 3.0, "{whole}");
}

#[test]
fn wide_divisions_take_the_unit_as_often_as_its_width_goes_into_them() {
    let of = |insn: &[u8], design| {
        let kernel = Kernel { insns: &[insn, DEC_EDX, JNE], accesses: &nothing };
        run_on(&kernel, None, design).0
    };
    let [narrow, wide] = [&[0xc5_u8, 0xf1, 0x5e, 0xc2][..], &[0xc5, 0xf5, 0x5e, 0xc2]]; // vdivpd xmm0 and ymm0
    let intel = [narrow, wide].map(|insn| of(insn, Microarchitecture::GoldenCove));
    let amd = [narrow, wide].map(|insn| of(insn, Microarchitecture::Zen4));
    assert!((3.5..4.5).contains(&intel[0]) && (7.5..8.5).contains(&intel[1]), "{intel:?}");
    assert!((amd[0] - amd[1]).abs() < 0.1, "{amd:?}");
}

#[test]
fn what_a_prefetch_brought_is_there() {
    // A prefetch of what `mov rax, [rax]` loads sixteen iterations on, out of 8 MiB, and the same asking for something else.
    let at = |n: u64| 0x10_0000 + n * 77_777 % (1 << 17) * 64;
    let walk = |ahead: u64| {
        let kind = AccessKind::Prefetch;
        let asked = move |n| MemoryAccess { kind, ..load(0, at(n + ahead), 1) };
        let accesses = move |n: u64| vec![asked(n), load(1, at(n), 8)];
        let insns: &[&[u8]] = &[&[0x0f, 0x18, 0x0f], &[0x48, 0x8b, 0x00], DEC_EDX, JNE];
        run_on(&Kernel { insns, accesses: &accesses }, None, Microarchitecture::Zen4)
    };
    let ((soon, soon_events), (never, never_events)) = (walk(16), walk(1 << 16));
    assert!(soon < never / 3.0, "{soon} {never}");
    let missed = Mechanism::DataCacheMisses as usize;
    assert!(soon_events[missed] * 20 < never_events[missed], "a prefetch is no miss");
}

#[test]
fn more_pages_than_the_tlb_holds_are_walked_for() {
    // mov rax, [rax]: one line in each of so many pages, all of them in the second cache.
    let of_pages = |pages: u64| {
        let walk = move |n: u64| vec![load(0, 0x10_0000 + n * 777 % pages * (4096 + 64), 8)];
        cycles(&Kernel { insns: &[&[0x48, 0x8b, 0x00], DEC_EDX, JNE], accesses: &walk }, None)
    };
    let (few, many) = (of_pages(1500), of_pages(5000));
    assert!(many > few + 15.0, "{few} {many}");
}

#[test]
fn lines_of_one_set_come_one_behind_the_other_and_leave_before_their_stores() {
    // Measured on Zen 4, cycles an iteration over so many lines so far apart: 1.95 and 9.8 for loads, 13.6 for stores; 40 for
    // both where the store needs the load, the line of which has left for one that is loaded behind it.
    let of = |insns: &[&[u8]], kinds: &[AccessKind], lines: u64, bytes: u64| {
        let accesses = |n: u64| {
            let at = |(insn, kind): (usize, &AccessKind)| {
                let address = 0x100_0000 + n % lines * bytes;
                MemoryAccess { kind: *kind, ..load(insn as u32, address, 4) }
            };
            kinds.iter().enumerate().map(at).collect()
        };
        run_on(&Kernel { insns, accesses: &accesses }, None, Microarchitecture::Zen4).0
    };
    const LOAD: &[u8] = &[0x8b, 0x06]; // mov eax, [rsi]
    const STORE: &[u8] = &[0x89, 0x06]; // mov [rsi], eax
    use AccessKind::{Load, Store};
    let loads = |lines, bytes| of(&[LOAD, DEC_EDX, JNE], &[Load], lines, bytes);
    assert!((1.9..2.2).contains(&loads(1024, 64)), "{}", loads(1024, 64));
    assert!((9.0..12.5).contains(&loads(64, 4096)), "{}", loads(64, 4096));
    let stores = of(&[STORE, DEC_EDX, JNE], &[Store], 64, 4096);
    assert!((10.0..14.0).contains(&stores), "{stores}");
    let both = of(&[LOAD, STORE, DEC_EDX, JNE], &[Load, Store], 64, 4096);
    assert!((20.0..45.0).contains(&both), "{both}");
    let alone = of(&[LOAD, STORE, DEC_EDX, JNE], &[Load, Store], 64, 4096 + 64);
    assert!(alone < 3.0, "in sets of their own: {alone}");
}

#[test]
fn single_bytes_are_repeated_faster_where_they_are_few_and_a_load_waits_for_them() {
    // rep stosb, or rep stosq, of 32 bytes; mov rax, [rdi]. Measured on Redwood Cove: 9 and 33 cycles alone, 22 with the load.
    const STORE_BYTES: &[u8] = &[0xf3, 0xaa];
    const STORE_QUADS: &[u8] = &[0xf3, 0x48, 0xab];
    const LOAD: &[u8] = &[0x48, 0x8b, 0x07];
    let stores = |_: u64| vec![store(0, 0x10_0000, 32)];
    let of =
        |insn: &[u8]| cycles(&Kernel { insns: &[insn, DEC_EDX, JNE], accesses: &stores }, None);
    let (bytes, quads) = (of(STORE_BYTES), of(STORE_QUADS));
    assert!((8.0..11.0).contains(&bytes) && quads > 20.0, "{bytes} {quads}");
    let both = |_: u64| vec![store(0, 0x10_0000, 32), load(1, 0x10_0000, 8)];
    let kernel = Kernel { insns: &[STORE_BYTES, LOAD, DEC_EDX, JNE], accesses: &both };
    let (taken, events) = run(&kernel, None);
    assert!((18.0..27.0).contains(&taken), "{taken}");
    assert!(events[Mechanism::BlockedLoads as usize] >= 2900, "that is a blocked load");
    assert!(cycles(&kernel, Some(Mechanism::BlockedLoads)) < taken - 5.0);
}

#[test]
fn small_constants_are_added_while_renaming_where_the_core_does_that() {
    const INC_RAX: &[u8] = &[0x48, 0xff, 0xc0];
    const LEA_RAX_8_RAX: &[u8] = &[0x48, 0x8d, 0x40, 0x08];
    const ADD_RAX_5000: &[u8] = &[0x48, 0x05, 0x88, 0x13, 0, 0];
    const INC_EAX: &[u8] = &[0xff, 0xc0];
    let of = |insn, design| {
        let insns = [vec![insn; 30], vec![JNE]].concat();
        run_on(&Kernel { insns: &insns, accesses: &nothing }, None, design).0
    };
    for insn in [INC_RAX, ADD_RAX_1, LEA_RAX_8_RAX] {
        let cycles = [Microarchitecture::RedwoodCove, Microarchitecture::Zen4].map(|d| of(insn, d));
        assert!(cycles[0] < 6.0 && cycles[1] > 29.0, "{insn:x?}: {cycles:?}");
    }
    for insn in [INC_EAX, ADD_RAX_5000] {
        assert!(of(insn, Microarchitecture::RedwoodCove) > 29.0, "{insn:x?}");
    }
}

#[test]
fn the_upper_half_of_a_product_is_there_a_cycle_later() {
    const MUL_RSI: &[u8] = &[0x48, 0xf7, 0xe6]; // mul rsi
    const MOV_RAX_RDX: &[u8] = &[0x48, 0x89, 0xd0]; // mov rax, rdx
    const DEC_EDI: &[u8] = &[0xff, 0xcf];
    let of = |insns| run_on(&Kernel { insns, accesses: &nothing }, None, Microarchitecture::Zen4).0;
    let (lower, upper) = (of(&[MUL_RSI, DEC_EDI, JNE]), of(&[MOV_RAX_RDX, MUL_RSI, DEC_EDI, JNE]));
    assert!((lower - 3.0).abs() < 0.1 && (upper - 4.0).abs() < 0.1, "{lower} {upper}");
}

#[test]
fn a_division_that_waits_leaves_the_unit_to_those_that_do_not() {
    // Two divisions, the second of the first's result, again and again: the unit takes one every 4 cycles.
    const LOAD: &[u8] = &[0x0f, 0x28, 0xc2]; // movaps xmm0, xmm2
    const DIVIDE: &[u8] = &[0xf3, 0x0f, 0x5e, 0xc1]; // divss xmm0, xmm1
    let pair = Kernel { insns: &[LOAD, DIVIDE, DIVIDE, DEC_EDX, JNE], accesses: &nothing };
    let of_pair = run_on(&pair, None, Microarchitecture::Zen4).0;
    assert!((of_pair - 8.0).abs() < 0.5, "{of_pair}");
}
