//! The instructions of a window, each taken apart once for all models that run on it.

use iced_x86::InstructionInfoFactory;
use rustc_hash::{FxHashMap, FxHashSet};

use super::footprint::{Footprint, Reuse};
use super::ops::Op;
use crate::code::x86;
use crate::machine::Fusion;
use crate::model::{Avma, LINE_BYTES, PAGE_BYTES, Svma};
use crate::trace::engine::{Block, BlockId, MemoryAccess, Sink};

/// What a recorded window consists of: the first pass over it collects it.
#[derive(Default)]
pub(super) struct WindowCode {
    blocks: Vec<Block>,
    /// Of each: how often it was run.
    runs: Vec<u64>,
    data: Footprint,
}

pub(super) const PAGE_LINES: u64 = PAGE_BYTES / LINE_BYTES;
/// The instructions of a window as the core sees them.
pub(super) struct Program {
    pub(super) ops: Vec<Op>,
    /// By number of the block: its instructions, as indices of `ops`.
    pub(super) blocks: Vec<Vec<u32>>,
    /// When the lines and pages that it touches for the first time were touched before.
    pub(super) reuse: [Reuse; 2],
    /// Lines that its instructions are in.
    pub(super) code_lines: FxHashSet<u64>,
    /// Of these, lines that it also reads or writes.
    pub(super) code_and_data: FxHashSet<u64>,
    /// Indices of the instructions in `ops` whose bytes could not be read.
    pub(super) unread: Vec<usize>,
}

impl Sink for WindowCode {
    fn describe(&mut self, id: BlockId, block: &Block) {
        id.put(block.clone(), &mut self.blocks);
        self.runs.resize(self.blocks.len(), 0);
    }

    fn restart(&mut self) {
        *self = Self::default();
    }

    fn run(&mut self, id: BlockId, accesses: &[MemoryAccess]) {
        if let Some(runs) = self.runs.get_mut(id.0 as usize) {
            *runs += 1;
        }
        self.data.touch(accesses);
    }
}

impl WindowCode {
    /// The blocks that were run, and how often.
    fn run_blocks(&self) -> impl Iterator<Item = (&Block, u64)> {
        self.blocks.iter().zip(self.runs.iter().copied()).filter(|(_, runs)| *runs > 0)
    }

    /// Instructions that were executed.
    pub(super) fn instructions(&self) -> u64 {
        self.run_blocks().map(|(block, runs)| runs * block.insns.len() as u64).sum()
    }

    /// Takes the instructions apart; `code` gives the bytes of one, if it can.
    pub(super) fn decode(
        self,
        fusion: Fusion,
        mut code: impl FnMut(Avma, u8) -> Vec<u8>,
    ) -> Program {
        let mut factory = InstructionInfoFactory::new();
        let mut numbers: FxHashMap<(Avma, u8), u32> = FxHashMap::default();
        let insns = self.run_blocks().flat_map(|(block, _)| &block.insns);
        let code_lines: FxHashSet<u64> = insns.map(|insn| insn.address.0 / LINE_BYTES).collect();
        let is_data = |line: &&u64| self.data.holds_line(**line);
        let mut program = Program {
            ops: Vec::new(),
            blocks: Vec::new(),
            code_and_data: code_lines.iter().filter(is_data).copied().collect(),
            code_lines,
            reuse: self.data.reuse(),
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
            for pair in ops.windows(2) {
                let [load, next] = [pair[0], pair[1]].map(|number| &program.ops[number as usize]);
                if load.halves.is_joined_with(next.halves) {
                    program.ops[pair[0] as usize].joins_load = true;
                }
            }
            // The comparison and the jump that the front end makes one of stand last.
            if let [.., compare, jump] = block.insns[..]
                && let [.., before, last] = ops[..]
            {
                let mut bytes = code(compare.address, compare.size_bytes);
                bytes.extend(code(jump.address, jump.size_bytes));
                let joined = x86::jumps(&bytes, Svma(compare.address.0), fusion);
                let are_joined = joined.last().is_some_and(|jump| jump.start != jump.insn);
                program.ops[last as usize].joined = are_joined;
                program.ops[before as usize].in_jump = are_joined;
            }
            program.blocks.push(ops);
        }
        program
    }
}
