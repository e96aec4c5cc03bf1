//! Three kinds of address that must never be mixed.
//!
//! A position in the file, an address *as stated in the file* (SVMA) and an address *in
//! the running process* (AVMA) differ by segment placement and by address space layout
//! randomisation. Each has its own type; the conversions live where the facts live:
//! `code::Image` (file and stated) and `trace` (stated and actual).

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The smallest page of x86-64 and the usual one of AArch64.
pub const PAGE_BYTES: u64 = 4096;
/// A line of the caches of every design of the table.
pub const LINE_BYTES: u64 = 64;

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The address `bytes` further on, wrapping as the hardware does.
            #[must_use]
            pub fn offset(self, bytes: i64) -> Self {
                Self(self.0.wrapping_add_signed(bytes))
            }

            /// How many bytes `self` lies above `base`; `None` when it lies below.
            #[must_use]
            pub fn distance_from(self, base: Self) -> Option<u64> {
                self.0.checked_sub(base.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }
    };
}

address! {
    /// A byte position in a file on disk.
    FileOffset
}
address! {
    /// A stated virtual memory address: what symbols, DWARF and a disassembler print.
    Svma
}
address! {
    /// An actual virtual memory address in one process.
    Avma
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_hex_and_measures_distance() {
        let start = Svma(0x1000);
        assert_eq!(start.offset(0x20).to_string(), "0x1020");
        assert_eq!(start.offset(0x20).distance_from(start), Some(0x20));
        assert_eq!(start.distance_from(start.offset(1)), None);
        assert_eq!(format!("{start:?}"), "Svma(0x1000)");
    }
}
