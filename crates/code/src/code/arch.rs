//! The processors whose machine code is understood, and the way from bytes to instructions for each.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::insn::{Insn, Reg};
use super::{aarch64, x86};
use crate::model::Svma;

/// A processor architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Architecture {
    /// Intel and AMD, 64 bits.
    X86_64,
    /// Arm, 64 bits.
    Aarch64,
}

impl Architecture {
    /// The one that this program was compiled for; `None` for any other than the two.
    pub const HOST: Option<Self> = if cfg!(target_arch = "x86_64") {
        Some(Self::X86_64)
    } else if cfg!(target_arch = "aarch64") {
        Some(Self::Aarch64)
    } else {
        None
    };

    /// How many general registers it has, the stack pointer among them.
    #[must_use]
    pub fn registers(self) -> usize {
        match self {
            Self::X86_64 => 16,
            Self::Aarch64 => 32,
        }
    }

    /// Its stack pointer.
    #[must_use]
    pub fn stack_pointer(self) -> Reg {
        match self {
            Self::X86_64 => Reg::STACK,
            Self::Aarch64 => Reg::AARCH64_STACK,
        }
    }

    /// The general registers that hand values to a function (System V, AAPCS64), the stack pointer
    /// last.
    #[must_use]
    pub fn handed_over(self) -> &'static [Reg] {
        const X86_64: [Reg; 7] = [Reg(7), Reg(6), Reg(2), Reg(1), Reg(8), Reg(9), Reg::STACK];
        const AARCH64: [Reg; 9] =
            [Reg(0), Reg(1), Reg(2), Reg(3), Reg(4), Reg(5), Reg(6), Reg(7), Reg::AARCH64_STACK];
        match self {
            Self::X86_64 => &X86_64,
            Self::Aarch64 => &AARCH64,
        }
    }

    /// How far a call moves the stack pointer down before the function begins.
    #[must_use]
    pub fn call_pushes_bytes(self) -> i64 {
        match self {
            Self::X86_64 => 8,
            Self::Aarch64 => 0,
        }
    }

    /// Decodes a stretch of code from its first byte to its last.
    #[must_use]
    pub fn decode(self, bytes: &[u8], start: Svma) -> Vec<Insn> {
        match self {
            Self::X86_64 => x86::decode(bytes, start),
            Self::Aarch64 => aarch64::decode(bytes, start),
        }
    }

    /// A first, cheap look at a function with these bytes.
    #[must_use]
    pub fn survey(self, bytes: &[u8], start: Svma) -> x86::Survey {
        match self {
            Self::X86_64 => x86::Survey::of(bytes, start),
            Self::Aarch64 => x86::Survey {
                may_loop: aarch64::may_loop(bytes),
                may_cross_line: true,
                ..x86::Survey::default()
            },
        }
    }

    /// One instruction as text: Intel syntax with widths spelled out, or Arm's.
    #[must_use]
    pub fn text(self, bytes: &[u8], svma: Svma) -> String {
        match self {
            Self::X86_64 => x86::text(bytes, svma),
            Self::Aarch64 => aarch64::text(bytes, svma),
        }
    }

    /// The bytes of a function without what changes when it, its neighbours or data move; `is_address` tells of a constant
    /// whether it is an address, by its position in the function and its value.
    pub(super) fn normalised(
        self,
        bytes: &[u8],
        start: Svma,
        is_address: &dyn Fn(usize, u64) -> bool,
    ) -> Vec<u8> {
        match self {
            Self::X86_64 => x86::normalised(bytes, start, is_address),
            // Constants of 16 bits hold none.
            Self::Aarch64 => aarch64::normalised(bytes, start),
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::X86_64 => "x86-64",
            Self::Aarch64 => "AArch64",
        })
    }
}
