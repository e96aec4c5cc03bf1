//! The look before the walk loses nothing: with it and without it, the same loads are blocked.

use std::io::Write as _;
use std::path::Path;

use proptest::prelude::*;

use super::super::walk::Walk;
use super::*;
use crate::code::Image;
use crate::model::Svma;

const RULES: [ForwardingRule; 4] = [
    ForwardingRule::SingleStoreContains,
    ForwardingRule::ContainsInPieces { wide_store_bytes: 16, piece_bytes: 8 },
    ForwardingRule::SameStart,
    ForwardingRule::StartOrMiddleOrHalves,
];

#[test]
fn two_that_are_a_multiple_apart_miss_where_both_fit_between() {
    // Ahead, bytes of the store, bytes of the load, step.
    assert!(always_miss(8, 4, 8, 0) && !always_miss(7, 4, 8, 0));
    assert!(always_miss(-4, 4, 8, 0) && !always_miss(-3, 4, 8, 0));
    assert!(always_miss(8, 8, 8, 16) && !always_miss(7, 8, 8, 16) && !always_miss(8, 9, 8, 16));
    assert!(always_miss(-8, 8, 8, 16) && always_miss(24, 8, 8, 16) && !always_miss(16, 8, 8, 16));
    assert!(!always_miss(8, 4, 8, u64::MAX));
    let divisors = [(12, 18, 6), (18, 12, 6), (0, 5, 5), (5, 0, 5), (0, 0, 0), (7, 9, 1)];
    for (a, b, want) in divisors {
        assert_eq!(greatest_divisor(a, b), want, "{a} {b}");
    }
}

#[test]
fn what_can_only_be_forwarded_keeps_clear() {
    let at = |offset_bytes, size_bytes, scale| AccessShape {
        size_bytes,
        offset_bytes,
        scale,
        floats: false,
        is_plain: scale == 0,
    };
    let contains = ForwardingRule::SingleStoreContains;
    let clear = |store, step| keeps_clear(at(0, 8, 8), store, step, &contains);
    // The same width on the same grid, or a wider store that holds whole ones of it.
    assert!(clear(at(0, 8, 8), 0) && clear(at(16, 8, 8), 8) && clear(at(0, 16, 8), 0));
    // Half of it, off its grid, or on a finer one.
    assert!(!clear(at(0, 4, 8), 0) && !clear(at(4, 8, 8), 0) && !clear(at(0, 8, 4), 0));
    assert!(!clear(at(0, 8, 8), 4) && !clear(at(0, 12, 8), 0));
    // Where only the same start is forwarded a wider one is not.
    assert!(!keeps_clear(at(0, 8, 8), at(0, 16, 8), 0, &ForwardingRule::SameStart));
    assert!(keeps_clear(at(0, 8, 8), at(0, 8, 8), 0, &ForwardingRule::SameStart));
    // Narrow ones that always lie in the other half.
    assert!(keeps_clear(at(0, 4, 8), at(4, 4, 8), 0, &contains));
    assert!(keeps_clear(at(0, 4, 8), at(4, 2, 8), 0, &contains));
    assert!(!keeps_clear(at(0, 4, 8), at(2, 4, 8), 0, &contains));
}

/// Of each real program.
const MOST_BYTES: u64 = 1 << 19;

/// Holds the two against each other; how many loads are blocked.
fn compare(code: &FunctionCode, what: &str) -> usize {
    let addresses = Addresses::of(code);
    let mut found = 0;
    for rule in &RULES {
        for outer in code.loops.iter().filter(|l| l.depth == 1) {
            let walk = || {
                let stores = LoopStores::of(code, &addresses, outer, None);
                Walk::new(code, &addresses, outer, rule, stores, &[], None)
            };
            let (quick, thorough) = (walk(), walk().without_aliases());
            let insns =
                outer.blocks.iter().flat_map(|b| code.blocks[*b].first..code.blocks[*b].end);
            for insn in insns {
                let expected = thorough.blocked_load(insn);
                found += usize::from(expected.is_some());
                assert_eq!(quick.blocked_load(insn), expected, "{what}, instruction {insn}");
            }
        }
    }
    found
}

/// `opcode register, [base + index * 2^scale + displacement]`, or the other way round.
fn with_memory(
    opcode: u8,
    wide: bool,
    register: u8,
    (base, index, scale, displacement): (u8, Option<u8>, u8, i8),
) -> Vec<u8> {
    let index = index.filter(|i| *i != 4);
    let extension = u8::from(register > 7) << 2
        | u8::from(index.is_some_and(|i| i > 7)) << 1
        | u8::from(base > 7);
    let sib = scale << 6 | (index.unwrap_or(4) & 7) << 3 | base & 7;
    vec![
        0x40 | u8::from(wide) << 3 | extension,
        opcode,
        0x44 | (register & 7) << 3,
        sib,
        displacement as u8,
    ]
}

/// `opcode to, from`, 64 bits wide.
fn with_registers(opcode: u8, from: u8, to: u8) -> Vec<u8> {
    let extension = u8::from(from > 7) << 2 | u8::from(to > 7);
    vec![0x48 | extension, opcode, 0xc0 | (from & 7) << 3 | to & 7]
}

/// One instruction; few registers and small constants, so that they meet.
fn instruction() -> impl Strategy<Value = Vec<u8>> {
    let register = || prop_oneof![Just(0_u8), Just(3), Just(6), Just(7), Just(9)];
    let small = || (-3_i8..4).prop_map(|n| 4 * n);
    let index = || prop_oneof![Just(None), register().prop_map(Some)];
    let memory = || (register(), index(), 0_u8..4, small());
    prop_oneof![
        // Twice as many stores and loads as anything else.
        4 => (any::<bool>(), register(), memory())
            .prop_map(|(wide, r, at)| with_memory(0x89, wide, r, at)),
        4 => (any::<bool>(), register(), memory())
            .prop_map(|(wide, r, at)| with_memory(0x8b, wide, r, at)),
        2 => (register(), memory()).prop_map(|(r, at)| with_memory(0x8d, true, r, at)),
        1 => (register(), register()).prop_map(|(a, b)| with_registers(0x89, a, b)),
        1 => (register(), register()).prop_map(|(a, b)| with_registers(0x01, a, b)),
        1 => (register(), small()).prop_map(|(to, n)| {
            vec![0x48 | u8::from(to > 7), 0x83, 0xc0 | to & 7, n as u8]
        }),
        1 => (register(), 1_u8..4).prop_map(|(to, n)| {
            vec![0x48 | u8::from(to > 7), 0xc1, 0xe0 | to & 7, n]
        }),
        1 => register().prop_map(|to| vec![0x48 | u8::from(to > 7), 0x83, 0xe0 | to & 7, 15]),
        1 => register().prop_map(|to| with_registers(0x31, to, to)),
    ]
}

/// A loop of instructions, some behind a branch around the next few, with a loop inside.
fn function(body: &[(Vec<u8>, u8)], inner: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut starts = Vec::new();
    for (at, (instruction, skip)) in body.iter().enumerate() {
        starts.push(bytes.len());
        if *skip > 0 {
            let over: usize =
                body[at..].iter().take(usize::from(*skip)).map(|(i, _)| i.len()).sum();
            // Branches inside what is skipped are not counted: the target may be any instruction.
            bytes.extend([0x74, over as u8]);
        }
        bytes.extend(instruction);
    }
    for start in [starts[inner % starts.len()], 0] {
        bytes.extend([0x41, 0xff, 0xcf, 0x0f, 0x85]);
        let back = start as i32 - (bytes.len() as i32 + 4);
        bytes.extend(back.to_le_bytes());
    }
    bytes.push(0xc3);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn it_loses_nothing_of_generated_loops(
        body in prop::collection::vec((instruction(), prop_oneof![6 => Just(0_u8), 1 => 1..4_u8]), 4..24),
        inner in 0_usize..24,
    ) {
        let bytes = function(&body, inner);
        compare(&FunctionCode::decode(&bytes, Svma(0x1000)), &format!("{bytes:02x?}"));
    }
}

#[test]
fn it_loses_nothing_of_real_programs() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases/upstream-index-decoder");
    for program in ["decoder-clang-16", "decoder-aarch64-clang-16.o", "decoder-clang-19"] {
        let path = cases.join("build").join(program);
        let Ok(image) = Image::open(&path) else {
            assert!(std::env::var_os("CI").is_none(), "not built: run `make cases`");
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: {} is not built: run `make cases`",
                path.display()
            );
            continue;
        };
        let mut seen_bytes = 0;
        let mut found = 0;
        for function in image.functions() {
            seen_bytes += function.size_bytes;
            if seen_bytes > MOST_BYTES {
                break;
            }
            found += compare(&FunctionCode::of(&image, function), &function.symbol);
        }
        assert!(found > 0, "{program}: nothing to compare");
    }
}
