//! Progress of a window that is being followed: how many instructions so far.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use stallscope::trace::engine::{Block, BlockId, MemoryAccess, Sink};

use crate::context::Context;

/// Runs of blocks between two looks at the clock.
const RUNS_PER_LOOK: u32 = 1024;
/// A window that is done by then needs no bar.
const QUIET: Duration = Duration::from_secs(1);

/// Counts what an engine tells, and shows it.
pub struct FollowProgress {
    bar: ProgressBar,
    lengths: Vec<u64>,
    instructions: u64,
    runs: u32,
    began: Instant,
}

impl FollowProgress {
    /// Of a window of so many instructions, if that is known.
    pub fn new(context: &Context, instructions: Option<u64>) -> Self {
        let bar = context.progress(instructions.unwrap_or(0), "following");
        if instructions.is_none() {
            bar.unset_length();
        }
        Self { bar, lengths: Vec::new(), instructions: 0, runs: 0, began: Instant::now() }
    }
}

impl Sink for FollowProgress {
    fn describe(&mut self, id: BlockId, block: &Block) {
        let at = id.0 as usize;
        if at >= self.lengths.len() {
            self.lengths.resize(at + 1, 0);
        }
        self.lengths[at] = block.insns.len() as u64;
    }

    fn restart(&mut self) {
        self.lengths.clear();
        self.instructions = 0;
    }

    fn run(&mut self, id: BlockId, _accesses: &[MemoryAccess]) {
        self.instructions += self.lengths.get(id.0 as usize).copied().unwrap_or(0);
        self.runs += 1;
        if self.runs >= RUNS_PER_LOOK {
            self.runs = 0;
            if self.began.elapsed() >= QUIET {
                self.bar.set_position(self.instructions);
            }
        }
    }
}

impl Drop for FollowProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
