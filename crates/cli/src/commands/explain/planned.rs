//! `explain --plan`: a block for each machine that is to explain, one of them explained here, and what all of them say.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use stallscope::compare::fleet::{ExplainBlock, Extent, plan_explanations};
use stallscope::compare::sweep::Site;
use stallscope::compare::{CommandLine, ProcessRunner, Settings};
use stallscope::explain::{Explanation, FoundThere, ManyExplained};

use super::{compare, explained};
use crate::commands::fleet;
use crate::commands::sweep::screen::{MOST_LISTED, across};
use crate::commands::words::rough;
use crate::context::{Context, Outcome};
use crate::output;
use crate::terminal::{STRONG, paint, wrap};

#[derive(Debug, Args)]
#[command(next_help_heading = "Other machines")]
pub struct PlanArgs {
    /// Run each command once and write a block for each machine that is to explain instead (`submit`, `worker`); `collect` puts
    /// what they say side by side
    #[arg(long, value_name = "FILE", conflicts_with = "markdown")]
    pub plan: Option<PathBuf>,
    /// How many machines are to explain; each draws random places of its own
    #[arg(long, value_name = "N", default_value_t = 1, requires = "plan", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    machines: u32,
}

/// Writes the blocks.
pub fn run(
    args: &PlanArgs,
    path: &Path,
    (lines, settings, extent): (Vec<CommandLine>, &Settings, Extent),
    context: &Context,
) -> anyhow::Result<Outcome> {
    output::check_target(path).context("--plan")?;
    let mut runner = ProcessRunner::new(lines, settings.limits(context.interrupt()))?;
    let bar = context.progress(2, "warming up");
    let mut show = |progress| compare::show(&bar, progress, 2);
    let planned = plan_explanations(&mut runner, settings, extent, args.machines, &mut show);
    bar.finish_and_clear();
    let cleaned = runner.clean_up();
    let first = planned?;
    cleaned?;
    let (blocks, each) = (first.blocks, rough(first.cost_ns));
    let words = format!("{blocks} blocks, an explanation each, at the most about {each}");
    fleet::write(path, first.all(), ("explain-block", &first, &first.plan), &words, context)
}

/// Explains a block here, in the folder where it was planned.
pub fn work(block: &ExplainBlock, site: &Site, context: &Context) -> anyhow::Result<Explanation> {
    let (lines, settings) = block.here(site)?;
    Ok(explained(lines, settings, block.extent, context)?.0)
}

/// What all machines say, as text.
pub fn screen(many: &ManyExplained) -> String {
    let (of, machines) = (many.found.len(), many.machines.len());
    let said =
        many.answers.iter().map(|count| format!("{} in {}", count.answer, count.explanations));
    let said = said.collect::<Vec<String>>().join(", ");
    let machines =
        if machines == 1 { "one machine".into() } else { format!("{machines} machines") };
    let word =
        if many.answers.len() == 1 { "the same everywhere" } else { "not the same everywhere" };
    let word = if of == 1 { String::new() } else { format!("{word}: ") };
    let mut out =
        wrap("", &format!("{}{said} of {of} explanations, {machines}", paint(STRONG, word)));
    let name = |machine: u32| many.machines.get(machine as usize).map_or("", |host| &host.name);
    out += &(wrap("", "AFTER against BEFORE:") + &across(&name, &many.difference));
    if let Some(code) = &many.code {
        out += &(wrap("", "over random places of the hot functions:") + &across(&name, code));
    }
    for one in many.found.iter().take(MOST_LISTED) {
        out += &wrap(&format!("block {}, {}: ", one.block, name(one.machine)), &in_short(one));
    }
    out
}

fn in_short(one: &FoundThere) -> String {
    one.summary.clone().unwrap_or_else(|| format!("{}: {}", one.decision, one.answer))
}
