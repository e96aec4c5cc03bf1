//! Branches that are taken: how many of them the front end follows, and what is not remembered.

use super::*;

const JMP: &[u8] = &[0xeb, 0x0e];
const JMP_RAX: &[u8] = &[0xff, 0xe0];

/// Cycles of a turn through jumps 16 bytes apart, each a block of its own; half of the turns warm the core up.
fn ring(design: Microarchitecture, jumps: &[&[u8]], turns: u64, without: Option<Mechanism>) -> f64 {
    let mut code = WindowCode::default();
    let mut bytes = std::collections::HashMap::new();
    for (n, jump) in (0..).zip(jumps) {
        let address = Avma(0x1000 + 16 * u64::from(n));
        bytes.insert(address, jump.to_vec());
        let insns = vec![BlockInsn { address, size_bytes: jump.len() as u8 }];
        code.describe(BlockId(n), &Block { insns });
        code.run(BlockId(n), &[]);
    }
    let program = code.decode(Fusion::SandyBridge, |at, _| bytes[&at].clone());
    let design = Design::of(design);
    let shape = design.core().value;
    let trained = Predictor::new(shape.learned);
    let count = jumps.len() as u64;
    let mut core = Core::new(&design, &shape, &program, &trained, without, turns / 2 * count);
    (0..turns * count).for_each(|n| core.run(BlockId((n % count) as u32), &[]));
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
