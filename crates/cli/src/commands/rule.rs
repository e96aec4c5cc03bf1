//! `stallscope rule`: the card about one hazard rule.

use clap::Args;
use stallscope::hazards::{HAZARDS, RuleCard, find_rule};

use crate::context::{Context, Outcome};
use crate::terminal::{STRONG, paint, wrap};
use crate::{output, profile, terminal};

/// Arguments of `rule`.
#[derive(Debug, Args)]
pub struct RuleArgs {
    /// The rule's id, as `stallscope list` shows it
    id: String,
}

pub fn run(args: &RuleArgs, context: &Context) -> anyhow::Result<Outcome> {
    output::check(context)?;
    let Some(rule) = find_rule(&args.id) else {
        let known: Vec<&str> = HAZARDS.iter().map(|h| h.id()).collect();
        anyhow::bail!("there is no rule `{}`; the rules are: {}", args.id, known.join(", "));
    };
    let chosen = profile::load(context)?;
    let card = rule.card(&chosen.design);
    chosen.announce(context)?;
    if context.shows_screen() {
        terminal::print(&screen(&card))?;
    }
    output::result(context, "rule", &card)?;
    Ok(Outcome::Fine)
}

fn screen(card: &RuleCard) -> String {
    let mut out = format!("{}: {}\n\n", paint(STRONG, card.id), card.title);
    out += &wrap("effect   ", card.effect);
    out += &format!("\n{}\n", card.picture);
    out += &wrap("price    ", &card.price);
    out += &wrap("finds    ", card.detection);
    for remedy in card.remedies {
        out += &wrap("try      ", remedy);
    }
    for source in card.literature {
        out += &wrap("read     ", source);
    }
    out
}
