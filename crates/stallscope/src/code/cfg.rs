//! A function as basic blocks, edges and natural loops.
//!
//! An indirect jump is taken to lead to every block that nothing else leads to: the cases of a
//! jump table are found that way without reading the table. What cannot be reached from the entry
//! after that (padding behind jumps, landing pads of exceptions) keeps its instructions but loses
//! its edges, so that it cannot hide a loop.

use super::functions::Function;
use super::image::Image;
use super::insn::{Flow, Insn};
use super::loops::{Loop, find_loops};
use super::x86;
use crate::model::Svma;

/// A stretch of instructions that is entered at its start only and left at its end only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Index of its first instruction.
    pub first: usize,
    /// Index behind its last instruction.
    pub end: usize,
    /// Blocks that can follow.
    pub successors: Vec<usize>,
    /// Blocks that can come before.
    pub predecessors: Vec<usize>,
}

/// One function, decoded.
#[derive(Clone, Debug)]
pub struct FunctionCode {
    /// Its instructions, by address.
    pub insns: Vec<Insn>,
    /// Its blocks, by address; block 0 is the entry.
    pub blocks: Vec<Block>,
    /// Its natural loops, outer before inner.
    pub loops: Vec<Loop>,
}

impl FunctionCode {
    /// Decodes a function of an image.
    #[must_use]
    pub fn of(image: &Image, function: &Function) -> Self {
        Self::decode(image.function_bytes(function), function.start)
    }

    /// Decodes machine code that starts at `start`.
    #[must_use]
    pub fn decode(bytes: &[u8], start: Svma) -> Self {
        let insns = x86::decode(bytes, start);
        let blocks = split_into_blocks(&insns);
        let loops = find_loops(&blocks);
        Self { insns, blocks, loops }
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

    /// The innermost loop that holds a block.
    #[must_use]
    pub fn innermost_loop(&self, block: usize) -> Option<&Loop> {
        self.loops.iter().filter(|l| l.contains(block)).max_by_key(|l| l.depth)
    }
}

fn index_of(insns: &[Insn], svma: Svma) -> Option<usize> {
    insns.binary_search_by_key(&svma, |i| i.svma).ok()
}

fn ends_block(flow: Flow) -> bool {
    !matches!(flow, Flow::Next | Flow::Call)
}

fn split_into_blocks(insns: &[Insn]) -> Vec<Block> {
    let mut leader = vec![false; insns.len()];
    if let Some(first) = leader.first_mut() {
        *first = true;
    }
    for (i, insn) in insns.iter().enumerate() {
        if let Flow::Jump(target) | Flow::Branch(target) = insn.flow
            && let Some(target) = index_of(insns, target)
        {
            leader[target] = true;
        }
        if ends_block(insn.flow) && i + 1 < insns.len() {
            leader[i + 1] = true;
        }
    }
    let starts: Vec<usize> = (0..insns.len()).filter(|i| leader[*i]).collect();
    let mut blocks: Vec<Block> = starts
        .iter()
        .enumerate()
        .map(|(b, first)| Block {
            first: *first,
            end: starts.get(b + 1).copied().unwrap_or(insns.len()),
            successors: Vec::new(),
            predecessors: Vec::new(),
        })
        .collect();
    for b in 0..blocks.len() {
        for next in successors(insns, &blocks, &starts, b) {
            blocks[b].successors.push(next);
            blocks[next].predecessors.push(b);
        }
    }
    link_jump_tables(insns, &mut blocks);
    cut_unreachable(&mut blocks);
    blocks
}

fn link_jump_tables(insns: &[Insn], blocks: &mut [Block]) {
    let jumps: Vec<usize> = (0..blocks.len())
        .filter(|b| insns[blocks[*b].end - 1].flow == Flow::IndirectJump)
        .collect();
    let is_case = |block: &Block| {
        block.predecessors.is_empty() && insns[block.first..block.end].iter().any(|i| !i.is_padding)
    };
    let cases: Vec<usize> = (1..blocks.len()).filter(|b| is_case(&blocks[*b])).collect();
    for jump in jumps {
        for case in &cases {
            blocks[jump].successors.push(*case);
            blocks[*case].predecessors.push(jump);
        }
    }
}

fn cut_unreachable(blocks: &mut [Block]) {
    let mut reached = vec![false; blocks.len()];
    let mut work: Vec<usize> = (0..blocks.len().min(1)).collect();
    while let Some(block) = work.pop() {
        if !std::mem::replace(&mut reached[block], true) {
            work.extend(&blocks[block].successors);
        }
    }
    for (b, block) in blocks.iter_mut().enumerate() {
        if reached[b] {
            block.predecessors.retain(|p| reached[*p]);
        } else {
            block.predecessors.clear();
            block.successors.clear();
        }
    }
}

fn successors(insns: &[Insn], blocks: &[Block], starts: &[usize], b: usize) -> Vec<usize> {
    let block_at = |svma| starts.binary_search(&index_of(insns, svma)?).ok();
    let following = (b + 1 < blocks.len()).then_some(b + 1);
    let targets = match insns[blocks[b].end - 1].flow {
        Flow::Next | Flow::Call => [following, None],
        Flow::Jump(target) => [block_at(target), None],
        Flow::Branch(target) => [following, block_at(target)],
        Flow::IndirectJump | Flow::Return | Flow::Stop => [None, None],
    };
    let mut out: Vec<usize> = targets.into_iter().flatten().collect();
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
            code.blocks.iter().map(|b| (b.first, b.end, b.successors.clone())).collect();
        assert_eq!(
            shape,
            [(0, 2, vec![1, 3]), (2, 4, vec![2, 1]), (4, 5, vec![3]), (5, 6, vec![])]
        );
        assert_eq!(code.blocks[1].predecessors, [0, 1]);
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
        assert_eq!(code.blocks[0].successors, [1]);
        assert_eq!(code.loops.len(), 1);
    }

    #[test]
    fn no_code_is_no_blocks() {
        let code = FunctionCode::decode(&[], Svma(0));
        assert!(code.insns.is_empty() && code.blocks.is_empty() && code.loops.is_empty());
    }
}
