//! The stack of the x87 unit: eight registers that are named from its top.
//!
//! Every load pushes and most additions pop, so the register that `st(1)` names is another one from instruction to instruction.
//! Taken for one register, independent sums of `long double` become one chain. `fxch` renames and waits for nothing.

use iced_x86::{Instruction, InstructionInfo, Mnemonic, OpAccess};

const REGISTERS: u8 = 8;

/// What an instruction does to the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StackUse {
    /// Registers that it reads and writes, a bit each, counted from the top as it is before a pop and behind a push.
    reads: u8,
    writes: u8,
    /// By how much the top moves: down where something is pushed.
    moves: i8,
    /// The register that changes its place with the top.
    exchanges: Option<u8>,
}

impl StackUse {
    pub(super) fn of(raw: &Instruction, info: &InstructionInfo) -> Self {
        let moves = raw.fpu_stack_increment_info().increment() as i8;
        let number = |n: u32| raw.op_register(n).number() as u8;
        if raw.mnemonic() == Mnemonic::Fxch {
            return Self { exchanges: Some(number(1)), ..Self::default() };
        }
        // What is read before a push lies one further from the top behind it; that the new top is written is not told.
        let pushed = u8::from(moves < 0);
        let mut stack = Self { moves, writes: pushed, ..Self::default() };
        for used in info.used_registers() {
            if !used.register().is_st() {
                continue;
            }
            use OpAccess as A;
            let bit = 1_u8 << (used.register().number() as u8 % REGISTERS);
            if matches!(used.access(), A::Read | A::CondRead | A::ReadWrite | A::ReadCondWrite) {
                stack.reads |= bit.rotate_left(pushed.into());
            }
            if matches!(used.access(), A::Write | A::CondWrite | A::ReadWrite | A::ReadCondWrite) {
                stack.writes |= bit;
            }
        }
        stack
    }

    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// When each register of the stack is there.
#[derive(Clone, Default)]
pub(super) struct Stack {
    there_at: [u64; REGISTERS as usize],
    top: u8,
}

impl Stack {
    /// When what an instruction reads is there. Pushes are made, and exchanges.
    pub(super) fn ready(&mut self, used: &StackUse) -> u64 {
        if let Some(other) = used.exchanges {
            let [top, other] = [0, other].map(|n| self.index(n));
            self.there_at.swap(top, other);
        }
        if used.moves < 0 {
            self.move_top(used.moves);
        }
        self.named(used.reads).map(|n| self.there_at[n]).max().unwrap_or(0)
    }

    /// What an instruction writes is there at `done`. Pops are made.
    pub(super) fn write(&mut self, used: &StackUse, done: u64) {
        let mut there_at = self.there_at;
        self.named(used.writes).for_each(|n| there_at[n] = done);
        self.there_at = there_at;
        if used.moves > 0 {
            self.move_top(used.moves);
        }
    }

    fn move_top(&mut self, by: i8) {
        self.top = self.top.wrapping_add_signed(by) % REGISTERS;
    }

    fn index(&self, from_top: u8) -> usize {
        usize::from((self.top + from_top) % REGISTERS)
    }

    fn named(&self, set: u8) -> impl Iterator<Item = usize> {
        (0..REGISTERS).filter(move |n| set & 1 << n != 0).map(|n| self.index(n))
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    use super::*;

    fn used(bytes: &[u8]) -> StackUse {
        let raw = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        StackUse::of(&raw, InstructionInfoFactory::new().info(&raw))
    }

    /// When each instruction can start, if each takes three cycles.
    fn starts(code: &[&[u8]]) -> Vec<u64> {
        let mut stack = Stack::default();
        code.iter()
            .map(|bytes| {
                let used = used(bytes);
                let start = stack.ready(&used);
                stack.write(&used, start + 3);
                start
            })
            .collect()
    }

    #[test]
    fn registers_are_named_from_the_top() {
        let (fld1, fldz) = (&[0xd9, 0xe8][..], &[0xd9, 0xee][..]);
        let (load, faddp_2) = (&[0xdd, 0x06][..], &[0xde, 0xc2][..]); // fld qword ptr [rsi]; faddp st(2), st
        // The loaded value is added to what lies below it, and gone: two sums in turn wait for themselves alone.
        let turn = [load, faddp_2, &[0xd9, 0xc9]]; // fxch st(1)
        let code: Vec<&[u8]> = [fld1, fldz].into_iter().chain([turn; 4].concat()).collect();
        let at = starts(&code);
        let sums: Vec<u64> = at[3..].iter().step_by(3).copied().collect();
        assert_eq!(sums, [3, 3, 6, 6]);
        // One sum, in a chain.
        let code: Vec<&[u8]> =
            [fld1, fldz].into_iter().chain([[load, faddp_2]; 4].concat()).collect();
        let at = starts(&code);
        let sums: Vec<u64> = at[3..].iter().step_by(2).copied().collect();
        assert_eq!(sums, [3, 6, 9, 12]);
        assert!(used(&[0x48, 0x01, 0xd8]).is_none(), "add rax, rbx");
    }

    #[test]
    fn a_copy_reads_what_was_there_before_its_push() {
        let (fld1, fmul, copy) = (&[0xd9, 0xe8][..], &[0xd8, 0xc8][..], &[0xd9, 0xc0][..]);
        // fld1; fmul st, st(0); fld st(0); fmul st, st(1)
        assert_eq!(starts(&[fld1, fmul, copy, &[0xd8, 0xc9]]), [0, 3, 6, 9]);
    }
}
