//! When a window ends, for whoever runs it natively: which addresses to stop at, and what arrivals mean.

use super::passage::Passage;
use crate::model::Avma;
use crate::trace::engine::calls::Calls;
use crate::trace::engine::process::{Process, Registers};

/// The end of a window.
#[derive(Clone, Debug)]
pub(super) enum Finish {
    /// Behind the last of so many calls.
    Calls(Calls),
    /// At the n-th arrival at an address.
    Arrivals { address: Avma, left: u64 },
    /// As `Arrivals`, too many for a stop at each: a native copy counts them itself.
    Counted { passage: Passage, left: u64 },
    /// Only with the process.
    Never,
}

impl Finish {
    /// From the registers at the first call's entry.
    pub(super) fn behind_calls(calls: u64, entry: &Registers, memory: &Process) -> Self {
        let mut new = Self::Calls(Calls::new(Avma(entry.rip), calls));
        new.arrived(entry, memory);
        new
    }

    /// The addresses to stop at; at most two.
    pub(super) fn addresses(&self) -> Vec<Avma> {
        match self {
            Self::Calls(calls) => calls.watched(),
            Self::Arrivals { address, .. } => vec![*address],
            Self::Counted { .. } | Self::Never => Vec::new(),
        }
    }

    /// The program has come to one of the addresses. True when that ends the window.
    pub(super) fn arrived(&mut self, registers: &Registers, memory: &Process) -> bool {
        match self {
            Self::Calls(calls) => {
                calls.is_over_at(Avma(registers.rip), registers.rsp, || memory.word(registers.rsp))
            }
            Self::Arrivals { left, .. } => {
                *left = left.saturating_sub(1);
                *left == 0
            }
            Self::Counted { .. } | Self::Never => false,
        }
    }
}
