//! A window of a run, kept so that models can go over it again: as it was, and as it would have been
//! with functions elsewhere.
//!
//! Samples find lines that are hot; only a trace finds all that take a place in a set. Kept are the
//! blocks and the order in which they ran. A model that goes over a window twice has the second
//! time the lines that the operation before left behind: what a program that does the same
//! operation over and over sees.

use std::collections::BTreeMap;
use std::path::Path;

use crate::code::Image;
use crate::model::{Avma, FileOffset, Svma};
use crate::trace::engine::{Block, BlockId, Mapping, MemoryAccess, Recording, Sink};

use super::{Samples, function_index};

/// Runs of blocks of which the order is kept: 64 MiB.
const MOST_RUNS: usize = 1 << 24;

/// Takes the events of a window.
#[derive(Default)]
pub struct WindowLog {
    blocks: Vec<Block>,
    counts: Vec<u64>,
    order: Vec<u32>,
    runs: u64,
}

impl Sink for WindowLog {
    fn describe(&mut self, id: BlockId, block: &Block) {
        id.put(block.clone(), &mut self.blocks);
        self.counts.resize(self.blocks.len(), 0);
    }

    fn restart(&mut self) {
        *self = Self::default();
    }

    fn run(&mut self, id: BlockId, _accesses: &[MemoryAccess]) {
        let Some(count) = self.counts.get_mut(id.0 as usize) else { return };
        *count += 1;
        self.runs += 1;
        if self.order.len() < MOST_RUNS {
            self.order.push(id.0);
        }
    }
}

/// Where an instruction of a window stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowInsn {
    /// Address in the process.
    pub avma: Avma,
    /// In the program; `None` in a library or where no file is.
    pub svma: Option<Svma>,
    /// Length of the instruction, bytes.
    pub size_bytes: u8,
}

/// A window of one build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TracedWindow {
    /// What was followed, in words.
    pub source: String,
    /// How often the window's first instruction ran: whole operations when it starts at a function. For
    /// a function of Go that asks for stack first, how often it got behind that.
    pub operations: u64,
    /// Instructions of the whole window.
    pub instructions: u64,
    /// Whether all of the order is kept; else its beginning.
    pub is_whole: bool,
    /// What a reader must know.
    pub notes: Vec<String>,
    pub(super) blocks: Vec<Vec<WindowInsn>>,
    pub(super) counts: Vec<u64>,
    pub(super) order: Vec<u32>,
    pub(super) objects: Vec<Mapping>,
    /// The instruction that runs once per operation; absent means the first one of the window.
    entry: Option<Avma>,
}

/// How Go's functions begin: `cmp rsp, [r14+16]`, or `cmp r12, [r14+16]` with large frames. Where there
/// is too little stack, or the scheduler wants the thread, they are begun again from their start.
const STACK_CHECKS: [[u8; 4]; 2] = [[0x49, 0x3b, 0x66, 0x10], [0x4d, 0x3b, 0x66, 0x10]];

impl TracedWindow {
    /// Joins what was logged with the program that it is a window of.
    #[must_use]
    pub fn of(log: WindowLog, recording: &Recording, image: &Image, source: String) -> Self {
        let path = image.path().canonicalize().unwrap_or_else(|_| image.path().to_owned());
        let own: Vec<&Mapping> =
            recording.mappings.iter().filter(|m| is_program(&m.path, &path)).collect();
        let svma = |at: Avma| {
            let mapping = own.iter().find(|m| m.start <= at && at < m.end)?;
            let behind = at.distance_from(mapping.start)?;
            image.svma_of(FileOffset(mapping.file_offset.0.checked_add(behind)?))
        };
        let blocks: Vec<Vec<WindowInsn>> = log
            .blocks
            .iter()
            .map(|block| {
                let place = |insn: &crate::trace::engine::BlockInsn| WindowInsn {
                    avma: insn.address,
                    svma: svma(insn.address),
                    size_bytes: insn.size_bytes,
                };
                block.insns.iter().map(place).collect()
            })
            .collect();
        let mut window = Self {
            source,
            operations: 0,
            instructions: 0,
            is_whole: log.runs == log.order.len() as u64,
            notes: recording.notes.clone(),
            blocks,
            counts: log.counts,
            order: log.order,
            objects: recording.mappings.clone(),
            entry: None,
        };
        window.entry = window.behind_stack_check(image);
        window.count();
        window
    }

    fn count(&mut self) {
        for (block, count) in self.blocks.iter().zip(&self.counts) {
            self.instructions += count * block.len() as u64;
        }
        let starts = self.starts();
        let all = starts.iter().zip(&self.counts).map(|(starts, count)| starts * count);
        self.operations = all.sum::<u64>().max(1);
    }

    fn first_block(&self) -> Option<&Vec<WindowInsn>> {
        self.order.first().and_then(|id| self.blocks.get(*id as usize))
    }

    /// The instruction behind Go's stack check, if the window begins with one that was passed.
    fn behind_stack_check(&self, image: &Image) -> Option<Avma> {
        let block = self.first_block()?;
        let (first, last) = (block.first()?, block.last()?);
        let function = image.functions().get(function_index(image, first.svma?)?)?;
        let bytes = image.function_bytes(function);
        let code = |insn: &WindowInsn| {
            let from = usize::try_from(insn.svma?.distance_from(function.start)?).ok()?;
            bytes.get(from..from.checked_add(usize::from(insn.size_bytes))?)
        };
        block
            .iter()
            .filter_map(code)
            .find(|code| STACK_CHECKS.iter().any(|check| check == code))?;
        let behind = last.avma.offset(i64::from(last.size_bytes));
        self.ran().find(|insn| insn.avma == behind).map(|insn| insn.avma)
    }

    /// The instructions that ran, those of several blocks several times.
    pub(super) fn ran(&self) -> impl Iterator<Item = &WindowInsn> {
        let ran = self.blocks.iter().zip(&self.counts).filter(|(_, n)| **n > 0);
        ran.flat_map(|(block, _)| block)
    }

    /// How often each block begins an operation.
    fn starts(&self) -> Vec<u64> {
        let first = self.first_block().and_then(|block| block.first()).map(|insn| insn.avma);
        let first = self.entry.or(first);
        let starts = |block: &Vec<WindowInsn>| {
            block.iter().filter(|insn| Some(insn.avma) == first).count() as u64
        };
        self.blocks.iter().map(starts).collect()
    }

    /// Operations in the part of which the order is kept.
    pub(super) fn kept_operations(&self) -> u64 {
        let starts = self.starts();
        let kept = self.order.iter().filter_map(|id| starts.get(*id as usize));
        kept.sum::<u64>().max(1)
    }

    /// Whether it ran any code of the program that it was taken for.
    #[must_use]
    pub fn touches_program(&self) -> bool {
        self.blocks.iter().flatten().any(|insn| insn.svma.is_some())
    }

    /// Executions of every instruction of the program, and the misses of its lines.
    #[must_use]
    pub fn samples(&self, misses: Option<BTreeMap<Svma, u64>>) -> Samples {
        let mut hits: BTreeMap<Svma, u64> = BTreeMap::new();
        let mut outside = 0;
        for (block, count) in self.blocks.iter().zip(&self.counts).filter(|(_, n)| **n > 0) {
            for insn in block {
                match insn.svma {
                    Some(svma) => *hits.entry(svma).or_default() += count,
                    None => outside += count,
                }
            }
        }
        let mut notes = self.notes.clone();
        if outside > 0 {
            let share = 100.0 * outside as f64 / self.instructions.max(1) as f64;
            notes.push(format!(
                "{share:.1} % of the window's instructions are in libraries: their lines count \
                 among those of the window and are not in the table of sets"
            ));
        }
        Samples { source: self.source.clone(), hits, is_complete: true, misses, notes }
    }

    /// The file that is mapped at an address.
    pub(super) fn object(&self, at: Avma) -> Option<&Path> {
        let mapping = self.objects.iter().find(|m| m.start <= at && at < m.end)?;
        Some(&mapping.path)
    }
}

fn is_program(mapped: &Path, program: &Path) -> bool {
    mapped == program || mapped.canonicalize().is_ok_and(|path| path == program)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::code::fixture;
    use crate::trace::engine::{BlockInsn, Ended, SelfCheck};

    /// A window over blocks of the invented program: (first byte in it, instructions of 4 bytes).
    pub fn window(blocks: &[(u64, usize)], order: &[u32]) -> TracedWindow {
        let mut counts = vec![0; blocks.len()];
        order.iter().for_each(|id| counts[*id as usize] += 1);
        let insns = |(start, many): &(u64, usize)| {
            let at = |i: usize| fixture::CODE_START.0.0 + start + 4 * i as u64;
            let insn = |i| WindowInsn { avma: Avma(at(i)), svma: Some(Svma(at(i))), size_bytes: 4 };
            (0..*many).map(insn).collect()
        };
        let blocks = blocks.iter().map(insns).collect();
        let order = order.to_vec();
        let mut window =
            TracedWindow { blocks, counts, order, is_whole: true, ..TracedWindow::default() };
        window.count();
        window
    }

    #[test]
    fn executions_and_operations_are_counted() {
        let window = window(&[(0, 2), (64, 3)], &[0, 1, 1, 0, 1]);
        assert_eq!((window.operations, window.instructions), (2, 13));
        let samples = window.samples(None);
        assert_eq!(samples.hits.len(), 5);
        assert_eq!(samples.hits[&fixture::CODE_START.0.offset(68)], 3);
    }

    /// `cmp rsp, [r14+16]`, `jbe` to a call of morestack and back: begun twice, and one operation.
    #[test]
    fn a_go_function_that_is_begun_again_is_one_operation() {
        let code = [0x49, 0x3b, 0x66, 0x10, 0x76, 0x02, 0x90, 0xc3, 0x90, 0xeb, 0xf5];
        let of = |code: &[u8]| {
            let image = fixture::image(&[("f", code)]).unwrap();
            let start = image.functions()[0].start;
            let insn = |(at, size_bytes): &(i64, u8)| {
                let svma = start.offset(*at);
                WindowInsn { avma: Avma(svma.0), svma: Some(svma), size_bytes: *size_bytes }
            };
            let blocks: [&[(i64, u8)]; 3] =
                [&[(0, 4), (4, 2)], &[(8, 1), (9, 2)], &[(6, 1), (7, 1)]];
            let mut window = TracedWindow {
                blocks: blocks.iter().map(|b| b.iter().map(insn).collect()).collect(),
                counts: vec![2, 1, 1],
                order: vec![0, 1, 0, 2],
                ..TracedWindow::default()
            };
            window.entry = window.behind_stack_check(&image);
            window.count();
            (window.operations, window.kept_operations())
        };
        assert_eq!(of(&code), (1, 1));
        // Compared with something else: begun twice is two operations.
        let mut other = code;
        other[2] = 0x65;
        assert_eq!(of(&other), (2, 2));
    }

    #[test]
    fn a_window_is_joined_with_the_files_that_it_ran_in() {
        let image = fixture::image(&[("f", &[0x90; 64])]).unwrap();
        let (start, in_file) = fixture::CODE_START;
        // The program's code at 0x7000, a library behind it, and something that no file holds.
        let mapping = |from: u64, to: u64, path: &Path, file_offset| Mapping {
            start: Avma(from),
            end: Avma(to),
            path: path.to_owned(),
            file_offset,
        };
        let recording = Recording {
            engine: "invented",
            instructions: 0,
            wall_ns: 0,
            ended: Ended::Length,
            mappings: vec![
                mapping(0x7000, 0x7040, image.path(), in_file),
                mapping(0x8000, 0x9000, Path::new("/lib/libx.so"), FileOffset(0)),
            ],
            self_check: SelfCheck::NotCompared,
            notes: vec!["noted".into()],
            code: Vec::new(),
            exit: None,
        };
        let insn =
            |address| BlockInsn { address: Avma(address), size_bytes: 4, drains_stores: false };
        let mut log = WindowLog::default();
        log.describe(BlockId(0), &Block { insns: vec![insn(0x7000), insn(0x703c), insn(0x7040)] });
        log.describe(BlockId(1), &Block { insns: vec![insn(0x8000)] });
        log.run(BlockId(0), &[]);
        log.run(BlockId(1), &[]);
        let window = TracedWindow::of(log, &recording, &image, "here".into());
        let places: Vec<Option<Svma>> = window.blocks.iter().flatten().map(|i| i.svma).collect();
        assert_eq!(places, [Some(start), Some(start.offset(0x3c)), None, None]);
        assert!(window.is_whole && window.touches_program());
        assert_eq!((window.instructions, window.operations), (4, 1));
        // Half of what ran stands outside of the program.
        let samples = window.samples(None);
        assert_eq!((samples.hits.len(), samples.notes.len()), (2, 2));
        assert!(samples.notes[1].starts_with("50.0 % of"), "{:?}", samples.notes);
        let object = |at| window.object(Avma(at)).and_then(Path::file_name);
        assert_eq!([object(0x7fff), object(0x9000), object(0x6fff)], [None; 3]);
        assert_eq!(object(0x8000), Some("libx.so".as_ref()));
        assert_eq!(object(0x8fff), object(0x8000));
        let elsewhere =
            TracedWindow { blocks: window.blocks[1..].to_vec(), ..TracedWindow::default() };
        assert!(!elsewhere.touches_program());
    }

    #[test]
    fn a_program_is_known_by_its_path_or_where_that_leads() {
        let here = Path::new("/bin/true").canonicalize().unwrap();
        assert!(is_program(&here, &here) && is_program(Path::new("/bin/../bin/true"), &here));
        assert!(!is_program(Path::new("/bin/false"), &here));
        assert!(is_program(Path::new("gone"), Path::new("gone")));
    }

    #[test]
    fn a_restarted_log_is_empty() {
        let mut log = WindowLog::default();
        let insn = crate::trace::engine::BlockInsn {
            address: Avma(1),
            size_bytes: 1,
            drains_stores: false,
        };
        log.describe(BlockId(0), &Block { insns: vec![insn] });
        log.run(BlockId(0), &[]);
        log.run(BlockId(7), &[]);
        assert_eq!((log.runs, log.order.len()), (1, 1));
        log.restart();
        assert_eq!((log.runs, log.blocks.len()), (0, 0));
    }
}
