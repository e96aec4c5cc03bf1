//! What the first rounds promise: layouts and runs that show the smallest effect of interest, and how
//! many rounds are worth it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::report::{CellRecord, ensemble_of, metric_of};
use super::{SweepRun, SweepSettings};
use crate::compare::MAX_PAIRS;
use crate::compare::layouts::planning::Pilot;
use crate::stats::power::pairs_needed;

/// Rounds before the number of rounds is decided.
pub const PILOT_ROUNDS: u32 = 3;
/// Rounds without placements, where pairs of runs are the evidence.
const PAIRED_ROUNDS: u32 = 20;
/// More rounds than this are not chosen: another layout teaches more.
const MOST_ROUNDS: u32 = 20;

/// The plan after a pilot of rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayoutPlan {
    /// The smallest effect of interest as a share.
    pub effect: f64,
    /// Spread between placements (log), as far as the pilot can tell.
    pub layout_sd_log: f64,
    /// Spread of a run (log).
    pub run_sd_log: f64,
    /// Placements of each variant that there are.
    pub layouts: u32,
    /// Rounds that will be run.
    pub rounds: u32,
    /// What is left of that, in nanoseconds.
    pub left_ns: u64,
    /// Placements of each variant that show the effect with 80 % power; absent without placements, or
    /// when a hundred thousand would not.
    pub layouts_needed: Option<u64>,
    /// Runs of each that are worth it with these.
    pub runs_per_layout: u32,
    /// Rounds that show the effect in these very builds; only without placements.
    pub rounds_needed: Option<u64>,
    /// What the needed layouts, or rounds, take from the start, in nanoseconds.
    pub needed_ns: Option<u64>,
}

/// The plan from the runs so far, of which `done` rounds belong to this sweep.
pub(super) fn plan(
    settings: &SweepSettings,
    runs: &[SweepRun],
    cells: &[CellRecord],
    variants: usize,
    done: u32,
) -> LayoutPlan {
    let ensemble = ensemble_of(runs, metric_of(settings, runs));
    let [layout_sd_log, run_sd_log] = ensemble.spread(&ensemble.programs());
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let pilot = Pilot {
        run_sd_log,
        layout_sd_log,
        build_ns: mean(cells.iter().map(|c| c.build_ns as f64).collect()),
        run_ns: mean(runs.iter().map(|r| r.amounts.time_ns() as f64).collect()),
    };
    let effect_log = settings.effect.ln_1p();
    let ready = cells.iter().filter(|c| c.failure.is_none()).count() as f64;
    let placed = settings.layouts > 0;
    let needed = placed.then(|| pilot.plan(effect_log)).flatten();
    let budget_ns = settings.budget_ms.map_or(u64::MAX, |ms| ms.saturating_mul(1_000_000));
    let chosen = match (settings.rounds, placed) {
        (Some(rounds), _) => rounds,
        // Then time, or what is known, ends it.
        (None, _) if settings.budget_ms.is_some() => {
            let rounds = budget_ns as f64 / (pilot.run_ns * ready).max(1.0);
            (done + rounds as u32).min(MAX_PAIRS)
        }
        (None, false) if settings.until.is_some() => MAX_PAIRS,
        (None, true) if settings.until.is_some() => MOST_ROUNDS,
        (None, false) => PAIRED_ROUNDS,
        (None, true) => pilot.runs_per_layout().clamp(PILOT_ROUNDS, MOST_ROUNDS),
    };
    // A pair of two builds has the noise of two runs.
    let rounds_needed = (!placed)
        .then(|| pairs_needed(run_sd_log * std::f64::consts::SQRT_2, effect_log))
        .flatten()
        .map(|n| n as u64);
    // The plan is for two arms; every further variant costs as much as one of them.
    let per_arm = |plan: f64| (plan / 2.0 * variants as f64) as u64;
    let needed_ns = match rounds_needed {
        Some(rounds) => Some((pilot.run_ns * ready * rounds as f64) as u64),
        None => needed.map(|p| per_arm(p.expected_ns)),
    };
    let left = (pilot.run_ns * ready * f64::from(chosen.saturating_sub(done))) as u64;
    LayoutPlan {
        effect: settings.effect,
        layout_sd_log,
        run_sd_log,
        layouts: settings.layouts,
        rounds: chosen,
        left_ns: left.min(budget_ns),
        layouts_needed: needed.map(|p| p.layouts_per_arm),
        runs_per_layout: pilot.runs_per_layout(),
        rounds_needed,
        needed_ns,
    }
}

#[cfg(test)]
mod tests {
    use rand_pcg::Pcg64Mcg;
    use rand_pcg::rand_core::SeedableRng;

    use super::super::{Axis, Cell};
    use super::*;
    use crate::compare::Amounts;
    use crate::compare::simulate::normal;

    fn settings(layouts: u32, rounds: Option<u32>) -> SweepSettings {
        SweepSettings {
            layouts,
            build: Some("{out}".into()),
            rounds,
            ..SweepSettings::new(Axis::parse("x", "a,b").unwrap(), "{out}")
        }
    }

    /// An invented machine: runs of 100 ms, builds of 2 s, these spreads.
    fn pilot(settings: &SweepSettings, layout_sd: f64, run_sd: f64) -> LayoutPlan {
        let mut rng = Pcg64Mcg::seed_from_u64(9);
        let (mut cells, mut runs) = (Vec::new(), Vec::new());
        for variant in 0..2 {
            for layout in 0..=settings.layouts {
                let cell = Cell { variant, layout };
                let place = layout_sd * normal(&mut rng);
                cells.push(CellRecord { build_ns: 2_000_000_000, ..CellRecord::unbuilt(cell) });
                for round in 0..PILOT_ROUNDS {
                    let wall_ns = (1e8 * (place + run_sd * normal(&mut rng)).exp()) as u64;
                    let amounts = Amounts { wall_ns, ..Amounts::default() };
                    runs.push(SweepRun { cell, round, amounts, repeats: 0, machine: 0 });
                }
            }
        }
        plan(settings, &runs, &cells, 2, PILOT_ROUNDS)
    }

    #[test]
    fn the_plan_is_that_of_the_table_for_the_spread_that_the_pilot_saw() {
        let plan = pilot(&settings(40, None), 0.02, 0.005);
        // 64 layouts per arm see 1 % through a spread of 2 %; the pilot knows the spread roughly.
        assert!((35..110).contains(&plan.layouts_needed.unwrap()), "{plan:?}");
        assert_eq!((plan.rounds, plan.layouts, plan.rounds_needed), (3, 40, None));
        assert_eq!(plan.left_ns, 0);
        let noisy = pilot(&settings(40, None), 0.005, 0.02);
        assert!(noisy.rounds > 3 && noisy.left_ns > 0, "{noisy:?}");
        assert_eq!(pilot(&settings(40, Some(7)), 0.02, 0.005).rounds, 7);
    }

    #[test]
    fn time_or_what_is_known_ends_it_where_one_of_them_was_asked_for() {
        // Ten builds of 100 ms: a round a second.
        let timed = SweepSettings { budget_ms: Some(9_500), ..settings(4, None) };
        let plan = pilot(&timed, 0.0, 0.0);
        assert_eq!((plan.rounds, plan.left_ns), (PILOT_ROUNDS + 9, 9_000_000_000));
        let known = |layouts, rounds| SweepSettings {
            until: Some(crate::compare::Until::Verdict),
            ..settings(layouts, rounds)
        };
        assert_eq!(pilot(&known(4, None), 0.02, 0.005).rounds, MOST_ROUNDS);
        assert_eq!(pilot(&known(0, None), 0.0, 0.005).rounds, MAX_PAIRS);
        assert_eq!(pilot(&known(4, Some(12)), 0.02, 0.005).rounds, 12);
    }

    #[test]
    fn without_placements_rounds_are_planned() {
        let plan = pilot(&settings(0, None), 0.0, 0.01);
        assert_eq!((plan.layouts_needed, plan.rounds), (None, 20));
        assert!(plan.rounds_needed.is_some() && plan.needed_ns.is_some());
    }
}
