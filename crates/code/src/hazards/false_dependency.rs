//! `false-dependency`: an instruction in a loop that waits for its own result of the turn before, without needing it.
//!
//! **Effect.** [`FalseDependency`] says which instructions wait for what their destination held. In a loop in which nothing else
//! writes that register, turns that have nothing to do with one another become a chain.
//!
//! **Sign.** The loop takes the latency of the instruction each turn; with the register zeroed in front of it, it does not.
//!
//! **What is looked for.** Such instructions in loops, on designs that let them wait, where a way around the loop leads from the
//! instruction to itself without anything that writes the register anew.
//!
//! **Literature.** Intel errata HSD146 and SKL029; A. Abel and J. Reineke, "uops.info".

use std::cell::LazyCell;

use crate::code::x86::{CarriedDependency, carried_dependencies};
use crate::machine::{CoreCost, Design, FalseDependency, PriceOrigin};
use crate::model::{Certainty, CyclesLost, Grade};

use super::{Candidate, FunctionView, Hazard, Needs, RuleCard, loop_weight};

/// The rule.
pub static FALSE_DEPENDENCY: FalseDependencies = FalseDependencies;

pub struct FalseDependencies;

/// Where some ways around the loop write the register anew, it waits in some turns.
const SOME_WAYS: f64 = 0.5;

impl Hazard for FalseDependencies {
    fn id(&self) -> &'static str {
        "false-dependency"
    }

    fn card(&self, design: &Design) -> RuleCard {
        RuleCard {
            id: self.id(),
            title: "an instruction that waits for what its destination held",
            effect: "A conversion, a rounding or a root in the lowest lane of a vector register keeps \
                     the other lanes, so it waits for whoever wrote them last. Some cores let popcnt, \
                     tzcnt, lzcnt or permutations wait without any reason. In a loop that writes the \
                     same register each turn, the turns become a chain.",
            picture: "  turn 1   cvtsi2sd xmm0, rax  |####|\n  \
                      turn 2   cvtsi2sd xmm0, rax       |####|      waits for xmm0\n  \
                      with pxor xmm0, xmm0 before   |####|          waits for nothing\n",
            price: price(design),
            detection: "Such instructions in loops, where some way around the loop leads from the \
                        instruction to itself without anything that writes the whole register and \
                        reads nothing of it. Where all ways do, the finding is definite. Calls \
                        write all registers that they may.",
            remedies: &[
                "zero the register in front of it: pxor xmm0, xmm0, or xor eax, eax",
                "in inline assembly: an output that is an input, too, set to zero before it",
                "_mm_cvtsi32_sd(_mm_setzero_pd(), x) instead of a register that is there already",
                "a newer compiler, or -mtune= of the processor: they know who waits",
            ],
            literature: &[
                "Intel specification updates: HSD146, SKL029, POPCNT may take longer than expected",
                "A. Abel, J. Reineke: uops.info, 2019",
                "Intel 64 and IA-32 Optimization Reference Manual: dependency breaking idioms",
            ],
        }
    }

    fn grade(&self, design: &Design) -> Grade {
        if origin(design).is_some() { Grade::Priced } else { Grade::Pattern }
    }

    fn needs(&self) -> Needs {
        Needs::Loops
    }

    fn look(&self, view: &FunctionView<'_>, design: &Design) -> Vec<Candidate> {
        // Few functions have such an instruction.
        let core = LazyCell::new(|| design.core().value);
        let waits = |kind| core.false_dependency_cycles(kind) > 0;
        let found = carried_dependencies(view.code(), |insn| view.bytes_of(insn), waits);
        let candidate = |CarriedDependency { insn, kind, is_certain }| {
            let cycles = f64::from(core.false_dependency_cycles(kind));
            let ways = if is_certain { "" } else { ", unless it comes another way" };
            Candidate {
                site: insn,
                sets: Vec::new(),
                elsewhere: Vec::new(),
                pays_elsewhere: None,
                certainty: if is_certain { Certainty::Definite } else { Certainty::Probable },
                by_placement: false,
                distance_instructions: 0,
                cycles_lost: CyclesLost { low: 0.0, high: cycles },
                weight: loop_weight(view.loop_depth(insn))
                    * if is_certain { 1.0 } else { SOME_WAYS },
                mechanism: format!(
                    "this waits for what its destination held, and in this loop that is its own \
                     result of the turn before{ways}: turns that have nothing else to do with one \
                     another take up to {cycles} cycles each"
                ),
                remedy: remedy(kind).to_owned(),
            }
        };
        found.into_iter().map(candidate).collect()
    }
}

fn remedy(kind: FalseDependency) -> &'static str {
    match kind {
        FalseDependency::Conversion | FalseDependency::Rounding | FalseDependency::Root => {
            "zero the register in front of it (pxor), as compilers do that know of it"
        }
        FalseDependency::BitCount | FalseDependency::ZeroCount => {
            "zero the register in front of it (xor), or count into the register that is read"
        }
        FalseDependency::Permutation => "zero the register in front of it (vpxor)",
    }
}

/// The probe that measured who waits.
fn origin(design: &Design) -> Option<&PriceOrigin> {
    let core = design.measured_core.as_ref()?;
    let asked = |cost: &CoreCost| matches!(cost, CoreCost::SameDestination(_));
    core.costs.iter().any(|row| asked(&row.cost)).then_some(&core.origin)
}

fn price(design: &Design) -> String {
    let core = design.core();
    let one = |kind: FalseDependency| {
        let name = match kind {
            FalseDependency::Conversion => "conversions",
            FalseDependency::Rounding => "roundings",
            FalseDependency::Root => "roots",
            FalseDependency::BitCount => "popcnt",
            FalseDependency::ZeroCount => "tzcnt and lzcnt",
            FalseDependency::Permutation => "vpermd and its like",
        };
        match core.value.false_dependency_cycles(kind) {
            0 => format!("{name} do not wait"),
            cycles => format!("{name} wait {cycles} cycles"),
        }
    };
    let all: Vec<String> = FalseDependency::ALL.into_iter().map(one).collect();
    format!("{} ({})", all.join(", "), origin(design).unwrap_or(&core.origin).sentence())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::fixture;
    use crate::machine::Microarchitecture;

    /// popcnt rax, rcx; add rdx, rax; dec rsi; jne; ret
    const COUNTS: &[u8] =
        &[0xf3, 0x48, 0x0f, 0xb8, 0xc1, 0x48, 0x01, 0xc2, 0x48, 0xff, 0xce, 0x75, 0xf3, 0xc3];

    fn found(code: &[u8], design: Microarchitecture) -> Vec<Candidate> {
        let image = fixture::image(&[("f", code)]).unwrap();
        let view = FunctionView::of(&image, &image.functions()[0]);
        FALSE_DEPENDENCY.look(&view, &Design::of(design))
    }

    #[test]
    fn a_core_that_does_not_wait_has_no_finding() {
        let here = found(COUNTS, Microarchitecture::CascadeLake);
        assert_eq!((here.len(), here[0].site, here[0].certainty), (1, 0, Certainty::Definite));
        assert!(here[0].mechanism.contains("up to 3 cycles"), "{}", here[0].mechanism);
        assert!(found(COUNTS, Microarchitecture::RedwoodCove).is_empty());
        assert!(found(COUNTS, Microarchitecture::Zen4).is_empty());
    }

    #[test]
    fn the_card_says_who_waits_here() {
        let price = FALSE_DEPENDENCY.card(&Design::of(Microarchitecture::CascadeLake)).price;
        assert!(price.contains("popcnt wait 3 cycles, tzcnt and lzcnt do not wait"), "{price}");
    }
}
