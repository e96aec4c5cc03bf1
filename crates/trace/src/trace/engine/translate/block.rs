//! Reads a block of the program: the instructions up to the first that may go elsewhere.
//!
//! Translated code borrows two general registers that the block does not mention, so a block also
//! ends where it would mention too many of them, and before every instruction that cannot run from
//! another address.

use std::ops::Range;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    RflagsBits,
};
use rustc_hash::FxHashMap;

use super::emit::Gpr;
use super::operands::{Memory, memory_of};
use crate::model::{Avma, PAGE_BYTES};
use crate::trace::engine::CodePage;
use crate::trace::engine::operands::repeats;
use crate::trace::engine::process::Memories;

/// Longest block. With the longest possible record of each it stays below the guard behind the log.
pub(super) const LONGEST_INSNS: usize = 64;
/// What comparisons and sums set.
const STATUS_FLAGS: u32 = RflagsBits::OF
    | RflagsBits::SF
    | RflagsBits::ZF
    | RflagsBits::AF
    | RflagsBits::PF
    | RflagsBits::CF;
/// Longest instruction.
const INSN_BYTES: u64 = 15;

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It was cut; goes on there.
    Continue(u64),
    /// Its last instruction jumps there.
    Jump(u64),
    /// Its last instruction jumps there or not.
    Branch(u64),
    /// Its last instruction calls there.
    Call(u64),
    /// Its last instruction goes where a register or memory says.
    IndirectJump,
    /// Its last instruction calls what a register or memory says.
    IndirectCall,
    /// Its last instruction returns and drops so many bytes more.
    Return(u16),
    /// The instruction there, not part of the block, must be executed under supervision.
    Stop(u64),
}

impl End {
    /// Whether the block's last instruction is the jump itself.
    pub(super) fn is_jump(self) -> bool {
        !matches!(self, Self::Continue(_) | Self::Stop(_))
    }
}

/// A block as it stands in the program.
pub(super) struct Source {
    pub(super) insns: Vec<Instruction>,
    /// What each instruction touches; when memory is not asked for, of those that repeat alone.
    pub(super) memory: Vec<Memory>,
    /// The code itself.
    pub(super) bytes: Vec<u8>,
    pub(super) end: End,
    /// Bit n: register n is not mentioned.
    pub(super) free: u16,
}

impl Source {
    /// Whether the block overwrites all flags before it reads any or ends.
    pub(super) fn overwrites_flags(&self) -> bool {
        use Mnemonic as M;
        for insn in &self.insns {
            // What `inc` leaves alone may be read.
            if insn.rflags_read() & !RflagsBits::CF & STATUS_FLAGS != 0 {
                return false;
            }
            // These always do, whatever their operands are: a shift by 0 leaves the flags alone.
            if matches!(
                insn.mnemonic(),
                M::Add
                    | M::Adc
                    | M::Sub
                    | M::Sbb
                    | M::Cmp
                    | M::Neg
                    | M::And
                    | M::Or
                    | M::Xor
                    | M::Test
            ) {
                return true;
            }
        }
        false
    }

    /// One behind the last instruction.
    pub(super) fn next(&self) -> u64 {
        self.insns.last().map_or(0, Instruction::next_ip)
    }
}

/// The program's code, page by page, as it was when first looked at.
#[derive(Default)]
pub(super) struct Pages {
    /// A page and the start of the next one, so that no instruction is cut.
    pages: FxHashMap<u64, Vec<u8>>,
    fresh: Vec<u64>,
    executable: Vec<Range<u64>>,
}

impl Pages {
    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.pages.clear();
        self.fresh.clear();
    }

    /// The pages that were looked at.
    pub(super) fn seen(&self) -> impl Iterator<Item = u64> + '_ {
        self.pages.keys().copied()
    }

    /// What they hold.
    pub(super) fn into_code(self) -> Vec<CodePage> {
        let page = |(start, bytes)| CodePage { start: Avma(start), bytes };
        self.pages.into_iter().map(page).collect()
    }

    /// The pages looked at for the first time since this was last asked.
    pub(super) fn take_fresh(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.fresh)
    }

    /// Says what is executable. Nothing else is code: what stands behind a call that never returns
    /// may look like a jump to anywhere.
    pub(super) fn set_executable(&mut self, ranges: Vec<Range<u64>>) {
        self.executable = ranges;
    }

    fn code(&mut self, memory: &dyn Memories, address: u64) -> &[u8] {
        let page = address & !(PAGE_BYTES - 1);
        if !self.pages.contains_key(&page) {
            let Some(range) = self.executable.iter().find(|r| r.contains(&address)) else {
                return &[];
            };
            let bytes = (range.end - page).min(PAGE_BYTES + INSN_BYTES);
            let mut bytes = vec![0; bytes as usize];
            let got = memory.read(page, &mut bytes);
            bytes.truncate(got);
            self.pages.insert(page, bytes);
            self.fresh.push(page);
        }
        let bytes = self.pages.get(&page).map_or(&[][..], Vec::as_slice);
        bytes.get((address - page) as usize..).unwrap_or_default()
    }
}

/// Reads the block at `start`. It ends before any of `cuts`.
pub(super) fn read(
    pages: &mut Pages,
    memory: &dyn Memories,
    factory: &mut InstructionInfoFactory,
    start: u64,
    cuts: &[u64],
    with_memory: bool,
) -> Source {
    let mut source = Source {
        insns: Vec::new(),
        memory: Vec::new(),
        bytes: Vec::new(),
        end: End::Stop(start),
        free: !(1 << Gpr::SP.0),
    };
    let mut at = start;
    while source.insns.len() < LONGEST_INSNS {
        source.end = End::Continue(at);
        if at != start && cuts.contains(&at) {
            break;
        }
        let code = pages.code(memory, at);
        let insn = Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode();
        if insn.is_invalid() {
            source.end = End::Stop(at);
            break;
        }
        let bytes = code[..insn.len()].to_vec();
        if !source.add(&insn, &bytes, factory, with_memory) {
            break;
        }
        at = insn.next_ip();
        if insn.flow_control() != FlowControl::Next {
            break;
        }
    }
    source
}

impl Source {
    /// Adds an instruction; false when it does not belong to the block and `end` has been set.
    fn add(
        &mut self,
        insn: &Instruction,
        bytes: &[u8],
        factory: &mut InstructionInfoFactory,
        with_memory: bool,
    ) -> bool {
        let Some(end) = end_of(insn) else {
            self.end = End::Stop(insn.ip());
            return false;
        };
        let info = factory.info(insn);
        let memory =
            if with_memory || repeats(insn) { memory_of(insn, info) } else { Memory::NONE };
        if memory == Memory::Unpredictable {
            self.end = End::Stop(insn.ip());
            return false;
        }
        let mentioned = info
            .used_registers()
            .iter()
            .filter_map(|used| Gpr::of(used.register()))
            .fold(0_u16, |set, register| set | 1 << register.0);
        let free = self.free & !mentioned;
        if free.count_ones() < 2 {
            self.end = End::Continue(insn.ip());
            return false;
        }
        self.free = free;
        self.insns.push(*insn);
        self.memory.push(memory);
        self.bytes.extend_from_slice(bytes);
        self.end = end.unwrap_or(End::Continue(insn.next_ip()));
        true
    }
}

/// `None` for an instruction that cannot run elsewhere; `Some(None)` for one that just goes on.
fn end_of(insn: &Instruction) -> Option<Option<End>> {
    let end = match insn.flow_control() {
        FlowControl::Next if goes_on(insn) => return Some(None),
        FlowControl::ConditionalBranch if insn.op0_kind() == iced_x86::OpKind::NearBranch64 => {
            End::Branch(insn.near_branch_target())
        }
        _ => match insn.code() {
            Code::Jmp_rel8_64 | Code::Jmp_rel32_64 => End::Jump(insn.near_branch_target()),
            Code::Call_rel32_64 => End::Call(insn.near_branch_target()),
            Code::Jmp_rm64 => End::IndirectJump,
            Code::Call_rm64 => End::IndirectCall,
            Code::Retnq => End::Return(0),
            Code::Retnq_imm16 => End::Return(insn.immediate16()),
            _ => return None,
        },
    };
    Some(Some(end))
}

/// Whether an instruction without a jump does the same at another address and leaves the
/// addresses of thread-local memory alone.
pub(super) fn goes_on(insn: &Instruction) -> bool {
    // A memory operand relative to the 32-bit instruction pointer is nobody's code.
    insn.memory_base() != iced_x86::Register::EIP
        && !matches!(
            insn.mnemonic(),
            Mnemonic::Wrfsbase | Mnemonic::Wrgsbase | Mnemonic::Swapgs | Mnemonic::Xlatb
        )
        && x87_pointer(insn.mnemonic()).is_none()
        && !insn.is_privileged()
}

/// Where an instruction that stores the state of the x87 unit puts the address of the last x87
/// instruction, in bytes behind its operand, and how many bytes of it. Intel's processors keep
/// that address always, AMD's only while an exception is pending.
pub(super) fn x87_pointer(mnemonic: Mnemonic) -> Option<(u64, usize)> {
    use Mnemonic as M;
    match mnemonic {
        M::Fxsave64 | M::Xsave64 | M::Xsavec64 | M::Xsaveopt64 => Some((8, 8)),
        M::Fxsave | M::Xsave | M::Xsavec | M::Xsaveopt => Some((8, 4)),
        M::Fnstenv | M::Fstenv | M::Fnsave | M::Fsave => Some((12, 4)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Vec<u8>);

    impl Memories for Fixed {
        fn read(&self, address: u64, into: &mut [u8]) -> usize {
            let Some(bytes) = address.checked_sub(0x1000).and_then(|at| self.0.get(at as usize..))
            else {
                return 0;
            };
            let n = bytes.len().min(into.len());
            into[..n].copy_from_slice(&bytes[..n]);
            n
        }
    }

    fn block(code: &[u8], cuts: &[u64]) -> Source {
        let memory = Fixed(code.to_vec());
        let mut factory = InstructionInfoFactory::new();
        let mut pages = Pages::default();
        pages.set_executable(std::iter::once(0x1000..0x1000 + code.len() as u64).collect());
        read(&mut pages, &memory, &mut factory, 0x1000, cuts, true)
    }

    #[test]
    fn ends_behind_what_may_go_elsewhere() {
        // mov rax, rbx; jne +2
        let source = block(&[0x48, 0x89, 0xd8, 0x75, 0x02], &[]);
        assert_eq!((source.insns.len(), source.end), (2, End::Branch(0x1007)));
        assert_eq!(source.free & 0b1001, 0, "rax and rbx are mentioned");
        // ret 16; call rax; jmp [rip]
        assert_eq!(block(&[0xc2, 16, 0], &[]).end, End::Return(16));
        assert_eq!(block(&[0xff, 0xd0], &[]).end, End::IndirectCall);
        assert_eq!(block(&[0xff, 0x25, 0, 0, 0, 0], &[]).end, End::IndirectJump);
    }

    #[test]
    fn ends_before_what_cannot_run_elsewhere() {
        // nop; syscall
        let source = block(&[0x90, 0x0f, 0x05], &[]);
        assert_eq!((source.insns.len(), source.end), (1, End::Stop(0x1001)));
        // fxsave [rax]: stores the address of an x87 instruction
        assert_eq!(block(&[0x0f, 0xae, 0x00], &[]).end, End::Stop(0x1000));
        // ud2, int3, unreadable memory, a gather (memory is asked for)
        assert_eq!(block(&[0x0f, 0x0b], &[]).end, End::Stop(0x1000));
        assert_eq!(block(&[0xcc], &[]).end, End::Stop(0x1000));
        assert_eq!(block(&[], &[]).end, End::Stop(0x1000));
        let gather = [0xc4, 0xe2, 0x6d, 0x90, 0x04, 0x88];
        assert_eq!(block(&gather, &[]).end, End::Stop(0x1000));
    }

    #[test]
    fn flags_are_free_only_where_all_are_overwritten_first() {
        let free = |code: &[u8]| block(code, &[]).overwrites_flags();
        // mov rax, rbx; cmp rax, rbx; jne
        assert!(free(&[0x48, 0x89, 0xd8, 0x48, 0x39, 0xd8, 0x75, 2]));
        // adc rax, rbx reads carry, which a counter leaves alone
        assert!(free(&[0x48, 0x11, 0xd8]));
        // setz al; add rax, rbx. jz. pushfq; add. inc rax, then jz. shl rax, cl; jz. nothing.
        assert!(!free(&[0x0f, 0x94, 0xc0, 0x48, 0x01, 0xd8]));
        assert!(!free(&[0x74, 2]));
        assert!(!free(&[0x9c, 0x48, 0x01, 0xd8]));
        assert!(!free(&[0x48, 0xff, 0xc0, 0x74, 2]));
        assert!(!free(&[0x48, 0xd3, 0xe0, 0x74, 2]));
        assert!(!free(&[0x90]));
    }

    #[test]
    fn is_cut_where_asked_and_where_it_grows_too_long() {
        let source = block(&[0x90; 8], &[0x1000, 0x1004]);
        assert_eq!((source.insns.len(), source.end), (4, End::Continue(0x1004)));
        let source = block(&[0x90; 200], &[]);
        assert_eq!(source.end, End::Continue(0x1000 + LONGEST_INSNS as u64));
    }

    #[test]
    fn always_leaves_two_registers() {
        // mov rN, rN for all N but rsp, in turn
        let code: Vec<u8> = (0..16_u8)
            .filter(|n| *n != 4)
            .flat_map(|n| [0x48 | ((n >> 3) * 5), 0x89, 0xc0 | ((n & 7) * 9)])
            .collect();
        let source = block(&code, &[]);
        assert_eq!(source.insns.len(), 13);
        assert_eq!(source.free.count_ones(), 2);
        assert_eq!(source.end, End::Continue(0x1000 + 13 * 3));
    }
}
