//! The quick decoder against the full one.

use proptest::prelude::*;

use super::*;

fn quickly(code: &[u8], address: u64) -> Option<Insn> {
    let mut insn = Insn::plain(Svma(address), 0);
    decode(code, &mut insn).map(|()| insn)
}
use crate::code::x86::FullDecoder;

#[test]
fn a_real_program_reads_the_same_and_most_of_it_is_everyday() {
    let program = std::env::var_os("STALLSCOPE_PROGRAM").map(std::path::PathBuf::from);
    let path = program.unwrap_or_else(|| std::env::current_exe().unwrap());
    let image = crate::code::Image::open(&path).unwrap();
    let (mut seen, mut known) = (0_u64, 0_u64);
    for function in image.functions().iter().step_by(3) {
        let code = image.function_bytes(function);
        let mut full = FullDecoder::of(code, function.start);
        let mut at = 0;
        while at < code.len() {
            let address = function.start.0 + at as u64;
            let expected = full.insn(at, address);
            let bytes = &code[at..(at + 15).min(code.len())];
            if let Some(quick) = quickly(&code[at..], address) {
                assert_eq!(quick, expected, "{bytes:02x?}");
                known += 1;
            }
            seen += 1;
            at += usize::from(expected.length_bytes);
        }
    }
    assert!(seen > 100_000 && known * 10 > seen * 9, "{known} of {seen}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200_000))]

    #[test]
    fn what_it_knows_is_what_the_full_decoder_says(
        prefix in prop::sample::select(vec![
            vec![], vec![], vec![0x66], vec![0xf2], vec![0xf3], vec![0x66, 0xf2],
        ]),
        rex in prop::option::of(0x40_u8..0x50),
        escape in any::<bool>(),
        rest in prop::collection::vec(any::<u8>(), 1..18),
        address in prop::sample::select(vec![0, 0x40_1000, u64::MAX - 5]),
    ) {
        let mut code = prefix;
        code.extend(rex);
        if escape {
            code.push(0x0f);
        }
        code.extend(rest);
        if let Some(quick) = quickly(&code, address) {
            let expected = FullDecoder::of(&code, Svma(address)).insn(0, address);
            prop_assert_eq!(quick, expected, "{:02x?}", code);
        }
    }
}
