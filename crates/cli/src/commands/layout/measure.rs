//! The difference itself: both builds run in pairs, as `compare` does it.

use std::ffi::OsString;

use anyhow::bail;
use stallscope::compare::{CommandLine, Comparison, MAX_PAIRS, ProcessRunner, Settings, compare};

use super::LayoutArgs;
use crate::commands::compare::show;
use crate::context::Context;

pub fn check(args: &LayoutArgs) -> anyhow::Result<()> {
    let recorded = !args.samples.is_empty() || !args.windows.is_empty();
    if recorded && !args.args.is_empty() && !args.measure {
        bail!(
            "with --samples and --windows nothing is run: leave out what stands behind --, or add \
             --measure to time runs of the programs with it"
        );
    }
    let followed = args.trace.is_some() || !args.windows.is_empty();
    if args.measure && followed && args.takes.is_none() && args.operations.is_none() {
        bail!(
            "--measure times whole runs and a window is one operation: say how many a run does \
             (--operations N), or how long one takes (--takes DURATION)"
        );
    }
    Ok(())
}

/// Runs both programs in pairs for about as long as was asked for.
pub fn compared(args: &LayoutArgs, context: &Context) -> anyhow::Result<Comparison> {
    let settings = Settings {
        pairs: MAX_PAIRS,
        seed: context.seed(),
        cpus: args.cpus.cpus(),
        timeout_ms: args.timeout.map(|t| t.as_millis().max(1) as u64),
        budget_ms: Some(args.measure_for.as_millis().max(1) as u64),
        ..Settings::default()
    };
    let line = |program: &OsString| CommandLine::new(program, args.args.clone());
    let after = args.after.as_ref().unwrap_or(&args.before);
    let limits = settings.limits(context.interrupt());
    let mut runner = ProcessRunner::new([line(&args.before), line(after)], limits)?;
    let bar = context.progress(2 * u64::from(settings.pairs), "warming up");
    let result = compare(&mut runner, &settings, &mut |progress| show(&bar, progress, 2));
    bar.finish_and_clear();
    Ok(result?)
}
