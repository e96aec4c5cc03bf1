//! Tables whose entries lead from one to the next.

use std::hint::black_box;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::Chain;
use crate::clock::{HardwareClock, HoldsClock};
use crate::model::{LINE_BYTES, PAGE_BYTES};
use crate::probes::rig::Rig;

/// Entries between two that are used: one line.
const STRIDE: usize = (LINE_BYTES / 4) as usize;

/// Chains of loads on this processor.
pub(super) struct ChainRig {
    clock: HardwareClock,
    /// By case: where each entry leads, and where the chain stands.
    tables: Vec<(Vec<u32>, u32)>,
}

impl ChainRig {
    pub(super) fn new(clock: HardwareClock, tables: [u64; Chain::ALL.len()], seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let table = |(chain, bytes): (Chain, u64)| {
            let lines = (bytes / LINE_BYTES).max(2) as usize;
            let order = order(chain, lines, &mut random);
            let mut leads_to = vec![0; lines * STRIDE];
            for (from, to) in order.iter().zip(order.iter().cycle().skip(1)) {
                leads_to[from * STRIDE] = (to * STRIDE) as u32;
            }
            (leads_to, 0)
        };
        Self { clock, tables: Chain::ALL.into_iter().zip(tables).map(table).collect() }
    }
}

/// All lines once: by chance inside a page and page after page, or always on another page.
fn order(chain: Chain, lines: usize, random: &mut Pcg64Mcg) -> Vec<usize> {
    let in_page = (PAGE_BYTES / LINE_BYTES) as usize;
    let mut order: Vec<usize> = (0..lines).collect();
    if chain == Chain::ThirdByPages {
        order.shuffle(random);
        return order;
    }
    for page in order.chunks_mut(in_page) {
        page.shuffle(random);
    }
    let mut pages: Vec<&[usize]> = order.chunks(in_page).collect();
    pages.shuffle(random);
    pages.concat()
}

impl Rig for ChainRig {
    /// The chains go on where they stand: each visit is another part of the table.
    fn placements(&self) -> usize {
        4
    }

    fn repetitions(&self, case: usize) -> u64 {
        match Chain::ALL[case] {
            // Many times through the table: the part of a visit that is not timed brings it where it belongs.
            Chain::First | Chain::Second => 32_768,
            _ => 2048,
        }
    }

    fn run_case(&mut self, case: usize, _placement: usize, repetitions: u64) {
        let (table, at) = &mut self.tables[case];
        let mut place = *at;
        for _ in 0..repetitions {
            // Every entry leads into the table.
            place = table.get(place as usize).copied().unwrap_or(0);
        }
        *at = black_box(place);
    }
}

impl HoldsClock for ChainRig {
    type Held = HardwareClock;

    fn held_clock(&mut self) -> &mut HardwareClock {
        &mut self.clock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_holds_every_line_once() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        for chain in [Chain::Second, Chain::ThirdByPages] {
            let all = order(chain, 1024, &mut random);
            let far = all.windows(2).filter(|w| w[0] / 64 != w[1] / 64).count();
            match chain {
                Chain::ThirdByPages => assert!(far > 900, "{far}"),
                _ => assert_eq!(far, 15),
            }
            let mut sorted = all;
            sorted.sort_unstable();
            assert_eq!(sorted, (0..1024).collect::<Vec<usize>>());
        }
    }
}
