//! What the probe found, joined from samples by code that runs nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fit::{Explanation, best};
use super::{Body, Case, LOOPS, NEGATIVE, OFFSETS, POSITIVE, TWICE};
use crate::machine::{Design, LoopWindow, PriceOrigin, ProfileEnvironment};
use crate::model::Measurement;
use crate::probes::protocol::{Answer, Control, Protocol};
use crate::probes::sampling::Sampled;
use crate::probes::{UpdatesProfile, published};

/// One loop at every offset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopReport {
    /// Instructions of the loop.
    pub body: Body,
    /// Length of the loop, bytes.
    pub bytes: u32,
    /// Core cycles per turn at start offsets 0 to 63; absent with too few clean samples.
    pub cycles: Vec<Option<Measurement>>,
    /// The cheapest offset and its price.
    pub best: Option<(u32, Measurement)>,
    /// The dearest offset and its price.
    pub worst: Option<(u32, Measurement)>,
    /// Whether the two differ by more than their intervals and 5 %.
    pub depends: Option<bool>,
    /// What explains it, where it depends and something does.
    pub explanation: Option<Explanation>,
}

/// Report of this probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AlignmentReport {
    /// How it was measured.
    #[serde(flatten)]
    pub protocol: Protocol,
    /// Cycles and explanation of each loop.
    pub loops: Vec<LoopReport>,
}

/// A smaller difference is none.
const MATTERS: f64 = 1.05;

/// A model must explain this much to be named.
const EXPLAINS_PERCENT: f64 = 60.0;

/// Of 64 offsets so many must be decided.
const LEAST_DECIDED: usize = 56;

impl AlignmentReport {
    /// Evaluates the samples.
    #[must_use]
    pub fn new(cases: &[Case], sampled: &Sampled, mut protocol: Protocol) -> Self {
        let look = |wanted: Case| {
            let at = cases.iter().position(|c| *c == wanted)?;
            sampled.cells.get(at)?.cycles.clone()
        };
        let loops: Vec<LoopReport> = LOOPS.iter().map(|&body| one_loop(body, look)).collect();
        protocol.count(sampled);
        protocol.controls = controls(look);
        protocol.published =
            published::compare(protocol.machine.microarchitecture, super::ID, |_| None);
        protocol.conclude(answer(&loops));
        Self { protocol, loops }
    }
}

impl UpdatesProfile for AlignmentReport {
    fn protocol(&self) -> Option<&Protocol> {
        Some(&self.protocol)
    }

    fn put_into(&self, profile: &mut Design) {
        let windows = self.loops.iter().filter_map(|l| {
            let e = l.explanation?;
            match e.model {
                super::Model::Windows { bytes } => Some((bytes, e.slope_cycles)),
                super::Model::JumpAtBoundary => None,
            }
        });
        let Some((window_bytes, extra_cycles)) = windows.max_by(|a, b| a.1.total_cmp(&b.1)) else {
            return;
        };
        let origin = PriceOrigin::Probed { probe: super::ID.to_owned() };
        profile.loop_window = Some(LoopWindow { window_bytes, extra_cycles, origin });
        profile.environment = Some(ProfileEnvironment::of(&self.protocol.machine));
    }
}

fn one_loop(body: Body, look: impl Fn(Case) -> Option<Measurement>) -> LoopReport {
    let cycles: Vec<Option<Measurement>> =
        (0..OFFSETS).map(|o| look(Case { body, offset_bytes: o, again: false })).collect();
    let known = || (0..).zip(&cycles).filter_map(|(o, m)| Some((o, m.clone()?)));
    let by = |a: &(u32, Measurement), b: &(u32, Measurement)| a.1.value.total_cmp(&b.1.value);
    let (best_offset, worst) = (known().min_by(by), known().max_by(by));
    let decided = known().count();
    let depends = match (&best_offset, &worst) {
        (Some((_, b)), Some((_, w))) if decided >= LEAST_DECIDED => {
            Some(w.low > b.high && w.value > MATTERS * b.value)
        }
        _ => None,
    };
    // A model sees all offsets or none: a gap would shift the others.
    let middle = known().map(|(_, m)| m.value).sum::<f64>() / decided.max(1) as f64;
    let filled: Vec<f64> = cycles.iter().map(|m| m.as_ref().map_or(middle, |m| m.value)).collect();
    let explanation = (depends == Some(true))
        .then(|| best(body, &filled))
        .flatten()
        .filter(|e| e.explains_percent >= EXPLAINS_PERCENT);
    LoopReport { body, bytes: body.bytes(), cycles, best: best_offset, worst, depends, explanation }
}

fn controls(look: impl Fn(Case) -> Option<Measurement>) -> Vec<Control> {
    let at = |body, offset_bytes| look(Case { body, offset_bytes, again: false });
    let still: Vec<Measurement> = (0..OFFSETS).step_by(7).filter_map(|o| at(NEGATIVE, o)).collect();
    let extreme = |f: fn(f64, f64) -> f64| {
        let value = still.iter().map(|m| m.value).reduce(f)?;
        still.iter().find(|m| m.value == value)
    };
    let (low, high) =
        if still.len() >= 8 { (extreme(f64::min), extreme(f64::max)) } else { (None, None) };
    let again = look(Case { again: true, ..TWICE });
    vec![
        Control::compare(
            "positive",
            "six and seven dependent multiplications: three cycles apart",
            at(NEGATIVE, 0).as_ref(),
            at(POSITIVE, 0).as_ref(),
            |a, b| (2.7..3.3).contains(&(b.value - a.value)),
        ),
        Control::compare(
            "negative",
            "dependent multiplications at their best and worst offset",
            low,
            high,
            |a, b| b.value < 1.03 * a.value,
        ),
        Control::placebo(
            "the 29-byte loop at offset 5, twice",
            look(TWICE).as_ref(),
            again.as_ref(),
            0.05,
        ),
    ]
}

fn answer(loops: &[LoopReport]) -> Answer {
    let mut words = Vec::new();
    for l in loops {
        match (l.depends, &l.best, &l.worst) {
            (Some(true), Some((_, best)), Some((at, worst))) => {
                let why = match &l.explanation {
                    Some(e) => {
                        format!("; {} explains {:.0} %", e.model.words(), e.explains_percent)
                    }
                    None => "; no simple rule explains it".to_owned(),
                };
                words.push(format!(
                    "a {}-byte loop takes {:.2} cycles a turn, {:.2} at offset {at}{why}",
                    l.bytes, best.value, worst.value
                ));
            }
            (Some(false), Some((_, best)), Some((_, worst))) => words.push(format!(
                "a {}-byte loop takes {:.2} to {:.2} cycles wherever it starts",
                l.bytes, best.value, worst.value
            )),
            _ => {}
        }
    }
    if words.is_empty() {
        Answer::Open("too few offsets have clean samples".to_owned())
    } else {
        Answer::Found(words.join(". "))
    }
}
