//! What an instruction does with its operand in memory, which says how many operations it is and where it can start.

use iced_x86::{Instruction, InstructionInfo, OpAccess, Register};

use super::ops::{Registers, VECTORS, is_plain_move};
use crate::machine::CoreShape;

/// What an operation does with an operand in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryUse {
    /// It has none, or one that it only moves, to or from a vector register, or from memory.
    Moves,
    /// It computes with what it loads from a place without an index.
    Loads,
    /// It computes with what it loads from a place by an index, or stores a general register or a constant to one.
    ByIndex,
    /// It changes the place.
    Changes,
}

impl MemoryUse {
    pub(super) fn of(raw: &Instruction, explicit: Registers, info: &InstructionInfo) -> Self {
        let [memory] = info.used_memory() else { return Self::Moves };
        let has_index = memory.index() != Register::None;
        let only_loads = memory.access() == OpAccess::Read && is_plain_move(raw);
        match memory.access() {
            _ if explicit & VECTORS != 0 || raw.is_string_instruction() || only_loads => {
                Self::Moves
            }
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => Self::Changes,
            OpAccess::Read | OpAccess::CondRead | OpAccess::Write if has_index => Self::ByIndex,
            OpAccess::Read | OpAccess::CondRead => Self::Loads,
            _ => Self::Moves,
        }
    }

    /// Operations that an instruction is at the least with such an operand.
    pub(super) fn operations(self, shape: &CoreShape) -> u8 {
        match self {
            Self::Moves | Self::Loads => 0,
            Self::ByIndex => shape.by_index_operations,
            Self::Changes => 2,
        }
    }

    /// The ports that can compute with it, of these.
    pub(super) fn ports(self, shape: &CoreShape, ports: u32) -> u32 {
        match self {
            Self::Moves => ports,
            Self::Loads | Self::ByIndex | Self::Changes => ports & shape.loaded_ports,
        }
    }
}
