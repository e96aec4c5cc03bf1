//! Opcodes of two bytes, most of them for vector registers.

use super::*;

/// The prefix that chooses among four meanings of an opcode.
const NONE: usize = 0;
const NARROW: usize = 1;
const REPEAT: usize = 2;
const REPEAT_NOT: usize = 3;

/// What an instruction does with the place that its ModRM byte names. The other operand is a vector
/// register unless said otherwise.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Other,
    Loads(u16),
    Stores(u16),
    /// In memory only; between registers it is nothing known here.
    LoadsOnly(u16),
    StoresOnly(u16),
    /// A general register or memory, 4 or 8 bytes.
    LoadsGeneral,
    StoresGeneral,
    /// Into a general register.
    Converts(u16),
}

/// Loads as wide as the kind of number: packed, packed, one single, one double.
const BY_KIND: [u16; 4] = [16, 16, 4, 8];

const fn does(op: usize, prefix: usize) -> Does {
    use Does::*;
    match (op, prefix) {
        (0x10 | 0x58 | 0x59 | 0x5c..=0x5f | 0x51, _) => Loads(BY_KIND[prefix]),
        (0x11, _) => Stores(BY_KIND[prefix]),
        (0x12 | 0x16, NONE) => Loads(8),
        (0x12 | 0x16, NARROW) => LoadsOnly(8),
        (0x13 | 0x17, NONE | NARROW) => StoresOnly(8),
        (0x14 | 0x15 | 0x28 | 0x54..=0x57, NONE | NARROW) => Loads(16),
        (0x29, NONE | NARROW) => Stores(16),
        (0x2a, REPEAT | REPEAT_NOT) => LoadsGeneral,
        (0x2c | 0x2d, REPEAT) => Converts(4),
        (0x2c | 0x2d, REPEAT_NOT) => Converts(8),
        (0x2e | 0x2f, NONE) => Loads(4),
        (0x2e | 0x2f, NARROW) => Loads(8),
        (0x5a, NONE) => Loads(8),
        (0x5a, _) => Loads(BY_KIND[prefix]),
        (0x5b, NONE | NARROW | REPEAT) => Loads(16),
        (0x60..=0x6d | 0x74..=0x76, NARROW) => Loads(16),
        (0x6e, NARROW) => LoadsGeneral,
        (0x7e, NARROW) => StoresGeneral,
        (0x6f, NARROW | REPEAT) => Loads(16),
        (0x7f, NARROW | REPEAT) => Stores(16),
        (0x7e, REPEAT) => Loads(8),
        (0xd6, NARROW) => Stores(8),
        (
            0xd1..=0xd5 | 0xd8..=0xdf | 0xe0..=0xe5 | 0xe8..=0xef | 0xf1..=0xf6 | 0xf8..=0xfe,
            NARROW,
        ) => Loads(16),
        _ => Other,
    }
}

/// The same for those with a constant of a byte.
const fn does_with_constant(op: usize, prefix: usize) -> Does {
    match (op, prefix) {
        (0x70, NARROW | REPEAT | REPEAT_NOT) | (0xc6, NONE | NARROW) => Does::Loads(16),
        (0xc2, _) => Does::Loads(BY_KIND[prefix]),
        _ => Does::Other,
    }
}

/// By opcode and prefix; and whether a constant follows.
const TABLE: [[(Does, bool); 4]; 256] = {
    let mut table = [[(Does::Other, false); 4]; 256];
    let mut op = 0;
    while op < 256 {
        let mut prefix = 0;
        while prefix < 4 {
            let plain = does(op, prefix);
            table[op][prefix] = match plain {
                Does::Other => (does_with_constant(op, prefix), true),
                _ => (plain, false),
            };
            prefix += 1;
        }
        op += 1;
    }
    table
};

impl One<'_, '_> {
    /// Opcodes behind 0x0f.
    pub(super) fn escaped(&mut self, op: u8) -> Option<()> {
        let prefix = match self.prefixes {
            Prefixes { repeat: 0xf3, .. } => REPEAT,
            Prefixes { repeat: 0xf2, .. } => REPEAT_NOT,
            Prefixes { narrow: true, .. } => NARROW,
            _ => NONE,
        };
        let (does, has_constant) = TABLE[usize::from(op)][prefix];
        if does == Does::Other {
            return if self.prefixes.repeat == 0 { self.escaped_general(op) } else { None };
        }
        let operands = self.mod_rm(usize::from(has_constant))?;
        if has_constant {
            self.cursor.skip(1)?;
        }
        let general = if self.prefixes.is_long() { 8 } else { 4 };
        match (does, operands.place) {
            (Does::LoadsGeneral, RmOperand::Memory(address)) => self.load(address, general),
            (Does::StoresGeneral, place) => self.write(place, general),
            (Does::Loads(bytes) | Does::LoadsOnly(bytes), RmOperand::Memory(address)) => {
                self.load(address, bytes);
            }
            (Does::Stores(bytes) | Does::StoresOnly(bytes), RmOperand::Memory(address)) => {
                self.store(address, bytes);
            }
            (Does::LoadsOnly(_) | Does::StoresOnly(_), RmOperand::Register(_)) => return None,
            (Does::Converts(bytes), place) => {
                self.read(place, bytes);
                self.clobber(operands.reg, general);
            }
            _ => {}
        }
        Some(())
    }
}
