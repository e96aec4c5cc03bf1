//! What the model of the core can be run without: the mechanisms that a difference can come from.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::machine::OpClass;

/// What the model can be run without.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Mechanism {
    /// Loads that wait for stores which cannot serve them.
    BlockedLoads,
    /// Branches that go elsewhere than predicted.
    MispredictedBranches,
    /// Lines and translations that are not in the first cache and TLB. They are one mechanism: what a page walk
    /// costs, in a guest above all, is known too badly to be told from what the line behind it costs.
    DataCacheMisses,
    /// Accesses across two lines or pages.
    SplitAccesses,
    /// Loads that are taken for loads of what a store in front of them writes to the same place of another page.
    AliasedLoads,
    /// Divisions and roots, of integers and of floating-point numbers.
    Divisions,
    /// Atomic operations and fences.
    LockedOperations,
    /// String instructions and others that microcode executes.
    Microcode,
    /// Instructions of SSE while the upper halves of vector registers are in use.
    VectorTransitions,
    /// Instructions that wait for what their destination held, though their result does not need it.
    FalseDependencies,
    /// Lines of code that are not in the first cache, and taken branches that nothing remembers any more: both come with much
    /// code.
    CodeCacheMisses,
    /// Taken branches that what follows waits for: the front end follows one in a cycle, or in several.
    TakenBranches,
    /// Lines of code with more instructions than are fetched in a cycle.
    SlowFetch,
    /// Stores to lines of code that was executed just before.
    WrittenCode,
    /// Results that the next instruction has to wait for, apart from all of the above.
    LongChains,
    /// Units that more instructions want than there are.
    BusyPorts,
}

impl Mechanism {
    /// All of them, in the order in which a tie is decided.
    pub const ALL: [Self; 16] = [
        Self::BlockedLoads,
        Self::MispredictedBranches,
        Self::DataCacheMisses,
        Self::SplitAccesses,
        Self::AliasedLoads,
        Self::Divisions,
        Self::LockedOperations,
        Self::Microcode,
        Self::VectorTransitions,
        Self::FalseDependencies,
        Self::CodeCacheMisses,
        Self::TakenBranches,
        Self::SlowFetch,
        Self::WrittenCode,
        Self::LongChains,
        Self::BusyPorts,
    ];

    /// Whether one execution can cost many times what another costs: a line comes from near or from far.
    #[must_use]
    pub fn has_distance(self) -> bool {
        self == Self::DataCacheMisses
    }

    /// Whether a window without a single execution that has it takes as long without it.
    pub(super) fn is_in_its_events(self) -> bool {
        self.has_events() && !self.has_distance()
    }

    /// Whether single executions can be counted that have it.
    #[must_use]
    pub fn has_events(self) -> bool {
        !matches!(self, Self::LongChains | Self::BusyPorts)
    }

    /// Which mechanism operations of a class are that take long by themselves; without it each is one operation of a cycle.
    pub(super) fn slow(class: OpClass) -> Option<Self> {
        Some(match class {
            OpClass::Divide32
            | OpClass::Divide64
            | OpClass::FloatDivide32
            | OpClass::FloatDivide64
            | OpClass::FloatRoot32
            | OpClass::FloatRoot64 => Self::Divisions,
            OpClass::Locked | OpClass::Fence | OpClass::LoadFence | OpClass::StoreFence => {
                Self::LockedOperations
            }
            OpClass::Microcode => Self::Microcode,
            _ => return None,
        })
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BlockedLoads => "blocked loads",
            Self::MispredictedBranches => "mispredicted branches",
            Self::DataCacheMisses => "data cache and TLB misses",
            Self::SplitAccesses => "accesses across lines",
            Self::AliasedLoads => "4 KiB aliases",
            Self::Divisions => "divisions and roots",
            Self::LockedOperations => "atomic operations and fences",
            Self::Microcode => "microcoded instructions",
            Self::VectorTransitions => "transitions between AVX and SSE",
            Self::FalseDependencies => "false dependencies on destinations",
            Self::CodeCacheMisses => "instruction cache misses",
            Self::TakenBranches => "taken branches",
            Self::SlowFetch => "lines of code that take several cycles to fetch",
            Self::WrittenCode => "stores to code that was just executed",
            Self::LongChains => "longer dependency chains",
            Self::BusyPorts => "busy execution units",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mechanism_has_a_name_and_two_have_no_events() {
        let names: std::collections::BTreeSet<String> =
            Mechanism::ALL.map(|m| m.to_string()).into();
        assert_eq!(names.len(), Mechanism::ALL.len());
        let are = |of: fn(Mechanism) -> bool| Mechanism::ALL.into_iter().filter(|m| of(*m)).count();
        assert_eq!(are(Mechanism::has_events), 14);
        assert_eq!((are(Mechanism::has_distance), are(Mechanism::is_in_its_events)), (1, 13));
        assert!(Mechanism::DataCacheMisses.has_distance());
        // The order of the list is that of the places in an account.
        assert!(Mechanism::ALL.into_iter().enumerate().all(|(n, m)| n == m as usize));
    }
}
