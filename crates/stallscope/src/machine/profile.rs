//! The machine profile: what this processor charges, and who says so.
//!
//! Hazard rules and the simulator ask it for prices and rules. A price is *documented* (somebody
//! published or measured it for this core design), *probed* (measured on this very machine) or
//! *assumed* (a range that holds for most designs). It is a small JSON file with a version, so a
//! profile can be taken on one machine and used for another.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Machine;
use super::known::Microarchitecture;

/// Version of the JSON form; a reader refuses a larger one.
pub const PROFILE_VERSION: u32 = 1;

/// What can go wrong with a profile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The text is no profile.
    #[error("not a machine profile: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Written by a newer program.
    #[error(
        "machine profile version {found} is newer than {PROFILE_VERSION}, which this program reads"
    )]
    TooNew {
        /// The version in the file.
        found: u32,
    },
}

/// Where a price comes from, weakest last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum PriceOrigin {
    /// Measured on this machine by a probe.
    Probed {
        /// Id of the probe.
        probe: String,
    },
    /// Published or measured elsewhere for this core design.
    Documented {
        /// Who said so.
        source: String,
    },
    /// Nothing is known about this design; the range covers most.
    Assumed,
}

/// A price in core cycles as a range, with its origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PriceRange {
    /// Least plausible price, core cycles.
    pub low_cycles: f64,
    /// Largest plausible price, core cycles.
    pub high_cycles: f64,
    /// Who says so.
    pub origin: PriceOrigin,
}

/// When a store may serve a later load out of the store buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ForwardingRule {
    /// Every byte of the load must come from one store, at whatever offset. Holds for the scalar
    /// accesses of all x86-64 designs in the table; Gracemont is stricter.
    SingleStoreContains,
}

/// Prices and rules of one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineProfile {
    /// Version of this form, [`PROFILE_VERSION`] when written by this program.
    pub version: u32,
    /// The core design it was made for.
    pub microarchitecture: Microarchitecture,
    /// Extra latency of a load that overlaps a store in flight and cannot be forwarded.
    pub store_forward_blocked_cycles: PriceRange,
    /// When forwarding works.
    pub forwarding_rule: ForwardingRule,
}

/// (design, low, high, source). Cycles from load to use when blocked.
const STORE_FORWARD_BLOCKED: &[(Microarchitecture, f64, f64, &str)] = &[
    (Microarchitecture::SandyBridge, 17.0, 20.0, "uarch-bench, published results"),
    (Microarchitecture::Haswell, 15.0, 18.0, "uarch-bench, published results"),
    (Microarchitecture::Skylake, 13.0, 16.0, SKYLAKE_SOURCE),
    (Microarchitecture::SkylakeServer, 13.0, 16.0, SKYLAKE_SOURCE),
    (Microarchitecture::CascadeLake, 13.0, 16.0, SKYLAKE_SOURCE),
    (Microarchitecture::SunnyCove, 17.0, 22.0, "uarch-bench, published results"),
    (Microarchitecture::GoldenCove, 19.0, 19.0, "jiegec, published measurement"),
    (Microarchitecture::RedwoodCove, 19.0, 19.0, "jiegec, published measurement"),
    (Microarchitecture::Zen2, 21.0, 25.0, "uarch-bench, published results"),
    (Microarchitecture::Zen4, 13.0, 19.0, "LLVM pull request 199606 (13); AMD guide (19)"),
    (Microarchitecture::Zen5, 13.0, 15.0, "LLVM pull request 199606 (13); jiegec (14-15)"),
];

const SKYLAKE_SOURCE: &str = "own feasibility study on Cascade Lake; uarch-bench agrees";

impl MachineProfile {
    /// The profile of a machine that nobody has probed yet.
    #[must_use]
    pub fn for_machine(machine: &Machine) -> Self {
        Self::for_microarchitecture(machine.microarchitecture)
    }

    /// The same from the design alone, for a binary that will run elsewhere.
    #[must_use]
    pub fn for_microarchitecture(design: Microarchitecture) -> Self {
        let row = STORE_FORWARD_BLOCKED.iter().find(|r| r.0 == design);
        let blocked = match row {
            Some((_, low, high, source)) => PriceRange {
                low_cycles: *low,
                high_cycles: *high,
                origin: PriceOrigin::Documented { source: (*source).to_owned() },
            },
            None => {
                PriceRange { low_cycles: 10.0, high_cycles: 20.0, origin: PriceOrigin::Assumed }
            }
        };
        Self {
            version: PROFILE_VERSION,
            microarchitecture: design,
            store_forward_blocked_cycles: blocked,
            forwarding_rule: ForwardingRule::SingleStoreContains,
        }
    }

    /// Reads the JSON form.
    ///
    /// # Errors
    /// [`ProfileError::TooNew`] for a newer version, [`ProfileError::Malformed`] for anything else.
    pub fn from_json(text: &str) -> Result<Self, ProfileError> {
        let value: serde_json::Value = serde_json::from_str(text)?;
        // The version comes first: a newer profile may hold what this program cannot parse.
        let found = value.get("version").and_then(serde_json::Value::as_u64);
        match found.map(|v| u32::try_from(v).unwrap_or(u32::MAX)) {
            Some(found) if found > PROFILE_VERSION => Err(ProfileError::TooNew { found }),
            _ => Ok(serde_json::from_value(value)?),
        }
    }

    /// The JSON form.
    ///
    /// # Errors
    /// [`ProfileError::Malformed`] when a price is not a finite number.
    pub fn to_json(&self) -> Result<String, ProfileError> {
        Ok(serde_json::to_string_pretty(self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::invented;
    use super::*;

    #[test]
    fn known_designs_are_documented_and_others_assumed() {
        let of = |facts| MachineProfile::for_machine(&Machine::from_facts(&facts));
        let clx = of(invented::cascade_lake_guest()).store_forward_blocked_cycles;
        assert_eq!((clx.low_cycles, clx.high_cycles), (13.0, 16.0));
        let zen = of(invented::zen_5_guest()).store_forward_blocked_cycles;
        assert!(matches!(zen.origin, PriceOrigin::Documented { .. }));
        let none = of(invented::unknown_vendor()).store_forward_blocked_cycles;
        assert_eq!(none.origin, PriceOrigin::Assumed);
        assert!(none.low_cycles < none.high_cycles);
    }

    #[test]
    fn the_json_form_has_a_version_and_refuses_the_future() {
        let profile = MachineProfile::for_microarchitecture(Microarchitecture::Zen5);
        let text = profile.to_json().unwrap();
        assert_eq!(MachineProfile::from_json(&text).unwrap(), profile);
        let newer = text.replacen("\"version\": 1", "\"version\": 2, \"more\": []", 1);
        let error = MachineProfile::from_json(&newer).unwrap_err();
        assert!(matches!(error, ProfileError::TooNew { found: 2 }));
        assert!(MachineProfile::from_json("{").is_err());
    }
}
