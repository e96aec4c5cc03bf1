//! `stallscope explain`: the main job. What was typed, the work, one screen.

pub mod planned;
mod proof;
mod screen;

use std::ffi::{OsStr, OsString};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use stallscope::code::SourceText;
use stallscope::compare::fleet::Extent;
use stallscope::compare::{CommandLine, Measure, Settings};
use stallscope::explain::{Explanation, ProcessBench, Stage, explain};
use stallscope::report;
use stallscope::run::sample::SampleSettings;

pub use screen::screen;

use super::compare;
use super::run_args::RunArgs;
use super::words;
use crate::context::{Context, Outcome};
use crate::{output, profile, terminal};

/// What `--quick` takes.
const QUICK: Duration = Duration::from_secs(20);
/// The pairs that `--thorough` makes.
const THOROUGH_PAIRS: u32 = 60;
/// The places at which `--placements` runs hot functions.
const PLACES: u32 = 16;

const EXAMPLES: &str = "\
Examples:
  Why is the new build slower?
    stallscope explain ./before ./after -- --bench input.bin
  Other arguments or variables for each
    stallscope explain -a './program sorted.bin' -b './program shuffled.bin'
    stallscope explain --env-b MALLOC_ARENA_MAX=1 ./program ./program
  Scripts, and programs that read their standard input
    stallscope explain ./before.py ./after.py < input.json
  A first answer in 20 seconds
    stallscope explain --quick ./before ./after
  Keep everything that was measured
    stallscope explain --json why.json ./before ./after -- input.bin
  A comment for a pull request
    stallscope explain --markdown ./before ./after -- input.bin > comment.md
  The same on eight machines, each with random places of its own (submit, worker, collect)
    stallscope explain --placements --plan plan.jsonl --machines 8 ./before ./after -- input.bin
  A small difference on a noisy machine: as many pairs as it needs, for 5 minutes at the most
    stallscope explain --until verdict --for 5m --effect 0.5% ./before ./after

Exit codes: 0 done, 2 bad usage or a program that cannot be read or run,
130 interrupted (143 by SIGTERM).";

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TimeArg {
    /// Wall time, or processor time where the runs waited for the processor
    Auto,
    /// Wall time
    Wall,
    /// Processor time
    Cpu,
}

impl From<TimeArg> for Measure {
    fn from(time: TimeArg) -> Self {
        match time {
            TimeArg::Auto => Self::Auto,
            TimeArg::Wall => Self::Wall,
            TimeArg::Cpu => Self::Cpu,
        }
    }
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    /// The program, script or command line as it was
    #[arg(value_name = "BEFORE", required_unless_present = "a", conflicts_with = "a")]
    before: Option<OsString>,
    /// What it is now, which is called slower or faster
    #[arg(value_name = "AFTER", required_unless_present = "a", conflicts_with = "a")]
    after: Option<OsString>,
    /// Never run a program with some of its instructions replaced, to see what the time is without them
    #[arg(long)]
    no_cure: bool,
    /// Take about this long: a third of it for the comparison; what does not fit in is done less often, or
    /// left out and said
    #[arg(long = "budget", value_name = "DURATION", value_parser = words::duration)]
    within: Option<Duration>,
    /// The same as --budget 20s
    #[arg(long, conflicts_with = "within")]
    quick: bool,
    /// The same as --pairs 60 --placements: three times the pairs, and is it the code, or where it lies?
    #[arg(long, conflicts_with_all = ["within", "quick"])]
    thorough: bool,
    /// Run the hot functions of both builds at N random places as well: is it the code, or where it lies?
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        require_equals = true,
        value_parser = clap::value_parser!(u32).range(3..=64),
        conflicts_with = "no_cure"
    )]
    placements: Option<Option<u32>>,
    /// What the verdict is about
    #[arg(long, value_enum, value_name = "METRIC", default_value = "auto")]
    metric: TimeArg,
    /// Print Markdown for a pull request instead of the screen
    #[arg(long)]
    markdown: bool,
    /// The same on other machines.
    #[command(flatten)]
    plan: planned::PlanArgs,
    /// How they are run.
    #[command(flatten)]
    run: RunArgs,
}

/// Runs the command.
pub fn run(args: &ExplainArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    let typed = match (&args.before, &args.after) {
        (Some(before), Some(after)) => [before.clone(), after.clone()],
        _ => args.run.arms.named().unwrap_or_default(),
    };
    let lines = args.run.arms.lines(&typed, &OsStr::to_owned)?;
    // What executes a script is what there is to look at.
    let lines = lines.into_iter().map(CommandLine::interpreted).collect();
    let within = args.quick.then_some(QUICK).or(args.within);
    let within_ms = within.map(|budget| budget.as_millis().max(1) as u64);
    // A plan has a fixed seed unless one is given: the same command is the same plan.
    let seed = match args.plan.plan {
        Some(_) => context.given_seed().unwrap_or(1),
        None => context.seed(),
    };
    let mut settings = args.run.settings(seed)?;
    settings.budget_ms = settings.budget_ms.or(within_ms.map(|ms| (ms / 3).max(1)));
    settings.measure = args.metric.into();
    if args.thorough && args.run.leaves_pairs_open() {
        settings.pairs = THOROUGH_PAIRS;
    }
    let of_thorough = (args.thorough && !args.no_cure).then_some(None);
    let placements = args.placements.or(of_thorough).map_or(0, |places| places.unwrap_or(PLACES));
    let extent = Extent { no_cure: args.no_cure, within_ms, placements };
    if let Some(path) = &args.plan.plan {
        return planned::run(&args.plan, path, (lines, &settings, extent), context);
    }
    let (explanation, mut text) = explained(lines, settings, extent, context)?;
    output::result(context, "explanation", &explanation)?;
    if context.shows_screen() {
        terminal::print(&match args.markdown {
            true => report::markdown::explanation(&explanation),
            false => screen(&explanation, &mut text),
        })?;
    }
    Ok(Outcome::Fine)
}

/// So many times the time given is worth a word.
const LATE: f64 = 1.25;

/// Explains two command lines, and says by which machine profile.
///
/// # Errors
/// When they cannot be read or run, or that was interrupted.
pub fn explained(
    lines: Vec<CommandLine>,
    settings: Settings,
    extent: Extent,
    context: &Context,
) -> anyhow::Result<(Explanation, SourceText)> {
    let begin = Instant::now();
    let chosen = profile::load(context)?;
    let bar = context.progress(2 * u64::from(settings.pairs), "comparing");
    let sampling = SampleSettings { stacks: true, ..SampleSettings::default() };
    let mut bench = ProcessBench::new(lines, settings, sampling, context.interrupt())?;
    bench = bench.at_places(extent.placements);
    if extent.no_cure {
        bench = bench.without_cures();
    }
    let within = extent.within_ms.map(Duration::from_millis);
    if let Some(budget) = within {
        bench = bench.within(budget);
    }
    // A design or a profile that the user names is what the answer shall be about.
    if !chosen.named && context.profile().is_none() {
        bench = bench.with_probes();
    }
    let programs = bench.programs();
    let mut text = context.source_text(programs.iter().map(|p| p.as_path()))?;
    let result =
        explain(programs, &mut bench, &chosen.design, &mut text, &mut |stage| show(&bar, stage));
    bar.finish_and_clear();
    profile::keep(context, bench.probed());
    let cleaned = bench.clean_up();
    let mut explanation = result?;
    cleaned?;
    let took = begin.elapsed();
    if let Some(budget) = within.filter(|budget| took > budget.mul_f64(LATE)) {
        explanation.unexplained.push(format!(
            "it took {:.0} s, not {:.0} s (--budget): what had begun was not cut off",
            took.as_secs_f64(),
            budget.as_secs_f64()
        ));
    }
    chosen.announce(context)?;
    Ok((explanation, text))
}

pub fn show(bar: &ProgressBar, stage: Stage) {
    let (message, done, of) = match stage {
        Stage::Comparing(progress) => return compare::show(bar, progress, 2),
        Stage::Sampling { done, of } => ("sampling", done, of),
        Stage::Counting { done, of } => ("counting", done, of),
        Stage::Removing { done, of } => ("running without the mechanism", done, of),
    };
    bar.set_message(message);
    bar.set_length(u64::from(of));
    bar.set_position(u64::from(done));
}
