//! A block that a machine explains: two commands, and how much is tried. What comes of it, another room knows.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::compare::sweep::{BlockFile, Site, SweepError, Tried, bare, cpus, placed, tried};
use crate::compare::{
    ArmRecord, CommandLine, CompareError, ProcessRunner, Progress, Settings, fingerprint,
};
use crate::foreign;

/// What an explanation takes beside runs of the two commands: probes that no profile holds, windows, the model.
const BESIDE_NS: u64 = 60_000_000_000;
/// Runs of each command beside the pairs: samples, windows, runs without a mechanism.
const RUNS_BESIDE: u64 = 40;
/// Rounds of runs at random places.
const ROUNDS_OF_PLACES: u64 = 5;

/// How much an explanation tries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Extent {
    /// Never run programs with some of their instructions replaced.
    pub no_cure: bool,
    /// How long all of it should take, in milliseconds; absent where it may take any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
    /// At how many random places hot functions are run.
    pub placements: u32,
}

/// A line of a plan of explanations: why two commands differ on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainBlock {
    /// The plan that it is part of: equal for the same question about the same files.
    pub plan: String,
    /// Number of this block, from 0; a machine each, or one machine more than once.
    pub block: u32,
    /// Of so many.
    pub blocks: u32,
    /// What it takes, by a run of each command, in nanoseconds.
    pub cost_ns: u64,
    /// Where relative names start.
    pub folder: PathBuf,
    /// Every file that is run or read.
    pub files: Vec<BlockFile>,
    /// Both commands: as it was, and as it is now.
    pub explained: [ArmRecord; 2],
    /// How they are compared. Each block has a seed of its own, so that each draws places of its own.
    pub settings: Settings,
    /// How much is tried.
    pub extent: Extent,
}

impl ExplainBlock {
    /// Every block of its plan.
    pub fn all(&self) -> impl Iterator<Item = Self> + '_ {
        (0..self.blocks).map(|block| Self { block, ..self.clone() })
    }

    /// Holds what it claims against what it has.
    ///
    /// # Errors
    /// [`SweepError::Block`] with what does not fit.
    pub fn check(&self) -> Result<(), SweepError> {
        let shown = |arm: &ArmRecord| {
            let is_plain = |word: &String| foreign::plain(word) == word.as_str();
            !arm.command.is_empty() && arm.command.iter().chain(&arm.environment).all(is_plain)
        };
        if !self.explained.iter().all(shown) {
            let what = "one of its commands is empty, or cannot be shown as it is";
            return Err(SweepError::Block(what.into()));
        }
        Ok(())
    }

    /// Both commands and how they are compared, where their files are here.
    ///
    /// # Errors
    /// [`SweepError::OtherFile`] when a file is not what was planned; when there are too few processors.
    pub fn here(&self, site: &Site) -> Result<(Vec<CommandLine>, Settings), SweepError> {
        site.check(&self.files)?;
        let lines = self.explained.iter().map(|arm| placed(arm, &self.files, site));
        let settings = Settings {
            seed: self.settings.seed.wrapping_add(self.block.into()),
            cpus: cpus(self.settings.cpus.as_ref())?,
            input: self.settings.input.as_deref().map(|input| site.place(input)),
            ..self.settings.clone()
        };
        Ok((lines.collect::<Result<_, _>>()?, settings))
    }
}

/// Runs both commands of `runner` once, and makes the first of so many blocks, a machine each; [`ExplainBlock::all`] are they.
///
/// # Errors
/// [`SweepError::Compare`] with what a comparison fails with, and when there are not two commands.
pub fn plan_explanations(
    runner: &mut ProcessRunner<'_>,
    settings: &Settings,
    extent: Extent,
    blocks: u32,
    progress: &mut dyn FnMut(Progress),
) -> Result<ExplainBlock, SweepError> {
    let asked = format!("{settings:?} {extent:?}");
    let mut settings = settings.clone();
    let Tried { arms, files, folder, input, identity, round_ns } =
        tried(runner, &mut settings, progress)?;
    settings.input = input;
    let count = arms.len();
    let two = || CompareError::Settings(format!("{count} commands: two can be explained"));
    let arms: Vec<ArmRecord> = arms.into_iter().map(bare).collect();
    let explained: [ArmRecord; 2] = arms.try_into().map_err(|_| two())?;
    let rounds = u64::from(settings.pairs) + RUNS_BESIDE;
    let rounds = rounds + u64::from(extent.placements) * ROUNDS_OF_PLACES;
    let any_ns = round_ns.saturating_mul(rounds).saturating_add(BESIDE_NS);
    let first = ExplainBlock {
        plan: format!("{:016x}", fingerprint::of(format!("{identity} {asked}").as_bytes())),
        block: 0,
        blocks,
        cost_ns: extent.within_ms.map_or(any_ns, |ms| ms.saturating_mul(1_000_000)),
        folder,
        files: files.into_iter().collect(),
        explained,
        settings,
        extent,
    };
    first.check()?;
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::super::{FleetError, Job, Plan};
    use super::*;
    use crate::compare::sweep::Host;
    use crate::run::child::NEVER;

    fn planned(args: [&str; 2], extent: Extent, blocks: u32) -> Vec<ExplainBlock> {
        let line = |arg: &str| CommandLine {
            program: "true".into(),
            args: vec![arg.into()],
            ..CommandLine::default()
        };
        let settings = Settings::default();
        let limits = settings.limits(&NEVER);
        let mut runner = ProcessRunner::new(args.map(line).to_vec(), limits).unwrap();
        plan_explanations(&mut runner, &settings, extent, blocks, &mut |_| {})
            .unwrap()
            .all()
            .collect()
    }

    #[test]
    fn a_plan_is_read_as_it_was_written_and_each_block_has_a_seed_of_its_own() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("plan.jsonl");
        let blocks = planned(["a", "b"], Extent::default(), 3);
        Plan::write(&path, blocks.iter()).unwrap();
        let (first, numbers) = Plan::at(&path).listed().unwrap();
        assert_eq!((first, numbers), (Job::Explanation(blocks[0].clone().into()), vec![0, 1, 2]));
        let site = Site { root: None, host: Host::here(None) };
        let seeds: Vec<u64> = blocks.iter().map(|b| b.here(&site).unwrap().1.seed).collect();
        assert_eq!(seeds, [0, 1, 2]);
        let (lines, _) = blocks[0].here(&site).unwrap();
        assert_eq!(lines[1].args, ["b"]);
        // The same question is the same plan; another one is not.
        let quick = Extent { within_ms: Some(7), ..Extent::default() };
        assert_eq!(planned(["a", "b"], Extent::default(), 1)[0].plan, blocks[0].plan);
        let other = &planned(["a", "b"], quick, 1)[0];
        assert!(other.plan != blocks[0].plan && other.cost_ns == 7_000_000);
        assert_ne!(planned(["a", "c"], Extent::default(), 1)[0].plan, blocks[0].plan);
    }

    #[test]
    fn what_does_not_fit_is_refused_before_anything_runs() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("plan.jsonl");
        let good = planned(["a", "b"], Extent::default(), 1).remove(0);
        let refused = |block: ExplainBlock| {
            Plan::write(&path, std::iter::once(block)).unwrap();
            matches!(Plan::at(&path).read(None), Err(FleetError::Sweep(SweepError::Block(_))))
        };
        assert!(!refused(good.clone()));
        assert!(refused(ExplainBlock { block: 1, ..good.clone() }));
        let with = |command: &[&str]| {
            let command = command.iter().map(|word| (*word).to_owned()).collect();
            let arm = ArmRecord { command, ..good.explained[0].clone() };
            ExplainBlock { explained: [good.explained[1].clone(), arm], ..good.clone() }
        };
        assert!(refused(with(&[])));
        assert!(refused(with(&["true", "\u{1b}[2J"])));
        let mut other = good.clone();
        other.files[0].fingerprint = "0".into();
        let site = Site { root: None, host: Host::here(None) };
        assert!(matches!(other.here(&site), Err(SweepError::OtherFile(_))));
    }
}
