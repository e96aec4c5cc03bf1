//! False dependencies that go round a loop: an instruction that waits, through its destination, for itself in the turn before.
//!
//! [`FalseDependency`] says what waits and why. One turn waits for the one before where, on the way back from an instruction to
//! itself, nothing writes its destination anew: whatever changes it reads it, and so waits in its turn.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register,
};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::code::{Flow, FunctionCode, Insn, Loop};
use crate::machine::FalseDependency;

/// An instruction of a loop that waits for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarriedDependency {
    /// Its index.
    pub insn: usize,
    /// What it is.
    pub kind: FalseDependency,
    /// Whether all ways around the loop lead from it to itself so, and not only some.
    pub is_certain: bool,
}

/// What holds more on the way back than this many instructions is no chain that a loop waits for.
const MOST_LOOKED_AT: usize = 4096;

/// All of them in a function, by address. `bytes` gives the machine code of one of its instructions; only what `waits` takes is
/// looked at.
#[must_use]
pub fn carried_dependencies<'a>(
    code: &FunctionCode,
    bytes: impl Fn(&Insn) -> &'a [u8],
    waits: impl Fn(FalseDependency) -> bool,
) -> Vec<CarriedDependency> {
    let factory = InstructionInfoFactory::new();
    let mut reader = Reader { code, renewed: FxHashMap::default(), factory, bytes };
    let mut found = Vec::new();
    for (number, block) in code.blocks.iter().enumerate() {
        let Some(inside) = code.innermost_loop(number) else { continue };
        for insn in block.first..block.end {
            if !may_wait((reader.bytes)(&code.insns[insn])) {
                continue;
            }
            let held = FalseDependency::of(&reader.decode(insn));
            let Some((kind, held)) = held.filter(|(kind, _)| waits(*kind)) else { continue };
            let [comes_back, breaks] = reader.way_back(inside, (number, insn), held);
            if comes_back {
                found.push(CarriedDependency { insn, kind, is_certain: !breaks });
            }
        }
    }
    found
}

/// Whether the first bytes are those of such an instruction: all have one of these prefixes.
fn may_wait(bytes: &[u8]) -> bool {
    matches!(bytes.first(), Some(0x66 | 0xf2 | 0xf3 | 0xc4 | 0xc5 | 0x62))
}

/// The registers that an instruction writes whole whatever they held; a call may write all.
#[derive(Clone, Debug)]
enum Renewed {
    All,
    These(SmallVec<[Register; 2]>),
}

impl Renewed {
    fn has(&self, register: Register) -> bool {
        match self {
            Self::All => true,
            Self::These(registers) => registers.contains(&register),
        }
    }
}

struct Reader<'c, B> {
    code: &'c FunctionCode,
    /// By instruction that a way back came to.
    renewed: FxHashMap<usize, Renewed>,
    factory: InstructionInfoFactory,
    bytes: B,
}

impl<'a, B: Fn(&Insn) -> &'a [u8]> Reader<'_, B> {
    fn decode(&self, insn: usize) -> Instruction {
        let insn = &self.code.insns[insn];
        Decoder::with_ip(64, (self.bytes)(insn), insn.svma.0, DecoderOptions::NONE).decode()
    }

    fn renews(&mut self, insn: usize, register: Register) -> bool {
        if !self.renewed.contains_key(&insn) {
            let renewed = match self.code.insns[insn].flow {
                Flow::Call => Renewed::All,
                _ => renewed(&self.decode(insn), &mut self.factory),
            };
            self.renewed.insert(insn, renewed);
        }
        self.renewed[&insn].has(register)
    }

    /// Goes back from an instruction, inside a loop: whether it comes to the instruction itself, and whether what `held` holds
    /// is made anew on some way.
    fn way_back(
        &mut self,
        inside: &Loop,
        (block, insn): (usize, usize),
        held: Register,
    ) -> [bool; 2] {
        let (mut comes_back, mut breaks) = (false, false);
        let mut seen = FxHashSet::default();
        let mut left = MOST_LOOKED_AT;
        // Blocks, and the instruction behind the one to look at next.
        let mut open = vec![(block, insn)];
        while let Some((block, end)) = open.pop() {
            let first = self.code.blocks[block].first;
            let stops = (first..end).rev().find(|other| {
                left = left.saturating_sub(1);
                left == 0 || *other == insn || self.renews(*other, held)
            });
            match stops {
                Some(other) if other == insn => comes_back = true,
                Some(_) => breaks = true,
                None => {
                    let before = &self.code.blocks[block].predecessors;
                    let before = before.iter().copied().filter(|b| inside.contains(*b));
                    for other in before.filter(|b| seen.insert(*b)).collect::<Vec<_>>() {
                        open.push((other, self.code.blocks[other].end));
                    }
                }
            }
        }
        [comes_back, breaks]
    }
}

fn renewed(raw: &Instruction, factory: &mut InstructionInfoFactory) -> Renewed {
    if raw.flow_control() == FlowControl::Call {
        return Renewed::All;
    }
    let held = FalseDependency::of(raw).map(|(_, held)| held);
    let used = factory.info(raw).used_registers();
    let reads = |register: Register| {
        let reads = |access| !matches!(access, OpAccess::Write | OpAccess::NoMemAccess);
        used.iter().any(|it| reads(it.access()) && it.register().full_register() == register)
    };
    let is_whole = |register: Register| !register.is_gpr() || register.size() >= 4;
    let written = used.iter().filter(|it| it.access() == OpAccess::Write);
    let whole = written.map(|it| it.register()).filter(|register| is_whole(*register));
    let whole = whole.map(Register::full_register);
    Renewed::These(whole.filter(|it| held != Some(*it) && !reads(*it)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::fixture::CODE_START;

    /// Which instructions of a loop wait for themselves, and how certain that is.
    fn of(insns: &[&[u8]]) -> Vec<(usize, bool)> {
        let code = insns.concat();
        let start = CODE_START.0;
        let decoded = FunctionCode::decode(&code, start);
        let bytes = |insn: &Insn| {
            let at = insn.svma.distance_from(start).unwrap() as usize;
            &code[at..at + usize::from(insn.length_bytes)]
        };
        let found = carried_dependencies(&decoded, bytes, |_| true);
        found.iter().map(|c| (c.insn, c.is_certain)).collect()
    }

    const POPCNT_RAX_RCX: &[u8] = &[0xf3, 0x48, 0x0f, 0xb8, 0xc1];
    const ADD_RDX_RAX: &[u8] = &[0x48, 0x01, 0xc2];
    const DEC_RSI: &[u8] = &[0x48, 0xff, 0xce];
    const RET: &[u8] = &[0xc3];

    /// jne over so many bytes backwards, itself included
    fn jne(back: u8) -> [u8; 2] {
        [0x75, back.wrapping_neg()]
    }

    #[test]
    fn a_destination_that_nothing_else_writes_goes_round() {
        assert_eq!(of(&[POPCNT_RAX_RCX, ADD_RDX_RAX, DEC_RSI, &jne(13), RET]), [(0, true)]);
        assert!(of(&[POPCNT_RAX_RCX, ADD_RDX_RAX, RET]).is_empty(), "no loop");
        // add rax, 1 behind it needs what it held, which keeps the chain.
        let add = [0x48, 0x83, 0xc0, 1];
        assert_eq!(of(&[POPCNT_RAX_RCX, &add, DEC_RSI, &jne(14), RET]), [(0, true)]);
        // mov al, dl keeps the rest.
        assert_eq!(of(&[POPCNT_RAX_RCX, &[0x88, 0xd0], DEC_RSI, &jne(12), RET]), [(0, true)]);
        // Two of them on one register wait for one another.
        let both = of(&[POPCNT_RAX_RCX, ADD_RDX_RAX, POPCNT_RAX_RCX, DEC_RSI, &jne(18), RET]);
        assert_eq!(both, [(0, true), (2, true)]);
    }

    #[test]
    fn a_destination_that_is_written_anew_ends_the_chain() {
        for renews in [
            &[0x31, 0xc0][..],         // xor eax, eax
            &[0x89, 0xd0],             // mov eax, edx
            &[0x48, 0x8b, 0x07],       // mov rax, [rdi]
            &[0xe8, 0x00, 0x10, 0, 0], // call
        ] {
            let back = (renews.len() + 13) as u8;
            assert!(
                of(&[renews, POPCNT_RAX_RCX, ADD_RDX_RAX, DEC_RSI, &jne(back), RET]).is_empty(),
                "{renews:x?}"
            );
        }
        let cvtsi2sd: &[u8] = &[0xf2, 0x0f, 0x2a, 0xc1]; // cvtsi2sd xmm0, ecx
        let pxor: &[u8] = &[0x66, 0x0f, 0xef, 0xc0]; // pxor xmm0, xmm0
        let addsd: &[u8] = &[0xf2, 0x0f, 0x58, 0xc8]; // addsd xmm1, xmm0
        assert_eq!(of(&[cvtsi2sd, addsd, DEC_RSI, &jne(13), RET]), [(0, true)]);
        assert!(of(&[pxor, cvtsi2sd, addsd, DEC_RSI, &jne(17), RET]).is_empty());
    }

    #[test]
    fn on_one_of_two_ways_it_is_not_certain() {
        // popcnt; test edx, edx; je over; xor eax, eax; dec rsi; jne
        let insns: [&[u8]; 7] =
            [POPCNT_RAX_RCX, &[0x85, 0xd2], &[0x74, 2], &[0x31, 0xc0], DEC_RSI, &jne(16), RET];
        assert_eq!(of(&insns), [(0, false)]);
    }
}
