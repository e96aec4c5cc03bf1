//! Which blocks values are followed through, and in which order.

use crate::code::cfg::FunctionCode;
use crate::code::loops::{BlockOrder, Loop};

/// The order in which blocks are looked at, and where it goes back.
pub(super) struct Order<'a> {
    pub blocks: Vec<usize>,
    /// Where each block stands in it.
    pub position_of: Vec<u32>,
    /// Per block.
    pub is_entry: &'a [bool],
    /// Whether a block is also reached from one that is not before it.
    pub repeats: Vec<bool>,
    /// Per block.
    pub asked: Vec<Asked>,
}

/// What of a block is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Nothing of it flows into what is asked for.
    Nothing,
    /// What registers hold at its end.
    Values,
    Accesses,
}

impl<'a> Order<'a> {
    pub fn of(code: &'a FunctionCode, asked: Vec<Asked>) -> Self {
        let BlockOrder { blocks, is_entry, .. } = &code.order;
        let mut position_of = vec![0; code.blocks.len()];
        for (position, block) in (0..).zip(blocks) {
            position_of[*block] = position;
        }
        let blocks: Vec<usize> =
            blocks.iter().copied().filter(|b| asked[*b] != Asked::Nothing).collect();
        let mut repeats = vec![false; code.blocks.len()];
        for b in &blocks {
            let mut before = code.blocks[*b].predecessors.iter();
            repeats[*b] = before.any(|p| position_of[*p] >= position_of[*b]);
        }
        Self { blocks, position_of, is_entry, repeats, asked }
    }
}

/// The accesses of these loops, and the values that can flow into them.
pub(super) fn what_loops_ask<'a>(
    code: &FunctionCode,
    loops: impl Iterator<Item = &'a Loop>,
) -> Vec<Asked> {
    let mut asked = vec![Asked::Nothing; code.blocks.len()];
    let mut work = Vec::new();
    for block in loops.flat_map(|l| &l.blocks) {
        // A junction is in many loops, and all jumps come before it.
        if std::mem::replace(&mut asked[*block], Asked::Accesses) != Asked::Accesses {
            work.push(*block);
        }
    }
    while let Some(block) = work.pop() {
        for before in &code.blocks[block].predecessors {
            if asked[*before] == Asked::Nothing {
                asked[*before] = Asked::Values;
                work.push(*before);
            }
        }
    }
    asked
}
