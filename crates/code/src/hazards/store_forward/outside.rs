//! Outside loops, in functions that a loop calls or a profile saw: the loop around them is the
//! caller's.
//!
//! Most such code has nothing: a look at how instructions spell their addresses says which functions
//! can read back wide what they, or a function that they call, have just stored in pieces.

use crate::code::{Addresses, Flow, FunctionCode, Loop, RawAddress};
use crate::machine::Design;

use super::super::{Candidate, FunctionView};
use super::calls::Summary;
use super::{calls, each_loop, writes};

pub(super) fn candidates(view: &FunctionView<'_>, design: &Design) -> Vec<Candidate> {
    let code = view.code();
    let outside = outside_loops(code);
    let (reads, hands_over) = (reads_records(code, &outside), hands_over(code, &outside));
    let called = if reads || hands_over {
        calls::called(view, outside.blocks.iter())
    } else {
        calls::Called::default()
    };
    let leaves = |summary: &Summary| reads && !summary.exits(view.image).paths.is_empty();
    let fills = fills(code, &outside);
    let is_read = fills
        || reads_back(code, &outside, design)
        || called.values().any(|summary| leaves(summary))
        || hands_over && calls::any_loads(view, &called);
    // On the way back from a load its stores may be those of a loop.
    let around =
        if fills { Loop { blocks: (0..code.blocks.len()).collect(), ..outside } } else { outside };
    if !is_read || !writes(view, &around, &called) {
        return Vec::new();
    }
    let changed = calls::changed_by(view, &called);
    let addresses = Addresses::in_loops(code, std::iter::once(&around), changed);
    each_loop(code, &addresses, [&around], design, Some((view, &called)))
}

/// The blocks that are in no loop, taken as one stretch that does not come round.
fn outside_loops(code: &FunctionCode) -> Loop {
    let blocks = (0..code.blocks.len()).filter(|block| code.innermost_loop(*block).is_none());
    Loop { header: 0, blocks: blocks.collect(), latches: Vec::new(), depth: 0 }
}

/// Whether a loop begins with a store that is narrower than a load outside.
fn fills(code: &FunctionCode, outside: &Loop) -> bool {
    let loads = code.insns_in(outside).filter_map(|at| {
        let insn = &code.insns[at];
        insn.load.filter(|_| !matches!(insn.flow, Flow::Return | Flow::Call))
    });
    let Some(widest) = loads.map(|a| a.size_bytes).max() else { return false };
    code.loops.iter().any(|inner| {
        let header = &code.blocks[inner.header];
        code.insns[header.first..header.end].iter().any(|insn| {
            insn.flow != Flow::Call && insn.store.is_some_and(|a| a.size_bytes < widest)
        })
    })
}

/// Whether it stores something before it calls a function, or goes on to one. What is pushed is kept,
/// not handed over.
fn hands_over(code: &FunctionCode, outside: &Loop) -> bool {
    let mut stores = false;
    code.insns_in(outside).any(|at| {
        let insn = &code.insns[at];
        let moves_stack =
            insn.define.is_some_and(|(reg, _)| reg == code.architecture.stack_pointer());
        match insn.flow {
            Flow::Call => stores,
            Flow::Jump(to) => stores && code.insn_at(to).is_none(),
            _ => {
                stores |= insn.store.is_some() && !moves_stack;
                false
            }
        }
    })
}

/// Whether it loads more than a byte that a function may have stored which it calls.
fn reads_records(code: &FunctionCode, outside: &Loop) -> bool {
    let mut calls = false;
    code.insns_in(outside).any(|at| {
        let insn = &code.insns[at];
        calls |= insn.flow == Flow::Call;
        let wide = insn.load.is_some_and(|a| a.size_bytes > 1);
        calls && wide && !matches!(insn.flow, Flow::Return | Flow::Call)
    })
}

/// Whether a load and a store are spelled alike, and the store could not serve the load.
fn reads_back(code: &FunctionCode, outside: &Loop, design: &Design) -> bool {
    let spelled = |a: &RawAddress| (a.base, a.index, a.scale);
    let store = |at: usize| {
        let store = code.insns[at].store.filter(|_| code.insns[at].flow != Flow::Call)?;
        Some((spelled(&store.address), store.address.displacement, store.size_bytes))
    };
    let mut stores: Vec<_> = code.insns_in(outside).filter_map(store).collect();
    if stores.is_empty() {
        return false;
    }
    stores.sort_unstable();
    code.insns_in(outside).any(|at| {
        let insn = &code.insns[at];
        let wide = insn.load.filter(|a| a.size_bytes > 1 && insn.flow != Flow::Return);
        let Some(load) = wide else { return false };
        let (spelled, at) = (spelled(&load.address), load.address.displacement);
        let end = at.saturating_add(i64::from(load.size_bytes));
        let first =
            stores.partition_point(|store| (store.0, store.1) < (spelled, at.saturating_sub(64)));
        stores[first..].iter().take_while(|s| s.0 == spelled && s.1 < end).any(|store| {
            let into = at.wrapping_sub(store.1);
            into < i64::from(store.2)
                && !design.forwarding_rule.forwards(into, store.2, load.size_bytes)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{ForwardingRule, Microarchitecture};
    use crate::model::Svma;

    const STORE_4: &[u8] = &[0x89, 0x07]; // mov [rdi], eax
    const LOAD_8: &[u8] = &[0x48, 0x8b, 0x1f]; // mov rbx, [rdi]
    const CALL: &[u8] = &[0xe8, 0, 0, 0, 0];

    fn code(parts: &[&[u8]]) -> FunctionCode {
        FunctionCode::decode(&parts.concat(), Svma(0x1000))
    }

    #[test]
    fn a_load_reads_back_what_is_spelled_alike_and_does_not_hold_all_of_it() {
        let zen_5 = Design::of(Microarchitecture::Zen5);
        let design = Design { forwarding_rule: ForwardingRule::SingleStoreContains, ..zen_5 };
        let reads = |store: &[u8], load: &[u8]| {
            let code = code(&[store, load]);
            reads_back(&code, &outside_loops(&code), &design)
        };
        assert!(
            reads(STORE_4, LOAD_8) && reads(LOAD_8, STORE_4),
            "a loop may lead from one to the other"
        );
        assert!(reads(&[0x89, 0x47, 0x04], LOAD_8), "its upper half");
        assert!(reads(&[0x89, 0x47, 0xfd], LOAD_8), "its first byte");
        assert!(!reads(&[0x89, 0x47, 0x08], LOAD_8), "what lies behind it");
        assert!(!reads(&[0x89, 0x47, 0xfc], LOAD_8), "what lies in front of it");
        assert!(!reads(&[0x48, 0x89, 0x07], LOAD_8), "mov [rdi], rax holds all");
        assert!(!reads(&[0x89, 0x06], LOAD_8), "mov [rsi], eax is spelled otherwise");
        assert!(!reads(&[], LOAD_8) && !reads(STORE_4, &[]));
        assert!(
            !reads(&[0x89, 0x04, 0x24], &[0xc3]),
            "what a return reads was not stored by halves"
        );
        // One that misses before one that meets.
        let both = [&[0x89, 0x47, 0xfc][..], STORE_4].concat();
        assert!(reads(&both, LOAD_8));
    }

    #[test]
    fn what_is_stored_before_a_call_is_handed_over() {
        let hands = |parts: &[&[u8]]| {
            let code = code(parts);
            hands_over(&code, &outside_loops(&code))
        };
        assert!(hands(&[STORE_4, CALL]) && !hands(&[CALL, STORE_4]) && !hands(&[LOAD_8, CALL]));
        assert!(!hands(&[&[0x53], CALL]), "push rbx");
        let (away, on): (&[u8], &[u8]) = (&[0xe9, 0, 1, 0, 0], &[0xeb, 0]);
        assert!(hands(&[STORE_4, away]), "jmp to another function");
        assert!(!hands(&[STORE_4, on, LOAD_8]), "jmp to the next instruction");
    }

    #[test]
    fn records_are_read_behind_a_call_and_not_a_byte_at_a_time() {
        let reads = |parts: &[&[u8]]| {
            let code = code(parts);
            reads_records(&code, &outside_loops(&code))
        };
        assert!(reads(&[CALL, LOAD_8]) && !reads(&[LOAD_8, CALL]) && !reads(&[LOAD_8]));
        assert!(reads(&[CALL, &[0x8b, 0x1f]]), "mov ebx, [rdi]");
        assert!(!reads(&[CALL, &[0x8a, 0x1f]]), "mov bl, [rdi]");
        assert!(!reads(&[CALL, &[0xc3]]) && !reads(&[CALL, &[0xff, 0x17]]), "ret, call [rdi]");
    }

    #[test]
    fn what_is_in_a_loop_is_not_outside_of_one() {
        // mov [rdi], eax; (loop:) dec edi; jnz loop; ret
        let code = code(&[STORE_4, &[0xff, 0xcf, 0x75, 0xfc, 0xc3]]);
        let outside = outside_loops(&code);
        assert_eq!((outside.depth, code.insns_in(&outside).collect::<Vec<_>>()), (0, vec![0, 3]));
    }
}
