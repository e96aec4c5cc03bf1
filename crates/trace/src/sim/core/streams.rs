//! Which lines a prefetcher fetches ahead: those of streams, one line behind the other or every second one.
//!
//! A stream that is young ends with its page, but for the first line of the next one; an older one goes on there, and reaches
//! as far ahead as it is long, up to what hides the latency of memory and its refresh. *Sign*: lines in order come from memory in 7 cycles
//! each where the latency is 580, though no more than 32 are missed at a time. *Literature*: the makers' optimization manuals
//! (prefetchers).
//!
//! Measured on Zen 5, a load or 48 bytes of stores in each line in order, pages of 4 KiB: 6.4 and 7.4 cycles a line; 12 lines ahead
//! within a page would be 13.2 and 22.

use super::sets::EMPTY;
use crate::model::{LINE_BYTES, PAGE_BYTES};

/// Pages in which a stream of lines is followed.
const STREAMS: usize = 32;
/// Lines that are fetched ahead of a stream at the least, and from how many on it is no longer young.
const AHEAD_LINES: u64 = 12;
/// Of these, those that come into the first level.
const NEAREST_LINES: u64 = 2;
/// Lines that came one behind the other before there is a stream.
const LEAST_SEEN: u64 = 2;
const PAGE_LINES: u64 = PAGE_BYTES / LINE_BYTES;

/// Lines of one page that may come one behind the other.
#[derive(Clone, Copy)]
struct Stream {
    page: u64,
    /// The latest line, and how far behind the one before it lies.
    last: u64,
    step: i64,
    /// Lines that came so.
    seen: u64,
    /// Lines that were fetched ahead of the latest.
    ahead: u64,
}

/// What is fetched ahead of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ahead {
    line: u64,
    step: i64,
    /// Lines ahead that were fetched before, and those that are wanted.
    before: u64,
    wanted: u64,
    /// The first line of the next page, where the stream ends before it.
    pub next_page: Option<u64>,
}

impl Ahead {
    /// Lines that are wanted, and whether in the first level.
    pub fn lines(self) -> impl Iterator<Item = (u64, bool)> {
        let near = 1..=NEAREST_LINES.min(self.wanted);
        let far = self.before.max(NEAREST_LINES) + 1..=self.wanted;
        let line = move |nth: u64| self.line.wrapping_add_signed(self.step * nth.cast_signed());
        near.map(move |nth| (line(nth), true)).chain(far.map(move |nth| (line(nth), false)))
    }
}

/// The streams that are followed.
pub(super) struct Streams {
    streams: Vec<Stream>,
    /// The one that gives way to a new one.
    oldest: usize,
    most_ahead_lines: u64,
}

impl Streams {
    /// Of a core that reaches so many lines ahead.
    pub fn new(most_ahead_lines: u64) -> Self {
        let none = Stream { page: EMPTY, last: EMPTY, step: 0, seen: 0, ahead: 0 };
        Self { streams: vec![none; STREAMS], oldest: 0, most_ahead_lines }
    }

    /// A line was used that leads a stream on, or may begin one.
    pub fn follow(&mut self, line: u64) -> Option<Ahead> {
        let page = page_of(line);
        let goes_on = |stream: &Stream| {
            stream.step != 0 && stream.last.wrapping_add_signed(stream.step) == line
        };
        let found = self.streams.iter().position(|stream| stream.page == page);
        let Some(found) = found.or_else(|| self.streams.iter().position(goes_on)) else {
            self.streams[self.oldest] = Stream { page, last: line, step: 0, seen: 0, ahead: 0 };
            self.oldest = (self.oldest + 1) % STREAMS;
            return None;
        };
        let stream = &mut self.streams[found];
        let step = line.wrapping_sub(stream.last).cast_signed();
        if step == 0 {
            return None;
        }
        let is_stream = [0, step].contains(&stream.step) && (1..=2).contains(&step.abs());
        let seen = if is_stream { stream.seen + 1 } else { 0 };
        let is_followed = seen >= LEAST_SEEN;
        let before = if is_followed { stream.ahead.saturating_sub(1) } else { 0 };
        let reach = seen.min(self.most_ahead_lines).max(AHEAD_LINES);
        let left = match step > 0 {
            true => PAGE_LINES - 1 - line % PAGE_LINES,
            false => line % PAGE_LINES,
        };
        let in_page = left / step.unsigned_abs();
        let ends = seen < AHEAD_LINES && reach > in_page;
        let wanted = if ends { in_page } else { reach };
        let ahead = if is_followed { wanted.max(before) } else { 0 };
        *stream = Stream { page, last: line, step, seen, ahead };
        let first_of_next = line.wrapping_add_signed(step * (in_page + 1).cast_signed());
        let next_page = (ends && step.abs() == 1).then_some(first_of_next);
        is_followed.then_some(Ahead { line, step, before, wanted, next_page })
    }
}

/// The page of a line.
pub(super) fn page_of(line: u64) -> u64 {
    line / PAGE_LINES
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is fetched when the last of these lines is used: near ones, far ones, the first of the next page.
    fn ahead(lines: impl IntoIterator<Item = u64>) -> Option<(Vec<u64>, Vec<u64>, Option<u64>)> {
        let mut streams = Streams::new(40);
        let last = lines.into_iter().map(|line| streams.follow(line)).last().flatten()?;
        let of = |near: bool| last.lines().filter(|it| it.1 == near).map(|it| it.0).collect();
        Some((of(true), of(false), last.next_page))
    }

    #[test]
    fn the_third_line_begins_a_stream_and_each_one_behind_it_brings_one_more() {
        assert_eq!(ahead([0, 1]), None);
        assert_eq!(ahead([0, 1, 2]), Some((vec![3, 4], (5..=14).collect(), None)));
        assert_eq!(ahead([0, 1, 2, 3]), Some((vec![4, 5], vec![15], None)));
        assert_eq!(ahead([63, 62, 61]), Some((vec![60, 59], (49..59).rev().collect(), None)));
        assert_eq!(ahead([0, 2, 4]).unwrap().0, [6, 8]);
        for no_stream in [&[0, 1, 3][..], &[0, 3, 6], &[5, 6, 6], &[0, 1, 2, 4]] {
            assert_eq!(ahead(no_stream.iter().copied()), None, "{no_stream:?}");
        }
    }

    #[test]
    fn a_young_stream_ends_with_its_page_and_one_of_twelve_lines_does_not() {
        let (near, far, next) = ahead([59, 60, 61]).unwrap();
        assert_eq!((near, far, next), (vec![62, 63], vec![], Some(64)));
        assert_eq!(ahead([2, 1, 0].map(|n| n + 64)), Some((vec![], vec![], Some(63))));
        // The first of the next page leads it on, with all that was not fetched.
        let (near, far, _) = ahead(59..=64).unwrap();
        assert_eq!((near, far), (vec![65, 66], (67..=76).collect()));
        assert_eq!(ahead(50..=62).unwrap(), (vec![63, 64], (65..=74).collect(), None));
    }

    #[test]
    fn an_old_stream_reaches_as_far_as_it_is_long_up_to_what_hides_the_latency() {
        let reach = |lines: u64| ahead(0..=lines).unwrap().1.last().copied().unwrap_or(0) - lines;
        assert_eq!([12, 20, 40, 41, 200].map(reach), [12, 20, 40, 40, 40]);
        assert_eq!(ahead(0..=20).unwrap().1, [39, 40]);
    }

    #[test]
    fn streams_in_several_pages_are_followed_at_once() {
        let mut streams = Streams::new(40);
        let mut turn = |n: u64, pages: u64| {
            (0..pages).filter(|page| streams.follow(page * 1000 * PAGE_LINES + n).is_some()).count()
        };
        let found: Vec<usize> = (0..4).map(|n| turn(n, STREAMS as u64)).collect();
        assert_eq!(found, [0, 0, STREAMS, STREAMS]);
        let found: Vec<usize> = (10..14).map(|n| turn(n, STREAMS as u64 + 1)).collect();
        assert_eq!(found, [0; 4], "one more, and each has given way when it comes again");
    }
}
