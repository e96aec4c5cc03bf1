//! `compare --plan`: the runs as blocks for other machines.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use stallscope::compare::sweep::plan_commands;
use stallscope::compare::{CommandLine, ProcessRunner};

use super::{CompareArgs, show};
use crate::commands::fleet;
use crate::context::{Context, Outcome};
use crate::output;

/// What belongs to runs that are made here, or to a word that follows from them.
const OF_HERE: [&str; 14] = [
    "until",
    "budget",
    "fail_if",
    "gate",
    "aa",
    "kind",
    "order",
    "ignore_failure",
    "markdown",
    "benchfmt",
    "export_json",
    "export_csv",
    "export_markdown",
    "history",
];

#[derive(Debug, Args)]
#[command(next_help_heading = "Other machines")]
pub struct PlanArgs {
    /// Try each command and write the runs as blocks for other machines instead (`submit`, `worker`)
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_HERE)]
    pub plan: Option<PathBuf>,
    /// Pairs of a block, which stay on one machine, behind a warm-up there
    #[arg(long, value_name = "N", default_value_t = 5, requires = "plan", value_parser = clap::value_parser!(u32).range(1..=1000))]
    per_block: u32,
}

/// Tries each command as a comparison here does, and writes the blocks.
pub fn run(
    args: &CompareArgs,
    context: &Context,
    lines: Vec<CommandLine>,
    path: &Path,
) -> anyhow::Result<Outcome> {
    output::check_target(path).context("--plan")?;
    if lines.len() < 2 {
        bail!("--plan goes with two commands or more (there is one)");
    }
    let count = lines.len() as u64;
    // A fixed seed unless one is given: the same command is the same plan.
    let settings = args.settings(context.given_seed().unwrap_or(1))?;
    let limits = settings.limits(context.interrupt());
    let mut runner = ProcessRunner::new(lines, limits)?.measuring(&settings)?;
    let bar = context.progress(count, "warming up");
    let planned =
        plan_commands(&mut runner, &settings, args.plan.per_block, &mut |p| show(&bar, p, count));
    bar.finish_and_clear();
    let cleaned = runner.clean_up();
    let planned = planned?;
    cleaned?;
    fleet::written(path, &planned, "commands", context)
}
