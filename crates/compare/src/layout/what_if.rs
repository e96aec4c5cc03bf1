//! What would become crowded if the code behind a point moved: as the next change in front of it
//! will make it do.
//!
//! Counted are *excess lines*: lines in use beyond the ways of their set, summed over all sets. A
//! build is fragile when many small shifts give many more of them than it has now: then a change
//! anywhere in front of the hot code may show as a regression. Where a window was traced, its
//! misses are simulated anew for every shift, and fragility goes by them. Neither is a prediction
//! of time.

use std::collections::BTreeSet;
use std::str::FromStr;

use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;

use super::occupancy::misses_placed;
use super::{LineHeat, Samples, TracedWindow};
use crate::code::Image;
use crate::machine::CacheGeometry;
use crate::model::Svma;

/// Pieces in which code is moved: functions are aligned to at least this.
const PIECE_BYTES: u64 = 16;
const MOST_SHIFTS: u64 = 4096;

/// Shifts to try: `0..4096:32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Shifts {
    /// First shift, bytes.
    pub from_bytes: u64,
    /// One behind the last shift, bytes.
    pub to_bytes: u64,
    /// From one to the next.
    pub step_bytes: u64,
}

/// A range of shifts that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "write a range like 0..4096:32: from, to, and a step that is a multiple of 16; at most 4096 shifts"
)]
pub struct ShiftsError;

impl FromStr for Shifts {
    type Err = ShiftsError;

    fn from_str(text: &str) -> Result<Self, ShiftsError> {
        let (from, rest) = text.split_once("..").ok_or(ShiftsError)?;
        let (to, step) = rest.split_once(':').ok_or(ShiftsError)?;
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| ShiftsError);
        let (from_bytes, to_bytes, step_bytes) = (number(from)?, number(to)?, number(step)?);
        let usable = step_bytes > 0
            && step_bytes.is_multiple_of(PIECE_BYTES)
            && from_bytes.is_multiple_of(PIECE_BYTES)
            && from_bytes < to_bytes
            && (to_bytes - from_bytes) / step_bytes <= MOST_SHIFTS;
        usable.then_some(Self { from_bytes, to_bytes, step_bytes }).ok_or(ShiftsError)
    }
}

/// What one shift would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ShiftOutcome {
    /// How far everything from the point on moves.
    pub by_bytes: u64,
    /// Sets with more lines in use than ways.
    pub overfull_sets: u32,
    /// Lines beyond the ways, over all sets.
    pub excess_lines: u32,
    /// Simulated misses of the traced window, where there is one.
    pub misses: Option<u64>,
}

/// All shifts of one build.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct WhatIf {
    /// The function from which on everything moves.
    pub function: String,
    /// Outcome without a shift.
    pub now: ShiftOutcome,
    /// Outcomes of all shifts, ascending.
    pub outcomes: Vec<ShiftOutcome>,
    /// Fragility: the share of shifts that give more misses than there are now, or more excess lines
    /// where misses are not known; from 0 to 1.
    pub worse_share: f64,
    /// Whether lines in use were counted; with samples they are a lower bound.
    pub is_complete: bool,
}

impl WhatIf {
    /// Moves everything from the function at `focus` (by position in [`Image::functions`]) on.
    #[must_use]
    pub fn of(
        image: &Image,
        (samples, window): (&Samples, Option<&TracedWindow>),
        geometry: CacheGeometry,
        focus: usize,
        shifts: Shifts,
    ) -> Option<Self> {
        let point = image.functions().get(focus)?;
        let heat = LineHeat::of(image, geometry, samples);
        let in_use =
            |at: &Svma| heat.lines.get(&geometry.line_of(*at)).is_some_and(|l| l.is_in_use);
        let pieces: BTreeSet<Svma> = samples
            .hits
            .keys()
            .filter(|at| in_use(at))
            .map(|at| Svma(at.0 / PIECE_BYTES * PIECE_BYTES))
            .collect();
        let outcome = |by: u64| ShiftOutcome {
            misses: window.and_then(|w| misses_shifted(w, geometry, point.start, by)),
            ..shifted(&pieces, geometry, point.start, by)
        };
        let now = outcome(0);
        let all: Vec<u64> = (shifts.from_bytes..shifts.to_bytes)
            .step_by(usize::try_from(shifts.step_bytes).ok()?)
            .collect();
        let outcomes: Vec<ShiftOutcome> = all.into_par_iter().map(outcome).collect();
        let weight = |o: &ShiftOutcome| o.misses.unwrap_or(u64::from(o.excess_lines));
        let worse = outcomes.iter().filter(|o| weight(o) > weight(&now)).count();
        Some(Self {
            function: point.name(),
            now,
            worse_share: worse as f64 / outcomes.len().max(1) as f64,
            outcomes,
            is_complete: samples.is_complete,
        })
    }
}

fn misses_shifted(
    window: &TracedWindow,
    geometry: CacheGeometry,
    from: Svma,
    by: u64,
) -> Option<u64> {
    misses_placed(window, geometry, |insn| match insn.svma {
        Some(svma) if svma >= from => insn.avma.offset(by as i64),
        _ => insn.avma,
    })
}

fn shifted(pieces: &BTreeSet<Svma>, geometry: CacheGeometry, point: Svma, by: u64) -> ShiftOutcome {
    let moved = pieces.iter().map(|at| if *at < point { *at } else { at.offset(by as i64) });
    let lines: BTreeSet<Svma> = moved.map(|at| geometry.line_of(at)).collect();
    let mut sets = vec![0_u32; geometry.sets as usize];
    for line in lines {
        sets[geometry.set_of(line) as usize] += 1;
    }
    let excess = sets.iter().map(|lines| lines.saturating_sub(geometry.ways));
    ShiftOutcome {
        by_bytes: by,
        overfull_sets: excess.clone().filter(|n| *n > 0).count() as u32,
        excess_lines: excess.sum(),
        misses: None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::tests::window;
    use super::*;
    use crate::code::fixture;

    #[test]
    fn ranges_are_read_and_nonsense_is_refused() {
        let shifts: Shifts = "0..4096:32".parse().unwrap();
        assert_eq!(shifts, Shifts { from_bytes: 0, to_bytes: 4096, step_bytes: 32 });
        for text in
            ["", "0..4096", "1..4096:32", "0..4096:8", "9..3:16", "0..99999999:16", "a..b:c"]
        {
            assert!(text.parse::<Shifts>().is_err(), "{text}");
        }
        for text in ["0..4096:0", "16..16:16", "8..4096:32", "0..65552:16"] {
            assert!(text.parse::<Shifts>().is_err(), "{text}");
        }
        for text in ["0..65536:16", "16..32:16", "32..65568:16"] {
            assert!(text.parse::<Shifts>().is_ok(), "{text}");
        }
    }

    #[test]
    fn what_stands_in_front_of_the_point_stays_and_excess_is_counted_by_set() {
        let cache = CacheGeometry { sets: 2, ways: 1, line_bytes: 64 };
        // Lines 0, 2, 4 and 1: three in set 0, one in set 1.
        let pieces: BTreeSet<Svma> = [0, 16, 128, 256, 64].map(Svma).into();
        let now = shifted(&pieces, cache, Svma(128), 0);
        assert_eq!((now.by_bytes, now.overfull_sets, now.excess_lines), (0, 1, 2));
        // From 128 on by a line: 0 stays, 3 and 5 join 1.
        let moved = shifted(&pieces, cache, Svma(128), 64);
        assert_eq!((moved.by_bytes, moved.overfull_sets, moved.excess_lines), (64, 1, 2));
        let far = shifted(&pieces, cache, Svma(256), 64);
        assert_eq!((far.overfull_sets, far.excess_lines), (2, 2));
    }

    /// A direct-mapped cache of two sets: `a` fills set 0, `b` set 1; moved by a line they fight.
    #[test]
    fn a_shift_that_brings_two_functions_into_one_set_is_seen() {
        let code = vec![0x90_u8; 63];
        let image = fixture::image(&[("a", &code), ("b", &code)]).unwrap();
        let cache = CacheGeometry { sets: 2, ways: 1, line_bytes: 64 };
        let hits = image.functions().iter().map(|f| (f.start, 5)).collect();
        let samples = Samples { hits, is_complete: true, ..Samples::default() };
        let shifts = "0..256:64".parse().unwrap();
        let found = WhatIf::of(&image, (&samples, None), cache, 1, shifts).unwrap();
        let excess: Vec<u32> = found.outcomes.iter().map(|o| o.excess_lines).collect();
        assert_eq!((found.now.excess_lines, excess), (0, vec![0, 1, 0, 1]));
        assert!((found.worse_share - 0.5).abs() < 1e-9);

        // The same from a window in which they take turns: every line that must share misses.
        let window = window(&[(0, 16), (64, 16)], &[0, 1, 0, 1]);
        let found = WhatIf::of(&image, (&samples, Some(&window)), cache, 1, shifts).unwrap();
        let misses: Vec<_> = found.outcomes.iter().map(|o| o.misses).collect();
        assert_eq!(misses, [Some(0), Some(4), Some(0), Some(4)]);
        assert!((found.worse_share - 0.5).abs() < 1e-9);
    }
}
