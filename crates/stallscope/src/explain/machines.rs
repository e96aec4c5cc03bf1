//! Explanations of one question by many machines, side by side: is it the same cause everywhere, and how much is it there?
//!
//! Each machine explains for itself. What they measure is joined with the machine as a random effect, kinds apart, as rounds of a
//! sweep are ([`AcrossMachines`]); machines that ran several blocks count once. Causes are counted, never joined: where machines
//! find different ones, that is the answer. Places are drawn anew in each block, so that no two machines share a placement.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Answer, Explanation};
use crate::compare::Decision;
use crate::compare::layouts::Part;
use crate::compare::sweep::{AcrossMachines, Host};

/// What a machine makes of a block of [`crate::compare::fleet::ExplainBlock`].
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ExplainResult {
    /// The plan that it is part of.
    pub plan: String,
    /// Number of the block.
    pub block: u32,
    /// The machine.
    pub machine: Host,
    /// The whole answer.
    pub explanation: Box<Explanation>,
}

/// One explanation in short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FoundThere {
    /// Number of the machine in [`ManyExplained::machines`].
    pub machine: u32,
    /// Number of the block.
    pub block: u32,
    /// The cause, or why none is told.
    pub answer: Answer,
    /// The cause in one sentence.
    pub summary: Option<String>,
    /// Is it real there.
    pub decision: Decision,
    /// By how much the commands differ there.
    pub difference: Part,
    /// What a run without the cause takes back, in per cent of the difference; absent where nothing was removed.
    pub recovered_percent: Option<f64>,
    /// What stays over random places of the hot functions; absent where they were not run at any.
    pub code: Option<Part>,
}

/// How many of the explanations say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnswerCount {
    /// What they say.
    pub answer: Answer,
    /// How many.
    pub explanations: u32,
}

/// What many machines say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ManyExplained {
    /// The machines, by kind and name.
    pub machines: Vec<Host>,
    /// What they say, the most frequent first.
    pub answers: Vec<AnswerCount>,
    /// By how much the commands differ.
    pub difference: AcrossMachines,
    /// What stays over random places of the hot functions; absent where no machine ran them there.
    pub code: Option<AcrossMachines>,
    /// Every explanation, by number of the block.
    pub found: Vec<FoundThere>,
}

impl FoundThere {
    fn of(result: &ExplainResult) -> Self {
        let explanation = &result.explanation;
        let [low_log, log_ratio, high_log] = explanation.comparison.analysis.judged();
        let places = explanation.placements.as_ref();
        Self {
            machine: 0,
            block: result.block,
            answer: explanation.answer,
            summary: explanation.summary.clone(),
            decision: explanation.comparison.analysis.verdict.decision,
            difference: Part { log_ratio, low_log, high_log },
            recovered_percent: explanation.cure.as_ref().map(|cure| cure.recovered.percent.value),
            code: places.and_then(|places| places.split.code),
        }
    }
}

/// Puts explanations side by side, one behind the other; the smallest effect of interest is that of the first.
#[derive(Debug, Default)]
pub struct Joining {
    found: Vec<(Host, FoundThere)>,
    effect_log: Option<f64>,
}

impl Joining {
    /// Keeps what an explanation says in short.
    pub fn add(&mut self, result: &ExplainResult) {
        let settings = &result.explanation.comparison.settings;
        self.effect_log.get_or_insert(settings.effect_log());
        self.found.push((result.machine.clone(), FoundThere::of(result)));
    }

    /// All of them together; `None` where there is none.
    #[must_use]
    pub fn joined(self) -> Option<ManyExplained> {
        let mut machines: Vec<Host> = self.found.iter().map(|(host, _)| host.clone()).collect();
        machines.sort_unstable();
        machines.dedup();
        let number = |host: &Host| machines.binary_search(host).unwrap_or_default() as u32;
        let numbered =
            |(host, found): (Host, FoundThere)| FoundThere { machine: number(&host), ..found };
        let mut found: Vec<FoundThere> = self.found.into_iter().map(numbered).collect();
        found.sort_by_key(|one| one.block);
        let mut answers: Vec<AnswerCount> = Vec::new();
        for one in &found {
            match answers.iter_mut().find(|count| count.answer == one.answer) {
                Some(count) => count.explanations += 1,
                None => answers.push(AnswerCount { answer: one.answer, explanations: 1 }),
            }
        }
        // Stable: of those that are as many, the first block's goes first.
        answers.sort_by_key(|count| std::cmp::Reverse(count.explanations));
        let across = |part: &dyn Fn(&FoundThere) -> Option<Part>| {
            let mut by_machine: BTreeMap<u32, Vec<Part>> = BTreeMap::new();
            for one in &found {
                by_machine.entry(one.machine).or_default().extend(part(one));
            }
            let each: Vec<(&Host, u32, Part)> = by_machine
                .iter()
                .filter_map(|(n, parts)| Some((&machines[*n as usize], *n, mean(parts)?)))
                .collect();
            AcrossMachines::of(&each, self.effect_log?)
        };
        let difference = across(&|one| Some(one.difference))?;
        let code = across(&|one| one.code);
        Some(ManyExplained { answers, difference, code, found, machines })
    }
}

/// The mean of what one machine says in several blocks, which vary each for itself.
fn mean(parts: &[Part]) -> Option<Part> {
    let n = parts.len() as f64;
    let log_ratio = parts.iter().map(|part| part.log_ratio).sum::<f64>() / n;
    let reach = |reach: &dyn Fn(&Part) -> f64| {
        parts.iter().map(|part| reach(part).powi(2)).sum::<f64>().sqrt() / n
    };
    let (down, up) = (reach(&|p| p.log_ratio - p.low_log), reach(&|p| p.high_log - p.log_ratio));
    (!parts.is_empty()).then_some(Part {
        log_ratio,
        low_log: log_ratio - down,
        high_log: log_ratio + up,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::Scene;
    use super::*;
    use crate::sim::core::Mechanism;

    fn result(block: u32, machine: &str, kind: &str, log_ratio: f64) -> ExplainResult {
        let machine = Host { kind: kind.into(), name: machine.into(), id: machine.into() };
        let mut explanation =
            Scene::new([false, true], 1.0, [(800, 200), (1800, 200)]).explain().unwrap();
        let wall = &mut explanation.comparison.analysis.wall;
        (wall.log_ratio, wall.low_log, wall.high_log) =
            (log_ratio, log_ratio - 0.02, log_ratio + 0.02);
        ExplainResult { plan: "1".into(), block, machine, explanation: explanation.into() }
    }

    fn joined(results: &[ExplainResult]) -> ManyExplained {
        let mut joining = Joining::default();
        results.iter().for_each(|result| joining.add(result));
        joining.joined().unwrap()
    }

    #[test]
    fn a_machine_counts_once_and_kinds_stay_apart() {
        let results = [
            result(3, "b", "zen", 0.5),
            result(0, "a", "zen", 0.2),
            result(1, "a", "zen", 0.4),
            result(2, "c", "cove", 0.9),
        ];
        let found = joined(&results);
        let kinds: Vec<(&str, u32)> =
            found.difference.kinds.iter().map(|k| (k.kind.as_str(), k.machines)).collect();
        assert_eq!(kinds, [("cove", 1), ("zen", 2)]);
        // Machine a says 0.3, the mean of its two blocks, each of which reaches 0.02.
        let of_a =
            found.difference.each.iter().find(|e| found.machines[e.machine as usize].name == "a");
        let alone = of_a.unwrap().alone.unwrap();
        assert!((alone.log_ratio - 0.3).abs() < 1e-12);
        assert!((alone.high_log - alone.log_ratio - 0.02 / 2_f64.sqrt()).abs() < 1e-12);
        assert!((found.difference.kinds[1].effect.log_ratio - 0.4).abs() < 0.001);
        assert_eq!(found.difference.kinds[0].decision, Decision::Slower);
        let blocks: Vec<u32> = found.found.iter().map(|one| one.block).collect();
        assert_eq!(blocks, [0, 1, 2, 3]);
        assert_eq!(found.code, None);
        // What came first changes nothing.
        let mut turned = results;
        turned.reverse();
        assert_eq!(joined(&turned), found);
        assert!(Joining::default().joined().is_none());
    }

    #[test]
    fn causes_are_counted_and_not_joined() {
        let mut other = result(0, "a", "zen", 0.2);
        other.explanation.answer = Answer::Ended(super::super::Conclusion::SlowerWork);
        let found = joined(&[other, result(1, "b", "zen", 0.2), result(2, "c", "zen", 0.2)]);
        let blocked = Answer::Cause(super::super::Removed::Mechanism(Mechanism::BlockedLoads));
        let counts: Vec<(Answer, u32)> =
            found.answers.iter().map(|count| (count.answer, count.explanations)).collect();
        let slower = Answer::Ended(super::super::Conclusion::SlowerWork);
        assert_eq!(counts, [(blocked, 2), (slower, 1)]);
    }
}
