//! From ratios to a claim: eliminated, or not seen and how much would have been.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sampling::Region;
use super::{Fill, WIDE_SIZES};
use crate::machine::{CacheKind, Machine};
use crate::model::Measurement;
use crate::probes::protocol::{Control, Protocol};
use crate::probes::{Cell, published};

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

    /// In words.
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
    /// Which fill.
    pub fill: Fill,
    /// Its speed over that of ones (of sparse ones for sparse zeros).
    pub speed: Option<Measurement>,
}

/// One size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegionReport {
    /// Bytes.
    pub bytes: u64,
    /// Where it lives.
    pub level: Level,
    /// How fast it is filled with ones.
    pub speed: Option<Measurement>,
    /// Against ones.
    pub ratios: Vec<Ratio>,
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

/// What the probe found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EliminationReport {
    /// How it was measured.
    #[serde(flatten)]
    pub protocol: Protocol,
    /// By size.
    pub regions: Vec<RegionReport>,
}

/// An effect below this is not the mechanism.
const PRESENT: f64 = 1.03;

/// A region whose smallest detectable effect is larger says nothing.
const COARSEST_PERCENT: f64 = 5.0;

impl EliminationReport {
    /// Joins regions, and what the child said about [`WIDE_SIZES`], into a report.
    #[must_use]
    pub fn new(regions: &[Region], wide: Option<&[Cell]>, mut protocol: Protocol) -> Self {
        let of_wide = |bytes: usize| {
            let at = 2 * WIDE_SIZES.iter().position(|s| *s == bytes)?;
            let cell = |i: usize| wide?.get(i)?.cycles.clone();
            Some((cell(at)?, cell(at + 1)?))
        };
        let regions: Vec<RegionReport> = regions
            .iter()
            .map(|r| RegionReport { wide: of_wide(r.bytes), ..one(r, &protocol.machine) })
            .collect();
        protocol.samples = regions.iter().filter_map(|r| r.speed.as_ref()).map(|m| m.n).sum();
        protocol.controls = controls(&regions);
        let third = regions.iter().find(|r| r.level == Level::L3);
        let zero = third.and_then(|r| r.ratio(Fill::Zero)).cloned();
        protocol.published =
            published::compare(protocol.machine.microarchitecture, super::ID, |_| zero.clone());
        protocol.conclude(answer(&regions));
        Self { protocol, regions }
    }
}

fn one(region: &Region, machine: &Machine) -> RegionReport {
    let ratio = |fill, base| Ratio { fill, speed: region.speed_over(fill, base) };
    let shorter = region.speed_over(Fill::Shorter, Fill::One).filter(|_| region.bytes >= 2048);
    let ratios = vec![
        ratio(Fill::Zero, Fill::One),
        ratio(Fill::Two, Fill::One),
        ratio(Fill::Alternating, Fill::One),
        // Of two lines nothing can be left out.
        Ratio { speed: shorter, ..ratio(Fill::Shorter, Fill::One) },
        ratio(Fill::SparseZero, Fill::SparseOne),
    ];
    let (eliminated, detectable_percent) = match (&ratios[0].speed, &ratios[1].speed) {
        (Some(zero), Some(two)) => judge(zero, two, ratios[2].speed.as_ref()),
        _ => (None, None),
    };
    RegionReport {
        bytes: region.bytes as u64,
        level: Level::of(machine, region.bytes),
        speed: region.speed(Fill::One),
        ratios,
        eliminated,
        detectable_percent,
        wide: None,
    }
}

/// Present when zeros are clearly faster, twos are not, and half the zeros gain less: what drops lines
/// for being zero drops half as many of them. Absent when neither is faster and an effect of that size
/// would have been seen.
fn judge(
    zero: &Measurement,
    two: &Measurement,
    half_zeros: Option<&Measurement>,
) -> (Option<bool>, Option<f64>) {
    let half = |m: &Measurement| (m.high - m.low) / 2.0;
    let detectable = 100.0 * (half(zero).max(half(two)) + (two.value - 1.0).abs());
    let placebo_holds = two.low <= 1.0 + PRESENT / 100.0 && two.high >= 1.0 - PRESENT / 100.0;
    let dose_counts = half_zeros.is_some_and(|half| half.high < zero.value);
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

fn answer(regions: &[RegionReport]) -> Result<String, String> {
    let large = || regions.iter().filter(|r| matches!(r.level, Level::L3 | Level::Memory));
    let words = |r: &RegionReport| {
        let size = format!("{} MiB ({})", r.bytes >> 20, r.level.word());
        match (r.eliminated, r.ratio(Fill::Zero), r.detectable_percent) {
            (Some(true), Some(zero), _) => {
                format!("{size}: eliminated, zeros are {:.1} % faster", 100.0 * (zero.value - 1.0))
            }
            (Some(false), _, Some(least)) => {
                format!("{size}: not seen here, smallest detectable {least:.1} %")
            }
            (None, Some(zero), _) if zero.low > PRESENT => format!(
                "{size}: open, zeros are {:.1} % faster, but half as many are not clearly less so",
                100.0 * (zero.value - 1.0)
            ),
            (_, _, Some(least)) => format!("{size}: open, an effect below {least:.1} % is lost"),
            _ => format!("{size}: too few blocks"),
        }
    };
    let all: Vec<String> = large().map(words).collect();
    if large().any(|r| r.eliminated.is_some()) {
        Ok(all.join("; "))
    } else if all.is_empty() {
        Err("the sizes of the caches are not known".to_owned())
    } else {
        Err(all.join("; "))
    }
}
