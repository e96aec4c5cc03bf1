//! Inlined string instructions: every `rep movs` and `rep stos` of a function, with its size where
//! the code lets it be known.
//!
//! The size is the count register times the width of one piece. Compilers load the count as a
//! constant (often in another block), compute it from one, or hide it: gcc stores the first and the
//! last piece, rounds the pointer up to the next piece and computes the count from the difference,
//! so that no constant is left that equals it. [`values`] follows all three.

mod values;

use iced_x86::{Code, Decoder, DecoderOptions};

use super::cfg::FunctionCode;
use super::insn::{self, Insn, RawAddress, Reg};
use crate::model::Svma;
use values::{Linear, Value};

/// What a string instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StringKind {
    /// `movs`: copies.
    Move,
    /// `stos`: fills.
    Store,
}

/// One inlined string instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StringSite {
    /// Its index among the function's instructions.
    pub insn: usize,
    /// Its address.
    pub svma: Svma,
    /// Whether it copies or fills.
    pub kind: StringKind,
    /// Width of one piece: 1, 2, 4 or 8.
    pub unit_bytes: u8,
    /// How many bytes it moves, an alignment prologue included; `None` where only the run knows.
    pub size_bytes: Option<u64>,
    /// Whether the size was hidden behind an alignment prologue.
    pub behind_prologue: bool,
}

/// Whether machine code may hold a string instruction: `f3`, at most two more prefixes, opcode.
/// One look at each byte, no decoding; a hit can be part of another instruction.
#[must_use]
pub fn may_hold_strings(bytes: &[u8]) -> bool {
    next_hit(bytes, 0).is_some()
}

/// Where the next byte pattern of a string instruction starts, from `from` on.
fn next_hit(bytes: &[u8], from: usize) -> Option<usize> {
    let is_opcode = |b: &u8| matches!(b, 0xa4 | 0xa5 | 0xaa | 0xab);
    let is_prefix = |b: &u8| matches!(b, 0x40..=0x4f | 0x66);
    let rest = bytes.get(from..)?;
    rest.iter().enumerate().filter(|(_, b)| **b == 0xf3).map(|(at, _)| from + at).find(|at| {
        let behind = bytes[at + 1..].iter().take(3).find(|b| !is_prefix(b));
        behind.is_some_and(is_opcode)
    })
}

/// All string instructions of a function, by address. `bytes` are the function's.
#[must_use]
pub fn string_sites(bytes: &[u8], code: &FunctionCode) -> Vec<StringSite> {
    let Some(start) = code.insns.first().map(|i| i.svma) else {
        return Vec::new();
    };
    let found: Vec<(usize, StringKind, u8)> = code
        .insns
        .iter()
        .enumerate()
        .filter_map(|(index, insn)| {
            // Shorter instructions cannot be one, and most are decided by their first byte.
            let at = insn.svma.distance_from(start)? as usize;
            let own = bytes.get(at..at + usize::from(insn.length_bytes))?;
            (own.contains(&0xf3) && own.len() <= 5)
                .then(|| string_kind(own))
                .flatten()
                .map(|(kind, unit)| (index, kind, unit))
        })
        .collect();
    if found.is_empty() {
        return Vec::new();
    }
    let near: Vec<Option<Value>> = found.iter().map(|(insn, ..)| set_near(code, *insn)).collect();
    let wanted: Vec<usize> = found
        .iter()
        .zip(&near)
        .filter_map(|((insn, ..), near)| near.is_none().then_some(*insn))
        .collect();
    let mut counts = values::at_instructions(bytes, code, COUNT, &wanted).into_iter();
    found
        .into_iter()
        .zip(near)
        .map(|((insn, kind, unit_bytes), near)| {
            let size = near.or_else(|| counts.next()).and_then(|c| size_bytes(c, unit_bytes));
            StringSite {
                insn,
                svma: code.insns[insn].svma,
                kind,
                unit_bytes,
                size_bytes: size.map(|(bytes, _)| bytes),
                behind_prologue: size.is_some_and(|(_, hidden)| hidden),
            }
        })
        .collect()
}

/// The register that holds how often.
const COUNT: Reg = Reg(1);

/// The count, where the same block sets it to a constant, as most do: for these there is no need to
/// follow values through the function.
fn set_near(code: &FunctionCode, site: usize) -> Option<Value> {
    let block = &code.blocks[code.block_of(site)];
    let writes =
        |i: &&Insn| i.clobbers & COUNT.bit() != 0 || i.define.is_some_and(|(reg, _)| reg == COUNT);
    let last = code.insns[block.first..site].iter().rev().find(writes)?;
    match last.define {
        Some((
            COUNT,
            insn::Value::Address(RawAddress { base: None, index: None, displacement, .. }),
        )) if u32::try_from(displacement).is_ok() => Some(Value::constant(displacement)),
        _ => None,
    }
}

/// What kind of string instruction with a repeat prefix these bytes are, and its unit.
fn string_kind(bytes: &[u8]) -> Option<(StringKind, u8)> {
    let raw = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
    if !raw.has_rep_prefix() {
        return None;
    }
    Some(match raw.code() {
        Code::Movsb_m8_m8 => (StringKind::Move, 1),
        Code::Movsw_m16_m16 => (StringKind::Move, 2),
        Code::Movsd_m32_m32 => (StringKind::Move, 4),
        Code::Movsq_m64_m64 => (StringKind::Move, 8),
        Code::Stosb_m8_AL => (StringKind::Store, 1),
        Code::Stosw_m16_AX => (StringKind::Store, 2),
        Code::Stosd_m32_EAX => (StringKind::Store, 4),
        Code::Stosq_m64_RAX => (StringKind::Store, 8),
        _ => return None,
    })
}

/// Bytes moved, and whether they were hidden behind a prologue.
fn size_bytes(count: Value, unit_bytes: u8) -> Option<(u64, bool)> {
    let unit = i64::from(unit_bytes);
    match count {
        Value::Linear(Linear { plus: None, minus: None, constant }) => {
            let pieces = u64::try_from(constant).ok().filter(|n| *n <= u64::from(u32::MAX))?;
            Some((pieces * u64::from(unit_bytes), false))
        }
        // start - align(start + unit) + size, in pieces: start may carry an offset of its own,
        // which then shows in the rounded pointer as well.
        Value::Shifted { of, bits } if 1 << bits == unit => {
            let (start, rounded) = (of.plus?, of.minus?);
            let offset = values::rounding_offset(start, rounded, unit)?;
            let size = of.constant.checked_sub(offset)?.checked_add(unit)?;
            u64::try_from(size).ok().filter(|n| *n <= 1 << 32).map(|n| (n, true))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites(bytes: &[u8]) -> Vec<StringSite> {
        assert!(may_hold_strings(bytes));
        string_sites(bytes, &FunctionCode::decode(bytes, Svma(0x1000)))
    }

    fn sizes(bytes: &[u8]) -> Vec<Option<u64>> {
        sites(bytes).iter().map(|s| s.size_bytes).collect()
    }

    #[test]
    fn a_constant_count_times_the_unit() {
        // mov ecx, 21; rep movsq; ret
        let code = [0xb9, 21, 0, 0, 0, 0xf3, 0x48, 0xa5, 0xc3];
        let found = sites(&code);
        assert_eq!((found[0].kind, found[0].unit_bytes), (StringKind::Move, 8));
        assert_eq!((found[0].size_bytes, found[0].behind_prologue), (Some(168), false));
        // mov ecx, 42; rep stosd
        assert_eq!(sizes(&[0xb9, 42, 0, 0, 0, 0xf3, 0xab]), [Some(168)]);
        // push 21; pop rcx; rep movsq
        assert_eq!(sizes(&[0x6a, 21, 0x59, 0xf3, 0x48, 0xa5]), [Some(168)]);
        // xor eax, eax; lea ecx, [rax+6]; rep stosq: 48, the commonest size in a kernel
        assert_eq!(sizes(&[0x31, 0xc0, 0x8d, 0x48, 6, 0xf3, 0x48, 0xab]), [Some(48)]);
        // xor ecx, ecx; mov cl, 21; rep movsb
        assert_eq!(sizes(&[0x31, 0xc9, 0xb1, 21, 0xf3, 0xa4]), [Some(21)]);
    }

    #[test]
    fn a_count_of_the_same_block_is_what_following_all_values_gives() {
        let image = crate::code::Image::open(&std::env::current_exe().unwrap()).unwrap();
        let mut compared = 0;
        for function in image.functions() {
            let bytes = image.function_bytes(function);
            if !may_hold_strings(bytes) {
                continue;
            }
            let code = FunctionCode::of(&image, function);
            for site in string_sites(bytes, &code) {
                let Some(near) = set_near(&code, site.insn) else { continue };
                let followed = values::at_instructions(bytes, &code, COUNT, &[site.insn]);
                assert_eq!(followed, [near], "{} in {}", site.svma, function.symbol);
                compared += 1;
            }
        }
        assert!(compared > 0, "no string instruction in this program has a constant count");
    }

    #[test]
    fn a_count_from_another_block() {
        // mov ecx, 6; test esi, esi; je +2; xor edx, edx; rep stosq
        let same = [0xb9, 6, 0, 0, 0, 0x85, 0xf6, 0x74, 2, 0x31, 0xd2, 0xf3, 0x48, 0xab];
        assert_eq!(sizes(&same), [Some(48)]);
        // The same, but one way sets another count: mov cl, 2.
        let other = [0xb9, 6, 0, 0, 0, 0x85, 0xf6, 0x74, 2, 0xb1, 2, 0xf3, 0x48, 0xab];
        assert_eq!(sizes(&other), [None]);
        // Spilled and read back: push rbp; mov qword [rsp-8], 6; mov rcx, [rsp-8]; rep stosq
        let spilled = [
            0x55, 0x48, 0xc7, 0x44, 0x24, 0xf8, 6, 0, 0, 0, 0x48, 0x8b, 0x4c, 0x24, 0xf8, 0xf3,
            0x48, 0xab,
        ];
        assert_eq!(sizes(&spilled), [Some(48)]);
        // The same, but half of it is written over: mov dword [rsp-4], eax.
        let spoilt = [&spilled[..10], &[0x89, 0x44, 0x24, 0xfc], &spilled[10..]].concat();
        assert_eq!(sizes(&spoilt), [None]);
        // A second one behind the first: rcx is 0 there, and the code says nothing else.
        assert_eq!(sizes(&[0xb9, 2, 0, 0, 0, 0xf3, 0xaa, 0xf3, 0xaa]), [Some(2), Some(0)]);
    }

    #[test]
    fn a_size_hidden_behind_the_alignment_prologue() {
        // gcc -O2 -mno-sse, memset(d, 0, 168): mov qword [rdi], 0; mov rcx, rdi; lea rdi, [rdi+8];
        // xor eax, eax; mov qword [rdi+152], 0; and rdi, -8; sub rcx, rdi; add ecx, 168;
        // shr ecx, 3; rep stosq
        let code = [
            0x48, 0xc7, 0x07, 0, 0, 0, 0, 0x48, 0x89, 0xf9, 0x48, 0x8d, 0x7f, 8, 0x31, 0xc0, 0x48,
            0xc7, 0x87, 0x98, 0, 0, 0, 0, 0, 0, 0, 0x48, 0x83, 0xe7, 0xf8, 0x48, 0x29, 0xf9, 0x81,
            0xc1, 0xa8, 0, 0, 0, 0xc1, 0xe9, 3, 0xf3, 0x48, 0xab, 0xc3,
        ];
        let found = sites(&code);
        assert_eq!((found[0].size_bytes, found[0].behind_prologue), (Some(168), true));
        // A start with an offset of its own: lea rdi, [rbx+16+8]; lea rcx, [rbx+16]; and rdi, -8;
        // sub rcx, rdi; add ecx, 100; shr ecx, 3; rep stosq
        let code = [
            0x48, 0x8d, 0x7b, 24, 0x48, 0x8d, 0x4b, 16, 0x48, 0x83, 0xe7, 0xf8, 0x48, 0x29, 0xf9,
            0x83, 0xc1, 100, 0xc1, 0xe9, 3, 0xf3, 0x48, 0xab,
        ];
        assert_eq!(sizes(&code), [Some(100)]);
    }

    #[test]
    fn a_variable_count_stays_unknown() {
        // mov rcx, rdx; rep movsb
        assert_eq!(sizes(&[0x48, 0x89, 0xd1, 0xf3, 0xa4]), [None]);
        // mov rcx, rdx; shr rcx, 3; rep movsq
        assert_eq!(sizes(&[0x48, 0x89, 0xd1, 0x48, 0xc1, 0xe9, 3, 0xf3, 0x48, 0xa5]), [None]);
    }

    #[test]
    fn the_byte_filter_lets_other_instructions_pass_only_by_chance() {
        assert!(!may_hold_strings(&[0xf3, 0x0f, 0x7e, 0x04, 0x24, 0xc3])); // movq xmm0, [rsp]
        assert!(!may_hold_strings(&[0xa4, 0xa5, 0xf3]));
        // mov eax, 0xa4f3: a hit inside a constant is no site.
        let code = [0xb8, 0xf3, 0xa4, 0, 0];
        assert!(may_hold_strings(&code) && sites(&code).is_empty());
    }
}
