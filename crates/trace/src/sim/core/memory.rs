//! The data caches, the data TLBs and simple prefetchers: when is the value of a load there?
//!
//! Streams of lines are fetched ahead ([`Streams`]); a line from beyond the second level brings the other one of its pair.
//!
//! Lines and pages that a window touches for the first time are where they were left before it: how long ago that was, the times
//! between touches tell ([`Reuse`]), and which are those left longer ago is drawn by their address. A non-temporal store takes its line out of all caches and writes it to memory, from where the next load of it
//! has to bring it. Literature: the makers' optimization manuals (prefetchers); Hennessy and
//! Patterson, "Computer Architecture", chapter 2.

use rustc_hash::FxHashSet;

use super::footprint::Reuse;
use super::predictor::hash;
use super::resources::{OnTheirWay, Refresh};
use super::sets::{EMPTY, Sets, second_level_index, second_tlb_index};
use super::slots::Slots;
use super::streams::{Streams, page_of};
use crate::machine::{CoreShape, SET_GROUPINGS};
use crate::model::{Avma, LINE_BYTES, PAGE_BYTES};

/// Sets of every first level: those that the bits within a page tell apart.
pub(super) const FIRST_SETS: u64 = 64;
/// Ways of the third level, whose sets are slices and an unpublished function of the address.
const THIRD_WAYS: u64 = 12;
/// The first TLB goes by the lowest bits of the page: measured on Redwood Cove, 64 pages fit, and not if they are 2 apart.
const FIRST_TLB_SETS: u64 = 16;
const SECOND_TLB_WAYS: u64 = 16;
/// A line is fresh for so many cycles. Measured on Redwood Cove: of lines in order out of the second level, 1, 2 and 8 loads of each
/// take 1.3, 1.9 and 5.5 cycles a line, which is every load made twice and two slots for the line, up to 8 cycles a line.
const FRESH_CYCLES: u64 = 16;
/// Lines that are remembered as fetched ahead, and as written past the caches.
const MOST_AHEAD: usize = 1024;
const MOST_PAST: usize = 1 << 20;
/// An access starts at most so many cycles before one that was told earlier.
const MOST_LATE_CYCLES: u64 = 4096;

/// Where a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    First,
    Second,
    Third,
    Memory,
}

/// A load or store that was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fetched {
    /// When the line can be read, not counting the latency of the first level.
    pub there_at: u64,
    /// Whether it came just before, or comes after the access starts: what reads it is made once more.
    pub is_fresh: bool,
    pub level: Level,
    /// Lines that come into the first level for it, those that are fetched ahead included.
    pub filled: u32,
    /// Whether a page walk was needed.
    pub walked: bool,
    /// The line that it took the place of; [`EMPTY`] where there was none.
    pub evicted: u64,
    /// When it was asked for where it was missing.
    pub asked_at: u64,
}

/// Why a line comes into the first level.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    /// A load or store found it missing.
    Missed,
    /// It belongs to a stream.
    Stream,
    /// A store to it was on its way when it left.
    Stored,
}

/// Which lines and pages are near.
pub(super) struct DataCaches {
    caches: [Sets; 3],
    tlbs: [Sets; 2],
    /// Latencies beyond that of the first level.
    beyond_cycles: [u64; 3],
    refresh: Refresh,
    on_their_way: OnTheirWay,
    first_cycles: u64,
    tlb_cycles: [u64; 2],
    line_cycles: [u64; 3],
    /// When each of the walkers is free.
    walkers: Vec<u64>,
    /// For how long a walk keeps its walker: longer than the load waits for it where the hypervisor's tables are walked, too.
    walker_cycles: u64,
    /// When lines and pages were touched that were never seen.
    reuse: [Reuse; 2],
    /// Lines of the second and the third level, and pages of the second TLB.
    sizes: [u64; 3],
    /// Lines that were: the third level does not have them any more.
    seen: FxHashSet<u64>,
    /// Pages that were seen: the second TLB does not have them any more.
    seen_pages: FxHashSet<u64>,
    /// The cycles in which lines come from each level behind the first: accesses are not told in the order in which they
    /// start.
    coming: [Slots; 3],
    /// When the fills in flight are done.
    fills: Vec<u64>,
    /// By grouping of the sets of the first level and by group: from when until when it takes one line behind the other.
    filling: [Vec<(u64, u64)>; SET_GROUPINGS],
    /// For how long a line takes its groups: where the one that leaves was only read, and where it was written to.
    taken_cycles: [[u8; SET_GROUPINGS]; 2],
    write_back_cycles: u64,
    streams: Streams,
    /// Lines in the first level that were fetched ahead: the first use of each leads the stream on.
    ahead: FxHashSet<u64>,
    last_page: u64,
    /// Lines that were written past the caches, and the one that is being combined.
    past: FxHashSet<u64>,
    combined: u64,
}

impl DataCaches {
    /// For a window that comes back to its lines and pages in such times.
    pub(super) fn new(shape: &CoreShape, reuse: &[Reuse; 2]) -> Self {
        let [first, second, all_third] = shape.cache_bytes.map(|bytes| bytes / LINE_BYTES);
        let beyond = |cycles: u32| u64::from(cycles.saturating_sub(u32::from(shape.load_cycles)));
        let refresh = Refresh::new(shape);
        // No more of the third level than the window can fill, with room for sets that more lines than others go to.
        let third = all_third.min((2 * reuse[0].likely).next_power_of_two().max(1024));
        Self {
            caches: [
                Sets::new(first, FIRST_SETS),
                Sets::new(second, shape.second_level_sets.into()).indexed_by(second_level_index),
                Sets::new(third, third / THIRD_WAYS).indexed_by(hash),
            ],
            tlbs: {
                let [first, second] = shape.tlb_pages.map(u64::from);
                let second = Sets::new(second, second / SECOND_TLB_WAYS);
                [Sets::new(first, FIRST_TLB_SETS), second.indexed_by(second_tlb_index)]
            },
            beyond_cycles: refresh.taken_off(shape.miss_cycles.map(beyond)),
            on_their_way: OnTheirWay::new(shape),
            refresh,
            first_cycles: shape.load_cycles.into(),
            tlb_cycles: shape.tlb_cycles.map(u64::from),
            line_cycles: shape.line_cycles,
            walkers: vec![0; shape.page_walkers.max(1) as usize],
            walker_cycles: (shape.walk_apart_cycles * shape.page_walkers)
                .max(shape.tlb_cycles[1])
                .into(),
            reuse: reuse.clone(),
            sizes: [second, all_third, shape.tlb_pages[1].into()],
            seen: FxHashSet::default(),
            seen_pages: FxHashSet::default(),
            coming: std::array::from_fn(|_| Slots::new()),
            fills: vec![0; shape.fill_buffers.max(1) as usize],
            filling: std::array::from_fn(|grouping| vec![(0, 0); 2 << grouping]),
            taken_cycles: [shape.fill_cycles, shape.write_back_fill_cycles],
            write_back_cycles: shape.write_back_cycles,
            // Lines come in pairs.
            streams: Streams::new(
                2 * u64::from(shape.miss_cycles[2] + shape.refresh_cycles[1])
                    / shape.line_cycles[2].max(1),
            ),
            ahead: FxHashSet::default(),
            last_page: EMPTY,
            past: FxHashSet::default(),
            combined: EMPTY,
        }
    }

    /// Looks up the line of `address` for an access that starts at `at`.
    pub(super) fn fetch(&mut self, address: Avma, at: u64) -> Fetched {
        let (at, walked) = self.translate(address.0 / PAGE_BYTES, at);
        let line = address.0 / LINE_BYTES;
        if let Some(there_at) = self.caches[0].find(line) {
            let leads = self.ahead.remove(&line);
            let filled = if leads { self.follow_stream(line, at) } else { 0 };
            let is_fresh = at < there_at + FRESH_CYCLES;
            let there_at = there_at.max(at);
            let level = Level::First;
            return Fetched {
                there_at,
                is_fresh,
                level,
                filled,
                walked,
                evicted: EMPTY,
                asked_at: at,
            };
        }
        let (slot, free_at) = self.free_first();
        let start = at.max(free_at);
        let (there_at, level, evicted) = self.fill(line, start);
        self.fills[slot] = there_at;
        let filled = 1 + self.follow_stream(line, start);
        Fetched { there_at, is_fresh: true, level, filled, walked, evicted, asked_at: start }
    }

    fn translate(&mut self, page: u64, at: u64) -> (u64, bool) {
        if std::mem::replace(&mut self.last_page, page) == page || self.tlbs[0].find(page).is_some()
        {
            return (at, false);
        }
        self.tlbs[0].insert(page, 0);
        if !self.tlbs[1].insert_missing(page, 0) {
            return (at + self.tlb_cycles[0], false);
        }
        let others = self.seen_pages.len() as u64;
        if self.seen_pages.insert(page)
            && self.reuse[1].is_within(self.sizes[2], (page, others), false)
        {
            return (at + self.tlb_cycles[0], false);
        }
        let walker = self.walkers.iter_mut().min_by_key(|free_at| **free_at);
        let start = walker.map_or(at, |free_at| {
            let start = at.max(*free_at);
            *free_at = start + self.walker_cycles;
            start
        });
        (start + self.tlb_cycles[1], true)
    }

    /// A store to the line.
    pub(super) fn write(&mut self, line: u64) {
        self.caches[0].write(line);
    }

    /// A store past the caches to the line: when it can leave the queue, and whether it is the first one to its line. Stores
    /// to one line are combined in a buffer, which is free again when memory has the line.
    pub(super) fn write_past(&mut self, line: u64, at: u64) -> (u64, bool) {
        if std::mem::replace(&mut self.combined, line) == line {
            return (at, false);
        }
        self.caches.iter_mut().for_each(|cache| cache.remove(line));
        if self.past.len() >= MOST_PAST {
            self.past.clear();
        }
        self.past.insert(line);
        let (slot, free_at) = self.free_first();
        let start = at.max(free_at);
        self.fills[slot] = self.take_line(Level::Memory, start) + self.beyond_cycles[2];
        (start, true)
    }

    /// The buffer that is free first, and when: it takes the next fill.
    fn free_first(&self) -> (usize, u64) {
        let fills = self.fills.iter().copied().enumerate();
        fills.min_by_key(|(_, free_at)| *free_at).unwrap_or_default()
    }

    /// The cycle in which a line begins to come from, or go to, a level behind the first.
    fn take_line(&mut self, level: Level, at: u64) -> u64 {
        let behind = level as usize - 1;
        let coming = &mut self.coming[behind];
        coming.forget_before(at.saturating_sub(MOST_LATE_CYCLES));
        let start = coming.take(1, at);
        for _ in 1..self.line_cycles[behind] {
            coming.take(1, start);
        }
        start
    }

    /// Brings a line into the first level: when it is there, from where, and which one leaves. Groups of sets take one line
    /// behind the other.
    pub(super) fn fill(&mut self, line: u64, at: u64) -> (u64, Level, u64) {
        self.fill_first(line, at, Why::Missed)
    }

    /// Brings a line back that left before a store to it was made: when it is there. That is long behind what starts next, which
    /// finds its groups of sets taken for longer all the same.
    pub(super) fn bring_back(&mut self, line: u64, at: u64) -> u64 {
        self.fill_first(line, at, Why::Stored).0
    }

    fn fill_first(&mut self, line: u64, at: u64, why: Why) -> (u64, Level, u64) {
        // Accesses are not told in the order in which they start.
        let start = self.filling.iter().fold(at, |start, groups| {
            let (from, until) = groups[line as usize % groups.len()];
            if (from..until).contains(&start) { until } else { start }
        });
        // The place of a line is taken when it is asked for behind the third level.
        let room_at = self.on_their_way.room_at(line).saturating_sub(self.beyond_cycles[1]);
        let (there_at, level) = self.bring(line, start.max(room_at), why == Why::Stream);
        self.on_their_way.take(line, there_at);
        let leaves = self.caches[0].insert(line, there_at);
        if leaves.is_written {
            // All sets share the way to the second level.
            for _ in self.line_cycles[0]..self.write_back_cycles {
                self.coming[0].take(1, start);
            }
        }
        let taken = self.taken_cycles[usize::from(leaves.is_written)];
        for (groups, cycles) in self.filling.iter_mut().zip(taken) {
            let group = line as usize % groups.len();
            let (from, until) = &mut groups[group];
            if why == Why::Stored && start > *until {
                *until += u64::from(cycles);
            } else if start >= *until {
                *from = if start == *until { *from } else { start };
                *until = start + u64::from(cycles);
            }
        }
        (there_at, level, leaves.number)
    }

    /// When a line that is not in the first level can be there, and from where.
    fn bring(&mut self, line: u64, at: u64, is_stream: bool) -> (u64, Level) {
        let (there, level, is_new) = match (self.caches[1].find(line), self.caches[2].find(line)) {
            (Some(there), _) => (there, Level::Second, false),
            (None, Some(there)) => (there, Level::Third, false),
            (None, None) if self.past.remove(&line) => (0, Level::Memory, true),
            (None, None) if self.seen.insert(line) => (0, self.left_in(line, is_stream), true),
            (None, None) => (0, Level::Memory, true),
        };
        let mut start = self.take_line(level, at);
        if level == Level::Memory {
            start += self.refresh.wait_cycles(line, start);
        }
        // One on its way already is there when it is there.
        let there_at = (start + self.beyond_cycles[level as usize - 1]).max(there);
        if is_new || level > Level::Second {
            self.caches[1].insert(line, there_at);
        }
        if level > Level::Second {
            self.past.remove(&(line ^ 1));
            self.caches[1].insert_missing(line ^ 1, there_at);
        }
        if is_new {
            self.caches[2].insert(line, there_at);
        }
        (there_at, level)
    }

    /// Where a line was left that the window touches for the first time.
    fn left_in(&self, line: u64, is_stream: bool) -> Level {
        let others = self.seen.len() as u64 - 1;
        let is_within = |lines| self.reuse[0].is_within(lines, (line, others), is_stream);
        match self.sizes {
            [second, ..] if is_within(second) => Level::Second,
            [_, third, _] if is_within(third) => Level::Third,
            _ => Level::Memory,
        }
    }

    /// When a line of code that is not in the instruction cache can be there.
    pub(super) fn bring_code(&mut self, line: u64, at: u64) -> u64 {
        self.bring(line, at, false).0 + self.first_cycles
    }

    fn fill_ahead(&mut self, line: u64, at: u64) {
        self.fill_first(line, at, Why::Stream);
        if self.ahead.len() >= MOST_AHEAD {
            // Most of these were pushed out unused.
            self.ahead.clear();
        }
        self.ahead.insert(line);
    }

    /// Lines that come one behind the other are fetched ahead; how many of them into the first level.
    fn follow_stream(&mut self, line: u64, at: u64) -> u32 {
        let Some(ahead) = self.streams.follow(line) else { return 0 };
        let mut filled = 0;
        for (next, is_near) in ahead.lines() {
            let level = usize::from(!is_near);
            if self.caches[..=level].iter_mut().any(|cache| cache.find(next).is_some()) {
                continue;
            }
            if is_near {
                self.fill_ahead(next, at);
                filled += 1;
            } else {
                self.bring(next, at, true);
            }
        }
        if let Some(next) = ahead.next_page.filter(|next| self.caches[0].find(*next).is_none()) {
            self.fill_ahead(next, at);
            filled += 1;
            self.tlbs.iter_mut().for_each(|tlb| _ = tlb.insert_missing(page_of(next), 0));
        }
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Design, Microarchitecture};

    fn caches(lines: u64) -> DataCaches {
        let shape = Design::of(Microarchitecture::GoldenCove).core().value;
        DataCaches::new(&shape, &[lines, lines].map(Reuse::among))
    }

    #[test]
    fn lines_in_order_come_as_fast_as_memory_hands_them_out() {
        let mut far = caches(10_000_000);
        // As stores do: no line is used before the one in front of it is there.
        let used = (0..20_000_u64)
            .fold(0, |at, n| far.fetch(Avma(0x10_0000 + n * LINE_BYTES), at).there_at.max(at + 1));
        let cycles = used as f64 / 20_000.0;
        let [.., of_pair] = far.line_cycles;
        assert!(cycles < 1.05 * of_pair as f64 / 2.0, "{cycles}, {of_pair} for two");
    }

    #[test]
    fn a_line_is_where_the_window_fits() {
        let touch = |lines| caches(lines).fetch(Avma(0x10_0000), 100).level;
        assert_eq!(touch(1000), Level::Second);
        assert_eq!(touch(100_000), Level::Third);
        assert_eq!(touch(10_000_000), Level::Memory);
        let mut near = caches(1000);
        let first = near.fetch(Avma(0x10_0000), 100);
        assert_eq!(first.there_at, 100 + 7 + 10, "the second TLB and the second level");
        let far = caches(10_000).fetch(Avma(0x10_0000), 100);
        assert!(far.walked && far.there_at == 100 + 30 + 10, "a page walk: {far:?}");
        assert_eq!(near.fetch(Avma(0x10_0038), 200).there_at, 200);
        // Pushed out of the first level by others of its set, it is in the second still.
        for other in 1..20 {
            near.fetch(Avma(0x10_0000 + other * 4096), 1000 + other * 100);
        }
        assert_eq!(near.fetch(Avma(0x10_0000), 9000).level, Level::Second);
    }

    #[test]
    fn walks_follow_each_other_as_far_apart_as_was_measured() {
        let mut shape = Design::of(Microarchitecture::GoldenCove).core().value;
        (shape.tlb_cycles, shape.page_walkers) = ([7, 50], 4);
        let mut of = |apart: u32| {
            shape.walk_apart_cycles = apart;
            let mut caches = DataCaches::new(&shape, &[1000, 100_000].map(Reuse::among));
            let mut walk = |page: u64| caches.translate(page, 0).0;
            (0..12).map(|n| walk(1000 + n)).collect::<Vec<_>>()
        };
        // Four at a time, each as long as the load waits, or longer.
        assert_eq!(of(0), [[50; 4], [100; 4], [150; 4]].concat());
        assert_eq!(of(24), [[50; 4], [146; 4], [242; 4]].concat());
    }

    #[test]
    fn the_second_tlb_holds_pages_that_stand_far_apart_and_the_first_does_not() {
        let mut shape = Design::of(Microarchitecture::GoldenCove).core().value;
        shape.tlb_pages = [96, 2048];
        let pays = |count: u64, apart: u64| {
            let mut caches = DataCaches::new(&shape, &[1000, 100_000].map(Reuse::among));
            (0..count).for_each(|n| _ = caches.translate(n * apart, 0));
            let late = (0..count).map(|n| caches.translate(n * apart, 1 << 40));
            let all: Vec<(u64, bool)> = late.map(|(at, walked)| (at - (1 << 40), walked)).collect();
            (all.iter().any(|it| it.0 > 0), all.iter().any(|it| it.1))
        };
        assert_eq!(pays(64, 1), (false, false));
        assert_eq!(pays(64, 2), (true, false));
        assert_eq!(pays(512, 8), (true, false));
        assert_eq!(pays(512, 256), (true, false));
        assert_eq!(pays(4096, 1), (true, true));
    }

    #[test]
    fn a_store_past_the_caches_sends_its_line_to_memory() {
        let mut near = caches(1000);
        let line = 0x10_0000 / LINE_BYTES;
        near.fetch(Avma(0x10_0000), 100);
        assert_eq!(near.fetch(Avma(0x10_0000), 1000).level, Level::First);
        assert_eq!(near.write_past(line, 2000), (2000, true));
        assert_eq!(near.write_past(line, 2001), (2001, false), "combined with the one before");
        let back = near.fetch(Avma(0x10_0000), 3000);
        let beyond = near.beyond_cycles[2];
        assert_eq!((back.level, back.there_at), (Level::Memory, 3000 + beyond));
        assert_eq!(near.fetch(Avma(0x10_0000), 9000).level, Level::First, "once");
        // As many as there are buffers leave at once, the next one when memory has the first.
        let buffers = near.fills.len() as u64;
        let leaves: Vec<u64> =
            (1..=buffers + 1).map(|n| near.write_past(line + n, 20_000).0).collect();
        assert!(leaves[..buffers as usize].iter().all(|at| *at == 20_000), "{leaves:?}");
        assert!(leaves[buffers as usize] >= 20_000 + beyond, "{leaves:?}");
    }

    #[test]
    fn lines_of_one_set_push_each_other_out() {
        // Lines again and again, so far apart.
        let missed = |lines: u64, bytes: u64, level: Level| {
            let mut caches = caches(lines);
            let mut again = |_| {
                let lines = (0..lines).map(|n| caches.fetch(Avma(n * bytes), 0).level);
                lines.filter(|got| *got >= level).count()
            };
            (0..5).map(&mut again).last().unwrap_or(0)
        };
        assert_eq!(missed(20, 4096 + 64, Level::Second), 0);
        // In the second level they are in 32 sets of 16: which page is where in memory is chance.
        for bytes in [4096, 128 << 10] {
            assert_eq!(
                (missed(20, bytes, Level::Second), missed(20, bytes, Level::Third)),
                (20, 0)
            );
            assert!(missed(1400, bytes, Level::Third) > 1300);
            assert_eq!(missed(1400, bytes, Level::Memory), 0, "they are in the third level");
        }
        assert_eq!(missed(1400, 4096 + 64, Level::Third), 0);
    }

    #[test]
    fn streams_are_fetched_ahead_and_chance_is_not() {
        let misses = |step: u64| {
            let mut caches = caches(1 << 30);
            let lines = (0..4096_u64).map(|n| n.wrapping_mul(step) % (1 << 20) * LINE_BYTES);
            let slow = |address| caches.fetch(Avma(address), 0).level == Level::Memory;
            lines.map(slow).filter(|slow| *slow).count()
        };
        // The first and the third: then there is a stream, which goes on over all pages.
        assert_eq!(misses(1), 2);
        assert!(misses(77_773) > 3900, "{}", misses(77_773));
    }

    #[test]
    fn a_line_is_fresh_for_a_while_and_those_fetched_ahead_are_counted_as_filled() {
        let mut near = caches(4096);
        let first = near.fetch(Avma(0x10_0000), 100);
        assert!(first.is_fresh && first.filled == 1);
        let fresh = |near: &mut DataCaches, late: u64| {
            near.fetch(Avma(0x10_0000), first.there_at + late).is_fresh
        };
        assert!(fresh(&mut near, 0) && fresh(&mut near, FRESH_CYCLES - 1));
        assert!(!fresh(&mut near, FRESH_CYCLES));
        // The third line of a page begins a stream: it and the nearest come into the first level, and the next for each that is used.
        let line = |n: u64| Avma(0x20_0000 + n * LINE_BYTES);
        let filled: Vec<u32> = (0..6).map(|n| near.fetch(line(n), 1000 * (n + 1)).filled).collect();
        assert_eq!(filled, [1, 1, 3, 1, 1, 1]);
    }

    #[test]
    fn a_stream_goes_on_over_lines_that_it_has_brought() {
        let mut caches = caches(1 << 30);
        // A line every 200 cycles: from the third on each is there.
        let late = |n: u64| caches.fetch(Avma(n * LINE_BYTES), 200 * n).there_at > 200 * n;
        let waited: Vec<u64> =
            (0..64).zip((0..64).map(late)).filter(|it| it.1).map(|it| it.0).collect();
        assert!(waited.iter().all(|n| *n < 6), "{waited:?}");
    }

    #[test]
    fn a_stream_out_of_the_second_level_takes_two_cycles_a_line() {
        let mut caches = caches(4096);
        let mut pass = |from: u64| {
            let lines =
                (0..4096_u64).map(|n| caches.fetch(Avma(n * LINE_BYTES), from + n).there_at);
            lines.max().unwrap_or(0) - from
        };
        pass(0);
        let cycles = pass(1_000_000);
        assert!((4096 * 2..4096 * 5 / 2).contains(&cycles), "{cycles}");
    }

    #[test]
    fn lines_that_were_written_leave_more_slowly_in_few_sets_yet_more_so() {
        // More lines than the first level takes, so far apart, again and again, 16 of them in flight: cycles a line.
        let a_line = |apart: u64, writes: bool| {
            let lines = (1024 / apart).max(256);
            let (mut caches, mut done) = (caches(1024), vec![0]);
            for n in 0..4096 {
                let line = n % lines * apart;
                let at = done[done.len().saturating_sub(16)];
                let there_at = caches.fetch(Avma(line * LINE_BYTES), at).there_at;
                done.push(there_at.max(done[n as usize]));
                if writes {
                    caches.write(line);
                }
            }
            (done[4096] - done[2048]) as f64 / 2048.0
        };
        for (apart, read, written) in
            [(1, 1.5, 4.1), (4, 3.1, 6.5), (16, 3.1, 8.0), (64, 2.7, 10.6)]
        {
            let [reads, writes] = [false, true].map(|writes| a_line(apart, writes));
            assert!((reads / read - 1.0).abs() < 0.4, "{apart} apart, read: {reads}");
            assert!((writes / written - 1.0).abs() < 0.15, "{apart} apart, written: {writes}");
        }
    }

    #[test]
    fn a_line_from_far_brings_the_other_of_its_pair() {
        let mut caches = caches(1 << 30);
        let mut level = |line: u64| caches.fetch(Avma(line * LINE_BYTES), 1000 * line).level;
        assert_eq!(
            [101, 100, 103, 102].map(&mut level),
            [Level::Memory, Level::Second, Level::Memory, Level::Second,]
        );
    }
}
