//! `stallscope render`: a result that was kept as JSON, drawn as a page, or one of its charts as a picture.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::Value;
use stallscope::foreign;
use stallscope::report;
use stallscope::report::page::{self, MOST_DOCUMENT_BYTES};

use crate::context::{Context, Outcome};
use crate::output;

const EXAMPLES: &str = "\
Examples:
  Look at a result
    stallscope explain --json why.json ./before ./after -- input.bin
    stallscope render why.json --html why.html
  The flame graph of the difference as a picture
    stallscope render why.json --svg why.svg --chart flame

Exit codes: 0 drawn, 2 bad usage, or no result that can be drawn.";

/// Arguments of `render`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RenderArgs {
    /// A result that `--json` of any command has written
    #[arg(value_name = "RESULT.json")]
    result: PathBuf,
    /// Write one chart as an SVG file that needs nothing else
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Which chart: the first one whose caption has these words (`flame`, `pairs`, `runs` of a comparison)
    #[arg(long, value_name = "WORDS", requires = "svg")]
    chart: Option<String>,
}

/// Runs the command.
pub fn run(args: &RenderArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    match &args.svg {
        None if context.html().is_none() => {
            bail!("say where the page goes: --html FILE, or a chart of it: --svg FILE")
        }
        Some(path) if path == Path::new("-") => bail!("--svg -: a chart goes to a file; name one"),
        Some(path) => output::check_target(path).context("--svg")?,
        None => {}
    }
    let name = || format!("cannot draw {}", args.result.display());
    let mut text = foreign::read_text(&args.result, MOST_DOCUMENT_BYTES).with_context(name)?;
    if context.redacts_args() {
        let mut value: Value = foreign::from_json(&text).with_context(name)?;
        output::redact(&mut value);
        text = value.to_string();
    }
    if let Some(path) = &args.svg {
        let svg = page::svg(&text, args.chart.as_deref()).with_context(name)?;
        report::write_file(path, &svg)?;
    }
    if let Some(path) = context.html() {
        output::page(context, path, &text).with_context(name)?;
    }
    Ok(Outcome::Fine)
}
