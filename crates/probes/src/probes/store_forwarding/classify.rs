//! From cycles to classes, without knowing beforehand what this processor charges.
//!
//! Within one kind of registers the matrix falls into two clusters on every design published so
//! far (forwarded 4 to 9 cycles, not forwarded 10 to 21), except where everything is forwarded.
//! The gap between them is looked for from below, and a case is classed only when its whole
//! interval lies clear of the middle of the gap.
//!
//! A core that puts several stores together for one load may take a few cycles more for it, which
//! looks like a gap. A second witness decides: loads that wait for stores to reach the cache follow
//! each other at that distance even when their results are not used, because the next store cannot
//! retire before them; loads that are merely put together overlap.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::case::{Case, Group, Registers};
use crate::probes::sampling::Cell;

/// What happened to the load.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Class {
    /// The value never went through memory: no store buffer answers so fast.
    Renamed,
    /// Served from the store buffer.
    Forwarded,
    /// Nothing to wait for: no byte was written by the store.
    Independent,
    /// Nothing to wait for, and yet it took longer: the low bits of the address are the same.
    Aliased,
    /// Waited until the store had reached the cache.
    Blocked,
    /// The samples do not decide.
    Inconclusive,
}

impl Class {
    /// The word that screens use, and the JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Renamed => "renamed",
            Self::Forwarded => "forwarded",
            Self::Independent => "independent",
            Self::Aliased => "aliased",
            Self::Blocked => "blocked",
            Self::Inconclusive => "inconclusive",
        }
    }

    /// Whether the store buffer (or the renamer) served the load; `None` where that is not known.
    #[must_use]
    pub fn served(self) -> Option<bool> {
        match self {
            Self::Renamed | Self::Forwarded => Some(true),
            Self::Blocked => Some(false),
            Self::Independent | Self::Aliased | Self::Inconclusive => None,
        }
    }
}

/// A round trip shorter than this did not go through the store buffer; the fastest forwarding that
/// was ever published takes 3 (Skylake, load just in time), renaming 0 to 1.
const RENAMED_BELOW_CYCLES: f64 = 2.5;

/// A gap between clusters spans at least this many cycles and this factor.
const LEAST_GAP_CYCLES: f64 = 2.5;
const LEAST_GAP_FACTOR: f64 = 1.3;

/// Share of the gap, around its middle, that belongs to neither side.
const NO_MANS_LAND: f64 = 0.3;

/// Loads above the gap that follow each other at less than this share of it overlap.
const SERIAL_SHARE: f64 = 0.6;

/// Where there is no gap, a case is blocked only beyond this multiple of what forwarding takes.
const BLOCKED_WITHOUT_GAP: f64 = 2.0;

/// An interval wider than this share of its value (and a cycle) says too little to find gaps with.
const WIDEST_INTERVAL: f64 = 0.25;

/// Loads that wait for aliases take at least this much longer than those that do not, and loads
/// that do not at most that much; both on average over all pairs of pages.
const ALIASED_BY_CYCLES: f64 = 1.0;
const FREE_BY_CYCLES: f64 = 0.75;

/// Where forwarding ends and blocking begins, for one kind of registers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Boundary {
    /// The slowest forwarded load of the matrix, core cycles.
    pub forwarded_to_cycles: f64,
    /// The fastest one that was not; absent where all are forwarded.
    pub blocked_from_cycles: Option<f64>,
}

impl Boundary {
    /// Looks for the lowest gap in the matrix. `None` with too little data.
    fn find(cases: &[Case], cells: &[Cell], registers: Registers, serial: f64) -> Option<Self> {
        let mut values: Vec<f64> = cases
            .iter()
            .zip(cells)
            .filter(|(c, _)| c.group == Group::Matrix && c.registers == registers)
            .filter_map(|(_, cell)| cell.cycles.as_ref())
            .filter(|m| m.high - m.low <= WIDEST_INTERVAL * m.value + 1.0)
            .map(|m| m.value)
            .filter(|v| *v >= RENAMED_BELOW_CYCLES)
            .collect();
        values.sort_by(f64::total_cmp);
        let last = *values.last()?;
        let gap = values
            .windows(2)
            .find(|w| w[1] - w[0] >= LEAST_GAP_CYCLES && w[1] >= w[0] * LEAST_GAP_FACTOR);
        Some(match gap.filter(|w| w[1] * SERIAL_SHARE <= serial) {
            Some(w) => Self { forwarded_to_cycles: w[0], blocked_from_cycles: Some(w[1]) },
            None => Self { forwarded_to_cycles: last, blocked_from_cycles: None },
        })
    }

    /// Below the first is forwarded, above the second blocked, between them nothing is said.
    fn limits(&self) -> (f64, f64) {
        let low = self.forwarded_to_cycles;
        match self.blocked_from_cycles {
            Some(high) => {
                let (middle, half) = ((low + high) / 2.0, NO_MANS_LAND / 2.0 * (high - low));
                (middle - half, middle + half)
            }
            None => (low * 1.6, low * BLOCKED_WITHOUT_GAP),
        }
    }
}

/// The boundaries found, one for each kind of registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Boundaries {
    /// General registers to general registers.
    pub general: Option<Boundary>,
    /// Vector registers to vector registers.
    pub vector: Option<Boundary>,
    /// From general into vector registers.
    #[serde(default)]
    pub into_vector: Option<Boundary>,
    /// From vector into general registers.
    #[serde(default)]
    pub into_general: Option<Boundary>,
    /// Of vector registers up to 64 bytes.
    #[serde(default)]
    pub wide: Option<Boundary>,
}

impl Boundaries {
    /// Finds the boundaries in the measured matrix.
    pub fn find(cases: &[Case], cells: &[Cell]) -> Self {
        let witness = |(c, _): &(&Case, &Cell)| c.group == Group::Unused && c.stores.len() > 1;
        let unused = cases.iter().zip(cells).find(witness);
        // Without the witness a gap means nothing, and nothing is classed.
        let Some(serial) = unused.and_then(|(_, cell)| cell.cycles.as_ref()) else {
            return Self::default();
        };
        let find = |registers| Boundary::find(cases, cells, registers, serial.value);
        Self {
            general: find(Registers::General),
            vector: find(Registers::Vector),
            into_vector: find(Registers::IntoVector),
            into_general: find(Registers::IntoGeneral),
            wide: find(Registers::Wide),
        }
    }

    fn of(&self, registers: Registers) -> Option<Boundary> {
        match registers {
            Registers::General => self.general,
            Registers::Vector => self.vector,
            Registers::IntoVector => self.into_vector,
            Registers::IntoGeneral => self.into_general,
            Registers::Wide => self.wide,
        }
    }
}

/// The class of every case, in their order.
pub fn classify(cases: &[Case], cells: &[Cell], boundaries: &Boundaries) -> Vec<Class> {
    let independent = cases
        .iter()
        .zip(cells)
        .filter(|(c, _)| c.group == Group::Disjoint)
        .filter_map(|(_, cell)| cell.cycles.as_ref().map(|m| m.high))
        .reduce(f64::max);
    let each = |(case, cell): (&Case, &Cell)| class(case, cell, boundaries, independent);
    cases.iter().zip(cells).map(each).collect()
}

fn class(case: &Case, cell: &Cell, boundaries: &Boundaries, independent: Option<f64>) -> Class {
    let Some(m) = &cell.cycles else { return Class::Inconclusive };
    let Some(boundary) = boundaries.of(case.registers) else { return Class::Inconclusive };
    let (forwarded_below, blocked_above) = boundary.limits();
    match case.group {
        Group::Disjoint if m.high < forwarded_below => Class::Independent,
        Group::Disjoint => Class::Inconclusive,
        Group::Alias => match independent {
            Some(free) if m.low > free + ALIASED_BY_CYCLES => Class::Aliased,
            Some(free) if m.high < free + FREE_BY_CYCLES => Class::Independent,
            _ => Class::Inconclusive,
        },
        // How many an unused load costs is throughput: little of it is no renaming.
        Group::Unused if m.high < forwarded_below => Class::Forwarded,
        _ if m.high < RENAMED_BELOW_CYCLES => Class::Renamed,
        _ if m.low > blocked_above => Class::Blocked,
        _ if m.low > RENAMED_BELOW_CYCLES && m.high < forwarded_below => Class::Forwarded,
        _ => Class::Inconclusive,
    }
}
