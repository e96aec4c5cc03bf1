//! The accesses of an instruction that is about to be stepped over, from the registers.
//!
//! For what [`super::operands`] cannot foresee: masks, vectors of indexes, bit strings, saved state.

use std::io;

use iced_x86::{
    Instruction, InstructionInfoFactory, MemorySize, Mnemonic, OpAccess, OpKind, Register,
    UsedMemory,
};

use super::operands::packs;
use super::process::Registers;
use super::vectors::Vectors;
use crate::model::Avma;
use crate::trace::engine::{AccessKind, MemoryAccess};

/// What an instruction is going to touch.
pub(super) fn accesses(
    insn: &Instruction,
    registers: &Registers,
    pid: i32,
) -> io::Result<Vec<MemoryAccess>> {
    let mut factory = InstructionInfoFactory::new();
    let touched: Vec<UsedMemory> = factory
        .info(insn)
        .used_memory()
        .iter()
        .filter(|m| !matches!(m.access(), OpAccess::None | OpAccess::NoMemAccess))
        .copied()
        .collect();
    if touched.is_empty() {
        return Ok(Vec::new());
    }
    let vectors = Vectors::of(pid)?;
    let state = State { insn, registers, vectors };
    let mut found = Vec::new();
    for kind in [AccessKind::Load, AccessKind::Store] {
        for used in &touched {
            if does(used.access(), kind) {
                state.add(used, kind, &mut found);
            }
        }
    }
    Ok(found)
}

fn does(access: OpAccess, kind: AccessKind) -> bool {
    let loads = !matches!(access, OpAccess::Write | OpAccess::CondWrite);
    let stores = !matches!(access, OpAccess::Read | OpAccess::CondRead);
    match kind {
        AccessKind::Load => loads,
        AccessKind::Store => stores,
    }
}

struct State<'a> {
    insn: &'a Instruction,
    registers: &'a Registers,
    vectors: Vectors,
}

impl State<'_> {
    fn register(&self, register: Register) -> u64 {
        let r = self.registers;
        let whole = match register.full_register() {
            Register::RAX => r.rax,
            Register::RCX => r.rcx,
            Register::RDX => r.rdx,
            Register::RBX => r.rbx,
            Register::RSP => r.rsp,
            Register::RBP => r.rbp,
            Register::RSI => r.rsi,
            Register::RDI => r.rdi,
            Register::R8 => r.r8,
            Register::R9 => r.r9,
            Register::R10 => r.r10,
            Register::R11 => r.r11,
            Register::R12 => r.r12,
            Register::R13 => r.r13,
            Register::R14 => r.r14,
            Register::R15 => r.r15,
            Register::FS => return r.fs_base,
            Register::GS => return r.gs_base,
            _ => return 0,
        };
        match register.size() {
            1 => whole & 0xff,
            2 => whole & 0xffff,
            4 => whole & 0xffff_ffff,
            _ => whole,
        }
    }

    /// The address of one lane, or of the whole operand.
    fn address(&self, used: &UsedMemory, lane: usize) -> u64 {
        used.virtual_address(lane, |register, element, size| {
            if !register.is_vector_register() {
                return Some(self.register(register));
            }
            let vector = self.vectors.vector(register);
            let bytes = vector.get(element * size..(element + 1) * size)?;
            Some(match size {
                4 => i64::from(i32::from_le_bytes(bytes.try_into().ok()?)).cast_unsigned(),
                _ => u64::from_le_bytes(bytes.try_into().ok()?),
            })
        })
        .unwrap_or_default()
    }

    fn add(&self, used: &UsedMemory, kind: AccessKind, found: &mut Vec<MemoryAccess>) {
        let mut one = |address: u64, bytes: u64| {
            if bytes > 0 {
                let size_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                found.push(MemoryAccess { insn: 0, kind, size_bytes, address: Avma(address) });
            }
        };
        let size = used.memory_size().size() as u64;
        let element = used.memory_size().element_size().max(1) as u64;
        if used.index().is_vector_register() {
            for lane in self.active_lanes(used) {
                one(self.address(used, lane), element);
            }
            return;
        }
        let mut start = self.address(used, 0);
        if self.insn.is_string_instruction() && self.is_repeated() {
            let size = self.insn.memory_size().size() as u64;
            let bytes = self.registers.rcx.saturating_mul(size);
            let down = self.registers.eflags & 1 << 10 != 0;
            if down {
                start = start.wrapping_sub(bytes.saturating_sub(size));
            }
            one(start, bytes);
            return;
        }
        if let Some(active) = self.active_elements(used, element) {
            let dense = packs(self.insn.mnemonic());
            if dense {
                one(start, u64::from(active.count_ones()) * element);
            } else if active != 0 {
                let first = u64::from(active.trailing_zeros());
                let last = 63 - u64::from(active.leading_zeros());
                one(start.wrapping_add(first * element), (last - first + 1) * element);
            }
            return;
        }
        let register = self.insn.op1_register();
        if matches!(
            self.insn.mnemonic(),
            Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc
        ) && register != Register::None
        {
            // The bit's number counts through all of memory.
            let bit = match size {
                2 => i64::from(self.register(register) as i16),
                4 => i64::from(self.register(register) as i32),
                _ => self.register(register) as i64,
            };
            start = start.wrapping_add_signed(bit.div_euclid(8 * size as i64) * size as i64);
        }
        if matches!(self.insn.mnemonic(), Mnemonic::Pop)
            && self.insn.memory_base() == Register::RSP
            && used.base() == Register::RSP
            && kind == AccessKind::Store
        {
            start = start.wrapping_add(size);
        }
        let bytes = if used.memory_size() == MemorySize::Unknown || size == 0 {
            state_bytes(self.insn.mnemonic())
        } else {
            size
        };
        one(start, bytes);
    }

    fn is_repeated(&self) -> bool {
        self.insn.has_rep_prefix() || self.insn.has_repe_prefix() || self.insn.has_repne_prefix()
    }

    /// The lanes of a gather or scatter whose mask is set.
    fn active_lanes(&self, used: &UsedMemory) -> Vec<usize> {
        let element = used.memory_size().element_size().max(1);
        let data = match self.insn.op0_kind() {
            OpKind::Register => self.insn.op0_register(),
            _ => self.insn.op1_register(),
        };
        let index_bytes = used.vsib_size().max(4) as usize;
        let lanes = (data.size() / element).min(used.index().size() / index_bytes);
        let by_register = self.insn.op_mask() == Register::None;
        let mask = if by_register { 0 } else { self.vectors.mask(self.insn.op_mask()) };
        let vector = self.vectors.vector(self.insn.op2_register());
        (0..lanes)
            .filter(|lane| {
                if by_register {
                    vector.get((lane + 1) * element - 1).is_some_and(|byte| byte & 0x80 != 0)
                } else {
                    mask >> lane & 1 != 0
                }
            })
            .collect()
    }

    /// Which elements of a masked access are active; `None` for an access without mask.
    fn active_elements(&self, used: &UsedMemory, element: u64) -> Option<u64> {
        let count = (used.memory_size().size() as u64 / element).clamp(1, 64);
        let all = u64::MAX >> (64 - count);
        if self.insn.op_mask() != Register::None {
            let mask = self.vectors.mask(self.insn.op_mask());
            if self.insn.is_broadcast() || self.insn.is_vsib() {
                return Some(u64::from(mask != 0));
            }
            return Some(mask & all);
        }
        let (register, element) = match self.insn.mnemonic() {
            Mnemonic::Vmaskmovps
            | Mnemonic::Vpmaskmovd
            | Mnemonic::Vmaskmovpd
            | Mnemonic::Vpmaskmovq => (self.insn.op1_register(), element as usize),
            Mnemonic::Maskmovdqu | Mnemonic::Vmaskmovdqu => (self.insn.op2_register(), 1),
            _ => return None,
        };
        let vector = self.vectors.vector(register);
        let lanes = used.memory_size().size() / element;
        Some((0..lanes.min(64)).fold(0, |set, lane| {
            let top = vector.get((lane + 1) * element - 1).copied().unwrap_or(0);
            set | u64::from(top >> 7) << lane
        }))
    }
}

/// How much an instruction that saves or restores the processor's state touches, at most.
fn state_bytes(mnemonic: Mnemonic) -> u64 {
    match mnemonic {
        Mnemonic::Xsave
        | Mnemonic::Xsave64
        | Mnemonic::Xsaveopt
        | Mnemonic::Xsaveopt64
        | Mnemonic::Xsavec
        | Mnemonic::Xsavec64
        | Mnemonic::Xrstor
        | Mnemonic::Xrstor64 => u64::from(std::arch::x86_64::__cpuid_count(0xd, 0).ebx),
        _ => 0,
    }
}
