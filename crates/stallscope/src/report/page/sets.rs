//! A layout as a picture: the sets of the instruction cache before and after, how many lines in use fall into each, and
//! whose they are.

use serde::Deserialize;

use super::grid::{Cell, Grid, Plan};
use super::number::Number;
use super::parts::{Figure, Part, Picture};
use crate::layout::{Occupant, SetHeat, SetRow};
use crate::machine::CacheGeometry;

/// Sets in a row of the picture.
const IN_A_ROW: usize = 16;
/// Larger caches have no such picture.
const MOST_SETS: usize = 512;
/// Occupants that are named.
const MOST_NAMED: usize = 12;

/// What the picture needs of a layout.
#[derive(Deserialize)]
pub(super) struct Sets {
    sets: Option<SetsFound>,
}

#[derive(Deserialize)]
struct SetsFound {
    geometry: CacheGeometry,
    heat: Vec<HeatFound>,
    sets: Vec<SetRow>,
    notes: Vec<String>,
}

#[derive(Deserialize)]
struct HeatFound {
    source: String,
    is_complete: bool,
    overfull_sets: u32,
}

/// The parts of its page.
pub(super) fn parts(layout: &Sets) -> Vec<Part> {
    let Some(found) = layout.sets.as_ref().filter(|found| found.sets.len() <= MOST_SETS) else {
        return Vec::new();
    };
    let ways = found.geometry.ways;
    let names: &[&str] = if found.heat.len() > 1 { &["BEFORE", "AFTER"] } else { &["the program"] };
    let mut parts = vec![Part::Title("The sets of the instruction cache".into(), None)];
    for (arm, (name, heat)) in names.iter().zip(&found.heat).enumerate() {
        let counted =
            if heat.is_complete { "lines" } else { "lines that were seen in use, at the least," };
        let caption = format!(
            "{name}: {counted} in each of the {} sets, which keep {ways} lines each; {} sets have more. From {}.",
            found.sets.len(),
            heat.overfull_sets,
            heat.source,
        );
        parts.push(Part::Figure(Box::new(figure(found, arm, name, caption))));
    }
    parts.extend((!found.notes.is_empty()).then(|| Part::Notes(found.notes.clone())));
    parts
}

fn of_arm(row: &SetRow, arm: usize) -> (&SetHeat, &[Occupant]) {
    match arm {
        0 => (&row.before, &row.occupants_before),
        _ => (&row.after, &row.occupants_after),
    }
}

fn figure(found: &SetsFound, arm: usize, name: &str, caption: String) -> Figure {
    let ways = found.geometry.ways;
    let cell = |(column, row): (usize, &SetRow)| {
        let (heat, occupants) = of_arm(row, arm);
        let full = f64::from(heat.lines) / f64::from(ways.max(1));
        Cell {
            column,
            class: if heat.lines > ways { "over" } else { "within" },
            opacity: (0.7 * full).clamp(0.05, 0.7),
            text: heat.lines.to_string(),
            title: format!(
                "set {}: {} lines of {ways}; {}",
                row.set,
                heat.lines,
                named(occupants, ", ")
            ),
        }
    };
    let rows = found.sets.chunks(IN_A_ROW).map(|sets| {
        let label = sets.first().map_or_else(String::new, |row| row.set.to_string());
        (label, sets.iter().enumerate().map(cell).collect())
    });
    let plan = Plan {
        title: format!(
            "{name}: lines in use in each set of the instruction cache; the table below has the same"
        ),
        along: "set, counted from the number at the left",
        columns: IN_A_ROW,
        ticks: (0..IN_A_ROW).step_by(4).map(|column| (column, format!("+{column}"))).collect(),
        rows: rows.collect(),
    };
    let used = found.sets.iter().filter(|row| of_arm(row, arm).0.lines > 0);
    let listed = used.map(|row| {
        let (heat, occupants) = of_arm(row, arm);
        let from = format!("lines of set {} in {name}", row.set);
        let lines = Number::told(heat.lines.to_string(), from, f64::from(heat.lines));
        let who =
            Number::new(named(occupants, "\n"), "lines of the set, those with most samples first");
        (
            row.set.to_string(),
            vec![lines, Number::new(row.change.words(), "of the function in question"), who],
        )
    });
    Figure {
        caption,
        keys: vec![("within", "fits".into()), ("over", "more lines than ways".into())],
        picture: Picture::Grid(Grid::of(plan)),
        head: ["set", "lines", "change", "whose they are"].map(str::to_owned).into(),
        rows: listed.collect(),
    }
}

/// Who has the lines of a set.
fn named(occupants: &[Occupant], between: &str) -> String {
    let name = |occupant: &Occupant| {
        let function = occupant.function.as_deref().unwrap_or("no function");
        format!("{function}+{:#x} ({} samples)", occupant.offset_bytes, occupant.samples)
    };
    let mut names: Vec<String> = occupants.iter().take(MOST_NAMED).map(name).collect();
    let more = occupants.len().saturating_sub(MOST_NAMED);
    names.extend((more > 0).then(|| format!("{more} more")));
    names.join(between)
}
