//! Code in the place of a program's own: jumps to trampolines, for a process that is about to run.
//!
//! A detour replaces some instructions that stand one behind the other by a jump to a trampoline, which
//! holds what is to run instead and a jump back. At least as many bytes as a jump has are replaced, none of
//! which anything jumps into but the first. Calls are not moved: what they call would see another address
//! to return to. Instructions that are moved keep what they do: distances are written anew. Whole functions can
//! be copied, too ([`super::placed`]); the jump is then at their first instruction.

use std::ops::Range;
use std::path::{Path, PathBuf};

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, Instruction,
    InstructionBlock, Mnemonic, OpKind,
};

use super::super::{Flow, FunctionCode, Image, Insn, LONGEST_INSN_BYTES};
use crate::model::{Avma, FileOffset, PAGE_BYTES, Svma};

/// Bytes of a jump with a distance of 32 bits.
pub(super) const JUMP_BYTES: usize = 5;

/// Instructions that are put in and jumped to have numbers from here on in the place of an address, which no
/// others have.
pub(super) const LABELS: u64 = 1 << 62;

/// Why code cannot be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// There is no instruction at the address.
    #[error("there is no instruction at its address")]
    NoInstruction,
    /// Fewer bytes than a jump has can be moved.
    #[error("the instructions around it cannot be moved away to make room for a jump")]
    NoRoom,
    /// An indirect jump may lead into the bytes that a jump needs.
    #[error("an indirect jump of its function may lead into the bytes that a jump would need")]
    IndirectJump,
    /// The instruction cannot be written in another way that does the same.
    #[error("there is no other way to write it: {0}")]
    NoOtherWay(&'static str),
    /// The trampolines are too far away, or an instruction cannot be written there.
    #[error("an instruction cannot be moved to where there is room")]
    TooFar,
}

/// Instructions that stand one behind the other, and what runs instead.
#[derive(Clone, Debug, PartialEq)]
struct Detour {
    start: Svma,
    end: Svma,
    replaced: Vec<u8>,
    instead: Vec<Instruction>,
}

/// A function that runs somewhere else.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Copied {
    pub start: Svma,
    pub bytes: Vec<u8>,
    /// Where in `bytes` distances of 32 bits to what lies outside begin.
    pub distances: Vec<usize>,
    /// How far into a page the copy starts, in bytes.
    pub place: u64,
}

/// What is replaced in one file.
///
/// ```
/// use stallscope_code::code::x86::Patch;
/// assert!(Patch::default().is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Patch {
    detours: Vec<Detour>,
    copies: Vec<Copied>,
    file: PathBuf,
    /// A position in the file and the address that the file states for it.
    anchor: Option<(FileOffset, Svma)>,
}

/// Bytes to be written: trampolines, and the jumps to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedPatch {
    /// The trampolines, one behind the other.
    pub trampolines: Vec<u8>,
    /// Where jumps go, the bytes that must stand there, and those that are written.
    pub jumps: Vec<(Avma, Vec<u8>, Vec<u8>)>,
}

impl Patch {
    /// Replaces the instructions at `sites` by what `rewrite` makes of each.
    ///
    /// # Errors
    /// When one of them cannot be replaced; the address tells which.
    pub(super) fn of(
        image: &Image,
        sites: &[Svma],
        rewrite: &dyn Fn(&Instruction) -> Result<Vec<Instruction>, PatchError>,
    ) -> Result<Self, (Svma, PatchError)> {
        let mut patch = Self { file: image.path().into(), ..Self::default() };
        let mut sites = sites.to_vec();
        sites.sort_unstable();
        // The function of the site before: a large one takes long to decode.
        let mut latest: Option<(Svma, FunctionCode)> = None;
        for site in &sites {
            if patch.detours.last().is_some_and(|detour| *site < detour.end) {
                continue;
            }
            let function = image.function_at(*site).ok_or((*site, PatchError::NoInstruction))?;
            let code = match latest.take().filter(|(start, _)| *start == function.start) {
                Some((_, code)) => code,
                None => FunctionCode::of(image, function),
            };
            let detour = detour(image, &code, *site, &sites, rewrite);
            let detour = detour.map_err(|error| (*site, error))?;
            if patch.detours.last().is_some_and(|before| before.end > detour.start) {
                return Err((*site, PatchError::NoRoom));
            }
            latest = Some((function.start, code));
            patch.detours.push(detour);
            patch.anchor = image.offset_of(*site).map(|offset| (offset, *site));
        }
        Ok(patch)
    }

    /// Runs copies in the place of functions.
    pub(super) fn of_copies(image: &Image, copies: Vec<Copied>) -> Self {
        let first = copies.first().map(|copy| copy.start);
        let anchor = first.and_then(|svma| Some((image.offset_of(svma)?, svma)));
        Self { detours: Vec::new(), copies, file: image.path().into(), anchor }
    }

    /// Whether nothing is replaced.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.detours.is_empty() && self.copies.is_empty()
    }

    /// The file whose code is replaced; empty when none is.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// A position in the file and the address that the file states for it; `None` when nothing is replaced.
    #[must_use]
    pub fn anchor(&self) -> Option<(FileOffset, Svma)> {
        self.anchor
    }

    /// The bytes for trampolines that start at `at`, where a page begins, in a process whose addresses are by
    /// `bias` above those that the file states.
    ///
    /// # Errors
    /// [`PatchError::TooFar`].
    pub fn encode(&self, at: Avma, bias: u64) -> Result<EncodedPatch, PatchError> {
        let mut encoded = EncodedPatch { trampolines: Vec::new(), jumps: Vec::new() };
        let jump_to = |to: u64| {
            Instruction::with_branch(Code::Jmp_rel32_64, to).map_err(|_| PatchError::TooFar)
        };
        for detour in &self.detours {
            let [from, back] = [detour.start, detour.end].map(|svma| svma.0.wrapping_add(bias));
            let start = at.0.wrapping_add(encoded.trampolines.len() as u64);
            let mut instead: Vec<Instruction> =
                detour.instead.iter().map(|insn| moved(insn, bias)).collect();
            instead.push(jump_to(back)?);
            encoded.trampolines.extend(written(&instead, start)?);
            let mut jump = written(&[jump_to(start)?], from)?;
            if jump.len() > detour.replaced.len() {
                return Err(PatchError::TooFar);
            }
            // Nothing comes there any more: breakpoints show it if something does.
            jump.resize(detour.replaced.len(), 0xcc);
            encoded.jumps.push((Avma(from), detour.replaced.clone(), jump));
        }
        for copy in &self.copies {
            let bytes = &mut encoded.trampolines;
            let start = bytes.len().next_multiple_of(PAGE_BYTES as usize) + copy.place as usize;
            bytes.resize(start, 0xcc);
            bytes.extend(&copy.bytes);
            let from = copy.start.0.wrapping_add(bias);
            let by = from.wrapping_sub(at.0.wrapping_add(start as u64)).cast_signed();
            for distance in &copy.distances {
                let there = start + distance..start + distance + size_of::<i32>();
                let field = bytes.get_mut(there).ok_or(PatchError::TooFar)?;
                let old = i32::from_le_bytes(field.try_into().map_err(|_| PatchError::TooFar)?);
                let new = i32::try_from(i64::from(old) + by).map_err(|_| PatchError::TooFar)?;
                field.copy_from_slice(&new.to_le_bytes());
            }
            let jump = written(&[jump_to(at.0.wrapping_add(start as u64))?], from)?;
            let replaced = copy.bytes.get(..jump.len()).ok_or(PatchError::TooFar)?;
            encoded.jumps.push((Avma(from), replaced.to_vec(), jump));
        }
        Ok(encoded)
    }

    /// Whether this processor has all instructions that are put in.
    #[must_use]
    pub fn runs_here(&self) -> bool {
        use iced_x86::CpuidFeature;
        let all = self.detours.iter().flat_map(|detour| &detour.instead);
        all.flat_map(Instruction::cpuid_features).all(|feature| match feature {
            #[cfg(target_arch = "x86_64")]
            CpuidFeature::BMI2 => std::arch::is_x86_feature_detected!("bmi2"),
            #[cfg(target_arch = "x86_64")]
            CpuidFeature::SSE4_1 => std::arch::is_x86_feature_detected!("sse4.1"),
            // The program's own, or what every x86-64 processor has.
            _ => cfg!(target_arch = "x86_64"),
        })
    }
}

/// The same instruction in a process whose addresses are by `bias` above those that the file states.
fn moved(insn: &Instruction, bias: u64) -> Instruction {
    let mut moved = *insn;
    if insn.is_ip_rel_memory_operand() {
        moved.set_memory_displacement64(insn.memory_displacement64().wrapping_add(bias));
    }
    if insn.op_count() > 0 && insn.op0_kind() == OpKind::NearBranch64 {
        moved.set_near_branch64(insn.near_branch64().wrapping_add(bias));
    }
    if insn.ip() != 0 {
        moved.set_ip(insn.ip().wrapping_add(bias));
    }
    moved
}

fn written(instructions: &[Instruction], at: u64) -> Result<Vec<u8>, PatchError> {
    let block = InstructionBlock::new(instructions, at);
    let encoded = BlockEncoder::encode(64, block, BlockEncoderOptions::NONE);
    encoded.map(|result| result.code_buffer).map_err(|_| PatchError::TooFar)
}

fn detour(
    image: &Image,
    code: &FunctionCode,
    site: Svma,
    sites: &[Svma],
    rewrite: &dyn Fn(&Instruction) -> Result<Vec<Instruction>, PatchError>,
) -> Result<Detour, PatchError> {
    let at = code.insn_at(site).filter(|at| code.insns[*at].svma == site);
    let range = room(image, code, at.ok_or(PatchError::NoInstruction)?)?;
    let (start, end) = (code.insns[range.start].svma, code.insns[range.end - 1].end());
    let moved = end.distance_from(start).unwrap_or(0);
    // A jump may reach into the padding behind the last instruction.
    let replaced = image.code_at(start, moved.max(JUMP_BYTES as u64));
    let code = replaced.get(..moved as usize).ok_or(PatchError::NoInstruction)?;
    let mut instead = Vec::new();
    for raw in Decoder::with_ip(64, code, start.0, DecoderOptions::NONE).iter() {
        match sites.contains(&Svma(raw.ip())) {
            // What jumps to the site from here must come to all of what is put in: no part has its address.
            true => instead.extend(rewrite(&raw)?.into_iter().map(|mut insn| {
                if insn.ip() < LABELS {
                    insn.set_ip(0);
                }
                insn
            })),
            false => instead.push(raw),
        }
    }
    Ok(Detour { start, end, replaced: replaced.to_vec(), instead })
}

/// Instructions around one that have room for a jump together, and which only the first of can be jumped to;
/// the room that the last ones of a function lack may be in the padding behind it.
fn room(image: &Image, code: &FunctionCode, insn: usize) -> Result<Range<usize>, PatchError> {
    let block = &code.blocks[code.block_of(insn)];
    let may_move = |index: usize| code.insns[index].flow != Flow::Call;
    let bytes = |range: &Range<usize>| -> usize {
        code.insns[range.clone()].iter().map(|insn| usize::from(insn.length_bytes)).sum()
    };
    let mut range = insn..insn + 1;
    while bytes(&range) < JUMP_BYTES {
        if range.end < block.end && may_move(range.end) {
            range.end += 1;
        } else if range.start > block.first && may_move(range.start - 1) {
            range.start -= 1;
        } else if range.end == code.insns.len()
            && is_padding(image, &code.insns[range.end - 1], JUMP_BYTES - bytes(&range))
        {
            break;
        } else {
            return Err(PatchError::NoRoom);
        }
    }
    // What a table of jumps leads to is known only where nothing else leads there.
    if range.len() > 1 && code.insns.iter().any(|insn| insn.flow == Flow::IndirectJump) {
        return Err(PatchError::IndirectJump);
    }
    Ok(range)
}

/// Whether nothing goes on behind the last instruction of a function, and so many bytes there are filled with
/// what aligns the next one and belong to none.
fn is_padding(image: &Image, last: &Insn, bytes: usize) -> bool {
    let end = last.end();
    let ends = matches!(last.flow, Flow::Return | Flow::Jump(_));
    let behind = image.code_at(end, LONGEST_INSN_BYTES as u64);
    let fillers = Decoder::with_ip(64, behind, end.0, DecoderOptions::NONE);
    let fills = |insn: &Instruction| matches!(insn.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
    let fillers = fillers.into_iter().take_while(fills).map(|insn| insn.len()).sum::<usize>();
    let belong = (0..bytes as u64).any(|n| image.function_at(Svma(end.0 + n)).is_some());
    ends && !belong && fillers >= bytes
}
