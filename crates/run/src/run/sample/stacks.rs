//! Call stacks of a share of the samples. In a moment the registers and the top of the stack are copied; the program runs on, and
//! the copy is unwound by the tables of the files that are mapped, or by frame pointers where these have no entry.
//!
//! A stack that does not lead to where its thread started says so: the copy was too short, or a function without an entry has
//! used rbp for something else. What was found up to there is kept, nothing is made up. Functions without entry and without a frame
//! of their own hide their caller; such stacks are counted.

use std::hash::Hash;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use super::space::{AddressSpace, ObjectId, Tally};
use crate::code::{Registers, Scratch, Step, UnwindTables, step_by_frame_pointer};
use crate::model::{Avma, FileOffset};
use crate::run::generated::GeneratedCode;
use crate::run::maps;

/// Time between two stacks of a thread, where samples come more often.
pub(super) const STACK_PERIOD_NS: u64 = 1_000_000;
/// What is copied of a stack.
pub(super) const STACK_BYTES: usize = 16 << 10;
/// Deeper stacks are cut off at their start.
const MOST_FRAMES: usize = 128;
/// Frames of all different stacks of a run, at 16 bytes each.
const MOST_HELD_FRAMES: usize = 1 << 20;
/// No kernel's own page of code has more.
const MOST_VDSO_BYTES: u64 = 1 << 20;

/// A thread in a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its registers.
    pub registers: Registers,
    /// Its stack from the stack pointer upwards, as much as was copied.
    pub stack: Vec<u8>,
}

/// A place in a stack: the instruction that was about to be executed, and in callers a byte of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame {
    /// Which of [`Stacks::files`]; absent for code that no file holds.
    pub file: Option<u32>,
    /// Where in the file; without one, the address.
    pub at: FileOffset,
}

/// One call stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallStack {
    /// From the outermost function that was found to the one that was executed.
    pub frames: Vec<Frame>,
    /// Whether the first of them is where the thread started.
    pub is_whole: bool,
}

/// The call stacks of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    /// Time between two stacks of one thread, in nanoseconds.
    pub period_ns: u64,
    /// The files in which the frames are.
    pub files: Vec<PathBuf>,
    /// Which of them is the program that was launched.
    pub main_program: Option<u32>,
    /// How often each was seen.
    pub counts: FxHashMap<CallStack, u64>,
    /// All that were taken.
    pub taken: u64,
    /// Of these, without their start.
    pub cut_off: u64,
    /// Of these, in part by frame pointers: what calls a function without a frame of its own is left out there.
    pub by_frame_pointers: u64,
    /// Of these, not in `counts`, because there were too many different ones.
    pub left_out: u64,
    /// Names of code that no file holds, by its addresses in the stacks.
    pub generated: FxHashMap<FileOffset, String>,
}

/// Unwinds what was copied of threads, and counts the stacks.
pub(super) struct Unwinder {
    tables: FxHashMap<ObjectId, Option<UnwindTables>>,
    scratch: Scratch,
    held_frames: usize,
    stacks: Stacks,
}

impl Unwinder {
    pub fn new(period_ns: u64) -> Self {
        Self {
            tables: FxHashMap::default(),
            scratch: Scratch::default(),
            held_frames: 0,
            stacks: Stacks { period_ns, ..Stacks::default() },
        }
    }

    /// Unwinds one and counts it. `tally` knows the files of the thread's `space`.
    pub fn add(&mut self, snapshot: &Snapshot, space: &AddressSpace, tally: &Tally) {
        let (stack, by_frame_pointers) = self.unwind(snapshot, space, tally);
        self.stacks.taken += 1;
        self.stacks.cut_off += u64::from(!stack.is_whole);
        self.stacks.by_frame_pointers += u64::from(by_frame_pointers);
        self.count(stack);
    }

    /// Unwinds one, and says whether frame pointers had a part in that.
    pub fn unwind(
        &mut self,
        snapshot: &Snapshot,
        space: &AddressSpace,
        tally: &Tally,
    ) -> (CallStack, bool) {
        let mut by_frame_pointers = false;
        let stack = unwound(snapshot, space, |object, offset, registers, memory| {
            let tables = object.and_then(|id| {
                let tables = self.tables.entry(id);
                tables.or_insert_with(|| tally.path(id).and_then(read_tables)).as_ref()
            });
            let found = tables.and_then(|tables| Some((tables, tables.svma_of(offset)?)));
            let step = found.map_or(Step::NoEntry, |(tables, at)| {
                tables.step(at, registers, memory, &mut self.scratch)
            });
            if step != Step::NoEntry {
                return step;
            }
            by_frame_pointers = true;
            step_by_frame_pointer(registers, memory)
        });
        (stack, by_frame_pointers)
    }

    fn count(&mut self, stack: CallStack) {
        if let Some(count) = self.stacks.counts.get_mut(&stack) {
            *count += 1;
        } else if self.held_frames + stack.frames.len() > MOST_HELD_FRAMES {
            self.stacks.left_out += 1;
        } else {
            self.held_frames += stack.frames.len();
            self.stacks.counts.insert(stack, 1);
        }
    }

    pub fn into_stacks(
        self,
        tally: &Tally,
        main_program: Option<&Path>,
        code: &GeneratedCode,
    ) -> Stacks {
        let (files, main_program) = tally.files(main_program);
        let frames = self.stacks.counts.keys().flat_map(|stack| &stack.frames);
        let without_file = frames.filter(|frame| frame.file.is_none());
        let generated = without_file
            .filter_map(|frame| Some((frame.at, code.name(Avma(frame.at.0))?.to_owned())));
        Stacks { files, main_program, generated: generated.collect(), ..self.stacks }
    }
}

/// Follows a stack outwards, by what `step` says of each place in it.
fn unwound(
    snapshot: &Snapshot,
    space: &AddressSpace,
    mut step: impl FnMut(Option<ObjectId>, FileOffset, &Registers, &dyn Fn(u64) -> Option<u64>) -> Step,
) -> CallStack {
    let bottom = snapshot.registers.stack();
    let memory = |at: u64| {
        let skip = usize::try_from(at.checked_sub(bottom)?).ok()?;
        let word = snapshot.stack.get(skip..skip.checked_add(8)?)?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    };
    let mut frames = Vec::new();
    let mut registers = snapshot.registers;
    let mut has_called = false;
    let is_whole = loop {
        if has_called && registers.instruction() == 0 {
            break true;
        }
        // What a call returns to can be in the next function, if the called one never returns.
        let at = Avma(registers.instruction().wrapping_sub(u64::from(has_called)));
        let place = space.locate(at);
        let (object, offset) = match place {
            Some(place) => place,
            None if frames.is_empty() => (None, FileOffset(at.0)),
            None => break false,
        };
        if frames.len() == MOST_FRAMES {
            break false;
        }
        frames.push(Frame { file: object.map(ObjectId::index), at: offset });
        match place.map_or(Step::Broken, |_| step(object, offset, &registers, &memory)) {
            Step::Caller { registers: of_caller, is_interrupted } => {
                (registers, has_called) = (of_caller, !is_interrupted);
            }
            Step::Start => break true,
            Step::NoEntry | Step::Broken => break false,
        }
    };
    frames.reverse();
    CallStack { frames, is_whole }
}

fn read_tables(path: &Path) -> Option<UnwindTables> {
    match path == Path::new("[vdso]") {
        // The kernel maps the same page into us.
        true => UnwindTables::parse(path, vdso()?).ok(),
        false => UnwindTables::open(path).ok(),
    }
}

fn vdso() -> Option<Vec<u8>> {
    use std::os::unix::fs::FileExt;

    let lines = maps::read("self").ok()?;
    let line = lines.into_iter().find(|line| line.mapping.path == Path::new("[vdso]"))?;
    let mut bytes = vec![0; line.mapping.bytes().min(MOST_VDSO_BYTES) as usize];
    let memory = std::fs::File::open("/proc/self/mem").ok()?;
    memory.read_exact_at(&mut bytes, line.mapping.start.0).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A file with code at 0x1000 to 0x2000, which is the only one.
    fn space() -> (AddressSpace, Tally) {
        let (mut space, mut tally) = (AddressSpace::default(), Tally::default());
        let (offset, file) = tally.object(Path::new("/a"), Avma(0x1000), FileOffset(0x400));
        space.map(Avma(0x1000), 0x1000, offset, file);
        (space, tally)
    }

    fn registers(ip: u64, sp: u64) -> Registers {
        let mut registers = Registers::default();
        (registers.0[7], registers.0[16]) = (sp, ip);
        registers
    }

    fn snapshot(words: &[u64]) -> Snapshot {
        let stack = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Snapshot { registers: registers(0x1010, 0x7000), stack }
    }

    /// Functions that keep nothing on the stack but where they return to; 0x1800 is where threads start.
    fn plain(
        _: Option<ObjectId>,
        _: FileOffset,
        r: &Registers,
        memory: &dyn Fn(u64) -> Option<u64>,
    ) -> Step {
        let returns = memory(r.stack()).map(|to| registers(to, r.stack() + 8));
        match (r.instruction(), returns) {
            (0x1800.., _) => Step::Start,
            (_, None) => Step::Broken,
            (_, Some(registers)) => Step::Caller { registers, is_interrupted: false },
        }
    }

    fn places(stack: &CallStack) -> Vec<u64> {
        stack.frames.iter().map(|frame| frame.at.0).collect()
    }

    #[test]
    fn a_stack_is_followed_to_its_start_and_names_calls_and_not_what_is_behind_them() {
        let stack = unwound(&snapshot(&[0x1100, 0x1810]), &space().0, plain);
        assert_eq!((places(&stack), stack.is_whole), (vec![0xc0f, 0x4ff, 0x410], true));
        assert!(stack.frames.iter().all(|frame| frame.file == Some(0)));
    }

    #[test]
    fn what_leads_nowhere_is_cut_off_and_kept_up_to_there() {
        let cut = |words: &[u64]| {
            let stack = unwound(&snapshot(words), &space().0, plain);
            (places(&stack), stack.is_whole)
        };
        assert_eq!(cut(&[0x1100]), (vec![0x4ff, 0x410], false), "the copy ends");
        assert_eq!(cut(&[0x1100, 0x9000]), (vec![0x4ff, 0x410], false), "no code is there");
        assert_eq!(cut(&[0]), (vec![0x410], true), "nothing to return to");
        let endless = vec![0x1100; 4 * MOST_FRAMES];
        assert_eq!((cut(&endless).0.len(), cut(&endless).1), (MOST_FRAMES, false));
        let mut elsewhere = snapshot(&[0x1100]);
        elsewhere.registers = registers(0x5_0000, 0x7000);
        let stack = unwound(&elsewhere, &space().0, plain);
        assert_eq!(stack.frames, [Frame { file: None, at: FileOffset(0x5_0000) }]);
    }

    #[test]
    fn stacks_are_counted_with_what_is_missing_from_them() {
        let ((space, tally), mut unwinder) = (space(), Unwinder::new(1_000_000));
        // The file cannot be read, so that frame pointers lead: rbp is 0, where a thread starts.
        (0..3).for_each(|_| unwinder.add(&snapshot(&[]), &space, &tally));
        let mut astray = snapshot(&[]);
        astray.registers.0[6] = 0x7001;
        unwinder.add(&astray, &space, &tally);
        let code = GeneratedCode::default();
        let stacks = unwinder.into_stacks(&tally, Some(Path::new("/a")), &code);
        assert_eq!((stacks.taken, stacks.cut_off, stacks.by_frame_pointers), (4, 1, 4));
        assert_eq!((stacks.files.len(), stacks.main_program), (1, Some(0)));
        let mut counts: Vec<u64> = stacks.counts.values().copied().collect();
        counts.sort_unstable();
        assert_eq!(counts, [1, 3]);
    }

    #[test]
    fn memory_for_different_stacks_has_a_limit() {
        let mut unwinder = Unwinder::new(1);
        let frame = |at| Frame { file: None, at: FileOffset(at) };
        let deep = |n| CallStack { frames: vec![frame(n); MOST_HELD_FRAMES / 4], is_whole: false };
        (0..6).for_each(|n| unwinder.count(deep(n)));
        unwinder.count(deep(0));
        let code = GeneratedCode::default();
        let stacks = unwinder.into_stacks(&Tally::default(), None, &code);
        assert_eq!((stacks.counts.len(), stacks.left_out), (4, 2));
        assert_eq!(stacks.counts[&deep(0)], 2);
    }

    proptest! {
        #[test]
        fn any_stack_has_an_end(words in prop::collection::vec(prop_oneof![0x1000_u64..0x2000, any::<u64>()], 0..300)) {
            let ((space, tally), mut unwinder) = (space(), Unwinder::new(1));
            let mut snapshot = snapshot(&words);
            snapshot.registers.0[6] = 0x7000;
            unwinder.add(&snapshot, &space, &tally);
            let stack = unwound(&snapshot, &space, plain);
            prop_assert!((1..=MOST_FRAMES).contains(&stack.frames.len()));
        }
    }
}
