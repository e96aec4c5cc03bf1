//! Which memory an A64 instruction reads and writes: the load and store groups of the encoding
//! index, by their bit fields.
//!
//! Widths, addressing forms and write-back are all in fixed places, so a table of the groups says
//! more, and faster, than a disassembler's operands. SVE accesses (their width is the machine's),
//! tag stores, prefetches and the copy and set instructions are left out.

use super::{Word, register, stack_or};
use crate::code::insn::{Access, RawAddress, Reg};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    pub load: Option<Access>,
    pub store: Option<Access>,
    /// Two accesses of half the width.
    pub is_pair: bool,
    /// The base register and what is added to it; `None` as the amount when a register is added.
    pub write_back: Option<(Reg, Option<i64>)>,
    /// General registers that get what was loaded, or a status.
    pub written: u32,
}

impl Memory {
    /// The same, of a register that is only moved.
    fn moving(self, moved: Option<Reg>) -> Self {
        let of = |access: Access| Access { moved, ..access };
        Self { load: self.load.map(of), store: self.store.map(of), ..self }
    }
}

/// Loads, stores, or both at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Load,
    Store,
    Both,
}

/// The effects of a load or store; `None` for anything else, and for what is left out.
pub(super) fn memory(word: Word) -> Option<Memory> {
    match word.bits(29, 24) {
        0b00_1000 => exclusive(word),
        0b00_1100 if word.bits(31, 31) == 0 => structures(word),
        0b00_1101 if word.bits(31, 31) == 0 => lane(word),
        0b01_1001 if word.bits(21, 21) == 0 && word.bits(11, 10) == 0 => {
            let way = if word.bits(23, 22) == 0 { Way::Store } else { Way::Load };
            let size = 1 << word.bits(31, 30);
            Some(single(word, way, size, based(word, word.signed(20, 12)), false))
        }
        group if group & 0b11_1011 == 0b01_1000 => literal(word),
        group if group & 0b11_1000 == 0b10_1000 => pair(word),
        group if group & 0b11_1000 == 0b11_1000 => one(word),
        _ => None,
    }
}

fn based(word: Word, displacement: i64) -> RawAddress {
    let base = Some(stack_or(word.bits(9, 5)));
    RawAddress { base, index: None, scale: 1, displacement }
}

fn single(word: Word, way: Way, size_bytes: u16, address: RawAddress, is_vector: bool) -> Memory {
    let access = Some(Access::of(size_bytes, address));
    let loads = way != Way::Store;
    let written =
        if loads && !is_vector { register(word.bits(4, 0)).map_or(0, |r| r.bit()) } else { 0 };
    Memory {
        load: access.filter(|_| loads),
        store: access.filter(|_| way != Way::Load),
        written,
        ..Memory::default()
    }
}

/// Exclusive and ordered accesses, and compare and swap.
fn exclusive(word: Word) -> Option<Memory> {
    let size = 1_u16 << word.bits(31, 30);
    let (ordered, is_load, two) = (word.bit(23), word.bit(22), word.bit(21));
    let status = register(word.bits(20, 16)).map_or(0, |r| r.bit());
    let second = register(word.bits(14, 10)).map_or(0, |r| r.bit());
    let way = if is_load { Way::Load } else { Way::Store };
    let at = based(word, 0);
    Some(match (ordered, two) {
        (false, false) => {
            let mut memory = single(word, way, size, at, false);
            memory.written |= if is_load { 0 } else { status };
            memory
        }
        (false, true) if size >= 4 => {
            let mut memory = single(word, way, 2 * size, at, false);
            memory.written |= if is_load { second } else { status };
            memory
        }
        // Compare and swap of a pair: the width is in one bit.
        (false, true) => {
            let size = if word.bit(30) { 16 } else { 8 };
            let mut memory = single(word, Way::Both, size, at, true);
            memory.written = status | status << 1;
            memory
        }
        (true, false) => single(word, way, size, at, false),
        (true, true) => {
            let mut memory = single(word, Way::Both, size, at, true);
            memory.written = status;
            memory
        }
    })
}

/// Vector structures, whole registers.
fn structures(word: Word) -> Option<Memory> {
    let registers = match word.bits(15, 12) {
        0b0000 | 0b0010 => 4,
        0b0100 | 0b0110 => 3,
        0b0111 => 1,
        0b1000 | 0b1010 => 2,
        _ => return None,
    };
    Some(vector(word, registers * (8 << word.bits(30, 30))))
}

/// Vector structures, one lane, or one element for all lanes.
fn lane(word: Word) -> Option<Memory> {
    let opcode = word.bits(15, 13);
    let elements = ((opcode & 1) << 1 | word.bits(21, 21)) + 1;
    let element_bytes = match (opcode >> 1, word.bits(11, 10)) {
        (0, _) => 1,
        (1, _) => 2,
        (2, 1) => 8,
        (2, _) => 4,
        (_, size) => 1 << size,
    };
    Some(vector(word, (elements * element_bytes) as u16))
}

fn vector(word: Word, size_bytes: u16) -> Memory {
    let way = if word.bit(22) { Way::Load } else { Way::Store };
    let mut memory = single(word, way, size_bytes, based(word, 0), true);
    if word.bit(23) {
        let by = (word.bits(20, 16) == 31).then_some(i64::from(size_bytes));
        memory.write_back = Some((stack_or(word.bits(9, 5)), by));
    }
    memory
}

fn literal(word: Word) -> Option<Memory> {
    let is_vector = word.bit(26);
    let size = match (word.bits(31, 30), is_vector) {
        (0, _) | (2, false) => 4,
        (1, _) => 8,
        (2, true) => 16,
        _ => return None,
    };
    let displacement = word.address.wrapping_add_signed(word.signed(23, 5) * 4) as i64;
    let address = RawAddress { base: None, index: None, scale: 1, displacement };
    Some(single(word, Way::Load, size, address, is_vector))
}

fn pair(word: Word) -> Option<Memory> {
    let (is_vector, is_load) = (word.bit(26), word.bit(22));
    let element: u16 = match (word.bits(31, 30), is_vector) {
        (3, _) => return None,
        (opc, true) => 4 << opc,
        (0, false) => 4,
        (1, false) if is_load => 4,
        // A tag with a pair.
        (1, false) => 8,
        (_, false) => 8,
    };
    let scale = if word.bits(31, 30) == 1 && !is_vector && !is_load { 16 } else { element };
    let offset = word.signed(21, 15) * i64::from(scale);
    let way = if is_load { Way::Load } else { Way::Store };
    let form = word.bits(24, 23);
    let address = based(word, if form == 0b01 { 0 } else { offset });
    let mut memory = single(word, way, 2 * element, address, is_vector);
    memory.is_pair = true;
    if is_load && !is_vector {
        memory.written |= register(word.bits(14, 10)).map_or(0, |r| r.bit());
    }
    if matches!(form, 0b01 | 0b11) {
        memory.write_back = Some((stack_or(word.bits(9, 5)), Some(offset)));
    }
    Some(memory)
}

/// One register, in all its addressing forms.
fn one(word: Word) -> Option<Memory> {
    let (size_field, opc, is_vector) = (word.bits(31, 30), word.bits(23, 22), word.bit(26));
    let scaled = word.bits(25, 24) == 0b01;
    if !scaled && word.bits(25, 24) != 0 {
        return None;
    }
    if !scaled && word.bit(21) {
        return match word.bits(11, 10) {
            0b10 => indexed(word),
            0b00 if !is_vector => Some(atomic(word)),
            // A pointer that is authenticated on its way.
            _ if size_field == 3 && !is_vector => {
                let offset = (word.signed(22, 22) << 9 | i64::from(word.bits(20, 12))) * 8;
                let mut memory = single(word, Way::Load, 8, based(word, offset), false);
                memory.write_back = word.bit(11).then(|| (stack_or(word.bits(9, 5)), Some(offset)));
                Some(memory)
            }
            _ => None,
        };
    }
    let (way, size_bytes) = width(size_field, opc, is_vector)?;
    let moves = !is_vector && size_bytes >= 4;
    let moved = register(word.bits(4, 0)).filter(|_| moves);
    if scaled {
        let offset = i64::from(word.bits(21, 10)) * i64::from(size_bytes);
        let memory = single(word, way, size_bytes, based(word, offset), is_vector);
        return Some(memory.moving(moved));
    }
    let offset = word.signed(20, 12);
    let form = word.bits(11, 10);
    let address = based(word, if form == 0b01 { 0 } else { offset });
    let mut memory = single(word, way, size_bytes, address, is_vector).moving(moved);
    if matches!(form, 0b01 | 0b11) {
        memory.write_back = Some((stack_or(word.bits(9, 5)), Some(offset)));
    }
    Some(memory)
}

/// Direction and width from the fields `size` and `opc`; `None` for prefetches.
fn width(size: u32, opc: u32, is_vector: bool) -> Option<(Way, u16)> {
    match (is_vector, size, opc) {
        (false, 3, 2 | 3) | (false, 2, 3) => None,
        (false, _, 0) => Some((Way::Store, 1 << size)),
        (false, ..) => Some((Way::Load, 1 << size)),
        (true, 0, 2) => Some((Way::Store, 16)),
        (true, 0, 3) => Some((Way::Load, 16)),
        (true, _, 0) => Some((Way::Store, 1 << size)),
        (true, _, 1) => Some((Way::Load, 1 << size)),
        _ => None,
    }
}

/// Base and a second register, extended or shifted.
fn indexed(word: Word) -> Option<Memory> {
    let is_vector = word.bit(26);
    let (way, size_bytes) = width(word.bits(31, 30), word.bits(23, 22), is_vector)?;
    let scale = if word.bit(12) { size_bytes as u8 } else { 1 };
    let index = register(word.bits(20, 16));
    let address = RawAddress { index, scale, ..based(word, 0) };
    Some(single(word, way, size_bytes, address, is_vector))
}

/// Atomic operations on memory, and among them the acquiring load and the whole lines for devices.
fn atomic(word: Word) -> Memory {
    let size_field = word.bits(31, 30);
    let (way, size) = match (size_field, word.bits(15, 12)) {
        (_, 0b1100) => (Way::Load, 1 << size_field),
        (3, 0b1001..=0b1011) => (Way::Store, 64),
        (3, 0b1101) => (Way::Load, 64),
        _ => (Way::Both, 1 << size_field),
    };
    single(word, way, size, based(word, 0), false)
}
