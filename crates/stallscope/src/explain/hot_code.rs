//! The hot code of the places that hold the difference, in both builds: each instruction with its samples, what happened to
//! it in the windows, and the stores that its loads were blocked by.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cause::{LEAST_PART, share_of};
use super::heat::sum_between;
use super::windows::{ArmWindows, BothArms, CodeAt};
use super::{Cause, Explanation, FunctionRow, Heat, Ledger, Place, Share, Whole};
use crate::code::{Block, DebugInfo, Function, FunctionCode, Image, Insn, Loop};
use crate::compare::{Arm, library_name};
use crate::model::{FileOffset, Site, SourceLine, Svma};
use crate::sim::Sites;
use crate::sim::core::{Account, Mechanism};

/// Places whose code is kept.
const MOST_PLACES: usize = 3;
/// Instructions of each that are kept: of a larger function without a hot loop, those with most samples.
const MOST_INSTRUCTIONS: usize = 400;
/// A loop with less of its function's samples, in per cent, does not stand for it.
const LEAST_LOOP_PERCENT: f64 = 50.0;
/// What fewer of a hundred executions have is not told of an instruction.
const LEAST_EVENTS_PERCENT: f64 = 1.0;
/// Pairs of a blocked load and a store that are kept of each build.
const MOST_BLOCKED: usize = 24;

/// The hot code of a place in both builds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HotCode {
    /// The place, as the rows and ledgers name it.
    pub place: String,
    /// Its code in BEFORE and AFTER; absent in a build that does not have it.
    pub builds: [Option<HotBuild>; 2],
}

/// The hot code of a place in one build: a loop, or the whole function where no loop has most of its samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HotBuild {
    /// The function's name.
    pub function: String,
    /// Where the code lies, and its share of the function's samples.
    #[serde(flatten)]
    pub extent: LoopHeat,
    /// Its instructions by address, up to 400 of them.
    pub instructions: Vec<HotInstruction>,
    /// The loads of the function that stores in flight blocked, most often first.
    pub blocked: Vec<BlockedLoad>,
}

/// Where code lies, with its share of the time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopHeat {
    /// Its first instruction by address.
    pub start: Svma,
    /// The address behind its last instruction.
    pub end: Svma,
    /// First and last source line of the function that it spans, where known.
    pub lines: Option<(SourceLine, SourceLine)>,
    /// Share of the function's samples.
    pub share_of_function: Share,
}

/// An instruction, with the samples that fell on it: they fall on what waits, often right behind what is waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HotInstruction {
    /// Its address.
    pub svma: Svma,
    /// It, in Intel syntax.
    pub text: String,
    /// Samples of all runs of its arm on it.
    pub samples: u64,
    /// How often it was executed in the windows.
    pub executions: u64,
    /// What at least one of a hundred executions had, of the mechanisms in its place's ledger.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Occurrence>,
    /// Where it comes from, the innermost frame; absent without debug information.
    pub source: Option<SourceLine>,
}

/// How often executions of an instruction had a mechanism, by the model of the core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Occurrence {
    /// Which.
    pub mechanism: Mechanism,
    /// Of a hundred executions, those that had it.
    pub percent: f64,
}

/// A load that was blocked by what one instruction had stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockedLoad {
    /// The load.
    pub load: Svma,
    /// The store; in any function, or another file.
    pub store: Site,
    /// Executions of the load in the windows that were blocked by it.
    pub times: u64,
    /// The same of a hundred executions.
    pub percent: f64,
}

impl LoopHeat {
    /// Of these blocks of a function; lines are those of the function's own file.
    pub(super) fn of<'a>(
        blocks: impl Iterator<Item = &'a Block>,
        code: &'a FunctionCode,
        debug: &DebugInfo<'_>,
        share_of_function: Share,
    ) -> Self {
        let insns: Vec<&Insn> = insns_of(blocks, code).collect();
        let start = insns.iter().map(|i| i.svma).min().unwrap_or_default();
        let end = insns.iter().map(|i| i.end()).max().unwrap_or_default();
        // The outermost frame is the function itself; what is inlined may come from anywhere.
        let lines = insns.iter().filter_map(|i| debug.frames(i.svma).pop());
        let mut lines: Vec<SourceLine> = lines.filter(|l| l.line > 0).collect();
        lines.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
        let file = debug.frames(start).pop().map(|l| l.file);
        lines.retain(|l| Some(&l.file) == file.as_ref());
        let lines = lines.first().cloned().zip(lines.last().cloned());
        Self { start, end, lines, share_of_function }
    }
}

/// The instructions of some blocks of a function.
fn insns_of<'a>(
    blocks: impl Iterator<Item = &'a Block>,
    code: &'a FunctionCode,
) -> impl Iterator<Item = &'a Insn> {
    blocks.flat_map(|block| &code.insns[block.first..block.end])
}

/// Samples of a loop.
pub(super) fn loop_hits(hits: &BTreeMap<Svma, u64>, code: &FunctionCode, around: &Loop) -> u64 {
    code.ranges(around).map(|range| sum_between(hits, range.start, range.end)).sum()
}

impl Explanation {
    /// The stores that block a load of a build, most often first; none where no windows were followed, or the load is not in
    /// the hot code.
    pub fn blocking_stores<'a>(
        &'a self,
        arm: Arm,
        load: &'a Site,
    ) -> impl Iterator<Item = &'a BlockedLoad> {
        let builds = self.hot_code.iter().filter_map(move |hot| hot.builds[arm.index()].as_ref());
        let builds = builds.filter(|build| build.function == load.function);
        builds.flat_map(|build| &build.blocked).filter(|it| it.load == load.svma)
    }
}

/// What the hot code is taken from.
pub(super) struct Known<'a> {
    pub images: &'a [Image; 2],
    pub debug: &'a [DebugInfo<'a>; 2],
    pub heats: &'a [Heat; 2],
    pub rows: &'a [FunctionRow],
    pub ledgers: &'a [Ledger],
    pub causes: &'a [Cause],
    /// By what the core may be; none where no windows were followed.
    pub windows: &'a [BothArms],
}

/// The hot code of the places with most of the difference, most first.
pub(super) fn find(known: &Known<'_>) -> Vec<HotCode> {
    let holds_enough = |row: &&FunctionRow| row.share_of_difference.percent.value >= LEAST_PART;
    let of_row = |row: &FunctionRow| {
        let builds = [Arm::A, Arm::B].map(|arm| match &row.place {
            Place::Function { .. } => known.in_program(row, arm),
            Place::Object { .. } => known.in_object(row, arm),
        });
        let place = row.place.name().to_owned();
        builds.iter().any(Option::is_some).then_some(HotCode { place, builds })
    };
    known.rows.iter().filter(holds_enough).take(MOST_PLACES).filter_map(of_row).collect()
}

/// A function of one build with what is known of it.
struct Side<'a> {
    image: &'a Image,
    debug: &'a DebugInfo<'a>,
    function: &'a Function,
    hits: &'a BTreeMap<Svma, u64>,
    insns: BTreeMap<Svma, Account>,
    /// Mechanisms that are told of instructions.
    mechanisms: Vec<Mechanism>,
    blocked: Vec<BlockedLoad>,
    /// The site of a cause in it.
    site: Option<Svma>,
}

impl Known<'_> {
    fn ledger(&self, row: &FunctionRow) -> Option<&Ledger> {
        self.ledgers.iter().find(|ledger| ledger.place == row.place.name())
    }

    /// The windows of an arm by the core that the place's ledger takes.
    fn windows(&self, row: &FunctionRow, arm: Arm) -> Option<&ArmWindows> {
        let core = self.ledger(row).map(|ledger| ledger.core);
        let nearest = self.windows.iter().find(|both| Some(both.core) == core);
        nearest.or(self.windows.first()).map(|both| &both.arms[arm.index()])
    }

    fn mechanisms(&self, row: &FunctionRow) -> Vec<Mechanism> {
        let lines = self.ledger(row).map(|ledger| &ledger.lines[..]).unwrap_or_default();
        lines.iter().map(|line| line.mechanism).filter(|it| it.has_events()).collect()
    }

    fn in_program(&self, row: &FunctionRow, arm: Arm) -> Option<HotBuild> {
        let (n, function) = (arm.index(), row.place.function(arm)?);
        let windows = self.windows(row, arm);
        let insns = windows.map(|it| it.insns(function.start, function.end())).unwrap_or_default();
        let own = |at: &CodeAt| match at.object {
            None => self.images[n].svma_of(at.offset).filter(|at| function.contains(*at)),
            Some(_) => None,
        };
        let is_own = |it: &&Cause| it.arm == arm && function.contains(it.finding.site.svma);
        let cause = self.causes.iter().find(is_own);
        let side = Side {
            image: &self.images[n],
            debug: &self.debug[n],
            function,
            hits: &self.heats[n].by_svma,
            blocked: self.blocked(windows, arm, &insns, own),
            insns,
            mechanisms: self.mechanisms(row),
            site: cause.map(|cause| cause.finding.site.svma),
        };
        Some(side.hot())
    }

    /// In another file, the function with most samples.
    fn in_object(&self, row: &FunctionRow, arm: Arm) -> Option<HotBuild> {
        let path = row.place.object(arm)?;
        let heat = self.heats[arm.index()].by_object.get(&library_name(path))?;
        let image = Image::open(path).ok()?;
        let at = |offset| image.svma_of(offset);
        let hits = heat.by_offset.iter().filter_map(|(offset, hits)| Some((at(*offset)?, *hits)));
        let hits: BTreeMap<Svma, u64> = hits.collect();
        let Place::Object { most_in, .. } = &row.place else { return None };
        let is_told = |it: &&Function| most_in.as_ref().is_none_or(|name| it.name() == *name);
        let sampled = hits.keys().filter_map(|at| image.function_at(*at));
        let function = sampled
            .filter(is_told)
            .max_by_key(|it| (sum_between(&hits, it.start, it.end()), it.start))?;
        let windows = self.windows(row, arm);
        let insns = windows.map(|it| it.insns_of_object(path)).unwrap_or_default();
        let insns = insns.into_iter().filter_map(|(offset, account)| Some((at(offset)?, account)));
        let insns: BTreeMap<Svma, Account> = insns.collect();
        let own = |place: &CodeAt| {
            let is_here = place.object.as_deref() == Some(path);
            at(place.offset).filter(|svma| is_here && function.contains(*svma))
        };
        let side = Side {
            image: &image,
            debug: &DebugInfo::of(&image),
            function,
            hits: &hits,
            blocked: self.blocked(windows, arm, &insns, own),
            insns,
            mechanisms: self.mechanisms(row),
            site: None,
        };
        Some(side.hot())
    }

    /// The blocked loads of a function, which has those that `own` knows, with their stores.
    fn blocked(
        &self,
        windows: Option<&ArmWindows>,
        arm: Arm,
        insns: &BTreeMap<Svma, Account>,
        own: impl Fn(&CodeAt) -> Option<Svma>,
    ) -> Vec<BlockedLoad> {
        let Some(windows) = windows else { return Vec::new() };
        let percent = |load: Svma, times: u64| {
            let executions = insns.get(&load).map_or(0, |account| account.executions);
            100.0 * times as f64 / executions.max(1) as f64
        };
        let pairs = windows.blocked_by.iter().filter_map(|([load, store], times)| {
            let load = own(load)?;
            let percent = percent(load, *times);
            (percent >= LEAST_EVENTS_PERCENT).then_some((load, store, *times, percent))
        });
        let mut pairs: Vec<_> = pairs.collect();
        pairs.sort_by_key(|(load, store, times, _)| (std::cmp::Reverse(*times), *load, *store));
        pairs.truncate(MOST_BLOCKED);
        // Each file is opened once.
        let mut stores: BTreeMap<Option<&Path>, BTreeMap<FileOffset, Option<Site>>> =
            BTreeMap::new();
        for (_, store, ..) in &pairs {
            stores.entry(store.object.as_deref()).or_default().insert(store.offset, None);
        }
        for (path, at) in &mut stores {
            match path {
                None => describe(&self.images[arm.index()], &self.debug[arm.index()], at),
                Some(path) => {
                    if let Ok(image) = Image::open(path) {
                        describe(&image, &DebugInfo::of(&image), at);
                    }
                }
            }
        }
        let blocked = pairs.into_iter().filter_map(|(load, store, times, percent)| {
            let store = stores.get(&store.object.as_deref())?.get(&store.offset)?.clone()?;
            Some(BlockedLoad { load, store, times, percent })
        });
        blocked.collect()
    }
}

/// What stands at places in a file, where a function does.
fn describe(image: &Image, debug: &DebugInfo<'_>, all: &mut BTreeMap<FileOffset, Option<Site>>) {
    let mut sites = Sites::new(image, debug);
    for (at, site) in all {
        *site = image.svma_of(*at).and_then(|svma| sites.site(svma));
    }
}

impl Side<'_> {
    fn hot(self) -> HotBuild {
        let code = FunctionCode::of(self.image, self.function);
        let of_site =
            self.site.and_then(|site| code.innermost_loop(code.block_of(code.insn_at(site)?)));
        let in_function = sum_between(self.hits, self.function.start, self.function.end());
        let share = |hits| share_of(hits, in_function, Whole::FunctionSamples);
        let in_loop = |it: &Loop| share(loop_hits(self.hits, &code, it));
        let stands_for_it = |it: &&Loop| in_loop(it).percent.value >= LEAST_LOOP_PERCENT;
        let around = of_site.or_else(|| hottest_loop(self.hits, &code).filter(stands_for_it));
        let (blocks, share): (Vec<&Block>, Share) = match around {
            Some(it) => (code.bodies(it).collect(), in_loop(it)),
            None => (code.blocks.iter().collect(), share(in_function)),
        };
        let extent = LoopHeat::of(blocks.iter().copied(), &code, self.debug, share);
        let mut insns: Vec<&Insn> = insns_of(blocks.into_iter(), &code).collect();
        if insns.len() > MOST_INSTRUCTIONS {
            insns.sort_by_key(|it| (std::cmp::Reverse(self.samples(it)), it.svma));
            insns.truncate(MOST_INSTRUCTIONS);
            insns.sort_by_key(|it| it.svma);
        }
        let instructions = insns.into_iter().map(|insn| self.instruction(insn)).collect();
        HotBuild { function: self.function.name(), extent, instructions, blocked: self.blocked }
    }

    fn samples(&self, insn: &Insn) -> u64 {
        sum_between(self.hits, insn.svma, insn.end())
    }

    fn instruction(&self, insn: &Insn) -> HotInstruction {
        let bytes = self.image.code_at(insn.svma, u64::from(insn.length_bytes));
        let account = self.insns.get(&insn.svma).copied().unwrap_or_default();
        let of = |mechanism: &Mechanism| {
            let percent = account.events_per_thousand(*mechanism) / 10.0;
            (percent >= LEAST_EVENTS_PERCENT)
                .then_some(Occurrence { mechanism: *mechanism, percent })
        };
        HotInstruction {
            svma: insn.svma,
            text: self.image.architecture().text(bytes, insn.svma),
            samples: self.samples(insn),
            executions: account.executions,
            events: self.mechanisms.iter().filter_map(of).collect(),
            source: self.debug.frames(insn.svma).into_iter().next().filter(|line| line.line > 0),
        }
    }
}

/// The innermost of the loops that most of a function's samples are in.
fn hottest_loop<'a>(hits: &BTreeMap<Svma, u64>, code: &'a FunctionCode) -> Option<&'a Loop> {
    let all: Vec<(u64, &Loop)> =
        code.loops.iter().map(|of| (loop_hits(hits, code, of), of)).collect();
    let most = all.iter().map(|(hits, _)| *hits).max().filter(|most| *most > 0)?;
    let hot = all.into_iter().filter(|(hits, _)| 2 * hits > most);
    hot.max_by_key(|(_, of)| of.depth).map(|(_, of)| of)
}
