//! Branches: which are mispredicted, how many taken ones the front end follows, and what is not remembered.

use super::*;

const JMP: &[u8] = &[0xeb, 0x0e];
const JMP_RAX: &[u8] = &[0xff, 0xe0];

/// Cycles of a turn through jumps 16 bytes apart, each a block of its own; half of the turns warm the core up.
fn ring(design: Microarchitecture, jumps: &[&[u8]], turns: u64, without: Option<Mechanism>) -> f64 {
    let jumps: Vec<_> = (0..).step_by(16).zip(jumps.iter().copied()).collect();
    ring_at(design, &jumps, turns, without)
}

/// The same of jumps that are so many bytes behind the first one.
fn ring_at(
    design: Microarchitecture,
    jumps: &[(u64, &[u8])],
    turns: u64,
    without: Option<Mechanism>,
) -> f64 {
    let mut code = WindowCode::default();
    let mut bytes = std::collections::HashMap::new();
    for (n, (at, jump)) in (0..).zip(jumps) {
        let address = Avma(0x1000 + at);
        bytes.insert(address, jump.to_vec());
        let insns = vec![BlockInsn { address, size_bytes: jump.len() as u8, drains_stores: false }];
        code.describe(BlockId(n), &Block { insns });
        code.run(BlockId(n), &[]);
    }
    let program = code.decode(Fusion::SandyBridge, |at, _| bytes[&at].clone());
    let design = Design::of(design);
    let shape = design.core().value;
    let count = jumps.len() as u64;
    let all = |sink: &mut dyn Sink| {
        (0..turns * count).for_each(|n| sink.run(BlockId((n % count) as u32), &[]));
    };
    let warm_up = turns / 2 * count;
    let predicted = predicted(&program, &shape, &all);
    let mut core = Core::new(&design, &shape, &program, &predicted, without, warm_up);
    all(&mut core);
    core.cycles() as f64 / (turns / 2) as f64
}

#[test]
fn indirect_jumps_are_followed_one_in_two_cycles_and_others_two_in_one() {
    let on = |jumps, without| ring(Microarchitecture::RedwoodCove, jumps, ITERATIONS, without);
    for (jumps, cycles) in [
        (&[JMP, JMP, JMP][..], 1.5),
        (&[JMP_RAX, JMP_RAX, JMP_RAX], 6.0),
        (&[JMP_RAX, JMP, JMP_RAX], 5.0),
    ] {
        let taken = on(jumps, None);
        assert!((taken - cycles).abs() < 0.1, "{taken} {cycles}");
        let units = on(jumps, Some(Mechanism::TakenBranches));
        assert!((units - 1.5).abs() < 0.1, "two units for three jumps: {units}");
    }
}

#[test]
fn a_call_and_its_return_take_longer_than_two_jumps_on_zen() {
    let call: &[u8] = &[0xe8, 0x0b, 0x00, 0x00, 0x00];
    let back: &[u8] = &[0xeb, 0xf9];
    let on = |design, without| {
        let insns = [(0, call), (16, &[0xc3][..]), (5, back)];
        ring_at(design, &insns, ITERATIONS, without)
    };
    // Measured on Zen 4: 4.0 cycles the two, 1.0 a jump.
    let zen = on(Microarchitecture::Zen4, None);
    assert!((zen - 5.0).abs() < 0.1, "{zen}");
    // Measured on Redwood Cove: 3.5 cycles the two and the end of a loop.
    let redwood = on(Microarchitecture::RedwoodCove, None);
    assert!((redwood - 3.0).abs() < 0.6, "{redwood}");
    let free = on(Microarchitecture::Zen4, Some(Mechanism::TakenBranches));
    assert!(free < 3.5, "{free}");
}

#[test]
fn code_between_jumps_that_lies_across_lines_takes_a_cycle_more_on_zen_4() {
    // Three copies and a jump: 1.0 cycles measured in one line, 2.0 across two.
    let copy: &[u8] = &[0x89, 0xc8];
    let back: &[u8] = &[0xeb, 0xf8];
    let on = |design, first: u64| {
        let block = [copy, copy, copy, back];
        let insns: Vec<_> = (first..).step_by(2).zip(block).collect();
        ring_at(design, &insns, ITERATIONS, None)
    };
    let zen = |first| on(Microarchitecture::Zen4, first);
    assert_eq!([zen(0), zen(56), zen(58), zen(60)].map(f64::round), [1.0, 1.0, 2.0, 2.0]);
    assert_eq!(on(Microarchitecture::Zen3, 58).round(), 1.0, "nobody measured it there");
}

#[test]
fn three_branches_that_are_not_taken_leave_a_cycle_for_a_jump_on_zen_4() {
    let back: &[u8] = &[0xeb, 0xf6];
    let of = |branches: usize| {
        let mut insns: Vec<_> = (0..).step_by(2).zip(vec![JNE; branches]).collect();
        insns.push((2 * branches as u64, back));
        ring_at(Microarchitecture::Zen4, &insns, ITERATIONS, None)
    };
    // Measured 1.0 and 1.5: two units for branches, and none for the jump.
    assert!((of(2) - 1.0).abs() < 0.05 && (of(3) - 1.5).abs() < 0.05, "{} {}", of(2), of(3));
}

#[test]
fn more_branches_than_are_remembered_cost_what_decoding_finds_out() {
    // All of their lines are in the second level. As measured on Zen 4: 12 cycles a jump of more than 9,000.
    let on =
        |design, jumps: usize, without| ring(design, &vec![JMP; jumps], 8, without) / jumps as f64;
    let of = |jumps, without| on(Microarchitecture::Zen4, jumps, without);
    assert!(of(1500, None) < 1.1, "{}", of(1500, None));
    // And on Redwood Cove: 1 cycle or less of 256, 2 of 1000.
    let [few, several] = [256, 1000].map(|n| on(Microarchitecture::RedwoodCove, n, None));
    assert!(few < 0.6 && (1.8..2.2).contains(&several), "{few} {several}");
    let (many, lines) = (of(12_000, None), of(12_000, Some(Mechanism::CodeCacheMisses)));
    assert!((10.0..14.0).contains(&many) && lines < 2.0, "{many} {lines}");
}

#[test]
fn a_branch_by_chance_is_mispredicted_half_of_the_time() {
    // Two blocks: a jump over one instruction, by chance.
    let block = |start: u64, insns: &[&[u8]]| {
        let mut at = start;
        let mut block = Block::default();
        for insn in insns {
            block.insns.push(BlockInsn {
                address: Avma(at),
                size_bytes: insn.len() as u8,
                drains_stores: false,
            });
            at += insn.len() as u64;
        }
        block
    };
    let blocks =
        [block(0x1000, &[ADD_RAX_1, JNE]), block(0x1006, &[ADD_RAX_1, JNE]), block(0x100c, &[JNE])];
    let mut code = WindowCode::default();
    for (id, block) in blocks.iter().enumerate() {
        code.describe(BlockId(id as u32), block);
    }
    let bytes = |_, size: u8| if size == 2 { JNE.to_vec() } else { ADD_RAX_1.to_vec() };
    let program = code.decode(Fusion::SandyBridge, bytes);
    let design = Design::of(Microarchitecture::GoldenCove);
    let mispredicted = |without: Option<Mechanism>| {
        let shape = design.core().value;
        let all = |sink: &mut dyn Sink| {
            let mut state = 7_u64;
            for _ in 0..4000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                sink.run(BlockId(0), &[]);
                if state >> 63 == 0 {
                    sink.run(BlockId(1), &[]);
                }
                sink.run(BlockId(2), &[]);
            }
        };
        let predicted = predicted(&program, &shape, &all);
        let mut core = Core::new(&design, &shape, &program, &predicted, without, 0);
        all(&mut core);
        let events: u64 =
            core.accounts().map(|(_, a)| a.events[Mechanism::MispredictedBranches as usize]).sum();
        (events, core.cycles())
    };
    let (events, with) = mispredicted(None);
    let (none, without) = mispredicted(Some(Mechanism::MispredictedBranches));
    assert!((1600..2600).contains(&events) && none == 0, "{events}");
    assert!(with > without + 14 * events, "{with} {without}");
}

#[test]
fn a_core_mispredicts_what_the_predictor_alone_does() {
    // A branch that goes on or to itself by chance, and a jump back.
    let blocks = [(0x1000, JNE), (0x1002, &[0xeb, 0xfc][..])];
    let mut code = WindowCode::default();
    for (id, (at, bytes)) in blocks.iter().enumerate() {
        let insns = vec![BlockInsn {
            address: Avma(*at),
            size_bytes: bytes.len() as u8,
            drains_stores: false,
        }];
        code.describe(BlockId(id as u32), &Block { insns });
    }
    let of = |at: Avma, _| blocks.iter().find(|it| it.0 == at.0).unwrap().1.to_vec();
    let program = code.decode(Fusion::SandyBridge, of);
    let design = Design::of(Microarchitecture::GoldenCove);
    let shape = design.core().value;
    let all = |sink: &mut dyn Sink| {
        let mut state = 7_u64;
        for _ in 0..ITERATIONS {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (0..=(state >> 63) as u32).for_each(|id| sink.run(BlockId(id), &[]));
        }
    };
    let alone = predicted(&program, &shape, &all);
    let mut core = Core::new(&design, &shape, &program, &alone, None, 0);
    all(&mut core);
    assert_eq!(core.state.branches, alone.len());
    let wrong = alone.iter().filter(|right| !**right).count() as u64;
    let sum: Account = core.accounts.iter().sum();
    assert_eq!(wrong, sum.events_of(Mechanism::MispredictedBranches));
    assert!(wrong > ITERATIONS / 8, "{wrong}");
}
