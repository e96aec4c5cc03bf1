//! Places that the slow build executes and the fast one hardly: what they take is more work, also where nobody counted
//! the instructions of whole runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::windows::ArmWindows;
use super::work::{HARDLY, may_move, plus};
use super::{FunctionRow, Share};
use crate::compare::Arm;
use crate::sim::core::Account;

/// Places of the slow build.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OnlyInSlow {
    /// Their part of the difference.
    pub share: Share,
    /// What they are called, largest part first.
    pub places: Vec<String>,
}

impl OnlyInSlow {
    /// None where other places take less time instead: it may be work that the fast build does elsewhere. Time alone
    /// tells nothing, for what both execute may take one of them many times as long: the fast build was never seen in
    /// such a place, or its windows tell that it hardly executes anything there.
    pub(super) fn of(
        rows: &[FunctionRow],
        slow: Arm,
        windows: Option<&[ArmWindows; 2]>,
    ) -> Option<Self> {
        if may_move(rows) {
            return None;
        }
        let only: Vec<&FunctionRow> =
            rows.iter().filter(|row| is_only_in(row, slow, windows)).collect();
        let places = only.iter().map(|row| row.place.where_words()).collect();
        let parts = only.iter().map(|row| row.share_of_difference.clone());
        Some(Self { share: parts.reduce(|sum, part| plus(&sum, &part))?, places })
    }
}

/// Whether a place takes time in `slow`, and is hardly entered in the other arm.
fn is_only_in(row: &FunctionRow, slow: Arm, windows: Option<&[ArmWindows; 2]>) -> bool {
    let times = [&row.before, &row.after];
    let (here, there) = (times[slow.index()], times[slow.other().index()]);
    if here.low <= 0.0 || there.high * HARDLY > here.low {
        return false;
    }
    let executed = |arm: Arm| {
        let windows = windows.map(|both| &both[arm.index()]).filter(|windows| windows.len() > 0)?;
        let executions =
            |accounts: Vec<Account>| accounts.iter().map(|it| it.executions).sum::<u64>();
        Some(
            executions(windows.in_place(arm, &row.place)) as f64
                / executions(windows.in_all()).max(1) as f64,
        )
    };
    match (executed(slow), executed(slow.other())) {
        (Some(here), Some(there)) => there * HARDLY <= here,
        _ => there.value == 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::work::tests::row;
    use super::*;

    #[test]
    fn places_that_only_the_slow_build_enters_are_more_work() {
        let part = |rows: &[FunctionRow], slow| {
            OnlyInSlow::of(rows, slow, None).map(|it| it.share.percent.value.round())
        };
        assert_eq!(part(&[row([0.0, 50.0], 60.0), row([0.0, 60.0], 35.0)], Arm::B), Some(95.0));
        assert_eq!(
            part(&[row([0.0, 50.0], 60.0), row([2.0, 60.0], 35.0)], Arm::B),
            Some(60.0),
            "seen there"
        );
        assert_eq!(part(&[row([50.0, 0.0], 60.0)], Arm::A), Some(60.0));
        assert_eq!(part(&[row([50.0, 0.0], 60.0)], Arm::B), None);
        // Another name for what the fast build does elsewhere.
        assert_eq!(part(&[row([0.0, 50.0], 160.0), row([40.0, 20.0], -60.0)], Arm::B), None);
    }

    #[test]
    fn windows_tell_less_work_from_the_same_work_in_less_time() {
        let part = |there: u64, ms: [f64; 2]| {
            let both = [there, 1000]
                .map(|executions| ArmWindows::of_object("libc.so", executions, 10_000));
            OnlyInSlow::of(&[row(ms, 60.0)], Arm::B, Some(&both)).map(|it| it.places)
        };
        assert_eq!(part(50, [2.0, 60.0]), Some(vec!["libc.so.6".into()]));
        assert_eq!(part(51, [2.0, 60.0]), None, "it executes as much there");
        assert_eq!(part(900, [0.0, 60.0]), None, "though it was never seen there");
        assert_eq!(part(0, [4.0, 60.0]), None, "a fifteenth of the time");
    }
}
