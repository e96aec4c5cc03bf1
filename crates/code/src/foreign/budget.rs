//! How much memory one file may take, whatever it claims: its sections, its tables and everything
//! that is unpacked from it draw on the same account before any memory is asked for.

use std::cell::Cell;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// Compressed debug information is a third to a tenth of what it holds.
const TIMES_ITS_SIZE: u64 = 16;
/// What even the smallest file may take.
const LEAST_BYTES: u64 = 4 << 20;
/// More than this is taken for no file: large enough for the debug information of browsers.
const MOST_BYTES: u64 = 4 << 30;

/// What is left for one file.
#[derive(Debug)]
pub struct Budget(Cell<u64>);

impl Budget {
    /// For `size_bytes` that are really there.
    #[must_use]
    pub fn of(size_bytes: u64) -> Self {
        let bytes = size_bytes.saturating_mul(TIMES_ITS_SIZE).saturating_add(LEAST_BYTES);
        Self(Cell::new(bytes.min(MOST_BYTES)))
    }

    /// For a file: the holes of a sparse one do not count.
    #[must_use]
    pub fn of_file(meta: &Metadata) -> Self {
        Self::of(meta.len().min(meta.blocks().saturating_mul(512)))
    }

    /// Takes `size_bytes` from what is left; `None`, and nothing is taken, where it is less.
    pub fn spend(&self, size_bytes: u64) -> Option<()> {
        self.0.set(self.0.get().checked_sub(size_bytes)?);
        Some(())
    }

    /// How many bytes are left.
    #[must_use]
    pub fn left_bytes(&self) -> u64 {
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_claimed_is_refused_before_it_is_taken() {
        let budget = Budget::of(1000);
        assert_eq!(budget.spend(1 << 40), None);
        assert_eq!(budget.spend(LEAST_BYTES + 16_000), Some(()));
        assert_eq!((budget.spend(1), budget.left_bytes()), (None, 0));
        assert_eq!(Budget::of(u64::MAX).left_bytes(), MOST_BYTES);
    }

    #[test]
    fn holes_are_not_there() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 40).unwrap();
        assert!(Budget::of_file(&file.metadata().unwrap()).left_bytes() < 2 * LEAST_BYTES);
    }
}
