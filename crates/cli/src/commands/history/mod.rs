//! `stallscope history`: what `compare --history` has kept, judged commit by commit.

mod chart;
mod screen;

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use stallscope::compare::Decision;
use stallscope::compare::history::{judge, read};

use super::words;
use crate::context::{Context, Outcome};
use crate::{output, terminal};

const EXAMPLES: &str = "\
Examples:
  Hold every commit against one reference, and keep what was found
    stallscope compare --history speed.jsonl --label \"$(git rev-parse --short HEAD)\" \\
      ./reference ./app -- input
  Since which commit is it slower?
    stallscope history speed.jsonl
  A gate: exit code 1 when the last step is a slower one
    stallscope history --gate speed.jsonl

Exit codes: 0 judged, 1 slower since the last step (--gate), 2 bad usage or input, 3 nothing
is known (--gate): too few commits, newest ones that are slower, lines that are not believed.";

/// Arguments of `history`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct HistoryArgs {
    /// The file that `compare --history` has written
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The smallest step of interest: smaller ones are listed and not called
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = words::share)]
    effect: f64,
    /// Exit with 1 when the last step of any series is a slower one, with 3 when nothing is known
    #[arg(long)]
    gate: bool,
}

/// Runs the command.
pub fn run(args: &HistoryArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    let file = read(&args.file)?;
    let path = args.file.display().to_string();
    // A fixed seed unless one is given: one file has one answer.
    let report = judge(&path, file, args.effect, context.given_seed().unwrap_or(1));
    if report.series.is_empty() {
        match report.damaged.first() {
            Some(first) => {
                bail!("{path} holds no entry of a history: line {}: {}", first.line, first.what)
            }
            None => bail!("{path} is empty: compare --history {path} adds to it"),
        }
    }
    output::result(context, "history", &report)?;
    if context.shows_screen() {
        terminal::print(&screen::screen(&report))?;
    }
    Ok(match report.decision() {
        Decision::Slower if args.gate => Outcome::Gated,
        Decision::Inconclusive if args.gate => Outcome::Inconclusive,
        _ => Outcome::Fine,
    })
}
