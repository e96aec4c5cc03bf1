//! How long a division takes by what is divided.
//!
//! A divider makes a few bits of the quotient in a cycle. Two numbers of 64 bits that are near each other are done with long
//! before a hash of 64 bits by the size of its table. *Sign*: chains of divisions take a cycle longer for each eight bits more of
//! their quotient. *Literature*: AMD, "Software Optimization Guide for the AMD Zen4 Microarchitecture" (2023), 2.10.2:
//! 10 to 18 cycles; S. Oberman and M. Flynn, "Division Algorithms and Implementations" (1997).
//!
//! Measured on Zen 5, of 64 bits: latencies of 10 cycles for quotients of up to 8 bits, 11 up to 16, 12 up to 24, 13 up to 36, 14, 15
//! and 16 up to 44, 52 and 63; one in 7 cycles up to 36 bits, in 9.3 behind. Of 32 bits: 10, 11, 12 and 13, one in 6.

use crate::machine::{CoreShape, OpClass};
use crate::trace::engine::{AccessKind, MemoryAccess};

/// Bits of the quotients that `probe core` has made, of 32 bits and of 64.
const PROBED_BITS: [u32; 2] = [16, 28];
/// No more bits than these take longer.
const FASTEST_BITS: u32 = 8;

/// What one division takes more, or less, than those that were probed: to its result, and to the next one. Nothing for what is no
/// division: no values are told of it.
pub(super) fn beside_probed(
    class: OpClass,
    accesses: &[MemoryAccess],
    shape: &CoreShape,
) -> (i64, u64) {
    let is_wide = class == OpClass::Divide64;
    let per_cycle = u32::from(shape.quotient_bits_per_cycle);
    if per_cycle == 0 {
        return (0, 0);
    }
    let Some(bits) = quotient_bits(accesses, is_wide) else { return (0, 0) };
    let cycles = |bits: u32| i64::from(bits.saturating_sub(FASTEST_BITS).div_ceil(per_cycle));
    let [from_bits, busy_cycles] = shape.long_quotient.map(u32::from);
    let is_long = is_wide && bits > from_bits;
    let later = cycles(bits) - cycles(PROBED_BITS[usize::from(is_wide)]);
    (later, if is_long { busy_cycles.into() } else { 0 })
}

/// Bits of the quotient; none where what is divided is not known.
fn quotient_bits(accesses: &[MemoryAccess], is_wide: bool) -> Option<u32> {
    let size = if is_wide { 64 } else { 32 };
    let mask = u64::MAX >> (64 - size);
    let values = accesses.iter().filter(|access| access.kind == AccessKind::Value);
    let mut values = values.map(|access| access.address.0 & mask);
    let (low, high, divisor) = (values.next()?, values.next()?, values.next()?);
    // Without a sign, the upper half is below the divisor, and such large divisors are rare.
    let is_negative = high >> (size - 1) == 1;
    let magnitude = |value: u128, size: u32| {
        let has_sign = is_negative && value >> (size - 1) == 1;
        if has_sign { value.wrapping_neg() & (u128::MAX >> (128 - size)) } else { value }
    };
    let dividend = magnitude(u128::from(high) << size | u128::from(low), 2 * size);
    let divisor = magnitude(divisor.into(), size);
    let bits = |value: u128| u128::BITS - value.leading_zeros();
    Some((bits(dividend) + 1).saturating_sub(bits(divisor)).min(size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Avma;

    fn bits(values: &[u64], is_wide: bool) -> Option<u32> {
        let access = |value: &u64| MemoryAccess {
            insn: 0,
            kind: AccessKind::Value,
            size_bytes: 8,
            address: Avma(*value),
        };
        quotient_bits(&values.iter().map(access).collect::<Vec<_>>(), is_wide)
    }

    #[test]
    fn a_quotient_has_as_many_bits_as_its_dividend_has_more_than_its_divisor() {
        assert_eq!(bits(&[1 << 63, 0, 1 << 10], true), Some(54));
        assert_eq!(bits(&[7, 0, 1000], true), Some(0));
        assert_eq!(bits(&[0, 1, 3], true), Some(64), "no more than fit");
        // What is in the upper halves of registers is not divided.
        assert_eq!(bits(&[0xffff_ffff_0000_0064, 0xff << 32, 10], false), Some(4));
        let minus = |n: u64| n.wrapping_neg();
        assert_eq!(bits(&[minus(100), u64::MAX, 10], true), Some(4));
        assert_eq!(bits(&[minus(100), u64::MAX, minus(10)], false), Some(4));
        assert_eq!((bits(&[100, 0], true), bits(&[], true)), (None, None));
    }
}
