//! A load written as several narrower ones: what a processor can forward where it cannot forward the whole.
//!
//! Stores that have not reached the cache serve a load only if one of them holds all of its bytes. The same
//! load in pieces, none of which reaches across the edge of a store, is served piece by piece. The pieces are
//! put together in registers without touching the flags: general registers by rotations and additions,
//! vector registers by insertions. A register that is needed beside the destination is saved on the stack,
//! below what the program may keep there without saying so.
//! Literature: H. Wong, "Store-to-Load Forwarding and Memory Disambiguation in x86 Processors" (2014).

use std::collections::BTreeMap;
use std::ops::Range;

use iced_x86::{
    Code, EncodingKind, Instruction, InstructionInfoFactory, MemoryOperand, OpAccess, OpKind,
    Register,
};

use super::super::Image;
use super::frame::{frame_bytes, framed};
use super::patch::{Patch, PatchError};
use crate::model::Svma;

/// Registers that are borrowed, those first that compilers use last.
const GENERAL: [Register; 13] = [
    Register::R11,
    Register::R10,
    Register::R9,
    Register::R8,
    Register::R15,
    Register::R14,
    Register::R13,
    Register::R12,
    Register::RBX,
    Register::RDI,
    Register::RSI,
    Register::RCX,
    Register::RDX,
];
const VECTOR: [Register; 16] = [
    Register::XMM15,
    Register::XMM14,
    Register::XMM13,
    Register::XMM12,
    Register::XMM11,
    Register::XMM10,
    Register::XMM9,
    Register::XMM8,
    Register::XMM7,
    Register::XMM6,
    Register::XMM5,
    Register::XMM4,
    Register::XMM3,
    Register::XMM2,
    Register::XMM1,
    Register::XMM0,
];

/// Loads of `image`, each with the bytes of the pieces that it is to be taken apart into, a power of two: the
/// control, which takes the same detours and loads as before, and the loads in pieces.
///
/// # Errors
/// When one of them cannot be replaced; the address tells which.
pub fn split_loads(
    image: &Image,
    loads: &BTreeMap<Svma, u32>,
) -> Result<[Patch; 2], (Svma, PatchError)> {
    let sites: Vec<Svma> = loads.keys().copied().collect();
    let patch = |rewrite: fn(&Instruction, u32) -> Result<Vec<Instruction>, PatchError>| {
        Patch::of(image, &sites, &|insn| {
            rewrite(insn, loads.get(&Svma(insn.ip())).copied().unwrap_or(0))
        })
    };
    Ok([patch(unsplit)?, patch(split)?])
}

/// The same load in pieces.
fn split(insn: &Instruction, piece_bytes: u32) -> Result<Vec<Instruction>, PatchError> {
    let load = taken_apart(insn, piece_bytes)?;
    framed(&load.borrowed, load.is_vex, load.into)
}

/// The same load, with the same saving of registers around it as in [`split`].
fn unsplit(insn: &Instruction, piece_bytes: u32) -> Result<Vec<Instruction>, PatchError> {
    let load = taken_apart(insn, piece_bytes)?;
    let mut whole = *insn;
    if load.lowered() != 0 && whole.memory_base() == Register::RSP {
        let displacement = whole.memory_displacement64().wrapping_add_signed(load.lowered());
        whole.set_memory_displacement64(displacement);
        whole.set_memory_displ_size(8);
    }
    framed(&load.borrowed, load.is_vex, vec![whole])
}

fn taken_apart(insn: &Instruction, piece_bytes: u32) -> Result<Load<'_>, PatchError> {
    let load = Load::of(insn)?;
    if piece_bytes == 0 {
        return no_way("no edge of a store lies inside it");
    }
    if load.bytes % piece_bytes != 0 || piece_bytes >= load.bytes {
        return no_way("its pieces do not make up the whole");
    }
    load.in_pieces(piece_bytes)
}

/// A load to be taken apart.
struct Load<'a> {
    insn: &'a Instruction,
    bytes: u32,
    /// Which operand is the memory.
    operand: u32,
    is_vex: bool,
    /// The destination, if the instruction does nothing but load it.
    destination: Option<Register>,
    /// Registers that are needed beside the destination.
    borrowed: Vec<Register>,
    /// The load in pieces, with the stack pointer lowered for what is borrowed.
    into: Vec<Instruction>,
}

fn no_way<T>(why: &'static str) -> Result<T, PatchError> {
    Err(PatchError::NoOtherWay(why))
}

impl<'a> Load<'a> {
    fn of(insn: &'a Instruction) -> Result<Self, PatchError> {
        let mut operands = (0..insn.op_count()).filter(|n| insn.op_kind(*n) == OpKind::Memory);
        let Some(operand) = operands.next() else {
            return no_way("it has no plain operand in memory");
        };
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(insn);
        if info.used_memory().iter().any(|used| used.access() != OpAccess::Read) {
            return no_way("it does more with memory than to load");
        }
        if insn.flow_control() != iced_x86::FlowControl::Next || insn.has_rep_prefix() {
            return no_way("it decides where the program goes on");
        }
        let uses = |register: Register| {
            info.used_registers().iter().any(|used| used.register() == register)
        };
        let stack =
            insn.op_register(0).full_register() == Register::RSP || insn.is_stack_instruction();
        if stack || uses(Register::FS) || uses(Register::GS) {
            return no_way("it uses the stack pointer or another segment");
        }
        if insn.memory_base().is_gpr32() || insn.memory_index().is_gpr32() || insn.is_vsib() {
            return no_way("its address has 32 bits or is one of many");
        }
        let is_vex = match insn.encoding() {
            EncodingKind::Legacy => false,
            EncodingKind::VEX => true,
            _ => return no_way("it is encoded for 512-bit registers"),
        };
        let bytes = insn.memory_size().size() as u32;
        if !matches!(bytes, 2 | 4 | 8 | 16 | 32) || insn.is_broadcast() {
            return no_way("its width is no power of two from 2 to 32 bytes");
        }
        let destination = is_move(insn).then(|| insn.op0_register());
        Ok(Self {
            insn,
            bytes,
            operand,
            is_vex,
            destination,
            borrowed: Vec::new(),
            into: Vec::new(),
        })
    }

    fn memory(&self, offset: u32) -> Result<MemoryOperand, PatchError> {
        let insn = self.insn;
        let mut displacement = insn.memory_displacement64() as i64 + i64::from(offset);
        if insn.memory_base() == Register::RSP {
            displacement += self.lowered();
        }
        if !insn.is_ip_rel_memory_operand() && i32::try_from(displacement).is_err() {
            return no_way("its displacement is too large");
        }
        // As small as it can be.
        let size = if insn.memory_base() == Register::None { 8 } else { 1 };
        Ok(MemoryOperand::new(
            insn.memory_base(),
            insn.memory_index(),
            insn.memory_index_scale(),
            displacement,
            size,
            false,
            Register::None,
        ))
    }

    fn put(&mut self, insn: Result<Instruction, iced_x86::IcedError>) -> Result<(), PatchError> {
        self.into.push(insn.or(no_way("an instruction cannot be built"))?);
        Ok(())
    }

    /// Registers that the instruction does not mention.
    fn free(&self, of: &[Register], count: usize) -> Result<Vec<Register>, PatchError> {
        let mut factory = InstructionInfoFactory::new();
        let used: Vec<Register> = factory
            .info(self.insn)
            .used_registers()
            .iter()
            .map(|used| used.register().full_register())
            .collect();
        let is_free = |register: &&Register| !used.contains(&register.full_register());
        let found: Vec<Register> = of.iter().filter(is_free).take(count).copied().collect();
        if found.len() == count { Ok(found) } else { no_way("no register is free") }
    }

    /// What the stack pointer is lowered by where the pieces are read.
    fn lowered(&self) -> i64 {
        frame_bytes(self.borrowed.len())
    }

    fn in_pieces(mut self, piece: u32) -> Result<Self, PatchError> {
        match self.destination {
            Some(register) if register.is_gpr() => self.general(register, piece)?,
            Some(register) if register.is_xmm() || register.is_ymm() => {
                let extra = usize::from(self.bytes == 32 && piece < 16);
                self.borrowed = self.free(&VECTOR, extra)?;
                let half = self.borrowed.first().copied();
                self.assemble_vector(register, piece, half)?;
            }
            _ => self.beside(piece)?,
        }
        Ok(self)
    }

    /// All that the instruction does is to load a general register.
    fn general(&mut self, register: Register, piece: u32) -> Result<(), PatchError> {
        let into = register.full_register();
        // A part of the address is needed until the last piece is loaded.
        let in_address = [self.insn.memory_base(), self.insn.memory_index()].contains(&into);
        let borrowed = self.free(&GENERAL, self.parts(piece) + usize::from(in_address))?;
        let sum = if in_address { borrowed[borrowed.len() - 1] } else { into };
        self.borrowed.clone_from(&borrowed);
        self.assemble(into, sum, &borrowed, piece)
    }

    /// Registers that pieces go through on their way to the sum.
    fn parts(&self, piece: u32) -> usize {
        if self.bytes / piece >= 4 { 2 } else { 1 }
    }

    /// Loads the pieces by way of `parts`, the upper half of many beside the lower one, and adds them up in
    /// `sum`, in the end in `into`.
    fn assemble(
        &mut self,
        into: Register,
        sum: Register,
        parts: &[Register],
        piece: u32,
    ) -> Result<(), PatchError> {
        let pieces = self.bytes / piece;
        let lower = pieces / 2;
        let low = if lower > 1 { parts[1] } else { parts[0] };
        self.add_up(sum, parts[0], lower..pieces, piece)?;
        self.add_up(low, parts[0], 0..lower, piece)?;
        self.shift(sum, lower * piece)?;
        self.put(Instruction::with2(
            Code::Lea_r64_m,
            into,
            MemoryOperand::with_base_index(sum, low),
        ))
    }

    /// Some pieces that stand one behind the other, into `sum` by way of `part`.
    fn add_up(
        &mut self,
        sum: Register,
        part: Register,
        pieces: Range<u32>,
        piece: u32,
    ) -> Result<(), PatchError> {
        let code = match piece {
            1 => Code::Movzx_r32_rm8,
            2 => Code::Movzx_r32_rm16,
            _ => Code::Mov_r32_rm32,
        };
        let low = |register: Register| Register::EAX + register.number() as u32;
        let last = pieces.end - 1;
        let memory = self.memory(last * piece)?;
        self.put(Instruction::with2(code, low(sum), memory))?;
        for n in (pieces.start..last).rev() {
            self.shift(sum, piece)?;
            let memory = self.memory(n * piece)?;
            self.put(Instruction::with2(code, low(part), memory))?;
            let both = MemoryOperand::with_base_index(sum, part);
            self.put(Instruction::with2(Code::Lea_r64_m, sum, both))?;
        }
        Ok(())
    }

    /// Up by so many bytes, with the flags left alone: what is rotated out at the top is zero.
    fn shift(&mut self, register: Register, bytes: u32) -> Result<(), PatchError> {
        let right = 64 - 8 * bytes as i32;
        self.put(Instruction::with3(Code::VEX_Rorx_r64_rm64_imm8, register, register, right))
    }

    /// Puts the bytes into a vector register; the upper half of one of 32 bytes by way of `half`.
    fn assemble_vector(
        &mut self,
        into: Register,
        piece: u32,
        half: Option<Register>,
    ) -> Result<(), PatchError> {
        let number = into.number() as u32;
        let low = Register::XMM0 + number;
        if self.bytes < 32 {
            return self.assemble_half(low, piece, 0, self.bytes);
        }
        let whole = Register::YMM0 + number;
        let insert = Code::VEX_Vinsertf128_ymm_ymm_xmmm128_imm8;
        match half {
            None => {
                let memory = self.memory(0)?;
                self.put(Instruction::with2(Code::VEX_Vmovups_xmm_xmmm128, low, memory))?;
                let memory = self.memory(16)?;
                self.put(Instruction::with4(insert, whole, whole, memory, 1))
            }
            Some(half) => {
                self.assemble_half(half, piece, 16, 16)?;
                self.assemble_half(low, piece, 0, 16)?;
                self.put(Instruction::with4(insert, whole, whole, half, 1))
            }
        }
    }

    fn assemble_half(
        &mut self,
        into: Register,
        piece: u32,
        at: u32,
        bytes: u32,
    ) -> Result<(), PatchError> {
        let vex = self.is_vex;
        let pick = |legacy, other| if vex { other } else { legacy };
        let first = match piece {
            8 => Some(pick(Code::Movq_xmm_xmmm64, Code::VEX_Vmovq_xmm_xmmm64)),
            4 => Some(pick(Code::Movd_xmm_rm32, Code::VEX_Vmovd_xmm_rm32)),
            _ => None,
        };
        match (first, vex) {
            (Some(code), _) => {
                let memory = self.memory(at)?;
                self.put(Instruction::with2(code, into, memory))?;
            }
            (None, false) => self.put(Instruction::with2(Code::Pxor_xmm_xmmm128, into, into))?,
            (None, true) => {
                self.put(Instruction::with3(Code::VEX_Vpxor_xmm_xmm_xmmm128, into, into, into))?;
            }
        }
        let insert = match piece {
            8 => pick(Code::Movhpd_xmm_m64, Code::VEX_Vmovhpd_xmm_xmm_m64),
            4 => pick(Code::Pinsrd_xmm_rm32_imm8, Code::VEX_Vpinsrd_xmm_xmm_rm32_imm8),
            2 => pick(Code::Pinsrw_xmm_r32m16_imm8, Code::VEX_Vpinsrw_xmm_xmm_r32m16_imm8),
            _ => pick(Code::Pinsrb_xmm_r32m8_imm8, Code::VEX_Vpinsrb_xmm_xmm_r32m8_imm8),
        };
        for n in u32::from(first.is_some())..bytes / piece {
            let memory = self.memory(at + n * piece)?;
            self.put(match (piece, vex) {
                (8, false) => Instruction::with2(insert, into, memory),
                (8, true) => Instruction::with3(insert, into, into, memory),
                (_, false) => Instruction::with3(insert, into, memory, n as i32),
                (_, true) => Instruction::with4(insert, into, into, memory, n as i32),
            })?;
        }
        Ok(())
    }

    /// The instruction computes with what it loads: that goes into a register first.
    fn beside(&mut self, piece: u32) -> Result<(), PatchError> {
        // What takes an integer from memory takes it from a general register, what takes a part of a vector
        // from a vector register; the encoder knows which.
        let part = match self.bytes {
            2 => Some(Register::AX),
            4 => Some(Register::EAX),
            8 => Some(Register::RAX),
            _ => None,
        };
        if let Some(part) = part {
            let borrowed = self.free(&GENERAL, 1 + self.parts(piece))?;
            let in_register = self.with_register(part + borrowed[0].number() as u32);
            if encodes(&in_register) {
                self.borrowed.clone_from(&borrowed);
                self.assemble(borrowed[0], borrowed[0], &borrowed[1..], piece)?;
                self.into.push(in_register);
                return Ok(());
            }
        }
        let borrowed = self.free(&VECTOR, if self.bytes == 32 && piece < 16 { 2 } else { 1 })?;
        let part = if self.bytes == 32 { Register::YMM0 } else { Register::XMM0 };
        let in_register = self.with_register(part + borrowed[0].number() as u32);
        if !encodes(&in_register) {
            return no_way("it takes its operand from memory only");
        }
        self.borrowed.clone_from(&borrowed);
        self.assemble_vector(borrowed[0], piece, borrowed.get(1).copied())?;
        self.into.push(in_register);
        Ok(())
    }

    /// The instruction with a register in the place of its memory.
    fn with_register(&self, register: Register) -> Instruction {
        let mut insn = *self.insn;
        insn.set_op_kind(self.operand, OpKind::Register);
        insn.set_op_register(self.operand, register);
        insn.set_ip(0);
        insn
    }
}

/// Whether all that it does is to load a register whole.
fn is_move(insn: &Instruction) -> bool {
    use Code::*;
    matches!(
        insn.code(),
        Mov_r64_rm64
            | Mov_r32_rm32
            | Movd_xmm_rm32
            | Movq_xmm_xmmm64
            | Movq_xmm_rm64
            | Movss_xmm_xmmm32
            | Movsd_xmm_xmmm64
            | Movups_xmm_xmmm128
            | Movaps_xmm_xmmm128
            | Movupd_xmm_xmmm128
            | Movapd_xmm_xmmm128
            | Movdqu_xmm_xmmm128
            | Movdqa_xmm_xmmm128
            | Lddqu_xmm_m128
            | VEX_Vmovd_xmm_rm32
            | VEX_Vmovq_xmm_xmmm64
            | VEX_Vmovq_xmm_rm64
            | VEX_Vmovss_xmm_m32
            | VEX_Vmovsd_xmm_m64
            | VEX_Vmovups_xmm_xmmm128
            | VEX_Vmovaps_xmm_xmmm128
            | VEX_Vmovupd_xmm_xmmm128
            | VEX_Vmovapd_xmm_xmmm128
            | VEX_Vmovdqu_xmm_xmmm128
            | VEX_Vmovdqa_xmm_xmmm128
            | VEX_Vlddqu_xmm_m128
            | VEX_Vmovups_ymm_ymmm256
            | VEX_Vmovaps_ymm_ymmm256
            | VEX_Vmovupd_ymm_ymmm256
            | VEX_Vmovapd_ymm_ymmm256
            | VEX_Vmovdqu_ymm_ymmm256
            | VEX_Vmovdqa_ymm_ymmm256
            | VEX_Vlddqu_ymm_m256
    )
}

fn encodes(insn: &Instruction) -> bool {
    iced_x86::Encoder::new(64).encode(insn, 0).is_ok()
}

#[cfg(test)]
mod tests {
    use iced_x86::{BlockEncoder, BlockEncoderOptions, Decoder, DecoderOptions, InstructionBlock};

    use super::*;
    use crate::code::x86;

    /// What an instruction becomes, as text, or why it stays.
    fn pieces(bytes: &[u8], piece_bytes: u32) -> String {
        let insn = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode();
        let mut insns = match split(&insn, piece_bytes) {
            Ok(insns) => insns,
            Err(why) => return why.to_string(),
        };
        insns.iter_mut().for_each(|insn| insn.set_ip(0));
        let block = InstructionBlock::new(&insns, 0x2000);
        let code = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).unwrap().code_buffer;
        let decoded = Decoder::with_ip(64, &code, 0x2000, DecoderOptions::NONE);
        let text = |insn: Instruction| {
            let at = (insn.ip() - 0x2000) as usize;
            x86::text(&code[at..at + insn.len()], Svma(insn.ip()))
        };
        decoded.into_iter().map(text).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn loads_in_pieces() {
        let cases: &[(&str, &[u8], u32)] = &[
            ("mov rax, [rdi+8]", &[0x48, 0x8b, 0x47, 0x08], 4),
            ("mov rdi, [rdi+rsi*8], 2 bytes", &[0x48, 0x8b, 0x3c, 0xf7], 2),
            ("mov eax, [rip+0x100]", &[0x8b, 0x05, 0x00, 0x01, 0x00, 0x00], 2),
            ("add rax, [rsp+16]", &[0x48, 0x03, 0x44, 0x24, 0x10], 4),
            ("cmp [rdi], ecx", &[0x39, 0x0f], 2),
            ("movq xmm0, [rsp+r9*8-16]", &[0xf3, 0x42, 0x0f, 0x7e, 0x44, 0xcc, 0xf0], 4),
            ("movups xmm1, [rdi]", &[0x0f, 0x10, 0x0f], 8),
            ("movdqu xmm1, [rdi], 1 byte", &[0xf3, 0x0f, 0x6f, 0x0f], 1),
            ("paddd xmm1, [rdi]", &[0x66, 0x0f, 0xfe, 0x0f], 4),
            ("addsd xmm1, [rdi]", &[0xf2, 0x0f, 0x58, 0x0f], 4),
            ("vmovdqu ymm2, [rsp]", &[0xc5, 0xfe, 0x6f, 0x14, 0x24], 16),
            ("vmovdqu ymm2, [rsp], 8 bytes", &[0xc5, 0xfe, 0x6f, 0x14, 0x24], 8),
            ("vaddps xmm2, xmm3, [rdi]", &[0xc5, 0xe0, 0x58, 0x17], 8),
        ];
        let text = |(name, bytes, piece): &(&str, &[u8], u32)| {
            format!("# {name}\n{}\n", pieces(bytes, *piece))
        };
        insta::assert_snapshot!(cases.iter().map(text).collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn what_cannot_be_taken_apart_stays() {
        let why = |bytes: &[u8]| pieces(bytes, 4);
        assert!(why(&[0x48, 0x01, 0x07]).contains("more with memory"), "add [rdi], rax");
        assert!(why(&[0xff, 0x27]).contains("where the program goes"), "jmp [rdi]");
        assert!(why(&[0xff, 0x37]).contains("more with memory"), "push [rdi]");
        assert!(why(&[0x48, 0x8b, 0x20]).contains("stack pointer"), "mov rsp, [rax]");
        assert!(why(&[0x64, 0x48, 0x8b, 0x00]).contains("segment"), "mov rax, fs:[rax]");
        assert!(why(&[0x67, 0x48, 0x8b, 0x00]).contains("32 bits"), "mov rax, [eax]");
        assert!(why(&[0x48, 0x89, 0xc8]).contains("no plain operand"), "mov rax, rcx");
        assert!(why(&[0x8b, 0x07]).contains("do not make up"), "mov eax, [rdi] in fours");
        let wide = [0x62, 0xf1, 0xfe, 0x48, 0x6f, 0x07];
        assert!(why(&wide).contains("512"), "vmovdqu64 zmm0, [rdi]: {}", why(&wide));
        assert!(pieces(&[0x48, 0x8b, 0x07], 0).contains("no edge"));
    }
}
