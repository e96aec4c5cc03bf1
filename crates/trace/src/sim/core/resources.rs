//! What runs out behind a load that takes long: registers for values, and memory that refreshes itself.
//!
//! A core renames what instructions write to physical registers. One is free again when the next value of the same name retires,
//! so that no more values are in flight than there are registers beside those that hold what retired: where most instructions
//! write one, they end long before the window of reordering. The measurable sign are independent misses that overlap less the
//! more of the instructions between them write registers. Memory refreshes its rows, a rank at a time, and serves nothing of it
//! meanwhile: a tenth of all misses takes up to three times as long. A chain of misses pays the mean; independent ones, which
//! retire in order, wait for the slowest of all that are in flight.
//! Literature: T. Moudgill and others, "Register Renaming and Dynamic Speculation" (1993); JEDEC JESD79-5, refresh.

use super::memory::FIRST_SETS;
use super::ops::{GENERAL, Op, Registers, VECTORS};
use super::predictor::hash;
use super::sets::EMPTY;
use crate::machine::{CoreShape, OpClass};
use crate::model::LINE_BYTES;

/// Parts of the memory that are refreshed one behind the other, evenly spread.
const RANKS: u64 = 32;

impl Op {
    /// What it writes that takes another physical register: not what is a copy, or zero, by name alone.
    pub(super) fn renamed(&self) -> Registers {
        if self.class == OpClass::Renamed || self.zeroes { 0 } else { self.outputs }
    }
}

/// The physical registers for general values and for vectors.
pub(super) struct RegisterFiles([RegisterFile; 2]);

/// When what took each register retired, in turns.
struct RegisterFile {
    retired: Vec<u64>,
    next: usize,
}

impl RegisterFiles {
    pub(super) fn new(shape: &CoreShape) -> Self {
        let file =
            |entries: u32| RegisterFile { retired: vec![0; entries.max(1) as usize], next: 0 };
        Self(shape.registers.map(file))
    }

    /// From when on there are registers for these.
    pub(super) fn room_at(&self, written: Registers) -> u64 {
        let of = |(file, kind): (&RegisterFile, Registers)| match (written & kind).count_ones() {
            0 => 0,
            // They retire in order: the last one is the latest.
            count => file.retired[(file.next + count as usize - 1) % file.retired.len()],
        };
        self.0.iter().zip([GENERAL, VECTORS]).map(of).fold(0, u64::max)
    }

    /// What writes these retires.
    pub(super) fn take(&mut self, written: Registers, retired_at: u64) {
        for (file, kind) in self.0.iter_mut().zip([GENERAL, VECTORS]) {
            for _ in 0..(written & kind).count_ones() {
                file.retired[file.next] = retired_at;
                file.next = (file.next + 1) % file.retired.len();
            }
        }
    }
}

/// Memory that is refreshed.
pub(super) struct Refresh {
    period_cycles: u64,
    busy_cycles: u64,
}

impl Refresh {
    pub(super) fn new(shape: &CoreShape) -> Self {
        let [period, busy] = shape.refresh_cycles.map(u64::from);
        Self { period_cycles: period.max(1), busy_cycles: busy.min(period) }
    }

    /// What a load waits for it in the mean.
    fn mean_cycles(&self) -> u64 {
        self.busy_cycles * self.busy_cycles / (2 * self.period_cycles)
    }

    /// Cycles of misses out of the three levels behind the first, without it: probes and tables have its mean in the last.
    pub(super) fn taken_off(&self, [second, third, memory]: [u64; 3]) -> [u64; 3] {
        [second, third, memory.saturating_sub(self.mean_cycles()).max(third)]
    }

    /// What a line waits for it that is asked for in this cycle.
    pub(super) fn wait_cycles(&self, line: u64, at: u64) -> u64 {
        let rank = hash(line) % RANKS;
        let into = (at + rank * self.period_cycles / RANKS) % self.period_cycles;
        self.busy_cycles.saturating_sub(into)
    }
}

/// Lines on their way to the first level, of cores whose lines take a place when they are asked for: of each set no more than it has
/// ways. Measured on a Zen 5 guest with 12 ways and 600 cycles to memory, loads 4096 bytes apart 43 to 50 cycles each, 2048 apart
/// 27 to 31, 1024 apart 19 to 22, 4160 apart 22.
pub(super) struct OnTheirWay {
    ways: usize,
    /// By set and turn: when the line is there.
    there_at: Vec<u64>,
    /// By set.
    turns: Vec<usize>,
}

impl OnTheirWay {
    pub(super) fn new(shape: &CoreShape) -> Self {
        let ways = (shape.cache_bytes[0] / LINE_BYTES / FIRST_SETS).max(1) as usize;
        let sets = if shape.leaves_when_asked { FIRST_SETS as usize } else { 0 };
        Self { ways, there_at: vec![0; sets * ways], turns: vec![0; sets] }
    }

    fn place(&self, line: u64) -> Option<usize> {
        let set = (line % FIRST_SETS) as usize;
        Some(set * self.ways + self.turns.get(set)? % self.ways)
    }

    /// From when on the line's set has a place for it.
    pub(super) fn room_at(&self, line: u64) -> u64 {
        self.place(line).map_or(0, |place| self.there_at[place])
    }

    /// The line is there at that time.
    pub(super) fn take(&mut self, line: u64, there_at: u64) {
        if let Some(place) = self.place(line) {
            self.there_at[place] = there_at;
            self.turns[(line % FIRST_SETS) as usize] += 1;
        }
    }
}

/// The lines in which stores are combined in front of the first data cache, in designs that have such: a store to one of them
/// waits for no other, and one to another line waits until one of them has left.
///
/// *Sign*: stores of any width to 12 lines in turn take half a cycle each on Zen 5, to 13 and more 1.05; two each to 16 lines 1.0 a
/// line. Eight other lines and then 16 stores to one, again and again, are 23 cycles for twice that, so some leave ahead.
pub(super) struct CombinedLines {
    /// The latest one last.
    lines: Vec<u64>,
    leaves_at: u64,
}

/// Lines that have left ahead at the most.
const AHEAD: u64 = 4;

impl CombinedLines {
    pub(super) fn new(shape: &CoreShape) -> Self {
        Self { lines: vec![EMPTY; shape.combined_lines as usize], leaves_at: 0 }
    }

    /// From when on a store to this line can be combined.
    pub(super) fn room_at(&self, line: u64) -> u64 {
        let has_room = self.lines.is_empty() || self.lines.contains(&line);
        if has_room { 0 } else { self.leaves_at.saturating_sub(AHEAD) }
    }

    /// A store to it is combined in that cycle.
    pub(super) fn take(&mut self, line: u64, cycle: u64) {
        if self.lines.last().is_none_or(|last| *last == line) {
            return;
        }
        let found = self.lines.iter().rposition(|other| *other == line);
        if found.is_none() {
            self.leaves_at = self.leaves_at.max(cycle) + 1;
        }
        let from = found.unwrap_or(0);
        self.lines[from] = line;
        self.lines[from..].rotate_left(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Design, Microarchitecture};

    fn shape() -> CoreShape {
        Design::of(Microarchitecture::Zen5).core().value
    }

    #[test]
    fn values_wait_for_the_register_of_the_one_that_many_before() {
        let mut core = shape();
        core.registers = [2, 1];
        let mut files = RegisterFiles::new(&core);
        let (general, vector) = (1, 1 << 16);
        files.take(general, 10);
        files.take(general | vector, 20);
        assert_eq!(files.room_at(0), 0, "what writes nothing needs none");
        assert_eq!(files.room_at(general), 10);
        assert_eq!(files.room_at(general | 2), 20, "two at a time");
        assert_eq!(files.room_at(vector), 20);
        files.take(general, 30);
        assert_eq!(files.room_at(general), 20);
    }

    #[test]
    fn a_set_has_as_many_lines_on_their_way_as_it_has_ways() {
        let mut core = shape();
        let mut lines = OnTheirWay::new(&core);
        (0..12).for_each(|n| lines.take(n * FIRST_SETS, 100 + n));
        assert_eq!((lines.room_at(12 * FIRST_SETS), lines.room_at(1)), (100, 0));
        lines.take(12 * FIRST_SETS, 200);
        assert_eq!(lines.room_at(0), 101);
        core.leaves_when_asked = false;
        let mut others = OnTheirWay::new(&core);
        (0..13).for_each(|n| others.take(n * FIRST_SETS, 100));
        assert_eq!(others.room_at(0), 0);
    }

    #[test]
    fn a_store_to_a_thirteenth_line_waits_until_one_has_left() {
        let mut core = shape();
        let mut lines = CombinedLines::new(&core);
        (0..12).for_each(|line| lines.take(line, 100));
        assert_eq!([0, 11, 12].map(|line| lines.room_at(line)), [0, 0, 108], "four leave ahead");
        lines.take(0, 110);
        lines.take(12, 200);
        assert_eq!([0, 1].map(|line| lines.room_at(line)), [0, 197], "the one used longest ago");
        core.combined_lines = 0;
        let mut none = CombinedLines::new(&core);
        (0..13).for_each(|line| none.take(line, 100));
        assert_eq!(none.room_at(20), 0);
    }

    #[test]
    fn a_part_of_all_lines_waits_for_a_refresh_and_the_mean_is_what_is_taken_off() {
        let memory = Refresh::new(&shape());
        let waits: Vec<u64> = (0..100_000).map(|n| memory.wait_cycles(n, 7 * n)).collect();
        let part = waits.iter().filter(|wait| **wait > 0).count() as f64 / waits.len() as f64;
        let mean = waits.iter().sum::<u64>() as f64 / waits.len() as f64;
        assert!((part - 1200.0 / 15_600.0).abs() < 0.01, "{part}");
        assert!((mean - memory.mean_cycles() as f64).abs() < 3.0, "{mean}");
        assert!(*waits.iter().max().unwrap() <= 1200);
        let mut core = shape();
        core.refresh_cycles = [0, 0];
        let none = Refresh::new(&core);
        assert_eq!((none.mean_cycles(), none.wait_cycles(1, 1)), (0, 0));
    }
}
