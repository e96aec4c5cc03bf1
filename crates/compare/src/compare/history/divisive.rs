//! Steps in a series: where its distribution changes, by the energy between both sides.
//!
//! *Method.* For every place that cuts a stretch into n values before and m behind, the energy is
//! nm / (n + m) times (2 × the mean distance between the sides − the mean distance within each). It is
//! large where the sides differ, in whatever way. The best place is a change when shuffled values seldom
//! reach its energy; then both sides are searched alike. Nothing is assumed of the noise but that values
//! of one stretch could have come in any order.
//!
//! A series that comes back has no such place: what is behind it is half of one kind, half of the other. So
//! where no cut is a change, the stretch that differs most from all around it is held against shuffles in the
//! same way, and then the best cut of a part (of parts that get shorter by the root of two, and overlap).
//!
//! *Literature.* Matteson and James, "A Nonparametric Approach for Multiple Change Point Analysis of
//! Multivariate Data" (JASA 2014), E-divisive; Fleming et al., "Hunter: Using Change Point Detection to
//! Hunt for Performance Regressions" (ICPE 2023), now Apache Otava, which is this with Student's test;
//! Olshen et al., "Circular binary segmentation" (Biostatistics 2004), the stretch; Kovács et al., "Seeded
//! binary segmentation" (Biometrika 2023), the parts.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use crate::compare::schedule::shuffle;

/// Values on each side of a change at the least: one is an outlier, two can be one and its repetition.
pub const FEWEST_ON_A_SIDE: usize = 3;
/// Values below which no shuffle is rare enough: 14 can be dealt into two halves in 3432 ways.
pub const FEWEST: usize = 14;
/// Shuffles that a place is held against.
const SHUFFLES: u32 = 4999;
/// Of these, how many may reach the energy of a cut, a stretch, a cut of a part: together p ≤ 0.002, a false step in
/// one of 500 series at the most.
const MOST_AS_FAR: [u32; 3] = [3, 2, 2];

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
        let (places, p_value) = change_within(&values[from..to], &mut rng);
        let places = places.into_iter().map(|at| from + at);
        let ends: Vec<usize> = [from].into_iter().chain(places.clone()).chain([to]).collect();
        if ends.len() > 2 {
            open.extend(ends.windows(2).map(|side| (side[0], side[1])));
            found.extend(places.map(|at| Change { at, p_value }));
        }
    }
    found.sort_by_key(|change| change.at);
    found
}

/// Places with their energy.
type Best = Option<(Vec<usize>, f64)>;

/// Where `values` change, at one place or at the two ends of a stretch, and how often shuffled ones do as well; no
/// place where that is not seldom.
fn change_within(values: &[f64], rng: &mut Pcg64Mcg) -> (Vec<usize>, f64) {
    let searches: [fn(&[f64]) -> Best; 3] =
        [|v| best_cut(v).map(|(at, energy)| (vec![at], energy)), best_stretch, best_cut_of_a_part];
    for (search, most) in searches.into_iter().zip(MOST_AS_FAR) {
        let Some((places, energy)) = search(values).filter(|_| values.len() >= FEWEST) else {
            continue;
        };
        let mut shuffled = values.to_vec();
        let mut as_far = 0;
        for _ in 0..SHUFFLES {
            shuffle(&mut shuffled, rng);
            as_far += u32::from(search(&shuffled).is_some_and(|(_, other)| other >= energy));
            if as_far > most {
                break;
            }
        }
        if as_far <= most {
            return (places, f64::from(as_far + 1) / f64::from(SHUFFLES + 1));
        }
    }
    (Vec::new(), 1.0)
}

/// The energy of a part of n values beside another of m, by the sums of distances within and between them.
fn energy(n: usize, m: usize, [within_n, within_m, between]: [f64; 3]) -> f64 {
    let (n, m) = (n as f64, m as f64);
    let within = 2.0 * within_n / (n * (n - 1.0)) + 2.0 * within_m / (m * (m - 1.0));
    n * m / (n + m) * (2.0 * between / (n * m) - within)
}

/// The stretch, with values on both sides, that has the largest energy against all others.
fn best_stretch(values: &[f64]) -> Best {
    let count = values.len();
    let to_all: Vec<f64> =
        values.iter().map(|v| values.iter().map(|other| (v - other).abs()).sum()).collect();
    let total = to_all.iter().sum::<f64>() / 2.0;
    // Of the stretch from each place up to the present end: distances within it, and to all.
    let (mut within, mut reaching) = (vec![0.0; count], vec![0.0; count]);
    let mut best: Option<([usize; 2], f64)> = None;
    for last in 0..count.saturating_sub(FEWEST_ON_A_SIDE) {
        let mut to_stretch = 0.0;
        for first in (FEWEST_ON_A_SIDE..=last).rev() {
            to_stretch += (values[first] - values[last]).abs();
            within[first] += to_stretch;
            reaching[first] += to_all[last];
            let inside = last + 1 - first;
            if inside < FEWEST_ON_A_SIDE {
                continue;
            }
            let between = reaching[first] - 2.0 * within[first];
            let outside = total - within[first] - between;
            let energy = energy(inside, count - inside, [within[first], outside, between]);
            if best.is_none_or(|(_, most)| energy > most) {
                best = Some(([first, last + 1], energy));
            }
        }
    }
    best.filter(|(_, energy)| *energy > 0.0).map(|(ends, energy)| (ends.into(), energy))
}

/// The best cut of any of the parts.
fn best_cut_of_a_part(values: &[f64]) -> Best {
    let count = values.len();
    let mut best: Option<(usize, f64)> = None;
    let mut length = count as f64 / std::f64::consts::SQRT_2;
    while length >= (2 * FEWEST_ON_A_SIDE + 2) as f64 {
        let long = length.round() as usize;
        let parts = ((2.0 * count as f64 / length).ceil() as usize - 1).max(2);
        for nth in 0..parts {
            let from = (count - long) * nth / (parts - 1);
            if let Some((cut, energy)) = best_cut(&values[from..from + long])
                && best.is_none_or(|(_, most)| energy > most)
            {
                best = Some((from + cut, energy));
            }
        }
        length /= std::f64::consts::SQRT_2;
    }
    best.map(|(at, energy)| (vec![at], energy))
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
        if cut < FEWEST_ON_A_SIDE || values.len() - cut < FEWEST_ON_A_SIDE {
            continue;
        }
        let energy = energy(cut, values.len() - cut, [before, behind, between]);
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
    fn the_running_sums_of_a_stretch_are_the_definition() {
        let values = series(5, 24, &[(9, 3.0), (15, 0.0)]);
        let by_definition = |from: usize, to: usize| {
            let (inside, outside) = (&values[from..to], [&values[..from], &values[to..]].concat());
            energy_by_definition(&[inside, &outside].concat(), to - from)
        };
        let (ends, energy) = best_stretch(&values).unwrap();
        assert!((energy - by_definition(ends[0], ends[1])).abs() < 1e-9);
        for from in 3..=18 {
            for to in from + 3..=21 {
                assert!(by_definition(from, to) <= energy + 1e-9, "{from} {to}");
            }
        }
    }

    #[test]
    fn what_comes_back_is_found_with_both_ends() {
        let places = |n, levels: &[(usize, f64)]| -> Vec<usize> {
            changes(&series(4, n, levels), 1).iter().map(|c| c.at).collect()
        };
        assert_eq!(places(30, &[(10, 6.0), (20, 0.0)]), [10, 20]);
        assert_eq!(places(30, &[(10, -6.0), (16, 0.0)]), [10, 16]);
        assert_eq!(places(40, &[(10, 6.0), (20, 0.0), (30, 6.0)]), [10, 20, 30]);
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
