//! How long a line is: from which distance on every second block falls into another set.
//!
//! As long as the distance is inside a line, all N blocks share a set; from a line on, two sets
//! have half of them each. So of two neighbouring distances that are not in the same set the curves
//! differ by what W ways charge for N blocks less what they charge for two halves: a bump that
//! begins at W and is highest at 2 W. What holds decoded instructions, K blocks of a set, makes
//! such a bump as well, at its own K up to half of W; it is fitted beside the other, so that it
//! cannot stand in for it.

/// Blocks a set, and the excess in core cycles.
type Points = [(u32, f64)];

/// A step with at least this share of a miss is a line. On Zen 5 that of the line has 0.7 to 1.
const CLEAR_SHARE: f64 = 0.5;

/// A step with less than this share is none. On Zen 5 those beside the line have up to 0.17.
const NO_SHARE: f64 = 0.33;

/// The smallest distance at which blocks part, from curves by ascending distance; `None` where that
/// is open. `ways` and `miss_cycles` are what the strides said.
#[must_use]
pub fn line(curves: &[(u32, Vec<(u32, f64)>)], ways: u32, miss_cycles: f64) -> Option<u32> {
    let mut found = None;
    for pair in curves.windows(2) {
        let share = step(&pair[0].1, &pair[1].1, ways)? / miss_cycles;
        if share >= CLEAR_SHARE && found.is_none() {
            found = Some(pair[1].0);
        } else if share.abs() >= NO_SHARE {
            return None;
        }
    }
    found
}

/// How many cycles of a miss two neighbouring distances differ by. The second bump is the one of
/// all K below W that leaves least.
fn step(near: &Points, far: &Points, ways: u32) -> Option<f64> {
    let differ: Vec<(u32, f64)> =
        near.iter().filter_map(|&(n, y)| Some((n, y - far.iter().find(|p| p.0 == n)?.1))).collect();
    if differ.len() < 8 {
        return None;
    }
    let fits = (0..=ways / 2).filter_map(|held| two_bumps(&differ, ways, held));
    fits.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(price, _)| price)
}

/// Share of N draws that miss with all blocks in one set less that with two halves.
fn bump(ways: u32, n: u32) -> f64 {
    let evicted = n.saturating_sub(ways);
    let halves = (n / 2).saturating_sub(ways) + n.div_ceil(2).saturating_sub(ways);
    f64::from(evicted - halves) / f64::from(n)
}

/// Least squares of two bumps (one alone with none held): the price of the first, and what is left.
fn two_bumps(differ: &Points, ways: u32, held: u32) -> Option<(f64, f64)> {
    let small = |n| if held == 0 { 0.0 } else { bump(held, n) };
    let (mut aa, mut ab, mut bb, mut ay, mut by) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for &(n, y) in differ {
        let (a, b) = (bump(ways, n), small(n));
        (aa, ab, bb) = (aa + a * a, ab + a * b, bb + b * b);
        (ay, by) = (ay + a * y, by + b * y);
    }
    let determinant = aa * bb - ab * ab;
    let (price, other) = if determinant > 1e-6 {
        ((ay * bb - by * ab) / determinant, (by * aa - ay * ab) / determinant)
    } else if aa > 1e-9 {
        (ay / aa, 0.0)
    } else {
        return None;
    };
    // Blocks that part earlier can only cost less.
    if other < 0.0 {
        return None;
    }
    let left = |&(n, y): &(u32, f64)| (y - price * bump(ways, n) - other * small(n)).powi(2);
    Some((price, differ.iter().map(left).sum()))
}

#[cfg(test)]
mod tests {
    use super::super::{BLOCKS, ODD};
    use super::*;

    /// Blocks of which every second lies `distance` on, in sets of `ways` lines of `line` bytes.
    fn curve(distance: u32, line: u32, ways: u32, price: f64) -> Vec<(u32, f64)> {
        let of = |n: u32| {
            let one = f64::from(n.saturating_sub(ways)) / f64::from(n);
            if distance < line { one } else { one - bump(ways, n) }
        };
        BLOCKS.iter().map(|&n| (n, price * of(n))).collect()
    }

    #[test]
    fn the_line_is_where_blocks_part() {
        for line_bytes in [32, 64, 128] {
            let curves: Vec<_> = ODD.iter().map(|&d| (d, curve(d, line_bytes, 8, 20.0))).collect();
            assert_eq!(line(&curves, 8, 20.0), Some(line_bytes));
        }
        let curves: Vec<_> = ODD.iter().map(|&d| (d, curve(d, 256, 8, 20.0))).collect();
        assert_eq!(line(&curves, 8, 20.0), None);
    }

    #[test]
    fn noise_makes_no_line() {
        // As much as medians of samples leave.
        let wave = |d: u32, n: u32| 0.8 * f64::from((n * 5 + d / 16) % 7) / 7.0;
        let noisy = |d| {
            let clean = curve(d, 64, 8, 14.0);
            clean.iter().map(|&(n, y)| (n, y + wave(d, n))).collect::<Vec<_>>()
        };
        let curves: Vec<_> = ODD.iter().map(|&d| (d, noisy(d))).collect();
        assert_eq!(line(&curves, 8, 14.0), Some(64));
    }

    #[test]
    fn decoded_instructions_that_part_earlier_are_no_line() {
        // Windows of 32 bytes that hold three blocks a set, lines of 64 that hold eight.
        let both = |d| {
            let (window, cache) = (curve(d, 32, 3, 9.0), curve(d, 64, 8, 20.0));
            window.iter().zip(cache).map(|(w, c)| (w.0, w.1 + c.1)).collect()
        };
        let curves: Vec<_> = ODD.iter().map(|&d| (d, both(d))).collect();
        assert_eq!(line(&curves, 8, 20.0), Some(64));
    }
}
