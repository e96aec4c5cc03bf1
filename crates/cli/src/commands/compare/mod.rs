//! `stallscope compare`: what was typed, the runs or the files, the verdict as an exit code.

mod judged;
pub mod screen;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use stallscope::compare::results::looks_like_results;
use stallscope::compare::{
    Comparison, Decision, MAX_PAIRS, ProcessRunner, Progress, Settings, Until, Warning, compare,
    same_code,
};
use stallscope::report;
use stallscope::stats::families::Adjustment;

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
  Two command lines (split into words as a shell would, but no shell runs them)
    stallscope compare 'gzip -9 -c log.txt' 'zstd -9 -c log.txt'
  Programs that read their standard input
    stallscope compare 'wc -l' 'wc -c' < log.txt
  Stop as soon as it is known, looking after every pair without cheating
    stallscope compare --until verdict --for 60s ./before ./after
  A gate: exit code 1 when slower by 2 % or more, 3 when that cannot be decided
    stallscope compare --fail-if slower:2% --for 60s ./before ./after
  How noisy is this here? (kept, and told with later comparisons)
    stallscope compare --aa ./before
  Results of other tools: go test -bench, google-benchmark, hyperfine, criterion,
  perf stat, CSV, a column of numbers
    stallscope compare old.txt new.txt

Two files that are not executable (or two criterion folders) are results; anything
else is run. --kind says it when that guess is wrong.

Exit codes: 0 compared (with --fail-if: not slower), 1 slower (--fail-if), 2 bad
usage or input, or a program that does not run, 3 inconclusive (--fail-if), 130
interrupted.";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Programs or command lines, which are run
    Programs,
    /// Files or folders of results, which are read
    Results,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum UntilArg {
    /// Any verdict but "inconclusive"
    Verdict,
    /// "equivalent", or that it is not
    Equivalent,
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
    /// The first program, command line or file of results
    #[arg(value_name = "BEFORE")]
    before: OsString,
    /// The second one, which is called slower, faster or equivalent
    #[arg(value_name = "AFTER", required_unless_present = "aa")]
    after: Option<OsString>,
    #[command(flatten)]
    run: RunArgs,
    /// Compare BEFORE with itself and keep what nothing looks like here
    #[arg(long, conflicts_with = "after")]
    aa: bool,
    /// What BEFORE and AFTER are [default: results, if both are files that are not executable]
    #[arg(long, value_enum, value_name = "KIND")]
    kind: Option<Kind>,
    /// Stop when this is known (a confidence sequence, from 10 pairs on; --pairs is then the most)
    #[arg(long, value_enum, value_name = "WHAT")]
    until: Option<UntilArg>,
    /// Run for about this long instead of a number of pairs; with --until at most for so long
    #[arg(long = "for", value_name = "DURATION", value_parser = words::duration)]
    budget: Option<Duration>,
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
}

pub fn run(args: &CompareArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    let after = args.after.as_ref().unwrap_or(&args.before);
    let results = |p: &OsString| looks_like_results(Path::new(p));
    match args.kind {
        Some(Kind::Results) => {}
        None if !args.aa && results(&args.before) && results(after) => {}
        _ => return run_programs(args, context, after),
    }
    judged::run(args, context, [Path::new(&args.before), Path::new(after)])
}

impl CompareArgs {
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
        settings.until = self.until.map(|until| match until {
            UntilArg::Verdict => Until::Verdict,
            UntilArg::Equivalent => Until::Equivalent,
        });
        let ms = |d: Duration| d.as_millis().max(1) as u64;
        settings.budget_ms = self.budget.map(ms);
        settings.operations_in_ms = self.metric.operations_in_ms();
        settings.guard = self.repeat_disturbed;
        if self.until.is_some() || self.budget.is_some() {
            settings.pairs = self.run.pairs().unwrap_or(MAX_PAIRS);
        }
        Ok(settings)
    }
}

fn run_programs(
    args: &CompareArgs,
    context: &Context,
    after: &OsString,
) -> anyhow::Result<Outcome> {
    let lines = [args.run.line(&args.before)?, args.run.line(after)?];
    let settings = args.settings(context.seed())?;
    let limits = settings.limits(context.interrupt());
    let mut runner = ProcessRunner::new(lines, limits)?.measuring(&settings)?;
    let same = (!args.aa).then(|| same_code_of(&runner)).flatten();
    if let Some(same) = same.filter(|_| context.shows_screen()) {
        terminal::note(&Warning::IdenticalCode(same).to_string());
    }
    let bar = context.progress(2 * u64::from(settings.pairs), "warming up");
    let open_end = args.until.is_some() || args.budget.is_some();
    let result = compare(&mut runner, &settings, &mut |p| {
        if let Progress::Piloted(plan) = p
            && let Some(text) = plan::of_pairs(&plan, open_end).filter(|_| context.shows_screen())
        {
            bar.suspend(|| terminal::note(&text));
        }
        show(&bar, p);
    });
    bar.finish_and_clear();
    let mut comparison = result?;
    let warnings = &mut comparison.analysis.warnings;
    warnings.extend(same.map(Warning::IdenticalCode));
    warnings.extend(runner.disturbances().map(Warning::Disturbed));
    let differs =
        matches!(comparison.analysis.verdict.decision, Decision::Slower | Decision::Faster);
    if differs && same.is_none() && !args.aa {
        let hot = runner.same_hot_code();
        comparison.analysis.warnings.extend(hot.map(Warning::IdenticalHotCode));
    }
    output::result(context, "comparison", &comparison)?;
    if let Some(path) = &args.benchfmt {
        write_text(path, &report::benchfmt(&comparison))?;
    }
    say(args, context, &comparison)?;
    let decision = comparison.analysis.verdict.decision;
    Ok(args.gate().map_or(Outcome::Fine, |gate| gate.outcome(&[decision])))
}

fn same_code_of(runner: &ProcessRunner<'_>) -> Option<stallscope::compare::SameCode> {
    use stallscope::compare::Runner as _;
    let [a, b] = runner.arms().map(|arm| PathBuf::from(arm.program));
    // One program with two sets of arguments says nothing about builds.
    (a != b).then(|| same_code(&a, &b)).flatten()
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
    terminal::print(&screen::screen(comparison))?;
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

pub fn show(bar: &ProgressBar, progress: Progress) {
    match progress {
        Progress::WarmingUp { .. } => bar.tick(),
        Progress::Planned { runs, expected_ns } => {
            bar.set_message(format!("{} pairs, about {}", runs / 2, words::rough(expected_ns)));
            bar.reset_eta();
        }
        Progress::Piloted(_) => {}
        Progress::Ran { done } => bar.set_position(done),
    }
}
