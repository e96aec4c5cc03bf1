//! How long ago was touched before what a window touches for the first time?
//!
//! *Effect.* A window begins in the middle of a run, with caches and TLBs that are full of what came before it. Whether
//! a line that it has not touched yet is still there depends on how many others were touched since. *Estimate.* A stretch
//! of a run goes on as it was, so the times between two touches of one line within it tell those that reach back in
//! front of it. What it touches once, or for the first time, was not touched for at least as long: it counts until then
//! (Kaplan and Meier, "Nonparametric Estimation from Incomplete Observations", 1958). Between two touches that are so many touches
//! apart there are as many lines as are expected not to come back meanwhile (Eklöv and Hagersten, "StatStack: Efficient Modeling of
//! LRU Caches", 2010). Streams, whose lines seldom come back, are told apart from the rest.
//!
//! Behind the longest times that the stretch tells of, as many lines are likely to be in use as were drawn from, if by chance
//! (Chao, "Nonparametric estimation of the number of classes in a population", 1984).

use rustc_hash::{FxHashMap, FxHashSet};

use super::predictor::hash;
use super::program::PAGE_LINES;
use crate::model::{LINE_BYTES, PAGE_BYTES};
use crate::trace::engine::{AccessKind, MemoryAccess};

/// Lines, and pages, that are near in any case: touching one again tells nothing.
const RECENT_LINES: usize = 1024;
const RECENT_PAGES: usize = 16;
/// So many lines must have been touched once before anything is said of those that were not touched, and so many twice
/// before their number says it.
const LEAST_ONCE: u64 = 2048;
const LEAST_TWICE: u64 = 64;
/// A place within a page is used where lines stand there at least one time for so many at a place on average.
const RARE: u64 = 8;
/// Fewer touches than these that were followed for so long tell nothing of longer times.
const LEAST_FOLLOWED: u64 = 256;

/// What part of the touches is of something that was touched no later than before so many others.
#[derive(Clone, Debug)]
pub(super) struct Reuse {
    /// Ascending: numbers of others, and the part of touches beyond them, outside streams and in them.
    beyond: Vec<(f64, [f64; 2])>,
    /// How many there are likely to be in all.
    pub(super) likely: u64,
}

impl Reuse {
    /// Of so many, each of which is as likely as any other to be touched next.
    #[cfg(test)]
    pub(super) fn among(likely: u64) -> Self {
        Self { beyond: vec![(0.0, [1.0; 2])], likely }
    }

    /// Whether one that is touched for the first time, behind so many others, was left no longer ago than a cache of this size
    /// holds: of all that could have been left then, as many as that are.
    pub(super) fn is_within(&self, size: u64, (one, others): (u64, u64), is_stream: bool) -> bool {
        let drawn = hash(one) as f64 / u64::MAX as f64;
        self.beyond(size, is_stream) <= self.beyond(others, is_stream) * drawn
    }

    /// The part of touches of something that was touched before `others` others, or never.
    fn beyond(&self, others: u64, is_stream: bool) -> f64 {
        if others >= self.likely {
            return 0.0;
        }
        let (others, class) = (others as f64, usize::from(is_stream));
        let next = self.beyond.partition_point(|point| point.0 <= others);
        let Some(&(from, part)) = next.checked_sub(1).map(|n| &self.beyond[n]) else { return 1.0 };
        let part = part[class];
        if let Some((to, next_part)) = self.beyond.get(next) {
            return part + (next_part[class] - part) * (others - from) / (to - from);
        }
        // Of those that are left, any is as likely.
        let all = self.likely as f64;
        part * (all - others) / (all - from)
    }
}

/// Touches by how long ago what they touch was touched before, outside streams or in them.
#[derive(Default)]
struct Times {
    /// By [`bucket`] of the number of touches between.
    again: Vec<u64>,
    /// Those of something not touched before, by bucket of the number of touches so far.
    first: Vec<u64>,
}

impl Times {
    fn add(counts: &mut Vec<u64>, touches: u32) {
        let bucket = bucket(touches);
        if counts.len() <= bucket {
            counts.resize(bucket + 1, 0);
        }
        counts[bucket] += 1;
    }

    fn counts(&self, bucket: usize) -> [u64; 2] {
        [&self.again, &self.first].map(|counts| counts.get(bucket).copied().unwrap_or(0))
    }

    fn all(&self) -> u64 {
        self.again.iter().chain(&self.first).sum()
    }
}

/// Eight buckets for each power of two.
fn bucket(touches: u32) -> usize {
    if touches < 16 {
        return touches as usize;
    }
    let power = touches.ilog2() as usize;
    (power - 2) * 8 + (touches as usize >> (power - 3)) - 8
}

/// The least number of touches in a bucket.
fn least(bucket: usize) -> u64 {
    match bucket {
        0..16 => bucket as u64,
        _ => (8 + bucket as u64 % 8) << (bucket / 8 - 1),
    }
}

/// What was touched, and when.
struct Touched {
    /// When each was touched last, and how often outside streams.
    last: FxHashMap<u64, (u32, u8)>,
    /// The last one with each rest by its length.
    recent: Vec<u64>,
    touches: u32,
    /// Outside streams and in them.
    times: [Times; 2],
}

impl Touched {
    fn new(recent: usize) -> Self {
        let (last, times) = Default::default();
        Self { last, recent: vec![u64::MAX; recent], touches: 0, times }
    }

    /// Whether it was not recent.
    fn touch(&mut self, one: u64) -> bool {
        let place = |one: u64| one as usize % self.recent.len();
        let is_recent = |one: u64| self.recent[place(one)] == one;
        if is_recent(one) {
            return false;
        }
        // How long a stream is nothing tells, and it is fetched ahead.
        let is_stream = [1, 2].into_iter().any(|step: u64| {
            let all = |other: fn(u64, u64) -> u64| {
                is_recent(other(one, step)) && is_recent(other(one, 2 * step))
            };
            all(u64::wrapping_sub) || all(u64::wrapping_add)
        });
        let place = place(one);
        self.recent[place] = one;
        self.touches = self.touches.saturating_add(1);
        let times = &mut self.times[usize::from(is_stream)];
        let (last, often) = self.last.entry(one).or_insert((0, 0));
        match *last {
            0 => Times::add(&mut times.first, self.touches),
            last => Times::add(&mut times.again, self.touches - last),
        }
        *last = self.touches;
        *often = often.saturating_add(u8::from(!is_stream));
        true
    }

    /// Among how many those that were touched were drawn, if by chance. Those that were never touched are as many as the
    /// square of those touched once over twice those touched twice, however often others were. Where hardly any were
    /// touched twice, `others` tells. No less than were touched.
    fn likely(&self, others: impl FnOnce(&[u64]) -> u64) -> u64 {
        let seen = self.last.len() as u64;
        let with = |times: u8| self.last.iter().filter(move |it| it.1.1 == times).map(|it| *it.0);
        let (once, twice) = (with(1).count() as u64, with(2).count() as u64);
        match once {
            0..LEAST_ONCE => seen,
            _ if twice >= LEAST_TWICE => seen + once * once / (2 * twice),
            _ => seen.max(others(&with(1).collect::<Vec<u64>>())),
        }
    }

    fn reuse(&self, likely: u64) -> Reuse {
        let mut beyond = vec![(0.0, [1.0; 2])];
        let mut left = self.times.each_ref().map(Times::all);
        let (mut parts, mut part_of_all, mut others) = ([1.0; 2], 1.0, 0.0);
        for bucket in 0..=bucket(self.touches) {
            let counts = self.times.each_ref().map(|times| times.counts(bucket));
            let all: u64 = left.iter().sum();
            if all < LEAST_FOLLOWED {
                break;
            }
            let before = part_of_all;
            let stays =
                |again: u64, of: u64| if of == 0 { 1.0 } else { 1.0 - again as f64 / of as f64 };
            part_of_all *= stays(counts[0][0] + counts[1][0], all);
            for class in 0..2 {
                let [again, first] = counts[class];
                if left[class] >= LEAST_FOLLOWED {
                    parts[class] *= stays(again, left[class]);
                }
                left[class] -= again + first;
            }
            let touches = (least(bucket + 1) - least(bucket)) as f64;
            others += touches * f64::midpoint(before, part_of_all);
            beyond.push((others, parts));
        }
        Reuse { beyond, likely }
    }
}

/// The lines and pages of data that a stretch of a run touches.
pub struct Footprint {
    lines: Touched,
    pages: Touched,
}

impl Default for Footprint {
    fn default() -> Self {
        Self { lines: Touched::new(RECENT_LINES), pages: Touched::new(RECENT_PAGES) }
    }
}

impl Footprint {
    pub(super) fn touch(&mut self, accesses: &[MemoryAccess]) {
        for access in accesses.iter().filter(|access| access.kind != AccessKind::Value) {
            if self.lines.touch(access.address.0 / LINE_BYTES) {
                self.pages.touch(access.address.0 / PAGE_BYTES);
            }
        }
    }

    pub(super) fn holds_line(&self, line: u64) -> bool {
        self.lines.last.contains_key(&line)
    }

    /// When what the stretch touches for the first time was touched before: of its lines and of its pages.
    pub(super) fn reuse(&self) -> [Reuse; 2] {
        // Pages that were touched are taken for being in use at the places where any page is.
        let of_their_pages = |once: &[u64]| {
            let mut places = [0; PAGE_LINES as usize];
            let mut pages = FxHashSet::default();
            for line in once {
                places[(line % PAGE_LINES) as usize] += 1;
                pages.insert(line / PAGE_LINES);
            }
            let once = once.len() as u64;
            let is_used = |count: &&u64| **count * PAGE_LINES * RARE >= once;
            pages.len() as u64 * places.iter().filter(is_used).count() as u64
        };
        let lines = self.lines.likely(of_their_pages);
        let pages = self.pages.likely(|once| once.len() as u64);
        [self.lines.reuse(lines), self.pages.reuse(pages)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(touches: impl Iterator<Item = u64>) -> Footprint {
        let mut footprint = Footprint::default();
        touches.for_each(|line| _ = footprint.lines.touch(line));
        footprint
    }

    fn likely(touches: impl Iterator<Item = u64>) -> u64 {
        touched(touches).reuse()[0].likely
    }

    fn random() -> impl FnMut(u64) -> u64 {
        let mut state = 1_u64;
        move |of| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % of
        }
    }

    #[test]
    fn buckets_follow_one_another() {
        for touches in (0..5000).chain([u32::MAX / 2, u32::MAX]) {
            let bucket = bucket(touches);
            let all = least(bucket)..least(bucket + 1);
            assert!(all.contains(&touches.into()), "{touches} in {bucket}, which is {all:?}");
        }
    }

    #[test]
    fn lines_drawn_by_chance_tell_of_how_many_they_are_a_part() {
        let mut random = random();
        let many = likely((0..200_000).map(|_| random(500_000)));
        assert!((450_000..550_000).contains(&many), "{many}");
        let few = likely((0..200_000).map(|_| random(5_000)));
        assert!((4_900..5_200).contains(&few), "{few}");
        // Every other touch is of a small table, and a stream runs through it all.
        let table = 1 << 40;
        let mixed = likely((0..200_000).map(|n| match n % 4 {
            0 | 2 => random(5_000),
            1 => table + random(2_000_000),
            _ => 2 * table + n / 4,
        }));
        assert!((1_500_000..2_500_000).contains(&mixed), "{mixed}");
    }

    #[test]
    fn lines_never_come_back_to_are_taken_for_a_part_of_their_pages() {
        // A list in an order of its own: each of a million lines comes once.
        let mixed = |n: u64| {
            let x = n * 611_953 % (1 << 20);
            (x ^ x >> 9) * 848_231 % (1 << 20)
        };
        let list = |lines_apart: u64| likely((0..60_000).map(move |n| mixed(n) * lines_apart));
        assert!((1_000_000..1_050_000).contains(&list(1)), "{}", list(1));
        assert!((850_000..1_050_000).contains(&list(2)), "every other line: {}", list(2));
        // One line of each page: what is in the pages that were not touched nothing tells.
        assert_eq!(list(64), 60_000);
    }

    #[test]
    fn streams_and_short_windows_tell_what_they_touch() {
        assert_eq!(likely(0..100_000), 100_000);
        assert_eq!(likely((0..100_000).rev()), 100_000);
        assert_eq!(likely((0..100_000).map(|n| 2 * n)), 100_000);
        assert_eq!(likely((0..100_000).map(|n| n % 10_000)), 10_000);
        assert_eq!(likely(0..100), 100);
        assert_eq!(likely((0..1_000_000).map(|n| n % 3)), 3);
    }

    #[test]
    fn what_is_beyond_a_cache_is_what_it_misses() {
        // Two tables by chance, of which the stretch hardly touches all of the second.
        let mut random = random();
        let touches: Vec<u64> = (0..40_000)
            .map(|n| if n % 3 == 0 { (1 << 30) + 3 * random(60_000) } else { 3 * random(4_000) })
            .collect();
        let mut footprint = Footprint::default();
        let counts: Vec<bool> = touches.iter().map(|line| footprint.lines.touch(*line)).collect();
        let reuse = &footprint.reuse()[0];
        // The naive way: how many others were touched since, of some late touches that count.
        let some: Vec<usize> = (30_000..40_000).filter(|n| counts[*n]).step_by(20).collect();
        let others = |at: usize| {
            let last = touches[..at].iter().rposition(|line| *line == touches[at])?;
            Some(touches[last + 1..at].iter().collect::<FxHashSet<&u64>>().len())
        };
        let others: Vec<Option<usize>> = some.iter().map(|at| others(*at)).collect();
        for lines in [2048, 3000, 4096, 8000] {
            let missed = others.iter().filter(|it| it.is_none_or(|it| it >= lines)).count();
            let (naive, by_times) =
                (missed as f64 / some.len() as f64, reuse.beyond(lines as u64, false));
            assert!((naive - by_times).abs() < 0.06, "{lines}: {naive} and {by_times}");
        }
        // Of the second table five sixths are not in a cache with room for the first and a sixth of the second.
        let beyond = reuse.beyond(14_000, false);
        let of_second = counts.iter().zip(0..).filter(|(counts, n)| **counts && n % 3 == 0).count();
        let expected =
            5.0 / 6.0 * of_second as f64 / counts.iter().filter(|it| **it).count() as f64;
        assert!((beyond - expected).abs() < 0.05, "{beyond}, not {expected}");
        assert!(reuse.beyond(50_000, false) < 0.15 && reuse.beyond(1 << 40, false) < 0.001);
        assert!((reuse.beyond(0, false) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_stream_stays_beyond_whatever_comes_back_beside_it() {
        let mut random = random();
        let touches =
            (0..200_000).map(|n| if n % 2 == 0 { n / 2 } else { (1 << 40) + 3 * random(3_000) });
        let reuse = &touched(touches).reuse()[0];
        let beyond = |is_stream| reuse.beyond(20_000, is_stream);
        assert!(beyond(true) > 0.99 && beyond(false) < 0.01, "{:?}", [false, true].map(beyond));
    }
}
