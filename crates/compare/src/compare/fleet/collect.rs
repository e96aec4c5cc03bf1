//! Joins what came back: one look through all files for who ran what, then machine by machine.
//!
//! Only a place in a file is kept of each block, so that the memory is that of the runs of a few machines. The
//! order in which results come, and how often, changes nothing: blocks are taken by their number, the first in the
//! order of the files' names counts.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::Deserialize;

use super::files::{FleetError, PLAN, failed, next_line};
use super::job::Job;
use crate::compare::sweep::{
    Asked, Block, BlockResult, Host, SweepError, SweepNote, SweepReport, Tally, join_by, variants,
};
use crate::foreign;
use crate::machine::Design;

/// Runs that a document can hold; with more of them they stay in the files.
const MOST_RUNS: u64 = 1 << 20;

/// What came back, joined.
#[derive(Clone, Debug, PartialEq)]
pub struct Collected {
    /// The result, as a sweep on one machine has it.
    pub report: SweepReport,
    /// Numbers of the blocks that have not come back.
    pub missing: Vec<u32>,
}

/// Where a result is.
#[derive(Clone, Copy)]
struct Place {
    block: u32,
    host: u32,
    file: u32,
    offset: u64,
    bytes: u32,
}

/// The part of a result that tells whose it is.
#[derive(Deserialize)]
struct Heading {
    plan: String,
    block: u32,
    machine: Host,
}

/// What one file holds.
#[derive(Default)]
struct Contents {
    /// Its machines, as they come.
    hosts: Vec<Host>,
    /// The results, by machine of this file.
    places: Vec<Place>,
    unusable: u64,
}

/// The results in some folders, which have been listed and not read.
#[derive(Debug)]
pub struct Results {
    files: Vec<PathBuf>,
    /// What they were asked for.
    pub job: Job,
}

impl Results {
    /// Those in these folders.
    ///
    /// # Errors
    /// When they hold no plan, or several.
    pub fn of(folders: &[PathBuf]) -> Result<Self, FleetError> {
        let (files, plans) = listed(folders)?;
        Ok(Self { files, job: plan_of(folders, &plans)? })
    }

    /// The rounds among them, joined.
    ///
    /// # Errors
    /// When something else was asked for, nothing came back, or a file cannot be read.
    pub fn rounds(&self) -> Result<Collected, FleetError> {
        match &self.job {
            Job::Rounds(block) => join_rounds(&self.files, block),
            other => Err(FleetError::Otherwise(other.what())),
        }
    }

    /// Reads those that are joined whole, by `parse`, which is given the file and what it says, and has `None` for what is no
    /// result.
    ///
    /// # Errors
    /// As [`Results::rounds`], and with what `parse` refuses.
    pub fn each<T>(
        &self,
        mut parse: impl FnMut(&Path, &str) -> Result<Option<T>, FleetError>,
    ) -> Result<Back<T>, FleetError> {
        let plan = self.job.head();
        let mut found = BTreeMap::new();
        for path in &self.files {
            for Place { block, offset, bytes, .. } in look(path, plan.plan, plan.blocks)?.places {
                let Entry::Vacant(free) = found.entry(block) else { continue };
                let text = text_at(path, offset, bytes).map_err(failed(path))?;
                if let Some(result) = parse(path, &text)? {
                    free.insert(result);
                }
            }
        }
        if found.is_empty() {
            return Err(FleetError::Nothing);
        }
        let missing = (0..plan.blocks).filter(|block| !found.contains_key(block)).collect();
        Ok(Back { found, missing })
    }

    /// The profiles among them. The order in which they came changes nothing.
    ///
    /// # Errors
    /// As [`Results::each`], and when a profile is none that this program reads.
    pub fn profiles(&self) -> Result<Profiles, FleetError> {
        let parse = |path: &Path, text: &str| {
            let Ok(Probed { machine, profile }) = foreign::from_json(text) else { return Ok(None) };
            let wrong = |cause| FleetError::Profile { path: path.to_owned(), cause };
            let profile = Design::from_json(&profile.to_string()).map_err(wrong)?;
            Ok(Some((machine, profile)))
        };
        let Back { found, missing } = self.each::<(Host, Design)>(parse)?;
        let (mut seen, mut again) = (BTreeSet::new(), Vec::new());
        let mut by_kind: BTreeMap<String, Vec<Design>> = BTreeMap::new();
        for (block, (host, profile)) in found {
            if seen.insert(host.id) {
                by_kind.entry(host.kind).or_default().push(profile);
            } else {
                again.push(block);
            }
        }
        let named = |(kind, profiles): (String, Vec<Design>)| {
            (1..).zip(profiles).map(move |(number, profile)| match number {
                1 => (kind.clone(), profile),
                _ => (format!("{kind}-{number}"), profile),
            })
        };
        Ok(Profiles { machines: by_kind.into_iter().flat_map(named).collect(), missing, again })
    }
}

/// Joins the rounds in these folders.
///
/// # Errors
/// When they hold no plan, several, or nothing that came back, or when a file cannot be read.
pub fn collect(folders: &[PathBuf]) -> Result<Collected, FleetError> {
    Results::of(folders)?.rounds()
}

fn join_rounds(files: &[PathBuf], block: &Block) -> Result<Collected, FleetError> {
    let contents: Vec<Contents> = files
        .par_iter()
        .map(|path| look(path, &block.plan, block.blocks))
        .collect::<Result<_, FleetError>>()?;
    let mut tally = Tally { of: block.blocks, ..Tally::default() };
    // Numbered in the order of their names, whatever came first.
    let mut hosts: BTreeMap<Host, u32> = BTreeMap::new();
    for host in contents.iter().flat_map(|c| &c.hosts) {
        if !hosts.contains_key(host) {
            hosts.insert(host.clone(), 0);
        }
    }
    hosts.values_mut().zip(0..).for_each(|(number, n)| *number = n);
    let mut places: Vec<Place> = Vec::new();
    for (file, found) in (0..).zip(&contents) {
        tally.unusable += found.unusable;
        let host = |place: &Place| hosts[&found.hosts[place.host as usize]];
        places.extend(found.places.iter().map(|p| Place { host: host(p), file, ..*p }));
    }
    drop(contents);
    let all = places.len();
    // Stable: the first file that has a block is the one that counts.
    places.sort_by_key(|place| place.block);
    places.dedup_by_key(|place| place.block);
    tally.done = places.len() as u32;
    tally.duplicates = (all - places.len()) as u64;
    let missing = missing(&places, block.blocks);
    places.sort_by_key(|place| (place.host, place.block));
    let by_host: BTreeMap<u32, &[Place]> =
        places.chunk_by(|a, b| a.host == b.host).map(|mine| (mine[0].host, mine)).collect();
    let used: Vec<Host> =
        hosts.iter().filter(|(_, n)| by_host.contains_key(n)).map(|(h, _)| h.clone()).collect();
    if used.is_empty() {
        return Err(FleetError::Nothing);
    }
    let runs = places.len() as u64 * u64::from(block.rounds) * block.seats().len() as u64;
    let variants = variants(&block.settings.axes).map_err(FleetError::Sweep)?;
    let asked = Asked {
        settings: &block.settings,
        variants: &variants,
        cells: &block.cells,
        identical: &block.identical,
    };
    let lost = std::sync::atomic::AtomicU32::new(0);
    let read = |host: &Host| {
        let found = read(files, by_host[&hosts[host]], block)?;
        let short = by_host[&hosts[host]].len() - found.len();
        lost.fetch_add(short as u32, std::sync::atomic::Ordering::Relaxed);
        Ok(found)
    };
    let mut report = join_by(&asked, &used, runs <= MOST_RUNS, &read)?;
    let lost = lost.into_inner();
    tally.done -= lost;
    tally.unusable += u64::from(lost);
    report.notes.splice(0..0, block.notes.iter().cloned());
    if tally.done < tally.of {
        report.notes.push(SweepNote::BlocksMissing { done: tally.done, of: tally.of });
    }
    report.blocks = Some(tally);
    Ok(Collected { report, missing })
}

/// Files with results and files with plans, in the order of their names.
fn listed(folders: &[PathBuf]) -> Result<(Vec<PathBuf>, Vec<PathBuf>), FleetError> {
    let (mut files, mut plans) = (Vec::new(), Vec::new());
    for folder in folders {
        let mut here: Vec<PathBuf> = std::fs::read_dir(folder)
            .and_then(|entries| entries.map(|e| e.map(|e| e.path())).collect())
            .map_err(failed(folder))?;
        here.sort();
        for path in here {
            let name =
                path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            let is_ours = name.ends_with(".json") || name.ends_with(".jsonl");
            if name.starts_with(PLAN) && is_ours {
                plans.push(path);
            } else if is_ours && name != "submitted.json" {
                files.push(path);
            }
        }
    }
    Ok((files, plans))
}

/// The plan that all of these results are of.
fn plan_of(folders: &[PathBuf], plans: &[PathBuf]) -> Result<Job, FleetError> {
    let mut found: Option<Job> = None;
    for path in plans {
        let job = super::Plan::at(path).read(None)?.into_iter().next();
        let Some(job) = job else { continue };
        match found.as_ref().map(|first| (first.head(), job.head())) {
            // One that was planned with more blocks later is the same sweep.
            Some((first, other)) if first.plan == other.plan && first.blocks >= other.blocks => {}
            Some((first, other)) if first.plan != other.plan => {
                return Err(FleetError::SeveralPlans(first.plan.into(), other.plan.into()));
            }
            _ => found = Some(job),
        }
    }
    found.ok_or_else(|| FleetError::NoPlan(folders.first().cloned().unwrap_or_default()))
}

/// Goes through one file without keeping what it holds.
fn look(path: &Path, plan: &str, blocks: u32) -> Result<Contents, FleetError> {
    let file = foreign::open(path).map_err(failed(path))?;
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let (mut found, mut offset) = (Contents::default(), 0);
    while let Some(line) = next_line(&mut reader).map_err(failed(path))? {
        let bytes = line.len() as u32;
        match std::str::from_utf8(&line).ok().and_then(|text| foreign::from_json(text).ok()) {
            Some(Heading { plan: of, block, machine }) if of == plan && block < blocks => {
                if found.hosts.last() != Some(&machine) {
                    found.hosts.push(machine);
                }
                let host = found.hosts.len() as u32 - 1;
                found.places.push(Place { block, host, file: 0, offset, bytes });
            }
            _ => found.unusable += 1,
        }
        offset += u64::from(bytes) + 1;
    }
    Ok(found)
}

/// The whole results at these places, without those that are not what a block must be.
fn read(files: &[PathBuf], places: &[Place], plan: &Block) -> Result<Vec<BlockResult>, SweepError> {
    let seats = plan.seats();
    let mut open: Option<(u32, File)> = None;
    let mut found = Vec::with_capacity(places.len());
    for place in places {
        let path = &files[place.file as usize];
        let refused = |cause| SweepError::File { path: path.clone(), cause };
        let file = match open.take() {
            Some((number, file)) if number == place.file => file,
            _ => foreign::open(path).map_err(refused)?,
        };
        let mut line = vec![0; place.bytes as usize];
        file.read_exact_at(&mut line, place.offset).map_err(refused)?;
        open = Some((place.file, file));
        let text = std::str::from_utf8(&line).ok();
        let result = text.and_then(|text| foreign::from_json::<BlockResult>(text).ok());
        let span = plan.span_of(place.block);
        found.extend(result.filter(|result| result.is_whole(span, &seats)));
    }
    Ok(found)
}

/// What machines said that were probed.
#[derive(Clone, Debug, PartialEq)]
pub struct Profiles {
    /// The profile of each machine under a name of its own: its kind, with a number where several are of one kind.
    pub machines: Vec<(String, Design)>,
    /// Numbers of the blocks that have not come back.
    pub missing: Vec<u32>,
    /// Blocks that came back from a machine that had another one.
    pub again: Vec<u32>,
}

/// What came back of each block, once: the first file that has it counts, in the order of their names.
#[derive(Clone, Debug, PartialEq)]
pub struct Back<T> {
    /// By number of the block.
    pub found: BTreeMap<u32, T>,
    /// Numbers of the blocks that have not come back.
    pub missing: Vec<u32>,
}

/// The parts of a [`super::ProbeResult`] that a survey needs; the profile is read as such once its version is known.
#[derive(Deserialize)]
struct Probed {
    machine: Host,
    profile: serde_json::Value,
}

fn text_at(path: &Path, offset: u64, bytes: u32) -> std::io::Result<String> {
    let mut line = vec![0; bytes as usize];
    foreign::open(path)?.read_exact_at(&mut line, offset)?;
    Ok(String::from_utf8_lossy(&line).into_owned())
}

fn missing(sorted: &[Place], of: u32) -> Vec<u32> {
    let mut there = sorted.iter().map(|place| place.block).peekable();
    (0..of).filter(|block| there.next_if_eq(block).is_none()).collect()
}
