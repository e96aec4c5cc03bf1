//! `crowded-set`: the code of one loop and of what it calls piles up in few sets of the instruction
//! cache.
//!
//! **Effect.** A line of code can stand in one set of the first-level instruction cache only, chosen
//! by its address; a set holds a few lines (8 in most designs). When a loop goes through nine lines
//! of one set on every turn, each throws out another although the rest of the cache is empty.
//!
//! **Sign.** The program changes its speed when untouched functions move by a multiple of the line;
//! instruction cache misses rise without more code being run.
//!
//! **What is looked for.** For each outermost loop that calls other functions directly: the lines of
//! its own code and of the functions that it reaches within three calls, counted by set. Reported
//! when a set is asked for more lines than it has ways although all lines together would fit into
//! the cache. Every line of a function counts as if it ran, which is more than does: the finding is
//! *probable*, its rank low, and only a trace can say that it happens.
//!
//! **Literature.** "A regression in code I did not touch" (2025); Hashemi, Kaeli, Calder, "Efficient
//! Procedure Mapping Using Cache Line Coloring" (1997).

use std::collections::BTreeSet;
use std::ops::Range;

use rayon::prelude::*;

use crate::code::Function;
use crate::machine::{CacheGeometry, Design};
use crate::model::{Certainty, CyclesLost, Grade, Svma};

use super::calls::{CallGraph, CallingLoop};
use super::{Candidate, FunctionView, Hazard, Needs, RuleCard, loop_weight};

/// The rule.
pub static CROWDED_SET: CrowdedSet = CrowdedSet;

pub struct CrowdedSet;

/// How many calls deep a loop is followed.
const LEVELS: u32 = 3;
/// Functions that a loop is followed into; more do not fit into any cache.
const MOST_FUNCTIONS: usize = 64;
/// A set must be asked for so many lines too many: with one more than fits, some line that did not
/// really run makes up for it.
const LEAST_EXCESS: usize = 2;
/// How much a line too many in a static count is worth against a hazard that is sure to happen.
const BELIEF: f64 = 0.05;
/// Beyond so many lines too many the rank does not rise: the more lines a static count finds, the
/// fewer of them run. Without this bound the weakest rule filled the whole top of libLLVM 16.
const MOST_COUNTED: f64 = 4.0;

impl Hazard for CrowdedSet {
    fn id(&self) -> &'static str {
        "crowded-set"
    }

    fn card(&self, design: &Design) -> RuleCard {
        let CacheGeometry { sets, ways, line_bytes } = design.code_cache().value;
        RuleCard {
            id: self.id(),
            title: "a loop whose code piles up in few sets of the instruction cache",
            effect: "A line of code can stand in one set of the instruction cache only, chosen by \
                     its address. When one turn of a loop goes through more lines of a set than it \
                     has ways, they throw each other out, although the rest of the cache is empty.",
            picture: "  set   0  1  2  3  4  5 ...\n        \
                      f  f  .  .  .  .\n        \
                      g  g  g  .  .  .        8 ways: set 1 is asked for 9\n        \
                      h  h  .  .  h  .\n",
            price: format!(
                "{sets} sets of {ways} lines of {line_bytes} bytes here; a line from the second \
                 level costs {}",
                design.code_miss_price().sentence()
            ),
            detection: "Outermost loops with direct calls: the lines of the loop and of all that \
                        it reaches within three calls, by set. A set with at least two lines too \
                        many, although all lines together fit. Every line counts as if it ran.",
            remedies: &[
                "order functions by a profile (lld --symbol-ordering-file, gcc \
                 -freorder-functions with a profile, Go's profile-guided builds)",
                "move what is cold out of hot functions (profile-guided splitting)",
                "inline the small functions of the loop",
                "never judge by one layout: measure several link orders",
            ],
            literature: &[
                "A regression in code I did not touch, a Go compressor, 2025",
                "A. Hashemi, D. Kaeli, B. Calder: Efficient Procedure Mapping Using Cache Line \
                 Coloring, 1997",
            ],
        }
    }

    /// No probe prices the front end yet.
    fn grade(&self, _design: &Design) -> Grade {
        Grade::Pattern
    }

    fn needs(&self) -> Needs {
        Needs::Program
    }

    fn pays_at_site(&self) -> bool {
        false
    }

    fn look(&self, _view: &FunctionView<'_>, _design: &Design) -> Vec<Candidate> {
        Vec::new()
    }

    fn look_at_program(
        &self,
        graph: &CallGraph<'_>,
        design: &Design,
    ) -> Vec<(Svma, Candidate, Vec<Svma>)> {
        let loops = graph.calls().values().flat_map(|c| c.loops.iter().map(|l| (c.function, l)));
        loops
            .collect::<Vec<_>>()
            .into_par_iter()
            .filter_map(|(caller, l)| {
                let (candidate, others) = crowd(graph, l, design)?;
                Some((caller, candidate, others))
            })
            .collect()
    }
}

fn crowd(
    graph: &CallGraph<'_>,
    of: &CallingLoop,
    design: &Design,
) -> Option<(Candidate, Vec<Svma>)> {
    let cache = design.code_cache().value;
    let line = u64::from(cache.line_bytes);
    let capacity = cache.size_bytes();
    let functions = graph.reachable(of, LEVELS, MOST_FUNCTIONS, capacity)?;
    let lines_of = |start: Svma, end: Svma| start.0 / line..end.0.div_ceil(line);
    let own = of.code.iter().map(|range| (lines_of(range.start, range.end), None));
    let called = functions.iter().map(|f| (lines_of(f.start, f.end()), Some(f.start)));
    let ranges = || own.clone().chain(called.clone());
    if !may_crowd(&cache, ranges().map(|(lines, _)| lines)) {
        return None;
    }
    let lines = each_once(ranges());
    let ways = cache.ways as usize;
    if lines.len() > ways * cache.sets as usize {
        return None;
    }
    let set_of = |number: u64| number % u64::from(cache.sets);
    let mut asked = vec![0_usize; cache.sets as usize];
    lines.iter().for_each(|(number, _)| asked[set_of(*number) as usize] += 1);
    let (fullest, crowd) = (0_u64..).zip(&asked).max_by_key(|(_, lines)| **lines)?;
    if *crowd < ways + LEAST_EXCESS {
        return None;
    }
    let excess: usize = asked.iter().map(|lines| lines.saturating_sub(ways)).sum();
    let of_crowd = lines.iter().filter(|(number, _)| set_of(*number) == fullest);
    let others: BTreeSet<Svma> = of_crowd.filter_map(|(_, function)| *function).collect();
    let names = names(&functions, &others);
    let price = design.code_miss_price();
    let candidate = Candidate {
        site: of.calls.first()?.insn,
        sets: Vec::new(),
        elsewhere: Vec::new(),
        pays_elsewhere: None,
        certainty: Certainty::Probable,
        by_placement: true,
        distance_instructions: 0,
        cycles_lost: CyclesLost { low: 0.0, high: price.high_cycles * excess as f64 },
        weight: BELIEF * (MOST_COUNTED / excess as f64).min(1.0) * loop_weight(of.depth),
        mechanism: format!(
            "one turn of this loop can go through {} lines of code, of which {crowd} stand in \
             set {fullest} of the instruction cache, which holds {ways}: {names}; in all sets \
             {excess} lines are too many",
            lines.len()
        ),
        remedy: "order these functions by a profile, so that they lie side by side".to_owned(),
    };
    Some((candidate, others.into_iter().collect()))
}

/// The lines of these ranges with the functions they belong to, the last where there are several.
fn each_once(ranges: impl Iterator<Item = (Range<u64>, Option<Svma>)>) -> Vec<(u64, Option<Svma>)> {
    let mut lines: Vec<(u64, Option<Svma>)> =
        ranges.flat_map(|(lines, function)| lines.map(move |number| (number, function))).collect();
    lines.reverse();
    lines.sort_by_key(|(number, _)| *number);
    lines.dedup_by_key(|(number, _)| *number);
    lines
}

/// Whether a set may be asked for too many lines: most loops crowd nothing, even if every line that
/// two functions have in common counts twice.
fn may_crowd(cache: &CacheGeometry, ranges: impl Iterator<Item = Range<u64>>) -> bool {
    let mut counts = vec![0_usize; cache.sets as usize];
    for lines in ranges {
        let first = (lines.start % u64::from(cache.sets)) as usize;
        let sets = (first..counts.len()).chain((0..counts.len()).cycle());
        for (set, _) in sets.zip(lines) {
            counts[set] += 1;
        }
    }
    counts.iter().any(|count| *count >= cache.ways as usize + LEAST_EXCESS)
}

/// Up to four names, and how many more.
fn names(functions: &[&Function], wanted: &BTreeSet<Svma>) -> String {
    const MOST: usize = 4;
    let of_these = || functions.iter().filter(|f| wanted.contains(&f.start));
    let shown = of_these().take(MOST).map(|f| {
        let name = f.name();
        name.split_once('(').map_or(name.clone(), |(stem, _)| stem.to_owned())
    });
    let list = shown.collect::<Vec<_>>().join(", ");
    match of_these().count().saturating_sub(MOST) {
        0 => list,
        more => format!("{list} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Image;
    use crate::code::fixture;
    use crate::hazards::calls::Calls;
    use crate::hazards::scan::{ScanFilter, scan};
    use crate::machine::Microarchitecture;

    /// A loop that calls `count` functions of one line each, `apart` bytes from each other.
    fn program(count: usize, apart: usize) -> Image {
        let mut caller = Vec::new();
        let filler = vec![0x90_u8; apart - 16];
        let first = (caller_size(count) / 16 + 1) * 16;
        for i in 0..count {
            let target = first + i * apart;
            caller.push(0xe8);
            caller.extend((target as i32 - (5 * i as i32 + 5)).to_le_bytes());
        }
        caller.extend([0xff, 0xcf, 0x0f, 0x85]);
        caller.extend((-(caller.len() as i32 + 4)).to_le_bytes());
        caller.push(0xc3);
        assert_eq!(caller.len(), caller_size(count));
        let names: Vec<String> = (0..count).map(|i| format!("f{i}")).collect();
        let mut functions: Vec<(&str, &[u8])> = vec![("caller", &caller)];
        for name in &names {
            functions.push((name, &[0xc3]));
            if !filler.is_empty() {
                functions.push(("filler", &filler[..filler.len() - 1]));
            }
        }
        fixture::image(&functions).unwrap()
    }

    fn found(count: usize, apart: usize) -> Vec<(Svma, Candidate, Vec<Svma>)> {
        let image = program(count, apart);
        let views = image.functions().iter().map(|f| FunctionView::of(&image, f));
        let calls = views.filter_map(|v| Calls::of(&v)).map(|c| (c.function, c)).collect();
        let design = Design::of(Microarchitecture::Zen5);
        CROWDED_SET.look_at_program(&CallGraph::of(&image, calls), &design)
    }

    fn caller_size(count: usize) -> usize {
        5 * count + 9
    }

    #[test]
    fn functions_a_page_apart_share_a_set_and_neighbours_do_not() {
        assert!(found(12, 64).is_empty());
        assert!(found(6, 4096).is_empty(), "eight ways hold six");
        let crowded = found(12, 4096);
        assert_eq!(crowded.len(), 1);
        let (_, candidate, others) = &crowded[0];
        assert!(others.len() >= 10, "{candidate:?}");
        assert!(candidate.mechanism.contains("f0, f1, f2, f3 and"), "{}", candidate.mechanism);
    }

    #[test]
    fn a_scan_names_the_functions_that_crowd_a_set() {
        let image = program(10, 4096);
        let filter = ScanFilter { rules: vec![&CROWDED_SET], ..ScanFilter::default() };
        let found = scan(&image, &filter, &Design::of(Microarchitecture::Zen5), None).findings;
        let [one] = &found[..] else { panic!("{found:?}") };
        let names: Vec<&str> = one.others.iter().map(|site| site.function.as_str()).collect();
        assert_eq!(names, ["f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8", "f9"]);
        assert!(one.site.function == "caller" && one.others.iter().all(|o| o.offset_bytes == 0));
    }

    #[test]
    fn two_lines_more_than_ways_are_needed_and_four_are_worth_the_most() {
        assert!(found(9, 4096).is_empty(), "one more than fits");
        let at = |count: usize| found(count, 4096).remove(0).1;
        let (ten, twelve, sixteen) = (at(10), at(12), at(16));
        assert!(ten.mechanism.contains("of which 10 stand in"), "{}", ten.mechanism);
        assert!(ten.mechanism.ends_with("in all sets 2 lines are too many"), "{}", ten.mechanism);
        assert_eq!([ten.weight, twelve.weight, sixteen.weight], [BELIEF, BELIEF, 0.5 * BELIEF]);
        let each = Design::of(Microarchitecture::Zen5).code_miss_price().high_cycles;
        assert_eq!([ten.cycles_lost.high, twelve.cycles_lost.high], [2.0 * each, 4.0 * each]);
        assert!(ten.mechanism.contains("f3 and 6 more"), "{}", ten.mechanism);
    }
}
