//! Two builds on the screen: what is new and gone, what grew and why.

use stallscope::code::{SectionRole, SourceText};
use stallscope::layout::{
    CallChange, FunctionGrowth, FunctionSize, Growth, SizeDifference, StringChange,
};

use super::super::site;
use super::diff::ScanDifference;
use super::screen::entry;
use crate::commands::words::counted as count;
use crate::terminal::{CAUTION, FAINT, STRONG, paint, width, wrap};

/// Names in a list of reasons; the rest is counted.
const MOST_NAMES: usize = 4;

pub struct Show {
    pub names: [String; 2],
    /// So many findings and functions.
    pub most: usize,
    /// Whether only some functions were asked for.
    pub is_part: bool,
}

pub fn screen(difference: &ScanDifference, show: &Show, text: &mut SourceText) -> String {
    let [old, new] = &show.names;
    let mut out = paint(STRONG, format!("{old} → {new}")) + "\n";
    for warning in &difference.size.warnings {
        out += &paint(CAUTION, wrap("", warning));
    }
    out += &findings(difference, show, text);
    if !show.is_part {
        out += &sections(&difference.size);
        out += &totals(&difference.size);
    }
    out + &functions(&difference.size, show.most)
}

fn findings(difference: &ScanDifference, show: &Show, text: &mut SourceText) -> String {
    let found = &difference.findings;
    let mut line = format!(
        "{} new, {} gone, {} moved, {} where they were",
        found.new.len(),
        found.gone.len(),
        found.moved.len(),
        found.same
    );
    if difference.known > 0 {
        line += &format!("; {} new in the baseline", difference.known);
    }
    if let [before, after] = found.by_placement
        && before + after > 0
    {
        line += &format!("; {before} → {after} by placement, in no list");
    }
    let mut out = format!("\n{}\n", paint(STRONG, "findings"));
    out += &wrap("  ", &line);
    for (rank, placed) in found.new.iter().take(show.most).enumerate() {
        let mut finding = placed.finding.clone();
        if let Some(object) = &placed.object {
            finding.site.function += &format!(" in {object}");
        }
        out += &entry(rank + 1, &finding, text);
    }
    out += &left_out(found.new.len(), show.most, "new finding");
    if !found.gone.is_empty() {
        out += "\n  gone\n";
    }
    for placed in found.gone.iter().take(show.most) {
        let finding = &placed.finding;
        let object = placed.object.as_ref().map(|o| format!(" in {o}")).unwrap_or_default();
        let line =
            format!("  {:<24} {}{object}", finding.id.0, site::short_name(&finding.site.function));
        out += &(site::clip(&line, width()) + "\n");
    }
    out + &left_out(found.gone.len(), show.most, "gone finding")
}

fn left_out(all: usize, most: usize, what: &str) -> String {
    match all.saturating_sub(most) {
        0 => String::new(),
        rest => format!("  {} left out: --top 0 shows all\n", count(rest, what)),
    }
}

fn sections(size: &SizeDifference) -> String {
    let cells = |name: &str, cells: [String; 6]| {
        let row: String = cells.iter().map(|c| format!("{c:>11}")).collect();
        format!("  {:<12}{row}\n", site::clip(name, 12))
    };
    let sum = |role: Option<SectionRole>| {
        let rows = size.sections.iter().filter(|s| role.is_none_or(|r| s.role == r));
        rows.fold(([0; 2], [0; 2]), |(section, symbol), s| {
            let add = |a: [u64; 2], b: [u64; 2]| [a[0] + b[0], a[1] + b[1]];
            (add(section, s.section_bytes), add(symbol, s.symbol_bytes))
        })
    };
    let row = |name: &str, (section, symbol): ([u64; 2], [u64; 2])| {
        let change = |of: [u64; 2]| signed(of[1] as i64 - of[0] as i64);
        let [a, b] = section.map(|n| n.to_string());
        let [c, d] = symbol.map(|n| n.to_string());
        cells(name, [a, b, change(section), c, d, change(symbol)])
    };
    let heads = ["before", "after", "change", "before", "after", "change"].map(str::to_owned);
    let mut out = format!("\n{}\n", paint(STRONG, "size in bytes"));
    out += &paint(FAINT, format!("  {:<12}{:>33}{:>33}\n", "", "section", "in symbols"));
    out += &paint(FAINT, cells("", heads));
    for s in &size.sections {
        let is_news =
            s.section_bytes[0] != s.section_bytes[1] || s.symbol_bytes[0] != s.symbol_bytes[1];
        if is_news || s.name == ".text" {
            out += &row(&s.name, (s.section_bytes, s.symbol_bytes));
        }
    }
    out + &row("all code", sum(Some(SectionRole::Code))) + &row("all", sum(None))
}

fn totals(size: &SizeDifference) -> String {
    let change = size.change_bytes();
    let mut parts = vec![format!("hot {}", signed(size.hot_change_bytes))];
    if size.cold_change_bytes != 0 {
        parts.push(format!("cold {}", signed(size.cold_change_bytes)));
    }
    if size.init_change_bytes != 0 {
        parts.push(format!("start and end {}", signed(size.init_change_bytes)));
    }
    let share = 100.0 * change as f64 / (size.function_bytes[0] as f64).max(1.0);
    let mut out = wrap(
        "code     ",
        &format!(
            "{} bytes ({share:+.2} %): {}; alignment {} not counted",
            signed(change),
            parts.join(", "),
            signed(size.alignment_change_bytes)
        ),
    );
    let c = size.counts;
    out += &wrap(
        "         ",
        &format!(
            "{} grew, {} shrank, {} rewritten, {} new, {} gone, {} the same",
            c.grew, c.shrank, c.rewritten, c.new, c.gone, c.same
        ),
    );
    let [had, has] = size.rep_sites;
    if had + has > 0 {
        let mut text = format!("rep sites {had} → {has}");
        for (effect, verb) in [(size.lost_rep, "lost"), (size.gained_rep, "gained")] {
            if effect.functions > 0 {
                text += &format!(
                    "; {} {verb} {} and changed by {} bytes",
                    count(effect.functions, "function"),
                    effect.sites,
                    signed(effect.change_bytes)
                );
            }
        }
        out += &wrap("why      ", &text);
    }
    format!("\n{out}")
}

fn functions(size: &SizeDifference, most: usize) -> String {
    let is_news = |f: &&FunctionGrowth| {
        f.change_bytes != 0 || !f.why.rep_removed.is_empty() || !f.why.rep_added.is_empty()
    };
    let list: Vec<&FunctionGrowth> = size.functions.iter().filter(is_news).collect();
    if list.is_empty() {
        return String::new();
    }
    let mut out =
        paint(FAINT, format!("\n  {:>8}{:>9}{:>9}  function\n", "change", "before", "after"));
    list.iter().take(most).for_each(|f| out += &function(f));
    out + &left_out(list.len(), most, "function")
}

fn function(f: &FunctionGrowth) -> String {
    let bytes = |size: Option<FunctionSize>| {
        size.map_or_else(|| "-".to_owned(), |s| s.code_bytes().to_string())
    };
    let object = f.object.as_ref().map(|o| format!(" ({o})")).unwrap_or_default();
    let line = format!(
        "  {:>8}{:>9}{:>9}  {}{object}",
        signed(f.change_bytes),
        bytes(f.before),
        bytes(f.after),
        site::short_name(&f.name)
    );
    let mut out = site::clip(&line, width()) + "\n";
    let why = reasons(f);
    if !why.is_empty() {
        out += &paint(FAINT, wrap(&" ".repeat(30), &why.join("; ")));
    }
    out
}

fn reasons(f: &FunctionGrowth) -> Vec<String> {
    let why = &f.why;
    let mut out = Vec::new();
    match f.growth {
        Growth::New => out.push("new".to_owned()),
        Growth::Gone => out.push("gone".to_owned()),
        _ => {}
    }
    out.extend(f.renamed_from.as_ref().map(|old| format!("was {old}")));
    out.extend(why.rep_removed.iter().map(|s| format!("no longer {}", strings(s))));
    out.extend(why.rep_added.iter().map(|s| format!("now {}", strings(s))));
    out.extend(calls("calls now", &why.calls_added));
    out.extend(calls("no longer calls", &why.calls_removed));
    let short = |all: &[String]| -> Vec<String> {
        all.iter().map(|name| site::short_name(name).to_owned()).collect()
    };
    out.extend(names("inlined", &short(&why.inlined)));
    out.extend(names("split off", &short(&why.split_off)));
    match why.loops_change {
        0 => {}
        n => out.push(format!(
            "{} {}",
            count(n.unsigned_abs() as usize, "loop"),
            if n > 0 { "more" } else { "fewer" }
        )),
    }
    let cold = |size: Option<FunctionSize>| size.map_or(0, |s| s.cold_bytes) as i64;
    match cold(f.after) - cold(f.before) {
        0 => {}
        change => out.push(format!("{} of it cold", signed(change))),
    }
    let parts = |size: Option<FunctionSize>| size.map_or(0, |s| s.parts);
    if parts(f.before).max(parts(f.after)) > 1 {
        out.push(format!("parts {} → {}", parts(f.before), parts(f.after)));
    }
    out
}

fn strings(change: &StringChange) -> String {
    let size = change.size_bytes.map_or("unknown size".to_owned(), |n| format!("{n} bytes"));
    match change.sites {
        1 => format!("{} of {size}", change.instruction),
        n => format!("{n} {} of {size}", change.instruction),
    }
}

fn calls(what: &str, changes: &[CallChange]) -> Option<String> {
    let one = |c: &CallChange| match c.calls {
        1 => site::short_name(&c.callee).to_owned(),
        n => format!("{} ({n})", site::short_name(&c.callee)),
    };
    names(what, &changes.iter().map(one).collect::<Vec<_>>())
}

fn names(what: &str, all: &[String]) -> Option<String> {
    let list = all.iter().take(MOST_NAMES).cloned().collect::<Vec<_>>().join(", ");
    match all.len() {
        0 => None,
        n if n > MOST_NAMES => Some(format!("{what} {list} and {} more", n - MOST_NAMES)),
        _ => Some(format!("{what} {list}")),
    }
}

fn signed(n: i64) -> String {
    if n > 0 { format!("+{n}") } else { n.to_string() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use stallscope::code::{Image, fixture};
    use stallscope::hazards::{FindingsDifference, ScanFilter, scan};
    use stallscope::layout::{Build, BuildSummary};
    use stallscope::machine::{Design, Microarchitecture};

    use super::*;
    use crate::terminal::plain;

    fn shown(before: &[(&str, &[u8])], after: &[(&str, &[u8])], is_part: bool) -> String {
        let profile = Design::of(Microarchitecture::CascadeLake);
        let read = |functions: &[(&str, &[u8])]| {
            vec![Image::parse(Path::new("./invented"), fixture::program(functions)).unwrap()]
        };
        let reports = |images: &[Image]| {
            let report = |i| (None, scan(i, &ScanFilter::default(), &profile, None));
            images.iter().map(report).collect::<Vec<_>>()
        };
        let (old, new) = (read(before), read(after));
        let build = |images| Build::of(Path::new("./invented"), images);
        let difference = ScanDifference {
            before: old.iter().map(BuildSummary::of).collect(),
            after: new.iter().map(BuildSummary::of).collect(),
            rules: Vec::new(),
            findings: FindingsDifference::of(&reports(&old), &reports(&new)),
            known: 0,
            size: SizeDifference::of(&build(&old), &build(&new)),
        };
        let names = ["./old", "./new"].map(str::to_owned);
        let show = Show { names, most: 9, is_part };
        plain(&screen(&difference, &show, &mut SourceText::default()))
    }

    /// mov ecx, 6; rep stosq; ret, and the same by stores: mov [rdi+8*i], rax; ret
    const WITH_REP: &[u8] = &[0xb9, 6, 0, 0, 0, 0xf3, 0x48, 0xab, 0xc3];
    const WITH_STORES: &[u8] = &[
        0x48, 0x89, 0x07, 0x48, 0x89, 0x47, 8, 0x48, 0x89, 0x47, 16, 0x48, 0x89, 0x47, 24, 0x48,
        0x89, 0x47, 32, 0x48, 0x89, 0x47, 40, 0xc3,
    ];

    #[test]
    fn a_build_without_string_instructions_beside_one_with() {
        let (wide, ret) = (fixture::ring_loop(true), [0xc3_u8]);
        let before: [(&str, &[u8]); 3] = [("clear", WITH_REP), ("gone", &ret), ("main", &ret)];
        let after: [(&str, &[u8]); 4] =
            [("clear", WITH_STORES), ("main", &ret), ("main.cold", &ret), ("decode", &wide)];
        insta::assert_snapshot!(shown(&before, &after, false));
    }

    #[test]
    fn two_equal_builds_have_little_to_say() {
        let functions: [(&str, &[u8]); 1] = [("clear", WITH_REP)];
        insta::assert_snapshot!(shown(&functions, &functions, false));
        assert!(!shown(&functions, &functions, true).contains("section"));
    }
}
