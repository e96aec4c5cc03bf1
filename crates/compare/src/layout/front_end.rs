//! Where code sits in what the front end cuts it into: windows of 32 or 64 bytes, pages, and sets of
//! the cache of decoded instructions.
//!
//! Each of these is a count. What one event can cost is the design's, and whether it can
//! pay for a difference is the [`super::Budget`]'s business.

use rayon::prelude::*;
use schemars::JsonSchema;
use serde::Serialize;

use super::jumps::{BoundaryJump, boundary_jumps};
use super::occupancy::misses_placed;
use super::uop_cache::{DecodedUse, decoded_use};
use super::{JumpCounts, Samples, TracedWindow};
use crate::code::{Function, FunctionCode, Image};
use crate::hazards::Spread;
use crate::machine::{CacheGeometry, Design};
use crate::model::{PAGE_BYTES, Svma};

/// Loops and functions with a smaller share of samples are not looked at.
const HOT_SHARE: f64 = 0.001;

/// A hot loop that lies over more windows than its size needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SpreadLoop {
    /// Function that the loop is in.
    pub function: String,
    /// Where in it the loop starts.
    pub offset_bytes: u64,
    /// Length of the loop, bytes.
    pub size_bytes: u64,
    /// Windows that it lies in.
    pub windows: u64,
    /// Fewest windows that could hold the loop.
    pub needed: u64,
    /// Turns, or samples where executions were not counted.
    pub turns: u64,
}

/// A hot function of less than a page that lies in two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Straddler {
    /// Name of the function.
    pub function: String,
    /// Samples or executions on its first page.
    pub first_page: u64,
    /// Samples or executions on its second page.
    pub second_page: u64,
}

/// How one build lies in the front end of one design.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FrontEnd {
    /// Jumps at 32-byte boundaries.
    pub jumps: JumpCounts,
    /// Those with samples, most first.
    pub boundary_jumps: Vec<BoundaryJump>,
    /// Size of the windows that the front end takes code in.
    pub window_bytes: u64,
    /// Hot loops in more windows than needed, those with most turns first.
    pub loops: Vec<SpreadLoop>,
    /// Turns of all these loops times the windows that each has too many.
    pub extra_windows: u64,
    /// Pages of code with samples.
    pub pages: usize,
    /// Hot functions over two pages where one would do, hottest first.
    pub straddlers: Vec<Straddler>,
    /// Pages that the first-level TLB for code had to be told again per operation once it was warm: with
    /// all of it, and with the half that a busy neighbour leaves. Where its shape is published and the
    /// run was traced.
    pub page_refills: Option<[f64; 2]>,
    /// The cache of decoded instructions: where its shape is published and the run was traced.
    pub decoded: Option<DecodedUse>,
}

/// Finds the loops of one build that their placement can slow down in the front end.
#[must_use]
pub fn front_end(
    image: &Image,
    samples: &Samples,
    window: Option<&TracedWindow>,
    design: &Design,
) -> FrontEnd {
    let window_bytes = design.fetch_window_bytes().value;
    let fusion = design.fusion().value;
    let all: u64 = samples.hits.values().sum();
    let least = ((all as f64 * HOT_SHARE) as u64).max(1);
    let hot: Vec<&Function> = image
        .functions()
        .par_iter()
        .filter(|f| in_range(samples, f.start, f.end()) >= least)
        .collect();
    let mut loops: Vec<SpreadLoop> = hot
        .par_iter()
        .flat_map_iter(|function| spread_loops(image, function, samples, design, least))
        .collect();
    loops.sort_by(|a, b| (b.turns, &a.function).cmp(&(a.turns, &b.function)));
    let mut straddlers: Vec<Straddler> =
        hot.iter().filter_map(|function| straddler(function, samples)).collect();
    straddlers.sort_by_key(|s| std::cmp::Reverse(s.first_page + s.second_page));
    let mut pages: Vec<u64> = samples.hits.keys().map(|at| at.0 / PAGE_BYTES).collect();
    pages.dedup();
    let decoded = window.zip(design.decoded_cache());
    FrontEnd {
        jumps: JumpCounts::of(image, samples, fusion),
        boundary_jumps: boundary_jumps(image, samples, fusion),
        window_bytes,
        extra_windows: loops.iter().map(|l| l.turns * (l.windows - l.needed)).sum(),
        loops,
        pages: pages.len(),
        straddlers,
        page_refills: window.and_then(|w| page_refills(w, design)),
        decoded: decoded.map(|(window, shape)| decoded_use(image, window, shape.value, fusion)),
    }
}

/// Misses of the TLB for code, which is a cache of pages: what a function over two pages costs is a
/// refill if the other page was pushed out meanwhile, and nothing if not.
fn page_refills(window: &TracedWindow, design: &Design) -> Option<[f64; 2]> {
    let whole = design.code_tlb()?.value;
    let operations = window.kept_operations() as f64;
    let misses = |pages: CacheGeometry| {
        misses_placed(window, pages, |insn| insn.avma).map(|n| n as f64 / operations)
    };
    Some([misses(whole)?, misses(whole.half())?])
}

fn in_range(samples: &Samples, start: Svma, end: Svma) -> u64 {
    if start >= end { 0 } else { samples.hits.range(start..end).map(|(_, n)| n).sum() }
}

fn spread_loops(
    image: &Image,
    function: &Function,
    samples: &Samples,
    design: &Design,
    least: u64,
) -> Vec<SpreadLoop> {
    let code = FunctionCode::of(image, function);
    let spread = code.loops.iter().filter(|l| code.is_innermost(l)).filter_map(|l| {
        let Spread { start, size_bytes, windows, needed } = Spread::of(&code, l, design)?;
        let end = start.offset(size_bytes as i64);
        let turns = match samples.is_complete {
            true => {
                let header = code.insns.get(code.blocks[l.header].first)?;
                samples.hits.get(&header.svma).copied()?
            }
            false => in_range(samples, start, end),
        };
        let is_hot = in_range(samples, start, end) >= least;
        is_hot.then(|| SpreadLoop {
            function: function.name(),
            offset_bytes: start.distance_from(function.start).unwrap_or(0),
            size_bytes,
            windows,
            needed,
            turns,
        })
    });
    spread.collect()
}

fn straddler(function: &Function, samples: &Samples) -> Option<Straddler> {
    let second = Svma((function.start.0 / PAGE_BYTES).checked_add(1)? * PAGE_BYTES);
    if function.size_bytes > PAGE_BYTES || function.end() <= second {
        return None;
    }
    let first_page = in_range(samples, function.start, second);
    let second_page = in_range(samples, second, function.end());
    let both = first_page > 0 && second_page > 0;
    both.then(|| Straddler { function: function.name(), first_page, second_page })
}

#[cfg(test)]
mod tests {
    use super::super::window::tests::window;
    use super::*;
    use crate::code::fixture;
    use crate::machine::Microarchitecture;

    /// `before` nops, then a loop of 24 bytes: 20 nops, `dec edi`, `jnz`, and a return.
    fn program(before: usize) -> Image {
        let mut code = vec![0x90_u8; before + 20];
        code.extend([0xff, 0xcf, 0x75, 0xe8, 0xc3]);
        fixture::image(&[("f", &code)]).unwrap()
    }

    fn look(before: usize, design: Microarchitecture) -> FrontEnd {
        let image = program(before);
        let start = image.functions()[0].start;
        let in_loop = (0..20).map(|i| (start.offset(before as i64 + i), 1000));
        let jump = [(start.offset(before as i64 + 22), 1000)];
        let hits = in_loop.chain(jump).collect();
        let samples = Samples { hits, is_complete: true, ..Samples::default() };
        front_end(&image, &samples, None, &Design::of(design))
    }

    #[test]
    fn a_loop_over_two_windows_that_would_fit_in_one_is_seen() {
        let found = look(16, Microarchitecture::CascadeLake);
        let [spread] = found.loops.as_slice() else { panic!("{:?}", found.loops) };
        assert_eq!((spread.offset_bytes, spread.size_bytes), (16, 24));
        assert_eq!((spread.windows, spread.needed, spread.turns), (2, 1, 1000));
        assert_eq!(found.extra_windows, 1000);
        // The same loop lies in one window of 64 bytes.
        assert_eq!(look(16, Microarchitecture::Zen4).loops, []);
        assert_eq!(look(0, Microarchitecture::CascadeLake).loops, []);
    }

    #[test]
    fn a_jump_that_ends_at_a_boundary_is_counted_whatever_the_design() {
        let found = look(8, Microarchitecture::Zen4);
        assert_eq!(found.jumps.executed_on_boundary, Some(1000));
        assert_eq!((found.boundary_jumps.len(), found.boundary_jumps[0].offset_bytes), (1, 28));
    }

    /// 65 pages in turn: one more than Zen's TLB has; 40 fit into all of it and not into half.
    #[test]
    fn pages_are_refilled_when_there_are_more_than_the_tlb_holds() {
        let refills = |pages: u64, design| {
            let blocks: Vec<(u64, usize)> = (0..pages).map(|i| (4096 * i, 4)).collect();
            let order: Vec<u32> = (0..pages as u32).collect();
            page_refills(&window(&blocks, &order), &Design::of(design))
        };
        assert_eq!(refills(65, Microarchitecture::Zen4), Some([65.0, 65.0]));
        assert_eq!(refills(40, Microarchitecture::Zen4), Some([0.0, 40.0]));
        assert_eq!(refills(32, Microarchitecture::Zen4), Some([0.0, 0.0]));
        assert_eq!(refills(65, Microarchitecture::Unknown), None);
    }

    #[test]
    fn a_function_over_two_pages_needs_samples_on_both() {
        let functions: [(&str, &[u8]); 2] = [("a", &[0x90; 4000]), ("b", &[0x90; 200])];
        let image = fixture::image(&functions).unwrap();
        let b = image.functions()[1].start;
        let straddlers = |offsets: &[i64]| {
            let hits = offsets.iter().map(|o| (b.offset(*o), 7)).collect();
            let samples = Samples { hits, is_complete: true, ..Samples::default() };
            let zen = Design::of(Microarchitecture::Zen4);
            front_end(&image, &samples, None, &zen).straddlers
        };
        assert_eq!(straddlers(&[0, 10]), []);
        let both = Straddler { function: "b".into(), first_page: 7, second_page: 7 };
        assert_eq!(straddlers(&[0, 150]), [both]);
    }
}
