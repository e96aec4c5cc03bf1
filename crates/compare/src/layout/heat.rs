//! Samples or counts of one build by cache line, each line with the function that it belongs to.

use std::collections::BTreeMap;

use crate::code::{Image, x86};
use crate::machine::CacheGeometry;
use crate::model::{FileOffset, Svma};

const INSN_BYTES: u64 = 15;
/// A line is in use with this share of all samples, or of all executions: fewer are strays of the
/// sampling, or of what runs once at the start.
const SAMPLED_SHARE: u64 = 100_000;
const COUNTED_SHARE: u64 = 1_000_000;

/// What is known about where one build ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// In words: the file and the event, or the engine and its period.
    pub source: String,
    /// Samples or executions by address.
    pub hits: BTreeMap<Svma, u64>,
    /// Whether `hits` are executions of every instruction and not samples of some.
    pub is_complete: bool,
    /// Simulated misses of the instruction cache by address, where they were simulated.
    pub misses: Option<BTreeMap<Svma, u64>>,
    /// What the reader must know about them.
    pub notes: Vec<String>,
}

impl Samples {
    /// Samples by position in the file; those outside what is mapped are left out, with a note.
    #[must_use]
    pub fn of_file(image: &Image, source: String, hits: &BTreeMap<FileOffset, u64>) -> Self {
        let mut samples = Self { source, ..Self::default() };
        let mut outside = 0;
        for (offset, count) in hits {
            match image.svma_of(*offset) {
                Some(svma) => *samples.hits.entry(svma).or_default() += count,
                None => outside += count,
            }
        }
        if outside > 0 {
            samples.notes.push(format!("{outside} samples lie at positions that are not mapped"));
        }
        samples
    }
}

/// One cache line that was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HotLine {
    /// Its samples or executions; 0 for a line that holds only the end of an instruction.
    pub samples: u64,
    /// Simulated misses of the line.
    pub misses: u64,
    /// Which function (by position in [`Image::functions`]) has most of them; `None` for code
    /// that no function covers.
    pub function: Option<usize>,
    /// Whether it has enough to be in use, and is no stray.
    pub is_in_use: bool,
    most: u64,
}

/// Samples of one build by cache line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineHeat {
    /// Lines that were seen, by their address.
    pub lines: BTreeMap<Svma, HotLine>,
    /// Samples of each function, by position in [`Image::functions`].
    pub functions: BTreeMap<usize, u64>,
    /// All samples in the program.
    pub samples: u64,
    /// Simulated misses, where they are known.
    pub misses: Option<u64>,
}

impl LineHeat {
    /// Books samples on lines and functions.
    #[must_use]
    pub fn of(image: &Image, geometry: CacheGeometry, samples: &Samples) -> Self {
        let mut heat = Self {
            samples: samples.hits.values().sum(),
            misses: samples.misses.as_ref().map(|m| m.values().sum()),
            ..Self::default()
        };
        // Samples of one function in one line, until the next line or function begins.
        let mut current: Option<(Svma, Option<usize>, u64)> = None;
        for (svma, count) in &samples.hits {
            let (line, function) = (geometry.line_of(*svma), function_index(image, *svma));
            match &mut current {
                Some((l, f, sum)) if (*l, *f) == (line, function) => *sum += count,
                _ => heat.book(current.replace((line, function, *count))),
            }
        }
        heat.book(current);
        for (svma, count) in samples.misses.iter().flatten() {
            heat.lines.entry(geometry.line_of(*svma)).or_default().misses += count;
        }
        let share = if samples.is_complete { COUNTED_SHARE } else { SAMPLED_SHARE };
        let least = (heat.samples / share).max(1);
        for line in heat.lines.values_mut() {
            line.is_in_use = line.samples >= least;
        }
        if samples.is_complete {
            heat.add_ends(image, geometry, samples, least);
        }
        heat
    }

    fn book(&mut self, part: Option<(Svma, Option<usize>, u64)>) {
        let Some((line, function, count)) = part else { return };
        let hot = self.lines.entry(line).or_default();
        hot.samples += count;
        if count > hot.most {
            (hot.most, hot.function) = (count, function);
        }
        if let Some(function) = function {
            *self.functions.entry(function).or_default() += count;
        }
    }

    /// An instruction that reaches into the next line needs that line too.
    fn add_ends(&mut self, image: &Image, geometry: CacheGeometry, samples: &Samples, least: u64) {
        for (svma, count) in &samples.hits {
            let next = geometry.line_of(*svma).offset(i64::from(geometry.line_bytes));
            let room = next.distance_from(*svma).unwrap_or(u64::MAX);
            if room >= INSN_BYTES || *count < least {
                continue;
            }
            let bytes = image.code_at(*svma, INSN_BYTES);
            let length = x86::decode(bytes, *svma).first().map_or(0, |i| i.length_bytes);
            if u64::from(length) > room {
                let line = self.lines.entry(next).or_default();
                line.is_in_use = true;
                line.function = line.function.or_else(|| function_index(image, *svma));
            }
        }
    }
}

/// The position of the function that holds `svma`.
#[must_use]
pub fn function_index(image: &Image, svma: Svma) -> Option<usize> {
    let functions = image.functions();
    let index = functions.partition_point(|f| f.start <= svma).checked_sub(1)?;
    (svma < functions[index].end()).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::fixture;

    #[test]
    fn samples_are_booked_on_lines_and_functions() {
        let code = [0x90_u8; 100];
        let image = fixture::image(&[("a", &code), ("b", &code)]).unwrap();
        let l1i = CacheGeometry { sets: 64, ways: 8, line_bytes: 64 };
        let at = |bytes: u64| FileOffset(fixture::CODE_START.1.0 + bytes);
        // `b` starts 112 bytes in; its first 16 bytes share a line with the end of `a`.
        let hits = [(at(3), 5), (at(70), 1), (at(113), 2), (at(130), 4), (FileOffset(1 << 40), 9)];
        let samples = Samples::of_file(&image, "invented".into(), &hits.into());
        assert_eq!(samples.notes.len(), 1);
        let heat = LineHeat::of(&image, l1i, &samples);
        assert_eq!((heat.samples, heat.misses), (12, None));
        let start = fixture::CODE_START.0;
        let line = |bytes: i64| heat.lines[&start.offset(bytes)];
        assert_eq!((line(0).samples, line(0).function), (5, Some(0)));
        assert_eq!((line(64).samples, line(64).function), (3, Some(1)));
        assert_eq!((line(128).samples, line(128).function), (4, Some(1)));
        assert_eq!((heat.functions[&0], heat.functions[&1]), (6, 6));
        // Two places of one function in one line are one part of it: five against four of another.
        let hits = [(at(66), 3), (at(70), 2), (at(113), 4)];
        let samples = Samples::of_file(&image, "invented".into(), &hits.into());
        let line = LineHeat::of(&image, l1i, &samples).lines[&start.offset(64)];
        assert_eq!((line.samples, line.function), (9, Some(0)));
    }

    #[test]
    fn an_instruction_over_the_end_of_a_line_uses_both() {
        // 60 nops, then mov rax, imm64 (10 bytes), then a return.
        let mut code = vec![0x90_u8; 60];
        code.extend([0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8, 0xc3]);
        let image = fixture::image(&[("f", &code)]).unwrap();
        let start = fixture::CODE_START.0;
        let mut samples = Samples {
            hits: [(start.offset(60), 7)].into(),
            is_complete: true,
            ..Samples::default()
        };
        let l1i = CacheGeometry { sets: 64, ways: 8, line_bytes: 64 };
        let used = |samples: &Samples| LineHeat::of(&image, l1i, samples).lines.len();
        assert_eq!(used(&samples), 2);
        samples.is_complete = false;
        assert_eq!(used(&samples), 1);
        // One byte further in front it ends where the line does.
        samples.is_complete = true;
        let at = |nops: usize| {
            let mut code = vec![0x90_u8; nops];
            code.extend([0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8, 0xc3]);
            let image = fixture::image(&[("f", &code)]).unwrap();
            let hits = [(start.offset(nops as i64), 7)].into();
            LineHeat::of(&image, l1i, &Samples { hits, ..samples.clone() })
        };
        assert_eq!((at(54).lines.len(), at(55).lines.len(), at(49).lines.len()), (1, 2, 1));
        let next = at(55).lines[&start.offset(64)];
        assert!(next.is_in_use && next.samples == 0 && next.function == Some(0));
        samples.hits = [(start.offset(60), 1)].into();
        assert_eq!(used(&samples), 2, "one execution is as many as are needed");
    }

    #[test]
    fn a_line_is_in_use_with_its_share_of_all() {
        let code = [0x90_u8; 200];
        let image = fixture::image(&[("f", &code)]).unwrap();
        let l1i = CacheGeometry { sets: 64, ways: 8, line_bytes: 64 };
        let start = fixture::CODE_START.0;
        let in_use = |all: u64, few: u64, is_complete| {
            let hits = [(start, all - few), (start.offset(64), few)].into();
            let misses = Some([(start.offset(64), 3), (start.offset(70), 4)].into());
            let samples = Samples { hits, is_complete, misses, ..Samples::default() };
            let heat = LineHeat::of(&image, l1i, &samples);
            let line = heat.lines[&start.offset(64)];
            assert_eq!((heat.misses, line.misses), (Some(7), 7));
            line.is_in_use
        };
        // One sample in a hundred thousand, one execution in a million.
        assert!(in_use(500_000, 5, false) && !in_use(500_000, 4, false));
        assert!(in_use(5_000_000, 5, true) && !in_use(5_000_000, 4, true));
        assert!(in_use(100, 1, false));
    }

    #[test]
    fn an_address_belongs_to_the_function_that_reaches_over_it() {
        let image = fixture::image(&[("a", &[0x90; 20]), ("b", &[0x90; 16])]).unwrap();
        let index = |at: i64| function_index(&image, fixture::CODE_START.0.offset(at));
        assert_eq!(
            [index(-1), index(0), index(19), index(32), index(47)],
            [None, Some(0), Some(0), Some(1), Some(1)]
        );
        assert_eq!([index(20), index(31), index(48)], [None; 3]);
    }
}
