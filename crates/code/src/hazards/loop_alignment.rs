//! `loop-alignment`: a small loop that lies across more windows of code than it has to, and jumps
//! at 32-byte boundaries on the parts that mind.
//!
//! **Effect.** The front end delivers decoded instructions by aligned windows of 32 or 64 bytes of
//! code, about one window a cycle. A loop that would fit into one and lies across two needs two
//! cycles a turn for its code alone. Worse, on Skylake and its successors up to Cascade Lake a
//! jump that crosses or ends at a 32-byte boundary is never kept in decoded form (an erratum and
//! its microcode): its window is decoded anew each time.
//!
//! **Sign.** The same loop takes another time after unrelated code before it has changed its size.
//!
//! **What is looked for.** Innermost loops without calls, of at most four windows in one piece, whose
//! start makes them touch more windows than their size needs. And, where the design
//! has the erratum, jumps in innermost loops (with the compare that is fused with
//! them) that touch a boundary. Whether the loop is hot the code does not say: without a profile
//! these findings rank low.
//!
//! **Literature.** Intel, "Mitigations for Jump Conditional Code Erratum" (2019); A. Fog, The
//! microarchitecture of Intel, AMD and VIA CPUs; D. Bakhvalov, code alignment (2018).

use crate::code::{Flow, FunctionCode, Loop, x86};
use crate::machine::{Design, Fusion, PriceRange};
use crate::model::{Certainty, CyclesLost, Grade, Svma};

use super::{Candidate, FunctionView, Hazard, Needs, RuleCard, loop_weight};

/// The rule.
pub static LOOP_ALIGNMENT: LoopAlignment = LoopAlignment;

pub struct LoopAlignment;

impl Hazard for LoopAlignment {
    fn id(&self) -> &'static str {
        "loop-alignment"
    }

    fn card(&self, design: &Design) -> RuleCard {
        let window = design.fetch_window_bytes().value;
        let jumps = match design.jump_at_boundary_price() {
            Some(price) => {
                format!("a jump at a 32-byte boundary costs {} each time", price.sentence())
            }
            None => "jumps at 32-byte boundaries cost nothing on this design".to_owned(),
        };
        RuleCard {
            id: self.id(),
            title: "a small loop across more windows of code than it needs",
            effect: "Decoded instructions come in windows of 32 or 64 bytes of code, about one a \
                     cycle. A loop of 40 bytes that lies across three windows of 32 instead of two \
                     needs a cycle more for each turn. On Skylake to Cascade Lake a jump that \
                     crosses or ends at a 32-byte boundary is decoded anew each time.",
            picture: "  window        |               |               |\n  \
                      as it lies    |            LLL|LLLLLLLLLLLLLLL|LL\n  \
                      aligned       |LLLLLLLLLLLLLLL|LLLLL\n",
            price: format!(
                "windows of {window} bytes here; one more per turn costs {}; {jumps}",
                design.extra_window_price().sentence()
            ),
            detection: "Innermost loops without calls of at most four windows in one piece that \
                        touch more windows than their size needs; on designs with the erratum also \
                        jumps in innermost loops at 32-byte boundaries. Whether the loop is hot \
                        only a profile says (--profile-data).",
            remedies: &[
                "gcc: -falign-loops=32 or 64; clang: -mllvm -align-all-nofallthru-blocks=5, or \
                 [[clang::code_align(64)]] on the loop",
                "erratum: gcc -Wa,-mbranches-within-32B-boundaries; clang \
                 -mbranches-within-32B-boundaries",
                "Go: the assembler pads jumps only where functions start at 32 bytes; keep \
                 -funcalign at 32 or more",
                "an alignment that helps one loop moves all others: measure many layouts",
            ],
            literature: &[
                "Intel: Mitigations for Jump Conditional Code Erratum, 2019",
                "A. Fog: The microarchitecture of Intel, AMD and VIA CPUs",
            ],
        }
    }

    /// No probe prices the front end yet.
    fn grade(&self, _design: &Design) -> Grade {
        Grade::Pattern
    }

    fn needs(&self) -> Needs {
        Needs::Loops
    }

    fn pays_at_site(&self) -> bool {
        false
    }

    fn look(&self, view: &FunctionView<'_>, design: &Design) -> Vec<Candidate> {
        let code = view.code();
        code.loops
            .iter()
            .filter(|l| code.is_innermost(l))
            .filter_map(|l| {
                let jumps = design.jump_at_boundary_price();
                let fusion = design.fusion().value;
                let jumps = jumps.and_then(|price| jumps_at_boundaries(view, l, &price, fusion));
                jumps.or_else(|| across_windows(view, l, design))
            })
            .collect()
    }
}

/// First and last address of a loop that is one piece of code without calls.
fn extent(code: &FunctionCode, of: &Loop) -> Option<(Svma, Svma)> {
    let blocks = || code.bodies(of);
    let in_one_piece = blocks().zip(blocks().skip(1)).all(|(one, next)| one.end == next.first);
    let calls = blocks().any(|b| code.insns[b.first..b.end].iter().any(|i| i.flow == Flow::Call));
    let (first, last) = (blocks().next()?, blocks().next_back()?);
    (in_one_piece && !calls).then(|| (code.insns[first.first].svma, code.insns[last.end - 1].end()))
}

/// A small loop that touches more windows than its size needs.
pub struct Spread {
    /// Its first instruction.
    pub start: Svma,
    /// Of all its instructions.
    pub size_bytes: u64,
    /// Fetch windows that it touches.
    pub windows: u64,
    /// Fetch windows that so many bytes need.
    pub needed: u64,
}

impl Spread {
    /// `None` for a loop that is in pieces, calls, is large, or touches no more than it needs.
    pub fn of(code: &FunctionCode, of: &Loop, design: &Design) -> Option<Self> {
        let (start, end) = extent(code, of)?;
        // Also leaves out what would wrap around the end of the address space.
        let size_bytes = end.distance_from(start);
        let size_bytes = size_bytes.filter(|n| (1..=design.small_loop_bytes()).contains(n))?;
        let window = design.fetch_window_bytes().value;
        let windows = ((end.0 - 1) / window).saturating_sub(start.0 / window) + 1;
        let needed = size_bytes.div_ceil(window);
        (windows > needed).then_some(Self { start, size_bytes, windows, needed })
    }
}

fn across_windows(view: &FunctionView<'_>, of: &Loop, design: &Design) -> Option<Candidate> {
    let code = view.code();
    let Spread { start, size_bytes, windows, needed } = Spread::of(code, of, design)?;
    let window = design.fetch_window_bytes().value;
    let price = design.extra_window_price();
    let before = start.0 % window;
    Some(Candidate {
        site: code.blocks[*of.blocks.first()?].first,
        sets: Vec::new(),
        elsewhere: Vec::new(),
        pays_elsewhere: None,
        certainty: Certainty::Definite,
        by_placement: true,
        distance_instructions: 0,
        cycles_lost: CyclesLost { low: price.low_cycles, high: price.high_cycles },
        weight: loop_weight(of.depth),
        mechanism: format!(
            "this loop of {size_bytes} bytes starts {before} bytes into a window of {window} and touches \
             {windows} of them where {needed} would do: each turn may wait for one more"
        ),
        remedy: format!("align the loop to {window} bytes (gcc: -falign-loops={window})"),
    })
}

fn jumps_at_boundaries(
    view: &FunctionView<'_>,
    of: &Loop,
    price: &PriceRange,
    fusion: Fusion,
) -> Option<Candidate> {
    let code = view.code();
    let jumps: Vec<usize> =
        code.insns_in(of).filter(|i| touches_boundary(view, *i, fusion)).collect();
    let (site, count) = (*jumps.first()?, jumps.len());
    Some(Candidate {
        site,
        // Which jumps: the site is the first of them.
        sets: if count > 1 { vec![jumps[1..].to_vec()] } else { Vec::new() },
        elsewhere: Vec::new(),
        pays_elsewhere: None,
        certainty: Certainty::Definite,
        by_placement: true,
        distance_instructions: 0,
        cycles_lost: CyclesLost { low: price.low_cycles, high: price.high_cycles * count as f64 },
        weight: loop_weight(of.depth),
        mechanism: format!(
            "{} in this loop cross{} or end{} at a 32-byte boundary: this design does not keep \
             them in decoded form and decodes their windows anew each turn",
            if count == 1 { "a jump".to_owned() } else { format!("{count} jumps") },
            if count == 1 { "es" } else { "" },
            if count == 1 { "s" } else { "" },
        ),
        remedy: "assemble with -mbranches-within-32B-boundaries (gcc: -Wa,)".to_owned(),
    })
}

/// Whether an instruction is a jump that crosses or ends at a boundary, together with what is fused
/// with it.
fn touches_boundary(view: &FunctionView<'_>, index: usize, fusion: Fusion) -> bool {
    let pair = &view.code().insns[index.saturating_sub(1)..=index];
    let Some(insn) = pair.last().filter(|insn| insn.flow != Flow::Next) else { return false };
    let bytes: Vec<u8> = pair.iter().flat_map(|i| view.bytes_of(i)).copied().collect();
    let jumps = x86::jumps(&bytes, pair[0].svma, fusion);
    jumps.last().is_some_and(|jump| jump.insn == insn.svma && jump.is_on_boundary())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::fixture;
    use crate::machine::Microarchitecture;

    /// `filler` bytes of nops, then a loop of `body` more: nops; dec edi; jnz; ret.
    fn found(filler: usize, body: usize, design: Microarchitecture) -> Vec<Candidate> {
        let mut code = vec![0x90; filler + body];
        code.extend([0xff, 0xcf, 0x75, (-(body as i8) - 4) as u8, 0xc3]);
        let image = fixture::image(&[("f", &code)]).unwrap();
        let view = FunctionView::of(&image, &image.functions()[0]);
        LOOP_ALIGNMENT.look(&view, &Design::of(design))
    }

    #[test]
    fn a_loop_is_found_when_another_start_would_need_fewer_windows() {
        use Microarchitecture::Zen5;
        assert!(found(0, 40, Zen5).is_empty());
        let across = found(32, 40, Zen5);
        assert_eq!(across.len(), 1);
        assert!(across[0].mechanism.contains("touches 2 of them where 1"), "{across:?}");
        assert!(found(8, 100, Zen5).is_empty(), "needs two anyway");
        let said = &across[0].mechanism;
        assert!(said.contains("of 44 bytes starts 32 bytes into a window of 64"), "{said}");
        assert_eq!(across[0].weight, 1.0);
        // A loop that ends with its window touches no other.
        assert!(found(20, 40, Zen5).is_empty());
        assert_eq!(found(21, 40, Zen5).len(), 1);
        // 100 bytes and more: in three windows where two would do.
        let long = found(40, 100, Zen5);
        assert!(long[0].mechanism.contains("touches 3 of them where 2"), "{long:?}");
    }

    #[test]
    fn jumps_at_boundaries_matter_on_parts_with_the_erratum_only() {
        use Microarchitecture::{CascadeLake, Zen5};
        // dec edi at 30, jnz at 32: the fused pair crosses.
        let jump = found(0, 30, CascadeLake);
        assert_eq!(jump.len(), 1);
        assert!(jump[0].mechanism.contains("a jump in this loop crosses"), "{jump:?}");
        // dec edi at 28, jnz ends at 32.
        assert_eq!(found(0, 28, CascadeLake).len(), 1);
        assert!(found(0, 24, CascadeLake).is_empty());
        assert!(found(0, 30, Zen5).is_empty());
        let price = Design::of(CascadeLake).jump_at_boundary_price().unwrap();
        let lost = jump[0].cycles_lost;
        assert_eq!((lost.low, lost.high), (price.low_cycles, price.high_cycles));
        assert_eq!((jump[0].weight, jump[0].sets.len()), (1.0, 0));
    }

    #[test]
    fn all_jumps_of_a_loop_at_boundaries_count() {
        // (loop:) 31 nops; je +0 at 31 crosses; nops to 63; jnz loop at 63 crosses; ret
        let mut code = vec![0x90; 31];
        code.extend([0x74, 0x00]);
        code.resize(63, 0x90);
        code.extend([0x75, (-65_i8) as u8, 0xc3]);
        let image = fixture::image(&[("f", &code)]).unwrap();
        let view = FunctionView::of(&image, &image.functions()[0]);
        let design = Design::of(Microarchitecture::CascadeLake);
        let found = LOOP_ALIGNMENT.look(&view, &design);
        let [both] = &found[..] else { panic!("{found:?}") };
        assert!(both.mechanism.starts_with("2 jumps in this loop cross or end"), "{both:?}");
        assert_eq!((both.site, &both.sets), (31, &vec![vec![62]]));
        let price = design.jump_at_boundary_price().unwrap();
        assert_eq!(both.cycles_lost.high, 2.0 * price.high_cycles);
        assert_eq!(both.cycles_lost.low, price.low_cycles);
    }
}
