//! The probe `core`: what one operation takes, and how many a cycle.
//!
//! *Effect.* A chain of operations takes the latency of each; operations that wait for nothing take what their units need
//! from one to the next, or what the core can dispatch. A branch that was predicted wrong holds everything behind it.
//! *Sign.* Core cycles of one repetition. *Contrast.* The same operation in a chain and without one; the same random
//! numbers with a jump that goes by them and with one that never goes. *Positive control.* A multiplication takes
//! longer than an addition. *Negative control.* An addition takes a cycle: what the clock itself is made of.
//!
//! Divisions are asked with quotients of about half of their bits. A conversion and a move between the register files are
//! asked there and back, half for each way.
//!
//! *Literature.* A. Abel and J. Reineke, "uops.info" (2019); A. Fog, "Instruction tables".

#[cfg(target_arch = "x86_64")]
mod kernel;
mod report;

pub use report::{CoreReport, CoreRow};

#[cfg(not(target_arch = "x86_64"))]
use super::elsewhere as run;
use super::{Bench, Probe, ProbeError, ProbeReport};
use crate::machine::{CoreCost, FalseDependency, OpClass};

/// Its id, and the origin of its prices.
pub const ID: &str = "core";

/// Classes of operations that are asked. Not the others: no-ops take nothing, branches share what they need with the rest,
/// what microcode takes depends on what it is, and not every processor has rounds of AES and SHA.
pub const CLASSES: [OpClass; 24] = [
    OpClass::Integer,
    OpClass::Shift,
    OpClass::ShiftByCount,
    OpClass::SlowAddress,
    OpClass::Multiply,
    OpClass::BitCount,
    OpClass::Divide32,
    OpClass::Divide64,
    OpClass::Vector,
    OpClass::VectorShift,
    OpClass::Shuffle,
    OpClass::VectorMultiply,
    OpClass::FloatAdd,
    OpClass::FloatMultiply,
    OpClass::FloatDivide32,
    OpClass::FloatDivide64,
    OpClass::FloatRoot32,
    OpClass::FloatRoot64,
    OpClass::Convert,
    OpClass::ConvertIn,
    OpClass::ConvertAcross,
    OpClass::CrossIn,
    OpClass::Cross,
    OpClass::Locked,
];

/// The same, of which only the interval is asked: they have no operands.
pub const FENCES: [OpClass; 3] = [OpClass::Fence, OpClass::LoadFence, OpClass::StoreFence];

/// Of some cases, one in so many repetitions is more than nothing: cores learn of few stores which load they serve (Zen 4: of 10,
/// not of 32), an atomic operation stands beside many others, and upper halves take hundreds of cycles.
const ONE_IN: usize = 8;
/// Repetitions of a case in one pass of its loop.
const PER_PASS: usize = 32;

/// One question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// What is asked.
    pub cost: CoreCost,
    /// Whether it is left out: there is no atomic operation, or the branch always goes the same way.
    pub is_plain: bool,
}

impl Case {
    /// Of how many repetitions one is more than nothing.
    fn one_in(self) -> usize {
        match self.cost {
            CoreCost::SameStore | CoreCost::LockedApart | CoreCost::UpperHalves => ONE_IN,
            // Zen 4: 12 cycles each of up to 4 loads, 35 to 44 of 8 to 64.
            CoreCost::AliasedLoad => PER_PASS,
            _ => 1,
        }
    }
}

/// Every case, the plain ones last.
#[must_use]
pub fn all_cases() -> Vec<Case> {
    let of = |cost| Case { cost, is_plain: false };
    let others = [
        CoreCost::Dispatch,
        CoreCost::Load,
        CoreCost::VectorLoad,
        CoreCost::LoadLatency,
        CoreCost::SplitLoadLatency,
        CoreCost::PageSplitLoadLatency,
        CoreCost::AliasedLoad,
        CoreCost::SameName,
        CoreCost::SameStore,
        CoreCost::Commit,
        CoreCost::CombinedCommit,
        CoreCost::SplitLoad,
        CoreCost::SplitStore,
        CoreCost::PageSplitStore,
        CoreCost::LockedWait,
        CoreCost::LockedApart,
        CoreCost::AddConstant,
        CoreCost::UpperHalves,
        CoreCost::Misprediction,
    ];
    let latencies = CLASSES.into_iter().map(CoreCost::Latency);
    let intervals = CLASSES.into_iter().chain(FENCES).map(CoreCost::Interval);
    let held = FalseDependency::ALL.into_iter().map(CoreCost::SameDestination);
    let asked = latencies.chain(intervals).chain(others).chain(held);
    let mut cases: Vec<Case> = asked.map(of).collect();
    let plain = |cost| Case { cost, is_plain: true };
    cases.extend([CoreCost::LockedWait, CoreCost::Misprediction].map(plain));
    cases
}

/// The probe.
pub const PROBE: Probe = Probe {
    id: ID,
    title: "what operations take, and how many a cycle",
    prices: true,
    run,
    wide: None,
};

#[cfg(target_arch = "x86_64")]
fn run(bench: &Bench<'_>) -> Result<ProbeReport, ProbeError> {
    use super::rig::{KernelRig, Shape};
    use super::sampling::{Plan, measure};
    let cases = all_cases();
    let shape = Shape {
        placements: &[0, 16, 32, 48],
        per_pass: PER_PASS as u64,
        buffer_bytes: kernel::BUFFER_BYTES,
        code_bytes: cases.len() * 4 * kernel::MOST_CODE_BYTES,
    };
    let repetitions = vec![2048; cases.len()];
    // SAFETY: the kernels touch BUFFER_BYTES of memory and registers that they may change (a test decodes each), and use
    // instructions of the base set, and of AVX where the processor has them.
    let rig = |clock, _: &_| unsafe {
        KernelRig::new(clock, shape, repetitions, |case, _, a| kernel::assemble(cases[case], a))
    };
    let plan = Plan { limit_ns: 3_000_000_000, ..Plan::new(bench.seed) };
    let report = measure(bench, (cases.len(), plan), rig, CoreReport::new)?;
    Ok(ProbeReport::Core(Box::new(report)))
}
