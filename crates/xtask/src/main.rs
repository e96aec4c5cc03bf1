//! Makes what is generated from one definition: JSON Schemas, the page of measured machines, the book; and simulates what no desk has: a fleet.
//!
//! Schemas are committed, because other programs read them from the tree; `check` fails when they
//! no longer match the types.

mod book;
mod fleet;
mod machines;
mod schemas;
mod truth;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

/// Helper tasks of this repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Tasks {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Write the generated files that are kept in the tree
    Generate,
    /// Fail when a generated file in the tree is not what `generate` would write, or a link in a page leads nowhere
    Check,
    /// Put all pages together in target/book, for mdBook
    Book,
    /// Count how often probes are right, alone and beside busy loops
    ProbeTruth {
        /// The program, built for release
        stallscope: PathBuf,
        /// The processor on which everything runs
        #[arg(long, default_value = "0")]
        cpu: String,
        /// Runs of all probes in each state
        #[arg(long, default_value_t = 10)]
        runs: usize,
    },
    /// Write what a large fleet would send back, join it, and count how often its intervals are right
    SimulateFleet(fleet::Size),
    /// Join a folder of `simulate-fleet` and say what that took
    #[command(hide = true)]
    CollectFleet { folder: PathBuf },
}

fn main() -> ExitCode {
    match run(&Tasks::parse().task) {
        Ok(code) => code,
        Err(error) => {
            say(&format!("xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(task: &Task) -> anyhow::Result<ExitCode> {
    let root = root()?;
    match task {
        Task::Generate => {
            schemas::generate(&root.join("schema"))?;
            write(&root.join(machines::PAGE), &machines::page(&root)?)?;
        }
        Task::Check => {
            let mut stale = schemas::stale(&root.join("schema"))?;
            let kept = std::fs::read_to_string(root.join(machines::PAGE)).unwrap_or_default();
            if kept != machines::page(&root)? {
                stale.push(machines::PAGE.to_owned());
            }
            if !stale.is_empty() {
                let names = stale.join(", ");
                say(&format!("xtask: out of date: {names}; run `cargo xtask generate`"));
                return Ok(ExitCode::FAILURE);
            }
            let broken = book::Pages::read(&root)?.broken(&root);
            if !broken.is_empty() {
                say(&format!("xtask: links that lead nowhere:\n  {}", broken.join("\n  ")));
                return Ok(ExitCode::FAILURE);
            }
        }
        Task::Book => book::Pages::read(&root)?.assemble(&root)?,
        Task::SimulateFleet(size) => fleet::run(size)?,
        Task::CollectFleet { folder } => fleet::collected(folder)?,
        Task::ProbeTruth { stallscope, cpu, runs } => truth::run(stallscope, cpu, *runs)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The repository's root, wherever the task was called from.
fn root() -> anyhow::Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().nth(2).context("the crate was moved")?;
    Ok(root.to_owned())
}

/// Writes a file, and its folder if need be.
fn write(path: &Path, content: &str) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
    }
    std::fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

fn say(line: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{line}");
}
