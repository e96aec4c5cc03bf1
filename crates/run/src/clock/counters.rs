//! (table) Hardware events by core design: what they are called, how they are encoded, and who
//! says so. `untested on hardware`: no machine with counters has been at hand.
//!
//! An encoding that is off by one mask still counts something, so a name in this table is a claim
//! and not a fact: [`check`] holds it against one kernel that must raise it and one that must not,
//! and an event that fails is not used. Codes are those of the core's own counters, in the form
//! that `perf` calls raw: event in bits 0 to 7 (and 32 to 35 on AMD), mask in bits 8 to 15.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::Microarchitecture::{self as M, *};

/// What is counted.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// Loads that a store in flight could not serve.
    BlockedLoads,
    /// Loads that waited because the low bits of their address are those of a store.
    AliasedLoads,
    /// Fetches that missed the L1 instruction cache.
    FetchMisses,
    /// Switches or misses that send the front end from decoded operations back to the decoders.
    DecodeSwitches,
    /// Lines that left L2 unchanged: dropped instead of written.
    SilentEvictions,
    /// Lines that left L2 changed.
    DirtyEvictions,
    /// Lines written to memory by any core or device.
    MemoryWrites,
}

/// One event of one group of designs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The quantity that it measures.
    pub role: Role,
    /// The designs that have it under this code.
    pub designs: &'static [M],
    /// The event's name in the maker's documents.
    pub name: &'static str,
    /// Event number.
    pub event: u16,
    /// Unit mask.
    pub mask: u8,
    /// Outside the core: how the names of the units begin that count it, each for itself and for
    /// the whole machine.
    pub units: Option<&'static str>,
    /// What to know before believing it; empty where there is nothing.
    pub note: &'static str,
    /// The document that gives the encoding.
    pub source: &'static str,
}

const INTEL: &str = "Intel perfmon event files, 2026-08";
const AMD: &str = "AMD processor programming references, through Linux pmu-events";

const SKYLAKES: &[M] = &[Skylake, SkylakeServer, CascadeLake];
const SKYLAKE_TO_ICE: &[M] = &[Skylake, SkylakeServer, CascadeLake, SunnyCove, WillowCove];
const GOLDEN: &[M] = &[GoldenCove, RedwoodCove];
const GOLDEN_ON: &[M] = &[GoldenCove, RedwoodCove, LionCove];
const ZEN_2_TO_5: &[M] = &[Zen2, Zen3, Zen4, Zen5];
const ZEN_3_TO_5: &[M] = &[Zen3, Zen4, Zen5];

const fn row(
    role: Role,
    designs: &'static [M],
    name: &'static str,
    (event, mask): (u16, u8),
    note: &'static str,
    source: &'static str,
) -> Counter {
    Counter { role, designs, name, event, mask, units: None, note, source }
}

/// Of the memory controllers.
const fn memory(
    designs: &'static [M],
    name: &'static str,
    units: &'static str,
    (event, mask): (u16, u8),
    source: &'static str,
) -> Counter {
    let (role, units) = (Role::MemoryWrites, Some(units));
    let note = "counts for the whole machine; needs root or perf_event_paranoid 0";
    Counter { role, designs, name, event, mask, units, note, source }
}

/// Every counter that a probe can program, by design.
pub static COUNTERS: &[Counter] = &[
    row(
        Role::BlockedLoads,
        SKYLAKE_TO_ICE,
        "LD_BLOCKS.STORE_FORWARD",
        (0x03, 0x02),
        "not precise: the sample lands behind the load",
        INTEL,
    ),
    row(
        Role::BlockedLoads,
        GOLDEN_ON,
        "LD_BLOCKS.STORE_FORWARD",
        (0x03, 0x82),
        "the mask changed with Golden Cove; the old one counts something else without a word",
        INTEL,
    ),
    row(
        Role::BlockedLoads,
        &[Crestmont, Skymont],
        "LD_BLOCKS.STORE_FORWARD",
        (0x03, 0x02),
        "precise",
        INTEL,
    ),
    row(
        Role::BlockedLoads,
        ZEN_2_TO_5,
        "ls_bad_status2.stli_other",
        (0x24, 0x02),
        "skids; instruction-based sampling has no bit for it",
        AMD,
    ),
    row(
        Role::AliasedLoads,
        SKYLAKE_TO_ICE,
        "LD_BLOCKS_PARTIAL.ADDRESS_ALIAS",
        (0x07, 0x01),
        "",
        INTEL,
    ),
    row(Role::AliasedLoads, GOLDEN_ON, "LD_BLOCKS.ADDRESS_ALIAS", (0x03, 0x04), "", INTEL),
    row(Role::AliasedLoads, &[Gracemont], "LD_BLOCKS.ADDRESS_ALIAS", (0x03, 0x04), "", INTEL),
    row(
        Role::FetchMisses,
        SKYLAKE_TO_ICE,
        "ICACHE_64B.IFTAG_MISS",
        (0x83, 0x02),
        "counts lookups of tags, prefetches among them",
        INTEL,
    ),
    row(
        Role::FetchMisses,
        &[Gracemont, Crestmont, Skymont],
        "ICACHE.MISSES",
        (0x80, 0x02),
        "",
        INTEL,
    ),
    row(Role::FetchMisses, &[Zen2], "ic_fw32_miss", (0x81, 0x00), "", AMD),
    row(
        Role::FetchMisses,
        ZEN_3_TO_5,
        "ic_tag_hit_miss.instruction_cache_miss",
        (0x18e, 0x18),
        "hits in the cache of decoded operations never get here",
        AMD,
    ),
    row(Role::DecodeSwitches, SKYLAKES, "DSB2MITE_SWITCHES.COUNT", (0xab, 0x01), "", INTEL),
    row(
        Role::DecodeSwitches,
        GOLDEN,
        "DSB2MITE_SWITCHES.PENALTY_CYCLES",
        (0x61, 0x02),
        "cycles, not switches",
        INTEL,
    ),
    row(
        Role::DecodeSwitches,
        &[Zen2],
        "ic_oc_mode_switch.oc_ic_mode_switch",
        (0x28a, 0x02),
        "",
        AMD,
    ),
    row(
        Role::DecodeSwitches,
        ZEN_3_TO_5,
        "op_cache_hit_miss.op_cache_miss",
        (0x28f, 0x04),
        "",
        AMD,
    ),
    row(Role::SilentEvictions, SKYLAKE_TO_ICE, "L2_LINES_OUT.SILENT", (0xf2, 0x01), "", INTEL),
    row(Role::SilentEvictions, GOLDEN_ON, "L2_LINES_OUT.SILENT", (0x26, 0x01), "", INTEL),
    row(Role::DirtyEvictions, SKYLAKE_TO_ICE, "L2_LINES_OUT.NON_SILENT", (0xf2, 0x02), "", INTEL),
    row(Role::DirtyEvictions, GOLDEN_ON, "L2_LINES_OUT.NON_SILENT", (0x26, 0x02), "", INTEL),
    row(
        Role::DirtyEvictions,
        &[Crestmont, Skymont],
        "L2_LINES_OUT.NON_SILENT",
        (0x26, 0x02),
        "",
        INTEL,
    ),
    memory(&[SkylakeServer, CascadeLake], "UNC_M_CAS_COUNT.WR", "uncore_imc_", (0x04, 0x0c), INTEL),
    memory(&[SunnyCove], "UNC_M_CAS_COUNT.WR", "uncore_imc_", (0x04, 0x30), INTEL),
    memory(&[GoldenCove], "UNC_M_CAS_COUNT.WR", "uncore_imc_", (0x05, 0xf0), INTEL),
    // The mask is the direction.
    memory(&[Zen4, Zen5], "umc_cas_cmd.wr", "amd_umc_", (0x0a, 0x02), AMD),
];

impl Counter {
    /// The event of that role on that design; `None` where its maker publishes none.
    #[must_use]
    pub fn of(design: M, role: Role) -> Option<&'static Self> {
        COUNTERS.iter().find(|c| c.role == role && c.designs.contains(&design))
    }

    /// As `perf_event_attr.config` of a raw event takes it.
    #[must_use]
    pub fn config(&self) -> u64 {
        let (event, mask) = (u64::from(self.event), u64::from(self.mask));
        (event & 0xff) | (mask << 8) | ((event >> 8) << 32)
    }
}

/// Counts one event while something runs, so that tests can be another processor.
pub trait EventCounter {
    /// The count of the raw event `config` for this thread in user mode.
    ///
    /// # Errors
    /// The `errno` of the call that failed; `EBUSY` where the event had to share its counter.
    fn count(&mut self, config: u64, run: &mut dyn FnMut()) -> Result<u64, i32>;
}

/// What became of an event on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "state")]
#[non_exhaustive]
pub enum CounterState {
    /// It rose where it must, and only there.
    Believed,
    /// It opened, but counts something else, or nothing.
    Disproved,
    /// The kernel refused it.
    Refused {
        /// The cause as a number of the operating system.
        errno: i32,
    },
}

/// An event and how it behaved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CounterCheck {
    /// The event's name in the maker's documents.
    pub name: String,
    /// The value of `perf_event_attr.config`.
    pub config: u64,
    /// Whether its count may be used.
    pub state: CounterState,
    /// Per repetition of the kernel that must raise it.
    pub raised: Option<f64>,
    /// Per repetition of the kernel that must not.
    pub silent: Option<f64>,
    /// The document that gives the encoding.
    pub source: String,
}

/// At least this many events a repetition where each repetition has one.
const RAISED_FROM: f64 = 0.8;
/// At most this many where there is none.
const SILENT_TO: f64 = 0.05;

/// The two kernels of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contrast {
    /// One such event a repetition.
    Raises,
    /// No such event.
    StaysSilent,
}

/// Holds an event against a kernel that must raise it and one that must not.
pub fn check(
    counter: &Counter,
    kernel: &mut dyn EventCounter,
    repetitions: u64,
    mut run: impl FnMut(Contrast, u64),
) -> CounterCheck {
    let config = counter.config();
    let per_repetition = |count: u64| count as f64 / repetitions.max(1) as f64;
    let mut count =
        |contrast| kernel.count(config, &mut || run(contrast, repetitions)).map(per_repetition);
    let (raised, silent) = (count(Contrast::Raises), count(Contrast::StaysSilent));
    let state = match (raised, silent) {
        (Err(errno), _) | (_, Err(errno)) => CounterState::Refused { errno },
        (Ok(raised), Ok(silent)) if raised >= RAISED_FROM && silent <= SILENT_TO => {
            CounterState::Believed
        }
        _ => CounterState::Disproved,
    };
    CounterCheck {
        name: counter.name.to_owned(),
        config,
        state,
        raised: raised.ok(),
        silent: silent.ok(),
        source: counter.source.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts what its closure says for the config, or refuses.
    struct Invented<'a> {
        count: &'a dyn Fn(u64) -> Result<u64, i32>,
        runs: u64,
    }

    impl EventCounter for Invented<'_> {
        fn count(&mut self, config: u64, run: &mut dyn FnMut()) -> Result<u64, i32> {
            run();
            self.runs += 1;
            let raised = (self.count)(config)?;
            // The first kernel raises it, the second does not.
            Ok(if self.runs % 2 == 1 { raised } else { raised / 1000 })
        }
    }

    fn state(count: &dyn Fn(u64) -> Result<u64, i32>) -> CounterState {
        let counter = Counter::of(CascadeLake, Role::BlockedLoads).unwrap();
        let mut kernel = Invented { count, runs: 0 };
        check(counter, &mut kernel, 1000, |_, _| ()).state
    }

    #[test]
    fn an_event_is_believed_only_after_it_rose_and_stayed() {
        let code = 0x0203;
        assert_eq!(state(&|c| Ok(if c == code { 1000 } else { 0 })), CounterState::Believed);
        // A hypervisor's zero, and an event that counts everything.
        assert_eq!(state(&|_| Ok(0)), CounterState::Disproved);
        assert_eq!(state(&|_| Ok(1_000_000)), CounterState::Disproved);
        assert_eq!(state(&|_| Err(2)), CounterState::Refused { errno: 2 });
    }

    #[test]
    fn codes_are_packed_as_the_kernel_wants_them() {
        let config = |design, role| Counter::of(design, role).unwrap().config();
        assert_eq!(config(CascadeLake, Role::BlockedLoads), 0x0203);
        assert_eq!(config(GoldenCove, Role::BlockedLoads), 0x8203);
        // Event 0x18e: its upper nibble stands in bits 32 to 35.
        assert_eq!(config(Zen4, Role::FetchMisses), 0x1_0000_188e);
        assert!(Counter::of(NeoverseV2, Role::BlockedLoads).is_none());
        assert!(Counter::of(Gracemont, Role::BlockedLoads).is_none());
    }

    #[test]
    fn no_design_has_two_codes_for_one_role() {
        for design in M::ALL {
            for counter in COUNTERS {
                let same = |c: &&Counter| c.role == counter.role && c.designs.contains(design);
                assert!(COUNTERS.iter().filter(same).count() <= 1, "{design:?} {counter:?}");
            }
        }
    }
}
