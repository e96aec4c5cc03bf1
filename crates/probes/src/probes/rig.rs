//! Where kernels are run: on this processor, or on an invented one.

#[cfg(target_arch = "x86_64")]
use super::emit::{CodePages, CodeWriter, EmitError, Entry};
use crate::clock::Clock;
#[cfg(target_arch = "x86_64")]
use crate::clock::{HardwareClock, HoldsClock};
#[cfg(target_arch = "x86_64")]
use iced_x86::{IcedError, code_asm::CodeAssembler};

/// A clock beside which the cases of a probe can be run.
pub trait Rig: Clock {
    /// Copies of each kernel. Where code lies changes what it costs, and what a probe says must not
    /// depend on it.
    fn placements(&self) -> usize;
    /// K of a case: so many that one takes a few microseconds.
    fn repetitions(&self, case: usize) -> u64;
    /// Runs at least `repetitions` of a case in one of its placements.
    fn run_case(&mut self, case: usize, placement: usize, repetitions: u64);
    /// Brings what a case needs to where it belongs, before it is timed.
    fn warm_up(&mut self, case: usize, placement: usize) {
        self.run_case(case, placement, self.repetitions(case) / 2);
    }
}

/// What a rig on this processor is made of.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// Start offsets of the copies of each kernel behind a boundary of 64 bytes.
    pub placements: &'a [usize],
    /// Repetitions in one pass of each kernel's loop.
    pub per_pass: u64,
    /// Bytes that kernels may touch behind the pointer they are given.
    pub buffer_bytes: usize,
    /// Room for all kernels.
    pub code_bytes: usize,
}

/// Kernels made at run time, each with copies that have data of their own: where data lie decides
/// about aliases.
#[cfg(target_arch = "x86_64")]
pub struct KernelRig {
    clock: HardwareClock,
    pages: CodePages,
    entries: Vec<Vec<Entry>>,
    buffers: Vec<Vec<Page>>,
    per_pass: u64,
    repetitions: Vec<u64>,
}

/// Bytes that are stored and loaded; aligned so that offsets in them are offsets in pages.
#[cfg(target_arch = "x86_64")]
#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

#[cfg(target_arch = "x86_64")]
impl KernelRig {
    /// Makes the kernels: `assemble(case, placement, ..)` writes one, `repetitions` holds K of
    /// each.
    ///
    /// # Errors
    /// When the kernels cannot be made.
    ///
    /// # Safety
    /// Every kernel obeys the conventions of [`super::emit`], stays inside the buffer that `shape`
    /// promises, and holds only instructions that this processor has.
    pub unsafe fn new(
        clock: HardwareClock,
        shape: Shape<'_>,
        repetitions: Vec<u64>,
        assemble: impl Fn(usize, usize, &mut CodeAssembler) -> Result<(), IcedError>,
    ) -> Result<Self, EmitError> {
        let mut writer = CodeWriter::new(shape.code_bytes)?;
        let mut entries = Vec::with_capacity(repetitions.len());
        for case in 0..repetitions.len() {
            let copies = shape.placements.iter().enumerate();
            let add = |(p, &start): (usize, &usize)| writer.add(start, |a| assemble(case, p, a));
            entries.push(copies.map(add).collect::<Result<Vec<_>, _>>()?);
        }
        let buffer = || vec![Page([0; 4096]); shape.buffer_bytes.div_ceil(4096)];
        let buffers = shape.placements.iter().map(|_| buffer()).collect();
        let (per_pass, pages) = (shape.per_pass, writer.seal()?);
        Ok(Self { clock, pages, entries, buffers, per_pass, repetitions })
    }

    /// With K of each case so that it takes about so many ticks, by a few runs of it.
    pub fn calibrated(mut self, about_ticks: u64) -> Self {
        for case in 0..self.repetitions.len() {
            // Whatever is done for the first time only is done in the first turn.
            for _ in 0..4 {
                let begin = self.clock.now_ticks();
                self.run_case(case, 0, self.repetitions(case));
                let took = self.clock.now_ticks().saturating_sub(begin).max(1);
                let times = (about_ticks as f64 / took as f64).clamp(0.25, 64.0);
                let wanted = self.repetitions[case] as f64 * times;
                self.repetitions[case] = (wanted as u64).max(self.per_pass);
            }
        }
        self
    }
}

#[cfg(target_arch = "x86_64")]
impl Rig for KernelRig {
    fn placements(&self) -> usize {
        self.buffers.len()
    }

    fn repetitions(&self, case: usize) -> u64 {
        // Whole passes, or K and 2K would not be one and two times the same.
        self.repetitions[case].next_multiple_of(self.per_pass)
    }

    fn run_case(&mut self, case: usize, placement: usize, repetitions: u64) {
        let placement = placement % self.buffers.len();
        let entry = self.entries[case][placement];
        let buffer = self.buffers[placement].as_mut_ptr().cast();
        // SAFETY: whoever made the rig promised that its kernels obey the convention and stay
        // inside the buffer, which lives as long as the rig.
        unsafe { self.pages.run(entry, buffer, repetitions.div_ceil(self.per_pass)) }
    }
}

#[cfg(target_arch = "x86_64")]
impl HoldsClock for KernelRig {
    fn held_clock(&mut self) -> &mut impl Clock {
        &mut self.clock
    }
}
