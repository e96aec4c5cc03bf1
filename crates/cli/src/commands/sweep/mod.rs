//! `stallscope sweep`: what was typed, the builds and runs, the answer as an exit code.

pub mod screen;

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, builder::PossibleValuesParser};
use stallscope::compare::Decision;
use stallscope::compare::sweep::{Axis, Folders, Knob, Stage, SweepSettings, plan_blocks, sweep};

use super::cpu_args::CpuArgs;
use super::gate::Gate;
use super::metric::MetricArgs;
use super::stop_args::StopArgs;
use super::{plan, words};
use crate::context::{Context, Outcome};
use crate::{output, profile, terminal};

const EXAMPLES: &str = "\
Examples:
  Two compilers, three alignments, 12 random placements of each: is it the code?
    stallscope sweep -L cxx g++-12,clang++-19 -L align 16,32,64 --layouts 12 \\
      --build '{cxx} -O2 -falign-functions={align} {layout} -o {out} x.cpp' --run '{out} input'
  Two commits of a Go program, checked out side by side
    stallscope sweep -L tree before,after --layouts 12 \\
      --build 'cd {tree} && go build -o {out} .' --run '{out} -bench'
  How far do placements of one program lie apart?
    stallscope sweep --layouts 20 --build 'make LDFLAGS={layout} OUT={out}' --run '{out}'

  The same once more, for a minute: runs of the same builds add up
    stallscope sweep -L tree before,after --layouts 12 --until verdict --for 60s \\
      --build 'cd {tree} && go build -o {out} .' --run '{out} -bench'
  On a cluster: build here, run 64 rounds there, and join them
    stallscope sweep -L tree before,after --layouts 12 --runs 64 --plan plan.jsonl \\
      --build 'cd {tree} && go build -o {out} .' --run '{out} -bench'
    stallscope submit plan.jsonl --out results --slurm
    stallscope collect --follow results

In templates {name} is the value of an axis, {out} the file to build, {layout} the
linker's flags for a placement, {seed} its number. Without {layout} the flags go to
GOFLAGS, RUSTFLAGS or CFLAGS, CXXFLAGS and LDFLAGS. Write {{ for a brace.

Exit codes: 0 swept, 1 slower (--fail-if), 2 bad usage or nothing that runs,
3 inconclusive (--fail-if), 130 interrupted (143 by SIGTERM; the same command
goes on from there).";

/// Arguments of `sweep`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SweepArgs {
    /// An axis: its name and its values, separated by commas; the first axis is the question, its
    /// first value the base, further axes are matched conditions
    #[arg(short = 'L', long = "axis", value_names = ["NAME", "VALUES"], num_args = 2, allow_hyphen_values = true, action = clap::ArgAction::Append)]
    axes: Vec<String>,
    /// How a variant is built, by `sh`; must write the program to {out}
    #[arg(long, value_name = "TEMPLATE")]
    build: Option<String>,
    /// How it is run, without a shell
    #[arg(long, value_name = "TEMPLATE")]
    run: String,
    /// Random placements of each variant, besides the build as it comes
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=200))]
    layouts: u32,
    /// What makes placements [default: guessed from the build template]
    #[arg(long, value_parser = PossibleValuesParser::new(Knob::ALL.map(|k| k.0)))]
    knob: Option<String>,
    /// Also vary the alignment of functions, as a matched condition (like `-L align LIST`)
    #[arg(long, value_name = "LIST")]
    align: Option<String>,
    /// Runs of every build [default: from a pilot of 3, by what runs and builds cost]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    runs: Option<u32>,
    #[command(flatten)]
    stop: StopArgs,
    #[command(flatten)]
    metric: MetricArgs,
    /// The smallest effect of interest: smaller ones count as equal
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = words::share)]
    effect: f64,
    /// What the builds are made of: part of the key of the cache [default: this folder]
    #[arg(long, value_name = "PATH")]
    source: Vec<PathBuf>,
    /// Give up when one run takes longer than this (10s, 500ms, 2m)
    #[arg(long, value_name = "DURATION", value_parser = words::duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    cpus: CpuArgs,
    /// Average in what ran while the machine was disturbed, instead of repeating it
    #[arg(long)]
    keep_disturbed: bool,
    /// Forget what earlier sweeps of the same builds have run, instead of adding to it
    #[arg(long)]
    fresh: bool,
    /// Build, try each build once, and write the runs as blocks for other machines instead (`submit`, `worker`)
    #[arg(long, value_name = "FILE", requires = "runs", conflicts_with_all = ["until", "budget", "fresh", "fail_if"])]
    plan: Option<PathBuf>,
    /// Rounds of a block, which stay on one machine
    #[arg(long, value_name = "N", default_value_t = 1, requires = "plan", value_parser = clap::value_parser!(u32).range(1..=1000))]
    per_block: u32,
    /// Exit with 1 when a variant is slower by so much (slower:2%), with 3 when that is open
    #[arg(long, value_name = "GATE", value_parser = Gate::parse)]
    fail_if: Option<Gate>,
}

impl SweepArgs {
    fn settings(&self, seed: u64) -> anyhow::Result<SweepSettings> {
        let mut axes = self
            .axes
            .chunks_exact(2)
            .map(|two| Axis::parse(&two[0], &two[1]))
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(list) = &self.align {
            axes.push(Axis::of_alignments(list)?);
        }
        let named = |name: &String| Knob::ALL.iter().find(|(n, _)| n == name).map(|k| k.1);
        let knob = self.knob.as_ref().and_then(named);
        Ok(SweepSettings {
            axes,
            layouts: self.layouts,
            knob: knob.unwrap_or_else(|| Knob::detect(self.build.as_deref())),
            build: self.build.clone(),
            run: self.run.clone(),
            rounds: self.runs,
            effect: self.fail_if.map_or(self.effect, |gate| gate.limit),
            seed,
            timeout_ms: self.timeout.map(|t| t.as_millis().max(1) as u64),
            cpus: self.cpus.cpus(),
            guard: !self.keep_disturbed,
            measure: self.metric.measure()?,
            operations_in_ms: self.metric.operations_in_ms(),
            until: self.stop.until(),
            budget_ms: self.stop.budget_ms(),
        })
    }
}

pub fn run(args: &SweepArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    // A fixed seed unless one is given: the same command after Ctrl-C is the same sweep.
    let settings = args.settings(context.given_seed().unwrap_or(1))?;
    let cache = profile::cache_root()
        .context("there is no cache folder: set HOME or XDG_CACHE_HOME to an absolute path")?;
    let sources =
        if args.source.is_empty() { vec![PathBuf::from(".")] } else { args.source.clone() };
    let sources = if settings.build.is_none() { Vec::new() } else { sources };
    let folders = Folders { cache, sources, fresh: args.fresh };
    let bar = Mutex::new(context.progress(1, "building"));
    let says = context.shows_screen();
    let progress = |stage| show(&bar, &stage, says);
    if let Some(path) = &args.plan {
        output::check_target(path).context("--plan")?;
        let planned =
            plan_blocks(&settings, &folders, args.per_block, context.interrupt(), &progress);
        if let Ok(bar) = bar.lock() {
            bar.finish_and_clear();
        }
        return super::fleet::written(path, &planned?, "builds", context);
    }
    let report = sweep(&settings, &folders, context.interrupt(), &progress);
    if let Ok(bar) = bar.lock() {
        bar.finish_and_clear();
    }
    let report = report?;
    output::result(context, "sweep", &report)?;
    if context.shows_screen() {
        terminal::print(&screen::screen(&report))?;
    }
    let decisions: Vec<Decision> = report.comparisons.iter().map(|c| c.decision).collect();
    Ok(args.fail_if.map_or(Outcome::Fine, |gate| gate.outcome(&decisions)))
}

fn show(bar: &Mutex<indicatif::ProgressBar>, stage: &Stage, says: bool) {
    let Ok(bar) = bar.lock() else { return };
    match stage {
        Stage::Building { done, of } => {
            bar.set_length(*of);
            bar.set_position(*done);
        }
        Stage::Resumed { runs } => {
            bar.println(format!("going on after {runs} runs of earlier sweeps"))
        }
        Stage::Known(_) | Stage::Piloted(_) if !says => {}
        Stage::Known(note) => bar.suspend(|| terminal::note(&note.to_string())),
        Stage::Piloted(plan) => {
            if let Some(text) = plan::of_layouts(plan) {
                bar.suspend(|| terminal::note(&text));
            }
        }
        Stage::Running { done, of, left_ns } => {
            bar.set_message(format!("running, {} left", words::rough(*left_ns)));
            bar.set_length(*of);
            bar.set_position(*done);
        }
    }
}
