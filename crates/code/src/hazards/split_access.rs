//! `split-access`: a load or store at a known address that crosses a cache line.
//!
//! **Effect.** The cache is read and written by lines of 64 bytes. An access that begins in one and
//! ends in the next takes two of everything: two look-ups, two slots of a load or store buffer, and
//! a few cycles more of latency. Across a page it is dearer still, and an atomic one locks the bus.
//!
//! **Sign.** The time of a loop changes when a variable moves by a few bytes; counters for split
//! loads and stores rise.
//!
//! **What is looked for.** Accesses whose address is a constant (a global), and accesses at a
//! constant offset in a stack frame that the function aligns to a line or more. Everything else
//! depends on where the caller's frame or the heap puts the data, which the code does not say.
//!
//! **Literature.** Intel Optimization Reference Manual, alignment; AMD Software Optimization
//! Guides, load-store unit.

use crate::code::{Access, FunctionCode, Insn, Reg, RootKind, SymbolicAddress, Value};
use crate::machine::Design;
use crate::model::{Certainty, CyclesLost, Grade, Svma};

use super::{Candidate, FunctionView, Hazard, Needs, RuleCard, loop_weight};

/// The rule.
pub static SPLIT_ACCESS: SplitAccess = SplitAccess;

pub struct SplitAccess;

/// A line of every x86-64 and most AArch64 designs.
const LINE_BYTES: i64 = crate::model::LINE_BYTES as i64;
/// What stands where the linker puts it.
const A_GLOBAL: &str = "a global";
/// Nothing is mapped below this; smaller constants are offsets into something else.
const LOWEST_ADDRESS: i64 = 4096;

impl Hazard for SplitAccess {
    fn id(&self) -> &'static str {
        "split-access"
    }

    fn card(&self, design: &Design) -> RuleCard {
        RuleCard {
            id: self.id(),
            title: "an access at a known address that crosses a cache line",
            effect: "The cache works in lines of 64 bytes. An access that begins in one line and \
                     ends in the next is done twice, holds two slots of the load or store buffer \
                     and comes back a few cycles later; across a page it is dearer still.",
            picture: "  line n                            line n+1\n  \
                      |..........................AAAA|AAAA............|\n  \
                      .                       8 bytes at offset 60\n",
            price: format!(
                "an access across a line takes {} more",
                design.line_split_price().sentence()
            ),
            detection: "Globals at constant addresses, and constant offsets in frames that the \
                        function aligns to 64 bytes or more. Frames with the ordinary 16 bytes of \
                        alignment and heap addresses are left out: the code does not say where \
                        they are.",
            remedies: &[
                "C, C++: alignas(16) or alignas(64) on the variable, or on the type",
                "undo #pragma pack and __attribute__((packed)) where nothing outside needs it",
                "linker scripts and assembly: align the section or the symbol",
            ],
            literature: &[
                "Intel 64 and IA-32 Optimization Reference Manual: Alignment",
                "AMD Software Optimization Guide for Zen 5: Load-Store Unit",
            ],
        }
    }

    fn grade(&self, design: &Design) -> Grade {
        let probed = design.line_split_price().origin.is_probed();
        if probed { Grade::Priced } else { Grade::Pattern }
    }

    fn needs(&self) -> Needs {
        Needs::FixedAddresses
    }

    fn look(&self, view: &FunctionView<'_>, design: &Design) -> Vec<Candidate> {
        let code = view.code();
        let frames = aligned_frames(code);
        let mut found = Vec::new();
        for (index, insn) in code.insns.iter().enumerate() {
            let Some(access) = insn.load.or(insn.store) else { continue };
            let (place, offset) = if let Some(address) = global(view, &access) {
                (A_GLOBAL, address)
            } else if !frames.is_empty()
                && let Some(offset) = in_frame(view, index, &frames)
            {
                ("its aligned stack frame", offset)
            } else {
                continue;
            };
            let into_line = offset.rem_euclid(LINE_BYTES);
            if into_line + i64::from(access.size_bytes) > LINE_BYTES {
                found.push(candidate(view, design, index, &access, place, into_line));
            }
        }
        found
    }
}

/// The constant address of an access to data.
fn global(view: &FunctionView<'_>, access: &Access) -> Option<i64> {
    let address = &access.address;
    let constant = address.base.is_none() && address.index.is_none();
    // Where a linker has yet to fill in the address, it looks like one of code.
    let is_data = || view.image.code_at(Svma(address.displacement as u64), 1).is_empty();
    (constant && address.displacement.unsigned_abs() >= LOWEST_ADDRESS as u64 && is_data())
        .then_some(address.displacement)
}

/// The instructions that align the stack pointer to a line or more.
fn aligned_frames(code: &FunctionCode) -> Vec<u32> {
    let aligns = |insn: &Insn| match insn.define {
        Some((Reg::STACK, Value::Masked(mask))) => (mask as i64) <= -LINE_BYTES,
        _ => false,
    };
    code.insns.iter().enumerate().filter(|(_, i)| aligns(i)).map(|(i, _)| i as u32).collect()
}

/// The offset of an access from an aligned stack pointer.
fn in_frame(view: &FunctionView<'_>, index: usize, frames: &[u32]) -> Option<i64> {
    let (code, addresses) = (view.code(), view.addresses());
    let is_load = code.insns[index].load.is_some();
    let address = if is_load { addresses.load(code, index) } else { addresses.store(code, index) };
    let SymbolicAddress { base: Some(root), also: None, index: None, offset_bytes } = address?
    else {
        return None;
    };
    match root.kind() {
        RootKind::Result(at, Reg::STACK) if frames.contains(&at) => Some(offset_bytes),
        _ => None,
    }
}

fn candidate(
    view: &FunctionView<'_>,
    design: &Design,
    site: usize,
    access: &Access,
    place: &str,
    into_line: i64,
) -> Candidate {
    let insn = &view.code().insns[site];
    let what = match (insn.load.is_some(), insn.store.is_some()) {
        (true, true) => "update",
        (true, false) => "load",
        _ => "store",
    };
    let size = access.size_bytes;
    let aligned = size.next_power_of_two();
    Candidate {
        site,
        sets: Vec::new(),
        elsewhere: Vec::new(),
        pays_elsewhere: None,
        certainty: Certainty::Definite,
        by_placement: place == A_GLOBAL,
        distance_instructions: 0,
        cycles_lost: CyclesLost { low: 0.0, high: design.line_split_price().high_cycles },
        weight: loop_weight(view.loop_depth(site)),
        mechanism: format!(
            "this {what} of {size} bytes in {place} begins {into_line} bytes into a cache line \
             and ends in the next: it is done twice, once for each line"
        ),
        remedy: format!("align the variable to {aligned} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::fixture;
    use crate::machine::Microarchitecture;

    fn found(code: &[u8]) -> Vec<Candidate> {
        let image = fixture::image(&[("f", code)]).unwrap();
        let view = FunctionView::of(&image, &image.functions()[0]);
        SPLIT_ACCESS.look(&view, &Design::of(Microarchitecture::Zen5))
    }

    /// mov rax, [rip + to - end]; ret, where the fixture puts its first function.
    fn load_global(to: u64) -> Vec<u8> {
        let end = fixture::CODE_START.0.0 + 7;
        let mut code = vec![0x48, 0x8b, 0x05];
        code.extend((to.wrapping_sub(end) as i32).to_le_bytes());
        code.push(0xc3);
        code
    }

    #[test]
    fn a_global_across_a_line_is_found_and_one_inside_is_not() {
        let crossing = found(&load_global(0x60_003c));
        assert_eq!(crossing.len(), 1);
        assert!(crossing[0].mechanism.contains("begins 60 bytes into"), "{crossing:?}");
        assert!(found(&load_global(0x60_0038)).is_empty());
        let long = [load_global(0x40_103c), vec![0x90; 100]].concat();
        assert!(found(&long).is_empty(), "code is no data");
        assert!(crossing[0].by_placement && crossing[0].mechanism.contains("this load of 8 bytes"));
        assert_eq!(
            (crossing[0].remedy.as_str(), crossing[0].weight),
            ("align the variable to 8 bytes", 0.25)
        );
    }

    #[test]
    fn only_an_address_that_is_a_constant_is_one() {
        // mov rax, [0x60003c]; the same with rbx and with rbx*8 added; [0x3c], which is no address
        let absolute =
            |modrm: &[u8], to: u32| [&[0x48, 0x8b][..], modrm, &to.to_le_bytes(), &[0xc3]].concat();
        assert_eq!(found(&absolute(&[0x04, 0x25], 0x60_003c)).len(), 1);
        assert!(found(&absolute(&[0x83], 0x60_003c)).is_empty());
        assert!(found(&absolute(&[0x04, 0xdd], 0x60_003c)).is_empty());
        assert!(found(&absolute(&[0x04, 0x25], 0x3c)).is_empty());
        // A store, and an addition to memory.
        let says = |code: &[u8], word: &str| found(code)[0].mechanism.contains(word);
        assert!(says(&[0x48, 0x89, 0x04, 0x25, 0x3c, 0, 0x60, 0, 0xc3], "this store of 8 bytes"));
        assert!(says(&[0x48, 0x01, 0x04, 0x25, 0x3c, 0, 0x60, 0, 0xc3], "this update of 8 bytes"));
    }

    #[test]
    fn a_frame_counts_only_when_it_is_aligned() {
        // sub rsp, 128; mov rax, [rsp+60]; ret
        let ordinary = [0x48, 0x81, 0xec, 0x80, 0, 0, 0, 0x48, 0x8b, 0x44, 0x24, 60, 0xc3];
        assert!(found(&ordinary).is_empty());
        // and rsp, -64; the same
        let aligned = [&[0x48, 0x83, 0xe4, 0xc0][..], &ordinary].concat();
        assert_eq!(found(&aligned).len(), 1);
        // and rsp, -32 does not say where lines begin.
        let by_half = [&[0x48, 0x83, 0xe4, 0xe0][..], &ordinary].concat();
        assert!(found(&by_half).is_empty());
    }
}
