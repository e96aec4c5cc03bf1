//! Real builds and real runs for a bisection.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::{Bench, BisectError, Commit};
use crate::compare::sweep::fill;
use crate::compare::{CommandLine, CompareError, Comparison, ProcessRunner, Settings, compare};
use crate::foreign::plain;
use crate::run::child::{Child, ChildError, Launch, Limits};

/// Builds by a template, and runs what it leaves.
#[derive(Debug)]
pub struct ProcessBench<'a> {
    /// The build, for a shell in the worktree; `{out}` is where it puts the program.
    pub template: &'a str,
    /// Arguments, variables and folder of the program.
    pub line: CommandLine,
    /// Where programs are kept.
    pub folder: PathBuf,
    /// Set from outside (Ctrl-C) to stop.
    pub interrupt: &'a AtomicBool,
}

impl Bench for ProcessBench<'_> {
    fn build(
        &mut self,
        tree: &Path,
        commit: &Commit,
    ) -> Result<Result<PathBuf, String>, BisectError> {
        let program = self.folder.join(commit.short());
        let unquotable =
            |_| BisectError::Commits("no shell can be given the temporary folder".into());
        let text = program.to_string_lossy();
        let quoted = shlex::try_quote(&text).map_err(unquotable)?;
        let command = fill(self.template, &[("out", &quoted)])
            .map_err(|cause| BisectError::Commits(format!("--build: {cause}")))?;
        let launch = Launch { folder: Some(tree.into()), ..Launch::shell(command) };
        let limits = Limits { timeout: None, interrupt: self.interrupt };
        let exit = Child::hold(&launch).and_then(|child| child.wait(&limits));
        let exit = exit.map_err(|cause| match cause {
            ChildError::Interrupted => CompareError::Interrupted.into(),
            other => BisectError::Child(other),
        })?;
        if !exit.status.success() {
            let told = plain(exit.stderr.complaint().unwrap_or("it says nothing"));
            return Ok(Err(format!("{}: {told}", exit.status)));
        }
        Ok(match fs::metadata(&program) {
            Ok(meta) if meta.is_file() && meta.len() > 0 => Ok(program),
            _ => Err("the build ended well and wrote nothing to {out}".into()),
        })
    }

    fn compare(
        &mut self,
        builds: [&Path; 2],
        settings: &Settings,
    ) -> Result<Comparison, CompareError> {
        let line = |program: &Path| CommandLine { program: program.into(), ..self.line.clone() };
        let limits = settings.limits(self.interrupt);
        let mut runner = ProcessRunner::new(builds.map(line), limits)?.measuring(settings)?;
        compare(&mut runner, settings, &mut |_| {})
    }
}
