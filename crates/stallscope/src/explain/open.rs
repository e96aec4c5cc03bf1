//! What an explanation leaves open, said as plainly as what it found.

use super::{Cause, Explanation, FunctionRow, ObjectCode, Place};
use crate::compare::{Comparison, Contrast, Metric};
use crate::machine::{MachineProfile, PriceOrigin};
use crate::model::Measurement;

/// Rows outside the cause's function that are named.
const MOST_ELSEWHERE: usize = 3;
/// Parts of the difference below this are not worth a sentence, in per cent.
const LEAST_PART: f64 = 1.0;
/// A part of the wall time's difference outside user code that is worth a sentence, in per cent.
const LEAST_OUTSIDE: f64 = 10.0;

/// User time, which is all that samples can locate.
pub(super) struct UserTime {
    /// Median with quartiles, per arm.
    pub arms: [Measurement; 2],
    /// Whether it changed in the direction in which wall time did.
    pub differs: bool,
    /// Its part of the difference in wall time, in per cent.
    part_of_wall: f64,
}

fn contrast(comparison: &Comparison, metric: Metric) -> Option<&Contrast> {
    comparison.analysis.contrasts.iter().find(|c| c.metric == metric)
}

impl UserTime {
    pub fn of(comparison: &Comparison) -> Self {
        let wall = &comparison.analysis.wall;
        let user = contrast(comparison, Metric::User);
        let differs = user.and_then(|c| c.ratio.as_ref()).is_some_and(|ratio| {
            ratio.excludes_zero() && ratio.log_ratio.signum() == wall.log_ratio.signum()
        });
        let change = |c: &Contrast| c.b.value - c.a.value;
        let part_of_wall = match (user, contrast(comparison, Metric::Wall)) {
            (Some(user), Some(wall)) if change(wall) != 0.0 => 100.0 * change(user) / change(wall),
            _ => 0.0,
        };
        let arms = match user {
            Some(c) => [c.a.clone(), c.b.clone()],
            None => [wall.estimate.clone(), wall.estimate.clone()],
        };
        Self { arms, differs, part_of_wall }
    }

    /// The sentence about time that no sample can locate, when there is enough of it.
    pub fn part_outside(&self) -> Option<String> {
        if !self.differs {
            return Some(
                "the difference is not in user code: user time did not change with wall time, so \
                 look at system calls, page faults, locks and input (strace -c, perf trace)"
                    .to_owned(),
            );
        }
        let outside = 100.0 - self.part_of_wall;
        (outside >= LEAST_OUTSIDE).then(|| {
            format!(
                "{outside:.0} % of the difference in median wall time is not user time but kernel \
                 work or waiting, which is not looked into"
            )
        })
    }
}

/// What the causes leave open.
pub(super) fn what_is_open(explanation: &Explanation, profile: &MachineProfile) -> Vec<String> {
    let Some(cause) = explanation.causes.first() else { return without_cause(explanation) };
    let priced = match profile.store_forward_blocked_cycles.origin {
        PriceOrigin::Probed { .. } => "was not counted",
        _ => "was not counted and its price was not probed here",
    };
    let mut open = vec![format!(
        "how often it happens {priced}, so how much of the difference it accounts for is not \
         known; {}",
        profile.blocked_load_sentence()
    )];
    open.extend(elsewhere(explanation, cause));
    open
}

fn elsewhere(explanation: &Explanation, cause: &Cause) -> Vec<String> {
    let sentence = |row: &FunctionRow| {
        let share = &row.share_of_difference;
        format!(
            "{:.1} % [{:.1}, {:.1}] of the difference is in {} ({}), which this does not touch",
            share.value,
            share.low,
            share.high,
            row.place.name(),
            row.place.change_words(),
        )
    };
    explanation
        .rows
        .iter()
        .filter(|r| r.place.name() != cause.finding.site.function)
        .filter(|r| r.share_of_difference.value.abs() >= LEAST_PART)
        .take(MOST_ELSEWHERE)
        .map(sentence)
        .collect()
}

fn without_cause(explanation: &Explanation) -> Vec<String> {
    let mut open = vec![
        "no known mechanism was found in the code that is hot and differs; what there is to see \
         is where the difference lies"
            .to_owned(),
    ];
    let Some(row) = explanation.rows.first() else { return open };
    match &row.place {
        Place::Object { name, code: ObjectCode::Differs { paths: [before, after], .. } }
            if !row.place.is_unchanged() =>
        {
            open.push(format!(
                "{name} holds other code in each: BEFORE maps {}, AFTER {}; its functions were not \
                 searched for mechanisms",
                before.display(),
                after.display()
            ));
        }
        place if place.is_unchanged() => open.push(format!(
            "{} has the same code in both builds; how often it is called and on what data was not \
             compared: that, or where code and data lie, makes the difference",
            place.name()
        )),
        _ => {}
    }
    open
}
