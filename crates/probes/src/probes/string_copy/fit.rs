//! From cells to crossovers, and from crossovers to advice.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::case::{Case, Form, Job, Method, SIZES};
use crate::model::{Measurement, Unit};

/// From which size on one method is the cheaper one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// From here on, interpolated between measured sizes.
    From {
        /// The size, bytes.
        size: Measurement,
    },
    /// At every measured size.
    Always,
    /// At none of them.
    Never,
    /// The cells do not say.
    Inconclusive {
        /// Why there is no answer.
        reason: String,
    },
}

/// Where `rep` overtakes something else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Crossover {
    /// Copy or fill.
    pub job: Job,
    /// The string instruction.
    pub rep: Method,
    /// What it is held against.
    pub against: Method,
    /// From where on it wins.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// A compiler option that the figures justify, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Advice {
    /// Code that the option is for.
    pub code: String,
    /// The option for GCC; absent where the figures do not decide.
    pub option: Option<String>,
    /// The figures behind it in words.
    pub because: String,
}

pub trait Look {
    fn cycles(&self, case: &Case) -> Option<&Measurement>;
}

/// A crossover that is less sure than this (high over low) decides nothing.
const WIDEST: f64 = 1.6;

/// Where `rep` overtakes `against`.
pub fn crossover(cells: &impl Look, job: Job, rep: Method, against: Method) -> Crossover {
    Crossover { job, rep, against, outcome: outcome(cells, job, rep, against) }
}

fn outcome(cells: &impl Look, job: Job, rep: Method, against: Method) -> Outcome {
    let pair = |&bytes: &u32| {
        let cell = |method| cells.cycles(&Case::alone(job, method, bytes));
        Some((f64::from(bytes), cell(rep)?, cell(against)?))
    };
    let known: Vec<(f64, &Measurement, &Measurement)> = SIZES.iter().filter_map(pair).collect();
    if known.len() < SIZES.len() {
        let reason =
            format!("{} of {} sizes are undecided", SIZES.len() - known.len(), SIZES.len());
        return Outcome::Inconclusive { reason };
    }
    let curve = |of: fn(&Measurement, &Measurement) -> f64| -> Vec<(f64, f64)> {
        known.iter().map(|(bytes, r, a)| (*bytes, of(r, a))).collect()
    };
    let middle = last_crossing(&curve(|r, a| (r.value / a.value).ln()));
    let early = last_crossing(&curve(|r, a| (r.low / a.high).ln()));
    let late = last_crossing(&curve(|r, a| (r.high / a.low).ln()));
    match (early, middle, late) {
        (_, Crossing::Before, Crossing::Before) => Outcome::Always,
        (Crossing::Behind, Crossing::Behind, _) => Outcome::Never,
        (Crossing::At(low), Crossing::At(value), Crossing::At(high)) if high <= WIDEST * low => {
            let n = known.iter().map(|(_, r, a)| r.n.min(a.n)).min().unwrap_or(0);
            let how = "log-interpolated; from the ends of the cells' intervals".to_owned();
            Outcome::From { size: Measurement { value, unit: Unit::Bytes, low, high, n, how } }
        }
        (early, _, late) => {
            let reason = format!("somewhere between {} and {}", early.words(), late.words());
            Outcome::Inconclusive { reason }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Crossing {
    Before,
    At(f64),
    Behind,
}

impl Crossing {
    fn words(self) -> String {
        match self {
            Self::Before => format!("{} bytes", SIZES[0]),
            Self::At(bytes) => format!("{bytes:.0} bytes"),
            Self::Behind => format!("more than {} bytes", SIZES[SIZES.len() - 1]),
        }
    }
}

/// Behind the last point above zero; linear in the logarithm of the size.
fn last_crossing(curve: &[(f64, f64)]) -> Crossing {
    match curve.iter().rposition(|(_, d)| *d > 0.0) {
        None => Crossing::Before,
        Some(last) => match curve.get(last + 1) {
            None => Crossing::Behind,
            Some((after, below)) => {
                let (before, above) = curve[last];
                let share = above / (above - below);
                Crossing::At((before.ln() + share * (after / before).ln()).exp())
            }
        },
    }
}

/// What the crossovers say to GCC about code of two kinds.
pub fn advise(crossovers: &[Crossover]) -> Vec<Advice> {
    let kinds = [
        ("copies without vector registers", Job::Copy, Method::Moves8),
        ("fills without vector registers", Job::Fill, Method::Moves8),
        ("copies with SSE", Job::Copy, Method::Sse),
        ("fills with SSE", Job::Fill, Method::Sse),
    ];
    let one = |(code, job, against)| {
        let found = crossovers
            .iter()
            .find(|c| c.job == job && c.against == against && c.rep == Method::RepQuads)?;
        Some(advice(code, found))
    };
    kinds.into_iter().filter_map(one).collect()
}

fn advice(code: &str, found: &Crossover) -> Advice {
    let what = if found.job == Job::Copy { "memcpy" } else { "memset" };
    let inline = if found.against == Method::Sse { "vector_loop" } else { "unrolled_loop" };
    let (rep, against) = (found.rep.name(found.job), found.against);
    let largest = SIZES[SIZES.len() - 1];
    let (limit, because) = match &found.outcome {
        Outcome::From { size } => {
            let words = format!(
                "{rep} overtakes {against} at {:.0} B [{:.0}, {:.0}]",
                size.value, size.low, size.high
            );
            (Some(size.low as u32 / 8 * 8), words)
        }
        Outcome::Never => {
            (Some(largest), format!("{rep} does not overtake {against} up to {largest} B"))
        }
        Outcome::Always => (Some(0), format!("{rep} is the cheaper one at every size")),
        Outcome::Inconclusive { reason } => (None, format!("inconclusive: {reason}")),
    };
    let option = limit.map(|limit| match limit {
        0 => format!("-m{what}-strategy=rep_8byte:-1:noalign"),
        limit => format!("-m{what}-strategy={inline}:{limit}:noalign,libcall:-1:noalign"),
    });
    Advice { code: code.to_owned(), option, because }
}

/// What a copy or fill adds to a chain that takes longer than it, core cycles.
pub fn exposed(cells: &impl Look, job: Job, method: Method, bytes: u32) -> Option<f64> {
    let case = Case::alone(job, method, bytes).in_form(Form::Shadow);
    let (with, without) = (cells.cycles(&case)?, cells.cycles(&super::case::CHAIN)?);
    Some((with.value - without.value).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_crossing_counts() {
        let up = [(8.0, 1.0), (16.0, -1.0), (32.0, 1.0), (64.0, -1.0)];
        let Crossing::At(bytes) = last_crossing(&up) else { panic!() };
        assert!((bytes - 45.25).abs() < 0.1, "{bytes}");
        assert_eq!(last_crossing(&[(8.0, 1.0)]), Crossing::Behind);
        assert_eq!(last_crossing(&[(8.0, -1.0)]), Crossing::Before);
    }

    #[test]
    fn advice_is_an_option_that_gcc_reads() {
        let size = Measurement {
            value: 345.0,
            unit: Unit::Bytes,
            low: 339.0,
            high: 346.0,
            n: 30,
            how: String::new(),
        };
        let found = |outcome| Crossover {
            job: Job::Copy,
            rep: Method::RepQuads,
            against: Method::Moves8,
            outcome,
        };
        let option = |outcome| advise(&[found(outcome)]).remove(0).option;
        let from = option(Outcome::From { size }).unwrap();
        assert_eq!(from, "-mmemcpy-strategy=unrolled_loop:336:noalign,libcall:-1:noalign");
        assert!(option(Outcome::Always).unwrap().ends_with("rep_8byte:-1:noalign"));
        assert!(option(Outcome::Never).unwrap().contains("unrolled_loop:4096"));
        assert_eq!(option(Outcome::Inconclusive { reason: "noise".into() }), None);
    }
}
