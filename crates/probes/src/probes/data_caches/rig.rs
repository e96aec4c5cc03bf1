//! Tables whose entries lead from one to the next.

use std::hint::black_box;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::{Chain, PAGES};
use crate::clock::{Clock, HardwareClock, HoldsClock};
use crate::model::{LINE_BYTES, PAGE_BYTES};
use crate::probes::rig::Rig;

/// Entries of a line.
const LINE: usize = (LINE_BYTES / 4) as usize;
const PAGE_LINES: usize = (PAGE_BYTES / LINE_BYTES) as usize;

/// Chains of loads on this processor.
pub(super) struct ChainRig {
    clock: HardwareClock,
    /// By chain: where each entry leads; empty for those through the table of another one.
    tables: Vec<Vec<u32>>,
    /// The entries of [`Chain::OfPages`] in its order.
    of_pages: Vec<u32>,
    /// By case: where it stands.
    at: [u32; Chain::ALL.len()],
}

impl ChainRig {
    pub(super) fn new(clock: HardwareClock, tables: [u64; Chain::ALL.len()], seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut table = |(chain, bytes): (Chain, u64)| {
            let lines = (bytes / LINE_BYTES / apart(chain)).max(2) as usize;
            let entries = apart(chain) as usize * LINE;
            let order = order(chain, lines, &mut random);
            // Not in one line of every page alike: those would share a set of the cache.
            let place = |n: usize| match chain {
                Chain::OfPages => n * entries + n % PAGE_LINES * LINE,
                _ => n * entries,
            };
            let mut leads_to = vec![0; lines * entries];
            if chain == Chain::OfPages {
                without_huge_pages(&mut leads_to);
            }
            for (from, to) in order.iter().zip(order.iter().cycle().skip(1)) {
                leads_to[place(*from)] = place(*to) as u32;
            }
            leads_to
        };
        let chains = Chain::ALL.into_iter().zip(tables);
        let tables: Vec<Vec<u32>> =
            chains.map(|it| if it.0.table() == it.0 { table(it) } else { Vec::new() }).collect();
        let pages = &tables[Chain::OfPages as usize];
        let next = |at: &u32| Some(pages[*at as usize]);
        let of_pages = std::iter::successors(Some(0), next).take(PAGES as usize).collect();
        Self { clock, tables, of_pages, at: [0; Chain::ALL.len()] }
    }
}

/// One of so many lines is used. Behind the second level, a line that is fetched brings its neighbours (Zen 5: 190 cycles
/// out of memory, where 550 are true), so that only every fourth is.
fn apart(chain: Chain) -> u64 {
    match chain {
        Chain::First | Chain::Second | Chain::OfLines => 1,
        Chain::OfPages => PAGE_LINES as u64,
        _ => 4,
    }
}

/// Pages within which the order of lines is drawn: the smallest first TLB holds them, or, behind the second level, the
/// smallest second one. Inside one page, a prefetcher that knows it brings the lines (Zen 5: 10 cycles out of the second
/// level, where 14 are true), behind the second level inside 32 pages, too (Redwood Cove: 64 cycles, where 120 are true).
fn pages_together(chain: Chain) -> u64 {
    if chain.is_far() { 512 } else { 32 }
}

/// All lines once: by chance inside some pages, which come one behind the other, or all over the table.
fn order(chain: Chain, lines: usize, random: &mut Pcg64Mcg) -> Vec<usize> {
    let together = (pages_together(chain) * PAGE_BYTES / LINE_BYTES / apart(chain)) as usize;
    let mut order: Vec<usize> = (0..lines).collect();
    if matches!(chain, Chain::OfPages | Chain::OfLines) {
        order.shuffle(random);
        return order;
    }
    for pages in order.chunks_mut(together) {
        pages.shuffle(random);
    }
    let mut groups: Vec<&[usize]> = order.chunks(together).collect();
    groups.shuffle(random);
    groups.concat()
}

impl Rig for ChainRig {
    /// The chains go on where they stand: each visit is another part of the table.
    fn placements(&self) -> usize {
        4
    }

    fn repetitions(&self, case: usize) -> u64 {
        match Chain::ALL[case] {
            Chain::First | Chain::Second => 32_768,
            Chain::Third | Chain::OfLines => 8192,
            Chain::Memory
            | Chain::OfPages
            | Chain::PagesAtOnce
            | Chain::ThirdTwice
            | Chain::ThirdFourfold
            | Chain::ThirdEightfold => 2048,
            Chain::SecondInOrder | Chain::ThirdInOrder | Chain::MemoryInOrder => 16_384,
        }
    }

    fn run_case(&mut self, case: usize, _placement: usize, repetitions: u64) {
        let chain = Chain::ALL[case];
        let (table, at) = (&self.tables[chain.table() as usize], &mut self.at[case]);
        *at = match chain {
            Chain::PagesAtOnce => at_once(table, &self.of_pages, *at, repetitions),
            _ if chain.table() == chain => follow(table, *at, repetitions),
            _ => in_order(table, *at as usize, repetitions as usize) as u32,
        };
    }

    /// Reads a table that belongs into a cache: what other chains touched in between may have pushed it out.
    fn warm_up(&mut self, case: usize, _placement: usize) {
        let chain = Chain::ALL[case].table();
        let table = &self.tables[chain as usize];
        if chain == Chain::OfPages {
            // Its lines alone, and what tells where its pages are.
            follow(table, 0, PAGES);
        } else if chain != Chain::Memory {
            in_order(table, 0, table.len() / LINE);
            if Chain::THIRD.contains(&chain) {
                // Its end would be in the second level, of which it is four times the size or more.
                let others = &self.tables[Chain::Memory as usize];
                in_order(others, 0, self.tables[Chain::Third as usize].len() / LINE / 2);
            }
        }
    }
}

/// Goes so many steps along a chain; where it stands then.
fn follow(table: &[u32], mut place: u32, steps: u64) -> u32 {
    for _ in 0..steps {
        // Every entry leads into the table.
        place = table.get(place as usize).copied().unwrap_or(0);
    }
    black_box(place)
}

/// Reads so many entries, from the one at a position on and again from the first behind the last; the position then.
fn at_once(table: &[u32], entries: &[u32], position: u32, repetitions: u64) -> u32 {
    let from_there = entries.iter().cycle().skip(position as usize).take(repetitions as usize);
    let entry = |at: &u32| table.get(*at as usize).copied().unwrap_or(0);
    black_box(from_there.fold(0, |all, at| all ^ entry(at)));
    ((u64::from(position) + repetitions) % entries.len().max(1) as u64) as u32
}

/// Asks the kernel for pages of the usual size, of memory that nothing was written to yet.
fn without_huge_pages(table: &mut [u32]) {
    let bytes = size_of_val(table);
    let start = table.as_mut_ptr().addr().next_multiple_of(PAGE_BYTES as usize);
    let end = (table.as_mut_ptr().addr() + bytes) & !(PAGE_BYTES as usize - 1);
    // SAFETY: whole pages inside the table, whose contents this leaves alone; a kernel that refuses leaves them as they are.
    unsafe {
        libc::madvise(start as *mut libc::c_void, end.saturating_sub(start), libc::MADV_NOHUGEPAGE)
    };
}

/// Reads an entry of so many lines from a place on, from the start again at the end; where it stands then.
fn in_order(table: &[u32], mut place: usize, mut lines: usize) -> usize {
    let mut all = 0;
    while lines > 0 {
        let rest = table.get(place..).unwrap_or_default();
        let now = rest.len().div_ceil(LINE).min(lines);
        all = rest.iter().step_by(LINE).take(now).fold(all, |all: u32, to| all ^ to);
        (place, lines) = (place + now * LINE, lines - now);
        if place >= table.len() {
            place = 0;
        }
    }
    black_box(all);
    place
}

impl HoldsClock for ChainRig {
    fn held_clock(&mut self) -> &mut impl Clock {
        &mut self.clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_holds_every_line_once() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        for chain in [Chain::Second, Chain::OfLines] {
            let all = order(chain, 16_384, &mut random);
            let far = all.windows(2).filter(|w| w[0] / 2048 != w[1] / 2048).count();
            match chain {
                Chain::OfLines => assert!(far > 14_000, "{far}"),
                _ => assert_eq!(far, 7),
            }
            let mut sorted = all;
            sorted.sort_unstable();
            assert_eq!(sorted, (0..16_384).collect::<Vec<usize>>());
        }
    }
}
