//! A function as basic blocks, edges and natural loops.
//!
//! An indirect jump is taken to lead to every block that nothing else leads to: the cases of a
//! jump table are found that way without reading the table. Where there are several such jumps, they
//! meet in a junction, a block without instructions, and the cases follow that: jumps times cases
//! would be too many edges. What cannot be reached from the entry
//! after that (padding behind jumps, landing pads of exceptions) keeps its instructions but loses
//! its edges, so that it cannot hide a loop.

use std::ops::Range;

use smallvec::SmallVec;

use super::arch::Architecture;
use super::functions::Function;
use super::image::Image;
use super::insn::{Flow, Insn};
use super::loops::{BlockOrder, Loop, find_loops};
use crate::model::Svma;

/// More than this of a function is not looked at: none is so long, but damaged tables say so, and
/// an instruction takes much more memory decoded than it has bytes.
pub(crate) const MOST_FUNCTION_BYTES: usize = 4 << 20;

/// Numbers of blocks that can follow or come before: two are usual.
pub type Edges = SmallVec<[usize; 2]>;

/// A stretch of instructions that is entered at its start only and left at its end only. The
/// junction of indirect jumps has none and stands behind all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Index of its first instruction.
    pub first: usize,
    /// Index behind its last instruction.
    pub end: usize,
    /// Blocks that can follow.
    pub successors: Edges,
    /// Blocks that can come before.
    pub predecessors: Edges,
}

impl Block {
    /// Whether it is where indirect jumps meet, and no code.
    pub(super) fn is_junction(&self) -> bool {
        self.first == self.end
    }
}

/// One function, decoded.
#[derive(Clone, Debug)]
pub struct FunctionCode {
    /// The processor that it is for.
    pub architecture: Architecture,
    /// Its instructions, by address.
    pub insns: Vec<Insn>,
    /// Its blocks, by address; block 0 is the entry, the last can be a junction.
    pub blocks: Vec<Block>,
    /// Its natural loops, outer before inner.
    pub loops: Vec<Loop>,
    /// Per block, the innermost loop that holds it.
    innermost: Vec<Option<u32>>,
    /// The order in which a path may come through the blocks.
    pub(super) order: BlockOrder,
}

impl FunctionCode {
    /// Decodes a function of an image.
    #[must_use]
    pub fn of(image: &Image, function: &Function) -> Self {
        let bytes = image.function_bytes(function);
        let bytes = &bytes[..bytes.len().min(MOST_FUNCTION_BYTES)];
        Self::decode_as(image.architecture(), bytes, function.start)
    }

    /// Decodes x86-64 machine code that starts at `start`.
    #[must_use]
    pub fn decode(bytes: &[u8], start: Svma) -> Self {
        Self::decode_as(Architecture::X86_64, bytes, start)
    }

    /// Decodes machine code that starts at `start`.
    #[must_use]
    pub fn decode_as(architecture: Architecture, bytes: &[u8], start: Svma) -> Self {
        Self::of_insns(architecture, architecture.decode(bytes, start), bytes.len(), start)
    }

    /// Finds the blocks and loops of `size_bytes` of code that starts at `start` and was decoded
    /// already.
    #[must_use]
    pub(crate) fn of_insns(
        architecture: Architecture,
        insns: Vec<Insn>,
        size_bytes: usize,
        start: Svma,
    ) -> Self {
        let mut blocks = split_into_blocks(&insns, size_bytes, start);
        let order = BlockOrder::of(&mut blocks);
        let loops = find_loops(&blocks, &order);
        let mut innermost = vec![None; if loops.is_empty() { 0 } else { blocks.len() }];
        for (number, l) in (0..).zip(&loops) {
            for block in &l.blocks {
                innermost[*block] = Some(number);
            }
        }
        Self { architecture, insns, blocks, loops, innermost, order }
    }

    /// The addresses of the block that holds an instruction.
    #[must_use]
    pub fn block_range(&self, insn: usize) -> Range<Svma> {
        let block = &self.blocks[self.block_of(insn)];
        self.insns[block.first].svma..self.insns[block.end - 1].end()
    }

    /// The index of the instruction that holds `svma`.
    #[must_use]
    pub fn insn_at(&self, svma: Svma) -> Option<usize> {
        let after = self.insns.partition_point(|i| i.svma <= svma);
        let index = after.checked_sub(1)?;
        (svma < self.insns[index].end()).then_some(index)
    }

    /// The block that holds an instruction.
    #[must_use]
    pub fn block_of(&self, insn: usize) -> usize {
        self.blocks.partition_point(|b| b.first <= insn).saturating_sub(1)
    }

    /// The blocks of a loop that hold instructions, by address.
    pub fn bodies<'a>(
        &'a self,
        of: &'a Loop,
    ) -> impl DoubleEndedIterator<Item = &'a Block> + Clone + 'a {
        of.blocks.iter().map(|b| &self.blocks[*b]).filter(|b| !b.is_junction())
    }

    /// The indices of the instructions of a loop, block by block.
    pub fn insns_in<'a>(&'a self, of: &'a Loop) -> impl Iterator<Item = usize> + Clone + 'a {
        self.bodies(of).flat_map(|block| block.first..block.end)
    }

    /// Where the instructions of a loop lie, block by block.
    pub fn ranges<'a>(&'a self, of: &'a Loop) -> impl Iterator<Item = Range<Svma>> + 'a {
        let insns = &self.insns;
        self.bodies(of).map(move |block| insns[block.first].svma..insns[block.end - 1].end())
    }

    /// Whether a loop holds no other.
    #[must_use]
    pub fn is_innermost(&self, of: &Loop) -> bool {
        let mut blocks = of.blocks.iter().filter(|b| !self.blocks[**b].is_junction());
        blocks.all(|b| self.innermost_loop(*b).is_some_and(|inner| inner.header == of.header))
    }

    /// The innermost loop that holds a block.
    #[must_use]
    pub fn innermost_loop(&self, block: usize) -> Option<&Loop> {
        self.loops.get((*self.innermost.get(block)?)? as usize)
    }
}

/// A set of places in a function, counted in bytes from its first, and how many come before each.
struct Places {
    /// A bit for each byte.
    words: Vec<u64>,
    /// How many come before each word.
    before: Vec<u32>,
    start: Svma,
    size_bytes: u64,
}

impl Places {
    fn none(size_bytes: usize, start: Svma) -> Self {
        let words = vec![0; size_bytes.div_ceil(64)];
        Self { words, before: Vec::new(), start, size_bytes: size_bytes as u64 }
    }

    fn place_of(&self, svma: Svma) -> Option<usize> {
        svma.distance_from(self.start).filter(|at| *at < self.size_bytes).map(|at| at as usize)
    }

    fn add(&mut self, svma: Svma) {
        if let Some(at) = self.place_of(svma) {
            self.words[at / 64] |= 1 << (at % 64);
        }
    }

    fn keep_only(&mut self, others: &Self) {
        self.words.iter_mut().zip(&others.words).for_each(|(word, other)| *word &= other);
    }

    fn count(mut self) -> Self {
        let mut total = 0;
        self.before.extend(self.words.iter().map(|word| {
            let before = total;
            total += word.count_ones();
            before
        }));
        self
    }

    fn total(&self) -> usize {
        let last = self.words.last().map_or(0, |word| word.count_ones());
        (self.before.last().copied().unwrap_or(0) + last) as usize
    }

    fn number_at(&self, at: usize) -> usize {
        let below = self.words[at / 64] & ((1 << (at % 64)) - 1);
        (self.before[at / 64] + below.count_ones()) as usize
    }

    /// The number of a place among all, if it is one.
    fn number_of(&self, svma: Svma) -> Option<usize> {
        let at = self.place_of(svma)?;
        (self.words[at / 64] >> (at % 64) & 1 != 0).then(|| self.number_at(at))
    }

    fn each(&self) -> impl Iterator<Item = usize> {
        self.words.iter().enumerate().flat_map(|(word, bits)| {
            let next = |bits: &u64| Some(bits & (bits - 1)).filter(|rest| *rest != 0);
            std::iter::successors(Some(*bits).filter(|bits| *bits != 0), next)
                .map(move |bits| 64 * word + bits.trailing_zeros() as usize)
        })
    }
}

fn ends_block(flow: Flow) -> bool {
    !matches!(flow, Flow::Next | Flow::Call)
}

fn split_into_blocks(insns: &[Insn], size_bytes: usize, start: Svma) -> Vec<Block> {
    let mut begins = Places::none(size_bytes, start);
    let mut leads = Places::none(size_bytes, start);
    leads.add(start);
    for insn in insns {
        begins.add(insn.svma);
        if ends_block(insn.flow) {
            leads.add(insn.end());
        }
        if let Flow::Jump(target) | Flow::Branch(target) = insn.flow {
            leads.add(target);
        }
    }
    leads.keep_only(&begins);
    let (begins, leads) = (begins.count(), leads.count());
    let mut blocks: Vec<Block> = Vec::with_capacity(leads.total());
    for at in leads.each() {
        let first = begins.number_at(at);
        let (successors, predecessors) = (Edges::new(), Edges::new());
        if let Some(before) = blocks.last_mut() {
            before.end = first;
        }
        blocks.push(Block { first, end: insns.len(), successors, predecessors });
    }
    for b in 0..blocks.len() {
        let last = &insns[blocks[b].end - 1];
        let following = (b + 1 < blocks.len()).then_some(b + 1);
        for next in successors(last.flow, following, |svma| leads.number_of(svma)) {
            blocks[b].successors.push(next);
            blocks[next].predecessors.push(b);
        }
    }
    link_jump_tables(insns, &mut blocks);
    blocks
}

fn link_jump_tables(insns: &[Insn], blocks: &mut Vec<Block>) {
    let jumps: Vec<usize> = (0..blocks.len())
        .filter(|b| insns[blocks[*b].end - 1].flow == Flow::IndirectJump)
        .collect();
    if jumps.is_empty() {
        return;
    }
    let is_case = |block: &Block| {
        block.predecessors.is_empty() && insns[block.first..block.end].iter().any(|i| !i.is_padding)
    };
    let cases: Vec<usize> = (1..blocks.len()).filter(|b| is_case(&blocks[*b])).collect();
    let meet = match jumps[..] {
        [only] => only,
        _ => add_junction(insns.len(), jumps, blocks),
    };
    blocks[meet].successors.extend_from_slice(&cases);
    for case in cases {
        blocks[case].predecessors.push(meet);
    }
}

/// The number of a new block without instructions, to which all of `jumps` lead.
fn add_junction(end: usize, jumps: Vec<usize>, blocks: &mut Vec<Block>) -> usize {
    let number = blocks.len();
    for jump in &jumps {
        blocks[*jump].successors.push(number);
    }
    let (successors, predecessors) = (Edges::new(), Edges::from_vec(jumps));
    blocks.push(Block { first: end, end, successors, predecessors });
    number
}

fn successors(
    flow: Flow,
    following: Option<usize>,
    block_at: impl Fn(Svma) -> Option<usize>,
) -> Edges {
    let targets = match flow {
        Flow::Next | Flow::Call => [following, None],
        Flow::Jump(target) => [block_at(target), None],
        Flow::Branch(target) => [following, block_at(target)],
        Flow::IndirectJump | Flow::Return | Flow::Stop => [None, None],
    };
    let mut out: Edges = targets.into_iter().flatten().collect();
    out.dedup();
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// test edi, edi; je +6; (loop:) dec edi; jne loop; nop; ret; ret
    const CODE: &[u8] = &[0x85, 0xff, 0x74, 0x05, 0xff, 0xcf, 0x75, 0xfc, 0x90, 0xc3];

    #[test]
    fn blocks_and_edges() {
        let code = FunctionCode::decode(CODE, Svma(0x100));
        let shape: Vec<_> =
            code.blocks.iter().map(|b| (b.first, b.end, b.successors.to_vec())).collect();
        assert_eq!(
            shape,
            [(0, 2, vec![1, 3]), (2, 4, vec![2, 1]), (4, 5, vec![3]), (5, 6, vec![])]
        );
        assert_eq!(code.blocks[1].predecessors.to_vec(), [0, 1]);
        assert_eq!(code.insn_at(Svma(0x105)), Some(2));
        assert_eq!(code.insn_at(Svma(0x10a)), None);
        assert_eq!(code.block_of(3), 1);
        assert_eq!(code.innermost_loop(1).unwrap().header, 1);
        assert!(code.innermost_loop(2).is_none());
    }

    #[test]
    fn padding_behind_a_jump_does_not_hide_a_loop() {
        // (loop:) dec edi; jmp +1; nop; jne loop; ret: the nop would be a second way in.
        let code = FunctionCode::decode(&[0xff, 0xcf, 0xeb, 0x01, 0x90, 0x75, 0xf9, 0xc3], Svma(0));
        assert_eq!(code.loops.len(), 1);
    }

    #[test]
    fn an_indirect_jump_leads_to_what_nothing_else_leads_to() {
        // (loop:) jmp rax; (case:) dec edi; jmp loop
        let code = FunctionCode::decode(&[0xff, 0xe0, 0xff, 0xcf, 0xeb, 0xfa], Svma(0));
        assert_eq!(code.blocks[0].successors.to_vec(), [1]);
        assert_eq!(code.loops.len(), 1);
    }

    #[test]
    fn edges_of_indirect_jumps_grow_with_the_code_and_not_with_its_square() {
        // Again and again: jmp rax; dec edi
        let count = 5000;
        let code = FunctionCode::decode(&[0xff, 0xe0, 0xff, 0xcf].repeat(count), Svma(0));
        let edges: usize = code.blocks.iter().map(|b| b.successors.len()).sum();
        assert!(code.blocks.len() > count && edges < 4 * count, "{edges} edges");
    }

    #[test]
    fn a_case_that_jumps_to_the_cases_again_is_a_loop_as_if_each_jump_led_to_each_case() {
        // jmp rax; (a:) dec edi; jmp rax; (b:) jmp rcx; (c:) jne b; ret
        let bytes = [0xff, 0xe0, 0xff, 0xcf, 0xff, 0xe0, 0xff, 0xe1, 0x75, 0xfc, 0xc3];
        let code = FunctionCode::decode(&bytes, Svma(0));
        let junction = code.blocks.len() - 1;
        assert!(code.blocks[junction].is_junction());
        assert_eq!(code.blocks[junction].predecessors.to_vec(), [0, 1, 2]);
        let loops: Vec<_> =
            code.loops.iter().map(|l| (l.header, l.latches.clone(), l.blocks.clone())).collect();
        // `c` dominates `b`, whose jump leads back to it.
        assert_eq!(loops, [(1, vec![1], vec![1, junction]), (3, vec![2], vec![2, 3, junction])]);
        // The junction is in both loops and has no instructions.
        let ranges = |n: usize| code.ranges(&code.loops[n]).collect::<Vec<_>>();
        assert_eq!(ranges(0), [Svma(2)..Svma(6)]);
        assert_eq!(ranges(1), [Svma(6)..Svma(8), Svma(8)..Svma(10)]);
        assert_eq!(code.bodies(&code.loops[0]).count(), 1);
    }

    #[test]
    fn no_code_is_no_blocks() {
        let code = FunctionCode::decode(&[], Svma(0));
        assert!(code.insns.is_empty() && code.blocks.is_empty() && code.loops.is_empty());
    }
}
