//! What an address is made of: roots, a scaled index and a constant, and the arithmetic of such sums.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;

use super::insn::Reg;

/// Where a value comes from that cannot be followed further back. Small, and the highest bit is free:
/// these are copied and compared millions of times. No function has 2^23 instructions: no more than
/// 4 MiB of one are looked at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Root(pub(super) NonZeroU32);

/// What a root stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RootKind {
    /// The register's value when the function was entered.
    Entry(Reg),
    /// The result of an instruction (its index in the function).
    Result(u32, Reg),
    /// The value that a register has at the start of a block where several meet.
    Merge(u32, Reg),
}

impl Root {
    const ENTRY: u32 = 1;
    const RESULT: u32 = 2;
    const MERGE: u32 = 3;
    const KIND_BITS: u32 = 2;
    const REG_BITS: u32 = 6;
    const AT_BITS: u32 = 23;

    const fn pack(kind: u32, at: u32, reg: Reg) -> Self {
        let at = at & ((1 << Self::AT_BITS) - 1);
        let reg = reg.0 as u32 & ((1 << Self::REG_BITS) - 1);
        // The kind is never 0.
        match NonZeroU32::new((at << Self::REG_BITS | reg) << Self::KIND_BITS | kind) {
            Some(word) => Self(word),
            None => Self(NonZeroU32::MIN),
        }
    }

    const fn is_merge(self) -> bool {
        self.0.get() & ((1 << Self::KIND_BITS) - 1) == Self::MERGE
    }

    /// See [`RootKind::Entry`].
    #[must_use]
    pub const fn entry(reg: Reg) -> Self {
        Self::pack(Self::ENTRY, 0, reg)
    }

    /// See [`RootKind::Result`].
    #[must_use]
    pub const fn result(insn: u32, reg: Reg) -> Self {
        Self::pack(Self::RESULT, insn, reg)
    }

    /// See [`RootKind::Merge`].
    #[must_use]
    pub const fn merge(block: u32, reg: Reg) -> Self {
        Self::pack(Self::MERGE, block, reg)
    }

    /// What the root stands for.
    #[must_use]
    pub fn kind(self) -> RootKind {
        let word = self.0.get();
        let at = word >> (Self::KIND_BITS + Self::REG_BITS);
        let reg = Reg((word >> Self::KIND_BITS & ((1 << Self::REG_BITS) - 1)) as u8);
        match word & ((1 << Self::KIND_BITS) - 1) {
            Self::ENTRY => RootKind::Entry(reg),
            Self::RESULT => RootKind::Result(at, reg),
            _ => RootKind::Merge(at, reg),
        }
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind().fmt(f)
    }
}

/// Stack pointers are not aligned to more.
const LARGEST_ALIGNMENT: i64 = 64;

/// A value as `base + also + index * scale + offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SymbolicAddress {
    /// The base; `None` for a constant address.
    pub base: Option<Root>,
    /// What is added to the base: a second register. The lesser of the two roots is the base, so
    /// that equal sums are equal.
    pub also: Option<Root>,
    /// The index with its scale of 2 or more.
    pub index: Option<(Root, u8)>,
    /// The constant part in bytes.
    pub offset_bytes: i64,
}

/// Three words: many of these are looked up.
impl Hash for SymbolicAddress {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let word = |root: Option<Root>| root.map_or(0, |root| u64::from(root.0.get()));
        state.write_u64(word(self.base) << 32 | word(self.also));
        let (root, scale) = self.index.map_or((0, 0), |(root, scale)| (word(Some(root)), scale));
        state.write_u64(root << 8 | u64::from(scale));
        state.write_i64(self.offset_bytes);
    }
}

impl SymbolicAddress {
    pub(super) fn constant(offset_bytes: i64) -> Self {
        Self { base: None, also: None, index: None, offset_bytes }
    }

    pub(super) fn root(root: Root) -> Self {
        Self { base: Some(root), ..Self::constant(0) }
    }

    /// The address that is this root and nothing else.
    #[must_use]
    pub fn of_root(root: Root) -> Self {
        Self::root(root)
    }

    /// So many bytes further on.
    #[must_use]
    pub fn ahead(&self, bytes: i64) -> Self {
        Self { offset_bytes: self.offset_bytes.wrapping_add(bytes), ..*self }
    }

    /// Whether it is a pointer and a constant, or a constant alone.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.also.is_none() && self.index.is_none()
    }

    /// Whether accesses of so many bytes here and at `other` have a byte in common; `None` where the roots do not tell.
    #[must_use]
    pub fn overlaps(&self, bytes: u16, other: &Self, other_bytes: u16) -> Option<bool> {
        let above = self.minus(other)?;
        Some(above < i64::from(other_bytes) && above + i64::from(bytes) > 0)
    }

    /// How many bytes `self` lies above `other`, when both have the same roots.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Option<i64> {
        (self.same_start(other) && self.index == other.index)
            .then(|| self.offset_bytes.wrapping_sub(other.offset_bytes))
    }

    /// Whether both count from the same place, indices and constants aside.
    #[must_use]
    pub fn same_start(&self, other: &Self) -> bool {
        (self.base, self.also) == (other.base, other.also)
    }

    /// The roots it is made of.
    pub fn roots(&self) -> impl Iterator<Item = Root> {
        self.base.into_iter().chain(self.also).chain(self.index.map(|(root, _)| root))
    }

    /// `base + index * scale + displacement` of values; `None` when the sum has too many parts.
    #[must_use]
    pub fn sum(base: Option<Self>, index: Option<(Self, u8)>, displacement: i64) -> Option<Self> {
        let base = base.unwrap_or(Self::constant(0));
        let sum = base.ahead(displacement);
        match index {
            Some((index, 1)) => sum.plus(&index),
            Some((index, scale)) => sum.plus(&index.times(scale)?),
            None => Some(sum),
        }
    }

    pub(super) fn plus(&self, other: &Self) -> Option<Self> {
        let mut singles = [self.base, self.also, other.base, other.also].into_iter().flatten();
        let (mut base, mut also) = (singles.next(), singles.next());
        if singles.next().is_some() {
            return None;
        }
        let mut index = match (self.index, other.index) {
            (Some((mine, so_often)), Some((theirs, more))) if mine == theirs => {
                Some((mine, so_often.checked_add(more)?))
            }
            (Some(_), Some(_)) => return None,
            (mine, theirs) => mine.or(theirs),
        };
        // A root that comes twice is an index: `lea rdx, [rdi+rdi]` starts an array of pairs.
        if index.is_none() && base.is_some() && base == also {
            index = base.take().map(|root| (root, 2));
            also = None;
        } else if let Some((root, scale)) = &mut index {
            for single in [&mut base, &mut also] {
                if *single == Some(*root) {
                    *scale = scale.checked_add(1)?;
                    *single = None;
                }
            }
            if base.is_none() {
                base = also.take();
            }
        }
        if also.is_some() && also < base {
            std::mem::swap(&mut base, &mut also);
        }
        let offset_bytes = self.offset_bytes.wrapping_add(other.offset_bytes);
        Some(Self { base, also, index, offset_bytes })
    }

    /// Whether a part of it is whatever flows together somewhere, so that going back through a
    /// function changes it.
    #[must_use]
    pub fn moves(&self) -> bool {
        self.roots().any(Root::is_merge)
    }

    pub(super) fn as_constant(&self) -> Option<i64> {
        self.roots().next().is_none().then_some(self.offset_bytes)
    }

    /// The power of two that divides it whatever its root is; 1 when nothing is known.
    pub(super) fn divisor(&self) -> u32 {
        let Some((_, scale)) = self.index.filter(|_| self.base.is_none()) else { return 1 };
        let bits = scale.trailing_zeros().min(self.offset_bytes.trailing_zeros());
        1 << bits
    }

    /// And-ed with a constant; `new` is the name of the result.
    pub(super) fn cut(&self, mask: u64, new: Root) -> Option<Self> {
        match self.as_constant() {
            Some(constant) => Some(Self::constant(constant & mask as i64)),
            None => masked(self.divisor().max(1 << mask.trailing_zeros().min(8)), mask, new),
        }
    }

    /// Or-ed with another. A place that is aligned and an index that is already scaled, as arrays
    /// on the stack are spelled, share no bits.
    pub(super) fn joined(&self, other: &Self) -> Option<Self> {
        let is_place = |a: &Self| a.base.is_some() && a.is_plain();
        let is_index = |a: &Self| a.base.is_none() && a.divisor() > 1;
        let aligned = is_place(self) && is_index(other) || is_place(other) && is_index(self);
        aligned.then(|| self.plus(other)).flatten()
    }

    /// Or-ed with a small constant: a sum where it is the aligned stack pointer of AArch64, whose
    /// compilers spell places in aligned arrays like that.
    pub(super) fn raised(&self, by: i64) -> Option<Self> {
        let aligned = |root: Root| matches!(root.kind(), RootKind::Result(_, reg) if reg == Reg::AARCH64_STACK);
        let single = self.is_plain() && self.offset_bytes & by == 0;
        let fits = (0..LARGEST_ALIGNMENT).contains(&by) && self.base.is_some_and(aligned);
        (single && fits).then(|| self.plus(&Self::constant(by))).flatten()
    }

    /// Times another, when one of them is a small number.
    pub(super) fn product(&self, other: &Self) -> Option<Self> {
        let number = |a: &Self| {
            let scale = u8::try_from(a.offset_bytes).ok().filter(|scale| *scale > 1);
            scale.filter(|_| a.base.is_none() && a.index.is_none())
        };
        match (number(self), number(other)) {
            (_, Some(scale)) => self.times(scale),
            (Some(scale), None) => other.times(scale),
            (None, None) => None,
        }
    }

    /// A single root, a scaled one or a constant, so many times.
    pub(super) fn times(&self, scale: u8) -> Option<Self> {
        let offset_bytes = self.offset_bytes.wrapping_mul(i64::from(scale));
        let index = match (self.base, self.also, self.index) {
            (base, None, None) => base.map(|root| (root, scale)),
            (None, None, Some((root, earlier))) => Some((root, earlier.checked_mul(scale)?)),
            _ => return None,
        };
        Some(Self { index, ..Self::constant(offset_bytes) })
    }
}

/// An index that is masked with more than this is no index.
pub(super) const LARGEST_MASK: u64 = 0xff_ffff;

/// A small number that a power of two divides, because its low bits are masked away or it was
/// shifted, is an index that is already scaled: `and ebx, 0xe0` picks one of 8 elements of 32
/// bytes. The root is then the number of the element. Larger masks align pointers.
pub(super) fn masked(divisor: u32, mask: u64, root: Root) -> Option<SymbolicAddress> {
    let scale = u8::try_from(divisor).ok().filter(|scale| *scale > 1 && mask <= LARGEST_MASK)?;
    Some(SymbolicAddress { index: Some((root, scale)), ..SymbolicAddress::constant(0) })
}
