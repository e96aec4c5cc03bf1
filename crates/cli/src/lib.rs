//! The command line: arguments, terminal, progress, exit codes. The work is in `stallscope`.
//!
//! Exit codes: 0 fine, 1 a finding or regression when asked to gate, 2 usage or input error,
//! 3 inconclusive when asked to gate, 130 interrupted, 143 ended by SIGTERM.

pub mod args;
mod commands;
pub mod context;
mod defaults;
mod noise;
pub mod output;
pub mod profile;
pub mod terminal;

use std::io;
use std::process::ExitCode;

use args::Command;
pub use commands::case::CaseReport;
pub use commands::fleet::worker::WorkerReport;
pub use commands::scan::{Baseline, ScanDifference};
use context::{Context, Outcome};
use stallscope::run::child::dismiss_guardian;

/// Parses the arguments, runs the command and maps its outcome to an exit code.
#[must_use]
pub fn main() -> ExitCode {
    terminal::fit_to_terminal();
    let (cli, defaults) = match defaults::parse(std::env::args_os().collect()) {
        Ok(parsed) => parsed,
        Err(error) => return answer(error),
    };
    let context = Context::new(&cli.common).with_defaults(defaults);
    let result = match cli.command {
        Command::Bisect(args) => commands::bisect::run(&args, &context),
        Command::Case(args) => commands::case::run(&args, &context),
        Command::Collect(args) => commands::fleet::collect::run(&args, &context),
        Command::Compare(args) => commands::compare::run(&args, &context),
        Command::Completions(args) => commands::manual::completions(&args, &context),
        Command::Env(args) => commands::env::run(&args, &context),
        Command::Explain(args) => commands::explain::run(&args, &context),
        Command::History(args) => commands::history::run(&args, &context),
        Command::Layout(args) => commands::layout::run(&args, &context),
        Command::List(args) => commands::list::run(&args, &context),
        Command::Man(args) => commands::manual::man(&args, &context),
        Command::Probe(args) => commands::probe::run(&args, &context),
        Command::ProbeWide(args) => commands::probe::wide::run(&args, &context),
        Command::SampleLoop(args) => commands::layout::skid::run(&args, &context),
        Command::Render(args) => commands::render::run(&args, &context),
        Command::Rule(args) => commands::rule::run(&args, &context),
        Command::Scan(args) => commands::scan::run(&args, &context),
        Command::Submit(args) => commands::fleet::submit::run(&args, &context),
        Command::Survey(args) => commands::survey::run(&args, &context),
        Command::Sweep(args) => commands::sweep::run(&args, &context),
        Command::Trace(args) => commands::trace::run(&args, &context),
        Command::Worker(args) => commands::fleet::worker::run(&args, &context),
    };
    exit_code(&context, result)
}

/// Ends a command: says what went wrong, and gives the exit code. Programs of the source tree that
/// are built on this one (`cases/`) end like it.
#[must_use]
pub fn exit_code(context: &Context, result: anyhow::Result<Outcome>) -> ExitCode {
    dismiss_guardian();
    match (result, context.interrupted()) {
        (Ok(outcome), _) => outcome.exit_code(),
        (Err(_), Some(interrupted)) => {
            terminal::error("interrupted; nothing was written and no child is left running");
            interrupted.exit_code()
        }
        (Err(error), None) => complain(&error),
    }
}

/// What is said where no command is run: help that was asked for, or what is wrong with the arguments or the defaults.
fn answer(error: anyhow::Error) -> ExitCode {
    let error = match error.downcast::<clap::Error>() {
        Ok(said) => match terminal::written(said.print()) {
            Ok(()) => return ExitCode::from(said.exit_code() as u8),
            Err(error) => error,
        },
        Err(error) => error,
    };
    complain(&error)
}

/// Prints the whole chain of causes as one sentence.
fn complain(error: &anyhow::Error) -> ExitCode {
    if error.chain().any(is_broken_pipe) {
        // As a shell tells of a program that SIGPIPE ended.
        return ExitCode::from(128 + libc::SIGPIPE as u8);
    }
    terminal::error(&format!("{error:#}"));
    Outcome::Unusable.exit_code()
}

fn is_broken_pipe(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
