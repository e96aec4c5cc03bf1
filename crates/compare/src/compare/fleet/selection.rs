//! Numbers of blocks, as they are typed and handed out.

use std::fmt;
use std::str::FromStr;

use super::files::FleetError;
use crate::compare::sweep::MOST_BLOCKS;

/// Some blocks, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection(Vec<u32>);

impl Selection {
    /// These blocks.
    #[must_use]
    pub fn of(mut blocks: Vec<u32>) -> Self {
        blocks.sort_unstable();
        blocks.dedup();
        Self(blocks)
    }

    /// Their numbers.
    #[must_use]
    pub fn blocks(&self) -> &[u32] {
        &self.0
    }

    /// At most `most` parts with blocks that follow each other, as equal as may be.
    #[must_use]
    pub fn parts(&self, most: usize) -> Vec<Self> {
        let each = self.0.len().div_ceil(most.max(1)).max(1);
        self.0.chunks(each).map(|part| Self(part.to_vec())).collect()
    }

    /// Those that `taker` of `count` takers gets by their numbers, whatever others there are.
    #[must_use]
    pub fn every(&self, count: usize, taker: usize) -> Self {
        let is_own = |block: &u32| *block as usize % count.max(1) == taker;
        Self(self.0.iter().copied().filter(is_own).collect())
    }

    /// One part for each of `count` takers, by turns.
    #[must_use]
    pub fn dealt(&self, count: usize) -> Vec<Self> {
        let taken = |first| self.0.iter().skip(first).step_by(count.max(1)).copied().collect();
        (0..count.min(self.0.len())).map(|first| Self(taken(first))).collect()
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for run in self.0.chunk_by(|a, b| a + 1 == *b) {
            match run {
                [one] => write!(f, "{comma}{one}")?,
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                [] => {}
            }
            comma = ",";
        }
        Ok(())
    }
}

impl FromStr for Selection {
    type Err = FleetError;

    fn from_str(text: &str) -> Result<Self, FleetError> {
        let wrong = || FleetError::Selection(text.into());
        let number = |word: &str| word.trim().parse::<u32>().map_err(|_| wrong());
        let mut blocks = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last >= MOST_BLOCKS {
                return Err(wrong());
            }
            blocks.extend(first..=last);
        }
        Ok(Self::of(blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_of_blocks_are_read_as_they_are_written() {
        let of = |text: &str| text.parse::<Selection>().unwrap();
        assert_eq!(of("3,0-2,7").blocks(), [0, 1, 2, 3, 7]);
        assert_eq!(of("7,3,1,2,2").to_string(), "1-3,7");
        for wrong in ["", "x", "3-1", "1-", "-1", "0-99999999"] {
            assert!(wrong.parse::<Selection>().is_err(), "{wrong}");
        }
        let words =
            |parts: Vec<Selection>| parts.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(words(of("0-9").parts(4)), ["0-2", "3-5", "6-8", "9"]);
        assert_eq!(words(of("0-4").dealt(2)), ["0,2,4", "1,3"]);
        assert_eq!(words(of("0-1").dealt(4)), ["0", "1"]);
        assert_eq!(words([0, 1].map(|taker| of("1,4-6").every(2, taker)).into()), ["4,6", "1,5"]);
    }
}
