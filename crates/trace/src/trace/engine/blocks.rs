//! From single instructions to blocks with numbers.

use std::collections::HashMap;

use super::{AccessKind, Block, BlockId, BlockInsn, MemoryAccess, Sink};
use crate::model::Avma;

/// Longer straight runs are cut, so that nothing grows without limit.
const LONGEST_BLOCK: usize = 4096;

/// Memory that the instruction at hand touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Touch {
    /// Load or store.
    pub kind: AccessKind,
    /// Bytes touched, never 0.
    pub size_bytes: u32,
    /// The lowest of them.
    pub address: Avma,
}

impl Touch {
    /// As an access of this instruction of a block.
    pub(super) fn of_insn(self, insn: u32) -> MemoryAccess {
        let Self { kind, size_bytes, address } = self;
        MemoryAccess { insn, kind, size_bytes, address }
    }
}

/// Collects instructions and hands whole blocks to a sink.
#[derive(Default)]
pub(super) struct Blocks {
    /// The instructions' own bytes are part of the key: code that changes gets a new number.
    ids: HashMap<(Block, Vec<u8>), BlockId>,
    block: Block,
    bytes: Vec<u8>,
    accesses: Vec<MemoryAccess>,
}

impl Blocks {
    /// Enters an instruction that was executed.
    pub(super) fn push(&mut self, executed: BlockInsn, bytes: &[u8], touches: &[Touch]) {
        let insn = self.block.insns.len() as u32;
        self.block.insns.push(executed);
        self.bytes.extend_from_slice(bytes);
        self.accesses.extend(touches.iter().map(|touch| touch.of_insn(insn)));
    }

    /// Whether the block at hand has no instruction yet.
    pub(super) fn is_empty(&self) -> bool {
        self.block.insns.is_empty()
    }

    /// Whether the block at hand must be cut.
    pub(super) fn is_full(&self) -> bool {
        self.block.insns.len() >= LONGEST_BLOCK
    }

    /// Ends the block at hand, if it holds anything.
    pub(super) fn end(&mut self, sink: &mut dyn Sink) {
        if self.is_empty() {
            return;
        }
        let next = BlockId(self.ids.len() as u32);
        let key = (std::mem::take(&mut self.block), std::mem::take(&mut self.bytes));
        let id = match self.ids.get(&key) {
            Some(id) => *id,
            None => {
                sink.describe(next, &key.0);
                self.ids.insert(key, next);
                next
            }
        };
        sink.run(id, &self.accesses);
        self.accesses.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Log(Vec<String>);

    impl Sink for Log {
        fn describe(&mut self, id: BlockId, block: &Block) {
            self.0.push(format!("{} is {}", id.0, block.insns.len()));
        }

        fn restart(&mut self) {
            self.0.clear();
        }

        fn run(&mut self, id: BlockId, accesses: &[MemoryAccess]) {
            self.0.push(format!("{} ran, {}", id.0, accesses.len()));
        }
    }

    #[test]
    fn a_block_is_described_once_and_again_when_its_bytes_change() {
        let (mut blocks, mut log) = (Blocks::default(), Log::default());
        let load = Touch { kind: AccessKind::Load, size_bytes: 8, address: Avma(64) };
        for byte in [0x90, 0x90, 0xf4] {
            let insn =
                |address| BlockInsn { address: Avma(address), size_bytes: 1, drains_stores: false };
            blocks.push(insn(1), &[byte], &[load]);
            blocks.push(insn(2), &[0xc3], &[]);
            blocks.end(&mut log);
        }
        blocks.end(&mut log);
        assert_eq!(log.0, ["0 is 2", "0 ran, 1", "0 ran, 1", "1 is 2", "1 ran, 1"]);
    }
}
