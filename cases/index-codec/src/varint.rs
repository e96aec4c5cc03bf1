//! Numbers as groups of seven bits, and differences with the sign in the lowest bit.

#![forbid(unsafe_code)]

/// The longest encoding of a 32-bit number.
pub(crate) const LONGEST_BYTES: usize = 5;

/// The difference `to - from` as a number that is small when the difference is.
pub(crate) const fn fold_difference(to: u32, from: u32) -> u32 {
    let difference = to.wrapping_sub(from).cast_signed();
    ((difference << 1) ^ (difference >> 31)).cast_unsigned()
}

/// Undoes [`fold_difference`].
pub(crate) const fn unfold_difference(folded: u32, from: u32) -> u32 {
    from.wrapping_add((folded >> 1) ^ (folded & 1).wrapping_neg())
}

/// Writes a number at `at` and moves on; `None` if it does not fit.
pub(crate) fn write(out: &mut [u8], at: &mut usize, mut number: u32) -> Option<()> {
    loop {
        let slot = out.get_mut(*at)?;
        *at += 1;
        let group = (number & 127) as u8;
        number >>= 7;
        if number == 0 {
            *slot = group;
            return Some(());
        }
        *slot = group | 128;
    }
}

/// Reads a number at `at` and moves on; `None` if the data end first. A number has at most five
/// groups, whatever the last one says: so every stream is read to an end.
pub(crate) fn read(data: &[u8], at: &mut usize) -> Option<u32> {
    let mut number = 0;
    for group_number in 0..LONGEST_BYTES as u32 {
        let group = *data.get(*at)?;
        *at += 1;
        number |= u32::from(group & 127) << (7 * group_number);
        if group < 128 {
            break;
        }
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for number in [0, 1, 127, 128, 16_383, 16_384, 0x0fff_ffff, 0x1000_0000, u32::MAX] {
            let mut bytes = [0; LONGEST_BYTES];
            let (mut end, mut read_to) = (0, 0);
            write(&mut bytes, &mut end, number).expect("five bytes suffice");
            assert_eq!(read(&bytes[..end], &mut read_to), Some(number));
            assert_eq!(read_to, end);
            assert_eq!(read(&bytes[..end - 1], &mut 0), None);
        }
    }

    #[test]
    fn differences_come_back() {
        for (to, from) in [(0, 0), (5, 4), (4, 5), (0, u32::MAX), (u32::MAX, 0), (1 << 31, 0)] {
            assert_eq!(unfold_difference(fold_difference(to, from), from), to);
        }
        assert_eq!(fold_difference(4, 5), 1);
        assert_eq!(fold_difference(5, 4), 2);
    }
}
