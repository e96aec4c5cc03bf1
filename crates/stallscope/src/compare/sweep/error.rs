//! What can go wrong in a sweep.

use std::path::PathBuf;

use crate::compare::MeasureError;
use crate::trace::child::ChildError;

/// Why a sweep has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SweepError {
    /// An axis without a name, without values, or twice.
    #[error("axis `{name}`: {what}")]
    Axis {
        /// Name of the axis.
        name: String,
        /// Why it is refused.
        what: String,
    },
    /// A template with a name in braces that is not defined.
    #[error(
        "`{{{name}}}` in `{template}` is no axis (known: {known}); write `{{{{{name}}}}}` for the \
         braces themselves"
    )]
    Placeholder {
        /// The name that is not defined.
        name: String,
        /// Template that holds the name.
        template: String,
        /// Names that are defined.
        known: String,
    },
    /// A template that cannot be split into words, or is empty.
    #[error("the run template `{0}` is empty or has a quote that is not closed")]
    RunTemplate(String),
    /// A file is built and not run, or run and not built.
    #[error("{0}")]
    Templates(String),
    /// Not one variant could be built.
    #[error("no variant could be built; the first failure: {0}")]
    NothingBuilt(String),
    /// All placements of a variant are the same bytes.
    #[error(
        "the {layouts} layouts of {variant} are the same file: the knob `{knob}` does not reach the \
         linker; put `{{layout}}` into --build where flags go, or choose another --knob"
    )]
    KnobWithoutEffect {
        /// Variant in words.
        variant: String,
        /// Number of layouts that were asked for.
        layouts: u32,
        /// Knob that was asked for.
        knob: String,
    },
    /// A file in the cache is no longer the one that was built.
    #[error(
        "{0} was replaced or written after it was built: nothing follows from its runs; sweep again, \
         and let nothing else write into that folder"
    )]
    Replaced(PathBuf),
    /// A cell does not run.
    #[error("{cell} does not run: `{command}`: {what}")]
    Run {
        /// Variant and layout in words.
        cell: String,
        /// Command that was run.
        command: String,
        /// How the command failed.
        what: String,
    },
    /// A run has nothing of what the answer is about.
    #[error("{cell}: {what}")]
    Unmeasured {
        /// Variant and layout in words.
        cell: String,
        /// Why the run has no amount.
        what: MeasureError,
    },
    /// What the answer should be about does not exist here.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// A child could not be started or watched.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// A file of the cache cannot be read or written.
    #[error("cannot use {path}: {cause}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The sources are too many to fingerprint.
    #[error("{0}")]
    Sources(String),
    /// The user asked us to stop.
    #[error("interrupted")]
    Interrupted,
}
