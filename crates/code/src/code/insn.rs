//! The neutral instruction: what the rest of the library may know about one.
//!
//! Only what the analyses ask for: how control goes on, which memory is read and written, and what
//! happens to the general registers, as far as addresses are made of them. The decoder behind it
//! ([`super::x86`]) can change without a change here.

use crate::model::Svma;

/// The longest instruction of any processor that we know.
pub const LONGEST_INSN_BYTES: usize = 15;

/// A general register by its hardware number. x86-64: 0 is `rax`, 4 is `rsp`, 15 is `r15`. AArch64:
/// 0 is `x0`, 30 is `x30`, 31 is `sp`; the zero register is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reg(pub u8);

impl Reg {
    /// Number of general registers of x86-64.
    pub const COUNT: usize = 16;
    /// The stack pointer of x86-64.
    pub const STACK: Self = Self(4);
    /// The stack pointer of AArch64.
    pub const AARCH64_STACK: Self = Self(31);

    /// Its bit in a register set.
    #[must_use]
    pub fn bit(self) -> u32 {
        1 << (self.0 & 31)
    }
}

/// How control goes on behind an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Execution falls through.
    Next,
    /// Unconditional jump.
    Jump(Svma),
    /// To the target or the next instruction.
    Branch(Svma),
    /// To an address that only the run knows.
    IndirectJump,
    /// Into another function and back to the next instruction.
    Call,
    /// Return to the caller.
    Return,
    /// Nowhere: a trap, or bytes that are no instruction.
    Stop,
}

/// An address as the instruction spells it: `base + index * scale + displacement`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RawAddress {
    /// Base register.
    pub base: Option<Reg>,
    /// Index register.
    pub index: Option<Reg>,
    /// 1, 2, 4 or 8 in accesses, any number in sums; meaningless without index.
    pub scale: u8,
    /// Constant part; the whole address when it is relative to the instruction pointer.
    pub displacement: i64,
}

/// A read or write of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Bytes accessed.
    pub size_bytes: u16,
    /// The general register that is only moved there or from there, 4 bytes of it or all 8; 4 bytes
    /// may come with their sign.
    pub moved: Option<Reg>,
    /// The operand's address.
    pub address: RawAddress,
}

impl Access {
    /// An access of which no more is known.
    #[must_use]
    pub fn of(size_bytes: u16, address: RawAddress) -> Self {
        Self { size_bytes, moved: None, address }
    }
}

/// What an instruction makes of its destination register, as far as addresses care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// The address computed from registers, without touching memory: copies, sums, constants.
    Address(RawAddress),
    /// The old value and-ed with a constant: an index that wraps around a small table.
    Masked(u64),
    /// Another register and-ed with a constant.
    Cut(Reg, u64),
    /// Some bits of another register, moved; only these may be set.
    Field(u64),
    /// Another register and-ed with a constant, times a power of two.
    Spread(Reg, u64, u8),
    /// Two registers or-ed, which is their sum where one holds an index that fits below the
    /// other's alignment.
    Joined(Reg, Reg),
    /// A register or-ed with a constant, which is their sum where the register is a stack pointer
    /// that was aligned.
    Raised(Reg, i64),
    /// Two registers multiplied, and a third added.
    Product(Reg, Reg, Option<Reg>),
}

impl Value {
    /// The constant that it was and-ed with, before it was moved.
    #[must_use]
    pub fn mask(&self) -> Option<u64> {
        match self {
            Self::Masked(mask)
            | Self::Cut(_, mask)
            | Self::Field(mask)
            | Self::Spread(_, mask, _) => Some(*mask),
            _ => None,
        }
    }

    /// A register plus a constant.
    #[must_use]
    pub fn moved(from: Reg, displacement: i64) -> Self {
        Self::Address(RawAddress { base: Some(from), index: None, scale: 1, displacement })
    }
}

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    /// Its address.
    pub svma: Svma,
    /// Its length; 1 for a byte that is no instruction.
    pub length_bytes: u8,
    /// Which instruction can follow.
    pub flow: Flow,
    /// Whether it does nothing and may stand between blocks only to fill up room.
    pub is_padding: bool,
    /// The memory it reads, if it is one plain stretch of known width.
    pub load: Option<Access>,
    /// The memory it writes, likewise.
    pub store: Option<Access>,
    /// A register whose new value is known in terms of old ones.
    pub define: Option<(Reg, Value)>,
    /// A second such register: the base that a load or store moves on its way, by so many bytes.
    pub moves_base: Option<(Reg, i64)>,
    /// Whether `load` or `store` is two of half its width, one behind the other (`ldp`, `stp`).
    pub is_pair: bool,
    /// Whether all older stores are in the cache before anything younger loads: a fence, or an
    /// operation that locks its line.
    pub drains_stores: bool,
    /// The set of registers whose new value is not known.
    pub clobbers: u32,
}

impl Insn {
    /// An instruction without any effect that is modelled.
    #[must_use]
    pub fn plain(svma: Svma, length_bytes: u8) -> Self {
        Self {
            svma,
            length_bytes,
            flow: Flow::Next,
            is_padding: false,
            load: None,
            store: None,
            define: None,
            moves_base: None,
            is_pair: false,
            drains_stores: false,
            clobbers: 0,
        }
    }

    /// The address behind it.
    #[must_use]
    pub fn end(&self) -> Svma {
        self.svma.offset(i64::from(self.length_bytes))
    }
}
