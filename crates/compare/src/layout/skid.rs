//! Samples that land one instruction late, moved back to the one that took the time.

use std::collections::BTreeMap;

use super::{Samples, function_index};
use crate::code::{Flow, Image};
use crate::model::Svma;

impl Samples {
    /// Moves each sample to the instruction in front of the one that it names. Those at the start of a
    /// function, behind a jump that is always taken, or within no instruction stay where they are: what
    /// ran before them is not known.
    pub fn move_back(&mut self, image: &Image) {
        let mut moved: BTreeMap<Svma, u64> = BTreeMap::new();
        let mut rest = std::mem::take(&mut self.hits).into_iter().peekable();
        while let Some((at, count)) = rest.next() {
            let function = function_index(image, at).and_then(|i| image.functions().get(i));
            let Some(function) = function else {
                *moved.entry(at).or_default() += count;
                continue;
            };
            let code = image.architecture().decode(image.function_bytes(function), function.start);
            let mut back = |at: Svma, count: u64| {
                let index = code.binary_search_by_key(&at, |insn| insn.svma).ok();
                let before = index.and_then(|i| i.checked_sub(1)).map(|i| &code[i]);
                let came_from = before
                    .filter(|insn| matches!(insn.flow, Flow::Next | Flow::Branch(_) | Flow::Call));
                *moved.entry(came_from.map_or(at, |insn| insn.svma)).or_default() += count;
            };
            back(at, count);
            while let Some((at, count)) = rest.next_if(|(at, _)| *at < function.end()) {
                back(at, count);
            }
        }
        self.hits = moved;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::fixture;

    #[test]
    fn a_late_sample_goes_to_the_instruction_in_front() {
        // nop; div ecx; nop; jmp +0; nop; ret
        let code = [0x90, 0xf7, 0xf1, 0x90, 0xeb, 0x00, 0x90, 0xc3];
        let image = fixture::image(&[("f", &code)]).unwrap();
        let start = fixture::CODE_START.0;
        let hits = [(0, 1), (1, 2), (3, 90), (6, 4), (7, 8), (100, 16)];
        let hits = hits.into_iter().map(|(at, n)| (start.offset(at), n)).collect();
        let mut samples = Samples { hits, ..Samples::default() };
        samples.move_back(&image);
        // The first stays and gets those of the second; what stands behind the jump stays.
        let wanted = [(0, 3), (1, 90), (6, 12), (100, 16)];
        let wanted: BTreeMap<Svma, u64> =
            wanted.into_iter().map(|(at, n)| (start.offset(at), n)).collect();
        assert_eq!(samples.hits, wanted);
    }
}
