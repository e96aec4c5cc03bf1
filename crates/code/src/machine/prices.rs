//! Prices besides store forwarding: string instructions, accesses across a line, the front end.
//!
//! What a probe measured stands in the profile. Where it holds nothing, the tables here answer:
//! documented for the designs with published measurements, assumed for the others.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::design::{Design, PriceOrigin, PriceRange};
use super::known::Microarchitecture as M;
use super::measured_core::CoreCost;

/// What a string instruction and what replaces it cost at one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StringPoint {
    /// Bytes copied or filled.
    pub size_bytes: u64,
    /// Core cycles of `rep movs` or `rep stos`, one after the other.
    pub rep_cycles: f64,
    /// Core cycles of moves of eight bytes that do the same.
    pub moves_cycles: f64,
    /// Core cycles of the string instruction that even a long latency chain beside it cannot hide.
    pub shadow_cycles: f64,
}

/// What copying or filling with a string instruction costs, by size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StringCosts {
    /// The size from which the string instruction is cheaper than moves of eight bytes.
    pub crossover_bytes: u64,
    /// Measured or assumed sizes, ascending.
    pub points: Vec<StringPoint>,
    /// Source of this price.
    pub origin: PriceOrigin,
}

/// How the front end cuts small loops.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopWindow {
    /// Bytes that are delivered together.
    pub window_bytes: u32,
    /// What a loop pays per turn for one more window, core cycles.
    pub extra_cycles: f64,
    /// Source of this price.
    pub origin: PriceOrigin,
}

impl StringCosts {
    /// Cycles of one execution; beyond the largest size that was measured, 32 bytes a cycle.
    #[must_use]
    pub fn rep_cycles(&self, size_bytes: u64) -> f64 {
        let beyond =
            self.points.last().map_or(0, |last| size_bytes.saturating_sub(last.size_bytes));
        interpolate(&self.points, size_bytes, |point| point.rep_cycles) + beyond as f64 / 32.0
    }

    /// Cycles that one execution loses against moves of eight bytes: what cannot be hidden, and
    /// the whole difference. Zero from the crossover on.
    #[must_use]
    pub fn lost_cycles(&self, size_bytes: u64) -> (f64, f64) {
        if size_bytes >= self.crossover_bytes {
            return (0.0, 0.0);
        }
        let at = |of: fn(&StringPoint) -> f64| interpolate(&self.points, size_bytes, of);
        let whole = (at(|p| p.rep_cycles) - at(|p| p.moves_cycles)).max(0.0);
        (at(|p| p.shadow_cycles).min(whole), whole)
    }
}

/// Between the two neighbouring points, or the nearest point.
fn interpolate(points: &[StringPoint], size_bytes: u64, of: fn(&StringPoint) -> f64) -> f64 {
    let above = points.partition_point(|p| p.size_bytes < size_bytes);
    match (above.checked_sub(1).and_then(|i| points.get(i)), points.get(above)) {
        (Some(low), Some(high)) => {
            let span = (high.size_bytes - low.size_bytes) as f64;
            let share = (size_bytes - low.size_bytes) as f64 / span;
            of(low) + (of(high) - of(low)) * share
        }
        (Some(only), None) | (None, Some(only)) => of(only),
        (None, None) => 0.0,
    }
}

const OWN_STUDY: &str = "own feasibility study on Cascade Lake";
const OWN_PROBE: &str = "own probe on a Redwood Cove guest";

/// (bytes, rep movsq, moves, not to be hidden), Cascade Lake, hot cache, aligned.
const MOVES_CASCADE_LAKE: &[(u64, f64, f64, f64)] = &[
    (8, 27.4, 1.0, 0.0),
    (16, 27.9, 2.0, 0.0),
    (32, 27.9, 4.0, 0.0),
    (64, 27.4, 8.0, 0.0),
    (80, 30.9, 10.0, 0.0),
    (96, 34.3, 12.0, 13.0),
    (128, 35.3, 16.2, 16.0),
    (168, 39.5, 20.9, 19.4),
    (192, 37.2, 24.1, 17.0),
    (256, 39.9, 32.1, 17.0),
    (384, 43.1, 48.0, 17.0),
];

/// The same for rep stosq.
const STORES_CASCADE_LAKE: &[(u64, f64, f64, f64)] = &[
    (8, 28.4, 1.0, 0.0),
    (16, 28.4, 2.0, 0.0),
    (32, 28.4, 4.0, 0.0),
    (64, 28.4, 8.0, 0.0),
    (128, 28.4, 16.0, 0.0),
    (168, 30.6, 20.9, 0.0),
    (192, 34.3, 24.0, 16.5),
    (256, 35.3, 32.0, 16.5),
    (384, 37.2, 48.0, 16.5),
];

/// The same on Redwood Cove, hot cache, aligned: up to 128 single bytes are not done by microcode there.
const MOVES_REDWOOD_COVE: &[(u64, f64, f64, f64)] =
    &[(8, 39.2, 0.5, 0.0), (256, 39.1, 18.5, 0.0), (512, 43.6, 37.5, 0.0), (1024, 47.7, 88.6, 0.0)];
const BYTE_MOVES_REDWOOD_COVE: &[(u64, f64, f64, f64)] = &[
    (8, 9.0, 0.5, 0.0),
    (64, 9.0, 4.3, 0.0),
    (128, 9.1, 9.2, 0.0),
    (129, 29.3, 9.3, 0.0),
    (256, 29.1, 18.5, 0.0),
    (512, 37.9, 37.5, 0.0),
    (1024, 41.6, 88.6, 0.0),
];
const STORES_REDWOOD_COVE: &[(u64, f64, f64, f64)] =
    &[(8, 31.7, 0.5, 0.0), (256, 31.6, 15.9, 0.0), (512, 39.6, 32.0, 0.0), (1024, 43.7, 67.4, 0.0)];
const BYTE_STORES_REDWOOD_COVE: &[(u64, f64, f64, f64)] = &[
    (8, 8.2, 0.5, 0.0),
    (64, 8.1, 3.9, 0.0),
    (128, 8.2, 8.0, 0.0),
    (129, 28.1, 8.1, 0.0),
    (256, 28.0, 15.9, 0.0),
    (512, 36.8, 32.0, 0.0),
    (1024, 40.8, 67.4, 0.0),
];

/// Where no measurement is known: a start-up of 24 cycles and 32 bytes per cycle, so that moves of eight
/// bytes win up to 256 bytes, the bound that the Linux proposal of 2025 chose for all x86-64 parts.
const ASSUMED: &[(u64, f64, f64, f64)] = &[(0, 24.0, 0.0, 0.0), (256, 32.0, 32.0, 0.0)];

fn string_costs(
    crossover_bytes: u64,
    rows: &[(u64, f64, f64, f64)],
    origin: PriceOrigin,
) -> StringCosts {
    let points = rows
        .iter()
        .map(|(size_bytes, rep_cycles, moves_cycles, shadow_cycles)| StringPoint {
            size_bytes: *size_bytes,
            rep_cycles: *rep_cycles,
            moves_cycles: *moves_cycles,
            shadow_cycles: *shadow_cycles,
        })
        .collect();
    StringCosts { crossover_bytes, points, origin }
}

pub(super) fn documented(low_cycles: f64, high_cycles: f64, source: &str) -> PriceRange {
    let origin = PriceOrigin::Documented { source: source.to_owned() };
    PriceRange { low_cycles, high_cycles, origin, measured: None }
}

pub(super) fn assumed(low_cycles: f64, high_cycles: f64) -> PriceRange {
    PriceRange { low_cycles, high_cycles, origin: PriceOrigin::Assumed, measured: None }
}

impl Design {
    /// Whether the design is Skylake or one of its direct successors, whose string microcode
    /// and line splits are alike.
    fn is_skylake_family(&self) -> bool {
        matches!(self.microarchitecture, M::Skylake | M::SkylakeServer | M::CascadeLake)
    }

    /// What `rep movs` costs that moves so many bytes at a time: some designs do single bytes without microcode where they
    /// are few.
    #[must_use]
    pub fn string_move_costs(&self, unit_bytes: u8) -> StringCosts {
        self.string_costs(true, unit_bytes)
    }

    /// What `rep stos` costs that stores so many bytes at a time.
    #[must_use]
    pub fn string_store_costs(&self, unit_bytes: u8) -> StringCosts {
        self.string_costs(false, unit_bytes)
    }

    fn string_costs(&self, moves: bool, unit_bytes: u8) -> StringCosts {
        let (bytes, others) = match moves {
            true => (&self.rep_byte_moves, &self.rep_moves),
            false => (&self.rep_byte_stores, &self.rep_stores),
        };
        let is_byte = unit_bytes == 1;
        let measured = if is_byte { bytes } else { others };
        let known = measured.clone().or_else(|| self.tabled_strings(moves, is_byte));
        let known = known.or_else(|| others.clone()).or_else(|| self.tabled_strings(moves, false));
        known.unwrap_or_else(|| string_costs(256, ASSUMED, PriceOrigin::Assumed))
    }

    /// What the table says of them.
    fn tabled_strings(&self, moves: bool, bytes: bool) -> Option<StringCosts> {
        let redwood_cove = matches!(self.microarchitecture, M::GoldenCove | M::RedwoodCove);
        let (crossover_bytes, rows) = match (moves, bytes) {
            (true, false) if self.is_skylake_family() => (345, MOVES_CASCADE_LAKE),
            (false, false) if self.is_skylake_family() => (294, STORES_CASCADE_LAKE),
            (true, false) if redwood_cove => (605, MOVES_REDWOOD_COVE),
            (true, true) if redwood_cove => (518, BYTE_MOVES_REDWOOD_COVE),
            (false, false) if redwood_cove => (633, STORES_REDWOOD_COVE),
            (false, true) if redwood_cove => (592, BYTE_STORES_REDWOOD_COVE),
            _ => return None,
        };
        let source = if redwood_cove { OWN_PROBE } else { OWN_STUDY };
        let origin = PriceOrigin::Documented { source: source.to_owned() };
        Some(string_costs(crossover_bytes, rows, origin))
    }

    /// Extra latency of an access that crosses a line.
    #[must_use]
    pub fn line_split_price(&self) -> PriceRange {
        match self.measured_line_split() {
            Some(probed) => probed,
            None if self.is_skylake_family() => documented(2.0, 5.0, OWN_STUDY),
            None => assumed(1.0, 10.0),
        }
    }

    /// The same, if the probe of the core measured it.
    pub(super) fn measured_line_split(&self) -> Option<PriceRange> {
        let core = self.measured_core.as_ref()?;
        let split = core.cycles_of(CoreCost::SplitLoadLatency)?;
        let whole = core.cycles_of(CoreCost::LoadLatency)?;
        Some(PriceRange {
            low_cycles: (split.low - whole.high).max(0.0),
            high_cycles: (split.high - whole.low).max(0.0),
            origin: core.origin.clone(),
            measured: None,
        })
    }

    /// What a jump that touches a 32-byte boundary costs each time where nothing else is the
    /// bottleneck; `None` on parts without Intel's erratum.
    #[must_use]
    pub fn jump_at_boundary_price(&self) -> Option<PriceRange> {
        self.jump_erratum().value.then(|| documented(2.0, 3.0, OWN_STUDY))
    }

    /// What one more window per turn of a small loop costs: measured, else an assumption, because the
    /// front end delivers one window per cycle and what is behind it may hide that.
    #[must_use]
    pub fn extra_window_price(&self) -> PriceRange {
        let Some(window) = &self.loop_window else { return assumed(0.0, 1.0) };
        let (cycles, origin) = (window.extra_cycles, window.origin.clone());
        PriceRange { low_cycles: cycles, high_cycles: cycles, origin, measured: None }
    }

    /// What a line of code costs that must come from the second level because its set is full.
    #[must_use]
    pub fn code_miss_price(&self) -> PriceRange {
        if self.is_skylake_family() { documented(0.0, 24.0, OWN_STUDY) } else { assumed(0.0, 24.0) }
    }

    /// What it costs to decode a window anew that found no place among the decoded ones.
    #[must_use]
    pub fn decode_again_price(&self) -> PriceRange {
        if self.is_skylake_family() { documented(0.0, 12.0, OWN_STUDY) } else { assumed(0.0, 12.0) }
    }

    /// What it costs to bring a page of code into the first-level TLB from the second: on a Haswell
    /// what was seen where the second level had the page; on no design is it known to take longer
    /// than 20 cycles.
    #[must_use]
    pub fn code_tlb_refill_price(&self) -> PriceRange {
        match self.microarchitecture {
            M::Haswell => documented(0.0, 18.2, "RMMA on Haswell, mynavi.jp 2013"),
            _ => assumed(0.0, 20.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_instruction_loses_below_the_crossover_only() {
        let lake = Design::of(M::CascadeLake);
        let moves = lake.string_move_costs(8);
        let (low, high) = moves.lost_cycles(168);
        assert!((low - 18.6).abs() < 0.1 && (high - 18.6).abs() < 0.1, "{low} {high}");
        assert_eq!(moves.lost_cycles(345), (0.0, 0.0));
        let stores = lake.string_store_costs(8);
        let (low, high) = stores.lost_cycles(48);
        assert!(low == 0.0 && (high - 22.4).abs() < 0.1, "{low} {high}");
        assert!(matches!(stores.origin, PriceOrigin::Documented { .. }));
        let zen = Design::of(M::Zen5).string_move_costs(8);
        assert_eq!((zen.crossover_bytes, &zen.origin), (256, &PriceOrigin::Assumed));
        assert_eq!(zen.lost_cycles(128), (0.0, 12.0));
        assert_eq!(zen.lost_cycles(1 << 40), (0.0, 0.0));
    }

    #[test]
    fn what_a_probe_measured_goes_before_the_table() {
        let mut profile = Design::of(M::Zen5);
        let origin = PriceOrigin::Probed { probe: "string-copy".into() };
        profile.rep_moves = Some(string_costs(64, &[(32, 20.0, 4.0, 1.0)], origin.clone()));
        assert_eq!(profile.string_move_costs(8).origin, origin);
        assert_eq!(profile.string_move_costs(8).lost_cycles(8), (1.0, 16.0));
        assert_eq!(profile.string_store_costs(8).origin, PriceOrigin::Assumed);
    }

    #[test]
    fn the_erratum_is_that_of_skylake_and_its_successors() {
        let of = Design::of;
        assert!(of(M::CascadeLake).jump_at_boundary_price().is_some());
        assert!(of(M::Zen5).jump_at_boundary_price().is_none());
    }

    #[test]
    fn a_refill_may_cost_nothing_and_says_who_measured_its_most() {
        let price = |design| Design::of(design).code_tlb_refill_price();
        assert!(matches!(price(M::Haswell).origin, PriceOrigin::Documented { .. }));
        assert_eq!(price(M::Zen4).origin, PriceOrigin::Assumed);
        assert_eq!((price(M::Zen4).low_cycles, price(M::Zen4).high_cycles), (0.0, 20.0));
    }
}
