//! Sequences of branches, and the two loops that run them.
//!
//! `rdi` points at a byte for each branch, `rsi` counts them. One branch of the loop goes by the byte, so that a
//! predictor has nothing but the branches before to tell it by.

use iced_x86::IcedError;
use iced_x86::code_asm::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{Case, Drawn};
use crate::clock::{Clock, HardwareClock, HoldsClock};
use crate::probes::emit::{CodePages, CodeWriter, EmitError, Entry};
use crate::probes::rig::Rig;

/// Start offsets of the copies of each loop: where branches lie decides which entries they share.
const PLACEMENTS: [usize; 2] = [0, 32];
/// Places that the indirect jump goes to, and the bytes of each.
const PLACES: u8 = 32;
const PLACE_BYTES: usize = 64;
/// Bytes of the code that goes to the next place, and how many bytes the first one of a place may have in front of it.
const NEXT_BYTES: usize = 14;
const FIRST_BYTES: usize = 16;
/// Room for all loops.
const CODE_BYTES: usize = 8192;
/// A visit runs at least so many branches, and whole sequences.
const LEAST_BRANCHES: u64 = 4096;
/// Branches of a sequence that never comes again: a visit runs six times as many as one repetition has.
const FRESH: u64 = 8192;
const FRESH_BRANCHES: usize = 6 * FRESH as usize;
/// Branches that are run before a sequence is timed, at the most, and how often the sequence comes at the most. Zen 4 mispredicts 25 %
/// of 40,000 directions in the sixth pass and none in the end; Redwood Cove half of 2,800 in the thirtieth and 2 to 5 % in the 350th,
/// of 5,700 two thirds after a million branches and half after eight millions; Zen 5 half of 24,000 in the eighth pass, of 32,000 in
/// the 22nd, of 40,000 in the 120th.
const TRAINING: u64 = 4_000_000;
const MOST_PASSES: u64 = 400;

/// The loops on this processor.
pub(super) struct BranchRig {
    clock: HardwareClock,
    pages: CodePages,
    /// By what is drawn and placement.
    entries: [[Entry; PLACEMENTS.len()]; 2],
    cases: Vec<Case>,
    /// By case.
    sequences: Vec<Vec<u8>>,
    /// By case: the branch that comes next.
    at: Vec<usize>,
    random: Pcg64Mcg,
}

impl BranchRig {
    pub(super) fn new(
        clock: HardwareClock,
        cases: Vec<Case>,
        seed: u64,
    ) -> Result<Self, EmitError> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut writer = CodeWriter::new(CODE_BYTES)?;
        let mut add = |start, drawn| writer.add(start, |a| assemble(drawn, a));
        let mut of = |drawn| -> Result<[Entry; 2], EmitError> {
            Ok([add(PLACEMENTS[0], drawn)?, add(PLACEMENTS[1], drawn)?])
        };
        let entries = [of(Drawn::Directions)?, of(Drawn::Targets)?];
        let sequences = cases.iter().map(|case| sequence(*case, &mut random)).collect();
        let at = vec![0; cases.len()];
        Ok(Self { clock, pages: writer.seal()?, entries, cases, sequences, at, random })
    }
}

fn sequence(case: Case, random: &mut Pcg64Mcg) -> Vec<u8> {
    let length = case.length.map_or(FRESH_BRANCHES, |length| length as usize);
    let values = match case.drawn {
        Drawn::Directions => 2,
        Drawn::Targets => PLACES,
    };
    (0..length).map(|_| random.random_range(0..values)).collect()
}

impl Rig for BranchRig {
    fn placements(&self) -> usize {
        PLACEMENTS.len()
    }

    fn repetitions(&self, case: usize) -> u64 {
        let length = self.cases[case].length.map_or(FRESH, u64::from);
        length * LEAST_BRANCHES.div_ceil(length)
    }

    fn run_case(&mut self, case: usize, placement: usize, repetitions: u64) {
        let entry = self.entries[self.cases[case].drawn as usize][placement % PLACEMENTS.len()];
        let (sequence, at) = (&mut self.sequences[case], &mut self.at[case]);
        let mut left = repetitions as usize;
        while left > 0 {
            let rest = &mut sequence[*at..];
            let now = rest.len().min(left);
            // SAFETY: the loops read as many bytes as they are told to count and write nothing; they use instructions of
            // the base set, and the bytes of a sequence are below the number of places.
            unsafe { self.pages.run(entry, rest.as_mut_ptr(), now as u64) }
            (*at, left) = ((*at + now) % sequence.len(), left - now);
        }
    }

    fn warm_up(&mut self, case: usize, placement: usize) {
        self.at[case] = 0;
        match self.cases[case].length {
            Some(length) => {
                let length = u64::from(length);
                let passes = TRAINING.div_ceil(length).min(MOST_PASSES);
                self.run_case(case, placement, passes * length);
            }
            None => self.sequences[case] = sequence(self.cases[case], &mut self.random),
        }
    }
}

impl HoldsClock for BranchRig {
    fn held_clock(&mut self) -> &mut impl Clock {
        &mut self.clock
    }
}

fn assemble(drawn: Drawn, a: &mut CodeAssembler) -> Result<(), IcedError> {
    match drawn {
        Drawn::Directions => directions(a),
        Drawn::Targets => targets(a),
    }
}

fn directions(a: &mut CodeAssembler) -> Result<(), IcedError> {
    let (mut top, mut behind) = (a.create_label(), a.create_label());
    a.set_label(&mut top)?;
    a.movzx(eax, byte_ptr(rdi))?;
    a.inc(rdi)?;
    a.test(eax, eax)?;
    a.jz(behind)?;
    a.nop()?;
    a.set_label(&mut behind)?;
    a.nop()?;
    a.dec(rsi)?;
    a.jnz(top)
}

/// Each place jumps to the next one by itself, as a threaded interpreter does: all that is known of the places before
/// is then in the jumps. They lie at different bytes of their places: that is all that Zen 4 remembers of a jump for long.
fn targets(a: &mut CodeAssembler) -> Result<(), IcedError> {
    let (mut places, mut behind) = (a.create_label(), a.create_label());
    let next = |a: &mut CodeAssembler| -> Result<(), IcedError> {
        a.movzx(eax, byte_ptr(rdi))?;
        a.inc(rdi)?;
        a.shl(eax, PLACE_BYTES.trailing_zeros())?;
        a.add(rax, r8)?;
        a.jmp(rax)
    };
    a.lea(r8, ptr(places))?;
    next(a)?;
    for place in 0..usize::from(PLACES) {
        if place == 0 {
            a.set_label(&mut places)?;
        }
        let first = place % FIRST_BYTES;
        if first > 0 {
            a.nops_with_size(first)?;
        }
        a.dec(rsi)?;
        // A near jump whatever the distance, so that all places have the same size.
        a.db(&[0x0f, 0x84])?;
        let jump_bytes = 3 + 6;
        let to = (usize::from(PLACES) - place) * PLACE_BYTES - first - jump_bytes;
        a.db(&(to as u32).to_le_bytes())?;
        next(a)?;
        a.nops_with_size(PLACE_BYTES - first - jump_bytes - NEXT_BYTES)?;
    }
    a.set_label(&mut behind)?;
    a.nop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_come_to_their_end_from_every_place() {
        let cases = super::super::all_cases();
        let Ok(clock) = HardwareClock::new() else { return };
        let mut rig = BranchRig::new(clock, cases.clone(), 1).unwrap();
        for (n, case) in cases.iter().enumerate().filter(|(_, case)| case.length < Some(2000)) {
            for placement in 0..rig.placements() {
                rig.at[n] = 0;
                let length = rig.sequences[n].len();
                rig.run_case(n, placement, length as u64 + 7);
                assert_eq!(rig.at[n], 7, "{case:?}");
            }
            let most = *rig.sequences[n].iter().max().unwrap();
            assert_eq!(most, if case.drawn == Drawn::Directions { 1 } else { PLACES - 1 });
        }
    }
}
