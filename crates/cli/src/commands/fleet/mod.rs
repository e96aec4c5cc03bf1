//! `stallscope worker`, `submit` and `collect`: planned sweeps and comparisons on other machines.

pub mod collect;
pub mod submit;
pub mod worker;

use std::path::Path;

use serde::Serialize;
use stallscope::compare::fleet::Plan;
use stallscope::compare::sweep::Planned;

use super::words::rough;
use crate::context::{Context, Outcome};
use crate::{output, terminal};

/// Writes the blocks of a plan of rounds; `what` are the builds or commands that run in each of them.
pub fn written(
    path: &Path,
    planned: &Planned,
    what: &str,
    context: &Context,
) -> anyhow::Result<Outcome> {
    let first = planned.first();
    let words = format!(
        "{} blocks, each {} of {} {what} and about {}",
        first.blocks,
        if first.rounds == 1 { "1 round".into() } else { format!("{} rounds", first.rounds) },
        first.seats().len(),
        rough(first.cost_ns)
    );
    write(path, planned.blocks(), ("block", first, &first.plan), &words, context)
}

/// Writes blocks, and shows the first of them as JSON of this kind, and in words with what its plan is called.
pub fn write<B: Serialize>(
    path: &Path,
    blocks: impl Iterator<Item = B>,
    (kind, first, plan): (&str, &B, &str),
    words: &str,
    context: &Context,
) -> anyhow::Result<Outcome> {
    Plan::write(path, blocks)?;
    output::result(context, kind, first)?;
    if context.shows_screen() {
        let text = format!("{words}; plan {plan} in {}", path.display());
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
