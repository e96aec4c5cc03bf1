//! Encodings as `llvm-mc` gives them, and a second opinion about every form from the disassembler.

use super::*;
use crate::code::insn::Access;
use proptest::prelude::*;

fn one(bits: u32) -> Insn {
    let insns = decode(&bits.to_le_bytes(), Svma(0x1000));
    assert_eq!(insns.len(), 1);
    insns[0]
}

fn at(base: u8, index: Option<u8>, scale: u8, displacement: i64) -> RawAddress {
    RawAddress { base: Some(Reg(base)), index: index.map(Reg), scale, displacement }
}

#[test]
fn the_merged_shape_and_its_stores() {
    // str w9, [x8, x10, lsl #3]: no, the scale of a 4-byte store is 4: str w9, [x8, w10, uxtw #2]
    let store = one(0xb82a_5909);
    assert_eq!(store.store, Some(Access::of(4, at(8, Some(10), 4, 0))));
    // ldr d0, [x8, x10, lsl #3]
    let load = one(0xfc6a_7900);
    assert_eq!(load.load, Some(Access::of(8, at(8, Some(10), 8, 0))));
    assert_eq!((load.store, load.clobbers), (None, 0));
    // ldp x29, x30, [sp], #16
    let pair = one(0xa8c1_7bfd);
    assert!(pair.is_pair);
    assert_eq!(pair.load, Some(Access::of(16, at(31, None, 1, 0))));
    assert_eq!(pair.moves_base, Some((Reg(31), 16)));
    assert_eq!(pair.clobbers, Reg(29).bit() | Reg(30).bit());
    // stp x29, x30, [sp, #-16]!
    let push = one(0xa9bf_7bfd);
    assert_eq!(push.store, Some(Access::of(16, at(31, None, 1, -16))));
    assert_eq!(push.moves_base, Some((Reg(31), -16)));
    // ldur q1, [x2, #-3]; strb w1, [x2, #5]; ldaxr w0, [x1]; stlxr w2, w0, [x1]
    let accesses = [
        (0x3cdf_d041, 16, at(2, None, 1, -3), true),
        (0x3900_1441, 1, at(2, None, 1, 5), false),
        (0x885f_fc20, 4, at(1, None, 1, 0), true),
        (0x8802_fc20, 4, at(1, None, 1, 0), false),
    ];
    for (bits, size_bytes, address, is_load) in accesses {
        let insn = one(bits);
        let access = Some(Access::of(size_bytes, address));
        let expected = if is_load { (access, None) } else { (None, access) };
        assert_eq!((insn.load, insn.store), expected, "{bits:#x}");
    }
    // ldrsw x1, [x2, #8]; str x3, [x2, #8]: only moved
    let load = one(0xb980_0841).load;
    assert_eq!(load, Some(Access { moved: Some(Reg(1)), ..Access::of(4, at(2, None, 1, 8)) }));
    let store = one(0xf900_0443).store;
    assert_eq!(store, Some(Access { moved: Some(Reg(3)), ..Access::of(8, at(2, None, 1, 8)) }));
}

#[test]
fn register_arithmetic_is_kept_as_addresses() {
    let address = |raw| Value::Address(raw);
    let scaled =
        |index, scale| RawAddress { base: None, index: Some(Reg(index)), scale, displacement: 0 };
    let cases = [
        (0x9100_43e8, Reg(8), address(at(31, None, 1, 16))), // add x8, sp, #16
        (0xd101_03ff, Reg(31), address(at(31, None, 1, -64))), // sub sp, sp, #64
        (0x8b08_0d49, Reg(9), address(at(10, Some(8), 8, 0))), // add x9, x10, x8, lsl #3
        (0x8b28_4d49, Reg(9), address(at(10, Some(8), 8, 0))), // add x9, x10, w8, uxtw #3
        (0xd37d_f109, Reg(9), address(scaled(8, 8))),        // lsl x9, x8, #3
        (0xaa08_03e9, Reg(9), address(at(8, None, 1, 0))),   // mov x9, x8
        (0x1200_0d09, Reg(9), Value::Cut(Reg(8), 15)),       // and w9, w8, #0xf
        (0x927c_0d09, Reg(9), Value::Cut(Reg(8), 0xf0)),     // and x9, x8, #0xf0
        (0x5280_0149, Reg(9), constant(10)),                 // mov w9, #10
    ];
    for (bits, reg, value) in cases {
        assert_eq!(
            one(bits).define,
            Some((reg, value)),
            "{bits:#x} {}",
            text(&bits.to_le_bytes(), Svma(0))
        );
    }
}

#[test]
fn control_flow() {
    let flows = [
        (0x1400_0002, Flow::Jump(Svma(0x1008))),
        (0x17ff_ffff, Flow::Jump(Svma(0xffc))),
        (0x54ff_ffe1, Flow::Branch(Svma(0xffc))), // b.ne
        (0xb4ff_ffe0, Flow::Branch(Svma(0xffc))), // cbz x0
        (0x3607_ffe0, Flow::Branch(Svma(0xffc))), // tbz w0, #0
        (0x9400_0001, Flow::Call),
        (0xd63f_0100, Flow::Call),
        (0xd61f_0100, Flow::IndirectJump),
        (0xd65f_03c0, Flow::Return),
        (0xd400_0001, Flow::Next), // svc #0
        (0xd420_0020, Flow::Stop), // brk #1
        (0x0000_0000, Flow::Stop), // udf
        (NOP, Flow::Next),
    ];
    for (bits, expected) in flows {
        assert_eq!(one(bits).flow, expected, "{bits:#x}");
    }
    assert!(may_loop(&0x54ff_ffe1_u32.to_le_bytes().repeat(2)));
    assert!(!may_loop(&0x5400_0041_u32.to_le_bytes()));
    assert_eq!(text(&0xfc6a_7900_u32.to_le_bytes(), Svma(0)), "ldr d0, [x8, x10, lsl #3]");
}

/// The number of a register in the disassembler's text.
fn number(name: &str) -> Option<u8> {
    match name {
        "sp" => Some(31),
        "xzr" | "wzr" => None,
        _ => name.get(1..)?.parse().ok(),
    }
}

/// Base, index and displacement of the text's operand in brackets.
fn bracketed(text: &str) -> Option<(u8, Option<u8>, i64)> {
    let inside = text.rsplit_once('[')?.1.split_once(']')?.0;
    let mut parts = inside.split(',').map(str::trim);
    let base = number(parts.next()?)?;
    let Some(second) = parts.next() else { return Some((base, None, 0)) };
    if let Some(constant) = second.strip_prefix('#') {
        let (sign, digits) =
            constant.strip_prefix('-').map_or((1, constant), |digits| (-1, digits));
        let value = match digits.strip_prefix("0x") {
            Some(hex) => i64::from_str_radix(hex, 16).ok()?,
            None => digits.parse().ok()?,
        };
        return Some((base, None, sign * value));
    }
    Some((base, number(second), 0))
}

/// Whether the mnemonic loads, and whether it stores; `None` for what is left out.
fn direction(mnemonic: &str) -> Option<(bool, bool)> {
    let both =
        ["ldadd", "ldclr", "ldeor", "ldset", "ldsmax", "ldsmin", "ldumax", "ldumin", "swp", "cas"];
    let also = ["stadd", "stclr", "steor", "stset", "stsmax", "stsmin", "stumax", "stumin"];
    if both.iter().chain(&also).any(|m| mnemonic.starts_with(m)) {
        return Some((true, true));
    }
    match mnemonic {
        m if m.starts_with("prf") || m.contains('g') => None,
        m if m.starts_with("ld") => Some((true, false)),
        m if m.starts_with("st") => Some((false, true)),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40_000))]

    /// The load and store groups of the encoding index, all fields random.
    #[test]
    fn the_disassembler_agrees(group in prop::sample::select(vec![
        0x0800_0000_u32, 0x2800_0000, 0x3800_0000, 0x3900_0000, 0x3820_0800, 0x2c00_0000,
        0x3c00_0000, 0x3d00_0000, 0x3c20_0800, 0x0c00_0000, 0x0d00_0000, 0x3820_0000,
    ]), rest in any::<u32>()) {
        let fixed = if group & 0x3f00_0000 == 0x3800_0000 || group & 0x3f00_0000 == 0x3c00_0000 {
            0x3f20_0000 | group & 0xc00
        } else {
            0x3f00_0000
        };
        let bits = group | rest & !fixed;
        let shown = text(&bits.to_le_bytes(), Svma(0));
        let Some((mnemonic, _)) = shown.split_once(' ') else { return Ok(()) };
        let Some((loads, stores)) = direction(mnemonic) else { return Ok(()) };
        if shown.contains("undefined") || shown.contains("<") {
            return Ok(());
        }
        let Some((base, index, displacement)) = bracketed(&shown) else { return Ok(()) };
        let insn = one(bits);
        prop_assert_eq!((insn.load.is_some(), insn.store.is_some()), (loads, stores), "{}", shown);
        let Some(access) = insn.load.or(insn.store) else { return Ok(()) };
        prop_assert_eq!(access.address.base, Some(Reg(base)), "{}", shown);
        prop_assert_eq!(access.address.index, index.map(Reg), "{}", shown);
        prop_assert_eq!(access.address.displacement, displacement, "{}", shown);
    }

    #[test]
    fn any_word_is_an_instruction(bits in any::<u32>()) {
        let insn = one(bits);
        prop_assert_eq!(insn.length_bytes, 4);
        prop_assert!(!text(&bits.to_le_bytes(), Svma(0)).is_empty());
    }
}
