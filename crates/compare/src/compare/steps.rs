//! What is run around the runs of a command and is in no figure, and what the start of a shell takes.

use super::amounts::{Amounts, NoAmounts, measured};
use super::command::{CommandLine, Step};
use super::measure::Measure;
use super::runner::allowed_cpus;
use crate::clock::Cpus;
use crate::run::child::{Background, ChildError, Launch, Limits, Load, run_step};

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
    let of = |around: &CommandLine| {
        let kept = run_step(step.option(), &around.display(), around.launch(), &limits);
        kept.map(|(_, background)| background)
    };
    line.around(step).map(of).collect()
}

/// What gives the command its work while it runs, on other processors than those that it has for itself.
///
/// # Errors
/// When it cannot be found.
pub(super) fn load(line: &CommandLine, taken: Option<&Cpus>) -> Result<Option<Load>, ChildError> {
    let Some(load) = line.around(Step::Load).next() else { return Ok(None) };
    let mut launch = load.launch()?;
    let is_free = |cpu: &usize| taken.is_some_and(|taken| !taken.iter().any(|it| it == *cpu));
    let free: Vec<usize> = allowed_cpus().into_iter().filter(is_free).collect();
    launch.cpu = Cpus::last(free.len(), &free);
    Ok(Some(Load { launch, command: load.display() }))
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
