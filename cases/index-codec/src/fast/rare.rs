//! The codes that few triangles have in a mesh, and all in a random heap: no remembered edge, or
//! a third vertex far from the last one.

use core::hint::select_unpredictable;

use super::{State, edge, write};
use crate::Index;
use crate::format::{FIRST_FREE_CODE, FIRST_LONG_CODE, TRIANGLES_TAIL_BYTES};
use crate::variants::EdgeAccess;
use crate::varint::{LONGEST_BYTES, unfold_difference};

/// In place of a vertex: it is coded as a difference.
const BY_DIFFERENCE: u8 = 15;
/// The code of a triangle whose three vertices may all be differences, and the byte that says so.
const ALL_DIFFERENCES: (u8, u8) = (0xff, 0xff);

/// Decodes one triangle of any code that the loop over common codes stopped at.
///
/// # Safety
///
/// There is room for a triangle in `out` and in the memories; 16 bytes can be read as data.
#[inline(always)]
pub(super) unsafe fn triangle<I: Index, A: EdgeAccess>(
    state: &mut State,
    code: u8,
    out: *mut I,
    table: &[u8; TRIANGLES_TAIL_BYTES],
) {
    // SAFETY: as the caller promises.
    unsafe {
        if code < FIRST_FREE_CODE {
            at_edge::<I, A>(state, code, out);
        } else if code < FIRST_LONG_CODE {
            from_table::<I, A>(state, table[usize::from(code & 15)], out);
        } else {
            long::<I, A>(state, code, out);
        }
    }
}

/// A triangle at a remembered edge, its third vertex coded as a difference.
///
/// # Safety
///
/// See [`triangle`].
#[inline(always)]
unsafe fn at_edge<I: Index, A: EdgeAccess>(state: &mut State, code: u8, out: *mut I) {
    // SAFETY: see above; an age is at most 14.
    unsafe {
        let ab = A::load(state.edges.add(usize::from(code >> 4)));
        let c = difference(state);
        state.vertices.write(c);
        state.vertices = state.vertices.add(1);
        state.edges = state.edges.sub(2);
        A::store(state.edges.add(1), c, (ab >> 32) as u32);
        A::store(state.edges, ab as u32, c);
        write(out, ab, c);
    }
}

/// Remembers the edges of a triangle without a remembered one, and writes it.
///
/// # Safety
///
/// See [`triangle`].
#[inline(always)]
unsafe fn finish<I: Index, A: EdgeAccess>(state: &mut State, [a, b, c]: [u32; 3], out: *mut I) {
    // SAFETY: see above.
    unsafe {
        state.edges = state.edges.sub(3);
        A::store(state.edges.add(2), b, a);
        A::store(state.edges.add(1), c, b);
        A::store(state.edges, a, c);
        write(out, edge(a, b), c);
    }
}

/// The next new vertex if `place` is 0, otherwise one that is remembered, or nothing of use.
///
/// # Safety
///
/// `place` is at most 15.
#[inline(always)]
unsafe fn new_or_remembered(state: &mut State, place: u8) -> u32 {
    let is_new = place == 0;
    let back = select_unpredictable(is_new, 1, usize::from(place));
    // SAFETY: 16 vertices are remembered.
    let remembered = unsafe { state.vertices.sub(back).read() };
    let vertex = select_unpredictable(is_new, state.next, remembered);
    state.next = state.next.wrapping_add(is_new.into());
    vertex
}

/// Remembers a vertex, or writes it where nobody looks.
///
/// # Safety
///
/// There is room for it.
#[inline(always)]
unsafe fn push_if(state: &mut State, vertex: u32, really: bool) {
    // SAFETY: see above.
    unsafe {
        state.vertices.write(vertex);
        state.vertices = state.vertices.add(really.into());
    }
}

/// A new vertex and two that are new or remembered.
///
/// # Safety
///
/// See [`triangle`].
#[inline(always)]
unsafe fn from_table<I: Index, A: EdgeAccess>(state: &mut State, places: u8, out: *mut I) {
    let (second, third) = (places >> 4, places & 15);
    // SAFETY: see above; half a byte is at most 15.
    unsafe {
        let a = new_or_remembered(state, 0);
        let b = new_or_remembered(state, second);
        let c = new_or_remembered(state, third);
        push_if(state, a, true);
        push_if(state, b, second == 0);
        push_if(state, c, third == 0);
        finish::<I, A>(state, [a, b, c], out);
    }
}

/// Any triangle whose vertices are told in a byte of their own.
///
/// # Safety
///
/// See [`triangle`].
#[inline(always)]
unsafe fn long<I: Index, A: EdgeAccess>(state: &mut State, code: u8, out: *mut I) {
    // SAFETY: see above: one byte for the places, and five each for three differences.
    unsafe {
        let places = state.data.read();
        if (code, places) == ALL_DIFFERENCES
            && let Some(corners) = three_differences(state)
        {
            for corner in corners {
                push_if(state, corner, true);
            }
            return finish::<I, A>(state, corners, out);
        }
        state.data = state.data.add(1);
        if places == 0 {
            state.next = 0;
        }
        let first = if code == FIRST_LONG_CODE { 0 } else { BY_DIFFERENCE };
        let places = [first, places >> 4, places & 15];
        // All new vertices are counted before the first difference is read.
        let mut corners = [0; 3];
        // By number, not by zipped iterators: those carry the arrays along on the stack, copied in
        // other widths than they were written in.
        for n in 0..3 {
            corners[n] = new_or_remembered(state, places[n]);
        }
        for n in 0..3 {
            if places[n] == BY_DIFFERENCE {
                corners[n] = difference(state);
            }
        }
        for n in 0..3 {
            push_if(state, corners[n], places[n] == 0 || places[n] == BY_DIFFERENCE);
        }
        finish::<I, A>(state, corners, out);
    }
}

/// A vertex as a difference to the last one, one group after the other.
///
/// # Safety
///
/// Five bytes of data can be read.
#[inline(always)]
unsafe fn difference(state: &mut State) -> u32 {
    let mut folded = 0;
    for group_number in 0..LONGEST_BYTES {
        // SAFETY: see above.
        let group = unsafe { state.data.read() };
        state.data = state.data.wrapping_add(1);
        folded |= u32::from(group & 127) << (7 * group_number);
        if group < 128 {
            break;
        }
    }
    state.last = unfold_difference(folded, state.last);
    state.last
}

/// Three differences at once, without a branch on their lengths, which cannot be predicted where
/// triangles are in no order. `None` and nothing done near the end of the stream, and for numbers
/// that are longer than any encoder makes them.
///
/// # Safety
///
/// 16 bytes of data can be read.
#[inline(always)]
unsafe fn three_differences(state: &mut State) -> Option<[u32; 3]> {
    // A number is taken out of eight bytes at once, which must not lie behind the tail.
    const READ_AHEAD_BYTES: usize = 1 + 2 * LONGEST_BYTES + 8;
    let left_bytes = state.data_end.addr() + TRIANGLES_TAIL_BYTES - state.data.addr();
    if left_bytes < READ_AHEAD_BYTES {
        return None;
    }
    // SAFETY: 16 bytes can be read, the first one tells the places.
    let continued = unsafe { high_bits(state.data) } >> 1;
    let data = state.data.wrapping_add(1);
    // A number ends with a byte whose highest bit is clear. Bits above the 15 bytes are clear too.
    let ends = !continued;
    let first = ends.trailing_zeros();
    let ends = ends & (ends - 1);
    let second = ends.trailing_zeros();
    let ends = ends & (ends - 1);
    let third = ends.trailing_zeros();
    let lengths = [first + 1, second - first, third - second];
    if lengths.iter().any(|length| *length > LONGEST_BYTES as u32) {
        return None;
    }
    // SAFETY: the last number begins at most ten bytes behind `data`.
    let numbers = unsafe {
        [
            number(data, lengths[0]),
            number(data.add(first as usize + 1), lengths[1]),
            number(data.add(second as usize + 1), lengths[2]),
        ]
    };
    let a = unfold_difference(numbers[0], state.last);
    let b = unfold_difference(numbers[1], a);
    let c = unfold_difference(numbers[2], b);
    state.last = c;
    state.data = data.wrapping_add(third as usize + 1);
    Some([a, b, c])
}

/// The highest bits of 16 bytes, the first byte's as the lowest.
///
/// # Safety
///
/// The bytes can be read.
#[inline(always)]
unsafe fn high_bits(bytes: *const u8) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_mm_loadu_si128, _mm_movemask_epi8};
        // SAFETY: see above; SSE2 is part of x86-64.
        unsafe { _mm_movemask_epi8(_mm_loadu_si128(bytes.cast())).cast_unsigned() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: see above.
    high_bits_portably(unsafe { bytes.cast::<[u8; 16]>().read() })
}

/// The same without vector instructions.
#[cfg(any(test, not(target_arch = "x86_64")))]
fn high_bits_portably(bytes: [u8; 16]) -> u32 {
    let word = u128::from_le_bytes(bytes);
    // Per half: brings the eight highest bits together in the uppermost byte.
    let gather =
        |half: u64| ((half & 0x8080_8080_8080_8080) >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    (gather(word as u64) | gather((word >> 64) as u64) << 8) as u32
}

/// A number of one to five groups of seven bits.
///
/// # Safety
///
/// Eight bytes can be read.
#[inline(always)]
unsafe fn number(data: *const u8, length_bytes: u32) -> u32 {
    // SAFETY: see above.
    let word = u64::from_le(unsafe { data.cast::<u64>().read_unaligned() });
    let unused_bits = 64 - 8 * length_bytes;
    let groups = word << unused_bits >> unused_bits;
    // Neighbouring groups are pushed together: two by two, and then four.
    let pairs = (groups & 0x007f_007f_007f) | ((groups & 0x7f00_7f00_7f00) >> 1);
    let fours = (pairs & 0x3fff_0000_3fff) | ((pairs & 0x3fff_0000) >> 2);
    (fours as u32 & 0x0fff_ffff) | ((fours >> 32) as u32) << 28
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_bits_are_gathered_alike() {
        // An interpreter is slow: some of them.
        for pattern in (0..=u16::MAX).step_by(if cfg!(miri) { 257 } else { 1 }) {
            let bytes: [u8; 16] = core::array::from_fn(|n| {
                ((pattern >> n & 1) as u8) << 7 | ((n as u8).wrapping_mul(37) & 127)
            });
            // SAFETY: 16 bytes.
            assert_eq!(unsafe { high_bits(bytes.as_ptr()) }, u32::from(pattern));
            assert_eq!(high_bits_portably(bytes), u32::from(pattern));
        }
    }

    #[test]
    fn numbers_are_read_at_once() {
        for value in [0, 1, 127, 128, 16_383, 16_384, 0x0fff_ffff, 0x1000_0000, u32::MAX] {
            let mut bytes = [0xff; 12];
            let mut length_bytes = 0;
            crate::varint::write(&mut bytes, &mut length_bytes, value).expect("room");
            // SAFETY: twelve bytes.
            assert_eq!(unsafe { number(bytes.as_ptr(), length_bytes as u32) }, value);
        }
    }
}
