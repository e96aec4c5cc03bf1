//! `stallscope case`: the famous questions and the stories that stallscope came from, each to be tried here.
//!
//! A case of the gallery is built by a C compiler and explained; one that takes more says what to
//! type where the source tree is.

mod build;
mod definition;
mod judgement;

use std::ffi::OsString;

use anyhow::Context as _;
use clap::Args;
use stallscope::clock::Cpus;
use stallscope::compare::fleet::Extent;
use stallscope::compare::{CommandLine, MAX_PAIRS, Settings, allowed_cpus, default_cpu};

pub use definition::all;
pub use judgement::CaseReport;

use super::explain;
use crate::context::{Context, Outcome};
use crate::terminal::{self, FAINT, STRONG, paint, wrap};
use crate::{output, profile};
use definition::{Case, Gallery, Kind, Tree};
use judgement::Which;

const EXAMPLES: &str = "\
Examples:
  What cases there are
    stallscope case
  Build one of them, explain it, and say whether this machine has it
    stallscope case sorted-array
  A pair like it that has another cause
    stallscope case sorted-array --trap
  With another compiler
    stallscope case sorted-array --cc clang

Exit codes: 0 fine, 2 bad usage or no compiler, 130 interrupted (143 by SIGTERM).";

/// Arguments of `case`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CaseArgs {
    /// The case to build and explain; without it, all are listed
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Explain the pair of the same shape that has another cause
    #[arg(long, requires = "name")]
    trap: bool,
    /// The C compiler
    #[arg(long, value_name = "PROGRAM", default_value = "cc")]
    cc: OsString,
    /// Build and stop: print where the two programs are, and their arguments
    #[arg(long, requires = "name")]
    build_only: bool,
    /// How many pairs of runs
    #[arg(long, value_name = "N", default_value = "20",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_PAIRS)))]
    pairs: u32,
}

pub fn run(args: &CaseArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    let cases = all()?;
    let Some(name) = &args.name else {
        return list(&cases, context);
    };
    let Some(case) = cases.iter().find(|c| c.id == name) else {
        let known: Vec<&str> = cases.iter().map(|c| c.id).collect();
        anyhow::bail!("there is no case `{name}`; the cases are: {}", known.join(", "));
    };
    match &case.definition.kind {
        Kind::Tree(_) if args.trap || args.build_only => {
            anyhow::bail!("`{name}` takes the source tree: it has no trap, and is not built here")
        }
        Kind::Tree(tree) => steps(case, tree, context),
        Kind::Gallery(pairs) => pair(case, pairs, args, context),
    }
}

/// Builds a pair, explains it, and ends with what that says about this machine.
fn pair(
    case: &'_ Case,
    pairs: &Gallery,
    args: &CaseArgs,
    context: &Context,
) -> anyhow::Result<Outcome> {
    let which = if args.trap { Which::Trap } else { Which::Case };
    let root = profile::cache_root().context(
        "there is no folder to build in: set XDG_CACHE_HOME or HOME to one that can be written",
    )?;
    let folder = root.join("cases").join(case.id);
    let programs = build::pair(case, (pairs, which), &args.cc, &folder)?;
    let arguments = &which.of(pairs).arguments;
    if args.build_only {
        return built(&programs, arguments, context);
    }
    if context.shows_screen() {
        let definition = &case.definition;
        terminal::print(&format!(
            "{}{}\n\n",
            wrap("", &paint(STRONG, &definition.question)),
            paint(FAINT, &definition.asked)
        ))?;
    }
    let settings = Settings {
        pairs: args.pairs,
        seed: context.seed(),
        cpus: processors(pairs.threads)?,
        input: None,
        ..Settings::default()
    };
    let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    let lines = programs.map(|program| CommandLine::new(program, arguments.clone()));
    let (explanation, mut text) =
        explain::explained(lines.into(), settings, Extent::default(), context)?;
    let shown = explain::screen(&explanation, &mut text);
    let report = CaseReport::of(case.id, (pairs, which), explanation);
    output::result(context, "case", &report)?;
    if context.shows_screen() {
        let last = paint(STRONG, wrap("", &report.sentence).trim_end());
        terminal::print(&format!("{shown}\n{last}\n"))?;
    }
    Ok(Outcome::Fine)
}

/// One processor, or as many as a program has threads.
fn processors(threads: usize) -> anyhow::Result<Option<Cpus>> {
    if threads == 1 {
        return Ok(default_cpu());
    }
    let allowed = allowed_cpus();
    let few = || format!("it takes {threads} processors, and {} are allowed", allowed.len());
    Cpus::last(threads, &allowed).with_context(few).map(Some)
}

fn built(
    programs: &[std::path::PathBuf; 2],
    arguments: &[String],
    context: &Context,
) -> anyhow::Result<Outcome> {
    if context.shows_screen() {
        let lines = programs.iter().map(|p| format!("{} {}\n", p.display(), arguments.join(" ")));
        terminal::print(&lines.collect::<String>())?;
    }
    let value = serde_json::json!({"programs": programs, "arguments": arguments});
    output::result(context, "case-build", &value)?;
    Ok(Outcome::Fine)
}

fn steps(case: &Case, tree: &Tree, context: &Context) -> anyhow::Result<Outcome> {
    if context.shows_screen() {
        let words = format!("{} It needs {}. There:", case.definition.question, tree.needs);
        let typed = tree.steps.join("\n  ");
        terminal::print(&format!("{}\n  {typed}\n", wrap("", &words)))?;
    }
    output::result(context, "case-steps", &tree.steps)?;
    Ok(Outcome::Fine)
}

fn list(cases: &[Case], context: &Context) -> anyhow::Result<Outcome> {
    if context.shows_screen() {
        let line = |c: &Case| format!("  {:<24}{}\n", c.id, c.definition.title);
        let of = |in_tree: bool| -> String {
            let is_asked = |c: &&Case| matches!(c.definition.kind, Kind::Tree(_)) == in_tree;
            cases.iter().filter(is_asked).map(line).collect()
        };
        terminal::print(&format!(
            "{}\n{}\n{}\n{}",
            paint(STRONG, "built and explained here"),
            of(false),
            paint(STRONG, "in the source tree"),
            of(true)
        ))?;
    }
    let row = |c: &Case| {
        let d = &c.definition;
        let is_built_here = matches!(d.kind, Kind::Gallery(_));
        serde_json::json!({"id": c.id, "title": d.title, "question": d.question, "asked": d.asked,
                           "is_built_here": is_built_here})
    };
    let rows: Vec<serde_json::Value> = cases.iter().map(row).collect();
    output::result(context, "cases", &rows)?;
    Ok(Outcome::Fine)
}
