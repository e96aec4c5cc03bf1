//! `stallscope man` and `stallscope completions`: both from the one definition of the arguments.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::args::Cli;
use crate::context::{Context, Outcome};
use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  Read it
    stallscope man | man -l -
  Install the page of every command
    stallscope man --dir ~/.local/share/man/man1";

const COMPLETION_EXAMPLES: &str = "\
Where shells look for them:
  stallscope completions bash > ~/.local/share/bash-completion/completions/stallscope
  stallscope completions zsh > ~/.zfunc/_stallscope        (a folder in $fpath)
  stallscope completions fish > ~/.config/fish/completions/stallscope.fish";

/// Arguments of `man`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ManArgs {
    /// Write a page for every command into this folder, such as stallscope-scan.1
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = COMPLETION_EXAMPLES)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the page of the whole program, or writes one for every command.
pub fn man(args: &ManArgs, _: &Context) -> anyhow::Result<Outcome> {
    match &args.dir {
        Some(folder) => pages(folder)?,
        None => {
            let mut page = Vec::new();
            let command = Cli::command().disable_help_subcommand(true);
            clap_mangen::Man::new(command).render(&mut page)?;
            terminal::print(&String::from_utf8(page)?)?;
        }
    }
    Ok(Outcome::Fine)
}

fn pages(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    clap_mangen::generate_to(Cli::command(), folder)
        .with_context(|| format!("cannot write man pages to {}", folder.display()))
}

/// Prints the completions of a shell.
pub fn completions(args: &CompletionsArgs, _: &Context) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "stallscope", &mut script);
    terminal::print(&String::from_utf8(script)?)?;
    Ok(Outcome::Fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_arguments_is_sound() {
        Cli::command().debug_assert();
    }
}
