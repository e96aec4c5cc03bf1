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

struct Row {
    design: M,
    probe: &'static str,
    quantity: &'static str,
    range: (f64, f64),
    tolerance: f64,
    source: &'static str,
    evidence: Evidence,
}

const OWN: &str = "own feasibility study on a Cascade Lake guest";
const JIEGEC: &str = "jiegec, published measurement";

/// A whole number of ways, sets or bytes: nothing but the number itself agrees.
const EXACT: f64 = 0.4;

const fn row(
    design: M,
    probe: &'static str,
    quantity: &'static str,
    range: (f64, f64),
    tolerance: f64,
    source: &'static str,
    evidence: Evidence,
) -> Row {
    Row { design, probe, quantity, range, tolerance, source, evidence }
}

use Evidence::{Measured, Own, Quoted};

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row(M::CascadeLake, "string-copy", "rep movsq over 8-byte moves, bytes", (339.0, 346.0), 50.0, OWN, Own),
    row(M::CascadeLake, "string-copy", "rep stosq over 8-byte moves, bytes", (294.0, 297.0), 35.0, OWN, Own),
    row(M::CascadeLake, "string-copy", "rep movsq over SSE, bytes", (1038.0, 1041.0), 150.0, OWN, Own),
    row(M::CascadeLake, "string-copy", "rep movsq, 64 bytes, cycles", (26.0, 28.0), 2.0, OWN, Own),
    row(M::CascadeLake, "string-copy", "rep movsq, 168 bytes, cycles", (39.0, 40.0), 3.0, OWN, Own),
    row(M::CascadeLake, "string-copy", "rep stosb, 1024 bytes, cycles", (65.0, 65.0), 4.0, "uarch-bench, run on a Cascade Lake guest", Measured),
    row(M::Skylake,     "icache-sets", "ways", (8.0, 8.0), EXACT, "CPUID", Evidence::Vendor),
    row(M::CascadeLake, "icache-sets", "ways", (8.0, 8.0), EXACT, OWN, Own),
    row(M::CascadeLake, "icache-sets", "sets", (64.0, 64.0), EXACT, OWN, Own),
    row(M::CascadeLake, "icache-sets", "cost of a miss, cycles", (24.0, 24.0), 6.0, OWN, Own),
    row(M::GoldenCove,  "icache-sets", "ways", (8.0, 8.0), EXACT, JIEGEC, Measured),
    row(M::GoldenCove,  "icache-sets", "sets", (64.0, 64.0), EXACT, JIEGEC, Measured),
    row(M::Zen1,        "icache-sets", "ways", (4.0, 4.0), EXACT, "AnandTech, table", Quoted),
    row(M::Zen1,        "icache-sets", "sets", (256.0, 256.0), EXACT, "AnandTech, table", Quoted),
    row(M::Zen2,        "icache-sets", "ways", (8.0, 8.0), EXACT, JIEGEC, Quoted),
    row(M::Zen3,        "icache-sets", "ways", (8.0, 8.0), EXACT, JIEGEC, Quoted),
    row(M::Zen4,        "icache-sets", "ways", (8.0, 8.0), EXACT, JIEGEC, Quoted),
    row(M::Zen5,        "icache-sets", "ways", (8.0, 8.0), EXACT, JIEGEC, Measured),
    row(M::Zen5,        "icache-sets", "sets", (64.0, 64.0), EXACT, JIEGEC, Measured),
    row(M::CascadeLake, "icache-sync", "CLFLUSH, ns a line", (85.0, 88.0), 15.0, OWN, Own),
    row(M::CascadeLake, "icache-sync", "CPUID, ns", (745.0, 1080.0), 100.0, OWN, Own),
    row(M::CascadeLake, "icache-sync", "iret to itself, ns", (92.0, 108.0), 15.0, OWN, Own),
    row(M::Zen3,        "icache-sync", "CLFLUSH, ns a line", (2.5, 2.7), 1.0, "OpenJDK pull request, one machine", Measured),
    row(M::CascadeLake, "store-elimination", "zero over one, L3", (0.999, 1.001), 0.01, OWN, Own),
    row(M::Haswell,     "store-elimination", "zero over one, L3", (1.0, 1.0), 0.03, "T. Downs, hardware store elimination", Measured),
    row(M::SkylakeServer, "store-elimination", "zero over one, L3", (1.0, 1.0), 0.03, "T. Downs, hardware store elimination", Measured),
    row(M::Zen2,        "store-elimination", "zero over one, L3", (1.0, 1.0), 0.03, "T. Downs, hardware store elimination", Measured),
];

/// The rows of a probe for `design` beside what was measured. Empty for a core that is not in the
/// table.
pub(super) fn compare(
    design: M,
    probe: &str,
    measured: impl Fn(&str) -> Option<Measurement>,
) -> Vec<Published> {
    let rows = ROWS.iter().filter(|r| r.design == design && r.probe == probe);
    rows.map(|r| {
        let measured = measured(r.quantity);
        let near =
            |m: &Measurement| m.low <= r.range.1 + r.tolerance && m.high >= r.range.0 - r.tolerance;
        Published {
            quantity: r.quantity.to_owned(),
            low: r.range.0,
            high: r.range.1,
            tolerance: r.tolerance,
            source: r.source.to_owned(),
            evidence: r.evidence,
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
        for r in ROWS {
            assert!(super::super::find(r.probe).is_ok(), "{}", r.probe);
            assert!(r.range.0 <= r.range.1 && r.tolerance > 0.0 && !r.source.is_empty());
        }
    }

    #[test]
    fn an_unknown_core_has_no_rows_and_nothing_measured_is_no_disagreement() {
        assert!(compare(M::Unknown, "icache-sets", |_| None).is_empty());
        let rows = compare(M::Zen5, "icache-sets", |_| None);
        assert!(!rows.is_empty() && rows.iter().all(|r| r.agrees.is_none()));
    }
}
