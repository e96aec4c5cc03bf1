//! Is it the code or where the code lies, without source and without rebuilding: both builds with their hot functions at
//! random places.
//!
//! *Effect.* The same instructions at another address run at another speed ([`layouts`](crate::compare::layouts)). One build
//! of each says nothing about that, however often it is run. Here the functions that take most of the time are run from
//! copies at random places in pages, drawn for both builds apart, beside copies that lie in their pages as the originals do; all
//! pay alike for being entered by a jump. Stacks lie elsewhere in each round. *Literature.* Curtsinger and Berger,
//! "Stabilizer" (ASPLOS 2013).

use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_pcg::Pcg64Mcg;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bench::or_why;
use super::cure;
use super::placement::Placement;
use super::{Bench, FunctionRow};
use crate::code::Image;
use crate::code::x86::Patch;
use crate::compare::layouts::{AS_BUILT, LayoutRun, Split, split};
use crate::compare::{Arm, Settings};
use crate::trace::engine::{Change, EngineError};

/// Rounds: a layout needs two for its noise, and more than five tell little more.
const ROUNDS: [usize; 2] = [2, 5];
/// What all rounds together should take.
const ROUNDS_NS: f64 = 60e9;

/// Builds with copies that lie as the originals do differ by at least and at most this part of what the builds differ by (logs).
const AS_BUILDS: [f64; 2] = [0.67, 1.5];

/// The difference over places of the code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Placements {
    /// The functions that were placed, as the slow build calls them.
    pub functions: Vec<String>,
    /// How often each placement of each build was run.
    pub rounds: u32,
    /// Layout 0 has the copies where the originals lie in their pages. Values are processor time in nanoseconds.
    pub split: Split,
}

/// Runs both builds at so many random places; the inner error says why that cannot be.
///
/// # Errors
/// Only when the user wants an end.
pub(super) fn run(
    bench: &mut dyn Bench,
    [slow_image, fast_image]: [&Image; 2],
    rows: &[FunctionRow],
    slow: Arm,
    (settings, run_ns): (&Settings, [f64; 2]),
    progress: &mut dyn FnMut(u32, u32),
) -> Result<Result<Placements, String>, EngineError> {
    let (places, mut random) = (bench.placements(), Pcg64Mcg::seed_from_u64(settings.seed));
    let Some(mut placement) = Placement::of_hot(rows, slow) else {
        return Ok(Err("no function of both builds was seen".into()));
    };
    let mut patches = || -> Result<[Vec<Patch>; 2], String> {
        placement.keep_what_can_be_copied([slow_image, fast_image])?;
        let mut of = |image: &Image, of: usize| {
            let as_built = placement.as_built(image, of);
            let placed = (0..places).map(|_| placement.anywhere(image, of, &mut random));
            std::iter::once(as_built).chain(placed).collect::<Result<Vec<Patch>, String>>()
        };
        Ok([of(slow_image, 0)?, of(fast_image, 1)?])
    };
    let patches = match patches() {
        Ok(patches) => patches,
        Err(why) => return Ok(Err(why)),
    };
    let round_ns = f64::from(places + 1) * (run_ns[0] + run_ns[1]);
    if let Some(why) = cure::takes_too_long(bench, round_ns * ROUNDS[0] as f64) {
        return Ok(Err(why));
    }
    let all_ns = ROUNDS_NS.min(bench.left().ns);
    let rounds = ((all_ns / round_ns.max(1.0)) as usize).clamp(ROUNDS[0], ROUNDS[1]);
    let cell = |layout: u32| [(slow, layout), (slow.other(), layout)];
    let mut order: Vec<(Arm, u32)> = (AS_BUILT..=places).flat_map(cell).collect();
    let (mut runs, mut ends) = (Vec::new(), [None; 2]);
    for round in 0..rounds {
        order.shuffle(&mut random);
        for (arm, layout) in &order {
            progress(runs.len() as u32, (rounds * order.len()) as u32);
            let patch = &patches[usize::from(*arm != slow)][*layout as usize];
            let exit = match or_why(bench.run_changed(*arm, Change::Code(patch), round))? {
                Ok(exit) => exit,
                Err(why) => return Ok(Err(why)),
            };
            let ended = (exit.status, exit.stdout.digest);
            if *ends[arm.index()].get_or_insert(ended) != ended {
                return Ok(Err("its output is not the same in every run".into()));
            }
            let value = exit.processor_ns() as f64;
            runs.push(LayoutRun { arm: *arm, layout: *layout, round: round as u32, value });
        }
    }
    let split = split(&runs, settings.effect.ln_1p()).map_err(|error| error.to_string());
    let placed = |split| Placements { functions: placement.names(), rounds: rounds as u32, split };
    Ok(split.and_then(|split| as_builds(split, (run_ns[1] / run_ns[0]).ln())).map(placed))
}

/// What copies tell, if builds whose copies lie as the originals do differ as the builds do.
fn as_builds(split: Split, builds_log: f64) -> Result<Split, String> {
    let Some(copies) = split.observed else { return Err("no run of a copy is known".into()) };
    let is_within = copies.low_log <= builds_log && builds_log <= copies.high_log;
    if is_within || (AS_BUILDS[0]..=AS_BUILDS[1]).contains(&(copies.log_ratio / builds_log)) {
        return Ok(split);
    }
    let [copies, builds] = [copies.log_ratio, builds_log].map(|log| 100.0 * log.exp_m1());
    Err(format!(
        "with their functions run from copies the builds differ by {copies:.1} %, without by {builds:.1} %"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_differ_otherwise_than_the_builds_tell_nothing() {
        let run = |arm, layout, round, value| LayoutRun { arm, layout, round, value };
        let runs: Vec<LayoutRun> = (0..3)
            .flat_map(|round| {
                let noise = f64::from(round);
                (0..4).flat_map(move |n| {
                    let of_place = noise + 0.1 * f64::from(n);
                    [
                        run(Arm::A, n, round, 100.0 + of_place),
                        run(Arm::B, n, round, 150.0 + of_place),
                    ]
                })
            })
            .collect();
        let said = |builds: f64| as_builds(split(&runs, 0.01).unwrap(), f64::ln(builds));
        assert!(said(1.5).is_ok() && said(1.4).is_ok() && said(1.8).is_ok());
        let why = said(1.2).unwrap_err();
        assert!(
            why.starts_with("with their functions run from copies the builds differ by 49."),
            "{why}"
        );
        assert!(said(2.0).is_err() && said(0.9).is_err());
    }
}
