//! Registers that are borrowed by code that is put in: saved below the red zone, and restored.

use iced_x86::{Code, IcedError, Instruction, MemoryOperand, Register};

use super::patch::PatchError;

/// What a function may keep below its stack pointer without saying so (System V).
const RED_ZONE_BYTES: i64 = 128;
/// Room for each register that is saved.
const SLOT_BYTES: i64 = 32;

/// What the stack pointer is lowered by while so many registers are borrowed.
pub(super) fn frame_bytes(registers: usize) -> i64 {
    if registers == 0 { 0 } else { RED_ZONE_BYTES + SLOT_BYTES * registers as i64 }
}

/// `body` with the `borrowed` registers saved and restored around it; the flags are left alone. `is_vex` when
/// vector registers are saved in all their 32 bytes, as code with that encoding wants it.
pub(super) fn framed(
    borrowed: &[Register],
    is_vex: bool,
    body: Vec<Instruction>,
) -> Result<Vec<Instruction>, PatchError> {
    if borrowed.is_empty() {
        return Ok(body);
    }
    let stack = |displacement| MemoryOperand::with_base_displ(Register::RSP, displacement);
    let lower = |bytes| Instruction::with2(Code::Lea_r64_m, Register::RSP, stack(bytes));
    let bytes = frame_bytes(borrowed.len());
    let mut saves = vec![lower(-bytes)];
    let mut restores = Vec::new();
    for (n, register) in borrowed.iter().enumerate() {
        let slot = stack(SLOT_BYTES * n as i64);
        let (store, load, whole) = if register.is_gpr() {
            (Code::Mov_rm64_r64, Code::Mov_r64_rm64, *register)
        } else if is_vex {
            let whole = Register::YMM0 + register.number() as u32;
            (Code::VEX_Vmovups_ymmm256_ymm, Code::VEX_Vmovups_ymm_ymmm256, whole)
        } else {
            (Code::Movups_xmmm128_xmm, Code::Movups_xmm_xmmm128, *register)
        };
        saves.push(Instruction::with2(store, slot, whole));
        restores.push(Instruction::with2(load, whole, slot));
    }
    restores.push(lower(bytes));
    let built =
        |insns: Vec<Result<Instruction, IcedError>>| -> Result<Vec<Instruction>, PatchError> {
            let all: Result<_, IcedError> = insns.into_iter().collect();
            all.map_err(|_| PatchError::NoOtherWay("an instruction cannot be built"))
        };
    Ok([built(saves)?, body, built(restores)?].concat())
}
