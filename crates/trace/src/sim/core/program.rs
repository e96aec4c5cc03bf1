//! The instructions of a window, each taken apart once for all models that run on it.

use iced_x86::InstructionInfoFactory;
use rustc_hash::{FxHashMap, FxHashSet};

use super::ops::Op;
use crate::code::x86;
use crate::machine::Fusion;
use crate::model::{Avma, LINE_BYTES, PAGE_BYTES, Svma};
use crate::trace::engine::{Block, BlockId, MemoryAccess, Sink};

/// What a recorded window consists of: the first pass over it collects it.
#[derive(Default)]
pub struct WindowCode {
    blocks: Vec<Block>,
    data: Footprint,
}

/// The lines of data that a window touches, and of how many they are likely to be a part.
struct Footprint {
    lines: FxHashSet<u64>,
    /// The last line with each rest by [`RECENT_LINES`]: touching it again tells nothing.
    recent: Vec<u64>,
    /// Touches of lines that were not recent.
    touches: u64,
    /// How many lines there were behind each [`TOUCHES_APART`] of them.
    so_far: Vec<u64>,
}

const RECENT_LINES: usize = 1024;
const TOUCHES_APART: u64 = 1024;
/// Of touches in the last quarter of a window, so many may be of new lines at the most, percent: where nearly all are,
/// a stream runs through the window, and how long it is nothing tells.
const MOST_NEW_PERCENT: u64 = 95;

impl Default for Footprint {
    fn default() -> Self {
        let recent = vec![u64::MAX; RECENT_LINES];
        Self { lines: FxHashSet::default(), recent, touches: 0, so_far: Vec::new() }
    }
}

impl Footprint {
    fn touch(&mut self, line: u64) {
        let recent = &mut self.recent[line as usize % RECENT_LINES];
        if std::mem::replace(recent, line) == line {
            return;
        }
        self.lines.insert(line);
        self.touches += 1;
        if self.touches.is_multiple_of(TOUCHES_APART) {
            self.so_far.push(self.lines.len() as u64);
        }
    }

    /// Lines among which those of the window were drawn, if by chance: of touches with `u` of `n` lines seen before, u/n are
    /// of these. No less than the window touches.
    fn likely_lines(&self) -> u64 {
        let seen = self.lines.len() as u64;
        let quarter = self.so_far.len() / 4;
        let [.., end] = self.so_far[..] else { return seen };
        let before = self.so_far[self.so_far.len() - 1 - quarter];
        let touches = quarter as u64 * TOUCHES_APART;
        let new = end - before;
        if touches == 0 || new * 100 > touches * MOST_NEW_PERCENT {
            return seen;
        }
        let middle = u128::from((before + end) / 2);
        seen.max((middle * u128::from(touches) / u128::from(touches - new)) as u64)
    }
}

/// The instructions of a window as the core sees them.
pub struct Program {
    pub(super) ops: Vec<Op>,
    /// By number of the block: its instructions, as indices of `ops`.
    pub(super) blocks: Vec<Vec<u32>>,
    /// Lines of data of which the window touches a part, as far as it tells, and pages that it touches.
    pub(super) lines: u64,
    pub(super) pages: u64,
    /// Of these, lines that also hold instructions of the window.
    pub(super) code_and_data: FxHashSet<u64>,
    /// Indices of the instructions in `ops` whose bytes could not be read.
    pub(super) unread: Vec<usize>,
}

impl Sink for WindowCode {
    fn describe(&mut self, id: BlockId, block: &Block) {
        let index = id.0 as usize;
        if self.blocks.len() <= index {
            self.blocks.resize(index + 1, Block::default());
        }
        self.blocks[index] = block.clone();
    }

    fn restart(&mut self) {
        *self = Self::default();
    }

    fn run(&mut self, _id: BlockId, accesses: &[MemoryAccess]) {
        for access in accesses {
            self.data.touch(access.address.0 / LINE_BYTES);
        }
    }
}

impl WindowCode {
    /// Takes the instructions apart; `code` gives the bytes of one, if it can.
    #[must_use]
    pub fn decode(self, fusion: Fusion, mut code: impl FnMut(Avma, u8) -> Vec<u8>) -> Program {
        let page_of = |line: &u64| line * LINE_BYTES / PAGE_BYTES;
        let mut factory = InstructionInfoFactory::new();
        let mut numbers: FxHashMap<(Avma, u8), u32> = FxHashMap::default();
        let insns = self.blocks.iter().flat_map(|block| &block.insns);
        let code_lines = insns.map(|insn| insn.address.0 / LINE_BYTES);
        let mut program = Program {
            ops: Vec::new(),
            blocks: Vec::new(),
            code_and_data: code_lines.filter(|line| self.data.lines.contains(line)).collect(),
            lines: self.data.likely_lines(),
            pages: self.data.lines.iter().map(page_of).collect::<FxHashSet<u64>>().len() as u64,
            unread: Vec::new(),
        };
        for block in &self.blocks {
            let mut ops = Vec::with_capacity(block.insns.len());
            for insn in &block.insns {
                let number = *numbers.entry((insn.address, insn.size_bytes)).or_insert_with(|| {
                    let bytes = code(insn.address, insn.size_bytes);
                    program.ops.push(match bytes.is_empty() {
                        true => Op::unknown(insn.address, insn.size_bytes),
                        false => Op::of(&bytes, insn.address, &mut factory),
                    });
                    program.unread.extend(bytes.is_empty().then_some(program.ops.len() - 1));
                    program.ops.len() as u32 - 1
                });
                ops.push(number);
            }
            // The comparison and the jump that the front end makes one of stand last.
            if let [.., compare, jump] = block.insns[..]
                && let Some(last) = ops.last()
            {
                let mut bytes = code(compare.address, compare.size_bytes);
                bytes.extend(code(jump.address, jump.size_bytes));
                let joined = x86::jumps(&bytes, Svma(compare.address.0), fusion);
                program.ops[*last as usize].joined =
                    joined.last().is_some_and(|jump| jump.start != jump.insn);
            }
            program.blocks.push(ops);
        }
        program
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn likely(touches: impl Iterator<Item = u64>) -> u64 {
        let mut footprint = Footprint::default();
        touches.for_each(|line| footprint.touch(line));
        footprint.likely_lines()
    }

    #[test]
    fn lines_drawn_by_chance_tell_of_how_many_they_are_a_part() {
        let mut state = 1_u64;
        let mut random = |of: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % of
        };
        let many = likely((0..200_000).map(|_| random(500_000)));
        assert!((450_000..550_000).contains(&many), "{many}");
        let few = likely((0..200_000).map(|_| random(5_000)));
        assert!((5_000..5_200).contains(&few), "{few}");
    }

    #[test]
    fn streams_and_short_windows_tell_what_they_touch() {
        assert_eq!(likely(0..100_000), 100_000);
        assert_eq!(likely((0..100_000).map(|n| n % 10_000)), 10_000);
        assert_eq!(likely(0..100), 100);
        assert_eq!(likely((0..1_000_000).map(|n| n % 3)), 3);
    }
}
