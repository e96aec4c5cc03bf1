//! What can go wrong while two commands are run side by side.

use std::path::PathBuf;

use super::files::FileRole;
use super::measure::MeasureError;
use super::schedule::Arm;
use crate::trace::child::ChildError;

/// Why a comparison has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// The program of one arm is missing or is no program.
    #[error("arm {arm}: {cause}{seems}")]
    Program {
        /// Arm whose run failed.
        arm: Arm,
        /// Why the process did not start or end.
        cause: ChildError,
        /// What the file seems to be; starts with a separator, or is empty.
        seems: String,
    },
    /// The program file of one arm cannot be read.
    #[error("arm {arm}: cannot read {path}: {cause}")]
    Unreadable {
        /// Arm whose run failed.
        arm: Arm,
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The program of one arm is a directory or a device.
    #[error("arm {arm}: {path} is {what}, not a program")]
    NoProgram {
        /// Arm whose run failed.
        arm: Arm,
        /// Path as the user named it.
        path: PathBuf,
        /// What it is, with its article.
        what: &'static str,
    },
    /// One arm failed by itself.
    #[error(
        "arm {arm} failed: `{command}`: {status}{seems} (to compare failing commands, add \
         --ignore-failure){said}"
    )]
    Failed {
        /// Arm whose run failed.
        arm: Arm,
        /// Command line of the run.
        command: String,
        /// Exit code or signal, in words.
        status: String,
        /// What is odd about the program file; starts with a separator, or is empty.
        seems: String,
        /// The last lines of its standard error; starts with a separator, or is empty.
        said: String,
    },
    /// One arm did not end in time.
    #[error("arm {arm}: {cause}")]
    Child {
        /// Arm whose run failed.
        arm: Arm,
        /// What the child process reported.
        cause: ChildError,
    },
    /// The number that the verdict is about was not printed.
    #[error("arm {arm}: {what}")]
    Printed {
        /// Arm whose run failed.
        arm: Arm,
        /// Why the run has no amount.
        what: MeasureError,
    },
    /// A file that the runs rest on is no longer the one that it was.
    #[error(
        "arm {arm}: {role}, {path}, was replaced or written while it was being compared: the runs are \
         not all of one thing, so nothing follows from them; let whatever writes it end, then \
         compare again"
    )]
    Replaced {
        /// Arm whose run failed.
        arm: Arm,
        /// What it is to the run.
        role: FileRole,
        /// The file.
        path: PathBuf,
    },
    /// The user asked us to stop.
    #[error("interrupted")]
    Interrupted,
    /// A processor was asked for that this process may not use.
    #[error("logical processor {cpu} is not available (choose one of {allowed}, or `none`)")]
    NoSuchCpu {
        /// Number of the processor that was asked for.
        cpu: usize,
        /// What may be asked for.
        allowed: String,
    },
    /// What the verdict is to be about does not exist here.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// A setting that makes no sense.
    #[error("{0}")]
    Settings(String),
    /// Samples that do not form pairs of positive times.
    #[error("the samples cannot be analysed: {0}")]
    Samples(String),
}
