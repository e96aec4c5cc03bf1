//! Jumps, each together with the instruction that the front end fuses with it.
//!
//! The one place that asks a design's table of macro-fusion ([`Fusion`]): the static rule, the layout
//! and the models of a run all count what [`jumps`] gives, so that they cannot disagree about one loop.

use iced_x86::{
    ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind,
};

use crate::machine::{Condition, FlagSetter, Fusion, JUMP_BOUNDARY_BYTES, SetterOperands};
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
            let first = if fuses(&previous, &raw, fusion) { previous.ip() } else { raw.ip() };
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

fn fuses(first: &Instruction, jump: &Instruction, fusion: Fusion) -> bool {
    let (Some(setter), Some(condition)) = (setter(first), condition(jump)) else { return false };
    let memory = (0..first.op_count()).any(|i| first.op_kind(i) == OpKind::Memory);
    let compares = matches!(setter, FlagSetter::Compare | FlagSetter::Test);
    let operands = SetterOperands {
        memory,
        writes_memory: memory && !compares && first.op0_kind() == OpKind::Memory,
        rip_relative: first.is_ip_rel_memory_operand(),
        displacement: memory && first.memory_displ_size() > 0,
        immediate: (0..first.op_count()).any(|i| first.try_immediate(i).is_ok()),
    };
    fusion.joins(setter, operands, condition, jump.ip())
}

fn setter(insn: &Instruction) -> Option<FlagSetter> {
    Some(match insn.mnemonic() {
        Mnemonic::Cmp => FlagSetter::Compare,
        Mnemonic::Test => FlagSetter::Test,
        Mnemonic::And => FlagSetter::And,
        Mnemonic::Add | Mnemonic::Sub => FlagSetter::Sum,
        Mnemonic::Inc | Mnemonic::Dec => FlagSetter::Step,
        Mnemonic::Or | Mnemonic::Xor => FlagSetter::OrXor,
        _ => return None,
    })
}

/// Of jumps that ask flags only: not of `jrcxz` and `loop`.
fn condition(jump: &Instruction) -> Option<Condition> {
    use ConditionCode as C;
    if !jump.is_jcc_short_or_near() {
        return None;
    }
    Some(match jump.condition_code() {
        C::e | C::ne => Condition::Equal,
        C::l | C::ge | C::le | C::g => Condition::Signed,
        C::b | C::ae | C::be | C::a => Condition::Unsigned,
        C::s | C::ns | C::o | C::no | C::p | C::np => Condition::OneFlag,
        C::None => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether what stands in front of a conditional jump is fused with it.
    fn joined(first: &[u8], jcc: u8) -> bool {
        let code = [first, &[jcc, 0]].concat();
        let found = jumps(&code, Svma(0x1001), Fusion::SandyBridge);
        let [jump] = found.as_slice() else { panic!("{found:?}") };
        jump.start != jump.insn
    }

    #[test]
    fn instructions_are_read_as_the_table_asks() {
        let (js, jne, jb) = (0x78, 0x75, 0x72);
        for (first, jcc, wanted) in [
            (&[0x48, 0x39, 0xc8][..], jne, true),    // cmp rax, rcx
            (&[0x48, 0x39, 0xc8], js, false),        // a sign that cmp does not give
            (&[0x85, 0xc0], js, true),               // test eax, eax
            (&[0x39, 0x08], jne, true),              // cmp [rax], ecx
            (&[0x83, 0x3c, 0x24, 5], jne, false),    // cmp dword [rsp], 5
            (&[0x39, 0x0d, 0, 1, 0, 0], jne, false), // cmp [rip+256], ecx
            (&[0xff, 0xc9], jne, true),              // dec ecx
            (&[0xff, 0xc9], jb, false),              // dec leaves the carry alone
            (&[0xff, 0x00], jne, false),             // inc dword [rax]
            (&[0x03, 0x08], jb, true),               // add ecx, [rax]
            (&[0x09, 0xc8], jne, false),             // or eax, ecx
            (&[0x89, 0xc8], jne, false),             // mov eax, ecx
        ] {
            assert_eq!(joined(first, jcc), wanted, "{first:02x?} {jcc:02x}");
        }
        assert!(!joined(&[0x39, 0xc8], 0xe3), "jrcxz asks no flags");
    }
}
