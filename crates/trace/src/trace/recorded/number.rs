//! Whole numbers of one to ten bytes, seven bits in each, the lowest first.

pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the difference of two addresses, small ones of either sign in few bytes.
pub(super) fn put_difference(out: &mut Vec<u8>, to: u64, from: u64) {
    let difference = to.wrapping_sub(from).cast_signed();
    put(out, ((difference << 1) ^ (difference >> 63)).cast_unsigned());
}

/// The address that lies this difference from `from`.
pub(super) fn apply(difference: u64, from: u64) -> u64 {
    let signed = (difference >> 1).cast_signed() ^ -((difference & 1).cast_signed());
    from.wrapping_add_signed(signed)
}
