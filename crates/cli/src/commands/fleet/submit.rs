//! `stallscope submit`: hands the blocks of a plan to an engine.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use stallscope::compare::fleet::{
    EngineKind, Hosts, Local, Plan, ResultFolder, Selection, Slurm, Template, Ticket, Work,
};
use stallscope::foreign;

use super::come_back;
use crate::commands::words::rough;
use crate::context::{Context, Outcome};
use crate::{output, terminal};

const EXAMPLES: &str = "\
Examples:
  An array of Slurm jobs, at most 20 at once, on one kind of node
    stallscope submit plan.jsonl --out results --slurm='--constraint=zen4' --at-once 20
  Each kind of node its share: profiles of two kinds, by `probe --plan`
    stallscope submit probes.jsonl --out profiles --slurm=-Czen4 --slurm=-Cicelake
  A list of machines, to which plan, programs and inputs are brought
    stallscope submit plan.jsonl --out results --hosts hosts.txt --stage /tmp/stage
  Anything else: a command for each task
    stallscope submit plan.jsonl --out results --template 'bsub -W {limit_s} {worker}'
  Then
    stallscope collect --follow results

In the template {worker} is the worker's whole command line, {plan}, {blocks} and {out}
its parts, {task} a number and {limit_s} the most seconds it may take. The same command
once more hands out what has not come back.

Exit codes: 0 handed out, 2 bad usage, or the engine refuses.";

/// A list of machines has a megabyte at the most.
const MOST_LIST_BYTES: u64 = 1 << 20;

/// Arguments of `submit`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SubmitArgs {
    /// A plan of `sweep`, `compare` or `probe --plan`
    #[arg(value_name = "PLAN")]
    plan: PathBuf,
    /// Where results go: a folder that all machines see, or into which they are brought
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// As an array of Slurm jobs, with more arguments for sbatch; given again, as another array with a share of the
    /// blocks [default: run it here]
    #[arg(long, value_name = "ARGS", num_args = 0..=1, default_missing_value = "", require_equals = true, group = "engine")]
    slurm: Vec<String>,
    /// On the machines that FILE lists, one on each line, by ssh
    #[arg(long, value_name = "FILE", group = "engine")]
    hosts: Option<PathBuf>,
    /// The ssh to call, with its arguments
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "ssh -o BatchMode=yes",
        requires = "hosts"
    )]
    ssh: String,
    /// Bring files to the machines below DIR, by rsync, and results back
    #[arg(long, value_name = "DIR", requires = "hosts")]
    stage: Option<PathBuf>,
    /// By a shell's command for each task
    #[arg(long, value_name = "TEMPLATE", group = "engine")]
    template: Option<String>,
    /// Tasks or machines at work at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    at_once: Option<u32>,
}

impl SubmitArgs {
    fn engine(&self) -> anyhow::Result<EngineKind> {
        let words = |text: &str| {
            shlex::split(text).with_context(|| format!("`{text}` has a quote that is not closed"))
        };
        if !self.slurm.is_empty() {
            let args = self.slurm.iter().map(|text| words(text)).collect::<Result<_, _>>()?;
            return Ok(EngineKind::Slurm(Slurm { args }));
        }
        if let Some(template) = &self.template {
            return Ok(EngineKind::Template(Template { template: template.clone() }));
        }
        let Some(list) = &self.hosts else { return Ok(EngineKind::Local(Local {})) };
        let text = foreign::read_text(list, MOST_LIST_BYTES)
            .with_context(|| format!("cannot read {}", list.display()))?;
        let hosts = Hosts::listed(&text);
        if hosts.is_empty() {
            bail!("{} lists no machine", list.display());
        }
        Ok(EngineKind::Hosts(Hosts { hosts, ssh: words(&self.ssh)?, stage: self.stage.clone() }))
    }
}

/// Runs the command.
pub fn run(args: &SubmitArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    let (plan, out) = (std::path::absolute(&args.plan)?, std::path::absolute(&args.out)?);
    let (job, numbers) = Plan::at(&plan).listed()?;
    let folder = ResultFolder::at(&out);
    folder.prepare(&job)?;
    let first = job.head();
    if let Some(ticket) = folder.ticket()? {
        let alive = ticket.kind.engine().poll(&ticket.jobs, &out)?;
        if alive.is_some_and(|alive| !alive.is_over()) {
            bail!("blocks of {} are at work already; {}", out.display(), come_back(&args.out));
        }
    }
    let is_missing = |line: &usize| !folder.has(first.plan, numbers[*line]);
    let blocks: Vec<u32> = (0..numbers.len()).filter(is_missing).map(|n| n as u32).collect();
    let count = blocks.len();
    let kind = args.engine()?;
    let work = Work {
        worker: std::env::current_exe().context("cannot tell where this program is")?,
        plan,
        out: out.clone(),
        folder: first.folder.into(),
        files: first.files.iter().map(|file| file.path.clone()).collect(),
        blocks: Selection::of(blocks),
        cost_ns: first.cost_ns,
        at_once: args.at_once,
    };
    let jobs = if count == 0 { Vec::new() } else { kind.engine().submit(&work)? };
    let ticket = Ticket { kind, jobs };
    folder.keep_ticket(&ticket)?;
    if context.shows_screen() {
        let there = numbers.len() - count;
        let each = rough(first.cost_ns);
        let mut text =
            format!("{count} blocks handed out, about {each} each; {there} were there already\n");
        if !ticket.jobs.is_empty() {
            text += &terminal::wrap("jobs: ", &ticket.jobs.join(" "));
        }
        text += &terminal::wrap("", &come_back(&args.out));
        terminal::print(&text)?;
    }
    output::result(context, "submitted", &ticket)?;
    Ok(Outcome::Fine)
}
