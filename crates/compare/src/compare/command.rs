//! A command as it is to be run: program and arguments, variables, folder, and what is run around it.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::foreign;
use crate::run::child::{ChildError, Launch, resolve_on};

/// The most interpreters in a row, as for the kernel.
const MOST_INTERPRETERS: usize = 4;
/// What the kernel reads of a script's first line.
const LINE_BYTES: u64 = 255;

/// When something is run for a command, unmeasured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// Once, before everything else.
    Setup,
    /// Before every run.
    Prepare,
    /// During every run, against a server that is told to end behind it.
    Load,
    /// Behind every run.
    Conclude,
    /// Once, behind everything else.
    Cleanup,
}

impl Step {
    /// The option that names it.
    #[must_use]
    pub fn option(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Prepare => "prepare",
            Self::Load => "load",
            Self::Conclude => "conclude",
            Self::Cleanup => "cleanup",
        }
    }
}

/// A program and its arguments, and what they find when they are run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// The program as it was typed.
    pub program: OsString,
    /// Arguments of the program, its name not among them.
    pub args: Vec<OsString>,
    /// Variables that are set for it.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it starts; `None` for where we are.
    pub folder: Option<PathBuf>,
    /// Whether the program is a shell and its last argument the command that was typed.
    pub by_shell: bool,
    /// What is run around it.
    pub steps: Vec<(Step, CommandLine)>,
    /// The parameters that were filled in, by name.
    pub parameters: Vec<(String, String)>,
}

/// Words as they can be typed.
pub(super) fn as_typed(words: &[String]) -> String {
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
}

impl CommandLine {
    /// A program and its arguments, with nothing around it.
    pub fn new(program: impl Into<OsString>, args: Vec<OsString>) -> Self {
        Self { program: program.into(), args, ..Self::default() }
    }

    /// The words as they can be typed, for messages; the text that was typed where a shell runs it.
    #[must_use]
    pub fn display(&self) -> String {
        if let Some(typed) = self.args.last().filter(|_| self.by_shell) {
            return typed.to_string_lossy().into_owned();
        }
        as_typed(&self.words().collect::<Vec<_>>())
    }

    /// What is run around it at this step.
    pub(super) fn around(&self, step: Step) -> impl Iterator<Item = &Self> {
        self.steps.iter().filter(move |(when, _)| *when == step).map(|(_, around)| around)
    }

    /// Program and arguments as text.
    pub fn words(&self) -> impl Iterator<Item = String> {
        let words = std::iter::once(&self.program).chain(&self.args);
        words.map(|word| word.to_string_lossy().into_owned())
    }

    /// The shell that runs it, with nothing to do; `None` where no shell does.
    #[must_use]
    pub fn shell_alone(&self) -> Option<Self> {
        let (_, before) = self.args.split_last().filter(|_| self.by_shell)?;
        let args = before.iter().cloned().chain([OsString::new()]).collect();
        Some(Self { args, steps: Vec::new(), ..self.clone() })
    }

    /// The file that is executed: found as the command itself would find it, from its folder and on its `PATH`.
    ///
    /// # Errors
    /// [`ChildError::NotFound`] when there is none.
    pub fn resolve(&self) -> Result<PathBuf, ChildError> {
        let own = self.environment.iter().rev().find(|(name, _)| name == "PATH");
        let search = own.map(|(_, path)| path.clone()).or_else(|| std::env::var_os("PATH"));
        let Some(folder) = &self.folder else {
            return resolve_on(&self.program, search.as_deref());
        };
        let is_path = self.program.as_encoded_bytes().contains(&b'/');
        let here = folder.join(&self.program);
        let found = match is_path {
            true => resolve_on(here.as_os_str(), search.as_deref())?,
            false => resolve_on(&self.program, search.as_deref())?,
        };
        // The process that executes it is in another folder by then.
        Ok(std::path::absolute(&found).unwrap_or(found))
    }

    /// How it is started, with nothing to read, on any processor.
    ///
    /// # Errors
    /// As [`CommandLine::resolve`].
    pub fn launch(&self) -> Result<Launch, ChildError> {
        Ok(self.launch_of(self.resolve()?))
    }

    /// The same of a program that was found.
    pub(super) fn launch_of(&self, program: PathBuf) -> Launch {
        Launch {
            program,
            args: self.args.clone(),
            environment: self.environment.clone(),
            folder: self.folder.clone(),
            ..Launch::default()
        }
    }

    /// What the kernel executes for a script: its interpreter, with the script among the arguments; `env` in between is
    /// looked through. A program stays as it is, and so does what cannot be read.
    #[must_use]
    pub fn interpreted(self) -> Self {
        (0..MOST_INTERPRETERS).fold(self, |line, _| line.interpreter().unwrap_or(line))
    }

    fn interpreter(&self) -> Option<Self> {
        let script = self.resolve().ok()?;
        let mut head = Vec::new();
        foreign::open(&script).ok()?.take(LINE_BYTES).read_to_end(&mut head).ok()?;
        let first = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
        let first = std::str::from_utf8(first).ok()?.trim();
        if first.is_empty() {
            return None;
        }
        let (program, argument) = first.split_once([' ', '\t']).unwrap_or((first, ""));
        // The kernel makes one argument of the rest of the line, and so does `env` without `-S`.
        let argument = argument.trim();
        let mut words: Vec<OsString> = match argument.strip_prefix("-S") {
            Some(several) if is_env(program) => {
                several.split_whitespace().map(Into::into).collect()
            }
            _ => (!argument.is_empty()).then(|| argument.into()).into_iter().collect(),
        };
        let program = match is_env(program) {
            true if words.first().is_some_and(|word| is_a_name(word)) => words.remove(0),
            true => return None,
            false => program.into(),
        };
        words.push(script.into());
        words.extend(self.args.iter().cloned());
        Some(Self { program, args: words, ..self.clone() })
    }
}

fn is_env(program: &str) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == "env")
}

/// Neither an option of `env` nor a variable that it sets.
fn is_a_name(word: &OsStr) -> bool {
    let text = word.to_string_lossy();
    !text.starts_with('-') && !text.contains('=')
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_program_is_found_where_the_command_would_find_it() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("tool");
        fs::write(&program, "").unwrap();
        let line = |name: &str| CommandLine::new(name, vec![]);
        assert!(line("tool").resolve().is_err());
        let on_path = CommandLine {
            environment: vec![("PATH".into(), folder.path().into())],
            ..line("tool")
        };
        assert_eq!(on_path.resolve().unwrap(), program);
        let in_folder = CommandLine { folder: Some(folder.path().into()), ..line("./tool") };
        assert_eq!(fs::canonicalize(in_folder.resolve().unwrap()).unwrap(), program);
    }

    #[test]
    fn a_shell_alone_keeps_its_options_and_nothing_of_the_command() {
        let args = ["--norc", "-c", "a | b"].map(Into::into).into();
        let by_shell = CommandLine { by_shell: true, ..CommandLine::new("bash", args) };
        assert_eq!(by_shell.display(), "a | b");
        let alone = by_shell.shell_alone().unwrap();
        assert_eq!(alone.args, ["--norc", "-c", ""]);
        assert_eq!(CommandLine::new("bash", vec!["-c".into(), "a".into()]).shell_alone(), None);
    }

    #[test]
    fn a_script_is_what_its_interpreter_runs() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        let line = |text: &str| {
            fs::write(&script, text).unwrap();
            let typed = CommandLine::new(&script, vec!["7".into()]);
            let line = typed.interpreted();
            line.display().replace(&script.display().to_string(), "SCRIPT")
        };
        assert_eq!(line("#!/bin/sh\necho"), "/bin/sh SCRIPT 7");
        assert_eq!(line("#! /bin/sh -e -u \n"), "/bin/sh '-e -u' SCRIPT 7");
        assert_eq!(line("#!/usr/bin/env sh\n"), "sh SCRIPT 7");
        assert_eq!(line("#!/usr/bin/env -S sh -e\n"), "sh -e SCRIPT 7");
        // What `env` does beside looking for a program, we leave to it.
        for left in ["#!/usr/bin/env -i sh\n", "#!/usr/bin/env\n", "#!/usr/bin/env A=1 sh\n"] {
            assert_eq!(line(left), "SCRIPT 7");
        }
        for no_script in ["", "echo", "#!", "#!\n", "#! \n"] {
            let seen = line(no_script);
            assert_eq!(seen, "SCRIPT 7", "{no_script:?}");
        }
        // One argument, as the kernel has it.
        fs::write(&script, "#!/bin/sh -e -u\n").unwrap();
        let typed = CommandLine::new(&script, vec![]);
        assert_eq!(typed.interpreted().args[0], "-e -u");
        // A script that names itself ends somewhere.
        fs::write(&script, format!("#!{}\n", script.display())).unwrap();
        let typed = CommandLine::new(&script, vec![]);
        assert_eq!(typed.interpreted().args.len(), MOST_INTERPRETERS);
    }
}
