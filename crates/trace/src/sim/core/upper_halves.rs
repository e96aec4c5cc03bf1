//! Transitions between AVX and SSE: what instructions of SSE pay while the upper halves of vector registers are in use.
//!
//! An instruction of SSE keeps the upper half of the register that it writes. Where some upper half is in use, cores put all of
//! them away before the first one and bring them back before the next instruction of AVX, or let each one wait for what its
//! register held. *Sign*: some hundred cycles a transition, or chains in loops that have none; nothing behind `vzeroupper`.
//! *Literature*: Intel's optimization manual, "Mixing Intel AVX and SSE".

use iced_x86::{EncodingKind, Instruction, InstructionInfo, Mnemonic as I, OpAccess};

use super::ops::{Registers, VECTORS};
use super::{Core, Mechanism};
use crate::machine::UpperHalves;

/// What an instruction does with the upper halves of vector registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpperUse {
    /// It has nothing to do with them.
    None,
    /// It writes one.
    Written,
    /// It clears all.
    Cleared,
    /// It writes the lower half of a register and keeps the upper one, as all of SSE do.
    Kept,
    /// Another instruction of AVX.
    Other,
}

impl UpperUse {
    pub(super) fn of(raw: &Instruction, explicit: Registers, info: &InstructionInfo) -> Self {
        if matches!(raw.mnemonic(), I::Vzeroupper | I::Vzeroall) {
            return Self::Cleared;
        }
        if explicit & VECTORS == 0 {
            return Self::None;
        }
        let to = raw.op0_register();
        let writes = to.is_vector_register() && info.op0_access() != OpAccess::Read;
        match raw.encoding() {
            EncodingKind::Legacy if writes => Self::Kept,
            EncodingKind::Legacy => Self::None,
            // The other sixteen do not count (measured on Redwood Cove).
            _ if writes && to.size() > 16 && to.number() < 16 => Self::Written,
            _ => Self::Other,
        }
    }
}

/// Where the upper halves of the vector registers are. A window begins with clean ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpperState {
    Clean,
    InUse,
    /// They were put away.
    Moved,
}

impl Core<'_> {
    /// Follows the upper halves of the vector registers; whether the instruction waits for the one that it keeps.
    pub(super) fn upper_halves(&mut self, number: u32, does: UpperUse) -> bool {
        use UpperState::{Clean, InUse, Moved};
        let before = self.state.upper_halves;
        let moved_cycles = match self.shape.upper_halves {
            UpperHalves::Moved { cycles } => Some(u64::from(cycles)),
            UpperHalves::Free | UpperHalves::Merged => None,
        };
        let after = match (does, before) {
            (UpperUse::None, _) => return false,
            (UpperUse::Cleared, _) => Clean,
            (UpperUse::Written, _) | (UpperUse::Other, Moved) => InUse,
            (UpperUse::Kept, InUse) if moved_cycles.is_some() => Moved,
            (UpperUse::Kept | UpperUse::Other, same) => same,
        };
        self.state.upper_halves = after;
        let are_moved = (before == Moved) != (after == Moved);
        let are_merged = self.shape.upper_halves == UpperHalves::Merged
            && (does, before) == (UpperUse::Kept, InUse);
        if !are_moved && !are_merged {
            return false;
        }
        self.event(number, Mechanism::VectorTransitions);
        let pays = self.has(Mechanism::VectorTransitions);
        if let Some(cycles) = moved_cycles.filter(|_| pays && are_moved) {
            self.state.hold_dispatch(self.state.retire.0 + cycles);
        }
        pays && are_merged
    }
}
