//! From samples to latencies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Chain, ID};
use crate::machine::{Design, PriceOrigin, PriceRange, ProfileEnvironment};
use crate::model::{Measurement, PAGE_BYTES};
use crate::probes::UpdatesProfile;
use crate::probes::protocol::{Answer, Control, Protocol};
use crate::probes::sampling::Sampled;

/// More cycles than any first level takes.
const FIRST_LEVEL_CYCLES: f64 = 12.0;

/// What a page walk takes longer at least than a hit in the second TLB.
const LEAST_WALK_CYCLES: f64 = 20.0;

/// One chain and what a step of it takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChainLatency {
    /// Which.
    pub chain: Chain,
    /// Size of its table, in bytes.
    pub table_bytes: u64,
    /// Core cycles of one load, without what the second TLB adds where the first does not hold the pages; absent where too
    /// few samples were clean.
    pub cycles: Option<Measurement>,
}

/// What the probe found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DataCacheReport {
    /// How it was measured.
    #[serde(flatten)]
    pub protocol: Protocol,
    /// In the order of [`Chain::ALL`].
    pub chains: Vec<ChainLatency>,
}

impl DataCacheReport {
    /// Joins samples into a report; a cell of `sampled` for each chain.
    #[must_use]
    pub fn new(tables: [u64; Chain::ALL.len()], sampled: &Sampled, mut protocol: Protocol) -> Self {
        protocol.count(sampled);
        let cells = sampled.cells.iter().map(|cell| cell.cycles.clone());
        let tabled = Design::of_machine(&protocol.machine).core().value;
        let chains: Vec<ChainLatency> = Chain::ALL
            .into_iter()
            .zip(tables)
            .zip(cells)
            .map(|((chain, table_bytes), cycles)| {
                let translated = if chain.is_far() { tabled.tlb_cycles[0] } else { 0 };
                let cycles = cycles.map(|m| m.map(|cycles| cycles - f64::from(translated)));
                ChainLatency { chain, table_bytes, cycles }
            })
            .collect();
        let mut report = Self { protocol, chains };
        let of = |chain| report.latency(chain);
        let longer = |a: &Measurement, b: &Measurement| b.low > a.high;
        // Of a third level that neighbours use, lines are there and not there.
        let levels = match of(Chain::Third) {
            Some(_) => vec![
                ("first and second level", Chain::First, Chain::Second),
                ("second and third level", Chain::Second, Chain::Third),
                ("third level and memory", Chain::Third, Chain::Memory),
            ],
            None => vec![
                ("first and second level", Chain::First, Chain::Second),
                ("second level and memory", Chain::Second, Chain::Memory),
            ],
        };
        let mut controls: Vec<Control> = levels
            .iter()
            .map(|(what, a, b)| Control::compare("positive", what, of(*a), of(*b), longer))
            .collect();
        let first = of(Chain::First);
        controls.push(Control::compare("negative", "first level", first, first, |a, _| {
            a.value < FIRST_LEVEL_CYCLES
        }));
        let answer = match (of(Chain::Second), report.third(), of(Chain::Memory)) {
            (Some(second), Some(third), Some(memory)) => Answer::Found(format!(
                "a load takes {:.0} cycles out of the second level, {:.0} out of the third{}, {:.0} behind it{}",
                second.value,
                third.value,
                if report.is_there(Chain::Third) { "" } else { " at the least" },
                memory.value,
                report.third_level_left().map_or_else(String::new, |bytes| format!(
                    "; of the third level about {} MiB are left to it",
                    bytes >> 20
                ))
            )),
            (Some(second), None, Some(memory)) => Answer::Found(format!(
                "a load takes {:.0} cycles out of the second level, {:.0} out of memory; lines of the third level \
                 are there and not there",
                second.value, memory.value
            )),
            _ => Answer::Open("too few clean samples".into()),
        };
        report.protocol.controls = controls;
        report.protocol.conclude(answer);
        report
    }

    /// Whether the lines of this table come out of the third level rather than out of memory.
    fn is_there(&self, chain: Chain) -> bool {
        // What neighbours do only adds.
        let least = self.latency(Chain::Third).map_or(0.0, |third| third.low);
        let memory = self.latency(Chain::Memory).map_or(f64::INFINITY, |memory| memory.value);
        let cycles = self.latency(chain);
        cycles.is_some_and(|cycles| cycles.value < f64::midpoint(least, memory))
    }

    /// What a line of the third level takes: the least, where neighbours keep most of even the smallest table out of it and
    /// the typical step goes to memory.
    fn third(&self) -> Option<Measurement> {
        let third = self.latency(Chain::Third)?;
        Some(match self.is_there(Chain::Third) {
            true => third.clone(),
            false => Measurement {
                value: third.low,
                high: third.low,
                how: "lowest placement: most lines came from memory".into(),
                ..third.clone()
            },
        })
    }

    /// How much of the third level is there for one core, in bytes: the size of the largest table whose lines come out of it
    /// rather than out of memory, half of the smallest where not even that is there all the time; absent where it is as
    /// much as was tried.
    fn third_level_left(&self) -> Option<u64> {
        self.latency(Chain::Memory)?;
        let table = |chain| Some(self.chains.iter().find(|it| it.chain == chain)?.table_bytes);
        match Chain::THIRD.into_iter().take_while(|chain| self.is_there(*chain)).last() {
            None => Some(table(Chain::Third)? / 2),
            Some(Chain::ThirdEightfold) => None,
            Some(largest) => table(largest),
        }
    }

    /// What one step of a chain takes, in core cycles.
    #[must_use]
    pub fn latency(&self, chain: Chain) -> Option<&Measurement> {
        self.chains.iter().find(|c| c.chain == chain)?.cycles.as_ref()
    }
}

impl UpdatesProfile for DataCacheReport {
    fn protocol(&self) -> Option<&Protocol> {
        Some(&self.protocol)
    }

    fn put_into(&self, profile: &mut Design) {
        let of = |chain| self.latency(chain);
        let (Some(first), Some(second), Some(memory)) =
            (of(Chain::First), of(Chain::Second), of(Chain::Memory))
        else {
            return;
        };
        let price = |low: f64, high: f64, measured: Option<Measurement>| PriceRange {
            low_cycles: low,
            high_cycles: high,
            origin: PriceOrigin::Probed { probe: ID.to_owned() },
            measured,
        };
        // A step takes the latency of the first level and the arithmetic of its address, which is no part of a price.
        let tabled = profile.core();
        let arithmetic = (first.value - f64::from(tabled.value.load_cycles)).max(0.0);
        let of_level = |m: &Measurement| {
            let alone = m.map(|cycles| cycles - arithmetic);
            price(alone.low, alone.high, Some(alone))
        };
        let third = self.third();
        let third = third.as_ref().map_or_else(
            || {
                let cycles = f64::from(tabled.value.miss_cycles[1]);
                PriceRange { origin: tabled.origin, ..price(cycles, cycles, None) }
            },
            of_level,
        );
        profile.data_miss_cycles = Some([of_level(second), third, of_level(memory)]);
        profile.third_level_bytes = self.third_level_left();
        let in_order = [Chain::SecondInOrder, Chain::ThirdInOrder, Chain::MemoryInOrder];
        if let [Some(second), Some(third), Some(memory)] = in_order.map(|it| self.latency(it)) {
            profile.data_line_cycles = Some([second, third, memory].map(Clone::clone));
        }
        if let (Some(lines), Some(of_pages)) = (of(Chain::OfLines), of(Chain::OfPages)) {
            let least = of_pages.low - lines.high;
            let walks = least > LEAST_WALK_CYCLES;
            let most = (of_pages.high - lines.low).max(least);
            profile.page_walk_cycles = walks.then(|| price(least, most, None));
            profile.page_walk_apart_cycles = of(Chain::PagesAtOnce).filter(|_| walks).cloned();
            // Where every step walks, the TLBs hold less than the table has pages.
            let pages = self.chains.iter().find(|c| c.chain == Chain::OfPages);
            profile.data_tlb_pages =
                pages.filter(|_| walks).map(|chain| (chain.table_bytes / PAGE_BYTES / 2) as u32);
        }
        profile.environment.get_or_insert_with(|| ProfileEnvironment::of(&self.protocol.machine));
    }
}
