//! Who calls whom directly, and from inside which loop: for rules that look at several functions
//! at once.

use std::collections::BTreeMap;
use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};

use super::FunctionView;
use crate::code::{Flow, Function, Image};
use crate::model::Svma;

/// A direct call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectCall {
    /// Index of the instruction in the calling function.
    pub insn: usize,
    /// First instruction of the callee.
    pub target: Svma,
}

/// An outermost loop that calls.
#[derive(Clone, Debug)]
pub struct CallingLoop {
    /// Ranges of its blocks.
    pub code: Vec<Range<Svma>>,
    /// The calls in it, in address order.
    pub calls: Vec<DirectCall>,
    /// Depth of the innermost loop around a call, at the most.
    pub depth: u32,
}

/// The direct calls of one function.
#[derive(Clone, Debug)]
pub struct Calls {
    /// First instruction of the caller.
    pub function: Svma,
    /// Functions it calls from anywhere, ascending.
    pub targets: Vec<Svma>,
    /// Its outermost loops with a direct call.
    pub loops: Vec<CallingLoop>,
}

impl Calls {
    /// The direct calls of a function; `None` when it has none.
    #[must_use]
    pub fn of(view: &FunctionView<'_>) -> Option<Self> {
        let survey = view.survey();
        if survey.is_known && !survey.may_loop {
            let targets = each_once(survey.calls.iter().copied());
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
                let target = direct_target(view.bytes_of(insn), insn.end())?;
                Some(DirectCall { insn: index, target })
            })
            .collect();
        if all.is_empty() {
            return None;
        }
        let loops = code.loops.iter().filter(|l| l.depth == 1).filter_map(|outer| {
            let behind = |insn: usize| all.partition_point(|c| c.insn < insn);
            let inside = code.bodies(outer).flat_map(|b| &all[behind(b.first)..behind(b.end)]);
            let calls: Vec<DirectCall> = inside.copied().collect();
            let depth = calls.iter().map(|c| view.loop_depth(c.insn)).max()?;
            Some(CallingLoop { code: code.ranges(outer).collect(), calls, depth })
        });
        let loops = loops.collect();
        let targets = each_once(all.iter().map(|c| c.target));
        Some(Self { function: view.function.start, targets, loops })
    }
}

fn each_once(targets: impl Iterator<Item = Svma>) -> Vec<Svma> {
    let mut targets: Vec<Svma> = targets.collect();
    targets.sort_unstable();
    targets.dedup();
    targets
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
    calls: BTreeMap<Svma, Calls>,
    /// The numbers of the functions that each function of the image calls, one after the other.
    called: Vec<u32>,
    /// Where each function's begin, and the last one's end.
    first_called: Vec<u32>,
    number_of: FxHashMap<Svma, u32>,
}

impl<'a> CallGraph<'a> {
    /// Joins the calls of single functions.
    #[must_use]
    pub fn of(image: &'a Image, calls: BTreeMap<Svma, Calls>) -> Self {
        let starts = image.functions().iter().map(|f| f.start);
        let number_of: FxHashMap<Svma, u32> = starts.zip(0..).collect();
        let number = |target: &Svma| number_of.get(target).copied();
        let (mut called, mut first_called) = (Vec::new(), vec![0]);
        // Both are by address.
        let mut callers = calls.values().peekable();
        for function in image.functions() {
            while callers.next_if(|c| c.function < function.start).is_some() {}
            if let Some(caller) = callers.next_if(|c| c.function == function.start) {
                called.extend(caller.targets.iter().filter_map(number));
            }
            first_called.push(called.len() as u32);
        }
        Self { image, calls, called, first_called, number_of }
    }

    /// By the caller's first instruction.
    #[must_use]
    pub fn calls(&self) -> &BTreeMap<Svma, Calls> {
        &self.calls
    }

    /// The functions that any loop calls directly.
    #[must_use]
    pub fn called_from_loops(&self) -> FxHashSet<Svma> {
        let loops = self.calls.values().flat_map(|c| &c.loops);
        loops.flat_map(|l| l.calls.iter().map(|call| call.target)).collect()
    }

    /// The functions that a loop can reach by direct calls, `levels` deep, nearest first; at most
    /// `most`. A jump over the end into another function is no call and not followed. `None` when
    /// they have more than `most_bytes` of code.
    #[must_use]
    pub fn reachable(
        &self,
        from: &CallingLoop,
        levels: u32,
        most: usize,
        most_bytes: u64,
    ) -> Option<Vec<&'a Function>> {
        let functions = self.image.functions();
        let mut seen = FxHashSet::default();
        let mut found = Vec::new();
        let mut bytes = 0;
        let number = |call: &DirectCall| self.number_of.get(&call.target).copied();
        let mut level: Vec<u32> = from.calls.iter().filter_map(number).collect();
        for _ in 0..levels {
            let mut next = Vec::new();
            for target in std::mem::take(&mut level) {
                if found.len() == most {
                    return Some(found);
                }
                if !seen.insert(target) {
                    continue;
                }
                let function = &functions[target as usize];
                bytes += function.size_bytes;
                if bytes > most_bytes {
                    return None;
                }
                found.push(function);
                let [first, end] = [0, 1].map(|n| self.first_called[target as usize + n] as usize);
                next.extend(&self.called[first..end]);
            }
            level = next;
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::fixture;

    #[test]
    fn direct_calls_say_where_they_go_in_both_sets_of_instructions() {
        let end = |length| Svma(0x1000).offset(length);
        assert_eq!(direct_target(&[0xe8, 0xfb, 0xff, 0xff, 0xff], end(5)), Some(Svma(0x1000)));
        // bl +8, bl -4, and the furthest one back.
        let bl = |word: u32| direct_target(&word.to_le_bytes(), end(4));
        assert_eq!([bl(0x9400_0002), bl(0x97ff_ffff)], [Some(Svma(0x1008)), Some(Svma(0xffc))]);
        assert_eq!(bl(0x9600_0000), Some(Svma(0x1000_u64.wrapping_sub(1 << 27))));
        // b, blr, and call through a register.
        assert_eq!([bl(0x1400_0002), bl(0xd63f_0000)], [None; 2]);
        assert_eq!(direct_target(&[0xff, 0xd0], end(2)), None);
    }

    #[test]
    fn a_function_names_each_that_it_calls_once_in_order() {
        // call h; call g; call g
        let caller = [0xe8, 27, 0, 0, 0, 0xe8, 6, 0, 0, 0, 0xe8, 1, 0, 0, 0];
        let image = fixture::image(&[("caller", &caller), ("g", &[0xc3]), ("h", &[0xc3])]).unwrap();
        let calls = Calls::of(&FunctionView::of(&image, &image.functions()[0])).unwrap();
        let starts: Vec<Svma> = image.functions().iter().map(|f| f.start).collect();
        assert_eq!((calls.function, &calls.targets[..]), (starts[0], &starts[1..]));
        assert!(calls.loops.is_empty());
    }

    #[test]
    fn what_a_loop_reaches_ends_by_levels_number_and_bytes() {
        // a: (loop:) call b; dec edi; jnz loop; ret. b: call c; ret. c: call b; ret, recursive.
        let a = [0xe8, 11, 0, 0, 0, 0xff, 0xcf, 0x75, 0xf7, 0xc3];
        let b = [0xe8, 11, 0, 0, 0, 0xc3];
        let c = [0xe8, 0xeb, 0xff, 0xff, 0xff, 0xc3];
        let image = fixture::image(&[("a", &a), ("b", &b), ("c", &c)]).unwrap();
        let calls: BTreeMap<Svma, Calls> = image
            .functions()
            .iter()
            .filter_map(|f| Calls::of(&FunctionView::of(&image, f)))
            .map(|c| (c.function, c))
            .collect();
        let from = calls[&image.functions()[0].start].loops[0].clone();
        let graph = CallGraph::of(&image, calls);
        let reached = |levels, most, most_bytes| {
            let found = graph.reachable(&from, levels, most, most_bytes)?;
            Some(found.iter().map(|f| f.symbol.clone()).collect::<String>())
        };
        assert_eq!(reached(3, 9, 12).as_deref(), Some("bc"));
        assert_eq!(reached(1, 9, 12).as_deref(), Some("b"));
        assert_eq!(reached(3, 1, 12).as_deref(), Some("b"));
        assert_eq!((reached(3, 9, 11), reached(0, 9, 12).as_deref()), (None, Some("")));
        let called = graph.called_from_loops();
        assert_eq!(called.into_iter().collect::<Vec<_>>(), [image.functions()[1].start]);
    }

    #[test]
    fn calls_in_loops_are_followed_to_their_functions() {
        // (loop:) call +11 (the second function, 16 bytes on); dec edi; jnz loop; ret
        let caller = [0xe8, 11, 0, 0, 0, 0xff, 0xcf, 0x75, 0xf7, 0xc3];
        let image = fixture::image(&[("caller", &caller), ("callee", &[0xc3])]).unwrap();
        let calls = Calls::of(&FunctionView::of(&image, &image.functions()[0])).unwrap();
        assert_eq!((calls.loops.len(), calls.loops[0].depth), (1, 1));
        assert!(Calls::of(&FunctionView::of(&image, &image.functions()[1])).is_none());
        let graph = CallGraph::of(&image, BTreeMap::new());
        let names: Vec<_> = graph
            .reachable(&calls.loops[0], 2, 9, 1)
            .unwrap()
            .iter()
            .map(|f| f.symbol.as_str())
            .collect();
        assert_eq!(names, ["callee"]);
        assert!(graph.reachable(&calls.loops[0], 2, 9, 0).is_none(), "it has a byte");
    }
}
