//! From raw samples to a verdict: the same samples and settings always give the same words.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::amounts::Amounts;
use super::diagnostics::{Diagnostics, LogPair, diagnose};
use super::error::CompareError;
use super::measure::Measure;
use super::runner::RunSample;
use super::schedule::Arm;
use super::sequential;
use super::strata::{Strata, strata};
use super::verdict::{Decision, Verdict, judge};
use super::waiting::Waiting;
use super::warning::Warning;
use super::{MAX_PAIRS, Settings};
use crate::model::{Measurement, Unit};
use crate::stats::power::FEWEST_PAIRS;
use crate::stats::robust::quartiles;
use crate::stats::signed_rank::{self, Interval, SignedRank};
use crate::stats::student::{PairedT, paired_t};

/// Below this p-value a disturbance is mentioned; low, because several are looked for.
const ALARM_P: f64 = 0.01;
/// Disturbances smaller than this (log) are not worth a reader's time.
const ALARM_LOG: f64 = 0.003;
/// Share of spikes that is worth mentioning.
const ALARM_SPIKES: f64 = 0.05;
/// A wall interval this many times wider than that of processor time comes from waiting.
const CONTENDED: f64 = 3.0;
/// Runs shorter than this are mostly the start of a process.
pub(super) const SHORT_NS: f64 = 1e6;

/// A time that every run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// From start to end. The verdict is about this one.
    Wall,
    /// Time on the processor, in user mode and in the kernel: the second witness.
    Cpu,
    /// Processor time in user mode.
    User,
    /// Processor time in the kernel.
    System,
    /// Largest resident set of a run, bytes.
    Memory,
    /// The number that the program prints about itself.
    Printed,
    /// What a performance counter says.
    Counted,
}

impl Metric {
    /// The times, in the order in which they are shown.
    pub const ALL: [Self; 4] = [Self::Wall, Self::Cpu, Self::User, Self::System];

    /// The metric that a verdict about `measure` needs.
    #[must_use]
    pub fn for_verdict(measure: &Measure) -> Self {
        match measure {
            Measure::Auto | Measure::Wall => Self::Wall,
            Measure::User => Self::User,
            Measure::System => Self::System,
            Measure::Cpu => Self::Cpu,
            Measure::PeakMemory => Self::Memory,
            Measure::Counter { .. } => Self::Counted,
            Measure::GoBench | Measure::GoogleBench | Measure::Regex { .. } => Self::Printed,
        }
    }

    /// What a verdict on these runs is about: processor time where that is left to us and they waited for
    /// the processor.
    pub(super) fn chosen<'a>(
        measure: &Measure,
        runs: impl Iterator<Item = &'a Amounts> + Clone,
    ) -> Self {
        let timed = || runs.clone().all(|run| run.cpu_ns > 0);
        match measure {
            Measure::Auto if timed() && Waiting::of(runs.clone()).decides() => Self::Cpu,
            _ => Self::for_verdict(measure),
        }
    }

    /// This amount of a run: nanoseconds, bytes, or what was printed or counted (0 where nothing was).
    #[must_use]
    pub fn of(self, run: &Amounts) -> f64 {
        match self {
            Self::Wall => run.wall_ns as f64,
            Self::Cpu => run.cpu_ns as f64,
            Self::User => run.user_ns.unwrap_or(0) as f64,
            Self::System => run.system_ns.unwrap_or(0) as f64,
            Self::Memory => run.peak_memory_bytes as f64,
            Self::Printed => run.printed.unwrap_or(0.0),
            Self::Counted => run.counted.unwrap_or(0) as f64,
        }
    }

    /// Whether it is one of the two parts of processor time, which not every kernel measures.
    #[must_use]
    pub fn is_of_the_split(self) -> bool {
        matches!(self, Self::User | Self::System)
    }

    /// Why a run has nothing above zero in it.
    pub(super) fn absence(self) -> &'static str {
        match self {
            Self::Wall => "a run took no wall time",
            Self::Printed => "a run printed no number",
            Self::Counted => "the counter stayed at zero in a run",
            Self::Memory => "the kernel told no size of a run",
            Self::Cpu => {
                "a run took no processor time that the kernel could see: more work per run"
            }
            Self::User | Self::System => {
                "this kernel splits processor time into user and system time by its clock's ticks, \
                 which is no measurement, or there was none of it; use --metric cpu"
            }
        }
    }

    /// The unit that it is in.
    #[must_use]
    pub fn unit(self) -> Unit {
        match self {
            Self::Memory => Unit::Bytes,
            Self::Printed | Self::Counted => Unit::Amount,
            _ => Unit::Nanoseconds,
        }
    }
}

/// B over A in one metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ratio {
    /// The ratio with its interval.
    pub estimate: Measurement,
    /// Natural logarithm of `ratio`.
    pub log_ratio: f64,
    /// Lower end of the interval of the logarithm.
    pub low_log: f64,
    /// Upper end of the interval of the logarithm.
    pub high_log: f64,
    /// What the interval really covers; below 0.95 when there are fewer than six pairs.
    pub confidence: f64,
    /// The test that belongs to the interval.
    pub signed_rank: SignedRank,
    /// The cross-check, where there is any spread.
    pub paired_t: Option<PairedT>,
    /// Sum of B over sum of A, as a log ratio: for those who pay for totals.
    pub total_log_ratio: f64,
    /// Fastest B over fastest A, as a log ratio: a second opinion, never the test.
    pub minimum_log_ratio: f64,
}

impl Ratio {
    /// Whether the interval leaves "no difference" out.
    #[must_use]
    pub fn excludes_zero(&self) -> bool {
        self.low_log > 0.0 || self.high_log < 0.0
    }
}

/// One metric of both arms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Contrast {
    /// Which amount of the runs is compared.
    pub metric: Metric,
    /// Median and quartiles of A.
    pub a: Measurement,
    /// Median and quartiles of B.
    pub b: Measurement,
    /// B over A; absent when a run has no time at all in this metric, which has no ratio.
    pub ratio: Option<Ratio>,
}

/// An interval that holds at all looks together, as log ratios of B over A.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sequence {
    /// Mean of the log ratios.
    pub log_ratio: f64,
    /// Lower end of the interval, natural logarithm of the ratio.
    pub low_log: f64,
    /// Upper end of the interval, natural logarithm of the ratio.
    pub high_log: f64,
}

/// Everything that follows from the samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Analysis {
    /// The word, about wall time unless the settings ask for another measure.
    pub verdict: Verdict,
    /// B over A in what the verdict is about.
    pub wall: Ratio,
    /// The confidence sequence that decided when to stop, and the verdict; absent for a fixed number
    /// of pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Sequence>,
    /// What the verdict is about first, then all times in the order of [`Metric::ALL`].
    pub contrasts: Vec<Contrast>,
    /// The state of the machine.
    pub diagnostics: Diagnostics,
    /// What to know before believing it.
    pub warnings: Vec<Warning>,
}

impl Analysis {
    /// The one interval that is judged: lower end, estimate, upper end, as log ratios. An interval for one look is none
    /// for what was looked at until it said something.
    #[must_use]
    pub fn judged(&self) -> [f64; 3] {
        match &self.sequence {
            Some(s) => [s.low_log, s.log_ratio, s.high_log],
            None => [self.wall.low_log, self.wall.log_ratio, self.wall.high_log],
        }
    }

    /// What the verdict is about, as far as that is a time.
    #[must_use]
    pub fn metric(&self) -> Metric {
        self.contrasts.first().map_or(Metric::Wall, |contrast| contrast.metric)
    }

    /// Whether it is about the pairs that were alone on their core, because those beside a neighbour say something else.
    #[must_use]
    pub fn is_judged_alone(&self) -> bool {
        self.warnings
            .iter()
            .any(|w| matches!(w, Warning::SharedCore(strata) if strata.judged_alone))
    }

    /// Both arms in one metric, where that was measured.
    #[must_use]
    pub fn contrast(&self, metric: Metric) -> Option<&Contrast> {
        self.contrasts.iter().find(|contrast| contrast.metric == metric)
    }
}

/// Judges raw samples. Deterministic, so it can be repeated from the JSON.
///
/// # Errors
/// [`CompareError::Samples`] when the samples do not form pairs, or a run took no wall time.
pub fn analyse(samples: &[RunSample], settings: &Settings) -> Result<Analysis, CompareError> {
    settings.check()?;
    let all = pair_up(samples)?;
    let is_split = samples.iter().all(|s| s.amounts.user_ns.is_some());
    let shown = || Metric::ALL.iter().filter(|m| is_split || !m.is_of_the_split());
    let contrasts_of =
        |pairs: &[Pair<'_>]| -> Vec<Contrast> { shown().map(|m| contrast(*m, pairs)).collect() };
    let mut contrasts = contrasts_of(&all);
    let waiting = Waiting::of(samples.iter().map(|s| &s.amounts));
    let metric = match Metric::chosen(&settings.measure, samples.iter().map(|s| &s.amounts)) {
        Metric::Wall
            if settings.measure == Measure::Auto && only_the_queue_differs(&contrasts, &all) =>
        {
            Metric::Cpu
        }
        chosen => chosen,
    };
    let (strata, pairs) = match strata(&all, metric) {
        // An interval that holds at all looks must not change what it is about between them.
        Some((found, alone)) if found.go_apart() && settings.until.is_none() => {
            contrasts = contrasts_of(&alone);
            (Some(Strata { judged_alone: true, ..found }), alone)
        }
        found => (found.map(|(found, _)| found), all.clone()),
    };
    let hidden = match metric {
        Metric::Memory => arms_with_hidden_memory(&pairs),
        _ => Vec::new(),
    };
    let wanted = contrast(metric, &pairs);
    let wall =
        wanted.ratio.clone().ok_or_else(|| CompareError::Samples(metric.absence().into()))?;
    let diagnostics = diagnose(&logs(&pairs, metric));
    let log_ratios = log_ratios(&pairs, metric);
    let sequence = settings.until.and_then(|_| sequential::interval(&log_ratios));
    let fixed = Interval {
        centre: wall.log_ratio,
        low: wall.low_log,
        high: wall.high_log,
        confidence: wall.confidence,
    };
    // Before its burn-in a sequence says nothing, and neither do we.
    let nothing = Interval { low: -f64::MAX, high: f64::MAX, ..fixed };
    let interval = match settings.until {
        Some(_) => sequence.unwrap_or(nothing),
        None => fixed,
    };
    let mut verdict = judge(&interval, pairs.len(), diagnostics.pair_sd_log, settings.effect_log());
    if hidden.len() == 2 {
        verdict.doubt_memory();
    }
    let mut warnings =
        statistical_warnings(&verdict, &wanted, &contrasts, &diagnostics, settings, &waiting);
    let strata = strata.filter(Strata::is_worth_saying).map(Box::new);
    warnings.extend(strata.map(Warning::SharedCore));
    warnings.extend(program_warnings(&all));
    if !hidden.is_empty() {
        let floor_bytes = samples.iter().map(|s| s.amounts.memory_before_exec_bytes).max();
        warnings
            .push(Warning::HiddenMemory { arms: hidden, floor_bytes: floor_bytes.unwrap_or(0) });
    }
    warnings.push(Warning::OneBuildEach);
    if metric != Metric::Wall {
        contrasts.retain(|c| c.metric != metric);
        contrasts.insert(0, wanted);
    }
    let sequence =
        sequence.map(|i| Sequence { log_ratio: i.centre, low_log: i.low, high_log: i.high });
    Ok(Analysis { verdict, wall, sequence, contrasts, diagnostics, warnings })
}

/// Whether wall time differs, processor time does not, and neither does wall time less what was measured in the
/// queue for the processor: that says who else ran, and nothing of the programs.
fn only_the_queue_differs(contrasts: &[Contrast], pairs: &[Pair<'_>]) -> bool {
    let [Contrast { ratio: Some(wall), .. }, Contrast { ratio: Some(cpu), .. }, ..] = contrasts
    else {
        return false;
    };
    let agrees = |ratio: &Ratio| ratio.excludes_zero() && ratio.log_ratio * wall.log_ratio > 0.0;
    let without_queue = |arm: usize| -> Option<Vec<f64>> {
        let amounts = pairs.iter().map(|pair| &pair[arm].amounts);
        amounts.map(|a| Some(a.wall_ns.saturating_sub(a.run_queue_ns?) as f64)).collect()
    };
    wall.excludes_zero()
        && !agrees(cpu)
        && without_queue(0)
            .zip(without_queue(1))
            .and_then(|(a, b)| ratio(&a, &b))
            .is_some_and(|rest| !agrees(&rest))
}

pub(super) type Pair<'a> = [&'a RunSample; 2];

/// Both runs of every pair, [A, B], in order of time.
///
/// # Errors
/// [`CompareError::Samples`] when the samples do not form pairs.
pub fn pair_up(samples: &[RunSample]) -> Result<Vec<[&RunSample; 2]>, CompareError> {
    let wrong = |what: String| CompareError::Samples(what);
    if samples.is_empty() || samples.len() > 2 * MAX_PAIRS as usize {
        return Err(wrong(format!(
            "{} runs; between 2 and {} are needed",
            samples.len(),
            2 * MAX_PAIRS
        )));
    }
    let mut by_pair: BTreeMap<u32, [Option<&RunSample>; 2]> = BTreeMap::new();
    for sample in samples {
        let seat = &mut by_pair.entry(sample.plan.pair).or_default()[sample.plan.arm.index()];
        if seat.replace(sample).is_some() {
            return Err(wrong(format!(
                "pair {} holds arm {} twice",
                sample.plan.pair, sample.plan.arm
            )));
        }
    }
    let mut pairs = Vec::with_capacity(by_pair.len());
    for (number, seats) in by_pair {
        match seats {
            [Some(a), Some(b)] if a.plan.slot != b.plan.slot => pairs.push([a, b]),
            [Some(_), Some(_)] => {
                return Err(wrong(format!("both runs of pair {number} have one slot")));
            }
            _ => return Err(wrong(format!("pair {number} lacks an arm"))),
        }
    }
    pairs.sort_by_key(|[a, b]| a.plan.order.min(b.plan.order));
    Ok(pairs)
}

/// B over A of each pair, as logs.
pub(super) fn log_ratios(pairs: &[Pair<'_>], metric: Metric) -> Vec<f64> {
    logs(pairs, metric).iter().map(|p| p.b - p.a).collect()
}

fn logs(pairs: &[Pair<'_>], metric: Metric) -> Vec<LogPair> {
    pairs
        .iter()
        .map(|[a, b]| LogPair {
            a: metric.of(&a.amounts).ln(),
            b: metric.of(&b.amounts).ln(),
            slot_of_b: b.plan.slot,
        })
        .collect()
}

/// The pairs of `samples` as logs, for the tests of the diagnostics.
#[cfg(test)]
pub(super) fn log_pairs(samples: &[RunSample]) -> Result<Vec<LogPair>, CompareError> {
    Ok(logs(&pair_up(samples)?, Metric::Wall))
}

/// What one metric says of A and of B.
fn amounts_in(metric: Metric, pairs: &[Pair<'_>]) -> [Vec<f64>; 2] {
    [0, 1].map(|arm| pairs.iter().map(|pair| metric.of(&pair[arm].amounts)).collect())
}

/// B over A in one metric; `None` where a run has nothing in it.
pub(super) fn ratio_in(metric: Metric, pairs: &[Pair<'_>]) -> Option<Ratio> {
    let [a, b] = amounts_in(metric, pairs);
    ratio(&a, &b)
}

fn contrast(metric: Metric, pairs: &[Pair<'_>]) -> Contrast {
    let [a, b] = amounts_in(metric, pairs);
    Contrast {
        metric,
        a: typical(&a, metric.unit()),
        b: typical(&b, metric.unit()),
        ratio: ratio(&a, &b),
    }
}

/// Median and quartiles; zeros when there are no values, which `pair_up` rules out.
pub fn typical(amounts: &[f64], unit: Unit) -> Measurement {
    let [low, value, high] = quartiles(amounts).unwrap_or_default();
    Measurement { value, unit, low, high, n: amounts.len(), how: "median, quartiles".into() }
}

fn ratio(a: &[f64], b: &[f64]) -> Option<Ratio> {
    if a.iter().chain(b).any(|t| *t <= 0.0) {
        // Dropping such pairs would drop the fastest runs.
        return None;
    }
    let log_ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| (b / a).ln()).collect();
    let interval = signed_rank::interval(&log_ratios)?;
    let total = |times: &[f64]| times.iter().sum::<f64>();
    let fastest = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    Some(Ratio {
        estimate: Measurement {
            value: interval.centre.exp(),
            unit: Unit::Ratio,
            low: interval.low.exp(),
            high: interval.high.exp(),
            n: a.len(),
            how: format!(
                "Hodges-Lehmann of paired log ratios, {:.0} % signed-rank interval",
                // Six pairs and more reach at least 95 %; the surplus is not claimed.
                100.0 * interval.confidence.min(0.95)
            ),
        },
        log_ratio: interval.centre,
        low_log: interval.low,
        high_log: interval.high,
        confidence: interval.confidence,
        signed_rank: signed_rank::test(&log_ratios),
        paired_t: paired_t(&log_ratios),
        total_log_ratio: (total(b) / total(a)).ln(),
        minimum_log_ratio: (fastest(b) / fastest(a)).ln(),
    })
}

fn statistical_warnings(
    verdict: &Verdict,
    judged: &Contrast,
    contrasts: &[Contrast],
    found: &Diagnostics,
    settings: &Settings,
    waiting: &Waiting,
) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let [wall, cpu, ..] = contrasts else {
        return warnings;
    };
    let (Some(ratio), Some(of_verdict)) = (&wall.ratio, &judged.ratio) else {
        return warnings;
    };
    let pairs = wall.a.n;
    if pairs < FEWEST_PAIRS {
        warnings.push(Warning::FewPairs { pairs: pairs as u32, fewest: FEWEST_PAIRS as u32 });
    }
    let median_ns = wall.a.value.min(wall.b.value);
    if median_ns < SHORT_NS {
        warnings.push(Warning::TooShort { median_ns });
    }
    let cpu_share = (cpu.a.value + cpu.b.value) / (wall.a.value + wall.b.value);
    let is_by_processor = settings.measure == Measure::Auto && judged.metric == Metric::Cpu;
    if cpu_share < 0.5 && judged.metric == Metric::Wall {
        warnings.push(Warning::MostlyWaiting { cpu_share, waited_for: waiting.waited_for });
    }
    machine_warnings(found, of_verdict, &mut warnings);
    if let Some(t) = of_verdict.paired_t
        && (t.p_value < crate::stats::ALPHA) != of_verdict.excludes_zero()
    {
        warnings.push(Warning::TestsDisagree {
            signed_rank_p: of_verdict.signed_rank.p_value,
            t_p: t.p_value,
        });
    }
    if judged.metric == Metric::Wall
        && let Some(cpu) = &cpu.ratio
        && witnesses_disagree(verdict.decision, cpu, settings.effect_log())
    {
        warnings.push(Warning::CpuTimeDisagrees {
            wall_log_ratio: ratio.log_ratio,
            cpu_log_ratio: cpu.log_ratio,
        });
    }
    if is_by_processor {
        warnings.push(Warning::JudgedByProcessorTime {
            waiting_share: waiting.for_processor(),
            wall_log: [ratio.log_ratio, ratio.low_log, ratio.high_log],
        });
    } else if let Some(cpu) = &cpu.ratio
        && cpu_share >= 0.5
    {
        warnings.extend(contention(ratio, cpu));
    }
    if Metric::ALL.contains(&judged.metric) && 10 * of_verdict.signed_rank.zeros as usize > pairs {
        warnings.push(Warning::CoarseTimer { zeros: of_verdict.signed_rank.zeros });
    }
    warnings
}

fn machine_warnings(found: &Diagnostics, ratio: &Ratio, warnings: &mut Vec<Warning>) {
    if found.drift.p_value < ALARM_P && found.drift.change_log.abs() > ALARM_LOG {
        warnings.push(Warning::Drift {
            change_log: found.drift.change_log,
            spearman: found.drift.spearman,
        });
    }
    if found.slot.p_value < ALARM_P && found.slot.second_over_first_log.abs() > ALARM_LOG {
        warnings
            .push(Warning::SlotEffect { second_over_first_log: found.slot.second_over_first_log });
    }
    if found.autocorrelation.p_value < ALARM_P && found.autocorrelation.lag_1 > 0.0 {
        warnings.push(Warning::Autocorrelated { lag_1: found.autocorrelation.lag_1 });
    }
    if found.spike_share > ALARM_SPIKES {
        warnings.push(Warning::Spikes {
            share: found.spike_share,
            minimum_log_ratio: ratio.minimum_log_ratio,
        });
    }
}

/// Whether processor time, judged alone, contradicts the word about wall time.
fn witnesses_disagree(decision: Decision, cpu: &Ratio, delta_log: f64) -> bool {
    let cpu_slower = cpu.low_log > 0.0 && cpu.log_ratio >= delta_log;
    let cpu_faster = cpu.high_log < 0.0 && cpu.log_ratio <= -delta_log;
    let cpu_equivalent = cpu.low_log > -delta_log && cpu.high_log < delta_log;
    match decision {
        Decision::Slower => cpu_faster || cpu_equivalent,
        Decision::Faster => cpu_slower || cpu_equivalent,
        Decision::Equivalent => cpu_slower || cpu_faster,
        Decision::Inconclusive => false,
    }
}

/// Whether waiting for the processor, rather than the program, makes wall time uncertain.
fn contention(wall: &Ratio, cpu: &Ratio) -> Option<Warning> {
    let (wide, narrow) = (wall.high_log - wall.low_log, cpu.high_log - cpu.low_log);
    let found = wide > 0.01 && narrow > 0.0 && wide > CONTENDED * narrow;
    found.then(|| Warning::Contended {
        narrower: wide / narrow,
        cpu_log: [cpu.log_ratio, cpu.low_log, cpu.high_log],
    })
}

/// The arms of which some run may have needed less memory than the copy of ourselves that it began as.
fn arms_with_hidden_memory(pairs: &[Pair<'_>]) -> Vec<Arm> {
    let hidden = |arm: &Arm| pairs.iter().any(|p| p[arm.index()].amounts.hides_memory());
    [Arm::A, Arm::B].into_iter().filter(hidden).collect()
}

fn program_warnings(pairs: &[Pair<'_>]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let varies = |arm: Arm| {
        let mut outputs = pairs.iter().map(|p| &p[arm.index()].output);
        let first = outputs.next();
        outputs.any(|o| Some(o) != first)
    };
    let arms: Vec<Arm> = [Arm::A, Arm::B].into_iter().filter(|arm| varies(*arm)).collect();
    if !arms.is_empty() {
        warnings.push(Warning::OutputVaries { arms });
    } else if pairs.first().is_some_and(|[a, b]| a.output != b.output) {
        warnings.push(Warning::OutputDiffers);
    }
    let failed =
        |arm: Arm| pairs.iter().filter(|p| p[arm.index()].failure.is_some()).count() as u32;
    let (a, b) = (failed(Arm::A), failed(Arm::B));
    if a + b > 0 {
        warnings.push(Warning::FailuresIgnored { a, b });
    }
    let leaving = pairs.iter().copied().flatten().filter(|run| !run.left_behind.is_empty());
    let runs = leaving.clone().count() as u32;
    if runs > 0 {
        let names: BTreeSet<String> = leaving.flat_map(|run| run.left_behind.clone()).collect();
        warnings.push(Warning::LeftBehind { runs, names: names.into_iter().collect() });
    }
    warnings
}

#[cfg(test)]
mod tests;
