//! A block: rounds of a sweep, or of given commands, that stay together on one machine, with all that it takes to run them anywhere.
//!
//! All variants are in every block, next to each other in time, so that what the machine does cancels within it
//! and a block that is lost takes nothing from one arm only. A block names its files with their bytes: what
//! runs it refuses others. Run twice it is the same block, in the same order, and counts once. The sweep of one
//! machine is the same: its journal holds one block a round.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::report::{CellRecord, SweepNote};
use super::{Cell, Commands, SweepError, SweepRun, SweepSettings};
use crate::compare::fingerprint;
use crate::compare::neighbours::Disturbances;
use crate::foreign;
use crate::machine::Machine;

/// A file that a block runs or reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct BlockFile {
    /// Where it lay when the block was planned, from the root.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// Fingerprint of its bytes; empty for what may be run and not read.
    pub fingerprint: String,
}

impl BlockFile {
    pub(super) fn of(path: &Path) -> Self {
        let (bytes, fingerprint) = fingerprint::of_path(path).unwrap_or_default();
        let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
        Self { path, bytes, fingerprint }
    }
}

/// Blocks of one plan: what a million would need, ten times.
pub(crate) const MOST_BLOCKS: u32 = 10_000_000;
/// Rounds of one block.
pub(crate) const MOST_ROUNDS: u32 = 1000;

/// A line of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Block {
    /// The sweep that it is part of: equal for the same question about the same files.
    pub plan: String,
    /// Number of this block, from 0.
    pub block: u32,
    /// Of so many.
    pub blocks: u32,
    /// Rounds of each block, every one with every build once; they are numbered through all blocks.
    pub rounds: u32,
    /// What it takes, by the run that tried each build, in nanoseconds.
    pub cost_ns: u64,
    /// Where relative names start.
    pub folder: PathBuf,
    /// Every file that is run, and that the run template names.
    pub files: Vec<BlockFile>,
    /// The question.
    pub settings: SweepSettings,
    /// Every build.
    pub cells: Vec<CellRecord>,
    /// Variants that run the same bytes with the same arguments as their base.
    pub identical: Vec<[u32; 2]>,
    /// What was known before anything ran.
    pub notes: Vec<SweepNote>,
    /// Commands that are run as they are given, in place of what the run template says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<Commands>,
}

impl Block {
    /// The rounds of this block.
    #[must_use]
    pub fn span(&self) -> Range<u32> {
        self.span_of(self.block)
    }

    /// The rounds of a block of this plan.
    #[must_use]
    pub fn span_of(&self, block: u32) -> Range<u32> {
        let first = block.saturating_mul(self.rounds);
        first..first.saturating_add(self.rounds)
    }

    /// Holds what it claims against what it has, before anything is made of it.
    ///
    /// # Errors
    /// [`SweepError::Block`] with what does not fit.
    pub fn check(&self) -> Result<(), SweepError> {
        let wrong = |what: String| Err(SweepError::Block(what));
        let counts = self.settings.axes.iter().map(|axis| axis.values.len() as u64);
        let variants = counts.fold(1, u64::saturating_mul);
        let each = u64::from(self.settings.layouts) + 1;
        let builds = self.cells.len() as u64;
        if builds == 0 || variants.saturating_mul(each) != builds {
            return wrong(format!(
                "its settings make {variants} times {each} builds, it has {builds}"
            ));
        }
        let is_there = |variant: u32| u64::from(variant) < variants;
        let fits = |cell: Cell| is_there(cell.variant) && u64::from(cell.layout) < each;
        if !self.cells.iter().all(|c| fits(c.cell))
            || !self.identical.as_flattened().iter().all(|v| is_there(*v))
        {
            return wrong("it names a variant that its settings do not make".into());
        }
        let arms = self.commands.as_ref().map(|commands| &commands.arms);
        if arms.is_some_and(|arms| {
            arms.len() as u64 != variants
                || each > 1
                || arms.iter().any(|arm| arm.command.is_empty())
        }) {
            return wrong("its commands are not its builds".into());
        }
        let axes = self.settings.axes.iter();
        let typed = axes.flat_map(|axis| axis.values.iter().chain([&axis.name]).cloned());
        let failures = self.cells.iter().filter_map(|c| c.failure.clone());
        let shown = typed.chain(failures).chain(self.notes.iter().map(ToString::to_string));
        if let Some(text) = shown.into_iter().find(|text| foreign::plain(text) != text.as_str()) {
            return wrong(format!("`{}` cannot be shown as it is", foreign::plain(&text)));
        }
        if self.blocks > MOST_BLOCKS || self.rounds > MOST_ROUNDS || self.block >= self.blocks {
            return wrong(format!("{} blocks of {} rounds are no plan", self.blocks, self.rounds));
        }
        Ok(())
    }

    /// The builds that are run.
    #[must_use]
    pub fn seats(&self) -> BTreeSet<Cell> {
        self.cells.iter().filter(|c| c.failure.is_none()).map(|c| c.cell).collect()
    }
}

/// The machine that ran a block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// What kind of machine it is, as its profile would be named.
    pub kind: String,
    /// Its name, for people.
    pub name: String,
    /// Equal for the same machine.
    pub id: String,
}

/// A name or a file of the kernel that is longer tells nothing.
const MOST_NAME_BYTES: u64 = 4096;

impl Host {
    /// This machine; called `name` where it cannot be told from others, as in containers.
    #[must_use]
    pub fn here(name: Option<&str>) -> Self {
        let read = |path: &str| {
            let text = foreign::read_text(Path::new(path), MOST_NAME_BYTES).ok()?;
            Some(foreign::plain(text.trim()).into_owned()).filter(|text| !text.is_empty())
        };
        let own = read("/proc/sys/kernel/hostname").unwrap_or_default();
        // The kernel's own number is new with every start, and all there is where images have no other.
        let installed = read("/etc/machine-id");
        let id = match (name, installed) {
            (Some(name), _) => name.to_owned(),
            (None, Some(number)) => format!("{number} {own}"),
            (None, None) => read("/proc/sys/kernel/random/boot_id").unwrap_or_default(),
        };
        Self {
            kind: Machine::detect().profile_key(),
            name: name.map_or(own, |name| foreign::plain(name).into_owned()),
            id: format!("{:016x}", fingerprint::of(id.as_bytes())),
        }
    }
}

/// What a machine made of a block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockResult {
    /// The sweep that it is part of.
    pub plan: String,
    /// Number of the block.
    pub block: u32,
    /// The machine.
    pub machine: Host,
    /// What its two clocks say the block took, as a log ratio; see [`crate::clock::Pace`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_log: Option<f64>,
    /// What the calibration chain saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbances: Option<Disturbances>,
    /// One build of each round once more: a contrast that must show nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placebos: Vec<SweepRun>,
    /// The runs, in the order of time.
    pub runs: Vec<SweepRun>,
}

impl BlockResult {
    /// Whether it has these rounds, each with every one of these builds once, and nothing else.
    #[must_use]
    pub fn is_whole(&self, rounds: Range<u32>, seats: &BTreeSet<Cell>) -> bool {
        let wanted = rounds.flat_map(|round| seats.iter().map(move |cell| (round, *cell)));
        let mut had: Vec<(u32, Cell)> = self.runs.iter().map(|r| (r.round, r.cell)).collect();
        had.sort_unstable();
        wanted.eq(had)
    }
}
