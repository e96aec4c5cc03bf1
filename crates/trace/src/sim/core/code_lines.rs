//! Lines of code: when can they be decoded?
//!
//! The predictor runs ahead of dispatch and asks for the lines that it expects, so that what comes out of the second
//! level limits how many lines a cycle there are, and its latency shows behind a mispredicted branch alone. Measured on
//! Zen 4: 4.2 cycles a line out of the second level, in order and in disorder, and 10 to 15 out of the third.
//! Literature: G. Reinman, T. Austin, B. Calder, "A Scalable Front-End Architecture for Fast Instruction Delivery" (1999).
//!
//! A line that is written waits for the store to be in the data cache, and for the way back.

use rustc_hash::FxHashMap;

use super::memory::DataCaches;
use super::sets::{EMPTY, Sets};
use crate::machine::CacheGeometry;

/// Lines that are asked for before they are dispatched, at the most.
const AHEAD_LINES: usize = 16;
/// Cycles between two lines that come from one level: at the least, and as a part of its latency.
const LEAST_APART_CYCLES: u64 = 4;
const PART_OF_LATENCY: u64 = 4;

/// The instruction cache, and what was asked of it.
pub(super) struct CodeLines {
    cache: Sets,
    /// Whether the code of the window never pushes itself out.
    fits: bool,
    /// The line that was dispatched last.
    current: u64,
    /// When the predictor came to it.
    asked: u64,
    /// When the last line from behind the first level came.
    came: u64,
    /// When the last lines were dispatched, by their number modulo how many they are.
    dispatched: [u64; AHEAD_LINES],
    lines: usize,
    /// Of lines that were written: when they are there again.
    written: FxHashMap<u64, u64>,
}

impl CodeLines {
    /// A cache of this shape for code in these lines.
    pub(super) fn new(geometry: CacheGeometry, code: impl Iterator<Item = u64>) -> Self {
        let (sets, ways) = (u64::from(geometry.sets.max(1)), u64::from(geometry.ways.max(1)));
        let mut in_set: FxHashMap<u64, u64> = FxHashMap::default();
        code.for_each(|line| *in_set.entry(line % sets).or_default() += 1);
        Self {
            cache: Sets::new(sets * ways, sets),
            fits: in_set.values().all(|lines| *lines <= ways),
            current: EMPTY,
            asked: 0,
            came: 0,
            dispatched: [0; AHEAD_LINES],
            lines: 0,
            written: FxHashMap::default(),
        }
    }

    /// Whether the next instruction is in another line than the one before, and that line may not be there.
    pub(super) fn may_wait(&mut self, line: u64) -> bool {
        line != std::mem::replace(&mut self.current, line)
            && (!self.fits || self.written.contains_key(&line))
    }

    /// When a line that is the next to be dispatched, at `dispatch` or later, can be; and whether it came from behind the
    /// first level.
    pub(super) fn fetch(
        &mut self,
        line: u64,
        dispatch: u64,
        behind: &mut DataCaches,
    ) -> (u64, bool) {
        let slot = self.lines % AHEAD_LINES;
        self.lines += 1;
        self.asked = (self.asked + 1).max(self.dispatched[slot]).min(dispatch);
        let written = self.written_at(line);
        let found = self.fits || self.cache.find(line).is_some();
        let there_at = match found {
            true => written,
            false => {
                let came = behind.bring_code(line, self.asked);
                let apart = (came - self.asked) / PART_OF_LATENCY;
                self.came = came.max(self.came + apart.max(LEAST_APART_CYCLES));
                self.cache.insert(line, 0);
                self.came.max(written)
            }
        };
        self.dispatched[slot] = there_at.max(dispatch);
        (there_at, !found)
    }

    /// What was asked for was wrong: it goes on from what is dispatched at `cycle`.
    pub(super) fn redirect(&mut self, cycle: u64) {
        self.asked = cycle;
    }

    /// When a line is there again that was written; 0 where it was not.
    pub(super) fn written_at(&self, line: u64) -> u64 {
        self.written.get(&line).copied().unwrap_or(0)
    }

    /// The line is written, and there again at `cycle`.
    pub(super) fn write(&mut self, line: u64, cycle: u64) {
        self.written.insert(line, cycle);
        self.current = EMPTY;
    }
}

#[cfg(test)]
mod tests {
    use super::super::footprint::Reuse;
    use super::*;
    use crate::machine::{Design, Microarchitecture};

    /// Cycles a line of a walk over these lines, again and again, dispatched as fast as they come.
    fn cycles_a_line(lines: &[u64]) -> f64 {
        let shape = Design::of(Microarchitecture::Zen4).core().value;
        let mut behind = DataCaches::new(&shape, &[lines.len() as u64, 1].map(Reuse::among));
        let mut code = CodeLines::new(shape.code_cache, lines.iter().copied());
        let mut walk = |mut dispatch: u64| {
            for line in lines {
                dispatch += 1;
                if code.may_wait(*line) {
                    dispatch = dispatch.max(code.fetch(*line, dispatch, &mut behind).0);
                }
            }
            dispatch
        };
        let warm = (0..3).fold(0, |dispatch, _| walk(dispatch));
        (walk(warm) - warm) as f64 / lines.len() as f64
    }

    #[test]
    fn code_beyond_the_cache_comes_out_of_the_second_level() {
        let of = |lines: u64, apart: u64| {
            cycles_a_line(&(0..lines).map(|n| 0x4000 + n * apart).collect::<Vec<u64>>())
        };
        assert_eq!(of(512, 1), 1.0, "32 KiB");
        assert!((3.9..4.4).contains(&of(1024, 1)), "measured 4.2: {}", of(1024, 1));
        assert_eq!(of(8, 64), 1.0, "the ways of a set");
        assert!(of(9, 64) > 3.9, "one more: {}", of(9, 64));
    }

    #[test]
    fn behind_a_wrong_prediction_the_whole_latency_shows() {
        let shape = Design::of(Microarchitecture::Zen4).core().value;
        let mut behind = DataCaches::new(&shape, &[1024, 1].map(Reuse::among));
        let mut code = CodeLines::new(shape.code_cache, 0..1024);
        let mut late = |line: u64, dispatch: u64| {
            assert!(code.may_wait(line));
            code.fetch(line, dispatch, &mut behind).0.saturating_sub(dispatch)
        };
        // Dispatch is slow, so that all were asked for long before.
        let ahead = (0..64).map(|n| late(n, 1000 + 40 * n)).max();
        assert_eq!(ahead, Some(0));
        code.redirect(5000);
        let (there_at, missed) = code.fetch(500, 5000, &mut behind);
        assert!(missed && there_at == 5000 + u64::from(shape.miss_cycles[0]), "{there_at}");
    }

    #[test]
    fn a_written_line_is_waited_for_though_the_code_fits() {
        let shape = Design::of(Microarchitecture::Zen4).core().value;
        let mut behind = DataCaches::new(&shape, &[4, 1].map(Reuse::among));
        let mut code = CodeLines::new(shape.code_cache, 0..4);
        assert!(!code.may_wait(1));
        code.write(1, 700);
        assert!(code.may_wait(1), "also where it goes on in the same line");
        assert_eq!(code.fetch(1, 600, &mut behind), (700, false));
        assert!(!code.may_wait(2));
    }
}
