//! A cache or TLB as sets of numbers: which are there, and since when.

/// Number of a line or a page; no address has the largest.
pub(super) const EMPTY: u64 = u64::MAX;

/// Sets of lines, the one not used for longest leaves first.
pub(super) struct Sets {
    /// Number, when it was used last, when it is there.
    entries: Vec<(u64, u32, u64)>,
    sets: u64,
    ways: usize,
    now: u32,
}

impl Sets {
    pub(super) fn new(entries: u64, sets: u64) -> Self {
        let sets = sets.clamp(1, entries.max(1));
        let ways = (entries / sets).max(1) as usize;
        let entries = vec![(EMPTY, 0, 0); sets as usize * ways];
        Self { entries, sets, ways, now: 0 }
    }

    fn row(&mut self, number: u64) -> &mut [(u64, u32, u64)] {
        let first = (number % self.sets) as usize * self.ways;
        &mut self.entries[first..first + self.ways]
    }

    /// When it is there, if it is or comes.
    pub(super) fn find(&mut self, number: u64) -> Option<u64> {
        self.now += 1;
        let now = self.now;
        let entry = self.row(number).iter_mut().find(|entry| entry.0 == number)?;
        entry.1 = now;
        Some(entry.2)
    }

    /// Puts it in; what leaves for it, or [`EMPTY`].
    pub(super) fn insert(&mut self, number: u64, there_at: u64) -> u64 {
        self.now += 1;
        let now = self.now;
        match self.row(number).iter_mut().min_by_key(|e| (e.0 != EMPTY, e.1)) {
            Some(entry) => std::mem::replace(entry, (number, now, there_at)).0,
            None => EMPTY,
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
