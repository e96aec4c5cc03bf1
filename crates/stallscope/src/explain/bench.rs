//! The runs that an explanation needs, behind a trait so that tests can invent them.

use std::sync::atomic::AtomicBool;

use crate::compare::{
    Arm, CommandLine, CompareError, Comparison, ProcessRunner, Progress, Runner, Settings, compare,
};
use crate::trace::sample::{SampleError, SampleRun, SampleSettings, sample};

/// Something that can run the two programs.
pub trait Bench {
    /// Runs the whole paired comparison.
    ///
    /// # Errors
    /// Whatever the comparison reports.
    fn compare(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<Comparison, CompareError>;

    /// Runs one arm once and says where its time went.
    ///
    /// # Errors
    /// Whatever the sampler reports.
    fn sample(&mut self, arm: Arm) -> Result<SampleRun, SampleError>;

    /// Whether everything that was run is still what it was at the beginning.
    ///
    /// # Errors
    /// [`CompareError::Replaced`] when it is not.
    fn check_files(&self) -> Result<(), CompareError> {
        Ok(())
    }
}

/// The real thing.
pub struct ProcessBench<'a> {
    runner: ProcessRunner<'a>,
    settings: Settings,
    sampling: SampleSettings,
}

impl<'a> ProcessBench<'a> {
    /// Finds both programs; `interrupt` is set from outside (Ctrl-C) to stop. Nothing is started yet.
    ///
    /// # Errors
    /// As [`ProcessRunner::new`].
    pub fn new(
        lines: [CommandLine; 2],
        settings: Settings,
        sampling: SampleSettings,
        interrupt: &'a AtomicBool,
    ) -> Result<Self, CompareError> {
        let runner = ProcessRunner::new(lines, settings.limits(interrupt))?;
        Ok(Self { runner, settings, sampling })
    }
}

impl Bench for ProcessBench<'_> {
    fn compare(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<Comparison, CompareError> {
        compare(&mut self.runner, &self.settings, progress)
    }

    fn sample(&mut self, arm: Arm) -> Result<SampleRun, SampleError> {
        sample(&self.runner.launch(arm, 0), &self.sampling, &self.runner.child_limits())
    }

    fn check_files(&self) -> Result<(), CompareError> {
        self.runner.check_files()
    }
}
