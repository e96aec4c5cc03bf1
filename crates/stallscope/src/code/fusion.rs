//! Which instructions the front end joins with the conditional jump behind them.

use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind};

/// Whether an x86-64 instruction can be fused with a conditional jump that follows: the compares and
/// simple arithmetic, not with a constant and memory at once.
#[must_use]
pub fn fuses_with_jump(bytes: &[u8]) -> bool {
    let raw = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
    let kind = match raw.mnemonic() {
        Mnemonic::Cmp | Mnemonic::Test => true,
        Mnemonic::Add | Mnemonic::Sub | Mnemonic::And | Mnemonic::Inc | Mnemonic::Dec => {
            raw.op0_kind() == OpKind::Register
        }
        _ => return false,
    };
    let has = |kind| (0..raw.op_count()).any(|i| raw.op_kind(i) == kind);
    let constant = (0..raw.op_count()).any(|i| raw.try_immediate(i).is_ok());
    kind && !(has(OpKind::Memory) && constant)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_fuse_and_moves_do_not() {
        assert!(fuses_with_jump(&[0x48, 0x39, 0xc8])); // cmp rax, rcx
        assert!(fuses_with_jump(&[0xff, 0xc9])); // dec ecx
        assert!(!fuses_with_jump(&[0x89, 0xc8])); // mov eax, ecx
        assert!(!fuses_with_jump(&[0x83, 0x3c, 0x24, 5])); // cmp dword [rsp], 5
        assert!(!fuses_with_jump(&[]));
    }
}
