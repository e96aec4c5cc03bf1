//! `stallscope explain`

use clap::Args;

use crate::context::{Context, Outcome};

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {}

/// Runs the command.
pub fn run(_args: &ExplainArgs, _context: &Context) -> anyhow::Result<Outcome> {
    Ok(Outcome::Fine)
}
