//! `stallscope case`: reproductions of the stories that stallscope came from.
//!
//! Each is a folder of the source tree, because it takes compilers; the command says what to type
//! there.

use clap::Args;

use crate::context::{Context, Outcome};
use crate::output;
use crate::terminal::{self, STRONG, paint, wrap};

const EXAMPLES: &str = "\
Examples:
  What cases there are
    stallscope case
  How to run one of them
    stallscope case upstream-index-decoder

Exit codes: 0 fine, 2 bad usage.";

/// Arguments of `case`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CaseArgs {
    /// The case to run; without it, all are listed
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

/// A reproduction: the folder `cases/<id>` of the source tree.
pub struct Case {
    /// Its name on the command line and in the documentation.
    pub id: &'static str,
    /// What it shows, in a few words.
    pub title: &'static str,
    /// What happens and what it needs, before the steps.
    words: &'static str,
    /// Commands, to be typed where the source tree is.
    steps: &'static [&'static str],
}

pub static CASES: &[Case] = &[
    Case {
        id: "index-codec",
        title: "a decoder in ten variants, two of them with a conflict",
        words: "ten decoders of one format are timed, and scan finds the two that load wide what was \
                stored narrow; it needs Rust and the source tree of stallscope. There:",
        steps: &["cargo run --release -p index-codec-case"],
    },
    Case {
        id: "upstream-index-decoder",
        title: "meshoptimizer's decoder by clang 16 and clang 19",
        words: "one decoder runs at half its speed because a compiler merged two loads; it needs \
                clang 16, clang 19 and the source tree of stallscope. There:",
        steps: &[
            "cases/upstream-index-decoder/build.sh",
            "stallscope explain cases/upstream-index-decoder/build/decoder-clang-19 \\\n    \
             cases/upstream-index-decoder/build/decoder-clang-16 -- strips",
        ],
    },
];

pub fn run(args: &CaseArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    let Some(name) = &args.name else {
        return list(context);
    };
    let Some(case) = CASES.iter().find(|c| c.id == name) else {
        let known: Vec<&str> = CASES.iter().map(|c| c.id).collect();
        anyhow::bail!("there is no case `{name}`; the cases are: {}", known.join(", "));
    };
    if context.shows_screen() {
        terminal::print(&format!("{}\n  {}\n", wrap("", case.words), case.steps.join("\n  ")))?;
    }
    output::result(context, "case-steps", &case.steps)?;
    Ok(Outcome::Fine)
}

fn list(context: &Context) -> anyhow::Result<Outcome> {
    if context.shows_screen() {
        let mut text = paint(STRONG, "cases") + "\n";
        for case in CASES {
            text += &format!("  {:<24}{}\n", case.id, case.title);
        }
        terminal::print(&text)?;
    }
    let row = |c: &Case| serde_json::json!({"id": c.id, "title": c.title});
    let rows: Vec<serde_json::Value> = CASES.iter().map(row).collect();
    output::result(context, "cases", &rows)?;
    Ok(Outcome::Fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_sorted_documented_and_name_a_folder() {
        let ids: Vec<_> = CASES.iter().map(|c| c.id).collect();
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        let page = include_str!("../../../../docs/case.md");
        let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../../cases");
        for case in CASES {
            assert!(page.contains(case.id), "docs/case.md lacks {}", case.id);
            assert!(case.title.len() <= 54, "{} does not fit", case.id);
            assert!(
                std::path::Path::new(cases).join(case.id).is_dir(),
                "{} has no folder",
                case.id
            );
        }
    }
}
