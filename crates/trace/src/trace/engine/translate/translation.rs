//! The translation of one block.
//!
//! ```text
//! mov [saved A], A            borrow two registers that the block does not mention
//! mov A, [log position]
//! mov [saved B], B
//! mov qword [A], number       the record: the block's number,
//! lea B, [operand]            then one word per memory operand, before the instruction
//! mov [A+8], B
//! instruction                 the program's own, at another address
//! ...
//! lea A, [A+size]
//! mov [log position], A
//! mov A, [saved A]            give them back
//! mov B, [saved B]
//! jump
//! ```
//!
//! Where blocks are only counted and this one has nothing else to log, its record is a counter:
//!
//! ```text
//! inc qword [counter]         where the block overwrites the flags before it reads any; otherwise
//!                             mov [saved A], A; mov A, [counter]; lea A, [A+1]; mov [counter], A; mov A, [saved A]
//! instruction
//! ...
//! ```
//!
//! Nothing of it touches flags that are read, stack or the 128 bytes below it. A fault in an instruction of the
//! program finds `A` and `B` in their slots and the log position at the record's start. The store
//! that goes past the log's end faults in the guard and is repeated with the record moved.

use iced_x86::{Decoder, DecoderOptions, Encoder, Instruction, Mnemonic, OpKind, Register};

use super::block::{End, Source};
use super::emit::{Address, Emitter, Gpr};
use super::operands::{Location, Memory, Operand, Segment};
use super::region::{Region, Slot};
use super::translator::JUMP_REGISTERS;

/// Addresses of what lies beside the code.
#[derive(Clone, Copy)]
pub(super) struct Slots {
    saved: [u64; 16],
    log_position: u64,
    target: u64,
    table: u64,
}

impl Slots {
    pub(super) fn of(region: &Region) -> Self {
        Self {
            saved: std::array::from_fn(|n| region.slot_address(Slot::Saved(Gpr(n as u8)))),
            log_position: region.slot_address(Slot::LogPosition),
            target: region.slot_address(Slot::Target),
            table: region.table_address(),
        }
    }
}

/// Where a translated block goes.
#[derive(Debug, Default)]
pub(super) struct Exits {
    /// Targets, and where the distances to them are to be filled in.
    pub(super) jumps: Vec<(u64, u32)>,
    /// What must follow right behind the block.
    pub(super) runs_into: Option<u64>,
}

/// The registers of the program that a block uses for itself. Only what is borrowed has been saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Borrowed {
    /// For where the record is; a block that is counted has none.
    pub(super) log: Option<Gpr>,
    /// For addresses and targets, where the block needs any.
    pub(super) address: Option<Gpr>,
}

/// What must be known of the translation to stop in the middle of it.
#[derive(Debug)]
pub(super) struct Shape {
    /// The registers that it borrows, the first for the log.
    pub(super) borrowed: Borrowed,
    /// Where each instruction of the program is in the code cache.
    pub(super) points: Vec<u32>,
}

/// Writes one block.
pub(super) struct Writer<'a> {
    pub(super) e: Emitter<'a>,
    pub(super) encoder: &'a mut Encoder,
    pub(super) slots: Slots,
    pub(super) source: &'a Source,
    pub(super) start: u64,
    /// Where the translation starts in the copy. Decides what is near for the whole block.
    pub(super) at: u64,
    /// Where the block's counter is, if it is only counted.
    pub(super) counter: Option<u64>,
}

/// Whether `target` can be reached with a 32-bit distance from `from`, with room to spare.
fn near(target: u64, from: u64) -> bool {
    (target.wrapping_sub(from) as i64).unsigned_abs() < 0x7fff_0000
}

impl<'a> Writer<'a> {
    /// Writes the block under this number.
    pub(super) fn block(&mut self, id: u32) -> (Exits, Shape) {
        let [a, b] = self.borrow();
        let ends_indirectly = !matches!(
            self.source.end,
            End::Continue(_) | End::Jump(_) | End::Branch(_) | End::Stop(_)
        );
        let uses_b = ends_indirectly || self.needs_address();
        let log = self.counter.is_none().then_some(a);
        let borrowed = Borrowed { log, address: uses_b.then_some(b) };
        let mut shape = Shape { borrowed, points: Vec::new() };
        match self.counter {
            Some(counter) => self.count(counter, a),
            None => {
                self.e.save(a, self.slot(a));
                self.e.load(a, self.slots.log_position);
            }
        }
        if uses_b {
            self.e.save(b, self.slot(b));
        }
        if log.is_some() {
            self.e.store_constant(Address::of(a, 0), id as i32);
        }
        let mut words = 1;
        let last = self.source.insns.len() - 1;
        let mut taken = None;
        for k in 0..=last {
            let insn = self.source.insns[k];
            self.log_before(&self.source.memory[k], [a, b], &mut words);
            shape.points.push(self.e.used() as u32);
            if k == last && self.source.end.is_jump() {
                taken = self.before_jump(&insn, [a, b]);
            } else {
                self.insn(&insn, b);
                self.log_after(&self.source.memory[k], a, &mut words);
            }
        }
        if log.is_some() {
            self.e.lea(a, Address::of(a, words * 8));
            self.e.save(a, self.slots.log_position);
        }
        let exits = self.leave([a, b], borrowed, taken);
        (exits, shape)
    }

    /// Adds one to the block's counter.
    fn count(&mut self, counter: u64, a: Gpr) {
        if self.source.overwrites_flags() {
            self.e.increment(counter);
            return;
        }
        self.e.save(a, self.slot(a));
        self.e.load(a, counter);
        self.e.lea(a, Address::of(a, 1));
        self.e.save(a, counter);
        self.e.load(a, self.slot(a));
    }

    fn slot(&self, register: Gpr) -> u64 {
        self.slots.saved[usize::from(register.0 & 15)]
    }

    /// The first two free registers; those that an indirect jump saves anyhow come first, and
    /// `rax`, where such a jump wants its target, as the second.
    fn borrow(&self) -> [Gpr; 2] {
        let mut free = [1_u8, 2, 0, 6, 7, 8, 9, 10, 11, 3, 5, 12, 13, 14, 15]
            .into_iter()
            .filter(|n| self.source.free & 1 << n != 0)
            .map(Gpr);
        let first = free.next().unwrap_or(Gpr::CX);
        let second = free.next().unwrap_or(Gpr(0));
        if first == Gpr(0) { [second, first] } else { [first, second] }
    }

    /// Whether any instruction needs a register for an address.
    fn needs_address(&self) -> bool {
        self.source.memory.iter().any(|m| matches!(m, Memory::Plain(o) if !o.is_empty()))
            || self
                .source
                .insns
                .iter()
                .any(|i| i.is_ip_rel_memory_operand() && !near(i.ip_rel_memory_address(), self.at))
    }

    fn log_before(&mut self, memory: &Memory, [a, b]: [Gpr; 2], words: &mut i32) {
        match memory {
            Memory::Plain(operands) => {
                for Operand { location, segment, mask, .. } in operands {
                    match *location {
                        Location::Registers(address) => self.e.lea(b, address),
                        Location::Fixed(address)
                            if *segment == Segment::Flat && near(address, self.at) =>
                        {
                            self.e.point(b, address);
                        }
                        Location::Fixed(address) => self.e.constant(b, address),
                    }
                    self.e.store(Address::of(a, *words * 8), b);
                    *words += 1;
                    if let Some(mask) = mask {
                        self.e.store_mask(a, *words * 8, mask.register);
                        *words += 1;
                    }
                }
            }
            Memory::Repeated(_) => self.log_after(memory, a, words),
            Memory::Unpredictable => {}
        }
    }

    fn log_after(&mut self, memory: &Memory, a: Gpr, words: &mut i32) {
        if let Memory::Repeated(repeats) = memory {
            for repeat in repeats {
                self.e.store(Address::of(a, *words * 8), repeat.pointer);
                *words += 1;
            }
        }
    }

    /// The bytes of an instruction as they stand in the program.
    fn original(&self, insn: &Instruction) -> &'a [u8] {
        let source: &'a Source = self.source;
        let at = insn.ip().wrapping_sub(self.start) as usize;
        source.bytes.get(at..at + insn.len()).unwrap_or_default()
    }

    /// Writes an instruction of the program that does not jump.
    fn insn(&mut self, insn: &Instruction, b: Gpr) {
        let bytes = self.original(insn);
        if !insn.is_ip_rel_memory_operand() {
            self.e.bytes(bytes);
            return;
        }
        let target = insn.ip_rel_memory_address();
        let from = self.e.address() + insn.len() as u64;
        if near(target, self.at) {
            // The distance is the last thing in the instruction but for an immediate.
            let mut offsets = Decoder::with_ip(64, bytes, insn.ip(), DecoderOptions::NONE);
            let decoded = offsets.decode();
            let at = offsets.get_constant_offsets(&decoded).displacement_offset();
            let distance = (target.wrapping_sub(from) as i32).to_le_bytes();
            self.e.bytes(&bytes[..at]);
            self.e.bytes(&distance);
            self.e.bytes(&bytes[at + 4..]);
        } else if insn.mnemonic() == Mnemonic::Lea && insn.op0_register().is_gpr64() {
            self.e.constant(Gpr(insn.op0_register().number() as u8), target);
        } else {
            self.e.constant(b, target);
            let mut moved = *insn;
            moved.set_memory_base(b.full());
            moved.set_memory_displacement64(0);
            moved.set_memory_displ_size(1);
            self.encode(&moved);
        }
    }

    /// Writes a changed instruction. What was decoded can be encoded; should that fail, the copy
    /// stops there for no known reason and the window is given up.
    fn encode(&mut self, insn: &Instruction) {
        let encoded = self.encoder.encode(insn, self.e.address()).is_ok();
        let mut bytes = self.encoder.take_buffer();
        if encoded {
            self.e.bytes(&bytes);
        } else {
            self.e.stop();
        }
        bytes.clear();
        self.encoder.set_buffer(bytes);
    }

    /// What a jump does before it jumps. Hands back the register that then holds where to, or
    /// `None` when that is known or lies in the slot for it.
    fn before_jump(&mut self, insn: &Instruction, [_, b]: [Gpr; 2]) -> Option<Gpr> {
        match self.source.end {
            End::Call(_) => {
                self.e.constant(b, insn.next_ip());
                self.e.push(b);
                None
            }
            End::IndirectCall => {
                self.target_of(insn, b);
                self.e.save(b, self.slots.target);
                self.e.constant(b, insn.next_ip());
                self.e.push(b);
                None
            }
            End::IndirectJump => {
                self.target_of(insn, b);
                Some(b)
            }
            End::Return(dropped) => {
                self.e.pop(b);
                if dropped > 0 {
                    self.e.lea(Gpr::SP, Address::of(Gpr::SP, i32::from(dropped)));
                }
                Some(b)
            }
            _ => None,
        }
    }

    /// Loads where an indirect jump or call leads.
    fn target_of(&mut self, insn: &Instruction, b: Gpr) {
        if insn.op0_kind() == OpKind::Register {
            if let Some(from) = Gpr::of(insn.op0_register()) {
                self.e.copy(b, from);
            }
            return;
        }
        if insn.is_ip_rel_memory_operand() {
            let from = insn.ip_rel_memory_address();
            if near(from, self.at) {
                self.e.load(b, from);
            } else {
                self.e.constant(b, from);
                self.e.fetch(b, Address::of(b, 0), Register::None);
            }
            return;
        }
        match Address::of_operand(insn) {
            Some(address) => self.e.fetch(b, address, insn.segment_prefix()),
            None => {
                self.e.constant(b, insn.memory_displacement64());
                self.e.fetch(b, Address::of(b, 0), insn.segment_prefix());
            }
        }
    }

    /// Gives the registers back and jumps.
    fn leave(&mut self, [a, b]: [Gpr; 2], borrowed: Borrowed, taken: Option<Gpr>) -> Exits {
        if matches!(self.source.end, End::IndirectJump | End::IndirectCall | End::Return(_)) {
            if borrowed.log.is_none() {
                self.e.save(a, self.slot(a));
            }
            self.look_up([a, b], taken);
            return Exits::default();
        }
        for register in [borrowed.log, borrowed.address].into_iter().flatten() {
            self.e.load(register, self.slot(register));
        }
        let next = self.source.next();
        match self.source.end {
            End::Branch(target) => {
                let site = self.branch();
                Exits { jumps: vec![(target, site as u32)], runs_into: Some(next) }
            }
            End::Jump(target) | End::Call(target) => {
                Exits { jumps: Vec::new(), runs_into: Some(target) }
            }
            End::Continue(at) | End::Stop(at) => Exits { jumps: Vec::new(), runs_into: Some(at) },
            End::IndirectJump | End::IndirectCall | End::Return(_) => Exits::default(),
        }
    }

    /// The conditional jump at the block's end; says where its distance is.
    fn branch(&mut self) -> usize {
        let insn = self.source.insns[self.source.insns.len() - 1];
        if insn.is_jcc_short_or_near() {
            // The decoder counts from 1.
            return self.e.jump_if((insn.condition_code() as u8).wrapping_sub(1));
        }
        // jrcxz and the loop instructions reach 127 bytes: over a jump over a jump.
        if let Some((_distance, opcode)) = self.original(&insn).split_last() {
            self.e.bytes(opcode);
        }
        self.e.bytes(&[2, 0xeb, 5]);
        self.e.jump()
    }

    /// Goes on at the translation of what a register or the slot for targets holds.
    fn look_up(&mut self, [a, b]: [Gpr; 2], taken: Option<Gpr>) {
        let [ax, cx, dx] = JUMP_REGISTERS;
        for register in JUMP_REGISTERS {
            if register != a && register != b {
                self.e.save(register, self.slot(register));
            }
        }
        match taken {
            Some(register) if register == ax => {}
            Some(register) => self.e.copy(ax, register),
            None => self.e.load(ax, self.slots.target),
        }
        for register in [a, b] {
            if !JUMP_REGISTERS.contains(&register) {
                self.e.load(register, self.slot(register));
            }
        }
        self.e.low_half(cx, ax);
        self.e.point(dx, self.slots.table);
        self.e.jump_table(dx, cx);
    }
}
