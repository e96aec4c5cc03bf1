//! Macro-fusion: which instructions a front end joins with the conditional jump behind them.
//!
//! One table per design. Sources: Intel, "64 and IA-32 Architectures Optimization Reference Manual"
//! (Sandy Bridge, legacy decode pipeline: a memory operand must not be relative to the instruction
//! pointer nor come with an immediate, and a pair does not fuse across a cache line); AMD, "Software
//! Optimization Guide" of families 17h and 19h. The assemblers that pad jumps for the erratum (GNU as,
//! LLVM) have the same rules. Checked on a core of the Golden Cove kind, six operations wide, with
//! pairs and four `nop`: `cmp [rdi+16], ecx` and `jne` 0.84 cycles, `cmp [rip+x], ecx` of the same
//! length 1.34; the constant with memory 1.03; `cmp` and `jp` 1.01; `dec`, `inc`, `add`, `and` 0.84.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::known::Microarchitecture as M;

/// A line of the instruction cache: Intel's decoders do not fuse a pair that is parted by its end.
const LINE_BYTES: u64 = 64;

/// The table of a design.
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

/// An instruction that sets flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagSetter {
    /// `cmp`
    Compare,
    /// `test`
    Test,
    /// `and`
    And,
    /// `add`, `sub`
    Sum,
    /// `inc`, `dec`, which leave the carry flag alone.
    Step,
    /// `or`, `xor`
    OrXor,
}

/// The operands of a flag-setting instruction, as far as fusion asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetterOperands {
    /// One is in memory.
    pub memory: bool,
    /// The result is stored there.
    pub writes_memory: bool,
    /// Its address is relative to the instruction pointer.
    pub rip_relative: bool,
    /// Its address has a displacement.
    pub displacement: bool,
    /// One is a constant.
    pub immediate: bool,
}

/// What a conditional jump asks of the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// `e`, `ne`
    Equal,
    /// `l`, `ge`, `le`, `g`
    Signed,
    /// `b`, `ae`, `be`, `a`, which need the carry flag.
    Unsigned,
    /// `s`, `ns`, `o`, `no`, `p`, `np`
    OneFlag,
}

impl Fusion {
    /// That of a design; Intel's since Sandy Bridge where nothing is published, and whether it is.
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

    /// Whether the pair becomes one operation; `jump_address` is where the jump stands.
    #[must_use]
    pub fn joins(
        self,
        first: FlagSetter,
        operands: SetterOperands,
        condition: Condition,
        jump_address: u64,
    ) -> bool {
        use FlagSetter::{And, Compare, OrXor, Step, Sum, Test};
        if operands.writes_memory || operands.rip_relative {
            return false;
        }
        let is_amd = matches!(self, Self::Zen | Self::Zen3);
        let parted = !is_amd && jump_address.is_multiple_of(LINE_BYTES);
        let too_long = if is_amd { operands.displacement } else { operands.memory };
        if parted || operands.immediate && too_long {
            return false;
        }
        let of_carry = condition == Condition::Unsigned;
        let of_one_flag = condition == Condition::OneFlag;
        match (self, first) {
            (Self::None, _) => false,
            (Self::Compares | Self::SandyBridge, Compare) => !of_one_flag,
            (_, Compare | Test) | (Self::SandyBridge, And) => true,
            (Self::SandyBridge, Sum) => !of_one_flag,
            (Self::SandyBridge, Step) => !of_one_flag && !of_carry,
            (Self::Zen3, Step) => !of_carry,
            (Self::Zen3, And | Sum | OrXor) => true,
            (Self::Compares | Self::Zen | Self::SandyBridge, _) => false,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_its_instructions_and_conditions() {
        use Condition::{Equal, OneFlag, Signed, Unsigned};
        use FlagSetter::{And, Compare, OrXor, Step, Sum, Test};
        let joined = |fusion: Fusion, first| {
            let joins = |c| fusion.joins(first, SetterOperands::default(), c, 1);
            [Equal, Signed, Unsigned, OneFlag].map(joins)
        };
        let (all, ordered, none) = ([true; 4], [true, true, true, false], [false; 4]);
        for (fusion, wanted) in [
            (Fusion::None, [none; 6]),
            (Fusion::Compares, [ordered, all, none, none, none, none]),
            (Fusion::SandyBridge, [ordered, all, all, ordered, [true, true, false, false], none]),
            (Fusion::Zen, [all, all, none, none, none, none]),
            (Fusion::Zen3, [all, all, all, all, [true, true, false, true], all]),
        ] {
            let found = [Compare, Test, And, Sum, Step, OrXor].map(|first| joined(fusion, first));
            assert_eq!(found, wanted, "{fusion:?}");
        }
    }

    #[test]
    fn operands_and_the_end_of_a_line_part_a_pair() {
        let plain = SetterOperands { memory: true, ..SetterOperands::default() };
        let joins = |fusion: Fusion, operands, at| {
            fusion.joins(FlagSetter::Compare, operands, Condition::Equal, at)
        };
        let constant = SetterOperands { immediate: true, ..plain };
        let far = SetterOperands { displacement: true, ..constant };
        for (fusion, operands, at, wanted) in [
            (Fusion::SandyBridge, plain, 1, true),
            (Fusion::SandyBridge, plain, 32, true),
            (Fusion::SandyBridge, plain, 64, false),
            (Fusion::SandyBridge, constant, 1, false),
            (Fusion::SandyBridge, SetterOperands { rip_relative: true, ..plain }, 1, false),
            (Fusion::Zen, constant, 64, true),
            (Fusion::Zen, far, 1, false),
            (Fusion::Zen3, SetterOperands { writes_memory: true, ..plain }, 1, false),
        ] {
            assert_eq!(joins(fusion, operands, at), wanted, "{fusion:?} {operands:?} {at}");
        }
    }
}
