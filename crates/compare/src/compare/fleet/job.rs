//! What a line of a plan asks for: rounds of builds or commands, what one machine charges, or why two commands differ.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::ExplainBlock;
use crate::compare::fingerprint;
use crate::compare::sweep::{Block, BlockFile, Host, SweepError};
use crate::foreign;
use crate::machine::Design;

/// A line of a plan of probes: a machine that is to be asked what it charges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeBlock {
    /// The plan that it is part of: equal for the same probes with the same seed.
    pub plan: String,
    /// Number of this machine, from 0.
    pub block: u32,
    /// Of so many.
    pub blocks: u32,
    /// What it takes beside other work, in nanoseconds.
    pub cost_ns: u64,
    /// Where it was planned.
    pub folder: PathBuf,
    /// The probes, by name, in the order in which they run.
    pub probes: Vec<String>,
    /// Seed of their order and layout.
    pub seed: u64,
}

impl ProbeBlock {
    /// What the plan of these probes is called.
    #[must_use]
    pub fn identity(probes: &[String], seed: u64) -> String {
        format!("{:016x}", fingerprint::of(format!("{probes:?} {seed}").as_bytes()))
    }
}

/// What a machine said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeResult {
    /// The plan that it is part of.
    pub plan: String,
    /// Number of the block.
    pub block: u32,
    /// The machine.
    pub machine: Host,
    /// Its profile, as `probe --profile` writes it.
    pub profile: Design,
}

/// A line of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Job {
    /// Rounds of builds or commands.
    Rounds(Box<Block>),
    /// The probes of one machine.
    Probes(ProbeBlock),
    /// An explanation by one machine.
    Explanation(Box<ExplainBlock>),
}

/// What every line has, whatever it asks for.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// The plan that it is part of.
    pub plan: &'a str,
    /// Its number, from 0.
    pub block: u32,
    /// Of so many.
    pub blocks: u32,
    /// What it takes, in nanoseconds.
    pub cost_ns: u64,
    /// Where relative names start.
    pub folder: &'a Path,
    /// What has to be on the machine.
    pub files: &'a [BlockFile],
}

impl Job {
    /// The job of a line. Templates and commands are run as they were typed; what is shown of them
    /// [`Job::check`] looks at.
    pub(super) fn parse(line: &str) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Kind {
            probes: Option<IgnoredAny>,
            explained: Option<IgnoredAny>,
        }
        let Kind { probes, explained } = foreign::from_json(line)?;
        match (probes, explained) {
            (Some(IgnoredAny), _) => foreign::from_json(line).map(Self::Probes),
            (None, Some(IgnoredAny)) => foreign::from_json_as_written(line).map(Self::Explanation),
            (None, None) => foreign::from_json_as_written(line).map(Self::Rounds),
        }
    }

    /// Holds what it claims against what it has.
    ///
    /// # Errors
    /// As [`Block::check`].
    pub fn check(&self) -> Result<(), SweepError> {
        let Head { block: number, blocks, .. } = self.head();
        match self {
            Self::Rounds(block) => block.check(),
            _ if number >= blocks => {
                Err(SweepError::Block("its number is none of its plan".into()))
            }
            Self::Probes(_) => Ok(()),
            Self::Explanation(block) => block.check(),
        }
    }

    /// What every line has.
    #[must_use]
    pub fn head(&self) -> Head<'_> {
        let (plan, block, blocks, cost_ns, folder, files) = match self {
            Self::Rounds(j) => (&j.plan, j.block, j.blocks, j.cost_ns, &j.folder, &j.files[..]),
            Self::Probes(j) => (&j.plan, j.block, j.blocks, j.cost_ns, &j.folder, &[][..]),
            Self::Explanation(j) => {
                (&j.plan, j.block, j.blocks, j.cost_ns, &j.folder, &j.files[..])
            }
        };
        Head { plan, block, blocks, cost_ns, folder, files }
    }

    /// What comes back of it.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::Rounds(_) => "rounds",
            Self::Probes(_) => "profiles of machines",
            Self::Explanation(_) => "explanations",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FleetError, Plan, Profiles, ResultFolder, Results, collect};
    use super::*;
    use crate::machine::Microarchitecture;

    fn collect_profiles(folders: &[PathBuf]) -> Result<Profiles, FleetError> {
        Results::of(folders)?.profiles()
    }

    fn block(block: u32) -> ProbeBlock {
        let probes = vec!["core".to_owned(), "clock".to_owned()];
        let plan = ProbeBlock::identity(&probes, 1);
        let folder = "/".into();
        ProbeBlock { plan, block, blocks: 6, cost_ns: 1, folder, probes, seed: 1 }
    }

    fn result(number: u32, machine: &str, kind: Microarchitecture) -> ProbeResult {
        let host = Host { kind: kind.slug(), name: machine.into(), id: machine.into() };
        ProbeResult { plan: block(0).plan, block: number, machine: host, profile: Design::of(kind) }
    }

    /// A folder with these results, written in this order.
    fn folder(results: &[ProbeResult]) -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        let folder = ResultFolder::at(place.path());
        folder.prepare(&Job::Probes(block(0))).unwrap();
        results.iter().for_each(|result| folder.keep(&result.plan, result.block, result).unwrap());
        place
    }

    #[test]
    fn a_plan_of_probes_is_read_as_it_was_written() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("plan.jsonl");
        Plan::write(&path, (0..6).map(block)).unwrap();
        let (first, numbers) = Plan::at(&path).listed().unwrap();
        assert_eq!((first, numbers.len()), (Job::Probes(block(0)), 6));
        assert_ne!(ProbeBlock::identity(&block(0).probes, 2), block(0).plan);
        // A number that is none of the plan, and words that a terminal would obey.
        Plan::write(&path, std::iter::once(block(6))).unwrap();
        assert!(matches!(Plan::at(&path).read(None), Err(FleetError::Sweep(_))));
        let strange = ProbeBlock { probes: vec!["\u{1b}[2J".into()], ..block(0) };
        Plan::write(&path, std::iter::once(strange)).unwrap();
        let Job::Probes(read) = Plan::at(&path).read(None).unwrap().remove(0) else { panic!() };
        assert!(!read.probes[0].contains('\u{1b}'));
    }

    #[test]
    fn each_machine_is_asked_once_and_has_a_name_of_its_own() {
        use Microarchitecture::{CascadeLake, Zen4};
        let mut results = vec![
            result(0, "a", Zen4),
            result(1, "b", CascadeLake),
            result(2, "a", Zen4),
            result(4, "c", Zen4),
        ];
        let first = folder(&results);
        let found = collect_profiles(&[first.path().into()]).unwrap();
        let names: Vec<&str> = found.machines.iter().map(|(name, _)| name.as_str()).collect();
        let zen = Zen4.slug();
        let mut wanted = [CascadeLake.slug(), zen.clone(), format!("{zen}-2")];
        wanted.sort_unstable();
        assert_eq!(names, wanted);
        assert_eq!((&found.missing[..], &found.again[..]), (&[3, 5][..], &[2][..]));
        assert_eq!(ResultFolder::at(first.path()).progress().unwrap(), Some((4, 6)));
        results.reverse();
        let second = folder(&results);
        let both = [second.path().to_path_buf(), first.path().to_path_buf()];
        assert_eq!(collect_profiles(&both).unwrap(), found);
        // Rounds are not looked for among them.
        assert!(matches!(collect(&both), Err(FleetError::Otherwise(_))));
    }

    #[test]
    fn a_profile_that_is_none_is_refused_and_half_a_line_is_not_back() {
        let place = folder(&[]);
        assert!(matches!(collect_profiles(&[place.path().into()]), Err(FleetError::Nothing)));
        let line = serde_json::to_string(&result(0, "a", Microarchitecture::Zen4)).unwrap();
        let late = place.path().join("late.jsonl");
        std::fs::write(&late, &line[..line.len() / 2]).unwrap();
        assert!(matches!(collect_profiles(&[place.path().into()]), Err(FleetError::Nothing)));
        std::fs::write(&late, line.replace("\"version\":", "\"version\":9")).unwrap();
        let said = collect_profiles(&[place.path().into()]).unwrap_err().to_string();
        assert!(said.contains("late.jsonl"), "{said}");
    }
}
