//! What a loop that counts is left by: the comparison before its jump back.

use iced_x86::{ConditionCode, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};

use super::{general, wide_enough};
use crate::code::insn::Reg;

/// What a counter is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A number.
    Constant(i64),
    /// What a register holds.
    Register(Reg),
}

/// A loop goes round again while this holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The register that counts.
    pub counter: Reg,
    /// What it is held against.
    pub bound: Bound,
    /// How it compares then.
    pub goes_on: GoesOn,
}

/// How a counter compares with its bound while its loop goes round again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoesOn {
    /// Until it is reached.
    WhileDifferent,
    /// Until it is reached or passed.
    WhileBelow,
    /// Until it is passed.
    WhileNotAbove,
}

/// The limit that an instruction and the conditional jump behind it say, when the jump goes back.
#[must_use]
pub fn limit(before: &[u8], jump: &[u8]) -> Option<Limit> {
    let decode = |bytes| Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE).decode();
    let (before, jump): (Instruction, Instruction) = (decode(before), decode(jump));
    let goes_on = match jump.condition_code() {
        ConditionCode::ne => GoesOn::WhileDifferent,
        ConditionCode::l | ConditionCode::b => GoesOn::WhileBelow,
        ConditionCode::le | ConditionCode::be => GoesOn::WhileNotAbove,
        _ => return None,
    };
    if before.op0_kind() != OpKind::Register || !wide_enough(before.op0_register()) {
        return None;
    }
    let counter = general(before.op0_register())?;
    let bound = match before.mnemonic() {
        Mnemonic::Cmp if before.op1_kind() == OpKind::Register => {
            Bound::Register(general(before.op1_register())?)
        }
        Mnemonic::Cmp => Bound::Constant(before.try_immediate(1).ok()? as i64),
        Mnemonic::Add | Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec
            if goes_on == GoesOn::WhileDifferent =>
        {
            Bound::Constant(0)
        }
        _ => return None,
    };
    Some(Limit { counter, bound, goes_on })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_and_a_jump_say_how_long_a_loop_goes_on() {
        let (rax, rcx) = (Reg(0), Reg(1));
        let said = |before: &[u8], jump: u8| {
            limit(before, &[jump, 0xfe]).map(|l| (l.counter, l.bound, l.goes_on))
        };
        let constant = |n| Some((rax, Bound::Constant(n), GoesOn::WhileDifferent));
        // cmp eax, 16; jne, and cmp rax, -1; dec eax; add rax, 8
        assert_eq!(said(&[0x83, 0xf8, 0x10], 0x75), constant(16));
        assert_eq!(said(&[0x48, 0x83, 0xf8, 0xff], 0x75), constant(-1));
        assert_eq!(said(&[0xff, 0xc8], 0x75), constant(0));
        assert_eq!(said(&[0x48, 0x83, 0xc0, 0x08], 0x75), constant(0));
        // cmp rax, rcx; jb, and jle
        let held = |goes_on| Some((rax, Bound::Register(rcx), goes_on));
        assert_eq!(said(&[0x48, 0x39, 0xc8], 0x72), held(GoesOn::WhileBelow));
        assert_eq!(said(&[0x48, 0x39, 0xc8], 0x7e), held(GoesOn::WhileNotAbove));
        // je; dec eax; jl, which asks for the sign; cmp al, 16; cmp [rax], ecx; test eax, eax
        assert_eq!(said(&[0x83, 0xf8, 0x10], 0x74), None);
        assert_eq!(said(&[0xff, 0xc8], 0x7c), None);
        assert_eq!(said(&[0x3c, 0x10], 0x75), None);
        assert_eq!(said(&[0x39, 0x08], 0x75), None);
        assert_eq!(said(&[0x85, 0xc0], 0x75), None);
    }
}
