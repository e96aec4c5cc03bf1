//! Register values as constants and differences of addresses, for the count of a string
//! instruction.
//!
//! More than [`super::super::Addresses`] knows (shifts, pointers rounded up, constants pushed and
//! popped), and only computed for functions that hold a string instruction. Where values meet and
//! differ, the register becomes something unknown with a name of its own.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use super::super::cfg::FunctionCode;
use super::super::insn::{self, Insn, Reg};
use super::super::loops::BlockOrder;

/// Something that is not known but is always the same thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Atom {
    /// The result of an instruction, or a register where several values meet.
    Unknown(u64),
    /// `(unknown + offset) & mask`, a pointer rounded down.
    Rounded { of: u64, offset: i64, mask: i64 },
}

/// `plus - minus + constant`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Linear {
    pub plus: Option<Atom>,
    pub minus: Option<Atom>,
    pub constant: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Linear(Linear),
    /// A linear value shifted right.
    Shifted {
        of: Linear,
        bits: u32,
    },
}

/// The offset of a pointer that was rounded from `start`, when `rounded` is that.
pub(super) fn rounding_offset(start: Atom, rounded: Atom, unit: i64) -> Option<i64> {
    match (start, rounded) {
        (Atom::Unknown(start), Atom::Rounded { of, offset, mask })
            if start == of && mask == -unit =>
        {
            Some(offset)
        }
        _ => None,
    }
}

impl Linear {
    fn constant(constant: i64) -> Self {
        Self { plus: None, minus: None, constant }
    }

    fn negated(self) -> Self {
        Self { plus: self.minus, minus: self.plus, constant: self.constant.wrapping_neg() }
    }

    /// The sum, if what is left after cancelling is still linear.
    fn sum(self, other: Self) -> Option<Self> {
        let cancel = |a: Option<Atom>, b: Option<Atom>| if a == b { (None, None) } else { (a, b) };
        let (plus, other_minus) = cancel(self.plus, other.minus);
        let (other_plus, minus) = cancel(other.plus, self.minus);
        let one = |a: Option<Atom>, b: Option<Atom>| match (a, b) {
            (Some(_), Some(_)) => None,
            (a, b) => Some(a.or(b)),
        };
        Some(Self {
            plus: one(plus, other_plus)?,
            minus: one(minus, other_minus)?,
            constant: self.constant.wrapping_add(other.constant),
        })
    }

    fn as_constant(self) -> Option<i64> {
        (self.plus.is_none() && self.minus.is_none()).then_some(self.constant)
    }
}

impl Value {
    fn unknown(name: u64) -> Self {
        let plus = Some(Atom::Unknown(name));
        Self::Linear(Linear { plus, minus: None, constant: 0 })
    }

    pub fn constant(constant: i64) -> Self {
        Self::Linear(Linear::constant(constant))
    }

    fn linear(self) -> Option<Linear> {
        match self {
            Self::Linear(linear) => Some(linear),
            Self::Shifted { .. } => None,
        }
    }

    fn as_constant(self) -> Option<i64> {
        self.linear()?.as_constant()
    }

    /// How far it lies above another value, where that is a constant.
    fn minus(self, other: Self) -> Option<i64> {
        self.linear()?.sum(other.linear()?.negated())?.as_constant()
    }

    fn shifted_right(self, bits: u32) -> Option<Self> {
        let of = self.linear()?;
        Some(match of.as_constant() {
            Some(constant) => Self::constant(((constant as u64).checked_shr(bits)?) as i64),
            None => Self::Shifted { of, bits },
        })
    }

    fn masked(self, mask: i64) -> Option<Self> {
        let of = self.linear()?;
        if let Some(constant) = of.as_constant() {
            return Some(Self::constant(constant & mask));
        }
        let (Some(Atom::Unknown(name)), None) = (of.plus, of.minus) else {
            return None;
        };
        let rounds_down = mask < 0 && mask.wrapping_neg().count_ones() == 1;
        let atom = Atom::Rounded { of: name, offset: of.constant, mask };
        rounds_down.then_some(Self::Linear(Linear { plus: Some(atom), minus: None, constant: 0 }))
    }
}

/// What the registers hold, and what was put aside in memory: spilled, or pushed.
#[derive(Clone, PartialEq)]
pub(super) struct State {
    registers: [Value; Reg::COUNT],
    /// Eight bytes each, by address.
    slots: Vec<(Linear, Value)>,
}

/// Number of slots that are remembered; compilers read back what they spilled last.
const MOST_SLOTS: usize = 48;

/// Names of unknown values: results of instructions below this, meeting points above.
const MEETING: u64 = 1 << 40;

fn name(place: usize, reg: usize) -> u64 {
    (place * Reg::COUNT + reg) as u64
}

fn meeting_of(block: usize) -> State {
    let registers = std::array::from_fn(|reg| Value::unknown(MEETING + name(block, reg)));
    State { registers, slots: Vec::new() }
}

impl State {
    fn get(&self, register: Register) -> Option<Value> {
        self.registers.get(number(register)?).copied()
    }

    /// What was put at an address, if nothing has been written over it.
    fn load(&self, address: Linear) -> Option<Value> {
        self.slots.iter().find(|(at, _)| *at == address).map(|(_, value)| *value)
    }

    /// Forgets what a store of `size_bytes` overwrites and remembers what it puts there. Only the
    /// stack is remembered, and stores to elsewhere are taken to leave it alone: spilled values
    /// have no address that could leak.
    fn store(&mut self, address: Linear, size_bytes: u16, value: Option<Value>) {
        let size = i64::from(size_bytes);
        self.slots.retain(|(at, _)| {
            let same_base = at.plus == address.plus && at.minus == address.minus;
            let apart = at.constant.wrapping_sub(address.constant);
            !same_base || apart >= size || apart <= -8
        });
        if let Some(value) = value.filter(|_| size_bytes == 8) {
            if self.slots.len() == MOST_SLOTS {
                self.slots.remove(0);
            }
            self.slots.push((address, value));
        }
    }

    /// Joins what comes over one more edge into `block`; true when something changed. Registers
    /// that differ get the name of the meeting point; one that keeps its distance from another of
    /// them on both ways is told by that.
    fn join(&mut self, incoming: &Self, block: usize) -> bool {
        let mut changed = false;
        let (old, meeting) = (self.registers, meeting_of(block).registers);
        for reg in 0..Reg::COUNT {
            let theirs = incoming.registers[reg];
            if old[reg] == theirs || old[reg] == meeting[reg] {
                continue;
            }
            let kept = (0..reg).filter(|q| self.registers[*q] == meeting[*q]).find_map(|q| {
                let apart = old[reg].minus(old[q])?;
                let same = theirs.minus(incoming.registers[q])? == apart;
                same.then(|| meeting[q].linear()?.sum(Linear::constant(apart)))?
            });
            let joined = kept.map_or(meeting[reg], Value::Linear);
            changed |= std::mem::replace(&mut self.registers[reg], joined) != joined;
        }
        let before = self.slots.len();
        self.slots.retain(|(at, value)| incoming.load(*at) == Some(*value));
        changed | (self.slots.len() < before)
    }
}

/// The values that `register` has in front of the instructions `wanted` (ascending).
pub(super) fn at_instructions(
    bytes: &[u8],
    code: &FunctionCode,
    register: Reg,
    wanted: &[usize],
) -> Vec<Value> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let walk = Walk { bytes, code };
    let starts = walk.block_starts(&leading_to(code, wanted));
    let value_at = |index: &usize| {
        let block = code.block_of(*index);
        let mut state = starts[block].clone().unwrap_or_else(|| meeting_of(block));
        (code.blocks[block].first..*index).for_each(|earlier| walk.step(earlier, &mut state));
        state.registers[usize::from(register.0)]
    };
    wanted.iter().map(value_at).collect()
}

/// Which blocks lead to one of the instructions.
fn leading_to(code: &FunctionCode, wanted: &[usize]) -> Vec<bool> {
    let mut leads = vec![false; code.blocks.len()];
    let mut work: Vec<usize> = wanted.iter().map(|index| code.block_of(*index)).collect();
    while let Some(block) = work.pop() {
        if !std::mem::replace(&mut leads[block], true) {
            work.extend(&code.blocks[block].predecessors);
        }
    }
    leads
}

struct Walk<'a> {
    bytes: &'a [u8],
    code: &'a FunctionCode,
}

impl Walk<'_> {
    /// The values at the start of every block that leads to where a value is asked for, and that a path
    /// leads to. Each register of each block changes at most twice, and slots only get fewer.
    fn block_starts(&self, leads: &[bool]) -> Vec<Option<State>> {
        let blocks = &self.code.blocks;
        let BlockOrder { blocks: order, is_entry, .. } = &self.code.order;
        let entries = is_entry.iter().zip(leads).enumerate();
        let mut starts: Vec<Option<State>> =
            entries.map(|(b, (entry, leads))| (*entry && *leads).then(|| meeting_of(b))).collect();
        let mut waiting = leads.to_vec();
        let mut changed = true;
        while changed {
            changed = false;
            for block in order {
                if !waiting[*block] {
                    continue;
                }
                let Some(mut state) = starts[*block].clone() else { continue };
                waiting[*block] = false;
                for index in blocks[*block].first..blocks[*block].end {
                    self.step(index, &mut state);
                }
                for successor in blocks[*block].successors.iter().filter(|s| leads[**s]) {
                    let news = match &mut starts[*successor] {
                        Some(known) => known.join(&state, *successor),
                        unknown => {
                            *unknown = Some(state.clone());
                            true
                        }
                    };
                    waiting[*successor] |= news;
                    changed |= news;
                }
            }
        }
        starts
    }

    fn decode(&self, index: usize) -> Instruction {
        let start = self.code.insns[0].svma;
        let svma = self.code.insns[index].svma;
        let at = svma.distance_from(start).unwrap_or(0) as usize;
        let bytes = self.bytes.get(at..).unwrap_or(&[]);
        Decoder::with_ip(64, bytes, svma.0, DecoderOptions::NONE).decode()
    }

    /// Lets one instruction work on the registers and slots.
    fn step(&self, index: usize, state: &mut State) {
        let insn = &self.code.insns[index];
        if insn.clobbers == 0 && insn.define.is_none() && insn.store.is_none() {
            return;
        }
        let raw = self.decode(index);
        let known = result(&raw, state);
        let stack = stack_pointer(insn, state);
        if let Some(store) = insn.store
            && let Some(address) = sum(&store.address, state)
            && is_stack(address)
        {
            let value = match raw.mnemonic() {
                Mnemonic::Mov => operand(&raw, 1, state),
                Mnemonic::Push => operand(&raw, 0, state),
                _ => None,
            };
            state.store(address, store.size_bytes, value);
        }
        let defined = insn.define.map_or(0, |(reg, _)| reg.bit());
        for (reg, value) in state.registers.iter_mut().enumerate() {
            if (insn.clobbers | defined) & (1 << reg) != 0 {
                *value = Value::unknown(name(index, reg));
            }
        }
        if let Some(stack) = stack {
            state.registers[usize::from(Reg::STACK.0)] = stack;
        }
        if raw.is_string_instruction() && raw.has_rep_prefix() && movs_or_stos(&raw) {
            state.registers[1] = Value::constant(0);
        } else if let Some((reg, value)) = known {
            state.registers[reg] = value;
        }
    }
}

/// Whether an address was made of the stack pointer at the start or of a rounded one.
fn is_stack(address: Linear) -> bool {
    let stack = MEETING + name(0, usize::from(Reg::STACK.0));
    address.minus.is_none()
        && match address.plus {
            Some(Atom::Unknown(of) | Atom::Rounded { of, .. }) => of == stack,
            None => false,
        }
}

/// `base + index * scale + displacement` as a linear value.
fn sum(raw: &insn::RawAddress, state: &State) -> Option<Linear> {
    let mut sum = Linear::constant(raw.displacement);
    if let Some(base) = raw.base {
        sum = sum.sum(state.registers[usize::from(base.0)].linear()?)?;
    }
    if let Some(index) = raw.index {
        let index = state.registers[usize::from(index.0)].linear()?;
        let scale = i64::from(raw.scale);
        let scaled = match (index.as_constant(), scale) {
            (Some(constant), _) => Linear::constant(constant.wrapping_mul(scale)),
            (None, 1) => index,
            _ => return None,
        };
        sum = sum.sum(scaled)?;
    }
    Some(sum)
}

/// The stack pointer behind a push, a pop or a return to an older one.
fn stack_pointer(insn: &Insn, state: &State) -> Option<Value> {
    match insn.define? {
        (Reg::STACK, insn::Value::Address(raw)) => sum(&raw, state).map(Value::Linear),
        _ => None,
    }
}

fn movs_or_stos(raw: &Instruction) -> bool {
    use Mnemonic::{Movsb, Movsd, Movsq, Movsw, Stosb, Stosd, Stosq, Stosw};
    matches!(raw.mnemonic(), Movsb | Movsw | Movsd | Movsq | Stosb | Stosw | Stosd | Stosq)
}

fn number(register: Register) -> Option<usize> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number())
}

/// The register that an instruction gives a value we can write down, and the value.
fn result(raw: &Instruction, state: &State) -> Option<(usize, Value)> {
    if raw.op_count() == 0 || raw.op0_kind() != OpKind::Register {
        return None;
    }
    if raw.mnemonic() == Mnemonic::Pop {
        let top = state.registers[usize::from(Reg::STACK.0)].linear()?;
        return Some((number(raw.op0_register())?, state.load(top)?));
    }
    let to = number(raw.op0_register())?;
    let old = state.registers[to];
    if raw.op0_register().is_gpr8() {
        let low = raw.op0_register().number() < 4 && raw.mnemonic() == Mnemonic::Mov;
        let byte = low.then(|| operand(raw, 1, state)?.as_constant()).flatten()?;
        let kept = old.as_constant()? & !0xff;
        return Some((to, Value::constant(kept | (byte & 0xff))));
    }
    let narrow = raw.op0_register().is_gpr16();
    let value = if narrow { None } else { computed(raw, old, state) }?;
    // A 32-bit result has no sign; only constants are worth the care.
    let value = match value.as_constant() {
        Some(c) if raw.op0_register().is_gpr32() => Value::constant(c & 0xffff_ffff),
        _ => value,
    };
    Some((to, value))
}

fn computed(raw: &Instruction, old: Value, state: &State) -> Option<Value> {
    let second = || operand(raw, 1, state);
    let shift = || second()?.as_constant().and_then(|c| u32::try_from(c).ok()).filter(|c| *c < 64);
    let linear = |value: Option<Linear>| value.map(Value::Linear);
    match raw.mnemonic() {
        Mnemonic::Mov | Mnemonic::Movsxd => second(),
        Mnemonic::Lea => linear(address(raw, state)),
        Mnemonic::Xor | Mnemonic::Sub if raw.op0_register() == raw.op1_register() => {
            Some(Value::constant(0))
        }
        Mnemonic::Add => linear(old.linear()?.sum(second()?.linear()?)),
        Mnemonic::Sub => linear(old.linear()?.sum(second()?.linear()?.negated())),
        Mnemonic::Inc => linear(old.linear()?.sum(Linear::constant(1))),
        Mnemonic::Dec => linear(old.linear()?.sum(Linear::constant(-1))),
        Mnemonic::Neg => linear(Some(old.linear()?.negated())),
        Mnemonic::And => old.masked(second()?.as_constant()?),
        Mnemonic::Shr | Mnemonic::Sar => old.shifted_right(shift()?),
        Mnemonic::Shl => Some(Value::constant(old.as_constant()?.wrapping_shl(shift()?))),
        Mnemonic::Imul if raw.op_count() == 3 => {
            let factor = operand(raw, 2, state)?.as_constant()?;
            Some(Value::constant(second()?.as_constant()?.wrapping_mul(factor)))
        }
        _ => None,
    }
}

/// The value of an operand: a register, a constant, or a whole slot that was put aside.
fn operand(raw: &Instruction, index: u32, state: &State) -> Option<Value> {
    if index >= raw.op_count() {
        return None;
    }
    match raw.op_kind(index) {
        OpKind::Register => {
            let register = raw.op_register(index);
            (register.is_gpr64() || register.is_gpr32()).then(|| state.get(register)).flatten()
        }
        OpKind::Memory if raw.memory_size().size() >= 4 => state.load(address(raw, state)?),
        OpKind::Memory => None,
        _ => raw.try_immediate(index).ok().map(|constant| Value::constant(constant as i64)),
    }
}

/// The address of a memory operand.
fn address(raw: &Instruction, state: &State) -> Option<Linear> {
    let part = |register: Register| match register {
        Register::None | Register::RIP => Some(None),
        _ => number(register).map(|n| Some(Reg(n as u8))),
    };
    let spelled = insn::RawAddress {
        base: part(raw.memory_base())?,
        index: part(raw.memory_index())?,
        scale: raw.memory_index_scale() as u8,
        displacement: raw.memory_displacement64() as i64,
    };
    sum(&spelled, state)
}
