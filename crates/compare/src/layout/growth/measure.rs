//! One function, measured: its bytes without alignment, and what it does that costs bytes.

use std::collections::BTreeMap;

use crate::code::{
    Architecture, Flow, Function, FunctionCode, Image, Insn, Origins, may_hold_strings,
    string_sites,
};
use crate::hazards::{StringEntry, direct_target};
use crate::model::Svma;

/// Padding that ends at a multiple of this, or with the function, aligns something. Padding where a
/// function starts is room for patching and counts as code.
const ALIGNMENT_BYTES: u64 = 8;

/// Inlined string instructions by name and size.
pub(super) type Strings = BTreeMap<(String, Option<u64>), usize>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Measured {
    /// Bytes of code, alignment not counted.
    pub code_bytes: u64,
    /// Bytes that only align what is behind them.
    pub alignment_bytes: u64,
    pub strings: Strings,
    /// How often it calls, or leaves for, each function that is known by name.
    pub calls: BTreeMap<String, usize>,
    pub loops: usize,
}

impl Measured {
    pub fn of(image: &Image, origins: &Origins, function: &Function) -> Self {
        let code = FunctionCode::of(image, function);
        let alignment_bytes = alignment_bytes(&code.insns, function);
        let mut measured = Self {
            code_bytes: function.size_bytes.saturating_sub(alignment_bytes),
            alignment_bytes,
            strings: strings(image, function, Some(&code)),
            loops: code.loops.len(),
            ..Self::default()
        };
        for insn in &code.insns {
            if let Some(name) = callee(image, origins, function, insn) {
                *measured.calls.entry(super::stem(&name).to_owned()).or_default() += 1;
            }
        }
        measured
    }

    /// Adds another part of the same function: a clone, or what was split off.
    pub fn add(&mut self, other: &Self) {
        self.code_bytes += other.code_bytes;
        self.alignment_bytes += other.alignment_bytes;
        self.loops += other.loops;
        for (key, count) in &other.strings {
            *self.strings.entry(key.clone()).or_default() += count;
        }
        for (name, count) in &other.calls {
            *self.calls.entry(name.clone()).or_default() += count;
        }
    }
}

/// The inlined string instructions of a function, without decoding it when it can have none.
pub(super) fn strings(image: &Image, function: &Function, code: Option<&FunctionCode>) -> Strings {
    let bytes = image.function_bytes(function);
    let mut found = Strings::new();
    if image.architecture() != Architecture::X86_64 || !may_hold_strings(bytes) {
        return found;
    }
    let sites = match code {
        Some(code) => string_sites(bytes, code),
        None => string_sites(bytes, &FunctionCode::of(image, function)),
    };
    for site in sites {
        let entry = StringEntry::of(None, &site);
        *found.entry((entry.instruction, entry.size_bytes)).or_default() += 1;
    }
    found
}

fn alignment_bytes(insns: &[Insn], function: &Function) -> u64 {
    let mut sum = 0;
    for run in insns.chunk_by(|a, b| a.is_padding == b.is_padding) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
        let end = last.end();
        let aligns = end.0.is_multiple_of(ALIGNMENT_BYTES) && first.svma != function.start;
        if first.is_padding && (aligns || end >= function.end()) {
            sum += end.distance_from(first.svma).unwrap_or(0);
        }
    }
    sum
}

/// The name of what an instruction calls, or leaves the function for with a jump, where the program's tables tell.
#[must_use]
pub fn callee(
    image: &Image,
    origins: &Origins,
    function: &Function,
    insn: &Insn,
) -> Option<String> {
    let leaves = |to: Svma| to < function.start || to >= function.end();
    match insn.flow {
        Flow::Jump(to) | Flow::Branch(to) if leaves(to) => origins.callee(image, to),
        Flow::Call | Flow::IndirectJump => {
            let bytes = image.code_at(insn.svma, u64::from(insn.length_bytes));
            if let Some(target) = call_target(image.architecture(), bytes, insn) {
                return origins.callee(image, target);
            }
            // Through a slot that the loader fills: the address is relative to the instruction.
            let slot =
                insn.load.filter(|a| a.address.base.is_none() && a.address.index.is_none())?;
            origins.callee_through(Svma(slot.address.displacement as u64)).map(str::to_owned)
        }
        _ => None,
    }
}

fn call_target(architecture: Architecture, bytes: &[u8], insn: &Insn) -> Option<Svma> {
    match architecture {
        Architecture::X86_64 => direct_target(bytes, insn.end()),
        Architecture::Aarch64 => {
            let word = u32::from_le_bytes(*bytes.first_chunk()?);
            // bl: 26 signed bits of words.
            let words = i64::from((word << 6) as i32 >> 6);
            (word & 0xfc00_0000 == 0x9400_0000).then(|| insn.svma.offset(4 * words))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::fixture;

    fn measured(functions: &[(&str, &[u8])]) -> Measured {
        let image = fixture::image(functions).unwrap();
        Measured::of(&image, &Origins::of(&image), &image.functions()[0])
    }

    #[test]
    fn alignment_inside_and_behind_is_not_code_and_room_for_patching_is() {
        // nop (5 bytes); dec edi; nop to 16; (loop:) dec esi; jnz loop; ret; int3
        let mut code = vec![0x0f, 0x1f, 0x44, 0x00, 0x00, 0xff, 0xcf];
        code.resize(16, 0x90);
        code.extend([0xff, 0xce, 0x75, 0xfc, 0xc3, 0xcc]);
        let found = measured(&[("f", &code)]);
        assert_eq!((found.alignment_bytes, found.code_bytes), (10, 12));
        assert_eq!(found.loops, 1);
    }

    #[test]
    fn string_instructions_and_calls_are_counted_by_name() {
        // mov ecx, 6; rep stosq; call g; jmp g (the second function, 32 bytes on)
        let code = [0xb9, 6, 0, 0, 0, 0xf3, 0x48, 0xab, 0xe8, 19, 0, 0, 0, 0xe9, 14, 0, 0, 0];
        let found = measured(&[("f", &code), ("g.isra.0", &[0xc3])]);
        assert_eq!(found.strings, Strings::from([(("rep stosq".to_owned(), Some(48)), 1)]));
        assert_eq!(found.calls, BTreeMap::from([("g".to_owned(), 2)]));
    }
}
