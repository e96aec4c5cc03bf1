//! (table) Family, model and stepping to core design and product.
//!
//! Sources: the model lists of the Linux kernel (`intel-family.h`, the Zen ranges in `amd.c`) and
//! of `perf` (`mapfile.csv`, which tells Cascade Lake from Skylake-SP by stepping). The column
//! `jcc` follows Intel's "Mitigations for Jump Conditional Code Erratum": Skylake up to Cascade
//! Lake and Comet Lake. A part that is not here is `unknown`, which is a value, not an error.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Vendor;
use super::caches::{Cache, CacheKind};
use super::facts::Facts;

macro_rules! microarchitectures {
    ($($variant:ident $name:literal,)*) => {
        /// A core design. Prices and rules belong to a design, not to a product.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum Microarchitecture {
            $(#[doc = $name] $variant,)*
            /// Not in the table.
            Unknown,
        }

        impl Microarchitecture {
            /// All that are in the table.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name that people use.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Unknown => "unknown",
                }
            }
        }
    };
}

microarchitectures! {
    Nehalem "Nehalem",
    Westmere "Westmere",
    SandyBridge "Sandy Bridge",
    IvyBridge "Ivy Bridge",
    Haswell "Haswell",
    Broadwell "Broadwell",
    Skylake "Skylake",
    SkylakeServer "Skylake-SP",
    CascadeLake "Cascade Lake",
    PalmCove "Palm Cove",
    SunnyCove "Sunny Cove",
    WillowCove "Willow Cove",
    CypressCove "Cypress Cove",
    GoldenCove "Golden Cove",
    RedwoodCove "Redwood Cove",
    LionCove "Lion Cove",
    Gracemont "Gracemont",
    Crestmont "Crestmont",
    Skymont "Skymont",
    Zen1 "Zen",
    ZenPlus "Zen+",
    Zen2 "Zen 2",
    Zen3 "Zen 3",
    Zen4 "Zen 4",
    Zen5 "Zen 5",
    NeoverseN1 "Neoverse N1",
    NeoverseV2 "Neoverse V2",
    AppleFirestorm "Apple Firestorm",
    AmpereSkylark "Ampere Skylark",
}

impl Microarchitecture {
    /// The name as it can be typed: `cascade-lake`, `zen+`.
    #[must_use]
    pub fn slug(self) -> String {
        self.name().to_lowercase().replace(' ', "-")
    }

    /// Whether it is an AArch64 design; the others are x86-64.
    #[must_use]
    pub fn is_aarch64(self) -> bool {
        matches!(
            self,
            Self::NeoverseN1 | Self::NeoverseV2 | Self::AppleFirestorm | Self::AmpereSkylark
        )
    }

    /// Whether any part of the design has Intel's erratum on jumps at 32-byte boundaries; see
    /// [`super::Machine::jcc_erratum`].
    pub(super) fn has_jcc(self) -> bool {
        INTEL.iter().any(|row| row.core == self && row.jcc)
    }
}

/// A name that no design has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown design `{name}`; known: {}", Microarchitecture::ALL.iter().map(|d| d.slug()).collect::<Vec<_>>().join(", "))]
pub struct UnknownDesign {
    name: String,
}

impl FromStr for Microarchitecture {
    type Err = UnknownDesign;

    /// The design that `name` means, whatever its case, blanks and hyphens.
    fn from_str(name: &str) -> Result<Self, UnknownDesign> {
        let plain = |text: &str| -> String {
            let counts = |c: &char| c.is_ascii_alphanumeric() || *c == '+';
            text.chars().filter(counts).map(|c| c.to_ascii_lowercase()).collect()
        };
        let mut all = Self::ALL.iter().copied();
        all.find(|design| plain(design.name()) == plain(name))
            .ok_or_else(|| UnknownDesign { name: name.to_owned() })
    }
}

impl fmt::Display for Microarchitecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub vendor: Vendor,
    pub family: u32,
    pub model: u32,
    pub stepping: u32,
    pub hybrid: bool,
    pub efficient_core: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub microarchitecture: Microarchitecture,
    pub codename: Option<&'static str>,
    pub jcc_erratum: bool,
}

/// One line: models and steppings are inclusive ranges.
struct Row {
    family: u32,
    models: (u32, u32),
    steppings: (u32, u32),
    core: Microarchitecture,
    /// The efficiency core of a hybrid part.
    small_core: Option<Microarchitecture>,
    codename: &'static str,
    jcc: bool,
}

use Microarchitecture as M;

const fn intel(model: u32, core: M, codename: &'static str) -> Row {
    Row {
        family: 6,
        models: (model, model),
        steppings: (0, 15),
        core,
        small_core: None,
        codename,
        jcc: false,
    }
}

/// A Skylake-derived part whose microcode keeps jumps at 32-byte boundaries out of the DSB.
const fn jcc(model: u32, steppings: (u32, u32), core: M, codename: &'static str) -> Row {
    Row { steppings, jcc: true, ..intel(model, core, codename) }
}

const fn hybrid(model: u32, core: M, small: M, codename: &'static str) -> Row {
    Row { small_core: Some(small), ..intel(model, core, codename) }
}

const fn amd(family: u32, models: (u32, u32), core: M, codename: &'static str) -> Row {
    Row { family, models, ..intel(0, core, codename) }
}

const INTEL: &[Row] = &[
    intel(0x1a, M::Nehalem, "Gainestown/Bloomfield"),
    intel(0x1e, M::Nehalem, "Lynnfield"),
    intel(0x1f, M::Nehalem, "Havendale"),
    intel(0x2e, M::Nehalem, "Beckton"),
    intel(0x25, M::Westmere, "Arrandale/Clarkdale"),
    intel(0x2c, M::Westmere, "Gulftown"),
    intel(0x2f, M::Westmere, "Eagleton"),
    intel(0x2a, M::SandyBridge, "Sandy Bridge"),
    intel(0x2d, M::SandyBridge, "Sandy Bridge-EP"),
    intel(0x3a, M::IvyBridge, "Ivy Bridge"),
    intel(0x3e, M::IvyBridge, "Ivy Bridge-EP"),
    intel(0x3c, M::Haswell, "Haswell"),
    intel(0x3f, M::Haswell, "Haswell-EP"),
    intel(0x45, M::Haswell, "Haswell-ULT"),
    intel(0x46, M::Haswell, "Crystal Well"),
    intel(0x3d, M::Broadwell, "Broadwell-U"),
    intel(0x47, M::Broadwell, "Broadwell-H"),
    intel(0x4f, M::Broadwell, "Broadwell-EP"),
    intel(0x56, M::Broadwell, "Broadwell-DE"),
    jcc(0x4e, (0, 15), M::Skylake, "Skylake-U/Y"),
    jcc(0x5e, (0, 15), M::Skylake, "Skylake-S/H"),
    jcc(0x55, (0, 4), M::SkylakeServer, "Skylake-SP"),
    jcc(0x55, (5, 9), M::CascadeLake, "Cascade Lake-SP"),
    // Cooper Lake came after the erratum's list; `perf` counts it as Cascade Lake.
    Row { steppings: (10, 15), ..intel(0x55, M::CascadeLake, "Cooper Lake") },
    jcc(0x8e, (0, 9), M::Skylake, "Kaby Lake-U"),
    jcc(0x8e, (10, 15), M::Skylake, "Coffee/Whiskey/Comet Lake-U"),
    jcc(0x9e, (0, 9), M::Skylake, "Kaby Lake-S/H"),
    jcc(0x9e, (10, 15), M::Skylake, "Coffee Lake"),
    jcc(0xa5, (0, 15), M::Skylake, "Comet Lake-S/H"),
    jcc(0xa6, (0, 15), M::Skylake, "Comet Lake-U"),
    intel(0x66, M::PalmCove, "Cannon Lake"),
    intel(0x7d, M::SunnyCove, "Ice Lake"),
    intel(0x7e, M::SunnyCove, "Ice Lake-U"),
    intel(0x6a, M::SunnyCove, "Ice Lake-SP"),
    intel(0x6c, M::SunnyCove, "Ice Lake-D"),
    intel(0x8c, M::WillowCove, "Tiger Lake-U"),
    intel(0x8d, M::WillowCove, "Tiger Lake-H"),
    intel(0xa7, M::CypressCove, "Rocket Lake"),
    hybrid(0x97, M::GoldenCove, M::Gracemont, "Alder Lake-S"),
    hybrid(0x9a, M::GoldenCove, M::Gracemont, "Alder Lake-P"),
    intel(0xbe, M::Gracemont, "Alder Lake-N"),
    // Raptor Cove is Golden Cove with a larger second-level cache.
    hybrid(0xb7, M::GoldenCove, M::Gracemont, "Raptor Lake-S"),
    hybrid(0xba, M::GoldenCove, M::Gracemont, "Raptor Lake-P"),
    hybrid(0xbf, M::GoldenCove, M::Gracemont, "Raptor Lake"),
    intel(0x8f, M::GoldenCove, "Sapphire Rapids"),
    intel(0xcf, M::GoldenCove, "Emerald Rapids"),
    hybrid(0xaa, M::RedwoodCove, M::Crestmont, "Meteor Lake-M"),
    hybrid(0xac, M::RedwoodCove, M::Crestmont, "Meteor Lake-S"),
    hybrid(0xb5, M::RedwoodCove, M::Crestmont, "Arrow Lake-U"),
    intel(0xad, M::RedwoodCove, "Granite Rapids"),
    intel(0xae, M::RedwoodCove, "Granite Rapids-D"),
    intel(0xaf, M::Crestmont, "Sierra Forest"),
    intel(0xb6, M::Crestmont, "Grand Ridge"),
    hybrid(0xbd, M::LionCove, M::Skymont, "Lunar Lake"),
    hybrid(0xc5, M::LionCove, M::Skymont, "Arrow Lake-H"),
    hybrid(0xc6, M::LionCove, M::Skymont, "Arrow Lake-S"),
];

/// Narrow ranges first: the first line that fits wins.
const AMD: &[Row] = &[
    amd(0x17, (0x08, 0x08), M::ZenPlus, "Pinnacle Ridge/Colfax"),
    amd(0x17, (0x18, 0x18), M::ZenPlus, "Picasso"),
    amd(0x17, (0x01, 0x01), M::Zen1, "Naples/Summit Ridge"),
    amd(0x17, (0x11, 0x11), M::Zen1, "Raven Ridge"),
    amd(0x17, (0x00, 0x2f), M::Zen1, "Zen"),
    amd(0x17, (0x50, 0x5f), M::Zen1, "Zen"),
    amd(0x17, (0x31, 0x31), M::Zen2, "Rome/Castle Peak"),
    amd(0x17, (0x60, 0x6f), M::Zen2, "Renoir/Lucienne"),
    amd(0x17, (0x71, 0x71), M::Zen2, "Matisse"),
    amd(0x17, (0x90, 0x91), M::Zen2, "Van Gogh"),
    amd(0x17, (0xa0, 0xaf), M::Zen2, "Mendocino"),
    amd(0x17, (0x30, 0x4f), M::Zen2, "Zen 2"),
    amd(0x17, (0x70, 0x7f), M::Zen2, "Zen 2"),
    amd(0x19, (0x00, 0x07), M::Zen3, "Milan"),
    amd(0x19, (0x08, 0x0f), M::Zen3, "Chagall"),
    amd(0x19, (0x10, 0x17), M::Zen4, "Genoa"),
    amd(0x19, (0x18, 0x1f), M::Zen4, "Storm Peak"),
    amd(0x19, (0x20, 0x2f), M::Zen3, "Vermeer"),
    amd(0x19, (0x30, 0x3f), M::Zen3, "Trento"),
    amd(0x19, (0x40, 0x4f), M::Zen3, "Rembrandt"),
    amd(0x19, (0x50, 0x5f), M::Zen3, "Cezanne"),
    amd(0x19, (0x60, 0x6f), M::Zen4, "Raphael"),
    amd(0x19, (0x70, 0x7f), M::Zen4, "Phoenix"),
    amd(0x19, (0xa0, 0xaf), M::Zen4, "Bergamo/Siena"),
    amd(0x19, (0x80, 0x9f), M::Zen4, "Zen 4"),
    amd(0x1a, (0x00, 0x0f), M::Zen5, "Turin"),
    amd(0x1a, (0x10, 0x1f), M::Zen5, "Turin Dense"),
    amd(0x1a, (0x20, 0x2f), M::Zen5, "Strix Point"),
    amd(0x1a, (0x40, 0x4f), M::Zen5, "Granite Ridge"),
    amd(0x1a, (0x60, 0x6f), M::Zen5, "Krackan Point"),
    amd(0x1a, (0x70, 0x7f), M::Zen5, "Strix Halo"),
];

/// What the table knows; all-unknown when no line fits.
impl Known {
    /// What a hypervisor says of family and model may be made up; a guest can use what it was not told of,
    /// but it cannot be told of what is not there. An Intel core with `serialize` or tiles is Golden Cove or
    /// later, with 64 KiB of instruction cache Redwood Cove.
    pub(super) fn corrected(self, facts: &Facts, caches: &[Cache]) -> Self {
        const SERIALIZE: u32 = 1 << 14;
        const TILES: u32 = 1 << 24;
        let [_, _, _, features] = facts.leaf(7, 0);
        let is_older = (M::Nehalem..M::GoldenCove).contains(&self.microarchitecture);
        if !is_older || features & (SERIALIZE | TILES) == 0 {
            return self;
        }
        let is_large = |c: &Cache| c.kind == CacheKind::Instruction && c.size_bytes >= 64 << 10;
        let microarchitecture =
            if caches.iter().any(is_large) { M::RedwoodCove } else { M::GoldenCove };
        Self { microarchitecture, codename: None, jcc_erratum: false }
    }
}

pub(super) fn look_up(id: &Identity) -> Known {
    let rows = match id.vendor {
        Vendor::Intel => INTEL,
        Vendor::Amd => AMD,
        Vendor::Other(_) => &[],
    };
    let within = |x: u32, (low, high): (u32, u32)| (low..=high).contains(&x);
    let row = rows.iter().find(|r| {
        r.family == id.family && within(id.model, r.models) && within(id.stepping, r.steppings)
    });
    match row {
        Some(row) => Known {
            microarchitecture: match row.small_core {
                Some(small) if id.efficient_core => small,
                _ => row.core,
            },
            codename: Some(row.codename),
            jcc_erratum: row.jcc,
        },
        None => Known { microarchitecture: M::Unknown, codename: None, jcc_erratum: false },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(vendor: Vendor, family: u32, model: u32, stepping: u32) -> Known {
        look_up(&Identity { vendor, family, model, stepping, hybrid: false, efficient_core: false })
    }

    #[test]
    fn what_a_core_can_do_goes_before_what_it_is_called() {
        let known = ask(Vendor::Intel, 6, 0xa7, 1);
        let with = |features: u32, code_bytes: u64| {
            let mut facts = Facts::default();
            facts.cpuid.insert((7, 0), [0, 0, 0, features]);
            let code = Cache {
                level: 1,
                kind: CacheKind::Instruction,
                size_bytes: code_bytes,
                ways: 8,
                sets: 64,
                line_bytes: 64,
                origin: super::super::Origin::Cpuid,
            };
            known.corrected(&facts, &[code]).microarchitecture
        };
        assert_eq!(with(0, 32 << 10), M::CypressCove);
        assert_eq!(with(1 << 14, 32 << 10), M::GoldenCove);
        assert_eq!(with(1 << 24, 64 << 10), M::RedwoodCove);
        let zen = ask(Vendor::Amd, 0x1a, 2, 1);
        let mut facts = Facts::default();
        facts.cpuid.insert((7, 0), [0, 0, 0, 1 << 14]);
        assert_eq!(zen.corrected(&facts, &[]), zen);
    }

    #[test]
    fn stepping_tells_skylake_from_cascade_lake() {
        let skx = ask(Vendor::Intel, 6, 0x55, 4);
        let clx = ask(Vendor::Intel, 6, 0x55, 7);
        assert_eq!(skx.microarchitecture, M::SkylakeServer);
        assert_eq!(clx.microarchitecture, M::CascadeLake);
        assert!(skx.jcc_erratum && clx.jcc_erratum);
        assert!(!ask(Vendor::Intel, 6, 0x55, 11).jcc_erratum);
        assert!(!ask(Vendor::Intel, 6, 0x6a, 6).jcc_erratum);
    }

    #[test]
    fn a_design_is_found_by_its_name() {
        for (name, design) in [
            ("cascade-lake", M::CascadeLake),
            ("Zen 5", M::Zen5),
            ("zen+", M::ZenPlus),
            ("zen", M::Zen1),
            ("ZEN 4", M::Zen4),
            ("neoverse-v2", M::NeoverseV2),
        ] {
            assert_eq!(name.parse(), Ok(design));
        }
        let error = "6502".parse::<M>().unwrap_err().to_string();
        assert!(error.starts_with("unknown design `6502`; known: nehalem, westmere, "), "{error}");
        assert!("unknown".parse::<M>().is_err() && "".parse::<M>().is_err());
        assert!(M::ALL.iter().all(|design| design.slug().parse() == Ok(*design)));
    }

    #[test]
    fn zen_by_ranges() {
        let zen = |family, model| ask(Vendor::Amd, family, model, 0).microarchitecture;
        assert_eq!(zen(0x17, 0x01), M::Zen1);
        assert_eq!(zen(0x17, 0x08), M::ZenPlus);
        assert_eq!(zen(0x17, 0x31), M::Zen2);
        assert_eq!(zen(0x19, 0x21), M::Zen3);
        assert_eq!(zen(0x19, 0x11), M::Zen4);
        assert_eq!(zen(0x1a, 0x02), M::Zen5);
        assert_eq!(zen(0x1a, 0xf0), M::Unknown);
    }

    #[test]
    fn a_vendor_decides_before_the_numbers_do() {
        assert_eq!(ask(Vendor::Amd, 6, 0x55, 4).microarchitecture, M::Unknown);
        assert_eq!(ask(Vendor::Other("x".into()), 0x1a, 2, 1).microarchitecture, M::Unknown);
    }

    #[test]
    fn no_intel_line_hides_another() {
        for (i, a) in INTEL.iter().enumerate() {
            for b in &INTEL[i + 1..] {
                let apart = a.models != b.models
                    || a.steppings.1 < b.steppings.0
                    || b.steppings.1 < a.steppings.0;
                assert!(apart, "{} and {} overlap", a.codename, b.codename);
            }
        }
    }
}
