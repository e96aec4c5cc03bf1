//! Opcodes of the general registers, and jumps.

use super::*;

const STACK: u8 = 4;
const ADD: u8 = 0;
const OR: u8 = 1;
const AND: u8 = 4;
const SUB: u8 = 5;
const XOR: u8 = 6;
const COMPARE: u8 = 7;

/// Where the second operand of an operation comes from.
#[derive(Clone, Copy)]
enum Source {
    Register(u8),
    /// As the full decoder reads it.
    Constant(u64),
    Memory,
}

impl One<'_, '_> {
    /// Opcodes of one byte.
    pub(super) fn plain(&mut self, op: u8) -> Option<()> {
        let wide = self.prefixes.general_bytes();
        let bytes = if op & 1 == 0 { 1 } else { wide };
        match op {
            0x00..=0x3f => self.arithmetic(op, bytes),
            0x50..=0x5f | 0x68 | 0x6a => self.stack(op),
            0x63 if self.prefixes.is_long() => {
                let operands = self.mod_rm(0)?;
                self.read(operands.place, 4);
                match operands.place {
                    RmOperand::Register(from) => self.define(operands.reg, 8, sum(Reg(from), 0)),
                    RmOperand::Memory(_) => {
                        self.clobber(operands.reg, 8);
                        self.moves(operands.reg);
                    }
                }
                Some(())
            }
            0x69 | 0x6b => self.multiply(op == 0x6b),
            0x70..=0x7f | 0xe8 | 0xe9 | 0xeb | 0xc3 | 0xcc => self.flow(op),
            0x80 | 0x81 | 0x83 => self.with_constant(op, bytes),
            0x84 | 0x85 => {
                let operands = self.mod_rm(0)?;
                self.read(operands.place, bytes);
                Some(())
            }
            0x88..=0x8b => self.move_between(op, bytes),
            0x8d => {
                let operands = self.mod_rm(0)?;
                let RmOperand::Memory(address) = operands.place else { return None };
                self.define(operands.reg, wide, Value::Address(address));
                Some(())
            }
            0x90 if self.prefixes.rex == 0 => {
                self.insn.is_padding = true;
                Some(())
            }
            // Into rax, or from there into rdx.
            0x98 | 0x99 => {
                self.clobber(if op == 0x98 { 0 } else { 2 }, wide);
                Some(())
            }
            0xa8 => self.cursor.skip(1),
            0xa9 => self.cursor.skip(if wide == 2 { 2 } else { 4 }),
            0xb8..=0xbf => self.move_constant(op & 7),
            0xc0 | 0xc1 | 0xd0..=0xd3 => self.shift(op, bytes),
            0xc6 | 0xc7 => self.store_constant(bytes),
            0xf6 | 0xf7 => self.unary(bytes),
            0xfe | 0xff => self.step(op, bytes),
            _ => None,
        }
    }

    fn arithmetic(&mut self, op: u8, bytes: u16) -> Option<()> {
        let kind = op >> 3;
        match op & 7 {
            0..=3 => {
                let operands = self.mod_rm(0)?;
                let (to, from) = match op & 2 {
                    0 => (operands.place, RmOperand::Register(operands.reg)),
                    _ => (RmOperand::Register(operands.reg), operands.place),
                };
                let source = match from {
                    RmOperand::Register(number) => Source::Register(number),
                    RmOperand::Memory(address) => {
                        self.load(address, bytes);
                        Source::Memory
                    }
                };
                self.operate(kind, to, source, bytes);
                Some(())
            }
            4 => {
                let constant = self.constant(1, true)?;
                self.operate(kind, RmOperand::Register(0), Source::Constant(constant), 1);
                Some(())
            }
            5 => {
                let constant = self.constant(bytes, false)?;
                self.operate(kind, RmOperand::Register(0), Source::Constant(constant), bytes);
                Some(())
            }
            _ => None,
        }
    }

    /// A constant as wide as the operand, four bytes at the most, or one byte.
    fn constant(&mut self, bytes: u16, is_short: bool) -> Option<u64> {
        Some(match bytes {
            _ if is_short => self.cursor.signed8()? as u64,
            2 => {
                self.cursor.skip(2)?;
                0
            }
            4 => u64::from(self.cursor.signed32()? as u32),
            _ => self.cursor.signed32()? as u64,
        })
    }

    fn with_constant(&mut self, op: u8, bytes: u16) -> Option<()> {
        let is_short = op != 0x81;
        let immediate_bytes = if is_short { 1 } else { usize::from(bytes.min(4)) };
        let operands = self.mod_rm(immediate_bytes)?;
        let constant = self.constant(bytes, is_short)?;
        self.operate(operands.reg & 7, operands.place, Source::Constant(constant), bytes);
        Some(())
    }

    /// One of the eight two-operand operations.
    fn operate(&mut self, kind: u8, to: RmOperand, from: Source, bytes: u16) {
        if kind == COMPARE {
            return self.read(to, bytes);
        }
        let RmOperand::Register(number) = to else { return self.change(to, bytes) };
        let reg = Reg(number);
        let value = match (kind, from) {
            (ADD, Source::Register(from)) => Value::Address(RawAddress {
                base: Some(reg),
                index: Some(Reg(from)),
                scale: 1,
                displacement: 0,
            }),
            (ADD, Source::Constant(by)) => sum(reg, by as i64),
            (SUB, Source::Constant(by)) => sum(reg, (by as i64).wrapping_neg()),
            (AND, Source::Constant(mask)) => Value::Masked(mask),
            (OR, Source::Register(from)) => Value::Joined(reg, Reg(from)),
            (XOR, Source::Register(from)) if from == number => constant_value(0),
            _ => return self.clobber(number, bytes),
        };
        self.define(number, bytes, value);
    }

    /// `push` and `pop`.
    fn stack(&mut self, op: u8) -> Option<()> {
        if self.prefixes.narrow {
            return None;
        }
        let number = op & 7 | (self.prefixes.rex & 1) << 3;
        let at = |displacement| RawAddress {
            base: Some(Reg::STACK),
            index: None,
            scale: 1,
            displacement,
        };
        let by = match op {
            0x50..=0x5f if number == STACK => return None,
            0x58..=0x5f => {
                self.load(at(0), 8);
                self.clobber(number, 8);
                8
            }
            _ => {
                self.cursor.skip(match op {
                    0x68 => 4,
                    0x6a => 1,
                    _ => 0,
                })?;
                self.store(at(-8), 8);
                -8
            }
        };
        self.insn.define = Some((Reg::STACK, sum(Reg::STACK, by)));
        Some(())
    }

    fn multiply(&mut self, is_short: bool) -> Option<()> {
        let bytes = self.prefixes.general_bytes();
        let immediate_bytes = if is_short { 1 } else { usize::from(bytes.min(4)) };
        let operands = self.mod_rm(immediate_bytes)?;
        let factor = self.constant(bytes, is_short)?;
        let scale = u8::try_from(factor).ok().filter(|scale| *scale > 1);
        match (operands.place, scale) {
            (RmOperand::Register(from), Some(scale)) => {
                let index = Some(Reg(from));
                let value = RawAddress { base: None, index, scale, displacement: 0 };
                self.define(operands.reg, bytes, Value::Address(value));
            }
            (place, _) => {
                self.read(place, bytes);
                self.clobber(operands.reg, bytes);
            }
        }
        Some(())
    }

    pub(super) fn flow(&mut self, op: u8) -> Option<()> {
        if self.prefixes.narrow {
            return None;
        }
        let end = |one: &Self| Svma(one.address.wrapping_add(one.cursor.at as u64));
        self.insn.flow = match op {
            0x70..=0x7f => {
                let distance = self.cursor.signed8()?;
                Flow::Branch(end(self).offset(distance))
            }
            // Of two bytes.
            0x80..=0x8f => {
                let distance = self.cursor.signed32()?;
                Flow::Branch(end(self).offset(distance))
            }
            0xeb => {
                let distance = self.cursor.signed8()?;
                Flow::Jump(end(self).offset(distance))
            }
            0xe9 => {
                let distance = self.cursor.signed32()?;
                Flow::Jump(end(self).offset(distance))
            }
            0xe8 => {
                self.cursor.skip(4)?;
                self.call();
                Flow::Call
            }
            0xc3 => {
                let address =
                    RawAddress { base: Some(Reg::STACK), scale: 1, ..RawAddress::default() };
                self.load(address, 8);
                self.insn.define = Some((Reg::STACK, sum(Reg::STACK, 8)));
                Flow::Return
            }
            _ => {
                self.insn.is_padding = true;
                Flow::Stop
            }
        };
        Some(())
    }

    fn call(&mut self) {
        let address =
            RawAddress { base: Some(Reg::STACK), index: None, scale: 1, displacement: -8 };
        self.store(address, 8);
        self.insn.clobbers |= CALL_CLOBBERS;
    }

    fn move_between(&mut self, op: u8, bytes: u16) -> Option<()> {
        let operands = self.mod_rm(0)?;
        let (to, from) = match op & 2 {
            0 => (operands.place, RmOperand::Register(operands.reg)),
            _ => (RmOperand::Register(operands.reg), operands.place),
        };
        match (to, from) {
            (RmOperand::Register(to), RmOperand::Register(from)) => {
                self.define(to, bytes, sum(Reg(from), 0));
            }
            _ => {
                self.read(from, bytes);
                self.write(to, bytes);
                if bytes >= 4 {
                    self.moves(operands.reg);
                }
            }
        }
        Some(())
    }

    /// The access only moves this register.
    fn moves(&mut self, number: u8) {
        let accesses = [&mut self.insn.load, &mut self.insn.store];
        accesses.into_iter().flatten().for_each(|access| access.moved = Some(Reg(number)));
    }

    fn move_constant(&mut self, low: u8) -> Option<()> {
        let bytes = self.prefixes.general_bytes();
        let constant = match bytes {
            8 => {
                let (low, high) = (self.cursor.signed32()?, self.cursor.signed32()?);
                i64::from(low as u32) | high << 32
            }
            _ => self.constant(bytes, false)? as i64,
        };
        self.define(low | (self.prefixes.rex & 1) << 3, bytes, constant_value(constant));
        Some(())
    }

    fn store_constant(&mut self, bytes: u16) -> Option<()> {
        let operands = self.mod_rm(usize::from(bytes.min(4)))?;
        // Others begin transactions.
        if operands.reg & 7 != 0 {
            return None;
        }
        let constant = self.constant(bytes, bytes == 1)?;
        match operands.place {
            RmOperand::Register(to) => self.define(to, bytes, constant_value(constant as i64)),
            RmOperand::Memory(address) => self.store(address, bytes),
        }
        Some(())
    }

    fn shift(&mut self, op: u8, bytes: u16) -> Option<()> {
        const LEFT: u8 = 4;
        const ALSO_LEFT: u8 = 6;
        let has_constant = op < 0xd0;
        let operands = self.mod_rm(usize::from(has_constant))?;
        let by = match op {
            0xc0 | 0xc1 => Some(self.cursor.byte()?),
            0xd0 | 0xd1 => Some(1),
            _ => None,
        };
        let kind = operands.reg & 7;
        // By nothing it may not even write.
        if kind == ALSO_LEFT || by.is_some_and(|by| by & 0x1f == 0) {
            return None;
        }
        match (operands.place, by) {
            (RmOperand::Register(to), Some(by @ 1..=7)) if kind == LEFT => {
                let index = Some(Reg(to));
                let value = RawAddress { base: None, index, scale: 1 << by, displacement: 0 };
                self.define(to, bytes, Value::Address(value));
            }
            (place, _) => self.change(place, bytes),
        }
        Some(())
    }

    /// `test` with a constant, `not`, `neg`, products and quotients.
    fn unary(&mut self, bytes: u16) -> Option<()> {
        let is_test = self.cursor.code.get(self.cursor.at)? & 0x38 == 0;
        let immediate_bytes = if is_test { usize::from(bytes.min(4)) } else { 0 };
        let operands = self.mod_rm(immediate_bytes)?;
        match operands.reg & 7 {
            0 => {
                self.cursor.skip(immediate_bytes)?;
                self.read(operands.place, bytes);
            }
            1 => return None,
            2 | 3 => self.change(operands.place, bytes),
            _ => {
                self.read(operands.place, bytes);
                self.insn.clobbers |= if bytes == 1 { 0b1 } else { 0b101 };
            }
        }
        Some(())
    }

    /// `inc`, `dec`, calls and jumps through registers and memory.
    fn step(&mut self, op: u8, bytes: u16) -> Option<()> {
        let operands = self.mod_rm(0)?;
        match (operands.reg & 7, operands.place) {
            (kind @ (0 | 1), RmOperand::Register(number)) => {
                let by = if kind == 0 { 1 } else { -1 };
                self.define(number, bytes, sum(Reg(number), by));
            }
            (0 | 1, place) => self.change(place, bytes),
            (2, place) if op == 0xff && !self.prefixes.narrow => {
                self.read(place, 8);
                self.call();
                self.insn.flow = Flow::Call;
            }
            (4, place) if op == 0xff && !self.prefixes.narrow => {
                self.read(place, 8);
                self.insn.flow = Flow::IndirectJump;
            }
            _ => return None,
        }
        Some(())
    }

    /// General opcodes of two bytes.
    pub(super) fn escaped_general(&mut self, op: u8) -> Option<()> {
        let bytes = self.prefixes.general_bytes();
        match op {
            0x0b if !self.prefixes.narrow => self.insn.flow = Flow::Stop,
            0x1f => {
                let operands = self.mod_rm(0)?;
                if operands.reg & 7 != 0 {
                    return None;
                }
                self.insn.is_padding = true;
            }
            0x40..=0x4f => {
                let operands = self.mod_rm(0)?;
                // Whether memory is read depends on the condition.
                let RmOperand::Register(_) = operands.place else { return None };
                self.clobber(operands.reg, bytes);
            }
            0x80..=0x8f => self.flow(op)?,
            0x90..=0x9f => {
                let operands = self.mod_rm(0)?;
                self.write(operands.place, 1);
            }
            0xaf => {
                let operands = self.mod_rm(0)?;
                self.read(operands.place, bytes);
                self.clobber(operands.reg, bytes);
            }
            0xb6 | 0xb7 | 0xbe | 0xbf => self.widen(op, bytes)?,
            _ => return None,
        }
        Some(())
    }

    fn widen(&mut self, op: u8, bytes: u16) -> Option<()> {
        let operands = self.mod_rm(0)?;
        let from_bytes = if op & 1 == 0 { 1 } else { 2 };
        let keeps_sign = op >= 0xbe;
        match operands.place {
            RmOperand::Register(from)
                if !keeps_sign && (from_bytes == 2 || self.byte_register(from) == from) =>
            {
                let mask = (1 << (8 * from_bytes)) - 1;
                self.define(operands.reg, bytes, Value::Cut(Reg(from), mask));
            }
            place => {
                self.read(place, from_bytes);
                self.clobber(operands.reg, bytes);
            }
        }
        Some(())
    }
}
