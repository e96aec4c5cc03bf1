//! How long instructions are, and little else: a first look at a function, to tell whether it can hold
//! a loop, whom it calls, and whether it may touch a cache line's end at a fixed address.
//!
//! Most functions have no jump backwards, and decoding them in full to learn that would be most of
//! the work of a scan. Here an instruction is a few table look-ups. Whatever the tables do not know
//! counts as "perhaps", so that the full decoder has the last word; a test holds the lengths against
//! that decoder's. After the opcode maps of the Intel and AMD manuals.

use smallvec::SmallVec;

use super::jumps::Jumps;
use super::width::widest_bytes;
use crate::model::{LINE_BYTES, Svma};

use Shape::{Escape, Evex, None as Bare, Vex2, Vex3, Xop};

/// What follows an opcode.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Nothing.
    None,
    /// Immediate bytes, as many as given.
    Plain(u8),
    /// An immediate of 4 bytes, 2 with an operand size prefix.
    Wide,
    /// A jump over a signed byte.
    Near,
    /// A jump over four signed bytes.
    Far,
    /// A ModRM byte and what it asks for, then so many bytes.
    ModRm(u8),
    /// The same, then an immediate of 4 bytes, 2 with an operand size prefix.
    ModRmWide,
    /// ModRM of two registers, whatever its first bits say (moves to control registers).
    Registers,
    /// `test` and its like: an immediate only for some values of the ModRM byte.
    Group3(bool),
    /// Group 5: calls and jumps through registers and memory.
    Group5,
    /// An immediate as wide as the register.
    Move,
    /// An address.
    Offset,
    /// Not an opcode, but a prefix.
    Prefix,
    /// A prefix that counts only directly in front of the opcode.
    Rex,
    /// Prefixes that lead to other opcode maps.
    Escape,
    Vex2,
    Vex3,
    Evex,
    Xop,
    /// Not in 64-bit mode, or not in the tables.
    Unknown,
}

const fn one_byte(op: usize) -> Shape {
    match op {
        0x0f => Escape,
        0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3 => Shape::Prefix,
        0x00..=0x3f => match op & 7 {
            0..=3 => Shape::ModRm(0),
            4 => Shape::Plain(1),
            5 => Shape::Wide,
            _ => Shape::Unknown,
        },
        0x40..=0x4f => Shape::Rex,
        0x62 => Evex,
        0x63 | 0x84..=0x8e | 0xd0..=0xd3 | 0xd8..=0xdf | 0xfe => Shape::ModRm(0),
        0x68 | 0xa9 => Shape::Wide,
        0x69 | 0x81 | 0xc7 => Shape::ModRmWide,
        0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 => Shape::ModRm(1),
        0x6a | 0xa8 | 0xb0..=0xb7 | 0xcd | 0xe4..=0xe7 => Shape::Plain(1),
        0x70..=0x7f | 0xe0..=0xe3 | 0xeb => Shape::Near,
        0x8f => Xop,
        0xa0..=0xa3 => Shape::Offset,
        0xb8..=0xbf => Shape::Move,
        0xc2 | 0xca => Shape::Plain(2),
        0xc4 => Vex3,
        0xc5 => Vex2,
        0xc8 => Shape::Plain(3),
        0xe8 => Shape::Plain(4),
        0xe9 => Shape::Far,
        0xf6 => Shape::Group3(false),
        0xf7 => Shape::Group3(true),
        0xff => Shape::Group5,
        0x60 | 0x61 | 0x82 | 0x9a | 0xce | 0xd4..=0xd6 | 0xea => Shape::Unknown,
        _ => Bare,
    }
}

const fn two_byte(op: usize) -> Shape {
    match op {
        0x38 | 0x3a => Escape,
        0x04 | 0x0a | 0x0c | 0x24..=0x27 | 0x36 | 0x39 | 0x3b..=0x3f => Shape::Unknown,
        0x78..=0x7b | 0xa6 | 0xa7 => Shape::Unknown,
        0x20..=0x23 => Shape::Registers,
        0x0f | 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => Shape::ModRm(1),
        0x80..=0x8f => Shape::Far,
        0x05..=0x09
        | 0x0b
        | 0x0e
        | 0x30..=0x37
        | 0x77
        | 0xa0..=0xa2
        | 0xa8..=0xaa
        | 0xc8..=0xcf => Bare,
        _ => Shape::ModRm(0),
    }
}

const ONE: [Shape; 256] = {
    let mut table = [Shape::Unknown; 256];
    let mut op = 0;
    while op < 256 {
        table[op] = one_byte(op);
        op += 1;
    }
    table
};

const TWO: [Shape; 256] = {
    let mut table = [Shape::Unknown; 256];
    let mut op = 0;
    while op < 256 {
        table[op] = two_byte(op);
        op += 1;
    }
    table
};

/// Bytes of a ModRM byte with its SIB byte and displacement, by the ModRM byte; a SIB byte without
/// base has four more.
const MODRM_BYTES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mode, rm) = (byte >> 6, byte & 7);
        table[byte] = match mode {
            3 => 1,
            0 if rm == 5 => 5,
            0 => 1,
            1 => 2,
            _ => 5,
        } + (mode != 3 && rm == 4) as u8;
        byte += 1;
    }
    table
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub length_bytes: usize,
    /// How far behind its own end it may jump, if it jumps.
    pub jump: Option<i64>,
    /// It jumps to where only the run knows.
    pub indirect: bool,
    /// What is behind it in memory need not come after it.
    ends: bool,
    /// What is behind it in memory surely does not come after it.
    pub surely_ends: bool,
    /// Where its ModRM byte is, if it has one.
    pub mod_rm_at: Option<usize>,
}

/// What a first look tells about a function. Whatever is in doubt counts as "perhaps".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// All bytes were known instructions; otherwise everything else is "perhaps".
    pub is_known: bool,
    /// It may hold a loop. False is certain.
    pub may_loop: bool,
    /// An access at a fixed address, or in a frame that it aligns, may cross a cache line. False is
    /// certain.
    pub may_cross_line: bool,
    /// Where its direct calls go, if all instructions are known.
    pub calls: SmallVec<[Svma; 4]>,
}

const CALL: u8 = 0xe8;
const CALL_BYTES: usize = 5;

impl Survey {
    /// Looks at a function.
    ///
    /// A jump whose target only the run knows can lead back only to code that nothing falls into:
    /// behind an earlier jump or return. Without any, it closes no loop. Nor does a jump backwards
    /// from where its target does not lead, as from code that was moved out of the way.
    #[must_use]
    pub fn of(code: &[u8], start: Svma) -> Self {
        let mut survey = Self::default();
        let (mut at, mut has_ended, mut jumps_back, mut is_direct) = (0, false, false, true);
        let mut jumps = Jumps::default();
        while at < code.len() {
            let rest = &code[at..];
            let Some(step) = step(rest) else { return Self::unknown() };
            at += step.length_bytes;
            if let Some(distance) = step.jump {
                let target = at as i64 + distance;
                jumps_back |= distance < 0 && target >= 0;
                let inside = (0..code.len() as i64).contains(&target);
                jumps.add(at, inside.then_some(target as usize), !step.surely_ends);
            } else if step.surely_ends {
                jumps.add(at, None, false);
            }
            survey.may_loop |= step.indirect && has_ended;
            is_direct &= !step.indirect;
            has_ended |= step.ends;
            let end = start.offset(at as i64);
            if let Some(mod_rm_at) = step.mod_rm_at {
                survey.may_cross_line |= may_cross_line(&rest[..step.length_bytes], mod_rm_at, end);
            } else if let Some(distance) = direct_call(rest, &step) {
                survey.calls.push(end.offset(distance));
            }
        }
        survey.may_loop |= jumps_back && (!is_direct || jumps.close_a_circle());
        survey.is_known = true;
        survey
    }

    fn unknown() -> Self {
        Self { may_loop: true, may_cross_line: true, ..Self::default() }
    }
}

/// How far behind its own end an instruction calls, if it is a direct call.
#[inline(always)]
pub(super) fn direct_call(code: &[u8], step: &Step) -> Option<i64> {
    match *code {
        [CALL, a, b, c, d, ..] if step.length_bytes == CALL_BYTES => {
            Some(i64::from(i32::from_le_bytes([a, b, c, d])))
        }
        _ => None,
    }
}

/// Whether an instruction that ends at `end` touches memory at a fixed address so near to the end
/// of a line that it may cross it; or aligns the stack pointer to a line, after which others may.
#[inline(always)]
fn may_cross_line(insn: &[u8], mod_rm_at: usize, end: Svma) -> bool {
    let mod_rm = insn[mod_rm_at];
    if mod_rm & 0xc7 != 5 && mod_rm & 0xc7 != 4 && mod_rm != 0xe4 {
        return false;
    }
    let displacement = |at: usize| {
        let bytes = insn.get(at..at + 4)?;
        Some(i64::from(i32::from_le_bytes(bytes.try_into().ok()?)))
    };
    let address = match mod_rm {
        // and rsp, constant: opcode 0x81 or 0x83.
        0xe4 => return matches!(insn.get(mod_rm_at.wrapping_sub(1)), Some(0x81 | 0x83)),
        m if m & 0xc7 == 5 => displacement(mod_rm_at + 1).map(|d| end.offset(d)),
        // Neither base nor index.
        _ if insn.get(mod_rm_at + 1).is_some_and(|sib| sib & 0x3f == 0x25) => {
            displacement(mod_rm_at + 2).map(|d| Svma(d as u64))
        }
        _ => return false,
    };
    let into_line = |address: Svma| address.0 % LINE_BYTES;
    // Most addresses are far from the end of a line: only the rest is asked how wide it is.
    address.is_none_or(|a| {
        let room = LINE_BYTES - into_line(a);
        room < LINE_BYTES && room < widest_bytes(insn)
    })
}

/// Whether a function may hold a loop: its jumps close a circle, the target of one only the run
/// knows, or it has bytes that the tables do not know. False is certain.
#[cfg(test)]
fn may_loop(code: &[u8]) -> bool {
    Survey::of(code, Svma(0)).may_loop
}

/// The prefixes in front of an opcode.
#[derive(Clone, Copy, Default)]
struct Prefixes {
    /// 0x66: operands of two bytes.
    narrow: bool,
    /// 0x67: addresses of four bytes.
    short_address: bool,
    /// REX.W: operands of eight bytes.
    long: bool,
}

pub(super) fn step(code: &[u8]) -> Option<Step> {
    let mut prefixes = Prefixes::default();
    let mut at = 0;
    loop {
        let op = *code.get(at)?;
        at += 1;
        match ONE[usize::from(op)] {
            Shape::Prefix => {
                // A REX prefix counts only directly in front of the opcode.
                prefixes.long = false;
                prefixes.narrow |= op == 0x66;
                prefixes.short_address |= op == 0x67;
                if at > 14 {
                    return None;
                }
            }
            Shape::Rex => prefixes.long = op & 8 != 0,
            Escape => return escaped(code, at, prefixes),
            Vex2 => return vector(code, at + 1, 1, false),
            Vex3 => {
                let map = code.get(at)? & 0x1f;
                return vector(code, at + 2, map, false);
            }
            Evex => {
                let map = code.get(at)? & 7;
                return vector(code, at + 3, map, true);
            }
            Xop => {
                let map = code.get(at)? & 0x1f;
                // Below 8 it is a ModRM byte: `pop` to memory.
                let (at, extra) = match map {
                    0..=7 => (at, 0),
                    8 => (at + 3, 1),
                    9 => (at + 3, 0),
                    10 => (at + 3, 4),
                    _ => return None,
                };
                return finish(code, at, Shape::ModRm(extra), Prefixes::default());
            }
            shape => {
                let mut step = finish(code, at, shape, prefixes)?;
                // Returns, int3, int1, jumps.
                step.ends |=
                    matches!(op, 0xc2 | 0xc3 | 0xca | 0xcb | 0xcc | 0xcf | 0xf1 | 0xe9 | 0xeb);
                step.surely_ends = step.ends;
                return Some(step);
            }
        }
    }
}

fn escaped(code: &[u8], at: usize, prefixes: Prefixes) -> Option<Step> {
    let op = *code.get(at)?;
    match op {
        0x38 => finish(code, at + 2, Shape::ModRm(0), prefixes),
        0x3a => finish(code, at + 2, Shape::ModRm(1), prefixes),
        _ => {
            let mut step = finish(code, at + 1, TWO[usize::from(op)], prefixes)?;
            // Traps, returns from the system, and a group that has one of them.
            step.ends = matches!(op, 0x01 | 0x07 | 0x0b | 0x35 | 0xaa | 0xb9 | 0xff);
            step.surely_ends = op == 0x0b;
            Some(step)
        }
    }
}

/// A vector instruction with its opcode at `at`, by opcode map.
fn vector(code: &[u8], at: usize, map: u8, evex: bool) -> Option<Step> {
    let op = *code.get(at)?;
    let shape = match (map, op) {
        (1, 0x77) if !evex => Bare,
        (1, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) | (3, _) => Shape::ModRm(1),
        (1 | 2, _) => Shape::ModRm(0),
        (5 | 6, _) if evex => Shape::ModRm(0),
        _ => return None,
    };
    finish(code, at + 1, shape, Prefixes::default())
}

/// The operands behind an opcode that ends at `at`.
#[inline(always)]
fn finish(code: &[u8], at: usize, shape: Shape, prefixes: Prefixes) -> Option<Step> {
    let wide = if prefixes.narrow && !prefixes.long { 2 } else { 4 };
    let mut step = Step {
        length_bytes: at,
        jump: None,
        indirect: false,
        ends: false,
        surely_ends: false,
        mod_rm_at: None,
    };
    if matches!(shape, Shape::ModRm(_) | Shape::ModRmWide | Shape::Group3(_) | Shape::Group5) {
        step.mod_rm_at = Some(at);
    }
    step.length_bytes += match shape {
        Bare => 0,
        Shape::Plain(bytes) => usize::from(bytes),
        Shape::ModRm(extra) => mod_rm(code, at)? + usize::from(extra),
        Shape::Wide => wide,
        Shape::ModRmWide => mod_rm(code, at)? + wide,
        Shape::Registers => 1,
        Shape::Near => {
            step.jump = Some(i64::from(*code.get(at)? as i8));
            1
        }
        Shape::Far => {
            let bytes = code.get(at..at + 4)?;
            step.jump = Some(i64::from(i32::from_le_bytes(bytes.try_into().ok()?)));
            4
        }
        Shape::Group3(is_wide) => {
            let immediate = match (code.get(at)? & 0x38, is_wide) {
                (0 | 8, true) => wide,
                (0 | 8, false) => 1,
                _ => 0,
            };
            mod_rm(code, at)? + immediate
        }
        Shape::Group5 => {
            step.indirect = matches!(code.get(at)? & 0x38, 0x20 | 0x28);
            step.ends = step.indirect;
            mod_rm(code, at)?
        }
        Shape::Move if prefixes.long => 8,
        Shape::Move => wide,
        Shape::Offset if prefixes.short_address => 4,
        Shape::Offset => 8,
        _ => return None,
    };
    (step.length_bytes <= code.len().min(15)).then_some(step)
}

#[inline(always)]
fn mod_rm(code: &[u8], at: usize) -> Option<usize> {
    let byte = *code.get(at)?;
    let length = usize::from(MODRM_BYTES[usize::from(byte)]);
    // Without base: four bytes of displacement that the first byte does not announce.
    let bare_sib = byte & 0xc7 == 4 && code.get(at + 1)? & 7 == 5;
    Some(length + if bare_sib { 4 } else { 0 })
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, FlowControl};
    use proptest::prelude::*;

    use super::*;
    use crate::code::Flow;

    /// What the full decoder says about one instruction: its length, how far it jumps, whether the
    /// target is unknown, and whether what is behind it need not follow.
    type Told = (usize, Option<i64>, bool, bool);

    /// `None` when it is no instruction.
    fn by_decoder(code: &[u8]) -> Option<Told> {
        let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
        let insn = decoder.decode();
        if insn.is_invalid() {
            return None;
        }
        let direct = matches!(
            insn.flow_control(),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
        );
        let jump = direct.then(|| insn.near_branch_target().wrapping_sub(insn.len() as u64) as i64);
        let indirect = insn.flow_control() == FlowControl::IndirectBranch;
        let code = crate::code::x86::decode(&code[..insn.len()], Svma(0));
        let ends = !matches!(code[0].flow, Flow::Next | Flow::Call | Flow::Branch(_));
        Some((insn.len(), jump, indirect, ends))
    }

    /// Compares; an end that is none costs time only.
    fn agree(step: Step, (length, jump, indirect, ends): Told) -> bool {
        (step.length_bytes, step.jump, step.indirect) == (length, jump, indirect)
            && (step.ends || !ends)
    }

    #[test]
    fn every_instruction_of_a_real_program_is_as_long_as_it_is() {
        let path = std::env::current_exe().unwrap();
        let image = crate::code::Image::open(&path).unwrap();
        let (mut seen, mut unknown) = (0_u32, 0_u32);
        for function in image.functions().iter().step_by(3) {
            let code = image.function_bytes(function);
            let mut at = 0;
            while let Some(expected) = by_decoder(&code[at..]) {
                match step(&code[at..]) {
                    Some(step) => {
                        let bytes = &code[at..at + expected.0];
                        assert!(agree(step, expected), "{step:?} {expected:?} {bytes:02x?}");
                    }
                    None => unknown += 1,
                }
                seen += 1;
                at += expected.0;
                if at == code.len() {
                    break;
                }
            }
        }
        assert!(seen > 100_000 && unknown == 0, "{unknown} of {seen} instructions are not known");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn what_the_tables_know_the_decoder_says_too(
            prefix in prop::sample::select(vec![
                vec![], vec![0x66], vec![0x48], vec![0xf2], vec![0xf3], vec![0x67], vec![0x66, 0x48],
                vec![0x41], vec![0x0f], vec![0x66, 0x0f], vec![0x48, 0x0f], vec![0x0f, 0x38],
                vec![0x0f, 0x3a], vec![0xc5, 0xf8], vec![0xc4, 0xe1, 0x78], vec![0xc4, 0xe2, 0x79],
                vec![0xc4, 0xe3, 0x79], vec![0x62, 0xf1, 0x7c, 0x48], vec![0x62, 0xf2, 0x7d, 0x48],
            ]),
            rest in prop::collection::vec(any::<u8>(), 16),
        ) {
            let code = [prefix, rest].concat();
            // What is no instruction may be anything: the full decoder stops there by itself.
            if let (Some(expected), Some(step)) = (by_decoder(&code), step(&code)) {
                prop_assert!(agree(step, expected), "{step:?} {expected:?} {code:02x?}");
            }
        }
    }

    #[test]
    fn a_jump_backwards_may_be_a_loop_and_a_call_is_none() {
        assert!(may_loop(&[0xff, 0xcf, 0x75, 0xfc, 0xc3])); // dec edi; jne -4; ret
        assert!(may_loop(&[0xc3, 0xff, 0xe0])); // ret; jmp rax
        assert!(!may_loop(&[0xff, 0xe0, 0xc3])); // jmp rax; ret: nothing before it to jump to
        assert!(may_loop(&[0x06])); // no instruction
        assert!(!may_loop(&[0x75, 0x01, 0x90, 0xc3])); // jne +1; nop; ret
        // jne cold; back: nop; ret; cold: jmp back
        assert!(!may_loop(&[0x75, 0x02, 0x90, 0xc3, 0xeb, 0xfc]));
        // The same where cold code is fallen into: jne cold; back: nop; nop; cold: jmp back
        assert!(may_loop(&[0x75, 0x02, 0x90, 0x90, 0xeb, 0xfc]));
        // back: jmp rax; (a case:) jmp back
        assert!(may_loop(&[0xff, 0xe0, 0xeb, 0xfc]));
        assert!(!may_loop(&[0xe8, 0xf0, 0xff, 0xff, 0xff, 0xc3])); // call backwards; ret
        assert!(!may_loop(&[0xeb, 0xf0])); // a tail call to the function before
    }

    #[test]
    fn a_survey_of_a_real_program_misses_no_loop_and_no_call() {
        let image = crate::code::Image::open(&std::env::current_exe().unwrap()).unwrap();
        let (mut loops, mut surveyed) = (0, 0);
        for function in image.functions().iter().step_by(5) {
            let bytes = image.function_bytes(function);
            let survey = Survey::of(bytes, function.start);
            let code = crate::code::FunctionCode::of(&image, function);
            assert!(survey.may_loop || code.loops.is_empty(), "{}", function.symbol);
            loops += usize::from(!code.loops.is_empty());
            surveyed += usize::from(survey.may_loop);
            let calls = code.insns.iter().filter(|i| {
                i.flow == Flow::Call && image.code_at(i.svma, 1) == [CALL] && i.length_bytes == 5
            });
            assert!(!survey.is_known || survey.calls.len() == calls.count(), "{}", function.symbol);
        }
        assert!(loops > 100 && surveyed >= loops, "{surveyed} for {loops}");
    }
}
