//! Branches that are taken: how many of them the front end follows.

use super::*;

/// Cycles of a turn through so many jumps, each a block of its own.
fn ring(jumps: &[&[u8]], without: Option<Mechanism>) -> f64 {
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
    let design = Design::of(Microarchitecture::RedwoodCove);
    let shape = design.core().value;
    let trained = Predictor::new(shape.learned);
    let warm_up = ITERATIONS / 2 * jumps.len() as u64;
    let mut core = Core::new(&design, &shape, &program, &trained, without, warm_up);
    for turn in 0..ITERATIONS * jumps.len() as u64 {
        core.run(BlockId((turn % jumps.len() as u64) as u32), &[]);
    }
    core.cycles() as f64 / (ITERATIONS / 2) as f64
}

#[test]
fn indirect_jumps_are_followed_one_in_two_cycles_and_others_one_in_one() {
    const JMP: &[u8] = &[0xeb, 0x0e];
    const JMP_RAX: &[u8] = &[0xff, 0xe0];
    for (jumps, cycles) in [
        (&[JMP, JMP, JMP][..], 3.0),
        (&[JMP_RAX, JMP_RAX, JMP_RAX], 6.0),
        (&[JMP_RAX, JMP, JMP_RAX], 5.0),
    ] {
        let taken = ring(jumps, None);
        assert!((taken - cycles).abs() < 0.1, "{taken} {cycles}");
        let units = ring(jumps, Some(Mechanism::TakenBranches));
        assert!((units - 1.5).abs() < 0.1, "two units for three jumps: {units}");
    }
}
