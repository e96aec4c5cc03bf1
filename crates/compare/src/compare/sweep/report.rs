//! What a sweep found: spread of each variant, the question at each matched level, missing cells.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::machines::{AcrossMachines, Asked, MachineRecord, Tally};
use super::{Cell, Knob, SweepError, SweepRun, SweepSettings, Variant};
use crate::compare::identical::COUNTS_NOT_COMPARED;
use crate::compare::layouts::{
    AS_BUILT, Agreement, Ensemble, LayoutRun, LevelEffect, Matched, Part, Source, Split, agree,
    effect_by_rounds,
};
use crate::compare::neighbours::Disturbances;
use crate::compare::schedule::Arm;
use crate::compare::sequential::{Looks, Until};
use crate::compare::verdict::Decision;
use crate::compare::warning::threads_in_turns;
use crate::compare::{Metric, SameHotCode, fingerprint};
use crate::machine::Machine;
use crate::model::Unit;
use crate::run::child::FixedAddresses;
use crate::stats::robust::median;

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
    /// How long the build took, also when that was earlier.
    pub build_ns: u64,
    /// Whether it came from the cache.
    #[serde(default)]
    pub cached: bool,
    /// Why there is no program, as a sentence.
    pub failure: Option<String>,
    /// What the failed build said.
    pub log: Option<PathBuf>,
}

impl CellRecord {
    /// Why there is no program, and where it stands what the failed build said; `None` where there is one.
    #[must_use]
    pub fn why_unbuilt(&self) -> Option<String> {
        let log = self.log.as_ref().map(|log| format!(" (log: {})", log.display()));
        Some(self.failure.clone()? + &log.unwrap_or_default())
    }

    pub(super) fn unbuilt(cell: Cell) -> Self {
        Self {
            cell,
            program: None,
            program_bytes: 0,
            fingerprint: String::new(),
            build_ns: 0,
            cached: false,
            failure: None,
            log: None,
        }
    }

    pub(super) fn built(
        cell: Cell,
        program: PathBuf,
        build_ns: u64,
        cached: bool,
    ) -> Result<Self, SweepError> {
        let (program_bytes, fingerprint) = crate::foreign::open(&program)
            .and_then(fingerprint::of_file)
            .map_err(|cause| SweepError::File { path: program.clone(), cause })?;
        Ok(Self {
            program: Some(program),
            program_bytes,
            fingerprint,
            build_ns,
            cached,
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
    /// What each machine says, and what follows for machines like these; absent for a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machines: Option<AcrossMachines>,
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
    /// Two variants run the same bytes with the same arguments.
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
    /// The runs waited for the processor, so that the answer is about time on it.
    JudgedByProcessorTime,
    /// A program with threads was held on one processor, where they take turns.
    ThreadsOnOneProcessor {
        /// The most threads that were seen at once in any of the programs.
        threads: u32,
    },
    /// Blocks of the plan are not there.
    BlocksMissing {
        /// Number that came back.
        done: u32,
        /// Of so many.
        of: u32,
    },
    /// The runs are too many to be kept in the result.
    RunsLeftOut {
        /// Number of them.
        runs: u64,
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
                "{a} and {b} as built are the same bytes, run alike: whatever differs is the machine, and \
                 never called code or placement"
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
                 programs by 1-3 %; `sweep --build … --layouts 12` tells the two apart",
            ),
            Self::JudgedByProcessorTime => f.write_str(
                "the runs waited for the processor, so this is about time on it (--metric wall is about \
                 wall time)",
            ),
            Self::ThreadsOnOneProcessor { threads } => {
                f.write_str(&threads_in_turns(&format!("up to {threads}"), *threads))
            }
            Self::BlocksMissing { done, of } => write!(
                f,
                "{done} of {of} blocks came back: that costs precision, and what is looked at again as more \
                 come back is not one look"
            ),
            Self::RunsLeftOut { runs } => write!(
                f,
                "the {runs} runs stay in the files of the blocks: too many for one document"
            ),
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
    /// What the answer is about.
    pub metric: Metric,
    /// How many of the runs are of earlier sweeps of the same builds.
    pub earlier_runs: u64,
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
    /// The machines that ran it.
    #[serde(default)]
    pub machines: Vec<MachineRecord>,
    /// What came back of a plan; absent for a sweep that was run here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<Tally>,
    /// Every run, machine by machine, in order of time.
    pub runs: Vec<SweepRun>,
}

/// What these runs are judged by.
pub(super) fn metric_of(settings: &SweepSettings, runs: &[SweepRun]) -> Metric {
    Metric::chosen(&settings.measure, runs.iter().map(|r| &r.amounts))
}

pub(super) fn ensemble_of(runs: &[SweepRun], metric: Metric) -> Ensemble {
    let cell = |r: &SweepRun| ((r.cell.variant, r.cell.layout), r.round, metric.of(&r.amounts));
    Ensemble::new(runs.iter().map(cell))
}

pub(super) fn spread(
    ensemble: &Ensemble,
    metric: Metric,
    variants: &[Variant],
    variant: u32,
) -> Option<Spread> {
    let layouts = ensemble.layouts(variant);
    let as_built = layouts.iter().find(|l| l.layout == AS_BUILT).map(|l| l.median_log.exp());
    let logs = |placed: bool| -> Vec<f64> {
        let wanted = layouts.iter().filter(|l| !placed || l.layout != AS_BUILT);
        wanted.map(|l| l.median_log).collect()
    };
    let mut placed = logs(true);
    placed.sort_by(f64::total_cmp);
    let typical = median(&if placed.is_empty() { logs(false) } else { placed.clone() })?;
    let [layout_sd_log, run_sd_log] = ensemble.spread(&[variant]);
    Some(Spread {
        variant: variants.get(variant as usize)?.label(),
        unit: metric.unit(),
        as_built,
        layouts: placed.len() as u32,
        typical: typical.exp(),
        best_log: placed.first().map_or(0.0, |x| x - typical),
        worst_log: placed.last().map_or(0.0, |x| x - typical),
        layout_sd_log,
        run_sd_log,
    })
}

/// Every value of the first axis held against the first, at each level as `at` finds it.
pub(super) fn comparisons(
    settings: &SweepSettings,
    variants: &[Variant],
    identical: &[[u32; 2]],
    at: &dyn Fn(&Variant, [u32; 2]) -> Option<LevelResult>,
) -> Vec<SweepComparison> {
    let Some(axis) = settings.axes.first() else { return Vec::new() };
    let per_value = variants.len() / axis.values.len().max(1);
    let word = |i: usize| format!("{}={}", axis.name, axis.values[i]);
    (1..axis.values.len())
        .map(|i| {
            let levels: Vec<LevelResult> = (0..per_value)
                .filter_map(|level| {
                    let pair = [level, i * per_value + level].map(|v| v as u32);
                    let mut found = at(&variants[level], pair)?;
                    if identical.contains(&pair) {
                        found.of_identical();
                    }
                    Some(found)
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

/// The runs of both builds as they come.
fn as_built(pair: [u32; 2], runs: &[SweepRun], metric: Metric) -> Vec<LayoutRun> {
    let mine = runs.iter().filter(|r| r.cell.layout == AS_BUILT);
    mine.filter_map(|r| {
        let arm = [Arm::A, Arm::B].into_iter().zip(pair).find(|(_, v)| *v == r.cell.variant)?.0;
        Some(LayoutRun { arm, layout: AS_BUILT, round: r.round, value: metric.of(&r.amounts) })
    })
    .collect()
}

/// The question at one level, from runs of one machine.
pub(super) fn at_level(
    settings: &SweepSettings,
    variant: &Variant,
    pair: [u32; 2],
    (runs, metric, ensemble): (&[SweepRun], Metric, &Ensemble),
) -> Option<LevelResult> {
    let delta_log = settings.effect.ln_1p();
    let looks = Looks::of(settings.until);
    // Without runs of both there is nothing to compare.
    let split = ensemble.split(pair, delta_log, looks).ok()?;
    let by_rounds = effect_by_rounds(&as_built(pair, runs, metric), looks);
    let split = (settings.layouts > 0).then_some(split);
    let decision = match (&split, by_rounds) {
        (Some(split), _) => split.decision,
        (None, Some(part)) => word(part, delta_log),
        (None, None) => Decision::Inconclusive,
    };
    Some(LevelResult { level: variant.level(), split, by_rounds, decision, machines: None })
}

impl LevelResult {
    /// Both run the same bytes: a difference is the machine's, neither code's nor placement's.
    fn of_identical(&mut self) {
        let doubted = |decision| match decision {
            Decision::Slower | Decision::Faster => Decision::Inconclusive,
            other => other,
        };
        self.decision = doubted(self.decision);
        for kind in self.machines.iter_mut().flat_map(|m| &mut m.kinds) {
            kind.decision = doubted(kind.decision);
        }
        if let Some(split) = &mut self.split {
            split.decision = doubted(split.decision);
            if matches!(split.source, Source::Code | Source::Placement) {
                split.source = Source::Open;
            }
        }
    }

    /// Whether nothing of what was asked for is open.
    pub(super) fn settles(&self, until: Until) -> bool {
        let part = match &self.split {
            Some(split) => split.code,
            None => self.by_rounds,
        };
        match until {
            Until::Verdict => self.decision != Decision::Inconclusive,
            // Not equivalent is known once the interval excludes zero.
            Until::Equivalent => {
                self.decision == Decision::Equivalent || part.is_some_and(|p| p.excludes_zero())
            }
        }
    }
}

pub(super) fn word(part: Part, delta_log: f64) -> Decision {
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

/// What follows from the settings and the builds.
pub(super) fn notes(asked: &Asked<'_>) -> Vec<SweepNote> {
    let Asked { settings, variants, cells, identical } = asked;
    let erratum = Machine::detect().jcc_erratum;
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
    for pair in *identical {
        let [a, b] = pair.map(|variant| variants[variant as usize].label());
        notes.push(SweepNote::SameVariants { a, b });
    }
    if settings.layouts == 0 {
        notes.push(SweepNote::OneLayoutEach);
    } else if settings.knob == Knob::Environment {
        notes.push(SweepNote::StackOnly);
        if FixedAddresses::new().is_none() {
            notes.push(SweepNote::RandomAddresses);
        }
    }
    notes
}
