//! Where cases are run: on this processor, or on an invented one.

use super::case::Case;
use crate::clock::Clock;
#[cfg(target_arch = "x86_64")]
use crate::probes::emit::{CodePages, CodeWriter, EmitError, Entry};

/// Start offsets of the copies of each kernel; each has data of its own as well. Where code lies
/// changes what it costs, and what a forwarded load costs must not depend on it. Where data lie
/// decides whether an alias is one: on a Zen 5 guest a load 4 KiB behind its store took 0.75 cycles
/// in some processes and 2.3 in others, the same throughout each.
pub const PLACEMENTS: &[usize] = &[0, 13, 30, 47];

/// A clock beside which cases can be run.
pub trait Rig: Clock {
    /// Runs at least `repetitions` of a case in one of its placements, in groups of
    /// [`super::kernel::PER_PASS`].
    fn run_case(&mut self, case: usize, placement: usize, repetitions: u64);
}

/// This processor.
#[cfg(target_arch = "x86_64")]
pub struct HardwareRig {
    clock: crate::clock::HardwareClock,
    pages: CodePages,
    entries: Vec<Vec<Entry>>,
    buffers: Vec<Box<Buffer>>,
}

/// The bytes that are stored and loaded; aligned so that offsets in it are offsets in pages.
#[cfg(target_arch = "x86_64")]
#[repr(C, align(4096))]
struct Buffer([u8; super::kernel::BUFFER_BYTES]);

#[cfg(target_arch = "x86_64")]
impl HardwareRig {
    /// Makes the kernels of `cases`, whose instructions this processor must have.
    pub fn new(clock: crate::clock::HardwareClock, cases: &[Case]) -> Result<Self, EmitError> {
        // The largest kernel, 192 fillers eight times, has 7 KiB; the usual one has 100 bytes.
        let bytes = |c: &Case| 512 + 8 * 5 * (c.fillers + c.steps) as usize;
        let capacity = cases.iter().map(bytes).sum::<usize>() * PLACEMENTS.len();
        let mut writer = CodeWriter::new(capacity)?;
        let mut entries = Vec::with_capacity(cases.len());
        for case in cases {
            let add = |&start| writer.add(start, |a| super::kernel::assemble(case, a));
            entries.push(PLACEMENTS.iter().map(add).collect::<Result<Vec<_>, _>>()?);
        }
        let buffer = |_: &usize| Box::new(Buffer([0; super::kernel::BUFFER_BYTES]));
        let buffers = PLACEMENTS.iter().map(buffer).collect();
        Ok(Self { clock, pages: writer.seal()?, entries, buffers })
    }
}

#[cfg(target_arch = "x86_64")]
impl Rig for HardwareRig {
    fn run_case(&mut self, case: usize, placement: usize, repetitions: u64) {
        let placement = placement % PLACEMENTS.len();
        let entry = self.entries[case][placement];
        let buffer = self.buffers[placement].0.as_mut_ptr();
        let passes = repetitions.div_ceil(super::kernel::PER_PASS);
        // SAFETY: the kernels obey the convention and stay inside BUFFER_BYTES (a test decodes
        // every one of them), and the caller of `new` left out what this processor has not.
        unsafe { self.pages.run(entry, buffer, passes) }
    }
}

#[cfg(target_arch = "x86_64")]
impl Clock for HardwareRig {
    fn now_ticks(&mut self) -> u64 {
        self.clock.now_ticks()
    }
    fn now_raw_ns(&mut self) -> u64 {
        self.clock.now_raw_ns()
    }
    fn run_latency_chain(&mut self, adds: u64) {
        self.clock.run_latency_chain(adds);
    }
    fn run_multiply_chain(&mut self, multiplies: u64) {
        self.clock.run_multiply_chain(multiplies);
    }
    fn run_throughput_chain(&mut self, passes: u64) {
        self.clock.run_throughput_chain(passes);
    }
}
