//! From where the place with most of the difference is called: its callers in the call stacks, each with its part.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::processor::LEAST_PART;
use super::rows::{self, Place};
use super::stacks::CUT_OFF;
use super::{FoldedStack, ObjectCode, Share, StackFunction, processor};
use crate::model::Measurement;
use crate::stats::shares::share_of_samples;

/// Callers that are kept.
const MOST_CALLERS: usize = 12;

/// A function that calls the place with most of the difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Caller {
    /// Which.
    pub function: StackFunction,
    /// Stacks in which it calls the place, in BEFORE and in AFTER.
    pub samples: [u64; 2],
    /// User time in the place for it in BEFORE, per run.
    pub before: Measurement,
    /// User time in the place for it in AFTER, per run.
    pub after: Measurement,
    /// Its part of the difference.
    pub share_of_difference: Share,
}

/// From where a place is called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CalledFrom {
    /// The place, as in `rows`.
    pub place: String,
    /// What calls it, largest part of the difference first.
    pub callers: Vec<Caller>,
}

impl CalledFrom {
    /// The callers with a good part of the difference for certain, if there are several.
    #[must_use]
    pub fn several(&self) -> Option<Vec<&Caller>> {
        let is_good = |caller: &&Caller| {
            let percent = &caller.share_of_difference.percent;
            percent.value >= LEAST_PART && percent.low > 0.0
        };
        let good: Vec<&Caller> = self.callers.iter().filter(is_good).collect();
        (good.len() > 1).then_some(good)
    }
}

/// From where a place is called, by what was executed in it.
pub(super) fn called_from(
    place: &Place,
    stacks: &[FoldedStack],
    functions: &[StackFunction],
    samples: [u64; 2],
    user: &[Measurement; 2],
    difference_ns: f64,
) -> Option<CalledFrom> {
    let is_in_place: Vec<bool> = match place {
        Place::Function { name, .. } => {
            functions.iter().map(|f| f.file.is_none() && f.name == *name).collect()
        }
        Place::Object { code: ObjectCode::Generated, name, .. } => {
            functions.iter().map(|f| f.file.is_some() && f.name == *name).collect()
        }
        Place::Object { .. } => {
            let file = place.object_name();
            functions.iter().map(|f| f.file.as_ref() == Some(&file)).collect()
        }
    };
    let is_in_place = |frame: &u32| is_in_place[*frame as usize];
    let mut by_caller: HashMap<u32, [u64; 2]> = HashMap::new();
    for stack in stacks.iter().filter(|stack| stack.frames.last().is_some_and(is_in_place)) {
        let caller = stack.frames.iter().rev().find(|frame| !is_in_place(frame));
        if let Some(caller) = caller.filter(|caller| functions[**caller as usize].name != CUT_OFF) {
            let sum = by_caller.entry(*caller).or_default();
            sum.iter_mut().zip(stack.samples).for_each(|(sum, n)| *sum += n);
        }
    }
    let caller = |(number, hits): (u32, [u64; 2])| {
        let time =
            |arm: usize| rows::time_of(&share_of_samples(hits[arm], samples[arm]), &user[arm]);
        let (before, after) = (time(0), time(1));
        let how = "time in user code by share of call stacks";
        let share_of_difference = processor::share(&before, &after, difference_ns, how);
        let function = functions[number as usize].clone();
        Caller { function, samples: hits, before, after, share_of_difference }
    };
    let mut callers: Vec<Caller> = by_caller.into_iter().map(caller).collect();
    let part = |caller: &Caller| caller.share_of_difference.percent.value;
    callers.sort_by(|a, b| {
        part(b).abs().total_cmp(&part(a).abs()).then_with(|| a.function.name.cmp(&b.function.name))
    });
    callers.truncate(MOST_CALLERS);
    (!callers.is_empty()).then(|| CalledFrom { place: place.name().to_owned(), callers })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Change;
    use crate::model::Unit;

    fn user(ms: f64) -> Measurement {
        let (unit, how) = (Unit::Nanoseconds, "median".into());
        Measurement { value: ms * 1e6, unit, low: ms * 1e6, high: ms * 1e6, n: 20, how }
    }

    fn function(name: &str) -> StackFunction {
        StackFunction { name: name.into(), file: None }
    }

    /// Callers of `sum` by stacks of so many samples.
    fn callers(of: &[(&[u32], [u64; 2])]) -> Option<CalledFrom> {
        let functions: Vec<_> = ["parse", "flush", "sum", CUT_OFF].map(function).to_vec();
        let (before, after) = (None, None);
        let change = Change::Changed;
        let place = Place::Function { name: "sum".into(), before, after, change };
        let stack = |(frames, samples): &(&[u32], [u64; 2])| FoldedStack {
            frames: frames.to_vec(),
            samples: *samples,
        };
        let stacks: Vec<_> = of.iter().map(stack).collect();
        called_from(&place, &stacks, &functions, [1000, 2000], &[user(100.0), user(200.0)], 100e6)
    }

    #[test]
    fn what_calls_the_place_has_its_part_of_the_difference() {
        let of: [(&[u32], [u64; 2]); 5] = [
            (&[0, 2], [300, 1000]),
            (&[1, 2], [100, 400]),
            (&[3, 2], [50, 50]),
            (&[0, 1], [500, 500]),
            (&[2], [10, 10]),
        ];
        let from = callers(&of).unwrap();
        let parts: Vec<(&str, i64, [u64; 2])> = from
            .callers
            .iter()
            .map(|c| {
                let part = c.share_of_difference.percent.value.round();
                (c.function.name.as_str(), part as i64, c.samples)
            })
            .collect();
        // 30 -> 100 ms and 10 -> 40 ms.
        assert_eq!(parts, [("parse", 70, [300, 1000]), ("flush", 30, [100, 400])]);
        assert_eq!(from.several().unwrap().len(), 2);
        assert_eq!(from.place, "sum");
    }

    #[test]
    fn callers_are_told_where_there_are_several_for_certain() {
        assert!(callers(&[(&[0, 1], [10, 10])]).is_none(), "the place does not run");
        assert!(callers(&[(&[0, 2], [300, 1000])]).unwrap().several().is_none(), "one");
        let few: [(&[u32], [u64; 2]); 2] = [(&[0, 2], [3, 10]), (&[1, 2], [100, 400])];
        assert!(callers(&few).unwrap().several().is_none(), "1 %");
        let wide: [(&[u32], [u64; 2]); 2] = [(&[0, 2], [300, 800]), (&[1, 2], [300, 1000])];
        assert!(callers(&wide).unwrap().several().is_some());
    }
}
