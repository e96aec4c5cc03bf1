//! `stallscope list`

use clap::Args;

use crate::context::{Context, Outcome};

/// Arguments of `list`.
#[derive(Debug, Args)]
pub struct ListArgs {}

/// Runs the command.
pub fn run(_args: &ListArgs, _context: &Context) -> anyhow::Result<Outcome> {
    Ok(Outcome::Fine)
}
