//! Places that hold a good part of the difference and that the windows have not met: more windows are followed then, also from
//! calls of functions.

use super::FunctionRow;
use super::ledger::{TAKEN, side_of};
use super::summary::LEAST_BESIDE;
use super::windows::BothArms;
use crate::compare::Arm;
use crate::model::Svma;

/// Whether places that hold a good part of the difference were in the windows of one build alone, or in none, or only
/// with a small part of what whole runs execute there.
pub(super) fn is_unseen(rows: &[FunctionRow], windows: &[BothArms]) -> bool {
    let Some(first) = windows.first() else { return false };
    let unseen =
        rows.iter().filter(|row| [Arm::A, Arm::B].iter().any(|arm| !is_seen(row, first, *arm)));
    unseen.map(|row| row.share_of_difference.percent.value).sum::<f64>() >= LEAST_BESIDE
}

/// Whether the windows of an arm hold enough of a place, and of most of what whole runs execute there.
fn is_seen(row: &FunctionRow, both: &BothArms, arm: Arm) -> bool {
    let instructions = row.instructions().unwrap_or(TAKEN);
    let side = side_of(&row.place, instructions, both, arm);
    side.is_enough() && side.tells_spread() && both.arms[arm.index()].meet(arm, &row.place)
}

/// Functions whose windows [`is_unseen`] asks for that whole runs call so rarely that they can be waited for: where each begins,
/// and how often it is called. Not of an arm that has met it.
pub(super) fn unseen_calls(rows: &[FunctionRow], both: &BothArms) -> Vec<(Arm, Svma, u64)> {
    let of_row = |row: &FunctionRow| {
        let of_arm = |arm: Arm| {
            let start = row.place.function(arm).filter(|_| !is_seen(row, both, arm))?.start;
            let calls = *both.arms[arm.index()].in_run.program.get(&start)?;
            (1..=MOST_CALLS).contains(&calls).then_some((arm, start, calls))
        };
        [Arm::A, Arm::B].map(of_arm)
    };
    let held = rows.iter().filter(|row| row.share_of_difference.percent.value >= LEAST_BESIDE);
    held.flat_map(of_row).flatten().collect()
}

/// A function that is called more often is not waited for: each call stops the program.
const MOST_CALLS: u64 = 20_000;
