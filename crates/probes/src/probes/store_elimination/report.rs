//! From ratios to a claim: eliminated, or not seen and how much would have been.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::counted::CountedEvent;
use super::sampling::Region;
use super::{Fill, WIDE_SIZES};
use crate::machine::{CacheKind, Machine};
use crate::model::Measurement;
use crate::probes::protocol::{Answer, Control, Protocol};
use crate::probes::{Cell, UpdatesProfile, published};

/// Where a region of this size lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The first-level data cache.
    L1,
    /// The second level.
    L2,
    /// The third level.
    L3,
    /// Memory.
    Memory,
    /// Between two of them, or the caches are not known.
    Between,
}

impl Level {
    fn of(machine: &Machine, bytes: usize) -> Self {
        let size = |level, kind| machine.cache(level, kind).map(|c| c.size_bytes);
        let bytes = bytes as u64;
        let (Some(one), Some(two)) = (size(1, CacheKind::Data), size(2, CacheKind::Unified)) else {
            return Self::Between;
        };
        let three = size(3, CacheKind::Unified).unwrap_or(two);
        match bytes {
            b if 4 * b <= 3 * one => Self::L1,
            b if b >= 2 * one && 4 * b <= 3 * two => Self::L2,
            // A guest shares the third level with others: half of it is not to be had.
            b if b >= 2 * two && 2 * b <= three => Self::L3,
            b if 2 * b >= 3 * three => Self::Memory,
            _ => Self::Between,
        }
    }

    /// As a phrase for the screen.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::L1 => "L1",
            Self::L2 => "L2",
            Self::L3 => "L3",
            Self::Memory => "memory",
            Self::Between => "between",
        }
    }
}

/// A ratio of speeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ratio {
    /// Fill that is compared with ones.
    pub fill: Fill,
    /// Its speed over that of ones (of sparse ones for sparse zeros).
    pub speed: Option<Measurement>,
    /// The same in each block, in order of time, where every sample was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<f64>,
}

/// Figures of one region size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegionReport {
    /// Size of the region.
    pub bytes: u64,
    /// Cache level that holds the region.
    pub level: Level,
    /// How fast it is filled with ones.
    pub speed: Option<Measurement>,
    /// Speed of each fill over that of ones.
    pub ratios: Vec<Ratio>,
    /// Zeros over lines of zeros and ones in turn, chunk by chunk: more than 1 where half as many
    /// zeros gain less.
    #[serde(default)]
    pub zeros_over_half: Option<Measurement>,
    /// Whether zeros are cheaper; absent where that is open.
    pub eliminated: Option<bool>,
    /// The smallest effect that would have been seen, percent.
    pub detectable_percent: Option<f64>,
    /// Zeros over ones and twos over ones by 512-bit stores.
    pub wide: Option<(Measurement, Measurement)>,
}

impl RegionReport {
    /// The speed of `fill` over its base.
    #[must_use]
    pub fn ratio(&self, fill: Fill) -> Option<&Measurement> {
        self.ratios.iter().find(|r| r.fill == fill)?.speed.as_ref()
    }
}

/// Report of this probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EliminationReport {
    /// How it was measured.
    #[serde(flatten)]
    pub protocol: Protocol,
    /// Regions, by size.
    pub regions: Vec<RegionReport>,
    /// What was counted of lines that leave a cache.
    #[serde(default)]
    pub counted: Vec<CountedEvent>,
}

/// An effect below this is not the mechanism.
const PRESENT: f64 = 1.03;

/// Twos whose interval stays farther than this from ones show that values are not compared fairly.
const PLACEBO: f64 = 0.01;

/// Of the gain of all zeros, the second half of them must bring at least this share.
const LEAST_DOSE_SHARE: f64 = 0.2;

/// A region whose smallest detectable effect is larger says nothing.
const COARSEST_PERCENT: f64 = 5.0;

impl EliminationReport {
    /// Joins regions, and what the child said about [`WIDE_SIZES`], into a report; of every block with `raw`.
    #[must_use]
    pub fn new(
        regions: &[Region],
        wide: Option<&[Cell]>,
        raw: bool,
        mut protocol: Protocol,
    ) -> Self {
        let of_wide = |bytes: usize| {
            let at = 2 * WIDE_SIZES.iter().position(|s| *s == bytes)?;
            let cell = |i: usize| wide?.get(i)?.cycles.clone();
            Some((cell(at)?, cell(at + 1)?))
        };
        let regions: Vec<RegionReport> = regions
            .iter()
            .map(|r| RegionReport { wide: of_wide(r.bytes), ..one(r, raw, &protocol.machine) })
            .collect();
        protocol.samples = regions.iter().filter_map(|r| r.speed.as_ref()).map(|m| m.n).sum();
        protocol.controls = controls(&regions);
        let third = regions.iter().find(|r| r.level == Level::L3);
        let zero = third.and_then(|r| r.ratio(Fill::Zero)).cloned();
        protocol.published =
            published::compare(protocol.machine.microarchitecture, super::ID, |_| zero.clone());
        protocol.conclude(answer(&regions));
        Self { protocol, regions, counted: Vec::new() }
    }
}

impl UpdatesProfile for EliminationReport {
    fn protocol(&self) -> Option<&Protocol> {
        Some(&self.protocol)
    }
}

fn one(region: &Region, raw: bool, machine: &Machine) -> RegionReport {
    let ratio = |fill, base| {
        let blocks = region.logs_over(fill, base).map(|log| (log.exp() * 1e4).round() / 1e4);
        let blocks = if raw { blocks.collect() } else { Vec::new() };
        Ratio { fill, speed: region.speed_over(fill, base), blocks }
    };
    let shorter = region.speed_over(Fill::Shorter, Fill::One).filter(|_| region.bytes >= 2048);
    let ratios = vec![
        ratio(Fill::Zero, Fill::One),
        ratio(Fill::Two, Fill::One),
        ratio(Fill::Alternating, Fill::One),
        // Of two lines nothing can be left out.
        Ratio { speed: shorter, ..ratio(Fill::Shorter, Fill::One) },
        ratio(Fill::SparseZero, Fill::SparseOne),
    ];
    let zeros_over_half = region.speed_over(Fill::Zero, Fill::Alternating);
    let (eliminated, detectable_percent) = match (&ratios[0].speed, &ratios[1].speed) {
        (Some(zero), Some(two)) => judge(zero, two, zeros_over_half.as_ref()),
        _ => (None, None),
    };
    RegionReport {
        bytes: region.bytes as u64,
        level: Level::of(machine, region.bytes),
        speed: region.speed(Fill::One),
        ratios,
        zeros_over_half,
        eliminated,
        detectable_percent,
        wide: None,
    }
}

/// Present when zeros are clearly faster, twos are not, and half the zeros gain less: what drops
/// lines for being zero drops half as many of them. Absent when neither is faster and an effect of
/// that size would have been seen.
fn judge(
    zero: &Measurement,
    two: &Measurement,
    zeros_over_half: Option<&Measurement>,
) -> (Option<bool>, Option<f64>) {
    let half = |m: &Measurement| (m.high - m.low) / 2.0;
    let detectable = 100.0 * (half(zero).max(half(two)) + (two.value - 1.0).abs());
    let placebo_holds = two.low <= 1.0 + PLACEBO && two.high >= 1.0 - PLACEBO;
    // The other half of the zeros should be worth half of the gain; a part of that must be clear.
    let clear = 1.0 + LEAST_DOSE_SHARE * (zero.value - 1.0);
    let dose_counts = zeros_over_half.is_some_and(|ratio| ratio.low > clear);
    let faster = zero.low > PRESENT && placebo_holds && zero.low > two.high;
    let verdict = if faster && dose_counts {
        Some(true)
    } else if zero.low <= PRESENT && zero.high < PRESENT && detectable <= COARSEST_PERCENT {
        Some(false)
    } else {
        None
    };
    (verdict, Some(detectable))
}

fn controls(regions: &[RegionReport]) -> Vec<Control> {
    // The largest that the first level holds: the smaller ones spend their time on being called.
    let first = regions.iter().rfind(|r| r.level == Level::L1);
    let of = |fill| first.and_then(|r| r.ratio(fill));
    let against_one = |kind: &str, what: &str, m: Option<&Measurement>, low: f64, high: f64| {
        let (passed, words) = match m {
            Some(m) => (
                Some((low..=high).contains(&m.value)),
                format!("{what}: {:.4} [{:.4}, {:.4}]", m.value, m.low, m.high),
            ),
            None => (None, format!("{what}: too few blocks")),
        };
        Control { kind: kind.to_owned(), passed, words }
    };
    vec![
        against_one("positive", "5 % fewer ones in L1", of(Fill::Shorter), 1.03, 1.08),
        against_one("negative", "zeros over ones in L1", of(Fill::Zero), 0.99, 1.01),
        against_one("placebo", "twos over ones in L1", of(Fill::Two), 0.99, 1.01),
    ]
}

fn answer(regions: &[RegionReport]) -> Answer {
    let large = || regions.iter().filter(|r| matches!(r.level, Level::L3 | Level::Memory));
    let all: Vec<String> = large()
        .map(|r| format!("{} MiB ({}): {}", r.bytes >> 20, r.level.word(), finding(r)))
        .collect();
    if large().any(|r| r.eliminated.is_some()) {
        Answer::Found(all.join("; "))
    } else if all.is_empty() {
        Answer::Open("the sizes of the caches are not known".to_owned())
    } else {
        Answer::Open(all.join("; "))
    }
}

/// What a region says, as a clause.
fn finding(r: &RegionReport) -> String {
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    let (Some(zero), Some(least)) = (r.ratio(Fill::Zero), r.detectable_percent) else {
        return "too few blocks".to_owned();
    };
    let gain = percent(zero.value);
    match r.eliminated {
        Some(true) => format!("eliminated, zeros are {gain:.1} % faster"),
        Some(false) => format!("not seen here, smallest detectable {least:.1} %"),
        None if zero.low > PRESENT => {
            let half = r.ratio(Fill::Alternating).map_or(f64::NAN, |m| percent(m.value));
            format!("open, zeros are {gain:.1} % faster, but half as many are too ({half:.1} %)")
        }
        None if zero.low > 1.0 => {
            let (low, high) = (percent(zero.low), percent(zero.high));
            let counts = percent(PRESENT);
            format!("open, zeros are {low:.1} to {high:.1} % faster, and {counts:.0} % count")
        }
        None => format!("open, an effect below {least:.1} % is lost"),
    }
}
