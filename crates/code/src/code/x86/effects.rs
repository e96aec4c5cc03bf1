//! What an instruction does to registers and memory, learnt once per kind of instruction.
//!
//! The decoder's own account of reads and writes takes longer than decoding. Most of it is the same
//! for all instructions of one kind: which operand is read or written, and which registers are
//! written without being named. That part is taken from the decoder's account of the first
//! instruction of a kind and kept; operands are read from the instruction itself. Kinds whose
//! account depends on more (strings, masks, the stack beside an operand) are asked every time.

use std::sync::atomic::{AtomicU64, Ordering};

use iced_x86::{
    Instruction, InstructionInfoFactory, InstructionInfoOptions, OpAccess, OpKind, Register,
};

use super::{general, plain_access, plain_operand, writes};
use crate::code::insn::Access;

/// Registers written and memory touched by one instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effects {
    /// The set of general registers it writes.
    pub writes: u32,
    pub load: Option<Access>,
    pub store: Option<Access>,
}

/// More kinds than there are, each with and without memory; a power of two.
const KINDS: usize = 16384;
/// What has been learnt, by kind; 0 is nothing yet. Between registers a kind may do other things
/// than with memory: `movss` then keeps a part of what it writes to.
static LEARNT: [AtomicU64; KINDS] = [const { AtomicU64::new(0) }; KINDS];

const KNOWN: u64 = 1 << 63;
const ASK: u64 = 1 << 62;
/// Bits 0 to 15: registers written without being named. From bit 16 on, four bits for each operand.
const FIRST_OPERAND_BIT: u32 = 16;
const BITS_OF_OPERAND: u32 = 4;

pub(super) fn effects(raw: &Instruction, factory: &mut InstructionInfoFactory) -> Effects {
    let has_memory = (0..raw.op_count()).any(|o| raw.op_kind(o) == OpKind::Memory);
    let kind = 2 * raw.code() as usize + usize::from(has_memory);
    let Some(cell) = LEARNT.get(kind) else { return asked(raw, factory) };
    let mut habit = cell.load(Ordering::Relaxed);
    if habit == 0 {
        habit = learn(raw, factory);
        cell.store(habit, Ordering::Relaxed);
    }
    if habit & ASK != 0 || raw.has_op_mask() {
        return asked(raw, factory);
    }
    let mut effects = Effects { writes: u32::from(habit as u16), load: None, store: None };
    for operand in 0..raw.op_count() {
        let access = access_of(habit, operand);
        match raw.op_kind(operand) {
            OpKind::Register if writes(access) => {
                if let Some(reg) = general(raw.op_register(operand)) {
                    effects.writes |= reg.bit();
                }
            }
            OpKind::Memory => touch(&mut effects, access, || plain_operand(raw)),
            _ => {}
        }
    }
    effects
}

fn touch(effects: &mut Effects, kind: OpAccess, access: impl FnOnce() -> Option<Access>) {
    match kind {
        OpAccess::Read => effects.load = access().or(effects.load),
        OpAccess::Write => effects.store = access().or(effects.store),
        OpAccess::ReadWrite => {
            if let Some(access) = access() {
                (effects.load, effects.store) = (Some(access), Some(access));
            }
        }
        _ => {}
    }
}

/// The decoder's own account.
fn asked(raw: &Instruction, factory: &mut InstructionInfoFactory) -> Effects {
    let info = factory.info_options(raw, InstructionInfoOptions::NONE);
    let mut effects = Effects::default();
    for used in info.used_registers() {
        if writes(used.access())
            && let Some(reg) = general(used.register())
        {
            effects.writes |= reg.bit();
        }
    }
    if !(raw.is_string_instruction() && (raw.has_rep_prefix() || raw.has_repne_prefix())) {
        for used in info.used_memory() {
            touch(&mut effects, used.access(), || plain_access(used));
        }
    }
    effects
}

/// Registers that no instruction uses unnamed, general and vector.
const NEVER_UNNAMED: [[Register; 2]; 4] = [
    [Register::R15, Register::XMM15],
    [Register::R14, Register::XMM14],
    [Register::R13, Register::XMM13],
    [Register::R12, Register::XMM12],
];

fn learn(raw: &Instruction, factory: &mut InstructionInfoFactory) -> u64 {
    // With all operands different (`xor eax, eax` is said not to read) and out of the way: what is
    // written then beside them is written unnamed.
    let mut bare = *raw;
    for (operand, [other, vector]) in (0..raw.op_count()).zip(NEVER_UNNAMED) {
        if raw.op_kind(operand) == OpKind::Register {
            match raw.op_register(operand) {
                named if general(named).is_some() => bare.set_op_register(operand, other),
                named if named.is_vector_register() || named.is_mm() => {
                    bare.set_op_register(operand, vector);
                }
                _ => {}
            }
        }
    }
    bare.set_memory_base(Register::None);
    bare.set_memory_index(Register::None);
    let info = factory.info_options(&bare, InstructionInfoOptions::NONE);
    let touches = |access: OpAccess| !matches!(access, OpAccess::None | OpAccess::NoMemAccess);
    let accesses: Vec<OpAccess> = (0..raw.op_count()).map(|o| info.op_access(o)).collect();
    let named = (0..raw.op_count())
        .filter(|o| raw.op_kind(*o) == OpKind::Memory && touches(info.op_access(*o)))
        .count();
    let touched = info.used_memory().iter().filter(|used| touches(used.access())).count();
    let vector_index = raw.memory_index().is_vector_register();
    if raw.is_string_instruction() || touched != named || vector_index || accesses.len() > 5 {
        return KNOWN | ASK;
    }
    let never =
        NEVER_UNNAMED.iter().filter_map(|[r, _]| general(*r)).fold(0, |set, r| set | r.bit());
    let unnamed = asked(&bare, factory).writes & !never;
    accesses.iter().enumerate().fold(KNOWN | u64::from(unnamed), |habit, (operand, access)| {
        habit | (*access as u64) << (FIRST_OPERAND_BIT + BITS_OF_OPERAND * operand as u32)
    })
}

fn access_of(habit: u64, operand: u32) -> OpAccess {
    const ALL: [OpAccess; 8] = [
        OpAccess::None,
        OpAccess::Read,
        OpAccess::CondRead,
        OpAccess::Write,
        OpAccess::CondWrite,
        OpAccess::ReadWrite,
        OpAccess::ReadCondWrite,
        OpAccess::NoMemAccess,
    ];
    ALL[(habit >> (FIRST_OPERAND_BIT + BITS_OF_OPERAND * operand) & 7) as usize]
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    #[test]
    fn what_was_learnt_is_what_the_decoder_says_in_a_real_program() {
        let image = crate::code::Image::open(&std::env::current_exe().unwrap()).unwrap();
        let mut factory = InstructionInfoFactory::new();
        let mut seen = 0_u32;
        for function in image.functions().iter().step_by(3) {
            let code = image.function_bytes(function);
            for raw in Decoder::with_ip(64, code, function.start.0, DecoderOptions::NONE) {
                let expected = asked(&raw, &mut factory);
                assert_eq!(effects(&raw, &mut factory), expected, "{raw:?}");
                seen += 1;
            }
        }
        assert!(seen > 100_000, "{seen}");
    }

    #[test]
    fn a_kind_is_learnt_with_and_without_memory() {
        let mut factory = InstructionInfoFactory::new();
        // xor eax, eax; xor [rdi], eax; cmpxchg eax, ebx; cmpxchg [rdi], ebx; mul rax; movss xmm0,
        // xmm1 as a store; movss [rdi], xmm1; ...
        let codes: [&[u8]; 10] = [
            &[0xf3, 0x0f, 0x11, 0xc8],
            &[0xf3, 0x0f, 0x11, 0x0f],
            &[0x31, 0xc0],
            &[0x31, 0x07],
            &[0x0f, 0xb1, 0xd8],
            &[0x0f, 0xb1, 0x1f],
            &[0x48, 0xf7, 0xe0],
            &[0x48, 0xf7, 0x27],
            &[0x48, 0x8d, 0x47, 0x08],
            &[0x62, 0xf1, 0x7e, 0x49, 0x6f, 0x07], // vmovdqu32 zmm0{k1}, [rdi]
        ];
        for code in codes {
            let raw = Decoder::with_ip(64, code, 0, DecoderOptions::NONE).decode();
            assert_eq!(effects(&raw, &mut factory), asked(&raw, &mut factory), "{raw:?}");
        }
    }
}
