//! What a function leaves behind: the stores before its returns that its caller can name, and the
//! registers that it really changes.
//!
//! A setter, a constructor, a function that returns a record through a pointer: they store in
//! pieces, return, and the caller reads the whole. The stores are told by the argument that they
//! count from, for each return with the blocks that surely come before it.

use crate::code::{Addresses, Architecture, Flow, FunctionCode, Image, Insn, Reg, Root, RootKind};
use crate::model::Svma;

use super::WINDOW_INSTRUCTIONS;

/// Longer functions are not read: what they store first has left the buffer when they return.
const MOST_BYTES: u64 = 96;

/// A store on the way to a return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExitStore {
    pub svma: Svma,
    /// The register that points there when the function begins.
    pub reg: Reg,
    /// A second register, so many times: the index that a setter is given.
    pub index: Option<(Reg, u8)>,
    pub offset_bytes: i64,
    pub size_bytes: u16,
    /// Instructions from it to the caller's next one.
    pub distance: u32,
}

/// See the module.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Exits {
    /// For each return, the last store first.
    pub paths: Vec<Vec<ExitStore>>,
    /// The registers that it changes, where it calls nothing and jumps to no other function.
    pub changes: Option<u32>,
}

impl Exits {
    pub fn of(image: &Image, start: Svma) -> Self {
        let known = image.function_from(start);
        let Some(function) = known.filter(|f| f.size_bytes <= MOST_BYTES) else {
            return Self::default();
        };
        let bytes = image.function_bytes(function);
        let insns = image.architecture().decode(bytes, start);
        let stays = |insn: &Insn| match insn.flow {
            Flow::Call | Flow::IndirectJump => false,
            Flow::Jump(target) | Flow::Branch(target) => function.contains(target),
            Flow::Next | Flow::Return | Flow::Stop => true,
        };
        let written = |insn: &Insn| {
            let defined = insn.define.map(|(reg, _)| reg).into_iter();
            let moved = insn.moves_base.map(|(base, _)| base);
            defined.chain(moved).fold(insn.clobbers, |all, reg| all | reg.bit())
        };
        let changes = insns
            .iter()
            .all(stays)
            .then(|| insns.iter().map(written).fold(0, |all, regs| all | regs));
        let stack = image.architecture().stack_pointer();
        let outside = |insn: &Insn| {
            insn.flow != Flow::Call && insn.store.is_some_and(|a| a.address.base != Some(stack))
        };
        let returns = insns.iter().any(|insn| insn.flow == Flow::Return);
        if !returns || !insns.iter().any(outside) {
            return Self { paths: Vec::new(), changes };
        }
        let code = FunctionCode::of_insns(image.architecture(), insns, bytes.len(), start);
        let addresses = Addresses::of(&code);
        let ends = |block: &usize| {
            let block = &code.blocks[*block];
            block.end > block.first && code.insns[block.end - 1].flow == Flow::Return
        };
        let paths = (0..code.blocks.len()).filter(ends);
        let paths = paths.map(|block| path_to(&code, &addresses, block));
        Self { paths: paths.filter(|path| !path.is_empty()).collect(), changes }
    }
}

/// The register of an argument that a value is; `None` for what the function made, and for its stack.
fn handed(architecture: Architecture, root: Root) -> Option<Reg> {
    let RootKind::Entry(reg) = root.kind() else { return None };
    let given = architecture.handed_over().contains(&reg);
    (given && reg != architecture.stack_pointer()).then_some(reg)
}

/// The stores from where a block can only be reached one way, last first.
fn path_to(code: &FunctionCode, addresses: &Addresses, mut block: usize) -> Vec<ExitStore> {
    let (mut found, mut distance) = (Vec::new(), 0);
    loop {
        let body = &code.blocks[block];
        for index in (body.first..body.end).rev() {
            let insn = &code.insns[index];
            if insn.flow == Flow::Call || insn.drains_stores || distance >= WINDOW_INSTRUCTIONS {
                return found;
            }
            distance += 1;
            let store = insn.store.filter(|_| !insn.is_pair).and_then(|access| {
                let address = addresses.store(code, index)?;
                let reg = handed(code.architecture, address.base?)?;
                let second = match (address.also, address.index) {
                    (None, None) => None,
                    (Some(also), None) => Some((handed(code.architecture, also)?, 1)),
                    (None, Some((root, scale))) => Some((handed(code.architecture, root)?, scale)),
                    (Some(_), Some(_)) => return None,
                };
                Some(ExitStore {
                    svma: insn.svma,
                    reg,
                    index: second,
                    offset_bytes: address.offset_bytes,
                    size_bytes: access.size_bytes,
                    distance,
                })
            });
            found.extend(store);
        }
        match body.predecessors[..] {
            [only] if only < block => block = only,
            _ => return found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::fixture;

    /// What a function of these bytes leaves: for each return the offsets of its stores and how far back they are.
    fn exits(code: &[u8]) -> (Vec<Vec<(i64, u32)>>, Option<u32>) {
        let image = fixture::image(&[("f", code), ("g", &[0xc3])]).unwrap();
        let found = Exits::of(&image, image.functions()[0].start);
        let path =
            |path: &Vec<ExitStore>| path.iter().map(|s| (s.offset_bytes, s.distance)).collect();
        (found.paths.iter().map(path).collect(), found.changes)
    }

    #[test]
    fn a_setter_leaves_its_stores_to_each_of_its_returns() {
        // mov [rdi], eax; mov [rdi+4], ecx; ret
        let (paths, changes) = exits(&[0x89, 0x07, 0x89, 0x4f, 0x04, 0xc3]);
        // Its return moves the stack pointer, and nothing else changes.
        assert_eq!((paths, changes), (vec![vec![(4, 2), (0, 3)]], Some(Reg::STACK.bit())));
        // mov [rdi], eax; test eax, eax; je over; mov [rdi+4], ecx; ret; (over:) ret
        let code = [0x89, 0x07, 0x85, 0xc0, 0x74, 0x04, 0x89, 0x4f, 0x04, 0xc3, 0xc3];
        assert_eq!(exits(&code).0, [vec![(4, 2), (0, 5)], vec![(0, 4)]]);
        // test eax, eax; je over; mov [rdi], eax; (over:) mov [rdi+4], ecx; ret: one way or the other
        let code = [0x85, 0xc0, 0x74, 0x02, 0x89, 0x07, 0x89, 0x4f, 0x04, 0xc3];
        assert_eq!(exits(&code).0, [[(4, 2)]]);
        // mfence: what was stored before it is in the cache
        assert_eq!(exits(&[0x89, 0x07, 0x0f, 0xae, 0xf0, 0x89, 0x4f, 0x04, 0xc3]).0, [[(4, 2)]]);
    }

    #[test]
    fn what_its_caller_cannot_name_is_not_left() {
        // mov [rsp+8], eax; ret
        assert!(exits(&[0x89, 0x44, 0x24, 0x08, 0xc3]).0.is_empty());
        // mov [rdi], eax; jmp g, and without a return or a jump
        let (paths, changes) = exits(&[0x89, 0x07, 0xe9, 0x09, 0, 0, 0]);
        assert!(paths.is_empty() && changes.is_none());
        assert!(exits(&[0x89, 0x07, 0xf4]).0.is_empty());
        // mov [rdi+rax], cl; ret: rax is no argument
        assert!(exits(&[0x88, 0x0c, 0x07, 0xc3]).0.is_empty());
        // mov rdx, [rdi]; mov [rdx], eax; ret: through a pointer that it loads
        assert!(exits(&[0x48, 0x8b, 0x17, 0x89, 0x02, 0xc3]).0.is_empty());
        // A function of more than 96 bytes is not read.
        let long = |nops: usize| [&[0x89, 0x07][..], &vec![0x90; nops], &[0xc3]].concat();
        assert_eq!(exits(&long(62)).0.len(), 1);
        assert_eq!(exits(&long(94)), (vec![], None));
    }

    #[test]
    fn the_registers_that_it_changes_are_those_that_it_writes() {
        // mov eax, 1; ret
        let (_, one) = exits(&[0xb8, 1, 0, 0, 0, 0xc3]);
        // mov eax, 1; mov ecx, 1; ret, and the same twice into one
        let (_, two) = exits(&[0xb8, 1, 0, 0, 0, 0xb9, 1, 0, 0, 0, 0xc3]);
        let (_, twice) = exits(&[0xb8, 1, 0, 0, 0, 0xb8, 1, 0, 0, 0, 0xc3]);
        let added = |changes: Option<u32>| (changes.unwrap() & !Reg::STACK.bit()).count_ones();
        assert_eq!((added(one), added(two)), (1, 2));
        assert_eq!(twice, one);
        assert_eq!(exits(&[0xe8, 0, 0, 0, 0, 0xc3]).1, None, "who knows what a call changes");
    }
}
