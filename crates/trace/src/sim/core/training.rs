//! What a program runs through behind the window that is modelled, so that the predictor knows its branches.
//!
//! A core has seen a loop thousands of times when a window begins; one that begins with the window mispredicts what
//! takes several passes to learn. A program goes on with what it did before, so what comes behind teaches as much as what
//! came in front, and the window lies where it was asked for: windows that begin at moments of a run sample its time, and
//! with millions of instructions in between would sample its instructions. Of what comes behind, the way through
//! the code is kept, and when lines and pages of data come back (see [`Footprint`]).
//! Literature: R. Wunderlich and others, "SMARTS: Accelerating Microarchitecture Simulation via Rigorous Statistical Sampling"
//! (2003), on warming long-lived state without modelling time.

use super::footprint::Footprint;
use crate::trace::engine::{Block, BlockId, MemoryAccess, Sink};

/// A sink that tells another one the first instructions of a stretch of a run, and keeps the way through those that
/// come behind them.
pub struct Training<'a> {
    instructions: u64,
    left: u64,
    lengths: Vec<u64>,
    learned: Learned,
    window: &'a mut dyn Sink,
}

/// What a stretch of a run teaches a core about a window at its beginning.
#[derive(Default)]
pub struct Learned {
    /// The blocks that were run behind the window, in order; their numbers are those of the window.
    pub(super) way: Vec<BlockId>,
    /// Data of the whole stretch.
    pub(super) data: Footprint,
}

impl<'a> Training<'a> {
    /// Behind so many instructions, to the end of a block, that `window` is told.
    pub fn behind(instructions: u64, window: &'a mut dyn Sink) -> Self {
        let (lengths, learned) = Default::default();
        Self { instructions, left: instructions, lengths, learned, window }
    }

    /// What the whole stretch tells.
    #[must_use]
    pub fn learned(self) -> Learned {
        self.learned
    }
}

impl Sink for Training<'_> {
    fn describe(&mut self, id: BlockId, block: &Block) {
        id.put(block.insns.len() as u64, &mut self.lengths);
        self.window.describe(id, block);
    }

    fn restart(&mut self) {
        (self.left, self.lengths) = (self.instructions, Vec::new());
        self.learned = Learned::default();
        self.window.restart();
    }

    fn run(&mut self, id: BlockId, accesses: &[MemoryAccess]) {
        self.learned.data.touch(accesses);
        if self.left == 0 {
            return self.learned.way.push(id);
        }
        let length = self.lengths.get(id.0 as usize).copied().unwrap_or(0);
        self.left = self.left.saturating_sub(length);
        self.window.run(id, accesses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Avma;
    use crate::trace::engine::BlockInsn;

    #[derive(Default)]
    struct Told(Vec<String>);

    impl Sink for Told {
        fn describe(&mut self, id: BlockId, _: &Block) {
            self.0.push(format!("describe {}", id.0));
        }

        fn restart(&mut self) {
            self.0.push("restart".into());
        }

        fn run(&mut self, id: BlockId, _: &[MemoryAccess]) {
            self.0.push(format!("run {}", id.0));
        }
    }

    #[test]
    fn the_window_ends_with_a_block_and_knows_those_behind_it() {
        let mut told = Told::default();
        let mut training = Training::behind(5, &mut told);
        let block = |insns: usize| Block {
            insns: vec![
                BlockInsn { address: Avma(0x1000), size_bytes: 1, drains_stores: false };
                insns
            ],
        };
        training.describe(BlockId(0), &block(2));
        training.run(BlockId(0), &[]);
        training.restart();
        training.describe(BlockId(0), &block(2));
        training.describe(BlockId(1), &block(2));
        for id in [0, 1, 0, 1, 0] {
            training.run(BlockId(id), &[]);
        }
        assert_eq!(training.learned().way, [1, 0].map(BlockId));
        let expected = [
            "describe 0",
            "run 0",
            "restart",
            "describe 0",
            "describe 1",
            "run 0",
            "run 1",
            "run 0",
        ];
        assert_eq!(told.0, expected);
    }
}
