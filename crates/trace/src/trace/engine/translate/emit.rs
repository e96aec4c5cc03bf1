//! Writes the machine code that surrounds the program's own instructions in a translation.
//!
//! Everything here but [`Emitter::increment`] leaves the flags alone: moves, `lea`, `push`, `pop`, `jrcxz` and
//! jumps. Registers are numbered as the hardware does (0 is `rax`, 4 is `rsp`).

use iced_x86::{Instruction, Register};

use crate::trace::engine::process::Registers;

/// A general register by its hardware number, 0 to 15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gpr(pub(super) u8);

impl Gpr {
    pub(super) const CX: Self = Self(1);
    pub(super) const SP: Self = Self(4);

    /// The register that `register` is a part of.
    pub(super) fn of(register: Register) -> Option<Self> {
        register.is_gpr().then(|| Self(register.full_register().number() as u8))
    }

    /// Sets it in a thread's registers.
    pub(super) fn set(self, registers: &mut Registers, value: u64) {
        let r = registers;
        let all = [
            &mut r.rax, &mut r.rcx, &mut r.rdx, &mut r.rbx, &mut r.rsp, &mut r.rbp, &mut r.rsi,
            &mut r.rdi, &mut r.r8, &mut r.r9, &mut r.r10, &mut r.r11, &mut r.r12, &mut r.r13,
            &mut r.r14, &mut r.r15,
        ];
        if let Some(register) = all.into_iter().nth(usize::from(self.0 & 15)) {
            *register = value;
        }
    }

    /// As the decoder names it.
    pub(super) fn full(self) -> Register {
        const ALL: [Register; 16] = [
            Register::RAX,
            Register::RCX,
            Register::RDX,
            Register::RBX,
            Register::RSP,
            Register::RBP,
            Register::RSI,
            Register::RDI,
            Register::R8,
            Register::R9,
            Register::R10,
            Register::R11,
            Register::R12,
            Register::R13,
            Register::R14,
            Register::R15,
        ];
        ALL[usize::from(self.0 & 15)]
    }
}

/// An address made of registers, as an instruction states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) base: Option<Gpr>,
    pub(super) index: Option<Gpr>,
    /// 1, 2, 4 or 8.
    pub(super) scale: u8,
    pub(super) displacement: i32,
    /// Computed in 32 bits.
    pub(super) narrow: bool,
}

impl Address {
    pub(super) fn of(base: Gpr, displacement: i32) -> Self {
        Self { base: Some(base), index: None, scale: 1, displacement, narrow: false }
    }

    /// The memory operand of an instruction; `None` when it is no matter of registers.
    pub(super) fn of_operand(insn: &Instruction) -> Option<Self> {
        let (base, index) = (Gpr::of(insn.memory_base()), Gpr::of(insn.memory_index()));
        let narrow = insn.memory_base().is_gpr32() || insn.memory_index().is_gpr32();
        (base.is_some() || index.is_some()).then(|| Self {
            base,
            index,
            scale: insn.memory_index_scale() as u8,
            displacement: insn.memory_displacement32() as i32,
            narrow,
        })
    }
}

/// Writes code one instruction behind the other.
pub(super) struct Emitter<'a> {
    code: &'a mut [u8],
    /// Where the code's first byte is in the copy.
    base: u64,
    used: usize,
    overflow: bool,
}

impl<'a> Emitter<'a> {
    /// Goes on behind the first `used` bytes of `code`.
    pub(super) fn new(code: &'a mut [u8], base: u64, used: usize) -> Self {
        Self { code, base, used, overflow: false }
    }

    /// Bytes written so far.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Whether something did not fit; what was written is then useless.
    #[cfg(test)]
    pub(super) fn overflowed(&self) -> bool {
        self.overflow
    }

    /// The address of the next byte in the copy.
    pub(super) fn address(&self) -> u64 {
        self.base + self.used as u64
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        match self.code.get_mut(self.used..self.used + bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.used += bytes.len();
            }
            None => self.overflow = true,
        }
    }

    /// Overwrites four bytes written before with the distance from behind them to `target`.
    pub(super) fn patch_distance(&mut self, at: usize, target: usize) {
        let distance = (target as i64 - (at as i64 + 4)) as i32;
        if let Some(place) = self.code.get_mut(at..at + 4) {
            place.copy_from_slice(&distance.to_le_bytes());
        }
    }

    /// `opcode reg, [rip+...]`, 64 bits wide.
    fn relative(&mut self, opcode: u8, reg: Gpr, target: u64) {
        let next = self.address() + 7;
        let distance = target.wrapping_sub(next) as i32;
        self.bytes(&[0x48 | (reg.0 >> 3) << 2, opcode, 5 | (reg.0 & 7) << 3]);
        self.bytes(&distance.to_le_bytes());
    }

    /// Stores a register at an address near the code.
    pub(super) fn save(&mut self, reg: Gpr, at: u64) {
        self.relative(0x89, reg, at);
    }

    /// Loads a register from an address near the code.
    pub(super) fn load(&mut self, reg: Gpr, at: u64) {
        self.relative(0x8b, reg, at);
    }

    /// Makes a register point to an address near the code.
    pub(super) fn point(&mut self, reg: Gpr, at: u64) {
        self.relative(0x8d, reg, at);
    }

    /// `opcode reg, [address]`, 64 bits wide.
    fn general(&mut self, opcode: u8, reg: Gpr, address: Address) {
        if address.narrow {
            self.bytes(&[0x67]);
        }
        let base = address.base.map_or(0, |b| b.0);
        let index = address.index.map_or(4, |i| i.0);
        self.bytes(&[0x48 | (reg.0 >> 3) << 2 | (index >> 3) << 1 | base >> 3, opcode]);
        let reg_bits = (reg.0 & 7) << 3;
        let scale_bits = address.scale.trailing_zeros() as u8 & 3;
        let sib = |low| scale_bits << 6 | (index & 7) << 3 | low;
        let Some(base) = address.base else {
            self.bytes(&[reg_bits | 4, sib(5)]);
            self.bytes(&address.displacement.to_le_bytes());
            return;
        };
        let short = i8::try_from(address.displacement).ok();
        // With base rbp or r13, "no displacement" means something else.
        let mode = match short {
            Some(0) if base.0 & 7 != 5 => 0,
            Some(_) => 0x40,
            None => 0x80,
        };
        if address.index.is_some() || base.0 & 7 == 4 {
            self.bytes(&[mode | reg_bits | 4, sib(base.0 & 7)]);
        } else {
            self.bytes(&[mode | reg_bits | base.0 & 7]);
        }
        match (mode, short) {
            (0, _) => {}
            (0x40, Some(byte)) => self.bytes(&byte.to_le_bytes()),
            _ => self.bytes(&address.displacement.to_le_bytes()),
        }
    }

    /// `inc qword` of an address near the code. Changes all flags but carry.
    pub(super) fn increment(&mut self, at: u64) {
        self.relative(0xff, Gpr(0), at);
    }

    /// `lea reg, [address]`.
    pub(super) fn lea(&mut self, reg: Gpr, address: Address) {
        self.general(0x8d, reg, address);
    }

    /// `mov [address], reg`.
    pub(super) fn store(&mut self, address: Address, reg: Gpr) {
        self.general(0x89, reg, address);
    }

    /// `mov reg, [address]`, through `fs` or `gs` if asked for.
    pub(super) fn fetch(&mut self, reg: Gpr, address: Address, segment: Register) {
        match segment {
            Register::FS => self.bytes(&[0x64]),
            Register::GS => self.bytes(&[0x65]),
            _ => {}
        }
        self.general(0x8b, reg, address);
    }

    /// `kmovq [base+displacement], mask`; the base must not be the stack pointer.
    pub(super) fn store_mask(&mut self, base: Gpr, displacement: i32, mask: u8) {
        let high = if base.0 < 8 { 0xe1 } else { 0xc1 };
        self.bytes(&[0xc4, high, 0xf8, 0x91, 0x80 | (mask & 7) << 3 | base.0 & 7]);
        if base.0 & 7 == 4 {
            self.bytes(&[0x24]);
        }
        self.bytes(&displacement.to_le_bytes());
    }

    /// `mov qword [address], value`, the value sign-extended.
    pub(super) fn store_constant(&mut self, address: Address, value: i32) {
        self.general(0xc7, Gpr(0), address);
        self.bytes(&value.to_le_bytes());
    }

    /// `mov to, from`.
    pub(super) fn copy(&mut self, to: Gpr, from: Gpr) {
        let rex = 0x48 | (from.0 >> 3) << 2 | to.0 >> 3;
        self.bytes(&[rex, 0x89, 0xc0 | (from.0 & 7) << 3 | to.0 & 7]);
    }

    /// `movzx to (32 bits), from (16 bits)`.
    pub(super) fn low_half(&mut self, to: Gpr, from: Gpr) {
        let rex = 0x40 | (to.0 >> 3) << 2 | from.0 >> 3;
        self.bytes(&[rex, 0x0f, 0xb7, 0xc0 | (to.0 & 7) << 3 | from.0 & 7]);
    }

    /// Loads a constant, in as few bytes as it takes.
    pub(super) fn constant(&mut self, reg: Gpr, value: u64) {
        if let Ok(short) = u32::try_from(value) {
            if reg.0 >= 8 {
                self.bytes(&[0x41]);
            }
            self.bytes(&[0xb8 | reg.0 & 7]);
            self.bytes(&short.to_le_bytes());
        } else {
            self.bytes(&[0x48 | reg.0 >> 3, 0xb8 | reg.0 & 7]);
            self.bytes(&value.to_le_bytes());
        }
    }

    pub(super) fn push(&mut self, reg: Gpr) {
        if reg.0 >= 8 {
            self.bytes(&[0x41]);
        }
        self.bytes(&[0x50 | reg.0 & 7]);
    }

    pub(super) fn pop(&mut self, reg: Gpr) {
        if reg.0 >= 8 {
            self.bytes(&[0x41]);
        }
        self.bytes(&[0x58 | reg.0 & 7]);
    }

    /// A jump whose distance is filled in later; says where the distance is.
    pub(super) fn jump(&mut self) -> usize {
        self.bytes(&[0xe9, 0, 0, 0, 0]);
        self.used.saturating_sub(4)
    }

    /// A conditional jump whose distance is filled in later; `condition` as the hardware numbers it.
    pub(super) fn jump_if(&mut self, condition: u8) -> usize {
        self.bytes(&[0x0f, 0x80 | condition & 15, 0, 0, 0, 0]);
        self.used.saturating_sub(4)
    }

    /// `jrcxz` over the code that follows; says where the one byte of distance is.
    pub(super) fn skip_if_cx_zero(&mut self) -> usize {
        self.bytes(&[0xe3, 0]);
        self.used.saturating_sub(1)
    }

    /// Lets a short jump written before lead here.
    pub(super) fn land_short(&mut self, at: usize) {
        let distance = self.used.wrapping_sub(at + 1) as u8;
        if let Some(place) = self.code.get_mut(at) {
            *place = distance;
        }
    }

    /// `jmp [table+index*8]`; both registers must be among the first eight.
    pub(super) fn jump_table(&mut self, table: Gpr, index: Gpr) {
        self.bytes(&[0xff, 0x24, 0xc0 | (index.0 & 7) << 3 | table.0 & 7]);
    }

    /// The instruction that hands control to stallscope.
    pub(super) fn stop(&mut self) {
        self.bytes(&[0xcc]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};

    fn text(emit: impl Fn(&mut Emitter<'_>)) -> String {
        let mut room = [0u8; 64];
        let mut emitter = Emitter::new(&mut room, 0x1000, 0);
        emit(&mut emitter);
        assert!(!emitter.overflowed());
        let used = emitter.used();
        let mut formatter = IntelFormatter::new();
        formatter.options_mut().set_hex_prefix("0x");
        formatter.options_mut().set_hex_suffix("");
        let mut out = String::new();
        for insn in Decoder::with_ip(64, &room[..used], 0x1000, DecoderOptions::NONE).iter() {
            if !out.is_empty() {
                out.push_str("; ");
            }
            formatter.format(&insn, &mut out);
        }
        out
    }

    #[test]
    fn every_base_and_index_is_encoded_as_the_decoder_reads_it() {
        for base in (0..16).map(Gpr) {
            for index in (0..16).map(Gpr).filter(|i| *i != Gpr::SP) {
                for displacement in [0, 8, -0x80, 0x1000] {
                    let address = Address {
                        base: Some(base),
                        index: Some(index),
                        scale: 4,
                        displacement,
                        narrow: false,
                    };
                    let mut room = [0u8; 16];
                    let mut emitter = Emitter::new(&mut room, 0, 0);
                    emitter.lea(Gpr(9), address);
                    let used = emitter.used();
                    let insn = Decoder::new(64, &room[..used], DecoderOptions::NONE).iter().next();
                    let insn = insn.unwrap();
                    assert_eq!(insn.len(), used);
                    assert_eq!(insn.memory_base(), base.full());
                    assert_eq!(insn.memory_index(), index.full());
                    assert_eq!(insn.memory_displacement64() as i64, i64::from(displacement));
                }
                let plain = text(|e| e.lea(Gpr(0), Address::of(base, 8)));
                assert!(plain.contains("+8]"), "{plain}");
            }
        }
    }

    #[test]
    fn the_glue_reads_back() {
        let at = |base: u8| Address::of(Gpr(base), 0);
        assert_eq!(text(|e| e.copy(Gpr(8), Gpr(1))), "mov r8,rcx");
        assert_eq!(text(|e| e.low_half(Gpr(1), Gpr(10))), "movzx ecx,r10w");
        assert_eq!(
            text(|e| e.store_constant(at(13), -1)),
            "mov qword ptr [r13],0xFFFFFFFFFFFFFFFF"
        );
        assert_eq!(text(|e| e.store_mask(Gpr(1), 16, 3)), "kmovq [rcx+0x10],k3");
        assert_eq!(text(|e| e.store_mask(Gpr(12), 16, 7)), "kmovq [r12+0x10],k7");
        assert_eq!(text(|e| e.increment(0x1010)), "inc qword ptr [0x1010]");
        assert_eq!(text(|e| e.push(Gpr(12))), "push r12");
        assert_eq!(text(|e| e.pop(Gpr(3))), "pop rbx");
        assert_eq!(text(|e| e.constant(Gpr(9), 5)), "mov r9d,5");
        assert_eq!(text(|e| e.constant(Gpr(9), 1 << 40)), "mov r9,0x10000000000");
        assert_eq!(text(|e| e.fetch(Gpr(2), at(4), Register::FS)), "mov rdx,fs:[rsp]");
        let absolute =
            Address { base: None, index: None, scale: 1, displacement: -8, narrow: false };
        assert_eq!(text(|e| e.lea(Gpr(1), absolute)), "lea rcx,[0xFFFFFFFFFFFFFFF8]");
    }

    #[test]
    fn what_does_not_fit_is_noticed() {
        let mut room = [0u8; 2];
        let mut emitter = Emitter::new(&mut room, 0, 0);
        emitter.jump();
        assert!(emitter.overflowed());
    }
}
