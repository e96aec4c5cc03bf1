//! What can be held against numbers that others measured.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reach::BUSY_SHARE;
use super::units::is_timed;
use super::{Format, ResultFile, Series};
use crate::compare::verdict::Decision;
use crate::stats::ranks::{correlation_p, spearman};
use crate::stats::robust::sorted;
use crate::stats::student::mean_and_sd;

/// Below this p-value a drift is mentioned; low, because many series are looked at.
const ALARM_P: f64 = 0.001;
/// Samples from which a shape can be seen.
const SHAPE_SAMPLES: usize = 10;
/// Distance of two humps, in standard deviations of a hump, from which they are called two; halves
/// of one normal hump are 2.7 apart, of a flat one 3.5.
const TWO_HUMPS: f64 = 5.0;
/// Smallest share of samples in a hump.
const HUMP_SHARE: f64 = 0.15;
/// Samples from which shapes are judged by a part of them.
const MOST_SAMPLES: usize = 100_000;

/// Something to know before believing it. [`std::fmt::Display`] says it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Threat {
    /// All of OLD ran before all of NEW, or nothing says otherwise.
    SequentialOrder {
        /// Whether the tool is known to run one after the other.
        certain: bool,
    },
    /// The samples of a series move with their order.
    Drift {
        /// Name of the series.
        name: String,
        /// File that the series is from.
        file: String,
        /// Rank correlation of value and order.
        spearman: f64,
    },
    /// Each file is about one build, so code and layout cannot be told apart.
    OneLayout,
    /// The file keeps a mean and no samples.
    NoRawSamples {
        /// Name of the series.
        name: String,
    },
    /// Too few samples for a test at 5 %.
    TooFew {
        /// Name of the series.
        name: String,
        /// Number of samples in OLD and NEW.
        samples: [usize; 2],
    },
    /// The samples lie around two centres.
    Bimodal {
        /// Name of the series.
        name: String,
        /// File that the series is from.
        file: String,
        /// The two centres, lower first.
        centres: [f64; 2],
        /// Share of samples in the upper hump.
        upper_share: f64,
    },
    /// Every sample is the same.
    NoVariance {
        /// Name of the series.
        name: String,
        /// File that the series is from.
        file: String,
    },
    /// Samples of one process are not independent.
    OneProcess,
    /// The files say that circumstances differ.
    Circumstances {
        /// Circumstance that differs, such as the processor.
        key: String,
        /// Its value in OLD.
        old: String,
        /// Its value in NEW.
        new: String,
    },
    /// Both files hold the same bytes.
    SameContent,
    /// Real time is far above processor time.
    MostlyWaiting {
        /// Name of the series.
        name: String,
        /// File that the series is from.
        file: String,
        /// Which part of the real time was on the processor.
        cpu_share: f64,
    },
    /// Something in the file says that the work was not done, so nothing measured there is called anything.
    Failed {
        /// Name of the benchmark; absent where it is about the whole file.
        name: Option<String>,
        /// The file.
        file: String,
        /// What the file says.
        what: String,
    },
    /// A line of results breaks off.
    CutOff {
        /// The file.
        file: String,
        /// Number of the line, from 1.
        line: usize,
    },
    /// More wanted the processors than there are while a file was measured, so no time is called worse or better.
    Busy {
        /// The file.
        file: String,
        /// Its highest load average.
        load: f64,
        /// Processors of the machine.
        processors: f64,
    },
    /// What the files cannot show is as large as the difference, so that it is called neither worse nor better.
    Explained {
        /// Name of the series.
        name: String,
        /// NEW over OLD (log).
        change_log: f64,
        /// Up to where a difference is explained (log).
        explained_log: f64,
    },
}

impl std::fmt::Display for Threat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::SequentialOrder { certain: true } => f.write_str(
                "sequential order: this tool runs all of one and then all of the other, so a machine \
                 that drifts looks like an effect (54-83 false alarms in 100)",
            ),
            Self::SequentialOrder { certain: false } => f.write_str(
                "sequential order: nothing in the files says that runs were interleaved; if all of OLD \
                 ran first, a machine that drifts looks like an effect",
            ),
            Self::Drift { name, file, spearman } => write!(
                f,
                "drift: the samples of {name} in {file} move with their order (rank correlation \
                 {spearman:+.2}), so the machine changed while it was measured"
            ),
            Self::OneLayout => f.write_str(
                "one layout: these are runs of one build each, and placement alone moves programs by \
                 1-3 %; `stallscope sweep --layouts` tells code from placement",
            ),
            Self::NoRawSamples { name } => write!(
                f,
                "no raw samples: {name} is a mean without its runs, so only a test that trusts normal \
                 noise is possible, and outliers cannot be seen"
            ),
            Self::TooFew { name, samples: [old, new] } => write!(
                f,
                "too few: {name} has {old} and {new} samples; a rank test needs 4 on each side to reach \
                 5 %, an interval 6"
            ),
            Self::Bimodal { name, file, centres: [low, high], upper_share } => write!(
                f,
                "bimodal: {name} in {file} has two humps, around {low:.4} and {high:.4} ({:.0} % of the \
                 samples); a median hides which one changed",
                100.0 * upper_share
            ),
            Self::NoVariance { name, file } => write!(
                f,
                "no variance: all samples of {name} in {file} are equal; a count, a coarse timer or a \
                 copy, and no test says anything about it"
            ),
            Self::OneProcess => f.write_str(
                "one process: the samples come from one process each, which has one placement of stack \
                 and heap; they agree with each other more than with the next process",
            ),
            Self::Circumstances { key, old, new } => {
                write!(f, "circumstances: {key} was `{old}` and is `{new}`")
            }
            Self::MostlyWaiting { name, file, cpu_share } => write!(
                f,
                "waiting: {name} in {file} was on the processor for {:.0} % of its real time; what it waited \
                 for, a busy machine among it, is in the figure",
                100.0 * cpu_share
            ),
            Self::Failed { name: Some(name), file, what } => {
                write!(f, "failed: {name} in {file}: {what}; what fails takes another time")
            }
            Self::Failed { name: None, file, what } => {
                write!(f, "failed: {file}: {what}; what fails takes another time")
            }
            Self::CutOff { file, line } => {
                write!(f, "cut off: line {line} of {file} has no value and is left out")
            }
            Self::Busy { file, load, processors } => write!(
                f,
                "busy: the load average in {file} is {load:.1} on {processors} processors; what waits for one is \
                 slowed down without a bound, so no time is called worse or better"
            ),
            Self::Explained { name, change_log, explained_log } => write!(
                f,
                "explained: {name} changes by {:+.1} %, and what moved while it was measured, one process, or \
                 waiting can make {:.1} %: neither worse nor better; measure in turns (`stallscope compare` \
                 of the programs)",
                100.0 * change_log.exp_m1(),
                100.0 * explained_log.exp_m1()
            ),
            Self::SameContent => f.write_str(
                "same content: both files hold the same bytes; one is a copy of the other",
            ),
        }
    }
}

impl Threat {
    /// Whether it alone takes a word about this row back.
    pub(super) fn holds(&self, word: Decision, names: [&String; 2], unit: &str) -> bool {
        match self {
            Self::Failed { name, .. } => name.as_ref().is_none_or(|name| names.contains(&name)),
            Self::Busy { .. } => is_timed(unit) && word != Decision::Equivalent,
            _ => false,
        }
    }
}

/// Configuration that says where and how, not what was measured.
const CIRCUMSTANCES: [&str; 18] = [
    "cpu",
    "goos",
    "goarch",
    "host_name",
    "library_build_type",
    "library_version",
    "executable_cpu_scaling",
    "toolchain",
    "GOMAXPROCS",
    "jdkVersion",
    "vmName",
    "node",
    "python_version",
    "python_implementation",
    "cpu_model_name",
    "hostname",
    "ProcessorName",
    "RuntimeVersion",
];

/// Whether both are of one file ([`super::halves`]) whose runs took turns.
pub(super) fn halves_that_took_turns(old: &ResultFile, new: &ResultFile) -> bool {
    old.interleaved && new.interleaved && old.digest.abs_diff(new.digest) == 1
}

pub(super) fn of_files(old: &ResultFile, new: &ResultFile) -> Vec<Threat> {
    let mut threats = Vec::new();
    if old.digest == new.digest {
        threats.push(Threat::SameContent);
    }
    let certain = matches!(
        old.format,
        Format::Hyperfine
            | Format::Criterion
            | Format::Pyperf
            | Format::Jmh
            | Format::BenchmarkDotNet
    );
    if !halves_that_took_turns(old, new) {
        threats.push(Threat::SequentialOrder { certain });
    }
    threats.push(Threat::OneLayout);
    if old.one_process || new.one_process {
        threats.push(Threat::OneProcess);
    }
    threats.extend(old.threats.iter().chain(&new.threats).cloned());
    for key in CIRCUMSTANCES {
        if let (Some(a), Some(b)) = (old.config.get(key), new.config.get(key))
            && a != b
        {
            threats.push(Threat::Circumstances { key: key.into(), old: a.clone(), new: b.clone() });
        }
    }
    threats
}

pub(super) fn of_series(old: (&ResultFile, &Series), new: (&ResultFile, &Series)) -> Vec<Threat> {
    let name = || old.1.name.clone();
    let samples = [old.1.values.len(), new.1.values.len()];
    if samples.contains(&0) {
        return vec![Threat::NoRawSamples { name: name() }];
    }
    let mut threats = Vec::new();
    // A count of allocations that never changes needs no more samples.
    let varies = |s: &Series| s.values.iter().any(|v| *v != s.values[0]);
    if samples.iter().any(|n| *n < 4) {
        threats.push(Threat::TooFew { name: name(), samples });
    }
    for (file, series) in [old, new] {
        if !varies(series) {
            if is_timed(&series.unit) && series.values.len() > 1 {
                threats.push(Threat::NoVariance { name: name(), file: file.path.clone() });
            }
            continue;
        }
        if let Some(cpu_share) = series.cpu_share.filter(|share| *share < BUSY_SHARE) {
            let (name, file) = (name(), file.path.clone());
            threats.push(Threat::MostlyWaiting { name, file, cpu_share });
        }
        threats.extend(drift(file, series));
        threats.extend(humps(file, series));
    }
    threats
}

fn drift(file: &ResultFile, series: &Series) -> Option<Threat> {
    if series.values.len() < SHAPE_SAMPLES {
        return None;
    }
    let values = thinned(&series.values);
    let order: Vec<f64> = (0..values.len()).map(|i| i as f64).collect();
    let r = spearman(&order, &values);
    // With thousands of samples the faintest trend is significant; it has to matter as well.
    (correlation_p(r, values.len()) < ALARM_P && r.abs() > 0.2).then(|| Threat::Drift {
        name: series.name.clone(),
        file: file.path.clone(),
        spearman: r,
    })
}

/// Splits the sorted samples where the two parts are most compact (Otsu), and asks how far apart
/// their centres are in terms of their own spread.
fn humps(file: &ResultFile, series: &Series) -> Option<Threat> {
    two_centres(&series.values).map(|(centres, upper_share)| Threat::Bimodal {
        name: series.name.clone(),
        file: file.path.clone(),
        centres,
        upper_share,
    })
}

/// The centres of two humps and the share of the upper one, where there are two.
pub(super) fn two_centres(values: &[f64]) -> Option<([f64; 2], f64)> {
    if values.len() < SHAPE_SAMPLES {
        return None;
    }
    let ascending = sorted(&thinned(values));
    let n = ascending.len();
    let total: f64 = ascending.iter().sum();
    let mut below = 0.0;
    let mut best = (0.0, 0);
    for (i, value) in ascending.iter().enumerate().take(n - 1) {
        below += value;
        let (left, right) = ((i + 1) as f64, (n - i - 1) as f64);
        let distance = below / left - (total - below) / right;
        let between = left * right * distance * distance;
        if between > best.0 {
            best = (between, i + 1);
        }
    }
    let (lower, upper) = ascending.split_at(best.1);
    let share = upper.len() as f64 / n as f64;
    if !(HUMP_SHARE..=1.0 - HUMP_SHARE).contains(&share) {
        return None;
    }
    let ((low, sd_low), (high, sd_high)) = (mean_and_sd(lower), mean_and_sd(upper));
    let spread = ((sd_low * sd_low + sd_high * sd_high) / 2.0).sqrt();
    (high - low > TWO_HUMPS * spread).then_some(([low, high], share))
}

/// Every k-th sample, so that a shape is seen in time.
fn thinned(values: &[f64]) -> Vec<f64> {
    values.iter().copied().step_by(values.len().div_ceil(MOST_SAMPLES).max(1)).collect()
}
