//! What one whole run executes: instructions, what `rep` instructions move, calls and system calls, place by place.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::Place;
use super::heat::sum_between;
use crate::code::{Flow, Image, Insn, LONGEST_INSN_BYTES, x86};
use crate::compare::{Arm, library_name};
use crate::foreign;
use crate::model::{FileOffset, Svma};
use crate::sim::jumps::BlockCounts;
use crate::trace::engine::{
    AccessKind, Block, BlockId, Ended, Mapping, MemoryAccess, Recording, SelfCheck, Sink,
};

/// How much of something there was, by place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByPlace {
    /// In the program's own file, by the place of the first instruction of a block.
    pub program: Vec<(FileOffset, u64)>,
    /// In other files, by what [`library_name`] calls them.
    pub objects: HashMap<String, u64>,
}

impl ByPlace {
    /// Adds `count` at a place of an object, or of the program.
    fn add(&mut self, object: Option<&String>, at: FileOffset, count: u64) {
        match object {
            _ if count == 0 => {}
            None => self.program.push((at, count)),
            Some(name) => *self.objects.entry(name.clone()).or_default() += count,
        }
    }
}

/// What one whole run executed in user code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkCount {
    /// Instructions; a `rep` counts once.
    pub instructions: u64,
    /// Bytes that `rep` instructions stored, or read where they store nothing.
    pub string_bytes: u64,
    /// Instructions that call a function.
    pub calls: u64,
    /// Instructions that call the kernel.
    pub system_calls: u64,
    /// Where the instructions are.
    pub executed: ByPlace,
    /// Where the bytes of `rep` instructions are.
    pub moved: ByPlace,
}

/// Counts how often each block of a run is executed, and what its `rep` instructions move.
#[derive(Default)]
pub(super) struct RunCounter {
    blocks: BlockCounts,
    /// Of blocks that have such instructions.
    string_bytes: HashMap<BlockId, u64>,
}

impl Sink for RunCounter {
    fn describe(&mut self, id: BlockId, block: &Block) {
        self.blocks.describe(id, block);
    }

    fn restart(&mut self) {
        *self = Self::default();
    }

    fn runs(&mut self, id: BlockId, times: u64) {
        self.blocks.runs(id, times);
    }

    fn run(&mut self, id: BlockId, accesses: &[MemoryAccess]) {
        self.blocks.run(id, accesses);
        for access in accesses {
            // A copy reads as much as it stores.
            let stores =
                |other: &MemoryAccess| other.insn == access.insn && other.kind == AccessKind::Store;
            if stores(access) || !accesses.iter().any(stores) {
                *self.string_bytes.entry(id).or_default() += u64::from(access.size_bytes);
            }
        }
    }
}

/// Where one run of an arm had something.
pub(super) struct InRun<'a> {
    by_svma: BTreeMap<Svma, u64>,
    objects: &'a HashMap<String, u64>,
}

impl<'a> InRun<'a> {
    pub(super) fn of(counted: &'a ByPlace, image: &Image) -> Self {
        let mut by_svma = BTreeMap::new();
        for (at, count) in &counted.program {
            if let Some(svma) = image.svma_of(*at) {
                *by_svma.entry(svma).or_insert(0) += count;
            }
        }
        Self { by_svma, objects: &counted.objects }
    }

    pub(super) fn in_place(&self, arm: Arm, place: &Place) -> u64 {
        match place {
            Place::Function { .. } => {
                let function = place.function(arm);
                function.map_or(0, |f| sum_between(&self.by_svma, f.start, f.end()))
            }
            Place::Object { name, .. } => {
                self.objects.get(&library_name(Path::new(name))).copied().unwrap_or(0)
            }
        }
    }
}

/// What a recording of a whole run says, or why it is none; `program` is the program's own file.
pub(super) fn of_run(
    counter: &RunCounter,
    program: &Path,
    recording: &Recording,
) -> Result<WorkCount, String> {
    let is_whole = match recording.ended {
        Ended::Exit => !matches!(recording.self_check, SelfCheck::Differs(_)),
        // The original was ended by the same signal.
        Ended::Signal(_) => matches!(recording.self_check, SelfCheck::Equal(_)),
        Ended::Length | Ended::Short | Ended::Exec => false,
    };
    if !is_whole {
        let says_why = |note: &&String| note.starts_with("the window ends early");
        let why = recording.notes.iter().find(says_why).or(recording.notes.first());
        let why = why.map_or("it ended otherwise", String::as_str);
        return Err(format!("the run was not followed to its end: {why}"));
    }
    let mut work = WorkCount { instructions: recording.instructions, ..WorkCount::default() };
    let mut files: HashMap<&Path, Option<std::fs::File>> = HashMap::new();
    for (id, block, runs) in counter.blocks.executed() {
        let string_bytes = counter.string_bytes.get(&id).copied().unwrap_or(0);
        work.string_bytes += string_bytes;
        let Some((first, last)) = block.insns.first().zip(block.insns.last()) else { continue };
        let Some((mapping, start)) = Mapping::find(&recording.mappings, first.address) else {
            continue;
        };
        let instructions = runs * block.insns.len() as u64;
        let object = (mapping.path != program).then(|| library_name(&mapping.path));
        work.moved.add(object.as_ref(), start, string_bytes);
        work.executed.add(object.as_ref(), start, instructions);
        // Calls of both kinds end their blocks.
        let open = || foreign::open(&mapping.path).ok();
        let file = files.entry(&mapping.path).or_insert_with(open).as_ref();
        let mut bytes = [0; LONGEST_INSN_BYTES];
        let bytes = &mut bytes[..usize::from(last.size_bytes).min(LONGEST_INSN_BYTES)];
        let read = file
            .zip(mapping.offset_of(last.address))
            .is_some_and(|(file, at)| file.read_exact_at(bytes, at.0).is_ok());
        match x86::decode(bytes, Svma(0)).first() {
            _ if !read => {}
            _ if *bytes == SYSCALL => work.system_calls += runs,
            Some(Insn { flow: Flow::Call, .. }) => work.calls += runs,
            _ => {}
        }
    }
    Ok(work)
}

const SYSCALL: [u8; 2] = [0x0f, 0x05];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Avma;

    #[test]
    fn a_copy_counts_once_and_a_search_does_too() {
        let access =
            |insn, kind, size_bytes| MemoryAccess { insn, kind, size_bytes, address: Avma(0) };
        let (load, store) = (AccessKind::Load, AccessKind::Store);
        let mut counter = RunCounter::default();
        counter.describe(BlockId(1), &Block::default());
        counter
            .run(BlockId(1), &[access(0, load, 4096), access(0, store, 4096), access(2, load, 64)]);
        counter.run(BlockId(1), &[]);
        let counted: Vec<_> = counter.blocks.executed().collect();
        assert_eq!(counted, [(BlockId(1), &Block::default(), 2)]);
        assert_eq!(counter.string_bytes, HashMap::from([(BlockId(1), 4160)]));
        counter.restart();
        assert!(counter.blocks.executed().next().is_none() && counter.string_bytes.is_empty());
    }
}
