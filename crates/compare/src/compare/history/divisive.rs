//! Steps in a series: where its distribution changes, by the energy between both sides.
//!
//! *Method.* For every place that cuts a stretch into n values before and m behind, the energy is
//! nm / (n + m) times (2 × the mean distance between the sides − the mean distance within each). It is
//! large where the sides differ, in whatever way. The best place is a change when shuffled values seldom
//! reach its energy; then both sides are searched alike. Nothing is assumed of the noise but that values
//! of one stretch could have come in any order.
//!
//! *Literature.* Matteson and James, "A Nonparametric Approach for Multiple Change Point Analysis of
//! Multivariate Data" (JASA 2014), E-divisive; Fleming et al., "Hunter: Using Change Point Detection to
//! Hunt for Performance Regressions" (ICPE 2023), now Apache Otava, which is this with Student's test.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use crate::compare::schedule::shuffle;

/// Values on each side of a change at the least: one is an outlier, two can be one and its repetition.
pub const FEWEST_ON_A_SIDE: usize = 3;
/// Values below which no shuffle is rare enough: 14 can be dealt into two halves in 3432 ways.
pub const FEWEST: usize = 14;
/// Shuffles that a place is held against.
const SHUFFLES: u32 = 4999;
/// Of these, how many may reach its energy: the chance of a false step is one in a thousand series.
const MOST_AS_FAR: u32 = 4;

/// A place where a series changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Index of the first value behind it.
    pub at: usize,
    /// How often shuffled values do as well.
    pub p_value: f64,
}

/// All changes of `values`, in order. `seed` draws the shuffles; one series has one answer for each.
#[must_use]
pub fn changes(values: &[f64], seed: u64) -> Vec<Change> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut found = Vec::new();
    let mut open = vec![(0, values.len())];
    while let Some((from, to)) = open.pop() {
        if let Some(change) = change_within(&values[from..to], &mut rng) {
            let at = from + change.at;
            found.push(Change { at, ..change });
            open.extend([(from, at), (at, to)]);
        }
    }
    found.sort_by_key(|change| change.at);
    found
}

fn change_within(values: &[f64], rng: &mut Pcg64Mcg) -> Option<Change> {
    if values.len() < FEWEST {
        return None;
    }
    let (at, energy) = best_cut(values)?;
    let mut shuffled = values.to_vec();
    let mut as_far = 0;
    for _ in 0..SHUFFLES {
        shuffle(&mut shuffled, rng);
        as_far += u32::from(best_cut(&shuffled).is_some_and(|(_, other)| other >= energy));
        if as_far > MOST_AS_FAR {
            return None;
        }
    }
    Some(Change { at, p_value: f64::from(as_far + 1) / f64::from(SHUFFLES + 1) })
}

/// The cut with the largest energy, and that energy; none where every value is the same.
fn best_cut(values: &[f64]) -> Option<(usize, f64)> {
    let sum = |of: &[f64], to: f64| of.iter().map(|v| (v - to).abs()).sum::<f64>();
    // Sums of the distances within and between both sides, as values go from one to the other.
    let (mut before, mut between) = (0.0, 0.0);
    let mut behind: f64 = values.iter().enumerate().map(|(i, v)| sum(&values[i + 1..], *v)).sum();
    let mut best: Option<(usize, f64)> = None;
    for cut in 1..values.len() {
        let moved = values[cut - 1];
        let (to_before, to_behind) = (sum(&values[..cut - 1], moved), sum(&values[cut..], moved));
        before += to_before;
        behind -= to_behind;
        between += to_behind - to_before;
        let (n, m) = (cut as f64, (values.len() - cut) as f64);
        if cut < FEWEST_ON_A_SIDE || values.len() - cut < FEWEST_ON_A_SIDE {
            continue;
        }
        let within = 2.0 * before / (n * (n - 1.0)) + 2.0 * behind / (m * (m - 1.0));
        let energy = n * m / (n + m) * (2.0 * between / (n * m) - within);
        if best.is_none_or(|(_, most)| energy > most) {
            best = Some((cut, energy));
        }
    }
    best.filter(|(_, energy)| *energy > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::simulate::normal;

    fn series(seed: u64, n: usize, levels: &[(usize, f64)]) -> Vec<f64> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let level = |i| levels.iter().rev().find(|(from, _)| i >= *from).map_or(0.0, |l| l.1);
        (0..n).map(|i| level(i) + normal(&mut rng)).collect()
    }

    /// The definition, term by term.
    fn energy_by_definition(values: &[f64], cut: usize) -> f64 {
        let mean = |x: &[f64], y: &[f64], pairs: f64| {
            x.iter().flat_map(|a| y.iter().map(move |b| (a - b).abs())).sum::<f64>() / pairs
        };
        let (x, y) = values.split_at(cut);
        let (n, m) = (x.len() as f64, y.len() as f64);
        let within = mean(x, x, n * (n - 1.0)) + mean(y, y, m * (m - 1.0));
        n * m / (n + m) * (2.0 * mean(x, y, n * m) - within)
    }

    #[test]
    fn the_running_sums_are_the_definition() {
        let values = series(3, 25, &[(10, 2.0)]);
        let (cut, energy) = best_cut(&values).unwrap();
        assert!((energy - energy_by_definition(&values, cut)).abs() < 1e-9);
        for other in FEWEST_ON_A_SIDE..=25 - FEWEST_ON_A_SIDE {
            assert!(energy_by_definition(&values, other) <= energy + 1e-9);
        }
    }

    #[test]
    fn a_side_has_three_values_at_the_least() {
        let with = |high: std::ops::Range<usize>| -> Vec<f64> {
            (0..14).map(|i| if high.contains(&i) { 9.0 } else { 0.0 }).collect()
        };
        assert_eq!(best_cut(&with(0..3)).unwrap().0, 3);
        assert_eq!(best_cut(&with(11..14)).unwrap().0, 11);
        assert_eq!(best_cut(&with(12..14)).unwrap().0, 11);
        // Of two places that are as good the first.
        assert_eq!(best_cut(&with(5..9)).unwrap().0, 5);
        assert_eq!(best_cut(&[1.0; 14]), None);
        assert_eq!(best_cut(&[0.0, 0.0, 0.0, 1.0, 1.0]), None);
    }

    #[test]
    fn steps_are_found_where_they_are() {
        let found = changes(&series(1, 60, &[(20, 6.0), (45, 1.0)]), 1);
        assert_eq!(found.iter().map(|c| c.at).collect::<Vec<_>>(), [20, 45]);
        assert!(found.iter().all(|c| c.p_value <= 0.001));
        // The same seed gives the same answer.
        assert_eq!(found, changes(&series(1, 60, &[(20, 6.0), (45, 1.0)]), 1));
    }

    #[test]
    fn one_outlier_is_no_step_and_neither_is_silence() {
        let mut values = series(2, 40, &[]);
        values[30] += 30.0;
        assert_eq!(changes(&values, 1), []);
        assert_eq!(changes(&[1.0; 40], 1), []);
        assert_eq!(changes(&[], 1), []);
        // Thirteen values cannot be rare enough, however far apart.
        assert_eq!(changes(&series(2, 13, &[(7, 100.0)]), 1), []);
        assert_eq!(changes(&series(2, 14, &[(7, 100.0)]), 1)[0].at, 7);
    }
}
