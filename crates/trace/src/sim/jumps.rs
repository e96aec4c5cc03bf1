//! Jumps that Intel's erratum slows down: how often a run executes one.
//!
//! On Skylake up to Cascade Lake, microcode keeps a 32-byte block of code out of the decoded
//! instruction cache when a jump in it crosses into the next block or ends at its last byte. Such
//! code is decoded anew each time; the sign is a loop that slows down by a few cycles per iteration
//! when it moves by half a block. Measured in one program: 2.4 cycles for each such jump, and 0
//! where something else is the bottleneck, so a count times the price of the design is the most that it can cost.
//! Literature: Intel, "Mitigations for Jump Conditional Code Erratum" (2019).

use schemars::JsonSchema;
use serde::Serialize;

use crate::code::x86;
use crate::machine::Fusion;
use crate::model::{Avma, Svma};
use crate::trace::engine::{Block, BlockId, BlockInsn, MemoryAccess, Sink};

/// One jump that crosses a boundary or ends at one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ErratumJump {
    /// The jump, or the comparison that the processor fuses with it.
    pub insn: Avma,
    /// How often it was executed.
    pub executions: u64,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct JumpReport {
    /// Jumps, calls and returns executed.
    pub jumps: u64,
    /// Those that cross a 32-byte boundary or end at one.
    pub on_boundary: u64,
    /// Which, most frequent first.
    pub sites: Vec<ErratumJump>,
}

/// Counts how often each block runs; what is in them is looked for when the window is over.
#[derive(Default)]
pub struct BlockCounts {
    blocks: Vec<(Block, u64)>,
}

impl BlockCounts {
    /// The blocks that ran, with how often.
    pub fn executed(&self) -> impl Iterator<Item = (BlockId, &Block, u64)> {
        let numbered = (0..).map(BlockId).zip(&self.blocks);
        let ran = numbered.filter(|(_, (_, runs))| *runs > 0);
        ran.map(|(id, (block, runs))| (id, block, *runs))
    }

    /// The jumps in what was executed, with what `fusion` joins; `code` gives the bytes of an
    /// instruction, if it can.
    #[must_use]
    pub fn jumps(&self, fusion: Fusion, mut code: impl FnMut(Avma, u8) -> Vec<u8>) -> JumpReport {
        let mut report = JumpReport::default();
        for (_, block, runs) in self.executed() {
            let adjoin = |a: &BlockInsn, b: &BlockInsn| {
                a.address.offset(i64::from(a.size_bytes)) == b.address
            };
            for stretch in block.insns.chunk_by(adjoin) {
                let bytes: Vec<u8> =
                    stretch.iter().flat_map(|insn| code(insn.address, insn.size_bytes)).collect();
                let size: usize = stretch.iter().map(|insn| usize::from(insn.size_bytes)).sum();
                if bytes.len() != size {
                    // Not all of it can be read: what is left would stand at wrong addresses.
                    continue;
                }
                for jump in x86::jumps(&bytes, Svma(stretch[0].address.0), fusion) {
                    report.jumps += runs;
                    if jump.is_on_boundary() {
                        report.on_boundary += runs;
                        let insn = Avma(jump.start.0);
                        report.sites.push(ErratumJump { insn, executions: runs });
                    }
                }
            }
        }
        merge(&mut report.sites);
        report
    }
}

/// One entry for a jump that is in several blocks.
fn merge(sites: &mut Vec<ErratumJump>) {
    sites.sort_by_key(|s| s.insn);
    sites.dedup_by(|later, first| {
        let same = later.insn == first.insn;
        if same {
            first.executions += later.executions;
        }
        same
    });
    sites.sort_by_key(|s| (std::cmp::Reverse(s.executions), s.insn));
}

impl Sink for BlockCounts {
    fn describe(&mut self, id: BlockId, block: &Block) {
        id.put((block.clone(), 0), &mut self.blocks);
    }

    fn restart(&mut self) {
        self.blocks.clear();
    }

    fn run(&mut self, id: BlockId, _accesses: &[MemoryAccess]) {
        self.runs(id, 1);
    }

    fn runs(&mut self, id: BlockId, times: u64) {
        if let Some((_, runs)) = self.blocks.get_mut(id.0 as usize) {
            *runs += times;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block at `start` made of these instructions, run `runs` times.
    fn counted(start: u64, insns: &[&[u8]], runs: u64) -> JumpReport {
        let mut address = start;
        let mut bytes = std::collections::HashMap::new();
        let mut block = Block::default();
        for insn in insns {
            bytes.insert(address, insn.to_vec());
            block.insns.push(BlockInsn {
                address: Avma(address),
                size_bytes: insn.len() as u8,
                drains_stores: false,
            });
            address += insn.len() as u64;
        }
        let mut counts = BlockCounts::default();
        counts.describe(BlockId(0), &block);
        for _ in 0..runs {
            counts.run(BlockId(0), &[]);
        }
        counts.jumps(Fusion::SandyBridge, |at, _| bytes[&at.0].clone())
    }

    /// `cmp eax, ecx` and `jne` to the next instruction.
    const CMP: &[u8] = &[0x39, 0xc8];
    const JNE: &[u8] = &[0x75, 0x00];

    #[test]
    fn a_fused_pair_counts_from_its_comparison() {
        for (start, on_boundary) in
            [(0x1000, 0), (0x101b, 0), (0x101c, 5), (0x101e, 5), (0x1020, 0)]
        {
            let report = counted(start, &[CMP, JNE], 5);
            assert_eq!((report.jumps, report.on_boundary), (5, on_boundary), "{start:#x}");
        }
        let report = counted(0x101f, &[CMP, JNE], 1);
        assert_eq!(report.sites, [ErratumJump { insn: Avma(0x101f), executions: 1 }]);
    }

    #[test]
    fn a_jump_of_several_blocks_is_one_and_those_that_ran_most_come_first() {
        let jump = |insn, executions| ErratumJump { insn: Avma(insn), executions };
        let mut sites =
            vec![jump(0x30, 2), jump(0x10, 1), jump(0x20, 4), jump(0x10, 3), jump(0x30, 7)];
        merge(&mut sites);
        assert_eq!(sites, [jump(0x30, 9), jump(0x10, 4), jump(0x20, 4)]);
    }

    #[test]
    fn all_that_listen_hear_all_and_forget_when_the_window_begins_anew() {
        let block = Block {
            insns: vec![BlockInsn { address: Avma(0x1000), size_bytes: 1, drains_stores: false }],
        };
        let (mut one, mut two) = (BlockCounts::default(), BlockCounts::default());
        let runs = |counts: &BlockCounts| {
            counts.executed().map(|(id, _, n)| (id.0, n)).collect::<Vec<_>>()
        };
        let mut fan = crate::sim::Fan(vec![&mut one, &mut two]);
        fan.describe(BlockId(0), &block);
        fan.describe(BlockId(1), &block);
        (0..3).for_each(|_| fan.run(BlockId(1), &[]));
        assert_eq!([runs(&one), runs(&two)], [[(1, 3)], [(1, 3)]]);
        let mut fan = crate::sim::Fan(vec![&mut one, &mut two]);
        fan.restart();
        fan.run(BlockId(1), &[]);
        assert!(runs(&one).is_empty() && runs(&two).is_empty());
    }

    #[test]
    fn what_does_not_fuse_counts_alone() {
        // `lea` sets no flags: the jump starts behind it, in the next block.
        let report = counted(0x101e, &[&[0x8d, 0x08], JNE], 1);
        assert_eq!(report.on_boundary, 0);
        // `ret` that ends at the boundary.
        assert_eq!(counted(0x101f, &[&[0xc3]], 2).on_boundary, 2);
    }
}
