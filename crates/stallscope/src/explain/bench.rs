//! The runs that an explanation needs, behind a trait so that tests can invent them.

use crate::compare::{
    Arm, CommandLine, CompareError, Comparison, ProcessRunner, Progress, Settings, compare,
};
use crate::trace::child::{Launch, Limits, Streams, resolve_program};
use crate::trace::sample::{SampleError, SampleRun, SampleSettings, sample};

use std::sync::atomic::AtomicBool;
use std::time::Duration;

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
}

/// The real thing.
pub struct ProcessBench<'a> {
    /// The two command lines.
    pub lines: [CommandLine; 2],
    /// How to compare them.
    pub settings: Settings,
    /// How to sample them.
    pub sampling: SampleSettings,
    /// Set from outside (Ctrl-C) to stop.
    pub interrupt: &'a AtomicBool,
}

impl Bench for ProcessBench<'_> {
    fn compare(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<Comparison, CompareError> {
        let limits = self.settings.limits(self.interrupt);
        let mut runner = ProcessRunner::new(self.lines.clone(), limits)?;
        compare(&mut runner, &self.settings, progress)
    }

    fn sample(&mut self, arm: Arm) -> Result<SampleRun, SampleError> {
        let line = &self.lines[arm.index()];
        let launch = Launch {
            program: resolve_program(&line.program)?,
            args: line.args.clone(),
            environment_padding_bytes: 0,
            cpu: self.settings.cpu,
            streams: Streams::Captured,
        };
        let limits = Limits {
            timeout: self.settings.timeout_ms.map(Duration::from_millis),
            interrupt: self.interrupt,
        };
        sample(&launch, &self.sampling, &limits)
    }
}
