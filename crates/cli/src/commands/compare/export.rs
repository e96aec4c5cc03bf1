//! Files in the forms of hyperfine, as typed.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use stallscope::report::export::{self, Exported};

use super::write_text;
use crate::output;

#[derive(Debug, Args)]
#[command(next_help_heading = "Export")]
pub struct ExportArgs {
    /// Write all runs as the JSON that hyperfine exports (`-` for standard output)
    #[arg(long, value_name = "FILE")]
    export_json: Option<PathBuf>,
    /// Write means and ranges as CSV
    #[arg(long, value_name = "FILE")]
    export_csv: Option<PathBuf>,
    /// Write means and ranges as a table in Markdown
    #[arg(long, value_name = "FILE")]
    export_markdown: Option<PathBuf>,
}

impl ExportArgs {
    /// Refuses what cannot be written, before minutes are spent on its content.
    ///
    /// # Errors
    /// As [`output::check_target`].
    pub fn check(&self) -> anyhow::Result<()> {
        let all = [
            (&self.export_json, "--export-json"),
            (&self.export_csv, "--export-csv"),
            (&self.export_markdown, "--export-markdown"),
        ];
        for (path, option) in all {
            if let Some(path) = path.as_ref().filter(|path| path.as_os_str() != "-") {
                output::check_target(path).context(option)?;
            }
        }
        Ok(())
    }

    /// Writes what was asked for.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, commands: &[Exported]) -> anyhow::Result<()> {
        if let Some(path) = &self.export_json {
            write_text(path, &export::json(commands)?)?;
        }
        if let Some(path) = &self.export_csv {
            write_text(path, &export::csv(commands))?;
        }
        if let Some(path) = &self.export_markdown {
            write_text(path, &export::markdown(commands))?;
        }
        Ok(())
    }
}
