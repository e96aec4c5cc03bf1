//! `rep-string`: a short copy or fill done by a string instruction.
//!
//! **Effect.** `rep movs` and `rep stos` run from microcode. Whatever the size, they cost a start-up
//! of two to three dozen cycles before the first byte moves, and some of that cannot be hidden
//! behind other work. Plain moves of eight bytes do the same for one cycle each, so there is a size
//! (some hundred bytes) below which the string instruction always loses. Compilers inline it far
//! below: gcc does from 48 bytes on where vector registers are off limits, as in a kernel.
//!
//! **Sign.** Samples pile up on the string instruction and the one behind it; cycles per call hardly
//! depend on the size.
//!
//! **What is looked for.** Every `rep movs` and `rep stos`. The size from a constant count, through
//! blocks, and from behind gcc's alignment prologue ([`crate::code::string_sites`]). Below the
//! crossover that the design knows it is a finding; what it loses per execution is asked
//! there as well. Sites of unknown size are counted, not blamed.
//!
//! **Literature.** M. Guzik, "x86: prevent gcc from emitting rep movsq/stosq for inlined ops"
//! (2025); Intel Optimization Reference Manual, REP string enhancement; A. Fog, string
//! instructions.

use crate::code::{StringKind, StringSite};
use crate::machine::{Design, StringCosts};
use crate::model::{Certainty, CyclesLost, Grade};

use super::{Candidate, FunctionView, Hazard, Needs, RuleCard, loop_weight};

/// The rule.
pub static REP_STRING: RepString = RepString;

pub struct RepString;

impl Hazard for RepString {
    fn id(&self) -> &'static str {
        "rep-string"
    }

    fn card(&self, design: &Design) -> RuleCard {
        RuleCard {
            id: self.id(),
            title: "a short copy or fill done by a string instruction",
            effect: "rep movs and rep stos run from microcode: two to three dozen cycles of \
                     start-up before the first byte moves, whatever the size, and everything \
                     behind them waits. Moves of eight bytes cost a cycle each, so below some \
                     hundred bytes they always win.",
            picture: "  mov ecx, 21      21 x 8 = 168 bytes\n  \
                      rep movsq        start-up |################|  bytes |#####|\n  \
                      21 x mov, mov                                       |##########|\n",
            price: price(design),
            detection: "Every rep movs and rep stos. The size: a constant count, also from another \
                        block or computed from constants; or hidden by gcc's prologue, which \
                        stores the first and the last piece and rounds the pointer up. Below the \
                        crossover with moves of eight bytes it is a finding. Sites of unknown size \
                        are counted (--sites lists them).",
            remedies: &[
                "gcc: -mmemcpy-strategy=unrolled_loop:256:noalign,libcall:-1:noalign and \
                 -mmemset-strategy= likewise; -Os ignores both",
                "gcc: a newer -mtune; what it inlines differs more by tuning than by version",
                "clang has no such option; a call or a loop of known small size in the source is \
                 not turned into a string instruction",
                "make the structure smaller, or clear only what is read",
            ],
            literature: &[
                "M. Guzik: x86: prevent gcc from emitting rep movsq/stosq for inlined ops, 2025",
                "Intel 64 and IA-32 Optimization Reference Manual: REP Prefix and Data Movement",
                "A. Fog: Optimizing Subroutines in Assembly Language, string instructions",
            ],
        }
    }

    fn grade(&self, design: &Design) -> Grade {
        let both = [design.string_move_costs(8), design.string_store_costs(8)];
        let both = both.iter().all(|costs| costs.origin.is_probed());
        if both { Grade::Priced } else { Grade::Pattern }
    }

    fn needs(&self) -> Needs {
        Needs::Strings
    }

    fn look(&self, view: &FunctionView<'_>, design: &Design) -> Vec<Candidate> {
        let costs = |site: &StringSite| match site.kind {
            StringKind::Move => design.string_move_costs(site.unit_bytes),
            StringKind::Store => design.string_store_costs(site.unit_bytes),
        };
        view.strings().iter().filter_map(|site| candidate(view, site, &costs(site))).collect()
    }
}

fn candidate(view: &FunctionView<'_>, site: &StringSite, costs: &StringCosts) -> Option<Candidate> {
    let size = site.size_bytes.filter(|n| *n > 0)?;
    let (low, high) = costs.lost_cycles(size);
    if high <= 0.0 {
        return None;
    }
    let cycles_lost = CyclesLost { low, high };
    let (does, moves) = match site.kind {
        StringKind::Move => ("copies", "loads and stores"),
        StringKind::Store => ("fills", "stores"),
    };
    let hidden = if site.behind_prologue { ", behind an alignment prologue" } else { "" };
    Some(Candidate {
        site: site.insn,
        sets: Vec::new(),
        elsewhere: Vec::new(),
        pays_elsewhere: None,
        certainty: Certainty::Definite,
        by_placement: false,
        distance_instructions: 0,
        cycles_lost,
        weight: loop_weight(view.loop_depth(site.insn)),
        mechanism: format!(
            "this {does} {size} bytes{hidden} with a string instruction: it loses {cycles_lost} \
             cycles each time against {moves} of eight bytes, which win below {} bytes",
            costs.crossover_bytes
        ),
        remedy: "keep the compiler from inlining it at this size (gcc: -mmemcpy-strategy=, \
                 -mmemset-strategy=), or make it smaller"
            .to_owned(),
    })
}

fn price(design: &Design) -> String {
    let one = |name: &str, costs: &StringCosts| {
        let lost = |size| costs.lost_cycles(size).1;
        format!(
            "{name} loses up to {:.0} cycles at 48 bytes and {:.0} at 168 and wins from {} bytes \
             on ({})",
            lost(48),
            lost(168),
            costs.crossover_bytes,
            costs.origin.sentence()
        )
    };
    format!(
        "{}; {}",
        one("rep movs", &design.string_move_costs(8)),
        one("rep stos", &design.string_store_costs(8))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::fixture;
    use crate::machine::Microarchitecture;

    fn found(code: &[u8], design: Microarchitecture) -> Vec<Candidate> {
        let image = fixture::image(&[("f", code)]).unwrap();
        let view = FunctionView::of(&image, &image.functions()[0]);
        REP_STRING.look(&view, &Design::of(design))
    }

    #[test]
    fn a_small_copy_is_found_with_its_price_outside_loops_too() {
        // mov ecx, 21; rep movsq; ret
        let found =
            found(&[0xb9, 21, 0, 0, 0, 0xf3, 0x48, 0xa5, 0xc3], Microarchitecture::CascadeLake);
        assert_eq!(found.len(), 1);
        assert!(found[0].mechanism.contains("copies 168 bytes"), "{}", found[0].mechanism);
        assert!((found[0].cycles_lost.high - 18.6).abs() < 0.1);
    }

    #[test]
    fn the_card_tells_what_both_lose_and_from_where_they_win() {
        let design = Design::of(Microarchitecture::CascadeLake);
        let price = REP_STRING.card(&design).price;
        let (moves, stores) = (design.string_move_costs(8), design.string_store_costs(8));
        for (name, costs) in [("rep movs", moves), ("rep stos", stores)] {
            let [short, long] = [48, 168].map(|size| costs.lost_cycles(size).1);
            let said =
                format!("{name} loses up to {short:.0} cycles at 48 bytes and {long:.0} at 168");
            assert!(price.contains(&said), "{said}: {price}");
            assert!(
                price.contains(&format!("wins from {} bytes", costs.crossover_bytes)),
                "{price}"
            );
        }
        assert_eq!(REP_STRING.grade(&design), Grade::Pattern, "nothing was probed");
    }

    #[test]
    fn large_and_unknown_sizes_are_no_findings() {
        // mov ecx, 512; rep stosq
        let large = [0xb9, 0, 2, 0, 0, 0xf3, 0x48, 0xab];
        assert!(found(&large, Microarchitecture::CascadeLake).is_empty());
        // rep stosq
        assert!(found(&[0xf3, 0x48, 0xab], Microarchitecture::Zen5).is_empty());
    }

    #[test]
    fn single_bytes_have_a_price_of_their_own_where_a_core_does_them_without_microcode() {
        // mov ecx, 128; rep movsb, and mov ecx, 16; rep movsq
        let bytes = [0xb9, 128, 0, 0, 0, 0xf3, 0xa4];
        let quads = [0xb9, 16, 0, 0, 0, 0xf3, 0x48, 0xa5];
        let lost = |code: &[u8], design| found(code, design).first().map(|c| c.cycles_lost.high);
        for design in [Microarchitecture::GoldenCove, Microarchitecture::RedwoodCove] {
            let (bytes, quads) = (lost(&bytes, design), lost(&quads, design));
            assert!(bytes.unwrap_or(0.0) < 2.0 && quads.unwrap() > 10.0, "{bytes:?} {quads:?}");
        }
        let skylake = Microarchitecture::CascadeLake;
        assert_eq!(lost(&bytes, skylake), lost(&quads, skylake));
    }
}
