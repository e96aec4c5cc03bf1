//! Jumps, each together with the instruction that the front end fuses with it.
//!
//! The one place that asks a design's table of macro-fusion ([`Fusion`]): the static rule, the layout
//! and the models of a run all count what [`jumps`] gives, so that they cannot disagree about one loop.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use crate::machine::{Fusion, JUMP_BOUNDARY_BYTES};
use crate::model::Svma;

/// A jump, call or return, together with what the decoder fuses with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// First byte, of the fused instruction if there is one.
    pub start: Svma,
    /// The jump itself.
    pub insn: Svma,
    /// The address behind it.
    pub end: Svma,
}

impl Jump {
    /// Whether it crosses a 32-byte boundary or ends at one.
    #[must_use]
    pub fn is_on_boundary(self) -> bool {
        self.start.0 / JUMP_BOUNDARY_BYTES != self.end.0 / JUMP_BOUNDARY_BYTES
    }
}

/// All jumps of a stretch of code, in order. `start` is where it stands, in the file or in a process.
#[must_use]
pub fn jumps(bytes: &[u8], start: Svma, fusion: Fusion) -> Vec<Jump> {
    let mut decoder = Decoder::with_ip(64, bytes, start.0, DecoderOptions::NONE);
    let (mut raw, mut previous) = (Instruction::default(), Instruction::default());
    let mut found = Vec::new();
    while decoder.can_decode() {
        decoder.decode_out(&mut raw);
        if is_jump(&raw) {
            let first = if fusion.joins(&previous, &raw) { previous.ip() } else { raw.ip() };
            let (insn, end) = (Svma(raw.ip()), Svma(raw.next_ip()));
            found.push(Jump { start: Svma(first), insn, end });
        }
        std::mem::swap(&mut previous, &mut raw);
    }
    found
}

fn is_jump(raw: &Instruction) -> bool {
    let goes = !matches!(
        raw.flow_control(),
        FlowControl::Next | FlowControl::Interrupt | FlowControl::Exception
    );
    goes && !matches!(raw.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_starts_with_what_is_fused_with_it() {
        // cmp eax, ecx; jne; cmp dword [rsp], 5; jrcxz; call rax; syscall; ret
        let code = [0x39, 0xc8, 0x75, 0, 0x83, 0x3c, 0x24, 5, 0xe3, 0, 0xff, 0xd0, 0x0f, 5, 0xc3];
        let found = jumps(&code, Svma(0x101d), Fusion::SandyBridge);
        let places: Vec<_> = found
            .iter()
            .map(|j| (j.start.0 - 0x101d, j.insn.0 - 0x101d, j.is_on_boundary()))
            .collect();
        let wanted = [(0, 2, true), (8, 8, false), (10, 10, false), (14, 14, false)];
        assert_eq!(places, wanted);
    }
}
