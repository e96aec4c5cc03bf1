//! Where the time of one arm goes: samples booked on functions and instructions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Bench, ExplainError, Stage};
use crate::code::Image;
use crate::compare::{Arm, library_name};
use crate::model::{FileOffset, Measurement, Svma};
use crate::run::sample::{Engine, SampleRun, Stacks, too_few};
use crate::stats::shares::share_of_samples;

/// Enough to tell 1 % from 2 % of the time.
const ENOUGH_SAMPLES: u64 = 10_000;
/// Sampled runs of each arm at the most.
const MOST_RUNS: u32 = 8;
/// And at least so many, so that no conclusion rests on one placement of stack and heap.
const FEWEST_RUNS: u32 = 2;
/// Where the time is limited, no more than these once less than this part of it is left.
const LEFT_BEHIND: f64 = 0.5;

/// How one arm was sampled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArmHeat {
    /// What took the samples.
    pub engine: Engine,
    /// Time between two samples.
    pub period_ns: u64,
    /// Sampled runs.
    pub runs: u32,
    /// Processor time of all sampled runs together: sampling takes some of it.
    pub processor_ns: u64,
    /// Samples in user code, of all runs together.
    pub samples: u64,
    /// Of these, in the program itself.
    pub in_program: u64,
    /// Samples in the kernel, of all runs together; absent where the kernel does not tell of them, and where they are
    /// not of processor time.
    pub in_kernel: Option<u64>,
    /// Samples that the kernel dropped.
    pub lost: u64,
    /// What a reader must know about the sampling.
    pub notes: Vec<String>,
}

/// The samples of one arm.
#[derive(Clone, Debug)]
pub struct Heat {
    /// How they came about.
    pub summary: ArmHeat,
    /// Samples in the program, by address as stated in the file.
    pub by_svma: BTreeMap<Svma, u64>,
    /// Samples in other files, by what [`library_name`] calls them, and in functions that were made at run time, by name.
    pub by_object: BTreeMap<String, ObjectHeat>,
    /// Call stacks of each run, where they were taken.
    pub stacks: Vec<Stacks>,
}

/// The samples of one arm in one file that is not the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectHeat {
    /// Where it is; empty for code without a file.
    pub path: PathBuf,
    /// How many there are.
    pub hits: u64,
    /// Those in the file's code, by place.
    pub by_offset: BTreeMap<FileOffset, u64>,
    /// Whether it is no file, but a function that was made at run time.
    pub is_generated: bool,
}

/// What is counted from `start` up to, not including, `end`.
pub(super) fn sum_between(counts: &BTreeMap<Svma, u64>, start: Svma, end: Svma) -> u64 {
    counts.range(start..end.max(start)).map(|(_, n)| n).sum()
}

impl Heat {
    /// Samples from `start` up to, not including, `end`.
    #[must_use]
    pub fn between(&self, start: Svma, end: Svma) -> u64 {
        sum_between(&self.by_svma, start, end)
    }

    /// `hits` as a share of all samples.
    #[must_use]
    pub fn share(&self, hits: u64) -> Measurement {
        share_of_samples(hits, self.summary.samples)
    }

    fn is_enough(&self) -> bool {
        self.summary.samples >= ENOUGH_SAMPLES && self.summary.runs >= FEWEST_RUNS
    }

    fn empty(run: &SampleRun) -> Self {
        Self {
            summary: ArmHeat {
                engine: run.engine,
                period_ns: run.period_ns,
                runs: 0,
                processor_ns: 0,
                samples: 0,
                in_program: 0,
                in_kernel: Some(0),
                lost: 0,
                notes: Vec::new(),
            },
            by_svma: BTreeMap::new(),
            by_object: BTreeMap::new(),
            stacks: Vec::new(),
        }
    }

    /// Adds one run.
    fn add(&mut self, image: &Image, run: SampleRun) {
        self.summary.runs += 1;
        self.summary.processor_ns += run.exit.processor_ns();
        self.summary.samples += run.total;
        let in_kernel = self.summary.in_kernel.zip(run.in_kernel());
        self.summary.in_kernel = in_kernel.map(|(sum, n)| sum + n);
        self.summary.lost += run.lost;
        run.add_notes_to(&mut self.summary.notes);
        for object in &run.samples {
            for (offset, hits) in &object.hits {
                match image.svma_of(*offset).filter(|_| object.is_main_program) {
                    Some(svma) => {
                        *self.by_svma.entry(svma).or_insert(0) += hits;
                        self.summary.in_program += hits;
                    }
                    None => {
                        let heat = self.add_to_object(&object.path, *hits);
                        *heat.by_offset.entry(*offset).or_insert(0) += hits;
                    }
                }
            }
        }
        for (name, hits) in run.generated {
            let object = self.by_object.entry(name).or_default();
            object.hits += hits;
            object.is_generated = true;
        }
        if run.unmapped > 0 {
            self.add_to_object(Path::new(""), run.unmapped);
        }
        self.stacks.extend(run.stacks);
    }

    fn add_to_object(&mut self, path: &Path, hits: u64) -> &mut ObjectHeat {
        let object = self.by_object.entry(library_name(path)).or_default();
        object.path = path.into();
        object.hits += hits;
        object
    }
}

/// Samples one command until there are enough.
pub(super) fn of_one(
    image: &Image,
    bench: &mut dyn Bench,
    progress: &mut dyn FnMut(Stage),
) -> Result<Heat, ExplainError> {
    let mut heat = [first(image, bench, Arm::A)?];
    fill(&mut heat, std::slice::from_ref(image), bench, progress)?;
    let [heat] = heat;
    Ok(heat)
}

/// Samples both arms in turns until each has enough.
pub(super) fn locate(
    images: &[Image; 2],
    bench: &mut dyn Bench,
    progress: &mut dyn FnMut(Stage),
) -> Result<[Heat; 2], ExplainError> {
    let mut heats = [first(&images[0], bench, Arm::A)?, first(&images[1], bench, Arm::B)?];
    fill(&mut heats, images, bench, progress)?;
    Ok(heats)
}

fn take(bench: &mut dyn Bench, arm: Arm) -> Result<SampleRun, ExplainError> {
    bench.sample(arm).map_err(|cause| ExplainError::Sample { arm, cause })
}

/// The samples of one run.
fn first(image: &Image, bench: &mut dyn Bench, arm: Arm) -> Result<Heat, ExplainError> {
    let run = take(bench, arm)?;
    let mut heat = Heat::empty(&run);
    heat.add(image, run);
    Ok(heat)
}

/// Adds runs of all arms in turns until each has enough.
fn fill(
    heats: &mut [Heat],
    images: &[Image],
    bench: &mut dyn Bench,
    progress: &mut dyn FnMut(Stage),
) -> Result<(), ExplainError> {
    for round in 1..MOST_RUNS {
        progress(Stage::Sampling { done: round, of: MOST_RUNS });
        let is_late = round >= FEWEST_RUNS && bench.left().share < LEFT_BEHIND;
        if is_late || heats.iter().all(Heat::is_enough) {
            break;
        }
        for (arm, (heat, image)) in [Arm::A, Arm::B].into_iter().zip(heats.iter_mut().zip(images)) {
            heat.add(image, take(bench, arm)?);
        }
    }
    for heat in heats {
        heat.summary.notes.extend(too_few(heat.summary.samples));
    }
    progress(Stage::Sampling { done: MOST_RUNS, of: MOST_RUNS });
    Ok(())
}
