//! Bits that a block takes from one value twice.

use super::super::symbolic::{Root, RootKind, SymbolicAddress};

/// Low bits of a value that an instruction of the block took.
struct Taken {
    of: SymbolicAddress,
    mask: u64,
    insn: u32,
    name: Root,
}

/// What was taken in one block: who takes the same bits of the same value again has the same thing.
/// gcc multiplies a masked index by three that way on AArch64, once masked and once shifted as well.
#[derive(Default)]
pub(super) struct TakenBits(Vec<Taken>);

impl TakenBits {
    /// The results that are remembered; the same is taken again soon.
    const MOST: usize = 16;

    /// The name of `of & mask`, which is about to be made by `insn`: `new`, or an older one.
    pub fn name(&mut self, of: SymbolicAddress, mask: u64, insn: u32, new: Root) -> Root {
        // Of what is scaled already, the name would mean the number of the element.
        if of.divisor() > 1 || mask & 1 == 0 {
            return new;
        }
        // A part of it that was made since then goes by the same name, but is not what it was.
        let since = |taken: &Taken| {
            of.roots().any(|root| match root.kind() {
                RootKind::Result(at, _) => (taken.insn..insn).contains(&at),
                _ => false,
            })
        };
        let same = |taken: &&Taken| (taken.of, taken.mask) == (of, mask) && !since(taken);
        if let Some(known) = self.0.iter().find(same) {
            return known.name;
        }
        if self.0.len() == Self::MOST {
            self.0.remove(0);
        }
        self.0.push(Taken { of, mask, insn, name: new });
        new
    }
}
