//! Man pages and shell completions, from the one definition of the arguments.

use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;
use stallscope_cli::args::Cli;

fn make(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// Writes `stallscope.1` and one page per subcommand, such as `stallscope-scan.1`.
pub fn man_pages(folder: &Path) -> anyhow::Result<()> {
    make(folder)?;
    clap_mangen::generate_to(Cli::command(), folder)
        .with_context(|| format!("cannot write man pages to {}", folder.display()))
}

/// Writes the completions of three shells, each under the name that the shell looks for.
pub fn completions(folder: &Path) -> anyhow::Result<()> {
    make(folder)?;
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut Cli::command(), "stallscope", folder)
            .with_context(|| format!("cannot write the completions of {shell}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_arguments_is_sound() {
        Cli::command().debug_assert();
    }
}
