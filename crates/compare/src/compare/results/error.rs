//! What can be wrong with a file of results; every sentence names the file and the place.

use super::Format;

/// Why results cannot be read or compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum ResultError {
    #[error("cannot read {path}: {cause}")]
    Unreadable { path: String, cause: std::io::Error },
    #[error(
        "{0} is no text: expected results of a benchmark (is it a program? then mark it executable)"
    )]
    NotText(String),
    #[error("{0} is empty: the benchmark wrote no results")]
    Empty(String),
    #[error(
        "{0} is in no format that is read here: `go test -bench` text; google-benchmark, hyperfine, JMH, \
         pytest-benchmark, pyperf, BenchmarkDotNet or `perf stat -j` JSON; google-benchmark CSV, `perf \
         stat -x,`, CSV, a column of numbers, or a criterion folder"
    )]
    Unknown(String),
    /// JSON that breaks off or does not have the fields.
    #[error("{path} is not whole {what}: {cause}")]
    Json {
        path: String,
        what: String,
        /// What the parser said, with line and column.
        cause: serde_json::Error,
    },
    #[error("{path}, line {line}: {what}")]
    Line {
        path: String,
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it, and what was expected.
        what: String,
    },
    #[error(
        "{path}, {place}: {value} is no amount; a measurement is a finite number of at least 0"
    )]
    Value { path: String, place: String, value: f64 },
    #[error("{path}, {place}: the unit `{unit}` is not known (ns, us, ms or s)")]
    Unit { path: String, place: String, unit: String },
    #[error("`{name}` is in {old} in one file and in {new} in the other; the same unit is needed")]
    MixedUnits { name: String, old: String, new: String },
    #[error(
        "`{name}` is there {in_old} times in {old} and {in_new} times in {new}, so nobody can tell which belong \
         together; give every benchmark a name of its own"
    )]
    Repeated { name: String, old: String, in_old: usize, new: String, in_new: usize },
    /// The format is right, and there is not one sample.
    #[error("{path} ({format}) holds no result of any benchmark{why}")]
    NoSamples {
        path: String,
        format: Format,
        /// What the file says of it, in brackets, or nothing.
        why: String,
    },
    /// One file, and not two commands in it.
    #[error(
        "{path} ({format}) holds {commands} series: one file alone is compared when it is of hyperfine and \
         holds two commands; give OLD and NEW"
    )]
    NotTwo { path: String, format: Format, commands: usize },
    #[error("{0} and {1} are the same file; give the results of two builds")]
    SameFile(String, String),
    #[error("{old} and {new} have no benchmark in common ({old} has {first}, {new} has {second})")]
    NothingInCommon { old: String, new: String, first: String, second: String },
}
