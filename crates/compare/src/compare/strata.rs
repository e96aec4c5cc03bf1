//! Pairs by who else was on the core: alone, beside a neighbour, or neither throughout.
//!
//! *Effect.* A process of another guest on the sibling thread takes half of what a core can do. What
//! keeps the core busy then takes twice its time, what waits for a chain of results hardly more: a
//! difference of +150 % alone was +53 % beside a neighbour. Both are true, of different machines.
//!
//! *Measurable sign.* The loop of no-ops before and after each run ([`super::neighbours`]) takes 1.5 to
//! 2.1 times as long beside a neighbour. A run is alone or shared where both looks say so; a pair,
//! where both of its runs are. Anything else is in neither stratum: half a pair beside a neighbour
//! compares the neighbour.
//!
//! Looks are compared with the best of the same comparison: a neighbour who never leaves is not seen.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::analysis::{Metric, Pair, Ratio, log_ratios, ratio_in};
use super::runner::RunSample;
use crate::clock::SHARED_CORE;
use crate::stats::power::FEWEST_PAIRS;
use crate::stats::robust::{finite, quantile};
use crate::stats::{percent, rank_sum};

/// The best look is this quantile of all: one lucky look would make all others shared.
const BEST: f64 = 0.05;
/// Below this p-value two strata are different machines.
const APART_P: f64 = 0.01;
/// Pairs that were not alone are worth a reader's time from this share on.
const WORTH_SAYING: f64 = 0.1;

/// The pairs of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stratum {
    /// Number of pairs.
    pub pairs: u32,
    /// B over A in what the verdict is about; absent below six pairs.
    pub ratio: Option<Ratio>,
}

/// The pairs of a comparison by who else was on the core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Strata {
    /// Nobody else, before and after both runs.
    pub alone: Stratum,
    /// A neighbour, before and after both runs.
    pub shared: Stratum,
    /// Pairs that are neither, or that nothing looked at.
    pub other_pairs: u32,
    /// That the difference is the same alone and beside a neighbour; absent where one of them has less than
    /// six pairs.
    pub p_value: Option<f64>,
    /// Whether the verdict, and all that goes with it, is about the pairs that were alone.
    pub judged_alone: bool,
}

impl Strata {
    /// Whether the difference depends on who shares the core.
    #[must_use]
    pub fn go_apart(&self) -> bool {
        self.p_value.is_some_and(|p| p < APART_P)
    }

    pub(super) fn pairs(&self) -> u32 {
        self.alone.pairs + self.shared.pairs + self.other_pairs
    }

    pub(super) fn is_worth_saying(&self) -> bool {
        let others = self.pairs() - self.alone.pairs;
        self.go_apart() || f64::from(others) >= WORTH_SAYING * f64::from(self.pairs())
    }
}

/// Who else was on the core in a run or a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Core {
    Alone,
    Shared,
    Other,
}

impl Core {
    fn of_run(run: &RunSample, most_alone_cycles: f64) -> Self {
        match run.no_ops_cycles.map(|both| both.map(|cycles| cycles > most_alone_cycles)) {
            Some([false, false]) => Self::Alone,
            Some([true, true]) => Self::Shared,
            _ => Self::Other,
        }
    }

    fn of_pair(pair: &Pair<'_>, most_alone_cycles: f64) -> Self {
        let [a, b] = pair.map(|run| Self::of_run(run, most_alone_cycles));
        if a == b { a } else { Self::Other }
    }
}

/// What the looks beside runs saw, ascending, and what the loop takes at the most without a neighbour.
fn looks<'a>(runs: impl Iterator<Item = &'a RunSample>) -> (Vec<f64>, f64) {
    let looks = finite(runs.filter_map(|run| run.no_ops_cycles).flatten());
    let most_alone_cycles = SHARED_CORE * quantile(&looks, BEST);
    (looks, most_alone_cycles)
}

/// In how many of a hundred looks beside runs another process was on the core; `None` where nothing looked.
pub(super) fn shared_percent(samples: &[RunSample]) -> Option<f64> {
    let (looks, most_alone_cycles) = looks(samples.iter());
    let alone = looks.partition_point(|cycles| *cycles <= most_alone_cycles);
    (!looks.is_empty()).then(|| percent(looks.len() - alone, looks.len()))
}

/// Sorts pairs into strata: these, and the pairs that were alone. `None` where no look saw a neighbour.
pub(super) fn strata<'a>(pairs: &[Pair<'a>], metric: Metric) -> Option<(Strata, Vec<Pair<'a>>)> {
    let (looks, most_alone_cycles) = looks(pairs.iter().copied().flatten());
    looks.last().filter(|slowest| **slowest > most_alone_cycles)?;
    let of = |core| -> Vec<Pair<'a>> {
        pairs
            .iter()
            .copied()
            .filter(|pair| Core::of_pair(pair, most_alone_cycles) == core)
            .collect()
    };
    let (alone, shared) = (of(Core::Alone), of(Core::Shared));
    let stratum = |pairs: &[Pair<'_>]| Stratum {
        pairs: pairs.len() as u32,
        ratio: if pairs.len() < FEWEST_PAIRS { None } else { ratio_in(metric, pairs) },
    };
    let mut found = Strata {
        other_pairs: (pairs.len() - alone.len() - shared.len()) as u32,
        alone: stratum(&alone),
        shared: stratum(&shared),
        p_value: None,
        judged_alone: false,
    };
    if found.alone.ratio.is_some() && found.shared.ratio.is_some() {
        found.p_value =
            rank_sum::p_value(&log_ratios(&alone, metric), &log_ratios(&shared, metric));
    }
    Some((found, alone))
}

#[cfg(test)]
mod tests {
    use crate::compare::simulate::{Noise, SimulatedMachine};
    use crate::compare::{
        Analysis, Decision, Settings, Severity, Strata, Until, Warning, analyse, compare,
    };

    const ALONE_LOG: f64 = 0.916;
    const SHARED_LOG: f64 = 0.425;

    /// A neighbour comes and goes, twenty runs at a time; B takes 2.5 times as long alone, and so much beside it.
    fn beside_a_neighbour(shared_effect_log: Option<f64>, until: Option<Until>) -> Analysis {
        let mut machine = SimulatedMachine::new(Noise::Bursts(0.5), 80, 3);
        machine.effect_log = ALONE_LOG;
        machine.shared_effect_log = shared_effect_log;
        let settings = Settings { pairs: 80, ..Settings::default() };
        let mut samples = compare(&mut machine, &settings, &mut |_| {}).unwrap().samples;
        samples.iter_mut().for_each(|run| run.failure = Some("exit code 1".into()));
        analyse(&samples, &Settings { until, ..settings }).unwrap()
    }

    fn strata(analysis: &Analysis) -> Option<(&Strata, Severity, String)> {
        analysis.warnings.iter().find_map(|warning| match warning {
            Warning::SharedCore(strata) => {
                Some((&**strata, warning.severity(), warning.to_string()))
            }
            _ => None,
        })
    }

    #[test]
    fn an_effect_that_depends_on_the_neighbour_is_told_for_both_and_judged_alone() {
        let analysis = beside_a_neighbour(Some(SHARED_LOG), None);
        let (strata, severity, text) = strata(&analysis).unwrap();
        assert!(strata.judged_alone && strata.go_apart() && severity == Severity::Caution);
        assert_eq!(strata.pairs(), 80);
        // Only pairs during which it came or left are in neither stratum.
        assert!(strata.other_pairs <= 16 && strata.shared.pairs >= 20, "{strata:?}");
        for (stratum, truth) in [(&strata.alone, ALONE_LOG), (&strata.shared, SHARED_LOG)] {
            let found = stratum.ratio.as_ref().unwrap().log_ratio;
            assert!((found - truth).abs() < 0.02, "{found} {truth}");
        }
        assert_eq!(analysis.wall, strata.alone.ratio.clone().unwrap());
        assert_eq!(analysis.contrasts[0].a.n, strata.alone.pairs as usize);
        let failed = Warning::FailuresIgnored { a: 80, b: 80 };
        assert!(analysis.warnings.contains(&failed), "what failed is told of all pairs");
        assert!(analysis.is_judged_alone() && analysis.verdict.decision == Decision::Slower);
        assert!(text.contains("alone +1") && text.contains("beside it +5"), "{text}");
    }

    #[test]
    fn one_effect_is_judged_by_all_pairs_and_the_neighbour_is_a_note() {
        let analysis = beside_a_neighbour(None, None);
        let (strata, severity, text) = strata(&analysis).unwrap();
        assert!(!strata.judged_alone && severity == Severity::Note, "{text}");
        assert!(text.contains("no difference between the two is seen"), "{text}");
        assert_eq!(analysis.contrasts[0].a.n, 80);
    }

    #[test]
    fn what_an_interval_for_all_looks_is_about_does_not_change_between_them() {
        let analysis = beside_a_neighbour(Some(SHARED_LOG), Some(Until::Verdict));
        let (strata, severity, text) = strata(&analysis).unwrap();
        assert!(strata.go_apart() && !strata.judged_alone && severity == Severity::Caution);
        assert_eq!(analysis.contrasts[0].a.n, 80);
        assert!(text.contains("about all pairs"), "{text}");
    }

    #[test]
    fn without_a_neighbour_nothing_is_said() {
        let settings = Settings { pairs: 20, ..Settings::default() };
        let mut machine = SimulatedMachine::new(Noise::Quiet, 20, 3);
        let quiet = compare(&mut machine, &settings, &mut |_| {}).unwrap();
        assert_eq!(strata(&quiet.analysis), None);
        // Nor where nothing looked, as in results of earlier versions.
        let mut samples = quiet.samples;
        samples.iter_mut().for_each(|run| run.no_ops_cycles = None);
        assert_eq!(strata(&analyse(&samples, &settings).unwrap()), None);
        assert_eq!(super::shared_percent(&samples), None);
    }

    #[test]
    fn half_a_pair_beside_a_neighbour_is_in_neither_stratum() {
        let settings = Settings { pairs: 20, ..Settings::default() };
        let mut machine = SimulatedMachine::new(Noise::Quiet, 20, 3);
        let mut samples = compare(&mut machine, &settings, &mut |_| {}).unwrap().samples;
        for run in samples.iter_mut().filter(|run| run.plan.pair < 10 && run.plan.arm.index() == 0)
        {
            run.no_ops_cycles = Some([16.0, 16.0]);
            run.amounts.wall_ns *= 2;
        }
        let analysis = analyse(&samples, &settings).unwrap();
        let (strata, _, text) = strata(&analysis).unwrap();
        assert_eq!((strata.alone.pairs, strata.shared.pairs, strata.other_pairs), (10, 0, 10));
        assert_eq!(super::shared_percent(&samples), Some(25.0));
        assert!(text.contains("too few pairs"), "{text}");
    }
}
