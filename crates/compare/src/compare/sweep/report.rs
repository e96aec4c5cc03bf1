//! What a sweep found: spread of each variant, the question at each matched level, missing cells.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Cell, Knob, SweepError, SweepRun, SweepSettings, Variant};
use crate::compare::identical::COUNTS_NOT_COMPARED;
use crate::compare::layouts::{
    AS_BUILT, Agreement, LayoutRun, LevelEffect, Matched, Part, Source, Split, agree,
    effect_by_rounds, layout_medians, split, spread_of_cells,
};
use crate::compare::neighbours::Disturbances;
use crate::compare::schedule::Arm;
use crate::compare::verdict::Decision;
use crate::compare::warning::threads_in_turns;
use crate::compare::{Metric, SameHotCode, fingerprint};
use crate::model::Unit;
use crate::run::child::FixedAddresses;

/// One build of the sweep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CellRecord {
    /// Variant and placement.
    #[serde(flatten)]
    pub cell: Cell,
    /// The file; absent when nothing is built or the build failed.
    pub program: Option<PathBuf>,
    /// Length of the program's file, bytes.
    pub program_bytes: u64,
    /// Fingerprint of the program: equal for equal files.
    pub fingerprint: String,
    /// How long the build took; 0 when it was there already.
    pub build_ns: u64,
    /// Why there is no program, as a sentence.
    pub failure: Option<String>,
    /// What the failed build said.
    pub log: Option<PathBuf>,
}

impl CellRecord {
    pub(super) fn unbuilt(cell: Cell) -> Self {
        Self {
            cell,
            program: None,
            program_bytes: 0,
            fingerprint: String::new(),
            build_ns: 0,
            failure: None,
            log: None,
        }
    }

    pub(super) fn built(cell: Cell, program: PathBuf, build_ns: u64) -> Result<Self, SweepError> {
        let (program_bytes, fingerprint) = crate::foreign::open(&program)
            .and_then(fingerprint::of_file)
            .map_err(|cause| SweepError::File { path: program.clone(), cause })?;
        Ok(Self {
            program: Some(program),
            program_bytes,
            fingerprint,
            build_ns,
            ..Self::unbuilt(cell)
        })
    }

    /// Whether the file is still what was built.
    pub(super) fn check(&self) -> Result<(), SweepError> {
        let Some(program) = &self.program else { return Ok(()) };
        let now = crate::foreign::open(program).and_then(fingerprint::of_file);
        let (bytes, print) =
            now.map_err(|cause| SweepError::File { path: program.clone(), cause })?;
        if (bytes, &print) == (self.program_bytes, &self.fingerprint) {
            Ok(())
        } else {
            Err(SweepError::Replaced(program.clone()))
        }
    }

    pub(super) fn failed(cell: Cell, why: String, log: PathBuf) -> Self {
        Self { failure: Some(why), log: Some(log), ..Self::unbuilt(cell) }
    }
}

/// How far placements of one variant lie apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// Variant in words.
    pub variant: String,
    /// The unit of the amounts.
    pub unit: Unit,
    /// Median of the build as it comes.
    pub as_built: Option<f64>,
    /// Random placements that were run.
    pub layouts: u32,
    /// Median of the medians of the placements.
    pub typical: f64,
    /// The fastest placement against the typical one (log).
    pub best_log: f64,
    /// The slowest placement against the typical one (log).
    pub worst_log: f64,
    /// Standard deviation between placements (log), noise of runs taken out.
    pub layout_sd_log: f64,
    /// Standard deviation of a run (log).
    pub run_sd_log: f64,
}

/// The question at one level of the matched axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LevelResult {
    /// The level in words; empty when there is only one axis.
    pub level: String,
    /// The difference taken apart; absent without placements.
    pub split: Option<Split>,
    /// The difference of the builds as they come, by rounds; absent with fewer than six.
    pub by_rounds: Option<Part>,
    /// Verdict about the variant.
    pub decision: Decision,
}

/// One value of the first axis against the first value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepComparison {
    /// Variant that it is compared with, in words.
    pub base: String,
    /// What is held against it.
    pub candidate: String,
    /// At each level of the other axes.
    pub levels: Vec<LevelResult>,
    /// All levels together; absent for one level.
    pub matched: Option<Matched>,
    /// The word: that of all levels when they agree.
    pub decision: Decision,
    /// Where the difference comes from, when all levels say the same.
    pub source: Source,
}

/// What a reader should know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SweepNote {
    /// Alignment of 16 on a processor with the erratum on jumps.
    JumpErratum,
    /// Some placements are the same file.
    SameFiles {
        /// Variant in words.
        variant: String,
        /// Number of placements that were asked for.
        layouts: u32,
        /// Number of different files among them.
        different: u32,
    },
    /// Two variants are the same file.
    SameVariants {
        /// First variant, in words.
        a: String,
        /// Second variant, in words.
        b: String,
    },
    /// Two variants hold the same code in all of their functions.
    SameCode {
        /// First variant, in words.
        a: String,
        /// Second variant, in words.
        b: String,
        /// Functions that both programs have.
        functions: u64,
        /// Of these, how many lie elsewhere.
        moved: u64,
    },
    /// Two variants take different time in code that is the same.
    SameHotCode {
        /// First variant, called A, in words.
        a: String,
        /// Second variant, called B, in words.
        b: String,
        /// The functions that were compared.
        same: SameHotCode,
    },
    /// Only the stack moved, not the code.
    StackOnly,
    /// The stack should have moved by as much as was asked for, and moves by itself.
    RandomAddresses,
    /// Nothing was placed at random.
    OneLayoutEach,
    /// No calibration chain could be run.
    Unguarded,
    /// A program with threads was held on one processor, where they take turns.
    ThreadsOnOneProcessor {
        /// The most threads that were seen at once in any of the programs.
        threads: u32,
    },
}

impl std::fmt::Display for SweepNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::JumpErratum => f.write_str(
                "this processor has the erratum on jumps at 32-byte boundaries: with functions at 16 \
                 bytes one measures the erratum (13-22 % on one Go program), not the code",
            ),
            Self::SameFiles { variant, layouts, different } => write!(
                f,
                "{variant}: {layouts} placements are only {different} different files; equal files are \
                 no evidence of their own"
            ),
            Self::SameVariants { a, b } => write!(
                f,
                "{a} and {b} are the same file as built: a difference between them is noise"
            ),
            Self::SameCode { a, b, functions, moved } => write!(
                f,
                "all {functions} functions of {a} and {b} as built hold the same code ({moved} lie \
                 elsewhere); {COUNTS_NOT_COMPARED}"
            ),
            Self::SameHotCode { a, b, same } => write!(f, "A {a}, B {b}: {same}"),
            Self::StackOnly => f.write_str(
                "only the stack was moved, by the size of the environment; the code stayed where it is",
            ),
            Self::RandomAddresses => f.write_str(
                "the stack starts elsewhere in every run, for fixed addresses are refused here \
                 (personality, which containers often forbid): these placements are none",
            ),
            Self::OneLayoutEach => f.write_str(
                "one placement of each variant: this is about these builds, and placement alone moves \
                 programs by 1-3 %; add --layouts 12",
            ),
            Self::ThreadsOnOneProcessor { threads } => {
                f.write_str(&threads_in_turns(&format!("up to {threads}"), *threads))
            }
            Self::Unguarded => f.write_str(
                "disturbed runs could not be told from others (no steady clock, or runs are not pinned)",
            ),
        }
    }
}

/// The result of `sweep`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepReport {
    /// Settings of the sweep.
    pub settings: SweepSettings,
    /// All combinations of the axes, in the order that cells number them.
    pub variants: Vec<Variant>,
    /// Every build, in the order of variants and placements.
    pub cells: Vec<CellRecord>,
    /// How far placements lie apart, per variant.
    pub spreads: Vec<Spread>,
    /// Every value of the first axis against the first.
    pub comparisons: Vec<SweepComparison>,
    /// What the calibration chain saw.
    pub disturbances: Option<Disturbances>,
    /// Circumstances that limit the conclusions.
    pub notes: Vec<SweepNote>,
    /// Every run in order of time.
    pub runs: Vec<SweepRun>,
}

pub(super) fn report(
    settings: &SweepSettings,
    variants: &[Variant],
    cells: Vec<CellRecord>,
    runs: Vec<SweepRun>,
    disturbances: Option<Disturbances>,
    erratum: bool,
) -> SweepReport {
    let notes = notes(settings, variants, &cells, disturbances.is_none(), erratum);
    SweepReport {
        spreads: (0..variants.len() as u32)
            .filter_map(|v| spread(settings, variants, v, &runs))
            .collect(),
        comparisons: comparisons(settings, variants, &runs),
        settings: settings.clone(),
        variants: variants.to_vec(),
        cells,
        disturbances,
        notes,
        runs,
    }
}

fn spread(
    settings: &SweepSettings,
    variants: &[Variant],
    variant: u32,
    runs: &[SweepRun],
) -> Option<Spread> {
    let mine: Vec<_> = runs
        .iter()
        .filter(|r| r.cell.variant == variant)
        .map(|r| ((variant, r.cell.layout), r.round, r.value(&settings.measure)))
        .collect();
    let medians = layout_medians(mine.iter().copied());
    let as_built = medians.get(&(variant, AS_BUILT)).map(|log| log.exp());
    let mut placed: Vec<f64> =
        medians.iter().filter(|(key, _)| key.1 != AS_BUILT).map(|(_, log)| *log).collect();
    placed.sort_by(f64::total_cmp);
    let all: Vec<f64> =
        if placed.is_empty() { medians.into_values().collect() } else { placed.clone() };
    let typical = crate::stats::robust::median(&all)?;
    let [layout_sd_log, run_sd_log] = spread_of_cells(mine.into_iter());
    Some(Spread {
        variant: variants.get(variant as usize)?.label(),
        unit: Metric::for_verdict(&settings.measure).unit(),
        as_built,
        layouts: placed.len() as u32,
        typical: typical.exp(),
        best_log: placed.first().map_or(0.0, |x| x - typical),
        worst_log: placed.last().map_or(0.0, |x| x - typical),
        layout_sd_log,
        run_sd_log,
    })
}

fn comparisons(
    settings: &SweepSettings,
    variants: &[Variant],
    runs: &[SweepRun],
) -> Vec<SweepComparison> {
    let Some(axis) = settings.axes.first() else { return Vec::new() };
    let per_value = variants.len() / axis.values.len().max(1);
    let delta_log = settings.effect.ln_1p();
    let word = |i: usize| format!("{}={}", axis.name, axis.values[i]);
    (1..axis.values.len())
        .map(|i| {
            let levels: Vec<LevelResult> = (0..per_value)
                .filter_map(|level| {
                    let pair = [level, i * per_value + level].map(|v| v as u32);
                    at_level(settings, &variants[level], pair, runs, delta_log)
                })
                .collect();
            let first = levels.first().map(|l| l.decision);
            let agreed = first.filter(|d| levels.iter().all(|l| l.decision == *d));
            let matched = (levels.len() > 1).then(|| matched(&levels)).flatten();
            let turns = matched.as_ref().is_some_and(|m| m.agreement == Agreement::ChangesSign);
            SweepComparison {
                base: word(0),
                candidate: word(i),
                decision: agreed.filter(|_| !turns).unwrap_or(Decision::Inconclusive),
                source: source(&levels),
                levels,
                matched,
            }
        })
        .collect()
}

fn at_level(
    settings: &SweepSettings,
    variant: &Variant,
    pair: [u32; 2],
    runs: &[SweepRun],
    delta_log: f64,
) -> Option<LevelResult> {
    let arm = |r: &SweepRun| {
        [Arm::A, Arm::B].into_iter().zip(pair).find(|(_, v)| *v == r.cell.variant).map(|p| p.0)
    };
    let mine: Vec<LayoutRun> = runs
        .iter()
        .filter_map(|r| {
            Some(LayoutRun {
                arm: arm(r)?,
                layout: r.cell.layout,
                round: r.round,
                value: r.value(&settings.measure),
            })
        })
        .collect();
    let both = [Arm::A, Arm::B].iter().all(|a| mine.iter().any(|r| r.arm == *a));
    if !both {
        return None;
    }
    let built: Vec<LayoutRun> = mine.iter().copied().filter(|r| r.layout == AS_BUILT).collect();
    let by_rounds = effect_by_rounds(&built);
    let split = (settings.layouts > 0).then(|| split(&mine, delta_log).ok()).flatten();
    let decision = match (&split, by_rounds) {
        (Some(split), _) => split.decision,
        (None, Some(part)) => word(part, delta_log),
        (None, None) => Decision::Inconclusive,
    };
    Some(LevelResult { level: variant.level(), split, by_rounds, decision })
}

fn word(part: Part, delta_log: f64) -> Decision {
    if part.low_log > -delta_log && part.high_log < delta_log {
        Decision::Equivalent
    } else if part.excludes_zero() && part.log_ratio >= delta_log {
        Decision::Slower
    } else if part.excludes_zero() && part.log_ratio <= -delta_log {
        Decision::Faster
    } else {
        Decision::Inconclusive
    }
}

fn matched(levels: &[LevelResult]) -> Option<Matched> {
    let effects = levels.iter().filter_map(|l| {
        let code = l.split.as_ref().and_then(|s| s.code);
        Some(LevelEffect { level: l.level.clone(), effect: code.or(l.by_rounds)? })
    });
    agree(effects.collect())
}

fn source(levels: &[LevelResult]) -> Source {
    let mut sources = levels.iter().map(|l| l.split.as_ref().map_or(Source::Open, |s| s.source));
    let first = sources.next().unwrap_or(Source::Open);
    if sources.all(|s| s == first) { first } else { Source::Open }
}

fn notes(
    settings: &SweepSettings,
    variants: &[Variant],
    cells: &[CellRecord],
    unguarded: bool,
    erratum: bool,
) -> Vec<SweepNote> {
    let mut notes = Vec::new();
    let at_16 =
        settings.axes.iter().any(|a| a.name.contains("align") && a.values.contains(&"16".into()));
    let typed = |t: &str| t.contains("funcalign=16") || t.contains("align-functions=16");
    if erratum && (at_16 || settings.build.as_deref().is_some_and(typed)) {
        notes.push(SweepNote::JumpErratum);
    }
    let placed = |variant: usize| {
        cells.iter().filter(move |c| {
            c.cell.variant == variant as u32 && c.cell.layout != AS_BUILT && c.program.is_some()
        })
    };
    for (v, variant) in variants.iter().enumerate() {
        let mut prints: Vec<&str> = placed(v).map(|c| c.fingerprint.as_str()).collect();
        let layouts = prints.len() as u32;
        prints.sort_unstable();
        prints.dedup();
        let different = prints.len() as u32;
        if settings.knob.rebuilds() && different < layouts {
            notes.push(SweepNote::SameFiles { variant: variant.label(), layouts, different });
        }
    }
    let plain: Vec<&CellRecord> =
        cells.iter().filter(|c| c.cell.layout == AS_BUILT && c.program.is_some()).collect();
    for (i, a) in plain.iter().enumerate() {
        for b in plain[..i].iter().filter(|b| b.fingerprint == a.fingerprint) {
            let [a, b] = [b, a].map(|c| variants[c.cell.variant as usize].label());
            notes.push(SweepNote::SameVariants { a, b });
        }
    }
    if settings.layouts == 0 {
        notes.push(SweepNote::OneLayoutEach);
    } else if settings.knob == Knob::Environment {
        notes.push(SweepNote::StackOnly);
        if FixedAddresses::new().is_none() {
            notes.push(SweepNote::RandomAddresses);
        }
    }
    if settings.guard && unguarded {
        notes.push(SweepNote::Unguarded);
    }
    notes
}
