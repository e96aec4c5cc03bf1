//! The probe `code-alignment`: what it costs where a small hot loop starts.
//!
//! *Effect.* The front end delivers instructions in windows of 16, 32 or 64 bytes: a loop that
//! touches one window more may take one cycle more per turn. Microcode against Intel's erratum on
//! jumps keeps every jump that crosses or ends at a 32-byte boundary out of the decoded-instruction
//! cache. *Sign.* Cycles per turn of the same loop at every start offset from 0 to 63. *Contrast.*
//! Offsets among each other. *Placebo.* The same offset in other lines. *Negative control.* A loop
//! of dependent multiplications takes the same everywhere. *Positive control.* One multiplication
//! more takes three cycles more.
//!
//! *Literature.* Intel, "Mitigations for Jump Conditional Code Erratum" (2019); D. Bakhvalov, "Code
//! alignment issues" (2018); A. Fog, "The microarchitecture of Intel, AMD and VIA CPUs".

mod fit;
mod report;

pub use fit::{Explanation, Model};
pub use report::{AlignmentReport, LoopReport};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[cfg(not(target_arch = "x86_64"))]
use super::elsewhere as run;
use super::{Bench, Probe, ProbeError, ProbeReport};

/// Its id, and the origin of its prices.
pub const ID: &str = "code-alignment";

/// Start offsets: every byte of a line.
pub const OFFSETS: u32 = 64;

/// What a loop is made of.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// This number of no-ops of 3 bytes: nothing but the front end limits them.
    Noops(u32),
    /// This number of dependent multiplications of 4 bytes: the front end is never the limit.
    Multiplies(u32),
}

/// One question: a loop at a start offset; `again` asks the same question a second time.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Case {
    /// What the loop is made of.
    pub body: Body,
    /// Bytes from a boundary of 64 bytes to the loop.
    pub offset_bytes: u32,
    /// Whether it repeats another case, as a placebo.
    pub again: bool,
}

/// `dec rsi` and a short `jnz`.
pub const JUMP_BYTES: u32 = 5;

impl Body {
    /// Length of the loop, bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        JUMP_BYTES
            + match self {
                Self::Noops(n) => 3 * n,
                Self::Multiplies(n) => 4 * n,
            }
    }
}

/// The loops whose offset is varied: 17, 29 and 59 bytes.
pub const LOOPS: [Body; 3] = [Body::Noops(4), Body::Noops(8), Body::Noops(18)];

/// The loop that must not care, and the same with one multiplication more.
pub const NEGATIVE: Body = Body::Multiplies(6);
/// See [`NEGATIVE`].
pub const POSITIVE: Body = Body::Multiplies(7);

/// The offset that is asked twice.
pub const TWICE: Case = Case { body: LOOPS[1], offset_bytes: 5, again: false };

/// Every case that is measured.
pub fn all_cases() -> Vec<Case> {
    let at = |body, offset_bytes| Case { body, offset_bytes, again: false };
    let mut cases: Vec<Case> =
        LOOPS.iter().flat_map(|&body| (0..OFFSETS).map(move |o| at(body, o))).collect();
    cases.extend((0..OFFSETS).step_by(7).map(|o| at(NEGATIVE, o)));
    cases.push(at(POSITIVE, 0));
    cases.push(Case { again: true, ..TWICE });
    cases
}

/// The loop as machine code. The counter is `rsi`, as the caller has it.
#[cfg(target_arch = "x86_64")]
fn assemble(
    case: &Case,
    a: &mut iced_x86::code_asm::CodeAssembler,
) -> Result<(), iced_x86::IcedError> {
    use iced_x86::code_asm::*;
    if case.offset_bytes > 0 {
        a.nops_with_size(case.offset_bytes as usize)?;
    }
    let mut top = a.create_label();
    a.set_label(&mut top)?;
    match case.body {
        Body::Noops(n) => (0..n).try_for_each(|_| a.db(&[0x0f, 0x1f, 0x00]))?,
        Body::Multiplies(n) => (0..n).try_for_each(|_| a.imul_2(rax, rax))?,
    }
    a.dec(rsi)?;
    a.jnz(top)
}

/// The probe.
pub const PROBE: Probe = Probe {
    id: ID,
    title: "what it costs where a small hot loop starts",
    prices: true,
    run,
    wide: None,
};

#[cfg(target_arch = "x86_64")]
fn run(bench: &Bench<'_>) -> Result<ProbeReport, ProbeError> {
    use super::rig::{KernelRig, Shape};
    use super::sampling::{Plan, measure};
    let cases = all_cases();
    // Copies of a loop lie in other lines, all at the offset that the case asks for.
    let shape = Shape {
        placements: &[0, 0, 0, 0],
        per_pass: 1,
        buffer_bytes: 64,
        code_bytes: cases.len() * 4 * 256,
    };
    let repetitions = vec![4096; cases.len()];
    // SAFETY: the loops touch no memory and no register but `rax` and `rsi`.
    let rig = |clock, _: &_| unsafe {
        KernelRig::new(clock, shape, repetitions, |case, _, a| assemble(&cases[case], a))
    };
    let plan = Plan { limit_ns: 3_000_000_000, ..Plan::new(bench.seed) };
    let report = measure(bench, (cases.len(), plan), rig, |sampled, protocol| {
        AlignmentReport::new(&cases, sampled, protocol)
    })?;
    Ok(ProbeReport::CodeAlignment(Box::new(report)))
}

#[cfg(test)]
mod tests;
