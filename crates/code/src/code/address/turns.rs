//! How what addresses are made of changes from turn to turn of a loop: by steps, or within a mask.

use super::Addresses;
use crate::code::cfg::FunctionCode;
use crate::code::insn::{Flow, Insn};
use crate::code::symbolic::{Root, RootKind, SymbolicAddress};

/// Masks that only say how wide a value is.
const WHOLE_VALUES: [u64; 3] = [0xff, 0xffff, 0xffff_ffff];

impl Addresses {
    /// Whether `root` is a register that goes on by a multiple of `bytes` each time the loop around
    /// it comes round: a pointer, or a distance, that walks over an array of such elements.
    #[must_use]
    pub fn walks_by(&self, code: &FunctionCode, root: Root, bytes: u8) -> bool {
        let RootKind::Merge(block, reg) = root.kind() else {
            return false;
        };
        let Some(header) = code.blocks.get(block as usize) else {
            return false;
        };
        let steps = header.predecessors.iter().filter_map(|predecessor| {
            let place = predecessor * self.registers + usize::from(reg.0);
            self.values.value(*self.at_end.get(place)?).minus(&SymbolicAddress::root(root))
        });
        let mut moves = false;
        for step_bytes in steps {
            if step_bytes % i64::from(bytes.max(1)) != 0 {
                return false;
            }
            moves |= step_bytes != 0;
        }
        moves
    }
}

/// The constant that an index was and-ed with on its way into `address`, if it was: the sign of a
/// ring or a small table, whose elements are met again soon.
#[must_use]
pub fn index_mask(code: &FunctionCode, address: &SymbolicAddress) -> Option<u64> {
    let index = address.index.map(|(root, _)| root);
    index.into_iter().chain(address.also).chain(address.base.filter(|_| index.is_none())).find_map(
        |root| {
            let RootKind::Result(insn, reg) = root.kind() else {
                return None;
            };
            match code.insns.get(insn as usize)? {
                Insn { define: Some((defined, value)), flow: Flow::Next, .. }
                    if *defined == reg =>
                {
                    value.mask().filter(|mask| !WHOLE_VALUES.contains(mask))
                }
                _ => None,
            }
        },
    )
}
