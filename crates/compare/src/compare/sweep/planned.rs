//! A sweep as blocks for other machines, and one such block run here.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::axes::variants;
use super::block::{Block, BlockFile, BlockResult, Host, MOST_ROUNDS};
use super::report::CellRecord;
use super::rounds::Bench;
use super::run::{Folders, Plan, Prepared, Stage, prepare};
use super::{SweepError, SweepSettings, commands};
use crate::clock::Cpus;
use crate::compare::runner::allowed_cpus;
use crate::foreign;

/// Rounds where nothing else is asked for.
const ROUNDS: u32 = 20;

/// A sweep that is planned: its builds are there, its rounds are not.
#[derive(Clone, Debug)]
pub struct Planned(pub(super) Block);

impl Planned {
    /// Its blocks, in the order of their numbers.
    pub fn blocks(&self) -> impl Iterator<Item = Block> + '_ {
        (0..self.0.blocks).map(|block| Block { block, ..self.0.clone() })
    }

    /// What every block is like.
    #[must_use]
    pub fn first(&self) -> &Block {
        &self.0
    }
}

/// Builds what `settings` say, tries each build once, and makes blocks of as many rounds each.
///
/// # Errors
/// See [`SweepError`].
pub fn plan_blocks(
    settings: &SweepSettings,
    folders: &Folders,
    rounds_per_block: u32,
    interrupt: &AtomicBool,
    progress: &(dyn Fn(Stage) + Sync),
) -> Result<Planned, SweepError> {
    let variants = variants(&settings.axes)?;
    let Prepared { plan, builder, cells, identical, known, ready, round_ns } =
        prepare(settings, &variants, folders, interrupt, progress)?;
    let files = plan.files(&ready);
    let rounds = settings.rounds.unwrap_or(ROUNDS);
    let per_block = rounds_per_block.clamp(1, MOST_ROUNDS);
    let said = |cell: CellRecord| CellRecord {
        failure: cell.failure.map(|why| foreign::plain(&why).into_owned()),
        ..cell
    };
    let with_placebo_ns = round_ns.saturating_add(round_ns / (ready.len().max(1) as u64));
    let first = Block {
        plan: plan.identity(&builder, &files, per_block),
        block: 0,
        blocks: rounds.div_ceil(per_block),
        rounds: per_block,
        cost_ns: with_placebo_ns.saturating_mul(per_block.into()),
        folder: std::env::current_dir()
            .map_err(|cause| SweepError::File { path: ".".into(), cause })?,
        files: files.into_iter().collect(),
        settings: settings.clone(),
        cells: cells.into_iter().map(said).collect(),
        identical,
        notes: known,
        commands: None,
    };
    first.check()?;
    Ok(Planned(first))
}

/// Where a block is run.
#[derive(Clone, Debug)]
pub struct Site {
    /// The folder below which the files lie that were brought here, each at its whole path; absent where
    /// they lie where they were.
    pub root: Option<PathBuf>,
    /// This machine.
    pub host: Host,
}

impl Site {
    /// Where a path of the plan is here.
    #[must_use]
    pub fn place(&self, path: &Path) -> PathBuf {
        match (&self.root, path.strip_prefix("/")) {
            (Some(root), Ok(below)) => root.join(below),
            _ => path.into(),
        }
    }

    /// A file of the plan as it has to be here.
    fn wanted(&self, file: &BlockFile) -> BlockFile {
        BlockFile { path: self.place(&file.path), ..file.clone() }
    }

    /// Holds files against what was planned.
    ///
    /// # Errors
    /// [`SweepError::OtherFile`] with the first that is missing here, or has other bytes.
    pub(in crate::compare) fn check(&self, files: &[BlockFile]) -> Result<(), SweepError> {
        match files.iter().map(|file| self.wanted(file)).find(|f| BlockFile::of(&f.path) != *f) {
            Some(other) => Err(SweepError::OtherFile(other.path)),
            None => Ok(()),
        }
    }

    /// An argument that names one of these files, alone or behind a `=`, as it is called here; others stay.
    ///
    /// # Errors
    /// [`SweepError::Block`] where it names one by its whole path in another way, and that lies elsewhere here.
    pub(super) fn moved(&self, arg: &str, files: &[BlockFile]) -> Result<String, SweepError> {
        let named = |path: &str| {
            let before = arg.strip_suffix(path);
            before.is_some_and(|b| b.is_empty() || (b.ends_with('=') && !b.contains(' ')))
        };
        let paths = || files.iter().filter_map(|file| file.path.to_str());
        let Some(path) = paths().filter(|path| named(path)).max_by_key(|path| path.len()) else {
            return match paths().find(|path| self.root.is_some() && arg.contains(*path)) {
                Some(path) => Err(SweepError::Block(format!(
                    "`{}` names {path}, which was brought to another place: plan with a name that starts \
                     in the folder of the plan",
                    foreign::plain(arg)
                ))),
                None => Ok(arg.to_owned()),
            };
        };
        let place = self.place(Path::new(path));
        Ok(format!("{}{}", &arg[..arg.len() - path.len()], place.display()))
    }
}

/// Runs a block here, in the folder that it names, where we stand already. `ran` is told of each run.
///
/// # Errors
/// [`SweepError::OtherFile`] when a file is not what was planned, and whatever a sweep fails with.
pub fn run_block(
    block: &Block,
    site: &Site,
    interrupt: &AtomicBool,
    ran: &mut dyn FnMut(),
) -> Result<BlockResult, SweepError> {
    block.check()?;
    if let Some(commands) = &block.commands {
        return commands::run(block, commands, site, interrupt, ran);
    }
    let settings =
        SweepSettings { cpus: cpus(block.settings.cpus.as_ref())?, ..block.settings.clone() };
    let variants = variants(&settings.axes)?;
    settings.measure.check()?;
    let plan = Plan::new(&settings, &variants)?;
    let here = |record: &CellRecord| CellRecord {
        program: record.program.as_deref().map(|program| site.place(program)),
        ..record.clone()
    };
    site.check(&block.files)?;
    let cells: Vec<CellRecord> = block.cells.iter().map(here).collect();
    let mut ready = plan.ready(&cells)?;
    let moved = |path: &Path| block.files.iter().any(|f| f.path == path).then(|| site.place(path));
    for one in &mut ready {
        one.program = moved(&one.program).unwrap_or_else(|| one.program.clone());
        for arg in &mut one.args {
            if let Some(place) = moved(Path::new(arg)) {
                *arg = place.into();
            }
        }
    }
    // What is run and read here is what was planned, and nothing beside it.
    let more =
        plan.files(&ready).into_iter().find(|f| !block.files.iter().any(|b| site.wanted(b) == *f));
    if let Some(more) = more {
        return Err(SweepError::OtherFile(more.path));
    }
    let mut bench = Bench::of(&settings, site.host.clone());
    let found = plan.block(&mut bench, &ready, block.span(), true, interrupt, ran)?;
    Ok(BlockResult { plan: block.plan.clone(), block: block.block, ..found })
}

/// As many processors as were asked for, of those that are ours here.
pub(in crate::compare) fn cpus(wanted: Option<&Cpus>) -> Result<Option<Cpus>, SweepError> {
    let Some(wanted) = wanted else { return Ok(None) };
    let allowed = allowed_cpus();
    let count = wanted.iter().count();
    let found = Cpus::last(count, &allowed);
    let too_few =
        || SweepError::Block(format!("{count} processors are needed, {} are ours", allowed.len()));
    found.map(Some).ok_or_else(too_few)
}
