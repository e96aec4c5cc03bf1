//! All sets of a cache on a few lines: before over after, as blocks of rising density.
//!
//! The scale is the block itself, so nothing is lost without colours or to eyes that do not tell
//! them apart; what changed is marked by a letter underneath.

use stallscope::layout::{SetChange, SetHeat, SetReport};

use crate::terminal::{FAINT, STRONG, paint};

/// Sets per line.
const WIDTH: usize = 64;
/// Samples of a set against an even spread: below each bound, the block with that index.
const BOUNDS: [f64; 4] = [0.25, 0.75, 1.5, 3.0];
const BLOCKS: [char; 5] = ['·', '░', '▒', '▓', '█'];

pub fn heatmap(report: &SetReport) -> String {
    let two = report.heat.len() > 1;
    let even = |arm: usize| {
        let samples = report.heat.get(arm).map_or(0, |h| h.samples);
        (samples as f64 / report.sets.len().max(1) as f64).max(1.0)
    };
    let mut out = String::new();
    for chunk in report.sets.chunks(WIDTH) {
        let blocks = |arm: usize| -> String {
            let heat =
                |row: &stallscope::layout::SetRow| if arm == 0 { row.before } else { row.after };
            chunk.iter().map(|row| block(heat(row), even(arm))).collect()
        };
        out += &format!("{:<8} {}\n", "set", paint(FAINT, ruler(chunk[0].set, chunk.len())));
        if !two {
            out += &format!("{:<8} {}\n", "heat", blocks(0));
            continue;
        }
        out += &format!("{:<8} {}\n{:<8} {}\n", "before", blocks(0), "after", blocks(1));
        let marks: String = chunk.iter().map(|row| mark(row.change)).collect();
        out += &format!("{:<8} {}\n", "", paint(STRONG, marks.trim_end()));
    }
    out += &paint(
        FAINT,
        "         samples against an even spread: · under 1/4  ░ to 3/4  ▒ to 1.5  ▓ to 3\n         \
         █ more",
    );
    if two {
        out += &paint(FAINT, "; N new collision, H heavier, C calmed down, M moved here");
    }
    out + "\n"
}

fn block(heat: SetHeat, even: f64) -> char {
    let share = (heat.function + heat.peers) as f64 / even;
    BLOCKS[BOUNDS.iter().filter(|bound| share >= **bound).count()]
}

fn mark(change: SetChange) -> char {
    match change {
        SetChange::NewCollision => 'N',
        SetChange::HeavierCollision => 'H',
        SetChange::CalmedDown => 'C',
        SetChange::MovedHere => 'M',
        _ => ' ',
    }
}

/// `0       8       16 …` above the sets of those numbers.
fn ruler(first: u32, count: usize) -> String {
    (0..count).step_by(8).map(|i| format!("{:<8}", first as usize + i)).collect::<String>()
}
