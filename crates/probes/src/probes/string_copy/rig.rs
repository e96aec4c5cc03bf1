//! The kernels of all cases on this processor.

use super::case::{Case, Job};
use super::kernel::{BUFFER_BYTES, PER_PASS, assemble};
use crate::clock::HardwareClock;
use crate::probes::emit::EmitError;
use crate::probes::rig::{KernelRig, Shape};

/// Start offsets of the copies of each kernel: a loop of moves takes 21 to 37 cycles for 168 bytes
/// on Cascade Lake by where it starts alone.
const PLACEMENTS: &[usize] = &[0, 13, 30, 47];

/// Makes the kernels of `cases`, whose instructions this processor must have.
pub fn hardware_rig(clock: HardwareClock, cases: &[Case]) -> Result<KernelRig, EmitError> {
    let shape = Shape {
        placements: PLACEMENTS,
        per_pass: PER_PASS,
        buffer_bytes: BUFFER_BYTES,
        // The largest: a chain of 100 multiplications and its moves, four times.
        code_bytes: cases.len() * PLACEMENTS.len() * 2560,
    };
    let repetitions = cases.iter().map(|c| c.repetitions()).collect();
    // SAFETY: the kernels obey the convention and stay inside BUFFER_BYTES (a test runs every one
    // of them and looks), and the caller left out what this processor has not.
    unsafe {
        KernelRig::new(clock, shape, repetitions, |case, _, a| {
            assemble(&cases[case], function(cases[case].job), a)
        })
    }
}

/// The C library's function for a job, as this program is bound to it.
fn function(job: Job) -> u64 {
    match job {
        Job::Copy => libc::memcpy as *const () as u64,
        Job::Fill => libc::memset as *const () as u64,
    }
}
