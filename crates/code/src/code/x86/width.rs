//! How many bytes of memory an instruction can touch at the most, by its opcode, for
//! [`super::survey`]. What is not listed gets a bound that is too large rather than too small.

/// The widest plain access there is.
const MOST_BYTES: u64 = 64;

/// At the most so many bytes; zero for what touches none.
pub(super) fn widest_bytes(insn: &[u8]) -> u64 {
    let (mut narrow, mut repeat, mut long) = (false, 0, false);
    for (at, op) in insn.iter().enumerate() {
        match op {
            0x66 => narrow = true,
            0xf2 | 0xf3 => repeat = *op,
            0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x67 | 0xf0 => {}
            0x40..=0x4f => long = op & 8 != 0,
            _ => {
                let general = if long {
                    8
                } else if narrow {
                    2
                } else {
                    4
                };
                let next = |n: usize| insn.get(at + n).copied().unwrap_or(0);
                return match op {
                    0x0f => escaped(next(1), next(2), repeat, general),
                    // The bit that chooses vectors of 32 bytes.
                    0xc5 => {
                        if next(1) & 4 == 0 {
                            16
                        } else {
                            32
                        }
                    }
                    // The configuration of tiles is longer than any vector.
                    0xc4 if next(3) == 0x49 => MOST_BYTES,
                    0xc4 => {
                        if next(2) & 4 == 0 {
                            16
                        } else {
                            32
                        }
                    }
                    0x62 | 0x8f => MOST_BYTES,
                    _ => one_byte(*op, next(1), general),
                };
            }
        }
    }
    MOST_BYTES
}

fn one_byte(op: u8, mod_rm: u8, general: u64) -> u64 {
    match op {
        0x8d => 0,
        0x00..=0x3f if op & 1 == 0 => 1,
        0x80 | 0x84 | 0x86 | 0x88 | 0x8a | 0xc0 | 0xc6 | 0xd0 | 0xd2 | 0xf6 | 0xfe => 1,
        0x8c | 0x8e => 2,
        0x63 => 4,
        // Through memory; far calls and jumps take ten.
        0xff if !matches!(mod_rm >> 3 & 7, 3 | 5) => 8,
        0x00..=0x3f
        | 0x69
        | 0x6b
        | 0x81
        | 0x83
        | 0x85
        | 0x87
        | 0x89
        | 0x8b
        | 0xc1
        | 0xc7
        | 0xd1
        | 0xd3
        | 0xf7 => general,
        _ => MOST_BYTES,
    }
}

fn escaped(op: u8, third: u8, repeat: u8, general: u64) -> u64 {
    match op {
        // Behind it are keys and direct stores.
        0x38 if third < 0xd8 => 16,
        0x3a => 16,
        0x90..=0x9f | 0xb0 | 0xb6 | 0xbe | 0xc0 => 1,
        0xb7 | 0xbf => 2,
        0x40..=0x4f
        | 0xa3..=0xa5
        | 0xab..=0xad
        | 0xaf
        | 0xb1
        | 0xb3
        | 0xb8
        | 0xba..=0xbd
        | 0xc1 => general,
        0x10 | 0x11 | 0x51..=0x53 | 0x58..=0x5a | 0x5c..=0x5f | 0xc2 => match repeat {
            0xf3 => 4,
            0xf2 => 8,
            _ => 16,
        },
        0x2a | 0x2c..=0x2f | 0x6e => {
            if repeat == 0 && op != 0x2e && op != 0x2f {
                16
            } else {
                8
            }
        }
        0x12 | 0x13 | 0x16 | 0x17 if repeat != 0xf3 => 8,
        0x7e | 0xc3 | 0xd6 => 8,
        0x12
        | 0x14..=0x16
        | 0x28
        | 0x29
        | 0x2b
        | 0x54..=0x57
        | 0x5b
        | 0x60..=0x6d
        | 0x6f..=0x76
        | 0x7c
        | 0x7d
        | 0x7f
        | 0xd0..=0xfe => 16,
        _ => MOST_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50_000))]

        /// Never less than what the full decoder says.
        #[test]
        fn no_access_is_wider(
            prefix in prop::sample::select(vec![
                vec![], vec![0x66], vec![0x48], vec![0xf2], vec![0xf3], vec![0x0f], vec![0x66, 0x0f],
                vec![0xf2, 0x0f], vec![0xf3, 0x0f], vec![0x48, 0x0f], vec![0x66, 0x0f, 0x38],
                vec![0x0f, 0x38], vec![0x66, 0x0f, 0x3a], vec![0xc5, 0xf8], vec![0xc5, 0xfc],
                vec![0xc4, 0xe1, 0x7d], vec![0xc4, 0xe2, 0x79], vec![0xc4, 0xe2, 0x7d],
                vec![0x62, 0xf1, 0x7c, 0x48],
            ]),
            op in any::<u8>(),
            reg in 0_u8..8,
            rest in prop::collection::vec(any::<u8>(), 12),
        ) {
            // Relative to the instruction pointer, as the survey asks about.
            let code = [prefix, vec![op, reg << 3 | 5], rest].concat();
            let insns = crate::code::x86::decode(&code[..15.min(code.len())], crate::model::Svma(0));
            let raw = Decoder::new(64, &code, DecoderOptions::NONE).decode();
            if !raw.is_invalid() && raw.is_ip_rel_memory_operand() {
                let insn = insns[0];
                let wide = [insn.load, insn.store].into_iter().flatten().map(|a| a.size_bytes).max();
                let bound = widest_bytes(&code[..raw.len()]);
                prop_assert!(u64::from(wide.unwrap_or(0)) <= bound, "{insn:?} {bound} {code:02x?}");
            }
        }
    }
}
