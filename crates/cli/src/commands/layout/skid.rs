//! Where samples of the kernel's clock land on this machine: this program again, dividing, sampled.

use std::time::{Duration, Instant};

use clap::Args;
use stallscope::run::child::{Launch, Limits};
use stallscope::run::sample::{SampleSettings, Skid, divide, period_for_overhead, sample, skid_of};

use crate::context::{Context, Outcome};

/// How long the loop runs, and how much sampling may slow it down: its result is not needed.
const LOOP: Duration = Duration::from_millis(120);
const LOOP_OVERHEAD: f64 = 0.2;
const TURNS: u64 = 100_000;
const LIMIT: Duration = Duration::from_secs(20);

/// Arguments of the hidden command `sample-loop`: none.
#[derive(Debug, Args)]
pub struct SampleLoopArgs {}

/// The loop: the child's side.
pub fn run(_args: &SampleLoopArgs, _context: &Context) -> anyhow::Result<Outcome> {
    let start = Instant::now();
    while start.elapsed() < LOOP && divide(TURNS).is_some() {}
    Ok(Outcome::Fine)
}

/// The parent's side; `None` where it cannot be found out.
pub fn calibrated(context: &Context) -> Option<Skid> {
    let launch = Launch {
        program: std::env::current_exe().ok()?,
        args: vec!["sample-loop".into()],
        ..Launch::default()
    };
    let period_ns = period_for_overhead(LOOP_OVERHEAD);
    let settings = SampleSettings { period_ns, ..SampleSettings::default() };
    let limits = Limits { timeout: Some(LIMIT), interrupt: context.interrupt() };
    skid_of(&sample(&launch, &settings, &limits).ok()?)
}
