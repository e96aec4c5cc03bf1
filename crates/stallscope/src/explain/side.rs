//! What the windows of one arm hold of a place, and what that is over a whole run.

use crate::model::{Measurement, Unit};
use crate::sim::core::Account;
use crate::stats::ALPHA;
use crate::stats::student::t_quantile;

/// Instructions of a place that its windows must hold, in each arm that has it.
const LEAST_FOLLOWED: u64 = 10_000;
/// Windows of a place that say how much they differ.
pub(super) const LEAST_WINDOWS: usize = 2;
/// Up to so many windows tell their least and most; more of them an interval of their mean.
pub(super) const FEW_WINDOWS: usize = 4;

/// One arm's windows in one place.
#[cfg_attr(test, derive(Clone))]
pub(super) struct Side {
    /// Instructions of a whole run.
    pub instructions: f64,
    /// What each window holds.
    pub windows: Vec<Account>,
    pub all: Account,
}

/// Whether a window holds enough of a place to say how much windows differ.
fn is_worth_telling(window: &Account) -> bool {
    window.executions * 10 >= LEAST_FOLLOWED
}

impl Side {
    pub fn of(instructions: u64, windows: Vec<Account>) -> Self {
        let windows: Vec<Account> = windows.into_iter().filter(is_worth_telling).collect();
        let all = windows.iter().sum();
        Self { instructions: instructions as f64, windows, all }
    }

    /// Several places as one: of each, the instructions of a whole run and what each window holds. A window that holds too
    /// little of a place is taken to be there like the others.
    pub fn together(places: &[(u64, Vec<Account>)]) -> Self {
        let in_a_run = |account: &Account, instructions: u64| {
            account.times(instructions as f64 / account.executions.max(1) as f64)
        };
        let side = |(n, windows): &(u64, Vec<Account>)| Self::of(*n, windows.clone());
        let sides: Vec<Self> = places.iter().map(side).collect();
        let of = |window: Option<usize>| -> Account {
            let one = |((n, windows), side): (&(u64, Vec<Account>), &Self)| {
                let own = window.and_then(|at| windows.get(at)).filter(|it| is_worth_telling(it));
                in_a_run(own.unwrap_or(&side.all), *n)
            };
            places.iter().zip(&sides).map(one).collect::<Vec<_>>().iter().sum()
        };
        let count = places.iter().map(|(_, windows)| windows.len()).max().unwrap_or(0);
        Self {
            instructions: places.iter().map(|(n, _)| *n as f64).sum(),
            windows: (0..count).map(|at| of(Some(at))).collect(),
            all: of(None).times(count as f64),
        }
    }

    pub fn is_enough(&self) -> bool {
        self.instructions == 0.0 || self.all.executions >= LEAST_FOLLOWED
    }

    /// Whether there are windows enough to say how much they differ, or one that holds most of a whole run: one alone
    /// tells nothing of the others.
    pub fn tells_spread(&self) -> bool {
        self.windows.len() >= LEAST_WINDOWS || 2.0 * self.all.executions as f64 >= self.instructions
    }

    /// Cycles of an instruction over all windows; none where they hold too few.
    pub fn cycles_per_insn(&self) -> Option<Measurement> {
        let [value, low, high] = self
            .of_a_run(|account| account.cycles as f64)
            .map(|cycles| cycles / self.instructions.max(1.0));
        self.is_enough().then(|| Measurement {
            value,
            unit: Unit::Cycles,
            low,
            high,
            n: self.windows.len(),
            how: self.ends().into(),
        })
    }

    /// Something for each instruction, over a whole run: over all windows, and the ends, as [`Self::ends`] says.
    pub fn of_a_run(&self, what: impl Fn(&Account) -> f64) -> [f64; 3] {
        let each = |account: &Account| what(account) / account.executions.max(1) as f64;
        let all = each(&self.all);
        let spread = match self.windows.len() {
            0 => [0.0; 3],
            1..=FEW_WINDOWS => {
                let windows = self.windows.iter().map(each);
                let ends = windows.fold((f64::MAX, f64::MIN), |(l, h), x| (l.min(x), h.max(x)));
                [all, ends.0, ends.1]
            }
            n => {
                // A ratio of two sums over windows that were drawn (Cochran, "Sampling Techniques", 1977, 6.4).
                let n = n as f64;
                let off = |w: &Account| (what(w) - all * w.executions as f64).powi(2);
                let mean = self.all.executions as f64 / n;
                let variance = self.windows.iter().map(off).sum::<f64>() / (n * (n - 1.0));
                let t = t_quantile(1.0 - ALPHA / 2.0, n - 1.0).unwrap_or(f64::INFINITY);
                let reach = t * variance.sqrt() / mean.max(1.0);
                [all, all - reach, all + reach]
            }
        };
        spread.map(|x| x * self.instructions)
    }

    /// What the ends of something over the windows are.
    pub fn ends(&self) -> &'static str {
        match self.windows.len() {
            ..=FEW_WINDOWS => "model of the core, least and most of the windows",
            _ => "model of the core, 95 % interval of a mean over windows",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_window_tells_no_spread_unless_it_holds_half_of_a_run() {
        let window = |executions| Account { executions, ..Account::default() };
        let tells = |instructions, windows: &[u64]| {
            Side::of(instructions, windows.iter().copied().map(window).collect()).tells_spread()
        };
        assert!(!tells(100_001, &[50_000]) && tells(100_000, &[50_000]) && tells(0, &[]));
        assert!(tells(1 << 40, &[50_000, 1000]) && !tells(1 << 40, &[50_000, 999]));
    }

    #[test]
    fn places_together_weigh_what_whole_runs_execute_and_not_what_windows_hold() {
        let window = |executions: u64, cycles_each: u64| Account {
            executions,
            cycles: executions * cycles_each,
            ..Account::default()
        };
        let often = (1_000_000, vec![window(90_000, 1), window(10_000, 1)]);
        // Rarely in windows, and too little in the first of them; most of the run all the same.
        let rarely = (9_000_000, vec![window(900, 90), window(30_000, 5)]);
        let both = Side::together(&[often.clone(), rarely]);
        let cycles = |side: &Side| side.of_a_run(|account| account.cycles as f64);
        let [all, low, high] = cycles(&both);
        assert!((all / 46e6 - 1.0).abs() < 1e-6 && low <= all && high >= all, "{all} {low} {high}");
        assert_eq!((both.windows.len(), both.instructions), (2, 10e6));
        // A place that one build does not have.
        let alone = Side::together(&[often, (0, Vec::new())]);
        assert_eq!(cycles(&alone), [1e6; 3]);
        assert!(Side::together(&[]).windows.is_empty());
    }
}
