//! Call stacks of both builds as one picture: a flame graph of the difference, with what starts a thread on top.
//!
//! A frame is as wide as the larger of its times in the two builds, or as all that it calls where that is more, so that what only
//! one build has is seen, too. Its colour says what it takes more or less, with all that it calls.

use std::collections::HashMap;

use askama::Template;
use askama::filters::HtmlSafe;

use super::PageError;
use super::bar::Bar;
use super::number::{Number, amount};
use super::scale::{Scale, rounded};
use crate::compare::Metric;
use crate::explain::{CallStacks, Caller, Explanation};
use crate::model::{Measurement, Unit};
use crate::report::words::grouped;

/// Height of a frame, in pixels.
const ROW: f64 = 18.0;
/// Deeper frames are not drawn.
const MOST_ROWS: usize = 48;
/// Narrower ones are not drawn, nor named, in per cent of the width.
const LEAST_DRAWN: f64 = 0.5;
const LEAST_NAMED: f64 = 3.0;
/// A part of the difference that colours a frame, in per cent.
const LEAST_COLOURED: f64 = 1.0;
/// How much of its colour a frame has that holds none of the difference, and all of it: text stays readable.
const COLOURS: [f64; 2] = [0.12, 0.6];

/// The picture and what stands beside it.
#[derive(Debug)]
pub(super) struct FlameView {
    pub graph: Flame,
    pub about: String,
    pub called_from: Option<(String, Vec<CallerRow>)>,
}

/// A caller of the place with most of the difference.
#[derive(Debug)]
pub(super) struct CallerRow {
    pub name: String,
    pub samples: Number,
    pub times: [(Number, Bar); 2],
    pub share: Number,
    pub bar: Bar,
}

/// The picture.
#[derive(Debug, Template)]
#[template(path = "flame.html")]
pub(super) struct Flame {
    pub height: f64,
    title: String,
    frames: Vec<FrameView>,
}

impl HtmlSafe for Flame {}

#[derive(Debug)]
struct FrameView {
    x: f64,
    y: f64,
    width: f64,
    class: &'static str,
    opacity: f64,
    name: Option<String>,
    title: String,
}

/// A function at a place in the tree of calls.
#[derive(Debug, Default)]
struct Node {
    function: usize,
    /// Of BEFORE and of AFTER, with all that it calls.
    samples: [u64; 2],
    children: Vec<usize>,
    /// In nanoseconds.
    width: f64,
}

impl FlameView {
    /// None where no stacks were taken.
    pub fn of(explanation: &Explanation) -> Result<Option<Self>, PageError> {
        let Some(stacks) = &explanation.stacks else { return Ok(None) };
        let cpu = explanation.comparison.analysis.contrast(Metric::Cpu);
        let difference_ns = cpu.map_or(0.0, |cpu| cpu.b.value - cpu.a.value);
        let called_from = stacks.called_from.as_ref();
        Ok(Some(Self {
            graph: Flame::of(stacks, difference_ns)?,
            about: about(stacks),
            called_from: called_from.map(|from| (from.place.clone(), caller_rows(&from.callers))),
        }))
    }
}

impl Flame {
    fn of(stacks: &CallStacks, difference_ns: f64) -> Result<Self, PageError> {
        let nodes = tree(stacks)?;
        let whole = nodes[0].width;
        let mut frames = Vec::new();
        // Depth first, with the row and the left end of each.
        let mut open: Vec<(usize, usize, f64)> = vec![(0, 0, 0.0)];
        while let Some((index, row, left)) = open.pop() {
            let node = &nodes[index];
            let width = 100.0 * node.width / whole;
            if row > MOST_ROWS || width.is_nan() || width < LEAST_DRAWN {
                continue;
            }
            if row > 0 {
                frames.push(frame(node, stacks, difference_ns, [left, width], row - 1));
            }
            let mut at = left;
            let below = open.len();
            for child in &node.children {
                open.push((*child, row + 1, at));
                at += 100.0 * nodes[*child].width / whole;
            }
            // The leftmost is drawn first.
            open[below..].reverse();
        }
        let deepest = frames.iter().map(|frame| frame.y + ROW).fold(ROW, f64::max);
        let [before, after] = stacks.samples.map(grouped);
        let title = format!(
            "Flame graph of the difference: {before} call stacks of BEFORE, {after} of AFTER"
        );
        Ok(Self { height: deepest, title, frames })
    }
}

/// All stacks as a tree; the first node is above all that start threads.
fn tree(stacks: &CallStacks) -> Result<Vec<Node>, PageError> {
    let mut nodes = vec![Node::default()];
    let mut numbers: HashMap<(usize, usize), usize> = HashMap::new();
    for stack in &stacks.stacks {
        let mut at = 0;
        for function in std::iter::once(None).chain(stack.frames.iter().map(Some)) {
            if let Some(function) = function.map(|function| *function as usize) {
                if function >= stacks.functions.len() {
                    let why = format!("a call stack has a function {function}, which is not there");
                    return Err(PageError::Contradicts(why));
                }
                let (above, next) = (at, nodes.len());
                at = *numbers.entry((above, function)).or_insert(next);
                if at == next {
                    nodes[above].children.push(at);
                    nodes.push(Node { function, ..Node::default() });
                }
            }
            let sums = nodes[at].samples.iter_mut().zip(stack.samples);
            sums.for_each(|(sum, n)| *sum = sum.saturating_add(n));
        }
    }
    // What is called stands behind what calls it.
    for index in (0..nodes.len()).rev() {
        let called: f64 = nodes[index].children.iter().map(|child| nodes[*child].width).sum();
        let [before, after] = times(nodes[index].samples, stacks);
        nodes[index].width = before.max(after).max(called);
        let mut children = std::mem::take(&mut nodes[index].children);
        children.sort_by(|a, b| nodes[*b].width.total_cmp(&nodes[*a].width));
        nodes[index].children = children;
    }
    Ok(nodes)
}

fn times(samples: [u64; 2], stacks: &CallStacks) -> [f64; 2] {
    [0, 1].map(|arm| samples[arm] as f64 * stacks.ns_per_sample[arm])
}

fn frame(
    node: &Node,
    stacks: &CallStacks,
    difference_ns: f64,
    [x, width]: [f64; 2],
    row: usize,
) -> FrameView {
    let name = stacks.functions[node.function].to_string();
    let [before, after] = times(node.samples, stacks);
    let longer = after - before;
    let part = if difference_ns == 0.0 { 0.0 } else { 100.0 * longer / difference_ns };
    let [least, most] = COLOURS;
    let ns = |ns| amount(ns, Unit::Nanoseconds);
    let title = format!(
        "{name}: {} in BEFORE ({} stacks), {} in AFTER ({}), {}{}, {part:.1} % of the difference in processor time",
        ns(before),
        grouped(node.samples[0]),
        ns(after),
        grouped(node.samples[1]),
        if longer < 0.0 { "-" } else { "+" },
        ns(longer.abs()),
    );
    FrameView {
        x: rounded(x),
        y: row as f64 * ROW,
        width: rounded(width),
        class: match longer {
            _ if part.abs() < LEAST_COLOURED => "part",
            longer if longer < 0.0 => "less",
            _ => "more",
        },
        opacity: rounded(least + (most - least) * (part.abs() / 100.0).min(1.0)),
        name: (width >= LEAST_NAMED).then_some(name),
        title,
    }
}

fn about(stacks: &CallStacks) -> String {
    let both = |of: [u64; 2]| format!("{} and {}", grouped(of[0]), grouped(of[1]));
    let mut text = format!("{} call stacks of BEFORE and AFTER", both(stacks.samples));
    let parts = [
        (stacks.cut_off, "do not reach where their thread started"),
        (
            stacks.by_frame_pointers,
            "were followed by frame pointers in part, which can leave out a caller",
        ),
        (stacks.left_out, "are of the lightest, and left out"),
    ];
    for (counts, what) in parts.into_iter().filter(|(counts, _)| counts.iter().any(|n| *n > 0)) {
        text += &format!("; {} {what}", both(counts));
    }
    text + "."
}

fn caller_rows(callers: &[Caller]) -> Vec<CallerRow> {
    let times = Scale::over(callers.iter().flat_map(|c| [c.before.high, c.after.high, 0.0]));
    let shares = Scale::of_shares(callers.iter().map(|caller| &caller.share_of_difference));
    let row = |caller: &Caller| {
        let name = caller.function.to_string();
        let time = |m: &Measurement, build: &str, class| {
            let number = Number::of(m, &format!("user time of a run of {build} there for {name}"));
            (number, Bar::of(times, m, class))
        };
        let share = &caller.share_of_difference;
        let class = if share.percent.value < 0.0 { "less" } else { "more" };
        let [before, after] = caller.samples.map(grouped);
        CallerRow {
            samples: Number::new(
                format!("{before} → {after}"),
                "call stacks in which it calls the place, of all sampled runs of BEFORE and of AFTER",
            ),
            times: [time(&caller.before, "BEFORE", "a"), time(&caller.after, "AFTER", "b")],
            share: Number::share(share, &name),
            bar: Bar::of(shares, &share.percent, class),
            name,
        }
    };
    callers.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::explain::{FoldedStack, StackFunction};

    fn stacks(of: &[(&[u32], [u64; 2])]) -> CallStacks {
        let function = |n: u32| StackFunction { name: format!("f{n}"), file: None };
        let stack = |(frames, samples): &(&[u32], [u64; 2])| FoldedStack {
            frames: frames.to_vec(),
            samples: *samples,
        };
        CallStacks {
            functions: (0..6).map(function).collect(),
            stacks: of.iter().map(stack).collect(),
            samples: [100, 100],
            ns_per_sample: [1e6, 2e6],
            cut_off: [0, 3],
            by_frame_pointers: [0; 2],
            left_out: [0; 2],
            called_from: None,
        }
    }

    #[test]
    fn frames_are_as_wide_as_their_larger_time_and_as_coloured_as_their_part() {
        // 40 ms that only BEFORE has, 60 to 100 ms below f1, of which f2 has 20 to 60.
        let of = stacks(&[(&[0, 3], [40, 0]), (&[0, 1], [40, 20]), (&[0, 1, 2], [20, 30])]);
        let flame = Flame::of(&of, 40e6).unwrap();
        let frame = |title: &str| flame.frames.iter().find(|f| f.title.starts_with(title)).unwrap();
        let places = |f: &FrameView| [f.x, f.y, f.width];
        assert_eq!(places(frame("f0")), [0.0, 0.0, 100.0]);
        // f0 takes 100 ms in both, what it calls 140 ms in one or the other.
        assert_eq!(places(frame("f1")), [0.0, 18.0, 71.43]);
        assert_eq!(places(frame("f3")), [71.43, 18.0, 28.57]);
        assert_eq!(places(frame("f2")), [0.0, 36.0, 42.86]);
        let colours = ["f0", "f1", "f2", "f3"].map(|name| (frame(name).class, frame(name).opacity));
        assert_eq!(colours, [("part", 0.12), ("more", 0.6), ("more", 0.6), ("less", 0.6)]);
        assert!(frame("f2").title.contains(
            "20.00 ms in BEFORE (20 stacks), 60.00 ms in AFTER (30), +40.00 ms, 100.0 % of the difference"
        ));
        assert_eq!(flame.height, 54.0);
    }

    #[test]
    fn stacks_that_name_what_is_not_there_are_refused_and_none_are_no_harm() {
        assert!(Flame::of(&stacks(&[(&[0, 6], [1, 1])]), 1.0).is_err());
        assert!(Flame::of(&stacks(&[]), 0.0).unwrap().frames.is_empty());
        let mut huge = stacks(&[(&[0], [u64::MAX; 2]), (&[0], [u64::MAX; 2])]);
        huge.ns_per_sample = [f64::MAX, 0.0];
        Flame::of(&huge, 0.0).unwrap();
    }

    proptest! {
        /// A node's samples are those of all stacks that begin as it does.
        #[test]
        fn the_tree_holds_what_the_stacks_hold(
            given in prop::collection::vec((prop::collection::vec(0_u32..6, 0..6), [0_u64..50, 0_u64..50]), 0..40),
        ) {
            let given: Vec<(&[u32], [u64; 2])> =
                given.iter().map(|(frames, samples)| (frames.as_slice(), *samples)).collect();
            let of = stacks(&given);
            let nodes = tree(&of).unwrap();
            let mut open = vec![(0, Vec::new())];
            let mut visited = 0;
            while let Some((index, path)) = open.pop() {
                visited += 1;
                let naive = given.iter().filter(|(frames, _)| frames.starts_with(&path));
                let naive = naive.fold([0, 0], |[a, b], (_, [x, y])| [a + x, b + y]);
                prop_assert_eq!(nodes[index].samples, naive);
                let called: f64 = nodes[index].children.iter().map(|child| nodes[*child].width).sum();
                prop_assert!(nodes[index].width >= called - 1e-6);
                for child in &nodes[index].children {
                    let mut path = path.clone();
                    path.push(nodes[*child].function as u32);
                    open.push((*child, path));
                }
            }
            prop_assert_eq!(visited, nodes.len());
        }
    }
}
