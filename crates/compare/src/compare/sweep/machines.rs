//! Blocks of many machines as one result: what each machine says, and what follows for machines like these.
//!
//! *Effect.* The same change is worth something else on another machine, on one of another kind above all. A
//! thousand runs on two machines know two machines.
//!
//! *Model.* `log t = arm + layout(arm) + machine + arm·machine + round + run`. Each machine is judged alone, by
//! what judges the sweep of one machine, so that what machine and round share is gone. The effects of the machines
//! of one kind are then joined as random ([`crate::stats::random_effects`]); layouts are the same builds on
//! all machines, so their spread is a part of the variance that no number of machines takes away. Kinds are kept apart. A
//! machine whose placebo shows something, whose clocks disagree, or that lies far from all others of its
//! kind is set aside, and named.

use std::collections::BTreeMap;

use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::block::{BlockResult, Host};
use super::report::{
    CellRecord, LevelResult, SweepNote, SweepReport, at_level, comparisons, ensemble_of, metric_of,
    notes, spread, word,
};
use super::{SweepError, SweepRun, SweepSettings, Variant};
use crate::compare::layouts::{
    Agreement, Difference, Ensemble, FEWEST_LAYOUTS, LayoutValue, LevelEffect, Part, Source, Split,
    agree,
};
use crate::compare::neighbours::Disturbances;
use crate::compare::sequential::Looks;
use crate::compare::verdict::Decision;
use crate::compare::{Measure, Metric};
use crate::stats::power::FEWEST_PAIRS;
use crate::stats::random_effects::{far_off, random_effects};
use crate::stats::robust::median;
use crate::stats::student::{mean_and_sd, paired_t, t_quantile};
use crate::stats::{ALPHA, Z};

/// Chance that a machine without any fault has a placebo that counts against it.
const PLACEBO_ALPHA: f64 = 0.001;
/// How far two clocks may disagree: twice what NTP may slew.
const MOST_CLOCK_LOG: f64 = 0.001;

/// Why a machine is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "id", rename_all = "kebab-case")]
pub enum SetAside {
    /// One build beside itself differs by as much as matters.
    Placebo {
        /// The difference, a log ratio.
        log_ratio: f64,
    },
    /// Its clock runs at another rate than the one that nothing steers.
    Clock {
        /// The ratio of both, logarithm.
        log_ratio: f64,
    },
    /// Its effect lies far from those of all others of its kind.
    FarOff {
        /// Its effect, a log ratio.
        log_ratio: f64,
        /// The median of the others.
        usual_log: f64,
    },
}

/// A machine of the sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineRecord {
    /// Which one.
    #[serde(flatten)]
    pub host: Host,
    /// Blocks that it ran.
    pub blocks: u32,
    /// Runs in them.
    pub runs: u64,
    /// What the calibration chain saw.
    pub disturbances: Option<Disturbances>,
    /// Why it is not believed; where it is the only one, it is judged all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_aside: Option<SetAside>,
}

/// What one machine says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineEffect {
    /// Number of the machine in the report.
    pub machine: u32,
    /// Its effect, a log ratio.
    pub log_ratio: f64,
    /// What a sweep of this machine alone would have said; absent where it has too few rounds.
    pub alone: Option<Part>,
}

/// What machines of one kind say together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KindEffect {
    /// The kind.
    pub kind: String,
    /// Number of machines that are believed.
    pub machines: u32,
    /// The mean over machines like these; of a single one, what it says of itself.
    pub effect: Part,
    /// Standard deviation between machines (log), noise taken out.
    pub machine_sd_log: f64,
    /// Where one more machine like these would lie, with 95 %; absent below three.
    pub another: Option<Part>,
    /// The word for this kind.
    pub decision: Decision,
}

/// The question over several machines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AcrossMachines {
    /// By kind of machine, in alphabetical order.
    pub kinds: Vec<KindEffect>,
    /// Whether the kinds show the same.
    pub agreement: Agreement,
    /// Every machine that has both.
    pub each: Vec<MachineEffect>,
}

impl KindEffect {
    /// A machine that tells of itself alone.
    fn of_one(kind: &str, effect: Part, decision: Decision) -> Self {
        let kind = kind.to_owned();
        Self { kind, machines: 1, effect, machine_sd_log: 0.0, another: None, decision }
    }

    /// Joins effects with the variance of their noise; `None` for fewer than two. `of_layouts` is how far the interval reaches for
    /// placements that all machines share.
    fn joined(
        kind: &str,
        effects: &[(f64, f64)],
        of_layouts: f64,
        judge: &dyn Fn(Part) -> Decision,
    ) -> Option<Self> {
        let joint = random_effects(effects)?;
        let reach = reach_of(joint.standard_error, joint.freedom).hypot(of_layouts);
        let effect = Part::around(joint.mean, reach);
        Some(Self {
            machines: effects.len() as u32,
            machine_sd_log: joint.between_sd,
            another: joint.reach_of_another(reach).map(|reach| Part::around(joint.mean, reach)),
            ..Self::of_one(kind, effect, judge(effect))
        })
    }
}

impl AcrossMachines {
    /// Joins what machines say for themselves, each once, in the order of their numbers; `delta_log` is the smallest effect of
    /// interest. `None` where no machine says anything.
    #[must_use]
    pub fn of(machines: &[(&Host, u32, Part)], delta_log: f64) -> Option<Self> {
        let mut by_kind: BTreeMap<&str, Vec<Part>> = BTreeMap::new();
        for (host, _, effect) in machines {
            by_kind.entry(&host.kind).or_default().push(*effect);
        }
        let judge = |effect| word(effect, delta_log);
        let variance = |effect: &Part| ((effect.high_log - effect.low_log) / (2.0 * Z)).powi(2);
        let of_kind = |(kind, effects): (&str, Vec<Part>)| {
            let noised: Vec<(f64, f64)> =
                effects.iter().map(|e| (e.log_ratio, variance(e))).collect();
            let alone = || KindEffect::of_one(kind, effects[0], judge(effects[0]));
            KindEffect::joined(kind, &noised, 0.0, &judge).unwrap_or_else(alone)
        };
        let kinds: Vec<KindEffect> = by_kind.into_iter().map(of_kind).collect();
        let each = machines.iter().map(|(_, machine, effect)| MachineEffect {
            machine: *machine,
            log_ratio: effect.log_ratio,
            alone: Some(*effect),
        });
        Some(Self { agreement: agreement(&kinds)?, each: each.collect(), kinds })
    }
}

fn agreement(kinds: &[KindEffect]) -> Option<Agreement> {
    let of = |kind: &KindEffect| LevelEffect { level: kind.kind.clone(), effect: kind.effect };
    Some(agree(kinds.iter().map(of).collect())?.agreement)
}

/// What came back of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tally {
    /// Blocks of the plan.
    pub of: u32,
    /// Blocks that are there, each counted once.
    pub done: u32,
    /// Results that were there already.
    pub duplicates: u64,
    /// Lines that are no whole result, or not one of this plan.
    pub unusable: u64,
}

/// What a sweep was about.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub settings: &'a SweepSettings,
    pub variants: &'a [Variant],
    pub cells: &'a [CellRecord],
    /// Variants that run the same bytes with the same arguments.
    pub identical: &'a [[u32; 2]],
}

impl Asked<'_> {
    /// Each value of the first axis with its base, at every level.
    fn pairs(&self) -> Vec<[u32; 2]> {
        let values = self.settings.axes.first().map_or(1, |axis| axis.values.len().max(1)) as u32;
        let levels = self.variants.len() as u32 / values;
        (1..values)
            .flat_map(|i| (0..levels).map(move |level| [level, i * levels + level]))
            .collect()
    }
}

/// These blocks as one result.
pub(crate) fn join(asked: &Asked<'_>, blocks: Vec<BlockResult>) -> Result<SweepReport, SweepError> {
    let mut by_host: BTreeMap<Host, Vec<BlockResult>> = BTreeMap::new();
    for block in blocks {
        by_host.entry(block.machine.clone()).or_default().push(block);
    }
    let hosts: Vec<Host> = by_host.keys().cloned().collect();
    join_by(asked, &hosts, true, &|host| Ok(by_host[host].clone()))
}

/// The blocks of these machines as one result; they are read machine by machine, so that the memory that is
/// needed is that of one machine's blocks, unless the runs are kept.
pub(crate) fn join_by(
    asked: &Asked<'_>,
    hosts: &[Host],
    keeps_runs: bool,
    read: &(dyn Fn(&Host) -> Result<Vec<BlockResult>, SweepError> + Sync),
) -> Result<SweepReport, SweepError> {
    let look = |(number, host): (usize, &Host)| {
        Ok(Looked::at(asked, number as u32, host, read(host)?, keeps_runs || hosts.len() == 1))
    };
    let mut all: Vec<Looked> =
        hosts.par_iter().enumerate().map(look).collect::<Result<_, SweepError>>()?;
    let mut report = match &mut all[..] {
        [alone] => of_one(asked, alone),
        all => of_many(asked, all)?,
    };
    report.disturbances =
        all.iter().filter_map(|one| one.record.disturbances).reduce(Disturbances::plus);
    if asked.settings.guard && report.disturbances.is_none() {
        report.notes.push(SweepNote::Unguarded);
    }
    let by_processor = all.iter().any(|one| one.metric == Metric::Cpu);
    if by_processor && asked.settings.measure == Measure::Auto {
        report.notes.push(SweepNote::JudgedByProcessorTime);
    }
    let (mut runs, mut left_out) = (Vec::new(), 0);
    for one in &mut all {
        left_out += one.record.runs - one.runs.len() as u64;
        runs.append(&mut one.runs);
        report.machines.push(one.record.clone());
    }
    report.runs = runs;
    if left_out > 0 {
        report.notes.push(SweepNote::RunsLeftOut { runs: left_out });
    }
    Ok(report)
}

/// What is kept of a machine when its runs have been looked at.
struct Looked {
    number: u32,
    record: MachineRecord,
    metric: Metric,
    layouts: Vec<(u32, Vec<LayoutValue>)>,
    effects: BTreeMap<[u32; 2], (Difference, Option<Part>)>,
    runs: Vec<SweepRun>,
}

impl Looked {
    fn at(
        asked: &Asked<'_>,
        number: u32,
        host: &Host,
        blocks: Vec<BlockResult>,
        keeps_runs: bool,
    ) -> Self {
        let count = blocks.len() as u32;
        let disturbances = blocks.iter().filter_map(|b| b.disturbances).reduce(Disturbances::plus);
        let clocks: Vec<f64> = blocks.iter().filter_map(|b| b.clock_log).collect();
        let placebos: Vec<SweepRun> = blocks.iter().flat_map(|b| b.placebos.clone()).collect();
        let runs: Vec<SweepRun> = blocks
            .into_iter()
            .flat_map(|b| b.runs)
            .map(|run| SweepRun { machine: number, ..run })
            .collect();
        let metric = metric_of(asked.settings, &runs);
        let ensemble = ensemble_of(&runs, metric);
        let is_placed = asked.settings.layouts > 0;
        let effect = |pair: [u32; 2]| {
            let difference = ensemble.difference(pair, is_placed)?;
            let variant = &asked.variants[pair[0] as usize];
            let level = at_level(asked.settings, variant, pair, (&runs, metric, &ensemble));
            let alone = level.and_then(|l| l.split.and_then(|s| s.code).or(l.by_rounds));
            Some((pair, (difference, alone)))
        };
        let record = MachineRecord {
            host: host.clone(),
            blocks: count,
            runs: runs.len() as u64,
            disturbances,
            set_aside: clock(&clocks).or_else(|| placebo(asked.settings, metric, &placebos, &runs)),
        };
        Self {
            number,
            record,
            metric,
            layouts: ensemble.programs().into_iter().map(|p| (p, ensemble.layouts(p))).collect(),
            effects: asked.pairs().into_iter().filter_map(effect).collect(),
            runs: if keeps_runs { runs } else { Vec::new() },
        }
    }

    fn is_believed(&self) -> bool {
        self.record.set_aside.is_none()
    }
}

fn clock(logs: &[f64]) -> Option<SetAside> {
    let log_ratio = median(logs)?;
    (log_ratio.abs() > MOST_CLOCK_LOG).then_some(SetAside::Clock { log_ratio })
}

/// A build beside itself must show nothing.
fn placebo(
    settings: &SweepSettings,
    metric: Metric,
    placebos: &[SweepRun],
    runs: &[SweepRun],
) -> Option<SetAside> {
    let first: BTreeMap<u32, f64> = match placebos.first() {
        Some(any) => runs
            .iter()
            .filter(|r| r.cell == any.cell)
            .map(|r| (r.round, metric.of(&r.amounts)))
            .collect(),
        None => return None,
    };
    let log = |p: &SweepRun| (metric.of(&p.amounts) / first.get(&p.round)?).ln().into();
    let logs: Vec<f64> = placebos.iter().filter_map(log).filter(|l: &f64| l.is_finite()).collect();
    let log_ratio = mean_and_sd(&logs).0;
    let is_chance = paired_t(&logs).is_some_and(|t| t.p_value >= PLACEBO_ALPHA);
    let matters = log_ratio.abs() >= settings.effect.ln_1p();
    (logs.len() >= FEWEST_PAIRS && matters && !is_chance).then_some(SetAside::Placebo { log_ratio })
}

/// All of a report that needs no machine.
fn frame(asked: &Asked<'_>, metric: Metric) -> SweepReport {
    SweepReport {
        settings: asked.settings.clone(),
        metric,
        earlier_runs: 0,
        variants: asked.variants.to_vec(),
        cells: asked.cells.to_vec(),
        spreads: Vec::new(),
        comparisons: Vec::new(),
        disturbances: None,
        notes: notes(asked),
        machines: Vec::new(),
        blocks: None,
        runs: Vec::new(),
    }
}

/// The sweep of one machine.
fn of_one(asked: &Asked<'_>, one: &Looked) -> SweepReport {
    let Asked { settings, variants, identical, .. } = asked;
    // Once for all: what is said of a difference and the rows below it are the same numbers.
    let ensemble = ensemble_of(&one.runs, one.metric);
    let judged = (&one.runs[..], one.metric, &ensemble);
    let at = |variant: &Variant, pair| at_level(settings, variant, pair, judged);
    let numbers = 0..variants.len() as u32;
    SweepReport {
        spreads: numbers.filter_map(|v| spread(&ensemble, one.metric, variants, v)).collect(),
        comparisons: comparisons(settings, variants, identical, &at),
        ..frame(asked, one.metric)
    }
}

fn of_many(asked: &Asked<'_>, all: &mut [Looked]) -> Result<SweepReport, SweepError> {
    let Asked { settings, variants, identical, .. } = asked;
    for pair in asked.pairs() {
        set_far_aside(all, pair);
    }
    let mut kinds: BTreeMap<&str, Vec<&Looked>> = BTreeMap::new();
    for one in all.iter().filter(|one| one.is_believed()) {
        kinds.entry(&one.record.host.kind).or_default().push(one);
    }
    let ensembles: BTreeMap<&str, Ensemble> =
        kinds.iter().map(|(kind, members)| (*kind, of_machines(members))).collect();
    let Some(first) = kinds.values().find_map(|members| members.first()) else {
        let what = "no machine is believed: each fails the check of its clock or its placebo";
        return Err(SweepError::Results(what.into()));
    };
    let at = |variant: &Variant, pair: [u32; 2]| {
        let found: Vec<(KindEffect, Option<Split>)> = kinds
            .iter()
            .filter_map(|(kind, members)| of_kind(settings, kind, members, &ensembles[kind], pair))
            .collect();
        let each = kinds.values().flatten().filter_map(|one| {
            let (difference, alone) = one.effects.get(&pair)?;
            Some(MachineEffect {
                machine: one.number,
                log_ratio: difference.log_ratio,
                alone: *alone,
            })
        });
        at_level_of_many(settings, variant, found, each.collect())
    };
    let numbers = 0..variants.len() as u32;
    let only = ensembles.values().next().filter(|_| ensembles.len() == 1);
    let row = |v| spread(only?, first.metric, variants, v);
    Ok(SweepReport {
        spreads: numbers.filter_map(row).collect(),
        comparisons: comparisons(settings, variants, identical, &at),
        ..frame(asked, first.metric)
    })
}

/// Machines in the place of rounds: what all layouts of one share is the machine.
fn of_machines(members: &[&Looked]) -> Ensemble {
    Ensemble::new((0..).zip(members).flat_map(|(round, one)| {
        one.layouts.iter().flat_map(move |(program, layouts)| {
            let cell = move |l: &LayoutValue| ((*program, l.layout), round, l.median_log.exp());
            layouts.iter().map(cell)
        })
    }))
}

/// The effects of a pair with the variance of their noise: that of a run is the same on all machines of a kind.
fn noised(members: &[&Looked], pair: [u32; 2]) -> Vec<(f64, f64)> {
    let all: Vec<Difference> =
        members.iter().filter_map(|m| Some(m.effects.get(&pair)?.0)).collect();
    let known = || all.iter().filter(|d| d.run_sd_log > 0.0);
    let freedom: f64 = known().map(|d| d.freedom).sum();
    let squares: f64 = known().map(|d| d.freedom * d.run_sd_log.powi(2)).sum();
    let variance = if freedom > 0.0 { squares / freedom } else { 0.0 };
    all.iter().map(|d| (d.log_ratio, variance * d.run_variance_share)).collect()
}

fn set_far_aside(all: &mut [Looked], pair: [u32; 2]) {
    let mut kinds: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (number, one) in all.iter().enumerate() {
        if one.is_believed() && one.effects.contains_key(&pair) {
            kinds.entry(one.record.host.kind.clone()).or_default().push(number);
        }
    }
    for numbers in kinds.values() {
        let members: Vec<&Looked> = numbers.iter().map(|n| &all[*n]).collect();
        let effects = noised(&members, pair);
        let usual = median(&effects.iter().map(|e| e.0).collect::<Vec<_>>());
        for ((number, far), effect) in numbers.iter().zip(far_off(&effects)).zip(&effects) {
            if let Some(usual_log) = usual.filter(|_| far) {
                all[*number].record.set_aside =
                    Some(SetAside::FarOff { log_ratio: effect.0, usual_log });
            }
        }
    }
}

/// How far a 95 % interval reaches with this standard error.
fn reach_of(standard_error: f64, freedom: f64) -> f64 {
    t_quantile(1.0 - ALPHA / 2.0, freedom).unwrap_or(f64::INFINITY) * standard_error
}

/// What the machines of one kind say, and the layouts behind it.
fn of_kind(
    settings: &SweepSettings,
    kind: &str,
    members: &[&Looked],
    ensemble: &Ensemble,
    pair: [u32; 2],
) -> Option<(KindEffect, Option<Split>)> {
    let delta_log = settings.effect.ln_1p();
    let split = ensemble.split(pair, delta_log, Looks::Once).ok()?;
    let split = (settings.layouts > 0).then_some(split);
    let placed: Vec<usize> = split.iter().flat_map(Split::placed).collect();
    let is_enough = split.is_none() || placed.iter().all(|n| *n >= FEWEST_LAYOUTS);
    let judge = |effect| match is_enough {
        true => word(effect, delta_log),
        false => Decision::Inconclusive,
    };
    let effects = noised(members, pair);
    if effects.len() < 2 {
        // A single machine speaks for itself.
        let effect = members.iter().find_map(|m| m.effects.get(&pair)?.1)?;
        return Some((KindEffect::of_one(kind, effect, judge(effect)), None));
    }
    // Machines and layouts vary for themselves and are few: each with the t of its own freedom, which is never too
    // narrow, where Satterthwaite's joint freedom is with two machines.
    let of_layouts = split.as_ref().map_or(0.0, |split| {
        let share: f64 = placed.iter().map(|n| 1.0 / (*n).max(1) as f64).sum();
        let freedom = placed.iter().map(|n| n.saturating_sub(1)).sum::<usize>().max(1);
        reach_of(split.layout_sd_log * share.sqrt(), freedom as f64)
    });
    let found = KindEffect::joined(kind, &effects, of_layouts, &judge)?;
    let split = split.map(|split| Split {
        code: Some(found.effect),
        placement: None,
        decision: found.decision,
        source: match found.decision {
            Decision::Slower | Decision::Faster => Source::Code,
            Decision::Equivalent => Source::Nothing,
            Decision::Inconclusive => Source::Open,
        },
        ..split
    });
    Some((found, split))
}

fn at_level_of_many(
    settings: &SweepSettings,
    variant: &Variant,
    found: Vec<(KindEffect, Option<Split>)>,
    each: Vec<MachineEffect>,
) -> Option<LevelResult> {
    let first = found.first()?.0.decision;
    let agreed = found.iter().all(|(kind, _)| kind.decision == first);
    let only = (found.len() == 1).then(|| found[0].clone());
    let kinds: Vec<KindEffect> = found.into_iter().map(|(kind, _)| kind).collect();
    Some(LevelResult {
        level: variant.level(),
        by_rounds: only.as_ref().filter(|_| settings.layouts == 0).map(|(kind, _)| kind.effect),
        split: only.and_then(|(_, split)| split),
        decision: if agreed { first } else { Decision::Inconclusive },
        machines: Some(AcrossMachines { agreement: agreement(&kinds)?, kinds, each }),
    })
}
