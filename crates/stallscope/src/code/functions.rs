//! Where functions start and end: from symbols, else from the unwind tables.
//!
//! Symbols win where both speak. Unwind entries fill the gaps that symbols leave (a program that
//! was stripped of all but its dynamic symbols), under a name made from the address. Symbols
//! without a size reach to the next function.

use std::collections::BTreeMap;

use gimli::UnwindSection;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSymbol, SymbolKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::image::FunctionSource;
use crate::model::Svma;

/// A stretch of machine code with a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Function {
    /// The name as the symbol table has it; `fn_1234` for a function without symbol.
    pub symbol: String,
    /// Its first instruction.
    pub start: Svma,
    /// Its length.
    pub size_bytes: u64,
    /// Whether the symbol was in the file; false for names that we made up.
    pub named: bool,
}

impl Function {
    /// The first address behind it.
    #[must_use]
    pub fn end(&self) -> Svma {
        self.start.offset(self.size_bytes as i64)
    }

    /// The name as a programmer wrote it: C++ and Rust names demangled, hashes dropped.
    #[must_use]
    pub fn name(&self) -> String {
        demangle(&self.symbol)
    }
}

/// A readable form of a linker symbol; the symbol itself when it is in no known mangling.
#[must_use]
pub fn demangle(symbol: &str) -> String {
    // Clone suffixes (.cold, .isra.0, .part.1) are not part of the mangling.
    let (stem, suffix) = match symbol.find('.') {
        Some(dot) if dot > 0 && !symbol[dot..].starts_with(".llvm.") => symbol.split_at(dot),
        _ => (symbol, ""),
    };
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return format!("{name:#}");
    }
    if stem.starts_with("_Z")
        && let Ok(parsed) = cpp_demangle::Symbol::new(stem)
        && let Ok(name) = parsed.demangle()
    {
        return name + suffix;
    }
    symbol.to_owned()
}

/// What is known about one start address while the list is being made.
struct Candidate {
    symbol: Option<String>,
    size_bytes: u64,
    /// Larger is the better name for an address that has several.
    rank: u8,
}

/// Functions inside the given code ranges, by address, without overlap.
pub(super) fn list(
    file: &ElfFile64<'_, Endianness>,
    code: &[(Svma, u64)],
) -> (Vec<Function>, FunctionSource) {
    let range_of = |svma: Svma| {
        code.iter().find(|(start, size)| svma.distance_from(*start).is_some_and(|d| d < *size))
    };
    let mut starts: BTreeMap<Svma, Candidate> = BTreeMap::new();
    add_symbols(file, &mut starts);
    let own_symbols = file.symbols().any(|s| s.kind() == SymbolKind::Text && s.is_definition());
    add_unwind_entries(file, &mut starts);
    starts.retain(|svma, _| range_of(*svma).is_some());

    let addresses: Vec<Svma> = starts.keys().copied().collect();
    let mut functions = Vec::with_capacity(starts.len());
    for (i, (start, candidate)) in starts.into_iter().enumerate() {
        let Some((code_start, code_size)) = range_of(start) else {
            continue;
        };
        let code_end = code_start.offset(*code_size as i64);
        let next = addresses.get(i + 1).copied().unwrap_or(code_end).min(code_end);
        let room = next.distance_from(start).unwrap_or(0);
        let size_bytes = match candidate.size_bytes {
            0 => room,
            size => size.min(room),
        };
        if size_bytes > 0 {
            let named = candidate.symbol.is_some();
            let symbol = candidate.symbol.unwrap_or_else(|| format!("fn_{:x}", start.0));
            functions.push(Function { symbol, start, size_bytes, named });
        }
    }
    let source = if own_symbols { FunctionSource::Symbols } else { FunctionSource::EhFrame };
    (functions, source)
}

fn add_symbols(file: &ElfFile64<'_, Endianness>, starts: &mut BTreeMap<Svma, Candidate>) {
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        if symbol.kind() != SymbolKind::Text || !symbol.is_definition() {
            continue;
        }
        let Ok(name) = symbol.name() else { continue };
        if name.is_empty() || name.starts_with('$') {
            continue;
        }
        // A sized global name says more than a local or a label without size.
        let rank = 1 + u8::from(symbol.is_global()) + 2 * u8::from(symbol.size() > 0);
        let entry = starts.entry(Svma(symbol.address())).or_insert(Candidate {
            symbol: None,
            size_bytes: 0,
            rank: 0,
        });
        entry.size_bytes = entry.size_bytes.max(symbol.size());
        if rank > entry.rank {
            entry.rank = rank;
            entry.symbol = Some(name.to_owned());
        }
    }
}

/// Adds the ranges of `.eh_frame` that no symbol covers.
fn add_unwind_entries(file: &ElfFile64<'_, Endianness>, starts: &mut BTreeMap<Svma, Candidate>) {
    let Some(section) = file.section_by_name(".eh_frame") else {
        return;
    };
    let Ok(data) = section.data() else { return };
    let eh_frame = gimli::EhFrame::new(data, gimli::LittleEndian);
    let bases = gimli::BaseAddresses::default().set_eh_frame(section.address());
    let mut entries = eh_frame.entries(&bases);
    let covered: Vec<(Svma, u64)> = starts.iter().map(|(s, c)| (*s, c.size_bytes)).collect();
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(fde) = partial.parse(|_, bases, offset| eh_frame.cie_from_offset(bases, offset))
        else {
            continue;
        };
        let start = Svma(fde.initial_address());
        let before = covered.partition_point(|(s, _)| *s <= start);
        let inside = before
            .checked_sub(1)
            .and_then(|i| covered.get(i))
            .is_some_and(|(s, size)| start.distance_from(*s).is_some_and(|d| d < (*size).max(1)));
        if !inside && start.0 != 0 {
            starts.entry(start).or_insert(Candidate {
                symbol: None,
                size_bytes: fde.len(),
                rank: 0,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_readable() {
        assert_eq!(demangle("meshopt_decodeIndexBuffer"), "meshopt_decodeIndexBuffer");
        assert_eq!(
            demangle("_ZN7meshoptL12pushEdgeFifoEPA2_jjjRm"),
            "meshopt::pushEdgeFifo(unsigned int (*) [2], unsigned int, unsigned int, unsigned long&)"
        );
        assert_eq!(demangle("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(demangle("decode.cold"), "decode.cold");
        assert_eq!(demangle("_Znonsense"), "_Znonsense");
    }
}
