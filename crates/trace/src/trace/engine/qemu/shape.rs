//! What an instruction touches, as far as its bytes tell: how many accesses, which way, how wide.
//!
//! The emulator says where memory was touched, but in pieces of its own making: at most 8 bytes at
//! a time, an atomic operation as one store, each repetition of a `rep` for itself. The
//! instruction says what the pieces are pieces of.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
};
use smallvec::SmallVec;

use super::super::operands;
use super::pieces::Piece;
use crate::code::x86::{drains_stores, loads_and_stores};
use crate::code::{Architecture, Flow};
use crate::model::{Avma, Svma};
use crate::trace::engine::AccessKind;

/// How pieces make accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// These, loads first, each as wide as said.
    Fixed(SmallVec<[(AccessKind, u32); 2]>),
    /// As [`Shape::Fixed`], but starting at a multiple of 64 bytes, whatever part is touched.
    Area(AccessKind, u32),
    /// From the first byte touched to the last.
    Span(AccessKind),
    /// Each piece for itself.
    Elements,
    /// Neighbouring pieces together.
    Joined,
    /// So many loads, so many stores, over and over.
    Repeated { loads: u8, stores: u8 },
}

/// How a block goes on behind an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// To the next one, or to this address where there is one.
    Known(Option<Avma>),
    /// Into a function, to come back behind it.
    Call,
    /// Back from a function.
    Return,
    /// Anywhere.
    Unknown,
    /// It is never executed to its end.
    Fault,
}

/// What there is to know about one instruction.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// How its pieces make accesses.
    pub shape: Shape,
    /// Whether it cannot have been executed without touching memory.
    pub certain: bool,
    /// Whether it may fault without touching memory.
    pub divides: bool,
    /// Whether of two loads the second is reported first.
    pub swapped: bool,
    /// How it ends a block, if it does.
    pub end: End,
    /// Whether older stores are in the cache before anything younger loads.
    pub drains_stores: bool,
}

impl Known {
    /// Of an instruction with these bytes.
    pub(super) fn of(architecture: Architecture, bytes: &[u8], address: Avma) -> Self {
        match architecture {
            Architecture::X86_64 => of_x86(bytes, address),
            Architecture::Aarch64 => of_aarch64(bytes, address),
        }
    }

    /// Whether it loads under a mask that is not told.
    pub(super) fn loads_under_mask(&self) -> bool {
        self.shape == Shape::Span(AccessKind::Load)
    }

    /// Whether it is executed again and again until a count is used up.
    pub(super) fn repeats(&self) -> bool {
        matches!(self.shape, Shape::Repeated { .. })
    }
}

fn of_x86(bytes: &[u8], address: Avma) -> Known {
    let insn = Decoder::with_ip(64, bytes, address.0, DecoderOptions::NONE).decode();
    let (shape, certain) = shape_x86(&insn);
    Known {
        shape,
        certain,
        divides: matches!(insn.mnemonic(), Mnemonic::Div | Mnemonic::Idiv),
        swapped: is_comparison_of_strings(&insn),
        end: end_x86(&insn),
        drains_stores: drains_stores(&insn),
    }
}

fn is_comparison_of_strings(insn: &Instruction) -> bool {
    use Mnemonic as M;
    insn.is_string_instruction()
        && matches!(insn.mnemonic(), M::Cmpsb | M::Cmpsw | M::Cmpsd | M::Cmpsq)
}

fn end_x86(insn: &Instruction) -> End {
    let target = || Some(Avma(insn.near_branch_target()));
    match insn.flow_control() {
        _ if insn.is_invalid() => End::Fault,
        FlowControl::Next => End::Known(None),
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => End::Known(target()),
        FlowControl::Call | FlowControl::IndirectCall
            if matches!(insn.mnemonic(), Mnemonic::Call) =>
        {
            End::Call
        }
        FlowControl::Return if matches!(insn.mnemonic(), Mnemonic::Ret) => End::Return,
        FlowControl::Exception => End::Fault,
        _ => End::Unknown,
    }
}

fn shape_x86(insn: &Instruction) -> (Shape, bool) {
    let mut fixed: SmallVec<[(AccessKind, u32); 2]> = SmallVec::new();
    let mut certain = !insn.is_invalid();
    if insn.is_invalid() || operands::touches_nothing(insn.mnemonic()) {
        return (Shape::Fixed(fixed), false);
    }
    for memory in InstructionInfoFactory::new().info(insn).used_memory() {
        let (load, store) = loads_and_stores(memory.access());
        certain &= !matches!(memory.access(), OpAccess::CondRead | OpAccess::CondWrite);
        let size = operands::size_of(insn, memory);
        let area = operands::area_bytes(insn.mnemonic());
        for (kind, wanted) in [(AccessKind::Load, load), (AccessKind::Store, store)] {
            match wanted {
                true if size == 0 && area > 0 => return (Shape::Area(kind, area), true),
                true if memory.vsib_size() != 0 => return (Shape::Elements, false),
                true if operands::needs_extended(insn) => return (Shape::Span(kind), false),
                true if size > 0 => fixed.push((kind, size as u32)),
                _ => {}
            }
        }
    }
    fixed.sort_by_key(|(kind, _)| *kind);
    if operands::repeats(insn) {
        let count = |kind| fixed.iter().filter(|(k, _)| *k == kind).count() as u8;
        let (loads, stores) = (count(AccessKind::Load), count(AccessKind::Store));
        return (Shape::Repeated { loads, stores }, false);
    }
    certain &= !fixed.is_empty();
    (Shape::Fixed(fixed), certain)
}

fn of_aarch64(bytes: &[u8], address: Avma) -> Known {
    let decoded = Architecture::Aarch64.decode(bytes, Svma(address.0)).into_iter().next();
    let word = bytes.first_chunk().map_or(0, |b| u32::from_le_bytes(*b));
    let Some(insn) = decoded else {
        return Known {
            shape: Shape::Joined,
            certain: false,
            divides: false,
            swapped: false,
            end: End::Fault,
            drains_stores: false,
        };
    };
    let mut fixed: SmallVec<[(AccessKind, u32); 2]> = SmallVec::new();
    for (kind, access) in [(AccessKind::Load, insn.load), (AccessKind::Store, insn.store)] {
        let Some(size) = access.map(|a| u32::from(a.size_bytes)) else { continue };
        match insn.is_pair {
            true => fixed.extend([(kind, size / 2), (kind, size / 2)]),
            false => fixed.push((kind, size)),
        }
    }
    // A store that is made only while the line is still one's own.
    let is_conditional = word >> 24 & 0x3f == 0b00_1000 && word >> 22 & 0b11 == 0;
    let end = match insn.flow {
        Flow::Next => End::Known(None),
        Flow::Jump(to) | Flow::Branch(to) => End::Known(Some(Avma(to.0))),
        Flow::Call => End::Call,
        Flow::Return => End::Return,
        Flow::IndirectJump | Flow::Stop => End::Unknown,
    };
    let certain = !fixed.is_empty() && !is_conditional;
    // What the classifier leaves out may touch memory all the same.
    let shape = if fixed.is_empty() { Shape::Joined } else { Shape::Fixed(fixed) };
    let drains_stores = insn.drains_stores;
    Known { shape, certain, divides: false, swapped: false, end, drains_stores }
}

impl Shape {
    /// Makes accesses of the pieces of one execution; `each` gets direction, size and address.
    pub(super) fn join(
        &self,
        pieces: &[Piece],
        swapped: bool,
        mut each: impl FnMut(AccessKind, u32, u64),
    ) {
        match self {
            // The usual case, told first.
            Self::Fixed(wanted) if wanted.len() == 1 => {
                if let Some(lowest) = pieces.iter().map(|p| p.address).min() {
                    each(wanted[0].0, wanted[0].1, lowest);
                }
            }
            Self::Fixed(wanted) => {
                for kind in [AccessKind::Load, AccessKind::Store] {
                    fixed(wanted, kind, pieces, swapped, &mut each);
                }
            }
            Self::Area(kind, size) => {
                if let Some(lowest) = pieces.iter().map(|p| p.address).min() {
                    each(*kind, *size, lowest & !63);
                }
            }
            Self::Span(kind) => {
                let first = pieces.iter().map(|p| p.address).min();
                let end = pieces.iter().map(|p| p.address + u64::from(p.size_bytes)).max();
                if let (Some(first), Some(end)) = (first, end) {
                    each(*kind, (end - first) as u32, first);
                }
            }
            Self::Elements => {
                pieces.iter().for_each(|p| each(p.kind, p.size_bytes, p.address));
            }
            Self::Joined => joined(pieces, &mut each),
            // Folded while they come in.
            Self::Repeated { .. } => {}
        }
    }
}

fn fixed(
    wanted: &[(AccessKind, u32)],
    kind: AccessKind,
    pieces: &[Piece],
    swapped: bool,
    each: &mut impl FnMut(AccessKind, u32, u64),
) {
    let sizes = wanted.iter().filter(|(k, _)| *k == kind).map(|(_, size)| *size);
    let count = sizes.clone().count();
    // An atomic operation is reported as a store alone, a failed exchange as a load alone.
    let has_own = pieces.iter().any(|p| p.kind == kind);
    let mut own = pieces.iter().filter(|p| !has_own || p.kind == kind);
    if count < 2 {
        if let (Some(size), Some(lowest)) = (sizes.clone().next(), own.map(|p| p.address).min()) {
            each(kind, size, lowest);
        }
        return;
    }
    let mut found: SmallVec<[(u32, u64); 2]> = SmallVec::new();
    let mut behind = None;
    for size in sizes {
        let (mut seen, mut lowest) = (0, None);
        while seen < size {
            let Some(piece) = own.next() else { break };
            seen += piece.size_bytes;
            lowest = Some(lowest.map_or(piece.address, |l: u64| l.min(piece.address)));
        }
        // Two halves may come as one piece.
        let Some(lowest) = lowest.or(behind) else { break };
        behind = Some(lowest + u64::from(size));
        found.push((size, lowest));
    }
    if swapped {
        found.reverse();
    }
    found.iter().for_each(|(size, address)| each(kind, *size, *address));
}

fn joined(pieces: &[Piece], each: &mut impl FnMut(AccessKind, u32, u64)) {
    let mut open: Option<Piece> = None;
    for piece in pieces {
        match &mut open {
            Some(o) if o.kind == piece.kind && o.end() == piece.address => {
                o.size_bytes += piece.size_bytes;
            }
            _ => {
                if let Some(o) = open.replace(*piece) {
                    each(o.kind, o.size_bytes, o.address);
                }
            }
        }
    }
    if let Some(o) = open {
        each(o.kind, o.size_bytes, o.address);
    }
}

#[cfg(test)]
mod tests {
    use AccessKind::{Load, Store};

    use super::*;

    fn accesses(
        architecture: Architecture,
        bytes: &[u8],
        pieces: &[(AccessKind, u32, u64)],
    ) -> Vec<(AccessKind, u32, u64)> {
        let known = Known::of(architecture, bytes, Avma(0x1000));
        let pieces: Vec<Piece> = pieces
            .iter()
            .map(|(kind, size_bytes, address)| Piece {
                insn: 0,
                kind: *kind,
                size_bytes: *size_bytes,
                address: *address,
            })
            .collect();
        let mut out = Vec::new();
        known.shape.join(&pieces, known.swapped, |kind, size, at| out.push((kind, size, at)));
        out
    }

    #[test]
    fn wide_vectors_are_one_access() {
        // vmovups ymm0, [rax]
        let found = accesses(
            Architecture::X86_64,
            &[0xc5, 0xfc, 0x10, 0x00],
            &[(Load, 8, 64), (Load, 8, 72), (Load, 8, 80), (Load, 8, 88)],
        );
        assert_eq!(found, [(Load, 32, 64)]);
    }

    #[test]
    fn an_atomic_operation_loads_and_stores() {
        // lock add [rax], ecx
        let found = accesses(Architecture::X86_64, &[0xf0, 0x01, 0x08], &[(Store, 4, 8)]);
        assert_eq!(found, [(Load, 4, 8), (Store, 4, 8)]);
    }

    #[test]
    fn compared_strings_stand_in_the_order_of_the_operands() {
        // cmpsb: [rsi] is the first operand, [rdi] is read first.
        let found = accesses(Architecture::X86_64, &[0xa6], &[(Load, 1, 20), (Load, 1, 10)]);
        assert_eq!(found, [(Load, 1, 10), (Load, 1, 20)]);
    }

    #[test]
    fn a_pair_is_two_accesses_however_it_is_reported() {
        // stp q0, q1, [x0]
        let stp = 0xad00_0400_u32.to_le_bytes();
        let eights: Vec<_> = (0..4).map(|n| (Store, 8, 8 * n)).collect();
        for pieces in [&eights[..], &[(Store, 16, 0), (Store, 16, 16)], &[(Store, 32, 0)]] {
            let found = accesses(Architecture::Aarch64, &stp, pieces);
            assert_eq!(found, [(Store, 16, 0), (Store, 16, 16)], "{pieces:?}");
        }
    }

    #[test]
    fn what_is_not_classified_is_joined() {
        // ld1d {z0.d}, p0/z, [x0]: its width is the machine's.
        let ld1d = 0xa5e0_a000_u32.to_le_bytes();
        let found =
            accesses(Architecture::Aarch64, &ld1d, &[(Load, 8, 0), (Load, 8, 8), (Load, 8, 32)]);
        assert_eq!(found, [(Load, 16, 0), (Load, 8, 32)]);
    }

    #[test]
    fn ends_of_blocks_are_told_apart() {
        let end = |bytes: &[u8]| Known::of(Architecture::X86_64, bytes, Avma(0x1000)).end;
        assert_eq!(end(&[0xeb, 0x0e]), End::Known(Some(Avma(0x1010))));
        assert_eq!(end(&[0xe8, 0, 0, 0, 0]), End::Call);
        assert_eq!(end(&[0xc3]), End::Return);
        assert_eq!(end(&[0xff, 0xe0]), End::Unknown);
        assert_eq!(end(&[0x0f, 0x0b]), End::Fault);
    }
}
