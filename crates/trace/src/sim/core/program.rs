//! The instructions of a window, each taken apart once for all models that run on it.

use iced_x86::InstructionInfoFactory;
use rustc_hash::{FxHashMap, FxHashSet};

use super::ops::Op;
use crate::code::x86;
use crate::machine::Fusion;
use crate::model::{Avma, LINE_BYTES, PAGE_BYTES, Svma};
use crate::trace::engine::{Block, BlockId, MemoryAccess, Sink};

/// What a recorded window consists of: the first pass over it collects it.
#[derive(Default)]
pub struct WindowCode {
    blocks: Vec<Block>,
    lines: FxHashSet<u64>,
}

/// The instructions of a window as the core sees them.
pub struct Program {
    pub(super) ops: Vec<Op>,
    /// By number of the block: its instructions, as indices of `ops`.
    pub(super) blocks: Vec<Vec<u32>>,
    /// Lines and pages of data that the window touches.
    pub(super) lines: u64,
    pub(super) pages: u64,
    /// Of these, lines that also hold instructions of the window.
    pub(super) code_and_data: FxHashSet<u64>,
    /// Indices of the instructions in `ops` whose bytes could not be read.
    pub(super) unread: Vec<usize>,
}

impl Sink for WindowCode {
    fn describe(&mut self, id: BlockId, block: &Block) {
        let index = id.0 as usize;
        if self.blocks.len() <= index {
            self.blocks.resize(index + 1, Block::default());
        }
        self.blocks[index] = block.clone();
    }

    fn restart(&mut self) {
        *self = Self::default();
    }

    fn run(&mut self, _id: BlockId, accesses: &[MemoryAccess]) {
        self.lines.extend(accesses.iter().map(|access| access.address.0 / LINE_BYTES));
    }
}

impl WindowCode {
    /// Takes the instructions apart; `code` gives the bytes of one, if it can.
    #[must_use]
    pub fn decode(self, fusion: Fusion, mut code: impl FnMut(Avma, u8) -> Vec<u8>) -> Program {
        let page_of = |line: &u64| line * LINE_BYTES / PAGE_BYTES;
        let mut factory = InstructionInfoFactory::new();
        let mut numbers: FxHashMap<(Avma, u8), u32> = FxHashMap::default();
        let insns = self.blocks.iter().flat_map(|block| &block.insns);
        let code_lines = insns.map(|insn| insn.address.0 / LINE_BYTES);
        let mut program = Program {
            ops: Vec::new(),
            blocks: Vec::new(),
            code_and_data: code_lines.filter(|line| self.lines.contains(line)).collect(),
            lines: self.lines.len() as u64,
            pages: self.lines.iter().map(page_of).collect::<FxHashSet<u64>>().len() as u64,
            unread: Vec::new(),
        };
        for block in &self.blocks {
            let mut ops = Vec::with_capacity(block.insns.len());
            for insn in &block.insns {
                let number = *numbers.entry((insn.address, insn.size_bytes)).or_insert_with(|| {
                    let bytes = code(insn.address, insn.size_bytes);
                    program.ops.push(match bytes.is_empty() {
                        true => Op::unknown(insn.address, insn.size_bytes),
                        false => Op::of(&bytes, insn.address, &mut factory),
                    });
                    program.unread.extend(bytes.is_empty().then_some(program.ops.len() - 1));
                    program.ops.len() as u32 - 1
                });
                ops.push(number);
            }
            // The comparison and the jump that the front end makes one of stand last.
            if let [.., compare, jump] = block.insns[..]
                && let Some(last) = ops.last()
            {
                let mut bytes = code(compare.address, compare.size_bytes);
                bytes.extend(code(jump.address, jump.size_bytes));
                let joined = x86::jumps(&bytes, Svma(compare.address.0), fusion);
                program.ops[*last as usize].joined =
                    joined.last().is_some_and(|jump| jump.start != jump.insn);
            }
            program.blocks.push(ops);
        }
        program
    }
}
