//! What an instruction is to the core: operands, class, where it may go.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfo,
    InstructionInfoFactory, Mnemonic as I, OpAccess, OpKind, Register,
};

use super::halves::{Halves, changes};
use super::memory_use::MemoryUse;
use super::microcode_use::MicrocodeUse;
use super::upper_halves::UpperUse;
use super::x87::StackUse;
use crate::code::x86::is_prefetch;
use crate::machine::{FalseDependency, OpClass};
use crate::model::Avma;

/// A set of registers, a bit each.
pub(super) type Registers = u64;
pub(super) const FLAGS: u32 = 57;
const MMX: u32 = 58;
/// How many registers the sets know.
pub(super) const REGISTERS: usize = 64;

/// Where an instruction may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// To the next one.
    On,
    /// A conditional jump.
    Either,
    /// A jump to a fixed place.
    Jump,
    /// A call of a fixed place.
    Call,
    /// A jump to a place that was computed.
    IndirectJump,
    /// A call of one.
    IndirectCall,
    /// To where the call came from.
    Return,
}

impl Flow {
    /// Whether it leads to a place that was computed.
    pub(super) fn is_indirect(self) -> bool {
        matches!(self, Self::IndirectJump | Self::IndirectCall)
    }
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Op {
    pub address: Avma,
    /// The instruction behind it.
    pub next: Avma,
    pub class: OpClass,
    pub flow: Flow,
    /// What the result needs.
    pub inputs: Registers,
    /// What its addresses need.
    pub addresses: Registers,
    /// Of these, the index where it is multiplied.
    pub scaled: Registers,
    pub outputs: Registers,
    /// Of these, what is there a cycle later: the upper half of a product of 64 bits (Intel's cores and Zen, uops.info; measured
    /// on Zen 4).
    pub late: Registers,
    /// Whether what it loads goes into a vector register, or what it stores comes from one.
    pub uses_vector: bool,
    /// Bytes of the vector register that it writes; 0 where it writes none.
    pub vector_bytes: u8,
    pub upper_halves: UpperUse,
    /// The register that it writes and may wait for, though its result does not need what that held.
    pub held: Option<(FalseDependency, u8)>,
    pub microcode: MicrocodeUse,
    /// Whether it multiplies and adds.
    pub multiplies_and_adds: bool,
    /// Whether the result is the loaded value itself, or the stored value the operand itself.
    pub only_moves: bool,
    /// Whether what it loads is filled up with its sign.
    pub has_sign: bool,
    /// Whether the result depends on nothing.
    pub zeroes: bool,
    /// Whether it is the second of two that the front end joins.
    pub joined: bool,
    /// Whether the operation that it is made with the jump behind it runs where jumps do.
    pub in_jump: bool,
    /// Whether it adds a small constant to a register of 64 bits.
    pub adds_constant: bool,
    pub memory: MemoryUse,
    /// What it loads whole, and the register that it changes by another one, as one operation where they follow on each other.
    pub halves: Halves,
    /// Whether it loads what the same operation changes by a register, on cores that join the two.
    pub joins_load: bool,
    /// Whether it stores past the caches.
    pub non_temporal: bool,
    /// Bytes that it moves, stores or compares at a time, again and again; 0 where it does not repeat.
    pub repeated_bytes: u8,
    /// The place in memory as it is written: equal for equal base and displacement, 0 for all others.
    pub place: u64,
    /// The base register of `place`, as an index.
    pub base: u8,
    pub stack: StackUse,
}

impl Op {
    /// An instruction whose bytes could not be read: one cycle, no operands.
    pub(super) fn unknown(address: Avma, size_bytes: u8) -> Self {
        Self {
            address,
            next: address.offset(i64::from(size_bytes)),
            class: OpClass::Integer,
            flow: Flow::On,
            inputs: 0,
            addresses: 0,
            scaled: 0,
            outputs: 0,
            late: 0,
            uses_vector: false,
            vector_bytes: 0,
            upper_halves: UpperUse::None,
            held: None,
            microcode: MicrocodeUse::None,
            multiplies_and_adds: false,
            only_moves: false,
            has_sign: false,
            zeroes: false,
            joined: false,
            in_jump: false,
            adds_constant: false,
            memory: MemoryUse::Moves,
            halves: Halves::default(),
            joins_load: false,
            non_temporal: false,
            repeated_bytes: 0,
            place: 0,
            base: 0,
            stack: StackUse::default(),
        }
    }

    /// Takes an instruction apart.
    pub(super) fn of(bytes: &[u8], address: Avma, factory: &mut InstructionInfoFactory) -> Self {
        let raw = Decoder::with_ip(64, bytes, address.0, DecoderOptions::NONE).decode();
        let base = Self::unknown(address, bytes.len() as u8);
        if raw.is_invalid() {
            return base;
        }
        let explicit = explicit(&raw);
        let zeroes = is_zeroing(&raw);
        let only_moves = is_plain_move(&raw);
        let touches_memory = (0..raw.op_count()).any(|o| raw.op_kind(o) == OpKind::Memory);
        let microcode = MicrocodeUse::of(&raw);
        let class = match class::of(&raw, explicit) {
            _ if matches!(raw.mnemonic(), I::Nop | I::Fxch)
                || is_prefetch(raw.mnemonic())
                || zeroes =>
            {
                OpClass::Renamed
            }
            _ if only_moves
                && (touches_memory || raw.is_stack_instruction() || is_renamed(&raw)) =>
            {
                OpClass::Renamed
            }
            class => class,
        };
        let info = factory.info(&raw);
        let operands = operands(&raw, explicit, info);
        let held = FalseDependency::of(&raw)
            .map(|(kind, register)| (kind, bit(register).trailing_zeros() as u8));
        let not_needed = held.map_or(0, |(_, register)| 1 << register);
        Self {
            class,
            flow: flow(&raw),
            inputs: if zeroes { 0 } else { operands.inputs & !not_needed },
            addresses: operands.addresses,
            scaled: if raw.memory_index_scale() > 1 { bit(raw.memory_index()) } else { 0 },
            outputs: operands.outputs,
            late: upper_half(&raw),
            uses_vector: explicit & VECTORS != 0,
            vector_bytes: match raw.op0_register() {
                register if register.is_vector_register() => register.size() as u8,
                _ => 0,
            },
            upper_halves: UpperUse::of(&raw, explicit, info),
            microcode,
            multiplies_and_adds: class == OpClass::FloatMultiply
                && class::is_fused_multiply(raw.code()),
            held,
            only_moves,
            has_sign: matches!(raw.mnemonic(), I::Movsx | I::Movsxd),
            zeroes,
            adds_constant: adds_constant(&raw),
            memory: MemoryUse::of(&raw, explicit, info),
            halves: Halves::of(&raw),
            joins_load: touches_memory && changes(&raw),
            non_temporal: is_non_temporal(&raw),
            place: place(&raw),
            stack: StackUse::of(&raw, info),
            base: bit(raw.memory_base()).trailing_zeros().min(63) as u8,
            repeated_bytes: match raw.has_rep_prefix() || raw.has_repne_prefix() {
                true if raw.is_string_instruction() => raw.memory_size().size() as u8,
                _ => 0,
            },
            ..base
        }
    }
}

/// Whether it stores past the caches. Loads that are called so read ordinary memory as all loads do.
fn is_non_temporal(raw: &Instruction) -> bool {
    matches!(
        raw.mnemonic(),
        I::Movnti
            | I::Movntq
            | I::Movntdq
            | I::Movntps
            | I::Movntpd
            | I::Vmovntdq
            | I::Vmovntps
            | I::Vmovntpd
    )
}

/// Constants that are added while renaming are smaller: measured on Redwood Cove, 1000 takes half a cycle, 2000 a whole one.
const SMALL: u64 = 1024;

fn adds_constant(raw: &Instruction) -> bool {
    let constant = match raw.code() {
        Code::Inc_rm64 | Code::Dec_rm64 => 1,
        Code::Add_rm64_imm8
        | Code::Add_rm64_imm32
        | Code::Sub_rm64_imm8
        | Code::Sub_rm64_imm32
        | Code::Add_RAX_imm32
        | Code::Sub_RAX_imm32 => raw.immediate(1).cast_signed(),
        Code::Lea_r64_m if raw.memory_index() == Register::None && bit(raw.memory_base()) != 0 => {
            raw.memory_displacement64().cast_signed()
        }
        _ => return false,
    };
    raw.op0_kind() == OpKind::Register && constant.unsigned_abs() < SMALL
}

/// The register that the upper half of a product of 64 bits goes to.
fn upper_half(raw: &Instruction) -> Registers {
    match raw.code() {
        Code::Mul_rm64 | Code::Imul_rm64 => bit(Register::RDX),
        Code::VEX_Mulx_r64_r64_rm64 => bit(raw.op0_register()),
        _ => 0,
    }
}

fn place(raw: &Instruction) -> u64 {
    let has_memory = (0..raw.op_count()).any(|o| raw.op_kind(o) == OpKind::Memory);
    if !has_memory || raw.memory_index() != Register::None || raw.is_string_instruction() {
        return 0;
    }
    (raw.memory_base() as u64 + 1) << 48 ^ raw.memory_displacement64()
}

pub(super) const VECTORS: Registers = 0xffff_ffff << 16;
pub(super) const GENERAL: Registers = 0xffff;

pub(super) fn bit(register: Register) -> Registers {
    let full = register.full_register();
    let number = full.number() as u32;
    match full {
        r if r.is_gpr64() => 1 << number,
        r if r.is_xmm() || r.is_ymm() || r.is_zmm() => 1 << (16 + number),
        r if r.is_k() => 1 << (48 + number),
        r if r.is_mm() => 1 << MMX,
        _ => 0,
    }
}

fn explicit(raw: &Instruction) -> Registers {
    (0..raw.op_count())
        .filter(|operand| raw.op_kind(*operand) == OpKind::Register)
        .fold(0, |all, operand| all | bit(raw.op_register(operand)))
}

struct Operands {
    inputs: Registers,
    addresses: Registers,
    outputs: Registers,
}

fn operands(raw: &Instruction, explicit: Registers, info: &InstructionInfo) -> Operands {
    let mut addresses = 0;
    for memory in info.used_memory() {
        addresses |= bit(memory.base()) | bit(memory.index());
    }
    // The stack pointer of a push or a pop is kept while renaming.
    let stack = if raw.is_stack_instruction() { bit(Register::RSP) } else { 0 };
    let (mut inputs, mut outputs) = (0, 0);
    for used in info.used_registers() {
        use OpAccess as A;
        let (register, access) = (used.register(), used.access());
        let reads = matches!(
            access,
            A::Read | A::CondRead | A::ReadWrite | A::ReadCondWrite | A::CondWrite
        );
        let writes = matches!(access, A::Write | A::CondWrite | A::ReadWrite | A::ReadCondWrite);
        let keeps_a_part = writes && register.is_gpr() && register.size() < 4;
        if reads || keeps_a_part {
            inputs |= bit(register);
        }
        if writes {
            outputs |= bit(register);
        }
    }
    if raw.mnemonic() != I::Lea {
        inputs &= !addresses | explicit;
    } else {
        inputs |= addresses;
        addresses = 0;
    }
    if raw.rflags_read() != 0 {
        inputs |= 1 << FLAGS;
    }
    if raw.rflags_modified() != 0 {
        outputs |= 1 << FLAGS;
    }
    Operands { inputs: inputs & !stack, addresses: addresses & !stack, outputs: outputs & !stack }
}

fn flow(raw: &Instruction) -> Flow {
    match raw.flow_control() {
        FlowControl::ConditionalBranch => Flow::Either,
        FlowControl::UnconditionalBranch => Flow::Jump,
        FlowControl::IndirectBranch => Flow::IndirectJump,
        FlowControl::IndirectCall => Flow::IndirectCall,
        FlowControl::Return => Flow::Return,
        FlowControl::Call if raw.mnemonic() == I::Call => Flow::Call,
        _ => Flow::On,
    }
}

/// Whether the result is zero, or all ones, whatever was in the registers.
fn is_zeroing(raw: &Instruction) -> bool {
    let register = |operand| raw.op_kind(operand) == OpKind::Register;
    let same = match raw.op_count() {
        2 => register(0) && register(1) && raw.op_register(0) == raw.op_register(1),
        3 => register(1) && register(2) && raw.op_register(1) == raw.op_register(2),
        _ => false,
    };
    use I::*;
    same && matches!(
        raw.mnemonic(),
        Xor | Sub
            | Pxor
            | Xorps
            | Xorpd
            | Vpxor
            | Vxorps
            | Vxorpd
            | Vpxord
            | Vpxorq
            | Psubb
            | Psubw
            | Psubd
            | Psubq
            | Vpsubb
            | Vpsubw
            | Vpsubd
            | Vpsubq
            | Pcmpeqb
            | Pcmpeqw
            | Pcmpeqd
            | Vpcmpeqb
            | Vpcmpeqw
            | Vpcmpeqd
    )
}

/// A move that changes nothing of what it moves.
pub(super) fn is_plain_move(raw: &Instruction) -> bool {
    use I::*;
    matches!(
        raw.mnemonic(),
        Mov | Movzx
            | Movsx
            | Movsxd
            | Movbe
            | Push
            | Pop
            | Movd
            | Movq
            | Movss
            | Movsd
            | Movaps
            | Movapd
            | Movups
            | Movupd
            | Movdqa
            | Movdqu
            | Lddqu
            | Vmovd
            | Vmovq
            | Vmovss
            | Vmovsd
            | Vmovaps
            | Vmovapd
            | Vmovups
            | Vmovupd
            | Vmovdqa
            | Vmovdqu
            | Vmovdqu8
            | Vmovdqu16
            | Vmovdqu32
            | Vmovdqu64
            | Vmovdqa32
            | Vmovdqa64
            | Vbroadcastss
            | Vbroadcastsd
            | Vpbroadcastd
            | Vpbroadcastq
            | Movntdq
            | Movntps
            | Movnti
    ) && !(raw.mnemonic() == Movsd && raw.is_string_instruction())
}

/// A move between whole registers of one file, which only renames.
fn is_renamed(raw: &Instruction) -> bool {
    let last = raw.op_count().saturating_sub(1);
    let (to, from) = (raw.op0_register(), raw.op_register(last));
    let whole = matches!(raw.mnemonic(), I::Mov) && to.size() >= 4;
    let vector = to.is_xmm() || to.is_ymm() || to.is_zmm();
    raw.op_kind(last) == OpKind::Register
        && to != Register::None
        && ((whole && to.is_gpr() && from.is_gpr() && to != from)
            || (vector
                && from.size() == to.size()
                && !matches!(raw.mnemonic(), I::Movss | I::Movsd | I::Vmovss | I::Vmovsd)))
}

mod class;
#[cfg(test)]
mod classes;

#[cfg(test)]
mod tests {
    use super::*;

    fn op(bytes: &[u8]) -> Op {
        Op::of(bytes, Avma(0x1000), &mut InstructionInfoFactory::new())
    }

    #[test]
    fn moves_and_zeroing_need_no_unit() {
        let (rax, rcx) = (1, 2);
        let mov = op(&[0x48, 0x89, 0xc8]); // mov rax, rcx
        assert_eq!((mov.class, mov.inputs, mov.outputs), (OpClass::Renamed, rcx, rax));
        let xor = op(&[0x31, 0xc0]); // xor eax, eax
        assert_eq!((xor.class, xor.inputs), (OpClass::Renamed, 0));
        let load = op(&[0x8b, 0x04, 0x8f]); // mov eax, [rdi+rcx*4]
        assert_eq!((load.class, load.addresses, load.inputs), (OpClass::Renamed, rcx | 1 << 7, 0));
        let byte = op(&[0x88, 0xc8]); // mov al, cl
        assert_eq!((byte.class, byte.inputs), (OpClass::Integer, rax | rcx));
    }

    #[test]
    fn a_load_is_joined_with_what_changes_it_by_another_register() {
        let load = op(&[0x48, 0x8b, 0x06]); // mov rax, [rsi]
        let is_joined = |bytes: &[u8]| load.halves.is_joined_with(op(bytes).halves);
        assert!(is_joined(&[0x4c, 0x01, 0xf8]), "add rax, r15");
        assert!(is_joined(&[0x48, 0x31, 0xd8]), "xor rax, rbx");
        assert!(is_joined(&[0x48, 0xf7, 0xd8]), "neg rax");
        assert!(!is_joined(&[0x48, 0xf7, 0xd0]), "not rax");
        assert!(!is_joined(&[0x48, 0x01, 0xc0]), "add rax, rax");
        assert!(!is_joined(&[0x48, 0x83, 0xc0, 1]), "add rax, 1");
        assert!(!is_joined(&[0x44, 0x01, 0xf8]), "add eax, r15d");
        assert!(!is_joined(&[0x4c, 0x01, 0xf9]), "add rcx, r15");
        assert!(!is_joined(&[0x48, 0x4d, 0xaf, 0xc0]), "imul");
        let [by_register, by_constant, out_of_memory] =
            [&[0x4c, 0x01, 0x3e][..], &[0x48, 0x83, 0x06, 1], &[0x48, 0x03, 0x06]].map(op);
        assert!(by_register.joins_load && !by_constant.joins_load && !out_of_memory.joins_load);
    }

    #[test]
    fn classes_follow_width_and_operands() {
        assert_eq!(op(&[0xf7, 0xf1]).class, OpClass::Divide32); // div ecx
        assert_eq!(op(&[0xf2, 0x0f, 0x51, 0xc1]).class, OpClass::FloatRoot64); // sqrtsd xmm0, xmm1
        let wide = op(&[0xc5, 0xfd, 0x5e, 0xc1]); // vdivpd ymm0, ymm0, ymm1
        assert_eq!((wide.class, wide.vector_bytes), (OpClass::FloatDivide64, 32));
        assert_eq!(op(&[0x48, 0xf7, 0xf1]).class, OpClass::Divide64); // div rcx
        assert_eq!(op(&[0x48, 0x0f, 0xaf, 0xc1]).class, OpClass::Multiply); // imul rax, rcx
        assert_eq!(op(&[0x66, 0x0f, 0x6e, 0xc1]).class, OpClass::CrossIn); // movd xmm0, ecx
        assert_eq!(op(&[0xf0, 0xff, 0x07]).class, OpClass::Locked); // lock inc [rdi]
        assert_eq!(op(&[0xc4, 0xe2, 0xf1, 0xb8, 0xc2]).class, OpClass::FloatMultiply); // vfmadd231pd
        assert_eq!(op(&[0x48, 0x8d, 0x44, 0x0f, 0x08]).class, OpClass::SlowAddress); // lea rax, [rdi+rcx+8]
        assert_eq!(op(&[0x75, 0x00]).flow, Flow::Either);
        assert_eq!(op(&[0xff, 0xe0]).flow, Flow::IndirectJump);
        assert_eq!(op(&[0x0f, 0x05]).class, OpClass::Microcode); // syscall
        let bit = op(&[0x48, 0x0f, 0xa3, 0x0f]); // bt [rdi], rcx
        assert_eq!(bit.microcode, MicrocodeUse::Takes(5));
        assert_eq!(op(&[0x48, 0x0f, 0xba, 0x27, 3]).class, OpClass::Shift); // bt [rdi], 3
        assert_eq!(op(&[]).class, OpClass::Integer);
    }
}
