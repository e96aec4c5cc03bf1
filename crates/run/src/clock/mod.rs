//! Time, events and whether either can be trusted here.
//!
//! *Effect.* The time stamp counter ticks at a constant rate; the core does not. Turbo, power
//! licences (512-bit vectors) and a hypervisor's scheduler move the core clock by tens of
//! percent within microseconds, a neighbour on the sibling thread halves throughput without
//! touching the clock, and interrupts add time that no instruction spent. A single global
//! "cycles per tick" turns each of these into a wrong number.
//!
//! *Measurable sign.* A chain of dependent additions takes one core cycle each, whatever else
//! goes on, so ticks per addition is the core clock *at that moment*; a loop of no-ops fills the
//! issue width, so it slows down when another process shares the core. Both are run around every sample.
//!
//! *Literature.* Intel SDM vol. 3 "Invariant TSC"; G. Paoloni, "How to Benchmark Code Execution
//! Times" (Intel, 2010); T. Downs, uarch-bench (dependent-add calibration) and "Gathering Intel on
//! Intel AVX-512 Transitions" (2020); A. Abel and J. Reineke, "nanoBench" (ISPASS 2020, K against
//! 2K iterations).

mod accounting;
mod canary;
mod chains;
pub mod counters;
pub mod environment;
mod fake;
mod levels;
mod pace;
pub(crate) mod perf;
pub mod pin;
pub mod pmu;
mod sample;
mod survey;
mod system;
mod tick;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use accounting::tells_user_from_system;
pub use canary::{Canary, canary};
pub use chains::HardwareClock;
pub use environment::{Environment, EnvironmentGrade, Reason, Surroundings};
pub use fake::FakeClock;
pub use levels::{Level, levels};
pub use pace::Pace;
pub use perf::{LinuxPerf, UncorePerf};
pub(crate) use pin::parse_processor_list;
pub use pin::{Cpus, Pin, allowed_cpus, choose_cpu};
pub use pmu::{PerfEvent, PerfKernel, Pmu, PmuVerdict};
pub use sample::{MOVED_CLOCK, SHARED_CORE, Sample, SamplePlan, take_sample};
pub use survey::{Summary, Survey, SurveyPlan, survey};
pub use system::{Influence, Setting, SystemFiles, SystemReport, look as system_settings};
pub use tick::TickReading;

use crate::model::Measurement;

/// No-ops in one pass of the throughput chain.
pub const NOPS_PER_PASS: u64 = 64;

/// Additions are executed in groups of this many; a request is rounded up.
pub const ADDS_PER_GROUP: u64 = 8;

/// What can go wrong with the clock.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum ClockError {
    #[error("the clock's kernels exist for x86-64 only, this is {arch}")]
    UnsupportedArchitecture { arch: &'static str },
    /// The kernel refused to say or set where this thread may run.
    #[error("cannot {action} the CPU affinity of this thread")]
    Affinity {
        /// `read` or `set`
        action: &'static str,
        source: nix::errno::Errno,
    },
    /// The affinity mask is empty, or holds only processors beyond what can be named.
    #[error("this thread may run on no CPU that can be named")]
    NoCpu,
}

/// A source of time and the three kernels that say what time is worth.
///
/// [`HardwareClock`] is the real one, [`FakeClock`] an invented machine. Kernels are in the trait
/// because a fake must decide how long they take.
pub trait Clock {
    /// The time stamp counter, ordered against the code around it. Unit: ticks.
    fn now_ticks(&mut self) -> u64;
    /// `CLOCK_MONOTONIC_RAW`: not slewed by NTP. Unit: nanoseconds.
    fn now_raw_ns(&mut self) -> u64;
    /// At least `adds` dependent additions: one core cycle each, in groups of [`ADDS_PER_GROUP`].
    fn run_latency_chain(&mut self, adds: u64);
    /// `multiplies` dependent multiplications (3 core cycles each on every core in the table of
    /// `machine`), in the same groups: the cross-check of the additions.
    fn run_multiply_chain(&mut self, multiplies: u64);
    /// `passes` times [`NOPS_PER_PASS`] independent no-ops: fills the issue width.
    fn run_throughput_chain(&mut self, passes: u64);
}

/// Something built around a clock, which is thereby a clock itself.
pub trait HoldsClock {
    /// The wrapped clock.
    fn held_clock(&mut self) -> &mut impl Clock;
}

impl<T: HoldsClock> Clock for T {
    fn now_ticks(&mut self) -> u64 {
        self.held_clock().now_ticks()
    }
    fn now_raw_ns(&mut self) -> u64 {
        self.held_clock().now_raw_ns()
    }
    fn run_latency_chain(&mut self, adds: u64) {
        self.held_clock().run_latency_chain(adds);
    }
    fn run_multiply_chain(&mut self, multiplies: u64) {
        self.held_clock().run_multiply_chain(multiplies);
    }
    fn run_throughput_chain(&mut self, passes: u64) {
        self.held_clock().run_throughput_chain(passes);
    }
}

/// A number, or the admission that there was too little undisturbed data for one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// A value with its interval.
    Measured(Measurement),
    /// Too few clean samples: widening the interval instead would be a lie.
    Inconclusive {
        /// Clean samples in percent of those taken.
        clean_percent: f64,
        /// Samples taken.
        n: usize,
    },
}

impl Reading {
    /// The estimate, if there is one.
    #[must_use]
    pub fn value(&self) -> Option<f64> {
        match self {
            Self::Measured(m) => Some(m.value),
            Self::Inconclusive { .. } => None,
        }
    }
}
