//! What the emulator reports of one execution of a block: pieces of accesses, and of `rep`
//! instructions only how far they reach.

use crate::trace::engine::AccessKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// Index of the instruction in its block.
    pub insn: u32,
    /// Which way; an atomic operation is a store.
    pub kind: AccessKind,
    /// At most 16.
    pub size_bytes: u32,
    /// The lowest byte.
    pub address: u64,
}

impl Piece {
    pub(super) fn end(&self) -> u64 {
        self.address.wrapping_add(u64::from(self.size_bytes))
    }
}

/// What the repetitions of one `rep` have touched so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reach {
    /// First byte and end of up to two loads and of the store, in the order of reporting.
    spans: [Option<(u64, u64)>; 3],
    loads_seen: u64,
}

impl Reach {
    /// Takes one piece of an instruction with this many loads in each repetition.
    pub(super) fn add(&mut self, piece: &Piece, loads: u8) {
        let which = match piece.kind {
            AccessKind::Store | AccessKind::Prefetch | AccessKind::Value => 2,
            AccessKind::Load => {
                let which = self.loads_seen % u64::from(loads.max(1));
                self.loads_seen += 1;
                which as usize % 2
            }
        };
        let span = self.spans[which].get_or_insert((piece.address, piece.end()));
        *span = (span.0.min(piece.address), span.1.max(piece.end()));
    }

    /// What was touched, loads first; of two loads the second reported first, as the comparing
    /// instructions name them.
    pub(super) fn accesses(&self) -> impl Iterator<Item = (AccessKind, u32, u64)> {
        let [first, second, store] = self.spans;
        let kinds =
            [(AccessKind::Load, second), (AccessKind::Load, first), (AccessKind::Store, store)];
        kinds.into_iter().filter_map(|(kind, span)| {
            let (from, end) = span?;
            Some((kind, u32::try_from(end - from).unwrap_or(u32::MAX), from))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_reach_from_the_lowest_byte_to_the_highest() {
        let mut reach = Reach::default();
        for n in (0..5).rev() {
            for (kind, base) in [(AccessKind::Load, 100), (AccessKind::Store, 200)] {
                let piece = Piece { insn: 0, kind, size_bytes: 8, address: base + 8 * n };
                reach.add(&piece, 1);
            }
        }
        let all: Vec<_> = reach.accesses().collect();
        assert_eq!(all, [(AccessKind::Load, 40, 100), (AccessKind::Store, 40, 200)]);
    }
}
