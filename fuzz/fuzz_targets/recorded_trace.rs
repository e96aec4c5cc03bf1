//! Any bytes give events and then an end or an error.

#![no_main]

use std::sync::atomic::AtomicBool;

use libfuzzer_sys::fuzz_target;
use stallscope::trace::engine::{Block, BlockId, MemoryAccess, Sink};
use stallscope::trace::recorded::replay;

#[derive(Default)]
struct Check(Vec<usize>);

impl Sink for Check {
    fn describe(&mut self, id: BlockId, block: &Block) {
        assert_eq!(id.0 as usize, self.0.len());
        self.0.push(block.insns.len());
    }

    fn restart(&mut self) {
        // Blocks are described anew from number 0.
        self.0.clear();
    }

    fn run(&mut self, id: BlockId, accesses: &[MemoryAccess]) {
        let length = self.0[id.0 as usize];
        assert!(accesses.iter().all(|a| (a.insn as usize) < length && a.size_bytes > 0));
    }
}

fuzz_target!(|bytes: &[u8]| {
    let _ = replay(bytes, &AtomicBool::new(false), &mut Check::default());
});
