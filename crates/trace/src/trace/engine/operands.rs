//! Which memory an instruction is about to touch, from its operands and the registers.
//!
//! The decoder knows the operands, including the implied ones of `push`, `call` or `movs`. Here
//! are the cases in which the operands alone do not tell what is touched: lanes that are masked
//! off, gathers and scatters, bit strings, the area of `xsave`, the rows of a tile.

use iced_x86::{
    CodeSize, Instruction, InstructionInfoFactory, MemorySize, Mnemonic, OpAccess, OpKind,
    Register, UsedMemory,
};

use super::blocks::Touch;
use super::state::{Extended, general};
use super::{AccessKind, VALUE_BYTES};
use crate::code::x86::{is_prefetch, loads_and_stores};
use crate::model::Avma;

/// What every instruction of the `xsave` family touches: the legacy area and the header. How much
/// comes behind depends on what the processor tracks, and differs between formats.
const XSAVE_BYTES: u32 = 576;

/// The registers before an instruction.
pub(super) struct Before<'a> {
    /// The general ones.
    pub general: &'a libc::user_regs_struct,
    /// Those that [`needs_extended`] asks for.
    pub extended: &'a Extended,
}

/// Whether the addresses or sizes depend on vector or mask registers.
pub(super) fn needs_extended(insn: &Instruction) -> bool {
    let has_memory = (0..insn.op_count()).any(|i| is_memory(insn, i));
    has_memory
        && (insn.is_vsib()
            || insn.op_mask() != Register::None
            || sign_mask(insn).is_some()
            || tile(insn).is_some())
}

/// The tile register that the instruction fills from memory or stores.
fn tile(insn: &Instruction) -> Option<Register> {
    use Mnemonic as M;
    match insn.mnemonic() {
        M::Tileloadd | M::Tileloaddt1 => Some(insn.op0_register()),
        M::Tilestored => Some(insn.op1_register()),
        _ => None,
    }
}

/// Whether it has a `rep` prefix that means repetition.
pub(super) fn repeats(insn: &Instruction) -> bool {
    insn.is_string_instruction() && (insn.has_rep_prefix() || insn.has_repne_prefix())
}

/// Makes the accesses of a first repetition those of all that took place; `counter` is `rcx` behind
/// them.
pub(super) fn stretch(
    insn: &Instruction,
    before: &libc::user_regs_struct,
    counter: u64,
    touches: &mut Vec<Touch>,
) {
    const DIRECTION_FLAG: u64 = 0x400;
    let mut count = before.rcx.wrapping_sub(counter);
    let kinds = [insn.op0_kind(), insn.op1_kind()];
    if kinds.contains(&OpKind::MemoryESEDI) || insn.op1_kind() == OpKind::MemorySegESI {
        count &= 0xffff_ffff;
    }
    if count == 0 {
        touches.clear();
        return;
    }
    for touch in touches {
        let element = u64::from(touch.size_bytes);
        if before.eflags & DIRECTION_FLAG != 0 {
            touch.address = touch.address.offset(-(((count - 1) * element).cast_signed()));
        }
        touch.size_bytes = u32::try_from(element.saturating_mul(count)).unwrap_or(u32::MAX);
    }
}

fn is_memory(insn: &Instruction, operand: u32) -> bool {
    use iced_x86::OpKind as K;
    !matches!(
        insn.op_kind(operand),
        K::Register
            | K::NearBranch16
            | K::NearBranch32
            | K::NearBranch64
            | K::FarBranch16
            | K::FarBranch32
            | K::Immediate8
            | K::Immediate8_2nd
            | K::Immediate16
            | K::Immediate32
            | K::Immediate64
            | K::Immediate8to16
            | K::Immediate8to32
            | K::Immediate8to64
            | K::Immediate32to64
    )
}

/// The vector register whose sign bits switch lanes on, for instructions of before AVX-512.
fn sign_mask(insn: &Instruction) -> Option<Register> {
    use Mnemonic as M;
    match insn.mnemonic() {
        M::Vmaskmovps | M::Vmaskmovpd | M::Vpmaskmovd | M::Vpmaskmovq => Some(insn.op1_register()),
        M::Maskmovq | M::Maskmovdqu | M::Vmaskmovdqu => Some(insn.op2_register()),
        _ if insn.is_vsib() && insn.op_mask() == Register::None => Some(insn.op2_register()),
        _ => None,
    }
}

/// Collects what the instruction touches: loads, then stores. For one with a `rep` prefix, what
/// its first repetition touches.
pub(super) fn touches(
    insn: &Instruction,
    factory: &mut InstructionInfoFactory,
    before: &Before<'_>,
    out: &mut Vec<Touch>,
) {
    out.clear();
    if let Some(asked) = prefetched(insn) {
        let kind = AccessKind::Prefetch;
        each_stretch(insn, &asked, before, |address, size_bytes| {
            out.push(Touch { kind, size_bytes, address: Avma(address) });
        });
    }
    if touches_nothing(insn.mnemonic()) {
        return;
    }
    for memory in factory.info(insn).used_memory() {
        let (load, store) = loads_and_stores(memory.access());
        for (kind, wanted) in [(AccessKind::Load, load), (AccessKind::Store, store)] {
            if wanted {
                each_stretch(insn, memory, before, |address, size_bytes| {
                    out.push(Touch { kind, size_bytes, address: Avma(address) });
                });
            }
        }
    }
    for value in divided(insn).into_iter().filter_map(|it| general(before.general, it)) {
        let kind = AccessKind::Value;
        out.push(Touch { kind, size_bytes: VALUE_BYTES, address: Avma(value) });
    }
    out.retain(|touch| touch.size_bytes > 0);
    out.sort_by_key(|touch| touch.kind);
}

/// The registers of which a division's time depends; see [`AccessKind::Value`].
pub(super) fn divided(insn: &Instruction) -> Vec<Register> {
    let divides = matches!(insn.mnemonic(), Mnemonic::Div | Mnemonic::Idiv);
    // Of one byte, both halves are in `ax`.
    let is_wide = divides && (insn.memory_size().size() > 1 || insn.op0_register().size() > 1);
    let all = [Register::RAX, Register::RDX, insn.op0_register().full_register()];
    all.into_iter().filter(|it| is_wide && *it != Register::None).collect()
}

/// The bytes of an operand; 0 where the encoding does not tell. With a `rep` prefix the decoder leaves
/// the size of the whole open; ours is that of one repetition.
pub(super) fn size_of(insn: &Instruction, memory: &UsedMemory) -> usize {
    match memory.memory_size().size() {
        0 if insn.is_string_instruction() => insn.memory_size().size(),
        size => size,
    }
}

/// What a prefetch asks for; the decoder leaves it out of what is used.
pub(super) fn prefetched(insn: &Instruction) -> Option<UsedMemory> {
    let base = match insn.memory_base() {
        Register::RIP | Register::EIP => Register::None,
        base => base,
    };
    let narrow = base.is_gpr32() || insn.memory_index().is_gpr32();
    is_prefetch(insn.mnemonic()).then(|| {
        UsedMemory::new2(
            insn.memory_segment(),
            base,
            insn.memory_index(),
            insn.memory_index_scale(),
            insn.memory_displacement64(),
            MemorySize::UInt8,
            OpAccess::NoMemAccess,
            if narrow { CodeSize::Code32 } else { CodeSize::Code64 },
            0,
        )
    })
}

/// Instructions with a memory operand that loads or stores no data.
pub(super) fn touches_nothing(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    let other = matches!(
        mnemonic,
        M::Lea
            | M::Nop
            | M::Clflush
            | M::Clflushopt
            | M::Clwb
            | M::Cldemote
            | M::Prefetchit0
            | M::Prefetchit1
            | M::Bndmk
            | M::Monitor
            | M::Monitorx
    );
    other || is_prefetch(mnemonic)
}

/// The stretches of one memory operand that are touched.
fn each_stretch(
    insn: &Instruction,
    memory: &UsedMemory,
    before: &Before<'_>,
    mut found: impl FnMut(u64, u32),
) {
    let address = |element: usize| {
        memory.virtual_address(element, |register, element, element_size| {
            if register.is_vector_register() {
                return Some(lane(&before.extended.vector(register), element, element_size));
            }
            general(before.general, register)
        })
    };
    let element_bytes = memory.memory_size().element_size();
    if memory.vsib_size() != 0 {
        for lane in active_lanes(insn, memory, before) {
            if let Some(at) = address(lane) {
                found(at, element_bytes as u32);
            }
        }
        return;
    }
    let Some(start) = address(0) else { return };
    if let Some(tile) = tile(insn) {
        // The index is the distance between rows, and the decoder leaves it out of the address.
        let index = general(before.general, insn.memory_index()).unwrap_or(0);
        let stride = index.wrapping_mul(insn.memory_index_scale().into());
        let (rows, bytes) = before.extended.tile_shape(tile);
        (0..rows).for_each(|row| found(start.wrapping_add(stride.wrapping_mul(row)), bytes));
        return;
    }
    let size = size_of(insn, memory);
    if size == 0 {
        found(start, area_bytes(insn.mnemonic()));
        return;
    }
    if let Some((bit_offset, bits)) = bit_string(insn, before) {
        found(start.wrapping_add_signed(bit_offset.div_euclid(bits) * (bits / 8)), size as u32);
        return;
    }
    if needs_extended(insn) {
        if let Some((first, end)) = active_bytes(insn, size, element_bytes, before) {
            found(start.wrapping_add(first as u64), (end - first) as u32);
        }
        return;
    }
    found(start, size as u32);
}

fn lane(vector: &[u8; 64], index: usize, size: usize) -> u64 {
    let mut word = [0; 8];
    if let Some(bytes) = vector.get(index * size..(index + 1) * size) {
        word[..size.min(8)].copy_from_slice(&bytes[..size.min(8)]);
    }
    u64::from_le_bytes(word)
}

/// The lanes of a gather or scatter that are switched on.
fn active_lanes(
    insn: &Instruction,
    memory: &UsedMemory,
    before: &Before<'_>,
) -> impl Iterator<Item = usize> {
    let element = memory.memory_size().element_size().max(1);
    let data = (0..insn.op_count())
        .map(|i| insn.op_register(i))
        .find(|r| r.is_vector_register())
        .map_or(0, Register::size);
    let indexes = memory.index().size() / memory.vsib_size().max(1) as usize;
    let mask = lane_mask(insn, element, before);
    (0..indexes.min(data / element)).filter(move |lane| mask >> lane & 1 == 1)
}

/// One bit per lane.
fn lane_mask(insn: &Instruction, element: usize, before: &Before<'_>) -> u64 {
    if insn.op_mask() != Register::None {
        return before.extended.mask(insn.op_mask());
    }
    let Some(register) = sign_mask(insn) else { return u64::MAX };
    let vector = before.extended.vector(register);
    (0..register.size() / element)
        .filter(|lane| vector[(lane + 1) * element - 1] & 0x80 != 0)
        .fold(0, |mask, lane| mask | 1 << lane)
}

/// First byte and end of what a masked access touches, from the operand's start.
fn active_bytes(
    insn: &Instruction,
    size: usize,
    element: usize,
    before: &Before<'_>,
) -> Option<(usize, usize)> {
    // The byte-wise ones name their operand as a whole.
    let bytewise = matches!(
        insn.mnemonic(),
        Mnemonic::Maskmovq | Mnemonic::Maskmovdqu | Mnemonic::Vmaskmovdqu
    );
    let element = if bytewise { 1 } else { element.max(1) };
    let mask = lane_mask(insn, element, before);
    let widest = (0..insn.op_count())
        .map(|i| insn.op_register(i))
        .filter(|r| r.is_vector_register())
        .map(Register::size)
        .max()
        .unwrap_or(size);
    let low = |lanes: usize| if lanes >= 64 { mask } else { mask & ((1 << lanes) - 1) };
    let lanes = size / element;
    if insn.is_broadcast() || repeats_its_operand(insn.mnemonic()) {
        return (low(widest / element) != 0).then_some((0, size));
    }
    let mask = low(lanes);
    if mask == 0 {
        return None;
    }
    if is_dense(insn.mnemonic()) {
        return Some((0, mask.count_ones() as usize * element));
    }
    let (first, last) = (mask.trailing_zeros() as usize, 63 - mask.leading_zeros() as usize);
    Some((first * element, (last + 1) * element))
}

/// Each element of the operand goes to several lanes.
pub(super) fn repeats_its_operand(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Vbroadcastss
            | M::Vbroadcastsd
            | M::Vbroadcastf32x2
            | M::Vbroadcastf32x4
            | M::Vbroadcastf32x8
            | M::Vbroadcastf64x2
            | M::Vbroadcastf64x4
            | M::Vbroadcasti32x2
            | M::Vbroadcasti32x4
            | M::Vbroadcasti32x8
            | M::Vbroadcasti64x2
            | M::Vbroadcasti64x4
            | M::Vpbroadcastb
            | M::Vpbroadcastw
            | M::Vpbroadcastd
            | M::Vpbroadcastq
    )
}

/// The active lanes stand side by side in memory.
pub(super) fn is_dense(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Vcompressps
            | M::Vcompresspd
            | M::Vpcompressb
            | M::Vpcompressw
            | M::Vpcompressd
            | M::Vpcompressq
            | M::Vexpandps
            | M::Vexpandpd
            | M::Vpexpandb
            | M::Vpexpandw
            | M::Vpexpandd
            | M::Vpexpandq
    )
}

/// `bt` and its kin with a register count bits from the operand's start, far beyond it and before.
fn bit_string(insn: &Instruction, before: &Before<'_>) -> Option<(i64, i64)> {
    use Mnemonic as M;
    if !matches!(insn.mnemonic(), M::Bt | M::Bts | M::Btr | M::Btc) {
        return None;
    }
    let register = insn.op1_register();
    let value = general(before.general, register)?;
    Some(match register.size() {
        8 => (value.cast_signed(), 64),
        4 => (i64::from(value as u32 as i32), 32),
        2 => (i64::from(value as u16 as i16), 16),
        _ => return None,
    })
}

/// The size of an operand that the encoding does not tell.
pub(super) fn area_bytes(mnemonic: Mnemonic) -> u32 {
    use Mnemonic as M;
    match mnemonic {
        M::Xsave
        | M::Xsave64
        | M::Xsaveopt
        | M::Xsaveopt64
        | M::Xsavec
        | M::Xsavec64
        | M::Xrstor
        | M::Xrstor64 => XSAVE_BYTES,
        _ => 0,
    }
}
