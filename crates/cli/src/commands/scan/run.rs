//! `scan --run -- COMMAND`: what happens in the hot code of a run.

use std::ffi::OsString;

use anyhow::bail;
use indicatif::ProgressBar;
use stallscope::compare::CommandLine;
use stallscope::counted::{CommandRuns, Stage, count};
use stallscope::run::child::{Launch, Streams, own_input};

use super::{ScanArgs, filter, gate, most, run_screen};
use crate::context::{Context, Outcome};
use crate::{output, profile, terminal};

/// Runs the command several times, sampled and followed, and tells what was counted.
pub fn run(args: &ScanArgs, context: &Context) -> anyhow::Result<Outcome> {
    let [program, words @ ..] = args.command.as_slice() else { bail!("--run: no command to run") };
    let launch = launch(program, words)?;
    let chosen = profile::load(context)?;
    let rules = filter(args)?.rules;
    let command = std::iter::once(program).chain(words).map(|w| w.to_string_lossy().into_owned());
    let bar = context.progress(0, "sampling");
    let mut runs = CommandRuns::new(launch, context.interrupt());
    let show = &mut |stage| show(&bar, stage);
    let counted = count(command.collect(), &rules, &chosen.design, &mut runs, show);
    bar.finish_and_clear();
    let counted = counted?;
    output::result(context, "scan-run", &counted)?;
    if context.shows_screen() {
        let files = counted.files.iter().map(|file| file.path.as_path());
        let text = &mut context.source_text(files)?;
        terminal::print(&chosen.announcement())?;
        terminal::print(&run_screen::screen(&counted, most(args.top), text))?;
    }
    let found = counted.sites.iter().filter_map(|site| site.finding.as_ref());
    if gate::fails(&args.conditions(), found) {
        return Ok(Outcome::Gated);
    }
    let decides = args.conditions().is_empty() || counted.not_followed.is_none();
    Ok(if decides { Outcome::Fine } else { Outcome::Inconclusive })
}

/// How the command is run: what executes a script is what there is to look at; its output is not shown.
fn launch(program: &OsString, words: &[OsString]) -> anyhow::Result<Launch> {
    let line = CommandLine::new(program, words.to_vec()).interpreted();
    let streams = own_input()?.map_or(Streams::Captured, Streams::Fed);
    Ok(Launch { streams, ..line.launch()? })
}

fn show(bar: &ProgressBar, stage: Stage) {
    match stage {
        Stage::Sampling(done) => bar.set_position(u64::from(done)),
        Stage::Following { done, of } => {
            bar.set_message("following");
            bar.set_length(of as u64);
            bar.set_position(done as u64);
        }
        Stage::Scanning => bar.set_message("scanning"),
    }
}
