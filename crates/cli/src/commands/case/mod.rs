//! `stallscope case`: reproductions of the stories that stallscope came from.
//!
//! Some run inside this program, others are folders of the source tree with a script that builds
//! them, because they need compilers. [`CASES`] holds both.

mod decoders;
mod index_codec;
mod mesh;
mod screen;
mod upstream;

use std::path::PathBuf;

use clap::Args;

pub use index_codec::{CaseReport, MeshReport, ScanOfVariant, VariantReport};

use crate::context::{Context, Outcome};
use crate::terminal::{STRONG, paint};
use crate::{output, terminal};

const EXAMPLES: &str = "\
Examples:
  What cases there are
    stallscope case
  The index codec in ten variants, on generated meshes
    stallscope case index-codec
  And on a model of your own, with everything that was measured as JSON
    stallscope case index-codec --mesh dragon.ply --json case.json

Exit codes: 0 ran, 2 bad usage or input, 130 interrupted.";

/// Arguments of `case`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CaseArgs {
    /// The case to run; without it, all are listed
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// A model for index-codec: triangles as ASCII PLY or OBJ
    #[arg(long, value_name = "FILE")]
    mesh: Option<PathBuf>,
    /// Undisturbed rounds of index-codec; each runs every variant once
    #[arg(long, value_name = "N", default_value_t = 41, value_parser = clap::value_parser!(u32).range(6..=2000))]
    rounds: u32,
}

/// A reproduction.
pub trait Case: Sync {
    /// Its name on the command line and in the documentation.
    fn id(&self) -> &'static str;
    /// What it shows, in a few words.
    fn title(&self) -> &'static str;
    /// Runs it, or says how to.
    ///
    /// # Errors
    /// When the input or the machine does not allow it.
    fn run(&self, args: &CaseArgs, context: &Context) -> anyhow::Result<Outcome>;
}

/// All cases, by id.
pub static CASES: &[&dyn Case] = &[&index_codec::IndexCodec, &upstream::UpstreamIndexDecoder];

/// Runs the command.
pub fn run(args: &CaseArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    let Some(name) = &args.name else {
        return list(context);
    };
    let Some(case) = CASES.iter().find(|c| c.id() == name) else {
        let known: Vec<&str> = CASES.iter().map(|c| c.id()).collect();
        anyhow::bail!("there is no case `{name}`; the cases are: {}", known.join(", "));
    };
    case.run(args, context)
}

fn list(context: &Context) -> anyhow::Result<Outcome> {
    if context.shows_screen() {
        let mut text = paint(STRONG, "cases") + "\n";
        for case in CASES {
            text += &format!("  {:<24}{}\n", case.id(), case.title());
        }
        terminal::print(&text)?;
    }
    let row = |c: &&dyn Case| serde_json::json!({"id": c.id(), "title": c.title()});
    let rows: Vec<serde_json::Value> = CASES.iter().map(row).collect();
    output::json(context, "cases", &rows)?;
    Ok(Outcome::Fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_sorted_and_in_the_documentation() {
        let ids: Vec<_> = CASES.iter().map(|c| c.id()).collect();
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        let page = include_str!("../../../../../docs/case.md");
        for case in CASES {
            assert!(page.contains(case.id()), "docs/case.md lacks {}", case.id());
            assert!(case.title().len() <= 54, "{} does not fit", case.id());
        }
    }
}
