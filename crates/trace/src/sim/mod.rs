//! Models fed by the events of a trace: what the hardware must have done with this run.
//!
//! A model is a [`Sink`], so any engine and any replayed recording
//! drives it. It counts; what a count costs is a bracket from the design, never a count
//! times a constant. The store buffer asks the same [`ForwardingRule`](crate::machine::ForwardingRule)
//! object as the static rules, so the two cannot disagree about what may forward.

pub mod core;
pub mod jumps;
pub mod l1i;
mod pairs;
mod places;
mod report;
pub mod splits;
pub mod store_buffer;

pub use pairs::LoadPrice;
pub use places::{Location, Places, Sites};
pub use report::{Modelled, Models, TraceReport, TraceWindow};

use crate::trace::engine::{Block, BlockId, MemoryAccess, Sink};

/// Feeds several sinks from one run.
pub struct Fan<'a>(pub Vec<&'a mut dyn Sink>);

impl Sink for Fan<'_> {
    fn describe(&mut self, id: BlockId, block: &Block) {
        for sink in &mut self.0 {
            sink.describe(id, block);
        }
    }

    fn restart(&mut self) {
        self.0.iter_mut().for_each(|sink| sink.restart());
    }

    fn run(&mut self, id: BlockId, accesses: &[MemoryAccess]) {
        for sink in &mut self.0 {
            sink.run(id, accesses);
        }
    }
}
