//! What can be wrong with a file of results; every sentence names the file and the place.

use super::Format;

/// Why results cannot be read or compared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResultError {
    /// The system does not give it to us.
    #[error("cannot read {path}: {cause}")]
    Unreadable {
        /// The file.
        path: String,
        /// What the system said.
        cause: std::io::Error,
    },
    /// Bytes that are no UTF-8.
    #[error(
        "{0} is no text: expected results of a benchmark (is it a program? then mark it executable)"
    )]
    NotText(String),
    /// The file has no measurement.
    #[error("{0} is empty: the benchmark wrote no results")]
    Empty(String),
    /// In no format that we know.
    #[error(
        "{0} is in no format that is read here: `go test -bench` text, google-benchmark, hyperfine or \
         `perf stat -j` JSON, `perf stat -x,`, CSV, a column of numbers, or a criterion folder"
    )]
    Unknown(String),
    /// JSON that breaks off or does not have the fields.
    #[error("{path} is not whole {what}: {cause}")]
    Json {
        /// The file.
        path: String,
        /// Name of the format.
        what: String,
        /// What the parser said, with line and column.
        cause: serde_json::Error,
    },
    /// A line that does not belong.
    #[error("{path}, line {line}: {what}")]
    Line {
        /// The file.
        path: String,
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it, and what was expected.
        what: String,
    },
    /// NaN, infinite or negative.
    #[error(
        "{path}, {place}: {value} is no amount; a measurement is a finite number of at least 0"
    )]
    Value {
        /// The file.
        path: String,
        /// Line or benchmark in the file.
        place: String,
        /// The value that stands there.
        value: f64,
    },
    /// An unknown unit of time.
    #[error("{path}, {place}: the unit `{unit}` is not known (ns, us, ms or s)")]
    Unit {
        /// The file.
        path: String,
        /// Line or benchmark in the file.
        place: String,
        /// The unit that stands there.
        unit: String,
    },
    /// One benchmark in units that do not convert.
    #[error("`{name}` is in {old} in one file and in {new} in the other; the same unit is needed")]
    MixedUnits {
        /// Name of the benchmark.
        name: String,
        /// The unit in the first file.
        old: String,
        /// The unit in the second.
        new: String,
    },
    /// The format is right, and there is not one sample.
    #[error("{path} ({format}) holds no result of any benchmark")]
    NoSamples {
        /// The file.
        path: String,
        /// What it was read as.
        format: Format,
    },
    /// Both names mean one file.
    #[error("{0} and {1} are the same file; give the results of two builds")]
    SameFile(String, String),
    /// Two files about different things.
    #[error("{old} and {new} have no benchmark in common ({old} has {first}, {new} has {second})")]
    NothingInCommon {
        /// The first file.
        old: String,
        /// The second file.
        new: String,
        /// An example from the first.
        first: String,
        /// An example from the second.
        second: String,
    },
}
