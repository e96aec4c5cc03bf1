//! `stallscope worker`, `submit` and `collect`: planned sweeps and comparisons on other machines.

pub mod collect;
pub mod submit;
pub mod worker;

use std::path::Path;

use stallscope::compare::fleet::Plan;
use stallscope::compare::sweep::Planned;

use super::words::rough;
use crate::context::{Context, Outcome};
use crate::{output, terminal};

/// Writes the blocks of a plan; `what` are the builds or commands that run in each round.
pub fn written(
    path: &Path,
    planned: &Planned,
    what: &str,
    context: &Context,
) -> anyhow::Result<Outcome> {
    Plan::write(path, planned.blocks())?;
    let first = planned.first();
    output::result(context, "block", first)?;
    if context.shows_screen() {
        let (blocks, runs, plan) = (first.blocks, first.seats().len(), &first.plan);
        let (each, path) = (rough(first.cost_ns), path.display());
        let text = format!(
            "{blocks} blocks, each {} of {runs} {what} and about {each}; plan {plan} in {path}",
            if first.rounds == 1 { "1 round".into() } else { format!("{} rounds", first.rounds) }
        );
        terminal::print(&terminal::wrap("", &text))?;
    }
    Ok(Outcome::Fine)
}

/// How to come back to blocks that others run.
fn come_back(out: &Path) -> String {
    let out = out.display();
    format!(
        "come back with `stallscope collect --follow {out}`; `--cancel` takes back what has not ended"
    )
}
