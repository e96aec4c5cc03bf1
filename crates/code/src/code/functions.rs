//! Where functions start and end: from symbols, else from Go's own table or the unwind tables.
//!
//! Symbols win where both speak. Unwind entries (`.eh_frame`, its index, `.debug_frame`) fill the gaps that symbols leave
//! (a program that was stripped of all but its dynamic symbols), under a name made from the address, and what the code
//! itself tells fills the rest ([`gaps`]). Symbols without a size reach to the next function.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cpp_demangle::{DemangleOptions, ParseOptions};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::image::FunctionSource;
use super::parts::ProgramFile;
use super::pclntab::go_functions;
use super::place::Placed;
use super::unwind;
use super::x86::gaps;
use crate::foreign::{Budget, plain};
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

    /// Whether an address lies in it.
    #[must_use]
    pub fn contains(&self, at: Svma) -> bool {
        (self.start..self.end()).contains(&at)
    }

    /// The name as a programmer wrote it: C++ and Rust names demangled, hashes dropped.
    #[must_use]
    pub fn name(&self) -> String {
        demangle(&self.symbol)
    }
}

/// A function's name without its parameters, or without its import path: `ns::f(unsigned int)` is
/// `ns::f`, and Go's `example.com/a/b.(*T).m` is `b.(*T).m`.
///
/// ```
/// use stallscope_code::code::short_name;
/// assert_eq!(short_name("ns::f(unsigned int)"), "ns::f");
/// assert_eq!(short_name("example.com/a/b.(*T).m"), "b.(*T).m");
/// ```
#[must_use]
pub fn short_name(name: &str) -> &str {
    match name.find('(') {
        Some(0) => name,
        // The receiver of a Go method.
        Some(at) if name[..at].ends_with('.') => without_import_path(name, at),
        Some(at) => without_import_path(&name[..at], at),
        None => without_import_path(name, name.len()),
    }
}

/// Drops what stands before the last slash in front of `end`.
fn without_import_path(name: &str, end: usize) -> &str {
    name[..end].rfind('/').map_or(name, |slash| &name[slash + 1..])
}

/// A mangled name that is longer is shown as it is: what a short one stands for can grow without
/// measure, and how fast was measured up to here.
const LONGEST_MANGLED_BYTES: usize = 4 << 10;
/// So is one whose readable form is longer.
const LONGEST_READABLE_BYTES: usize = 16 << 10;
/// How deep a C++ name may nest. The parser tries one reading after another, and where each level has
/// two, every fourth step of depth doubles its time: 20 ms at the most of what a search found at 64, and
/// more than a minute at the 96 that it has of its own.
const DEEPEST: u32 = 64;
/// The same where a conversion operator and a template parameter with arguments can meet: there more
/// levels have two readings.
const DEEPEST_CONVERSION: u32 = 48;
/// Names that take longer are the hostile ones: the slowest of 110,331 of LLVM, Clang and libstdc++ takes
/// 0.1 ms. Once all of them together took [`DEEP_NAMES`], deep names are shown as they are.
const SLOW_NAME: Duration = Duration::from_millis(1);
/// See [`SLOW_NAME`].
const DEEP_NAMES: Duration = Duration::from_millis(500);
/// How deep a name may nest then: a 256th of the time, and 94 % of those names are shallower.
const SHALLOW: u32 = 32;
/// What slow names have taken in this process.
static SLOW_NAMES_NS: AtomicU64 = AtomicU64::new(0);

/// A readable form of a linker symbol, safe to show; the symbol itself when it is in no known
/// mangling, too long or too deep.
#[must_use]
pub fn demangle(symbol: &str) -> String {
    let limit = deepest_after(Duration::from_nanos(SLOW_NAMES_NS.load(Ordering::Relaxed)));
    let start = Instant::now();
    let readable = demangled(symbol, limit);
    let took = start.elapsed();
    if took > SLOW_NAME {
        SLOW_NAMES_NS.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }
    plain(&readable.unwrap_or_else(|| symbol.to_owned())).into_owned()
}

/// How deep a name may nest when slow ones have taken this long.
fn deepest_after(slow_names: Duration) -> u32 {
    if slow_names < DEEP_NAMES { DEEPEST } else { SHALLOW }
}

/// Text that takes no more once it is too long, so that the writer stops.
struct Short(String);

impl fmt::Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST_READABLE_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

fn demangled(symbol: &str, limit: u32) -> Option<String> {
    if symbol.len() > LONGEST_MANGLED_BYTES {
        return None;
    }
    let mut readable = Short(String::new());
    // Clone suffixes (.cold, .isra.0, .part.1) are not part of the mangling.
    let (stem, suffix) = match symbol.find('.') {
        Some(dot) if dot > 0 && !symbol[dot..].starts_with(".llvm.") => symbol.split_at(dot),
        _ => (symbol, ""),
    };
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        write!(readable, "{name:#}").ok()?;
        return Some(readable.0);
    }
    if !stem.starts_with("_Z") {
        return None;
    }
    let has_arguments =
        |at: usize| stem[..at].trim_end_matches(|c: char| c.is_ascii_digit()).ends_with('T');
    let converts = stem.contains("cv") && stem.match_indices("_I").any(|(at, _)| has_arguments(at));
    let deepest = if converts { DEEPEST_CONVERSION } else { DEEPEST };
    let options = ParseOptions::default().recursion_limit(deepest.min(limit));
    let parsed = cpp_demangle::Symbol::new_with_options(stem, &options).ok()?;
    parsed.structured_demangle(&mut readable, &DemangleOptions::default()).ok()?;
    Some(readable.0 + suffix)
}

/// What is known about one start address while the list is being made.
#[derive(Default)]
struct Candidate {
    symbol: Option<String>,
    size_bytes: u64,
    /// Larger is the better name for an address that has several.
    rank: u8,
}

/// Starts of functions, with what is known about each.
type Starts = BTreeMap<Svma, Candidate>;

/// Functions inside the given code ranges, by address, without overlap.
pub(super) fn list(
    file: &ProgramFile<'_>,
    code: &[(Svma, u64)],
    placed: Option<&Placed>,
    budget: &Budget,
) -> (Vec<Function>, FunctionSource) {
    let range_of = |svma: Svma| {
        code.iter().find(|(start, size)| svma.distance_from(*start).is_some_and(|d| d < *size))
    };
    let mut starts = Starts::new();
    let own_symbols = add_symbols(file, placed, budget, &mut starts);
    let mut source = FunctionSource::Symbols;
    if !own_symbols {
        let from_go = add_go_table(file, &mut starts);
        source = if from_go { FunctionSource::GoTable } else { FunctionSource::EhFrame };
    }
    if placed.is_none() {
        add_unwind_entries(file, &mut starts);
    }
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
            let symbol = candidate.symbol.unwrap_or_else(|| made_up_name(start));
            functions.push(Function { symbol, start, size_bytes, named });
        }
    }
    (functions, source)
}

/// Adds what the symbol tables say; whether the program has functions in a table of its own (one
/// that stripping takes away).
fn add_symbols(
    file: &ProgramFile<'_>,
    placed: Option<&Placed>,
    budget: &Budget,
    starts: &mut Starts,
) -> bool {
    let own = file.symbols().map(|s| (true, s));
    let mut own_symbols = false;
    // Any number of symbols may have the same long name: once there is no room for one more, the
    // rest is not even read.
    let mut has_room = true;
    for (is_own, symbol) in own.chain(file.dynamic_symbols().map(|s| (false, s))) {
        if symbol.kind() != SymbolKind::Text || !symbol.is_definition() {
            continue;
        }
        own_symbols |= is_own;
        let name = if has_room { symbol.name().unwrap_or_default() } else { "?" };
        if name.is_empty() || name.starts_with('$') {
            continue;
        }
        let address = Svma(placed.map_or(symbol.address(), |placed| placed.symbol(&symbol)));
        // A sized global name says more than a local or a label without size.
        let rank = 1 + u8::from(symbol.is_global()) + 2 * u8::from(symbol.size() > 0);
        let entry = starts.entry(address).or_default();
        entry.size_bytes = entry.size_bytes.max(symbol.size());
        if rank > entry.rank {
            has_room &= budget.spend(name.len() as u64).is_some();
            entry.rank = rank;
            entry.symbol = has_room.then(|| plain(name).into_owned());
        }
    }
    own_symbols
}

/// Adds the functions of a Go program; false when it is none.
fn add_go_table(file: &ProgramFile<'_>, starts: &mut Starts) -> bool {
    let names = [".gopclntab", ".data.rel.ro.gopclntab", "__gopclntab"];
    let Some(table) = names.iter().find_map(|name| file.section_by_name(name)) else {
        return false;
    };
    let text = file.section_by_name(".text").or_else(|| file.section_by_name("__text"));
    let (Ok(data), Some(text)) = (table.data(), text) else { return false };
    let functions = go_functions(data, Svma(text.address()));
    for function in &functions {
        let entry = starts.entry(function.start).or_default();
        if entry.symbol.is_none() {
            entry.symbol = Some(function.name.clone());
            entry.size_bytes = function.size_bytes;
        }
    }
    !functions.is_empty()
}

/// Adds the ranges of unwind tables that no symbol covers.
fn add_unwind_entries(file: &ProgramFile<'_>, starts: &mut Starts) {
    let covered: Vec<(Svma, u64)> = starts.iter().map(|(s, c)| (*s, c.size_bytes)).collect();
    let mut add = |start: Svma, size_bytes: u64| {
        let before = covered.partition_point(|(s, _)| *s <= start);
        let inside = before
            .checked_sub(1)
            .and_then(|i| covered.get(i))
            .is_some_and(|(s, size)| start.distance_from(*s).is_some_and(|d| d < (*size).max(1)));
        if !inside && start.0 != 0 {
            let entry = starts.entry(start).or_default();
            entry.size_bytes = entry.size_bytes.max(size_bytes);
        }
    };
    let section = |name| {
        let section = file.section_by_name(name)?;
        Some((section.data().ok().filter(|data| !data.is_empty())?, section.address()))
    };
    let mut bases = gimli::BaseAddresses::default();
    if let Some((data, address)) = section(".eh_frame") {
        bases = bases.set_eh_frame(address);
        let frames = gimli::EhFrame::new(data, gimli::LittleEndian);
        unwind::each_entry(&frames, &bases, &mut |start, size_bytes, _| add(start, size_bytes));
    }
    // Where only its index is left, or it cannot be followed to its end.
    if let Some((data, address)) = section(".eh_frame_hdr") {
        let bases = bases.set_eh_frame_hdr(address);
        let index = gimli::EhFrameHdr::new(data, gimli::LittleEndian).parse(&bases, 8);
        if let Some(table) = index.as_ref().ok().and_then(gimli::ParsedEhFrameHdr::table) {
            let mut rows = table.iter(&bases);
            while let Ok(Some((start, _))) = rows.next() {
                add(Svma(start.pointer()), 0);
            }
        }
    }
    if let Some((data, _)) = section(".debug_frame") {
        let frames = gimli::DebugFrame::new(data, gimli::LittleEndian);
        let bases = gimli::BaseAddresses::default();
        unwind::each_entry(&frames, &bases, &mut |start, size_bytes, _| add(start, size_bytes));
    }
}

/// The name of a function that has none.
fn made_up_name(start: Svma) -> String {
    format!("fn_{:x}", start.0)
}

/// Stretches of code that belong to no function, by address; both are by address.
pub(super) fn unowned(
    code: impl Iterator<Item = (Svma, u64)>,
    functions: &[Function],
) -> Vec<(Svma, u64)> {
    let mut free = Vec::new();
    for (start, size_bytes) in code {
        let end = start.offset(size_bytes as i64);
        let mut at = start;
        let first = functions.partition_point(|f| f.start < start);
        for function in functions[first..].iter().take_while(|f| f.start < end) {
            if let Some(gap) = function.start.distance_from(at).filter(|gap| *gap > 0) {
                free.push((at, gap));
            }
            at = at.max(function.end());
        }
        if let Some(gap) = end.distance_from(at).filter(|gap| *gap > 0) {
            free.push((at, gap));
        }
    }
    free.sort_unstable();
    free
}

/// Where no table names more than this share of the code, calls are looked at to tell where functions start: it takes
/// as long as a first look at all of them.
const NAMED_SHARE: f64 = 0.95;

/// Adds functions of x86-64 code that no table names; how many. `entry` is where the program begins.
pub(super) fn add_unlisted(
    code: &[(Svma, &[u8])],
    entry: Svma,
    functions: &mut Vec<Function>,
    budget: &Budget,
) -> usize {
    let bytes_at = |start: Svma, size: u64| {
        let inside = |(at, bytes): &(Svma, &[u8])| {
            start.distance_from(*at).is_some_and(|skip| skip < bytes.len() as u64)
        };
        let (at, bytes) = code.iter().find(|part| inside(part)).copied().unwrap_or_default();
        let skip = start.distance_from(at).unwrap_or(0) as usize;
        bytes.get(skip..).map_or(&bytes[..0], |rest| &rest[..rest.len().min(size as usize)])
    };
    let sizes = code.iter().map(|(start, bytes)| (*start, bytes.len() as u64));
    let gaps: Vec<(Svma, &[u8])> = unowned(sizes, functions)
        .into_iter()
        .map(|(start, size)| (start, bytes_at(start, size)))
        .filter(|(_, bytes)| gaps::filler_bytes(bytes) < bytes.len())
        .collect();
    let all: usize = code.iter().map(|(_, bytes)| bytes.len()).sum();
    let unnamed: usize = gaps.iter().map(|(_, bytes)| bytes.len()).sum();
    let mut called = vec![entry];
    if unnamed as f64 > (1.0 - NAMED_SHARE) * all as f64 {
        let named = functions.par_iter().map(|f| (f.start, bytes_at(f.start, f.size_bytes)));
        let calls = |(start, bytes): (Svma, &[u8])| gaps::call_targets(bytes, start);
        called.par_extend(named.flat_map_iter(calls));
        called.par_extend(gaps.par_iter().copied().flat_map_iter(calls));
        called.par_sort_unstable();
        called.dedup();
    }
    let found =
        gaps.par_iter().flat_map_iter(|(start, bytes)| gaps::functions(bytes, *start, &called));
    let found: Vec<(Svma, u64)> = found.collect();
    let before = functions.len();
    for (start, size_bytes) in found {
        let symbol = made_up_name(start);
        if budget.spend((size_of::<Function>() + symbol.len()) as u64).is_none() {
            break;
        }
        functions.push(Function { symbol, start, size_bytes, named: false });
    }
    functions.sort_unstable_by_key(|f| f.start);
    functions.len() - before
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

    #[test]
    fn a_name_that_grows_without_measure_is_shown_as_it_is() {
        // Each argument is a pair of the one before.
        let digits = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let pairs: String =
            digits[..30].iter().map(|d| format!("S_IS{0}_S{0}_E", char::from(*d))).collect();
        let bomb = format!("_Z1fSt4pairIiiE{pairs}");
        assert!(bomb.len() < 344);
        assert_eq!(demangle(&bomb), bomb);
        let long = format!("_ZN{}E", "1a".repeat(LONGEST_MANGLED_BYTES));
        assert_eq!(demangle(&long), long);
    }

    #[test]
    fn a_name_that_nests_too_deep_is_shown_as_it_is() {
        let nested = |depth| format!("_Z1fI{}i{}Evv", "1aI".repeat(depth), "E".repeat(depth));
        assert!(demangle(&nested(8)).starts_with("void f<a<a<"));
        assert_eq!(demangle(&nested(14)), nested(14));
        // Each level is read twice: of the second, 70 seconds without a bound.
        for level in ["L1aI", "C1I", "St1aI"] {
            let twice = format!("_Z1fI{}", level.repeat(40));
            assert_eq!(demangle(&twice), twice);
        }
        let conversion = |depth| {
            let (open, close) = ("T_I".repeat(depth), "EIiE".repeat(depth));
            format!("_ZN1acv{open}i{close}Ev")
        };
        assert_eq!(demangle(&conversion(40)), conversion(40));
        // Once such names have taken their time, shallow ones are still readable.
        let shallow = deepest_after(DEEP_NAMES);
        assert_eq!(deepest_after(DEEP_NAMES - Duration::from_nanos(1)), DEEPEST);
        assert!(demangled(&nested(3), shallow).is_some());
        assert_eq!(demangled(&nested(8), shallow), None);
    }
}
