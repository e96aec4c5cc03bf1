//! The makers' counters of what leaves a cache, held against fills: the mechanism itself, where
//! time shows its effect only.
//!
//! A line of zeros that is written over with zeros leaves L2 as if it had not changed, if it is
//! eliminated, and is not written to memory. Each event is first held against lines that must raise
//! it (changed ones, or for silent evictions read ones, in a region that the cache cannot hold) and
//! against fills of as many lines that stay in L1. `untested on hardware`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Fill;
use super::sampling::Filler;
use crate::clock::counters::{
    Contrast, Counter, CounterCheck, CounterState, EventCounter, Role, check,
};
use crate::machine::Microarchitecture;

/// More than any L2 holds.
const BEHIND_L2_BYTES: usize = 12 << 20;
/// More than most third levels hold; where it is not, the event does not rise and is not believed.
const BEHIND_L3_BYTES: usize = 96 << 20;
/// In L1 to stay.
const NEAR_BYTES: usize = 16 << 10;
const LINE_BYTES: usize = crate::model::LINE_BYTES as usize;
/// Passes over a region under one event.
const PASSES: u64 = 4;

/// One event: whether it is believed, and what it counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CountedEvent {
    /// Quantity that the counter measures.
    pub role: Role,
    /// How it behaved; per line.
    pub check: CounterCheck,
    /// The region that was filled, bytes.
    pub bytes: u64,
    /// Events for each line that was filled over with the same; empty where it is not believed.
    pub per_line: Vec<(Fill, f64)>,
}

/// What became of the events that the design has; `kernel` counts.
pub fn counted<F: Filler>(
    filler: &mut F,
    design: Microarchitecture,
    mut kernel: impl FnMut(&Counter) -> Box<dyn EventCounter>,
) -> Vec<CountedEvent> {
    let roles = [Role::SilentEvictions, Role::DirtyEvictions, Role::MemoryWrites];
    let counters = roles.into_iter().filter_map(|role| Counter::of(design, role));
    counters.map(|counter| one(filler, counter, kernel(counter).as_mut())).collect()
}

fn one<F: Filler>(
    filler: &mut F,
    counter: &Counter,
    kernel: &mut dyn EventCounter,
) -> CountedEvent {
    let bytes = match counter.role {
        Role::MemoryWrites => BEHIND_L3_BYTES,
        _ => BEHIND_L2_BYTES,
    };
    filler.prepare(bytes);
    let lines = PASSES * (bytes / LINE_BYTES) as u64;
    let check = check(counter, kernel, lines, |contrast, _| match contrast {
        Contrast::Raises => raise(filler, counter.role, bytes),
        Contrast::StaysSilent => {
            filler.fill(Fill::Two, 0, NEAR_BYTES, PASSES * (bytes / NEAR_BYTES) as u64);
        }
    });
    let mut per_line = Vec::new();
    if check.state == CounterState::Believed {
        for fill in [Fill::One, Fill::Zero, Fill::Two, Fill::Alternating] {
            // What was there before is the same.
            filler.fill(fill, 0, bytes, 1);
            let count = kernel.count(check.config, &mut || filler.fill(fill, 0, bytes, PASSES));
            per_line.extend(count.ok().map(|count| (fill, count as f64 / lines as f64)));
        }
    }
    CountedEvent { role: counter.role, check, bytes: bytes as u64, per_line }
}

/// Sends every line of the region out of the cache, once a pass.
fn raise<F: Filler>(filler: &mut F, role: Role, bytes: usize) {
    for pass in 0..PASSES {
        match (role, pass % 2) {
            (Role::SilentEvictions, _) => filler.read(bytes),
            (_, 0) => filler.fill(Fill::One, 0, bytes, 1),
            _ => filler.fill(Fill::Two, 0, bytes, 1),
        }
    }
}
