//! Whole functions at other addresses: byte for byte, at a chosen place within a page.
//!
//! Where code lies decides which sets of the instruction cache, which windows of fetch and decoding and which
//! entries of the branch predictors it takes, and none of that shows in the instructions. A function that is
//! copied as far into a page as another build has it, and entered by a jump where it was, has that build's
//! place in all of them.
//!
//! What a copy refers to outside of itself keeps its address: distances are written anew, in as many bytes. A
//! jump from elsewhere into the middle of the function goes on in the original, which is still there behind its
//! first bytes. What looks return addresses up in the file's tables, as unwinding does, does not know a copy.
//! Literature: T. Mytkowicz et al., "Producing Wrong Data Without Doing Anything Obviously Wrong!" (2009).

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

use super::super::{Flow, Function, FunctionCode, Image};
use super::patch::{Copied, JUMP_BYTES, Patch, PatchError};
use crate::model::{PAGE_BYTES, Svma};

/// How far into a page an address lies.
#[must_use]
pub fn place_in_page(svma: Svma) -> u64 {
    svma.0 % PAGE_BYTES
}

/// Functions of `image` that run from copies, each as far into a page as it says, in bytes.
///
/// # Errors
/// When one of them cannot be copied; the address tells which.
pub fn place_functions(
    image: &Image,
    functions: &[(&Function, u64)],
) -> Result<Patch, (Svma, PatchError)> {
    let copy = |(function, place): &(&Function, u64)| {
        copy(image, function, *place).map_err(|error| (function.start, error))
    };
    let copies = functions.iter().map(copy).collect::<Result<_, _>>()?;
    Ok(Patch::of_copies(image, copies))
}

fn copy(image: &Image, function: &Function, place: u64) -> Result<Copied, PatchError> {
    let bytes = image.function_bytes(function);
    if bytes.len() < JUMP_BYTES || bytes.len() as u64 != function.size_bytes {
        return Err(PatchError::NoRoom);
    }
    // What a table of jumps leads to may be among the bytes of the jump that is put in.
    let code = FunctionCode::of(image, function);
    if code.insns.iter().any(|insn| insn.flow == Flow::IndirectJump) {
        return Err(PatchError::IndirectJump);
    }
    let mut decoder = Decoder::with_ip(64, bytes, function.start.0, DecoderOptions::NONE);
    let mut distances = Vec::new();
    let mut insn = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut insn);
        let offsets = decoder.get_constant_offsets(&insn);
        let at = (insn.ip() - function.start.0) as usize;
        let is_inside = |target: u64| (function.start.0..function.end().0).contains(&target);
        if insn.is_ip_rel_memory_operand() {
            distances.push(at + offsets.displacement_offset());
        }
        let jumps = matches!(
            insn.flow_control(),
            FlowControl::ConditionalBranch
                | FlowControl::UnconditionalBranch
                | FlowControl::Call
                | FlowControl::XbeginXabortXend
        );
        if jumps && offsets.has_immediate() && !is_inside(insn.near_branch_target()) {
            if offsets.immediate_size() != size_of::<i32>() {
                return Err(PatchError::TooFar);
            }
            distances.push(at + offsets.immediate_offset());
        }
    }
    Ok(Copied { start: function.start, bytes: bytes.to_vec(), distances, place })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::fixture;
    use crate::model::Avma;

    /// lea rax, [rip + 0x100]; call 0x55 bytes further; jne to itself; ret
    const CODE: &[u8] =
        &[0x48, 0x8d, 0x05, 0x00, 0x01, 0x00, 0x00, 0xe8, 0x55, 0x00, 0x00, 0x00, 0x75, 0xfe, 0xc3];

    fn image(code: &[u8]) -> (tempfile::TempDir, Image) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::write(&path, fixture::program(&[("first", &[0xc3; 32]), ("hot", code)])).unwrap();
        (folder, Image::open(&path).unwrap())
    }

    #[test]
    fn a_copy_is_the_same_but_for_what_it_refers_to_outside() {
        let (_folder, image) = image(CODE);
        let hot = image.functions().iter().find(|f| f.name() == "hot").unwrap();
        let start = hot.start.0;
        for place in [place_in_page(hot.start), 0x123] {
            let at = 0x70_0000;
            let patch = place_functions(&image, &[(hot, place)]).unwrap();
            let encoded = patch.encode(Avma(at), 0).unwrap();
            let copy = &encoded.trampolines[place as usize..];
            let decoded = |bytes: &[u8], ip| -> Vec<Instruction> {
                Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).iter().collect()
            };
            let (before, after) = (decoded(CODE, start), decoded(copy, at + place));
            assert_eq!(before.len(), after.len());
            assert_eq!(before[0].ip_rel_memory_address(), after[0].ip_rel_memory_address());
            assert_eq!(before[1].near_branch_target(), after[1].near_branch_target());
            assert_eq!(after[2].near_branch_target(), after[2].ip(), "its own loop");
            let (from, replaced, jump) = &encoded.jumps[0];
            assert_eq!((from.0, &replaced[..]), (start, &CODE[..5]));
            assert_eq!(decoded(jump, start)[0].near_branch_target(), at + place);
        }
    }

    #[test]
    fn what_cannot_be_copied_is_refused() {
        let refused = |code: &[u8]| {
            let (_folder, image) = image(code);
            let hot = image.functions().iter().find(|f| f.name() == "hot").unwrap();
            place_functions(&image, &[(hot, 0)]).unwrap_err().1
        };
        assert_eq!(refused(&[0x90, 0x90, 0x90, 0xc3]), PatchError::NoRoom);
        assert_eq!(refused(&[0x90, 0x90, 0x90, 0x90, 0xff, 0xe0]), PatchError::IndirectJump);
        // jne, in two bytes, to another function
        assert_eq!(refused(&[0x90, 0x90, 0x90, 0x75, 0x70, 0xc3]), PatchError::TooFar);
    }
}
