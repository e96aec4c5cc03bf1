//! The kernels of all cases on this processor.

use super::case::Case;
use super::kernel::{BUFFER_BYTES, PER_PASS, assemble};
use crate::clock::HardwareClock;
use crate::probes::emit::EmitError;
use crate::probes::rig::{KernelRig, Shape};

/// Start offsets of the copies of each kernel; each has data of its own as well. What a forwarded
/// load costs must not depend on either. On a Zen 5 guest a load 4 KiB behind its store took 0.75
/// cycles in some processes and 2.3 in others, the same throughout each.
const PLACEMENTS: &[usize] = &[0, 13, 30, 47];

/// K: about 10 us for a visit.
const REPETITIONS: u64 = 512;

/// Makes the kernels of `cases`, whose instructions this processor must have.
pub fn hardware_rig(clock: HardwareClock, cases: &[Case]) -> Result<KernelRig, EmitError> {
    // The largest kernel, 192 fillers eight times, has 7 KiB; the usual one has 100 bytes.
    let bytes = |c: &Case| 512 + 8 * 5 * (c.fillers + c.steps) as usize;
    let shape = Shape {
        placements: PLACEMENTS,
        per_pass: PER_PASS,
        buffer_bytes: BUFFER_BYTES,
        code_bytes: cases.iter().map(bytes).sum::<usize>() * PLACEMENTS.len(),
    };
    let repetitions = vec![REPETITIONS; cases.len()];
    // SAFETY: the kernels obey the convention and stay inside BUFFER_BYTES (a test decodes every
    // one of them), and the caller left out what this processor has not.
    unsafe { KernelRig::new(clock, shape, repetitions, |case, _, a| assemble(&cases[case], a)) }
}
