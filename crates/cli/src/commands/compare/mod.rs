//! `stallscope compare`: what was typed, the runs or the files, the verdict as an exit code.

mod export;
mod judged;
mod parameters;
mod planned;
mod ranked;
mod remember;
pub mod screen;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use stallscope::compare::results::looks_like_results;
use stallscope::compare::{
    Arm, CommandLine, Comparison, Decision, ProcessRunner, Progress, SameCode, SameHotCode,
    Settings, Warning, compare, same_code,
};
use stallscope::foreign::plain;
use stallscope::report;
use stallscope::report::export::Exported;
use stallscope::run::child::resolve_program;
use stallscope::stats::families::Adjustment;

use export::ExportArgs;
use parameters::ParameterArgs;
use planned::PlanArgs;
use remember::HistoryArgs;

use super::gate::Gate;
use super::metric::MetricArgs;
use super::plan;
use super::run_args::RunArgs;
use super::words;
use crate::context::{Context, Outcome};
use crate::noise::NoiseFloor;
use crate::{output, terminal};

const EXAMPLES: &str = "\
Examples:
  Two builds with the same arguments
    stallscope compare ./before ./after -- input.bin
  Two command lines; what needs a shell is run by one, and its start taken off
    stallscope compare 'gzip -9 -c log.txt' 'cat log.txt | zstd -9'
  The same command with other variables, prepared before each run
    stallscope compare -p 'rm -rf out' --env-a THREADS=1 --env-b THREADS=2 ./run ./run
  One alone is timed, three and more are ranked
    stallscope compare -L level 1,6,9 'gzip -{level} -c log.txt'
  Programs that read their standard input
    stallscope compare 'wc -l' 'wc -c' < log.txt
  Stop as soon as it is known, looking after every pair without cheating
    stallscope compare --until verdict --for 60s ./before ./after
  A gate: exit code 1 when slower by 2 % or more, 3 when that cannot be decided
    stallscope compare --fail-if slower:2% --for 60s ./before ./after
  How noisy is this here? (kept, and told with later comparisons)
    stallscope compare --aa ./before
  One verdict for each commit, against a reference that stays (see `stallscope history`)
    stallscope compare --history speed.jsonl --label 3f2a1c ./reference ./app
  On a cluster: 200 pairs in blocks, each on one machine, and joined
    stallscope compare --pairs 200 --plan plan.jsonl ./before ./after -- input.bin
    stallscope submit plan.jsonl --out results --slurm
    stallscope collect --follow results
  Results of other tools: go test -bench, google-benchmark, hyperfine, criterion, JMH,
  pytest-benchmark, pyperf, BenchmarkDotNet, perf stat, CSV, a column of numbers
    stallscope compare old.txt new.txt
  Both commands of one file of hyperfine
    stallscope compare both.json

Two files that are not executable (or two criterion folders) are results; anything
else is run. --kind says it when that guess is wrong.

Exit codes: 0 compared (with --fail-if: not slower), 1 slower (--fail-if), 2 bad
usage or input, or a program that does not run, 3 inconclusive (--fail-if), 130
interrupted (143 by SIGTERM).";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Programs or command lines, which are run
    Programs,
    /// Files or folders of results, which are read
    Results,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum AdjustArg {
    /// The chance of any false alarm (Holm)
    Holm,
    /// The share of false alarms among the alarms (Benjamini-Hochberg)
    Bh,
    /// Each benchmark for itself
    None,
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CompareArgs {
    /// The programs, command lines or files of results: of BEFORE and AFTER, AFTER is called slower, faster or
    /// equivalent; one command is timed, three and more are ranked
    #[arg(value_name = "COMMAND", required_unless_present = "a", conflicts_with = "a")]
    commands: Vec<OsString>,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    parameters: ParameterArgs,
    /// Compare the command with itself and keep what nothing looks like here
    #[arg(long, conflicts_with = "a")]
    aa: bool,
    /// What BEFORE and AFTER are [default: results, if both are files that are not executable]
    #[arg(long, value_enum, value_name = "KIND")]
    kind: Option<Kind>,
    #[command(flatten)]
    metric: MetricArgs,
    /// Repeat runs around which the machine was slower than its best, and count them
    #[arg(long)]
    repeat_disturbed: bool,
    /// Exit with 1 when slower by so much (slower:2%), with 3 when inconclusive
    #[arg(long, value_name = "GATE", value_parser = Gate::parse)]
    fail_if: Option<Gate>,
    /// The same with --effect as the limit
    #[arg(long, conflicts_with = "fail_if")]
    gate: bool,
    /// How p-values of many benchmarks in two files are adjusted
    #[arg(long, value_enum, value_name = "HOW", default_value = "holm")]
    adjust: AdjustArg,
    /// Print Markdown for a pull request instead of the screen
    #[arg(long)]
    markdown: bool,
    /// Write every run in Go's benchmark format, for `benchstat -col arm FILE`
    #[arg(long, value_name = "FILE")]
    benchfmt: Option<PathBuf>,
    #[command(flatten)]
    export: ExportArgs,
    #[command(flatten)]
    history: HistoryArgs,
    #[command(flatten)]
    plan: PlanArgs,
}

pub fn run(args: &CompareArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    args.export.check()?;
    let typed = args.run.arms.named().map_or_else(|| args.commands.clone(), Vec::from);
    if let Some(path) = &args.plan.plan {
        return planned::run(args, context, args.lines(&typed)?, path);
    }
    if let ([old, new], false) = (&typed[..], args.aa) {
        let paths = [Path::new(old), Path::new(new)];
        let is_named = args.run.arms.a.is_some();
        match args.kind {
            Some(Kind::Results) => return judged::run(args, context, paths),
            None if !is_named && paths.iter().all(|path| looks_like_results(path)) => {
                return judged::run(args, context, paths);
            }
            None if !is_named => both_are_there(paths)?,
            _ => {}
        }
    } else if let ([one], false, true) = (&typed[..], args.aa, args.kind != Some(Kind::Programs))
        && args.run.arms.a.is_none()
        && (args.kind == Some(Kind::Results) || looks_like_results(Path::new(one)))
    {
        return judged::run_one(args, context, Path::new(one));
    } else if args.kind == Some(Kind::Results) {
        bail!("--kind results goes with two files, OLD and NEW");
    }
    if let (true, [_, _, ..]) = (args.aa, &typed[..]) {
        bail!("--aa compares one command with itself: name one");
    }
    let mut lines = args.lines(&typed)?;
    if let (true, [one]) = (args.aa, &lines[..]) {
        lines.push(one.clone());
    }
    match <[CommandLine; 2]>::try_from(lines) {
        Ok(lines) => run_programs(args, context, lines),
        Err(lines) => ranked::run(args, context, lines),
    }
}

/// Refuses a file of results beside one that is not there: the first is no program, but that is not what is wrong.
fn both_are_there(paths: [&Path; 2]) -> anyhow::Result<()> {
    let is_program = |path: &Path| resolve_program(path.as_os_str()).is_ok();
    let is_file = |path: &Path| looks_like_results(path) && !is_program(path);
    let is_missing = |path: &Path| {
        let is_word = !path.to_string_lossy().contains(' ');
        is_word && !path.exists() && !is_program(path)
    };
    let [a, b] = paths;
    for (file, other) in [(a, b), (b, a)] {
        if is_file(file) && is_missing(other) {
            let [file, other] =
                [file, other].map(|path| plain(&path.to_string_lossy()).into_owned());
            bail!(
                "no such file: {other} (and {file} is no program: two files of results, or two programs)"
            );
        }
    }
    Ok(())
}

impl CompareArgs {
    /// Every command with every combination of parameters.
    fn lines(&self, typed: &[OsString]) -> anyhow::Result<Vec<CommandLine>> {
        let mut lines = Vec::new();
        let combinations = self.parameters.combinations()?;
        let unused: RefCell<BTreeSet<String>> =
            RefCell::new(combinations.iter().flatten().map(|(name, _)| name.clone()).collect());
        for values in combinations {
            let steps = |text: &OsStr| {
                unused.borrow_mut().retain(|name| !parameters::names(text, name));
                parameters::filled(text, &values)
            };
            let typed: Vec<OsString> = typed.iter().map(|text| steps(text)).collect();
            for line in self.run.arms.lines(&typed, &steps)? {
                lines.push(CommandLine { parameters: values.clone(), ..line });
            }
        }
        for name in unused.into_inner() {
            terminal::warning(&format!(
                "no command has {{{name}}} in it: what it stands for makes no difference"
            ));
        }
        if lines.len() > Arm::MOST {
            bail!("{} commands: {} can be ranked", lines.len(), Arm::MOST);
        }
        Ok(lines)
    }

    fn gate(&self) -> Option<Gate> {
        let gate = Gate { word: Decision::Slower, limit: self.run.effect() };
        self.fail_if.or(self.gate.then_some(gate))
    }

    /// The smallest effect of interest: the gate's limit, else `--effect`.
    fn effect(&self) -> f64 {
        self.gate().map_or(self.run.effect(), |gate| gate.limit)
    }

    fn adjustment(&self) -> Adjustment {
        match self.adjust {
            AdjustArg::Holm => Adjustment::Holm,
            AdjustArg::Bh => Adjustment::BenjaminiHochberg,
            AdjustArg::None => Adjustment::None,
        }
    }

    fn settings(&self, seed: u64) -> anyhow::Result<Settings> {
        let mut settings = self.run.settings(seed)?;
        settings.effect = self.effect();
        settings.measure = self.metric.measure()?;
        settings.operations_in_ms = self.metric.operations_in_ms();
        settings.guard = self.repeat_disturbed;
        Ok(settings)
    }
}

fn run_programs(
    args: &CompareArgs,
    context: &Context,
    lines: [CommandLine; 2],
) -> anyhow::Result<Outcome> {
    let settings = args.settings(context.seed())?;
    let history = args.history.open()?;
    let limits = settings.limits(context.interrupt());
    let mut runner = ProcessRunner::new(lines, limits)?.measuring(&settings)?;
    let same = (!args.aa).then(|| same_code_of(&runner)).flatten();
    if let Some(same) = same.filter(|_| context.shows_screen()) {
        terminal::note(&Warning::IdenticalCode(same).to_string());
    }
    let bar = context.progress(2 * u64::from(settings.pairs), "warming up");
    let open_end = args.run.stop.is_open_end();
    let result = compare(&mut runner, &settings, &mut |p| {
        if let Progress::Piloted(plan) = p
            && let Some(text) = plan::of_pairs(&plan, open_end).filter(|_| context.shows_screen())
        {
            bar.suspend(|| terminal::note(&text));
        }
        show(&bar, p, 2);
    });
    bar.finish_and_clear();
    let result = result.map(|comparison| (hot_code(args, &runner, &comparison, same), comparison));
    let cleaned = runner.clean_up();
    let (hot, mut comparison) = result?;
    cleaned?;
    let warnings = &mut comparison.analysis.warnings;
    warnings.extend(same.map(Warning::IdenticalCode));
    warnings.extend(runner.disturbances().map(Warning::Disturbed));
    warnings.extend(hot.map(Warning::IdenticalHotCode));
    args.export.write(&Exported::of_comparison(&comparison))?;
    output::result(context, "comparison", &comparison)?;
    if let Some(path) = &args.benchfmt {
        write_text(path, &report::benchfmt(&comparison))?;
    }
    if let Some(history) = history {
        history.add(&args.history.entry(&comparison, context.redacts_args()))?;
    }
    say(args, context, &comparison)?;
    let decision = comparison.analysis.verdict.decision;
    Ok(args.gate().map_or(Outcome::Fine, |gate| gate.outcome(&[decision])))
}

/// Whether the code that takes the time is the same, where there is a difference to be doubted.
fn hot_code(
    args: &CompareArgs,
    runner: &ProcessRunner<'_>,
    comparison: &Comparison,
    same: Option<SameCode>,
) -> Option<SameHotCode> {
    let word = comparison.analysis.verdict.decision;
    let differs = matches!(word, Decision::Slower | Decision::Faster);
    (differs && same.is_none() && !args.aa).then(|| runner.same_hot_code()).flatten()
}

fn same_code_of(runner: &ProcessRunner<'_>) -> Option<SameCode> {
    let [a, b] = [Arm::A, Arm::B].map(|arm| runner.program(arm));
    // One program with two sets of arguments says nothing about builds.
    (a != b).then(|| same_code(a, b)).flatten()
}

fn say(args: &CompareArgs, context: &Context, comparison: &Comparison) -> anyhow::Result<()> {
    let known = NoiseFloor::recall(&comparison.arms[0]);
    if args.aa {
        NoiseFloor::of(comparison).keep(&comparison.arms[0])?;
    }
    if !context.shows_screen() {
        return Ok(());
    }
    if args.markdown {
        terminal::print(&report::markdown::comparison(comparison))?;
        return Ok(());
    }
    terminal::print(&screen::screen(comparison, context.verbose))?;
    let line = if args.aa {
        let floor = NoiseFloor::of(comparison);
        Some(format!(
            "noise floor of this command here: {:.2} % with {} pairs; kept for later comparisons",
            words::percent(floor.floor_log),
            floor.pairs
        ))
    } else {
        known.map(|floor| {
            format!(
                "noise floor of A here: {:.2} %, from an earlier comparison with itself ({} pairs)",
                words::percent(floor.floor_log),
                floor.pairs
            )
        })
    };
    if let Some(line) = line {
        terminal::print(&terminal::wrap("note: ", &line))?;
    }
    Ok(())
}

fn write_text(path: &Path, text: &str) -> anyhow::Result<()> {
    if path == Path::new("-") {
        terminal::print(text).context("cannot write to standard output")
    } else {
        Ok(report::write_file(path, text)?)
    }
}

pub fn show(bar: &ProgressBar, progress: Progress, commands: u64) {
    match progress {
        Progress::WarmingUp { .. } => bar.tick(),
        Progress::Planned { runs, expected_ns } => {
            let rounds = runs / commands.max(1);
            let name = if commands == 2 { "pairs" } else { "rounds" };
            bar.set_message(format!("{rounds} {name}, about {}", words::rough(expected_ns)));
            bar.reset_eta();
        }
        Progress::Piloted(_) => {}
        Progress::Ran { done } => bar.set_position(done),
    }
}
