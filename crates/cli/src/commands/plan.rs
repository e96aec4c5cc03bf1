//! The estimate before a long run, in words: what it takes to see the smallest effect of interest here.

use stallscope::compare::PairPlan;
use stallscope::compare::sweep::LayoutPlan;

use super::words::{percent, rough, share_words};

/// Runs shorter than this are over before a plan can be read.
const LONG_NS: u64 = 5_000_000_000;

/// The plan of a comparison; `None` when it is short anyway.
pub fn of_pairs(plan: &PairPlan, open_end: bool) -> Option<String> {
    let longest = plan.planned_ns().max(plan.needed_ns().unwrap_or(u64::MAX));
    if longest < LONG_NS {
        return None;
    }
    let effect = share_words(plan.effect);
    let mut text = match (plan.pairs_needed, plan.needed_ns()) {
        (Some(pairs), Some(ns)) => {
            format!("to see {effect} here: {pairs} pairs, about {}", rough(ns))
        }
        _ => format!("too noisy here to see {effect} with any number of pairs"),
    };
    if let Some(layouts) = plan.layouts_needed {
        text += &format!(
            " (for these two builds; for the code {layouts} layouts per arm, if placements spread by \
             the usual 1 %: `stallscope sweep`)"
        );
    }
    let (pairs, time) = (plan.pairs_planned, rough(plan.planned_ns()));
    text += &match open_end {
        true => format!("; at most {pairs} pairs"),
        false => format!("; planned: {pairs} pairs, about {time}"),
    };
    Some(text)
}

/// The plan of a sweep; `None` when it is short anyway.
pub fn of_layouts(plan: &LayoutPlan) -> Option<String> {
    if plan.left_ns.max(plan.needed_ns.unwrap_or(u64::MAX)) < LONG_NS {
        return None;
    }
    let effect = share_words(plan.effect);
    let time = plan.needed_ns.map_or("very long".into(), |ns| format!("about {}", rough(ns)));
    let left = rough(plan.left_ns);
    let run = percent(plan.run_sd_log);
    if plan.layouts == 0 {
        let needed = match plan.rounds_needed {
            Some(rounds) => format!("to see {effect} here: {rounds} runs of each build, {time}"),
            None => format!("too noisy here to see {effect} with any number of runs"),
        };
        return Some(format!(
            "{needed} (run noise {run:.1} %); planned: {} runs of each, {left} left",
            plan.rounds
        ));
    }
    let spread = percent(plan.layout_sd_log);
    let needed = match plan.layouts_needed {
        Some(layouts) => format!(
            "to see {effect} here: {layouts} layouts per arm with {} of each, {time}",
            runs(plan.runs_per_layout)
        ),
        None => format!("too wide a spread here to see {effect} with any number of layouts"),
    };
    Some(format!(
        "{needed} (layout spread {spread:.1} %, run noise {run:.1} %); planned: {} layouts with {} of \
         each, {left} left",
        plan.layouts,
        runs(plan.rounds)
    ))
}

fn runs(n: u32) -> String {
    if n == 1 { "1 run".into() } else { format!("{n} runs") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIRS: PairPlan = PairPlan {
        effect: 0.01,
        pairs_needed: Some(34),
        pairs_planned: 20,
        pair_ns: 7_000_000_000,
        layouts_needed: Some(17),
    };

    const LAYOUTS: LayoutPlan = LayoutPlan {
        effect: 0.01,
        layout_sd_log: 0.01,
        run_sd_log: 0.003,
        layouts: 12,
        rounds: 3,
        left_ns: 9_000_000_000,
        layouts_needed: Some(17),
        runs_per_layout: 1,
        rounds_needed: None,
        needed_ns: Some(240_000_000_000),
    };

    #[test]
    fn the_plan_of_a_comparison() {
        insta::assert_snapshot!(of_pairs(&PAIRS, false).unwrap());
        let hopeless = PairPlan { pairs_needed: None, layouts_needed: None, ..PAIRS };
        insta::assert_snapshot!(of_pairs(&hopeless, true).unwrap());
        // What is over in a second needs no plan.
        assert_eq!(of_pairs(&PairPlan { pair_ns: 20_000_000, ..PAIRS }, false), None);
    }

    #[test]
    fn the_plan_of_a_sweep() {
        insta::assert_snapshot!(of_layouts(&LAYOUTS).unwrap());
        let pairs = LayoutPlan { layouts: 0, rounds: 20, rounds_needed: Some(64), ..LAYOUTS };
        insta::assert_snapshot!(of_layouts(&pairs).unwrap());
        let wide = LayoutPlan { layouts_needed: None, needed_ns: None, ..LAYOUTS };
        assert!(of_layouts(&wide).unwrap().starts_with("too wide a spread"));
        let short = LayoutPlan { left_ns: 1_000_000, needed_ns: Some(1_000_000), ..LAYOUTS };
        assert_eq!(of_layouts(&short), None);
    }
}
