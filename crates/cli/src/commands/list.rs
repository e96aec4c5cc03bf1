//! `stallscope list`: every probe, hazard rule, trace engine and case.

use clap::Args;
use serde_json::json;
use stallscope::hazards::HAZARDS;
use stallscope::machine::{Machine, MachineProfile};
use stallscope::probes::{self, PROBES};
use stallscope::trace::engine::ENGINES;

use super::case::CASES;
use crate::context::{Context, Outcome};
use crate::terminal::{STRONG, paint};
use crate::{output, terminal};

/// Arguments of `list`.
#[derive(Debug, Args)]
pub struct ListArgs {}

/// Runs the command.
pub fn run(_args: &ListArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    let profile = MachineProfile::for_machine(&Machine::detect());
    let hazards: Vec<(&str, &str)> =
        HAZARDS.iter().map(|h| (h.id(), h.card(&profile).title)).collect();
    let probes = probes(std::env::consts::ARCH);
    let probes: Vec<(&str, &str)> =
        probes.iter().map(|(id, title)| (*id, title.as_str())).collect();
    let cases: Vec<(&str, &str)> = CASES.iter().map(|c| (c.id(), c.title())).collect();
    let engines: Vec<(&str, &str)> = ENGINES.iter().map(|e| (e.id(), e.summary())).collect();
    let sections =
        [("probes", probes), ("hazards", hazards), ("engines", engines), ("cases", cases)];
    if context.shows_screen() {
        let mut text = String::new();
        for (title, entries) in &sections {
            text += &format!("{}\n", paint(STRONG, title));
            let width = 2 + entries.iter().map(|(id, _)| id.len()).max().unwrap_or(0);
            for (id, title) in entries {
                text += &format!("  {id:<width$}{title}\n");
            }
        }
        terminal::print(&text)?;
    }
    let value: serde_json::Map<String, serde_json::Value> = sections
        .into_iter()
        .map(|(title, entries)| {
            let rows = entries.iter().map(|(id, title)| json!({"id": id, "title": title}));
            (title.to_owned(), rows.collect())
        })
        .collect();
    output::json(context, "list", &value)?;
    Ok(Outcome::Fine)
}

/// Every probe and what it finds out; where there is none for this processor, that as well.
fn probes(arch: &str) -> Vec<(&'static str, String)> {
    let exists = |id| probes::existing_on(arch).iter().any(|p| p.id() == id);
    let row = |p: &&dyn probes::Probe| {
        let here = if exists(p.id()) { "" } else { " (x86-64 only)" };
        (p.id(), format!("{}{here}", p.title()))
    };
    PROBES.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_without_probes_is_told_so() {
        assert!(probes("x86_64").iter().all(|(_, title)| !title.contains("only")));
        assert!(probes("aarch64").iter().all(|(_, title)| title.ends_with("(x86-64 only)")));
    }
}
