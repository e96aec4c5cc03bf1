//! Findings on the screen: the load, its stores, their source lines.

use stallscope::code::SourceText;
pub use stallscope::code::short_name;
use stallscope::model::{Finding, Site, SourceLine};

pub use crate::terminal::clip;
use crate::terminal::{FAINT, STRONG, paint, width};

/// Sets of stores that are written out; the rest is counted.
const MOST_SETS: usize = 1;
/// Stores of a set that are written out.
const MOST_STORES: usize = 4;

/// One instruction with its address, the variable it touches and its source, indented.
pub fn site(site: &Site, indent: usize, text: &mut SourceText) -> String {
    let blanks = " ".repeat(indent);
    let address = format!("{:#x}", site.svma.0);
    let variable = site.variable.as_ref().map(|v| format!("  ; {v}")).unwrap_or_default();
    let mut out =
        format!("{blanks}{address:<9} {}{}\n", paint(STRONG, &site.text), paint(FAINT, variable));
    if let Some(line) = site.line() {
        let inlined = match (&line.function, site.source.len()) {
            (Some(function), 2..) => format!(" in {}", short_name(function)),
            _ => String::new(),
        };
        out += &indented_line(line, &inlined, indent, text);
    }
    out
}

/// A source line under an instruction.
pub fn indented_line(
    line: &SourceLine,
    about: &str,
    indent: usize,
    text: &mut SourceText,
) -> String {
    let code = text.line(line).map(|l| format!("  {l}")).unwrap_or_default();
    let clipped = clip(&format!("{line}{about}{code}"), width() - indent - 10);
    format!("{}{}\n", " ".repeat(indent + 10), paint(FAINT, clipped))
}

/// "this 64-bit load of `fifo`", as far as it is known.
pub fn load_words(site: &Site) -> String {
    let width = match site.access_bytes {
        0 => String::new(),
        bytes => format!("{}-bit ", 8 * bytes),
    };
    let of = site.variable.as_ref().map(|v| format!(" of `{v}`")).unwrap_or_default();
    format!("this {width}load{of}")
}

/// "reads what these two 32-bit stores wrote".
pub fn store_words(finding: &Finding, set: usize) -> String {
    let stores: Vec<&Site> = finding
        .sets
        .get(set)
        .into_iter()
        .flatten()
        .filter_map(|i| finding.others.get(*i))
        .collect();
    let count = match stores.len() {
        1 => "this".to_owned(),
        2 => "these two".to_owned(),
        n => format!("these {n}"),
    };
    let first = stores.first().map_or(0, |s| s.access_bytes);
    let width = match first {
        bytes if bytes > 0 && stores.iter().all(|s| s.access_bytes == bytes) => {
            format!(" {}-bit", 8 * bytes)
        }
        _ => String::new(),
    };
    let noun = if stores.len() == 1 { "store" } else { "stores" };
    format!("reads what {count}{width} {noun} wrote")
}

/// The stores of a finding: the set `first` in full, the others counted.
pub fn stores(finding: &Finding, first: usize, indent: usize, text: &mut SourceText) -> String {
    let mut out = String::new();
    let mut shown = 0;
    let blanks = " ".repeat(indent);
    let elsewhere = |other: &Site| {
        let name = Some(&other.function).filter(|name| **name != finding.site.function);
        name.map(|name| clip(&format!("in {}", short_name(name)), width() - indent - 10))
    };
    for set in finding.sets.iter().skip(first).take(MOST_SETS) {
        for store in set.iter().take(MOST_STORES).filter_map(|at| finding.others.get(*at)) {
            out += &site(store, indent, text);
            if let Some(place) = elsewhere(store) {
                out += &format!("{blanks}{:10}{}\n", "", paint(FAINT, place));
            }
            shown += 1;
        }
    }
    // What acts in no set is what pays, in the function that the site leads to.
    let acts = |at: &usize| finding.sets.iter().any(|set| set.contains(at));
    for (at, other) in finding.others.iter().enumerate() {
        if let Some(place) = elsewhere(other).filter(|_| !acts(&at)) {
            out += &format!("{blanks}with this load {place}\n{}", site(other, indent, text));
            shown += 1;
        }
    }
    let rest = finding.others.len().saturating_sub(shown);
    if rest > 0 {
        out += &format!("{blanks}and {rest} more that can (--json lists them)\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_clipped_and_names_lose_their_parameters() {
        assert_eq!(clip("abcdef", 4), "abc…");
        assert_eq!(clip("abcd", 4), "abcd");
        assert_eq!(
            short_name("meshopt::pushEdgeFifo(unsigned int (*) [2])"),
            "meshopt::pushEdgeFifo"
        );
        assert_eq!(short_name("(anonymous namespace)::f"), "(anonymous namespace)::f");
        assert_eq!(short_name("example.com/a/b.(*T).m"), "b.(*T).m");
        assert_eq!(short_name("example.com/a/b.init.func1"), "b.init.func1");
    }
}
