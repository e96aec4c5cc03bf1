//! What microcode does whose price is known, and is not that of [`OpClass::Microcode`](crate::machine::OpClass) at large.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use crate::machine::CoreShape;

/// What an instruction asks of microcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MicrocodeUse {
    /// Nothing, or what its class says.
    None,
    /// So many cycles. Measured on Redwood Cove, one behind the other; others are alike (uops.info).
    Takes(u8),
    /// It stores those of so many elements of a vector that a mask has, one behind the other. Microcode does that on Zen 4
    /// alone, and whatever the mask has, one element or all.
    Compresses(u8),
}

impl MicrocodeUse {
    pub(super) fn of(raw: &Instruction) -> Self {
        use Mnemonic as I;
        let in_memory = raw.op0_kind() == OpKind::Memory && raw.op1_kind() == OpKind::Register;
        match raw.mnemonic() {
            // A bit that a register numbers may be far from where the address points.
            I::Bt if in_memory => Self::Takes(5),
            I::Bts | I::Btr | I::Btc if in_memory => Self::Takes(8),
            I::Rcl | I::Rcr if raw.op1_register() == Register::CL => Self::Takes(7),
            I::Cld | I::Std => Self::Takes(4),
            I::Vpcompressb
            | I::Vpcompressw
            | I::Vpcompressd
            | I::Vpcompressq
            | I::Vcompressps
            | I::Vcompresspd
                if in_memory =>
            {
                Self::Compresses(raw.memory_size().element_count() as u8)
            }
            _ => Self::None,
        }
    }

    /// What it takes on a core, where that is not what its class takes.
    pub(super) fn cycles(self, shape: &CoreShape) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Takes(cycles) => Some(cycles.into()),
            Self::Compresses(elements) => {
                let [whole, each] = shape.compressed_store_cycles?.map(u64::from);
                Some(whole + each * u64::from(elements))
            }
        }
    }
}
