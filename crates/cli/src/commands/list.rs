//! `stallscope list`: every probe, hazard rule, trace engine, case and processor design.

use clap::Args;
use serde_json::json;
use stallscope::hazards::HAZARDS;
use stallscope::machine::survey::{self, Entry};
use stallscope::machine::{Design, Machine, Microarchitecture};
use stallscope::probes::{self, PROBES};
use stallscope::trace::engine::ENGINES;

use super::case;
use crate::context::{Context, Outcome};
use crate::terminal::{STRONG, paint, wrap};
use crate::{output, profile, terminal};

/// Arguments of `list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only these; of designs, all that is known with its origin (--as and --profile show one)
    #[arg(value_name = "WHAT", value_parser = ["probes", "hazards", "engines", "cases", "designs"])]
    what: Option<String>,
}

pub fn run(args: &ListArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    if args.what.as_deref() == Some("designs") {
        return designs(context);
    }
    let profile = Design::of_machine(&Machine::detect());
    let hazards: Vec<(&str, &str)> =
        HAZARDS.iter().map(|h| (h.id(), h.card(&profile).title)).collect();
    let probes = probes(std::env::consts::ARCH);
    let probes: Vec<(&str, &str)> =
        probes.iter().map(|(id, title)| (*id, title.as_str())).collect();
    let cases = case::all()?;
    let cases = cases.iter().map(|c| (c.id, c.definition.title.as_str())).collect();
    let engines: Vec<(&str, &str)> = ENGINES.iter().map(|e| (e.id(), e.summary())).collect();
    let names: Vec<(String, &str)> =
        Microarchitecture::ALL.iter().map(|d| (d.slug(), d.name())).collect();
    let designs = names.iter().map(|(slug, name)| (slug.as_str(), *name)).collect();
    let mut sections = vec![("probes", probes), ("hazards", hazards), ("engines", engines)];
    sections.extend([("cases", cases), ("designs", designs)]);
    sections.retain(|(title, _)| args.what.as_ref().is_none_or(|asked| asked == title));
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
    output::result(context, "list", &value)?;
    Ok(Outcome::Fine)
}

/// Every design with what is known of it and where that comes from; the one that was named, if any.
fn designs(context: &Context) -> anyhow::Result<Outcome> {
    let one = context.design().is_some() || context.profile().is_some();
    let all: Vec<Design> = match one {
        true => vec![profile::load(context)?.design],
        false => Microarchitecture::ALL.iter().map(|name| Design::of(*name)).collect(),
    };
    let mut text = String::new();
    let mut value = serde_json::Map::new();
    for design in &all {
        let name = design.microarchitecture;
        text += &format!("{}  {name}\n", paint(STRONG, name.slug()));
        let known =
            survey::rows(design).into_iter().filter_map(|(id, _, entry)| Some((id, entry?)));
        let facts: Vec<(String, Entry)> = known.filter(|(_, e)| e.origin.is_some()).collect();
        for (id, entry) in &facts {
            let origin = entry.origin.as_ref().map_or(String::new(), ToString::to_string);
            text += &wrap(&format!("  {id:<29}"), &format!("{} ({origin})", entry.text));
        }
        value.insert(name.slug(), facts.into_iter().map(|(id, e)| (id, json!(e))).collect());
    }
    if context.shows_screen() {
        terminal::print(&text)?;
    }
    output::result(context, "list", &json!({ "designs": value }))?;
    Ok(Outcome::Fine)
}

/// Every probe and what it finds out; where there is none for this processor, that as well.
fn probes(arch: &str) -> Vec<(&'static str, String)> {
    let exists = |id| probes::existing_on(arch).iter().any(|p| p.id == id);
    let row = |p: &probes::Probe| {
        let here = if exists(p.id) { "" } else { " (x86-64 only)" };
        (p.id, format!("{}{here}", p.title))
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
