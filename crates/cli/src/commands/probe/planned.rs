//! `probe --plan`: a block for each machine that is to be asked, and one of them, asked here.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use stallscope::compare::fleet::ProbeBlock;
use stallscope::machine::{Design, Machine};
use stallscope::probes::{self, Probe};

use super::{ask, choose};
use crate::commands::fleet;
use crate::commands::words::rough;
use crate::context::{Context, Outcome};
use crate::output;

/// What a probe takes at the most beside other work, in nanoseconds; alone none takes half of it.
const PROBE_NS: u64 = 20_000_000_000;

#[derive(Debug, Args)]
#[command(next_help_heading = "Other machines")]
pub struct PlanArgs {
    /// Write a block for each machine that is to be probed instead (`submit`, `worker`); `collect` makes a survey of them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["raw", "peer"])]
    pub plan: Option<PathBuf>,
    /// How many machines are to be probed: one of each kind of node
    #[arg(long, value_name = "N", default_value_t = 1, requires = "plan", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    machines: u32,
}

/// Writes the blocks.
pub fn run(
    args: &PlanArgs,
    path: &Path,
    chosen: &[&'static Probe],
    context: &Context,
) -> anyhow::Result<Outcome> {
    output::check_target(path).context("--plan")?;
    // A fixed seed unless one is given: the same command is the same plan.
    let seed = context.given_seed().unwrap_or(1);
    let probes: Vec<String> = chosen.iter().map(|probe| probe.id.to_owned()).collect();
    let first = ProbeBlock {
        plan: ProbeBlock::identity(&probes, seed),
        block: 0,
        blocks: args.machines,
        cost_ns: PROBE_NS * probes.len() as u64,
        folder: std::env::current_dir()?,
        probes,
        seed,
    };
    let blocks = (0..first.blocks).map(|block| ProbeBlock { block, ..first.clone() });
    let (machines, probes, most) = (first.blocks, first.probes.join(", "), rough(first.cost_ns));
    let words = format!("{machines} machines, a block each: {probes}, at the most {most}");
    fleet::write(path, blocks, ("probe-block", &first, &first.plan), &words, context)
}

/// Asks this machine; its profile. That of the cache stays as it is.
pub fn work(block: &ProbeBlock, context: &Context) -> anyhow::Result<Design> {
    probes::check_architecture(std::env::consts::ARCH)?;
    let (reports, _) = ask(&choose(&block.probes)?, false, block.seed, context, false)?;
    let mut profile = Design::of_machine(&Machine::detect());
    probes::apply(&reports, &mut profile);
    Ok(profile)
}
