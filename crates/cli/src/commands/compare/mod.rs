//! `stallscope compare`: what was typed, the run, the verdict as an exit code.

pub mod screen;

use std::ffi::OsString;

use clap::Args;
use indicatif::ProgressBar;
use stallscope::compare::{CommandLine, Comparison, Decision, ProcessRunner, Progress, compare};

use super::run_args::RunArgs;
use super::words;
use crate::context::{Context, Outcome};
use crate::{output, terminal};

const EXAMPLES: &str = "\
Examples:
  Two builds with the same arguments
    stallscope compare ./before ./after -- input.bin
  Two command lines (split into words as a shell would, but no shell runs them)
    stallscope compare 'gzip -9 -c log.txt' 'zstd -9 -c log.txt'
  A gate: exit code 1 when slower by 2 % or more, 3 when that cannot be decided
    stallscope compare --gate --effect 2% --pairs 40 ./before ./after
  Keep every sample, and show nothing
    stallscope compare --quiet --json result.json ./before ./after

Exit codes: 0 compared (with --gate: not slower), 1 slower (--gate), 2 bad usage
or a program that does not run, 3 inconclusive (--gate), 130 interrupted.";

/// Arguments of `compare`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CompareArgs {
    /// The first program or command line
    #[arg(value_name = "BEFORE")]
    before: OsString,
    /// The second one, which is called slower, faster or equivalent
    #[arg(value_name = "AFTER")]
    after: OsString,
    /// How they are run.
    #[command(flatten)]
    run: RunArgs,
    /// Exit with 1 when slower and with 3 when inconclusive
    #[arg(long)]
    gate: bool,
}

/// Runs the command.
pub fn run(args: &CompareArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    let lines = [command_line(&args.before, &args.run)?, command_line(&args.after, &args.run)?];
    let settings = args.run.settings(context.seed());
    let mut runner = ProcessRunner::new(lines, settings.limits(context.interrupt()))?;
    let bar = context.progress(2 * u64::from(settings.pairs), "warming up");
    let result = compare(&mut runner, &settings, &mut |p| show(&bar, p));
    bar.finish_and_clear();
    let comparison = result?;
    output::json(context, "comparison", &comparison)?;
    if context.shows_screen() {
        terminal::print(&screen::screen(&comparison))?;
    }
    Ok(outcome(&comparison, args.gate))
}

fn command_line(typed: &OsString, run: &RunArgs) -> anyhow::Result<CommandLine> {
    let mut words = words::split(typed)?.into_iter();
    let program = words.next().unwrap_or_default();
    Ok(run.line(program, words))
}

/// Shows how far the comparison has come.
pub fn show(bar: &ProgressBar, progress: Progress) {
    match progress {
        Progress::WarmingUp { .. } => bar.tick(),
        Progress::Planned { runs, expected_ns } => {
            bar.set_message(format!("{} pairs, about {}", runs / 2, words::rough(expected_ns)));
            bar.reset_eta();
        }
        Progress::Ran { done } => bar.set_position(done),
    }
}

fn outcome(comparison: &Comparison, gate: bool) -> Outcome {
    match comparison.analysis.verdict.decision {
        Decision::Slower if gate => Outcome::Gated,
        Decision::Inconclusive if gate => Outcome::Inconclusive,
        _ => Outcome::Fine,
    }
}
