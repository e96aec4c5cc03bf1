//! From the registers in one function to those in its caller, by the unwind tables (`.eh_frame`) of a program for x86-64, or by
//! frame pointers where a function has no entry.
//!
//! The tables are foreign: an entry that makes no sense ends the stack, and nothing is guessed. Compilers write an entry for every
//! function unless they are told not to; some assembly has none, nor has Go, which keeps frame pointers.

use std::path::Path;
use std::sync::Arc;

use gimli::{BaseAddresses, CfaRule, EhFrame, EvaluationResult, Register, RegisterRule};
use gimli::{UnwindExpression, UnwindSection};
use object::{Object, ObjectSection};
use rustc_hash::FxHashMap;

use super::arch::Architecture;
use super::error::CodeError;
use super::image::{self, Segment};
use super::parts::Parts;
use crate::model::{FileOffset, Svma};

/// The address that a function returns to, among the registers of DWARF.
const RETURN: usize = 16;
const STACK_POINTER: usize = 7;
const FRAME_POINTER: usize = 6;
/// No entry of a compiler is longer: its program is executed for each step.
const MOST_ENTRY_BYTES: usize = 16 << 10;
/// No expression of a compiler has as many steps.
const MOST_STEPS: u32 = 100;
const ENCODING: gimli::Encoding =
    gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };

type Bytes<'d> = gimli::EndianSlice<'d, gimli::LittleEndian>;

/// General registers as DWARF numbers them on x86-64 (rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15), and the instruction
/// pointer behind them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers(pub [u64; RETURN + 1]);

impl Registers {
    /// The next instruction; in a caller, the one behind the call.
    #[must_use]
    pub fn instruction(&self) -> u64 {
        self.0[RETURN]
    }

    /// The address of what lies on top of the stack.
    #[must_use]
    pub fn stack(&self) -> u64 {
        self.0[STACK_POINTER]
    }

    fn get(&self, register: Register) -> Option<u64> {
        self.0.get(usize::from(register.0)).copied()
    }
}

/// What the tables say of a place in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It was called, and the caller's registers are these; those that a callee may change are not restored.
    Caller {
        /// The caller's registers.
        registers: Registers,
        /// Whether the kernel called it, to handle a signal: then the caller executes its instruction next, and has called nothing.
        is_interrupted: bool,
    },
    /// Nothing called it: a thread starts here.
    Start,
    /// No entry covers it.
    NoEntry,
    /// What the entry says makes no sense, or it needs memory that is not at hand.
    Broken,
}

/// The unwind tables of one file.
#[derive(Debug)]
pub struct UnwindTables {
    segments: Vec<Segment>,
    frames: Arc<[u8]>,
    bases: BaseAddresses,
    /// By address, without overlaps: first byte, one behind the last, the entry's place in the table.
    entries: Vec<(Svma, Svma, usize)>,
}

impl UnwindTables {
    /// Reads the tables of a program or library; one without any has none that covers an address.
    ///
    /// # Errors
    /// See [`CodeError`]: missing, unreadable, no program, damaged, for another processor than x86-64.
    pub fn open(path: &Path) -> Result<Self, CodeError> {
        let parts = Parts::open(path).map_err(|e| CodeError::from_io(path, e))?;
        Self::of(path, &parts)
    }

    /// As [`Self::open`], of a file that is already in memory; `path` is for messages.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn parse(path: &Path, data: Vec<u8>) -> Result<Self, CodeError> {
        Self::of(path, &Parts::of_bytes(data))
    }

    fn of(path: &Path, parts: &Parts) -> Result<Self, CodeError> {
        image::check_header(path, parts)?;
        let file = object::File::parse(parts).map_err(|e| CodeError::damaged(path, e))?;
        let architecture = image::check_architecture(path, &file)?;
        if architecture != Architecture::X86_64 {
            return Err(CodeError::Empty { path: path.into(), what: "unwind tables of x86-64" });
        }
        let address = |name| file.section_by_name(name).map_or(0, |section| section.address());
        let section = file.section_by_name(".eh_frame");
        let range = section.as_ref().and_then(ObjectSection::file_range);
        let frames = match range {
            // In the index, an entry takes about twice its bytes at the most.
            Some((offset, size)) => parts
                .budget()
                .spend(size.saturating_mul(2))
                .and_then(|()| parts.share(offset, size))
                .ok_or_else(|| CodeError::damaged(path, "its unwind tables cannot be read"))?,
            None => Arc::from([]),
        };
        let bases = BaseAddresses::default()
            .set_eh_frame(section.map_or(0, |section| section.address()))
            .set_text(address(".text"))
            .set_got(address(".got"));
        Ok(Self::index(image::segments(&file), frames, bases))
    }

    fn index(segments: Vec<Segment>, frames: Arc<[u8]>, bases: BaseAddresses) -> Self {
        let mut entries = Vec::new();
        each_entry(&section_of(&frames), &bases, &mut |start, size_bytes, at| {
            // An end that wraps is none.
            let end = start.0.checked_add(size_bytes).filter(|end| *end > start.0);
            entries.extend(end.map(|end| (start, Svma(end), at)));
        });
        entries.sort_unstable();
        entries.dedup_by(|later, kept| later.0 < kept.1);
        Self { segments, frames, bases, entries }
    }

    /// The stated address of a position in the file, if it is mapped.
    #[must_use]
    pub fn svma_of(&self, offset: FileOffset) -> Option<Svma> {
        image::svma_of(&self.segments, offset)
    }

    /// The step from a function to its caller: `at` is the instruction that it executes or, in a caller, a byte of the call.
    /// `memory` reads 8 bytes of the stack.
    #[must_use]
    pub fn step(
        &self,
        at: Svma,
        registers: &Registers,
        memory: &dyn Fn(u64) -> Option<u64>,
        scratch: &mut Scratch,
    ) -> Step {
        let behind = self.entries.partition_point(|(start, _, _)| *start <= at);
        let entry = behind.checked_sub(1).and_then(|index| self.entries.get(index));
        let Some((_, _, place)) = entry.filter(|(_, end, _)| at < *end) else {
            return Step::NoEntry;
        };
        self.by_entry(*place, at, registers, memory, scratch).unwrap_or(Step::Broken)
    }

    fn by_entry(
        &self,
        place: usize,
        at: Svma,
        registers: &Registers,
        memory: &dyn Fn(u64) -> Option<u64>,
        scratch: &mut Scratch,
    ) -> Option<Step> {
        let frames = section_of(&self.frames);
        let entry = frames
            .fde_from_offset(&self.bases, place.into(), EhFrame::cie_from_offset)
            .ok()
            .filter(|entry| entry.entry_len().max(entry.cie().entry_len()) <= MOST_ENTRY_BYTES)
            .filter(|entry| entry.cie().return_address_register().0 == RETURN as u16)?;
        let row = entry.unwind_info_for_address(&frames, &self.bases, &mut scratch.0, at.0).ok()?;
        let evaluate = |expression: &UnwindExpression<usize>, first: Option<u64>| {
            evaluated(expression.get(&frames).ok()?, first, registers, memory)
        };
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                registers.get(*register)?.wrapping_add_signed(*offset)
            }
            CfaRule::Expression(expression) => evaluate(expression, None)?,
        };
        if row.register(Register(RETURN as u16)) == Some(RegisterRule::Undefined) {
            return Some(Step::Start);
        }
        let mut caller = *registers;
        caller.0[STACK_POINTER] = cfa;
        let mut returns = false;
        for (register, rule) in row.registers() {
            let number = usize::from(register.0);
            let Some(kept) = caller.0.get_mut(number) else { continue };
            *kept = match rule {
                RegisterRule::Undefined | RegisterRule::SameValue => continue,
                RegisterRule::Offset(offset) => {
                    let place = cfa.wrapping_add_signed(*offset);
                    match memory(place) {
                        Some(value) => value,
                        // Already popped, which tables do not always say: it has its value again.
                        None if number != RETURN && place < registers.stack() => continue,
                        None => return None,
                    }
                }
                RegisterRule::ValOffset(offset) => cfa.wrapping_add_signed(*offset),
                RegisterRule::Register(other) => registers.get(*other)?,
                RegisterRule::Expression(expression) => memory(evaluate(expression, Some(cfa))?)?,
                RegisterRule::ValExpression(expression) => evaluate(expression, Some(cfa))?,
                RegisterRule::Constant(value) => *value,
                RegisterRule::Architectural => return None,
            };
            returns |= number == RETURN;
        }
        // A caller's part of the stack lies above that of what it calls.
        let is_interrupted = entry.is_signal_trampoline();
        let is_above = is_interrupted || caller.stack() > registers.stack();
        (returns && is_above).then_some(Step::Caller { registers: caller, is_interrupted })
    }
}

/// The step to the caller by the frame pointer, for functions without an entry: rbp points at that of the caller, which the
/// address to return to lies above. It is 0 where a thread starts.
#[must_use]
pub fn step_by_frame_pointer(registers: &Registers, memory: &dyn Fn(u64) -> Option<u64>) -> Step {
    let frame = registers.0[FRAME_POINTER];
    if frame == 0 {
        return Step::Start;
    }
    let step = || {
        let above = frame
            .checked_add(16)
            .filter(|_| frame >= registers.stack() && frame.is_multiple_of(8))?;
        let mut caller = *registers;
        caller.0[FRAME_POINTER] = memory(frame)?;
        caller.0[RETURN] = memory(frame + 8)?;
        caller.0[STACK_POINTER] = above;
        Some(Step::Caller { registers: caller, is_interrupted: false })
    };
    step().unwrap_or(Step::Broken)
}

/// Memory that steps reuse.
#[derive(Default)]
pub struct Scratch(gimli::UnwindContext<usize>);

fn section_of(frames: &[u8]) -> EhFrame<Bytes<'_>> {
    let mut frames = EhFrame::new(frames, gimli::LittleEndian);
    frames.set_address_size(8);
    frames
}

fn evaluated(
    expression: gimli::Expression<Bytes<'_>>,
    first: Option<u64>,
    registers: &Registers,
    memory: &dyn Fn(u64) -> Option<u64>,
) -> Option<u64> {
    let mut evaluation = expression.evaluation(ENCODING);
    evaluation.set_max_iterations(MOST_STEPS);
    if let Some(first) = first {
        evaluation.set_initial_value(first);
    }
    let mut state = evaluation.evaluate().ok()?;
    loop {
        state = match state {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                evaluation.resume_with_memory(gimli::Value::Generic(memory(address)?)).ok()?
            }
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = gimli::Value::Generic(registers.get(register)?);
                evaluation.resume_with_register(value).ok()?
            }
            _ => return None,
        };
    }
    match evaluation.as_result() {
        [gimli::Piece { location: gimli::Location::Address { address }, .. }] => Some(*address),
        _ => None,
    }
}

/// Tells `add` of the start, the length and the place of each entry of an unwind table.
pub(super) fn each_entry<'d, S: UnwindSection<Bytes<'d>>>(
    frames: &S,
    bases: &BaseAddresses,
    add: &mut dyn FnMut(Svma, u64, usize),
) where
    S::Offset: gimli::UnwindOffset<usize>,
{
    let mut entries = frames.entries(bases);
    // Thousands of entries share a few headers.
    let mut headers = FxHashMap::default();
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let header = |_: &_, bases: &_, offset: S::Offset| {
            let place = gimli::UnwindOffset::into(offset);
            if let Some(known) = headers.get(&place) {
                return Ok(gimli::CommonInformationEntry::clone(known));
            }
            let parsed = frames.cie_from_offset(bases, offset)?;
            headers.insert(place, parsed.clone());
            Ok(parsed)
        };
        let place = partial.offset();
        if let Ok(entry) = partial.parse(header) {
            add(Svma(entry.initial_address()), entry.len(), place);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One header and three entries at 0x1000: `push rbp; mov rbp, rsp; …; pop rbp`, a stub of the linker (an expression), a thread's start.
    const FRAMES: &[u8] = &[
        20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x00, 0x0c, 7, 8, 0x90, 1, 0, 0,
        36, 0, 0, 0, 28, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0x41,
        0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x44, 0x0c, 7, 8, 0, 0, 0, 44, 0, 0, 0, 68, 0, 0, 0,
        0x10, 0x10, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0x0f, 11, 0x77, 8, 0x80, 0,
        0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 116,
        0, 0, 0, 0x30, 0x10, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0x07, 16, 0, 0, 0, 0,
        0, 0, 0, 0, 0,
    ];

    fn tables(frames: &[u8]) -> UnwindTables {
        UnwindTables::index(Vec::new(), Arc::from(frames), BaseAddresses::default())
    }

    /// A stack at 0x7000 in which each word is its own address and one more.
    fn memory(at: u64) -> Option<u64> {
        (0x7000..0x8000).contains(&at).then(|| at + 1)
    }

    fn registers(ip: u64) -> Registers {
        let mut registers = Registers::default();
        (registers.0[RETURN], registers.0[STACK_POINTER]) = (ip, 0x7000);
        registers.0[FRAME_POINTER] = 0x7100;
        registers
    }

    /// Where it returns to, the stack and the frame pointer behind it.
    fn caller(at: u64) -> Option<[u64; 3]> {
        let step = tables(FRAMES).step(Svma(at), &registers(at), &memory, &mut Scratch::default());
        let Step::Caller { registers: r, is_interrupted: false } = step else { return None };
        Some([r.instruction(), r.stack(), r.0[FRAME_POINTER]])
    }

    #[test]
    fn a_step_undoes_what_the_function_did_to_the_stack_so_far() {
        assert_eq!(caller(0x1000), Some([0x7001, 0x7008, 0x7100]));
        assert_eq!(caller(0x1001), Some([0x7009, 0x7010, 0x7001]));
        assert_eq!(caller(0x1004), Some([0x7109, 0x7110, 0x7101]));
        assert_eq!(caller(0x1008), Some([0x7001, 0x7008, 0x7100]), "popped: its place is gone");
        assert_eq!(caller(0x1010), Some([0x7001, 0x7008, 0x7100]), "before the stub pushes");
        assert_eq!(caller(0x101b), Some([0x7009, 0x7010, 0x7100]), "behind it");
    }

    #[test]
    fn where_a_stack_ends_is_told_apart() {
        let step =
            |at| tables(FRAMES).step(Svma(at), &registers(at), &memory, &mut Scratch::default());
        assert_eq!(step(0x1030), Step::Start);
        assert_eq!((step(0xfff), step(0x1040)), (Step::NoEntry, Step::NoEntry));
        let none = |_| None;
        let without_memory =
            tables(FRAMES).step(Svma(0x1001), &registers(0x1001), &none, &mut Scratch::default());
        assert_eq!(without_memory, Step::Broken);
    }

    #[test]
    fn frame_pointers_lead_upwards_or_nowhere() {
        let step = |frame| {
            let mut registers = registers(0x1000);
            registers.0[FRAME_POINTER] = frame;
            step_by_frame_pointer(&registers, &memory)
        };
        assert!(matches!(step(0x7100), Step::Caller { registers, .. }
            if registers.instruction() == 0x7109 && registers.stack() == 0x7110));
        assert_eq!(step(0), Step::Start);
        for nonsense in [0x6ff8, 0x7101, 0x8000, u64::MAX - 7] {
            assert_eq!(step(nonsense), Step::Broken, "{nonsense:#x}");
        }
    }

    /// At its first instruction a function has done nothing: its address to return to is on top of the stack.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_entries_of_our_own_program_hold_at_their_first_instruction() {
        let own = UnwindTables::open(&std::env::current_exe().unwrap()).unwrap();
        let mut scratch = Scratch::default();
        let returns = |start: Svma| own.step(start, &registers(start.0), &memory, &mut scratch);
        let steps: Vec<Step> = own.entries.iter().map(|entry| entry.0).map(returns).collect();
        let is_plain = |step: &&Step| {
            matches!(step, Step::Caller { registers, .. }
                if registers.instruction() == 0x7001 && registers.stack() == 0x7008)
        };
        let plain = steps.iter().filter(is_plain).count();
        assert!(steps.len() > 1000 && plain * 100 > steps.len() * 98, "{plain} {}", steps.len());
        assert!(steps.contains(&Step::Start), "_start");
    }

    proptest! {
        #[test]
        fn damaged_tables_end_a_stack_and_nothing_else(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
            at in 0xff0_u64..0x1050,
        ) {
            let mut frames = FRAMES.to_vec();
            for (place, value) in changes {
                *place.get_mut(&mut frames) = value;
            }
            let tables = tables(&frames);
            let step = tables.step(Svma(at), &registers(at), &memory, &mut Scratch::default());
            if let Step::Caller { registers, is_interrupted: false } = step {
                prop_assert!(registers.stack() > 0x7000);
            }
        }

        #[test]
        fn any_bytes_are_tables(frames in prop::collection::vec(any::<u8>(), 0..300), at in any::<u64>()) {
            let _ = tables(&frames).step(Svma(at), &registers(at), &memory, &mut Scratch::default());
        }
    }
}
