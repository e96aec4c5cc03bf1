//! `stallscope bisect`: since which commit of a repository is it slower?

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use stallscope::compare::CommandLine;
use stallscope::compare::bisect::{
    BisectProgress, BisectStep, Bisection, Commit, ProcessBench, Repository, Span, Word, bisect,
    bisect_folder,
};

use super::metric::MetricArgs;
use super::run_args::PairArgs;
use super::words::{self, change};
use crate::context::{Context, Outcome};
use crate::terminal::{CAUTION, FAINT, GOOD, STRONG, paint, wrap};
use crate::{output, terminal};

/// Placement alone moves programs by so much.
const LAYOUT_LOG: f64 = 0.03;

const EXAMPLES: &str = "\
Examples:
  Since which commit between two releases is it slower?
    stallscope bisect --good v1.2 --bad v1.3 --build 'make -s && cp app {out}' -- input.bin
  A Rust program; the builds share one target folder, which is not in the worktree
    stallscope bisect --good v1.2 --bad HEAD -- input.bin \\
      --build 'CARGO_TARGET_DIR=/tmp/t cargo build -r && cp /tmp/t/release/app {out}'
  Only a step of 5 % and more is meant
    stallscope bisect --good v1.2 --bad HEAD --threshold 5% --build 'cc -O2 -o {out} a.c'

Commits are built in a worktree of their own: yours is not touched, and nothing is left.

Exit codes: 0 the first bad commit is found, 2 bad usage or input, or good and bad do
not differ by enough, 3 it is one of several that could not be told apart, 130
interrupted (143 by SIGTERM).";

/// Arguments of `bisect`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BisectArgs {
    /// A commit before it got slower
    #[arg(long, value_name = "COMMIT")]
    good: String,
    /// A commit since it is
    #[arg(long, value_name = "COMMIT")]
    bad: String,
    /// Build a commit in its worktree, by a shell; {out} is the file of the program
    #[arg(long, value_name = "TEMPLATE")]
    build: String,
    /// What a commit must exceed against the good one to be bad [default: half of what good and bad differ by]
    #[arg(long, value_name = "SHARE", value_parser = words::share)]
    threshold: Option<f64>,
    /// Start the program in this folder, not in ours
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    pairs: PairArgs,
    #[command(flatten)]
    metric: MetricArgs,
    /// Arguments of the program
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<OsString>,
}

pub fn run(args: &BisectArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    if !args.build.contains("{out}") {
        bail!("--build: name {{out}}, the file that the program is to be written to");
    }
    let mut settings = args.pairs.settings(context.seed())?;
    settings.measure = args.metric.measure()?;
    settings.operations_in_ms = args.metric.operations_in_ms();
    let folder = bisect_folder().context("no temporary folder")?;
    let interrupt = context.interrupt();
    let here = std::env::current_dir()?;
    let repository = Repository::open(&here, &folder.path().join("tree"), &args.good, &args.bad)?;
    let programs = folder.path().join("programs");
    std::fs::create_dir(&programs)
        .with_context(|| format!("cannot make {}", programs.display()))?;
    let line =
        CommandLine { args: args.args.clone(), folder: args.dir.clone(), ..CommandLine::default() };
    let mut bench = ProcessBench { template: &args.build, line, folder: programs, interrupt };
    let shows = context.shows_screen();
    let wanted = (&settings, &args.build[..], args.threshold);
    let found = bisect(&repository, &mut bench, wanted, &mut |progress| {
        if shows {
            terminal::print_to_stderr(&told(progress));
        }
    });
    let found = found?;
    output::result(context, "bisection", &found)?;
    if shows {
        terminal::print(&screen(&found))?;
    }
    Ok(if found.first_bad.is_some() { Outcome::Fine } else { Outcome::Inconclusive })
}

fn told(progress: BisectProgress<'_>) -> String {
    match progress {
        BisectProgress::Building(commit) => format!("building  {}\n", named(commit)),
        BisectProgress::Comparing { commit, pairs, steps_left } => {
            let left = match steps_left {
                0 => String::new(),
                1 => "; about 1 commit more".into(),
                n => format!("; about {n} commits more"),
            };
            format!("comparing {} with the good one, {pairs} pairs{left}\n", commit.short())
        }
        BisectProgress::Judged(step) => format!("          {}\n", judged(step)),
    }
}

fn named(commit: &Commit) -> String {
    terminal::clip(&format!("{} {}", commit.short(), commit.subject), 68)
}

fn of(span: &Span) -> String {
    let shown = change([span.low_log, span.log_ratio, span.high_log], 1);
    format!("{shown}, {} pairs", span.pairs)
}

fn judged(step: &BisectStep) -> String {
    let (word, style) = match step.word {
        Word::Good => ("good   ", GOOD),
        Word::Bad => ("bad    ", STRONG),
        Word::Skipped => ("skipped", CAUTION),
    };
    let span = step.against_good.as_ref().map(of);
    let why = [span, step.why.clone()].into_iter().flatten().collect::<Vec<_>>().join("; ");
    format!("{} {why}", paint(style, word))
}

fn screen(found: &Bisection) -> String {
    let mut out = String::new();
    let what = if found.threshold_log < 0.0 { "faster" } else { "slower" };
    match &found.first_bad {
        Some(commit) => {
            let _ = writeln!(out, "{what} since {}", paint(STRONG, named(commit)));
            if let Some(span) = &found.against_good {
                out += &wrap("  ", &format!("against the good build: {}", of(span)));
            }
            match &found.against_parent {
                Some(span) => {
                    out += &wrap(
                        "  ",
                        &format!("against its parent, measured once more: {}", of(span)),
                    );
                }
                None => {
                    out += &wrap(
                        "  ",
                        "not measured against its parent: it has several, or one of them has no build",
                    );
                }
            }
        }
        None => {
            out += &wrap("", &format!("{what} since one of these, which could not be told apart:"));
            for commit in &found.candidates {
                let _ = writeln!(out, "  {}", named(commit));
            }
        }
    }
    out.push('\n');
    let _ = writeln!(out, "good {}", named(&found.good));
    let _ = writeln!(out, "bad  {}", named(&found.bad));
    let noun = found.settings.measure.noun();
    let threshold = words::signed(found.threshold_log, 1);
    out += &wrap(
        "     ",
        &format!("{noun}: {}; a commit is bad beyond {threshold}", of(&found.difference)),
    );
    out.push('\n');
    for step in &found.steps {
        let _ = writeln!(out, "{}", paint(FAINT, named(&step.commit)));
        out += &wrap("  ", &judged(step));
    }
    if found.difference.log_ratio.abs() < LAYOUT_LOG {
        out += &wrap(
            "note: ",
            "layout alone moves programs by 1-3 %, and every commit moves code: `sweep --layouts` of the commit and \
             its parent tells whether it is its code",
        );
    }
    out
}
