//! `stallscope compare`: what was typed, the run, the verdict as an exit code.

mod screen;
mod words;

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use stallscope::compare::{
    CommandLine, Comparison, Decision, MAX_PAIRS, Order, ProcessRunner, Progress, Settings,
    compare, default_cpu,
};

use crate::context::{Context, Outcome};
use crate::{output, terminal};

/// The order of runs, as typed.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum OrderArg {
    /// Drawn from the seed, balanced within blocks of four pairs
    Random,
    /// AB BA AB BA …
    Abba,
}

/// The processor to run on, as typed.
#[derive(Clone, Copy, Debug)]
enum CpuArg {
    Last,
    Number(usize),
    None,
}

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
    /// Arguments for both
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<OsString>,
    /// How many pairs of runs
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_PAIRS)))]
    pairs: u32,
    /// The smallest effect of interest: smaller ones count as equal
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = words::share)]
    effect: f64,
    /// Give up when one run takes longer than this (10s, 500ms, 2m)
    #[arg(long, value_name = "DURATION", value_parser = words::duration)]
    timeout: Option<Duration>,
    /// Run on this logical processor, or on any (`none`) [default: the last one allowed]
    #[arg(long, value_name = "N|none", default_value = "last", hide_default_value = true,
          value_parser = cpu)]
    cpu: CpuArg,
    /// How the runs of each pair are ordered
    #[arg(long, value_enum, default_value = "random")]
    order: OrderArg,
    /// Count runs that fail instead of giving up
    #[arg(long)]
    ignore_failure: bool,
    /// Exit with 1 when slower and with 3 when inconclusive
    #[arg(long)]
    gate: bool,
}

fn cpu(text: &str) -> Result<CpuArg, String> {
    match text {
        "last" => Ok(CpuArg::Last),
        "none" => Ok(CpuArg::None),
        number => number.parse().map(CpuArg::Number).map_err(|_| {
            "write the number of a logical processor, or `none` to leave the choice open".into()
        }),
    }
}

/// Runs the command.
pub fn run(args: &CompareArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    let lines = [command_line(&args.before, &args.args)?, command_line(&args.after, &args.args)?];
    let settings = settings(args, context.seed());
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

fn settings(args: &CompareArgs, seed: u64) -> Settings {
    Settings {
        pairs: args.pairs,
        order: match args.order {
            OrderArg::Random => Order::Random,
            OrderArg::Abba => Order::Abba,
        },
        seed,
        effect: args.effect,
        timeout_ms: args.timeout.map(|t| t.as_millis().max(1) as u64),
        cpu: match args.cpu {
            CpuArg::Last => default_cpu(),
            CpuArg::Number(cpu) => Some(cpu),
            CpuArg::None => None,
        },
        ignore_failure: args.ignore_failure,
    }
}

fn command_line(typed: &OsString, extra: &[OsString]) -> anyhow::Result<CommandLine> {
    let mut words = words::split(typed)?.into_iter();
    let program = words.next().unwrap_or_default();
    Ok(CommandLine { program, args: words.chain(extra.iter().cloned()).collect() })
}

fn show(bar: &ProgressBar, progress: Progress) {
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
