//! `stallscope probe`: asks this processor what it charges.

mod clock;

use anyhow::Context as _;
use clap::Args;
use stallscope::probes::{self, Bench, PROBES, Probe, ProbeReport};

use crate::context::{Context, Outcome};
use crate::{output, terminal};

/// Arguments of `probe`.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// Probes to run; all of them when none is named
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

/// Runs the command.
pub fn run(args: &ProbeArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    let chosen = choose(&args.names)?;
    let seed = context.seed();
    let bar = context.progress(chosen.len() as u64, "probing");
    let mut reports = Vec::with_capacity(chosen.len());
    for probe in chosen {
        bar.set_message(probe.id());
        let bench = Bench { seed, interrupt: context.interrupt() };
        let report = probe.run(&bench).with_context(|| format!("probe `{}`", probe.id()))?;
        reports.push(report);
        bar.inc(1);
    }
    bar.finish_and_clear();
    output::json(context, "probe", &serde_json::json!({ "seed": seed, "probes": reports }))?;
    if context.shows_screen() {
        let screens: Vec<String> = reports.iter().map(screen).collect();
        terminal::print(&screens.join("\n"))?;
    }
    Ok(Outcome::Fine)
}

/// Every name is looked up before anything runs; a name given twice runs once.
fn choose(names: &[String]) -> anyhow::Result<Vec<&'static dyn Probe>> {
    if names.is_empty() {
        return Ok(PROBES.to_vec());
    }
    let mut chosen: Vec<&'static dyn Probe> = Vec::new();
    for name in names {
        let probe = probes::find(name)?;
        if !chosen.iter().any(|p| p.id() == probe.id()) {
            chosen.push(probe);
        }
    }
    Ok(chosen)
}

fn screen(report: &ProbeReport) -> String {
    match report {
        ProbeReport::Clock(report) => clock::screen(report),
        // A probe that the library has and this program cannot draw is still in the JSON.
        _ => String::new(),
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
