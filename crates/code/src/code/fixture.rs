//! Invented programs for tests: ELF files made of given machine code.
//!
//! Just enough of a linked x86-64 program to be read by [`super::Image`]: one segment, `.text`, a
//! symbol table. Nothing can run them.

use std::path::Path;

use super::{CodeError, Image};
use crate::model::{FileOffset, Svma};

/// Where the code of an invented program starts in memory, and in the file.
pub const CODE_START: (Svma, FileOffset) = (Svma(0x40_1000), FileOffset(0x1000));

const HEADER_BYTES: u16 = 64;
const SEGMENT_HEADER_BYTES: u16 = 56;
const SECTION_HEADER_BYTES: u16 = 64;
const SYMBOL_BYTES: u64 = 24;

/// Appends numbers in little-endian order.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u16(&mut self, values: &[u16]) {
        values.iter().for_each(|v| self.0.extend(v.to_le_bytes()));
    }

    fn u32(&mut self, values: &[u32]) {
        values.iter().for_each(|v| self.0.extend(v.to_le_bytes()));
    }

    fn u64(&mut self, values: &[u64]) {
        values.iter().for_each(|v| self.0.extend(v.to_le_bytes()));
    }
}

/// Where each function of [`program`] starts: one after the other, each at a multiple of 16.
#[must_use]
pub fn starts(functions: &[(&str, &[u8])]) -> Vec<Svma> {
    let mut at = CODE_START.0;
    functions
        .iter()
        .map(|(_, code)| {
            let start = at;
            at = at.offset((code.len() as i64).div_euclid(16) * 16 + 16);
            start
        })
        .collect()
}

/// The bytes of a program with these functions.
#[must_use]
pub fn program(functions: &[(&str, &[u8])]) -> Vec<u8> {
    let starts = starts(functions);
    let mut text = Vec::new();
    let mut names = vec![0_u8];
    let mut symbols = Bytes(vec![0; SYMBOL_BYTES as usize]);
    for ((name, code), start) in functions.iter().zip(&starts) {
        text.resize((start.0 - CODE_START.0.0) as usize, 0x90);
        text.extend_from_slice(code);
        symbols.u32(&[names.len() as u32]);
        // A global function in section 1.
        symbols.u16(&[0x12, 1]);
        symbols.u64(&[start.0, code.len() as u64]);
        names.extend_from_slice(name.as_bytes());
        names.push(0);
    }
    assemble(&text, &symbols.0, &names)
}

/// That program as it is read from a file `p`.
///
/// # Errors
/// None that tests know of.
pub fn image(functions: &[(&str, &[u8])]) -> Result<Image, CodeError> {
    Image::parse(Path::new("p"), program(functions))
}

fn assemble(text: &[u8], symbols: &[u8], names: &[u8]) -> Vec<u8> {
    let section_names = b"\0.text\0.symtab\0.strtab\0";
    let text_at = CODE_START.1.0;
    let symbols_at = (text_at + text.len() as u64).next_multiple_of(8);
    let names_at = symbols_at + symbols.len() as u64;
    let section_names_at = names_at + names.len() as u64;
    let sections_at = (section_names_at + section_names.len() as u64).next_multiple_of(8);

    let mut out = Bytes(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec());
    out.u16(&[2, 62]);
    out.u32(&[1]);
    out.u64(&[CODE_START.0.0, u64::from(HEADER_BYTES), sections_at]);
    out.u32(&[0]);
    out.u16(&[HEADER_BYTES, SEGMENT_HEADER_BYTES, 1, SECTION_HEADER_BYTES, 5, 4]);
    out.u32(&[1, 5]);
    let size = text.len() as u64;
    out.u64(&[text_at, CODE_START.0.0, CODE_START.0.0, size, size, 0x1000]);
    for (at, part) in [(text_at, text), (symbols_at, symbols), (names_at, names)] {
        out.0.resize(at as usize, 0);
        out.0.extend_from_slice(part);
    }
    out.0.extend_from_slice(section_names);
    out.0.resize(sections_at as usize, 0);
    let mut section =
        |name: u32, kind: u32, flags: u64, addr: u64, at: u64, size: u64, link: u32| {
            out.u32(&[name, kind]);
            out.u64(&[flags, addr, at, size]);
            out.u32(&[link, u32::from(kind == 2)]);
            out.u64(&[1, if kind == 2 { SYMBOL_BYTES } else { 0 }]);
        };
    section(0, 0, 0, 0, 0, 0, 0);
    section(1, 1, 6, CODE_START.0.0, text_at, size, 0);
    section(7, 2, 0, 0, symbols_at, symbols.len() as u64, 3);
    section(15, 3, 0, 0, names_at, names.len() as u64, 0);
    section(15, 3, 0, 0, section_names_at, section_names.len() as u64, 0);
    out.0
}

/// A loop that reads a ring of pairs as the first story's decoder does: `wide` reads 64 bits of
/// what was written in two halves, otherwise it reads the halves.
#[must_use]
pub fn ring_loop(wide: bool) -> Vec<u8> {
    let load: &[u8] = if wide {
        // movq xmm0, [rsp+r9*8-0x10]
        &[0xf3, 0x42, 0x0f, 0x7e, 0x44, 0xcc, 0xf0]
    } else {
        // mov r10d, [rsp+r9*8-0x10]; mov r12d, [rsp+r9*8-0xc]
        &[0x46, 0x8b, 0x54, 0xcc, 0xf0, 0x46, 0x8b, 0x64, 0xcc, 0xf4]
    };
    let mut code = vec![0x41, 0x89, 0xc9, 0x41, 0x83, 0xe1, 0x0f]; // mov r9d, ecx; and r9d, 15
    code.extend_from_slice(load);
    code.extend([0xff, 0xc3, 0x83, 0xe3, 0x0f]); // inc ebx; and ebx, 15
    code.extend([0x44, 0x89, 0x5c, 0xdc, 0xf0]); // mov [rsp+rbx*8-0x10], r11d
    code.extend([0x44, 0x89, 0x74, 0xdc, 0xf4]); // mov [rsp+rbx*8-0xc], r14d
    code.extend([0x49, 0xff, 0xcf]); // dec r15
    let back = -(code.len() as i8 + 2);
    code.extend([0x75, back as u8, 0xc3]); // jnz; ret
    code
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Image;
    use std::path::Path;

    #[test]
    fn an_invented_program_reads_like_a_real_one() {
        let (wide, ret) = (ring_loop(true), [0xc3_u8]);
        let functions: [(&str, &[u8]); 2] = [("decode", &wide), ("main", &ret)];
        let image = Image::parse(Path::new("p"), program(&functions)).unwrap();
        let found: Vec<_> =
            image.functions().iter().map(|f| (f.symbol.as_str(), f.start, f.size_bytes)).collect();
        let starts = starts(&functions);
        assert_eq!(found, [("decode", starts[0], wide.len() as u64), ("main", starts[1], 1)]);
        assert_eq!(image.function_bytes(&image.functions()[0]), wide);
        assert_eq!(image.svma_of(CODE_START.1), Some(CODE_START.0));
    }
}
