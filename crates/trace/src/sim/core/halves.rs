//! Loads and what changes their value right behind them: Redwood Cove makes one operation of both.

use iced_x86::{Code, Instruction, Mnemonic as I, OpKind};

use super::ops::{Registers, bit};

/// Half of what Redwood Cove makes one operation of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Halves {
    /// The register that a load writes whole.
    loaded: Registers,
    /// The register that an operation changes by another one.
    changed: Registers,
    bytes: usize,
}

impl Halves {
    pub(super) fn of(raw: &Instruction) -> Self {
        let loads = matches!(raw.code(), Code::Mov_r32_rm32 | Code::Mov_r64_rm64);
        let (to, loads) = (raw.op0_register(), loads && raw.op1_kind() == OpKind::Memory);
        let changes = raw.op0_kind() == OpKind::Register && changes(raw);
        Self {
            loaded: if loads { bit(to) } else { 0 },
            changed: if changes { bit(to) } else { 0 },
            bytes: to.size(),
        }
    }

    /// Whether the next operation changes what this one loads.
    pub(super) fn is_joined_with(self, next: Self) -> bool {
        self.loaded != 0 && self.loaded == next.changed && self.bytes == next.bytes
    }
}

/// Whether it changes its first operand, of 32 or 64 bits, by a register that is another one.
pub(super) fn changes(raw: &Instruction) -> bool {
    match raw.mnemonic() {
        I::Neg => raw.op0_kind() == OpKind::Register && raw.op0_register().size() >= 4,
        I::Add | I::Sub | I::And | I::Or | I::Xor => {
            let by = raw.op1_register();
            raw.op1_kind() == OpKind::Register && by.size() >= 4 && by != raw.op0_register()
        }
        _ => false,
    }
}
