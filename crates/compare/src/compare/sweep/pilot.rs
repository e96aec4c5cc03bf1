//! What the first rounds promise: layouts and runs that show the smallest effect of interest, and how
//! many rounds are worth it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::report::CellRecord;
use super::{SweepRun, SweepSettings};
use crate::compare::layouts::planning::Pilot;
use crate::compare::layouts::spread_of_cells;
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

/// The plan from the runs so far.
pub(super) fn plan(
    settings: &SweepSettings,
    runs: &[SweepRun],
    cells: &[CellRecord],
    variants: usize,
) -> LayoutPlan {
    let value = |r: &SweepRun| r.value(&settings.measure);
    let [layout_sd_log, run_sd_log] =
        spread_of_cells(runs.iter().map(|r| ((r.cell.variant, r.cell.layout), r.round, value(r))));
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let pilot = Pilot {
        run_sd_log,
        layout_sd_log,
        build_ns: mean(cells.iter().map(|c| c.build_ns as f64).collect()),
        run_ns: mean(runs.iter().map(|r| r.time_ns() as f64).collect()),
    };
    let effect_log = settings.effect.ln_1p();
    let ready = cells.iter().filter(|c| c.failure.is_none()).count() as f64;
    let placed = settings.layouts > 0;
    let needed = placed.then(|| pilot.plan(effect_log)).flatten();
    let chosen = match (settings.rounds, placed) {
        (Some(rounds), _) => rounds,
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
    let done = runs.iter().map(|r| r.round + 1).max().unwrap_or(0);
    LayoutPlan {
        effect: settings.effect,
        layout_sd_log,
        run_sd_log,
        layouts: settings.layouts,
        rounds: chosen,
        left_ns: (pilot.run_ns * ready * f64::from(chosen.saturating_sub(done))) as u64,
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

    use super::super::{Axis, Cell, Knob};
    use super::*;
    use crate::compare::simulate::normal;
    use crate::compare::{Amounts, Measure};

    fn settings(layouts: u32, rounds: Option<u32>) -> SweepSettings {
        SweepSettings {
            axes: vec![Axis::parse("x", "a,b").unwrap()],
            layouts,
            knob: Knob::Go,
            build: Some("{out}".into()),
            run: "{out}".into(),
            rounds,
            effect: 0.01,
            seed: 1,
            timeout_ms: None,
            cpus: None,
            guard: false,
            measure: Measure::Wall,
            operations_in_ms: None,
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
                    runs.push(SweepRun { cell, round, amounts, repeats: 0 });
                }
            }
        }
        plan(settings, &runs, &cells, 2)
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
    fn without_placements_rounds_are_planned() {
        let plan = pilot(&settings(0, None), 0.0, 0.01);
        assert_eq!((plan.layouts_needed, plan.rounds), (None, 20));
        assert!(plan.rounds_needed.is_some() && plan.needed_ns.is_some());
    }
}
