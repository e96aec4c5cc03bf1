//! (table) What others have published about forwarding, core by core.
//!
//! Cycles per dependent round trip unless the source measured otherwise. A figure agrees when the
//! measured interval comes within the tolerance of the published range: sources count the moves
//! between registers differently, by about a cycle.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::case::{Case, Registers};
use crate::machine::Microarchitecture;
use crate::model::Measurement;
use crate::probes::published::{Evidence, Published};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    /// 8 bytes stored, the same 8 loaded, same base register.
    SameAddress,
    /// 8 bytes stored, their upper half loaded.
    UpperHalf,
    /// 16 bytes stored and loaded through vector registers.
    Vector,
    /// 4 bytes stored, 8 loaded.
    WiderLoad,
    /// Two 4-byte stores, 8 bytes loaded.
    TwoHalves,
    /// Two 8-byte stores, 16 bytes loaded.
    TwoHalvesVector,
    /// 16 bytes stored, 8 loaded at 4.
    AcrossTheMiddle,
}

impl Quantity {
    fn case(self) -> Case {
        use Registers::{General, Vector};
        match self {
            Self::SameAddress => Case::pair(General, 8, 8, 0),
            Self::UpperHalf => Case::pair(General, 8, 4, 4),
            Self::Vector => Case::pair(Vector, 16, 16, 0),
            Self::WiderLoad => Case::pair(General, 4, 8, 0),
            Self::TwoHalves => Case::several(General, &[(0, 4), (4, 4)], 8),
            Self::TwoHalvesVector => Case::several(Vector, &[(0, 8), (8, 8)], 16),
            Self::AcrossTheMiddle => Case::pair(Vector, 16, 8, 4),
        }
    }
}

use Microarchitecture as M;
use Quantity as Q;

const OWN: &str = "own feasibility study on a Cascade Lake guest";
const UARCH: &str = "uarch-bench, published results";
const JIEGEC: &str = "jiegec, published measurement";
const AMD: &str = "AMD, optimisation guide of family 19h; Chips and Cheese";
const DANLARK: &str = "danlark1, store_forwarding, published results";

/// (design, what, least, most, source), core cycles.
#[rustfmt::skip]
const ROWS: &[(M, Q, f64, f64, &str)] = &[
    (M::SandyBridge,   Q::SameAddress,      5.0,  6.3, UARCH),
    (M::SandyBridge,   Q::Vector,           7.4,  7.4, UARCH),
    (M::SandyBridge,   Q::TwoHalves,       17.0, 20.0, UARCH),
    (M::Haswell,       Q::SameAddress,      5.3,  5.3, UARCH),
    (M::Haswell,       Q::Vector,           6.0,  6.0, UARCH),
    (M::Haswell,       Q::TwoHalves,       15.0, 18.0, UARCH),
    (M::Skylake,       Q::SameAddress,      3.0,  4.5, UARCH),
    (M::Skylake,       Q::Vector,           5.0,  5.0, UARCH),
    (M::Skylake,       Q::WiderLoad,       13.0, 15.0, UARCH),
    (M::CascadeLake,   Q::SameAddress,      4.4,  4.5, OWN),
    (M::CascadeLake,   Q::UpperHalf,        5.0,  5.0, OWN),
    (M::CascadeLake,   Q::Vector,           5.0,  5.0, OWN),
    (M::CascadeLake,   Q::WiderLoad,       15.0, 15.0, OWN),
    (M::CascadeLake,   Q::TwoHalves,       15.0, 16.0, OWN),
    (M::CascadeLake,   Q::TwoHalvesVector, 16.0, 16.0, OWN),
    (M::CascadeLake,   Q::AcrossTheMiddle, 15.0, 15.0, OWN),
    (M::SunnyCove,     Q::SameAddress,      0.0,  0.6, UARCH),
    (M::SunnyCove,     Q::Vector,           5.0,  5.0, UARCH),
    (M::SunnyCove,     Q::TwoHalves,       17.0, 22.0, UARCH),
    (M::GoldenCove,    Q::UpperHalf,        5.0,  5.0, JIEGEC),
    (M::GoldenCove,    Q::TwoHalves,       19.0, 19.0, JIEGEC),
    (M::RedwoodCove,   Q::UpperHalf,        5.0,  5.0, JIEGEC),
    (M::RedwoodCove,   Q::TwoHalves,       19.0, 19.0, JIEGEC),
    (M::Gracemont,     Q::WiderLoad,       11.0, 11.0, JIEGEC),
    (M::Zen2,          Q::SameAddress,      1.0,  1.0, UARCH),
    (M::Zen2,          Q::Vector,           8.0,  8.0, UARCH),
    (M::Zen2,          Q::WiderLoad,       21.0, 21.0, DANLARK),
    (M::Zen2,          Q::TwoHalves,       21.0, 24.5, UARCH),
    (M::Zen4,          Q::Vector,           7.0,  7.0, AMD),
    (M::Zen4,          Q::WiderLoad,       19.0, 19.0, AMD),
    (M::Zen5,          Q::UpperHalf,        8.0,  8.0, JIEGEC),
    (M::Zen5,          Q::WiderLoad,       14.0, 15.0, JIEGEC),
];

/// How far a measurement may lie from what was published, core cycles.
const TOLERANCE_CYCLES: f64 = 1.0;

/// A published figure beside the measured one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The case.
    pub case: String,
    /// What was measured here; absent where that was inconclusive.
    pub measured: Option<Measurement>,
    /// Least published value, core cycles.
    pub low_cycles: f64,
    /// Largest published value, core cycles.
    pub high_cycles: f64,
    /// Who published it.
    pub source: String,
    /// Whether they agree; absent where nothing was measured.
    pub agrees: Option<bool>,
}

impl Comparison {
    /// As a row of the list that all probes share.
    pub(super) fn published(&self) -> Published {
        Published {
            quantity: self.case.clone(),
            low: self.low_cycles,
            high: self.high_cycles,
            tolerance: TOLERANCE_CYCLES,
            source: self.source.clone(),
            evidence: match self.source.as_str() {
                OWN => Evidence::Own,
                AMD => Evidence::Vendor,
                _ => Evidence::Measured,
            },
            measured: self.measured.clone(),
            agrees: self.agrees,
        }
    }
}

/// The rows for `design` beside what was measured. Empty for a core that is not in the table.
pub fn compare(
    design: Microarchitecture,
    measured: impl Fn(&Case) -> Option<Measurement>,
) -> Vec<Comparison> {
    let row = |(_, quantity, low, high, source): &(M, Q, f64, f64, &str)| {
        let case = quantity.case();
        let measured = measured(&case);
        let near =
            |m: &Measurement| m.low <= high + TOLERANCE_CYCLES && m.high >= low - TOLERANCE_CYCLES;
        Comparison {
            case: case.to_string(),
            agrees: measured.as_ref().map(near),
            measured,
            low_cycles: *low,
            high_cycles: *high,
            source: (*source).to_owned(),
        }
    };
    ROWS.iter().filter(|r| r.0 == design).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::super::case::all_cases;
    use super::*;

    #[test]
    fn every_row_is_about_a_case_that_is_measured() {
        let cases = all_cases(true);
        for (design, quantity, low, high, source) in ROWS {
            assert!(cases.contains(&quantity.case()), "{design} {quantity:?}");
            assert!(low <= high && !source.is_empty());
        }
    }

    #[test]
    fn an_unknown_core_has_no_rows_and_nothing_measured_is_no_disagreement() {
        assert!(compare(M::Unknown, |_| None).is_empty());
        assert!(compare(M::Zen5, |_| None).iter().all(|c| c.agrees.is_none()));
    }
}
