//! `stallscope worker`: runs blocks of a plan here.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use stallscope::compare::fleet::{Job, Plan, ProbeResult, ResultFolder, Selection};
use stallscope::compare::sweep::{Block, Host, Site, run_block};
use stallscope::explain::ExplainResult;

use crate::commands::words::rough;
use crate::commands::{explain, probe};
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
130 interrupted (143 by SIGTERM).";

/// Arguments of `worker`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct WorkerArgs {
    /// A plan of `sweep`, `compare`, `explain` or `probe --plan`, or some lines of one
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
    let jobs = Plan::at(&args.plan).read(args.block.as_ref())?;
    let out = ResultFolder::at(std::path::absolute(&args.out)?);
    let root = args.root.as_ref().map(std::path::absolute).transpose()?;
    let site = Site { root, host: Host::here(args.machine.as_deref()) };
    let mut report = WorkerReport { done: Vec::new(), already: Vec::new() };
    for job in jobs {
        let head = job.head();
        let number = head.block;
        if out.has(head.plan, number) {
            report.already.push(number);
            continue;
        }
        out.prepare(&job)?;
        let started = Instant::now();
        let what = match &job {
            Job::Rounds(block) => rounds(block, &site, &out, context),
            Job::Probes(block) => probe::planned::work(block, context).and_then(|profile| {
                let (plan, machine) = (block.plan.clone(), site.host.clone());
                out.keep(
                    head.plan,
                    number,
                    &ProbeResult { plan, block: number, machine, profile },
                )?;
                Ok(block.probes.join(", "))
            }),
            Job::Explanation(block) => stand_in(&site.place(&block.folder)).and_then(|()| {
                let explanation = explain::planned::work(block, &site, context)?.into();
                let (plan, machine) = (block.plan.clone(), site.host.clone());
                let result = ExplainResult { plan, block: number, machine, explanation };
                out.keep(head.plan, number, &result)?;
                Ok(format!("explained, {}", result.explanation.answer))
            }),
        };
        let what = what.with_context(|| format!("block {number}"))?;
        report.done.push(number);
        if context.shows_screen() {
            let took = rough(started.elapsed().as_nanos() as u64);
            let machine = &site.host.name;
            let text = format!("block {number}: {what} on {machine}, {took}");
            terminal::print(&terminal::wrap("", &text))?;
        }
    }
    if context.shows_screen() && !report.already.is_empty() {
        let already = Selection::of(report.already.clone());
        terminal::print(&format!("already there: block {already}\n"))?;
    }
    output::result(context, "worker", &report)?;
    Ok(Outcome::Fine)
}

fn stand_in(folder: &Path) -> anyhow::Result<()> {
    std::env::set_current_dir(folder).with_context(|| folder.display().to_string())
}

/// Runs the rounds of a block and keeps them; how many runs that were.
fn rounds(
    block: &Block,
    site: &Site,
    out: &ResultFolder,
    context: &Context,
) -> anyhow::Result<String> {
    stand_in(&site.place(&block.folder))?;
    let runs = u64::from(block.rounds) * (block.seats().len() as u64 + 1);
    let bar = context.progress(runs, &format!("block {}", block.block));
    let result = run_block(block, site, context.interrupt(), &mut || bar.inc(1));
    bar.finish_and_clear();
    let result = result?;
    out.keep(&result.plan, result.block, &result)?;
    Ok(format!("{} runs", result.runs.len() + result.placebos.len()))
}
