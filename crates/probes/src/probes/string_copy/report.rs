//! What the probe found, joined from samples by code that runs nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::case::{CHAIN, Case, Form, Job, Method, SIZES, TWICE};
use super::fit::{Advice, Crossover, Look, Outcome, advise, crossover, exposed};
use crate::machine::{Design, PriceOrigin, ProfileEnvironment, StringCosts, StringPoint};
use crate::model::Measurement;
use crate::probes::protocol::{Answer, Control, Protocol};
use crate::probes::sampling::Sampled;
use crate::probes::{UpdatesProfile, published};

/// One case with its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StringCell {
    /// The case that was measured.
    pub case: Case,
    /// Core cycles for one copy or fill (in the shadow: with the chain); absent with too few clean
    /// samples.
    pub cycles: Option<Measurement>,
    /// Clean samples, percent of those taken.
    pub clean_percent: f64,
}

/// Report of this probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StringReport {
    /// How it was measured.
    #[serde(flatten)]
    pub protocol: Protocol,
    /// Every case with its cycles.
    pub cells: Vec<StringCell>,
    /// From which size on string instructions win.
    pub crossovers: Vec<Crossover>,
    /// Compiler options.
    pub advice: Vec<Advice>,
}

impl Look for Vec<StringCell> {
    fn cycles(&self, case: &Case) -> Option<&Measurement> {
        self.iter().find(|c| c.case == *case)?.cycles.as_ref()
    }
}

fn all_crossovers(cells: &Vec<StringCell>) -> Vec<Crossover> {
    let mut all = Vec::new();
    for job in [Job::Copy, Job::Fill] {
        for rep in [Method::RepQuads, Method::RepBytes] {
            for against in [Method::Moves8, Method::Sse, Method::Avx2, Method::Avx512, Method::Libc]
            {
                let asked = |c: &StringCell| c.case.method == against && c.case.job == job;
                if cells.iter().any(asked) {
                    all.push(crossover(cells, job, rep, against));
                }
            }
        }
    }
    all
}

impl StringReport {
    /// Evaluates the samples.
    #[must_use]
    pub fn new(cases: &[Case], sampled: &Sampled, mut protocol: Protocol) -> Self {
        let cells: Vec<StringCell> = cases
            .iter()
            .zip(&sampled.cells)
            .map(|(case, cell)| StringCell {
                case: *case,
                cycles: cell.cycles.clone(),
                clean_percent: cell.clean_percent,
            })
            .collect();
        let crossovers = all_crossovers(&cells);
        let advice = advise(&crossovers);
        protocol.count(sampled);
        protocol.controls = controls(&cells);
        protocol.published =
            published::compare(protocol.machine.microarchitecture, super::ID, |quantity| {
                published_quantity(&cells, &crossovers, quantity)
            });
        protocol.conclude(answer(&crossovers));
        Self { protocol, cells, crossovers, advice }
    }

    /// The answer to one question, core cycles.
    #[must_use]
    pub fn cycles(&self, case: &Case) -> Option<&Measurement> {
        self.cells.cycles(case)
    }

    /// What a copy or fill adds to a chain that takes longer than it, core cycles.
    #[must_use]
    pub fn exposed_cycles(&self, job: Job, method: Method, bytes: u32) -> Option<f64> {
        exposed(&self.cells, job, method, bytes)
    }

    /// Prices of a string instruction against moves of eight bytes, where both are known.
    fn costs(&self, job: Job, rep: Method) -> Option<StringCosts> {
        let wanted = |c: &&Crossover| (c.job, c.rep, c.against) == (job, rep, Method::Moves8);
        let crossover_bytes = match &self.crossovers.iter().find(wanted)?.outcome {
            Outcome::From { size } => size.value as u64,
            Outcome::Always => 0,
            Outcome::Never => u64::from(SIZES[SIZES.len() - 1]) + 1,
            Outcome::Inconclusive { .. } => return None,
        };
        let point = |&bytes: &u32| {
            let cycles = |method| Some(self.cycles(&Case::alone(job, method, bytes))?.value);
            Some(StringPoint {
                size_bytes: u64::from(bytes),
                rep_cycles: cycles(rep)?,
                moves_cycles: cycles(Method::Moves8)?,
                // Behind the last size that fits into a shadow, as much as there.
                shadow_cycles: exposed(&self.cells, job, rep, bytes.min(512))?,
            })
        };
        let points: Vec<StringPoint> = SIZES.iter().filter_map(point).collect();
        let origin = PriceOrigin::Probed { probe: super::ID.to_owned() };
        (!points.is_empty()).then_some(StringCosts { crossover_bytes, points, origin })
    }
}

impl UpdatesProfile for StringReport {
    fn protocol(&self) -> Option<&Protocol> {
        Some(&self.protocol)
    }

    fn put_into(&self, profile: &mut Design) {
        for (of_profile, job, rep) in [
            (&mut profile.rep_moves, Job::Copy, Method::RepQuads),
            (&mut profile.rep_stores, Job::Fill, Method::RepQuads),
            (&mut profile.rep_byte_moves, Job::Copy, Method::RepBytes),
            (&mut profile.rep_byte_stores, Job::Fill, Method::RepBytes),
        ] {
            if let Some(costs) = self.costs(job, rep) {
                *of_profile = Some(costs);
            }
        }
        profile.microarchitecture = self.protocol.machine.microarchitecture;
        profile.environment = Some(ProfileEnvironment::of(&self.protocol.machine));
    }
}

fn controls(cells: &Vec<StringCell>) -> Vec<Control> {
    let alone = |bytes| cells.cycles(&Case::alone(Job::Copy, Method::Moves8, bytes));
    let small = Case::alone(Job::Copy, Method::Moves8, 8).in_form(Form::Shadow);
    vec![
        Control::compare(
            "positive",
            "1024 bytes by 8-byte moves take about twice what 512 take",
            alone(512),
            alone(1024),
            |a, b| (1.6..2.5).contains(&(b.value / a.value)),
        ),
        Control::compare(
            "negative",
            "a chain alone, and with 8 bytes moved beside it",
            cells.cycles(&CHAIN),
            cells.cycles(&small),
            |a, b| (b.value - a.value).abs() < 2.0,
        ),
        Control::placebo(
            "256 bytes by 8-byte moves, twice",
            cells.cycles(&TWICE),
            cells.cycles(&TWICE.in_form(Form::Placebo)),
            0.05,
        ),
    ]
}

/// The sentence about the two pairs that compilers choose between.
fn answer(crossovers: &[Crossover]) -> Answer {
    let main = |job| {
        let wanted = move |c: &&Crossover| {
            (c.job, c.rep, c.against) == (job, Method::RepQuads, Method::Moves8)
        };
        crossovers.iter().find(wanted)
    };
    let mut words = Vec::new();
    let mut open = Vec::new();
    for job in [Job::Copy, Job::Fill] {
        let rep = Method::RepQuads.name(job);
        match main(job).map(|c| &c.outcome) {
            Some(Outcome::From { size }) => words.push(format!(
                "{rep} overtakes 8-byte moves at {:.0} B [{:.0}, {:.0}]",
                size.value, size.low, size.high
            )),
            Some(Outcome::Always) => words.push(format!("{rep} beats 8-byte moves at every size")),
            Some(Outcome::Never) => words.push(format!("{rep} never beats 8-byte moves")),
            Some(Outcome::Inconclusive { reason }) => open.push(format!("{rep}: {reason}")),
            None => open.push(format!("{rep} was not measured")),
        }
    }
    let is_open = words.is_empty();
    let all = [words, open].concat().join("; ");
    if is_open { Answer::Open(all) } else { Answer::Found(all) }
}

/// The measured value of a published quantity.
fn published_quantity(
    cells: &Vec<StringCell>,
    crossovers: &[Crossover],
    quantity: &str,
) -> Option<Measurement> {
    let size = |job, against| {
        let wanted = |c: &&Crossover| (c.job, c.rep, c.against) == (job, Method::RepQuads, against);
        match &crossovers.iter().find(wanted)?.outcome {
            Outcome::From { size } => Some(size.clone()),
            _ => None,
        }
    };
    let cycles = |job, method, bytes| cells.cycles(&Case::alone(job, method, bytes)).cloned();
    match quantity {
        "rep movsq over 8-byte moves, bytes" => size(Job::Copy, Method::Moves8),
        "rep stosq over 8-byte moves, bytes" => size(Job::Fill, Method::Moves8),
        "rep movsq over SSE, bytes" => size(Job::Copy, Method::Sse),
        "rep movsq, 64 bytes, cycles" => cycles(Job::Copy, Method::RepQuads, 64),
        "rep movsq, 168 bytes, cycles" => cycles(Job::Copy, Method::RepQuads, 168),
        "rep stosb, 1024 bytes, cycles" => cycles(Job::Fill, Method::RepBytes, 1024),
        _ => None,
    }
}
