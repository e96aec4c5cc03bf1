//! The instructions of a window, each taken apart once for all models that run on it.

use iced_x86::InstructionInfoFactory;
use rustc_hash::{FxHashMap, FxHashSet};

use super::ops::{FLAGS, Op};
use crate::code::x86;
use crate::machine::Fusion;
use crate::model::{Avma, LINE_BYTES, PAGE_BYTES, Svma};
use crate::trace::engine::{Block, BlockId, MemoryAccess, Sink};

/// What a recorded window consists of: the first pass over it collects it.
#[derive(Default)]
pub(super) struct WindowCode {
    blocks: Vec<Block>,
    /// Of each: how often it was run.
    runs: Vec<u64>,
    data: Footprint,
}

/// The lines of data that a window touches, and of how many they are likely to be a part.
struct Footprint {
    /// How often each line was touched when neither it nor the lines before it were recent.
    lines: FxHashMap<u64, u8>,
    /// The last line with each rest by [`RECENT_LINES`]: touching it again tells nothing.
    recent: Vec<u64>,
}

const RECENT_LINES: usize = 1024;
pub(super) const PAGE_LINES: u64 = PAGE_BYTES / LINE_BYTES;
/// So many lines must have been touched once before anything is said of those that were not touched, and so many twice
/// before their number says it.
const LEAST_ONCE: u64 = 2048;
const LEAST_TWICE: u64 = 64;
/// A place within a page is used where lines stand there at least one time for so many at a place on average.
const RARE: u64 = 8;

impl Default for Footprint {
    fn default() -> Self {
        Self { lines: FxHashMap::default(), recent: vec![u64::MAX; RECENT_LINES] }
    }
}

impl Footprint {
    fn touch(&mut self, line: u64) {
        let is_recent = |line: u64| self.recent[line as usize % RECENT_LINES] == line;
        if is_recent(line) {
            return;
        }
        // How long a stream is nothing tells, and it is fetched ahead.
        let is_stream = [1, 2].into_iter().any(|step: u64| {
            let all = |other: fn(u64, u64) -> u64| {
                is_recent(other(line, step)) && is_recent(other(line, 2 * step))
            };
            all(u64::wrapping_sub) || all(u64::wrapping_add)
        });
        let touches = self.lines.entry(line).or_default();
        *touches = touches.saturating_add(u8::from(!is_stream));
        self.recent[line as usize % RECENT_LINES] = line;
    }

    /// Lines among which those of the window were drawn, if by chance. Those that it never came to are as many as the
    /// square of those touched once over twice those touched twice, however often it came to others (Chao,
    /// "Nonparametric estimation of the number of classes in a population", 1984). Where hardly any were touched twice,
    /// the pages that were touched are taken for being in use at the places where any page is. No less than the window
    /// touches.
    fn likely_lines(&self) -> u64 {
        let seen = self.lines.len() as u64;
        let with = |times: u8| self.lines.iter().filter(move |line| *line.1 == times);
        let (once, twice) = (with(1).count() as u64, with(2).count() as u64);
        if once < LEAST_ONCE {
            return seen;
        }
        if twice >= LEAST_TWICE {
            return seen + once * once / (2 * twice);
        }
        let mut places = [0; PAGE_LINES as usize];
        let mut pages = FxHashSet::default();
        for (line, _) in with(1) {
            places[(line % PAGE_LINES) as usize] += 1;
            pages.insert(line / PAGE_LINES);
        }
        let used = places.iter().filter(|count| **count * PAGE_LINES * RARE >= once).count() as u64;
        seen.max(pages.len() as u64 * used)
    }
}

/// The instructions of a window as the core sees them.
pub(super) struct Program {
    pub(super) ops: Vec<Op>,
    /// By number of the block: its instructions, as indices of `ops`.
    pub(super) blocks: Vec<Vec<u32>>,
    /// Lines of data of which the window touches a part, as far as it tells, and pages that it touches.
    pub(super) lines: u64,
    pub(super) pages: u64,
    /// Lines that its instructions are in.
    pub(super) code_lines: FxHashSet<u64>,
    /// Of these, lines that it also reads or writes.
    pub(super) code_and_data: FxHashSet<u64>,
    /// Indices of the instructions in `ops` whose bytes could not be read.
    pub(super) unread: Vec<usize>,
}

impl Sink for WindowCode {
    fn describe(&mut self, id: BlockId, block: &Block) {
        id.put(block.clone(), &mut self.blocks);
        self.runs.resize(self.blocks.len(), 0);
    }

    fn restart(&mut self) {
        *self = Self::default();
    }

    fn run(&mut self, id: BlockId, accesses: &[MemoryAccess]) {
        if let Some(runs) = self.runs.get_mut(id.0 as usize) {
            *runs += 1;
        }
        for access in accesses {
            self.data.touch(access.address.0 / LINE_BYTES);
        }
    }
}

impl WindowCode {
    /// The blocks that were run, and how often.
    fn run_blocks(&self) -> impl Iterator<Item = (&Block, u64)> {
        self.blocks.iter().zip(self.runs.iter().copied()).filter(|(_, runs)| *runs > 0)
    }

    /// Instructions that were executed.
    pub(super) fn instructions(&self) -> u64 {
        self.run_blocks().map(|(block, runs)| runs * block.insns.len() as u64).sum()
    }

    /// Takes the instructions apart; `code` gives the bytes of one, if it can.
    pub(super) fn decode(
        self,
        fusion: Fusion,
        mut code: impl FnMut(Avma, u8) -> Vec<u8>,
    ) -> Program {
        let page_of = |line: &u64| line * LINE_BYTES / PAGE_BYTES;
        let mut factory = InstructionInfoFactory::new();
        let mut numbers: FxHashMap<(Avma, u8), u32> = FxHashMap::default();
        let insns = self.run_blocks().flat_map(|(block, _)| &block.insns);
        let code_lines: FxHashSet<u64> = insns.map(|insn| insn.address.0 / LINE_BYTES).collect();
        let is_data = |line: &&u64| self.data.lines.contains_key(line);
        let mut program = Program {
            ops: Vec::new(),
            blocks: Vec::new(),
            code_and_data: code_lines.iter().filter(is_data).copied().collect(),
            code_lines,
            lines: self.data.likely_lines(),
            pages: self.data.lines.keys().map(page_of).collect::<FxHashSet<u64>>().len() as u64,
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
            for pair in ops.windows(2) {
                let [load, next] = [pair[0], pair[1]].map(|number| &program.ops[number as usize]);
                if load.halves.is_joined_with(next.halves) {
                    program.ops[pair[0] as usize].joins_load = true;
                }
            }
            // The comparison and the jump that the front end makes one of stand last.
            if let [.., compare, jump] = block.insns[..]
                && let [.., before, last] = ops[..]
            {
                let mut bytes = code(compare.address, compare.size_bytes);
                bytes.extend(code(jump.address, jump.size_bytes));
                let joined = x86::jumps(&bytes, Svma(compare.address.0), fusion);
                let are_joined = joined.last().is_some_and(|jump| jump.start != jump.insn);
                program.ops[last as usize].joined = are_joined;
                let before = &mut program.ops[before as usize];
                before.in_jump = are_joined && before.outputs == 1 << FLAGS;
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

    fn random() -> impl FnMut(u64) -> u64 {
        let mut state = 1_u64;
        move |of| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % of
        }
    }

    #[test]
    fn lines_drawn_by_chance_tell_of_how_many_they_are_a_part() {
        let mut random = random();
        let many = likely((0..200_000).map(|_| random(500_000)));
        assert!((450_000..550_000).contains(&many), "{many}");
        let few = likely((0..200_000).map(|_| random(5_000)));
        assert!((4_900..5_200).contains(&few), "{few}");
        // Every other touch is of a small table, and a stream runs through it all.
        let table = 1 << 40;
        let mixed = likely((0..200_000).map(|n| match n % 4 {
            0 | 2 => random(5_000),
            1 => table + random(2_000_000),
            _ => 2 * table + n / 4,
        }));
        assert!((1_500_000..2_500_000).contains(&mixed), "{mixed}");
    }

    #[test]
    fn lines_never_come_back_to_are_taken_for_a_part_of_their_pages() {
        // A list in an order of its own: each of a million lines comes once.
        let mixed = |n: u64| {
            let x = n * 611_953 % (1 << 20);
            (x ^ x >> 9) * 848_231 % (1 << 20)
        };
        let list = |lines_apart: u64| likely((0..60_000).map(move |n| mixed(n) * lines_apart));
        assert!((1_000_000..1_050_000).contains(&list(1)), "{}", list(1));
        assert!((850_000..1_050_000).contains(&list(2)), "every other line: {}", list(2));
        // One line of each page: what is in the pages that were not touched nothing tells.
        assert_eq!(list(64), 60_000);
    }

    #[test]
    fn streams_and_short_windows_tell_what_they_touch() {
        assert_eq!(likely(0..100_000), 100_000);
        assert_eq!(likely((0..100_000).rev()), 100_000);
        assert_eq!(likely((0..100_000).map(|n| 2 * n)), 100_000);
        assert_eq!(likely((0..100_000).map(|n| n % 10_000)), 10_000);
        assert_eq!(likely(0..100), 100);
        assert_eq!(likely((0..1_000_000).map(|n| n % 3)), 3);
    }
}
