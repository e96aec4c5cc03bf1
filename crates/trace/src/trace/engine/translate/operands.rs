//! What must be logged of an instruction so that its memory accesses can be told afterwards.
//!
//! Most need one word per address. A `rep` instruction needs its pointers before and after: the
//! distance is what it touched, whichever way it ran. What depends on a mask, on a vector of
//! indexes or on the processor's state is left to the single-stepping of the driver.

use iced_x86::{
    Code, CodeSize, Instruction, InstructionInfo, MemorySize, Mnemonic, OpAccess, Register,
    UsedMemory,
};

use super::emit::{Address, Gpr};
use crate::code::x86::loads_and_stores;
use crate::trace::engine::operands::{divided, is_dense, prefetched, repeats, repeats_its_operand};
use crate::trace::engine::{AccessKind, VALUE_BYTES};

/// What a memory operand is addressed through, besides `ds`, `es` and `ss`, whose base is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// None that matters.
    Flat,
    /// Thread-local memory of most programs.
    Fs,
    /// The other one.
    Gs,
}

impl Segment {
    fn of(register: Register) -> Self {
        match register {
            Register::FS => Self::Fs,
            Register::GS => Self::Gs,
            _ => Self::Flat,
        }
    }
}

/// How an address comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// From registers.
    Registers(Address),
    /// It is known beforehand.
    Fixed(u64),
}

/// One address and what is done there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operand {
    pub(super) location: Location,
    pub(super) segment: Segment,
    pub(super) kinds: &'static [AccessKind],
    pub(super) size_bytes: u32,
    /// The mask that says which elements are touched.
    pub(super) mask: Option<Mask>,
}

/// A mask register over the elements of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mask {
    /// 1 to 7.
    pub(super) register: u8,
    pub(super) element_bytes: u32,
}

impl Operand {
    /// How many words the log needs for it: the address, and the mask.
    pub(super) fn words(&self) -> u16 {
        1 + u16::from(self.mask.is_some())
    }
}

/// One pointer of a repeated string instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repeat {
    pub(super) pointer: Gpr,
    pub(super) segment: Segment,
    pub(super) kind: AccessKind,
    pub(super) element_bytes: u32,
}

/// The memory of one instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// These addresses, loads before stores.
    Plain(Vec<Operand>),
    /// A run from where each pointer was to where it ends up.
    Repeated(Vec<Repeat>),
    /// Must be looked at while it happens.
    Unpredictable,
}

impl Memory {
    /// Nothing.
    pub(super) const NONE: Self = Self::Plain(Vec::new());
}

/// The accesses of an instruction, from what the decoder knows of it.
pub(super) fn memory_of(insn: &Instruction, info: &InstructionInfo) -> Memory {
    if let Some(asked) = prefetched(insn) {
        // One whose address cannot be told is not told.
        return operand(&asked, Register::None).map_or(Memory::NONE, |it| Memory::Plain(vec![it]));
    }
    let touched = |m: &&UsedMemory| !matches!(m.access(), OpAccess::None | OpAccess::NoMemAccess);
    if !info.used_memory().iter().any(|m| touched(&m)) {
        return Memory::Plain(values(insn).collect());
    }
    if is_unpredictable(insn) {
        return Memory::Unpredictable;
    }
    if repeats(insn) {
        // The decoder gives no size for all repetitions together; that of one is the operand's.
        let element_bytes = insn.memory_size().size() as u32;
        let one = |used| repeat(used, element_bytes);
        let all = info.used_memory().iter().filter(touched).map(one).collect::<Option<Vec<_>>>();
        return all.map_or(Memory::Unpredictable, |mut repeats| {
            repeats.sort_by_key(|r| r.kind);
            Memory::Repeated(repeats)
        });
    }
    let one = |used| operand(used, insn.op_mask());
    let all = info.used_memory().iter().filter(touched).map(one).collect::<Option<Vec<_>>>();
    all.map_or(Memory::Unpredictable, |mut operands| {
        operands.sort_by_key(|o| o.kinds.contains(&AccessKind::Store));
        operands.extend(values(insn));
        Memory::Plain(operands)
    })
}

/// The registers' values that the time of an instruction depends on, as addresses.
fn values(insn: &Instruction) -> impl Iterator<Item = Operand> {
    divided(insn).into_iter().filter_map(Gpr::of).map(|register| Operand {
        location: Location::Registers(Address::of(register, 0)),
        segment: Segment::Flat,
        kinds: &[AccessKind::Value],
        size_bytes: VALUE_BYTES,
        mask: None,
    })
}

/// Whether this processor stores 64 bits of a mask register at once.
fn masks_can_be_stored() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::arch::is_x86_feature_detected!("avx512bw")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// Whether the decoder's description is not the whole truth.
fn is_unpredictable(insn: &Instruction) -> bool {
    // The mask is logged where one instruction can store all of it; one memory operand under a
    // mask has as many elements as the mask has bits, unless it is spread, packed or gathered.
    let masked = insn.op_mask() != Register::None
        && (insn.is_broadcast()
            || repeats_its_operand(insn.mnemonic())
            || is_dense(insn.mnemonic())
            || !masks_can_be_stored());
    let bits_beyond_operand =
        matches!(insn.mnemonic(), Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc)
            && insn.op1_register() != Register::None;
    let mask_vector = matches!(
        insn.mnemonic(),
        Mnemonic::Vmaskmovps
            | Mnemonic::Vmaskmovpd
            | Mnemonic::Vpmaskmovd
            | Mnemonic::Vpmaskmovq
            | Mnemonic::Maskmovdqu
            | Mnemonic::Vmaskmovdqu
            | Mnemonic::Maskmovq
    );
    // The address counts from behind the pop.
    let pop_to_stack = matches!(insn.code(), Code::Pop_rm64 | Code::Pop_rm16)
        && insn.memory_base() == Register::RSP;
    masked
        || insn.is_vsib()
        || bits_beyond_operand
        || mask_vector
        || pop_to_stack
        || matches!(insn.mnemonic(), Mnemonic::Xlatb | Mnemonic::Enter)
}

fn size_of(used: &UsedMemory) -> Option<u32> {
    let size = match used.memory_size() {
        MemorySize::Unknown => 0,
        known => known.size(),
    };
    u32::try_from(size).ok().filter(|size| *size > 0)
}

fn operand(used: &UsedMemory, mask: Register) -> Option<Operand> {
    let kinds: &[AccessKind] = match loads_and_stores(used.access()) {
        (true, true) => &[AccessKind::Load, AccessKind::Store],
        (true, false) => &[AccessKind::Load],
        (false, true) => &[AccessKind::Store],
        (false, false) => &[AccessKind::Prefetch],
    };
    let part = |register: Register| match register {
        Register::None => Some(None),
        other => Gpr::of(other).map(Some),
    };
    let (base, index) = (part(used.base())?, part(used.index())?);
    let narrow = used.address_size() == CodeSize::Code32;
    let location = if base.is_none() && index.is_none() {
        Location::Fixed(used.displacement())
    } else {
        let displacement = if narrow {
            used.displacement() as i32
        } else {
            i32::try_from(used.displacement() as i64).ok()?
        };
        let scale = used.scale() as u8;
        Location::Registers(Address { base, index, scale, displacement, narrow })
    };
    let segment = Segment::of(used.segment());
    let mask = (mask != Register::None).then(|| Mask {
        register: mask.number() as u8,
        element_bytes: used.memory_size().element_size() as u32,
    });
    Some(Operand { location, segment, kinds, size_bytes: size_of(used)?, mask })
}

fn repeat(used: &UsedMemory, element_bytes: u32) -> Option<Repeat> {
    if used.address_size() != CodeSize::Code64 || element_bytes == 0 {
        return None;
    }
    let kind = match loads_and_stores(used.access()) {
        (true, false) => AccessKind::Load,
        (false, true) => AccessKind::Store,
        _ => return None,
    };
    Some(Repeat {
        pointer: Gpr::of(used.base())?,
        segment: Segment::of(used.segment()),
        kind,
        element_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    fn memory(bytes: &[u8]) -> Memory {
        let insn = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode();
        assert!(!insn.is_invalid());
        memory_of(&insn, InstructionInfoFactory::new().info(&insn))
    }

    fn one(bytes: &[u8]) -> Operand {
        match memory(bytes) {
            Memory::Plain(operands) if operands.len() == 1 => operands[0],
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ordinary_operands() {
        // movq xmm0, [rsp+r9*8-0x10]
        let load = one(&[0xf3, 0x42, 0x0f, 0x7e, 0x44, 0xcc, 0xf0]);
        assert_eq!((load.kinds, load.size_bytes), (&[AccessKind::Load][..], 8));
        // push rbx: below the stack pointer
        let push = one(&[0x53]);
        assert_eq!(push.location, Location::Registers(Address::of(Gpr::SP, -8)));
        assert_eq!(push.kinds, [AccessKind::Store]);
        // add [rip+0x10], eax: known beforehand, both ways
        let add = one(&[0x01, 0x05, 0x10, 0, 0, 0]);
        assert_eq!(add.location, Location::Fixed(0x1016));
        assert_eq!(add.kinds, [AccessKind::Load, AccessKind::Store]);
        // mov rax, fs:[0x28]
        let canary = one(&[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0]);
        assert_eq!((canary.location, canary.segment), (Location::Fixed(0x28), Segment::Fs));
    }

    #[test]
    fn loads_come_before_stores() {
        // push qword [rax]
        let Memory::Plain(operands) = memory(&[0xff, 0x30]) else { panic!() };
        let kinds: Vec<_> = operands.iter().flat_map(|o| o.kinds).collect();
        assert_eq!(kinds, [&AccessKind::Load, &AccessKind::Store]);
    }

    #[test]
    fn what_touches_nothing() {
        // lea rax, [rbx+8]; nop [rax]; nop
        for bytes in [&[0x48, 0x8d, 0x43, 0x08][..], &[0x0f, 0x1f, 0x00], &[0x90]] {
            assert_eq!(memory(bytes), Memory::NONE, "{bytes:x?}");
        }
    }

    #[test]
    fn what_a_prefetch_asks_for_is_neither_loaded_nor_stored() {
        // prefetcht0 [rax]
        let Memory::Plain(operands) = memory(&[0x0f, 0x18, 0x08]) else { panic!() };
        let [asked] = operands[..] else { panic!("{operands:?}") };
        assert_eq!((asked.kinds, asked.size_bytes), (&[AccessKind::Prefetch][..], 1));
    }

    #[test]
    fn of_a_division_the_registers_are_told_that_its_time_depends_on() {
        let told = |bytes: &[u8]| {
            let Memory::Plain(operands) = memory(bytes) else { panic!() };
            operands.iter().map(|o| (o.kinds[0], o.location)).collect::<Vec<_>>()
        };
        let register = |n| (AccessKind::Value, Location::Registers(Address::of(Gpr(n), 0)));
        assert_eq!(told(&[0x49, 0xf7, 0xf0]), [register(0), register(2), register(8)]); // div r8
        assert_eq!(told(&[0xf7, 0xf9]), [register(0), register(2), register(1)]); // idiv ecx
        let of_memory = told(&[0x48, 0xf7, 0x33]); // div qword ptr [rbx]
        assert_eq!(of_memory[0].0, AccessKind::Load);
        assert_eq!(of_memory[1..], [register(0), register(2)]);
        assert!(
            told(&[0xf6, 0xf1]).is_empty() && told(&[0x48, 0xf7, 0xe1]).is_empty(),
            "div cl, mul rcx"
        );
    }

    #[test]
    fn repetitions_are_pointers_before_and_after() {
        // rep movsq
        let Memory::Repeated(repeats) = memory(&[0xf3, 0x48, 0xa5]) else { panic!() };
        assert_eq!(repeats.iter().map(|r| r.pointer).collect::<Vec<_>>(), [Gpr(6), Gpr(7)]);
        assert_eq!(repeats.iter().map(|r| r.element_bytes).collect::<Vec<_>>(), [8, 8]);
        // movsq alone is two plain operands
        assert!(matches!(memory(&[0x48, 0xa5]), Memory::Plain(o) if o.len() == 2));
    }

    #[test]
    fn masks_and_indexes_are_unpredictable() {
        // vaddps zmm0{k1}, zmm0, [rax]{1to16}; vpgatherdd ymm0, [rax+ymm1*4], ymm2; bts [rax], rcx; xsave [rax]
        for bytes in [
            &[0x62, 0xf1, 0x7c, 0x59, 0x58, 0x00][..],
            &[0xc4, 0xe2, 0x6d, 0x90, 0x04, 0x88],
            &[0x48, 0x0f, 0xab, 0x08],
            &[0x0f, 0xae, 0x20],
        ] {
            assert_eq!(memory(bytes), Memory::Unpredictable, "{bytes:x?}");
        }
    }
}
