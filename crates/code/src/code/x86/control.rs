//! A program that keeps the rules of arithmetic that it was started with.
//!
//! The control register of vector arithmetic (MXCSR) says whether denormal numbers are taken for zero. A program can load
//! it, and what was set before its first instruction is gone then: runs that are to be compared under one rule need the
//! loads left out. Those of libraries stay.

use iced_x86::{Decoder, DecoderOptions, Mnemonic};

use super::super::Image;
use super::patch::{Patch, PatchError};
use crate::model::Svma;

/// The program without its loads of the control register.
///
/// # Errors
/// When one of them cannot be replaced; the address tells which.
pub fn without_control_loads(image: &Image) -> Result<Patch, (Svma, PatchError)> {
    let mut sites = Vec::new();
    for function in image.functions() {
        let code = image.function_bytes(function);
        // Their opcode behind an escape or a VEX prefix; few functions are decoded.
        if !code.windows(2).any(|pair| matches!(pair, [0x0f | 0xf8, 0xae])) {
            continue;
        }
        let decoder = Decoder::with_ip(64, code, function.start.0, DecoderOptions::NONE);
        let is_load = |m: Mnemonic| matches!(m, Mnemonic::Ldmxcsr | Mnemonic::Vldmxcsr);
        sites.extend(decoder.into_iter().filter(|i| is_load(i.mnemonic())).map(|i| Svma(i.ip())));
    }
    Patch::of(image, &sites, &|_| Ok(Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::fixture;
    use crate::model::Avma;

    #[test]
    fn loads_of_the_control_register_are_left_out_and_nothing_else() {
        // stmxcsr [rsp+12]; ldmxcsr [rsp+12]; add rax, 1; ret; and a function without them.
        let sets: &[u8] = &[
            0x0f, 0xae, 0x5c, 0x24, 0x0c, 0x0f, 0xae, 0x54, 0x24, 0x0c, 0x48, 0x83, 0xc0, 0x01,
            0xc3,
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let patch = |functions: &[(&str, &[u8])]| {
            std::fs::write(&path, fixture::program(functions)).unwrap();
            without_control_loads(&Image::open(&path).unwrap()).unwrap()
        };
        let other: &[u8] = &[0x48, 0x83, 0xc0, 0x01, 0xc3];
        let encoded =
            patch(&[("sets", sets), ("other", other)]).encode(Avma(0x70_0000), 0).unwrap();
        let [(_, replaced, _)] = &encoded.jumps[..] else { panic!("{encoded:?}") };
        assert_eq!(replaced[..5], sets[5..10]);
        // Nothing but the way back stands in its place.
        assert_eq!((encoded.trampolines.len(), encoded.trampolines[0]), (5, 0xe9));
        assert!(patch(&[("other", other)]).is_empty());
    }
}
