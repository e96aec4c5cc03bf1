//! Samples of one build by cache line, each with the function that it belongs to.

use std::collections::BTreeMap;

use super::Geometry;
use crate::code::Image;
use crate::model::{FileOffset, Svma};

/// One cache line with samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HotLine {
    /// Its samples.
    pub samples: u64,
    /// Which function (by position in [`Image::functions`]) has most of them; `None` for code
    /// that no function covers.
    pub function: Option<usize>,
    most: u64,
}

/// The samples of one build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineHeat {
    /// By the line's address.
    pub lines: BTreeMap<Svma, HotLine>,
    /// Samples of each function, by position in [`Image::functions`].
    pub functions: BTreeMap<usize, u64>,
    /// All samples in the program.
    pub samples: u64,
    /// Samples at positions that are not mapped as code.
    pub outside: u64,
}

impl LineHeat {
    /// Books samples, given by position in the file, on lines and functions.
    #[must_use]
    pub fn of(image: &Image, geometry: Geometry, hits: &BTreeMap<FileOffset, u64>) -> Self {
        let mut heat =
            Self { lines: BTreeMap::new(), functions: BTreeMap::new(), samples: 0, outside: 0 };
        // Samples of one function in one line, until the next line or function begins.
        let mut current: Option<(Svma, Option<usize>, u64)> = None;
        for (offset, count) in hits {
            let Some(svma) = image.svma_of(*offset) else {
                heat.outside += count;
                continue;
            };
            heat.samples += count;
            let (line, function) = (geometry.line_of(svma), function_index(image, svma));
            match &mut current {
                Some((l, f, sum)) if (*l, *f) == (line, function) => *sum += count,
                _ => heat.book(current.replace((line, function, *count))),
            }
        }
        heat.book(current);
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

    /// The function with the most samples.
    #[must_use]
    pub fn hottest(&self) -> Option<usize> {
        self.functions.iter().max_by_key(|(_, n)| **n).map(|(index, _)| *index)
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
    use std::path::Path;

    use super::*;
    use crate::code::fixture;

    #[test]
    fn samples_are_booked_on_lines_and_functions() {
        let code = [0x90_u8; 100];
        let bytes = fixture::program(&[("a", &code), ("b", &code)]);
        let image = Image::parse(Path::new("invented"), bytes).unwrap();
        let l1i = Geometry::new(64, 64, 8).unwrap();
        let at = |bytes: u64| FileOffset(fixture::CODE_START.1.0 + bytes);
        // `b` starts 112 bytes in; its first 16 bytes share a line with the end of `a`.
        let hits = [(at(3), 5), (at(70), 1), (at(113), 2), (at(130), 4), (FileOffset(1 << 40), 9)];
        let heat = LineHeat::of(&image, l1i, &hits.into());
        assert_eq!((heat.samples, heat.outside), (12, 9));
        let start = fixture::CODE_START.0;
        let line = |bytes: i64| heat.lines[&start.offset(bytes)];
        assert_eq!((line(0).samples, line(0).function), (5, Some(0)));
        assert_eq!((line(64).samples, line(64).function), (3, Some(1)));
        assert_eq!((line(128).samples, line(128).function), (4, Some(1)));
        assert_eq!((heat.functions[&0], heat.functions[&1], heat.hottest()), (6, 6, Some(1)));
    }
}
