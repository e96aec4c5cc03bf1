//! Dominators and natural loops.
//!
//! A back edge goes to a block that dominates its source; its natural loop is what can reach the
//! source without passing the header. Loops with the same header are one. Irreducible cycles are
//! no natural loops and are left alone. Dominators by the simple iterative scheme of Cooper,
//! Harvey and Kennedy (2001). The junction of indirect jumps heads no loop: a jump that leads
//! through it back to the case that dominates the jump is the loop of that case. What cannot be reached from the entry (padding behind jumps, landing
//! pads of exceptions) loses its edges, so that it cannot hide a loop, and counts as an entry.

use super::cfg::Block;

/// A natural loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The block through which it is entered.
    pub header: usize,
    /// Its blocks, ascending, the header among them.
    pub blocks: Vec<usize>,
    /// The blocks that jump back to the header.
    pub latches: Vec<usize>,
    /// Nesting depth, 1 for an outermost loop.
    pub depth: u32,
}

impl Loop {
    /// Whether a block belongs to the loop.
    #[must_use]
    pub fn contains(&self, block: usize) -> bool {
        self.blocks.binary_search(&block).is_ok()
    }
}

/// Blocks in reverse post order, every block once.
#[derive(Clone, Debug)]
pub(super) struct BlockOrder {
    pub blocks: Vec<usize>,
    /// Per block, whether it is an entry: block 0 and what cannot be reached from it.
    pub is_entry: Vec<bool>,
    /// The edges that lead back to where a path has been, target first, ascending.
    going_back: Vec<(usize, usize)>,
}

/// What a search along paths knows about a place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    Never,
    /// On the path that is being followed.
    OnPath,
    Left,
}

impl BlockOrder {
    /// Orders blocks, and takes the edges from those that block 0 does not reach.
    pub fn of(blocks: &mut [Block]) -> Self {
        let mut seen = vec![Seen::Never; blocks.len()];
        let mut post = Vec::with_capacity(blocks.len());
        let mut going_back = Vec::new();
        let mut stack: Vec<(usize, usize)> = Vec::new();
        if let Some(entry) = seen.first_mut() {
            *entry = Seen::OnPath;
            stack.push((0, 0));
        }
        while let Some((block, next)) = stack.last_mut() {
            let Some(successor) = blocks[*block].successors.get(*next) else {
                seen[*block] = Seen::Left;
                post.push(*block);
                stack.pop();
                continue;
            };
            *next += 1;
            if seen[*successor] == Seen::OnPath {
                going_back.push((*successor, *block));
            }
            if seen[*successor] == Seen::Never {
                seen[*successor] = Seen::OnPath;
                stack.push((*successor, 0));
            }
        }
        let is_reached = |block: usize| seen[block] != Seen::Never;
        if post.len() < blocks.len() {
            cut(blocks, is_reached);
            post.extend((0..blocks.len()).filter(|block| !is_reached(*block)));
        }
        post.reverse();
        let is_entry = (0..blocks.len()).map(|block| block == 0 || !is_reached(block)).collect();
        going_back.sort_unstable();
        Self { blocks: post, is_entry, going_back }
    }
}

fn cut(blocks: &mut [Block], is_reached: impl Fn(usize) -> bool) {
    for (number, block) in blocks.iter_mut().enumerate() {
        if is_reached(number) {
            block.predecessors.retain(|p| is_reached(*p));
        } else {
            block.predecessors.clear();
            block.successors.clear();
        }
    }
}

/// Immediate dominators in terms of reverse-post-order positions shifted by one; position 0 is a
/// virtual root above all entries.
struct Dominators {
    position: Vec<u32>,
    immediate: Vec<u32>,
}

impl Dominators {
    const UNKNOWN: u32 = u32::MAX;

    fn compute(blocks: &[Block], order: &BlockOrder) -> Self {
        let mut position = vec![0; blocks.len()];
        for (block, at) in order.blocks.iter().zip(1..) {
            position[*block] = at;
        }
        let mut immediate = vec![Self::UNKNOWN; blocks.len() + 1];
        immediate[0] = 0;
        let mut this = Self { position, immediate };
        // The first time no edge that goes back is known yet. Where its target dominates its source
        // without it, it changes nothing.
        while this.look_again(blocks, order)
            && !order.going_back.iter().all(|(to, from)| this.dominates(*to, *from))
        {}
        this
    }

    /// Goes through all blocks once; whether anything changed.
    fn look_again(&mut self, blocks: &[Block], order: &BlockOrder) -> bool {
        let mut changed = false;
        for (block, mine) in order.blocks.iter().zip(1..) {
            let predecessors = blocks[*block].predecessors.iter();
            let known = predecessors
                .map(|p| self.position[*p])
                .filter(|p| self.immediate[*p as usize] != Self::UNKNOWN);
            let merged = known
                .chain(order.is_entry[*block].then_some(0))
                .reduce(|a, b| Self::meet(&self.immediate, a, b))
                // Cannot happen: in this order an entry or a predecessor comes first.
                .unwrap_or(0);
            changed |= std::mem::replace(&mut self.immediate[mine], merged) != merged;
        }
        changed
    }

    fn meet(immediate: &[u32], mut a: u32, mut b: u32) -> u32 {
        while a != b {
            if a > b {
                a = immediate[a as usize];
            } else {
                b = immediate[b as usize];
            }
        }
        a
    }

    /// Of the blocks that dominate `below`, the one that `above` dominates at once.
    fn just_below(&self, above: usize, below: usize, order: &BlockOrder) -> usize {
        let above = self.position[above];
        let mut at = self.position[below];
        while self.immediate[at as usize] > above {
            at = self.immediate[at as usize];
        }
        order.blocks[at as usize - 1]
    }

    fn dominates(&self, above: usize, below: usize) -> bool {
        let above = self.position[above];
        let mut at = self.position[below];
        while at > above {
            at = self.immediate[at as usize];
        }
        at == above
    }
}

pub(super) fn find_loops(blocks: &[Block], order: &BlockOrder) -> Vec<Loop> {
    if order.going_back.is_empty() {
        return Vec::new();
    }
    let dominators = Dominators::compute(blocks, order);
    let mut members = Members { seen: vec![0; blocks.len()], number: 0, work: Vec::new() };
    let mut loops: Vec<Loop> = Vec::new();
    let mut edges: Vec<(usize, usize)> = order
        .going_back
        .iter()
        .filter(|(to, from)| dominators.dominates(*to, *from))
        .filter_map(|(to, from)| {
            if !blocks[*to].is_junction() {
                return Some((*to, *from));
            }
            let header = dominators.just_below(*to, *from, order);
            blocks[header].predecessors.contains(to).then_some((header, *from))
        })
        .collect();
    edges.sort_unstable();
    for edges in edges.chunk_by(|a, b| a.0 == b.0) {
        let header = edges[0].0;
        let latches: Vec<usize> = edges.iter().map(|(_, latch)| *latch).collect();
        let blocks = members.of(blocks, header, &latches);
        loops.push(Loop { header, blocks, latches, depth: 0 });
    }
    let mut around = vec![0; blocks.len()];
    for block in loops.iter().flat_map(|l| &l.blocks) {
        around[*block] += 1;
    }
    let depths: Vec<u32> = loops.iter().map(|l| around[l.header]).collect();
    for (l, depth) in loops.iter_mut().zip(depths) {
        l.depth = depth;
    }
    loops.sort_by_key(|l| (l.depth, l.header));
    loops
}

/// Collects the blocks of one loop after the other.
struct Members {
    /// Per block, the number of the loop that it was last seen in.
    seen: Vec<u32>,
    number: u32,
    /// Kept for the memory that it has.
    work: Vec<usize>,
}

impl Members {
    fn of(&mut self, blocks: &[Block], header: usize, latches: &[usize]) -> Vec<usize> {
        self.number += 1;
        self.seen[header] = self.number;
        let mut inside = vec![header];
        self.work.extend(latches);
        while let Some(block) = self.work.pop() {
            if std::mem::replace(&mut self.seen[block], self.number) != self.number {
                inside.push(block);
                self.work.extend(&blocks[block].predecessors);
            }
        }
        // The way round a loop that a case heads leads through the junction.
        let before = blocks[header].predecessors.iter();
        inside.extend(before.copied().find(|p| blocks[*p].is_junction()));
        inside.sort_unstable();
        inside
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::cfg::Edges;
    use proptest::prelude::*;

    fn found(mut blocks: Vec<Block>) -> Vec<Loop> {
        let order = BlockOrder::of(&mut blocks);
        find_loops(&blocks, &order)
    }

    fn graph(edges: &[(usize, usize)], count: usize) -> Vec<Block> {
        let mut blocks: Vec<Block> = (0..count)
            .map(|i| Block {
                first: i,
                end: i + 1,
                successors: Edges::new(),
                predecessors: Edges::new(),
            })
            .collect();
        for (from, to) in edges {
            if !blocks[*from].successors.contains(to) {
                blocks[*from].successors.push(*to);
                blocks[*to].predecessors.push(*from);
            }
        }
        blocks
    }

    #[test]
    fn nested_loops_have_depths() {
        // 0 -> 1 -> 2 -> 2, 2 -> 1, 1 -> 3
        let loops = found(graph(&[(0, 1), (1, 2), (2, 2), (2, 1), (1, 3)], 4));
        let shape: Vec<_> = loops.iter().map(|l| (l.header, l.blocks.clone(), l.depth)).collect();
        assert_eq!(shape, [(1, vec![1, 2], 1), (2, vec![2], 2)]);
    }

    #[test]
    fn a_cycle_with_two_entries_is_no_natural_loop() {
        let loops = found(graph(&[(0, 1), (0, 2), (1, 2), (2, 1)], 3));
        assert!(loops.is_empty());
    }

    /// Block and case of a jump table each: led to by every jump, straight or through a junction.
    fn with_tables(edges: &[(usize, usize)], jumps: &[usize], junction: bool) -> Vec<Block> {
        let edges: Vec<_> =
            edges.iter().copied().filter(|(from, _)| !jumps.contains(from)).collect();
        let mut blocks = graph(&edges, 9);
        let cases: Vec<usize> = (1..9).filter(|b| blocks[*b].predecessors.is_empty()).collect();
        let across = |from: &[usize], to: &[usize]| -> Vec<_> {
            from.iter().flat_map(|f| to.iter().map(|t| (*f, *t))).collect()
        };
        if junction {
            blocks = graph(&[edges, across(jumps, &[9]), across(&[9], &cases)].concat(), 10);
            blocks[9].first = blocks[9].end;
        } else {
            blocks = graph(&[edges, across(jumps, &cases)].concat(), 9);
        }
        blocks
    }

    /// Dominance by definition: removing `above` cuts `below` off from every entry.
    fn dominates_naively(blocks: &[Block], is_entry: &[bool], above: usize, below: usize) -> bool {
        let mut seen = vec![false; blocks.len()];
        let mut work: Vec<usize> =
            (0..blocks.len()).filter(|b| is_entry[*b] && *b != above).collect();
        while let Some(block) = work.pop() {
            if !std::mem::replace(&mut seen[block], true) {
                work.extend(blocks[block].successors.iter().filter(|s| **s != above));
            }
        }
        above == below || !seen[below]
    }

    proptest! {
        #[test]
        fn a_junction_changes_no_loop(
            edges in prop::collection::vec((0_usize..9, 0_usize..9), 0..16),
            jumps in prop::collection::btree_set(0_usize..9, 2..6),
        ) {
            let jumps: Vec<usize> = jumps.into_iter().collect();
            let plain = found(with_tables(&edges, &jumps, false));
            let mut through = found(with_tables(&edges, &jumps, true));
            through.iter_mut().for_each(|l| l.blocks.retain(|b| *b < 9));
            prop_assert_eq!(plain, through, "{:?} {:?}", edges, jumps);
        }

        #[test]
        fn dominators_agree_with_the_definition(
            edges in prop::collection::vec((0_usize..9, 0_usize..9), 0..24)
        ) {
            let mut blocks = graph(&edges, 9);
            let order = BlockOrder::of(&mut blocks);
            let dominators = Dominators::compute(&blocks, &order);
            for above in 0..9 {
                for below in 0..9 {
                    prop_assert_eq!(
                        dominators.dominates(above, below),
                        dominates_naively(&blocks, &order.is_entry, above, below),
                        "{} over {} in {:?}", above, below, edges
                    );
                }
            }
        }
    }
}
