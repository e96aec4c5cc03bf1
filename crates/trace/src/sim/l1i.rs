//! The first-level instruction cache: which sets a run overfills, and who evicts whom.
//!
//! The cache is cut into sets, and the address of a line chooses its set. A set keeps as many lines
//! as it has ways; a loop that walks over one line more than that misses on every one of them under
//! LRU, however empty the other sets are. The measurable sign is a program that slows down when
//! code moves by a multiple of a line and not of a page. Code that the core reads ahead of its need
//! hides part of a miss: 0.3 to 6 ns each were measured, so misses here are counts without a price.
//! Literature: J. Hill and A. Smith, "Evaluating Associativity in CPU Caches" (1989); A. Abel and
//! J. Reineke, "Measurement-based Modeling of the Cache Replacement Policy" (2013) for tree-PLRU.

use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::CacheGeometry;
use crate::model::Avma;
use crate::trace::engine::{Block, BlockId, MemoryAccess, Sink};

/// Replacement policy of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Replacement {
    /// The one not used for longest.
    #[default]
    Lru,
    /// A tree of bits that points away from what was used; ways must be a power of two.
    TreePlru,
}

/// What became of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LineUse {
    /// First instruction that was fetched from the line.
    pub first_insn: Avma,
    /// Address of the line.
    pub line: Avma,
    /// How often it had to be brought in, the first time included.
    pub misses: u64,
}

/// How often one line pushed out another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Eviction {
    /// Address of the line that was fetched.
    pub by: Avma,
    /// Address of the line that was evicted.
    pub victim: Avma,
    /// Number of such evictions.
    pub count: u64,
}

/// Lines and misses of one set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SetUse {
    /// Number of the set.
    pub set: u32,
    /// Lines that were fetched into it, by address.
    pub lines: Vec<LineUse>,
    /// Misses, first touches included.
    pub misses: u64,
    /// Who evicted whom, most frequent first.
    pub evictions: Vec<Eviction>,
}

impl SetUse {
    /// More lines in use than the set keeps, and they pushed each other out.
    #[must_use]
    pub fn is_overfull(&self, geometry: CacheGeometry) -> bool {
        self.lines.len() > geometry.ways as usize && !self.evictions.is_empty()
    }
}

/// Fetches and misses of the modelled instruction cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct L1iReport {
    /// The cache that was modelled.
    pub geometry: CacheGeometry,
    /// Replacement policy that was modelled.
    pub replacement: Replacement,
    /// Fetches of a line other than the one fetched just before.
    pub fetches: u64,
    /// Those that missed, first touches included.
    pub misses: u64,
    /// First touches of a line.
    pub cold_misses: u64,
    /// Sets with at least one line, by number.
    pub sets: Vec<SetUse>,
}

impl L1iReport {
    /// Sets with more lines in use than ways, most misses first.
    #[must_use]
    pub fn overfull(&self) -> Vec<&SetUse> {
        let mut sets: Vec<&SetUse> =
            self.sets.iter().filter(|s| s.is_overfull(self.geometry)).collect();
        sets.sort_by_key(|s| (std::cmp::Reverse(s.misses), s.set));
        sets
    }
}

/// Number of a line, its address divided by its size.
type LineNumber = u64;
/// No line has this number: addresses have fewer bits.
const EMPTY: LineNumber = u64::MAX;

#[derive(Clone, Copy)]
struct Seen {
    first_insn: Avma,
    misses: u64,
}

/// A model of the instruction cache, fed with the blocks of a trace.
pub struct InstructionCache {
    geometry: CacheGeometry,
    replacement: Replacement,
    line_shift: u32,
    /// `ways` entries for each set; under LRU the last used first.
    ways: Vec<LineNumber>,
    /// The bits of each set's tree.
    trees: Vec<u64>,
    /// Lines of each block in the order of fetching, with the first instruction in each.
    blocks: Vec<Vec<(LineNumber, Avma)>>,
    last: LineNumber,
    fetches: u64,
    misses: u64,
    seen: FxHashMap<LineNumber, Seen>,
    evictions: FxHashMap<(LineNumber, LineNumber), u64>,
}

impl InstructionCache {
    /// An empty cache; `None` for a geometry that is not [`CacheGeometry::possible`], or a tree over ways that are no
    /// power of two.
    #[must_use]
    pub fn new(geometry: CacheGeometry, replacement: Replacement) -> Option<Self> {
        let fits = replacement == Replacement::Lru || geometry.ways.is_power_of_two();
        geometry.possible().filter(|_| fits).map(|geometry| Self::empty(geometry, replacement))
    }

    fn empty(geometry: CacheGeometry, replacement: Replacement) -> Self {
        let CacheGeometry { sets, ways, line_bytes } = geometry;
        Self {
            geometry,
            replacement,
            line_shift: line_bytes.trailing_zeros(),
            ways: vec![EMPTY; sets as usize * ways as usize],
            trees: vec![0; sets as usize],
            blocks: Vec::new(),
            last: EMPTY,
            fetches: 0,
            misses: 0,
            seen: FxHashMap::default(),
            evictions: FxHashMap::default(),
        }
    }

    /// Fetches the line that holds `insn`.
    pub fn fetch(&mut self, insn: Avma) {
        self.fetch_line(insn.0 >> self.line_shift, insn);
    }

    fn set_of(&self, line: LineNumber) -> usize {
        (line & u64::from(self.geometry.sets - 1)) as usize
    }

    fn fetch_line(&mut self, line: LineNumber, insn: Avma) {
        if line == self.last {
            return;
        }
        self.last = line;
        self.fetches += 1;
        let (set, ways) = (self.set_of(line), self.geometry.ways as usize);
        let lines = &mut self.ways[set * ways..(set + 1) * ways];
        let place = lines.iter().position(|held| *held == line);
        let victim = match self.replacement {
            Replacement::Lru => {
                let place_or_last = place.unwrap_or(ways - 1);
                let old = lines[place_or_last];
                lines.copy_within(..place_or_last, 1);
                lines[0] = line;
                old
            }
            Replacement::TreePlru => {
                let empty = || lines.iter().position(|held| *held == EMPTY);
                let way = place.or_else(empty).unwrap_or_else(|| pointed_at(self.trees[set], ways));
                self.trees[set] = point_away(self.trees[set], ways, way);
                std::mem::replace(&mut lines[way], line)
            }
        };
        if place.is_none() {
            self.missed(line, insn, victim);
        }
    }

    fn missed(&mut self, line: LineNumber, insn: Avma, victim: LineNumber) {
        self.misses += 1;
        self.seen.entry(line).or_insert(Seen { first_insn: insn, misses: 0 }).misses += 1;
        if victim != EMPTY {
            *self.evictions.entry((line, victim)).or_default() += 1;
        }
    }

    /// What was counted so far.
    #[must_use]
    pub fn report(&self) -> L1iReport {
        let address = |line: LineNumber| Avma(line << self.line_shift);
        let mut sets: FxHashMap<usize, SetUse> = FxHashMap::default();
        for (line, seen) in &self.seen {
            let set = self.set_of(*line);
            let entry = sets.entry(set).or_insert_with(|| SetUse {
                set: set as u32,
                lines: Vec::new(),
                misses: 0,
                evictions: Vec::new(),
            });
            entry.misses += seen.misses;
            entry.lines.push(LineUse {
                first_insn: seen.first_insn,
                line: address(*line),
                misses: seen.misses,
            });
        }
        for ((by, victim), count) in &self.evictions {
            if let Some(entry) = sets.get_mut(&self.set_of(*by)) {
                let (by, victim) = (address(*by), address(*victim));
                entry.evictions.push(Eviction { by, victim, count: *count });
            }
        }
        let mut sets: Vec<SetUse> = sets.into_values().collect();
        sets.sort_by_key(|s| s.set);
        for set in &mut sets {
            set.lines.sort_by_key(|l| l.line);
            set.evictions.sort_by_key(|e| (std::cmp::Reverse(e.count), e.by, e.victim));
        }
        L1iReport {
            geometry: self.geometry,
            replacement: self.replacement,
            fetches: self.fetches,
            misses: self.misses,
            cold_misses: self.seen.len() as u64,
            sets,
        }
    }
}

/// The way that the bits of a tree lead to. Bit n is node n of a heap that counts from 1; 0 leads
/// to the lower half.
fn pointed_at(tree: u64, ways: usize) -> usize {
    let mut node = 1;
    while node < ways {
        node = 2 * node + (tree >> node & 1) as usize;
    }
    node - ways
}

/// The tree with every bit on the way to `way` turned to the other half.
fn point_away(mut tree: u64, ways: usize, way: usize) -> u64 {
    let mut node = way + ways;
    while node > 1 {
        let upper_half = node % 2;
        node /= 2;
        tree = tree & !(1 << node) | u64::from(upper_half == 0) << node;
    }
    tree
}

impl Sink for InstructionCache {
    fn describe(&mut self, id: BlockId, block: &Block) {
        let mut lines: Vec<(LineNumber, Avma)> = Vec::new();
        for insn in &block.insns {
            let first = insn.address.0 >> self.line_shift;
            let last_byte = insn.address.0.wrapping_add(u64::from(insn.size_bytes.max(1)) - 1);
            for line in [first, last_byte >> self.line_shift] {
                if lines.last().is_none_or(|(previous, _)| *previous != line) {
                    lines.push((line, insn.address));
                }
            }
        }
        id.put(lines, &mut self.blocks);
    }

    fn restart(&mut self) {
        *self = Self::empty(self.geometry, self.replacement);
    }

    fn run(&mut self, id: BlockId, _accesses: &[MemoryAccess]) {
        let Some(lines) = self.blocks.get_mut(id.0 as usize).map(std::mem::take) else { return };
        for (line, insn) in &lines {
            self.fetch_line(*line, *insn);
        }
        self.blocks[id.0 as usize] = lines;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::trace::engine::BlockInsn;

    const L1I: CacheGeometry = CacheGeometry { sets: 64, ways: 8, line_bytes: 64 };

    /// Misses of an LRU cache written down as the definition says it.
    fn naive_lru_misses(geometry: CacheGeometry, fetched: &[u64]) -> u64 {
        let mut sets = vec![Vec::new(); geometry.sets as usize];
        let mut misses = 0;
        for line in fetched {
            let set: &mut Vec<u64> = &mut sets[(line % u64::from(geometry.sets)) as usize];
            match set.iter().position(|held| held == line) {
                Some(place) => drop(set.remove(place)),
                None => misses += 1,
            }
            set.push(*line);
            if set.len() > geometry.ways as usize {
                set.remove(0);
            }
        }
        misses
    }

    /// Functions of four lines at a stride, called in turn `rounds` times.
    fn family(functions: u64, stride_bytes: u64, rounds: u64) -> L1iReport {
        let mut cache = InstructionCache::new(L1I, Replacement::Lru).unwrap();
        for k in 0..functions {
            let insn = |n: u64| BlockInsn {
                address: Avma(k * stride_bytes + 4 * n),
                size_bytes: 4,
                drains_stores: false,
            };
            cache.describe(BlockId(k as u32), &Block { insns: (0..64).map(insn).collect() });
        }
        for _ in 0..rounds {
            (0..functions).for_each(|k| cache.run(BlockId(k as u32), &[]));
        }
        cache.report()
    }

    #[test]
    fn eight_ways_hold_eight_fighters_and_not_nine() {
        let (rounds, warm) = (100, 99);
        let eight = family(8, 4096, rounds);
        assert_eq!((eight.misses, eight.cold_misses), (32, 32));
        assert!(eight.overfull().is_empty());
        for functions in [9, 12, 16, 24] {
            let report = family(functions, 4096, rounds);
            assert_eq!(report.misses - report.cold_misses, 4 * functions * warm);
            let overfull = report.overfull();
            assert_eq!(overfull.iter().map(|s| s.set).collect::<Vec<_>>(), [0, 1, 2, 3]);
            assert_eq!(overfull[0].lines.len() as u64, functions);
            // Under LRU a line pushes out the one that came eight lines before it.
            let next = &overfull[0].evictions[0];
            let (by, victim) = (next.by.0 / 4096, next.victim.0 / 4096);
            assert_eq!((by + functions - 8) % functions, victim);
            assert_eq!(family(functions, 5120, rounds).misses, 4 * functions);
        }
    }

    #[test]
    fn an_instruction_across_two_lines_fetches_both() {
        let mut cache = InstructionCache::new(L1I, Replacement::Lru).unwrap();
        let insn = BlockInsn { address: Avma(60), size_bytes: 8, drains_stores: false };
        cache.describe(BlockId(0), &Block { insns: vec![insn] });
        cache.run(BlockId(0), &[]);
        let report = cache.report();
        assert_eq!((report.fetches, report.misses), (2, 2));
        assert_eq!(report.sets[1].lines[0].first_insn, Avma(60));
    }

    #[test]
    fn impossible_geometries_are_refused() {
        for (sets, ways, line_bytes) in [(0, 8, 64), (63, 8, 64), (64, 0, 64), (64, 8, 48)] {
            let geometry = CacheGeometry { sets, ways, line_bytes };
            assert!(InstructionCache::new(geometry, Replacement::Lru).is_none(), "{geometry:?}");
        }
        let twelve = CacheGeometry { ways: 12, ..L1I };
        assert!(InstructionCache::new(twelve, Replacement::Lru).is_some());
        assert!(InstructionCache::new(twelve, Replacement::TreePlru).is_none());
    }

    #[test]
    fn an_unknown_block_is_no_event() {
        let mut cache = InstructionCache::new(L1I, Replacement::Lru).unwrap();
        cache.run(BlockId(7), &[]);
        assert_eq!(cache.report().fetches, 0);
    }

    #[test]
    fn a_tree_points_at_each_way_in_turn() {
        let (mut tree, mut order) = (0, Vec::new());
        for _ in 0..8 {
            let way = pointed_at(tree, 8);
            order.push(way);
            tree = point_away(tree, 8, way);
        }
        assert_eq!(order, [0, 4, 2, 6, 1, 5, 3, 7]);
    }

    proptest! {
        #[test]
        fn lru_agrees_with_its_definition(
            fetched in prop::collection::vec(0_u64..64, 0..600),
            (sets_log, ways) in (0_u32..4, 1_u32..6),
        ) {
            let geometry = CacheGeometry { sets: 1 << sets_log, ways, line_bytes: 64 };
            let mut cache = InstructionCache::new(geometry, Replacement::Lru).unwrap();
            fetched.iter().for_each(|line| cache.fetch(Avma(line * 64)));
            let report = cache.report();
            prop_assert_eq!(report.misses, naive_lru_misses(geometry, &fetched));
            let of_sets: u64 = report.sets.iter().map(|s| s.misses).sum();
            prop_assert_eq!(of_sets, report.misses);
            let evicted: u64 =
                report.sets.iter().flat_map(|s| &s.evictions).map(|e| e.count).sum();
            prop_assert!(evicted <= report.misses);
        }

        #[test]
        fn a_tree_of_two_ways_is_lru(fetched in prop::collection::vec(0_u64..16, 0..300)) {
            let geometry = CacheGeometry { sets: 2, ways: 2, line_bytes: 64 };
            let misses = |replacement| {
                let mut cache = InstructionCache::new(geometry, replacement).unwrap();
                fetched.iter().for_each(|line| cache.fetch(Avma(line * 64)));
                cache.report().misses
            };
            prop_assert_eq!(misses(Replacement::Lru), misses(Replacement::TreePlru));
        }

        #[test]
        fn what_fits_misses_once_under_either(
            fetched in prop::collection::vec(0_u64..8, 0..300),
        ) {
            for replacement in [Replacement::Lru, Replacement::TreePlru] {
                let mut cache = InstructionCache::new(L1I, replacement).unwrap();
                fetched.iter().for_each(|k| cache.fetch(Avma(k * 4096)));
                let report = cache.report();
                prop_assert_eq!(report.misses, report.cold_misses);
            }
        }
    }
}
