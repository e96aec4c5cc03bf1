//! The sections of a program that are there when it runs, with what the symbols in them add up to.

use object::{Object, ObjectSection, ObjectSymbol, SectionIndex, SymbolKind};
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::image::Image;
use crate::foreign::plain;
use crate::model::Svma;

/// What a section holds.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SectionRole {
    /// Machine code.
    Code,
    /// Constants, unwind tables.
    ReadOnly,
    /// Variables that start with a value.
    Data,
    /// Variables that start at zero: no bytes in the file.
    Zeroed,
}

/// One section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub role: SectionRole,
    /// Where it stands; in an object file, where it was placed.
    pub start: Svma,
    /// Its length.
    pub size_bytes: u64,
    /// Of that, what functions or data symbols with a size cover.
    pub symbol_bytes: u64,
}

/// All sections of an image that are in memory when it runs, in the file's order.
#[must_use]
pub fn sections(image: &Image) -> Vec<Section> {
    let parts = image.parts();
    let Ok(file) = object::File::parse(&*parts) else { return Vec::new() };
    let data = data_symbol_bytes(&file);
    file.sections()
        .filter_map(|section| {
            let role = role(section.kind())?;
            let placed = image.placed().and_then(|placed| placed.address(section.index()));
            let start = placed.unwrap_or(Svma(section.address()));
            let size_bytes = section.size();
            let symbol_bytes = match role {
                SectionRole::Code => function_bytes(image, start, size_bytes),
                _ => data.get(&section.index()).copied().unwrap_or(0).min(size_bytes),
            };
            let name = plain(section.name().unwrap_or("?")).into_owned();
            (size_bytes > 0).then_some(Section { name, role, start, size_bytes, symbol_bytes })
        })
        .collect()
}

fn role(kind: object::SectionKind) -> Option<SectionRole> {
    use object::SectionKind as Kind;
    match kind {
        Kind::Text => Some(SectionRole::Code),
        Kind::ReadOnlyData | Kind::ReadOnlyDataWithRel | Kind::ReadOnlyString => {
            Some(SectionRole::ReadOnly)
        }
        Kind::Data | Kind::Tls => Some(SectionRole::Data),
        Kind::UninitializedData | Kind::UninitializedTls => Some(SectionRole::Zeroed),
        _ => None,
    }
}

fn function_bytes(image: &Image, start: Svma, size_bytes: u64) -> u64 {
    let functions = image.functions();
    let first = functions.partition_point(|f| f.start < start);
    let inside =
        |f: &&super::Function| f.start.distance_from(start).is_some_and(|d| d < size_bytes);
    functions[first..].iter().take_while(inside).filter(|f| f.named).map(|f| f.size_bytes).sum()
}

/// Symbols of data by section; several names of one address count once.
fn data_symbol_bytes<'d>(file: &impl Object<'d>) -> FxHashMap<SectionIndex, u64> {
    let mut largest: FxHashMap<(SectionIndex, u64), u64> = FxHashMap::default();
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        let is_data = matches!(symbol.kind(), SymbolKind::Data | SymbolKind::Tls);
        if let Some(section) = symbol.section_index().filter(|_| is_data) {
            let size = largest.entry((section, symbol.address())).or_default();
            *size = symbol.size().max(*size);
        }
    }
    let mut sums = FxHashMap::default();
    for ((section, _), size) in largest {
        let sum: &mut u64 = sums.entry(section).or_default();
        *sum = sum.saturating_add(size);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sections_of_a_real_program_hold_its_symbols() {
        let image = Image::open(&std::env::current_exe().unwrap()).unwrap();
        let all = sections(&image);
        let text = all.iter().find(|s| s.name == ".text").unwrap();
        assert_eq!(text.role, SectionRole::Code);
        assert!(text.symbol_bytes > 0 && text.symbol_bytes <= text.size_bytes);
        let code: u64 =
            all.iter().filter(|s| s.role == SectionRole::Code).map(|s| s.size_bytes).sum();
        assert_eq!(code, image.code_bytes());
        let data = |s: &&Section| s.role == SectionRole::ReadOnly && s.name == ".rodata";
        assert!(all.iter().any(|s| data(&s)));
        assert!(all.iter().all(|s| s.symbol_bytes <= s.size_bytes));
    }
}
