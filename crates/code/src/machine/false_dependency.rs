//! False dependencies: instructions that wait for what their destination held, though their result does not need it.
//!
//! **Effect.** A conversion or a root in the lowest lane of a vector register keeps the other lanes, so it waits for whatever
//! wrote them last. Some cores treat the destination of bit counts or permutations as an operand without any reason. In a
//! loop that writes the same register each turn, turns that have nothing to do with one another become a chain. **Sign.** A
//! loop takes the latency of the instruction each turn; a zeroing of its destination in front of it, or another destination,
//! takes that away. **Literature.** Intel errata HSD146 and SKL029; A. Abel and J. Reineke, "uops.info"; the tuning flags of
//! gcc (`AVOID_FALSE_DEP_FOR_BMI`, `DEST_FALSE_DEP_FOR_GLC`) and LLVM (`false-deps-*`).

use iced_x86::{EncodingKind, Instruction, Mnemonic as I, OpKind, Register};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::known::Microarchitecture as M;

/// Instructions that wait for their destination alike, where a core lets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FalseDependency {
    /// Conversions and approximations in the lowest lane of a vector register.
    Conversion,
    /// Rounding there.
    Rounding,
    /// Square roots there.
    Root,
    /// `popcnt`.
    BitCount,
    /// `tzcnt` and `lzcnt`.
    ZeroCount,
    /// `vpermd`, `vpermq`, `vpermps` and `vpermpd`, whose results hold nothing else.
    Permutation,
}

impl FalseDependency {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Conversion,
        Self::Rounding,
        Self::Root,
        Self::BitCount,
        Self::ZeroCount,
        Self::Permutation,
    ];

    /// Which of them an instruction is, and the register whose old value it may wait for; `None` where it reads that
    /// register as an operand, too.
    ///
    /// ```
    /// use iced_x86::{Decoder, DecoderOptions, Register};
    /// use stallscope_code::machine::FalseDependency;
    ///
    /// let of = |code: &[u8]| FalseDependency::of(&Decoder::new(64, code, DecoderOptions::NONE).decode());
    /// // popcnt rax, rcx
    /// assert_eq!(of(&[0xf3, 0x48, 0x0f, 0xb8, 0xc1]), Some((FalseDependency::BitCount, Register::RAX)));
    /// // popcnt rax, rax
    /// assert_eq!(of(&[0xf3, 0x48, 0x0f, 0xb8, 0xc0]), None);
    /// ```
    #[must_use]
    pub fn of(raw: &Instruction) -> Option<(Self, Register)> {
        let kind = Self::kind(raw).filter(|_| raw.op_mask() == Register::None)?;
        // In the newer encodings the other lanes come from the second operand.
        let keeps_second = kind.keeps_lanes() && raw.encoding() != EncodingKind::Legacy;
        let held = raw.op_register(keeps_second.into()).full_register();
        let mut sources = u32::from(keeps_second) + 1..raw.op_count();
        let is_source = |operand| {
            raw.op_kind(operand) == OpKind::Register
                && raw.op_register(operand).full_register() == held
        };
        let is_address = |register: Register| register.full_register() == held;
        let is_needed = sources.any(is_source)
            || is_address(raw.memory_base())
            || is_address(raw.memory_index());
        (!is_needed).then_some((kind, held))
    }

    /// Whether the result has all lanes but one from the destination, on every core.
    pub(crate) fn keeps_lanes(self) -> bool {
        matches!(self, Self::Conversion | Self::Rounding | Self::Root)
    }

    /// What the mnemonic says. `cvtsd2ss`, and `cvtsi2ss` of 64 bits, keep lanes, too, but take 1 and 2 cycles from one to the
    /// next (measured on Redwood Cove): their last operation alone waits.
    fn kind(raw: &Instruction) -> Option<Self> {
        Some(match raw.mnemonic() {
            I::Cvtsi2ss | I::Vcvtsi2ss | I::Vcvtusi2ss
                if raw.op_register(raw.op_count() - 1).size() == 8
                    || raw.memory_size().size() == 8 =>
            {
                return None;
            }
            I::Cvtsi2sd
            | I::Vcvtsi2sd
            | I::Vcvtusi2sd
            | I::Cvtsi2ss
            | I::Vcvtsi2ss
            | I::Vcvtusi2ss
            | I::Cvtss2sd
            | I::Vcvtss2sd
            | I::Rcpss
            | I::Vrcpss
            | I::Rsqrtss
            | I::Vrsqrtss => Self::Conversion,
            I::Roundss
            | I::Roundsd
            | I::Vroundss
            | I::Vroundsd
            | I::Vrndscaless
            | I::Vrndscalesd => Self::Rounding,
            I::Sqrtss | I::Sqrtsd | I::Vsqrtss | I::Vsqrtsd => Self::Root,
            I::Popcnt => Self::BitCount,
            I::Tzcnt | I::Lzcnt => Self::ZeroCount,
            I::Vpermd | I::Vpermq | I::Vpermps | I::Vpermpd => Self::Permutation,
            _ => return None,
        })
    }

    /// What a design takes from what its destination held to the result, core cycles; 0 where it does not wait.
    pub(super) fn table(design: M) -> [u8; Self::ALL.len()] {
        let is = |first, last, cycles| if (first..=last).contains(&design) { cycles } else { 0 };
        let is_zen = (M::Zen1..=M::Zen5).contains(&design);
        Self::ALL.map(|kind| match kind {
            // Measured on Redwood Cove; on Zen what the instruction itself takes (uops.info).
            Self::Conversion => {
                if is_zen {
                    3
                } else {
                    4
                }
            }
            Self::Rounding => {
                if is_zen {
                    3
                } else {
                    8
                }
            }
            Self::Root => {
                if is_zen {
                    20
                } else {
                    13
                }
            }
            Self::BitCount => is(M::Nehalem, M::CascadeLake, 3),
            Self::ZeroCount => is(M::Nehalem, M::Broadwell, 3),
            // Not on Redwood Cove (measured).
            Self::Permutation => is(M::GoldenCove, M::GoldenCove, 3),
        })
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;
    use crate::machine::Design;

    fn of(code: &[u8]) -> Option<(FalseDependency, Register)> {
        FalseDependency::of(&Decoder::new(64, code, DecoderOptions::NONE).decode())
    }

    #[test]
    fn a_register_that_is_an_operand_is_no_false_dependency() {
        use FalseDependency as F;
        let zmm0 = Register::ZMM0;
        type Case = (&'static [u8], Option<(F, Register)>);
        let cases: &[Case] = &[
            (&[0xf2, 0x0f, 0x2a, 0xc1], Some((F::Conversion, zmm0))), // cvtsi2sd xmm0, ecx
            (&[0xf3, 0x48, 0x0f, 0x2a, 0xc1], None),                  // cvtsi2ss xmm0, rcx
            (&[0xf3, 0x0f, 0x2a, 0xc1], Some((F::Conversion, zmm0))), // cvtsi2ss xmm0, ecx
            (&[0xf2, 0x0f, 0x5a, 0xc1], None),                        // cvtsd2ss xmm0, xmm1
            (&[0xf2, 0x0f, 0x51, 0xc1], Some((F::Root, zmm0))),       // sqrtsd xmm0, xmm1
            (&[0xf2, 0x0f, 0x51, 0xc0], None),                        // sqrtsd xmm0, xmm0
            // roundsd xmm0, xmm1, 1
            (&[0x66, 0x0f, 0x3a, 0x0b, 0xc1, 1], Some((F::Rounding, zmm0))),
            // vsqrtsd xmm1, xmm0, xmm2: the second operand is kept
            (&[0xc5, 0xfb, 0x51, 0xca], Some((F::Root, zmm0))),
            (&[0xc5, 0xeb, 0x51, 0xca], None), // vsqrtsd xmm1, xmm2, xmm2
            (&[0xc4, 0xe2, 0x75, 0x36, 0xc2], Some((F::Permutation, zmm0))), // vpermd ymm0, ymm1, ymm2
            (&[0xc4, 0xe2, 0x7d, 0x36, 0xc2], None), // vpermd ymm0, ymm0, ymm2
            (&[0xf3, 0x0f, 0xbc, 0xc1], Some((F::ZeroCount, Register::RAX))), // tzcnt eax, ecx
            (&[0xf3, 0x0f, 0xb8, 0x00], None),       // popcnt eax, [rax]
            (&[0xf2, 0x0f, 0x58, 0xc1], None),       // addsd xmm0, xmm1
        ];
        for (code, wanted) in cases {
            assert_eq!(of(code), *wanted, "{code:x?}");
        }
    }

    #[test]
    fn who_waits_is_up_to_the_design() {
        let wait = |design, kind| Design::of(design).core().value.false_dependency_cycles(kind);
        use FalseDependency as F;
        assert_eq!(wait(M::CascadeLake, F::BitCount), 3);
        assert_eq!(wait(M::CascadeLake, F::ZeroCount), 0);
        assert_eq!(wait(M::Haswell, F::ZeroCount), 3);
        assert_eq!((wait(M::SunnyCove, F::BitCount), wait(M::Zen4, F::BitCount)), (0, 0));
        assert_eq!([M::GoldenCove, M::RedwoodCove].map(|d| wait(d, F::Permutation)), [3, 0]);
        assert!(M::ALL.iter().all(|design| wait(*design, F::Root) > 0));
    }
}
