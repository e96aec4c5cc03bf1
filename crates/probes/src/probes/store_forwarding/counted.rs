//! The maker's own counter of blocked loads, held against the probe's contrast.
//!
//! The kernels that the probe times anyway are the ones that must raise such an event and must not:
//! a wide load of two narrow stores, and a narrow load of one wide store. `untested on hardware`.

use super::case::Case;
use super::case::Registers::General;
use crate::clock::counters::{Contrast, Counter, CounterCheck, EventCounter, Role, check};
use crate::machine::Microarchitecture;
use crate::probes::rig::Rig;

/// Round trips under the counter: far more than what entering and leaving it may raise.
const REPETITIONS: u64 = 20_000;

/// What became of the event on this machine; `None` where none is published for the design, or
/// the contrast is not among the cases.
pub fn counted<R: Rig>(
    rig: &mut R,
    cases: &[Case],
    design: Microarchitecture,
    kernel: &mut dyn EventCounter,
) -> Option<CounterCheck> {
    let counter = Counter::of(design, Role::BlockedLoads)?;
    let position = |case: &Case| cases.iter().position(|c| c == case);
    let blocked = position(&Case::several(General, &[(0, 4), (4, 4)], 8))?;
    let forwarded = position(&Case::pair(General, 8, 4, 4))?;
    Some(check(counter, kernel, REPETITIONS, |contrast, repetitions| {
        let case = if contrast == Contrast::Raises { blocked } else { forwarded };
        rig.run_case(case, 0, repetitions);
    }))
}
