//! `stallscope render`: a result that was kept as JSON, drawn as a page.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::Value;
use stallscope::foreign;
use stallscope::report::page::MOST_DOCUMENT_BYTES;

use crate::context::{Context, Outcome};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  Look at a result
    stallscope explain --json why.json ./before ./after -- input.bin
    stallscope render why.json --html why.html

Exit codes: 0 drawn, 2 bad usage, or no result that can be drawn.";

/// Arguments of `render`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RenderArgs {
    /// A result that `--json` of any command has written
    #[arg(value_name = "RESULT.json")]
    result: PathBuf,
}

/// Runs the command.
pub fn run(args: &RenderArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    let Some(path) = context.html() else { bail!("say where the page goes: --html FILE") };
    let name = || format!("cannot draw {}", args.result.display());
    let mut text = foreign::read_text(&args.result, MOST_DOCUMENT_BYTES).with_context(name)?;
    if context.redacts_args() {
        let mut value: Value = foreign::from_json(&text).with_context(name)?;
        output::redact(&mut value);
        text = value.to_string();
    }
    output::page(context, path, &text).with_context(name)?;
    Ok(Outcome::Fine)
}
