//! What a program ran through before the window that is modelled, so that the predictor knows its branches.
//!
//! A core has seen a loop thousands of times when a window begins; one that begins with the window mispredicts what
//! takes several passes to learn. Of what comes before, only the way through the code is kept: caches are warmed up by the
//! window itself.
//! Literature: R. Wunderlich and others, "SMARTS: Accelerating Microarchitecture Simulation via Rigorous Statistical Sampling"
//! (2003), on warming long-lived state without modelling time.

use crate::trace::engine::{Block, BlockId, MemoryAccess, Sink};

/// A sink that keeps the way through the first instructions of a stretch of a run, and tells another one what comes
/// behind them.
pub struct Training<'a> {
    instructions: u64,
    left: u64,
    lengths: Vec<u64>,
    way: Vec<BlockId>,
    window: &'a mut dyn Sink,
}

impl<'a> Training<'a> {
    /// With so many instructions, to the end of a block, in front of what `window` is told.
    pub fn new(instructions: u64, window: &'a mut dyn Sink) -> Self {
        Self { instructions, left: instructions, lengths: Vec::new(), way: Vec::new(), window }
    }

    /// The blocks that were run before the window, in order; their numbers are those of the window.
    #[must_use]
    pub fn way(self) -> Vec<BlockId> {
        self.way
    }
}

impl Sink for Training<'_> {
    fn describe(&mut self, id: BlockId, block: &Block) {
        id.put(block.insns.len() as u64, &mut self.lengths);
        self.window.describe(id, block);
    }

    fn restart(&mut self) {
        (self.left, self.lengths, self.way) = (self.instructions, Vec::new(), Vec::new());
        self.window.restart();
    }

    fn run(&mut self, id: BlockId, accesses: &[MemoryAccess]) {
        if self.left == 0 {
            return self.window.run(id, accesses);
        }
        let length = self.lengths.get(id.0 as usize).copied().unwrap_or(0);
        self.left = self.left.saturating_sub(length);
        self.way.push(id);
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
    fn the_window_begins_behind_whole_blocks_and_knows_them_all() {
        let mut told = Told::default();
        let mut training = Training::new(5, &mut told);
        let block = |insns: usize| Block {
            insns: vec![BlockInsn { address: Avma(0x1000), size_bytes: 1 }; insns],
        };
        training.describe(BlockId(0), &block(2));
        training.run(BlockId(0), &[]);
        training.restart();
        training.describe(BlockId(0), &block(2));
        training.describe(BlockId(1), &block(2));
        for id in [0, 1, 0, 1, 0] {
            training.run(BlockId(id), &[]);
        }
        assert_eq!(training.way(), [0, 1, 0].map(BlockId));
        let expected = ["describe 0", "restart", "describe 0", "describe 1", "run 1", "run 0"];
        assert_eq!(told.0, expected);
    }
}
