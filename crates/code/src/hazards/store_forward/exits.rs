//! What a function leaves behind: the stores before its returns that its caller can name, and the
//! registers that it really changes.
//!
//! A setter, a constructor, a function that returns a record through a pointer: they store in
//! pieces, return, and the caller reads the whole. The stores are told by the argument that they
//! count from, for each return with the blocks that surely come before it.

use crate::code::{Addresses, Flow, FunctionCode, Image, Insn, Reg, RootKind};
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
        let inside = |target: Svma| (start..function.end()).contains(&target);
        let stays = |insn: &Insn| match insn.flow {
            Flow::Call | Flow::IndirectJump => false,
            Flow::Jump(target) | Flow::Branch(target) => inside(target),
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
            let store = insn.store.and_then(|access| {
                let address = addresses.store(code, index)?;
                let RootKind::Entry(reg) = address.base?.kind() else { return None };
                let handed = code.architecture.handed_over().contains(&reg)
                    && reg != code.architecture.stack_pointer();
                let offset_bytes = address.offset_bytes;
                let size_bytes = access.size_bytes;
                let svma = insn.svma;
                (address.is_plain() && handed && !insn.is_pair).then_some(ExitStore {
                    svma,
                    reg,
                    offset_bytes,
                    size_bytes,
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
