//! The everyday instructions, decoded straight into what the analyses ask for.
//!
//! The full decoder fills a large description of each instruction, of which a page of code elsewhere
//! then takes what matters. That is most of the time of a decoded function. What compilers emit
//! all day (moves, sums, compares, jumps, scalar and packed moves and arithmetic without VEX) is
//! read here in one look at its bytes; for anything else [`decode`] gives `None`, and the full
//! decoder has the word. Tests hold each against the other, on real programs and random bytes.

use crate::code::insn::{Access, Flow, Insn, RawAddress, Reg, Value};
use crate::model::Svma;

use super::{CALL_CLOBBERS, constant_value, sum};

mod general;
mod vector;

/// Fills in the instruction at the start of `code`, if it is an everyday one; `insn` is a plain one
/// at its address. `None` may leave it half filled.
#[inline]
pub(super) fn decode(code: &[u8], insn: &mut Insn) -> Option<()> {
    let mut cursor = Cursor { code, at: 0 };
    let mut prefixes = Prefixes::default();
    let mut op = cursor.byte()?;
    if op == 0x66 {
        prefixes.narrow = true;
        op = cursor.byte()?;
    }
    if matches!(op, 0xf2 | 0xf3) {
        if prefixes.narrow {
            return None;
        }
        prefixes.repeat = op;
        op = cursor.byte()?;
    }
    if op & 0xf0 == 0x40 {
        prefixes.rex = op;
        op = cursor.byte()?;
    }
    let mut one = One { cursor, prefixes, address: insn.svma.0, insn: &mut *insn };
    match op {
        0x0f => {
            let op = one.cursor.byte()?;
            one.escaped(op)?;
        }
        _ if prefixes.repeat != 0 => return None,
        _ => one.plain(op)?,
    }
    let length = one.cursor.at;
    // Prefixes can make a valid beginning too long.
    (length <= 15).then_some(())?;
    insn.length_bytes = length as u8;
    if let Some((reg, _)) = insn.define {
        insn.clobbers &= !reg.bit();
    }
    Some(())
}

#[derive(Clone, Copy)]
struct Cursor<'a> {
    code: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    #[inline(always)]
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.code.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    #[inline(always)]
    fn signed8(&mut self) -> Option<i64> {
        Some(i64::from(self.byte()? as i8))
    }

    #[inline(always)]
    fn signed32(&mut self) -> Option<i64> {
        let bytes = self.code.get(self.at..self.at + 4)?;
        self.at += 4;
        Some(i64::from(i32::from_le_bytes(bytes.try_into().ok()?)))
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.at += bytes;
        (self.at <= self.code.len()).then_some(())
    }
}

#[derive(Clone, Copy, Default)]
struct Prefixes {
    /// 0x66.
    narrow: bool,
    /// 0xf2 or 0xf3, or 0.
    repeat: u8,
    rex: u8,
}

impl Prefixes {
    fn is_long(self) -> bool {
        self.rex & 8 != 0
    }

    fn general_bytes(self) -> u16 {
        if self.is_long() {
            8
        } else if self.narrow {
            2
        } else {
            4
        }
    }
}

#[derive(Clone, Copy)]
enum RmOperand {
    Register(u8),
    Memory(RawAddress),
}

/// A ModRM byte: a register, and a register or memory.
#[derive(Clone, Copy)]
struct ModRm {
    reg: u8,
    place: RmOperand,
}

struct One<'a, 'i> {
    cursor: Cursor<'a>,
    prefixes: Prefixes,
    address: u64,
    insn: &'i mut Insn,
}

impl One<'_, '_> {
    /// Reads the ModRM byte and what it asks for. `immediate_bytes` follow it: addresses count
    /// from the instruction's end.
    #[inline(always)]
    fn mod_rm(&mut self, immediate_bytes: usize) -> Option<ModRm> {
        let byte = self.cursor.byte()?;
        let rex = self.prefixes.rex;
        let reg = byte >> 3 & 7 | (rex & 4) << 1;
        let (mode, low) = (byte >> 6, byte & 7);
        if mode == 3 {
            return Some(ModRm { reg, place: RmOperand::Register(low | (rex & 1) << 3) });
        }
        let mut raw = RawAddress { scale: 1, ..RawAddress::default() };
        if low == 4 {
            let sib = self.cursor.byte()?;
            let index = sib >> 3 & 7 | (rex & 2) << 2;
            raw.scale = 1 << (sib >> 6);
            raw.index = (index != 4).then_some(Reg(index));
            if sib & 7 == 5 && mode == 0 {
                raw.displacement = self.cursor.signed32()?;
                return Some(ModRm { reg, place: RmOperand::Memory(raw) });
            }
            raw.base = Some(Reg(sib & 7 | (rex & 1) << 3));
        } else if low == 5 && mode == 0 {
            let distance = self.cursor.signed32()?;
            let end = self.address.wrapping_add((self.cursor.at + immediate_bytes) as u64);
            raw.displacement = end.wrapping_add_signed(distance) as i64;
            return Some(ModRm { reg, place: RmOperand::Memory(raw) });
        } else {
            raw.base = Some(Reg(low | (rex & 1) << 3));
        }
        raw.displacement = match mode {
            0 => 0,
            1 => self.cursor.signed8()?,
            _ => self.cursor.signed32()?,
        };
        Some(ModRm { reg, place: RmOperand::Memory(raw) })
    }

    /// The register with this number in an operand of one byte: without REX, 4 to 7 are the second
    /// bytes of the first four.
    fn byte_register(&self, number: u8) -> u8 {
        if self.prefixes.rex == 0 && number >= 4 { number - 4 } else { number }
    }

    fn whole(&self, number: u8, bytes: u16) -> u8 {
        if bytes == 1 { self.byte_register(number) } else { number }
    }

    fn clobber(&mut self, number: u8, bytes: u16) {
        self.insn.clobbers |= Reg(self.whole(number, bytes)).bit();
    }

    /// The new value of a register, where it is wide enough to matter.
    fn define(&mut self, number: u8, bytes: u16, value: Value) {
        self.clobber(number, bytes);
        if bytes >= 4 {
            self.insn.define = Some((Reg(number), value));
        }
    }

    fn load(&mut self, address: RawAddress, size_bytes: u16) {
        self.insn.load = Some(Access::of(size_bytes, address));
    }

    fn store(&mut self, address: RawAddress, size_bytes: u16) {
        self.insn.store = Some(Access::of(size_bytes, address));
    }

    fn read(&mut self, place: RmOperand, bytes: u16) {
        if let RmOperand::Memory(address) = place {
            self.load(address, bytes);
        }
    }

    /// Overwrites the operand with something unknown.
    fn write(&mut self, place: RmOperand, bytes: u16) {
        match place {
            RmOperand::Register(number) => self.clobber(number, bytes),
            RmOperand::Memory(address) => self.store(address, bytes),
        }
    }

    /// Changes the operand to something unknown.
    fn change(&mut self, place: RmOperand, bytes: u16) {
        self.read(place, bytes);
        self.write(place, bytes);
    }
}

#[cfg(test)]
mod tests;
