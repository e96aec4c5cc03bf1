//! The words of the ring as records, and translated blocks as instructions.

use super::pieces::Piece;
use super::shape::{End, Known};
use crate::code::Architecture;
use crate::model::Avma;
use crate::trace::engine::{AccessKind, Block, BlockId, BlockInsn};

const WORDS_EACH: usize = 3;
/// Words behind the announcement of the start.
const WORDS_OF_START: usize = 3;
/// Bits of an address.
const ADDRESS: u64 = (1 << 48) - 1;

/// An instruction as the plugin describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Described {
    pub address: Avma,
    pub bytes: Vec<u8>,
}

/// What one word, or the last of several, tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// It goes on in the next word.
    More,
    /// Memory was touched.
    Piece(Piece),
    /// This block begins.
    Run(u32),
    /// In the block that runs, the instruction with this index begins.
    Reached(u32),
    /// A block that runs next for the first time.
    Describe { number: u32, insns: Vec<Described> },
    /// The window starts at an instruction of the block that runs; the return address of its
    /// function, and where that is.
    Started { code: u32, from: usize, slot: u64, back: Avma },
}

/// Puts words together.
#[derive(Default)]
pub(super) struct Parser {
    words: Vec<u64>,
    wanted: usize,
}

impl Parser {
    pub(super) fn take(&mut self, word: u64) -> Record {
        if self.wanted > 0 {
            self.words.push(word);
            if self.words.len() < self.wanted {
                return Record::More;
            }
            self.wanted = 0;
            return self.whole();
        }
        match (word >> 62, word >> 56 & 0x3f) {
            (0, _) => Record::Piece(Piece {
                insn: (word >> 52 & 0x1ff) as u32,
                kind: if word >> 51 & 1 == 1 { AccessKind::Store } else { AccessKind::Load },
                size_bytes: 1 << (word >> 48 & 7),
                address: word & ADDRESS,
            }),
            (1, _) => Record::Run(word as u32),
            (2, _) => self.begin(word, WORDS_EACH * (word >> 32 & 0xffff) as usize),
            (_, 1) => self.begin(word, WORDS_OF_START),
            _ => Record::Reached((word & 0x1ff) as u32),
        }
    }

    fn begin(&mut self, word: u64, behind: usize) -> Record {
        self.words.clear();
        self.words.push(word);
        self.wanted = 1 + behind;
        Record::More
    }

    fn whole(&self) -> Record {
        let first = self.words[0];
        if first >> 62 == 3 {
            let [_, place, slot, back] = self.words[..] else { return Record::More };
            let (code, from) = (place as u32, (place >> 32) as usize);
            return Record::Started { code, from, slot, back: Avma(back) };
        }
        let insns = self.words[1..].chunks_exact(WORDS_EACH).map(|words| {
            let size = (words[0] >> 48) as usize;
            let bytes = words[1..].iter().flat_map(|w| w.to_le_bytes()).take(size);
            Described { address: Avma(words[0] & ADDRESS), bytes: bytes.collect() }
        });
        Record::Describe { number: first as u32, insns: insns.collect() }
    }
}

pub(super) struct Code {
    /// Its instructions.
    pub block: Block,
    /// What is known of each.
    pub known: Vec<Known>,
    bytes: Vec<u8>,
    /// Its number, once it has been told whole.
    pub id: Option<BlockId>,
    /// Whether a `rep` is among the instructions.
    pub repeats: bool,
    /// How many of them load under a mask.
    pub masked_loads: u64,
    /// Index of the last instruction that cannot be executed without touching memory, or -1.
    pub last_certain: i64,
    /// Index of the last instruction but the very last that may fault quietly, or -1.
    pub last_division: i64,
    /// How many instructions are executed when nothing faults.
    pub executable: usize,
}

impl Code {
    /// Of described instructions.
    pub(super) fn new(architecture: Architecture, insns: &[Described]) -> Self {
        let known: Vec<Known> =
            insns.iter().map(|i| Known::of(architecture, &i.bytes, i.address)).collect();
        let last = |which: &dyn Fn(usize, &Known) -> bool| {
            let found = known.iter().enumerate().rev().find(|(index, k)| which(*index, k));
            found.map_or(-1, |(index, _)| index as i64)
        };
        let faults = known.last().is_some_and(|k| k.end == End::Fault);
        Self {
            block: Block {
                insns: std::iter::zip(insns, &known)
                    .map(|(i, known)| BlockInsn {
                        address: i.address,
                        size_bytes: i.bytes.len() as u8,
                        drains_stores: known.drains_stores,
                    })
                    .collect(),
            },
            bytes: insns.iter().flat_map(|i| i.bytes.iter().copied()).collect(),
            id: None,
            repeats: known.iter().any(Known::repeats),
            masked_loads: known.iter().filter(|k| k.loads_under_mask()).count() as u64,
            last_certain: last(&|_, k| k.certain),
            last_division: last(&|index, k| k.divides && index + 1 < known.len()),
            executable: known.len() - usize::from(faults),
            known,
        }
    }

    pub(super) fn len(&self) -> i64 {
        self.known.len() as i64
    }

    /// The address behind the last instruction.
    pub(super) fn behind(&self) -> Avma {
        self.block.insns.last().map_or(Avma(0), |i| i.address.offset(i64::from(i.size_bytes)))
    }

    /// Whether an instruction but the first is at `start`.
    pub(super) fn starts_behind_first(&self, start: Avma) -> bool {
        self.block.insns.iter().skip(1).any(|i| i.address == start)
    }

    /// Whether its end is known to lead there.
    pub(super) fn leads_to(&self, next: Avma) -> bool {
        match self.known.last().map(|k| k.end) {
            Some(End::Known(target)) => next == self.behind() || target == Some(next),
            _ => false,
        }
    }

    /// Some of its instructions, and their bytes.
    pub(super) fn part(&self, from: usize, end: usize) -> (Block, Vec<u8>) {
        let size = |insns: &[BlockInsn]| insns.iter().map(|i| usize::from(i.size_bytes)).sum();
        let before: usize = size(&self.block.insns[..from]);
        let inside: usize = size(&self.block.insns[from..end]);
        let insns = self.block.insns[from..end].to_vec();
        (Block { insns }, self.bytes[before..before + inside].to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were_written() {
        let mut parser = Parser::default();
        let piece = 0x7fff_1234_5678 | 3 << 48 | 1 << 51 | 7 << 52;
        let expected =
            Piece { insn: 7, kind: AccessKind::Store, size_bytes: 8, address: 0x7fff_1234_5678 };
        assert_eq!(parser.take(piece), Record::Piece(expected));
        assert_eq!(parser.take(1 << 62 | 9), Record::Run(9));
        assert_eq!(parser.take(3 << 62 | 2 << 56 | 4), Record::Reached(4));
        let described = [2 << 62 | 1 << 32 | 5, 0x1000 | 2 << 48, 0x1234, 0];
        let told = described.map(|word| parser.take(word));
        let insns = vec![Described { address: Avma(0x1000), bytes: vec![0x34, 0x12] }];
        assert_eq!(told[..3], [const { Record::More }; 3]);
        assert_eq!(told[3], Record::Describe { number: 5, insns });
        let told = [3 << 62 | 1 << 56, 2 << 32 | 5, 64, 96].map(|word| parser.take(word));
        assert_eq!(told[3], Record::Started { code: 5, from: 2, slot: 64, back: Avma(96) });
    }
}
