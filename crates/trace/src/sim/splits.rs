//! Accesses that cross the end of a cache line: which, and how often.
//!
//! Such an access is done twice, once for each line. Where data lie the code often does not say, the run does. The sign
//! is a loop whose time changes when its data move by a few bytes; counters for split loads and stores rise.
//! Literature: Intel Optimization Reference Manual, alignment; AMD Software Optimization Guides, load-store unit.

use rustc_hash::FxHashMap;

use super::store_buffer::WIDEST_BYTES;
use crate::model::{Avma, LINE_BYTES};
use crate::trace::engine::{AccessKind, Block, BlockId, MemoryAccess, Sink};

/// Counts them by instruction.
#[derive(Default)]
pub struct Splits {
    blocks: Vec<Vec<Avma>>,
    by_insn: FxHashMap<Avma, u64>,
}

impl Splits {
    /// How many accesses of each instruction crossed the end of a line.
    #[must_use]
    pub fn by_insn(&self) -> &FxHashMap<Avma, u64> {
        &self.by_insn
    }
}

impl Sink for Splits {
    fn describe(&mut self, id: BlockId, block: &Block) {
        id.put(block.insns.iter().map(|insn| insn.address).collect(), &mut self.blocks);
    }

    fn restart(&mut self) {
        *self = Self::default();
    }

    fn run(&mut self, id: BlockId, accesses: &[MemoryAccess]) {
        let Some(block) = self.blocks.get(id.0 as usize) else { return };
        for access in accesses {
            let into_line = access.address.0 % LINE_BYTES;
            let is_one =
                access.kind != AccessKind::Value && (1..=WIDEST_BYTES).contains(&access.size_bytes);
            if is_one
                && into_line + u64::from(access.size_bytes) > LINE_BYTES
                && let Some(insn) = block.get(access.insn as usize)
            {
                *self.by_insn.entry(*insn).or_default() += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::engine::BlockInsn;

    #[test]
    fn accesses_across_the_end_of_a_line_are_counted_by_instruction() {
        let mut splits = Splits::default();
        let insn =
            |address| BlockInsn { address: Avma(address), size_bytes: 4, drains_stores: false };
        splits.describe(BlockId(0), &Block { insns: vec![insn(0x10), insn(0x14)] });
        let access = |insn, address, size_bytes| MemoryAccess {
            insn,
            kind: AccessKind::Load,
            size_bytes,
            address: Avma(address),
        };
        splits.run(BlockId(0), &[access(0, 0x103c, 4), access(1, 0x103c, 8)]);
        splits.run(BlockId(0), &[access(0, 0x103d, 4), access(1, 0x1001, 64)]);
        // A string instruction is made of many accesses.
        splits.run(BlockId(0), &[access(0, 0x1000, 65)]);
        let counted = |insn| splits.by_insn().get(&Avma(insn)).copied();
        assert_eq!((counted(0x10), counted(0x14)), (Some(1), Some(2)));
        splits.restart();
        assert!(splits.by_insn().is_empty());
    }
}
