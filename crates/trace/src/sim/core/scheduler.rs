//! Operations that were dispatched and have not started: there is room for so many, and what follows waits for one of
//! them to start, also what could start itself. A chain of misses that each keep some operations waiting is cut there
//! long before the window of reordering ends.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The entries of one kind of operations.
pub(super) struct Scheduler {
    entries: usize,
    /// When those start that have not.
    starts: BinaryHeap<Reverse<u64>>,
}

impl Scheduler {
    pub(super) fn new(entries: u32) -> Self {
        let entries = entries.max(1) as usize;
        Self { entries, starts: BinaryHeap::with_capacity(entries + 1) }
    }

    /// From when on there is room for another one that is dispatched at `cycle` or later.
    pub(super) fn room_at(&mut self, cycle: u64) -> u64 {
        while self.starts.peek().is_some_and(|Reverse(start)| *start <= cycle) {
            self.starts.pop();
        }
        match self.starts.peek() {
            Some(Reverse(first)) if self.starts.len() >= self.entries => *first,
            _ => cycle,
        }
    }

    /// An operation takes an entry until it starts.
    pub(super) fn enter(&mut self, start: u64) {
        self.starts.push(Reverse(start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_waits_for_the_first_that_starts() {
        let mut scheduler = Scheduler::new(2);
        scheduler.enter(30);
        assert_eq!(scheduler.room_at(5), 5);
        scheduler.enter(20);
        assert_eq!(scheduler.room_at(5), 20, "the first to start, not the first that came");
        assert_eq!(scheduler.room_at(20), 20);
        scheduler.enter(40);
        assert_eq!(scheduler.room_at(20), 30);
    }
}
