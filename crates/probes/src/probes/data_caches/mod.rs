//! The probe `data-caches`: how long a load waits for each level of the data caches, and for a page walk.
//!
//! *Effect.* A load whose line is not in the first data cache waits for the level that has it; one whose page
//! is in no TLB waits for a page walk as well. *Sign.* A chain of loads, each of which finds the place of the
//! next, takes one latency a step. *Contrast.* Chains through tables that fit into one level and not into the
//! one before; each is read once before it is timed. The order is drawn by chance within 32 pages, so that no
//! prefetcher follows it and the first TLB holds them; behind the second level, where prefetchers follow more pages, within
//! 512, and what their translations take is known. A line in each of more pages than any TLB holds, and as many lines
//! in few pages: the difference is what walks cost. *Positive control.* Each level takes longer than the one
//! before. *Negative control.* The first level takes what the tables of the clock allow: less than 12 cycles.
//!
//! What a guest is presented as its third level may be shared with neighbours that nobody inside sees: the largest
//! of several tables most of which is still there tells what is left of it (a Zen 4 guest with 32 MiB: 4). Lines one behind the other, which prefetchers bring, tell how many come in what time; so do loads from
//! many pages whose addresses do not depend on each other, of walks.
//! Huge pages would take the walks away: the kernel is asked for none there.
//! *Literature.* L. McVoy and C. Staelin, "lmbench" (1996); the articles of Chips and Cheese on latency.

mod report;
mod rig;

pub use report::DataCacheReport;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sampling::{Plan, measure};
use super::{Bench, Probe, ProbeError, ProbeReport};
use crate::machine::Machine;
use crate::model::{LINE_BYTES, PAGE_BYTES};

/// Its id, and the origin of its prices.
pub const ID: &str = "data-caches";

/// What a chain of loads runs through.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Chain {
    /// A table in the first level.
    First,
    /// In the second level.
    Second,
    /// In the third.
    Third,
    /// A line in each of many pages, from page to page at every step.
    OfPages,
    /// As many lines, one behind the other in memory.
    OfLines,
    /// Behind all that one core can hope to keep.
    Memory,
    /// No chain: lines of the second level one behind the other.
    SecondInOrder,
    /// The same in the third.
    ThirdInOrder,
    /// The same behind all of them.
    MemoryInOrder,
    /// No chain: the lines of [`Chain::OfPages`] in the same order, by addresses that no load has to find.
    PagesAtOnce,
    /// In a table that is twice the size of that for [`Chain::Third`], or half of the third level that is presented.
    ThirdTwice,
    /// The same of four times the size.
    ThirdFourfold,
    /// The same of eight times the size.
    ThirdEightfold,
}

impl Chain {
    /// All of them, in the order of their cases.
    pub const ALL: [Self; 13] = [
        Self::First,
        Self::Second,
        Self::Third,
        Self::OfPages,
        Self::OfLines,
        Self::Memory,
        Self::SecondInOrder,
        Self::ThirdInOrder,
        Self::MemoryInOrder,
        Self::PagesAtOnce,
        Self::ThirdTwice,
        Self::ThirdFourfold,
        Self::ThirdEightfold,
    ];

    /// Chains in the third level, those through smaller tables first.
    const THIRD: [Self; 4] =
        [Self::Third, Self::ThirdTwice, Self::ThirdFourfold, Self::ThirdEightfold];

    /// Whether it goes to and fro in more pages than the first TLB holds, all of which the second does.
    fn is_far(self) -> bool {
        self == Self::Memory || Self::THIRD.contains(&self)
    }

    /// The chain through the same table.
    fn table(self) -> Self {
        match self {
            Self::SecondInOrder => Self::Second,
            Self::ThirdInOrder => Self::Third,
            Self::MemoryInOrder => Self::Memory,
            Self::PagesAtOnce => Self::OfPages,
            chain => chain,
        }
    }
}

const KIB: u64 = 1024;
/// More pages than any second TLB holds; a line of each is in the second level of most.
const PAGES: u64 = 6144;

/// Sizes of the tables by chain, in bytes, for caches of these sizes.
fn table_bytes(caches: Option<[u64; 3]>) -> [u64; Chain::ALL.len()] {
    let [first, second, third] = caches.unwrap_or([32 * KIB, 512 * KIB, 8 * KIB * KIB]);
    // Far more than the first level holds, and far less than the second.
    let in_second = (4 * first).min(second / 2);
    let in_third = (4 * second).min(third / 2).max(2 * second);
    let far = 64 * KIB * KIB;
    let [of_pages, of_lines] = [PAGE_BYTES, LINE_BYTES].map(|bytes| PAGES * bytes);
    let larger = |times: u64| (times * in_third).min(third / 2).max(in_third);
    [
        first / 2,
        in_second,
        in_third,
        of_pages,
        of_lines,
        far,
        in_second,
        in_third,
        far,
        of_pages,
        larger(2),
        larger(4),
        larger(8),
    ]
}

/// The probe.
pub const PROBE: Probe = Probe {
    id: ID,
    title: "latencies of the data caches, of memory and of page walks",
    prices: true,
    run,
    wide: None,
};

fn run(bench: &Bench<'_>) -> Result<ProbeReport, ProbeError> {
    let tables = |machine: &Machine| table_bytes(machine.data_cache_bytes());
    let rig = |clock, machine: &_| Ok(rig::ChainRig::new(clock, tables(machine), bench.seed));
    let plan = Plan { rounds: 16, limit_ns: 3_000_000_000, ..Plan::new(bench.seed) };
    let report = measure(bench, (Chain::ALL.len(), plan), rig, |sampled, protocol| {
        DataCacheReport::new(tables(&protocol.machine), sampled, protocol)
    })?;
    Ok(ProbeReport::DataCaches(Box::new(report)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::FakeClock;
    use crate::machine::{Design, Machine, Microarchitecture, PriceOrigin, invented};
    use crate::probes::fake::{quiet, sampled};
    use crate::probes::{Protocol, UpdatesProfile};

    fn report(clock: FakeClock, chains: [f64; 6]) -> DataCacheReport {
        report_with(clock, chains, [Some(chains[2]); 4])
    }

    /// With chains in the third level that take so long, or are restless.
    fn report_with(clock: FakeClock, chains: [f64; 6], third: [Option<f64>; 4]) -> DataCacheReport {
        let larger = third.map(|cycles| cycles.unwrap_or(chains[2]));
        let cycles = [&chains[..], &[2.0, 2.6, 15.0, 21.0], &larger[1..]].concat();
        let mut sampled = sampled(clock, Chain::ALL.len(), |case| cycles[case]);
        for (chain, _) in Chain::THIRD.iter().zip(third).filter(|(_, cycles)| cycles.is_none()) {
            sampled.cells[*chain as usize].cycles = None;
        }
        let machine = Machine::from_facts(&invented::cascade_lake_guest());
        DataCacheReport::new(table_bytes(None), &sampled, Protocol::new(machine, 1))
    }

    #[test]
    fn latencies_go_into_the_profile() {
        let found = report(quiet(), [5.0, 14.0, 77.0, 60.0, 20.0, 307.0]);
        assert!(found.protocol.conclusive, "{}", found.protocol.verdict);
        let mut design = Design::of(Microarchitecture::GoldenCove);
        found.apply_to(&mut design);
        let prices = design.data_miss_cycles.clone().unwrap();
        assert!(prices.iter().all(|p| matches!(p.origin, PriceOrigin::Probed { .. })));
        let core = design.core().value;
        let about = |cycles: u32, of: u32| cycles.abs_diff(of) <= 2;
        let [second, third, memory] = core.miss_cycles;
        assert!(about(second, 14) && about(third, 70) && about(memory, 300), "{core:?}");
        assert!(about(core.tlb_cycles[1], 40), "{core:?}");
        assert_eq!(core.walk_apart_cycles, 21);
        assert_eq!(core.line_cycles, [2, 5, 30], "lines from far away come in pairs");
    }

    #[test]
    fn what_is_left_of_the_third_level_is_what_the_largest_table_takes_that_is_there() {
        let left = |third: [Option<f64>; 4]| {
            let found = report_with(quiet(), [5.0, 14.0, 77.0, 60.0, 20.0, 307.0], third);
            let mut design = Design::of(Microarchitecture::CascadeLake);
            design.data_cache_bytes = Some([32 * KIB, 512 * KIB, 32 * KIB * KIB]);
            found.apply_to(&mut design);
            design.core().value.cache_bytes[2] / KIB
        };
        // The tables have 2, 4, 4 and 4 MiB of the 8 that are taken for presented.
        let at = |cycles: f64| Some(cycles);
        assert_eq!(left([77.0, 77.0, 80.0, 80.0].map(at)), 32 * KIB, "all that was tried");
        assert_eq!(left([77.0, 150.0, 250.0, 300.0].map(at)), 4 * KIB);
        assert_eq!(left([77.0, 250.0, 300.0, 300.0].map(at)), 2 * KIB);
        assert_eq!(left([at(77.0), None, at(80.0), at(80.0)]), 2 * KIB, "there and not there");
        assert_eq!(left([None, at(250.0), at(300.0), at(300.0)]), KIB);
    }

    #[test]
    fn a_third_level_that_is_mostly_gone_is_held_against_what_it_takes_at_the_least() {
        // Measured on a Zen 4 guest beside a compiler: 465 [60, 509] out of 4 MiB, 563 out of memory.
        let mut found = report(quiet(), [5.0, 14.0, 465.0, 60.0, 20.0, 563.0]);
        for chain in found.chains.iter_mut().filter(|it| Chain::THIRD.contains(&it.chain)) {
            chain.cycles.as_mut().unwrap().low = 60.0;
        }
        let mut design = Design::of(Microarchitecture::Zen4);
        found.apply_to(&mut design);
        assert_eq!(design.third_level_bytes, Some(KIB * KIB));
        // What comes out of it does not take as long as what comes from memory.
        let third = design.core().value.miss_cycles[1];
        assert!((50..=60).contains(&third), "{third}");
    }

    #[test]
    fn levels_in_the_wrong_order_say_nothing() {
        for chains in
            [[5.0, 14.0, 12.0, 110.0, 14.0, 300.0], [25.0, 30.0, 70.0, 110.0, 14.0, 300.0]]
        {
            let found = report(quiet(), chains);
            assert!(!found.protocol.conclusive, "{}", found.protocol.verdict);
            let before = Design::of(Microarchitecture::GoldenCove);
            let mut after = before.clone();
            found.apply_to(&mut after);
            assert_eq!(after, before);
        }
    }

    #[test]
    fn tables_fit_where_they_must() {
        let golden = [48 * KIB, 2048 * KIB, 480 * KIB * KIB];
        for caches in
            [[32 * KIB, 256 * KIB, 8192 * KIB], [32 * KIB, 1024 * KIB, 36 * KIB * KIB], golden]
        {
            let [first, second, third, pages, lines, memory, ..] = table_bytes(Some(caches));
            assert!(first < caches[0] && caches[0] < second && second < caches[1], "{caches:?}");
            assert!(caches[1] < third && third < caches[2] && memory > third);
            assert_eq!(pages / PAGE_BYTES, lines / LINE_BYTES);
        }
    }
}
