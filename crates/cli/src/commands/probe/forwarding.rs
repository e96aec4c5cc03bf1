//! The screen of the probe `store-forwarding`: the verdict, the matrix, what lies beside it, the
//! delay curve, and the checks that make it believable.

use std::collections::BTreeSet;

use stallscope::model::Measurement;
use stallscope::probes::store_forwarding::{
    CellReport, Class, DelayPoint, ForwardingReport, Group, Registers,
};

use super::page::{LABEL, Page, event, lacks};
use crate::terminal::{BAD, CAUTION, GOOD, STRONG, paint};

pub fn screen(report: &ForwardingReport) -> String {
    let mut page = Page::default();
    page.head(&report.protocol);
    page.line("", "R renamed, F forwarded, B blocked; core cycles a round trip");
    for registers in Registers::ALL {
        matrix(&mut page, report, registers);
    }
    missing(&mut page, report);
    partial_overlaps(&mut page, report);
    specials(&mut page, report);
    delay(&mut page, report);
    page.blank();
    trust(&mut page, report);
    page.text
}

fn letter(class: Class) -> &'static str {
    match class {
        Class::Renamed => "R",
        Class::Forwarded => "F",
        Class::Blocked => "B",
        Class::Aliased => "A",
        Class::Independent => "I",
        _ => "?",
    }
}

/// `R 0.5 F 7.0-7.9`: every class that occurs among the cells, with the range of its values.
fn summary<'a>(cells: impl Iterator<Item = &'a CellReport> + Clone, digits: usize) -> String {
    let classes = [Class::Renamed, Class::Forwarded, Class::Blocked, Class::Inconclusive];
    let of = |class: Class| {
        let all = cells.clone().filter(move |c| c.class == class);
        let values = all.clone().filter_map(|c| c.cycles.as_ref()).map(|m| m.value);
        let (low, high) =
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        (all.count() > 0).then(|| match class {
            Class::Inconclusive => "?".to_owned(),
            _ => format!("{} {}", letter(class), range(low, high, digits)),
        })
    };
    classes.into_iter().filter_map(of).collect::<Vec<_>>().join(" ")
}

/// The same without decimals where it would run into the next column.
fn fitting<'a>(cells: impl Iterator<Item = &'a CellReport> + Clone, columns: usize) -> String {
    let whole = summary(cells.clone(), 1);
    if whole.len() <= columns { whole } else { summary(cells, 0) }
}

fn range(low: f64, high: f64, digits: usize) -> String {
    let (low, high) = (format!("{low:.digits$}"), format!("{high:.digits$}"));
    if low == high { low } else { format!("{low}-{high}") }
}

/// Widths of stores and of loads.
fn widths(report: &ForwardingReport, registers: Registers) -> (BTreeSet<u16>, BTreeSet<u16>) {
    let of_matrix = |c: &&CellReport| {
        c.case.group == Group::Matrix && c.case.registers == registers && c.case.stores.len() == 1
    };
    let cells = report.cells.iter().filter(of_matrix);
    cells.map(|c| (c.case.stores[0].bytes, c.case.load.bytes)).unzip()
}

/// Whether the load lies in the store, or is wider and reaches all of it: the cells of the table.
fn whole(cell: &CellReport) -> bool {
    let (case, Some(store)) = (&cell.case, cell.case.stores.first()) else { return false };
    case.contained()
        || (case.load.bytes > store.bytes && case.load.offset_bytes <= 0 && {
            let end = case.load.offset_bytes + i32::from(case.load.bytes);
            end >= i32::from(store.bytes)
        })
}

fn name(registers: Registers) -> &'static str {
    match registers {
        Registers::General => "general",
        Registers::Vector => "vector",
        Registers::IntoVector => "into vector",
        Registers::IntoGeneral => "from vector",
        Registers::Wide => "512 bits",
    }
}

/// The matrices that are not there, and for which feature.
fn missing(page: &mut Page, report: &ForwardingReport) {
    let features = &report.protocol.machine.features;
    let lacking = |registers: Registers| match registers {
        Registers::General => None,
        Registers::Wide => (!features.avx512f).then_some("AVX-512"),
        _ => (!features.avx).then_some("AVX"),
    };
    let absent = |r: &Registers| widths(report, *r).0.is_empty();
    let all = Registers::ALL.into_iter().filter(absent);
    let rows: Vec<_> = all.filter_map(|r| Some((name(r), lacking(r)?))).collect();
    if !rows.is_empty() {
        page.blank();
    }
    for (name, feature) in rows {
        page.line(name, &lacks(feature));
    }
}

fn matrix(page: &mut Page, report: &ForwardingReport, registers: Registers) {
    let (stores, loads) = widths(report, registers);
    if stores.is_empty() {
        return;
    }
    page.blank();
    let name = name(registers);
    let columns: String = loads.iter().map(|w| format!("{:<16}", format!("load {w}"))).collect();
    let label = paint(STRONG, format_args!("{name:<LABEL$}"));
    page.text += &format!("{label}{}\n", columns.trim_end());
    for &store in &stores {
        let mut row = format!("{:<LABEL$}", format!("store {store}"));
        for &load in &loads {
            let here = report.cells.iter().filter(|c| {
                c.case.group == Group::Matrix
                    && c.case.registers == registers
                    && c.case.load.bytes == load
                    && c.case.stores.first().is_some_and(|s| s.bytes == store)
                    && whole(c)
            });
            row += &format!("{:<16}", fitting(here, 15));
        }
        page.text += &format!("{}\n", row.trim_end());
    }
}

fn partial_overlaps(page: &mut Page, report: &ForwardingReport) {
    let partial = report.cells.iter().filter(|c| c.case.group == Group::Matrix && !whole(c));
    let count = partial.clone().count();
    if count > 0 {
        page.blank();
        page.line("partly", &format!("overlapping, {count} offsets: {}", summary(partial, 1)));
    }
}

fn specials(page: &mut Page, report: &ForwardingReport) {
    for (label, groups) in [
        ("several", &[Group::Several][..]),
        ("splits", &[Group::LineSplit, Group::PageSplit]),
        ("addresses", &[Group::OtherBase, Group::Alias, Group::Disjoint]),
        ("unused", &[Group::Unused]),
    ] {
        let mut label = label;
        for cell in report.cells.iter().filter(|c| groups.contains(&c.case.group)) {
            row(page, label, cell);
            label = "";
        }
    }
}

fn row(page: &mut Page, label: &str, cell: &CellReport) {
    let label = paint(STRONG, format_args!("{label:<LABEL$}"));
    let word = cell.class.word();
    let style = match cell.class {
        Class::Blocked | Class::Aliased => CAUTION,
        Class::Inconclusive => BAD,
        _ => GOOD,
    };
    let word = paint(style, format_args!("{word:<13}"));
    let value = match &cell.cycles {
        Some(m) => interval(m),
        None => format!("{:.0} % clean", cell.clean_percent),
    };
    page.text += &format!("{label}{:<32} {word}{value}\n", cell.name);
}

fn interval(m: &Measurement) -> String {
    format!("{:.1} [{:.1}, {:.1}]", m.value, m.low, m.high)
}

/// Points of the curve in one row.
const POINTS: usize = 11;

fn delay(page: &mut Page, report: &ForwardingReport) {
    let curve = &report.delay;
    let ends = |free: Option<u32>, what: &str| match free {
        Some(n) => format!("free from {n} {what} on"),
        None => format!("not seen to end within the {what} tried"),
    };
    page.blank();
    page.line("delay", "blocked by two stores, forwarded from one, cached: other bytes");
    page.line("", &format!("cycles between: {}", ends(curve.free_after_cycles, "cycles")));
    points(page, &curve.steps);
    let words = ends(curve.free_after_instructions, "instructions");
    page.line("", &format!("independent instructions between: {words}"));
    points(page, &curve.fillers);
}

fn points(page: &mut Page, points: &[DelayPoint]) {
    let number = |value: Option<f64>| value.map_or("?".to_owned(), |v| format!("{v:.1}"));
    for chunk in points.chunks(POINTS) {
        let mut line = |label: &str, each: &dyn Fn(&DelayPoint) -> String| {
            let values: String = chunk.iter().map(|p| format!("{:>6}", each(p))).collect();
            page.text += &format!("{:<LABEL$}{values}\n", format!("  {label}"));
        };
        line("between", &|p| p.between.to_string());
        line("blocked", &|p| number(p.blocked.as_ref().map(|m| m.value)));
        line("forwarded", &|p| number(p.forwarded.as_ref().map(|m| m.value)));
        line("cached", &|p| number(p.cached.as_ref().map(|m| m.value)));
        // Not "-0.0".
        line("extra", &|p| number(p.extra_cycles().map(|e| (e * 10.0).round() / 10.0 + 0.0)));
    }
}

fn trust(page: &mut Page, report: &ForwardingReport) {
    let rule = &report.rule;
    match rule.rule {
        // The verdict has the sentence.
        Some(_) => page.line(
            "rule",
            &format!("agrees with every decided cell: {} of {}", rule.decided, rule.of),
        ),
        None => page.line("rule", &rule.sentence),
    }
    for name in &rule.against {
        page.line("", &format!("against it: {name}"));
    }
    report.protocol.controls.iter().for_each(|c| page.control(c));
    page.published(&report.protocol, |low, high| range(low, high, 1));
    if let Some(check) = &report.counter {
        let words = event(check, ["a blocked load", "a forwarded one"], |counts| {
            format!("counts what it says: {counts}")
        });
        page.line("counter", &words);
    }
    page.left_out(&report.protocol);
    if let Some(n) = report.cells.iter().filter_map(|c| c.cycles.as_ref()).map(|m| m.n).min() {
        page.line("", &format!("values: median of placements [lowest, highest], n >= {n}"));
    }
}

#[cfg(test)]
mod tests;
