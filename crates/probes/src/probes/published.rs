//! (table) What others have published about the mechanisms, core by core.
//!
//! A figure agrees when the measured interval comes within the tolerance of the published range. A
//! core without rows is unknown, which is no disagreement.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::Microarchitecture as M;
use crate::model::Measurement;

/// How well founded a published figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// Measured by this project with another program.
    Own,
    /// Measured and published, with its method.
    Measured,
    /// Said by the vendor.
    Vendor,
    /// Quoted in another publication.
    Quoted,
}

/// A published figure beside the measured one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Published {
    /// What it is about, a stable name.
    pub quantity: String,
    /// Least published value, in the unit of the quantity.
    pub low: f64,
    /// Largest published value.
    pub high: f64,
    /// How far a measurement may lie outside and still agree.
    pub tolerance: f64,
    /// Who published it.
    pub source: String,
    /// How well founded it is.
    pub evidence: Evidence,
    /// What was measured here; absent where that was inconclusive.
    pub measured: Option<Measurement>,
    /// Whether they agree; absent where nothing was measured.
    pub agrees: Option<bool>,
}

/// Design, probe, quantity, published range, tolerance, who published it and how well founded it is.
/// Forwarding is in cycles per dependent round trip; sources count the moves between registers
/// differently, by about a cycle.
type Row = (M, &'static str, &'static str, (f64, f64), f64, &'static str, Evidence);

const OWN: &str = "own feasibility study on a Cascade Lake guest";
const JIEGEC: &str = "jiegec, published measurement";
const UARCH: &str = "uarch-bench, published results";
const AMD: &str = "AMD, optimisation guide of family 19h; Chips and Cheese";
const DANLARK: &str = "danlark1, store_forwarding, published results";

/// A whole number of ways, sets or bytes: nothing but the number itself agrees.
const EXACT: f64 = 0.4;

use Evidence::{Measured, Own, Quoted};

#[rustfmt::skip]
const ROWS: &[Row] = &[
    (M::CascadeLake, "string-copy", "rep movsq over 8-byte moves, bytes", (339.0, 346.0), 50.0, OWN, Own),
    (M::CascadeLake, "string-copy", "rep stosq over 8-byte moves, bytes", (294.0, 297.0), 35.0, OWN, Own),
    (M::CascadeLake, "string-copy", "rep movsq over SSE, bytes", (1038.0, 1041.0), 150.0, OWN, Own),
    (M::CascadeLake, "string-copy", "rep movsq, 64 bytes, cycles", (26.0, 28.0), 2.0, OWN, Own),
    (M::CascadeLake, "string-copy", "rep movsq, 168 bytes, cycles", (39.0, 40.0), 3.0, OWN, Own),
    (M::CascadeLake, "string-copy", "rep stosb, 1024 bytes, cycles", (65.0, 65.0), 4.0, "uarch-bench, run on a Cascade Lake guest", Measured),
    (M::Skylake,     "icache-sets", "ways", (8.0, 8.0), EXACT, "CPUID", Evidence::Vendor),
    (M::CascadeLake, "icache-sets", "ways", (8.0, 8.0), EXACT, OWN, Own),
    (M::CascadeLake, "icache-sets", "sets", (64.0, 64.0), EXACT, OWN, Own),
    (M::CascadeLake, "icache-sets", "cost of a miss, cycles", (24.0, 24.0), 6.0, OWN, Own),
    (M::GoldenCove,  "icache-sets", "ways", (8.0, 8.0), EXACT, JIEGEC, Measured),
    (M::GoldenCove,  "icache-sets", "sets", (64.0, 64.0), EXACT, JIEGEC, Measured),
    (M::Zen1,        "icache-sets", "ways", (4.0, 4.0), EXACT, "AnandTech, table", Quoted),
    (M::Zen1,        "icache-sets", "sets", (256.0, 256.0), EXACT, "AnandTech, table", Quoted),
    (M::Zen2,        "icache-sets", "ways", (8.0, 8.0), EXACT, JIEGEC, Quoted),
    (M::Zen3,        "icache-sets", "ways", (8.0, 8.0), EXACT, JIEGEC, Quoted),
    (M::Zen4,        "icache-sets", "ways", (8.0, 8.0), EXACT, JIEGEC, Quoted),
    (M::Zen5,        "icache-sets", "ways", (8.0, 8.0), EXACT, JIEGEC, Measured),
    (M::Zen5,        "icache-sets", "sets", (64.0, 64.0), EXACT, JIEGEC, Measured),
    (M::CascadeLake, "icache-sync", "CLFLUSH, ns a line", (85.0, 88.0), 15.0, OWN, Own),
    (M::CascadeLake, "icache-sync", "CPUID, ns", (745.0, 1080.0), 100.0, OWN, Own),
    (M::CascadeLake, "icache-sync", "iret to itself, ns", (92.0, 108.0), 15.0, OWN, Own),
    (M::Zen3,        "icache-sync", "CLFLUSH, ns a line", (2.5, 2.7), 1.0, "OpenJDK pull request, one machine", Measured),
    (M::CascadeLake, "store-elimination", "zero over one, L3", (0.999, 1.001), 0.01, OWN, Own),
    (M::Haswell,     "store-elimination", "zero over one, L3", (1.0, 1.0), 0.03, "T. Downs, hardware store elimination", Measured),
    (M::SkylakeServer, "store-elimination", "zero over one, L3", (1.0, 1.0), 0.03, "T. Downs, hardware store elimination", Measured),
    (M::Zen2,        "store-elimination", "zero over one, L3", (1.0, 1.0), 0.03, "T. Downs, hardware store elimination", Measured),
    (M::SandyBridge, "store-forwarding", "8 -> 8", (5.0, 6.3), 1.0, UARCH, Measured),
    (M::SandyBridge, "store-forwarding", "16 -> 16 vector", (7.4, 7.4), 1.0, UARCH, Measured),
    (M::SandyBridge, "store-forwarding", "4+4 -> 8", (17.0, 20.0), 1.0, UARCH, Measured),
    (M::Haswell, "store-forwarding", "8 -> 8", (5.3, 5.3), 1.0, UARCH, Measured),
    (M::Haswell, "store-forwarding", "16 -> 16 vector", (6.0, 6.0), 1.0, UARCH, Measured),
    (M::Haswell, "store-forwarding", "4+4 -> 8", (15.0, 18.0), 1.0, UARCH, Measured),
    (M::Skylake, "store-forwarding", "8 -> 8", (3.0, 4.5), 1.0, UARCH, Measured),
    (M::Skylake, "store-forwarding", "16 -> 16 vector", (5.0, 5.0), 1.0, UARCH, Measured),
    (M::Skylake, "store-forwarding", "4 -> 8", (13.0, 15.0), 1.0, UARCH, Measured),
    (M::CascadeLake, "store-forwarding", "8 -> 8", (4.4, 4.5), 1.0, OWN, Own),
    (M::CascadeLake, "store-forwarding", "8 -> 4 at +4", (5.0, 5.0), 1.0, OWN, Own),
    (M::CascadeLake, "store-forwarding", "16 -> 16 vector", (5.0, 5.0), 1.0, OWN, Own),
    (M::CascadeLake, "store-forwarding", "4 -> 8", (15.0, 15.0), 1.0, OWN, Own),
    (M::CascadeLake, "store-forwarding", "4+4 -> 8", (15.0, 16.0), 1.0, OWN, Own),
    (M::CascadeLake, "store-forwarding", "8+8 -> 16 vector", (16.0, 16.0), 1.0, OWN, Own),
    (M::CascadeLake, "store-forwarding", "16 -> 8 at +4 vector", (15.0, 15.0), 1.0, OWN, Own),
    (M::SunnyCove, "store-forwarding", "8 -> 8", (0.0, 0.6), 1.0, UARCH, Measured),
    (M::SunnyCove, "store-forwarding", "16 -> 16 vector", (5.0, 5.0), 1.0, UARCH, Measured),
    (M::SunnyCove, "store-forwarding", "4+4 -> 8", (17.0, 22.0), 1.0, UARCH, Measured),
    (M::GoldenCove, "store-forwarding", "8 -> 4 at +4", (5.0, 5.0), 1.0, JIEGEC, Measured),
    (M::GoldenCove, "store-forwarding", "4+4 -> 8", (19.0, 19.0), 1.0, JIEGEC, Measured),
    (M::RedwoodCove, "store-forwarding", "8 -> 4 at +4", (5.0, 5.0), 1.0, JIEGEC, Measured),
    (M::RedwoodCove, "store-forwarding", "4+4 -> 8", (19.0, 19.0), 1.0, JIEGEC, Measured),
    (M::Gracemont, "store-forwarding", "4 -> 8", (11.0, 11.0), 1.0, JIEGEC, Measured),
    (M::Zen2, "store-forwarding", "8 -> 8", (1.0, 1.0), 1.0, UARCH, Measured),
    (M::Zen2, "store-forwarding", "16 -> 16 vector", (8.0, 8.0), 1.0, UARCH, Measured),
    (M::Zen2, "store-forwarding", "4 -> 8", (21.0, 21.0), 1.0, DANLARK, Measured),
    (M::Zen2, "store-forwarding", "4+4 -> 8", (21.0, 24.5), 1.0, UARCH, Measured),
    (M::Zen4, "store-forwarding", "16 -> 16 vector", (7.0, 7.0), 1.0, AMD, Evidence::Vendor),
    (M::Zen4, "store-forwarding", "4 -> 8", (19.0, 19.0), 1.0, AMD, Evidence::Vendor),
    (M::Zen5, "store-forwarding", "8 -> 4 at +4", (8.0, 8.0), 1.0, JIEGEC, Measured),
    (M::Zen5, "store-forwarding", "4 -> 8", (14.0, 15.0), 1.0, JIEGEC, Measured),
];

/// The rows of a probe for `design` beside what was measured. Empty for a core that is not in the
/// table.
pub(super) fn compare(
    design: M,
    probe: &str,
    measured: impl Fn(&str) -> Option<Measurement>,
) -> Vec<Published> {
    let rows = ROWS.iter().filter(|row| row.0 == design && row.1 == probe);
    rows.map(|&(_, _, quantity, (low, high), tolerance, source, evidence)| {
        let measured = measured(quantity);
        let near = |m: &Measurement| m.low <= high + tolerance && m.high >= low - tolerance;
        Published {
            quantity: quantity.to_owned(),
            low,
            high,
            tolerance,
            source: source.to_owned(),
            evidence,
            agrees: measured.as_ref().map(near),
            measured,
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_whole_and_about_probes_that_exist() {
        for (_, probe, _, range, tolerance, source, _) in ROWS {
            assert!(super::super::find(probe).is_ok(), "{probe}");
            assert!(range.0 <= range.1 && *tolerance > 0.0 && !source.is_empty());
        }
    }

    #[test]
    fn an_unknown_core_has_no_rows_and_nothing_measured_is_no_disagreement() {
        assert!(compare(M::Unknown, "icache-sets", |_| None).is_empty());
        let rows = compare(M::Zen5, "icache-sets", |_| None);
        assert!(!rows.is_empty() && rows.iter().all(|r| r.agrees.is_none()));
    }
}
