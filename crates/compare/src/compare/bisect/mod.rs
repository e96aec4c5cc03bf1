//! The first commit that is slower: `git bisect` with comparisons in place of an exit code.
//!
//! Every commit is compared with the build of the good one, interleaved, so that what the machine is like at the moment
//! is in both. A commit is good or bad where its whole interval lies on one side of a threshold, half of what was
//! measured between good and bad unless the user says otherwise. Where it does not, the same is asked anew with more
//! pairs, and in the end the commit is skipped, which git knows to live with. A search is only as right as its least sure
//! answer: where good and bad do not differ by more than the threshold to begin with, there is none.

mod bench;
mod repository;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    CompareError, Comparison, Decision, MAX_PAIRS, Measure, Metric, Settings, fingerprint,
};
use crate::run::child::ChildError;
pub use bench::ProcessBench;
use repository::Stand;
pub use repository::{Repository, bisect_folder};

/// How often a commit is compared before it is skipped, each time with twice the pairs.
const LOOKS: u32 = 3;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the parts are")]
pub enum BisectError {
    #[error("git {command}: {said}")]
    Git { command: String, said: String },
    #[error("{0}")]
    Commits(String),
    #[error("the {which} commit {commit} cannot be built: {why}")]
    Build { which: &'static str, commit: String, why: String },
    #[error(
        "the builds of good and bad do not differ by enough to search for it: {what} ({pairs} pairs); `compare` them, \
         raise --pairs, or choose other commits"
    )]
    NoDifference { what: String, pairs: u32 },
    #[error(
        "--threshold: {threshold:.1} % does not lie between nothing and the {measured:.1} % that good and bad differ by"
    )]
    Threshold { threshold: f64, measured: f64 },
    #[error("cannot read {path}: {cause}")]
    File { path: PathBuf, cause: std::io::Error },
    #[error("{0}")]
    Compare(#[from] CompareError),
    #[error("{0}")]
    Child(#[from] ChildError),
}

/// A commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Commit {
    /// Its full name.
    pub id: String,
    /// The first line of its message.
    pub subject: String,
}

impl Commit {
    /// Enough of its name to tell it by.
    #[must_use]
    pub fn short(&self) -> &str {
        self.id.get(..10).unwrap_or(&self.id)
    }
}

/// What is said of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Word {
    /// Its interval lies on the side of the good build.
    Good,
    /// Its interval lies on the side of the bad build.
    Bad,
    /// It could not be built or run, or not be told apart.
    Skipped,
}

/// A ratio of two builds as a log, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Span {
    /// Lower end.
    pub low_log: f64,
    /// Estimate.
    pub log_ratio: f64,
    /// Upper end.
    pub high_log: f64,
    /// Pairs behind it.
    pub pairs: u32,
}

impl Span {
    fn of(comparison: &Comparison) -> Self {
        let [low_log, log_ratio, high_log] = comparison.analysis.judged();
        let pairs = (comparison.samples.len() / 2) as u32;
        Self { low_log, log_ratio, high_log, pairs }
    }

    /// Which side of a threshold the whole interval lies on; `None` when it lies on both.
    fn side(&self, threshold_log: f64) -> Option<Word> {
        // Where the bad build is the faster one, the other way round.
        let (low, high) = match threshold_log < 0.0 {
            true => (-self.high_log, -self.low_log),
            false => (self.low_log, self.high_log),
        };
        match threshold_log.abs() {
            t if low > t => Some(Word::Bad),
            t if high < t => Some(Word::Good),
            _ => None,
        }
    }
}

/// One commit that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BisectStep {
    /// The commit.
    pub commit: Commit,
    /// What is said of it.
    pub word: Word,
    /// It over the good build; absent where it was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against_good: Option<Span>,
    /// Why it was skipped, or was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Since which commit it is slower, and how that was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bisection {
    /// How builds were compared; `pairs` is doubled where that does not decide.
    pub settings: Settings,
    /// The template of the build.
    pub build: String,
    /// The commit before the search.
    pub good: Commit,
    /// The commit behind it.
    pub bad: Commit,
    /// The bad build over the good one.
    pub difference: Span,
    /// What a commit must exceed to be bad (log); negative where the bad build is the faster one.
    pub threshold_log: f64,
    /// The commits that were looked at, in this order.
    pub steps: Vec<BisectStep>,
    /// The first bad commit; absent where it is one of `candidates`.
    pub first_bad: Option<Commit>,
    /// The first bad commit over the good build.
    pub against_good: Option<Span>,
    /// The first bad commit over its only parent, measured once more; absent where one of them has no build.
    pub against_parent: Option<Span>,
    /// Commits that the skipped ones leave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Commit>,
}

/// What the search tells on its way.
#[derive(Clone, Copy, Debug)]
pub enum BisectProgress<'a> {
    /// A commit is built.
    Building(&'a Commit),
    /// It is compared with so many pairs; git expects so many commits more.
    Comparing {
        /// The commit.
        commit: &'a Commit,
        /// Pairs of this comparison.
        pairs: u32,
        /// Commits that are about to follow.
        steps_left: u32,
    },
    /// It is judged.
    Judged(&'a BisectStep),
}

/// What builds commits and compares builds.
pub trait Bench {
    /// Builds what lies in a folder: the program, or why there is none.
    ///
    /// # Errors
    /// When nothing can be built at all, or the user stops it.
    fn build(
        &mut self,
        tree: &Path,
        commit: &Commit,
    ) -> Result<Result<PathBuf, String>, BisectError>;

    /// Compares two builds.
    ///
    /// # Errors
    /// What comparing says.
    fn compare(
        &mut self,
        builds: [&Path; 2],
        settings: &Settings,
    ) -> Result<Comparison, CompareError>;
}

/// Searches for the first bad commit. `threshold` is a share of the time, in the direction in which bad differs.
///
/// # Errors
/// When good or bad cannot be built or run, they do not differ by enough, or the user stops it.
pub fn bisect(
    repository: &Repository,
    bench: &mut dyn Bench,
    (settings, build, threshold): (&Settings, &str, Option<f64>),
    progress: &mut dyn FnMut(BisectProgress<'_>),
) -> Result<Bisection, BisectError> {
    let mut search = Search {
        repository,
        bench,
        settings: settings.clone(),
        progress,
        builds: HashMap::new(),
        seen: HashMap::new(),
        threshold_log: 0.0,
    };
    let (good, bad) = (&repository.good, &repository.bad);
    for (which, commit) in [("good", good), ("bad", bad)] {
        repository.check_out(commit)?;
        search.build(commit)?.map_err(|why| BisectError::Build {
            which,
            commit: commit.short().into(),
            why,
        })?;
    }
    let difference = search.difference(threshold)?;
    let mut found = Bisection {
        settings: search.settings.clone(),
        build: build.into(),
        good: good.clone(),
        bad: bad.clone(),
        difference,
        threshold_log: search.threshold_log,
        steps: Vec::new(),
        first_bad: None,
        against_good: None,
        against_parent: None,
        candidates: Vec::new(),
    };
    let mut stand = repository.start()?;
    loop {
        match stand {
            Stand::Next { commit, steps_left } => {
                let step = search.judge(&commit, steps_left)?;
                (search.progress)(BisectProgress::Judged(&step));
                stand = repository.mark(step.word)?;
                found.steps.push(step);
            }
            Stand::Among(commits) => {
                found.candidates = commits;
                break;
            }
            Stand::Found(commit) => {
                let own = found.steps.iter().find(|step| step.commit.id == commit.id);
                found.against_good = if commit.id == bad.id {
                    Some(difference)
                } else {
                    own.and_then(|s| s.against_good)
                };
                found.against_parent = search.against_parent(&commit)?;
                found.first_bad = Some(commit);
                break;
            }
        }
    }
    Ok(found)
}

struct Search<'a> {
    repository: &'a Repository,
    bench: &'a mut dyn Bench,
    settings: Settings,
    progress: &'a mut dyn FnMut(BisectProgress<'_>),
    /// The program of each commit.
    builds: HashMap<String, PathBuf>,
    /// What was said of the same bytes.
    seen: HashMap<(u64, String), BisectStep>,
    threshold_log: f64,
}

impl Search<'_> {
    fn build(&mut self, commit: &Commit) -> Result<Result<PathBuf, String>, BisectError> {
        (self.progress)(BisectProgress::Building(commit));
        let built = self.bench.build(self.repository.tree(), commit)?;
        if let Ok(program) = &built {
            self.builds.insert(commit.id.clone(), program.clone());
        }
        Ok(built)
    }

    fn compare(&mut self, ids: [&str; 2], pairs: u32) -> Result<Comparison, CompareError> {
        let [a, b] = ids.map(|id| self.builds[id].clone());
        let settings = Settings { pairs: pairs.min(MAX_PAIRS), ..self.settings.clone() };
        self.bench.compare([&a, &b], &settings)
    }

    /// How far good and bad lie apart, which gives the threshold and what all that follows is measured in.
    fn difference(&mut self, threshold: Option<f64>) -> Result<Span, BisectError> {
        let (good, bad) = (&self.repository.good, &self.repository.bad);
        let mut last = None;
        for look in 0..LOOKS {
            let pairs = self.settings.pairs << look;
            (self.progress)(BisectProgress::Comparing { commit: bad, pairs, steps_left: 0 });
            let comparison = self.compare([&good.id, &bad.id], pairs)?;
            let span = Span::of(&comparison);
            last = Some(span);
            let word = comparison.analysis.verdict.decision;
            if !matches!(word, Decision::Slower | Decision::Faster) {
                if word == Decision::Equivalent || super::are_identical(&comparison.arms) {
                    break;
                }
                continue;
            }
            let sign = span.log_ratio.signum();
            let asked = threshold.map(|share| sign * (sign * share).ln_1p().abs());
            self.threshold_log = asked.unwrap_or(span.log_ratio / 2.0);
            if self.threshold_log.abs() >= span.log_ratio.abs() {
                return Err(BisectError::Threshold {
                    threshold: 100.0 * threshold.unwrap_or_default(),
                    measured: 100.0 * span.log_ratio.exp_m1().abs(),
                });
            }
            if span.side(self.threshold_log) == Some(Word::Bad) {
                // One measure for all, whatever disturbs later.
                if self.settings.measure == Measure::Auto {
                    let is_cpu = comparison.analysis.metric() == Metric::Cpu;
                    self.settings.measure = if is_cpu { Measure::Cpu } else { Measure::Wall };
                }
                for (commit, word) in [(good, Word::Good), (bad, Word::Bad)] {
                    let step = BisectStep {
                        commit: commit.clone(),
                        word,
                        against_good: (word == Word::Bad).then_some(span),
                        why: None,
                    };
                    self.seen.insert(fingerprint_of(&self.builds[&commit.id])?, step);
                }
                return Ok(span);
            }
        }
        let what = last.map_or(String::new(), |s| {
            let [low, high] = [s.low_log, s.high_log].map(|log| 100.0 * log.exp_m1());
            format!("time changes by between {low:+.1} and {high:+.1} %")
        });
        Err(BisectError::NoDifference { what, pairs: last.map_or(0, |s| s.pairs) })
    }

    fn judge(&mut self, commit: &Commit, steps_left: u32) -> Result<BisectStep, BisectError> {
        let skipped = |why: String, against_good| BisectStep {
            commit: commit.clone(),
            word: Word::Skipped,
            against_good,
            why: Some(why),
        };
        let program = match self.build(commit)? {
            Ok(program) => program,
            Err(why) => return Ok(skipped(format!("it cannot be built: {why}"), None)),
        };
        let bytes = fingerprint_of(&program)?;
        if let Some(twin) = self.seen.get(&bytes) {
            let why = format!("the same program as {}", twin.commit.short());
            return Ok(BisectStep { commit: commit.clone(), why: Some(why), ..twin.clone() });
        }
        let mut last = None;
        for look in 0..LOOKS {
            let pairs = self.settings.pairs << look;
            (self.progress)(BisectProgress::Comparing { commit, pairs, steps_left });
            let comparison = match self.compare([&self.repository.good.id, &commit.id], pairs) {
                Ok(comparison) => comparison,
                // It is built and does not run, as other commits can.
                Err(cause @ (CompareError::Failed { .. } | CompareError::Program { .. })) => {
                    return Ok(skipped(format!("it does not run: {cause}"), None));
                }
                Err(cause) => return Err(cause.into()),
            };
            let span = Span::of(&comparison);
            if let Some(word) = span.side(self.threshold_log) {
                let step = BisectStep {
                    commit: commit.clone(),
                    word,
                    against_good: Some(span),
                    why: None,
                };
                self.seen.insert(bytes, step.clone());
                return Ok(step);
            }
            last = Some(span);
        }
        Ok(skipped("its interval lies on both sides of the threshold".into(), last))
    }

    fn against_parent(&mut self, commit: &Commit) -> Result<Option<Span>, BisectError> {
        let parents = self.repository.parents(commit)?;
        let [parent] = &parents[..] else { return Ok(None) };
        if !self.builds.contains_key(parent) || !self.builds.contains_key(&commit.id) {
            return Ok(None);
        }
        let pairs = self.settings.pairs;
        (self.progress)(BisectProgress::Comparing { commit, pairs, steps_left: 0 });
        Ok(Some(Span::of(&self.compare([parent, &commit.id], pairs)?)))
    }
}

fn fingerprint_of(program: &Path) -> Result<(u64, String), BisectError> {
    fingerprint::of_path(program).map_err(|cause| BisectError::File { path: program.into(), cause })
}

#[cfg(test)]
mod tests;
