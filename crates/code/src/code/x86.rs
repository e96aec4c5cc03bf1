//! x86-64 machine code to neutral instructions, and to text.
//!
//! Memory accesses that are not one plain stretch (gathers, masked vector accesses, `rep`
//! strings, state saves, thread-local segments) are left out: a rule that needs to know where an
//! access goes must not guess. Results of 32-bit additions and shifts count as sums and products of
//! their operands: an index that wraps at 2^32 in the middle of an array is not code that anybody
//! times.

mod carried;
mod control;
mod effects;
mod frame;
mod fused;
pub(super) mod gaps;
mod jumps;
mod limit;
mod patch;
mod placed;
mod quick;
mod renewed;
mod split;
mod string_loop;
mod survey;
mod width;

pub use carried::{CarriedDependency, carried_dependencies};
pub use control::without_control_loads;
pub use fused::{Jump, jumps};
pub use limit::{Bound, GoesOn, Limit, limit};
pub use patch::{EncodedPatch, Patch, PatchError};
pub use placed::{place_functions, place_in_page};
pub use renewed::without_false_dependencies;
pub use split::split_loads;
pub use string_loop::string_loops;
pub use survey::Survey;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Formatter, Instruction, InstructionInfoFactory,
    IntelFormatter, MemorySizeOptions, Mnemonic, OpAccess, OpKind, Register,
};

use super::insn::{Access, Flow, Insn, RawAddress, Reg, Value};
use crate::model::Svma;

/// Registers that a called function may change (System V).
const CALL_CLOBBERS: u32 = 0b0000_1111_1100_0111;

/// Decodes a stretch of code from its first byte to its last.
#[must_use]
pub fn decode(bytes: &[u8], start: Svma) -> Vec<Insn> {
    let mut insns = Vec::with_capacity(bytes.len() / 3 + 1);
    let mut full = None;
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let address = start.0.wrapping_add(at as u64);
        // Written where it stays: copied, these many small parts would keep their copies waiting.
        insns.push(Insn::plain(Svma(address), 0));
        let Some(insn) = insns.last_mut() else { break };
        if quick::decode(rest, insn).is_none() {
            *insn = full.get_or_insert_with(|| FullDecoder::of(bytes, start)).insn(at, address);
        }
        at += usize::from(insn.length_bytes);
    }
    insns
}

struct FullDecoder<'a> {
    decoder: Decoder<'a>,
    info: InstructionInfoFactory,
    raw: Instruction,
}

impl<'a> FullDecoder<'a> {
    fn of(bytes: &'a [u8], start: Svma) -> Self {
        let decoder = Decoder::with_ip(64, bytes, start.0, DecoderOptions::NONE);
        Self { decoder, info: InstructionInfoFactory::new(), raw: Instruction::default() }
    }

    /// The instruction at a position; one byte that is none where there is no instruction.
    fn insn(&mut self, at: usize, address: u64) -> Insn {
        let placed = self.decoder.set_position(at).is_ok();
        self.decoder.set_ip(address);
        self.decoder.decode_out(&mut self.raw);
        if !placed || self.raw.is_invalid() || self.raw.len() == 0 {
            return Insn { flow: Flow::Stop, ..Insn::plain(Svma(address), 1) };
        }
        neutral(&self.raw, &mut self.info)
    }
}

/// One instruction in Intel syntax, widths always spelled out.
#[must_use]
pub fn text(bytes: &[u8], svma: Svma) -> String {
    let mut decoder = Decoder::with_ip(64, bytes, svma.0, DecoderOptions::NONE);
    if !decoder.can_decode() {
        return "(no bytes)".to_owned();
    }
    let instruction = decoder.decode();
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_uppercase_hex(false);
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_space_after_operand_separator(true);
    options.set_branch_leading_zeros(false);
    options.set_memory_size_options(MemorySizeOptions::Always);
    options.set_rip_relative_addresses(true);
    options.set_show_branch_size(false);
    let mut out = String::new();
    formatter.format(&instruction, &mut out);
    out
}

/// As [`super::Image::normalised`]: without displacements relative to the instruction pointer, the targets of jumps and
/// calls that leave the function, addresses, and places in a thread's or processor's own segment.
#[must_use]
pub fn normalised(bytes: &[u8], start: Svma, is_address: &dyn Fn(usize, u64) -> bool) -> Vec<u8> {
    let mut out = bytes.to_vec();
    let inside = start.0..start.0.wrapping_add(bytes.len() as u64);
    let mut decoder = Decoder::with_ip(64, bytes, start.0, DecoderOptions::NONE);
    let mut raw = Instruction::default();
    while decoder.can_decode() {
        let at = decoder.position();
        decoder.decode_out(&mut raw);
        let offsets = decoder.get_constant_offsets(&raw);
        let mut drop = |offset: usize, size: usize| {
            if let Some(hole) = out.get_mut(at + offset..at + offset + size) {
                hole.fill(0);
            }
        };
        if offsets.has_displacement() {
            let offset = offsets.displacement_offset();
            let in_segment = matches!(raw.segment_prefix(), Register::FS | Register::GS)
                && raw.memory_base() == Register::None;
            if raw.is_ip_rel_memory_operand()
                || in_segment
                || is_address(at + offset, raw.memory_displacement64())
            {
                drop(offset, offsets.displacement_size());
            }
        }
        if offsets.has_immediate() {
            let offset = offsets.immediate_offset();
            let is_jump = raw.op0_kind() == OpKind::NearBranch64;
            let is_outside = if is_jump {
                !inside.contains(&raw.near_branch_target())
            } else {
                constant(&raw).is_some_and(|value| is_address(at + offset, value))
            };
            if is_outside {
                drop(offset, offsets.immediate_size());
            }
        }
    }
    out
}

/// The constant of an instruction that is wide enough for an address.
fn constant(raw: &Instruction) -> Option<u64> {
    let is_wide = |operand: &u32| {
        use OpKind::{Immediate32, Immediate32to64, Immediate64};
        matches!(raw.op_kind(*operand), Immediate32 | Immediate32to64 | Immediate64)
    };
    let operand = (0..raw.op_count()).find(is_wide)?;
    raw.try_immediate(operand).ok()
}

fn neutral(raw: &Instruction, factory: &mut InstructionInfoFactory) -> Insn {
    let effects = effects::effects(raw, factory);
    let mut insn = Insn {
        flow: flow(raw),
        is_padding: matches!(raw.mnemonic(), Mnemonic::Nop | Mnemonic::Int3),
        load: effects.load.map(|access| Access { moved: moved(raw), ..access }),
        store: effects.store.map(|access| Access { moved: moved(raw), ..access }),
        define: define(raw),
        drains_stores: drains_stores(raw),
        clobbers: effects.writes,
        ..Insn::plain(Svma(raw.ip()), raw.len() as u8)
    };
    if insn.flow == Flow::Call {
        insn.clobbers |= CALL_CLOBBERS;
        insn.clobbers &= !Reg::STACK.bit();
    } else if raw.is_stack_instruction() && raw.mnemonic() != Mnemonic::Leave {
        insn.define = Some((Reg::STACK, sum(Reg::STACK, i64::from(raw.stack_pointer_increment()))));
    }
    if let Some((reg, _)) = insn.define {
        insn.clobbers &= !reg.bit();
    }
    insn
}

/// The general register that an instruction only moves, where it does.
fn moved(raw: &Instruction) -> Option<Reg> {
    let register = match (raw.mnemonic(), raw.op0_kind(), raw.op1_kind()) {
        (Mnemonic::Mov, OpKind::Memory, OpKind::Register) => raw.op1_register(),
        (Mnemonic::Mov | Mnemonic::Movsxd, OpKind::Register, OpKind::Memory) => raw.op0_register(),
        _ => return None,
    };
    let whole = wide_enough(register) && (raw.mnemonic() == Mnemonic::Mov || register.is_gpr64());
    general(register).filter(|_| whole)
}

/// Whether older stores are in the cache before anything younger loads: fences, and what locks; `xchg` with memory does so
/// without saying it. `sfence` and `lfence` let loads overtake older stores.
#[must_use]
pub fn drains_stores(raw: &Instruction) -> bool {
    match raw.mnemonic() {
        Mnemonic::Mfence | Mnemonic::Cpuid | Mnemonic::Serialize => true,
        Mnemonic::Xchg => raw.op0_kind() == OpKind::Memory || raw.op1_kind() == OpKind::Memory,
        _ => raw.has_lock_prefix(),
    }
}

fn flow(raw: &Instruction) -> Flow {
    match raw.flow_control() {
        FlowControl::Next | FlowControl::XbeginXabortXend => Flow::Next,
        FlowControl::UnconditionalBranch => Flow::Jump(Svma(raw.near_branch_target())),
        FlowControl::ConditionalBranch => Flow::Branch(Svma(raw.near_branch_target())),
        FlowControl::IndirectBranch => Flow::IndirectJump,
        // A system call leaves the function's own registers and code alone.
        _ if matches!(raw.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter) => Flow::Next,
        FlowControl::Call | FlowControl::IndirectCall => Flow::Call,
        FlowControl::Return => Flow::Return,
        FlowControl::Interrupt if raw.mnemonic() != Mnemonic::Int3 => Flow::Next,
        FlowControl::Interrupt | FlowControl::Exception => Flow::Stop,
    }
}

/// Whether an operand is loaded from, and whether it is stored to.
#[must_use]
pub fn loads_and_stores(access: OpAccess) -> (bool, bool) {
    match access {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        OpAccess::None | OpAccess::NoMemAccess => (false, false),
    }
}

/// Instructions that ask for a line of data before it is used.
#[must_use]
pub fn is_prefetch(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Prefetch
            | M::Prefetchw
            | M::Prefetchwt1
            | M::Prefetchnta
            | M::Prefetcht0
            | M::Prefetcht1
            | M::Prefetcht2
    )
}

fn writes(access: OpAccess) -> bool {
    loads_and_stores(access).1
}

/// The general register that holds `register`, whatever its width.
fn general(register: Register) -> Option<Reg> {
    let full = register.full_register();
    full.is_gpr64().then(|| Reg(full.number() as u8))
}

fn wide_enough(register: Register) -> bool {
    register.is_gpr32() || register.is_gpr64()
}

fn sum(from: Reg, displacement: i64) -> Value {
    Value::moved(from, displacement)
}

/// The new value of the first operand, where it is made of registers and constants.
fn define(raw: &Instruction) -> Option<(Reg, Value)> {
    if raw.op_count() == 0 || raw.op0_kind() != OpKind::Register || !wide_enough(raw.op0_register())
    {
        return None;
    }
    let to = general(raw.op0_register())?;
    let second_register = (raw.op_count() > 1 && raw.op1_kind() == OpKind::Register)
        .then(|| raw.op1_register())
        .filter(|r| wide_enough(*r));
    let immediate = (raw.op_count() == 2).then(|| raw.try_immediate(1).ok()).flatten();
    let value = match raw.mnemonic() {
        Mnemonic::Mov => match (second_register, immediate) {
            (Some(from), _) => sum(general(from)?, 0),
            (None, Some(constant)) => constant_value(constant as i64),
            _ => return None,
        },
        Mnemonic::Movsxd if raw.op0_register().is_gpr64() => sum(general(second_register?)?, 0),
        Mnemonic::Lea => Value::Address(raw_address(
            raw.memory_base(),
            raw.memory_index(),
            raw.memory_index_scale(),
            raw.memory_displacement64(),
        )?),
        Mnemonic::Add => match second_register {
            Some(from) => {
                let index = Some(general(from)?);
                Value::Address(RawAddress { base: Some(to), index, scale: 1, displacement: 0 })
            }
            None => sum(to, immediate? as i64),
        },
        Mnemonic::Shl => {
            let scale = 1 << immediate.filter(|bits| (1..=7).contains(bits))?;
            Value::Address(RawAddress { base: None, index: Some(to), scale, displacement: 0 })
        }
        Mnemonic::Imul => {
            let factor = raw.try_immediate(raw.op_count() - 1).ok()?;
            let scale = u8::try_from(factor).ok().filter(|scale| *scale > 1)?;
            let index = Some(general(raw.op1_register())?);
            Value::Address(RawAddress { base: None, index, scale, displacement: 0 })
        }
        Mnemonic::Sub => sum(to, (immediate? as i64).wrapping_neg()),
        Mnemonic::Inc => sum(to, 1),
        Mnemonic::Dec => sum(to, -1),
        Mnemonic::And => Value::Masked(immediate?),
        Mnemonic::Or => Value::Joined(to, general(second_register?)?),
        Mnemonic::Movzx if raw.op1_kind() == OpKind::Register => {
            let from = raw.op1_register();
            if matches!(from, Register::AH | Register::BH | Register::CH | Register::DH) {
                return None;
            }
            Value::Cut(general(from)?, (1 << (8 * from.size())) - 1)
        }
        Mnemonic::Xor if second_register.and_then(general) == Some(to) => constant_value(0),
        _ => return None,
    };
    Some((to, value))
}

fn constant_value(displacement: i64) -> Value {
    Value::Address(RawAddress { displacement, scale: 1, ..RawAddress::default() })
}

fn raw_address(
    base: Register,
    index: Register,
    scale: u32,
    displacement: u64,
) -> Option<RawAddress> {
    let part = |register: Register| match register {
        Register::None | Register::RIP | Register::EIP => Some(None),
        _ => general(register).map(Some),
    };
    Some(RawAddress {
        base: part(base)?,
        index: part(index)?,
        scale: scale as u8,
        displacement: displacement as i64,
    })
}

/// The access that the memory operand of `raw` names, under the same conditions.
fn plain_operand(raw: &Instruction) -> Option<Access> {
    if matches!(raw.memory_segment(), Register::FS | Register::GS) {
        return None;
    }
    let size_bytes =
        u16::try_from(raw.memory_size().size()).ok().filter(|n| (1..=64).contains(n))?;
    let address = raw_address(
        raw.memory_base(),
        raw.memory_index(),
        raw.memory_index_scale(),
        raw.memory_displacement64(),
    )?;
    Some(Access::of(size_bytes, address))
}

/// The access, if it is one stretch of known width at an address made of general registers.
fn plain_access(used: &iced_x86::UsedMemory) -> Option<Access> {
    if matches!(used.segment(), Register::FS | Register::GS) {
        return None;
    }
    let size_bytes =
        u16::try_from(used.memory_size().size()).ok().filter(|n| (1..=64).contains(n))?;
    let address = raw_address(used.base(), used.index(), used.scale(), used.displacement())?;
    Some(Access::of(size_bytes, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(bytes: &[u8]) -> Insn {
        let insns = decode(bytes, Svma(0x1000));
        assert_eq!(insns.len(), 1, "{insns:?}");
        insns[0]
    }

    fn at(base: u8, index: Option<u8>, scale: u8, displacement: i64) -> RawAddress {
        RawAddress { base: Some(Reg(base)), index: index.map(Reg), scale, displacement }
    }

    #[test]
    fn the_first_storys_load_and_stores() {
        // movq xmm0, [rsp+r9*8-0x10]
        let load = one(&[0xf3, 0x42, 0x0f, 0x7e, 0x44, 0xcc, 0xf0]);
        let expected = Access::of(8, at(4, Some(9), 8, -0x10));
        assert_eq!(load.load, Some(expected));
        assert_eq!(load.store, None);
        // mov [rsp+rbx*8-0x10], r11d
        let store = one(&[0x44, 0x89, 0x5c, 0xdc, 0xf0]);
        let expected = Access { moved: Some(Reg(11)), ..Access::of(4, at(4, Some(3), 8, -0x10)) };
        assert_eq!(store.store, Some(expected));
        assert_eq!(
            text(&[0x44, 0x89, 0x5c, 0xdc, 0xf0], Svma(0)),
            "mov dword ptr [rsp+rbx*8-0x10], r11d"
        );
    }

    #[test]
    fn register_arithmetic_is_kept_as_addresses() {
        // lea r9d, [rbx+1]
        assert_eq!(
            one(&[0x44, 0x8d, 0x4b, 0x01]).define,
            Some((Reg(9), Value::Address(at(3, None, 1, 1))))
        );
        // and r9d, 0xf
        assert_eq!(one(&[0x41, 0x83, 0xe1, 0x0f]).define, Some((Reg(9), Value::Masked(15))));
        // sub rsp, 0x78
        assert_eq!(
            one(&[0x48, 0x83, 0xec, 0x78]).define,
            Some((Reg::STACK, sum(Reg::STACK, -0x78)))
        );
        // add rdx, rdi; shl edx, 3; shl edx, 9: no scale of an address
        let moved = at(2, Some(7), 1, 0);
        assert_eq!(one(&[0x48, 0x01, 0xfa]).define, Some((Reg(2), Value::Address(moved))));
        let scaled = RawAddress { base: None, index: Some(Reg(2)), scale: 8, displacement: 0 };
        assert_eq!(one(&[0xc1, 0xe2, 0x03]).define, Some((Reg(2), Value::Address(scaled))));
        assert_eq!(one(&[0xc1, 0xe2, 0x09]).define, None);
        // imul edx, edx, 24
        let scaled = RawAddress { base: None, index: Some(Reg(2)), scale: 24, displacement: 0 };
        assert_eq!(one(&[0x6b, 0xd2, 0x18]).define, Some((Reg(2), Value::Address(scaled))));
        // push rbp: the store lies below the old stack pointer
        let push = one(&[0x55]);
        assert_eq!(push.define, Some((Reg::STACK, sum(Reg::STACK, -8))));
        assert_eq!(push.store.unwrap().address.displacement, -8);
        // movzx eax, al; movzx eax, ah: unknown
        let widen = one(&[0x0f, 0xb6, 0xc0]);
        assert_eq!(widen.define, Some((Reg(0), Value::Cut(Reg(0), 0xff))));
        let widen = one(&[0x0f, 0xb6, 0xc4]);
        assert_eq!((widen.define, widen.clobbers), (None, 1));
    }

    #[test]
    fn flow_is_told_apart() {
        assert_eq!(one(&[0xeb, 0x10]).flow, Flow::Jump(Svma(0x1012)));
        assert_eq!(one(&[0x74, 0xfe]).flow, Flow::Branch(Svma(0x1000)));
        assert_eq!(one(&[0xff, 0xe0]).flow, Flow::IndirectJump);
        assert_eq!(one(&[0xc3]).flow, Flow::Return);
        assert_eq!(one(&[0x0f, 0x0b]).flow, Flow::Stop);
        assert_eq!(one(&[0x0f, 0x05]).flow, Flow::Next);
        let call = one(&[0xe8, 0, 0, 0, 0]);
        assert_eq!(call.flow, Flow::Call);
        assert_eq!(call.clobbers & Reg(3).bit(), 0, "rbx survives a call");
        assert_ne!(call.clobbers & Reg(0).bit(), 0, "rax does not");
    }

    #[test]
    fn fences_and_locked_operations_drain_stores() {
        // mfence; xchg [rdi], eax; lock add [rdi], 1; lock cmpxchg [rdi], ecx
        let draining: [&[u8]; 4] = [
            &[0x0f, 0xae, 0xf0],
            &[0x87, 0x07],
            &[0xf0, 0x83, 0x07, 0x01],
            &[0xf0, 0x0f, 0xb1, 0x0f],
        ];
        assert!(draining.iter().all(|bytes| one(bytes).drains_stores));
        // sfence; lfence; xchg eax, ecx; add [rdi], 1
        let others: [&[u8]; 4] =
            [&[0x0f, 0xae, 0xf8], &[0x0f, 0xae, 0xe8], &[0x91], &[0x83, 0x07, 0x01]];
        assert!(others.iter().all(|bytes| !one(bytes).drains_stores));
    }

    #[test]
    fn accesses_of_unknown_extent_are_left_out() {
        // rep movsq
        let rep = one(&[0xf3, 0x48, 0xa5]);
        assert_eq!((rep.load, rep.store), (None, None));
        // vpgatherdd ymm0, [rax+ymm1*4], ymm2
        let gather = one(&[0xc4, 0xe2, 0x6d, 0x90, 0x04, 0x88]);
        assert_eq!(gather.load, None);
        // mov rax, fs:[0x28]
        assert_eq!(one(&[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0]).load, None);
    }

    #[test]
    fn moved_code_is_the_same_after_normalising() {
        // mov rax, [rip+d]; call far; jmp to the start: the same three at another place.
        let here = [0x48, 0x8b, 0x05, 1, 2, 3, 4, 0xe8, 1, 2, 3, 4, 0xeb, 0xf2];
        let there = [0x48, 0x8b, 0x05, 9, 2, 3, 4, 0xe8, 9, 2, 3, 4, 0xeb, 0xf2];
        let other = [0x48, 0x8b, 0x05, 1, 2, 3, 4, 0xe8, 1, 2, 3, 4, 0xeb, 0xf9];
        let no_address = |_, _| false;
        let plain = |bytes: &[u8], start| normalised(bytes, Svma(start), &no_address);
        assert_eq!(plain(&here, 0x1000), plain(&there, 0x2000));
        assert_ne!(plain(&here, 0x1000), plain(&other, 0x1000));
    }

    #[test]
    fn addresses_in_constants_are_dropped_and_other_constants_are_not() {
        let is_address = |_, value| (0x40_0000..0x41_0000).contains(&value);
        let same = |one: &[u8], other: &[u8]| {
            let plain = |bytes: &[u8]| normalised(bytes, Svma(0x40_1000), &is_address);
            plain(one) == plain(other)
        };
        // mov edi, 0x402010; mov eax, [rax*4+0x402010]; mov rax, 0x402010 in eight bytes
        let moves: [(&[u8], usize); 3] = [
            (&[0xbf, 0x10, 0x20, 0x40, 0], 1),
            (&[0x8b, 0x04, 0x85, 0x10, 0x20, 0x40, 0], 3),
            (&[0x48, 0xb8, 0x10, 0x20, 0x40, 0, 0, 0, 0, 0], 2),
        ];
        for (code, at) in moves {
            let with = |value: u32| {
                let mut other = code.to_vec();
                other[at..at + 4].copy_from_slice(&value.to_le_bytes());
                other
            };
            assert!(same(code, &with(0x40_2030)), "{code:x?}");
            assert!(!same(code, &with(0x2030)), "{code:x?}");
            assert!(!same(&with(0x2010), &with(0x2030)), "{code:x?}");
        }
        // mov rax, fs:[-8] and fs:[-16]; mov rax, [rbx-8] and [rbx-16]
        let own = |at: u8| [0x64, 0x48, 0x8b, 0x04, 0x25, at, 0xff, 0xff, 0xff];
        assert!(same(&own(0xf8), &own(0xf0)));
        assert!(!same(&[0x48, 0x8b, 0x43, 0xf8], &[0x48, 0x8b, 0x43, 0xf0]));
    }

    #[test]
    fn garbage_is_skipped_byte_by_byte() {
        let insns = decode(&[0x06, 0x90, 0xc3], Svma(0));
        assert_eq!(insns.len(), 3);
        assert_eq!((insns[0].flow, insns[2].flow), (Flow::Stop, Flow::Return));
    }
}
