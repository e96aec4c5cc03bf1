//! What can go wrong while two commands are run side by side.

use std::path::PathBuf;

use super::files::FileRole;
use super::measure::MeasureError;
use super::schedule::Arm;
use crate::run::child::ChildError;

/// Why a comparison has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum CompareError {
    /// The program of one arm is missing or is no program.
    #[error("arm {arm}: {cause}{seems}")]
    Program {
        arm: Arm,
        /// Why the process did not start or end.
        cause: ChildError,
        /// What the file seems to be; starts with a separator, or is empty.
        seems: String,
    },
    /// The program file of one arm cannot be read.
    #[error("arm {arm}: cannot read {path}: {cause}")]
    Unreadable { arm: Arm, path: PathBuf, cause: std::io::Error },
    /// The program of one arm is a directory or a device.
    #[error("arm {arm}: {path} is {what}, not a program")]
    NoProgram { arm: Arm, path: PathBuf, what: &'static str },
    #[error(
        "arm {arm} failed: `{command}`: {status}{seems} (to compare failing commands, add \
         --ignore-failure){said}"
    )]
    Failed {
        arm: Arm,
        command: String,
        status: String,
        /// What is odd about the program file; starts with a separator, or is empty.
        seems: String,
        /// The last lines of its standard error; starts with a separator, or is empty.
        said: String,
    },
    /// What is left behind the start of the shell is nothing.
    #[error(
        "arm {arm}: `{command}` takes no longer than the {:.2} ms that its shell takes to start, so nothing can be \
         said of it: give it more to do, or run one program without a shell (-N)",
        *start_ns as f64 / 1e6
    )]
    ShorterThanShell { arm: Arm, command: String, start_ns: u64 },
    #[error("arm {arm}: {cause}")]
    Child { arm: Arm, cause: ChildError },
    /// The number that the verdict is about was not printed.
    #[error("arm {arm}: {what}")]
    Printed { arm: Arm, what: MeasureError },
    /// A file that the runs rest on is no longer the one that it was.
    #[error(
        "arm {arm}: {role}, {path}, was replaced or written while it was being compared: the runs are \
         not all of one thing, so nothing follows from them; let whatever writes it end, then \
         compare again"
    )]
    Replaced { arm: Arm, role: FileRole, path: PathBuf },
    #[error("interrupted")]
    Interrupted,
    /// A processor was asked for that this process may not use.
    #[error("logical processor {cpu} is not available (choose one of {allowed}, or `none`)")]
    NoSuchCpu {
        /// Number of the processor that was asked for.
        cpu: usize,
        allowed: String,
    },
    /// What the verdict is to be about does not exist here.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    #[error("{0}")]
    Settings(String),
    /// Samples that do not form pairs of positive times.
    #[error("the samples cannot be analysed: {0}")]
    Samples(String),
}
