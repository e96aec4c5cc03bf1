//! Who takes which place in the instruction cache in a window: exact lines per set, simulated misses
//! per operation, and who evicts whom.
//!
//! The model is the one of `sim::l1i`; here it goes over the window twice and the second time
//! counts, so that a line which is brought in once for all is no miss. See [`super::TracedWindow`].

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::Serialize;

use super::function_index;
use super::window::{TracedWindow, WindowInsn};
use crate::code::{Function, Image};
use crate::machine::CacheGeometry;
use crate::model::{Avma, Svma};
use crate::sim::l1i::{InstructionCache, L1iReport, Replacement};
use crate::trace::engine::{Block, BlockId, BlockInsn, Sink};

/// Evicted lines that are named for one line.
const MOST_VICTIMS: usize = 4;

/// A line of the set that another pushed out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EvictedLine {
    /// Its function, or the file where none is known.
    pub function: String,
    /// Where in the function its line is.
    pub offset_bytes: u64,
    /// Evictions in the window.
    pub count: u64,
}

/// One line that competes for the ways of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ResidentLine {
    /// The line in the program; absent for lines of libraries.
    pub line: Option<Svma>,
    /// Its function, or the file where none is known.
    pub function: String,
    /// Where in the function the line is.
    pub offset_bytes: u64,
    /// Simulated misses of the line in the window.
    pub misses: u64,
    /// Lines that it pushed out, most often first.
    pub evicts: Vec<EvictedLine>,
}

/// A set of which more lines are used than it keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct OverfullSet {
    /// Number of the set.
    pub set: u32,
    /// Lines fetched into it.
    pub lines: usize,
    /// Simulated misses in the window.
    pub misses: u64,
    /// Its lines: those with most misses first.
    pub residents: Vec<ResidentLine>,
}

/// A window in the modelled cache.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Occupancy {
    /// What was followed, in words.
    pub source: String,
    /// Calls of the window's function.
    pub operations: u64,
    /// Instructions in the window.
    pub instructions: u64,
    /// Different lines fetched, libraries included.
    pub lines: usize,
    /// Simulated misses in the window.
    pub misses: u64,
    /// Simulated misses of one operation.
    pub misses_per_operation: f64,
    /// Whether the model went over all of the window; else over its first 16 million blocks.
    pub is_whole: bool,
    /// Sets with more lines than ways, most misses first.
    pub overfull: Vec<OverfullSet>,
}

/// Misses of a window, by line, and who evicted whom.
pub(super) struct Simulated {
    misses: u64,
    by_line: BTreeMap<Avma, u64>,
    report: L1iReport,
    evictions: BTreeMap<Avma, Vec<(Avma, u64)>>,
}

/// Runs the model over the window; `place` says where an instruction stands. `None` for a geometry
/// that cannot be modelled.
fn simulate(
    window: &TracedWindow,
    geometry: CacheGeometry,
    place: impl Fn(&WindowInsn) -> Avma,
) -> Option<(L1iReport, L1iReport)> {
    let mut cache = InstructionCache::new(geometry, Replacement::Lru)?;
    for (id, block) in (0..).zip(&window.blocks) {
        let insn = |i: &WindowInsn| BlockInsn {
            address: place(i),
            size_bytes: i.size_bytes,
            drains_stores: false,
        };
        cache.describe(BlockId(id), &Block { insns: block.iter().map(insn).collect() });
    }
    window.order.iter().for_each(|id| cache.run(BlockId(*id), &[]));
    let first = cache.report();
    window.order.iter().for_each(|id| cache.run(BlockId(*id), &[]));
    Some((first, cache.report()))
}

/// Misses of the window once it is warm, with everything placed by `place`.
pub(super) fn misses_placed(
    window: &TracedWindow,
    geometry: CacheGeometry,
    place: impl Fn(&WindowInsn) -> Avma,
) -> Option<u64> {
    let (first, both) = simulate(window, geometry, place)?;
    Some(both.misses - first.misses)
}

impl Simulated {
    /// `None` for a geometry that cannot be modelled.
    pub fn of(window: &TracedWindow, geometry: CacheGeometry) -> Option<Self> {
        let (first, both) = simulate(window, geometry, |insn| insn.avma)?;
        let misses = both.misses - first.misses;
        let mut old: FxHashMap<Avma, u64> = FxHashMap::default();
        let mut old_pairs: FxHashMap<(Avma, Avma), u64> = FxHashMap::default();
        for set in &first.sets {
            old.extend(set.lines.iter().map(|l| (l.line, l.misses)));
            old_pairs.extend(set.evictions.iter().map(|e| ((e.by, e.victim), e.count)));
        }
        let mut by_line = BTreeMap::new();
        let mut evictions: BTreeMap<Avma, Vec<(Avma, u64)>> = BTreeMap::new();
        for set in &both.sets {
            for l in &set.lines {
                by_line.insert(l.line, l.misses - old.get(&l.line).copied().unwrap_or(0));
            }
            for e in &set.evictions {
                let count = e.count - old_pairs.get(&(e.by, e.victim)).copied().unwrap_or(0);
                if count > 0 {
                    evictions.entry(e.by).or_default().push((e.victim, count));
                }
            }
        }
        for victims in evictions.values_mut() {
            victims.sort_by_key(|(victim, count)| (std::cmp::Reverse(*count), *victim));
        }
        Some(Self { misses, by_line, report: both, evictions })
    }
}

/// Places of lines in the program.
struct Lines<'a> {
    window: &'a TracedWindow,
    image: &'a Image,
    places: FxHashMap<Avma, WindowInsn>,
}

impl<'a> Lines<'a> {
    fn of(window: &'a TracedWindow, image: &'a Image, geometry: CacheGeometry) -> Self {
        let mut places: FxHashMap<Avma, WindowInsn> = FxHashMap::default();
        for insn in window.blocks.iter().flatten() {
            let last = insn.avma.offset(i64::from(insn.size_bytes.max(1)) - 1);
            for byte in [insn.avma, last] {
                let line = Avma(geometry.line_of(Svma(byte.0)).0);
                let place = places.entry(line).or_insert(*insn);
                if insn.avma < place.avma {
                    *place = *insn;
                }
            }
        }
        Self { window, image, places }
    }

    /// The line's address in the program: as far from the instruction as in the process.
    fn svma(&self, line: Avma) -> Option<Svma> {
        let place = self.places.get(&line)?;
        Some(place.svma?.offset(line.0.wrapping_sub(place.avma.0) as i64))
    }

    /// The function that the line belongs to by its first executed instruction, and the distance.
    fn name(&self, line: Avma) -> (String, u64) {
        let svma = self.places.get(&line).and_then(|place| place.svma);
        let function = svma.and_then(|at| function_index(self.image, at));
        if let (Some(index), Some(line)) = (function, self.svma(line)) {
            let function = &self.image.functions()[index];
            return (Function::name(function), line.distance_from(function.start).unwrap_or(0));
        }
        let object = self.window.object(line).and_then(|path| path.file_name());
        let name = object.map_or("(no function)".into(), |name| name.to_string_lossy());
        (name.into_owned(), 0)
    }
}

/// The window in the modelled cache, and the misses of the program's lines; `None` for a geometry
/// that cannot be modelled.
#[must_use]
pub fn occupancy(
    window: &TracedWindow,
    image: &Image,
    geometry: CacheGeometry,
) -> Option<(Occupancy, BTreeMap<Svma, u64>)> {
    let simulated = Simulated::of(window, geometry)?;
    let lines = Lines::of(window, image, geometry);
    let misses = |line: Avma| simulated.by_line.get(&line).copied().unwrap_or(0);
    let mut overfull: Vec<OverfullSet> = simulated
        .report
        .sets
        .iter()
        .filter(|set| set.lines.len() > geometry.ways as usize)
        .map(|set| {
            let mut residents: Vec<ResidentLine> =
                set.lines.iter().map(|l| resident(&lines, &simulated, l.line)).collect();
            residents.sort_by_key(|t| (std::cmp::Reverse(t.misses), t.line));
            let misses = set.lines.iter().map(|l| misses(l.line)).sum();
            OverfullSet { set: set.set, lines: set.lines.len(), misses, residents }
        })
        .collect();
    overfull.sort_by_key(|s| (std::cmp::Reverse((s.misses, s.lines)), s.set));
    let of_program = simulated
        .by_line
        .iter()
        .filter_map(|(line, misses)| Some((lines.svma(*line)?, *misses)))
        .collect();
    let occupancy = Occupancy {
        source: window.source.clone(),
        operations: window.operations,
        instructions: window.instructions,
        lines: simulated.by_line.len(),
        misses: simulated.misses,
        misses_per_operation: simulated.misses as f64 / window.kept_operations() as f64,
        is_whole: window.is_whole,
        overfull,
    };
    Some((occupancy, of_program))
}

fn resident(lines: &Lines<'_>, simulated: &Simulated, line: Avma) -> ResidentLine {
    let victims = simulated.evictions.get(&line).map(Vec::as_slice).unwrap_or_default();
    let evicts = victims.iter().take(MOST_VICTIMS).map(|(victim, count)| {
        let (function, offset_bytes) = lines.name(*victim);
        EvictedLine { function, offset_bytes, count: *count }
    });
    let (function, offset_bytes) = lines.name(line);
    ResidentLine {
        line: lines.svma(line),
        function,
        offset_bytes,
        misses: simulated.by_line.get(&line).copied().unwrap_or(0),
        evicts: evicts.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::tests::window;
    use super::*;
    use crate::code::fixture;

    /// Nine functions of one line, 4096 bytes apart: they all go to one set of eight ways.
    #[test]
    fn nine_lines_in_eight_ways_push_each_other_out_in_turn() {
        let body = vec![0x90_u8; 4095];
        let names: Vec<String> = (0..9).map(|i| format!("f{i}")).collect();
        let functions: Vec<(&str, &[u8])> = names.iter().map(|n| (n.as_str(), &body[..])).collect();
        let image = fixture::image(&functions).unwrap();
        let l1i = CacheGeometry { sets: 64, ways: 8, line_bytes: 64 };
        let blocks: Vec<(u64, usize)> = (0..9).map(|i| (4096 * i, 16)).collect();
        let order: Vec<u32> = (0..18).map(|i| i % 9).collect();
        let (found, misses) = occupancy(&window(&blocks, &order), &image, l1i).unwrap();
        assert_eq!((found.operations, found.lines, found.misses), (2, 9, 18));
        assert!((found.misses_per_operation - 9.0).abs() < 1e-9);
        let [set] = found.overfull.as_slice() else { panic!("{:?}", found.overfull) };
        assert_eq!((set.lines, set.misses, set.residents.len()), (9, 18, 9));
        let first = set.residents.iter().find(|t| t.function == "f0").unwrap();
        assert_eq!((first.misses, first.offset_bytes), (2, 0));
        assert_eq!((first.evicts[0].function.as_str(), first.evicts[0].count), ("f1", 2));
        assert_eq!(misses.values().sum::<u64>(), 18);
        // Eight fit: what was brought in once stays.
        let order: Vec<u32> = (0..16).map(|i| i % 8).collect();
        let (found, _) = occupancy(&window(&blocks, &order), &image, l1i).unwrap();
        assert_eq!((found.misses, found.overfull.len()), (0, 0));
    }
}
