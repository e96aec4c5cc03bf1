//! The runs that counting needs, behind a trait so that tests can invent them.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::run::child::{Launch, Limits};
use crate::run::sample::{SampleError, SampleRun, SampleSettings, sample};
use crate::trace::engine::{EngineError, Length, Recording, Sink, Window, preferred};

/// How long a window is, and how long it may take.
const WINDOW_INSTRUCTIONS: u64 = 10_000_000;
const WINDOW_BUDGET: Duration = Duration::from_secs(10);

/// Something that can run the command.
pub trait Runs {
    /// Runs it once and says where its time went.
    ///
    /// # Errors
    /// Whatever the sampler reports.
    fn sample(&mut self) -> Result<SampleRun, SampleError>;

    /// Follows a window of one run that starts after so much processor time, or else at its first instruction.
    ///
    /// # Errors
    /// Whatever the engine reports; [`EngineError::NeverStarted`] when the run is shorter.
    fn follow(
        &mut self,
        after: Option<Duration>,
        sink: &mut dyn Sink,
    ) -> Result<Recording, EngineError>;
}

/// The real thing.
pub struct CommandRuns<'a> {
    launch: Launch,
    interrupt: &'a AtomicBool,
}

impl<'a> CommandRuns<'a> {
    /// Runs of a command; `interrupt` is set from outside (Ctrl-C) to stop.
    #[must_use]
    pub fn new(launch: Launch, interrupt: &'a AtomicBool) -> Self {
        Self { launch, interrupt }
    }

    fn limits(&self) -> Limits<'a> {
        Limits { timeout: None, interrupt: self.interrupt }
    }
}

impl Runs for CommandRuns<'_> {
    fn sample(&mut self) -> Result<SampleRun, SampleError> {
        sample(&self.launch, &SampleSettings::default(), &self.limits())
    }

    fn follow(
        &mut self,
        after: Option<Duration>,
        sink: &mut dyn Sink,
    ) -> Result<Recording, EngineError> {
        let length = Length::Instructions(WINDOW_INSTRUCTIONS);
        let window = Window::after(after, length, true, WINDOW_BUDGET);
        preferred()?.record(&self.launch, &window, self.limits(), sink)
    }
}
