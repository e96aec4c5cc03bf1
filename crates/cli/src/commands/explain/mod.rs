//! `stallscope explain`: the main job. What was typed, the work, one screen.

mod screen;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use indicatif::ProgressBar;
use stallscope::code::SourceText;
use stallscope::compare::{CommandLine, Settings, default_cpu};
use stallscope::explain::{ProcessBench, Stage, explain};
use stallscope::trace::child::resolve_program;
use stallscope::trace::sample::SampleSettings;

use crate::context::{Context, Outcome};
use crate::{output, profile, terminal};

const EXAMPLES: &str = "\
Examples:
  Why is the new build slower?
    stallscope explain ./before ./after -- --bench input.bin
  Keep everything that was measured
    stallscope explain --json why.json ./before ./after -- input.bin

Exit codes: 0 done, 2 bad usage or a program that cannot be read or run,
130 interrupted.";

/// Arguments of `explain`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    /// The program as it was
    #[arg(value_name = "BEFORE")]
    before: OsString,
    /// The program as it is, which is called slower or faster
    #[arg(value_name = "AFTER")]
    after: OsString,
    /// Arguments for both
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<OsString>,
}

/// Runs the command.
pub fn run(args: &ExplainArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    let profile = profile::load(context)?.announce(context)?;
    let line =
        |program: &OsString| CommandLine { program: program.clone(), args: args.args.clone() };
    let programs: [PathBuf; 2] = [resolve_program(&args.before)?, resolve_program(&args.after)?];
    let settings = Settings { seed: context.seed(), cpu: default_cpu(), ..Settings::default() };
    let pairs = settings.pairs;
    let mut bench = ProcessBench {
        lines: [line(&args.before), line(&args.after)],
        settings,
        sampling: SampleSettings::default(),
        interrupt: context.interrupt(),
    };
    let bar = context.progress(2 * u64::from(pairs), "comparing");
    let result = explain(programs, &mut bench, &profile, &mut |stage| show(&bar, stage));
    bar.finish_and_clear();
    let explanation = result?;
    output::json(context, "explanation", &explanation)?;
    if context.shows_screen() {
        terminal::print(&screen::screen(&explanation, &mut SourceText::default()))?;
    }
    Ok(Outcome::Fine)
}

fn show(bar: &ProgressBar, stage: Stage) {
    use stallscope::compare::Progress;
    match stage {
        Stage::Comparing(Progress::Ran { done }) => bar.set_position(done),
        Stage::Comparing(_) => bar.tick(),
        Stage::Sampling { done, of } => {
            bar.set_message("sampling");
            bar.set_length(u64::from(of));
            bar.set_position(u64::from(done));
        }
    }
}
