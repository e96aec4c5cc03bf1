//! A cache or TLB as sets of numbers: which are there, and since when.

use super::predictor::hash;
use super::program::PAGE_LINES;

/// Number of a line or a page; no address has the largest.
pub(super) const EMPTY: u64 = u64::MAX;

/// A line or a page that is there, or comes.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub number: u64,
    /// When it was used last.
    used: u32,
    pub is_written: bool,
    there_at: u64,
}

impl Entry {
    pub(super) const NONE: Self = Self { number: EMPTY, used: 0, is_written: false, there_at: 0 };
}

/// Sets of lines, the one not used for longest leaves first.
pub(super) struct Sets {
    entries: Vec<Entry>,
    sets: u64,
    /// The set of a number, modulo the sets.
    index: fn(u64) -> u64,
    ways: usize,
    now: u32,
}

impl Sets {
    pub(super) fn new(entries: u64, sets: u64) -> Self {
        let sets = sets.clamp(1, entries.max(1));
        let ways = (entries / sets).max(1) as usize;
        let entries = vec![Entry::NONE; sets as usize * ways];
        Self { entries, sets, index: |number| number, ways, now: 0 }
    }

    /// The same where another number than its own says which set something goes to.
    pub(super) fn indexed_by(self, index: fn(u64) -> u64) -> Self {
        Self { index, ..self }
    }

    fn row(&mut self, number: u64) -> &mut [Entry] {
        let first = ((self.index)(number) % self.sets) as usize * self.ways;
        &mut self.entries[first..first + self.ways]
    }

    fn use_now(&mut self, number: u64) -> Option<&mut Entry> {
        self.now += 1;
        let now = self.now;
        let entry = self.row(number).iter_mut().find(|entry| entry.number == number)?;
        entry.used = now;
        Some(entry)
    }

    /// When it is there, if it is or comes.
    pub(super) fn find(&mut self, number: u64) -> Option<u64> {
        self.use_now(number).map(|entry| entry.there_at)
    }

    /// Marks it as written to, if it is there.
    pub(super) fn write(&mut self, number: u64) {
        if let Some(entry) = self.use_now(number) {
            entry.is_written = true;
        }
    }

    /// Puts it in; what leaves for it.
    pub(super) fn insert(&mut self, number: u64, there_at: u64) -> Entry {
        self.now += 1;
        let new = Entry { number, used: self.now, is_written: false, there_at };
        match self.row(number).iter_mut().min_by_key(|e| (e.number != EMPTY, e.used)) {
            Some(entry) => std::mem::replace(entry, new),
            None => Entry::NONE,
        }
    }

    /// Takes it out, if it is there.
    pub(super) fn remove(&mut self, number: u64) {
        if let Some(entry) = self.row(number).iter_mut().find(|entry| entry.number == number) {
            *entry = Entry::NONE;
        }
    }

    /// Puts it in unless it is there; whether it was missing.
    pub(super) fn insert_missing(&mut self, number: u64, there_at: u64) -> bool {
        let is_missing = self.find(number).is_none();
        if is_missing {
            self.insert(number, there_at);
        }
        is_missing
    }
}

/// What the second TLB goes by: 512 pages fit that are any of up to 256 apart (measured on Redwood Cove; B. Gras and others,
/// "Translation Leak-aside Buffer", 2018, found two groups of 7 or 8 bits on other cores of Intel).
pub(super) fn second_tlb_index(page: u64) -> u64 {
    page ^ page >> 7 ^ page >> 14
}

/// What the second level goes by: the place in memory, of which the bits within a page are known, and the others are anything.
pub(super) fn second_level_index(line: u64) -> u64 {
    hash(line / PAGE_LINES).wrapping_mul(PAGE_LINES) | (line % PAGE_LINES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_not_used_for_longest_leaves_its_set() {
        // Two sets of two: even numbers and odd ones.
        let mut sets = Sets::new(4, 2);
        let put = |sets: &mut Sets, number, at| sets.insert(number, at).number;
        assert_eq!(
            [put(&mut sets, 0, 10), put(&mut sets, 2, 20), put(&mut sets, 1, 30)],
            [EMPTY; 3]
        );
        assert_eq!((sets.find(0), sets.find(3)), (Some(10), None));
        assert_eq!(put(&mut sets, 4, 40), 2);
        assert_eq!((sets.find(2), sets.find(1)), (None, Some(30)));
        // Being written to is a use, and leaves with the line.
        sets.write(0);
        sets.write(6);
        let left = sets.insert(6, 50);
        assert_eq!((left.number, left.is_written), (4, false));
        let left = sets.insert(8, 60);
        assert_eq!((left.number, left.is_written), (0, true));
        // What was taken out leaves room for the next one.
        sets.remove(6);
        sets.remove(99);
        assert_eq!(put(&mut sets, 10, 70), EMPTY);
        assert_eq!((sets.find(6), sets.find(8)), (None, Some(60)));
    }

    #[test]
    fn what_is_there_is_not_put_in_again() {
        let mut sets = Sets::new(4, 2);
        assert!(sets.insert_missing(12, 9) && !sets.insert_missing(12, 99));
        assert_eq!(sets.find(12), Some(9));
    }

    #[test]
    fn a_cache_has_one_entry_at_the_least_and_no_more_sets_than_entries() {
        let mut least = Sets::new(0, 0);
        assert_eq!([least.insert(5, 0).number, least.insert(6, 0).number], [EMPTY, 5]);
        let mut narrow = Sets::new(4, 8);
        assert_eq!(
            [0, 1, 2, 3, 4].map(|n| narrow.insert(n, 0).number),
            [EMPTY, EMPTY, EMPTY, EMPTY, 0]
        );
        // By another number than their own, neighbours share a set.
        let mut pairs = Sets::new(4, 2).indexed_by(|number| number / 2);
        assert_eq!([0, 1, 4].map(|n| pairs.insert(n, 0).number), [EMPTY, EMPTY, 0]);
    }
}
