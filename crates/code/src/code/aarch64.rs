//! AArch64 machine code to neutral instructions, and to text.
//!
//! Loads and stores come from a classifier of our own ([`memory`]), control flow and address
//! arithmetic from the few encodings that matter to them; whatever else writes a general register
//! makes its value unknown. Text comes from `disarm64`. 32-bit results count as they do for x86-64.

mod memory;

use disarm64::{InsnDisplay, decoder};

use super::insn::{Flow, Insn, RawAddress, Reg, Value};
use crate::model::Svma;

/// Registers that a called function may change (AAPCS64): `x0` to `x18` and the return address.
const CALL_CLOBBERS: u32 = 0x4007_ffff;
const NOP: u32 = 0xd503_201f;
/// All instructions are that long.
const INSN_BYTES: usize = 4;
/// An address can hold an index times this at the most.
const LARGEST_SHIFT: u32 = 6;

#[derive(Clone, Copy)]
struct Word {
    bits: u32,
    address: u64,
}

impl Word {
    /// The field from bit `high` down to bit `low`.
    fn bits(self, high: u32, low: u32) -> u32 {
        self.bits << (31 - high) >> (31 - high + low)
    }

    fn bit(self, at: u32) -> bool {
        self.bits(at, at) == 1
    }

    fn signed(self, high: u32, low: u32) -> i64 {
        i64::from((self.bits << (31 - high)) as i32 >> (31 - high + low))
    }

    fn target(self, high: u32, low: u32) -> Svma {
        Svma(self.address).offset(4 * self.signed(high, low))
    }
}

/// The register with this number, where 31 is the zero register.
fn register(number: u32) -> Option<Reg> {
    (number != 31).then_some(Reg(number as u8))
}

/// The register with this number, where 31 is the stack pointer.
fn stack_or(number: u32) -> Reg {
    Reg(number as u8)
}

fn words(bytes: &[u8], start: Svma) -> impl Iterator<Item = Word> {
    let chunks = bytes.chunks_exact(INSN_BYTES).enumerate();
    chunks.map(move |(i, chunk)| Word {
        bits: u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]),
        address: start.offset((INSN_BYTES * i) as i64).0,
    })
}

/// Decodes a stretch of code from its first byte to its last; a rest of less than an instruction
/// is left out.
#[must_use]
pub fn decode(bytes: &[u8], start: Svma) -> Vec<Insn> {
    words(bytes, start).map(neutral).collect()
}

/// As [`super::Architecture::may_loop`].
#[must_use]
pub fn may_loop(bytes: &[u8]) -> bool {
    words(bytes, Svma(0)).any(|word| match flow(word) {
        Flow::Jump(target) | Flow::Branch(target) => target.0 <= word.address,
        Flow::IndirectJump => true,
        _ => false,
    })
}

/// One instruction in Arm's syntax.
#[must_use]
pub fn text(bytes: &[u8], svma: Svma) -> String {
    let Some(word) = words(bytes, svma).next() else { return "(no bytes)".to_owned() };
    // The disassembler subtracts below zero in vector shifts of no width, which do not exist.
    let widthless_shift = word.bits(28, 23) == 0b11_1110 && word.bits(22, 19) == 0 && word.bit(10);
    let insn = match decoder::decode(word.bits) {
        Some(insn) if !widthless_shift => insn,
        _ => return format!(".inst {:#010x}", word.bits),
    };
    let text = insn.display_at(svma.0).to_string();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// As [`super::Architecture::normalised`]: without what counts from the instruction to somewhere
/// outside, and without the low halves of addresses whose high halves did.
#[must_use]
pub fn normalised(bytes: &[u8], start: Svma) -> Vec<u8> {
    let mut out = bytes.to_vec();
    let inside = start.0..start.0.wrapping_add(bytes.len() as u64);
    let mut pages = 0_u32;
    for (i, word) in words(bytes, start).enumerate() {
        let base = stack_or(word.bits(9, 5)).bit();
        let leaves = |target: Svma| !inside.contains(&target.0);
        let keep = match flow(word) {
            Flow::Jump(target) if leaves(target) => 0xfc00_0000,
            Flow::Call if word.bits(31, 26) == 0b10_0101 => 0xfc00_0000,
            _ if word.bits(28, 24) == 0b1_0000 => 0x9f00_001f,
            _ if pages & base != 0 && uses_low_half(word) => 0xffc0_03ff,
            _ => u32::MAX,
        };
        let written = stack_or(word.bits(4, 0)).bit();
        if word.bits(28, 24) == 0b1_0000 {
            pages |= written;
        } else if word.bits(28, 23) == 0b10_0010 {
            pages &= !written;
        }
        if keep != u32::MAX
            && let Some(place) = out.get_mut(INSN_BYTES * i..INSN_BYTES * (i + 1))
        {
            place.copy_from_slice(&(word.bits & keep).to_le_bytes());
        }
    }
    out
}

/// An addition of, or an access at, a constant of 12 bits.
fn uses_low_half(word: Word) -> bool {
    word.bits(28, 23) == 0b10_0010 || word.bits(29, 27) == 0b111 && word.bits(25, 24) == 0b01
}

/// `dsb` and `dmb` of all kinds of accesses: not those of stores or loads alone.
fn drains_stores(word: Word) -> bool {
    word.bits & 0xffff_f09f == 0xd503_309f && word.bits(9, 8) == 3 && !word.bit(6)
}

fn neutral(word: Word) -> Insn {
    let mut insn = Insn {
        flow: flow(word),
        is_padding: word.bits == NOP,
        drains_stores: drains_stores(word),
        ..Insn::plain(Svma(word.address), INSN_BYTES as u8)
    };
    if insn.flow == Flow::Call {
        insn.clobbers = CALL_CLOBBERS;
    } else if word.bits(27, 27) == 1 && word.bits(25, 25) == 0 {
        access(word, &mut insn);
    } else {
        insn.define = define(word);
        if insn.define.is_none() {
            insn.clobbers = written(word).map_or(0, Reg::bit);
        }
    }
    insn
}

fn access(word: Word, insn: &mut Insn) {
    let Some(memory) = memory::memory(word) else {
        // Unknown, but it may well load into its first register.
        insn.clobbers = register(word.bits(4, 0)).map_or(0, Reg::bit);
        return;
    };
    (insn.load, insn.store) = (memory.load, memory.store);
    insn.is_pair = memory.is_pair;
    insn.clobbers = memory.written;
    match memory.write_back {
        Some((base, Some(by))) => {
            insn.moves_base = Some((base, by));
            insn.clobbers &= !base.bit();
        }
        Some((base, None)) => insn.clobbers |= base.bit(),
        None => {}
    }
}

fn flow(word: Word) -> Flow {
    match word.bits(31, 26) {
        0b00_0101 => return Flow::Jump(word.target(25, 0)),
        0b10_0101 => return Flow::Call,
        _ => {}
    }
    match word.bits(31, 24) {
        0b0101_0100 => Flow::Branch(word.target(23, 5)),
        0b0011_0100 | 0b1011_0100 | 0b0011_0101 | 0b1011_0101 => Flow::Branch(word.target(23, 5)),
        0b0011_0110 | 0b1011_0110 | 0b0011_0111 | 0b1011_0111 => Flow::Branch(word.target(18, 5)),
        0b1101_0110 | 0b1101_0111 => match word.bits(24, 21) {
            0 | 8 => Flow::IndirectJump,
            1 | 9 => Flow::Call,
            2 | 4 | 5 => Flow::Return,
            _ => Flow::Stop,
        },
        // A system call leaves the function's own registers and code alone.
        0b1101_0100 if word.bits(23, 21) == 0 => Flow::Next,
        0b1101_0100 | 0 => Flow::Stop,
        _ => Flow::Next,
    }
}

fn sum(from: Reg, displacement: i64) -> Value {
    Value::moved(from, displacement)
}

fn constant(displacement: i64) -> Value {
    Value::Address(RawAddress { displacement, scale: 1, ..RawAddress::default() })
}

/// The new value of the destination, where it is made of registers and constants.
fn define(word: Word) -> Option<(Reg, Value)> {
    let to = word.bits(4, 0);
    let wide = word.bit(31);
    match word.bits(28, 23) {
        0b10_0000 | 0b10_0001 => {
            let offset = word.signed(23, 5) << 2 | i64::from(word.bits(30, 29));
            let value = match wide {
                true => (word.address & !0xfff).wrapping_add_signed(offset << 12),
                false => word.address.wrapping_add_signed(offset),
            };
            return Some((register(to)?, constant(value as i64)));
        }
        0b10_0010 => {
            let amount = i64::from(word.bits(21, 10)) << if word.bit(22) { 12 } else { 0 };
            let amount = if word.bit(30) { -amount } else { amount };
            // With flags the destination is the zero register, not the stack pointer.
            let to = if word.bit(29) { register(to)? } else { stack_or(to) };
            return Some((to, sum(stack_or(word.bits(9, 5)), amount)));
        }
        0b10_0100 => return logical(word).map(|value| (stack_or(to), value)),
        0b10_0101 => {
            let amount = i64::from(word.bits(20, 5)) << (16 * word.bits(22, 21));
            let value = match word.bits(30, 29) {
                0 if wide => !amount,
                0 => i64::from(!(amount as u32)),
                2 => amount,
                _ => return None,
            };
            return Some((register(to)?, constant(value)));
        }
        0b10_0110 => return bit_field(word).and_then(|value| Some((register(to)?, value))),
        _ => {}
    }
    match (word.bits(28, 24), word.bit(21)) {
        (0b0_1011, extended) => added(word, extended),
        // `madd` and its like with halves; the product of an index and a constant.
        (0b1_1011, _) if word.bits(30, 29) == 0 && !word.bit(15) => {
            let halves = matches!(word.bits(23, 21), 0b101 | 0b001) && wide;
            let (first, second) = (register(word.bits(9, 5))?, register(word.bits(20, 16))?);
            let value = Value::Product(first, second, register(word.bits(14, 10)));
            (word.bits(23, 21) == 0 || halves).then_some((register(to)?, value))
        }
        // A copy: `orr` with the zero register, unshifted.
        (0b0_1010, false) => {
            if word.bits(30, 29) != 1 || word.bits(15, 10) != 0 {
                return None;
            }
            let from = register(word.bits(20, 16));
            let value = match (register(word.bits(9, 5)), from) {
                (Some(first), Some(second)) => Value::Joined(first, second),
                (None, from) => from.map_or(constant(0), |from| sum(from, 0)),
                (Some(_), None) => return None,
            };
            Some((register(to)?, value))
        }
        _ => None,
    }
}

/// A sum of registers, the second shifted or extended.
fn added(word: Word, extended: bool) -> Option<(Reg, Value)> {
    let shift = if extended { word.bits(12, 10) } else { word.bits(15, 10) };
    let subtracts = word.bit(30);
    let shifts_left = extended || word.bits(23, 22) == 0;
    let index = register(word.bits(20, 16));
    if shift > LARGEST_SHIFT || !shifts_left || subtracts && index.is_some() {
        return None;
    }
    let first = word.bits(9, 5);
    let base = if extended { Some(stack_or(first)) } else { register(first) };
    let flags = word.bit(29);
    let to = word.bits(4, 0);
    let to = if extended && !flags { stack_or(to) } else { register(to)? };
    let raw = RawAddress { base, index, scale: 1 << shift, displacement: 0 };
    Some((to, Value::Address(raw)))
}

/// `and` with a constant keeps some bits; `orr` of nothing with one is that constant.
fn logical(word: Word) -> Option<Value> {
    let mask = bit_mask(word)?;
    match (word.bits(30, 29), word.bits(9, 5)) {
        (0, from) => Some(Value::Cut(register(from)?, mask)),
        (1, 31) => Some(constant(mask as i64)),
        (1, from) => Some(Value::Raised(register(from)?, mask as i64)),
        _ => None,
    }
}

/// The constant of a logical instruction: ones rotated within elements that repeat.
fn bit_mask(word: Word) -> Option<u64> {
    let (n, rotation, ones) = (word.bits(22, 22), word.bits(21, 16), word.bits(15, 10));
    let length = (n << 6 | (!ones & 0x3f)).checked_ilog2().filter(|length| *length > 0)?;
    let size = 1_u32 << length;
    let levels = size - 1;
    let count = (ones & levels) + 1;
    if count == size {
        return None;
    }
    let element = u64::MAX >> (64 - count);
    let whole = u64::MAX >> (64 - size);
    let turn = rotation & levels;
    let turned =
        if turn == 0 { element } else { (element >> turn | element << (size - turn)) & whole };
    let mut mask = turned;
    let mut width = size;
    while width < 64 {
        mask |= mask << width;
        width *= 2;
    }
    Some(if word.bit(31) { mask } else { mask & u64::from(u32::MAX) })
}

/// Shifts to the left, and fields that are moved up: an index times its scale, perhaps masked.
fn bit_field(word: Word) -> Option<Value> {
    if word.bits(30, 29) != 2 {
        return None;
    }
    let width = if word.bit(31) { 64 } else { 32 };
    let (rotation, last) = (word.bits(21, 16), word.bits(15, 10));
    if rotation >= width || last >= width {
        return None;
    }
    let from = register(word.bits(9, 5));
    if last + 1 == rotation && width - rotation <= LARGEST_SHIFT {
        let raw =
            RawAddress { base: None, index: from, scale: 1 << (width - rotation), displacement: 0 };
        return Some(Value::Address(raw));
    }
    if rotation == 0 && last == 31 {
        return Some(from.map_or(constant(0), |from| sum(from, 0)));
    }
    let kept = if last >= rotation { last - rotation + 1 } else { last + 1 };
    let mask = u64::MAX.checked_shr(64 - kept)?;
    if last < rotation
        && width - rotation <= LARGEST_SHIFT
        && let Some(from) = from
    {
        return Some(Value::Spread(from, mask, 1 << (width - rotation)));
    }
    Some(Value::Field(if last >= rotation { mask } else { mask << (width - rotation) }))
}

/// The general register that any other instruction may write.
fn written(word: Word) -> Option<Reg> {
    let to = register(word.bits(4, 0));
    match word.bits(28, 25) {
        // Data processing, and scalable vectors (which count elements into general registers).
        0b1000 | 0b1001 | 0b0101 | 0b1101 | 0b0010 => {
            to.filter(|_| word.bits(28, 21) != 0b1101_0010)
        }
        // Reading system registers.
        0b1010 | 0b1011 => to.filter(|_| word.bits(31, 20) == 0xd53),
        // Conversions and moves out of vector registers.
        0b0111 | 0b1111 => {
            let converts = word.bits(30, 24) & 0x5f == 0b001_1110
                && (!word.bit(21) || word.bits(15, 10) == 0)
                && !matches!(word.bits(18, 16), 0b010 | 0b011 | 0b111);
            let lane = word.bits(29, 21) == 0b0_0111_0000
                && word.bit(10)
                && matches!(word.bits(14, 11), 0b0101 | 0b0111);
            to.filter(|_| converts || lane)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
