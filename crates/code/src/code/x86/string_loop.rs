//! A string instruction written as a loop: the same bytes without the microcode.
//!
//! `rep movs` and `rep stos` cost tens of cycles before they move the first byte; where few bytes are moved, a
//! loop is faster, where many are, it is not. The loop moves sixteen bytes a turn through two general registers,
//! and one element a turn where the destination begins less than sixteen bytes behind the source, as copies do
//! that repeat what they have just written. It counts on the direction flag being clear, as it must be at every
//! call (System V), and needs the other flags to be of no use behind the instruction.
//! Literature: Intel, "Optimization Reference Manual", on enhanced `rep movsb` and `stosb`.

use iced_x86::code_asm::*;
use iced_x86::{Code, Decoder, DecoderOptions, IcedError, Instruction, Mnemonic, OpKind, Register};

use super::super::Image;
use super::frame::framed;
use super::patch::{LABELS, Patch, PatchError};
use crate::model::Svma;

/// The registers that loops use.
const BORROWED: [Register; 2] = [Register::R8, Register::R9];
/// Flags are written anew within so many instructions, or it is not known.
const MOST_LOOKED_AT: usize = 24;

/// String instructions of `image`: the control, which takes the same detours and leaves them as they are, and the
/// loops.
///
/// # Errors
/// When one of them cannot be replaced; the address tells which.
pub fn string_loops(image: &Image, sites: &[Svma]) -> Result<[Patch; 2], (Svma, PatchError)> {
    for site in sites {
        let function = image.function_at(*site).ok_or((*site, PatchError::NoInstruction))?;
        let bytes = image.function_bytes(function);
        check(bytes, function.start, *site).map_err(|error| (*site, error))?;
    }
    let control = Patch::of(image, sites, &|insn| framed(&BORROWED, false, vec![*insn]))?;
    let cure = Patch::of(image, sites, &|insn| {
        let made = looped(insn).map_err(|_| PatchError::TooFar)?;
        let label = |ip: u64| if ip == 0 { 0 } else { LABELS + (insn.ip() << 8) + ip };
        framed(&BORROWED, false, made.into_iter().map(|it| with_labels(it, label)).collect())
    })?;
    Ok([control, cure])
}

/// An assembler numbers its labels from 1; here they must differ from those of other sites.
fn with_labels(mut insn: Instruction, label: impl Fn(u64) -> u64) -> Instruction {
    insn.set_ip(label(insn.ip()));
    if insn.op_count() > 0 && insn.op0_kind() == OpKind::NearBranch64 {
        insn.set_near_branch64(label(insn.near_branch64()));
    }
    insn
}

/// Whether it is a string instruction that a loop can take the place of.
fn check(bytes: &[u8], start: Svma, site: Svma) -> Result<(), PatchError> {
    let no_way = |why| Err(PatchError::NoOtherWay(why));
    let mut decoder = Decoder::with_ip(64, bytes, start.0, DecoderOptions::NONE);
    if decoder.iter().any(|insn| insn.mnemonic() == Mnemonic::Std) {
        return no_way("its function sets the direction flag");
    }
    let at = site.distance_from(start).and_then(|at| usize::try_from(at).ok());
    let placed = at.is_some_and(|at| decoder.set_position(at).is_ok());
    if !placed {
        return Err(PatchError::NoInstruction);
    }
    decoder.set_ip(site.0);
    let insn = decoder.decode();
    if !insn.has_rep_prefix() || element(&insn).is_none() {
        return no_way("it is not rep movs or rep stos");
    }
    if insn.op0_kind() != OpKind::MemoryESRDI || insn.has_segment_prefix() {
        return no_way("its addresses have 32 bits or another segment");
    }
    // The arithmetic flags that nothing has written yet.
    let mut open = iced_x86::RflagsBits::OF
        | iced_x86::RflagsBits::SF
        | iced_x86::RflagsBits::ZF
        | iced_x86::RflagsBits::AF
        | iced_x86::RflagsBits::CF
        | iced_x86::RflagsBits::PF;
    for insn in decoder.iter().take(MOST_LOOKED_AT) {
        if insn.rflags_read() & open != 0 || insn.is_invalid() {
            break;
        }
        open &= !insn.rflags_modified();
        if open == 0
            || insn.is_call_near()
            || insn.is_call_near_indirect()
            || insn.mnemonic() == Mnemonic::Ret
        {
            return Ok(());
        }
        if insn.flow_control() != iced_x86::FlowControl::Next {
            break;
        }
    }
    no_way("the flags may still be needed behind it")
}

/// Bytes of an element, and whether it is moved rather than stored.
fn element(insn: &Instruction) -> Option<(i32, bool)> {
    Some(match insn.code() {
        Code::Movsb_m8_m8 => (1, true),
        Code::Movsw_m16_m16 => (2, true),
        Code::Movsd_m32_m32 => (4, true),
        Code::Movsq_m64_m64 => (8, true),
        Code::Stosb_m8_AL => (1, false),
        Code::Stosw_m16_AX => (2, false),
        Code::Stosd_m32_EAX => (4, false),
        Code::Stosq_m64_RAX => (8, false),
        _ => return None,
    })
}

fn looped(insn: &Instruction) -> Result<Vec<Instruction>, IcedError> {
    let (size, moves) = element(insn).unwrap_or((1, true));
    let mut a = CodeAssembler::new(64)?;
    let (mut wide, mut rest, mut one) = (a.create_label(), a.create_label(), a.create_label());
    let mut done = a.create_label();
    if size > 1 {
        a.shl(rcx, size.trailing_zeros())?;
    }
    if moves {
        a.mov(r8, rdi)?;
        a.sub(r8, rsi)?;
        a.cmp(r8, 16)?;
        a.jb(one)?;
    } else {
        fill(&mut a, size)?;
    }
    a.set_label(&mut wide)?;
    a.sub(rcx, 16)?;
    a.jb(rest)?;
    if moves {
        a.mov(r8, qword_ptr(rsi))?;
        a.mov(r9, qword_ptr(rsi + 8))?;
        a.mov(qword_ptr(rdi + 8), r9)?;
    } else {
        a.mov(qword_ptr(rdi + 8), r8)?;
    }
    a.mov(qword_ptr(rdi), r8)?;
    advance(&mut a, moves, 16)?;
    a.jmp(wide)?;
    // Sixteen less than what is left: the four lowest bits are those of what is left.
    a.set_label(&mut rest)?;
    for bytes in [8, 4, 2, 1].into_iter().filter(|bytes| *bytes >= size) {
        let mut next = a.create_label();
        a.test(cl, bytes)?;
        a.jz(next)?;
        if moves {
            load(&mut a, bytes)?;
        }
        store(&mut a, bytes)?;
        advance(&mut a, moves, bytes)?;
        a.set_label(&mut next)?;
        a.nop()?;
    }
    if moves {
        a.jmp(done)?;
        a.set_label(&mut one)?;
        a.test(rcx, rcx)?;
        a.jz(done)?;
        let mut again = a.create_label();
        a.set_label(&mut again)?;
        load(&mut a, size)?;
        store(&mut a, size)?;
        advance(&mut a, moves, size)?;
        a.sub(rcx, size)?;
        a.jnz(again)?;
    }
    a.set_label(&mut done)?;
    a.xor(ecx, ecx)?;
    Ok(a.take_instructions())
}

/// Sixteen bytes of what is stored, in `r8` twice.
fn fill(a: &mut CodeAssembler, size: i32) -> Result<(), IcedError> {
    match size {
        1 => {
            a.movzx(r8d, al)?;
            a.mov(r9, 0x0101_0101_0101_0101_u64)?;
            a.imul_2(r8, r9)
        }
        2 => {
            a.movzx(r8d, ax)?;
            a.mov(r9, 0x0001_0001_0001_0001_u64)?;
            a.imul_2(r8, r9)
        }
        4 => {
            a.mov(r8d, eax)?;
            a.mov(r9, r8)?;
            a.shl(r9, 32)?;
            a.or(r8, r9)
        }
        _ => a.mov(r8, rax),
    }
}

fn load(a: &mut CodeAssembler, bytes: i32) -> Result<(), IcedError> {
    match bytes {
        8 => a.mov(r8, qword_ptr(rsi)),
        4 => a.mov(r8d, dword_ptr(rsi)),
        2 => a.movzx(r8d, word_ptr(rsi)),
        _ => a.movzx(r8d, byte_ptr(rsi)),
    }
}

fn store(a: &mut CodeAssembler, bytes: i32) -> Result<(), IcedError> {
    match bytes {
        8 => a.mov(qword_ptr(rdi), r8),
        4 => a.mov(dword_ptr(rdi), r8d),
        2 => a.mov(word_ptr(rdi), r8w),
        _ => a.mov(byte_ptr(rdi), r8b),
    }
}

fn advance(a: &mut CodeAssembler, moves: bool, bytes: i32) -> Result<(), IcedError> {
    if moves {
        a.add(rsi, bytes)?;
    }
    a.add(rdi, bytes)
}
