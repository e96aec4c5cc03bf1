//! The hot code of a run: what the rules find in it, and what the run counts of that.
//!
//! A finding is a shape, and most shapes never run. So a command is sampled, the files in which it spends its time
//! (libraries included) are scanned where they are hot, and windows that are spread over the run are followed,
//! instruction by instruction. What is told happened: loads were blocked by stores in flight, accesses crossed the end of a
//! line, loads met a store in the low bits of its address only, a loop that lies badly ran. Each place comes with the
//! share of the run that was seen in its block, or in its loop where the loop pays as a whole; what has too little of it is
//! counted and not shown.
//!
//! Processes run behind [`Runs`], so that the whole chain is tested with invented runs.

mod places;
mod runs;
mod sampled;
mod window;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use runs::{CommandRuns, Runs};
pub use sampled::Sampling;

use crate::code::Image;
use crate::hazards::RuleSet;
use crate::machine::Design;
use crate::model::{Finding, LEAST_SHARE, Measurement, Site};
use crate::run::sample::SampleError;
use crate::stats::shares::share_of_samples;
use crate::trace::engine::EngineError;
use crate::trace::spread;
use sampled::Sampled;
use window::{Watch, Windows};

/// What happens less often than this, in parts of the executions of an instruction, costs next to nothing.
pub const RARE_PART: f64 = 0.02;
/// Executions that such a part is worth something from.
pub const LEAST_EXECUTIONS: u64 = 50;

/// Why nothing can be said of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CountedError {
    /// Where its time goes cannot be found out.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// The windows were interrupted.
    #[error(transparent)]
    Follow(#[from] EngineError),
}

/// What happened at a place.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A load overlapped stores in flight that could not serve it.
    Blocked,
    /// An access crossed the end of a cache line.
    Split,
    /// A load met a store in flight only in the low 12 bits of its address.
    Aliased,
    /// It ran, and costs each time that it does.
    Ran,
}

/// A place of which something was counted.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CountedSite {
    /// The file.
    pub file: PathBuf,
    /// What happened.
    pub event: Event,
    /// How often, in the windows.
    pub events: u64,
    /// Times that the instruction ran in them.
    pub executions: u64,
    /// The share of the run that was seen in its block and at the instruction behind it; in its loop, where that pays
    /// as a whole.
    pub share: Measurement,
    /// The instruction.
    pub site: Site,
    /// The stores that blocked it most often, youngest first.
    pub stores: Vec<Site>,
    /// What a rule says of it; absent where none names it.
    pub finding: Option<Finding>,
    /// For the order: cycles that an event loses, times the part of executions, times the share.
    pub score: f64,
}

/// A file in which the run spends its time.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HotFile {
    /// The program or library.
    pub path: PathBuf,
    /// Its share of the run.
    pub share: Measurement,
    /// Functions with a sample.
    pub functions: usize,
    /// Findings in them.
    pub findings: usize,
    /// Why it was not scanned, if it was not.
    pub not_scanned: Option<String>,
}

/// What is not shown, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Folded {
    /// Counted places with less than half a per cent of the run, or fewer than five samples.
    pub below_share: usize,
    /// Findings whose instruction ran, where what they say hardly ever happened.
    pub not_counted: usize,
    /// Findings whose instruction did not run in the windows, or a few times only.
    pub not_run: usize,
}

/// A run, scanned and counted.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CountedScan {
    /// What was run.
    pub command: Vec<String>,
    /// How it was sampled.
    pub sampling: Sampling,
    /// Windows that were followed, each of a run of its own.
    pub windows: usize,
    /// Instructions in them.
    pub instructions: u64,
    /// Why none was followed, if none was.
    pub not_followed: Option<String>,
    /// The rules that looked.
    pub rules: Vec<String>,
    /// Files with at least half a per cent of the run, hottest first.
    pub files: Vec<HotFile>,
    /// What was counted, most deserving first.
    pub sites: Vec<CountedSite>,
    /// What is not shown.
    pub folded: Folded,
    /// What a reader must know.
    pub notes: Vec<String>,
}

/// What the work has come to, for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// So many runs have been sampled.
    Sampling(u32),
    /// So many windows of so many have been followed.
    Following {
        /// Windows that have been followed.
        done: usize,
        /// Windows in all.
        of: usize,
    },
    /// The hot files are being scanned.
    Scanning,
}

/// Runs a command, and says what happened where its time goes.
///
/// # Errors
/// When it cannot be run or sampled, and when the user wants an end.
pub fn count(
    command: Vec<String>,
    rules: &RuleSet,
    design: &Design,
    runs: &mut dyn Runs,
    progress: &mut dyn FnMut(Stage),
) -> Result<CountedScan, CountedError> {
    let sampled = Sampled::of(runs, &mut |done| progress(Stage::Sampling(done)))?;
    let of = spread::count(sampled.run_ns);
    let followed = spread::follow(sampled.run_ns, 0..of, &mut |n, after| {
        progress(Stage::Following { done: n, of });
        let mut watch = Watch::new(design);
        let recording = watch.over(|sink| runs.follow(after, sink))?;
        watch.window(&recording)
    })?;
    progress(Stage::Scanning);
    let mut windows = Windows::default();
    let mut not_followed = None;
    match followed {
        Ok(all) => all.into_iter().for_each(|window| windows.add(window)),
        Err(why) => not_followed = Some(why.to_string()),
    }
    let mut scan = CountedScan {
        command,
        windows: windows.count,
        instructions: windows.instructions,
        not_followed,
        rules: rules.iter().map(|rule| rule.id().to_owned()).collect(),
        files: Vec::new(),
        sites: Vec::new(),
        folded: Folded::default(),
        notes: sampled.notes.clone(),
        sampling: sampled.sampling.clone(),
    };
    let total = sampled.sampling.samples;
    let mut files: Vec<_> =
        sampled.files.keys().map(|path| (sampled.in_file(path), path)).collect();
    files.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    for (hits, path) in files {
        let share = share_of_samples(hits, total);
        if share.value < 100.0 * LEAST_SHARE {
            break;
        }
        let mut file =
            HotFile { path: path.clone(), share, functions: 0, findings: 0, not_scanned: None };
        match Image::open(path) {
            Ok(image) => {
                let looked = places::look(&image, path, &sampled, &windows, rules, design);
                file.functions = looked.functions;
                file.findings = looked.findings;
                scan.sites.extend(looked.sites);
                scan.folded.below_share += looked.folded.below_share;
                scan.folded.not_counted += looked.folded.not_counted;
                scan.folded.not_run += looked.folded.not_run;
                scan.notes.extend(looked.notes);
            }
            Err(error) => file.not_scanned = Some(error.to_string()),
        }
        scan.files.push(file);
    }
    scan.sites.sort_by(|a, b| {
        b.score
            .total_cmp(&a.score)
            .then_with(|| (&a.file, a.site.svma).cmp(&(&b.file, b.site.svma)))
    });
    Ok(scan)
}

#[cfg(test)]
mod tests;
