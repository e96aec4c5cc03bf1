//! What one whole run executes: instructions, what `rep` instructions move, calls and system calls, accesses to memory,
//! place by place.

use std::collections::{BTreeMap, HashMap};
use std::ops::AddAssign;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Place;
use crate::code::{Flow, Image, x86};
use crate::compare::{Arm, library_name};
use crate::foreign;
use crate::model::{Avma, FileOffset, Svma};
use crate::run::generated::GeneratedCode;
use crate::run::maps;
use crate::sim::jumps::BlockCounts;
use crate::trace::engine::{
    AccessKind, Block, BlockId, BlockInsn, Ended, Mapping, MemoryAccess, Recording, SelfCheck, Sink,
};

/// Longer runs are not followed, in nanoseconds of processor time: each takes its time some times over.
const LONGEST_RUN_NS: f64 = 10e9;
/// A run that is followed may take so many times as long, and so much more for the code that it translates. It takes
/// two to three times as long, and some 35 microseconds for each call of the kernel.
pub(super) const MOST_TIMES_AS_LONG: f64 = 5.0;
const SPARE: Duration = Duration::from_secs(15);

/// What one run executed at a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Executed {
    /// Instructions; a `rep` counts once.
    pub instructions: u64,
    /// Bytes that `rep` instructions stored, or read where they store nothing.
    pub string_bytes: u64,
    /// How often its first instruction was: of a function, its calls.
    pub entries: u64,
    /// Instructions that call a function.
    #[serde(default)]
    pub calls: u64,
    /// Operands in memory that are loaded or stored, of other instructions than `rep`.
    pub accesses: u64,
    /// The bytes of these operands.
    pub accessed_bytes: u64,
}

/// What is executed in one go takes its time by itself from so many instructions on: the widest reorder windows hold 600.
const BY_ITSELF: u64 = 10_000;

impl Executed {
    /// Whether a place is entered and left so rarely that what happens elsewhere costs it nothing, and what happens in it
    /// costs others nothing.
    pub(super) fn is_by_itself(&self) -> bool {
        let visits = self.entries.saturating_add(self.calls);
        self.entries > 0 && self.instructions / BY_ITSELF >= visits
    }
}

impl AddAssign for Executed {
    fn add_assign(&mut self, other: Self) {
        let Self { instructions, string_bytes, entries, calls, accesses, accessed_bytes } = other;
        self.instructions += instructions;
        self.string_bytes += string_bytes;
        self.entries += entries;
        self.calls += calls;
        self.accesses += accesses;
        self.accessed_bytes += accessed_bytes;
    }
}

/// What there was, by place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByPlace {
    /// In the program's own file, by the place of the first instruction of a block.
    pub program: Vec<(FileOffset, Executed)>,
    /// In other files, by what [`library_name`] calls them.
    pub objects: HashMap<String, Executed>,
    /// Instructions of the program's own file that call, and how often.
    pub calls: Vec<(FileOffset, u64)>,
    /// Every instruction of the program's own file, and how often; in parts, where several blocks hold it.
    pub insns: Vec<(FileOffset, u64)>,
    /// The same of other files.
    pub object_insns: Arc<HashMap<String, BTreeMap<FileOffset, u64>>>,
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
    /// Where that is.
    pub executed: ByPlace,
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

/// How often a whole run executes each instruction.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct InsnCounts {
    /// Of the program's own file.
    pub program: Arc<BTreeMap<Svma, u64>>,
    /// Of other files, by what [`library_name`] calls them.
    pub objects: Arc<HashMap<String, BTreeMap<FileOffset, u64>>>,
}

/// What one run of an arm executed, by place in its image.
pub(super) struct InRun<'a> {
    by_svma: BTreeMap<Svma, Executed>,
    objects: &'a HashMap<String, Executed>,
    insns: InsnCounts,
}

impl<'a> InRun<'a> {
    pub(super) fn of(counted: &'a ByPlace, image: &Image) -> Self {
        let mut by_svma: BTreeMap<Svma, Executed> = BTreeMap::new();
        for (at, executed) in &counted.program {
            if let Some(svma) = image.svma_of(*at) {
                *by_svma.entry(svma).or_default() += *executed;
            }
        }
        let mut insns: BTreeMap<Svma, u64> = BTreeMap::new();
        for (at, times) in &counted.insns {
            if let Some(svma) = image.svma_of(*at) {
                *insns.entry(svma).or_default() += times;
            }
        }
        let insns =
            InsnCounts { program: insns.into(), objects: Arc::clone(&counted.object_insns) };
        Self { by_svma, objects: &counted.objects, insns }
    }

    /// How often each instruction was executed.
    pub(super) fn insns(&self) -> InsnCounts {
        self.insns.clone()
    }

    pub(super) fn in_place(&self, arm: Arm, place: &Place) -> Executed {
        match place {
            Place::Function { .. } => place.function(arm).map_or_else(Executed::default, |f| {
                let mut all = Executed::default();
                self.by_svma.range(f.start..f.end()).for_each(|(_, block)| all += *block);
                let entry = self.by_svma.get(&f.start);
                Executed { entries: entry.map_or(0, |block| block.entries), ..all }
            }),
            Place::Object { .. } => {
                let all = self.objects.get(&place.object_name()).copied();
                // What is called there is not known.
                Executed { entries: 0, ..all.unwrap_or_default() }
            }
        }
    }
}

/// How long following a whole run may take that takes so long by itself, or why it is not tried.
pub(super) fn budget(processor_ns: f64) -> Result<Duration, String> {
    if processor_ns > LONGEST_RUN_NS {
        return Err(format!(
            "a run takes {:.1} s on the processor, and only up to {:.1} s can be followed whole: give it less \
             work",
            processor_ns / 1e9,
            LONGEST_RUN_NS / 1e9
        ));
    }
    Ok(SPARE + Duration::from_secs_f64(MOST_TIMES_AS_LONG * processor_ns / 1e9))
}

/// What a recording of a whole run says, or why it is none; `program` is the program's own file.
pub(super) fn of_run(
    counter: &RunCounter,
    program: &Path,
    recording: &Recording,
    code: &GeneratedCode,
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
    let mut object_insns: HashMap<String, BTreeMap<FileOffset, u64>> = HashMap::new();
    let mut work = WorkCount { instructions: recording.instructions, ..WorkCount::default() };
    let mut files: HashMap<&Path, Option<std::fs::File>> = HashMap::new();
    for (id, block, runs) in counter.blocks.executed() {
        let string_bytes = counter.string_bytes.get(&id).copied().unwrap_or(0);
        work.string_bytes += string_bytes;
        let Some((first, last)) = block.insns.first().zip(block.insns.last()) else { continue };
        let Some((mapping, start)) = Mapping::find(&recording.mappings, first.address) else {
            let instructions = runs * block.insns.len() as u64;
            *work
                .executed
                .objects
                .entry(object_name(Path::new(""), code, first.address))
                .or_default() += Executed { instructions, string_bytes, ..Executed::default() };
            continue;
        };
        let open = || foreign::open(&mapping.path).ok();
        let file = files.entry(&mapping.path).or_insert_with(open).as_ref();
        let size_bytes = (last.address.0 - first.address.0) as usize + usize::from(last.size_bytes);
        let mut bytes = vec![0; size_bytes.min(LONGEST_BLOCK_BYTES)];
        let read = file.is_some_and(|file| file.read_exact_at(&mut bytes, start.0).is_ok());
        let insns = if read { x86::decode(&bytes, Svma(0)) } else { Vec::new() };
        // Calls of both kinds end their blocks.
        let last = insns.last().filter(|_| !bytes.ends_with(&SYSCALL));
        let call = last.filter(|insn| insn.flow == Flow::Call);
        let calls = call.map_or(0, |_| runs);
        work.calls += calls;
        if bytes.ends_with(&SYSCALL) {
            work.system_calls += runs;
        }
        if let Some(call) = call.filter(|_| mapping.path == program) {
            work.executed.calls.push((FileOffset(start.0 + call.svma.0), runs));
        }
        let accesses = || insns.iter().flat_map(|insn| [insn.load, insn.store]).flatten();
        let executed = Executed {
            instructions: runs * block.insns.len() as u64,
            string_bytes,
            entries: runs,
            calls,
            accesses: runs * accesses().count() as u64,
            accessed_bytes: runs * accesses().map(|it| u64::from(it.size_bytes)).sum::<u64>(),
        };
        let at = |insn: &BlockInsn| start.0 + (insn.address.0 - first.address.0);
        let insns = block.insns.iter().map(|insn| (FileOffset(at(insn)), runs));
        match mapping.path == program {
            true => {
                work.executed.program.push((start, executed));
                work.executed.insns.extend(insns);
            }
            false => {
                let name = object_name(&mapping.path, code, first.address);
                let counts = object_insns.entry(name.clone()).or_default();
                insns.for_each(|(at, runs)| *counts.entry(at).or_default() += runs);
                *work.executed.objects.entry(name).or_default() += executed;
            }
        }
    }
    work.executed.object_insns = object_insns.into();
    Ok(work)
}

/// By what the instructions of an object are kept: the file's name, or that of the function that was made there at run time.
pub(super) fn object_name(path: &Path, code: &GeneratedCode, at: Avma) -> String {
    match maps::has_code(path) {
        true => library_name(path),
        false => code.name(at).map_or_else(|| library_name(Path::new("")), str::to_owned),
    }
}

const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Bytes of code of a block that are decoded: engines end theirs long before.
const LONGEST_BLOCK_BYTES: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

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
