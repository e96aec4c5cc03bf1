//! When a window ends: which address is watched for it, and what to make of arrivals there.

use super::process::{Process, Registers};

/// When a window by calls ends: which address is watched for it, and what to make of arrivals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finish {
    /// Calls that must still return.
    left: u64,
    pub(super) start: u64,
    pub(super) returns_to: u64,
    /// The stack pointer on entry.
    stack: u64,
    inside: bool,
    /// Every arrival counts, whatever the stack pointer.
    plain: bool,
}

impl Finish {
    /// From the registers at the first call's entry.
    pub(super) fn new(calls: u64, entry: &Registers, memory: &Process) -> Self {
        Self {
            left: calls,
            start: entry.rip,
            returns_to: memory.word(entry.rsp).unwrap_or(0),
            stack: entry.rsp,
            inside: true,
            plain: false,
        }
    }

    /// At the n-th arrival at an address.
    pub(super) fn at(address: u64, arrivals: u64) -> Self {
        Self {
            left: arrivals,
            start: address,
            returns_to: address,
            stack: 0,
            inside: true,
            plain: true,
        }
    }

    /// How often the address will be passed, as far as that is known.
    pub(super) fn arrivals_left(&self) -> u64 {
        if self.plain { self.left } else { 1 }
    }

    /// The address to watch.
    pub(super) fn address(&self) -> u64 {
        if self.inside { self.returns_to } else { self.start }
    }

    /// The program has come to the watched address. True when that ends the window.
    pub(super) fn arrived(&mut self, registers: &Registers, memory: &Process) -> bool {
        if self.plain {
            self.left = self.left.saturating_sub(1);
        } else if !self.inside {
            *self = Self { left: self.left, ..Self::new(self.left, registers, memory) };
            self.start = registers.rip;
        } else if registers.rsp > self.stack {
            self.left = self.left.saturating_sub(1);
            self.inside = false;
        }
        self.left == 0
    }
}
