//! Given commands as blocks for other machines: nothing is built, and what runs them there is what runs them here.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::block::{Block, BlockFile, BlockResult, MOST_ROUNDS};
use super::planned::{Planned, Site, cpus};
use super::report::{CellRecord, SweepNote};
use super::rounds::in_rounds;
use super::{Axis, Cell, SweepError, SweepRun, SweepSettings, Variant};
use crate::compare::command::as_typed;
use crate::compare::layouts::AS_BUILT;
use crate::compare::warning::take_turns;
use crate::compare::{
    Arm, ArmRecord, CommandLine, CompareError, FileRole, PlannedRun, ProcessRunner, Progress,
    Runner, Settings, Slot, are_identical, fingerprint, same_code, schedule, warmed_up,
};
use crate::foreign;

/// What the axis is called whose values are the commands.
const AXIS: &str = "command";

/// The commands of a block, and what is done around their rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Commands {
    /// What they were where the block was planned; a build of the block each.
    pub arms: Vec<ArmRecord>,
    /// Runs of each that are made before the rounds, unmeasured; one at least.
    pub warmup: u32,
    /// The file that every run reads as its standard input; absent where there is nothing to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<PathBuf>,
}

/// Warms the commands of `runner` up, as a comparison here does, and makes blocks of as many rounds each; `settings.pairs`
/// are all of them.
///
/// # Errors
/// [`SweepError::Compare`] with what a comparison fails with, and when a command is no text or too little to compare.
pub fn plan_commands(
    runner: &mut ProcessRunner<'_>,
    settings: &Settings,
    rounds_per_block: u32,
    progress: &mut dyn FnMut(Progress),
) -> Result<Planned, SweepError> {
    let mut settings = settings.clone();
    let Tried { arms, files, folder, input, identity, round_ns } =
        tried(runner, &mut settings, progress)?;
    let per_block = rounds_per_block.clamp(1, MOST_ROUNDS);
    let axis = Axis { name: AXIS.into(), values: titles(&arms) };
    let question = question(&settings, axis);
    let key = format!("{identity} {:?}", question.question());
    let (warmup, count) = (settings.warmup.max(1), arms.len() as u64);
    let runs = (u64::from(warmup) + u64::from(per_block)) * count + u64::from(per_block);
    let block = Block {
        plan: format!("{:016x}", fingerprint::of(format!("{key} {warmup} {per_block}").as_bytes())),
        block: 0,
        blocks: settings.pairs.div_ceil(per_block),
        rounds: per_block,
        cost_ns: (round_ns / count).saturating_mul(runs),
        folder,
        files: files.into_iter().collect(),
        cells: (0..).zip(&arms).map(cell).collect(),
        identical: identical(&arms),
        notes: notes(&question, &arms),
        settings: question,
        commands: Some(Commands { arms: arms.into_iter().map(bare).collect(), warmup, input }),
    };
    block.check()?;
    Ok(Planned(block))
}

/// Commands that were tried where they are planned.
pub(in crate::compare) struct Tried {
    /// Their programs by their whole paths.
    pub arms: Vec<ArmRecord>,
    /// What has to be there.
    pub files: BTreeSet<BlockFile>,
    /// Where relative names start.
    pub folder: PathBuf,
    /// The whole path of the standard input.
    pub input: Option<PathBuf>,
    /// The same for the same commands on the same files, whatever was seen of a run.
    pub identity: String,
    /// What one run of each takes, in nanoseconds.
    pub round_ns: u64,
}

/// Warms the commands of `runner` up, as a comparison here does.
///
/// # Errors
/// As [`plan_commands`].
pub(in crate::compare) fn tried(
    runner: &mut ProcessRunner<'_>,
    settings: &mut Settings,
    progress: &mut dyn FnMut(Progress),
) -> Result<Tried, SweepError> {
    settings.check()?;
    let lines: Vec<CommandLine> = runner.lines().cloned().collect();
    if !(2..=Arm::MOST).contains(&lines.len()) {
        let why = format!("{} commands: between 2 and {} can be planned", lines.len(), Arm::MOST);
        return Err(CompareError::Settings(why).into());
    }
    if let Some(line) = lines.iter().find(|line| !is_text(line)) {
        let why = format!("`{}` is no UTF-8: a plan is text, and cannot hold it", line.display());
        return Err(CompareError::Settings(why).into());
    }
    let first = schedule::rounds(1, lines.len(), settings.seed);
    let round_ns = warmed_up(runner, settings, &first, progress)?;
    runner.check_files()?;
    let arms: Vec<ArmRecord> = runner.arms().into_iter().map(whole_path).collect();
    let files = files(&arms, settings.input.as_deref());
    let folder =
        std::env::current_dir().map_err(|cause| SweepError::File { path: ".".into(), cause })?;
    let input = settings.input.as_deref().map(absolute);
    let identity = format!("{lines:?} {input:?} {files:?} {folder:?}");
    Ok(Tried { arms, files, folder, input, identity, round_ns })
}

/// The same as a sweep has it.
fn question(settings: &Settings, axis: Axis) -> SweepSettings {
    SweepSettings {
        rounds: Some(settings.pairs),
        effect: settings.effect,
        seed: settings.seed,
        timeout_ms: settings.timeout_ms,
        cpus: settings.cpus.clone(),
        guard: settings.guard,
        measure: settings.measure.clone(),
        operations_in_ms: settings.operations_in_ms,
        ..SweepSettings::new(axis, "{command}")
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.into())
}

fn whole_path(arm: ArmRecord) -> ArmRecord {
    let program = absolute(Path::new(&arm.program)).to_string_lossy().into_owned();
    ArmRecord { program, ..arm }
}

/// Without what stands in the block already, or belongs to this machine.
pub(in crate::compare) fn bare(arm: ArmRecord) -> ArmRecord {
    ArmRecord { files: Vec::new(), ..arm }
}

/// Whether nothing of it is lost in a document.
fn is_text(line: &CommandLine) -> bool {
    let variables = line.environment.iter().flat_map(|(name, value)| [name, value]);
    let folder = line.folder.iter().map(|folder| folder.as_os_str());
    let words = line.args.iter().chain([&line.program]).chain(variables).map(OsString::as_os_str);
    words.chain(folder).all(|word| word.to_str().is_some())
        && line.steps.iter().all(|(_, step)| is_text(step))
}

/// The commands as a shell would be given them; with their letters where two are alike.
fn titles(arms: &[ArmRecord]) -> Vec<String> {
    let title = |arm: &ArmRecord| {
        let folder = arm
            .folder
            .iter()
            .map(|folder| format!("cd {} &&", as_typed(&[folder.to_string_lossy().into_owned()])));
        let variables = arm.environment.iter().map(|pair| match pair.split_once('=') {
            Some((name, value)) => format!("{name}={}", as_typed(&[value.to_owned()])),
            None => pair.clone(),
        });
        let words: Vec<String> = folder.chain(variables).chain([arm.display()]).collect();
        foreign::plain(&words.join(" ")).into_owned()
    };
    let titles: Vec<String> = arms.iter().map(title).collect();
    if titles.iter().collect::<BTreeSet<_>>().len() == titles.len() {
        return titles;
    }
    titles
        .iter()
        .zip(Arm::first(arms.len()))
        .map(|(title, arm)| format!("{title} ({arm})"))
        .collect()
}

fn cell((variant, arm): (u32, &ArmRecord)) -> CellRecord {
    CellRecord {
        program: Some(PathBuf::from(&arm.program)),
        program_bytes: arm.program_bytes,
        fingerprint: arm.program_fnv1a.clone(),
        ..CellRecord::unbuilt(Cell { variant, layout: AS_BUILT })
    }
}

/// What has to be there: programs, what arguments name, the standard input. Libraries are those of the machine.
fn files(arms: &[ArmRecord], input: Option<&Path>) -> BTreeSet<BlockFile> {
    let of = |arm: &ArmRecord| {
        let named = arm.files.iter().filter(|file| file.role == FileRole::Argument);
        let named: Vec<PathBuf> = named.map(|file| file.path.clone()).collect();
        named.into_iter().chain([PathBuf::from(&arm.program)])
    };
    let paths: BTreeSet<PathBuf> = arms
        .iter()
        .flat_map(of)
        .chain(input.map(Path::to_owned))
        .map(|path| absolute(&path))
        .collect();
    paths.iter().map(|path| BlockFile::of(path)).collect()
}

/// The first command with each other one.
fn pairs(arms: &[ArmRecord]) -> impl Iterator<Item = ([u32; 2], [&ArmRecord; 2])> {
    let first = arms.first();
    (0..).zip(arms).skip(1).filter_map(move |(n, arm)| Some(([0, n], [first?, arm])))
}

fn identical(arms: &[ArmRecord]) -> Vec<[u32; 2]> {
    let alike = pairs(arms).filter(|(_, both)| are_identical(&both.map(Clone::clone)));
    alike.map(|(numbers, _)| numbers).collect()
}

/// What is known before anything runs elsewhere.
fn notes(question: &SweepSettings, arms: &[ArmRecord]) -> Vec<SweepNote> {
    let label = |number: u32| {
        let value = question.axes[0].values[number as usize].clone();
        Variant { values: vec![(AXIS.into(), value)] }.label()
    };
    let same = |([a, b], [first, second]): ([u32; 2], [&ArmRecord; 2])| {
        let [one, two] = [first, second].map(|arm| Path::new(&arm.program));
        let same = (one != two).then(|| same_code(one, two)).flatten()?;
        let (functions, moved) = (same.functions, same.moved);
        Some(SweepNote::SameCode { a: label(a), b: label(b), functions, moved })
    };
    let mut notes: Vec<SweepNote> = pairs(arms).filter_map(same).collect();
    let threads = arms.iter().filter_map(|arm| arm.threads).max().unwrap_or(0);
    if take_turns(question.cpus.as_ref(), &[threads]) {
        notes.push(SweepNote::ThreadsOnOneProcessor { threads });
    }
    notes
}

/// Runs a block of commands here.
///
/// # Errors
/// As [`super::run_block`].
pub(super) fn run(
    block: &Block,
    commands: &Commands,
    site: &Site,
    interrupt: &AtomicBool,
    ran: &mut dyn FnMut(),
) -> Result<BlockResult, SweepError> {
    let asked = &block.settings;
    let settings = Settings {
        pairs: block.rounds,
        seed: asked.seed,
        timeout_ms: asked.timeout_ms,
        cpus: cpus(asked.cpus.as_ref())?,
        input: commands.input.as_deref().map(|input| site.place(input)),
        warmup: commands.warmup,
        measure: asked.measure.clone(),
        operations_in_ms: asked.operations_in_ms,
        guard: asked.guard,
        ..Settings::default()
    };
    let lines = commands.arms.iter().map(|arm| placed(arm, &block.files, site));
    let lines: Vec<CommandLine> = lines.collect::<Result<_, _>>()?;
    let mut runner = ProcessRunner::new(lines, settings.limits(interrupt))?.measuring(&settings)?;
    // Behind the set-up, which may be what writes them.
    let result =
        site.check(&block.files).and_then(|()| measured(&mut runner, block, settings, site, ran));
    runner.clean_up()?;
    result
}

fn measured(
    runner: &mut ProcessRunner<'_>,
    block: &Block,
    mut settings: Settings,
    site: &Site,
    ran: &mut dyn FnMut(),
) -> Result<BlockResult, SweepError> {
    let arms: Vec<Arm> = Arm::first(block.cells.len()).collect();
    let first = schedule::rounds(1, arms.len(), settings.seed);
    warmed_up(runner, &mut settings, &first, &mut |_| {})?;
    let mut one = |seat: usize, round: u32, padding: usize| {
        let plan = PlannedRun {
            order: 0,
            pair: round,
            block: block.block,
            slot: Slot::First,
            arm: arms[seat],
            environment_padding_bytes: padding as u32,
        };
        let sample = runner.run(&plan)?;
        sample.amounts.judged(&settings.measure)?;
        ran();
        let (amounts, repeats) = (sample.amounts, sample.repeats);
        let cell = Cell { variant: seat as u32, layout: AS_BUILT };
        Ok(SweepRun { cell, round, amounts, repeats, machine: 0 })
    };
    let found =
        in_rounds(site.host.clone(), settings.seed, block.span(), arms.len(), true, &mut one)?;
    runner.check_files()?;
    let disturbances = runner.disturbances();
    Ok(BlockResult { plan: block.plan.clone(), block: block.block, disturbances, ..found })
}

/// A command where its files are here.
pub(in crate::compare) fn placed(
    arm: &ArmRecord,
    files: &[BlockFile],
    site: &Site,
) -> Result<CommandLine, SweepError> {
    let line = arm.line();
    let mut args = Vec::new();
    for arg in &arm.command[1..] {
        args.push(site.moved(arg, files)?.into());
    }
    let program = site.place(Path::new(&arm.program)).into();
    let folder = line.folder.as_deref().map(|folder| site.place(folder));
    Ok(CommandLine { program, args, folder, ..line })
}

#[cfg(test)]
mod tests;
