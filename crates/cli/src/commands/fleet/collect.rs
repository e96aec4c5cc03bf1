//! `stallscope collect`: joins what has come back, waits for the rest, or takes it back.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use stallscope::compare::Decision;
use stallscope::compare::fleet::{Alive, FleetError, Job, ResultFolder, Results, Selection};
use stallscope::explain::{ExplainResult, Joining};
use stallscope::foreign;
use stallscope::machine::survey::Survey;

use super::come_back;
use crate::commands::gate::Gate;
use crate::commands::sweep::screen;
use crate::commands::{explain, survey};
use crate::context::{Context, Outcome};
use crate::{output, profile, terminal};

const EXAMPLES: &str = "\
Examples:
  Join what has come back so far
    stallscope collect results
  Wait until all has come back
    stallscope collect --follow results --json result.json
  Of two clusters, as one result
    stallscope collect results-here results-there
  Of a plan of `probe`: what each machine charges, side by side, and its profile as a file
    stallscope collect profiles --profiles kept --html survey.html
  Take back what has not ended
    stallscope collect --cancel results

Ctrl-C ends the waiting, not the jobs.

Exit codes: 0 joined, 1 slower (--fail-if), 2 bad usage or nothing to join,
3 inconclusive (--fail-if), 130 interrupted (143 by SIGTERM).";

/// How often files are counted and the engine is asked: a queue is no place to hurry.
const LOOK: Duration = Duration::from_secs(2);
/// Looks after which a folder that does not change, of jobs that have ended, is final: shared file systems show files late.
const LAST_LOOKS: u32 = 3;

/// Arguments of `collect`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CollectArgs {
    /// Folders that workers have written to
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
    /// Wait until every block has come back, or no worker runs any more
    #[arg(long)]
    follow: bool,
    /// Take back the blocks that have not ended; what has come back stays
    #[arg(long, conflicts_with = "follow")]
    cancel: bool,
    /// Exit with 1 when a variant is slower by so much (slower:2%), with 3 when that is open
    #[arg(long, value_name = "GATE", value_parser = Gate::parse)]
    fail_if: Option<Gate>,
    /// Keep the profile of each machine in DIR (of a plan of `probe`)
    #[arg(long, value_name = "DIR", conflicts_with = "fail_if")]
    profiles: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &CollectArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    if args.cancel {
        return cancel(args);
    }
    for folder in args.folders.iter().filter(|_| args.follow) {
        if let Some(interrupted) = follow(folder, context)? {
            terminal::note(&format!("the jobs go on; {}", come_back(folder)));
            return Ok(interrupted);
        }
    }
    let results = Results::of(&args.folders)?;
    match &results.job {
        Job::Rounds(_) => {}
        Job::Probes(_) => return side_by_side(args, &results, context),
        Job::Explanation(_) => return explanations(args, &results, context),
    }
    if args.profiles.is_some() {
        bail!("--profiles: these folders hold runs, not profiles of machines");
    }
    let collected = results.rounds()?;
    let report = &collected.report;
    output::result(context, "sweep", report)?;
    if context.shows_screen() {
        terminal::print(&screen::screen(report))?;
        not_back(collected.missing)?;
    }
    let decisions: Vec<Decision> = report.comparisons.iter().map(|c| c.decision).collect();
    Ok(args.fail_if.map_or(Outcome::Fine, |gate| gate.outcome(&decisions)))
}

/// Names the blocks that have not come back.
fn not_back(missing: Vec<u32>) -> anyhow::Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let missing = Selection::of(missing).to_string();
    let text = format!("block {}; `submit` hands them out again", terminal::clip(&missing, 200));
    terminal::print(&terminal::wrap("not back: ", &text))
}

/// The survey of machines that were probed.
fn side_by_side(
    args: &CollectArgs,
    results: &Results,
    context: &Context,
) -> anyhow::Result<Outcome> {
    if args.fail_if.is_some() {
        bail!("--fail-if goes with runs: these folders hold profiles of machines");
    }
    let found = results.profiles()?;
    for (name, design) in found.machines.iter().filter(|_| args.profiles.is_some()) {
        let folder = args.profiles.as_deref().unwrap_or(Path::new("."));
        profile::write(&folder.join(format!("{name}.json")), design)?;
    }
    let machines = found.machines.iter().map(|(name, design)| (name.clone(), design));
    survey::print(&Survey::of(machines), false, "survey", context)?;
    if context.shows_screen() {
        if !found.again.is_empty() {
            let again = Selection::of(found.again.clone());
            terminal::print(&format!("the same machine once more: block {again}\n"))?;
        }
        not_back(found.missing.clone())?;
    }
    Ok(Outcome::Fine)
}

/// What machines say that explained.
fn explanations(
    args: &CollectArgs,
    results: &Results,
    context: &Context,
) -> anyhow::Result<Outcome> {
    if args.fail_if.is_some() || args.profiles.is_some() {
        bail!("--fail-if goes with runs, --profiles with probes: these folders hold explanations");
    }
    // Each is looked at where it is read: with its samples it has megabytes.
    let mut joining = Joining::default();
    let look = |_: &Path, text: &str| {
        let result: Option<ExplainResult> = foreign::from_json(text).ok();
        Ok(result.map(|result| joining.add(&result)))
    };
    let missing = results.each(look)?.missing;
    let Some(many) = joining.joined() else { return Err(FleetError::Nothing.into()) };
    output::result(context, "many-explained", &many)?;
    if context.shows_screen() {
        terminal::print(&explain::planned::screen(&many))?;
        not_back(missing)?;
    }
    Ok(Outcome::Fine)
}

fn cancel(args: &CollectArgs) -> anyhow::Result<Outcome> {
    for path in &args.folders {
        let Some(ticket) = ResultFolder::at(path).ticket()? else {
            bail!("no blocks were handed out from {}", path.display());
        };
        ticket.kind.engine().cancel(&ticket.jobs)?;
        terminal::note(&format!("taken back: {}", ticket.jobs.join(" ")));
    }
    Ok(Outcome::Fine)
}

/// Waits for the blocks of a folder; how it ends where that was interrupted.
fn follow(path: &Path, context: &Context) -> anyhow::Result<Option<Outcome>> {
    let folder = ResultFolder::at(path);
    let ticket = folder.ticket()?;
    let bar = context.progress(1, "blocks");
    // From here on signals are seen below.
    context.interrupt();
    let (mut quiet, mut before, mut is_silent) = (0, 0, false);
    loop {
        // Blocks that were not handed out from here are waited for by whoever runs them.
        let asked = ticket.as_ref().map_or(Ok(Some(Alive::default())), |ticket| {
            ticket.kind.engine().poll(&ticket.jobs, path)
        });
        // A controller that starts anew answers later; the jobs do not need it.
        if let Err(error) = &asked
            && !is_silent
        {
            bar.suspend(|| terminal::warning(&format!("{error}; asking again")));
        }
        is_silent = asked.is_err();
        let alive = asked.unwrap_or_default();
        let (done, of) = folder.progress()?.unwrap_or((0, 1));
        bar.set_length(of.into());
        bar.set_position(done.into());
        if let Some(alive) = alive {
            bar.set_message(format!("{} running, {} waiting", alive.running, alive.waiting));
        }
        let is_over = alive.is_some_and(|alive| alive.is_over());
        quiet = if is_over && done == before { quiet + 1 } else { 0 };
        before = done;
        if done >= of || quiet >= LAST_LOOKS {
            bar.finish_and_clear();
            return Ok(None);
        }
        for _ in 0..LOOK.as_millis() / 100 {
            if let Some(interrupted) = context.interrupted() {
                bar.finish_and_clear();
                return Ok(Some(interrupted));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
