//! From the words of the log back to events.
//!
//! A record is a block's number and the words that [`super::operands`] asked for. What all its runs
//! have in common is kept ready, so that a run costs one addition per access and one call. Where only
//! counts are wanted, most blocks have a counter instead of records.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::block::Source;
use super::operands::{Memory, Operand, Segment};
use super::region::Region;
use super::translation::{Borrowed, Shape};
use crate::model::Avma;
use crate::trace::engine::{AccessKind, Block, BlockId, BlockInsn, MemoryAccess, Sink};

/// No number yet: the block has not run.
const UNDESCRIBED: u32 = u32::MAX;

/// What reading the log needs to know of a block, small because there are many.
#[derive(Clone, Copy)]
struct Hot {
    /// The number that the sink knows it by.
    number: u32,
    /// Its first access among all.
    first: u32,
    accesses: u16,
    /// Words behind the number in the log.
    words: u16,
    insns: u16,
    /// Whether sizes differ from run to run.
    variable: bool,
    /// How often it has run.
    runs: u64,
}

/// Which words an access comes from.
#[derive(Clone, Copy)]
struct Origin {
    /// Its address, or where its pointer was before.
    word: u16,
    /// Where its pointer was afterwards; 0 for an access of fixed size.
    after: u16,
    /// Where its mask is; 0 without one.
    mask: u16,
    segment: Segment,
    element_bytes: u32,
}

/// What is needed of a block when something happens in the middle of it.
struct Cold {
    insns: Vec<BlockInsn>,
    shape: Shape,
    code: Range<u32>,
}

/// An instruction of the program in the code cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CachedInsn {
    /// The number of the block in the code cache.
    pub(super) id: u32,
    /// Where the block is in the program.
    pub(super) block: u64,
    /// Where its translation starts in the code cache.
    pub(super) start: u32,
    /// Words of one record of it.
    pub(super) record_words: u32,
    /// How often the block has run, by the records read so far.
    pub(super) runs: u64,
    /// Which of its instructions; `None` between them.
    pub(super) insn: Option<u32>,
    /// Where it is in the program.
    pub(super) address: u64,
    /// The registers that the block borrows.
    pub(super) borrowed: Borrowed,
}

/// All blocks in the code cache.
#[derive(Default)]
pub(super) struct Blocks {
    hot: Vec<Hot>,
    cold: Vec<Cold>,
    accesses: Vec<MemoryAccess>,
    origins: Vec<Origin>,
    described: u32,
    /// Is added to addresses that are told to the sink: which program of a run they are in.
    image: u64,
    /// The numbers of single instructions that ran outside the code cache and touched nothing: system calls, most of them.
    singles: FxHashMap<BlockInsn, BlockId>,
    /// Bases of the segments, in the order of [`Segment`].
    pub(super) bases: [u64; 3],
    scratch: Vec<MemoryAccess>,
}

/// The log holds something that no translation wrote: the program wrote into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damaged;

impl Blocks {
    /// The number of the next block.
    pub(super) fn next_id(&self) -> u32 {
        self.hot.len() as u32
    }

    /// Blocks of a program whose addresses are told with `image` added.
    pub(super) fn of_image(image: u64) -> Self {
        Self { image, ..Self::default() }
    }

    /// What is added to addresses that are told.
    pub(super) fn image(&self) -> u64 {
        self.image
    }

    fn told(&self, insns: &[BlockInsn]) -> Block {
        let told =
            |insn: &BlockInsn| BlockInsn { address: Avma(insn.address.0 + self.image), ..*insn };
        Block { insns: insns.iter().map(told).collect() }
    }

    /// Takes over from another code cache which numbers are taken.
    pub(super) fn go_on_from(&mut self, other: &Self) {
        self.described = other.described;
    }

    /// Drops the blocks of an emptied code cache. Numbers given to the sink stay taken.
    pub(super) fn forget_code(&mut self) {
        self.hot.clear();
        self.cold.clear();
        self.accesses.clear();
        self.origins.clear();
        self.singles.clear();
    }

    /// Enters a translated block.
    pub(super) fn add(&mut self, source: &Source, shape: Shape, code: Range<u32>) {
        let first = self.accesses.len();
        let mut words = 0_u16;
        let mut variable = false;
        for (insn, memory) in (0..).zip(&source.memory) {
            variable |= match memory {
                Memory::Repeated(_) => true,
                Memory::Plain(operands) => operands.iter().any(|o| o.mask.is_some()),
                Memory::Unpredictable => false,
            };
            self.add_accesses(insn, memory, &mut words);
        }
        self.hot.push(Hot {
            number: UNDESCRIBED,
            first: first as u32,
            accesses: (self.accesses.len() - first) as u16,
            words,
            insns: source.insns.len() as u16,
            variable,
            runs: 0,
        });
        let insns = source.insns.iter().map(BlockInsn::from).collect();
        self.cold.push(Cold { insns, shape, code });
    }

    fn add_accesses(&mut self, insn: u32, memory: &Memory, words: &mut u16) {
        let mut add = |kind, size_bytes, origin| {
            self.accesses.push(MemoryAccess { insn, kind, size_bytes, address: Avma(0) });
            self.origins.push(origin);
        };
        match memory {
            Memory::Plain(operands) => {
                let first = *words;
                // All loads, then all stores.
                use AccessKind::{Load, Prefetch, Store, Value};
                for kind in [Load, Store, Prefetch, Value] {
                    let mut word = first;
                    for operand in operands {
                        if operand.kinds.contains(&kind) {
                            let origin = Origin {
                                word,
                                after: 0,
                                mask: operand.mask.map_or(0, |_| word + 1),
                                segment: operand.segment,
                                element_bytes: operand.mask.map_or(0, |m| m.element_bytes),
                            };
                            add(kind, operand.size_bytes, origin);
                        }
                        word += operand.words();
                    }
                }
                *words += operands.iter().map(Operand::words).sum::<u16>();
            }
            Memory::Repeated(repeats) => {
                let count = repeats.len() as u16;
                for (word, repeat) in (*words..).zip(repeats) {
                    let origin = Origin {
                        word,
                        after: word + count,
                        mask: 0,
                        segment: repeat.segment,
                        element_bytes: repeat.element_bytes,
                    };
                    add(repeat.kind, 0, origin);
                }
                *words += 2 * count;
            }
            Memory::Unpredictable => {}
        }
    }

    /// Tells the sink all runs in `log`; hands back how many instructions they were.
    pub(super) fn drain(&mut self, log: &[u64], sink: &mut dyn Sink) -> Result<u64, Damaged> {
        let mut instructions = 0;
        let mut rest = log;
        while let Some((&id, behind)) = rest.split_first() {
            let hot = self.hot.get_mut(id as usize).ok_or(Damaged)?;
            hot.runs += 1;
            let hot = *hot;
            let number = match hot.number {
                UNDESCRIBED => self.describe(id as usize, sink),
                known => known,
            };
            let (record, behind) =
                behind.split_at_checked(usize::from(hot.words)).ok_or(Damaged)?;
            rest = behind;
            instructions += u64::from(hot.insns);
            let range = hot.first as usize..hot.first as usize + usize::from(hot.accesses);
            if hot.variable {
                self.fill_variable(range, record, hot.insns.into());
                sink.run(BlockId(number), &self.scratch);
                continue;
            }
            let accesses = &mut self.accesses[range.clone()];
            for (access, origin) in accesses.iter_mut().zip(&self.origins[range]) {
                let base = self.bases[origin.segment as usize];
                access.address = Avma(record[usize::from(origin.word)].wrapping_add(base));
            }
            sink.run(BlockId(number), accesses);
        }
        Ok(instructions)
    }

    /// Tells the sink of the runs that were only counted; hands back how many instructions they were.
    pub(super) fn collect(&mut self, region: &mut Region, sink: &mut dyn Sink) -> u64 {
        let mut instructions = 0;
        for id in 0..self.next_id() {
            let runs = region.counter(id);
            if runs == 0 {
                continue;
            }
            region.set_counter(id, 0);
            let hot = &mut self.hot[id as usize];
            hot.runs += runs;
            instructions += runs * u64::from(hot.insns);
            let number = match hot.number {
                UNDESCRIBED => self.describe(id as usize, sink),
                known => known,
            };
            sink.runs(BlockId(number), runs);
        }
        instructions
    }

    /// Tells the sink of a run that ended before instruction `insns` of the block; `record` is what it has
    /// written so far. Hands back how many instructions it was.
    pub(super) fn drain_partly(
        &mut self,
        id: u32,
        record: &[u64],
        insns: u32,
        sink: &mut dyn Sink,
    ) -> Result<u64, Damaged> {
        let hot = *self.hot.get(id as usize).ok_or(Damaged)?;
        if insns == 0 {
            return Ok(0);
        }
        let words = record.get(1..).unwrap_or_default();
        let range = hot.first as usize..hot.first as usize + usize::from(hot.accesses);
        // What ran not to its end has written no words; what is there is old and not looked at.
        let mut padded = words.to_vec();
        padded.resize(usize::from(hot.words), 0);
        self.fill_variable(range, &padded, insns);
        let whole = &self.cold[id as usize].insns;
        let block = Block { insns: whole[..(insns as usize).min(whole.len())].to_vec() };
        let accesses = std::mem::take(&mut self.scratch);
        self.single(&block, &accesses, sink);
        self.scratch = accesses;
        Ok(block.insns.len() as u64)
    }

    /// Tells the sink of a block that ran once outside the code cache.
    pub(super) fn single(&mut self, block: &Block, accesses: &[MemoryAccess], sink: &mut dyn Sink) {
        let single = match block.insns[..] {
            [insn] if accesses.is_empty() => Some(insn),
            _ => None,
        };
        let known = single.and_then(|insn| self.singles.get(&insn).copied());
        let number = known.unwrap_or_else(|| {
            let number = BlockId(self.described);
            self.described += 1;
            sink.describe(number, &self.told(&block.insns));
            self.singles.extend(single.map(|insn| (insn, number)));
            number
        });
        sink.run(number, accesses);
    }

    /// Puts the accesses of the first `insns` instructions into the scratch list.
    fn fill_variable(&mut self, range: Range<usize>, record: &[u64], insns: u32) {
        self.scratch.clear();
        for (access, origin) in self.accesses[range.clone()].iter().zip(&self.origins[range]) {
            if access.insn >= insns {
                break;
            }
            let base = self.bases[origin.segment as usize];
            let start = record[usize::from(origin.word)];
            let mut access = *access;
            access.address = Avma(start.wrapping_add(base));
            if origin.after > 0 {
                let distance = record[usize::from(origin.after)].wrapping_sub(start) as i64;
                if distance == 0 {
                    continue;
                }
                access.size_bytes = u32::try_from(distance.unsigned_abs()).unwrap_or(u32::MAX);
                if distance < 0 {
                    // Downwards: the first element was the highest.
                    let lowest = distance + i64::from(origin.element_bytes);
                    access.address = access.address.offset(lowest);
                }
            }
            if origin.mask > 0 {
                let elements = (access.size_bytes / origin.element_bytes.max(1)).clamp(1, 64);
                let active = record[usize::from(origin.mask)] & (u64::MAX >> (64 - elements));
                if active == 0 {
                    continue;
                }
                let (first, behind) = (active.trailing_zeros(), 64 - active.leading_zeros());
                access.address = access.address.offset((first * origin.element_bytes).into());
                access.size_bytes = (behind - first) * origin.element_bytes;
            }
            self.scratch.push(access);
        }
    }

    /// How often whole runs of the blocks in the code cache executed the instruction there.
    pub(super) fn executions(&self, address: u64) -> u64 {
        let holds = |cold: &Cold| cold.insns.iter().any(|i| i.address.0 == address);
        self.hot.iter().zip(&self.cold).filter(|(_, c)| holds(c)).map(|(h, _)| h.runs).sum()
    }

    /// The last instruction of each block that ran.
    pub(super) fn last_insns(&self) -> impl Iterator<Item = BlockInsn> + '_ {
        let ran = self.hot.iter().zip(&self.cold).filter(|(hot, _)| hot.runs > 0);
        ran.filter_map(|(_, cold)| cold.insns.last().copied())
    }

    fn describe(&mut self, id: usize, sink: &mut dyn Sink) -> u32 {
        let number = self.described;
        self.described += 1;
        self.hot[id].number = number;
        sink.describe(BlockId(number), &self.told(&self.cold[id].insns));
        number
    }

    /// What of the program is at this offset of the code cache.
    pub(super) fn place(&self, offset: u32) -> Option<CachedInsn> {
        let id = self.cold.partition_point(|c| c.code.start <= offset).checked_sub(1)?;
        let cold = self.cold.get(id).filter(|c| offset < c.code.end)?;
        let behind = cold.shape.points.partition_point(|p| *p <= offset);
        let exact = behind.checked_sub(1).filter(|k| cold.shape.points[*k] == offset);
        let insn = exact.or(behind.checked_sub(1)).unwrap_or(0);
        Some(CachedInsn {
            id: id as u32,
            block: cold.insns.first().map_or(0, |i| i.address.0),
            start: cold.code.start,
            record_words: 1 + u32::from(self.hot.get(id).map_or(0, |h| h.words)),
            runs: self.hot.get(id).map_or(0, |h| h.runs),
            insn: exact.map(|k| k as u32),
            address: cold.insns.get(insn).map_or(0, |i| i.address.0),
            borrowed: cold.shape.borrowed,
        })
    }
}
