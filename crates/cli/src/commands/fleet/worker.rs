//! `stallscope worker`: runs blocks of a plan here.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stallscope::compare::fleet::{Plan, ResultFolder, Selection};
use stallscope::compare::sweep::{Host, Site, run_block};

use crate::commands::words::rough;
use crate::context::{Context, Outcome};
use crate::{output, terminal};

const EXAMPLES: &str = "\
Examples:
  All blocks of a plan on this machine, one behind the other
    stallscope worker plan.jsonl --out results
  One task of an array
    stallscope worker plan.jsonl --block \"$SLURM_ARRAY_TASK_ID\" --out results
  Where files were brought below a folder, in a container without a name of its own
    stallscope worker plan.jsonl --root /stage --machine \"$NODE_NAME\" --out results

A block whose result is there already is not run again. A program or an input with
other bytes than planned is refused.

Exit codes: 0 all of them are there, 2 bad usage or a block that cannot be run,
130 interrupted.";

/// Arguments of `worker`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct WorkerArgs {
    /// A plan of `sweep --plan` or `compare --plan`, or some lines of one
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// Lines of it, from 0: numbers and ranges, like 0-9,12 [default: all]
    #[arg(long, value_name = "LIST", value_parser = |text: &str| text.parse::<Selection>())]
    block: Option<Selection>,
    /// Where results go: a file for each block
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Files were brought here below DIR, each at its whole path
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// What this machine is called, where it cannot tell itself from others (containers)
    #[arg(long, value_name = "NAME")]
    machine: Option<String>,
}

/// What a worker has done.
#[derive(Debug, Serialize, JsonSchema)]
pub struct WorkerReport {
    /// Blocks that it ran.
    done: Vec<u32>,
    /// Blocks whose result was there already.
    already: Vec<u32>,
}

/// Runs the command.
pub fn run(args: &WorkerArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    let blocks = Plan::at(&args.plan).read(args.block.as_ref())?;
    let out = ResultFolder::at(std::path::absolute(&args.out)?);
    let root = args.root.as_ref().map(std::path::absolute).transpose()?;
    let site = Site { root, host: Host::here(args.machine.as_deref()) };
    let mut report = WorkerReport { done: Vec::new(), already: Vec::new() };
    for block in &blocks {
        if out.has(&block.plan, block.block) {
            report.already.push(block.block);
            continue;
        }
        out.prepare(block)?;
        let folder = site.place(&block.folder);
        std::env::set_current_dir(&folder)
            .with_context(|| format!("block {}: {}", block.block, folder.display()))?;
        let runs = u64::from(block.rounds) * (block.seats().len() as u64 + 1);
        let bar = context.progress(runs, &format!("block {}", block.block));
        let started = Instant::now();
        let result = run_block(block, &site, context.interrupt(), &mut || bar.inc(1));
        bar.finish_and_clear();
        let result = result.with_context(|| format!("block {}", block.block))?;
        out.keep(&result)?;
        report.done.push(block.block);
        if context.shows_screen() {
            let took = rough(started.elapsed().as_nanos() as u64);
            let runs = result.runs.len() + result.placebos.len();
            let (block, machine) = (block.block, &result.machine.name);
            terminal::print(&format!("block {block}: {runs} runs on {machine}, {took}\n"))?;
        }
    }
    if context.shows_screen() && !report.already.is_empty() {
        let already = Selection::of(report.already.clone());
        terminal::print(&format!("already there: block {already}\n"))?;
    }
    output::result(context, "worker", &report)?;
    Ok(Outcome::Fine)
}
