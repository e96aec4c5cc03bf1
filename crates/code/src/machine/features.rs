//! Features that change what code may cost, or how time may be read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::facts::Facts;

/// CPUID feature bits that matter to a probe or a hazard rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Features {
    /// The time stamp counter runs at one rate in every power state.
    pub invariant_tsc: bool,
    /// `rdtscp` exists.
    pub rdtscp: bool,
    /// `serialize` exists: a serialising instruction that does not trap to a hypervisor.
    pub serialize: bool,
    /// 256-bit vectors exist, and instructions with three operands for narrower ones.
    #[serde(default)]
    pub avx: bool,
    /// 256-bit vectors hold integers.
    #[serde(default)]
    pub avx2: bool,
    /// 512-bit vectors exist (their use can lower the clock).
    pub avx512f: bool,
    /// `rep movsb` and `rep stosb` are fast for long lengths.
    pub erms: bool,
    /// `rep movsb` is fast for short lengths too.
    pub fsrm: bool,
    /// `clflushopt` exists.
    pub clflushopt: bool,
    /// `clwb` exists.
    pub clwb: bool,
}

/// What CPUID promises about performance counters. A promise is not a counter: only opening
/// and counting decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CounterLeaf {
    /// Version of Intel's architectural monitoring (leaf 0xA); 0 means none.
    pub intel_version: u8,
    /// AMD's second version of monitoring (leaf 0x80000022).
    pub amd_perfmon_v2: bool,
    /// AMD's core counter extension (leaf 0x80000001), older than the second version.
    pub amd_core_extension: bool,
}

impl CounterLeaf {
    /// Whether any counters are promised at all.
    #[must_use]
    pub fn promises_counters(&self) -> bool {
        self.intel_version > 0 || self.amd_perfmon_v2 || self.amd_core_extension
    }

    pub(super) fn from_facts(facts: &Facts) -> Self {
        let intel = facts.identity().vendor == super::Vendor::Intel;
        Self {
            intel_version: if intel { (facts.leaf(0xa, 0)[0] & 0xff) as u8 } else { 0 },
            amd_perfmon_v2: bit(facts.leaf(0x8000_0022, 0)[0], 0),
            amd_core_extension: !intel && bit(facts.leaf(0x8000_0001, 0)[2], 23),
        }
    }
}

impl Features {
    pub(super) fn from_facts(facts: &Facts) -> Self {
        let [_, seven_b, _, seven_d] = facts.leaf(7, 0);
        Self {
            invariant_tsc: bit(facts.leaf(0x8000_0007, 0)[3], 8),
            rdtscp: bit(facts.leaf(0x8000_0001, 0)[3], 27),
            serialize: bit(seven_d, 14),
            avx: bit(facts.leaf(1, 0)[2], 28),
            avx2: bit(seven_b, 5),
            avx512f: bit(seven_b, 16),
            erms: bit(seven_b, 9),
            fsrm: bit(seven_d, 4),
            clflushopt: bit(seven_b, 23),
            clwb: bit(seven_b, 24),
        }
    }
}

impl Features {
    /// Drops the vectors that the processor has and the operating system does not enable: using
    /// them would end the process.
    #[must_use]
    pub(super) fn enabled(self) -> Self {
        #[cfg(target_arch = "x86_64")]
        return Self {
            avx: self.avx && std::arch::is_x86_feature_detected!("avx"),
            avx2: self.avx2 && std::arch::is_x86_feature_detected!("avx2"),
            avx512f: self.avx512f && std::arch::is_x86_feature_detected!("avx512f"),
            ..self
        };
        #[cfg(not(target_arch = "x86_64"))]
        self
    }
}

fn bit(register: u32, index: u32) -> bool {
    register >> index & 1 == 1
}
