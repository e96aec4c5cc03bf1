//! `stallscope survey PROFILE...`, and `probe diff A B`, which is a survey of two: machine profiles side by side.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use stallscope::machine::PriceOrigin;
use stallscope::machine::survey::{Entry, Relation, Survey, SurveyRow};
use stallscope::report;

use crate::context::{Context, Outcome};
use crate::terminal::{CAUTION, FAINT, STRONG, break_at_spaces, paint, width, wrap};
use crate::{output, profile, terminal};

/// Columns of a row's name, and of what is known of one machine.
const NAME: usize = 32;
const CELL: usize = 24;

const EXAMPLES: &str = "\
Examples:
  What this machine charges, beside others
    stallscope probe --profile here.json
    stallscope survey here.json profiles/*.json
  As a table for a page
    stallscope survey --markdown profiles/*.json > survey.md

Exit codes: 0 shown, 2 bad usage, or a file that is no machine profile.";

/// Arguments of `survey`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SurveyArgs {
    /// Machine profiles, as `probe --profile FILE` writes them
    #[arg(value_name = "PROFILE", required = true)]
    profiles: Vec<PathBuf>,
    /// Print a table in Markdown
    #[arg(long)]
    markdown: bool,
}

pub fn run(args: &SurveyArgs, context: &Context) -> anyhow::Result<Outcome> {
    show(&args.profiles, args.markdown, "survey", context)
}

/// Puts the profiles in these files side by side; the JSON is of this kind.
pub fn show(
    files: &[PathBuf],
    markdown: bool,
    kind: &str,
    context: &Context,
) -> anyhow::Result<Outcome> {
    output::check(context)?;
    let load = |path: &PathBuf| {
        let missing = || format!("{}: no such machine profile", path.display());
        profile::read(path)?.with_context(missing)
    };
    let designs = files.iter().map(load).collect::<anyhow::Result<Vec<_>>>()?;
    print(&Survey::of(names(files).into_iter().zip(&designs)), markdown, kind, context)
}

/// Shows the survey, and writes it where `--json` and `--html` say.
pub fn print(
    survey: &Survey,
    markdown: bool,
    kind: &str,
    context: &Context,
) -> anyhow::Result<Outcome> {
    if context.shows_screen() {
        terminal::print(&match markdown {
            true => report::markdown::survey(survey),
            false => screen(survey),
        })?;
    }
    output::result(context, kind, survey)?;
    Ok(Outcome::Fine)
}

/// The names of the files without their endings; where two are alike, all with their folders.
fn names(files: &[PathBuf]) -> Vec<String> {
    let short = |path: &PathBuf| path.file_stem().map(|stem| Path::new(stem).display().to_string());
    let names: Option<Vec<String>> = files.iter().map(short).collect();
    let is_unique = |names: &Vec<String>| {
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort_unstable();
        sorted.windows(2).all(|pair| pair[0] != pair[1])
    };
    let in_full = || files.iter().map(|path| path.display().to_string()).collect();
    names.filter(is_unique).unwrap_or_else(in_full)
}

fn screen(survey: &Survey) -> String {
    let of = |relation| survey.rows.iter().filter(move |row| row.relation == relation);
    let [apart, alike, unknown] = [Relation::Apart, Relation::Alike, Relation::Unknown]
        .map(|relation| of(relation).collect::<Vec<&SurveyRow>>());
    let machines = survey.machines.len();
    let known = || format!("{} facts of one machine: nothing to compare", unknown.len());
    let compared = || {
        format!(
            "{}: of {machines} machines {} facts differ, {} are alike, {} are known of fewer than two",
            if apart.is_empty() { "the same" } else { "apart" },
            apart.len(),
            alike.len(),
            unknown.len()
        )
    };
    let sentence = if machines == 1 { known() } else { compared() };
    let mut text = wrap("survey   ", &sentence);
    text += &paint(
        FAINT,
        wrap("         ", "measured there, with its interval, unless another source is named"),
    );
    let columns = ((width() - NAME) / CELL).max(1);
    for first in (0..machines).step_by(columns) {
        let shown = first..machines.min(first + columns);
        for (title, rows) in [("apart", &apart), ("alike", &alike), ("known of one", &unknown)] {
            let is_known =
                |row: &&&SurveyRow| row.machines[shown.clone()].iter().any(Option::is_some);
            let mut rows = rows.iter().filter(is_known).peekable();
            if rows.peek().is_none() {
                continue;
            }
            let style = if title == "apart" { CAUTION } else { STRONG };
            let head = cells(title, survey.machines[shown.clone()].iter().map(String::as_str));
            text += &format!("\n{}", paint(style, head));
            for row in rows {
                let entries = row.machines[shown.clone()].iter().map(Option::as_ref);
                let entries: Vec<String> = entries.map(words).collect();
                text += &cells(&row.id, entries.iter().map(String::as_str));
            }
        }
    }
    text
}

/// What is known of one machine, and its source where that is no probe.
fn words(entry: Option<&Entry>) -> String {
    let Some(entry) = entry else { return "-".to_owned() };
    match &entry.origin {
        Some(PriceOrigin::Documented { .. }) => format!("{} (documented)", entry.text),
        Some(PriceOrigin::Assumed) => format!("{} (assumed)", entry.text),
        _ => entry.text.clone(),
    }
}

/// A line of the table; of several lines where words do not fit into their columns.
fn cells<'a>(name: &str, entries: impl Iterator<Item = &'a str>) -> String {
    let within = |text: &str, width: usize| -> Vec<String> {
        let lines = textwrap::wrap(text, break_at_spaces(width).break_words(true));
        lines.into_iter().map(String::from).collect()
    };
    let mut columns = vec![(NAME, within(name, NAME - 2))];
    columns.extend(entries.map(|entry| (CELL, within(entry, CELL - 1))));
    let height = columns.iter().map(|(_, lines)| lines.len()).max().unwrap_or(0);
    let line = |nth: usize| {
        let cell = |(width, lines): &(usize, Vec<String>)| {
            let width = *width;
            format!("{:<width$}", lines.get(nth).map_or("", String::as_str))
        };
        columns.iter().map(cell).collect::<String>().trim_end().to_owned() + "\n"
    };
    (0..height).map(line).collect()
}

#[cfg(test)]
mod tests {
    use stallscope::machine::{Design, Microarchitecture};

    use super::*;

    #[test]
    fn a_name_that_two_files_have_is_told_apart_by_its_folder() {
        let of = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(names(&of(&["a/zen.json", "b/lake.json"])), ["zen", "lake"]);
        assert_eq!(names(&of(&["a/zen.json", "b/zen.json"])), ["a/zen.json", "b/zen.json"]);
    }

    #[test]
    fn machines_stand_side_by_side() {
        let kinds =
            [Microarchitecture::CascadeLake, Microarchitecture::Zen5, Microarchitecture::Zen4];
        let designs = kinds.map(Design::of);
        let named = designs.iter().map(|d| (d.microarchitecture.slug(), d));
        insta::assert_snapshot!(terminal::plain(&screen(&Survey::of(named))));
    }
}
