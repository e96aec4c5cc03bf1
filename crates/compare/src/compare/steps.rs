//! What is run around the runs of a command and is in no figure, and what the start of a shell takes.

use super::amounts::{Amounts, NoAmounts, measured};
use super::command::{CommandLine, Step};
use super::measure::Measure;
use super::runner::last_lines;
use crate::run::child::{Background, Child, ChildError, Launch, Limits};

/// Empty commands that a shell is timed with.
const SHELL_RUNS: usize = 11;

/// Runs every `step` of a command to its end; what these leave running goes on until it is dropped.
///
/// # Errors
/// [`ChildError::Step`] when one cannot be run or fails, and what ends a wait.
pub(super) fn run(
    line: &CommandLine,
    step: Step,
    limits: Limits<'_>,
) -> Result<Vec<Background>, ChildError> {
    let wanted = line.steps.iter().filter(|(when, _)| *when == step);
    wanted.map(|(_, around)| one(around, step, limits)).collect()
}

fn one(line: &CommandLine, step: Step, limits: Limits<'_>) -> Result<Background, ChildError> {
    let failed = |what: String, said: String| ChildError::Step {
        step: step.option(),
        command: line.display(),
        what,
        said,
    };
    let done = line
        .launch()
        .and_then(|launch| Child::hold(&launch))
        .and_then(|child| child.wait_keeping(&limits));
    match done {
        Ok((exit, background)) if exit.status.success() => Ok(background),
        Ok((exit, _)) => {
            Err(failed(format!("failed: {}", exit.status), last_lines(&exit.stderr.tail)))
        }
        Err(ChildError::Interrupted) => Err(ChildError::Interrupted),
        Err(cause) => Err(failed(format!("did not run: {cause}"), String::new())),
    }
}

/// What a shell that `launch` starts takes with nothing to do: the least of several runs, so that what is taken off
/// is never more than it took.
///
/// # Errors
/// When it cannot be run.
pub(super) fn least_start(launch: &Launch, limits: &Limits<'_>) -> Result<Amounts, ChildError> {
    let mut runs = Vec::new();
    // The first one also brings the shell into memory.
    for _ in 0..=SHELL_RUNS {
        let (_, amounts) =
            measured(launch, limits, &Measure::Wall, None).map_err(|cause| match cause {
                NoAmounts::Child(cause) => cause,
                // Wall time is always there.
                NoAmounts::Unmeasured(_) => ChildError::Interrupted,
            })?;
        runs.push(amounts);
    }
    let least = |of: fn(&Amounts) -> Option<u64>| runs[1..].iter().filter_map(of).min();
    Ok(Amounts {
        wall_ns: least(|a| Some(a.wall_ns)).unwrap_or(0),
        cpu_ns: least(|a| Some(a.cpu_ns)).unwrap_or(0),
        user_ns: least(|a| a.user_ns),
        system_ns: least(|a| a.system_ns),
        ..Amounts::default()
    })
}
