//! `stallscope probe`: asks this processor what it charges.

mod clock;
mod core;
mod forwarding;
mod front_end;
mod memory;
mod page;
mod peer;
pub mod planned;
mod snippet;
mod string_copy;
pub mod wide;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use serde::Serialize;
use stallscope::machine::{Candidate, Design, Machine, Resemblance};
use stallscope::probes::{self, Bench, PROBES, Probe, ProbeError, ProbeReport};

use crate::commands::cpu_args::OneCpuArgs;
use crate::context::{Context, Outcome};
use crate::{output, profile, terminal};

/// Arguments of `probe`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ProbeArgs {
    #[command(subcommand)]
    command: Option<ProbeCommand>,
    /// Probes to run; all of them when none is named
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Keep every single sample in the JSON
    #[arg(long)]
    raw: bool,
    /// Show clamchowder's table of store forwarding beside ours (again for each pair of widths)
    #[arg(long, value_name = "STORE:LOAD=FILE")]
    peer: Vec<String>,
    #[command(flatten)]
    cpu: OneCpuArgs,
    #[command(flatten)]
    plan: planned::PlanArgs,
}

#[derive(Debug, Subcommand)]
enum ProbeCommand {
    /// Put two machine profiles side by side: a survey of two
    Diff {
        /// First machine profile, as `probe` wrote it
        a: PathBuf,
        /// Second machine profile
        b: PathBuf,
    },
    /// Time instructions of your own: what once around takes, in core cycles
    Snippet(snippet::SnippetArgs),
}

#[derive(Serialize)]
struct Answers<'a> {
    seed: u64,
    probes: &'a [ProbeReport],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    peers: &'a [peer::Beside],
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<&'a Resemblance>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    refused: &'a [Refused],
}

/// A probe that could not be run, beside others that were.
#[derive(Serialize)]
struct Refused {
    probe: &'static str,
    why: String,
}

pub fn run(args: &ProbeArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    match &args.command {
        Some(ProbeCommand::Diff { a, b }) => {
            return super::survey::show(&[a.clone(), b.clone()], false, "probe-diff", context);
        }
        Some(ProbeCommand::Snippet(args)) => return snippet::run(args, context),
        None => {}
    }
    let _pin = args.cpu.pin()?;
    let chosen = choose(&args.names)?;
    if let Some(path) = &args.plan.plan {
        return planned::run(&args.plan, path, &chosen, context);
    }
    let peers = peer::load(&args.peer)?;
    probes::check_architecture(std::env::consts::ARCH)?;
    // Before anything runs: a profile that must not be replaced should not cost the probes first.
    let wanted = chosen.iter().any(|p| p.prices);
    if context.design().is_some() {
        bail!("--as names a design, and a probe measures the processor at hand");
    }
    let target = if wanted { profile::to_update(context)? } else { None };
    if wanted && target.is_none() {
        terminal::warning(
            "neither HOME nor XDG_CACHE_HOME is set: the machine profile is not kept; name a file \
             with --profile",
        );
    }
    let seed = context.seed();
    let (reports, refused) = ask(&chosen, args.raw, seed, context, context.shows_screen())?;
    let peers = peer::beside(peers, &reports)?;
    if context.shows_screen() {
        terminal::print(&peer::screen(&peers))?;
    }
    let identity = wanted.then(|| {
        let machine = Machine::detect();
        let known = target.as_ref().map(|(_, profile)| profile.clone());
        let mut profile = known.unwrap_or_else(|| Design::of_machine(&machine));
        probes::apply(&reports, &mut profile);
        Resemblance::here(&machine, &profile)
    });
    if let Some(found) = identity.as_ref().filter(|_| context.shows_screen()) {
        terminal::print(&resemblance(found))?;
    }
    let identity = identity.as_ref();
    let answers = Answers { seed, probes: &reports, peers: &peers, identity, refused: &refused };
    output::result(context, "probe", &answers)?;
    if let Some((path, machine_profile)) = target {
        let said = keep(context, &path, machine_profile, &reports)?;
        if context.shows_screen() {
            terminal::print(&said)?;
        }
    }
    Ok(Outcome::Fine)
}

/// Runs the probes one behind the other and shows each as it ends, if it `shows` them; those that are refused here cost
/// themselves alone.
fn ask(
    chosen: &[&'static Probe],
    raw: bool,
    seed: u64,
    context: &Context,
    shows: bool,
) -> anyhow::Result<(Vec<ProbeReport>, Vec<Refused>)> {
    let own = wide::OwnProcess { interrupt: context.interrupt() };
    let bar = context.progress(chosen.len() as u64, "probing");
    let mut reports = Vec::with_capacity(chosen.len());
    let (mut refused, is_one_of_many) = (Vec::new(), chosen.len() > 1);
    for &probe in chosen {
        bar.set_message(probe.id);
        let bench = Bench { isolated: Some(&own), raw, ..Bench::new(seed, context.interrupt()) };
        let report = match (probe.run)(&bench) {
            Ok(report) => report,
            // One that is refused here (memory that may not be executed, a limit on files) costs itself alone.
            Err(error) if is_one_of_many && !matches!(error, ProbeError::Interrupted) => {
                let why = error.to_string();
                bar.suspend(|| {
                    terminal::warning(&format!("probe `{}` was left out: {why}", probe.id))
                });
                refused.push(Refused { probe: probe.id, why });
                bar.inc(1);
                continue;
            }
            Err(error) => return Err(error).with_context(|| format!("probe `{}`", probe.id)),
        };
        // At once: the first answer is there long before the last.
        if shows {
            let gap = if reports.is_empty() { "" } else { "\n" };
            bar.suspend(|| terminal::print(&format!("{gap}{}", screen(&report))))?;
        }
        reports.push(report);
        bar.inc(1);
    }
    bar.finish_and_clear();
    if reports.is_empty() {
        bail!("every probe was refused here");
    }
    Ok((reports, refused))
}

/// What the processor claims to be, and what speaks for and against it and its rivals.
fn resemblance(found: &Resemblance) -> String {
    let mut page = page::Page::default();
    page.blank();
    page.line("identity", &found.sentence());
    let is_doubtful = |c: &&Candidate| c.design == found.design || c.design == found.claimed;
    let shown = found.candidates.iter().filter(|c| found.design != found.claimed || is_doubtful(c));
    for Candidate { design, weight, fits, contradicts, .. } in shown {
        let list = |words: &[String]| match words {
            [] => "nothing".to_owned(),
            words => words.join(", "),
        };
        let (fits, against) = (list(fits), list(contradicts));
        page.line("", &format!("{design} ({weight:+.1}): for it {fits}; against it {against}"));
    }
    page.text
}

/// Writes what was found into the profile; the line that says so.
fn keep(
    context: &Context,
    path: &Path,
    before: Design,
    reports: &[ProbeReport],
) -> anyhow::Result<String> {
    let mut page = page::Page::default();
    match profile::add(path, before, reports) {
        Ok(true) => page.line("profile", &path.display().to_string()),
        Ok(false) if reports.iter().any(ProbeReport::has_prices) => {
            page.line("profile", "not changed: it says so already");
        }
        Ok(false) => page.line("profile", "not changed: nothing conclusive"),
        Err(error) if context.profile().is_none() => profile::not_kept(&error),
        Err(error) => return Err(error),
    }
    Ok(page.text)
}

/// Every name is looked up before anything runs; a name given twice runs once.
fn choose(names: &[String]) -> anyhow::Result<Vec<&'static Probe>> {
    if names.is_empty() {
        return Ok(PROBES.iter().collect());
    }
    let mut chosen: Vec<&'static Probe> = Vec::new();
    for name in names {
        let probe = probes::find(name)?;
        if !chosen.iter().any(|p| p.id == probe.id) {
            chosen.push(probe);
        }
    }
    Ok(chosen)
}

fn screen(report: &ProbeReport) -> String {
    match report {
        ProbeReport::Branches(report) => front_end::branches(report),
        ProbeReport::Clock(report) => clock::screen(report),
        ProbeReport::CodeAlignment(report) => front_end::alignment(report),
        ProbeReport::Core(report) => core::screen(report),
        ProbeReport::DataCaches(report) => memory::data_caches(report),
        ProbeReport::IcacheSets(report) => front_end::sets(report),
        ProbeReport::IcacheSync(report) => memory::sync(report),
        ProbeReport::StoreElimination(report) => memory::elimination(report),
        ProbeReport::StoreForwarding(report) => forwarding::screen(report),
        ProbeReport::StringCopy(report) => string_copy::screen(report),
        // A probe without a screen of its own.
        other => serde_json::to_string_pretty(other).unwrap_or_default() + "\n",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_all_and_twice_is_once() {
        assert_eq!(choose(&[]).unwrap().len(), PROBES.len());
        let twice = ["clock".to_owned(), "clock".to_owned()];
        assert_eq!(choose(&twice).unwrap().len(), 1);
        assert!(choose(&["nonsense".to_owned()]).is_err());
    }
}
