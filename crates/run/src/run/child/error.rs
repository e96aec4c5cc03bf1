//! Why a child could not be started or did not end by itself.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;

/// Why a child could not be started or did not end by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum ChildError {
    /// The program is not where it was said to be, nor on `PATH`.
    #[error("no such program: {0}")]
    NotFound(PathBuf),
    #[error("the name of the program is empty (is a variable of the shell not set?)")]
    NoName,
    #[error("{path} cannot be executed: {cause}{hint}")]
    NotExecutable {
        path: PathBuf,
        cause: io::Error,
        /// What to do about it; starts with a separator, or is empty.
        hint: &'static str,
    },
    /// What is run around the runs of a command did not run, or failed.
    #[error("--{step} `{command}` {what}{said}")]
    Step {
        /// The option that names it.
        step: &'static str,
        command: String,
        /// How it ended.
        what: String,
        /// The last lines of its standard error; starts with a separator, or is empty.
        said: String,
    },
    #[error("there is no folder {0} to run in")]
    NoFolder(PathBuf),
    #[error("cannot read {path} as standard input: {cause}")]
    Input { path: PathBuf, cause: io::Error },
    #[error(
        "our standard input {0}: write it to a file and use --input FILE, or < /dev/null if nothing is read"
    )]
    OwnInput(&'static str),
    #[error("an argument of {0} holds a zero byte, which no command line can carry")]
    ZeroByte(PathBuf),
    /// It ran past its limit and was killed, with everything it had started.
    #[error(
        "{path} did not end within {limit:?} and was killed (raise --timeout if it needs longer)"
    )]
    TimedOut { path: PathBuf, limit: Duration },
    /// The user asked us to stop; the child was killed.
    #[error("interrupted")]
    Interrupted,
    /// The operating system failed us: no processes, descriptors or memory left.
    #[error("cannot {action}: {cause}")]
    System { action: &'static str, cause: io::Error },
}

pub(super) fn system(action: &'static str) -> impl Fn(Errno) -> ChildError {
    move |errno| ChildError::System { action, cause: errno.into() }
}

/// The exec failed: the kernel's word for it, and what to do.
pub(super) fn not_executable(path: &Path, errno: Errno) -> ChildError {
    if errno == Errno::ENOENT && !path.exists() {
        return ChildError::NotFound(path.into());
    }
    let hint = match errno {
        Errno::EACCES => " (is it a program, and marked executable?)",
        Errno::ENOEXEC => " (not a program for this machine; a script needs a #! line)",
        Errno::ENOENT => " (its interpreter or dynamic loader is missing)",
        _ => "",
    };
    ChildError::NotExecutable { path: path.into(), cause: errno.into(), hint }
}

/// Lines of a failed program's standard error that are shown.
const SHOWN_LINES: usize = 5;

/// The last lines that a command said, behind a separator; empty where it said nothing.
#[must_use]
pub fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
    // Control characters of the program must not reach the user's terminal.
    let clean = |line: &&str| line.replace(char::is_control, " ");
    match shown {
        [] => String::new(),
        shown => {
            format!("; it said:\n  {}", shown.iter().map(clean).collect::<Vec<_>>().join("\n  "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_short_and_harmless() {
        let text = last_lines("1\n2\n3\n4\n5\n6\n\x1b[31m7\n\n");
        assert!(!text.contains('2') && !text.contains('\x1b') && text.contains('7'), "{text}");
        assert_eq!(last_lines("\n"), "");
    }
}
