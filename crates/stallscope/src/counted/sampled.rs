//! Where the time of a command goes, file by file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CountedError, Runs};
use crate::code::Image;
use crate::hazards::Heat;
use crate::model::{FileOffset, HotPlace, HotSpot};
use crate::run::sample::{Engine, SampleRun, too_few};

/// Ten samples are half a per cent of these.
const ENOUGH_SAMPLES: u64 = 2_000;
/// Sampled runs at the most.
const MOST_RUNS: u32 = 16;

/// How a command was sampled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sampling {
    /// What took the samples.
    pub engine: Engine,
    /// Time between two samples.
    pub period_ns: u64,
    /// Sampled runs.
    pub runs: u32,
    /// Samples of all runs together, those in the kernel included where they are known.
    pub samples: u64,
    /// Of these, in the kernel; absent where the kernel does not tell of them: shares are of user code then.
    pub in_kernel: Option<u64>,
    /// Of these, in code that no file holds.
    pub without_file: u64,
    /// Samples that the kernel dropped.
    pub lost: u64,
}

/// The samples of a command.
pub(super) struct Sampled {
    pub sampling: Sampling,
    /// In user code, by file and place.
    pub files: BTreeMap<PathBuf, BTreeMap<FileOffset, u64>>,
    /// Processor time of one run.
    pub run_ns: f64,
    pub notes: Vec<String>,
}

impl Sampled {
    /// Runs it until there are enough samples.
    pub fn of(runs: &mut dyn Runs, progress: &mut dyn FnMut(u32)) -> Result<Self, CountedError> {
        let first = runs.sample()?;
        let mut sampled = Self {
            sampling: Sampling {
                engine: first.engine,
                period_ns: first.period_ns,
                runs: 0,
                samples: 0,
                in_kernel: Some(0),
                without_file: 0,
                lost: 0,
            },
            files: BTreeMap::new(),
            run_ns: 0.0,
            notes: Vec::new(),
        };
        let mut processor_ns = first.exit.processor_ns();
        sampled.add(first);
        while sampled.sampling.samples < ENOUGH_SAMPLES && sampled.sampling.runs < MOST_RUNS {
            progress(sampled.sampling.runs);
            let run = runs.sample()?;
            processor_ns += run.exit.processor_ns();
            sampled.add(run);
        }
        sampled.run_ns = processor_ns as f64 / f64::from(sampled.sampling.runs);
        sampled.notes.extend(too_few(sampled.sampling.samples));
        Ok(sampled)
    }

    fn add(&mut self, run: SampleRun) {
        let sampling = &mut self.sampling;
        let in_kernel = run.in_kernel();
        sampling.runs += 1;
        sampling.samples += run.total + in_kernel.unwrap_or(0);
        sampling.in_kernel = sampling.in_kernel.zip(in_kernel).map(|(sum, n)| sum + n);
        sampling.without_file += run.unmapped + run.generated.values().sum::<u64>();
        sampling.lost += run.lost;
        if !run.exit.status.success() {
            let note = format!("the command ended with {}", run.exit.status);
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        run.add_notes_to(&mut self.notes);
        for object in run.samples {
            let hits = self.files.entry(object.path).or_default();
            object.hits.into_iter().for_each(|(at, n)| *hits.entry(at).or_default() += n);
        }
    }

    /// Samples in a file.
    pub fn in_file(&self, path: &Path) -> u64 {
        self.files.get(path).map_or(0, |hits| hits.values().sum())
    }

    /// What the ranking asks about a file.
    pub fn heat(&self, image: &Image, path: &Path) -> Heat {
        let own = self.files.get(path).into_iter().flatten();
        let spots = own.map(|(at, n)| HotSpot {
            object: None,
            place: HotPlace::InFile(*at),
            weight: *n as f64,
        });
        // The rest of the run is elsewhere.
        let rest = self.sampling.samples - self.in_file(path);
        let elsewhere = HotSpot {
            object: Some(String::new()),
            place: HotPlace::InFile(FileOffset(0)),
            weight: rest as f64,
        };
        Heat::of(image, &spots.chain([elsewhere]).collect::<Vec<_>>())
    }
}
