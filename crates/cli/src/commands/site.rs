//! Findings on the screen: the load, its stores, their source lines.

use stallscope::code::SourceText;
use stallscope::model::{Finding, Site, SourceLine};

use crate::terminal::{FAINT, STRONG, WIDTH, paint};

/// Sets of stores that are written out; the rest is counted.
const MOST_SETS: usize = 1;
/// Stores of a set that are written out.
const MOST_STORES: usize = 4;

/// One instruction with its address and source, indented by `indent` blanks.
pub fn site(site: &Site, indent: usize, text: &mut SourceText) -> String {
    let blanks = " ".repeat(indent);
    let address = format!("{:#x}", site.svma.0);
    let mut out = format!("{blanks}{address:<10}{}\n", paint(STRONG, &site.text));
    let mut about = Vec::new();
    if let Some(variable) = &site.variable {
        about.push(format!("an element or part of `{variable}`"));
    }
    if let Some(line) = site.source.first().filter(|l| l.line > 0) {
        about.push(source_line(line, text));
        if let (Some(function), 2..) = (&line.function, site.source.len()) {
            about.push(format!("in {}", short_name(function)));
        }
    }
    if !about.is_empty() {
        let about = clip(&about.join("  "), WIDTH - indent - 10);
        out += &format!("{blanks}          {}\n", paint(FAINT, about));
    }
    out
}

/// `file.cpp:12  the text of the line`, as far as the file can be read.
pub fn source_line(line: &SourceLine, text: &mut SourceText) -> String {
    let code = text.line(line).map(|l| format!("  {l}")).unwrap_or_default();
    format!("{line}{code}")
}

/// The stores of a finding: the set `first` in full, the others counted.
pub fn stores(finding: &Finding, first: usize, indent: usize, text: &mut SourceText) -> String {
    let mut out = String::new();
    let mut shown = 0;
    for set in finding.sets.iter().skip(first).take(MOST_SETS) {
        for at in set.iter().take(MOST_STORES) {
            if let Some(store) = finding.others.get(*at) {
                out += &site(store, indent, text);
                shown += 1;
            }
        }
    }
    let rest = finding.others.len().saturating_sub(shown);
    if rest > 0 {
        let blanks = " ".repeat(indent);
        out += &format!("{blanks}and {rest} more that can (--json lists them)\n");
    }
    out
}

/// A function's name without its parameters: `ns::f(unsigned int)` is `ns::f`.
pub fn short_name(name: &str) -> &str {
    name.split_once('(').map_or(name, |(stem, _)| if stem.is_empty() { name } else { stem })
}

/// At most `width` characters; what is cut off is marked.
pub fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
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
    }
}
