//! Each arm as a command, as typed: its words or its shell, its variables and folder, and what is run around it. Names
//! and meanings are those of hyperfine.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use stallscope::compare::{CommandLine, Step};

use super::words;

/// What runs a command when no other shell is named.
const DEFAULT_SHELL: &str = "/bin/sh";

#[derive(Debug, Args)]
#[command(next_help_heading = "Commands")]
pub struct ArmArgs {
    /// Arguments for all
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<OsString>,
    /// The first command, in place of BEFORE
    #[arg(short = 'a', value_name = "CMD", requires = "b")]
    pub a: Option<OsString>,
    /// The second command, in place of AFTER
    #[arg(short = 'b', value_name = "CMD", requires = "a")]
    pub b: Option<OsString>,
    /// Set a variable for all commands (may be given again)
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(OsString, OsString)>,
    /// Set a variable for the first command
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env_a: Vec<(OsString, OsString)>,
    /// Set a variable for the second command
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env_b: Vec<(OsString, OsString)>,
    /// Start all commands in this folder
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Start the first command in this folder
    #[arg(long, value_name = "DIR")]
    dir_a: Option<PathBuf>,
    /// Start the second command in this folder
    #[arg(long, value_name = "DIR")]
    dir_b: Option<PathBuf>,
    /// Let this shell run the commands (`bash`, `bash --norc`; `default` is /bin/sh, `none` is -N) [default: /bin/sh for
    /// those that need one, none for the others]
    #[arg(long, short = 'S', value_name = "SHELL")]
    shell: Option<String>,
    /// Run the commands without a shell, whatever is in them
    #[arg(short = 'N', conflicts_with = "shell")]
    no_shell: bool,
    /// Run CMD before each run, unmeasured: once for all commands, or given once for each
    #[arg(long, short = 'p', value_name = "CMD")]
    prepare: Vec<OsString>,
    /// Run CMD against each run, a server, once it waits for work; then SIGTERM ends the server. Wall time is that of CMD
    #[arg(long, value_name = "CMD")]
    load: Vec<OsString>,
    /// Run CMD behind each run, unmeasured, likewise
    #[arg(long, short = 'C', value_name = "CMD")]
    conclude: Vec<OsString>,
    /// Run CMD once before the runs of each command, likewise
    #[arg(long, short = 's', value_name = "CMD")]
    setup: Vec<OsString>,
    /// Run CMD once behind the runs of each command, likewise
    #[arg(long, short = 'c', value_name = "CMD")]
    cleanup: Vec<OsString>,
    /// Make N unmeasured runs of each before; one at least is always made
    #[arg(long, short = 'w', value_name = "N", default_value_t = 1, hide_default_value = true)]
    pub warmup: u32,
}

impl ArmArgs {
    /// What was typed as the two commands of `-a` and `-b`.
    pub fn named(&self) -> Option<[OsString; 2]> {
        Some([self.a.clone()?, self.b.clone()?])
    }

    /// The commands that were typed, with what belongs to each; what is run around them is `filled` in.
    ///
    /// # Errors
    /// When a quote is not closed, a command is empty, or what is for each command is not given for each.
    pub fn lines(
        &self,
        typed: &[OsString],
        filled: &dyn Fn(&OsStr) -> OsString,
    ) -> anyhow::Result<Vec<CommandLine>> {
        (0..typed.len()).map(|n| self.line(&typed[n], n, typed.len(), filled)).collect()
    }

    fn line(
        &self,
        typed: &OsStr,
        n: usize,
        of: usize,
        filled: &dyn Fn(&OsStr) -> OsString,
    ) -> anyhow::Result<CommandLine> {
        let own = |both: [&Option<PathBuf>; 2]| both.get(n).and_then(|dir| (*dir).clone());
        let folder = own([&self.dir_a, &self.dir_b]).or_else(|| self.dir.clone());
        let more = [&self.env_a, &self.env_b].get(n).map_or(&[][..], |own| &own[..]);
        let environment: Vec<_> = self.env.iter().chain(more).cloned().collect();
        let here = CommandLine { folder, environment, ..CommandLine::default() };
        let mut steps = Vec::new();
        let all = [
            (Step::Setup, &self.setup),
            (Step::Prepare, &self.prepare),
            (Step::Load, &self.load),
            (Step::Conclude, &self.conclude),
            (Step::Cleanup, &self.cleanup),
        ];
        for (step, given) in all {
            let typed = match &given[..] {
                [] => continue,
                [one] => one,
                many if many.len() == of => &many[n],
                many => bail!(
                    "--{} is given {} times for {of} commands: give it once for all or once for each",
                    step.option(),
                    many.len()
                ),
            };
            let line = self.words_of(&filled(typed), &[], &here);
            steps.push((step, line.with_context(|| format!("--{}", step.option()))?));
        }
        Ok(CommandLine { steps, ..self.words_of(typed, &self.args, &here)? })
    }

    /// One command, by a shell or by its own words.
    fn words_of(
        &self,
        typed: &OsStr,
        args: &[OsString],
        here: &CommandLine,
    ) -> anyhow::Result<CommandLine> {
        let shell = match self.shell.as_deref() {
            _ if self.no_shell => None,
            Some("none") => None,
            Some("default") => Some(DEFAULT_SHELL),
            Some(shell) => Some(shell),
            None => words::needs_shell(typed).then_some(DEFAULT_SHELL),
        };
        let Some(shell) = shell else {
            let mut words = words::split(typed)?.into_iter();
            let program = words.next().unwrap_or_default();
            let args = words.chain(args.iter().cloned()).collect();
            return Ok(CommandLine { program, args, ..here.clone() });
        };
        if typed.to_string_lossy().trim().is_empty() {
            bail!("an empty command: name a program");
        }
        let mut words = words::split(OsStr::new(shell)).context("--shell")?.into_iter();
        let program = words.next().unwrap_or_default();
        let command = words::with_args(typed, args)?;
        let args = words.chain(["-c".into(), command]).collect();
        Ok(CommandLine { program, args, by_shell: true, ..here.clone() })
    }
}

fn variable(text: &str) -> Result<(OsString, OsString), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("write NAME=VALUE".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Typed {
        commands: Vec<OsString>,
        #[command(flatten)]
        arms: ArmArgs,
    }

    fn lines(typed: &[&str]) -> anyhow::Result<Vec<CommandLine>> {
        let typed = Typed::parse_from([&["x"], typed].concat());
        typed.arms.lines(&typed.commands, &OsStr::to_owned)
    }

    #[test]
    fn a_shell_runs_what_needs_one_and_nothing_else() {
        let shown = |typed: &[&str]| {
            let line = lines(typed).unwrap().remove(0);
            assert_eq!(line.by_shell, line.program == DEFAULT_SHELL || line.program == "bash");
            line.words().collect::<Vec<_>>().join("·")
        };
        assert_eq!(shown(&["grep 'a b' f"]), "grep·a b·f");
        assert_eq!(shown(&["a | b"]), "/bin/sh·-c·a | b");
        assert_eq!(shown(&["-N", "a | b"]), "a·|·b");
        assert_eq!(shown(&["--shell=none", "a *"]), "a·*");
        assert_eq!(shown(&["--shell", "default", "a b"]), "/bin/sh·-c·a b");
        assert_eq!(shown(&["-S", "bash --norc", "f"]), "bash·--norc·-c·f");
        assert_eq!(shown(&["a *", "--", "b c", "d"]), "/bin/sh·-c·a * 'b c' d");
        assert_eq!(shown(&["a", "--", "b c"]), "a·b c");
        for empty in [&[" "][..], &["-S", "bash", ""], &["a", "--setup", ""]] {
            assert!(format!("{:#}", lines(empty).unwrap_err()).contains("empty command"));
        }
    }

    #[test]
    fn what_is_for_all_and_what_is_for_one_meet_in_each() {
        let typed = ["a", "b", "--env", "X=1", "--env-b", "X=2", "--dir-a", "d", "--dir", "e"];
        let both = lines(&[&typed[..], &["-p", "rm -f x", "-s", "s; t"]].concat()).unwrap();
        let values = |line: &CommandLine| {
            line.environment.iter().map(|(_, v)| v.clone()).collect::<Vec<_>>()
        };
        assert_eq!(
            (values(&both[0]), values(&both[1])),
            (vec!["1".into()], vec!["1".into(), "2".into()])
        );
        assert_eq!(both[0].folder, Some("d".into()));
        assert_eq!(both[1].folder, Some("e".into()));
        let [(first, setup), (second, prepare)] = &both[1].steps[..] else { panic!("two steps") };
        assert_eq!((*first, *second), (Step::Setup, Step::Prepare));
        assert!(setup.by_shell && !prepare.by_shell);
        assert_eq!(values(prepare), values(&both[1]));
        let each = lines(&["a", "b", "-p", "one", "-p", "two"]).unwrap();
        assert_eq!(each[1].steps[0].1.program, "two");
        let wrong = lines(&["a", "b", "c", "-p", "one", "-p", "two"]).unwrap_err().to_string();
        assert!(wrong.contains("--prepare is given 2 times for 3 commands"), "{wrong}");
    }
}
