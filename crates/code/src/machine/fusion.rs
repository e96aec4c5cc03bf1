//! Macro-fusion: which instructions a front end joins with the conditional jump behind them.
//!
//! One table per design. Sources: Intel, "64 and IA-32 Architectures Optimization Reference Manual"
//! (Sandy Bridge, legacy decode pipeline: a memory operand must not be relative to the instruction
//! pointer nor come with an immediate, and a pair does not fuse across a cache line); AMD, "Software
//! Optimization Guide" of families 17h and 19h. The assemblers that pad jumps for the erratum (GNU as,
//! LLVM) have the same rules. Checked on a core of the Golden Cove kind, six operations wide, with
//! pairs and four `nop`: `cmp [rdi+16], ecx` and `jne` 0.84 cycles, `cmp [rip+x], ecx` of the same
//! length 1.34; the constant with memory 1.03; `cmp` and `jp` 1.01; `dec`, `inc`, `add`, `and` 0.84.

use iced_x86::{ConditionCode as C, Instruction, Mnemonic, OpKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::known::Microarchitecture as M;
use crate::model::LINE_BYTES;

/// Which pairs of instructions a design fuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fusion {
    /// Nothing fuses.
    None,
    /// Nehalem and Westmere: `cmp` and `test`.
    Compares,
    /// Intel since Sandy Bridge: also `add`, `sub`, `and`, `inc` and `dec` of registers.
    SandyBridge,
    /// AMD up to Zen 2: `cmp` and `test` with every condition.
    Zen,
    /// AMD since Zen 3: also `add`, `sub`, `and`, `or`, `xor`, `inc` and `dec` of registers.
    Zen3,
}

impl Fusion {
    /// That of a design, and whether it is published; where it is not, Intel's since Sandy Bridge.
    pub(super) fn of(design: M) -> (Self, bool) {
        match design {
            M::Nehalem | M::Westmere => (Self::Compares, true),
            M::Zen1 | M::ZenPlus | M::Zen2 => (Self::Zen, true),
            M::Zen3 | M::Zen4 | M::Zen5 => (Self::Zen3, true),
            _ if design.is_aarch64() => (Self::None, false),
            M::Gracemont | M::Crestmont | M::Skymont | M::Unknown => (Self::SandyBridge, false),
            _ => (Self::SandyBridge, true),
        }
    }

    /// Whether an instruction and the conditional jump right behind it become one operation.
    #[must_use]
    pub fn joins(self, first: &Instruction, jump: &Instruction) -> bool {
        use Mnemonic::{Add, And, Cmp, Dec, Inc, Or, Sub, Test, Xor};
        let is_amd = matches!(self, Self::Zen | Self::Zen3);
        // `jrcxz` and `loop` have conditions, but of registers.
        if !jump.is_jcc_short_or_near()
            || !is_amd && jump.ip().is_multiple_of(LINE_BYTES)
            || !operands_fit(first, is_amd)
        {
            return false;
        }
        let condition = jump.condition_code();
        let of_carry = matches!(condition, C::b | C::ae | C::be | C::a);
        let of_one_flag = matches!(condition, C::s | C::ns | C::o | C::no | C::p | C::np);
        match (self, first.mnemonic()) {
            (Self::Compares | Self::SandyBridge, Cmp) => !of_one_flag,
            (Self::None, _) => false,
            (_, Cmp | Test) | (Self::SandyBridge | Self::Zen3, And) => true,
            (Self::SandyBridge, Add | Sub) => !of_one_flag,
            (Self::SandyBridge, Inc | Dec) => !of_one_flag && !of_carry,
            (Self::Zen3, Inc | Dec) => !of_carry,
            (Self::Zen3, Add | Sub | Or | Xor) => true,
            _ => false,
        }
    }

    /// What fuses, as a clause.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::None => "nothing",
            Self::Compares => "cmp, test",
            Self::SandyBridge => "cmp, test, add, sub, and, inc, dec",
            Self::Zen => "cmp, test, with every condition",
            Self::Zen3 => "cmp, test, add, sub, and, or, xor, inc, dec",
        }
    }
}

/// No result in memory, no address relative to the instruction pointer, and no constant beside a
/// memory operand (AMD: beside one with a displacement).
fn operands_fit(first: &Instruction, is_amd: bool) -> bool {
    let memory = (0..first.op_count()).any(|i| first.op_kind(i) == OpKind::Memory);
    let immediate = (0..first.op_count()).any(|i| first.try_immediate(i).is_ok());
    let compares = matches!(first.mnemonic(), Mnemonic::Cmp | Mnemonic::Test);
    let stores = memory && !compares && first.op0_kind() == OpKind::Memory;
    let too_long = if is_amd { first.memory_displ_size() > 0 } else { memory };
    !(stores || first.is_ip_rel_memory_operand() || immediate && too_long)
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    /// Whether `first` and a jump of this condition fuse where the jump stands at `at`.
    fn joins(fusion: Fusion, first: &[u8], condition: u8, at: u64) -> bool {
        let code = [first, &[0x70 | condition, 0]].concat();
        let start = at - first.len() as u64;
        let mut decoder = Decoder::with_ip(64, &code, start, DecoderOptions::NONE);
        let (first, jump) = (decoder.decode(), decoder.decode());
        fusion.joins(&first, &jump)
    }

    #[test]
    fn each_table_has_its_instructions_and_conditions() {
        let (cmp, test, and) = (&[0x39, 0xc8][..], &[0x85, 0xc0][..], &[0x83, 0xe0, 7][..]);
        let (add, dec, or) = (&[0x01, 0xc8][..], &[0xff, 0xc9][..], &[0x09, 0xc8][..]);
        // ne, l, b, s
        let joined = |fusion, first| [5, 12, 2, 8].map(|jcc| joins(fusion, first, jcc, 0x1021));
        let (all, ordered, none) = ([true; 4], [true, true, true, false], [false; 4]);
        let no_carry = [true, true, false, false];
        for (fusion, wanted) in [
            (Fusion::None, [none; 6]),
            (Fusion::Compares, [ordered, all, none, none, none, none]),
            (Fusion::SandyBridge, [ordered, all, all, ordered, no_carry, none]),
            (Fusion::Zen, [all, all, none, none, none, none]),
            (Fusion::Zen3, [all, all, all, all, [true, true, false, true], all]),
        ] {
            let found = [cmp, test, and, add, dec, or].map(|first| joined(fusion, first));
            assert_eq!(found, wanted, "{fusion:?}");
        }
        assert!(!joins(Fusion::SandyBridge, &[0x89, 0xc8], 5, 0x1021), "mov sets no flags");
    }

    #[test]
    fn operands_and_the_end_of_a_line_part_a_pair() {
        use Fusion::{SandyBridge, Zen, Zen3};
        let (memory, rip) = (&[0x39, 0x08][..], &[0x39, 0x0d, 0, 1, 0, 0][..]);
        let (constant, far) = (&[0x83, 0x38, 5][..], &[0x83, 0x78, 16, 5][..]);
        for (fusion, first, at, wanted) in [
            (SandyBridge, memory, 0x1021, true), // cmp [rax], ecx
            (SandyBridge, memory, 0x1020, true),
            (SandyBridge, memory, 0x1040, false),
            (SandyBridge, constant, 0x1021, false), // cmp dword [rax], 5
            (SandyBridge, rip, 0x1021, false),      // cmp [rip+256], ecx
            (SandyBridge, &[0x03, 0x08], 0x1021, true), // add ecx, [rax]
            (SandyBridge, &[0xff, 0x00], 0x1021, false), // inc dword [rax]
            (Zen, constant, 0x1040, true),
            (Zen, far, 0x1021, false), // cmp dword [rax+16], 5
            (Zen, rip, 0x1021, false),
            (Zen3, &[0xff, 0x00], 0x1021, false),
        ] {
            assert_eq!(joins(fusion, first, 5, at), wanted, "{fusion:?} {first:02x?} {at:x}");
        }
    }
}
