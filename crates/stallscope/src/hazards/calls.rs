//! Who calls whom directly, and from inside which loop: for rules that look at several functions
//! at once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::FunctionView;
use crate::code::{Flow, Function, Image};
use crate::model::Svma;

/// A direct call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectCall {
    /// Index of the instruction in the calling function.
    pub insn: usize,
    /// Where it goes.
    pub target: Svma,
}

/// An outermost loop that calls.
#[derive(Clone, Debug)]
pub struct CallingLoop {
    /// Its code.
    pub code: Vec<Range<Svma>>,
    /// The calls in it, in address order.
    pub calls: Vec<DirectCall>,
    /// Depth of the innermost loop around a call, at the most.
    pub depth: u32,
}

/// The direct calls of one function.
#[derive(Clone, Debug)]
pub struct Calls {
    /// Its first instruction.
    pub function: Svma,
    /// Functions it calls from anywhere.
    pub targets: BTreeSet<Svma>,
    /// Its outermost loops that call.
    pub loops: Vec<CallingLoop>,
}

impl Calls {
    /// The direct calls of a function; `None` when it has none.
    #[must_use]
    pub fn of(view: &FunctionView<'_>) -> Option<Self> {
        let survey = view.survey();
        if survey.is_known && !survey.may_loop {
            let targets: BTreeSet<Svma> = survey.calls.iter().copied().collect();
            let function = view.function.start;
            return (!targets.is_empty()).then_some(Self { function, targets, loops: Vec::new() });
        }
        let code = view.code();
        let all: Vec<DirectCall> = code
            .insns
            .iter()
            .enumerate()
            .filter(|(_, insn)| insn.flow == Flow::Call)
            .filter_map(|(index, insn)| {
                let bytes = view.image.code_at(insn.svma, u64::from(insn.length_bytes));
                let target = direct_target(bytes, insn.end())?;
                Some(DirectCall { insn: index, target })
            })
            .collect();
        if all.is_empty() {
            return None;
        }
        let loops = code.loops.iter().filter(|l| l.depth == 1).filter_map(|outer| {
            let inside = |c: &&DirectCall| outer.contains(code.block_of(c.insn));
            let calls: Vec<DirectCall> = all.iter().filter(inside).copied().collect();
            let depth = calls.iter().map(|c| view.loop_depth(c.insn)).max()?;
            let blocks = outer.blocks.iter().map(|b| &code.blocks[*b]);
            let code = blocks.map(|b| code.insns[b.first].svma..code.insns[b.end - 1].end());
            Some(CallingLoop { code: code.collect(), calls, depth })
        });
        let loops = loops.collect();
        let targets = all.iter().map(|c| c.target).collect();
        Some(Self { function: view.function.start, targets, loops })
    }
}

/// Where `call rel32`, or `bl`, goes; `None` for calls through registers and memory.
#[must_use]
pub fn direct_target(bytes: &[u8], end: Svma) -> Option<Svma> {
    match *bytes {
        [0xe8, a, b, c, d] => Some(end.offset(i64::from(i32::from_le_bytes([a, b, c, d])))),
        [a, b, c, d] if d >> 2 == 0b10_0101 => {
            // 26 bits, in words, from the instruction's own address.
            let words = i32::from_le_bytes([a, b, c, d]) << 6 >> 6;
            Some(end.offset(4 * i64::from(words) - 4))
        }
        _ => None,
    }
}

/// The direct calls of a whole program.
pub struct CallGraph<'a> {
    /// The program.
    pub image: &'a Image,
    /// By the caller's first instruction.
    pub calls: BTreeMap<Svma, Calls>,
}

impl<'a> CallGraph<'a> {
    /// The functions that a loop can reach by direct calls, `levels` deep, nearest first; at most
    /// `most`. A jump over the end into another function is no call and not followed.
    #[must_use]
    pub fn reachable(&self, from: &CallingLoop, levels: u32, most: usize) -> Vec<&'a Function> {
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        let mut level: Vec<Svma> = from.calls.iter().map(|c| c.target).collect();
        for _ in 0..levels {
            let mut next = Vec::new();
            for target in std::mem::take(&mut level) {
                if found.len() == most || !seen.insert(target) {
                    continue;
                }
                found.extend(self.image.function_at(target).filter(|f| f.start == target));
                next.extend(self.calls.get(&target).into_iter().flat_map(|c| &c.targets));
            }
            level = next;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::code::fixture;

    #[test]
    fn calls_in_loops_are_followed_to_their_functions() {
        // (loop:) call +11 (the second function, 16 bytes on); dec edi; jnz loop; ret
        let caller = [0xe8, 11, 0, 0, 0, 0xff, 0xcf, 0x75, 0xf7, 0xc3];
        let program = fixture::program(&[("caller", &caller), ("callee", &[0xc3])]);
        let image = Image::parse(Path::new("p"), program).unwrap();
        let calls = Calls::of(&FunctionView::of(&image, &image.functions()[0])).unwrap();
        assert_eq!((calls.loops.len(), calls.loops[0].depth), (1, 1));
        assert!(Calls::of(&FunctionView::of(&image, &image.functions()[1])).is_none());
        let graph = CallGraph { image: &image, calls: BTreeMap::new() };
        let names: Vec<_> =
            graph.reachable(&calls.loops[0], 2, 9).iter().map(|f| f.symbol.as_str()).collect();
        assert_eq!(names, ["callee"]);
    }
}
