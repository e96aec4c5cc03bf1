//! What can go wrong in a sweep.

use std::path::PathBuf;

use crate::compare::{CompareError, MeasureError};
use crate::run::child::ChildError;

/// Why a sweep has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum SweepError {
    /// An axis without a name, without values, or twice.
    #[error("axis `{name}`: {what}")]
    Axis { name: String, what: String },
    /// A template with a name in braces that is not defined.
    #[error(
        "`{{{name}}}` in `{template}` is no axis (known: {known}); write `{{{{{name}}}}}` for the \
         braces themselves"
    )]
    Placeholder { name: String, template: String, known: String },
    /// A template that cannot be split into words, or is empty.
    #[error("the run template `{0}` is empty or has a quote that is not closed")]
    RunTemplate(String),
    /// A file is built and not run, or run and not built.
    #[error("{0}")]
    Templates(String),
    #[error("no variant could be built; the first failure: {0}")]
    NothingBuilt(String),
    /// All placements of a variant are the same bytes.
    #[error(
        "the {layouts} layouts of {variant} are the same file: the knob `{knob}` does not reach the \
         linker; put `{{layout}}` into --build where flags go, or choose another --knob"
    )]
    KnobWithoutEffect { variant: String, layouts: u32, knob: String },
    /// A file in the cache is no longer the one that was built.
    #[error(
        "{0} was replaced or written after it was built: nothing follows from its runs; sweep again, \
         and let nothing else write into that folder"
    )]
    Replaced(PathBuf),
    #[error("{cell} does not run: `{command}`: {what}")]
    Run { cell: String, command: String, what: String },
    /// A run has nothing of what the answer is about.
    #[error("{cell}: {what}")]
    Unmeasured { cell: String, what: MeasureError },
    /// What the answer should be about does not exist here.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// A child could not be started or watched.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// A file of the cache cannot be read or written.
    #[error("cannot use {path}: {cause}")]
    File { path: PathBuf, cause: std::io::Error },
    /// The runs of earlier sweeps cannot be read.
    #[error("cannot go on from {path}: {cause}; --fresh forgets the runs of earlier sweeps")]
    Journal { path: PathBuf, cause: std::io::Error },
    /// A block that does not fit together, or not on this machine.
    #[error("this block cannot be run: {0}")]
    Block(String),
    /// A file of a block is missing here, or has other bytes.
    #[error("{0} is not the file that was planned: nothing was run")]
    OtherFile(PathBuf),
    /// What came back belongs to no plan, or to several.
    #[error("{0}")]
    Results(String),
    #[error("{0}")]
    Sources(String),
    /// What a comparison of given commands fails with.
    #[error(transparent)]
    Compare(Box<CompareError>),
    #[error("interrupted")]
    Interrupted,
}

impl From<CompareError> for SweepError {
    fn from(cause: CompareError) -> Self {
        Self::Compare(Box::new(cause))
    }
}
