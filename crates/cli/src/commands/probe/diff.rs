//! `stallscope probe diff A B`: two machine profiles side by side.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use stallscope::machine::diff::{DiffRow, Entry, Relation, diff};

use super::page::{LABEL, Page};
use crate::context::{Context, Outcome};
use crate::terminal::{CAUTION, FAINT, STRONG, paint};
use crate::{output, profile, terminal};

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// First machine profile, as `probe` wrote it
    a: PathBuf,
    /// Second machine profile
    b: PathBuf,
}

#[derive(Serialize)]
struct SideBySide<'a> {
    files: [&'a PathBuf; 2],
    rows: &'a [DiffRow],
}

pub fn run(args: &DiffArgs, context: &Context) -> anyhow::Result<Outcome> {
    let load = |path: &PathBuf| {
        let missing = || format!("{}: no such machine profile", path.display());
        profile::read(path)?.with_context(missing)
    };
    let rows = diff(&load(&args.a)?, &load(&args.b)?);
    if context.shows_screen() {
        terminal::print(&screen(args, &rows))?;
    }
    output::result(context, "probe-diff", &SideBySide { files: [&args.a, &args.b], rows: &rows })?;
    Ok(Outcome::Fine)
}

fn screen(args: &DiffArgs, rows: &[DiffRow]) -> String {
    let mut page = Page::default();
    page.line("A", &args.a.display().to_string());
    page.line("B", &args.b.display().to_string());
    let of = |relation| rows.iter().filter(move |r| r.relation == relation);
    let unknown: Vec<&str> = of(Relation::Unknown).map(|r| r.id.as_str()).collect();
    for (label, relation) in [("apart", Relation::Apart), ("alike", Relation::Alike)] {
        page.blank();
        let head = format!("{label:<LABEL$}{}", of(relation).count());
        let style = if relation == Relation::Apart { CAUTION } else { STRONG };
        page.text += &format!("{}\n", paint(style, head));
        for row in of(relation) {
            page.line("", &row.id);
            side(&mut page, "  A", row.a.as_ref());
            if row.relation == Relation::Apart || row.a != row.b {
                side(&mut page, "  B", row.b.as_ref());
            }
        }
    }
    if !unknown.is_empty() {
        page.blank();
        let words = "missing or only assumed on one side:";
        page.line("unknown", &format!("{words} {}", unknown.join(", ")));
    }
    page.text
}

fn side(page: &mut Page, label: &str, entry: Option<&Entry>) {
    let Some(entry) = entry else { return };
    let origin = entry.origin.as_ref().map_or(String::new(), |origin| format!(" ({origin})"));
    page.line(label, &format!("{}{}", entry.text, paint(FAINT, origin)));
}
