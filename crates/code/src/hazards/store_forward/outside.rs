//! Outside loops, in functions that a loop calls or a profile saw: the loop around them is the
//! caller's.
//!
//! Most such code has nothing: a look at how instructions spell their addresses says which functions
//! can read back wide what they, or a function that they call, have just stored in pieces.

use crate::code::{Addresses, Flow, FunctionCode, Loop, RawAddress};
use crate::machine::Design;

use super::super::{Candidate, FunctionView};
use super::{calls, each_loop, writes};

pub(super) fn candidates(view: &FunctionView<'_>, design: &Design) -> Vec<Candidate> {
    let code = view.code();
    let outside = outside_loops(code);
    let called = if reads_records(code, &outside) {
        calls::called(view, outside.blocks.iter())
    } else {
        calls::Called::default()
    };
    let leaves = called.values().any(|summary| !summary.exits(view.image).paths.is_empty());
    if !(leaves || reads_back(code, &outside, design)) || !writes(view, &outside, &called) {
        return Vec::new();
    }
    let changed = calls::changed_by(view, &called);
    let addresses = Addresses::in_loops(code, std::iter::once(&outside), changed);
    each_loop(code, &addresses, [&outside], design, Some((view, &called)))
}

/// The blocks that are in no loop, taken as one stretch that does not come round.
fn outside_loops(code: &FunctionCode) -> Loop {
    let blocks = (0..code.blocks.len()).filter(|block| code.innermost_loop(*block).is_none());
    Loop { header: 0, blocks: blocks.collect(), latches: Vec::new(), depth: 0 }
}

/// Whether it loads 8 bytes or more that a function may have stored which it calls.
fn reads_records(code: &FunctionCode, outside: &Loop) -> bool {
    let mut calls = false;
    code.insns_in(outside).any(|at| {
        let insn = &code.insns[at];
        calls |= insn.flow == Flow::Call;
        let wide = insn.load.is_some_and(|a| a.size_bytes >= 8);
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
